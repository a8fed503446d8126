//! Checks as text for people and as JSON.

use super::{Check, Level, worst};
use crate::units::Pid;
use serde::Serialize;

/// Name of the JSON form, documented in docs/doctor.md.
const SCHEMA: &str = "gpustall.doctor/1";

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    host: String,
    kernel: String,
    pid: Option<Pid>,
    ready: bool,
    checks: &'a [Check],
}

/// The checks as one JSON object.
pub fn json(checks: &[Check], pid: Option<Pid>) -> serde_json::Result<String> {
    serde_json::to_string_pretty(&Document {
        schema: SCHEMA,
        host: crate::host::hostname(),
        kernel: crate::host::kernel_release(),
        pid,
        ready: worst(checks) < Level::Failure,
        checks,
    })
}

/// The checks as text, one line each with the advice below it, and a summary. `width` is that of the terminal, `color`
/// asks for its colours.
pub fn text(checks: &[Check], width: usize, color: bool) -> String {
    let names = checks.iter().map(|c| c.name.len()).max().unwrap_or(0);
    let indent = " ".repeat(LEVEL_WIDTH + 2 + names + 2);
    let room = width.saturating_sub(indent.len()).max(40);
    let mut out = String::new();
    for check in checks {
        let (word, code) = match check.level {
            Level::Ok => ("ok", "32"),
            Level::Warning => ("warning", "33"),
            Level::Failure => ("failure", "31;1"),
        };
        let padded = format!("{word:LEVEL_WIDTH$}");
        let level = if color { format!("\x1b[{code}m{padded}\x1b[0m") } else { padded };
        let mut lines = wrap(&check.finding, room).into_iter();
        out += &format!("{level}  {:names$}  {}\n", check.name, lines.next().unwrap_or_default());
        lines.for_each(|line| out += &format!("{indent}{line}\n"));
        for (i, line) in check.advice.iter().flat_map(|a| wrap(a, room - 2)).enumerate() {
            out += &format!("{indent}{} {line}\n", if i == 0 { "→" } else { " " });
        }
    }
    out += "\n";
    out += &summary(checks);
    out
}

const LEVEL_WIDTH: usize = "warning".len();

fn summary(checks: &[Check]) -> String {
    let count = |level| checks.iter().filter(|c| c.level == level).count();
    let plural = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
    let (warnings, failures) = (count(Level::Warning), count(Level::Failure));
    let verdict = if failures == 0 { "gpustall can record here" } else { "gpustall cannot record here" };
    format!("{verdict}: {}, {}, {} ok.\n", plural(failures, "failure"), plural(warnings, "warning"), count(Level::Ok))
}

/// Breaks text at spaces into lines of at most `width` characters; a longer word gets a line of its own.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        match lines.last_mut() {
            Some(line) if used == 0 || used + 1 + length <= width => {
                if used > 0 {
                    line.push(' ');
                    used += 1;
                }
                line.push_str(word);
                used += length;
            }
            _ => {
                lines.push(word.to_owned());
                used = length;
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checks() -> Vec<Check> {
        vec![
            Check::ok("kernel", "Linux 6.1"),
            Check::warning("tracefs", "not mounted: file opens cannot be counted at all", "mount it"),
            Check::failure("btf", "missing", "boot another kernel"),
        ]
    }

    #[test]
    fn text_is_aligned_and_wrapped() {
        let expected = "\
ok       kernel   Linux 6.1
warning  tracefs  not mounted: file opens cannot be
                  counted at all
                  → mount it
failure  btf      missing
                  → boot another kernel

gpustall cannot record here: 1 failure, 1 warning, 1 ok.
";
        assert_eq!(text(&checks(), 58, false), expected);
        assert!(text(&checks(), 58, true).contains("\x1b[33mwarning\x1b[0m  tracefs"));
    }

    #[test]
    fn json_says_whether_it_is_ready() {
        let value: serde_json::Value = serde_json::from_str(&json(&checks(), Some(Pid(7))).unwrap()).unwrap();
        assert_eq!(value["schema"], SCHEMA);
        assert_eq!(value["ready"], false);
        assert_eq!(value["pid"], 7);
        assert_eq!(value["checks"][1]["level"], "warning");
        assert_eq!(value["checks"][0]["advice"], serde_json::Value::Null);
        let ready: serde_json::Value = serde_json::from_str(&json(&checks()[..2], None).unwrap()).unwrap();
        assert_eq!(ready["ready"], true);
    }

    #[test]
    fn long_words_are_left_whole() {
        assert_eq!(wrap("a /very/long/path b", 6), ["a", "/very/long/path", "b"]);
        assert_eq!(wrap("", 6), [""]);
    }
}
