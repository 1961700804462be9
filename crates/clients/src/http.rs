//! The one place that makes an HTTP client, and the one place that reads an answer.
//!
//! Invariant: an exchange is one request with a deadline over all of it, an answer is read up to a limit, a
//! redirect is an answer like any other, and no URL, header or body gets into an error (S5). Not here:
//! retries (the runtime), proxies (none is taken from the environment), any vendor's JSON.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::header::{
    CONTENT_LENGTH, CONTENT_TYPE, DATE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, TRANSFER_ENCODING,
};
use reqwest::{Client, ClientBuilder, Response, Url, Version};

use crate::resolve::Resolver;

/// The most that is read of one answer, in bytes.
pub const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The longest wait that a server may ask for with `Retry-After`; more is cut to this.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);
/// How long the way to a server may take, name lookup and TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How much longer than its timeout a call waits by itself. Whoever calls stops waiting at the timeout, and
/// knows then that the time was over; this is for a caller that does not.
pub(crate) const DEADLINE_GRACE: Duration = Duration::from_secs(1);

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
    /// Whether only the end of the connection says where the body ends. Of a body that is cut short, and does not
    /// come to an end by itself, this is all there is to see.
    pub(crate) ends_with_connection: bool,
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

impl NoAnswer {
    /// All that is known, in one line: for the record of a call, never for a log or a model.
    pub(crate) fn all_causes(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text.push_str(&format!(": {error}"));
            cause = error.source();
        }
        text
    }

    /// Whether the server may have heard anything: not when its name was not found, no connection was made or
    /// TLS could not be agreed on.
    pub(crate) fn was_sent(&self) -> bool {
        match self {
            Self::Broken(error) => !error.is_connect() && !error.is_builder(),
            Self::TooLarge => true,
        }
    }
}

impl Http {
    /// A client for this server, whose exchanges may each take `timeout`.
    ///
    /// # Errors
    /// When the TLS library cannot be set up.
    pub(crate) fn new(server: &Url, timeout: Duration) -> Result<Self, reqwest::Error> {
        Ok(Self { client: client_of(server, |builder| builder.connect_timeout(CONNECT_TIMEOUT))?, timeout })
    }

    /// A client for exchanges that may change something, where it must be known whether anything was sent.
    ///
    /// Each exchange has a connection of its own: a server that closes an idle connection just as it is used
    /// again would leave a write unknown that never arrived. Connecting takes at most three quarters of
    /// `timeout`, so that a server which cannot be reached is found out before the time is over.
    ///
    /// # Errors
    /// When the TLS library cannot be set up.
    pub(crate) fn for_calls(server: &Url, timeout: Duration) -> Result<Self, reqwest::Error> {
        let connect = CONNECT_TIMEOUT.min(timeout - timeout / 4);
        let options = |builder: ClientBuilder| builder.connect_timeout(connect).pool_max_idle_per_host(0);
        let client = client_of(server, options)?;
        Ok(Self { client, timeout: timeout.saturating_add(DEADLINE_GRACE) })
    }

    /// A client for a server of which every connection is judged anew: its name is looked up by this resolver, and no
    /// connection is kept.
    ///
    /// # Errors
    /// When the TLS library cannot be set up.
    pub(crate) fn judged(
        server: &Url,
        timeout: Duration,
        resolver: Resolver,
    ) -> Result<Self, reqwest::Error> {
        let resolver = Arc::new(resolver);
        let client = client_of(server, |builder| {
            let resolver = Arc::clone(&resolver);
            builder.connect_timeout(CONNECT_TIMEOUT).pool_max_idle_per_host(0).dns_resolver(resolver)
        })?;
        Ok(Self { client, timeout })
    }

    /// Posts JSON, or what the headers call it: exactly one request.
    ///
    /// # Errors
    /// [`NoAnswer`] when no status came back in time.
    pub(crate) async fn post_json(
        &self,
        url: Url,
        mut headers: HeaderMap,
        body: Vec<u8>,
    ) -> Result<Answer, NoAnswer> {
        headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
        let request = self.client.post(url).timeout(self.timeout).headers(headers);
        let response = request.body(body).send().await.map_err(broken)?;
        let content_type =
            header(&response, &CONTENT_TYPE).unwrap_or_default().trim_start().to_ascii_lowercase();
        Ok(Answer {
            status: response.status().as_u16(),
            retry_after: header(&response, &RETRY_AFTER)
                .and_then(|wish| wait(wish, header(&response, &DATE))),
            is_html: content_type.starts_with("text/html"),
            ends_with_connection: response.version() < Version::HTTP_2
                && [&CONTENT_LENGTH, &TRANSFER_ENCODING]
                    .iter()
                    .all(|name| !response.headers().contains_key(*name)),
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
        while let Some(chunk) = self.chunk().await? {
            if body.len() + chunk.as_ref().len() > ANSWER_BYTES_MAX {
                return Err(NoAnswer::TooLarge);
            }
            body.extend_from_slice(chunk.as_ref());
        }
        Ok(body)
    }

    /// Reads on in the body; `None` at its end. The limit is the caller's business.
    ///
    /// # Errors
    /// [`NoAnswer::Broken`].
    pub(crate) async fn chunk(&mut self) -> Result<Option<impl AsRef<[u8]> + use<>>, NoAnswer> {
        self.response.chunk().await.map_err(broken)
    }
}

/// A client that speaks to one server only. The certificates of the machine are read for one that is spoken to in
/// TLS: that takes some milliseconds of a start.
fn client_of(
    server: &Url,
    options: impl Fn(ClientBuilder) -> ClientBuilder,
) -> Result<Client, reqwest::Error> {
    let is_plain = server.scheme() == "http";
    client(|builder| {
        let builder = options(builder);
        if is_plain { builder.tls_certs_only([]) } else { builder }
    })
}

/// A client with these options over those that all have.
///
/// # Errors
/// When the TLS library cannot be set up.
pub(crate) fn client(options: impl Fn(ClientBuilder) -> ClientBuilder) -> Result<Client, reqwest::Error> {
    use_ring();
    match options(builder()).build() {
        Ok(client) => Ok(client),
        // A machine without a certificate store: plain HTTP still works, and TLS trusts nobody.
        Err(_) => options(builder()).tls_certs_only([]).build(),
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
