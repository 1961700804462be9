//! The one place that makes an HTTP client, and the one place that reads an answer.
//!
//! Invariant: an exchange is one request with a deadline over all of it, an answer is read up to a limit, a
//! redirect is an answer like any other, and no URL, header or body gets into an error (S5). Not here:
//! retries (the runtime), proxies (none is taken from the environment), any vendor's JSON.

use std::sync::OnceLock;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, DATE, HeaderMap, HeaderName, RETRY_AFTER};
use reqwest::{Client, ClientBuilder, Response, Url};

/// The most that is read of one answer, in bytes.
pub const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The longest wait that a server may ask for with `Retry-After`; more is cut to this.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);
/// How long the way to a server may take, name lookup and TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends requests.
#[derive(Clone, Debug)]
pub(crate) struct Http {
    client: Client,
    timeout: Duration,
}

/// What came back of which the status and the headers are known.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The status; a redirect's own, as none is followed.
    pub(crate) status: u16,
    /// When the server wants to be asked again, at most a minute.
    pub(crate) retry_after: Option<Duration>,
    /// Whether it calls itself a page for people.
    pub(crate) is_html: bool,
    response: Response,
}

/// Why there is no answer, or no whole one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoAnswer {
    /// Not connected, not in time, or broken off.
    #[error("the exchange broke off")]
    Broken(#[source] reqwest::Error),
    /// More than [`ANSWER_BYTES_MAX`].
    #[error("the answer is larger than {ANSWER_BYTES_MAX} bytes")]
    TooLarge,
}

impl Http {
    /// A client whose exchanges may each take `timeout`.
    ///
    /// # Errors
    /// When the TLS library cannot be set up.
    pub(crate) fn new(timeout: Duration) -> Result<Self, reqwest::Error> {
        use_ring();
        let client = match builder().build() {
            Ok(client) => client,
            // A machine without a certificate store: plain HTTP still works, and TLS trusts nobody.
            Err(_) => builder().tls_certs_only([]).build()?,
        };
        Ok(Self { client, timeout })
    }

    /// Posts JSON: exactly one request.
    ///
    /// # Errors
    /// [`NoAnswer`] when no status came back in time.
    pub(crate) async fn post_json(
        &self,
        url: Url,
        headers: HeaderMap,
        body: Vec<u8>,
    ) -> Result<Answer, NoAnswer> {
        let request = self.client.post(url).timeout(self.timeout).headers(headers);
        let response =
            request.header(CONTENT_TYPE, "application/json").body(body).send().await.map_err(broken)?;
        let content_type =
            header(&response, &CONTENT_TYPE).unwrap_or_default().trim_start().to_ascii_lowercase();
        Ok(Answer {
            status: response.status().as_u16(),
            retry_after: header(&response, &RETRY_AFTER)
                .and_then(|wish| wait(wish, header(&response, &DATE))),
            is_html: content_type.starts_with("text/html"),
            response,
        })
    }
}

impl Answer {
    /// Reads the body.
    ///
    /// # Errors
    /// [`NoAnswer`] when it is too large, too slow or broken off.
    pub(crate) async fn body(mut self) -> Result<Vec<u8>, NoAnswer> {
        let mut body = Vec::new();
        while let Some(chunk) = self.response.chunk().await.map_err(broken)? {
            if body.len() + chunk.len() > ANSWER_BYTES_MAX {
                return Err(NoAnswer::TooLarge);
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place that makes a client")]
fn builder() -> ClientBuilder {
    Client::builder()
        .user_agent(concat!("countersign/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .no_proxy()
        .connect_timeout(CONNECT_TIMEOUT)
}

/// The cryptography of every TLS connection of the process. A program that chose before us keeps its choice.
fn use_ring() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        let _chosen_before = rustls::crypto::ring::default_provider().install_default();
    });
}

fn broken(error: reqwest::Error) -> NoAnswer {
    NoAnswer::Broken(error.without_url())
}

fn header<'a>(response: &'a Response, name: &HeaderName) -> Option<&'a str> {
    response.headers().get(name).and_then(|value| value.to_str().ok())
}

/// Reads `Retry-After`: seconds, or a date, which counts from the server's own `Date`.
fn wait(wish: &str, date: Option<&str>) -> Option<Duration> {
    let wish = wish.trim();
    if !wish.is_empty() && wish.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than fit are a long time all the same.
        return Some(Duration::from_secs(wish.parse().unwrap_or(u64::MAX)).min(RETRY_AFTER_MAX));
    }
    let moment = |text: &str| Some(jiff::fmt::rfc2822::parse(text.trim()).ok()?.timestamp().as_second());
    let seconds = moment(wish)?.saturating_sub(moment(date?)?);
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)).min(RETRY_AFTER_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_l7_retry_after_is_seconds_or_a_date() {
        let date = Some("Sun, 06 Nov 1994 08:49:37 GMT");
        let seconds = |wish: &str, date: Option<&str>| wait(wish, date).map(|wait| wait.as_secs());
        assert_eq!(seconds("7", None), Some(7));
        assert_eq!(seconds(" 0 ", None), Some(0));
        assert_eq!(seconds("86400", None), Some(60), "cut");
        assert_eq!(seconds(&"9".repeat(40), None), Some(60), "cut");
        assert_eq!(seconds("Sun, 06 Nov 1994 08:49:47 GMT", date), Some(10));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:49:07 GMT", date), Some(0), "in the past");
        assert_eq!(seconds("Mon, 07 Nov 1994 08:49:37 GMT", date), Some(60), "cut");
        assert_eq!(seconds("Sun, 06 Nov 1994 08:49:47 GMT", None), None, "no date to count from");
        for nonsense in ["", "-1", "1.5", "soon"] {
            assert_eq!(seconds(nonsense, date), None, "{nonsense:?}");
        }
    }
}
