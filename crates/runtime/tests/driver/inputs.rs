//! What only a person can supply: asked for one call at a time, checked in full, merged field by field (R9).

use countersign::testing::{Ledger, text, turn};
use countersign::{
    AnyTool, DecideError, Decision, DecisionRefused, Effect, Pause, PendingStatus, Principal, Question,
    Registry, RegistryError, ResultKind as Is, RunState, Store, Waiting,
};
use serde_json::{Value, json};

use crate::kit::{
    Bed, Witness, alice, arguments, assert_state, bob, completed, date_input, lines, read, result_kinds,
    robot, statuses, waiting, write,
};

async fn picking(calls: &[(&str, &str)]) -> Bed {
    Bed::new(Witness::script([turn(calls), text("done")]), |ledger| {
        vec![date_input("pick_date", ledger).into(), read("get", ledger).into(), write("drop", ledger).into()]
    })
    .await
}

fn answer(waiting: &Waiting, fields: &Value) -> Decision {
    Decision::answer(waiting.digest, arguments(fields))
}

async fn problems(bed: &Bed, waiting: &Waiting, fields: &Value) -> Vec<String> {
    match bed.runtime().decide(&waiting.id, answer(waiting, fields), &bob()).await {
        Err(DecideError::Refused(DecisionRefused::InvalidInput(problems))) => {
            problems.into_iter().map(|problem| problem.pointer).collect()
        }
        other => panic!("{fields} should not fit: {other:?}"),
    }
}

#[tokio::test]
async fn rule_r9_vector_ti01_an_answer_is_checked_in_full_and_the_question_stays_open() {
    let script = Witness::script([turn(&[("form", "{}")]), text("done")]);
    let bed = Bed::new(script, |ledger| {
        let mut form = read("form", ledger);
        form.spec.pause = Pause::NeedsInput(json!({
            "type": "object",
            "properties": {
                "name": { "type": "string", "minLength": 2, "pattern": "^[a-z]+$" },
                "size": { "enum": ["s", "m"] },
                "count": { "type": "integer", "exclusiveMinimum": 0 },
                "pair": { "type": "array", "prefixItems": [{ "type": "string" }, { "type": "integer" }], "items": false },
                "mail": { "type": "string", "format": "email" },
                "a": { "type": "boolean" },
                "b": { "type": "boolean" },
            },
            "dependentRequired": { "a": ["b"] },
            "required": ["name"],
            "additionalProperties": false,
        }));
        vec![form.into()]
    })
    .await;
    let waiting = bed.waiting().await;
    assert_state(&waiting.run, RunState::WaitingForInput);
    for (fields, pointers) in [
        (json!({}), vec![""]),
        (json!({ "name": "x" }), vec!["/name"]),
        (json!({ "name": "X1" }), vec!["/name"]),
        (json!({ "name": "ab", "size": "xl" }), vec!["/size"]),
        (json!({ "name": "ab", "count": 0 }), vec!["/count"]),
        (json!({ "name": "ab", "count": "3" }), vec!["/count"]),
        (json!({ "name": "ab", "pair": ["x", 1, 2] }), vec!["/pair/2"]),
        (json!({ "name": "ab", "mail": "nobody" }), vec!["/mail"]),
        (json!({ "name": "ab", "a": true }), vec![""]),
        (json!({ "name": "ab", "more": 1 }), vec![""]),
        (json!({ "size": "xl", "count": 0 }), vec!["/count", "/size", ""]),
    ] {
        let mut found = problems(&bed, &waiting, &fields).await;
        let mut expected = pointers;
        found.sort();
        expected.sort_unstable();
        assert_eq!(found, expected, "{fields}");
    }
    let run = bed.runtime().load(waiting.run.id()).await.unwrap();
    assert_eq!(
        (run.revision(), statuses(&run)),
        (waiting.run.revision(), vec![PendingStatus::Open]),
        "nothing was stored"
    );
    assert_eq!(lines(&bed.ledger), []);
    completed(
        bed.decide(
            &waiting,
            answer(&waiting, &json!({ "name": "ab", "pair": ["x", 1], "a": true, "b": false })),
            &bob(),
        )
        .await,
    );
    assert_eq!(bed.ledger.names(), ["form"]);
}

