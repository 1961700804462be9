//! Handing finished spans to a collector: OTLP over HTTP, in protobuf.
//!
//! Invariant: one attempt is one request with a deadline over all of it, and a redirect is an answer like any other. What
//! a span says is said by whoever made it; nothing is added here, and nothing is taken from the environment. No address,
//! header or body gets into an error (S5). Not here: which spans there are, and when it is tried again.

mod span;
mod target;
mod wire;

use std::sync::OnceLock;
use std::time::Duration;

use prost::Message as _;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};

use crate::http::Http;

pub use self::span::{AttributeValue, Attributes, Span, SpanContext, SpanEvent, SpanKind, SpanLink};
pub use self::target::{CollectorHeaders, CollectorTarget, NotACollector, NotHeaders};

/// How long one attempt may take, from the name to the end of the answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// What the body is.
const MEDIA_TYPE: &str = "application/x-protobuf";

/// Somebody who collects traces.
#[derive(Debug)]
pub struct Collector {
    target: CollectorTarget,
    headers: HeaderMap,
    resource: Attributes,
    /// Made for the first attempt, so that a command without spans does not read the machine's certificates.
    http: OnceLock<Option<Http>>,
}

/// What came of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handed {
    /// It has them, but for so many that it would not take.
    Taken {
        /// How many.
        rejected: u64,
    },
    /// It answered with another status.
    Refused {
        /// It.
        status: u16,
        /// How long it wants to be left alone, if it said so; at most a minute.
        retry_after: Option<Duration>,
    },
    /// It cannot be reached, or gave no whole answer in time.
    NoAnswer,
}

impl Handed {
    /// Whether the same spans may be handed over again: what was refused for another reason would be refused again.
    pub fn is_worth_retrying(self) -> bool {
        match self {
            Self::Taken { .. } => false,
            Self::Refused { status, .. } => matches!(status, 429 | 502..=504),
            Self::NoAnswer => true,
        }
    }
}

impl Collector {
    /// A collector that is told, with every request, these headers and what this process is. Nothing is looked up yet.
    pub fn new(target: CollectorTarget, headers: CollectorHeaders, resource: Attributes) -> Self {
        let mut headers = headers.into_map();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        Self { target, headers, resource, http: OnceLock::new() }
    }

    /// One attempt to hand them over.
    pub async fn hand(&self, spans: &[Span]) -> Handed {
        let http = self.http.get_or_init(|| Http::new(self.target.url(), TIMEOUT).ok());
        let Some(http) = http else { return Handed::NoAnswer };
        let body = wire::request(&self.resource, spans).encode_to_vec();
        match http.post_json(self.target.url().clone(), self.headers.clone(), body).await {
            Ok(answer) if (200..300).contains(&answer.status) => match answer.body().await {
                Ok(body) => Handed::Taken { rejected: wire::rejected(&body) },
                // It has them: the status came after the request.
                Err(_) => Handed::Taken { rejected: 0 },
            },
            Ok(answer) => Handed::Refused { status: answer.status, retry_after: answer.retry_after },
            Err(_) => Handed::NoAnswer,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    async fn handed(answer: &'static [u8]) -> (Handed, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/base/", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (mut heard, mut more) = (Vec::new(), [0; 4096]);
            while !heard.ends_with(span::tests::LAST) {
                let count = stream.read(&mut more).await.unwrap();
                heard.extend_from_slice(&more[..count]);
            }
            // Whoever has the status may not read the rest.
            drop(stream.write_all(answer).await);
            String::from_utf8_lossy(&heard).into_owned()
        });
        let headers = CollectorHeaders::parse("X-Key=a%20secret").unwrap();
        let collector = Collector::new(CollectorTarget::parse(&url, false).unwrap(), headers, Vec::new());
        assert!(!format!("{collector:?}").contains("a secret"), "rule S5: {collector:?}");
        let handed = collector.hand(&[span::tests::span()]).await;
        (handed, server.await.unwrap())
    }

    #[tokio::test]
    async fn an_attempt_is_one_request_with_the_headers_of_the_operator() {
        let (handed, heard) = handed(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
        assert_eq!(handed, Handed::Taken { rejected: 0 });
        for line in
            ["POST /base/v1/traces HTTP/1.1", "content-type: application/x-protobuf", "x-key: a secret"]
        {
            assert_eq!(heard.lines().filter(|heard| *heard == line).count(), 1, "{line} in {heard}");
        }
    }

    #[tokio::test]
    async fn only_what_may_pass_is_worth_another_attempt_and_no_redirect_is_followed() {
        let refused = |status, seconds: Option<u64>| Handed::Refused {
            status,
            retry_after: seconds.map(Duration::from_secs),
        };
        for (answer, wanted, again) in [
            // field 1 { field 1: 3 }: three rejected spans.
            (
                &b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n\x0a\x02\x08\x03"[..],
                Handed::Taken { rejected: 3 },
                false,
            ),
            (b"HTTP/1.1 202 OK\r\nContent-Length: 5\r\n\r\nhello", Handed::Taken { rejected: 0 }, false),
            (b"HTTP/1.1 307 X\r\nLocation: http://127.0.0.1:1/\r\n\r\n", refused(307, None), false),
            (b"HTTP/1.1 400 X\r\n\r\n", refused(400, None), false),
            (b"HTTP/1.1 429 X\r\nRetry-After: 7\r\n\r\n", refused(429, Some(7)), true),
            (b"HTTP/1.1 503 X\r\n\r\n", refused(503, None), true),
            (b"", Handed::NoAnswer, true),
        ] {
            let (handed, _) = handed(answer).await;
            assert_eq!((handed, handed.is_worth_retrying()), (wanted, again), "{answer:?}");
        }
    }
}
