//! Telling somebody else's server, in the manner of Standard Webhooks.
//!
//! Invariant: one attempt is one signed request with a deadline over all of it. Nothing but the status of the answer is
//! read, a redirect is an answer like any other, and only a status from 200 to 299 means that they know. Where it may go
//! is judged when the target is parsed and again, by address, for every connection. No address, secret or body gets into
//! an error (S5). Not here: when it is tried again, and what is said.

mod signature;
mod target;

use std::time::Duration;

use jiff::Timestamp;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use crate::address::is_public;
use crate::http::Http;
use crate::resolve::{MachineLookup, Resolver};
use crate::tool_setup::ToolSetupError;

pub use self::signature::{NotASecret, WebhookSecret};
pub use self::target::{NotATarget, WebhookTarget};

/// How long one attempt may take, from the name to the status.
const TIMEOUT: Duration = Duration::from_secs(10);
/// What the body calls itself: a CloudEvent with everything in one JSON object.
const MEDIA_TYPE: &str = "application/cloudevents+json";

/// Somebody who is told.
#[derive(Debug)]
pub struct Webhook {
    target: WebhookTarget,
    secrets: Vec<WebhookSecret>,
    http: Http,
}

/// What came of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// They know.
    Told,
    /// They want to be told nothing any more: status 410.
    Gone,
    /// They answered with another status.
    Refused {
        /// It.
        status: u16,
        /// How long they want to be left alone, if they said so; at most a minute.
        retry_after: Option<Duration>,
    },
    /// Nothing was sent: no such name, an address that may not be reached, no connection, no trust.
    NotReached,
    /// No answer in time.
    NoAnswer,
}

impl Webhook {
    /// Makes the client. Nothing is looked up or sent yet. While a secret is being changed there are several, and each
    /// signs.
    ///
    /// # Errors
    /// [`ToolSetupError::Http`] when the TLS library cannot be set up.
    pub fn new(target: WebhookTarget, secrets: Vec<WebhookSecret>) -> Result<Self, ToolSetupError> {
        let may_reach = if target.is_private() { |_| true } else { is_public };
        let resolver = Resolver { lookup: std::sync::Arc::new(MachineLookup), may_reach };
        let http = Http::judged(target.url(), TIMEOUT, resolver)?;
        Ok(Self { target, secrets, http })
    }

    /// One attempt. `id` is the same in all attempts; `now` is when this one is made.
    pub async fn send(&self, id: &str, now: Timestamp, body: Vec<u8>) -> Sent {
        let second = now.as_second();
        let signatures: Vec<String> =
            self.secrets.iter().map(|secret| secret.sign(id, second, &body)).collect();
        let headers = [
            ("webhook-id", id.to_owned()),
            ("webhook-timestamp", second.to_string()),
            ("webhook-signature", signatures.join(" ")),
        ];
        let mut all = HeaderMap::new();
        all.insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        for (name, value) in headers {
            // An id that no header can carry was never given out.
            let Ok(value) = HeaderValue::try_from(value) else { return Sent::NotReached };
            all.insert(HeaderName::from_static(name), value);
        }
        match self.http.post_json(self.target.url().clone(), all, body).await {
            Ok(answer) if (200..300).contains(&answer.status) => Sent::Told,
            Ok(answer) if answer.status == 410 => Sent::Gone,
            Ok(answer) => Sent::Refused { status: answer.status, retry_after: answer.retry_after },
            Err(error) if error.was_sent() => Sent::NoAnswer,
            Err(_) => Sent::NotReached,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    async fn told(answer: &'static [u8]) -> (Sent, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (mut heard, mut more) = (Vec::new(), [0; 4096]);
            while !heard.ends_with(b"the body") {
                let count = stream.read(&mut more).await.unwrap();
                heard.extend_from_slice(&more[..count]);
            }
            // Whoever has the status may not read the rest.
            drop(stream.write_all(answer).await);
            String::from_utf8(heard).unwrap()
        });
        let target = WebhookTarget::parse(&url, true, true).unwrap();
        let webhook = Webhook::new(target, vec![signature::sample()]).unwrap();
        let now = Timestamp::from_second(1_614_265_330).unwrap();
        let sent = webhook.send("run_a-2", now, b"the body".to_vec()).await;
        (sent, server.await.unwrap())
    }

    #[tokio::test]
    async fn an_attempt_is_one_signed_request() {
        let (sent, heard) = told(b"HTTP/1.1 204 No Content\r\n\r\n").await;
        assert_eq!(sent, Sent::Told);
        let signature = signature::sample().sign("run_a-2", 1_614_265_330, b"the body");
        for line in [
            "POST /hook HTTP/1.1".to_owned(),
            "content-type: application/cloudevents+json".to_owned(),
            "webhook-id: run_a-2".to_owned(),
            "webhook-timestamp: 1614265330".to_owned(),
            format!("webhook-signature: {signature}"),
        ] {
            assert_eq!(heard.lines().filter(|heard| *heard == line).count(), 1, "{line} in {heard}");
        }
    }

    #[tokio::test]
    async fn only_a_status_of_success_means_that_they_know_and_no_redirect_is_followed() {
        let refused = |status, seconds: Option<u64>| Sent::Refused {
            status,
            retry_after: seconds.map(Duration::from_secs),
        };
        for (answer, sent) in [
            (&b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\nendless"[..], Sent::Told),
            (b"HTTP/1.1 410 Gone\r\n\r\n", Sent::Gone),
            (b"HTTP/1.1 307 X\r\nLocation: http://127.0.0.1:1/\r\n\r\n", refused(307, None)),
            (b"HTTP/1.1 503 X\r\nRetry-After: 7\r\n\r\n", refused(503, Some(7))),
            (b"", Sent::NoAnswer),
        ] {
            assert_eq!(told(answer).await.0, sent, "{answer:?}");
        }
    }

    #[tokio::test]
    async fn tp51_a_name_that_leads_to_a_private_address_is_not_connected_to() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        struct Rebound;
        #[async_trait::async_trait]
        impl crate::resolve::Lookup for Rebound {
            async fn addresses(&self, _: &str) -> std::io::Result<Vec<std::net::SocketAddr>> {
                Ok(vec![([127, 0, 0, 1], 0).into()])
            }
        }
        let target = WebhookTarget::parse(&format!("http://desk.example:{port}/"), false, true).unwrap();
        let resolver = Resolver { lookup: std::sync::Arc::new(Rebound), may_reach: is_public };
        let http = Http::judged(target.url(), TIMEOUT, resolver).unwrap();
        let webhook = Webhook { target, secrets: vec![signature::sample()], http };
        assert_eq!(webhook.send("run_a-2", Timestamp::UNIX_EPOCH, Vec::new()).await, Sent::NotReached);
    }
}
