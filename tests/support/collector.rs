//! Somebody who collects traces: a server that reads what OTLP over HTTP is, and keeps it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;

use super::until;

/// A request as it arrived.
#[derive(Clone)]
pub(crate) struct Batch {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

/// A server on this machine. It ends with the process.
pub(crate) struct Collector {
    pub(crate) url: String,
    batches: Arc<Mutex<Vec<Batch>>>,
}

impl Batch {
    pub(crate) fn spans(&self) -> Vec<Span> {
        let read = ExportTraceServiceRequest::decode(&self.body[..]).unwrap();
        let scopes = read.resource_spans.into_iter().flat_map(|all| {
            let resource = all.resource.unwrap();
            assert!(resource.attributes.iter().any(|said| said.key == "service.name"), "{resource:?}");
            all.scope_spans
        });
        scopes.flat_map(|scope| scope.spans).collect()
    }
}

impl Collector {
    /// Takes everything.
    pub(crate) fn start() -> Self {
        Self::answering(|| "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    }

    /// Is not there.
    pub(crate) fn gone() -> Self {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        Self { url: format!("http://{address}"), batches: Arc::default() }
    }

    /// Hears everything and never answers.
    pub(crate) fn hanging() -> Self {
        Self::answering(|| "")
    }

    /// Has such an answer for each request.
    pub(crate) fn answering(answer: fn() -> &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let batches: Arc<Mutex<Vec<Batch>>> = Arc::default();
        let kept = Arc::clone(&batches);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let kept = Arc::clone(&kept);
                std::thread::spawn(move || hear(stream.unwrap(), &kept, answer()));
            }
        });
        Self { url, batches }
    }

    /// What came so far.
    pub(crate) fn batches(&self) -> Vec<Batch> {
        self.batches.lock().unwrap().clone()
    }

    /// All spans that came so far.
    pub(crate) fn spans(&self) -> Vec<Span> {
        self.batches().iter().flat_map(Batch::spans).collect()
    }

    /// The spans of the drive that ended like this, the agent's first, once they have come.
    pub(crate) fn drive(&self, halt: &str) -> Vec<Span> {
        until(halt, || {
            let all = self.spans();
            let agent =
                all.iter().find(|span| said(span, "countersign.drive.halt") == Some(halt.to_owned()))?;
            let of_it = |span: &&Span| span.trace_id == agent.trace_id && span.span_id != agent.span_id;
            Some([agent].into_iter().chain(all.iter().filter(of_it)).cloned().collect())
        })
    }
}

/// What a span says under this name, as a text.
pub(crate) fn said(span: &Span, name: &str) -> Option<String> {
    shown(&span.attributes.iter().find(|said| said.key == name)?.value.as_ref()?.value)
}

pub(crate) fn shown(value: &Option<Value>) -> Option<String> {
    Some(match value.as_ref()? {
        Value::StringValue(text) => text.clone(),
        Value::IntValue(number) => number.to_string(),
        Value::ArrayValue(items) => {
            items.values.iter().filter_map(|item| shown(&item.value)).collect::<Vec<_>>().join(",")
        }
        other @ (Value::BoolValue(_)
        | Value::DoubleValue(_)
        | Value::KvlistValue(_)
        | Value::BytesValue(_)
        | Value::StringValueStrindex(_)) => panic!("{other:?}"),
    })
}

fn hear(mut stream: TcpStream, kept: &Mutex<Vec<Batch>>, answer: &str) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        if line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    if reader.read_exact(&mut body).is_err() {
        return;
    }
    kept.lock().unwrap().push(Batch { head, body });
    if answer.is_empty() {
        drop(reader.read(&mut [0]));
    } else {
        drop(stream.write_all(answer.as_bytes()));
    }
}
