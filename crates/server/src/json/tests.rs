use std::collections::BTreeMap;
use std::sync::Arc;

use countersign::{
    Attribution, CallFinished, CallId, CallResult, CallStarted, CallUnknown, CallVerdict, Closing,
    ContextFitted, Created, DataClass, Detail, Digest, Effect, EnableState, FailCode, Finish, Form,
    GateDenied, HeldFacts, Limit, LimitReached, ModelFailCode, ModelFailed, ModelReplied, Opaque,
    OperatorWord, Pending, PendingClosed, PendingDecided, PendingId, PendingRefused, PendingStatus, Preview,
    ProposedCall, Refusal, Reply, ResultKind, RunCancelled, RunCompleted, RunFailed, RunId, RunLimits,
    ToolRequest, Usage, VerdictWord, Zone,
};

use super::*;

const VIEW: View = View { admin: true, listed: false };

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn created() -> Created {
    Created {
        agent: "default".parse().unwrap(),
        owner: "alice".parse().unwrap(),
        starter: "alice".parse().unwrap(),
        unattended: false,
        tools: ToolRequest::Only(vec!["page_drop".into()]),
        models: vec![countersign::ModelRef::parse("stub/scripted").unwrap()],
        system_prompt: None,
        input: Vec::new(),
        limits: RunLimits::iterations(20),
        approval_ttl_s: None,
        second_approver: false,
        continues: None,
        skills: Vec::new(),
        trace: None,
    }
}

fn call() -> CallId {
    "call_1".parse().unwrap()
}

fn replied() -> Event {
    let reply = Reply {
        provider: "stub".parse().unwrap(),
        model: "scripted".into(),
        text: None,
        calls: vec![ProposedCall {
            id: call(),
            wire_id: None,
            name: "page_drop".into(),
            arguments: Some("{\"id\":7}".into()),
            opaque: Opaque::default(),
        }],
        finish: Finish::Stop,
        usage: Usage { input_tokens: 100, output_tokens: 10, cached_input_tokens: 40, unknown_calls: 0 },
        attempts: 1,
        opaque: Opaque::default(),
    };
    Event::ModelReplied(Box::new(ModelReplied { reply: reply.into(), closing: false }))
}

fn definition() -> Digest {
    Digest::parse(&format!("sha256:{}", "a".repeat(64))).unwrap()
}

fn question(requires_admin: bool, arguments: &str) -> Pending {
    Pending {
        id: "pnd_1".parse().unwrap(),
        turn: 1,
        question: Question::Approval,
        calls: vec![HeldCall {
            id: call(),
            tool: "page_drop".into(),
            facts: Some(HeldFacts {
                group: "content".parse().unwrap(),
                origin: Origin::Http,
                effect: Effect::Write,
                requires_admin,
                definition: definition(),
            }),
            arguments: Some(Arguments::read(Some(arguments)).unwrap()),
            original_arguments: None,
            outlook: countersign::Outlook::NeedsApproval(Because::Writes),
            preview: Some(Preview::of(["drops page 7".to_owned()], None)),
        }],
        expires_at: Deadline::At(at(60)),
        editors: Vec::new(),
        replaces: None,
        trace: None,
    }
}

fn waiting(pending: Pending) -> Run {
    let (run, _) = Run::create("run_1".parse::<RunId>().unwrap(), created(), vec![replied()], at(0)).unwrap();
    run.record(vec![Event::PendingOpened(Box::new(pending))], at(1)).unwrap().0
}

#[test]
fn a_waiting_run_has_every_key_of_the_contract() {
    let waiting = waiting(question(false, "{\"id\":7}"));
    let digest = waiting.open_pending().unwrap().pending.digest(waiting.id());
    assert_eq!(
        run(&waiting, false, VIEW),
        json!({
            "id": "run_1", "status": "waiting_for_approval", "agent": "default", "owner": "alice", "unattended": false, "continues": null,
            "iterations": 1,
            "usage": { "input_tokens": 100, "output_tokens": 10, "cached_input_tokens": 40, "unknown_calls": 0 },
            "output": null, "truncated": false, "stop_reason": null, "error": null,
            "pending": {
                "id": "pnd_1", "run": "run_1", "kind": "approval", "status": "open", "digest": digest,
                "created_at": "2027-01-15T08:00:01Z", "expires_at": "2027-01-15T08:01:00Z",
                "calls": [{
                    "id": "call_1", "tool": "page_drop", "remote_name": null, "group": "content", "origin": "http",
                    "server": null, "effect": "write", "arguments": { "id": 7 }, "original_arguments": null,
                    "needs_approval": true, "because": "writes", "will_run": true, "refusal": null,
                    "preview": { "lines": ["drops page 7"], "failed": false },
                }],
                "input": null, "resolution": null, "edited_by": null, "decision": null,
            },
            "created_at": "2027-01-15T08:00:00Z", "updated_at": "2027-01-15T08:00:01Z", "finished_at": null,
        })
    );
}

