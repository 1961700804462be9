//! How much is kept of a text that may be of any size.
//!
//! Invariant: memory is bounded by constants, the size that is told is the size that was sent, and a text is
//! UTF-8 to its very end or it is none. Not here: what is cut of what is kept (the core, which does the same
//! to every tool's content).

use countersign::{DETAIL_BYTES_MAX, Detail, ToolContent};

/// The most that is kept of one text, in bytes; twenty times what a model is shown of it.
pub(crate) const KEPT_BYTES_MAX: usize = 1024 * 1024;
/// The most that is read of one answer or of one command's output, in bytes.
pub(crate) const READ_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Bytes that are no UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotUtf8;

/// Reads UTF-8 that arrives in pieces, cut anywhere.
#[derive(Debug, Default)]
pub(crate) struct Utf8 {
    /// The start of a character whose end has not come.
    rest: Vec<u8>,
}

impl Utf8 {
    /// The characters that are whole by now.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Result<String, NotUtf8> {
        let mut all = std::mem::take(&mut self.rest);
        all.extend_from_slice(bytes);
        if let Err(error) = std::str::from_utf8(&all) {
            if error.error_len().is_some() {
                return Err(NotUtf8);
            }
            self.rest = all.split_off(error.valid_up_to());
        }
        String::from_utf8(all).map_err(|_| NotUtf8)
    }

    /// Whether it ends here with a whole character.
    pub(crate) fn end(self) -> Result<(), NotUtf8> {
        if self.rest.is_empty() { Ok(()) } else { Err(NotUtf8) }
    }
}

/// The beginning of a text, and the size of all of it.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    text: String,
    bytes: u64,
}

impl Kept {
    /// Goes on.
    pub(crate) fn push(&mut self, piece: &str) {
        let is_whole = self.bytes == self.text.len() as u64;
        self.bytes += piece.len() as u64;
        if is_whole {
            let room = KEPT_BYTES_MAX - self.text.len();
            self.text.push_str(&piece[..piece.floor_char_boundary(room)]);
        }
    }

    /// The content for the runtime, which cuts it and notes its true size.
    pub(crate) fn into_content(self) -> ToolContent {
        ToolContent::beginning(self.text, self.bytes)
    }
}

/// The first bytes of what somebody sent, for the record of a failure.
#[derive(Debug, Default)]
pub(crate) struct Beginning(Vec<u8>);

impl Beginning {
    /// Goes on.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let room = (DETAIL_BYTES_MAX + 1).saturating_sub(self.0.len());
        self.0.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// Whether more would not be kept.
    pub(crate) fn is_full(&self) -> bool {
        self.0.len() > DETAIL_BYTES_MAX
    }

    /// What happened, with these bytes below it.
    pub(crate) fn detail(&self, happened: &str) -> Detail {
        Detail::beginning_of(happened, &self.0)
    }
}

#[cfg(test)]
mod tests {
    use countersign::CONTENT_BYTES_MAX;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn case_c53_a_long_text_keeps_its_true_size() {
        for (piece, times) in [("é🦀", 1_000_000_u64), ("a\0", 1_000_000)] {
            let mut kept = Kept::default();
            for _ in 0..times {
                kept.push(piece);
            }
            assert!(kept.text.len() <= KEPT_BYTES_MAX);
            let content = kept.into_content();
            assert_eq!(content.bytes(), times * piece.len() as u64);
            assert!(piece.repeat(400_000).starts_with(&content.kept()[..CONTENT_BYTES_MAX]));
        }
    }

    #[test]
    fn a_text_that_fits_is_left_to_the_core() {
        let mut kept = Kept::default();
        kept.push(&"x".repeat(KEPT_BYTES_MAX));
        assert_eq!(kept.into_content(), "x".repeat(KEPT_BYTES_MAX).into());
    }

    #[test]
    fn nothing_is_kept_after_a_cut() {
        let mut kept = Kept::default();
        kept.push(&"x".repeat(KEPT_BYTES_MAX - 1));
        kept.push("🦀");
        kept.push("y");
        assert_eq!((kept.text.len(), kept.bytes), (KEPT_BYTES_MAX - 1, KEPT_BYTES_MAX as u64 + 4));
    }

    proptest! {
        #[test]
        fn utf8_in_pieces_is_what_utf8_as_a_whole_is(
            pieces in prop::collection::vec(prop::collection::vec(
                prop_oneof![Just(0x41), Just(0xc3), Just(0xa9), Just(0xf0), Just(0x9f), Just(0xa6), Just(0x80), any::<u8>()],
                0..6,
            ), 0..6),
        ) {
            let mut utf8 = Utf8::default();
            let read = pieces.iter().map(|piece| utf8.read(piece)).collect::<Result<String, _>>();
            let read = read.and_then(|text| utf8.end().map(|()| text));
            prop_assert_eq!(read.ok(), String::from_utf8(pieces.concat()).ok());
        }

        #[test]
        fn a_text_in_pieces_is_the_text(text in "[aé🦀\\x00]{0,40}", at in 0..10_usize) {
            let mut utf8 = Utf8::default();
            let bytes = text.as_bytes();
            let (first, second) = bytes.split_at(at.min(bytes.len()));
            let read = utf8.read(first).unwrap() + &utf8.read(second).unwrap();
            prop_assert_eq!(read, text);
        }
    }
}
