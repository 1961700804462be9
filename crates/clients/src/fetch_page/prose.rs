//! Text under construction: words with the gaps between them, up to a bound.
//!
//! Invariant: a gap is written only when something follows it, so there is no empty line at either end and never more
//! than one in a row, except inside of [`Prose::verbatim`].

/// The most text of a page, in bytes. The runtime shows a model less.
pub(crate) const TEXT_BYTES_MAX: usize = 512 * 1024;

/// What stands between two pieces of text; the larger one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Gap {
    None,
    Space,
    Cell,
    Line,
    Blank,
}

/// The text so far.
#[derive(Debug)]
pub(crate) struct Prose {
    text: String,
    gap: Gap,
    /// What the next line begins with.
    mark: &'static str,
    is_cut: bool,
}

impl Prose {
    pub(crate) fn new() -> Self {
        Self { text: String::new(), gap: Gap::None, mark: "", is_cut: false }
    }

    /// At least this much stands before what follows.
    pub(crate) fn gap(&mut self, gap: Gap) {
        self.gap = self.gap.max(gap);
    }

    /// The next text begins a line with this mark.
    pub(crate) fn mark(&mut self, mark: &'static str) {
        self.mark = mark;
    }

    /// Words; any white space between them is one gap.
    pub(crate) fn words(&mut self, text: &str) {
        for (index, word) in text.split(char::is_whitespace).enumerate() {
            if index > 0 {
                self.gap(Gap::Space);
            }
            if !word.is_empty() {
                self.close_gap();
                self.push(word);
            }
        }
    }

    /// Text with its own white space.
    pub(crate) fn verbatim(&mut self, text: &str) {
        if !text.is_empty() {
            self.close_gap();
            self.push(text);
        }
    }

    /// How long it is, to see whether anything was added.
    pub(crate) fn len(&self) -> usize {
        self.text.len()
    }

    /// Whether nothing more will be taken.
    pub(crate) fn is_full(&self) -> bool {
        self.is_cut
    }

    /// The text, and whether it is only the first part of it.
    pub(crate) fn end(self) -> (String, bool) {
        (self.text, self.is_cut)
    }

    fn close_gap(&mut self) {
        let gap = std::mem::replace(&mut self.gap, Gap::None);
        if gap >= Gap::Line {
            self.text.truncate(self.text.trim_end().len());
        }
        if !self.text.is_empty() && !self.is_cut {
            self.push(match gap {
                Gap::None => "",
                Gap::Space => " ",
                Gap::Cell => " | ",
                Gap::Line => "\n",
                Gap::Blank => "\n\n",
            });
        }
        let mark = std::mem::take(&mut self.mark);
        self.push(mark);
    }

    fn push(&mut self, text: &str) {
        if self.is_cut {
            return;
        }
        let room = TEXT_BYTES_MAX - self.text.len();
        self.is_cut = text.len() > room;
        self.text.push_str(&text[..text.floor_char_boundary(room)]);
    }
}
