//! A6 and A7: what the digest covers, what a definition is, and how much of a preview is shown.

use countersign_core::*;
use proptest::prelude::*;
use serde_json::json;

use crate::world::*;

/// A held turn with everything in it that a digest may cover.
fn shown() -> Pending {
    let mut story = Story::new();
    story.calls(&[
        ("a", "page_get", r#"{"id":7}"#),
        ("b", "page_drop", r#"{"id":7,"why":{"x":1,"y":[1,2]}}"#),
        ("c", "ghost", "no"),
    ]);
    let mut pending = story.pending("1", Question::Approval);
    pending.calls[1].preview = Some(Preview::of(["drops page 7".to_owned()], Some(json!({"etag": 1}))));
    pending
}

fn input() -> Pending {
    let mut story = Story::new();
    story.calls(&[("a", "pick_date", "{}"), ("b", "pick_date", "{}")]);
    story.pending(
        "1",
        Question::Input { call: call_id("a"), schema: date_schema(), message: "When?".to_owned() },
    )
}

type Change = (&'static str, fn(&mut Pending));

fn digests(pending: &Pending, change: fn(&mut Pending)) -> (Digest, Digest) {
    let mut changed = pending.clone();
    change(&mut changed);
    (pending.digest(&run_id()), changed.digest(&run_id()))
}

#[test]
fn rule_a6_case_c12_the_digest_changes_with_everything_it_covers() {
    let covered: [Change; 15] = [
        ("pending", |it| it.id = pending_id("2")),
        ("turn", |it| it.turn = 2),
        ("call id", |it| it.calls[0].id = call_id("z")),
        ("tool", |it| it.calls[0].tool = "clock_now".to_owned()),
        ("argument", |it| it.calls[0].arguments = Some(args(r#"{"id":8}"#))),
        ("nested argument", |it| it.calls[1].arguments = Some(args(r#"{"id":7,"why":{"x":1,"y":[2,1]}}"#))),
        ("an argument more", |it| it.calls[0].arguments = Some(args(r#"{"id":7,"force":false}"#))),
        ("a text for a number", |it| it.calls[0].arguments = Some(args(r#"{"id":"7"}"#))),
        ("no arguments", |it| it.calls[0].arguments = None),
        ("effect", |it| it.calls[1].facts.as_mut().unwrap().effect = Effect::IdempotentWrite),
        ("definition", |it| {
            it.calls[1].facts.as_mut().unwrap().definition =
                tool("page_drop", "content", Effect::Read).definition_hash();
        }),
        ("precondition", |it| it.calls[1].preview.as_mut().unwrap().precondition = Some(json!({"etag": 2}))),
        ("no precondition", |it| it.calls[1].preview = None),
        ("order", |it| it.calls.swap(0, 1)),
        ("a call less", |it| drop(it.calls.pop())),
    ];
    for (what, change) in covered {
        let (before, after) = digests(&shown(), change);
        assert_ne!(before, after, "{what}");
    }
    let other = RunId::parse("run_2").unwrap();
    assert_ne!(shown().digest(&run_id()), shown().digest(&other), "run");
    let of_input: [Change; 3] = [
        ("schema", |it| {
            let schema = json!({"type": "object"});
            it.question = Question::Input { call: call_id("a"), schema, message: "When?".to_owned() };
        }),
        ("asked call", |it| {
            it.question =
                Question::Input { call: call_id("b"), schema: date_schema(), message: "When?".to_owned() };
        }),
        ("kind", |it| it.question = Question::Resolution { call: call_id("a"), not_before: at(0) }),
    ];
    for (what, change) in of_input {
        let (before, after) = digests(&input(), change);
        assert_ne!(before, after, "{what}");
    }
}

#[test]
fn rule_a6_the_digest_does_not_change_with_what_it_does_not_cover() {
    let free: [Change; 5] = [
        ("preview lines", |it| it.calls[1].preview.as_mut().unwrap().lines = vec!["other words".to_owned()]),
        ("preview failed", |it| it.calls[1].preview.as_mut().unwrap().failed = true),
        ("deadline", |it| it.expires_at = Deadline::At(at(5))),
        ("order of keys", |it| {
            it.calls[1].arguments = Some(args(r#" { "why":{"y":[1,2],"x":1} , "id":7 } "#));
        }),
        ("escapes", |it| it.calls[1].arguments = Some(args(r#"{"\u0069d":7,"why":{"x":1,"y":[1,2]}}"#))),
    ];
    for (what, change) in free {
        let (before, after) = digests(&shown(), change);
        assert_eq!(before, after, "{what}");
    }
    let (before, after) = digests(&input(), |it| {
        it.question =
            Question::Input { call: call_id("a"), schema: date_schema(), message: "Pick one".to_owned() };
    });
    assert_eq!(before, after, "message");
}

#[test]
fn rule_a6_a_stored_pending_has_the_digest_it_was_shown_with() {
    for pending in [shown(), input()] {
        let stored = serde_json::to_string(&pending).unwrap();
        let read: Pending = serde_json::from_str(&stored).unwrap();
        assert_eq!((&read, read.digest(&run_id())), (&pending, pending.digest(&run_id())));
    }
}

#[test]
fn rule_a6_a_digest_is_read_as_it_is_written_or_not_at_all() {
    let digest = shown().digest(&run_id());
    let text = digest.to_string();
    assert_eq!(text.len(), "sha256:".len() + 64);
    assert_eq!(Digest::parse(&text).unwrap(), digest);
    for wrong in [
        text.to_uppercase(),
        text.replace("sha256:", ""),
        format!("{text}0"),
        text[..70].to_owned(),
        text.replace(':', "="),
    ] {
        assert!(Digest::parse(&wrong).is_err(), "{wrong}");
    }
}

#[test]
fn rule_a6_rule_m2_a_definition_is_name_parameters_input_and_effect_and_of_a_remote_tool_more() {
    let local = tool("t", "g", Effect::Write);
    let hash = local.definition_hash();
    let asks_for = |schema| Pause::NeedsInput(schema);
    let changed = [
        ToolSpec { name: ToolName::parse("u").unwrap(), ..local.clone() },
        ToolSpec { parameters: json!({"type": "object", "required": ["id"]}), ..local.clone() },
        ToolSpec { effect: Effect::Read, ..local.clone() },
        ToolSpec { pause: asks_for(json!({})), ..local.clone() },
    ];
    assert!(changed.iter().all(|tool| tool.definition_hash() != hash));
    assert_ne!(
        ToolSpec { pause: asks_for(json!({})), ..local.clone() }.definition_hash(),
        ToolSpec { pause: asks_for(date_schema()), ..local.clone() }.definition_hash()
    );
    let same = [
        ToolSpec { description: "other words".to_owned(), ..local.clone() },
        ToolSpec { group: GroupName::parse("h").unwrap(), ..local.clone() },
        ToolSpec { pause: Pause::Asks, ..local.clone() },
        ToolSpec { data_class: DataClass::PublicContent, ..local.clone() },
        ToolSpec { requires_admin: true, enabled_by_default: false, ..local },
    ];
    assert!(same.iter().all(|tool| tool.definition_hash() == hash));
    let far = remote("find", Effect::Write, RemoteApproval::Required);
    let elsewhere = Origin::Mcp {
        server: ServerName::parse("other").unwrap(),
        remote_name: "find".to_owned(),
        approval: RemoteApproval::Required,
    };
    let renamed = remote("found", Effect::Write, RemoteApproval::Required).origin;
    for changed in [
        ToolSpec { description: "other words".to_owned(), ..far.clone() },
        ToolSpec { origin: elsewhere, ..far.clone() },
        ToolSpec { origin: renamed, ..far.clone() },
        ToolSpec { origin: Origin::Http, ..far.clone() },
    ] {
        assert_ne!(changed.definition_hash(), far.definition_hash());
    }
}

#[test]
fn vector_ta13_rule_a7_a_failed_preview_says_so_and_is_no_precondition() {
    let failed = Preview::failure("The preview failed.");
    assert_eq!((failed.failed, failed.precondition, failed.lines.len()), (true, None, 1));
}

#[test]
fn rule_a7_a_preview_at_its_bounds_is_not_cut() {
    let exact = Preview::of(vec!["x".repeat(PREVIEW_LINE_CHARS_MAX); PREVIEW_LINES_MAX], None);
    assert_eq!(exact.lines, vec!["x".repeat(500); 200]);
    let one_more = Preview::of(vec!["é".repeat(501); 201], None);
    assert_eq!(one_more.lines.len(), 200);
    assert_eq!(one_more.lines[199], "[2 more lines are not shown]");
    assert!(one_more.lines[..199].iter().all(|line| line.chars().count() == 500));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// A digest is equal exactly where the arguments are equal.
    #[test]
    fn rule_a6_two_arguments_have_one_digest_only_if_they_are_the_same(
        first in prop::collection::btree_map("[a-c]{1,2}", -3_i64..3, 0..3),
        second in prop::collection::btree_map("[a-c]{1,2}", -3_i64..3, 0..3),
    ) {
        let digest_of = |members: &std::collections::BTreeMap<String, i64>| {
            let mut pending = shown();
            pending.calls[0].arguments = Some(args(&json!(members).to_string()));
            pending.digest(&run_id())
        };
        prop_assert_eq!(digest_of(&first) == digest_of(&second), first == second);
    }
}
