//! Somebody who wants to be told: a server that keeps every message, and checks who signed it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::Value;
use sha2::Sha256;

use super::until;

/// What the receiver and the program share.
pub(crate) const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
/// The status that stands for no answer at all.
pub(crate) const HANGS: u16 = 0;

/// A message as it arrived.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Message {
    pub(crate) id: String,
    pub(crate) second: String,
    pub(crate) signature: String,
    pub(crate) body: String,
}

/// A server on this machine.
pub(crate) struct Receiver {
    pub(crate) url: String,
    messages: Arc<Mutex<Vec<Message>>>,
}

impl Message {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// Whether the program signed it, by the book of Standard Webhooks.
    pub(crate) fn is_signed(&self) -> bool {
        let key = STANDARD.decode(SECRET.strip_prefix("whsec_").unwrap()).unwrap();
        let mut mac = Hmac::<Sha256>::new_from_slice(&key).unwrap();
        mac.update(format!("{}.{}.{}", self.id, self.second, self.body).as_bytes());
        self.signature == format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

impl Receiver {
    /// Answers the messages with these statuses, one after another; the last one holds for all others.
    pub(crate) fn start(statuses: &'static [u16]) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").unwrap(), statuses)
    }

    pub(crate) fn on(listener: TcpListener, statuses: &'static [u16]) -> Self {
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let messages: Arc<Mutex<Vec<Message>>> = Arc::default();
        let kept = Arc::clone(&messages);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let kept = Arc::clone(&kept);
                std::thread::spawn(move || answer(stream.unwrap(), statuses, &kept));
            }
        });
        Self { url, messages }
    }

    pub(crate) fn messages(&self) -> Vec<Message> {
        self.messages.lock().unwrap().clone()
    }

    /// The first message of this type, once it has come.
    pub(crate) fn told(&self, kind: &str) -> Message {
        let kind = format!("countersign.{kind}");
        until(&kind, || self.messages().into_iter().find(|message| message.json()["type"] == kind.as_str()))
    }
}

fn answer(mut stream: TcpStream, statuses: &[u16], kept: &Mutex<Vec<Message>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        if line == "\r\n" {
            break;
        }
        head.push(line);
    }
    let header = |wanted: &str| {
        let found = head.iter().filter_map(|line| line.split_once(':'));
        let found = found.filter(|(name, _)| name.eq_ignore_ascii_case(wanted));
        found.map(|(_, value)| value.trim().to_owned()).next().unwrap_or_default()
    };
    let mut body = vec![0; header("content-length").parse().unwrap_or(0)];
    if reader.read_exact(&mut body).is_err() {
        return;
    }
    assert_eq!(header("content-type"), "application/cloudevents+json");
    let message = Message {
        id: header("webhook-id"),
        second: header("webhook-timestamp"),
        signature: header("webhook-signature"),
        body: String::from_utf8(body).unwrap(),
    };
    let status = {
        let mut kept = kept.lock().unwrap();
        kept.push(message);
        statuses[(kept.len() - 1).min(statuses.len() - 1)]
    };
    if status == HANGS {
        drop(reader.read(&mut [0]));
        return;
    }
    let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    drop(stream.write_all(answer.as_bytes()));
}
