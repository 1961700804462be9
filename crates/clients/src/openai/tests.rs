use std::borrow::Cow;

use countersign::{
    Answer, AnsweredCall, CallId, Finish, InputMessage, InputRole, Message, ModelError, Offer, Opaque,
    ProposedCall, ProviderName, Reply, ToolName, Usage,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::decode::decode;
use super::encode::Encoder;

fn provider(name: &str) -> ProviderName {
    ProviderName::parse(name).unwrap()
}

fn id(number: u8) -> CallId {
    CallId::from_random([number; 16])
}

fn opaque(parts: &[(&str, &str)]) -> Opaque {
    Opaque(parts.iter().map(|(name, raw)| ((*name).to_owned(), (*raw).to_owned())).collect())
}

fn call(number: u8, wire_id: Option<&str>, name: &str, arguments: Option<&str>) -> ProposedCall {
    ProposedCall {
        id: id(number),
        wire_id: wire_id.map(str::to_owned),
        name: name.to_owned(),
        arguments: arguments.map(str::to_owned),
        opaque: Opaque::default(),
    }
}

fn reply(by: &str, text: Option<&str>, calls: Vec<ProposedCall>) -> Reply {
    Reply {
        provider: provider(by),
        model: "scripted".into(),
        text: text.map(str::to_owned),
        calls,
        finish: Finish::Stop,
        usage: Usage::default(),
        attempts: 1,
        opaque: Opaque::default(),
    }
}

/// What the runtime makes of an answer: the same, with our ids.
fn kept(by: &str, answer: Answer, first: u8) -> Reply {
    let calls = (first..).zip(answer.calls);
    let calls = calls.map(|(number, call)| ProposedCall {
        id: id(number),
        wire_id: call.wire_id,
        name: call.name,
        arguments: call.arguments,
        opaque: call.opaque,
    });
    Reply {
        opaque: answer.opaque,
        finish: answer.finish,
        ..reply(by, answer.text.as_deref(), calls.collect())
    }
}

fn input(role: InputRole, text: &str) -> InputMessage {
    InputMessage { role, text: text.to_owned() }
}

fn result<'a>(call: &'a CallId, content: &'static str, is_error: bool) -> Message<'a> {
    Message::Result { call, content: Cow::Borrowed(content), is_error }
}

fn page_get() -> Offer {
    Offer {
        name: ToolName::parse("page_get").unwrap(),
        description: "Read a page, \"as is\"".into(),
        parameters:
            json!({ "type": "object", "properties": { "id": { "type": "integer" } }, "required": ["id"] })
                .into(),
    }
}

fn body(by: &str, messages: &[Message<'_>], offers: &[Offer]) -> String {
    let mut encoder = Encoder::new(provider(by), "scripted");
    messages.iter().for_each(|message| encoder.add(message));
    String::from_utf8(encoder.body(offers)).unwrap()
}

/// Compares with a file of the golden folder, in which the last line ends.
fn golden(body: &str, expected: &str) {
    assert_eq!(body, expected.strip_suffix('\n').unwrap());
}

fn messages_of(body: &str) -> Vec<Value> {
    let body: Value = serde_json::from_str(body).unwrap();
    body["messages"].as_array().unwrap().clone()
}

/// The check that every request must pass: see rule L3.
fn assert_valid(body: &str) {
    let mut ids = std::collections::BTreeSet::new();
    let mut awaited = std::collections::VecDeque::new();
    for message in messages_of(body) {
        if message["role"] == "tool" {
            assert_eq!(Some(message["tool_call_id"].clone()), awaited.pop_front(), "{body}");
            assert!(message["content"].is_string(), "{body}");
            continue;
        }
        assert!(awaited.is_empty(), "unanswered before the next message: {body}");
        assert!(["system", "user", "assistant"].contains(&message["role"].as_str().unwrap()), "{body}");
        let calls = message.get("tool_calls").map(|calls| calls.as_array().unwrap().clone());
        assert!(!calls.as_ref().is_some_and(Vec::is_empty), "an empty list of calls: {body}");
        assert!(!message["content"].is_null() || calls.is_some(), "neither text nor calls: {body}");
        for call in calls.unwrap_or_default() {
            assert_eq!(call["type"], "function");
            assert!(ToolName::parse(call["function"]["name"].as_str().unwrap()).is_ok(), "{body}");
            let arguments: Value =
                serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
            assert!(arguments.is_object(), "{body}");
            assert!(!call["id"].as_str().unwrap().is_empty() && ids.insert(call["id"].to_string()), "{body}");
            awaited.push_back(call["id"].clone());
        }
    }
    assert!(awaited.is_empty(), "unanswered at the end: {body}");
}

#[test]
fn golden_first_request() {
    let user = input(InputRole::User, "Read page 1.\nThen say \"done\". é🦀");
    let messages = [Message::System("You look after the pages."), Message::Input(&user)];
    golden(&body("stub", &messages, &[page_get()]), include_str!("../../tests/golden/requests/first.json"));
}

#[test]
fn rule_g8_no_offers_no_tools_field() {
    let user = input(InputRole::User, "Hello");
    golden(
        &body("stub", &[Message::Input(&user)], &[]),
        include_str!("../../tests/golden/requests/no-tools.json"),
    );
}

#[test]
fn golden_whole_turn_goes_back() {
    let (user, said) = (input(InputRole::User, "Tidy up"), input(InputRole::Assistant, "I shall."));
    let more = input(InputRole::User, "Thanks");
    let mut turn = reply(
        "stub",
        None,
        vec![
            call(1, Some("call_a"), "page_get", Some("{ \"id\": 1 }")),
            call(2, Some("call_b"), "page_drop", Some("{\"id\":2}")),
        ],
    );
    turn.opaque = opaque(&[("reasoning_content", "\"first \\u00e9\""), ("annotations", "[ ]")]);
    turn.calls[0].opaque =
        opaque(&[("index", "0"), ("extra_content", "{\"google\": {\"thought_signature\":\"AB==\"}}")]);
    let done = reply("stub", Some("Done."), vec![]);
    let silent = reply("stub", None, vec![]);
    let messages = [
        Message::Input(&user),
        Message::Input(&said),
        Message::Reply(&turn),
        result(&turn.calls[0].id, "page one", false),
        result(&turn.calls[1].id, "denied by a person", true),
        Message::Reply(&done),
        Message::Input(&more),
        Message::Reply(&silent),
    ];
    let body = body("stub", &messages, &[page_get()]);
    assert_valid(&body);
    golden(&body, include_str!("../../tests/golden/requests/turn.json"));
}

#[test]
fn rule_l3_a_later_body_begins_with_the_earlier_messages() {
    let user = input(InputRole::User, "Go");
    let turn = reply("stub", None, vec![call(1, None, "page_get", None), call(2, None, "page_get", None)]);
    let messages = [
        Message::Input(&user),
        Message::Reply(&turn),
        result(&turn.calls[0].id, "one", false),
        result(&turn.calls[1].id, "two", false),
    ];
    let mut encoder = Encoder::new(provider("stub"), "scripted");
    encoder.add(&messages[0]);
    let first = encoder.body(&[page_get()]);
    assert_eq!(first, encoder.body(&[page_get()]), "asking again changes nothing");
    assert_ne!(encoder.body(&[]), first, "and other offers are written anew");
    assert_eq!(encoder.body(&[page_get()]), first);
    messages[1..].iter().for_each(|message| encoder.add(message));
    let second = encoder.body(&[page_get()]);
    let end_of_messages = first.windows(10).position(|window| window == b"],\"tools\":").unwrap();
    assert_eq!(second[..end_of_messages], first[..end_of_messages]);
    assert_eq!(
        String::from_utf8(second).unwrap(),
        body("stub", &messages, &[page_get()]),
        "as built after a restart"
    );
}

#[test]
fn rule_l3_what_no_wire_may_carry_goes_back_in_wire_form() {
    let calls = vec![
        call(1, Some("a"), "page get", Some("{\"id\":1}")),
        call(2, Some("b"), "", None),
        call(3, Some("c"), &"x".repeat(65), Some("[1]")),
        call(4, Some("d"), "page_get", Some("{\"to\":\"a@x.test\",\"text\":\"Dear")),
        call(5, Some("e"), "page_get", Some("{\"id\":1,\"id\":7}")),
        call(6, Some("f"), "page_get", Some(" {\"id\" : 1.50}\n")),
    ];
    let turn = reply("stub", None, calls);
    let body = body("stub", &[Message::Reply(&turn)], &[]);
    assert_valid(&body);
    let sent: Vec<_> = messages_of(&body)[0]["tool_calls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| {
            let function = &call["function"];
            (
                function["name"].as_str().unwrap().to_owned(),
                function["arguments"].as_str().unwrap().to_owned(),
            )
        })
        .collect();
    let pair = |name: &str, arguments: &str| (name.to_owned(), arguments.to_owned());
    assert_eq!(
        sent,
        [
            pair("invalid_name", "{\"id\":1}"),
            pair("invalid_name", "{}"),
            pair("invalid_name", "{}"),
            pair("page_get", "{}"),
            pair("page_get", "{}"),
            pair("page_get", " {\"id\" : 1.50}\n"),
        ]
    );
}

#[test]
fn rule_l3_opaque_parts_go_back_as_sent_and_to_no_other_provider() {
    let sent = include_str!("../../tests/golden/answers/reasoning.json");
    let turn = kept("p", decode(sent.as_bytes()).unwrap(), 1);
    let messages = [Message::Reply(&turn), result(&turn.calls[0].id, "ok", false)];
    golden(&body("p", &messages, &[]), include_str!("../../tests/golden/requests/reasoning-own.json"));
    golden(&body("q", &messages, &[]), include_str!("../../tests/golden/requests/reasoning-other.json"));
}

#[test]
fn rule_l3_an_opaque_part_overwrites_nothing() {
    let mut turn = reply("p", Some("text"), vec![call(1, Some("a"), "page_get", Some("{\"id\":1}"))]);
    turn.opaque =
        opaque(&[("role", "\"system\""), ("content", "\"other\""), ("tool_calls", "[]"), ("kept", "1")]);
    turn.calls[0].opaque = opaque(&[
        ("id", "\"z\""),
        ("type", "\"x\""),
        ("function", "{\"name\":\"page_drop\",\"arguments\":\"{}\",\"kept\":2}"),
    ]);
    let body = body("p", &[Message::Reply(&turn), result(&turn.calls[0].id, "ok", false)], &[]);
    assert_valid(&body);
    assert!(
        body.contains(
            r#"{"role":"assistant","content":"text","tool_calls":[{"id":"a","type":"function","function":{"name":"page_get","arguments":"{\"id\":1}","kept":2}}],"kept":1}"#
        ),
        "{body}"
    );
}

#[test]
fn case_c33_one_id_for_two_calls() {
    let sent = include_str!("../../tests/golden/answers/one-id.json");
    let turn = kept("p", decode(sent.as_bytes()).unwrap(), 1);
    let messages = [
        Message::Reply(&turn),
        result(&turn.calls[0].id, "one", false),
        result(&turn.calls[1].id, "two", false),
    ];
    let body = body("p", &messages, &[]);
    assert_valid(&body);
    let messages = messages_of(&body);
    assert_eq!(messages[0]["tool_calls"][0]["id"], "x");
    assert_eq!(messages[0]["tool_calls"][0]["function"]["arguments"], "{\"id\":1}");
    assert_eq!(messages[0]["tool_calls"][1]["function"]["arguments"], "{\"id\":2}");
    assert_eq!((&messages[1]["content"], &messages[1]["tool_call_id"]), (&json!("one"), &json!("x")));
    assert_eq!(messages[2]["content"], "two");
    assert_ne!(messages[2]["tool_call_id"], "x");
}

#[test]
fn case_c35_another_provider_sees_nine_characters_and_its_own_ids_later() {
    let long = format!("{}|{}", "a".repeat(46), "b".repeat(47));
    let first = reply("p", None, vec![call(1, Some(&long), "page_get", Some("{\"id\":1}"))]);
    let second = reply("q", None, vec![call(2, Some("Q23456789"), "page_get", Some("{\"id\":2}"))]);
    let messages = [
        Message::Reply(&first),
        result(&first.calls[0].id, "one", false),
        Message::Reply(&second),
        result(&second.calls[0].id, "two", false),
    ];
    let ids = |by: &str| -> Vec<String> {
        let body = body(by, &messages, &[]);
        assert_valid(&body);
        let messages = messages_of(&body);
        messages
            .iter()
            .filter_map(|message| Some(message.get("tool_call_id")?.as_str()?.to_owned()))
            .collect()
    };
    let at_p = ids("p");
    assert_eq!(at_p[0], long);
    assert_ne!(at_p[1], "Q23456789");
    let at_q = ids("q");
    assert_eq!(at_q[1], "Q23456789");
    assert!(
        at_q.iter().all(|id| id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric())),
        "{at_q:?}"
    );
}

