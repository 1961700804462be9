//! What a span says, and how one span names another.
//!
//! Invariant: ids are never zero, which stands for none. Not here: the form on the wire (`wire`).

use jiff::Timestamp;

/// What is said of a span, an event, a link or a process, by the names of the conventions.
pub type Attributes = Vec<(&'static str, AttributeValue)>;

/// What an attribute can hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttributeValue {
    /// A text.
    Text(String),
    /// Several.
    Texts(Vec<String>),
    /// A number.
    Count(u64),
}

impl From<&str> for AttributeValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<u64> for AttributeValue {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

/// The one span there is of this trace and id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanContext {
    /// The id of the trace.
    pub trace: [u8; 16],
    /// The id of the span in it.
    pub span: [u8; 8],
}

impl SpanContext {
    /// A new trace and its first span, of two draws of chance.
    pub fn root(trace: [u8; 16], span: [u8; 16]) -> Self {
        let trace = if trace == [0; 16] { [1; 16] } else { trace };
        Self { trace, span: [1; 8] }.beside(span)
    }

    /// Another span of the same trace, of a draw of chance.
    #[must_use]
    pub fn beside(self, [a, b, c, d, e, f, g, h, ..]: [u8; 16]) -> Self {
        let span = [a, b, c, d, e, f, g, h];
        Self { trace: self.trace, span: if span == [0; 8] { [1; 8] } else { span } }
    }

    /// As others are told of it: `traceparent` of W3C Trace Context, version 00, sampled.
    pub fn traceparent(&self) -> String {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        format!("00-{}-{}-01", hex(&self.trace), hex(&self.span))
    }

    /// Reads a `traceparent`, also of a later version, of which the first parts are the same. `None`: it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let [version, trace, span, flags] = [parts.next()?, parts.next()?, parts.next()?, parts.next()?];
        let [version] = bytes(version)?;
        let [_] = bytes(flags)?;
        let is_known = match version {
            0 => parts.next().is_none(),
            0xff => false,
            _ => true,
        };
        let (trace, span) = (bytes(trace)?, bytes(span)?);
        (is_known && trace != [0; 16] && span != [0; 8]).then_some(Self { trace, span })
    }
}

/// Bytes in lower-case hex, exactly so many.
fn bytes<const N: usize>(hex: &str) -> Option<[u8; N]> {
    let digit = |letter: u8| match letter {
        b'0'..=b'9' => Some(letter - b'0'),
        b'a'..=b'f' => Some(letter - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = hex.as_bytes().as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? * 16 + digit(*low)?;
    }
    Some(bytes)
}

/// Whether a span is of work in this process, or of a request to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// In this process.
    Internal,
    /// A request to another.
    Client,
}

/// Something that took from one moment to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Which one it is.
    pub context: SpanContext,
    /// The span of the same trace that it is part of; absent: it is the first.
    pub parent: Option<SpanContext>,
    /// What it is called: few different names, for lists.
    pub name: String,
    /// Where it happened.
    pub kind: SpanKind,
    /// When it began.
    pub began: Timestamp,
    /// When it ended.
    pub ended: Timestamp,
    /// What is said of it.
    pub attributes: Attributes,
    /// What happened meanwhile, in order.
    pub events: Vec<SpanEvent>,
    /// Spans of other traces that it has to do with.
    pub links: Vec<SpanLink>,
    /// Whether it failed.
    pub failed: bool,
}

/// Something that happened during a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanEvent {
    /// When.
    pub at: Timestamp,
    /// What it is called.
    pub name: &'static str,
    /// What is said of it.
    pub attributes: Attributes,
}

/// A span of another trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanLink {
    /// Which.
    pub to: SpanContext,
    /// What it has to do with it.
    pub attributes: Attributes,
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// How the sample ends on the wire: its last two fields are the status, which is an error, and the flags.
    pub(crate) const LAST: &[u8] = &[0x7a, 0x02, 0x18, 0x02, 0x85, 0x01, 0x01, 0x00, 0x00, 0x00];

    pub(crate) const CONTEXT: SpanContext = SpanContext { trace: [0xab; 16], span: [0xcd; 8] };

    pub(crate) fn span() -> Span {
        let at = |second| Timestamp::from_second(second).unwrap();
        Span {
            context: CONTEXT,
            parent: Some(CONTEXT.beside([2; 16])),
            name: "chat m".to_owned(),
            kind: SpanKind::Client,
            began: at(1),
            ended: at(2),
            attributes: vec![
                ("words", AttributeValue::Texts(vec!["a".to_owned(), "b".to_owned()])),
                ("word", "c".into()),
                ("count", 7.into()),
            ],
            events: vec![SpanEvent { at: at(1), name: "retry", attributes: Vec::new() }],
            links: vec![SpanLink { to: SpanContext::root([3; 16], [4; 16]), attributes: Vec::new() }],
            failed: true,
        }
    }

    #[test]
    fn a_span_is_named_as_others_name_theirs() {
        let named = "00-abababababababababababababababab-cdcdcdcdcdcdcdcd-01";
        assert_eq!(CONTEXT.traceparent(), named);
        assert_eq!(SpanContext::parse(named), Some(CONTEXT));
        let unsampled = "00-abababababababababababababababab-cdcdcdcdcdcdcdcd-00";
        assert_eq!(SpanContext::parse(unsampled), Some(CONTEXT));
        let later = "cc-abababababababababababababababab-cdcdcdcdcdcdcdcd-01-what-the-future-will-be-like";
        assert_eq!(SpanContext::parse(later), Some(CONTEXT));
        for none in [
            "",
            "00",
            "00-abababababababababababababababab-cdcdcdcdcdcdcdcd",
            "00-abababababababababababababababab-cdcdcdcdcdcdcdcd-01-x",
            "00-ABABABABABABABABABABABABABABABAB-cdcdcdcdcdcdcdcd-01",
            "00-abababababababababababababababa-cdcdcdcdcdcdcdcd-01",
            "00-ababababababababababababababababab-cdcdcdcdcdcdcdcd-01",
            "00-abababababababababababababababab-cdcdcdcdcdcdcdc-01",
            "00-00000000000000000000000000000000-cdcdcdcdcdcdcdcd-01",
            "00-abababababababababababababababab-0000000000000000-01",
            "ff-abababababababababababababababab-cdcdcdcdcdcdcdcd-01",
            "00-abababababababababababababababab-cdcdcdcdcdcdcdcd-0x",
            " 00-abababababababababababababababab-cdcdcdcdcdcdcdcd-01",
        ] {
            assert_eq!(SpanContext::parse(none), None, "{none:?}");
        }
    }

    #[test]
    fn no_id_is_zero() {
        let root = SpanContext::root([0; 16], [0; 16]);
        assert_eq!(SpanContext::parse(&root.traceparent()), Some(root));
        assert_eq!(root.beside([9; 16]), SpanContext { span: [9; 8], ..root });
    }
}