#[test]
fn rule_l10_an_end_by_a_limit_says_so() {
    let Event::ModelReplied(mut cut_off) = replied() else { panic!("it is a reply") };
    let reply = Arc::make_mut(&mut cut_off.reply);
    reply.calls.clear();
    reply.text = Some("Half a sen".into());
    reply.finish = Finish::Length;
    let first = vec![Event::ModelReplied(cut_off)];
    let (mut limited, _) = Run::create("run_1".parse().unwrap(), created(), first, at(0)).unwrap();
    while let countersign::Step::Record(events) = limited.next() {
        limited = limited.record(events, at(2)).unwrap().0;
    }
    let shown = run(&limited, false, VIEW);
    assert_eq!(shown["status"], "completed");
    assert_eq!(shown["output"], "Half a sen");
    assert_eq!(shown["truncated"], true);
    assert_eq!(shown["stop_reason"], "cut_off");
    assert_eq!(shown["error"], json!({ "code": "cut_off", "detail": Limit::CutOff.sentence() }));
    assert_eq!(shown["finished_at"], "2027-01-15T08:00:02Z");
}

#[test]
fn a_failed_run_and_a_cancelled_one_say_why() {
    let fresh = || Run::create("run_1".parse().unwrap(), created(), Vec::new(), at(0)).unwrap().0;
    let failed = FailCode::Model(ModelFailCode::RateLimited);
    let events = vec![
        Event::ModelFailed(ModelFailed {
            model: countersign::ModelRef::parse("stub/scripted").unwrap(),
            code: ModelFailCode::RateLimited,
            status: Some(503),
            attempts: 5,
            usage: Usage { unknown_calls: 5, ..Usage::default() },
        }),
        Event::RunFailed(RunFailed { code: failed }),
    ];
    let shown = run(&fresh().record(events, at(2)).unwrap().0, false, VIEW);
    assert_eq!((&shown["status"], &shown["stop_reason"]), (&json!("failed"), &json!("error")));
    assert_eq!(shown["error"], json!({ "code": "rate_limited", "detail": failed.sentence() }));
    assert_eq!(shown["usage"]["unknown_calls"], 5);
    let cancelled = fresh();
    let events = cancelled.cancellation(&"bob".parse().unwrap(), at(1)).unwrap();
    let shown = run(&cancelled.record(events, at(1)).unwrap().0, false, VIEW);
    assert_eq!((&shown["status"], &shown["stop_reason"]), (&json!("cancelled"), &json!("cancelled")));
}

#[test]
fn rule_a7_a_preview_is_withheld_from_whom_p3_refuses() {
    let waiting = waiting(question(true, "{\"id\":7}"));
    let record = waiting.open_pending().unwrap();
    let lines = |view| {
        pending(record, &waiting, view)["calls"][0]["preview"]["lines"][0].as_str().unwrap().to_owned()
    };
    assert_eq!(lines(VIEW), "drops page 7");
    assert!(lines(View { admin: false, ..VIEW }).starts_with("withheld"));
}

#[test]
fn in_lists_long_arguments_are_left_out_and_counted() {
    let long = format!("{{\"text\":\"{}\"}}", "x".repeat(9_000));
    let waiting = waiting(question(false, &long));
    let record = waiting.open_pending().unwrap();
    let listed = pending(record, &waiting, View { listed: true, ..VIEW });
    assert_eq!(listed["calls"][0]["arguments"], Value::Null);
    assert_eq!(listed["calls"][0]["arguments_bytes"], long.len());
    assert_eq!(
        pending(record, &waiting, VIEW)["calls"][0]["arguments"]["text"].as_str().unwrap().len(),
        9_000
    );
}

