//! What a tool that is served over HTTP is sent, and what its answers come to.

mod bodies;

use std::time::Duration;

use countersign::testing::{call_context, preview_context};
use countersign::{
    Arguments, CallContext, DETAIL_BYTES_MAX, DataClass, Effect, OperatorWord, Origin, Pause, Subject, Tool,
    ToolError, ToolFailure, ToolOutput, ToolPreview, ToolSpec,
};
use countersign_clients::{HttpTool, HttpToolConfig, ToolSetupError};
use serde_json::{Value, json};

use super::scripted_server::{Play, ScriptedServer, response};
use super::{LONG, json};

/// What must not be found in anything that a tool's failure says.
const SECRET: &str = "hunter2-XYZ";

fn spec(effect: Effect) -> ToolSpec {
    ToolSpec {
        name: "page_drop".parse().unwrap(),
        description: "Delete a page".into(),
        group: "content".parse().unwrap(),
        origin: Origin::Http,
        effect,
        data_class: DataClass::EditorContent,
        enabled_by_default: true,
        requires_admin: false,
        pause: Pause::Runs,
        operator: OperatorWord::Silent,
        parameters: json!({ "type": "object" }),
    }
}

fn tool(base_url: &str, timeout: Duration) -> HttpTool {
    HttpTool::new(HttpToolConfig {
        spec: spec(Effect::Write),
        url: format!("{base_url}/page_drop"),
        preview: Some(format!("{base_url}/page_drop/preview")),
        timeout,
    })
    .unwrap()
}

