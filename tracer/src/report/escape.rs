//! Makes text from outside (thread names, paths, command lines) safe to print: a file may be named after an escape
//! sequence, and a terminal would obey it.

use std::fmt::Write;

/// The same text, with everything that a terminal would act on or not show written as an escape such as `\n` or `\u{1b}`:
/// control characters, line separators, invisible and text-direction characters, unassigned code points.
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_plain(c) {
            out.push(c);
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "{}", c.escape_debug());
        }
    }
    out
}

/// Whether a terminal shows `c` as itself.
fn is_plain(c: char) -> bool {
    if matches!(c, ' '..='~') {
        return true;
    }
    // Variation selectors change the width of the character before them.
    if matches!(c, '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}') {
        return false;
    }
    // After another character, so that combining marks (Devanagari vowels, decomposed accents) stay as they are.
    let mut after = String::with_capacity(5);
    after.push('x');
    after.push(c);
    after.escape_debug().count() == 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn terminal_control_is_spelled_out() {
        assert_eq!(printable("a\u{1b}[31mred\u{7}"), "a\\u{1b}[31mred\\u{7}");
        assert_eq!(printable("two\nlines\tand\0"), "two\\nlines\\tand\\0");
        assert_eq!(printable("\u{202e}gpj.exe\u{9b}2J\u{200b}"), "\\u{202e}gpj.exe\\u{9b}2J\\u{200b}");
        assert_eq!(printable("heart\u{fe0f}"), "heart\\u{fe0f}");
    }

    #[test]
    fn letters_of_any_script_stay() {
        for text in ["/data/größe/数据/फ़ाइल.jpg", "plain 'quoted' \"text\" \\ back", "e\u{301}"] {
            assert_eq!(printable(text), text);
        }
    }

    proptest! {
        #[test]
        fn nothing_that_a_terminal_obeys_is_left(text in any::<String>()) {
            let safe = printable(&text);
            prop_assert!(!safe.chars().any(char::is_control));
            prop_assert_eq!(printable(&safe), safe);
        }
    }
}
