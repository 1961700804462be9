//! Reads JSON of almost any size, by leaving out the ends of long strings as they arrive.
//!
//! Invariant: what comes out is the same JSON, except that no string is longer than [`KEPT_BYTES_MAX`], and the
//! true size of a cut member is known. What is left out is checked like what is kept: escapes, surrogates,
//! control characters. Not here: whether the rest is JSON; whoever parses the outcome finds out.

use std::ops::Range;

use crate::http::ANSWER_BYTES_MAX;
use crate::kept::{KEPT_BYTES_MAX, NotUtf8, READ_BYTES_MAX, Utf8};

/// Why there is no JSON to parse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// Not UTF-8, or a string that JSON does not allow.
    Malformed,
    /// The end came within a character.
    Incomplete,
    /// More than is read, or still too much without the ends of its strings.
    TooLarge,
}

impl From<NotUtf8> for Unreadable {
    fn from(_: NotUtf8) -> Self {
        Self::Malformed
    }
}

/// Takes the pieces of one JSON text.
#[derive(Debug, Default)]
pub(crate) struct Shortener {
    utf8: Utf8,
    read: u64,
    out: String,
    at: At,
    string: Text,
    depth: usize,
    /// Whether the next string of the outermost object names a member.
    names_next: bool,
    /// Where the name of the current member stands in `out`, quotes included.
    name: Range<usize>,
    /// Members of the outermost object that were cut: where their name stands, and their true size.
    cut: Vec<(Range<usize>, u64)>,
}

/// What the next byte belongs to.
#[derive(Clone, Copy, Debug, Default)]
enum At {
    #[default]
    Outside,
    Inside,
    Escape,
    Hex {
        digits: u8,
        code: u16,
    },
}

/// The current string.
#[derive(Clone, Copy, Debug, Default)]
struct Text {
    /// Where its opening quote stands in `out`.
    start: usize,
    /// Its size so far, unescaped.
    bytes: u64,
    /// How much of that was kept.
    kept: usize,
    /// Set once something was left out.
    is_cut: bool,
    /// The first half of a surrogate pair whose second half must follow.
    high: Option<u16>,
}

/// What is left of a JSON text.
#[derive(Debug)]
pub(crate) struct Shortened {
    /// The JSON.
    pub(crate) json: String,
    cut: Vec<(Range<usize>, u64)>,
}

impl Shortened {
    /// The true size of a string member of the outermost object, if it was cut.
    pub(crate) fn true_size(&self, member: &str) -> Option<u64> {
        let names = |place: &Range<usize>| {
            let literal = self.json.get(place.clone()).unwrap_or_default();
            serde_json::from_str::<String>(literal).is_ok_and(|name| name == member)
        };
        self.cut.iter().find(|(place, _)| names(place)).map(|(_, bytes)| *bytes)
    }
}