fn arguments() -> Arguments {
    Arguments::read(Some(&format!(r#"{{"to":"a@x.test","id":7,"text":"{SECRET}"}}"#))).unwrap()
}

fn context(precondition: Option<Value>) -> CallContext {
    call_context(&Subject::parse("alice").unwrap(), precondition)
}

async fn answer(play: Play, timeout: Duration) -> Result<ToolOutput, ToolError> {
    let server = ScriptedServer::start(vec![play]).await;
    let answer = tool(&server.base_url(), timeout).call(&arguments(), &context(None)).await;
    assert_eq!(server.requests().len(), 1, "one request, no retries");
    // Neither the model nor a log is told what a failing server says, nor what it was asked.
    if let Err(error) = &answer {
        assert!(!format!("{error} {error:?}").contains(SECRET), "{error:?}");
    }
    answer
}

/// What a model is told of an answer, and what the record keeps of it.
async fn refused(play: Play, timeout: Duration) -> (String, String) {
    let error = answer(play, timeout).await.unwrap_err();
    let ToolFailure::Answered(sentence) = error.failure() else { panic!("{error:?}") };
    (sentence.kept().to_owned(), detail(&error))
}

async fn answered(play: Play) -> String {
    refused(play, LONG).await.0
}

fn detail(error: &ToolError) -> String {
    error.detail().map(|detail| detail.as_str().to_owned()).unwrap_or_default()
}

fn ok(body: &str) -> Play {
    json("200 OK", "", body)
}

fn head_and_body(request: &str) -> (String, Value) {
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    (head.to_ascii_lowercase(), serde_json::from_str(body).unwrap())
}

#[tokio::test]
async fn a_call_is_one_post_of_exactly_the_six_members() {
    let server = ScriptedServer::start(vec![ok(r#"{"content":"gone"}"#)]).await;
    let cx = context(Some(json!({ "version": 3 })));
    let output = tool(&server.base_url(), LONG).call(&arguments(), &cx).await.unwrap();
    assert_eq!(output, "gone".into());
    let request = &server.requests()[0];
    let (head, _) = head_and_body(request);
    assert!(head.starts_with("post /v1/page_drop http/1.1\r\n"), "{head}");
    assert!(head.contains("\r\ncontent-type: application/json\r\n"), "{head}");
    assert!(head.contains("\r\nidempotency-key: test-key\r\n"), "{head}");
    let expected = format!(
        r#"{{"run":"{}","call":"{}","tool":"page_drop","arguments":{},"actor":"alice","precondition":{{"version":3}}}}"#,
        cx.run,
        cx.call,
        arguments().text(),
    );
    assert_eq!(request.split_once("\r\n\r\n").unwrap().1, expected);
}

#[tokio::test]
async fn without_a_precondition_it_is_null() {
    let server = ScriptedServer::start(vec![ok(r#"{"content":""}"#)]).await;
    tool(&server.base_url(), LONG).call(&Arguments::default(), &context(None)).await.unwrap();
    let (_, body) = head_and_body(&server.requests()[0]);
    assert_eq!((&body["arguments"], &body["precondition"]), (&json!({}), &Value::Null));
    assert_eq!(body.as_object().unwrap().len(), 6);
}

#[tokio::test]
async fn rule_a5_numbers_are_sent_as_they_were_shown() {
    let text = r#"{"big":18446744073709551615,"exponent":1e+21,"small":5e-7}"#;
    let server = ScriptedServer::start(vec![ok(r#"{"content":""}"#)]).await;
    let arguments = Arguments::read(Some(text)).unwrap();
    tool(&server.base_url(), LONG).call(&arguments, &context(None)).await.unwrap();
    assert!(server.requests()[0].contains(text), "{}", server.requests()[0]);
}

#[tokio::test]
async fn rule_r4_every_attempt_of_a_call_carries_its_key() {
    let plays = (0..3).map(|_| ok(r#"{"content":"gone"}"#)).collect();
    let server = ScriptedServer::start(plays).await;
    let tool = tool(&server.base_url(), LONG);
    let mut cx = context(None);
    tool.call(&arguments(), &cx).await.unwrap();
    tool.call(&arguments(), &cx).await.unwrap();
    cx.idempotency_key = "another-call".into();
    tool.call(&arguments(), &cx).await.unwrap();
    let key = |request: &String| {
        let (head, _) = head_and_body(request);
        head.lines().find_map(|line| line.strip_prefix("idempotency-key: ").map(str::to_owned)).unwrap()
    };
    let keys: Vec<String> = server.requests().iter().map(key).collect();
    assert_eq!(keys, ["test-key", "test-key", "another-call"]);
}

#[tokio::test]
async fn rule_r3_every_call_has_a_connection_of_its_own() {
    // The server keeps its connections open, and would answer nothing more on them.
    let kept = || {
        let body = r#"{"content":"gone"}"#;
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        Play::SendAndHang((head + body).into_bytes())
    };
    let server = ScriptedServer::start(vec![kept(), kept()]).await;
    let tool = tool(&server.base_url(), LONG);
    for _ in 0..2 {
        assert_eq!(tool.call(&arguments(), &context(None)).await.unwrap(), "gone".into());
    }
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn rule_m4_an_answer_is_an_answer() {
    for status in [
        "201 Created",
        "204 No Content",
        "304 Not Modified",
        "400 Bad Request",
        "401 Unauthorized",
        "409 Conflict",
        "429 Too Many Requests",
        "500 Internal Server Error",
        "501 Not Implemented",
        "503 Service Unavailable",
        "505 HTTP Version Not Supported",
    ] {
        let body = format!(r#"{{"content":"{SECRET}"}}"#);
        let (sentence, detail) = refused(json(status, "", &body), LONG).await;
        let number = &status[..3];
        assert_eq!(sentence, format!("The tool page_drop failed: it answered with status {number}."));
        // These two have no body, whatever is sent.
        let kept = if matches!(number, "204" | "304") { String::new() } else { format!("\n{body}") };
        assert_eq!(detail, format!("status {number}{kept}"), "rule S5: for the record alone");
    }
}

#[tokio::test]
async fn rule_m4_a_failing_answer_whose_body_never_ends_is_an_answer_all_the_same() {
    let head = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 100\r\n\r\nno such";
    let (sentence, detail) = refused(Play::SendAndHang(head.into()), Duration::from_millis(500)).await;
    assert_eq!(sentence, "The tool page_drop failed: it answered with status 500.");
    assert_eq!(detail, "status 500\nno such");
}

#[tokio::test]
async fn rule_s5_of_a_long_failing_answer_the_beginning_is_kept() {
    let body = format!("{SECRET} {}", "x".repeat(50_000_000));
    let (_, detail) = refused(json("500 Internal Server Error", "", &body), LONG).await;
    assert!(detail.starts_with(&format!("status 500\n{SECRET} xxx")), "{}", &detail[..40]);
    assert!(detail.ends_with("x\n[the rest is not kept]") && detail.len() <= DETAIL_BYTES_MAX);
}

#[tokio::test]
async fn case_c55_a_redirect_is_not_followed() {
    let elsewhere = ScriptedServer::start(vec![ok(r#"{"content":"stolen"}"#)]).await;
    for status in [
        "301 Moved Permanently",
        "302 Found",
        "303 See Other",
        "307 Temporary Redirect",
        "308 Permanent Redirect",
    ] {
        let location = format!("location: {}/page_drop\r\n", elsewhere.base_url());
        let sentence = answered(json(status, &location, "")).await;
        assert!(sentence.ends_with(&format!("status {}.", &status[..3])), "{sentence}");
    }
    assert!(elsewhere.requests().is_empty());
}

#[tokio::test]
async fn rule_r3_502_and_504_are_no_answer() {
    for status in ["502 Bad Gateway", "504 Gateway Timeout"] {
        let error = answer(json(status, "", r#"{"content":"gone"}"#), LONG).await.unwrap_err();
        assert!(matches!(error.failure(), ToolFailure::NoAnswer), "{status}: {error:?}");
        assert_eq!(detail(&error), format!("status {}\n{{\"content\":\"gone\"}}", &status[..3]));
    }
}

#[tokio::test]
async fn rule_r3_a_broken_answer_is_no_answer() {
    let whole = response("200 OK", "", r#"{"content":"gone"}"#);
    for bytes in [
        Vec::new(),
        b"HTTP/1.1 20".to_vec(),
        b"SSH-2.0-OpenSSH_9.9\r\n".to_vec(),
        whole[..whole.len() - 1].to_vec(),
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n12\r\n{\"content\":\"gone\"}\r\n".to_vec(),
    ] {
        let error = answer(Play::Send(bytes), LONG).await.unwrap_err();
        assert!(matches!(error.failure(), ToolFailure::NoAnswer), "{error:?}");
    }
}

#[tokio::test]
async fn rule_r3_an_answer_that_only_the_connection_ends_must_be_whole() {
    // The end of the connection is the end of such a body, also where the server died while it wrote.
    let head = "HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n";
    let whole = r#"{"content":"gone é","more":[true]}"#;
    let ended = |body: &[u8]| Play::Send([head.as_bytes(), body].concat());
    assert_eq!(answer(ended(whole.as_bytes()), LONG).await.unwrap(), "gone é".into());
    for end in 0..whole.len() {
        let error = answer(ended(&whole.as_bytes()[..end]), LONG).await.unwrap_err();
        assert!(matches!(error.failure(), ToolFailure::NoAnswer), "{end}: {error:?}");
        assert!(detail(&error).starts_with("status 200; the connection ended within the JSON"), "{error:?}");
    }
    // What is wrong however it would go on is an answer.
    for body in ["<html>", r#"{"content":7"#, r#"{"content":"a"}}"#] {
        let sentence = answered(ended(body.as_bytes())).await;
        assert!(sentence.ends_with("its answer is not the JSON that a tool answers with."), "{sentence}");
    }
}

#[tokio::test]
async fn rule_r3_no_answer_in_time_is_no_answer() {
    let half = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{".to_vec();
    for bytes in [Vec::new(), half] {
        let error = answer(Play::SendAndHang(bytes), Duration::from_millis(300)).await.unwrap_err();
        assert!(matches!(error.failure(), ToolFailure::NoAnswer), "{error:?}");
    }
}

async fn not_sent(base_url: &str, timeout: Duration) {
    let error = tool(base_url, timeout).call(&arguments(), &context(None)).await.unwrap_err();
    let expected = "The tool page_drop failed: its server could not be reached, so nothing was sent.";
    assert_eq!(error.failure(), &ToolFailure::NotSent(expected.into()), "{base_url}");
    assert!(detail(&error).starts_with("the exchange broke off: "), "{base_url}: {}", detail(&error));
}

#[tokio::test]
async fn rule_r3_nobody_listening_means_nothing_was_sent() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
    drop(listener);
    not_sent(&base_url, LONG).await;
}

#[tokio::test]
async fn rule_r3_a_name_that_nobody_has_means_nothing_was_sent() {
    // No label is that long, so nobody needs to be asked.
    not_sent(&format!("http://{}.invalid/v1", "a".repeat(64)), LONG).await;
}

#[tokio::test]
async fn rule_r3_tls_that_fails_means_nothing_was_sent() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("https://{}/v1", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut stream, b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
    });
    not_sent(&base_url, LONG).await;
}

#[tokio::test]
async fn rule_r3_a_deadline_that_passes_while_connecting_means_nothing_was_sent() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("https://{}/v1", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let silent = listener.accept().await.unwrap();
        std::future::pending::<()>().await;
        drop(silent);
    });
    not_sent(&base_url, Duration::from_millis(400)).await;
}

async fn preview(play: Play) -> (Result<ToolPreview, ToolError>, Vec<String>) {
    let server = ScriptedServer::start(vec![play]).await;
    let cx = preview_context(&Subject::parse("alice").unwrap());
    let made = tool(&server.base_url(), LONG).preview(&arguments(), &cx).await.unwrap();
    (made, server.requests())
}

#[tokio::test]
async fn rule_a7_a_preview_is_asked_for_with_the_same_body_and_no_key() {
    let (made, requests) = preview(ok(r#"{"lines":["- one","+ two"],"precondition":{"v":[1]},"x":0}"#)).await;
    let lines = vec!["- one".to_owned(), "+ two".to_owned()];
    assert_eq!(made.unwrap(), ToolPreview { lines, precondition: Some(json!({ "v": [1] })) });
    let (head, body) = head_and_body(&requests[0]);
    assert!(head.starts_with("post /v1/page_drop/preview ") && !head.contains("idempotency-key"), "{head}");
    assert_eq!((&body["actor"], &body["precondition"]), (&json!("alice"), &Value::Null));
    assert_eq!(body["arguments"], arguments().to_value());
    assert_eq!(body.as_object().unwrap().len(), 6);
    for body in [r#"{"lines":["a"]}"#, r#"{"lines":["a"],"precondition":null}"#] {
        assert_eq!(preview(ok(body)).await.0.unwrap().precondition, None);
    }
}

#[tokio::test]
async fn rule_a7_a_preview_that_fails_says_how() {
    let large = format!(r#"{{"lines":[],"precondition":"{}"}}"#, "x".repeat(70_000));
    for (play, expected) in [
        (json("500 Internal Server Error", "", SECRET), "page_drop answered with status 500."),
        (
            json("307 Temporary Redirect", "location: /elsewhere\r\n", ""),
            "page_drop answered with status 307.",
        ),
        (Play::Send(Vec::new()), "page_drop gave no answer."),
        (ok(r#"{"lines":"hunter2-XYZ"}"#), "page_drop gave an answer that is not the JSON of a preview."),
        (ok(r#"[["a"],null]"#), "page_drop gave an answer that is not the JSON of a preview."),
        (ok(&large), "page_drop gave a precondition that is too large."),
        (
            ok(&format!(r#"{{"lines":[{}""]}}"#, r#""","#.repeat(2_000_000))),
            "page_drop gave an answer that is too large.",
        ),
    ] {
        let error = preview(play).await.0.unwrap_err();
        assert_eq!(error.failure(), &ToolFailure::Answered(expected.into()));
    }
}

#[tokio::test]
async fn a_tool_without_a_preview_has_none() {
    let config = HttpToolConfig {
        spec: spec(Effect::Read),
        url: "http://127.0.0.1:9/x".into(),
        preview: None,
        timeout: LONG,
    };
    let tool = HttpTool::new(config).unwrap();
    assert!(tool.preview(&arguments(), &preview_context(&Subject::parse("alice").unwrap())).await.is_none());
    assert_eq!((tool.spec(), tool.timeout()), (spec(Effect::Read), LONG));
}

#[test]
fn rule_s5_a_wrong_address_is_named_by_its_key_and_not_quoted() {
    for (url, preview, key) in [
        ("host-SECRET", None, "`http`"),
        ("ftp://host-SECRET/x", None, "`http`"),
        ("http://user:pw-SECRET@127.0.0.1:9/x", None, "`http`"),
        ("http://127.0.0.1:9/x", Some("//host-SECRET"), "`preview`"),
        ("http://127.0.0.1:9/x", Some("https://SECRET@127.0.0.1:9/x"), "`preview`"),
    ] {
        let preview = preview.map(str::to_owned);
        let config = HttpToolConfig { spec: spec(Effect::Read), url: url.into(), preview, timeout: LONG };
        let error = HttpTool::new(config).unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(text.contains(key) && !text.contains("SECRET"), "{text}");
        assert!(!matches!(error, ToolSetupError::Http(_)), "{text}");
    }
    let tool = tool("http://127.0.0.1:9/SECRET", LONG);
    assert!(!format!("{tool:?}").contains("SECRET"));
}
