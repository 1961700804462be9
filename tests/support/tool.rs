//! Tool servers: the two of `examples/tools`, and one that answers as a test wants.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};

use serde_json::Value;

use super::{Folder, until};

/// A language that the examples are written in.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Language {
    Python,
    Node,
}

/// An example server. It ends with its test.
pub(crate) struct Example {
    child: Child,
    url: String,
}

impl Example {
    /// Starts the example of this language on a port of its own.
    pub(crate) fn start(language: Language) -> Self {
        let (program, file) = match language {
            Language::Python => ("python3", "server.py"),
            Language::Node => ("node", "server.mjs"),
        };
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/tools").join(file);
        let child =
            Command::new(program).arg(file).arg("0").stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = child.unwrap_or_else(|error| {
            panic!("{program} is needed to run the example tool servers, and cannot be started: {error}")
        });
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        let url = url.trim().to_owned();
        assert!(url.starts_with("http://127.0.0.1:"), "{program} said {url:?}");
        Self { child, url }
    }

    /// Adds the declarations of the examples to the configuration, at this server's address.
    pub(crate) fn declare(&self, folder: &Folder) {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/tools/countersign.toml");
        let tools = std::fs::read_to_string(file).unwrap().replace("http://127.0.0.1:9200", &self.url);
        folder.configure_more(&tools);
    }

    /// Calls a tool as somebody else would.
    pub(crate) fn call(&self, path: &str, body: &Value) {
        let mut stream = TcpStream::connect(self.url.trim_start_matches("http://")).unwrap();
        let body = body.to_string();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nIdempotency-Key: other\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes())).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.contains(" 200 "), "{answer}");
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        drop(self.child.kill().and_then(|()| self.child.wait()));
    }
}

/// What comes of a call.
#[derive(Clone)]
pub(crate) enum Comes {
    /// A status and a body.
    Answer(u16, Vec<u8>),
    /// The same with status 200, after this long.
    Takes(std::time::Duration, Vec<u8>),
    /// Another address.
    Redirect(String),
    /// The connection breaks when the call has been read.
    Dies,
    /// Nothing, for as long as the other side waits.
    Hangs,
    /// An answer, once the gate is open.
    Held(Arc<(Mutex<bool>, Condvar)>),
}

/// A server that answers every call in one way, and keeps what it was asked.
pub(crate) struct ToolServer {
    pub(crate) url: String,
    calls: Arc<Mutex<Vec<(String, Value)>>>,
}

impl ToolServer {
    pub(crate) fn start(comes: Comes) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/tool", listener.local_addr().unwrap());
        let calls: Arc<Mutex<Vec<(String, Value)>>> = Arc::default();
        let kept = Arc::clone(&calls);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (comes, kept) = (comes.clone(), Arc::clone(&kept));
                std::thread::spawn(move || answer(stream.unwrap(), &comes, &kept));
            }
        });
        Self { url, calls }
    }

    /// A server that answers once it is let, and what lets it.
    pub(crate) fn gated() -> (Self, impl FnOnce()) {
        let gate: Arc<(Mutex<bool>, Condvar)> = Arc::default();
        let server = Self::start(Comes::Held(Arc::clone(&gate)));
        (server, move || {
            *gate.0.lock().unwrap() = true;
            gate.1.notify_all();
        })
    }

    /// The idempotency key and the body of each call so far.
    pub(crate) fn calls(&self) -> Vec<(String, Value)> {
        self.calls.lock().unwrap().clone()
    }

    /// How many calls there were so far.
    pub(crate) fn count(&self) -> usize {
        self.calls.lock().unwrap().len()
    }

    /// Returns once a call has arrived.
    pub(crate) fn wait_for_a_call(&self) {
        until("a call of the tool", || (self.count() > 0).then_some(()));
    }
}

fn answer(mut stream: TcpStream, comes: &Comes, kept: &Mutex<Vec<(String, Value)>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut length, mut key) = (0, String::new());
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        if let Some((name, value)) = line.split_once(':') {
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse().unwrap(),
                "idempotency-key" => value.trim().clone_into(&mut key),
                _ => {}
            }
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    // Whoever was killed while it wrote has said nothing.
    if reader.read_exact(&mut body).is_err() {
        return;
    }
    kept.lock().unwrap().push((key, serde_json::from_slice(&body).unwrap()));
    let head = |status: u16, more: &str, length: usize| {
        format!("HTTP/1.1 {status} X\r\n{more}Content-Length: {length}\r\nConnection: close\r\n\r\n")
    };
    match comes {
        Comes::Answer(status, body) => {
            let head = head(*status, "", body.len());
            // Whoever has heard enough does not read the rest.
            drop(stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)));
        }
        Comes::Takes(long, body) => {
            std::thread::sleep(*long);
            drop(
                stream.write_all(head(200, "", body.len()).as_bytes()).and_then(|()| stream.write_all(body)),
            );
        }
        Comes::Redirect(to) => {
            drop(stream.write_all(head(307, &format!("Location: {to}\r\n"), 0).as_bytes()));
        }
        Comes::Dies => {}
        Comes::Hangs => drop(reader.read(&mut [0])),
        Comes::Held(gate) => {
            drop(gate.1.wait_while(gate.0.lock().unwrap(), |open| !*open).unwrap());
            let body = b"{\"content\":\"ok\"}";
            let head = head(200, "", body.len());
            drop(stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)));
        }
    }
}
