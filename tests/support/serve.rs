//! The program as a server, and programs that speak to it.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use serde_json::{Value, json};

use super::{Folder, text, until};

/// A program that goes on until it is told to end. It ends with its test.
pub(crate) struct Process {
    child: Child,
    said: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
}

/// `countersign serve` on a port of its own.
pub(crate) struct Serve {
    process: Process,
    address: String,
}

/// Somebody who speaks to a server.
#[derive(Clone)]
pub(crate) struct Client {
    address: String,
    token: Option<String>,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Process {
    /// Starts it.
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let said: Arc<Mutex<String>> = Arc::default();
        let streams: [Box<dyn std::io::Read + Send>; 2] =
            [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
        let read = |stream| {
            let said = Arc::clone(&said);
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    let mut said = said.lock().unwrap();
                    said.push_str(&line);
                    said.push('\n');
                }
            })
        };
        let readers = streams.map(read).into();
        Self { child, said, readers }
    }

    /// `countersign work`, when it works.
    pub(crate) fn work(folder: &Folder) -> Self {
        let mut work = Self::start(folder.command(&["work"]));
        work.says("working on the runs of ");
        work
    }

    /// What comes after these words in the line that begins with them, once it says so.
    pub(crate) fn says(&mut self, beginning: &str) -> String {
        until(beginning, || {
            let line = self.said().lines().find_map(|line| line.strip_prefix(beginning).map(str::to_owned));
            if line.is_none()
                && let Some(ended) = self.child.try_wait().unwrap()
            {
                panic!("it ended with {ended}: {}", self.said());
            }
            line
        })
    }

    /// All that it said so far.
    pub(crate) fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        let process = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
    }

    /// How it ended, if it has.
    pub(crate) fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Returns when it has ended and all that it said is here.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let ended = until("the process to end", || self.child.try_wait().unwrap());
        self.readers.drain(..).for_each(|reader| reader.join().unwrap());
        ended
    }

    /// Ends it as a machine does that loses its power.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.kill().and_then(|()| self.child.wait()));
    }
}

impl Serve {
    /// Starts it, and returns when it listens.
    pub(crate) fn start(folder: &Folder) -> Self {
        Self::start_with(folder, &[])
    }

    /// The same with these variables.
    pub(crate) fn start_with(folder: &Folder, variables: &[(&str, &str)]) -> Self {
        let mut command = folder.command(&["serve", "--listen", "127.0.0.1:0"]);
        command.envs(variables.iter().copied());
        Self::start_by(command)
    }

    /// The same with a command of the caller's.
    pub(crate) fn start_by(serve: Command) -> Self {
        let mut process = Process::start(serve);
        let address = process.says("listening on http://");
        Self { process, address }
    }

    /// Somebody with a new token; `more` are the options of `token create`.
    pub(crate) fn client(&self, folder: &Folder, subject: &str, more: &[&str]) -> Client {
        let mut arguments = vec!["token", "create", "--subject", subject];
        arguments.extend(more);
        let made = folder.run(&arguments).expect(0);
        Client { address: self.address.clone(), token: Some(made.out.trim().to_owned()) }
    }

    /// Somebody without a token.
    pub(crate) fn stranger(&self) -> Client {
        Client { address: self.address.clone(), token: None }
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// All that it said so far.
    pub(crate) fn said(&self) -> String {
        self.process.said()
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        self.process.terminate();
    }

    /// Returns when it has ended.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        self.process.ended()
    }

    /// Ends it as a machine does that loses its power.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }
}

impl Client {
    /// Somebody who speaks to the server at this address.
    pub(crate) fn at(address: &str, token: &str) -> Self {
        Self { address: address.to_owned(), token: Some(token.to_owned()) }
    }

    /// Somebody without a token, who speaks to this address.
    pub(crate) fn of(address: &str) -> Self {
        Self { address: address.to_owned(), token: None }
    }

