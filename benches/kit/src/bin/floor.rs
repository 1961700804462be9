//! The floor: what the work costs without any framework. The transcript is one growing text that is never read
//! again, answers are borrowed from the bytes they came in, one connection is kept.
//!
//! A held run is that text in one row of SQLite, written ahead and waited for like ours.
//! Not here, though a runtime needs it: limits, retries, schemas, a record of what happened, rights.

use std::borrow::Cow;
use std::sync::Mutex;

use anyhow::{Context as _, Result, bail, ensure};
use bench_kit::{
    PROMPT, Peer, Resumes, SYSTEM_PROMPT, data_folder, lookup, measure_resumes, model_address, on_one_thread,
    schemas, show, write_record,
};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rusqlite::Connection;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

struct Floor {
    address: String,
    /// Connections that nobody uses at the moment.
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
    /// The tools, encoded.
    tools: String,
    /// Where held runs are kept, opened for the first.
    held: Mutex<Option<Connection>>,
}

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    choices: [Choice<'a>; 1],
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow)]
    message: &'a RawValue,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    content: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    tool_calls: Vec<Call<'a>>,
}

#[derive(Deserialize)]
struct Call<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(borrow)]
    function: Function<'a>,
}

#[derive(Deserialize)]
struct Function<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    arguments: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Arguments<'a> {
    id: u64,
    #[serde(borrow, default)]
    text: Cow<'a, str>,
}

/// Where a run stopped.
enum Stop {
    Done(String),
    /// Before the write with which the transcript ends.
    Write,
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [what, script] = &words[..]
        && what == "transcript"
    {
        return transcript(script);
    }
    measure_resumes(&words, async || Ok(Floor::new()))
}

/// How many bytes the messages of a whole run have.
fn transcript(script: &str) -> Result<()> {
    on_one_thread(async {
        let mut messages = beginning();
        Floor::new().drive(script, &mut messages, Writes::Run).await?;
        show(&json!({ "bytes": messages.len() + "[]".len() }));
        Ok(())
    })
}

/// What is done with a write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Writes {
    Wait,
    Run,
}

fn beginning() -> String {
    let messages =
        [json!({ "role": "system", "content": SYSTEM_PROMPT }), json!({ "role": "user", "content": PROMPT })];
    messages.map(|message| message.to_string()).join(",")
}

fn run_tool(name: &str, arguments: &str) -> Result<String> {
    let arguments: Arguments<'_> = serde_json::from_str(arguments)?;
    match name {
        "lookup" => Ok(lookup(arguments.id)),
        "write_record" => Ok(write_record(arguments.id, &arguments.text)),
        _ => bail!("no tool {name}"),
    }
}

/// Does the calls of a turn and appends what came of them.
fn run_calls(calls: &[Call<'_>], messages: &mut String) -> Result<()> {
    for call in calls {
        let content = run_tool(&call.function.name, &call.function.arguments)?;
        messages.push_str(r#",{"role":"tool","tool_call_id":"#);
        messages.push_str(&serde_json::to_string(&call.id)?);
        messages.push_str(r#","content":"#);
        messages.push_str(&serde_json::to_string(&content)?);
        messages.push('}');
    }
    Ok(())
}

impl Floor {
    fn new() -> Self {
        let tools: Vec<_> = schemas()
            .into_iter()
            .map(|tool| {
                let function =
                    json!({ "name": tool.name, "description": tool.description, "parameters": tool.parameters });
                json!({ "type": "function", "function": function })
            })
            .collect();
        Self {
            address: model_address().trim_start_matches("http://").to_owned(),
            idle: Mutex::default(),
            tools: json!(tools).to_string(),
            held: Mutex::default(),
        }
    }

    fn idle(&self) -> Option<SendRequest<Full<Bytes>>> {
        self.idle.lock().ok()?.pop()
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>> {
        let socket = tokio::net::TcpStream::connect(&self.address).await.context("is the mock running?")?;
        socket.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(socket)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }

    async fn post(&self, body: String) -> Result<Bytes> {
        let mut sender = match self.idle() {
            Some(sender) => sender,
            None => self.connect().await?,
        };
        sender.ready().await?;
        let request = Request::post("/v1/chat/completions")
            .header("host", &self.address)
            .header("content-type", "application/json")
            .header("authorization", "Bearer none")
            .body(Full::new(Bytes::from(body)))?;
        let response = sender.send_request(request).await?;
        ensure!(response.status().is_success(), "the model answered {}", response.status());
        let body = response.into_body().collect().await?.to_bytes();
        if let Ok(mut idle) = self.idle.lock() {
            idle.push(sender);
        }
        Ok(body)
    }

    async fn drive(&self, script: &str, messages: &mut String, writes: Writes) -> Result<Stop> {
        loop {
            let body = format!(r#"{{"model":"{script}","messages":[{messages}],"tools":{}}}"#, self.tools);
            let answer = self.post(body).await?;
            let answer: Answer<'_> = serde_json::from_slice(&answer)?;
            let encoded = answer.choices[0].message.get();
            messages.push(',');
            messages.push_str(encoded);
            let message: Message<'_> = serde_json::from_str(encoded)?;
            if message.tool_calls.is_empty() {
                return Ok(Stop::Done(message.content.unwrap_or_default().into_owned()));
            }
            if writes == Writes::Wait
                && message.tool_calls.iter().any(|call| call.function.name == "write_record")
            {
                return Ok(Stop::Write);
            }
            run_calls(&message.tool_calls, messages)?;
        }
    }

    fn with_held<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        let mut held = self.held.lock().ok().context("a panic")?;
        if held.is_none() {
            let connection = Connection::open(data_folder()?.join("floor.db"))?;
            connection.execute_batch(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
                 CREATE TABLE IF NOT EXISTS held (id INTEGER PRIMARY KEY, state TEXT NOT NULL)",
            )?;
            *held = Some(connection);
        }
        Ok(work(held.as_ref().context("just made")?)?)
    }
}

impl Peer for Floor {
    async fn run(&self, script: &str) -> Result<String> {
        match self.drive(script, &mut beginning(), Writes::Wait).await? {
            Stop::Done(text) => Ok(text),
            Stop::Write => bail!("a write in the way"),
        }
    }
}

impl Resumes for Floor {
    type Ticket = i64;

    async fn hold(&self, script: &str) -> Result<i64> {
        let mut messages = beginning();
        let Stop::Write = self.drive(script, &mut messages, Writes::Wait).await? else { bail!("no write") };
        let state = format!("{script}\n{messages}");
        self.with_held(|held| {
            held.prepare_cached("INSERT INTO held (state) VALUES (?)")?.execute([&state])?;
            Ok(held.last_insert_rowid())
        })
    }

    async fn release(&self, id: i64) -> Result<String> {
        let state: String = self.with_held(|held| {
            held.prepare_cached("SELECT state FROM held WHERE id = ?")?.query_row([id], |row| row.get(0))
        })?;
        let (script, messages) = state.split_once('\n').context("not a held run")?;
        let array = format!("[{messages}]");
        let all: Vec<&RawValue> = serde_json::from_str(&array)?;
        let last: Message<'_> = serde_json::from_str(all.last().context("an empty run")?.get())?;
        let mut messages = messages.to_owned();
        run_calls(&last.tool_calls, &mut messages)?;
        match self.drive(script, &mut messages, Writes::Run).await? {
            Stop::Done(text) => Ok(text),
            Stop::Write => bail!("asked twice"),
        }
    }
}
