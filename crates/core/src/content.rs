//! The text that a tool answers with, and how large it truly is (L4).
//!
//! Invariant: the size that is told is the size of the whole text, also where whoever read it kept only its
//! beginning, and what a model is shown is valid UTF-8 within [`CONTENT_BYTES_MAX`]. Not here: how a text of any
//! size is read in bounded memory (the clients), what a call came to (`result`).

/// The most that a model is shown of one result, in bytes, the note of the cut included (L4).
pub const CONTENT_BYTES_MAX: usize = 50_000;

/// A text for the model, of any size.
///
/// ```
/// # use countersign_core::ToolContent;
/// let whole = ToolContent::from("page 7");
/// assert_eq!((whole.kept(), whole.bytes()), ("page 7", 6));
/// let cut = ToolContent::beginning("page".to_owned(), 52_428_800);
/// assert_eq!((cut.kept(), cut.bytes()), ("page", 52_428_800));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolContent {
    kept: String,
    /// Never less than what is kept.
    bytes: u64,
}

impl ToolContent {
    /// A text of which only the beginning was kept; `bytes` is the size of all of it.
    ///
    /// To be shown to its bound a text needs at least [`CONTENT_BYTES_MAX`] bytes of it.
    pub fn beginning(kept: String, bytes: u64) -> Self {
        Self { bytes: bytes.max(kept.len() as u64), kept }
    }

    /// What was kept of it.
    pub fn kept(&self) -> &str {
        &self.kept
    }

    /// How large all of it is, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The text as it is stored and shown: NUL as a symbol, and what is too long cut on a character border, with
    /// a note of the true size.
    pub(crate) fn bounded(&self) -> String {
        let beginning = &self.kept[..self.kept.floor_char_boundary(CONTENT_BYTES_MAX)];
        let mut shown = beginning.replace('\0', "\u{2400}");
        // The symbol is longer than what it stands for.
        if self.bytes > beginning.len() as u64 || shown.len() > CONTENT_BYTES_MAX {
            let note = format!("\n[cut: {} bytes in all]", self.bytes);
            shown.truncate(shown.floor_char_boundary(CONTENT_BYTES_MAX - note.len()));
            shown.push_str(&note);
        }
        shown
    }
}

impl From<String> for ToolContent {
    fn from(text: String) -> Self {
        Self { bytes: text.len() as u64, kept: text }
    }
}

impl From<&str> for ToolContent {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vector_tl05_content_is_cut_on_a_character_border_with_its_true_size() {
        let shown = ToolContent::from("é🦀".repeat(10_000)).bounded();
        assert!(shown.len() <= CONTENT_BYTES_MAX && shown.starts_with("é🦀é"));
        assert!(shown.ends_with("\n[cut: 60000 bytes in all]"));
        let whole = "x".repeat(CONTENT_BYTES_MAX);
        assert_eq!(ToolContent::from(whole.as_str()).bounded(), whole);
    }

    #[test]
    fn rule_l4_a_beginning_is_noted_as_cut_however_short_it_is() {
        assert_eq!(ToolContent::beginning("ab".to_owned(), 9).bounded(), "ab\n[cut: 9 bytes in all]");
        assert_eq!(ToolContent::beginning("ab".to_owned(), 0), "ab".into(), "no text is larger than itself");
    }

    #[test]
    fn case_c53_nul_is_shown_and_counts_as_what_is_shown() {
        assert_eq!(ToolContent::from("a\0b").bounded(), "a␀b");
        let shown = ToolContent::from("\0".repeat(CONTENT_BYTES_MAX)).bounded();
        assert!(shown.len() <= CONTENT_BYTES_MAX && shown.ends_with("\n[cut: 50000 bytes in all]"));
    }
}