#[test]
fn a_decision_is_shown_with_who_and_when() {
    let decided = Decided {
        by: "bob".parse().unwrap(),
        verdict: VerdictWord::Approve,
        form: Form::Turn,
        calls: BTreeMap::from([(call(), CallVerdict::Approve)]),
        reason: None,
        attribution: Attribution::SecondPerson,
        answer: None,
        result: None,
    };
    let event =
        Event::PendingDecided(Box::new(PendingDecided { pending: "pnd_1".parse().unwrap(), decided }));
    let (settled, _) = waiting(question(false, "{\"id\":7}")).record(vec![event], at(2)).unwrap();
    let record = settled.pending(&PendingId::parse("pnd_1").unwrap()).unwrap();
    assert_eq!(record.status, PendingStatus::Approved);
    assert_eq!(
        pending(record, &settled, VIEW)["decision"],
        json!({
            "by": "bob", "at": "2027-01-15T08:00:02Z", "verdict": "approve", "calls": { "call_1": "approve" },
            "reason": null, "attribution": "second_person",
        })
    );
    assert_eq!(run(&settled, true, VIEW)["status"], "running");
    assert_eq!(run(&settled, false, VIEW)["status"], "queued");
}

fn spec() -> ToolSpec {
    ToolSpec {
        name: "page_drop".parse().unwrap(),
        description: "Delete a page".into(),
        group: "content".parse().unwrap(),
        origin: Origin::Http,
        effect: Effect::Write,
        data_class: DataClass::EditorContent,
        enabled_by_default: true,
        requires_admin: false,
        pause: Pause::Runs,
        operator: OperatorWord::Silent,
        parameters: json!({ "type": "object" }),
    }
}

#[test]
fn rule_g4_a_tool_shows_all_five_states() {
    let switches = Switches::default().with_group("content", Switch::Off);
    assert_eq!(
        tool(&spec(), &switches),
        json!({
            "name": "page_drop", "description": "Delete a page", "group": "content", "origin": "http", "server": null,
            "remote_name": null, "effect": "write", "data_class": "editor_content", "requires_admin": false,
            "parameters": { "type": "object" },
            "enabled": { "effective": false, "tool": true, "group": false, "default": true, "overridden": false },
            "approval": { "required": true, "because": "writes", "declared": true },
            "unattended": false, "suspends": "always", "orphaned": false,
        })
    );
    let reads = ToolSpec { effect: Effect::Read, ..spec() };
    assert_eq!(tool(&reads, &switches)["suspends"], "never");
    let remote = |approval| ToolSpec {
        origin: Origin::Mcp { server: "crm".parse().unwrap(), remote_name: "purge".into(), approval },
        ..spec()
    };
    let undeclared = tool(&remote(RemoteApproval::Undeclared), &switches);
    assert_eq!(
        (&undeclared["suspends"], &undeclared["approval"]["declared"]),
        (&json!("may"), &json!(false))
    );
    assert_eq!(tool(&remote(RemoteApproval::Required), &switches)["approval"]["because"], "operator");
    let state = EnableState { effective: true, tool: true, group: true, default: true, overridden: false };
    assert_eq!(enabled(state), tool(&reads, &Switches::default())["enabled"]);
}

#[test]
fn a_verdict_has_every_key_of_the_contract() {
    let observed = Verdict {
        tool: "page_drop".into(),
        word: Word::ObservedTrustZone,
        data_class: DataClass::SourceCode,
        zone: Zone::ExternalGlobal,
        ceiling: DataClass::EditorContent,
    };
    assert_eq!(
        verdict(&observed, Some(&spec())),
        json!({
            "tool": "page_drop", "allowed": true, "reason": "trust_zone", "observed_only": true,
            "data_class": "source_code", "zone": "external_global", "ceiling": "editor_content",
            "approval": { "required": true, "because": "writes" }, "unattended": false,
        })
    );
    let unknown = Verdict { word: Word::Deny(countersign::Gate::NotRegistered), ..observed };
    assert_eq!(verdict(&unknown, None)["reason"], "not_registered");
    assert_eq!(verdict(&unknown, None)["approval"]["because"], Value::Null);
}

#[test]
fn groups_say_their_state() {
    assert_eq!(
        group("content", Some(Switch::Off), &["page_drop"]),
        json!({ "name": "content", "enabled": false, "overridden": true, "tools": ["page_drop"], "orphaned": false })
    );
    assert_eq!(group("content", None, &["page_drop"])["enabled"], true);
    assert_eq!(orphaned_tool("gone", Some(Switch::Off))["orphaned"], true);
}

