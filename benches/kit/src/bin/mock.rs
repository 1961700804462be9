//! A model that does what its name says (`bench_kit::Script`): Chat Completions on the loopback address.
//!
//! `mock [PORT]` prints the address it listens on; port 0 takes a free one. `GET /stats` says how many requests
//! there were and when the last one arrived, by the machine's steady clock.

use std::borrow::Cow;
use std::cell::Cell;
use std::convert::Infallible;
use std::io::Write as _;
use std::rc::Rc;

use anyhow::Result;
use bench_kit::{MODEL_PORT, Script, Turn, monotonic_ns};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::{Value, json};

/// What it has seen.
#[derive(Default)]
struct Seen {
    requests: Cell<u64>,
    last_ns: Cell<i64>,
}

#[derive(Deserialize)]
struct Asked<'a> {
    #[serde(borrow)]
    model: Cow<'a, str>,
    #[serde(borrow)]
    messages: Vec<Said<'a>>,
}

#[derive(Deserialize)]
struct Said<'a> {
    #[serde(borrow)]
    role: Cow<'a, str>,
}

fn main() -> Result<()> {
    let port = std::env::args().nth(1).map_or(Ok(MODEL_PORT), |port| port.parse())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, serve(port))
}

async fn serve(port: u16) -> Result<()> {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    println!("http://{}", listener.local_addr()?);
    std::io::stdout().flush()?;
    let seen = Rc::new(Seen::default());
    loop {
        let (socket, _) = listener.accept().await?;
        socket.set_nodelay(true)?;
        let seen = Rc::clone(&seen);
        tokio::task::spawn_local(async move {
            let answering = service_fn(|request| answer(request, &seen));
            // A peer that goes away is no business of ours.
            let served = hyper::server::conn::http1::Builder::new();
            drop(served.serve_connection(TokioIo::new(socket), answering).await);
        });
    }
}

async fn answer(request: Request<Incoming>, seen: &Seen) -> Result<Response<Full<Bytes>>, Infallible> {
    let (status, body) = if request.method() == Method::GET {
        (StatusCode::OK, json!({ "requests": seen.requests.get(), "last_ns": seen.last_ns.get() }))
    } else {
        seen.last_ns.set(monotonic_ns());
        seen.requests.set(seen.requests.get() + 1);
        match request.into_body().collect().await.ok().and_then(|body| reply(&body.to_bytes())) {
            Some((script, body)) => {
                if !script.latency.is_zero() {
                    tokio::time::sleep(script.latency).await;
                }
                (StatusCode::OK, body)
            }
            None => {
                (StatusCode::BAD_REQUEST, json!({ "error": { "message": "not a script, or no request" } }))
            }
        }
    };
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert("content-type", hyper::header::HeaderValue::from_static("application/json"));
    Ok(response)
}

fn reply(body: &[u8]) -> Option<(Script, Value)> {
    let asked: Asked<'_> = serde_json::from_slice(body).ok()?;
    let script: Script = asked.model.parse().ok()?;
    let results = asked.messages.iter().filter(|message| message.role == "tool").count();
    let (message, finish) = match script.after(u32::try_from(results).ok()?) {
        Turn::Lookup(id) => (call(results, "lookup", &json!({ "id": id })), "tool_calls"),
        Turn::Write(id) => {
            (call(results, "write_record", &json!({ "id": id, "text": "hello" })), "tool_calls")
        }
        Turn::Text => {
            (json!({ "role": "assistant", "content": "All is looked up, the work is done." }), "stop")
        }
    };
    let (read, written) = (body.len() / 4, 20);
    let whole = json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1_700_000_000, "model": asked.model,
        "choices": [{ "index": 0, "message": message, "logprobs": null, "finish_reason": finish }],
        "usage": { "prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written },
    });
    Some((script, whole))
}

fn call(number: usize, name: &str, arguments: &Value) -> Value {
    let function = json!({ "name": name, "arguments": arguments.to_string() });
    let call = json!({ "id": format!("call_{number}"), "type": "function", "function": function });
    json!({ "role": "assistant", "content": null, "tool_calls": [call] })
}
