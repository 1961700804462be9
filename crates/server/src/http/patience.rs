//! `Prefer: wait=N`: how long an answer may be kept back (RFC 7240).

use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue};

use super::problem::{Answer, Problem};

const PREFER: HeaderName = HeaderName::from_static("prefer");
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");
/// Longer than this nobody in between keeps a connection open.
const SECONDS_MAX: u64 = 300;

/// How long the caller would wait; absent: not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Patience(Option<u64>);

impl<S: Send + Sync> FromRequestParts<S> for Patience {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Answer<Self> {
        Self::of(&parts.headers)
    }
}

impl Patience {
    /// Other preferences, and a repeated one, are passed over, as the RFC wants it; a wait that is no number is refused.
    fn of(headers: &HeaderMap) -> Answer<Self> {
        let texts = headers.get_all(PREFER).iter().filter_map(|value| value.to_str().ok());
        let mut preferences = texts.flat_map(|text| text.split(',')).map(|one| {
            let (name, value) =
                one.split(';').next().unwrap_or_default().split_once('=').unwrap_or((one, ""));
            (name.trim().to_ascii_lowercase(), value.trim().trim_matches('"'))
        });
        let Some((_, wait)) = preferences.find(|(name, _)| name == "wait") else { return Ok(Self(None)) };
        match wait.parse::<u64>() {
            Ok(seconds) => Ok(Self(Some(seconds.min(SECONDS_MAX)))),
            Err(_) => {
                Err(Problem::invalid("invalid_header", "Prefer: wait= takes a whole number of seconds"))
            }
        }
    }

    /// The time, if there is any.
    pub(crate) fn time(self) -> Option<Duration> {
        self.0.map(Duration::from_secs)
    }

    /// The time; the longest there is where the caller says nothing.
    pub(crate) fn or_longest(self) -> Duration {
        Duration::from_secs(self.0.unwrap_or(SECONDS_MAX))
    }

    /// What the answer says of it.
    pub(crate) fn applied(self) -> Option<(HeaderName, HeaderValue)> {
        let value = HeaderValue::try_from(format!("wait={}", self.0?)).ok()?;
        Some((PREFERENCE_APPLIED, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_a_whole_number_of_seconds() {
        let of = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(PREFER, HeaderValue::from_static(text));
            Patience::of(&headers).map(|patience| patience.0).map_err(|problem| problem.code())
        };
        assert_eq!(of("wait=30"), Ok(Some(30)));
        assert_eq!(of("respond-async, Wait=\"5\"; x"), Ok(Some(5)));
        assert_eq!(of("wait=100000"), Ok(Some(300)));
        assert_eq!(of("return=minimal"), Ok(None));
        assert_eq!(of("wait=soon"), Err("invalid_header"));
        assert_eq!(Patience::of(&HeaderMap::new()).unwrap(), Patience(None));
    }
}
