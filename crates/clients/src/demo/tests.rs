use std::borrow::Cow;

use countersign::{Finish, InputMessage, InputRole, ProposedCall, ProviderName, Reply, ToolName};
use serde_json::Value;

use super::*;

const EVERYTHING: [&str; 4] = ["edit_file", "list_files", "read_file", "write_file"];

fn offers(names: &[&str]) -> Vec<Offer> {
    names
        .iter()
        .map(|name| Offer {
            name: ToolName::parse(name).unwrap(),
            description: "".into(),
            parameters: json!({ "type": "object" }).into(),
        })
        .collect()
}

/// Plays the script from the start: after each call the next of `results` comes back.
/// Every step is asked of a conversation that was made anew from the transcript, as after a restart.
async fn play(names: &[&str], results: &[(&str, bool)]) -> Vec<Answer> {
    let task = InputMessage { role: InputRole::User, text: "Do what you like".into() };
    let offers = offers(names);
    let mut turns: Vec<(Reply, CallId, &str, bool)> = Vec::new();
    let mut answers = Vec::new();
    loop {
        let mut conversation = Demo.converse(DEMO_MODEL);
        conversation.add(&Message::System("You are the demo."));
        conversation.add(&Message::Input(&task));
        for (reply, call, content, is_error) in &turns {
            conversation.add(&Message::Reply(reply));
            conversation.add(&Message::Result { call, content: Cow::Borrowed(content), is_error: *is_error });
        }
        let answer = conversation.ask(&offers).await.unwrap();
        answers.push(answer.clone());
        let Some(call) = answer.calls.first() else {
            return answers;
        };
        let id = CallId::from_random([u8::try_from(turns.len()).unwrap(); 16]);
        let reply = Reply {
            provider: ProviderName::parse(DEMO_PROVIDER).unwrap(),
            model: DEMO_MODEL.into(),
            text: answer.text.clone(),
            calls: vec![ProposedCall {
                id: id.clone(),
                wire_id: None,
                name: call.name.clone(),
                arguments: call.arguments.clone(),
                opaque: Opaque::default(),
            }],
            finish: Finish::Stop,
            usage: Usage::default(),
            attempts: 1,
            opaque: Opaque::default(),
        };
        let (content, is_error) = results[turns.len()];
        turns.push((reply, id, content, is_error));
    }
}

fn calls(answers: &[Answer]) -> Vec<&str> {
    answers.iter().flat_map(|answer| &answer.calls).map(|call| call.name.as_str()).collect()
}

fn last_words(answers: &[Answer]) -> &str {
    answers.last().and_then(|answer| answer.text.as_deref()).unwrap()
}

fn notice() -> &'static str {
    tour_files().iter().find(|(name, _)| *name == NOTICE).unwrap().1
}

#[test]
fn the_notice_holds_the_mistake_exactly_once() {
    assert_eq!(notice().matches(MISTAKE).count(), 1);
    assert_eq!(notice().matches(CORRECTION).count(), 0);
}

#[tokio::test]
async fn the_script_proposes_one_correction_and_reports_what_came_back() {
    let read = (notice(), false);
    for (result, says) in [
        (
            ("1 replacement in opening-hours.md", false),
            "came back as a success, in these words: \"1 replacement",
        ),
        (
            ("denied by a person: not today", true),
            "did not come back as a success, but with: \"denied by a person",
        ),
        (("expired: nobody decided in time", true), "did not come back as a success, but with: \"expired"),
    ] {
        let answers = play(&EVERYTHING, &[("README.md\nopening-hours.md", false), read, result]).await;
        assert_eq!(calls(&answers), ["list_files", "read_file", "edit_file"]);
        assert!(
            answers.iter().all(|answer| answer.text.as_deref().unwrap().contains("cript")),
            "{answers:?}"
        );
        assert!(answers[0].text.as_deref().unwrap().starts_with("This is a script, not a model"));
        assert!(last_words(&answers).contains(says), "{}", last_words(&answers));
        let edit: Value = serde_json::from_str(answers[2].calls[0].arguments.as_deref().unwrap()).unwrap();
        assert_eq!(edit, json!({ "path": NOTICE, "find": MISTAKE, "replace": CORRECTION }));
    }
}

#[tokio::test]
async fn the_script_calls_only_what_is_offered() {
    let none = play(&[], &[]).await;
    assert!(calls(&none).is_empty());
    assert!(last_words(&none).contains("no tools are offered"), "{}", last_words(&none));

    let no_files = play(&["edit_file"], &[]).await;
    assert!(calls(&no_files).is_empty());
    assert!(last_words(&no_files).contains("list_files, which is not offered"));

    let unattended =
        play(&["list_files", "read_file"], &[("opening-hours.md", false), (notice(), false)]).await;
    assert_eq!(calls(&unattended), ["list_files", "read_file"]);
    assert!(last_words(&unattended).contains("edit_file, which is not offered"));
    assert!(last_words(&unattended).contains("nothing was changed"));
}

#[tokio::test]
async fn the_script_corrects_only_what_it_has_read() {
    let listed = ("opening-hours.md", false);
    for (read, says) in [
        ((notice().replace(MISTAKE, CORRECTION), false), "already says"),
        (("Something else".to_owned(), false), "is not the notice it knows"),
        (("no such file".to_owned(), true), "because read_file came back with: \"no such file\""),
    ] {
        let answers = play(&EVERYTHING, &[listed, (&read.0, read.1)]).await;
        assert_eq!(calls(&answers), ["list_files", "read_file"]);
        assert!(last_words(&answers).contains(says), "{}", last_words(&answers));
    }
}

#[tokio::test]
async fn a_result_is_repeated_on_one_line_and_cut() {
    let long = format!("first\n{}", "é".repeat(1000));
    let answers = play(&EVERYTHING, &[(&long, true)]).await;
    assert!(last_words(&answers).ends_with("é […]\""));
    assert!(!last_words(&answers).contains('\n'));
}

#[tokio::test]
async fn the_script_is_free_of_charge_and_says_so() {
    let answers = play(&[], &[]).await;
    assert_eq!(answers[0].usage, Some(Usage::default()));
}