    /// The same with another token.
    pub(crate) fn with_token(&self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self.clone() }
    }

    pub(crate) fn token(&self) -> &str {
        self.token.as_deref().unwrap()
    }

    /// One request as it stands; `headers` come after those that every request has.
    pub(crate) fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&str>,
    ) -> Answer {
        Answer::read(&self.said(method, path, headers, body).unwrap())
    }

    /// The same where the server may be killed meanwhile: then nothing, or less than a whole answer, comes back.
    pub(crate) fn try_ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&str>,
    ) -> Option<Answer> {
        let said = self.said(method, path, headers, body).ok()?;
        let (head, body) = said.split_once("\r\n\r\n")?;
        let length = head
            .lines()
            .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
        (length == Some(body.len())).then(|| Answer::read(&said))
    }

    fn said(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&str>,
    ) -> io::Result<String> {
        let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        let given = |name: &str| headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
        if !given("Host") {
            head.push_str(&format!("Host: {}\r\n", self.address));
        }
        if let Some(token) = &self.token {
            head.push_str(&format!("Authorization: Bearer {token}\r\n"));
        }
        if let Some(body) = body {
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
            if !given("Content-Type") {
                head.push_str("Content-Type: application/json\r\n");
            }
        }
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        let mut stream = TcpStream::connect(&self.address)?;
        stream.write_all(format!("{head}\r\n{}", body.unwrap_or_default()).as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], None)
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask("POST", path, &[], Some(&body.to_string()))
    }

    pub(crate) fn patch(&self, path: &str, body: &Value) -> Answer {
        self.ask("PATCH", path, &[], Some(&body.to_string()))
    }

    /// Starts a run and waits for its first stop.
    pub(crate) fn start(&self, task: &str) -> Value {
        let body = json!({ "input": task }).to_string();
        let started = self.ask("POST", "/v1/runs", &[("Prefer", "wait=30")], Some(&body));
        started.expect(201)
    }

    /// A run at its next stop.
    pub(crate) fn run(&self, id: &str) -> Value {
        self.ask("GET", &format!("/v1/runs/{id}"), &[("Prefer", "wait=30")], None).expect(200)
    }

    pub(crate) fn kinds(&self, run: &str) -> Vec<String> {
        let page = self.get(&format!("/v1/runs/{run}/events?limit=200")).expect(200);
        page["items"].as_array().unwrap().iter().map(|event| text(&event["kind"]).to_owned()).collect()
    }

    /// Decides a question, with its digest.
    pub(crate) fn decide(&self, pending: &Value, mut decision: Value) -> Answer {
        if decision.get("digest").is_none() {
            decision["digest"] = pending["digest"].clone();
        }
        self.post(&format!("/v1/pending/{}/decision", text(&pending["id"])), &decision)
    }

    /// Approves a question and waits for the run's next stop.
    pub(crate) fn approve(&self, pending: &Value) -> Value {
        let body = json!({ "digest": pending["digest"], "verdict": "approve" }).to_string();
        let path = format!("/v1/pending/{}/decision", text(&pending["id"]));
        self.ask("POST", &path, &[("Prefer", "wait=30")], Some(&body)).expect(200)
    }
}

impl Answer {
    fn read(answer: &str) -> Self {
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers: BTreeMap<String, String> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let chunked = headers.get("transfer-encoding").is_some_and(|value| value == "chunked");
        let body = if chunked { unchunked(body) } else { body.to_owned() };
        Self { status, headers, body }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The body, where the status is this.
    pub(crate) fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        self.json()
    }

    /// Whether it is this refusal, as a problem should be.
    pub(crate) fn refused(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.headers.get("content-type").map(String::as_str), Some("application/problem+json"));
        let problem = self.json();
        assert_eq!((&problem["code"], &problem["status"]), (&json!(code), &json!(status)), "{problem}");
        for member in ["type", "title", "detail"] {
            assert!(!text(&problem[member]).is_empty(), "{problem}");
        }
        problem
    }
}

fn unchunked(body: &str) -> String {
    let (mut rest, mut whole) = (body, String::new());
    while let Some((length, more)) = rest.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        whole.push_str(&more[..length]);
        rest = &more[length + 2..];
    }
    whole
}
