//! One `ask` is one exchange: what the statuses, limits and deadlines of HTTP come to.

#![cfg(test)]

mod http_tool;
mod scripted_server;

use std::error::Error;
use std::time::Duration;

use countersign::{Answer, Conversation, InputMessage, InputRole, Message, Model, ModelError, ProviderName};
use countersign_clients::{ANSWER_BYTES_MAX, OpenAi, OpenAiConfig, Secret, SetupError};
use scripted_server::{Play, ScriptedServer, response};

const KEY: &str = "key-SECRET-2";
/// Longer than any test takes; only tests of the deadline itself use a shorter one.
const LONG: Duration = Duration::from_secs(60);

fn client(base_url: &str, timeout: Duration) -> OpenAi {
    let provider = ProviderName::parse("stub").unwrap();
    let api_key = Some(Secret::new(KEY.to_owned()));
    OpenAi::new(OpenAiConfig { provider, base_url: base_url.to_owned(), api_key, timeout }).unwrap()
}

fn conversation(model: &OpenAi) -> Box<dyn Conversation> {
    let mut conversation = model.converse("scripted");
    conversation.add(&Message::Input(&InputMessage { role: InputRole::User, text: "Hello".into() }));
    conversation
}

async fn ask(plays: Vec<Play>, timeout: Duration) -> Result<Answer, ModelError> {
    let server = ScriptedServer::start(plays).await;
    let answer = conversation(&client(&server.base_url(), timeout)).ask(&[]).await;
    assert_eq!(server.requests().len(), 1, "one request, no retries");
    answer
}

fn text(content: &str) -> String {
    format!(r#"{{"choices":[{{"message":{{"content":"{content}"}},"finish_reason":"stop"}}]}}"#)
}

fn json(status: &str, headers: &str, body: &str) -> Play {
    Play::Send(response(status, &format!("content-type: application/json\r\n{headers}"), body))
}

/// Everything that an error shows anywhere.
fn whole(error: &ModelError) -> String {
    let mut text = format!("{error} {error:?}");
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(&format!(" {error} {error:?}"));
        source = error.source();
    }
    text
}

