//! What the body of a `200` comes to: content, errors, artifacts, sizes.

use countersign::{ArtifactKind, CONTENT_BYTES_MAX, ToolFailure};
use serde_json::json;

use super::super::LONG;
use super::super::scripted_server::{Play, response};
use super::{answer, answered, ok, refused};

#[tokio::test]
async fn a_body_of_another_form_is_an_error_that_names_the_tool() {
    for body in [
        "",
        "null",
        "[]",
        r#"["positional",null,null]"#,
        r#""text""#,
        "{}",
        r#"{"content":null}"#,
        r#"{"content":7}"#,
        r#"{"content":["hunter2-XYZ"]}"#,
        r#"{"content":"a","content":"b"}"#,
        r#"{"content":"hunter2-XYZ","is_error":"yes"}"#,
        r#"{"content":"a"} trailing"#,
        r#"{"content":"hunter2-XYZ"#,
        r#"{"content":"a","x":01}"#,
        "<html>hunter2-XYZ</html>",
    ] {
        let (sentence, detail) = refused(ok(body), LONG).await;
        let expected = "The tool page_drop failed: its answer is not the JSON that a tool answers with.";
        assert_eq!(sentence, expected, "{body}");
        assert!(detail.starts_with("status 200; ") && detail.ends_with(body), "{body}: {detail}");
    }
}

#[tokio::test]
async fn unknown_members_and_absent_ones_are_tolerated() {
    for body in [
        r#"{"content":"gone"}"#,
        r#" {"took_ms":3,"content":"gone","is_error":false,"artifacts":[],"more":{"content":[[[[]]]]}} "#,
        r#"{"content":"gone","is_error":null,"artifacts":null}"#,
    ] {
        assert_eq!(answer(ok(body), LONG).await.unwrap(), "gone".into(), "{body}");
    }
    // Nothing is asked about a content type.
    let bare = Play::Send(response("200 OK", "content-type: text/plain\r\n", r#"{"content":"gone"}"#));
    assert_eq!(answer(bare, LONG).await.unwrap(), "gone".into());
}

#[tokio::test]
async fn an_error_of_the_tool_is_its_answer() {
    let artifacts = r#"[{"type":"text","label":"l","data":{}}]"#;
    let body = format!(r#"{{"content":"changed meanwhile","is_error":true,"artifacts":{artifacts}}}"#);
    assert_eq!(answered(ok(&body)).await, "changed meanwhile");
}

#[tokio::test]
async fn case_c53_fifty_megabytes_are_cut_with_their_true_size() {
    let text = "é🦀".repeat(50 * 1024 * 1024 / 6);
    for (member, is_error) in [("", false), (r#","is_error":true"#, true)] {
        let body = format!(r#"{{"content":"{text}"{member}}}"#);
        let came_to = answer(ok(&body), LONG).await;
        assert_eq!(came_to.is_err(), is_error);
        let content = match came_to {
            Ok(output) => output.content,
            Err(error) => {
                let ToolFailure::Answered(content) = error.failure() else { panic!("{error:?}") };
                content.clone()
            }
        };
        assert_eq!(content.bytes(), text.len() as u64);
        assert!((CONTENT_BYTES_MAX..=1024 * 1024).contains(&content.kept().len()));
        assert!(content.kept().starts_with("é🦀é"));
    }
}

#[tokio::test]
async fn case_c53_an_answer_without_end_is_too_large() {
    assert_eq!(answered(Play::Endless).await, "The tool page_drop failed: its answer is too large.");
}

#[tokio::test]
async fn case_c53_what_is_no_text_is_an_error() {
    for bad in [b"\xff".as_slice(), br"\ud800", b"W\0s\0l\0"] {
        let body = [br#"{"content":""#, bad, b"\"}"].concat();
        let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
        let sentence = answered(Play::Send([head.as_bytes(), &body].concat())).await;
        assert!(sentence.contains("its answer is not the JSON"), "{sentence}");
    }
}

#[tokio::test]
async fn case_c53_an_escaped_nul_is_kept_for_the_core_to_show() {
    assert_eq!(answer(ok(r#"{"content":"a\u0000b"}"#), LONG).await.unwrap(), "a\0b".into());
}

#[tokio::test]
async fn artifacts_are_read() {
    let body =
        r#"{"content":"c","artifacts":[{"type":"table","label":"Pages","data":{"rows":[[1]]},"more":1}]}"#;
    let output = answer(ok(body), LONG).await.unwrap();
    let [artifact] = &output.artifacts[..] else { panic!("{output:?}") };
    assert_eq!((artifact.kind, artifact.label.as_str()), (ArtifactKind::Table, "Pages"));
    assert_eq!(artifact.data, json!({ "rows": [[1]] }));
}

#[tokio::test]
async fn artifacts_that_cannot_be_used_do_not_cost_the_content() {
    let parts = vec![r#"{"type":"text","label":"","data":{"text":"a"}}"#; 100_000].join(",");
    for (artifacts, why) in [
        ("7".to_owned(), "form"),
        (r#"[{"type":"image","label":"l","data":{}}]"#.to_owned(), "form"),
        (r#"[{"type":"text","data":{}}]"#.to_owned(), "form"),
        (r#"[["text","label",{}]]"#.to_owned(), "form"),
        ("[".repeat(500) + &"]".repeat(500), "form"),
        (format!("[{parts}]"), "too large"),
    ] {
        let body = format!(r#"{{"content":"c","artifacts":{artifacts}}}"#);
        let output = answer(ok(&body), LONG).await.unwrap();
        let [artifact] = &output.artifacts[..] else { panic!("{output:?}") };
        assert_eq!((output.content.kept(), artifact.label.as_str()), ("c", "omitted"));
        assert!(artifact.data["text"].as_str().unwrap().contains(why), "{artifact:?}");
    }
}
