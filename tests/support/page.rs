//! A page of the documentation: its fenced blocks, and what a block shows against what really comes.
//!
//! The info string of a block says what is done with it. `console` is typed into a shell, and `exit N` after it is
//! the status of the block's last command (all others end with 0). `toml` is a configuration or a part of one,
//! `json` the shape of an answer, `rust` stands in a test that is compiled, `text` holds nothing to run. Anything
//! else needs `not run: WHY` at its end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A fenced block.
pub(crate) struct Block {
    /// File and line, for whoever has to mend it.
    pub(crate) place: String,
    pub(crate) kind: Kind,
    pub(crate) text: String,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Commands with what they print; the exit status of the last one.
    Console(i32),
    Toml,
    Json,
    Rust,
    Text,
    /// With the reason.
    NotRun(String),
}

impl Kind {
    fn parse(info: &str) -> Option<Self> {
        if let Some((_, why)) = info.split_once(" not run: ") {
            return Some(Self::NotRun(why.to_owned())).filter(|_| !why.trim().is_empty());
        }
        match info {
            "console" => Some(Self::Console(0)),
            "toml" => Some(Self::Toml),
            "json" => Some(Self::Json),
            "rust" => Some(Self::Rust),
            "text" => Some(Self::Text),
            _ => Some(Self::Console(info.strip_prefix("console exit ")?.parse().ok()?)),
        }
    }
}