#[tokio::test]
async fn rule_r9_two_calls_of_one_tool_are_asked_one_after_the_other() {
    let bed =
        picking(&[("pick_date", r#"{"why":"out"}"#), ("get", "{}"), ("pick_date", r#"{"why":"back"}"#)])
            .await;
    let first = bed.waiting().await;
    let Question::Input { call, message, .. } = &first.record.pending.question else {
        panic!("it should ask for input")
    };
    assert_eq!((call, message.as_str()), (&first.record.pending.calls[0].id, "Which day?"));
    let second = waiting(bed.decide(&first, answer(&first, &json!({ "date": "2027-01-01" })), &bob()).await);
    let Question::Input { call, .. } = &second.record.pending.question else { panic!("it should ask again") };
    assert_eq!(call, &second.record.pending.calls[2].id);
    assert_eq!(lines(&bed.ledger), [], "nothing runs until all are settled");
    completed(bed.decide(&second, answer(&second, &json!({ "date": "2027-02-02" })), &bob()).await);
    assert_eq!(
        lines(&bed.ledger),
        [
            ("pick_date".to_owned(), json!({ "why": "out", "date": "2027-01-01" })),
            ("get".to_owned(), json!({})),
            ("pick_date".to_owned(), json!({ "why": "back", "date": "2027-02-02" })),
        ]
    );
}

#[tokio::test]
async fn vector_ti02_vector_ti03_neither_side_writes_the_others_fields() {
    let bed = picking(&[("pick_date", r#"{"why":"trip","date":"the model's","part":"am"}"#)]).await;
    let waiting = bed.waiting().await;
    let run = completed(
        bed.decide(&waiting, answer(&waiting, &json!({ "date": "2027-01-01", "why": "mine" })), &bob()).await,
    );
    assert_eq!(
        lines(&bed.ledger),
        [("pick_date".to_owned(), json!({ "why": "trip", "date": "2027-01-01" }))]
    );
    assert_eq!(result_kinds(&run), [Is::Ok]);
}

#[tokio::test]
async fn vector_ta08_approval_comes_first_and_carries_no_input() {
    let bed = picking(&[("pick_date", "{}"), ("drop", "{}")]).await;
    let first = bed.waiting().await;
    assert_state(&first.run, RunState::WaitingForApproval);
    let second = waiting(bed.approve(&first).await);
    assert_state(&second.run, RunState::WaitingForInput);
    assert_eq!(lines(&bed.ledger), [], "the approved write waits for the input");
    completed(bed.decide(&second, answer(&second, &json!({ "date": "2027-01-01" })), &bob()).await);
    assert_eq!(bed.ledger.names(), ["pick_date", "drop"]);
}

#[tokio::test]
async fn rule_r9_an_input_may_be_declined_and_its_siblings_run() {
    let bed = picking(&[("pick_date", "{}"), ("get", "{}")]).await;
    let waiting = bed.waiting().await;
    let run = completed(
        bed.decide(&waiting, Decision::deny(waiting.digest, Some("no idea".to_owned())), &bob()).await,
    );
    assert_eq!((result_kinds(&run), bed.ledger.names()), (vec![Is::Denied, Is::Ok], vec!["get".to_owned()]));
    assert!(bed.witness.last_results()[0].contains("no idea"));
}

#[tokio::test]
async fn vector_ti07_vector_ti08_the_submitter_must_be_able_to_run_every_call_of_the_turn() {
    let script = Witness::script([turn(&[("pick_date", "{}"), ("secrets", "{}")]), text("done")]);
    let bed = Bed::new(script, |ledger| {
        let mut secrets = read("secrets", ledger);
        secrets.spec.requires_admin = true;
        vec![date_input("pick_date", ledger).into(), secrets.into()]
    })
    .await;
    bed.memory.put_principal(&Principal::admin(alice())).await.unwrap();
    let waiting = bed.waiting().await;
    for by in [bob(), robot()] {
        let given = answer(&waiting, &json!({ "date": "2027-01-01" }));
        let error = bed.runtime().decide(&waiting.id, given, &by).await.unwrap_err();
        assert_eq!(error.code(), "approver_not_permitted", "{by}");
    }
    completed(bed.decide(&waiting, answer(&waiting, &json!({ "date": "2027-01-01" })), &alice()).await);
}

#[tokio::test]
async fn vector_ti06_a_tool_that_writes_only_since_the_pause_does_not_run() {
    let mut bed = picking(&[("pick_date", "{}"), ("get", "{}")]).await;
    let waiting = bed.waiting().await;
    bed.runtime()
        .decide(&waiting.id, answer(&waiting, &json!({ "date": "2027-01-01" })), &bob())
        .await
        .unwrap();
    bed.tools[1] = write("get", &bed.ledger).into();
    let run = completed(bed.runtime().drive(waiting.run.id()).await.unwrap());
    assert_eq!(
        (result_kinds(&run), bed.ledger.names()),
        (vec![Is::Ok, Is::Refused], vec!["pick_date".to_owned()])
    );
}

#[test]
fn rule_a3_vector_ta09_vector_ta10_what_cannot_be_registered_is_an_error_at_the_start() {
    let ledger = Ledger::default();
    let refused = |tools: Vec<AnyTool>| Registry::new(tools).unwrap_err();
    let input = |effect| {
        let mut tool = date_input("pick", &ledger);
        tool.spec.effect = effect;
        tool
    };
    for effect in [Effect::Write, Effect::IdempotentWrite] {
        assert!(matches!(refused(vec![input(effect).into()]), RegistryError::NeedsInputAndApproval(_)));
    }
    let asks = crate::kit::asks_by_operator(input(Effect::Read));
    assert!(matches!(refused(vec![asks.into()]), RegistryError::NeedsInputAndApproval(_)));
    let twice = vec![read("get", &ledger).into(), read("get", &ledger).into()];
    assert!(matches!(refused(twice), RegistryError::DuplicateName(_)));
    assert!(matches!(refused(vec![read("a__b", &ledger).into()]), RegistryError::RemoteName(_)));
    let stray = crate::kit::in_group("mcp.crm", read("get", &ledger));
    assert!(matches!(refused(vec![stray.into()]), RegistryError::RemoteGroup { .. }));
    for schema in
        [json!({ "type": "nonsense" }), json!("text"), json!({ "$ref": "https://example.org/schema" })]
    {
        let mut tool = read("get", &ledger);
        tool.spec.parameters = schema;
        assert!(matches!(refused(vec![tool.into()]), RegistryError::BadSchema { .. }));
    }
}

#[tokio::test]
async fn rule_a3_a_remote_tool_that_needs_input_and_approval_cannot_be_registered() {
    let ledger = Ledger::default();
    let mut tool = crate::kit::remote("ask", Effect::Read, countersign::RemoteApproval::Required, &ledger);
    tool.spec.pause = Pause::NeedsInput(json!({ "type": "object" }));
    assert!(matches!(Registry::new([tool.into()]), Err(RegistryError::NeedsInputAndApproval(_))));
}

#[test]
fn rule_g1_any_group_is_open_to_local_tools_but_those_of_remote_servers() {
    let ledger = Ledger::default();
    for group in ["files", "my-package.tools", "mcp", "mcpx", "0"] {
        let tool = crate::kit::in_group(group, read("get", &ledger));
        assert!(Registry::new([tool.into()]).is_ok(), "{group}");
    }
    for group in ["mcp.crm", "mcp.x.y"] {
        let tool = crate::kit::in_group(group, read("get", &ledger));
        assert!(matches!(Registry::new([tool.into()]), Err(RegistryError::RemoteGroup { .. })), "{group}");
    }
}
