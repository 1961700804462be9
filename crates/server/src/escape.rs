//! Text of models, tools and people on its way to a screen.
//!
//! Invariant: what comes out holds no character that a terminal obeys, that turns the direction of reading or
//! that nobody can see; each is written out as `\u{202e}`. What is too long is folded in the middle, with the
//! count, and its end stays visible. What runs is never touched (C56).

use std::fmt::Write as _;

/// The most characters of one value that are shown before it is folded.
pub(crate) const VALUE_CHARS_MAX: usize = 2_000;
/// Of a folded value, this many characters of its end stay visible.
const TAIL_CHARS: usize = 300;
/// A run of blanks this long is folded: it could push what follows out of sight.
const BLANKS_MAX: usize = 40;

/// One line: line ends are written out too.
pub(crate) fn line(text: &str) -> String {
    escaped(text, |character| match character {
        '\n' => Some("\\n"),
        '\r' => Some("\\r"),
        '\t' => Some("\\t"),
        _ => None,
    })
}

/// Several lines: line ends stay, a tab is four blanks.
pub(crate) fn block(text: &str) -> String {
    escaped(&text.replace("\r\n", "\n"), |character| match character {
        '\n' => Some("\n"),
        '\t' => Some("    "),
        _ => None,
    })
}

/// One line, folded when it is long or mostly blank.
pub(crate) fn value(text: &str) -> String {
    line(&folded(text, VALUE_CHARS_MAX))
}

/// One line of at most about this many characters.
pub(crate) fn short(text: &str, chars_max: usize) -> String {
    line(&folded(text, chars_max))
}

/// How many characters of a text cannot be shown as they are.
pub(crate) fn hidden_in(text: &str) -> usize {
    text.chars().filter(|character| hides(*character) && !matches!(character, '\n' | '\t' | '\r')).count()
}

/// JSON for programs, which may still land on a terminal: the same characters in JSON's own escapes.
pub(crate) fn json(value: &serde_json::Value) -> String {
    let text = value.to_string();
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        if hides(character) {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                _ = write!(safe, "\\u{unit:04x}");
            }
        } else {
            safe.push(character);
        }
    }
    safe
}

fn escaped(text: &str, own: impl Fn(char) -> Option<&'static str>) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match own(character) {
            Some(instead) => shown.push_str(instead),
            None if hides(character) => _ = write!(shown, "\\u{{{:x}}}", u32::from(character)),
            None => shown.push(character),
        }
    }
    shown
}

/// Whether a screen would obey the character, swallow it, or show it as something else. Control and format
/// characters, separators, tags, variation selectors, fillers, private use, and all blanks but the two that
/// have a width of their own.
fn hides(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{a0}' | '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}'
            | '\u{890}'..='\u{891}' | '\u{8e2}' | '\u{115f}'..='\u{1160}' | '\u{1680}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{2000}'..='\u{200f}' | '\u{2028}'..='\u{202f}' | '\u{205f}'..='\u{206f}'
            | '\u{2800}' | '\u{3164}' | '\u{e000}'..='\u{f8ff}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1345f}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{10ffff}')
        || u32::from(character) & 0xfffe == 0xfffe
        || matches!(character, '\u{fdd0}'..='\u{fdef}')
}

/// The text with its long runs of blanks, and then its middle, replaced by counts.
fn folded(text: &str, chars_max: usize) -> String {
    let text = without_long_blanks(text);
    let count = text.chars().count();
    if count <= chars_max {
        return text;
    }
    let tail = TAIL_CHARS.min(chars_max / 3);
    let head = chars_max - tail;
    let left_out = count - head - tail;
    let head: String = text.chars().take(head).collect();
    let tail: String = text.chars().skip(count - tail).collect();
    format!("{head} [… {left_out} characters …] {tail}")
}

fn without_long_blanks(text: &str) -> String {
    if !text.contains(&" ".repeat(BLANKS_MAX + 1)) {
        return text.to_owned();
    }
    let mut shown = String::with_capacity(text.len().min(VALUE_CHARS_MAX * 4));
    let mut blanks = 0;
    let settle = |shown: &mut String, blanks: usize| {
        if blanks > BLANKS_MAX {
            _ = write!(shown, " [… {blanks} blanks …] ");
        } else {
            shown.extend(std::iter::repeat_n(' ', blanks));
        }
    };
    for character in text.chars() {
        if character == ' ' {
            blanks += 1;
            continue;
        }
        settle(&mut shown, blanks);
        blanks = 0;
        shown.push(character);
    }
    settle(&mut shown, blanks);
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_c56_what_a_screen_would_obey_is_written_out() {
        for (text, shown) in [
            ("a\u{202e}b", "a\\u{202e}b"),
            ("a\u{200b}b\u{feff}", "a\\u{200b}b\\u{feff}"),
            ("\u{1b}[2Jgone", "\\u{1b}[2Jgone"),
            ("\u{9b}2J", "\\u{9b}2J"),
            ("\u{e0041}\u{e0042}", "\\u{e0041}\\u{e0042}"),
            ("one\ntwo\r\tthree", "one\\ntwo\\r\\tthree"),
            ("\u{2028}\u{2066}\u{ad}\u{fe0f}\u{3164}", "\\u{2028}\\u{2066}\\u{ad}\\u{fe0f}\\u{3164}"),
            ("naïve 日本語 ✓", "naïve 日本語 ✓"),
        ] {
            assert_eq!(line(text), shown);
        }
        assert_eq!(hidden_in("a\u{202e}\n\u{200b}"), 2);
    }

    #[test]
    fn case_c56_several_lines_stay_lines() {
        assert_eq!(block("a\r\nb\tc\u{7}\u{202e}"), "a\nb    c\\u{7}\\u{202e}");
        assert_eq!(block("a\rb"), "a\\u{d}b", "a lone carriage return would overwrite the line");
    }

    #[test]
    fn case_c56_the_end_of_a_long_value_stays_visible() {
        let shown = value(&format!("{}the end", "x".repeat(200_000)));
        assert!(shown.ends_with("xthe end"), "{}", &shown[shown.len() - 40..]);
        assert!(shown.contains("[… 198007 characters …]"), "the count is there");
        assert!(shown.chars().count() < 2_100);
    }

    #[test]
    fn case_c56_a_wall_of_blanks_hides_nothing() {
        let shown = value(&format!("rm{} --all", " ".repeat(200_000)));
        assert_eq!(shown, "rm [… 200001 blanks …] --all");
    }

    #[test]
    fn case_c56_json_is_the_same_value_without_raw_characters() {
        let value = serde_json::json!({ "a\u{202e}": "\u{9b}\u{e0041}é" });
        let text = json(&value);
        assert!(text.chars().all(|character| !hides(character)), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }
}
