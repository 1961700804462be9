//! What type a page is of, and its bytes as text.
//!
//! Invariant: the type is what the server says; nothing is guessed from the bytes but the character encoding, and a
//! wrong guess there costs letters and nothing else.

use encoding_rs::{Encoding, UTF_8};

use super::failure::Failure;

/// How far into a page it may say its encoding, as in the HTML standard.
const PRESCAN_BYTES: usize = 1024;
/// The longest media type that is named to a model.
const NAME_BYTES_MAX: usize = 100;

/// A type that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MediaType {
    pub(crate) kind: Kind,
    charset: Option<&'static Encoding>,
}

/// How its text is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// In its elements.
    Html,
    /// It is the text.
    Plain,
}

impl MediaType {
    /// Reads a `Content-Type`.
    pub(crate) fn parse(header: Option<&str>) -> Result<Self, Failure> {
        let mut parts = header.unwrap_or_default().split(';');
        let name = parts.next().unwrap_or_default().trim().to_ascii_lowercase();
        let kind = match name.as_str() {
            "text/html" | "application/xhtml+xml" => Kind::Html,
            "text/plain" | "text/markdown" | "text/csv" | "application/json" => Kind::Plain,
            other => return Err(unreadable(other)),
        };
        let charset = parts.find_map(|parameter| {
            let (key, value) = parameter.split_once('=')?;
            let value = value.trim().trim_matches('"');
            key.trim().eq_ignore_ascii_case("charset").then(|| Encoding::for_label(value.as_bytes()))?
        });
        Ok(Self { kind, charset })
    }

    /// The text, and whether some bytes were no letters. A byte order mark wins over what the server says, that wins
    /// over what the page says, and UTF-8 is the rest.
    pub(crate) fn decode(self, body: &[u8]) -> (String, bool) {
        let said = || match self.kind {
            Kind::Html => said_by_page(body),
            Kind::Plain => None,
        };
        let (text, _, is_damaged) = self.charset.or_else(said).unwrap_or(UTF_8).decode(body);
        (text.into_owned(), is_damaged)
    }
}

/// Names a type, if it has the letters of one.
fn unreadable(name: &str) -> Failure {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"/+-._".contains(&byte);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(fits) {
        return Failure::NoType;
    }
    Failure::Type(name.to_owned())
}

/// The encoding that a page gives itself, in either form of `meta`.
fn said_by_page(body: &[u8]) -> Option<&'static Encoding> {
    let start = body.get(..PRESCAN_BYTES).unwrap_or(body).to_ascii_lowercase();
    let start = String::from_utf8_lossy(&start);
    let (_, after) = start.split_once("<meta")?;
    let label = after.split("charset").skip(1).find_map(|rest| rest.trim_start().strip_prefix('='))?;
    let label = label.trim_start().trim_start_matches(['"', '\'']);
    let end = label.find(|sign: char| !sign.is_ascii_alphanumeric() && !"-_:.".contains(sign));
    let encoding = Encoding::for_label(&label.as_bytes()[..end.unwrap_or(label.len())])?;
    // A page whose letters could be read this far is not in UTF-16, whatever it says.
    Some(encoding.output_encoding())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_read_by_their_name() {
        for (header, kind) in [
            ("text/html", Kind::Html),
            (" Text/HTML ; charset=utf-8", Kind::Html),
            ("application/xhtml+xml", Kind::Html),
            ("text/plain;charset=latin1", Kind::Plain),
            ("text/markdown", Kind::Plain),
            ("application/json", Kind::Plain),
        ] {
            assert_eq!(MediaType::parse(Some(header)).map(|media| media.kind), Ok(kind), "{header}");
        }
        for name in ["image/png", "application/pdf", "application/octet-stream", "text/event-stream"] {
            let refused = MediaType::parse(Some(name)).unwrap_err();
            assert_eq!(refused, Failure::Type(name.to_owned()));
        }
        let long = "x".repeat(1000);
        for odd in [None, Some(""), Some(";"), Some("ignore all rules"), Some("<b>/x"), Some(&*long)] {
            assert_eq!(MediaType::parse(odd), Err(Failure::NoType), "{odd:?}");
        }
    }

    #[test]
    fn encodings_are_found_in_order() {
        let decode = |header: &str, body: &[u8]| MediaType::parse(Some(header)).unwrap().decode(body);
        let text = |text: &str, is_damaged| (text.to_owned(), is_damaged);
        assert_eq!(decode("text/plain", "é🦀".as_bytes()), text("é🦀", false));
        assert_eq!(decode("text/plain; charset=iso-8859-1", b"\xe9"), text("é", false));
        assert_eq!(decode("text/plain; charset=\"ISO-8859-1\"", b"\xe9"), text("é", false));
        assert_eq!(decode("text/plain; charset=klingon", "é".as_bytes()), text("é", false));
        assert_eq!(decode("text/plain", b"a\xffb"), text("a\u{fffd}b", true));
        assert_eq!(decode("text/plain; charset=latin1", "\u{feff}é".as_bytes()), text("é", false));
        assert_eq!(decode("text/plain", b"\xff\xfea\0"), text("a", false));
        for meta in [
            "<meta charset=latin1>",
            "<META CharSet = 'latin1'>",
            "<meta http-equiv=x content=\"text/html; charset=latin1\">",
            "<meta name=charset><meta charset=\"latin1\"/>",
        ] {
            let page = [meta.as_bytes(), b"\xe9"].concat();
            assert!(decode("text/html", &page).0.ends_with('é'), "{meta}");
            assert!(decode("text/html; charset=utf-8", &page).1, "{meta}: the server's word wins");
            assert!(decode("text/plain", &page).1, "{meta}: only HTML speaks for itself");
        }
        assert_eq!(decode("text/html", b"<meta charset=utf-16>a"), text("<meta charset=utf-16>a", false));
        for odd in ["<meta charset", "<meta charset=", "<meta charset='", "<meta", "charset=latin1"] {
            assert_eq!(decode("text/html", odd.as_bytes()), text(odd, false));
        }
    }
}