#[tokio::test]
async fn a_request_is_one_post_with_the_key_as_a_bearer_token() {
    let server = ScriptedServer::start(vec![json("200 OK", "", &text("Hi"))]).await;
    let answer = conversation(&client(&server.base_url(), LONG)).ask(&[]).await.unwrap();
    assert_eq!(answer.text.as_deref(), Some("Hi"));
    let request = &server.requests()[0];
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let head = head.to_ascii_lowercase();
    assert!(head.starts_with("post /v1/chat/completions http/1.1\r\n"), "{head}");
    assert!(head.contains(concat!("user-agent: countersign/", env!("CARGO_PKG_VERSION"))), "{head}");
    assert!(head.contains("authorization: bearer key-secret-2"), "{head}");
    assert!(head.contains("content-type: application/json"), "{head}");
    assert_eq!(body, r#"{"model":"scripted","messages":[{"role":"user","content":"Hello"}]}"#);
}

#[tokio::test]
async fn case_c06_the_same_request_is_sent_again_byte_for_byte() {
    let busy = || json("429 Too Many Requests", "retry-after: 1\r\n", "{}");
    let server = ScriptedServer::start(vec![busy(), busy(), json("200 OK", "", &text("gone"))]).await;
    let mut conversation = conversation(&client(&server.base_url(), LONG));
    for _ in 0..2 {
        let error = conversation.ask(&[]).await.unwrap_err();
        assert!(matches!(error, ModelError::Busy { .. }) && error.is_worth_retrying());
        assert_eq!(error.retry_after(), Some(Duration::from_secs(1)));
    }
    assert_eq!(conversation.ask(&[]).await.unwrap().text.as_deref(), Some("gone"));
    let requests = server.requests();
    assert_eq!((&requests[0], &requests[0]), (&requests[1], &requests[2]));
}

#[tokio::test]
async fn a_base_url_may_end_in_a_slash_and_have_a_query() {
    for (suffix, line) in
        [("/", "POST /v1/chat/completions HTTP"), ("?api=1#x", "POST /v1/chat/completions?api=1 HTTP")]
    {
        let server = ScriptedServer::start(vec![json("200 OK", "", &text("Hi"))]).await;
        let base_url = format!("{}{suffix}", server.base_url());
        conversation(&client(&base_url, LONG)).ask(&[]).await.unwrap();
        assert!(server.requests()[0].starts_with(line), "{}", server.requests()[0]);
    }
}

#[tokio::test]
async fn rule_l7_statuses_are_told_apart() {
    for (status, worth_retrying) in [
        ("400 Bad Request", false),
        ("401 Unauthorized", false),
        ("403 Forbidden", false),
        ("404 Not Found", false),
        ("422 Unprocessable Entity", false),
        ("500 Internal Server Error", true),
        ("503 Service Unavailable", true),
        ("529 Overloaded", true),
        ("201 Created", false),
        ("204 No Content", false),
        ("304 Not Modified", false),
    ] {
        let error = ask(vec![json(status, "", "")], LONG).await.unwrap_err();
        assert_eq!(error.is_worth_retrying(), worth_retrying, "{status}");
        let expected: u16 = status[..3].parse().unwrap();
        match (&error, expected) {
            (ModelError::Unauthorized { status }, 401 | 403) => assert_eq!(*status, expected),
            (ModelError::ServerError { status, retry_after: None }, 500..) => assert_eq!(*status, expected),
            (ModelError::Refused { status }, _) => assert_eq!(*status, expected),
            (other, _) => panic!("{status}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn rule_l7_retry_after_is_honoured_and_not_required() {
    let headers = "date: Sun, 06 Nov 1994 08:49:37 GMT\r\nretry-after: Sun, 06 Nov 1994 08:49:40 GMT\r\n";
    let error = ask(vec![json("503 Service Unavailable", headers, "")], LONG).await.unwrap_err();
    assert_eq!(error.retry_after(), Some(Duration::from_secs(3)));
    let error =
        ask(vec![json("429 Too Many Requests", "retry-after: 9999\r\n", "")], LONG).await.unwrap_err();
    assert_eq!(error.retry_after(), Some(Duration::from_secs(60)));
    let error = ask(vec![json("429 Too Many Requests", "", "")], LONG).await.unwrap_err();
    assert!(matches!(error, ModelError::Busy { retry_after: None }));
}

#[tokio::test]
async fn case_c55_a_redirect_is_not_followed_and_the_key_stays_here() {
    let elsewhere = ScriptedServer::start(vec![json("200 OK", "", &text("stolen"))]).await;
    for status in ["301 Moved Permanently", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"] {
        let location = format!("location: {}/chat/completions\r\n", elsewhere.base_url());
        let error = ask(vec![json(status, &location, "")], LONG).await.unwrap_err();
        assert!(matches!(error, ModelError::Refused { .. }), "{error:?}");
    }
    assert!(elsewhere.requests().is_empty());
}

#[tokio::test]
async fn case_c55_the_key_is_in_no_error_and_no_debug() {
    let echo = format!(r#"{{"error":{{"message":"wrong key {KEY}"}}}}"#);
    for status in ["401 Unauthorized", "400 Bad Request", "500 Internal Server Error", "200 OK"] {
        let error = ask(vec![json(status, "", &echo)], LONG).await.unwrap_err();
        assert!(!whole(&error).contains("SECRET"), "{status}: {}", whole(&error));
    }
    let model = client("http://127.0.0.1:9/v1", LONG);
    assert!(!format!("{model:?}").contains("SECRET"));
    let provider = ProviderName::parse("stub").unwrap();
    for (base_url, key) in [
        ("http://user:pw-SECRET@127.0.0.1:9/v1", KEY),
        ("http://127.0.0.1:9/v1", "key-SECRET\n2"),
        ("ftp://host-SECRET/v1", KEY),
        ("host-SECRET", KEY),
    ] {
        let config = OpenAiConfig {
            provider: provider.clone(),
            base_url: base_url.to_owned(),
            api_key: Some(Secret::new(key.to_owned())),
            timeout: LONG,
        };
        let error = OpenAi::new(config).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("SECRET"), "{error:?}");
        assert!(!matches!(error, SetupError::Http(_)), "{error:?}");
    }
}

#[tokio::test]
async fn a_page_for_people_is_unreadable() {
    for (content_type, body) in [
        ("text/html; charset=utf-8", text("looks right")),
        ("Text/HTML", text("looks right")),
        ("application/json", "<!doctype html><p>Sign in</p>".to_owned()),
        ("application/json", text("cut")[..20].to_owned()),
        ("application/json", String::new()),
    ] {
        let play = Play::Send(response("200 OK", &format!("content-type: {content_type}\r\n"), &body));
        let error = ask(vec![play], LONG).await.unwrap_err();
        assert!(matches!(error, ModelError::Unreadable { .. }), "{content_type} {body}: {error:?}");
    }
}

#[tokio::test]
async fn an_answer_needs_no_content_type() {
    let answer = ask(vec![Play::Send(response("200 OK", "", &text("Hi")))], LONG).await.unwrap();
    assert_eq!(answer.text.as_deref(), Some("Hi"));
}

#[tokio::test]
async fn an_answer_without_end_is_cut_off_at_the_limit() {
    let error = ask(vec![Play::Endless], LONG).await.unwrap_err();
    let reason = format!("the answer is larger than {ANSWER_BYTES_MAX} bytes");
    assert!(matches!(&error, ModelError::Unreadable { reason: said } if *said == reason), "{error:?}");
}

#[tokio::test]
async fn a_broken_answer_is_no_answer() {
    let whole_answer = response("200 OK", "content-type: application/json\r\n", &text("Hi"));
    let broken = [
        Vec::new(),
        b"HTTP/1.1 20".to_vec(),
        b"SSH-2.0-OpenSSH_9.9\r\n".to_vec(),
        whole_answer[..whole_answer.len() - 5].to_vec(),
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffff\r\n{\"choices\"".to_vec(),
    ];
    for bytes in broken {
        let error = ask(vec![Play::Send(bytes)], LONG).await.unwrap_err();
        assert!(matches!(error, ModelError::Unreachable(_)) && error.is_worth_retrying(), "{error:?}");
        assert!(error.source().is_some());
    }
}

#[tokio::test]
async fn the_deadline_covers_the_whole_exchange() {
    let start_of_body = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{".to_vec();
    for bytes in [Vec::new(), start_of_body] {
        let error = ask(vec![Play::SendAndHang(bytes)], Duration::from_millis(300)).await.unwrap_err();
        assert!(matches!(error, ModelError::Unreachable(_)), "{error:?}");
    }
}

#[tokio::test]
async fn nobody_listening_is_no_answer() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
    drop(listener);
    let error = conversation(&client(&base_url, LONG)).ask(&[]).await.unwrap_err();
    assert!(matches!(error, ModelError::Unreachable(_)), "{error:?}");
}

#[tokio::test]
async fn tls_with_a_server_that_speaks_none_is_no_answer() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let model = client(&format!("https://{}/v1", listener.local_addr().unwrap()), LONG);
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
    });
    let error = conversation(&model).ask(&[]).await.unwrap_err();
    assert!(matches!(error, ModelError::Unreachable(_)), "{error:?}");
}
