//! What the record keeps of a failure beside what the model is told.
//!
//! Invariant: a detail is for whoever may read the run, and for nobody else. It is stored sealed with its event
//! and is destroyed with it; it is never part of a conversation, and nothing that is made for logs shows it (S5):
//! it has no `Display`, and its `Debug` says only how long it is. Not here: the sentence for the model.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The most that is kept, in bytes.
pub const DETAIL_BYTES_MAX: usize = 4_096;

/// Why a call failed, as far as somebody said: a status, the beginning of a body, the end of an error output.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Detail(String);

impl Detail {
    /// A text of any length, of which the beginning is kept.
    pub fn new(text: &str) -> Self {
        Self::beginning_of("", text.as_bytes())
    }

    /// What happened, and below it the beginning of what was said. A reader that hands over one byte more than
    /// [`DETAIL_BYTES_MAX`] has handed over enough. What is no UTF-8 is shown as U+FFFD.
    pub fn beginning_of(happened: &str, said: &[u8]) -> Self {
        const NOTE: &str = "\n[the rest is not kept]";
        let mut kept = headed(happened, &readable(&said[..said.len().min(DETAIL_BYTES_MAX + 1)]));
        if kept.len() > DETAIL_BYTES_MAX {
            kept.truncate(kept.floor_char_boundary(DETAIL_BYTES_MAX - NOTE.len()));
            kept.push_str(NOTE);
        }
        Self(kept)
    }

    /// The same with the end of what was said.
    pub fn end_of(happened: &str, said: &[u8]) -> Self {
        let text = readable(&said[said.len().saturating_sub(DETAIL_BYTES_MAX + 1)..]);
        let whole = headed(happened, &text);
        if whole.len() <= DETAIL_BYTES_MAX {
            return Self(whole);
        }
        let head = headed(happened, "[what came before is not kept]\n");
        let head = &head[..head.floor_char_boundary(DETAIL_BYTES_MAX)];
        let too_much = (head.len() + text.len()).saturating_sub(DETAIL_BYTES_MAX);
        Self(format!("{head}{}", &text[text.ceil_char_boundary(too_much)..]))
    }

    /// The text, for people.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn readable(said: &[u8]) -> String {
    String::from_utf8_lossy(said).replace('\0', "\u{2400}")
}

fn headed(happened: &str, text: &str) -> String {
    let between = if happened.is_empty() || text.is_empty() { "" } else { "\n" };
    format!("{happened}{between}{text}")
}

impl From<String> for Detail {
    fn from(text: String) -> Self {
        Self::new(&text)
    }
}

impl From<Detail> for String {
    fn from(detail: Detail) -> Self {
        detail.0
    }
}

impl fmt::Debug for Detail {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Detail({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_beginning_or_the_end_of_a_long_text_is_kept() {
        let long = "é🦀".repeat(5_000);
        let beginning = Detail::beginning_of("status 500", long.as_bytes());
        assert!(beginning.as_str().starts_with("status 500\né🦀é"), "{}", beginning.as_str());
        assert!(beginning.as_str().ends_with("\n[the rest is not kept]"), "{}", beginning.as_str());
        let end = Detail::end_of("exit status: 3", format!("{long}end").as_bytes());
        let expected = "exit status: 3\n[what came before is not kept]\n";
        assert!(end.as_str().starts_with(expected), "{}", end.as_str());
        assert!(end.as_str().ends_with("é🦀end"), "{}", end.as_str());
    }

    #[test]
    fn what_fits_is_whole_and_what_is_no_text_can_be_read() {
        for detail in [Detail::beginning_of("a", b"b\0\xff"), Detail::end_of("a", b"b\0\xff")] {
            assert_eq!(detail.as_str(), "a\nb␀\u{fffd}");
        }
        assert_eq!(Detail::end_of("a", b"").as_str(), "a");
        let whole = "x".repeat(DETAIL_BYTES_MAX);
        assert_eq!(Detail::new(&whole).as_str(), whole);
        assert_eq!(Detail::end_of("", whole.as_bytes()).as_str(), whole);
    }

    #[test]
    fn rule_s5_nothing_that_is_made_for_logs_shows_it() {
        assert_eq!(format!("{:?}", Detail::new("hunter2")), "Detail(7 bytes)");
    }

    proptest! {
        #[test]
        fn whatever_was_said_a_detail_is_bounded_and_is_stored_as_it_is(
            happened in "\\PC{0,20}", said in prop::collection::vec(any::<u8>(), 0..5000),
        ) {
            for detail in [
                Detail::beginning_of(&happened, &said),
                Detail::end_of(&happened, &said),
                Detail::end_of(&happened.repeat(1 + said.len()), &said),
                Detail::new(&happened.repeat(1 + said.len())),
            ] {
                prop_assert!(detail.as_str().len() <= DETAIL_BYTES_MAX && !detail.as_str().contains('\0'));
                prop_assert_eq!(Detail::from(detail.as_str().to_owned()), detail);
            }
        }
    }
}