#[test]
fn rule_l9_an_id_that_is_no_text_is_none() {
    for id in ["7", "null", "\"\"", "{}", "\"\\ud800\""] {
        let answer =
            decode(with_call(&format!("\"id\":{id},\"function\":{{\"name\":\"t\"}}")).as_bytes()).unwrap();
        assert_eq!((answer.calls[0].wire_id.as_deref(), answer.calls[0].name.as_str()), (None, "t"), "{id}");
    }
}

#[test]
fn rule_l3_a_result_without_a_call_and_a_call_without_a_result() {
    let turn = reply("p", None, vec![call(1, Some("a"), "t", None), call(2, Some("b"), "t", None)]);
    let next = input(InputRole::User, "Go on");
    let messages = [
        result(&turn.calls[0].id, "too early", false),
        Message::Reply(&turn),
        result(&turn.calls[1].id, "two", false),
        result(&turn.calls[1].id, "twice", false),
        Message::Input(&next),
    ];
    let body = body("p", &messages, &[]);
    assert_valid(&body);
    let sent = messages_of(&body);
    assert_eq!(
        sent[1],
        json!({"role":"tool","content":"Error: no result of this call is known.","tool_call_id":"a"})
    );
    assert_eq!(sent[2], json!({"role":"tool","content":"two","tool_call_id":"b"}));
    assert_eq!(sent.len(), 4);
}

