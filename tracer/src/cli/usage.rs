//! Wrong usage, told as all errors are: in one sentence.

use super::output;
use clap::error::ErrorKind;
use std::process::ExitCode;

/// Prints what clap has to say: help as it is, an error as one sentence.
pub fn tell(error: &clap::Error) -> ExitCode {
    let help = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand || !error.use_stderr();
    if help {
        // A reader that is gone needs no help.
        let _ = error.print();
    } else {
        output::say(sentence(&error.render().to_string()));
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// The message and the tips, without the summary of the usage.
fn sentence(rendered: &str) -> String {
    let words = |paragraph: &str| paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
    let paragraphs: Vec<String> = rendered
        .split("\n\n")
        .map(words)
        .filter(|p| !p.is_empty() && !p.starts_with("Usage:") && !p.starts_with("For more information"))
        .collect();
    let text = paragraphs.join("; ");
    format!("{}; see --help", text.strip_prefix("error: ").unwrap_or(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_sentence_with_its_tips() {
        let rendered = "error: unexpected argument '--durations' found\n\n  tip: a similar argument exists: \
                        '--duration'\n\nUsage: gpustall record <--pid <PID>|COMMAND>\n\nFor more information, try '--help'.\n";
        assert_eq!(
            sentence(rendered),
            "unexpected argument '--durations' found; tip: a similar argument exists: '--duration'; see --help"
        );
        assert_eq!(
            sentence("error: the following were not provided:\n  <A>\n  <B>\n\nUsage: x"),
            "the following were not provided: <A> <B>; see --help"
        );
    }
}
