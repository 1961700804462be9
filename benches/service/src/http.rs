//! Speaking HTTP to the service, and being the model and the tool that it speaks to.
//!
//! Everything is stamped by the machine's steady clock at the border of this process: when the last byte of a request has
//! been read, and when an answer has been written.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use bench_kit::monotonic_ns;
use serde_json::{Value, json};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// One kept connection to the service.
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
    host: String,
    token: Option<String>,
}

/// What came back, and how long it took.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
    pub(crate) ms: f64,
}

impl Client {
    pub(crate) fn connect(at: SocketAddr, token: Option<&str>) -> Result<Self> {
        let stream = TcpStream::connect(at)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream: BufReader::new(stream), host: at.to_string(), token: token.map(str::to_owned) })
    }

    pub(crate) fn ask(&mut self, request: &str, more: &str, body: &str) -> Result<Answer> {
        let token = self.token.as_ref().map(|token| format!("authorization: Bearer {token}\r\n"));
        let began = monotonic_ns();
        let text = format!(
            "{request} HTTP/1.1\r\nhost: {}\r\n{}{more}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.host,
            token.unwrap_or_default(),
            body.len()
        );
        self.stream.get_mut().write_all(text.as_bytes())?;
        let (first, body) = message(&mut self.stream)?.context("the service went away")?;
        let ms = (monotonic_ns() - began) as f64 / 1e6;
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
        Ok(Answer { status: status.context("no status")?, body, ms })
    }

    pub(crate) fn get(&mut self, path: &str) -> Result<(Value, f64)> {
        let answer = self.ask(&format!("GET {path}"), "", "")?;
        ensure!(answer.status == 200, "{path}: {} {}", answer.status, answer.body);
        Ok((serde_json::from_str(&answer.body)?, answer.ms))
    }
}

/// The first line and the body of what comes next; `None`: nothing does.
fn message(stream: &mut BufReader<TcpStream>) -> Result<Option<(String, String)>> {
    let (mut first, mut length) = (String::new(), 0);
    if stream.read_line(&mut first)? == 0 {
        return Ok(None);
    }
    loop {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let Some((name, value)) = line.split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse()?;
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            bail!("an answer in pieces: {first}");
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok(Some((first, String::from_utf8(body)?)))
}

/// What has been heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// The tool was called.
    Tool,
    /// The tool has answered.
    Answered,
    /// The model was asked what to do after a tool's result.
    Model,
}

/// What was heard when.
type Moments = Vec<(Heard, i64)>;

/// A model that calls `page_drop` once and then says a text, and that tool: both at one address.
#[derive(Clone)]
pub(crate) struct Others {
    address: SocketAddr,
    heard: Arc<(Mutex<Moments>, Condvar)>,
}

impl Others {
    pub(crate) fn start() -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let others = Self { address: listener.local_addr()?, heard: Arc::default() };
        let serving = others.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let serving = serving.clone();
                // Whoever goes away in the middle is no business of ours.
                std::thread::spawn(move || drop(serving.serve(stream)));
            }
        });
        Ok(others)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    fn serve(&self, stream: TcpStream) -> Result<()> {
        stream.set_nodelay(true)?;
        let mut stream = BufReader::new(stream);
        while let Some((first, body)) = message(&mut stream)? {
            let arrived = monotonic_ns();
            let is_tool = first.contains("/page_drop");
            let answer = if is_tool {
                self.note(Heard::Tool, arrived);
                json!({ "content": "dropped" })
            } else if body.contains("\"role\":\"tool\"") {
                self.note(Heard::Model, arrived);
                reply(&json!({ "role": "assistant", "content": "done" }), "stop")
            } else {
                let function = json!({ "name": "page_drop", "arguments": "{\"id\":7}" });
                let call = json!({ "id": "call_0", "type": "function", "function": function });
                reply(&json!({ "role": "assistant", "content": null, "tool_calls": [call] }), "tool_calls")
            };
            let answer = answer.to_string();
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                answer.len()
            );
            stream.get_mut().write_all(format!("{head}{answer}").as_bytes())?;
            if is_tool {
                self.note(Heard::Answered, monotonic_ns());
            }
        }
        Ok(())
    }

    fn note(&self, what: Heard, when: i64) {
        let (heard, bell) = &*self.heard;
        heard.lock().unwrap_or_else(PoisonError::into_inner).push((what, when));
        bell.notify_all();
    }

    pub(crate) fn forget(&self) {
        self.heard.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// When it was first heard since the last forgetting.
    pub(crate) fn when(&self, what: Heard) -> Result<i64> {
        let (heard, bell) = &*self.heard;
        let guard = heard.lock().unwrap_or_else(PoisonError::into_inner);
        let find = |heard: &Moments| heard.iter().find(|(found, _)| *found == what).map(|(_, when)| *when);
        let waited = bell.wait_timeout_while(guard, PATIENCE, |heard| find(heard).is_none());
        let (guard, _) = waited.unwrap_or_else(PoisonError::into_inner);
        find(&guard).with_context(|| format!("{what:?} was not heard"))
    }
}

fn reply(message: &Value, finish: &str) -> Value {
    json!({
        "choices": [{ "index": 0, "message": message, "finish_reason": finish }],
        "usage": { "prompt_tokens": 100, "completion_tokens": 10 },
    })
}