/// An answer with one call of these members.
fn with_call(members: &str) -> String {
    format!(
        r#"{{"choices":[{{"message":{{"content":null,"tool_calls":[{{{members}}}]}},"finish_reason":"tool_calls"}}]}}"#
    )
}

/// An answer whose message has these members.
fn with_message(members: &str) -> String {
    format!(r#"{{"choices":[{{"message":{{{members}}},"finish_reason":"stop"}}]}}"#)
}

#[test]
fn golden_text_answer() {
    let answer = decode(include_bytes!("../../tests/golden/answers/text.json")).unwrap();
    assert_eq!(
        answer,
        Answer {
            text: Some("Opening hours: 10–18. 🦀".into()),
            calls: vec![],
            finish: Finish::Stop,
            usage: Some(Usage {
                input_tokens: 19,
                output_tokens: 10,
                cached_input_tokens: 4,
                unknown_calls: 0
            }),
            opaque: opaque(&[("refusal", "null"), ("annotations", "[]")]),
        }
    );
}

#[test]
fn golden_answer_with_calls_and_opaque_parts() {
    let answer = decode(include_bytes!("../../tests/golden/answers/reasoning.json")).unwrap();
    assert_eq!(
        answer,
        Answer {
            text: None,
            calls: vec![AnsweredCall {
                wire_id: Some("call_7".into()),
                name: "page_get".into(),
                arguments: Some("{\"id\": 1}".into()),
                opaque: opaque(&[
                    ("index", "0"),
                    ("extra_content", "{ \"google\" : {\"thought_signature\":\"A\\/B==\"} }"),
                    ("function", "{\"strict\":true}"),
                ]),
            }],
            finish: Finish::Stop,
            usage: None,
            opaque: opaque(&[
                ("reasoning_content", "\"Let me \\u0073ee\\n\""),
                ("reasoning_details", "[ {\"n\":1.50} ]")
            ]),
        }
    );
}

#[test]
fn golden_answer_in_parts() {
    let sent = include_str!("../../tests/golden/answers/parts.json");
    let answer = decode(sent.as_bytes()).unwrap();
    assert_eq!(answer.text.as_deref(), Some("Page one, page two."));
    let turn = kept("p", answer, 1);
    golden(
        &body("p", &[Message::Reply(&turn)], &[]),
        include_str!("../../tests/golden/requests/parts-own.json"),
    );
    golden(
        &body("q", &[Message::Reply(&turn)], &[]),
        include_str!("../../tests/golden/requests/parts-other.json"),
    );
}

#[test]
fn case_c30_arguments_in_every_form() {
    for (sent, kept) in [
        ("", None),
        (",\"arguments\":null", None),
        (",\"arguments\":\"\"", Some("")),
        (",\"arguments\":\"  \"", Some("  ")),
        (",\"arguments\":\"null\"", Some("null")),
        (",\"arguments\":\"{}\"", Some("{}")),
        (",\"arguments\":{}", Some("{}")),
        (",\"arguments\":{\"id\": 7}", Some("{\"id\": 7}")),
        (",\"arguments\":[1]", Some("[1]")),
        (",\"arguments\":7", Some("7")),
        (",\"arguments\":\"[1]\"", Some("[1]")),
        (",\"arguments\":\"7\"", Some("7")),
        (",\"arguments\":\"\\\"{\\\\\\\"id\\\\\\\":7}\\\"\"", Some("\"{\\\"id\\\":7}\"")),
        (",\"arguments\":\"{\\\"id\\\":1,\\\"id\\\":7}\"", Some("{\"id\":1,\"id\":7}")),
    ] {
        let sent =
            with_call(&format!(r#""id":"a","type":"function","function":{{"name":"clock_now"{sent}}}"#));
        let answer = decode(sent.as_bytes()).unwrap();
        assert_eq!(answer.calls[0].arguments.as_deref(), kept, "{sent}");
        let turn = self::kept("p", answer, 1);
        assert_valid(&body("p", &[Message::Reply(&turn), result(&turn.calls[0].id, "ok", false)], &[]));
    }
}

#[test]
fn case_c31_a_cut_is_told_from_a_stop() {
    for (word, finish) in [
        ("\"length\"", Finish::Length),
        ("\"stop\"", Finish::Stop),
        ("\"tool_calls\"", Finish::Stop),
        ("\"function_call\"", Finish::Stop),
        ("\"content_filter\"", Finish::Other),
        ("null", Finish::Other),
        ("7", Finish::Other),
    ] {
        let sent = format!(r#"{{"choices":[{{"message":{{"content":"Dear"}},"finish_reason":{word}}}]}}"#);
        assert_eq!(decode(sent.as_bytes()).unwrap().finish, finish, "{word}");
    }
    let absent = r#"{"choices":[{"message":{"content":"Dear"}}]}"#;
    assert_eq!(decode(absent.as_bytes()).unwrap().finish, Finish::Other);
}

#[test]
fn a_call_may_lack_everything() {
    for call in
        ["", r#""function":{}"#, r#""function":null"#, r#""function":{"name":7}"#, r#""type":"custom""#]
    {
        let answer = decode(with_call(call).as_bytes()).unwrap();
        assert_eq!(answer.calls[0].name, "", "{call}");
        let turn = kept("p", answer, 1);
        assert_valid(&body(
            "p",
            &[Message::Reply(&turn), result(&turn.calls[0].id, "no such tool", true)],
            &[],
        ));
    }
}

#[test]
fn usage_is_told_or_absent() {
    let usage = |usage: &str| {
        let sent = format!(r#"{{"choices":[{{"message":{{"content":"x"}}}}],"usage":{usage}}}"#);
        decode(sent.as_bytes()).unwrap().usage
    };
    let told = Usage { input_tokens: 3, output_tokens: 4, ..Usage::default() };
    assert_eq!(usage(r#"{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}"#), Some(told));
    assert_eq!(
        usage(r#"{"prompt_tokens":3,"completion_tokens":4,"prompt_tokens_details":null}"#),
        Some(told)
    );
    for none in
        ["null", "{}", "[]", r#"{"prompt_tokens":3}"#, r#"{"prompt_tokens":-3,"completion_tokens":4}"#]
    {
        assert_eq!(usage(none), None, "{none}");
    }
}

#[test]
fn an_answer_in_another_format_is_unreadable_and_not_quoted() {
    let deep = "[".repeat(100_000);
    let sent = [
        "",
        "key-SECRET-2",
        "<!doctype html><title>key-SECRET-2</title>",
        "[]",
        r#"{"error":{"message":"key-SECRET-2"}}"#,
        r#"{"choices":[]}"#,
        r#"{"choices":null}"#,
        r#"{"choices":"key-SECRET-2"}"#,
        r#"{"choices":["key-SECRET-2"]}"#,
        r#"{"choices":[{}]}"#,
        r#"{"choices":[{"message":"key-SECRET-2"}]}"#,
        r#"{"choices":[{"message":{"content":"key-SECRET-2"}}"#,
        r#"{"choices":[{"message":{"content":"x"}}]} key-SECRET-2"#,
        r#"{"choices":[{"delta":{"content":"key-SECRET-2"}}]}"#,
        &with_message(r#""content":7"#),
        &with_message(r#""content":["key-SECRET-2"]"#),
        &with_message(r#""content":[{"type":"text"}]"#),
        &with_message(r#""content":"a","content":"key-SECRET-2""#),
        &with_message(r#""tool_calls":"key-SECRET-2""#),
        &with_message(r#""tool_calls":["key-SECRET-2"]"#),
        &with_message(r#""tool_calls":[{"function":"key-SECRET-2"}]"#),
        &with_message(r#""tool_calls":[{"function":{"name":"a","name":"key-SECRET-2"}}]"#),
        &with_message(r#""tool_calls":[{"function":{"name":"a","arguments":"\ud800 key-SECRET-2"}}]"#),
        &with_message(r#""content":null,"function_call":{"name":"key-SECRET-2","arguments":"{}"}"#),
        &format!(r#"{{"choices":{deep}"#),
    ];
    for sent in sent {
        let error = decode(sent.as_bytes()).unwrap_err();
        assert!(matches!(error, ModelError::Unreadable { .. }) && error.is_worth_retrying(), "{sent}");
        assert!(!format!("{error} {error:?}").contains("SECRET"), "{error:?}");
    }
    assert!(matches!(decode(b"{\"choices\":\xff}"), Err(ModelError::Unreadable { .. })));
}

/// One step of a random transcript.
#[derive(Clone, Debug)]
enum Act {
    System(String),
    Input(bool, String),
    Reply(Reply),
    /// The result of one of the calls, known or not, in any order.
    Result(u8, String, bool),
}

fn some_opaque() -> impl Strategy<Value = Opaque> {
    let name = prop_oneof![
        "[a-z_]{1,8}",
        Just("role".to_owned()),
        Just("content".into()),
        Just("function".into()),
        Just("id".into())
    ];
    let raw =
        prop_oneof![Just("null"), Just("{\"name\": \"x\", \"n\":1.50}"), Just("[ 1]"), Just("\"\\u00e9\"")];
    prop::collection::btree_map(name, raw.prop_map(str::to_owned), 0..3)
        .prop_map(|map| Opaque(map.into_iter().collect()))
}

fn some_call() -> impl Strategy<Value = ProposedCall> {
    let wire_id = prop::option::of(prop_oneof!["[abc]{0,1}", "c0000000[0-9][0-2]", any::<String>()]);
    let name = prop_oneof!["[A-Za-z0-9_-]{0,66}", any::<String>()];
    let arguments = prop::option::of(prop_oneof![
        Just("{\"id\":1}".to_owned()),
        Just("{\"id\":1,\"id\":2}".to_owned()),
        Just("{\"text\":\"Dear".to_owned()),
        Just(format!("{{\"a\":{}{}}}", "[".repeat(70), "]".repeat(70))),
        any::<String>(),
    ]);
    (0..12_u8, wire_id, name, arguments, some_opaque()).prop_map(
        |(number, wire_id, name, arguments, opaque)| ProposedCall {
            id: id(number),
            wire_id,
            name,
            arguments,
            opaque,
        },
    )
}

fn some_reply() -> impl Strategy<Value = Reply> {
    let calls = prop::collection::vec(some_call(), 0..4);
    (any::<bool>(), prop::option::of(any::<String>()), calls, some_opaque()).prop_map(
        |(own, text, calls, opaque)| Reply {
            opaque,
            ..reply(if own { "p" } else { "q" }, text.as_deref(), calls)
        },
    )
}

fn some_transcript() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        1 => any::<String>().prop_map(Act::System),
        2 => (any::<bool>(), any::<String>()).prop_map(|(user, text)| Act::Input(user, text)),
        3 => some_reply().prop_map(Act::Reply),
        6 => (0..12_u8, any::<String>(), any::<bool>()).prop_map(|(call, text, is_error)| Act::Result(call, text, is_error)),
    ];
    prop::collection::vec(act, 0..16)
}

proptest! {
    #[test]
    fn rule_l3_every_transcript_gives_a_valid_request(transcript in some_transcript(), offered in any::<bool>()) {
        let offers = if offered { vec![page_get()] } else { vec![] };
        let mut encoder = Encoder::new(provider("p"), "scripted");
        let mut before = b"{\"model\":\"scripted\",\"messages\":[".to_vec();
        for act in &transcript {
            match act {
                Act::System(text) => encoder.add(&Message::System(text)),
                Act::Input(user, text) => {
                    let role = if *user { InputRole::User } else { InputRole::Assistant };
                    encoder.add(&Message::Input(&input(role, text)));
                }
                Act::Reply(reply) => encoder.add(&Message::Reply(reply)),
                Act::Result(call, content, is_error) => {
                    encoder.add(&Message::Result { call: &id(*call), content: Cow::Borrowed(content), is_error: *is_error });
                }
            }
            // Asking between the messages of a turn would answer the calls that still wait.
            if !matches!(act, Act::Reply(_) | Act::Result(..)) {
                let body = encoder.body(&[]);
                prop_assert!(body.starts_with(&before));
                before = body[..body.len() - 2].to_vec();
            }
        }
        let body = encoder.body(&offers);
        prop_assert!(body.starts_with(&before));
        let body = String::from_utf8(body).unwrap();
        assert_valid(&body);
        let parsed: Value = serde_json::from_str(&body).unwrap();
        prop_assert_eq!(parsed.get("tools").is_some(), offered);
    }

    #[test]
    fn no_bytes_make_decoding_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(&bytes);
    }
}
