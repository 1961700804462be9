//! The whole way, over real TLS, with names that resolve to a server of the test.

mod bounds;
mod content;
mod facts;
mod hops;
mod server;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use countersign::testing::call_context;
use countersign::{Arguments, Subject, Tool, ToolFailure};
use reqwest::Certificate;
use serde_json::json;

use self::server::{Identity, Play, Server};
use super::{FetchPage, FetchPageConfig, HostPattern, Surroundings};
use crate::address::is_public;
use crate::resolve::Lookup;

/// Longer than any test takes; only tests of the deadline itself use a shorter one.
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(200);

/// Names and the answers to looking them up, one after another; the last one stays.
#[derive(Default)]
struct Names(Mutex<HashMap<String, Vec<Vec<SocketAddr>>>>);

#[async_trait]
impl Lookup for Names {
    async fn addresses(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        let mut names = self.0.lock().unwrap();
        let answers = names.get_mut(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() })
    }
}

/// One server, and a tool that may reach it under some names.
struct Bench {
    server: Server,
    names: Arc<Names>,
    deadline: Duration,
    may_reach: fn(IpAddr) -> bool,
    trusted: Option<Certificate>,
}

impl Bench {
    /// A server for `docs.rs` and everything in `example.org` that plays these answers in order.
    async fn new(plays: Vec<Play>) -> Self {
        Self::with(Identity::of(&["docs.rs", "*.example.org"]), plays).await
    }

    async fn with(identity: Identity, plays: Vec<Play>) -> Self {
        let trusted = Some(identity.certificate());
        let server = Server::start(identity, plays).await;
        let bench = Self { server, names: Arc::default(), deadline: LONG, may_reach: only_loopback, trusted };
        for name in ["docs.rs", "a.example.org", "evil.example"] {
            bench.resolves(name, &[&[]]);
        }
        bench
    }

    /// What looking up a name gives, time after time: the server, and these addresses beside it.
    fn resolves(&self, name: &str, answers: &[&[&str]]) {
        let beside = |beside: &&[&str]| {
            let others = beside.iter().map(|address| SocketAddr::new(address.parse().unwrap(), 0));
            std::iter::once(self.server.address()).chain(others).collect()
        };
        self.names.0.lock().unwrap().insert(name.to_owned(), answers.iter().map(beside).collect());
    }

    async fn fetch(&self, url: &str) -> Result<String, String> {
        let tool = FetchPage::among(
            FetchPageConfig {
                enabled: true,
                hosts: ["docs.rs", "*.example.org"].map(|host| HostPattern::parse(host).unwrap()).into(),
                ..FetchPageConfig::unsaid()
            },
            Surroundings {
                lookup: Arc::clone(&self.names) as Arc<dyn Lookup>,
                may_reach: self.may_reach,
                trusted: Some(self.trusted.clone().into_iter().collect()),
                deadline: self.deadline,
            },
        );
        call(&tool.unwrap(), url).await
    }
}

/// In place of the rule about public addresses, so that the server can be reached.
fn only_loopback(address: IpAddr) -> bool {
    address.is_loopback()
}

async fn call(tool: &FetchPage, url: &str) -> Result<String, String> {
    let arguments = Arguments::read(Some(&json!({ "url": url }).to_string())).unwrap();
    match tool.call(&arguments, &call_context(&Subject::parse("alice").unwrap(), None)).await {
        Ok(output) => Ok(output.content.kept().to_owned()),
        Err(error) => {
            let ToolFailure::Answered(sentence) = error.failure() else { panic!("{error:?}") };
            Err(sentence.kept().to_owned())
        }
    }
}

/// A whole answer of a type.
fn page(media: &str, body: &[u8]) -> Play {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {media}\r\ncontent-length: {}\r\n\r\n", body.len());
    Play::Send([head.as_bytes(), body].concat())
}

/// A redirect to there, on a connection that stays open for whoever would use it again.
fn redirect(status: &str, to: &str) -> Play {
    Play::SendAndHang(
        format!("HTTP/1.1 {status}\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n").into_bytes(),
    )
}
