//! How a moment is stored: RFC 3339 in UTC with nine digits after the point.
//!
//! Invariant: what is read is exactly what was written, and texts sort as their moments do.

use jiff::Timestamp;

/// The stored form.
pub(crate) fn text(at: Timestamp) -> String {
    format!("{at:.9}")
}

/// Reads the stored form and no other spelling of it.
pub(crate) fn parse(stored: &str) -> Option<Timestamp> {
    stored.parse().ok().filter(|at| text(*at) == stored)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_read_as_it_was_written_and_sorts_as_text() {
        let moments = [0, 1, 999_999_999, 1_000_000_000, 1_790_000_000_123_456_789]
            .map(|nanosecond| Timestamp::from_nanosecond(nanosecond).unwrap());
        let texts = moments.map(text);
        assert_eq!(texts[1], "1970-01-01T00:00:00.000000001Z");
        assert_eq!(texts.each_ref().map(|text| parse(text).unwrap()), moments);
        assert!(texts.is_sorted());
        for other in [
            "",
            "soon",
            "1970-01-01T00:00:00Z",
            "1970-01-01T01:00:00.000000000+01:00",
            "1970-02-30T00:00:00.000000000Z",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