impl Shortener {
    /// Goes on.
    ///
    /// # Errors
    /// [`Unreadable`]; there is no going on after that.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), Unreadable> {
        self.read += bytes.len() as u64;
        if self.read > READ_BYTES_MAX {
            return Err(Unreadable::TooLarge);
        }
        let piece = self.utf8.read(bytes)?;
        let mut rest = piece.as_str();
        while !rest.is_empty() {
            rest = match self.at {
                At::Inside => self.inside(rest)?,
                At::Outside => self.outside(rest),
                At::Escape => self.escape(rest)?,
                At::Hex { digits, code } => self.hex(rest, digits, code)?,
            };
        }
        if self.out.len() > ANSWER_BYTES_MAX { Err(Unreadable::TooLarge) } else { Ok(()) }
    }

    /// The end of the text. One that ends within a string is left for the parser to refuse.
    pub(crate) fn end(self) -> Result<Shortened, Unreadable> {
        self.utf8.end().map_err(|NotUtf8| Unreadable::Incomplete)?;
        Ok(Shortened { json: self.out, cut: self.cut })
    }

    /// Up to the next quote, which opens a string.
    fn outside<'a>(&mut self, rest: &'a str) -> &'a str {
        let end = rest.find('"').unwrap_or(rest.len());
        for byte in rest[..end].bytes() {
            match byte {
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
            if self.depth == 1 {
                match byte {
                    b'{' | b',' => self.names_next = true,
                    b':' => self.names_next = false,
                    _ => {}
                }
            }
        }
        self.out.push_str(&rest[..end]);
        if end == rest.len() {
            return "";
        }
        self.string = Text { start: self.out.len(), ..Text::default() };
        self.out.push('"');
        self.at = At::Inside;
        &rest[end + 1..]
    }

    /// Plain characters of a string, up to what is none.
    fn inside<'a>(&mut self, rest: &'a str) -> Result<&'a str, Unreadable> {
        let end = rest.bytes().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f)).unwrap_or(rest.len());
        if end > 0 {
            self.nothing_half()?;
            let string = &mut self.string;
            let room = if string.is_cut { 0 } else { KEPT_BYTES_MAX - string.kept };
            let kept = rest[..end].floor_char_boundary(room);
            self.out.push_str(&rest[..kept]);
            string.bytes += end as u64;
            string.kept += kept;
            string.is_cut |= kept < end;
            return Ok(&rest[end..]);
        }
        match rest.as_bytes()[0] {
            b'\\' => self.at = At::Escape,
            b'"' => {
                self.nothing_half()?;
                self.out.push('"');
                self.close();
            }
            _ => return Err(Unreadable::Malformed),
        }
        Ok(&rest[1..])
    }

    fn close(&mut self) {
        self.at = At::Outside;
        if self.depth != 1 {
            return;
        }
        if self.names_next {
            self.name = self.string.start..self.out.len();
        } else if self.string.is_cut {
            self.cut.push((self.name.clone(), self.string.bytes));
        }
    }

    /// The character after a backslash.
    fn escape<'a>(&mut self, rest: &'a str) -> Result<&'a str, Unreadable> {
        match rest.as_bytes()[0] {
            b'u' => self.at = At::Hex { digits: 0, code: 0 },
            letter @ (b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.nothing_half()?;
                self.unit(1, format_args!("\\{}", char::from(letter)));
                self.at = At::Inside;
            }
            _ => return Err(Unreadable::Malformed),
        }
        Ok(&rest[1..])
    }

    /// One of the four digits of `\u`.
    fn hex<'a>(&mut self, rest: &'a str, digits: u8, code: u16) -> Result<&'a str, Unreadable> {
        let digit = match rest.as_bytes()[0] {
            byte @ b'0'..=b'9' => byte - b'0',
            byte @ b'a'..=b'f' => byte - b'a' + 10,
            byte @ b'A'..=b'F' => byte - b'A' + 10,
            _ => return Err(Unreadable::Malformed),
        };
        let (digits, code) = (digits + 1, code << 4 | u16::from(digit));
        if digits < 4 {
            self.at = At::Hex { digits, code };
            return Ok(&rest[1..]);
        }
        match (self.string.high.take(), code) {
            (Some(high), 0xdc00..=0xdfff) => self.unit(4, format_args!("\\u{high:04x}\\u{code:04x}")),
            (None, 0xd800..=0xdbff) => self.string.high = Some(code),
            (Some(_), _) | (None, 0xdc00..=0xdfff) => return Err(Unreadable::Malformed),
            (None, _) => {
                let bytes = char::from_u32(u32::from(code)).map_or(0, char::len_utf8);
                self.unit(bytes, format_args!("\\u{code:04x}"));
            }
        }
        self.at = At::Inside;
        Ok(&rest[1..])
    }

    /// One escaped character of so many bytes: kept or left out as a whole.
    fn unit(&mut self, bytes: usize, literal: std::fmt::Arguments<'_>) {
        let string = &mut self.string;
        string.bytes += bytes as u64;
        if !string.is_cut && string.kept + bytes <= KEPT_BYTES_MAX {
            string.kept += bytes;
            self.out.push_str(&literal.to_string());
        } else {
            string.is_cut = true;
        }
    }

    /// A lone half of a surrogate pair is no character.
    fn nothing_half(&self) -> Result<(), Unreadable> {
        if self.string.high.is_some() { Err(Unreadable::Malformed) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn shorten(pieces: &[&[u8]]) -> Result<Shortened, Unreadable> {
        let mut shortener = Shortener::default();
        for piece in pieces {
            shortener.push(piece)?;
        }
        shortener.end()
    }

    #[test]
    fn case_c53_a_long_string_is_cut_and_its_size_is_known() {
        let long = "é🦀".repeat(1_000_000);
        let escaped = "\\u00e9\\ud83e\\udd80\\n".repeat(1_000_000);
        for (text, true_size, unit) in [(&long, 6_000_000, "é🦀"), (&escaped, 7_000_000, "é🦀\n")] {
            let text = format!(r#"{{"x":{{"content":"{text}"}},"content" : "{text}","more":[","]}}"#);
            let pieces: Vec<&[u8]> = text.as_bytes().chunks(1013).collect();
            let shortened = shorten(&pieces).unwrap();
            assert_eq!(shortened.true_size("content"), Some(true_size));
            assert_eq!(shortened.true_size("more"), None);
            let value: Value = serde_json::from_str(&shortened.json).unwrap();
            let content = value["content"].as_str().unwrap();
            assert!((KEPT_BYTES_MAX - 4..=KEPT_BYTES_MAX).contains(&content.len()), "{}", content.len());
            assert!(unit.repeat(400_000).starts_with(content));
            assert_eq!(value["x"]["content"], value["content"]);
            assert_eq!(value["more"], json!([","]));
        }
    }

    #[test]
    fn a_name_may_be_escaped() {
        let text = format!(r#"{{"a":1,"\u0063ontent":"{}"}}"#, "x".repeat(KEPT_BYTES_MAX + 1));
        let shortened = shorten(&[text.as_bytes()]).unwrap();
        assert_eq!(shortened.true_size("content"), Some(KEPT_BYTES_MAX as u64 + 1));
    }

    #[test]
    fn case_c53_what_is_left_out_is_checked_too() {
        let long = "x".repeat(KEPT_BYTES_MAX + 10);
        for bad in [
            b"\xff".as_slice(),
            b"\xed\xa0\x80",
            br"\ud800",
            br"\ud800x",
            br"\ud800\n",
            br"\ud800\ud800",
            br"\udc00",
            br"\x",
            br"\u12g4",
            b"\n",
            b"\0",
        ] {
            for start in ["", &long] {
                let text = [br#"{"content":""#, start.as_bytes(), bad, b"\"}"].concat();
                assert_eq!(shorten(&[&text]).unwrap_err(), Unreadable::Malformed, "{bad:?}");
            }
        }
    }

    #[test]
    fn what_is_large_without_its_strings_is_too_large() {
        let numbers = "1,".repeat(ANSWER_BYTES_MAX / 2);
        assert_eq!(shorten(&[b"[", numbers.as_bytes()]).unwrap_err(), Unreadable::TooLarge);
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let text = "[a\"\\\\{}:,\u{0}é🦀\n/-]{0,8}";
        let leaf =
            prop_oneof![text.prop_map(Value::from), any::<i64>().prop_map(Value::from), Just(Value::Null)];
        leaf.prop_recursive(4, 32, 4, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(text, inner, 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn short_json_stays_the_same(value in any_json(), size in 1..9_usize, pretty in any::<bool>()) {
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
            let text = text.unwrap();
            let pieces: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
            prop_assert_eq!(shorten(&pieces).unwrap().json, text);
        }
    }
}