/// The top of the project.
pub(crate) fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The text of a file of the project.
pub(crate) fn text_of(file: &str) -> String {
    std::fs::read_to_string(project().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The files below a folder of the project with this ending, named from the top; nothing that was built.
pub(crate) fn files(below: &str, ending: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(project().join(below)).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let path = if below.is_empty() { name.clone() } else { format!("{below}/{name}") };
        if entry.file_type().unwrap().is_dir() {
            if !name.starts_with('.') && name != "target" {
                found.extend(files(&path, ending));
            }
        } else if name.ends_with(ending) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The info string, the first line and the text of every fenced block.
pub(crate) fn fences(text: &str) -> Vec<(String, usize, String)> {
    let mut found = Vec::new();
    let mut open: Option<(String, usize, String)> = None;
    for (index, line) in text.lines().enumerate() {
        match (line.trim_start().strip_prefix("```"), &mut open) {
            (Some(info), None) => open = Some((info.trim().to_owned(), index + 1, String::new())),
            (Some(_), Some(_)) => found.extend(open.take()),
            (None, Some((_, _, text))) => {
                text.push_str(line);
                text.push('\n');
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block has no end: {open:?}");
    found
}

/// All blocks of a page.
pub(crate) fn blocks(page: &str) -> Vec<Block> {
    let block = |(info, line, text): (String, usize, String)| {
        let place = format!("{page}:{line}");
        let kind = Kind::parse(&info).unwrap_or_else(|| {
            panic!("{place}: nobody knows what to do with a block {info:?}; say `not run: WHY` if it cannot be run")
        });
        Block { place, kind, text }
    };
    fences(&text_of(page)).into_iter().map(block).collect()
}

/// What stands in a page for something that is another thing each time, and what it was this time.
#[derive(Default)]
pub(crate) struct Names(BTreeMap<String, String>);

impl Names {
    pub(crate) fn set(&mut self, shown: &str, real: &str) {
        self.0.insert(shown.to_owned(), real.to_owned());
    }

    /// A command of the page, with what the names stand for.
    pub(crate) fn real(&self, command: &str) -> String {
        pieces(command)
            .into_iter()
            .map(|piece| match piece {
                Piece::Text(text) | Piece::Any(text) | Piece::Moment(text) => text,
                Piece::Name(shown, _) => self.0.get(shown).map_or(shown, String::as_str),
            })
            .collect()
    }

    /// Whether a printed line is the shown one. Learns what the names in it stand for.
    pub(crate) fn fits(&mut self, shown: &str, printed: &str) -> bool {
        let mut learned = self.0.clone();
        let fits = fits(&pieces(shown.trim_end()), printed.trim_end(), &mut learned);
        if fits {
            self.0 = learned;
        }
        fits
    }
}

/// A part of a shown line.
#[derive(Clone, Copy, Debug)]
enum Piece<'a> {
    /// Exactly this.
    Text(&'a str),
    /// An id, a digest, a key's fingerprint or a person: one thing throughout the page, of these characters.
    Name(&'a str, Alphabet),
    /// A point in time.
    Moment(&'a str),
    /// `…`: whatever the page leaves out of the line.
    Any(&'a str),
}

#[derive(Clone, Copy, Debug)]
enum Alphabet {
    /// Letters and digits after this prefix.
    After(&'static str),
    /// Hexadecimal digits after this prefix.
    HexAfter(&'static str),
    /// The account that runs the tests.
    Person,
}

impl Alphabet {
    /// How much at the beginning of a text is such a name.
    fn length(self, text: &str) -> Option<usize> {
        let (prefix, good): (&str, fn(char) -> bool) = match self {
            Self::After(prefix) => (prefix, |c| c.is_ascii_alphanumeric()),
            Self::HexAfter(prefix) => (prefix, |c| c.is_ascii_hexdigit()),
            Self::Person => ("", |c| c.is_ascii_alphanumeric() || "_.@-".contains(c)),
        };
        let rest = text.strip_prefix(prefix)?;
        let length = rest.find(|c| !good(c)).unwrap_or(rest.len());
        (length > 0 || rest.starts_with('…')).then_some(prefix.len() + length)
    }
}

/// The person whom the pages speak of.
const PERSON: &str = "alice";

/// The first piece of a shown text that is more than text, if it begins with one.
fn special(text: &str) -> Option<(Piece<'_>, usize)> {
    let elided =
        |length: usize| length + if text[length..].starts_with('…') { '…'.len_utf8() } else { 0 };
    for prefix in ["run_", "pnd_", "call_"] {
        let alphabet = Alphabet::After(prefix);
        if let Some(length) = alphabet.length(text).map(elided) {
            return Some((Piece::Name(&text[..length], alphabet), length));
        }
    }
    for prefix in ["sha256:", ""] {
        let alphabet = Alphabet::HexAfter(prefix);
        if let Some(length) = alphabet.length(text) {
            // Without a prefix, only what is cut off is surely no word.
            if !prefix.is_empty() || (length >= 4 && text[length..].starts_with('…')) {
                return Some((Piece::Name(&text[..elided(length)], alphabet), elided(length)));
            }
        }
    }
    if text.starts_with(PERSON) {
        return Some((Piece::Name(PERSON, Alphabet::Person), PERSON.len()));
    }
    if let Some(length) = moment(text) {
        return Some((Piece::Moment(&text[..length]), length));
    }
    text.starts_with('…').then(|| (Piece::Any(&text[..'…'.len_utf8()]), '…'.len_utf8()))
}

/// The length of a point in time such as `2026-11-30T00:54:41Z`.
fn moment(text: &str) -> Option<usize> {
    const FORM: &str = "0000-00-00T00:00:00Z";
    let bytes = text.as_bytes().get(..FORM.len())?;
    let fits = |(form, byte): (u8, &u8)| if form == b'0' { byte.is_ascii_digit() } else { form == *byte };
    FORM.bytes().zip(bytes).all(fits).then_some(FORM.len())
}

fn pieces(text: &str) -> Vec<Piece<'_>> {
    let (mut found, mut start, mut at, mut in_word) = (Vec::new(), 0, 0, false);
    while let Some(first) = text[at..].chars().next() {
        // A name does not begin in the middle of a word.
        if let Some((piece, length)) = special(&text[at..]).filter(|_| !in_word || first == '…') {
            found.extend((start < at).then(|| Piece::Text(&text[start..at])));
            found.push(piece);
            at += length;
            start = at;
            in_word = false;
        } else {
            in_word = first.is_alphanumeric() || first == '_';
            at += first.len_utf8();
        }
    }
    found.extend((start < at).then(|| Piece::Text(&text[start..at])));
    found
}

fn fits(shown: &[Piece<'_>], printed: &str, names: &mut BTreeMap<String, String>) -> bool {
    let Some((first, rest)) = shown.split_first() else { return printed.is_empty() };
    match first {
        Piece::Text(text) => printed.strip_prefix(text).is_some_and(|left| fits(rest, left, names)),
        Piece::Moment(_) => moment(printed).is_some_and(|length| fits(rest, &printed[length..], names)),
        Piece::Name(shown, alphabet) => {
            let Some(length) = alphabet.length(printed) else { return false };
            let real = &printed[..length];
            let same = names.entry((*shown).to_owned()).or_insert_with(|| real.to_owned()) == real;
            same && fits(rest, &printed[length..], names)
        }
        Piece::Any(_) => {
            let mut ends = printed.char_indices().map(|(at, _)| at).chain([printed.len()]);
            ends.any(|at| {
                let mut learned = names.clone();
                let good = fits(rest, &printed[at..], &mut learned);
                if good {
                    *names = learned;
                }
                good
            })
        }
    }
}

#[test]
fn a_shown_line_fits_what_it_stands_for_and_nothing_else() {
    let mut names = Names::default();
    let shown = "run_a1 of alice at 2026-11-30T00:54:41Z in …/x: sha256:ab…";
    assert!(names.fits(shown, "run_Zz9 of root at 2031-01-01T10:00:00Z in /tmp/y/x: sha256:00ff"));
    assert!(!names.fits("run_a1", "run_Other"), "one name is one thing");
    assert!(!names.fits("3 runs", "4 runs"));
    assert!(!names.fits("3 runs", "3 runs of more"));
    assert_eq!(names.real("approve run_a1 --digest sha256:ab…"), "approve run_Zz9 --digest sha256:00ff");
}

#[test]
fn a_block_that_nobody_knows_is_not_passed_over() {
    for info in ["", "shell", "console exit", "rust,ignore", "sh not run: ", "text whatever"] {
        assert_eq!(Kind::parse(info), None, "{info}");
    }
    assert_eq!(Kind::parse("console exit 3"), Some(Kind::Console(3)));
    assert_eq!(Kind::parse("sh not run: it builds"), Some(Kind::NotRun("it builds".to_owned())));
}
