//! A server of models that plays a script, one answer a request, and keeps what it was asked.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::until;

/// One answer.
#[derive(Clone)]
pub(crate) enum Play {
    /// A status, headers, a body.
    Answer(u16, &'static str, String),
    /// Nothing, for as long as the other side waits.
    Hang,
}

/// A text, which ends a run.
pub(crate) fn says(text: &str) -> Play {
    message(&json!({ "role": "assistant", "content": text }), "stop")
}

/// One turn of calls: names and arguments.
pub(crate) fn calls(calls: &[(&str, Value)]) -> Play {
    let ids: Vec<String> = (0..calls.len()).map(|index| format!("c{index}")).collect();
    let named: Vec<_> =
        ids.iter().zip(calls).map(|(id, (name, arguments))| (&**id, *name, arguments.to_string())).collect();
    turn(
        &named.iter().map(|(id, name, arguments)| (*id, *name, &**arguments)).collect::<Vec<_>>(),
        "tool_calls",
    )
}

/// One turn of calls as they stand: the provider's ids, names, texts of arguments; and how it ended.
pub(crate) fn turn(calls: &[(&str, &str, &str)], finish: &str) -> Play {
    let calls: Vec<Value> = calls
        .iter()
        .map(|(id, name, arguments)| {
            json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } })
        })
        .collect();
    message(&json!({ "role": "assistant", "content": null, "tool_calls": calls }), finish)
}

fn message(message: &Value, finish: &str) -> Play {
    let body = json!({
        "choices": [{ "index": 0, "message": message, "finish_reason": finish }],
        "usage": { "prompt_tokens": 100, "completion_tokens": 10 },
    });
    Play::Answer(200, "Content-Type: application/json\r\n", body.to_string())
}

/// The server. It ends with the process.
pub(crate) struct Server {
    url: String,
    asked: Arc<Mutex<Vec<Value>>>,
}

impl Server {
    /// Plays these answers in order, the last one for ever.
    pub(crate) fn start(script: Vec<Play>) -> Self {
        Self::playing(move |index, _| script[index.min(script.len() - 1)].clone())
    }

    /// Answers each request by what it says.
    pub(crate) fn answering(answer: fn(&Value) -> Play) -> Self {
        Self::playing(move |_, request| answer(request))
    }

    /// Plays by the task of the run and by how many replies the run has had.
    pub(crate) fn start_by_task(play: impl Fn(&str, usize) -> Play + Send + Sync + 'static) -> Self {
        Self::playing(move |_, body| {
            let messages = body["messages"].as_array().unwrap();
            let by =
                |role: &str| messages.iter().filter(|message| message["role"] == role).collect::<Vec<_>>();
            let task = by("user").last().map(|message| message["content"].to_string()).unwrap_or_default();
            play(&task, by("assistant").len())
        })
    }

    fn playing(play: impl Fn(usize, &Value) -> Play + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let asked: Arc<Mutex<Vec<Value>>> = Arc::default();
        let (kept, play) = (Arc::clone(&asked), Arc::new(play));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (play, kept) = (Arc::clone(&play), Arc::clone(&kept));
                std::thread::spawn(move || answer(stream.unwrap(), &*play, &kept));
            }
        });
        Self { url, asked }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The bodies of all requests so far.
    pub(crate) fn asked(&self) -> Vec<Value> {
        self.asked.lock().unwrap().clone()
    }

    /// How many requests there were so far.
    pub(crate) fn count(&self) -> usize {
        self.asked.lock().unwrap().len()
    }

    /// Returns once that many requests have arrived.
    pub(crate) fn wait_for(&self, requests: usize) {
        until("a request to the model", || (self.count() >= requests).then_some(()));
    }
}

fn answer(mut stream: TcpStream, play: &dyn Fn(usize, &Value) -> Play, kept: &Mutex<Vec<Value>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
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
    let request: Value = serde_json::from_slice(&body).unwrap();
    let index = {
        let mut kept = kept.lock().unwrap();
        kept.push(request.clone());
        kept.len() - 1
    };
    match play(index, &request) {
        Play::Answer(status, headers, body) => {
            let head = format!(
                "HTTP/1.1 {status} X\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            // Whoever was killed meanwhile does not read it.
            drop(stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes())));
        }
        Play::Hang => drop(reader.read(&mut [0])),
    }
}