#[test]
fn events_carry_the_fields_of_the_contract() {
    let pending_id: PendingId = "pnd_1".parse().unwrap();
    let cases = [
        (
            Event::RunCreated(Box::new(created())),
            json!({ "agent": "default", "owner": "alice", "on_behalf_of": null, "unattended": false, "tools": ["page_drop"],
                    "limits": { "iterations_max": 20 } }),
        ),
        (
            Event::GateDenied(GateDenied {
                tool: "x".into(),
                reason: Refusal::UnknownTool,
                observed_only: false,
            }),
            json!({ "tool": "x", "reason": "not_registered", "observed_only": false }),
        ),
        (
            replied(),
            json!({ "iteration": 1, "provider": "stub", "model": "scripted", "calls": ["call_1"], "finish": "stop", "attempts": 1 }),
        ),
        (
            Event::PendingOpened(Box::new(question(false, "{}"))),
            json!({ "pending": "pnd_1", "kind": "approval", "calls": ["call_1"] }),
        ),
        (
            Event::PendingRefused(PendingRefused {
                pending: pending_id.clone(),
                by: "eve".parse().unwrap(),
                code: "stale_digest".into(),
            }),
            json!({ "pending": "pnd_1", "by": "eve", "code": "stale_digest" }),
        ),
        (
            Event::PendingClosed(PendingClosed { pending: pending_id, status: Closing::Expired, by: None }),
            json!({ "pending": "pnd_1", "status": "expired", "by": null, "code": "expired" }),
        ),
        (
            Event::CallStarted(CallStarted {
                call: call(),
                tool: "page_drop".into(),
                effect: Effect::Write,
                clearance: Clearance::NotNeeded,
                attempt: 1,
                interruption: 0,
                deadline: at(9),
            }),
            json!({ "call": "call_1", "tool": "page_drop", "effect": "write" }),
        ),
        (
            Event::CallFinished(Box::new(CallFinished::new(
                call(),
                "page_drop".into(),
                CallResult::from_tool(ResultKind::Ok, "done", Vec::new(), 12),
            ))),
            json!({ "call": "call_1", "tool": "page_drop", "result": "ok", "refusal": null, "bytes": 4, "duration_ms": 12, "detail": null }),
        ),
        (
            Event::CallUnknown(CallUnknown {
                call: call(),
                tool: "page_drop".into(),
                detail: Some(Detail::new("status 502")),
            }),
            json!({ "call": "call_1", "tool": "page_drop", "detail": "status 502" }),
        ),
        (
            Event::LimitReached(LimitReached::of(Limit::MaxIterations)),
            json!({ "which": "max_iterations", "estimated_tokens": null }),
        ),
        (
            Event::LimitReached(LimitReached { which: Limit::ContextExhausted, estimated_tokens: Some(900) }),
            json!({ "which": "context_exhausted", "estimated_tokens": 900 }),
        ),
        (Event::WorkBegan(WorkBegan {}), json!({})),
        (
            Event::ContextFitted(ContextFitted {
                left_out: 2,
                kept: 5,
                first_turn: Some(2),
                estimated_tokens: 800,
                window_tokens: 1000,
            }),
            json!({ "left_out": 2, "kept": 5, "first_turn": 2, "estimated_tokens": 800, "window_tokens": 1000 }),
        ),
        (
            Event::RunCompleted(RunCompleted { limit: Some(Limit::WorkingTime) }),
            json!({ "stop_reason": "budget_exhausted", "truncated": true, "code": "budget_exhausted", "by": null }),
        ),
        (
            Event::RunCompleted(RunCompleted { limit: None }),
            json!({ "stop_reason": "answer", "truncated": false, "code": null, "by": null }),
        ),
        (
            Event::RunFailed(RunFailed { code: FailCode::Poisoned }),
            json!({ "stop_reason": "error", "truncated": false, "code": "poisoned", "by": null }),
        ),
        (
            Event::RunCancelled(RunCancelled { by: "bob".parse().unwrap() }),
            json!({ "stop_reason": "cancelled", "truncated": false, "code": null, "by": "bob" }),
        ),
    ];
    for (event, expected) in cases {
        let shown = data(&event, 1);
        for (key, value) in expected.as_object().unwrap() {
            assert_eq!(&shown[key], value, "{} {key}", event.kind());
            assert!(shown.get(key).is_some(), "{} {key}", event.kind());
        }
    }
    let entry = Entry { seq: 3, at: at(0), event: replied() };
    let shown = events(&[entry]).remove(0);
    assert_eq!(
        (&shown["seq"], &shown["at"], &shown["kind"]),
        (&json!(3), &json!("2027-01-15T08:00:00Z"), &json!("model.replied"))
    );
    assert_eq!(shown["data"]["iteration"], 1);
}
