//! The gate has the last word, right before a call starts, whatever was approved.

use countersign::testing::{text, turn};
use countersign::{Decision, Principal, Refusal, ResultKind as Is, Store, ToolRequest};

use crate::kit::{
    Bed, Witness, alice, bob, completed, free_write, in_group, lines, read, refusals, request_for,
    result_kinds, root, waiting, write,
};

async fn approved_drop() -> Bed {
    let script = Witness::script([turn(&[("get", "{}"), ("drop", "{}")]), text("done")]);
    Bed::new(script, |ledger| {
        vec![in_group("content", read("get", ledger)).into(), in_group("pages", write("drop", ledger)).into()]
    })
    .await
}

#[tokio::test]
async fn case_c14_a_tool_switched_off_while_the_question_was_open_does_not_run() {
    let bed = approved_drop().await;
    let waiting = bed.waiting().await;
    bed.tool_switch("drop", Some(false)).await;
    let run = completed(bed.approve(&waiting).await);
    assert_eq!(bed.ledger.names(), ["get"], "its sibling is not hurt");
    assert_eq!(refusals(&run), [None, Some(Refusal::ToolDisabled)]);
    assert!(
        bed.denials(run.id()).await.contains(&("drop".to_owned(), Refusal::ToolDisabled)),
        "the inbox can say why"
    );
    assert_eq!(bed.witness.last_results()[1], "Not run: the tool \"drop\" is not available here.");
    assert_eq!(run.pendings().next().unwrap().status.as_str(), "approved", "the decision stays on record");

    bed.tool_switch("drop", Some(true)).await;
    bed.runtime().drive(run.id()).await.unwrap();
    assert_eq!(bed.ledger.names(), ["get"], "switching it on again revives nothing");
}

#[tokio::test]
async fn vector_tr14_case_c14_a_group_switched_off_meanwhile_does_not_run_either() {
    let bed = approved_drop().await;
    let waiting = bed.waiting().await;
    bed.group_switch("pages", Some(false)).await;
    let run = completed(bed.approve(&waiting).await);
    assert_eq!((bed.ledger.names(), result_kinds(&run)), (vec!["get".to_owned()], vec![Is::Ok, Is::Refused]));
}

#[tokio::test]
async fn case_c14_a_right_the_owner_lost_meanwhile_is_lost() {
    let script = Witness::script([turn(&[("reboot", "{}")]), text("done")]);
    let bed = Bed::new(script, |ledger| {
        let mut reboot = write("reboot", ledger);
        reboot.spec.requires_admin = true;
        vec![reboot.into()]
    })
    .await;
    let admin = |admin| Principal { admin, ..Principal::user(alice()) };
    bed.memory.put_principal(&admin(true)).await.unwrap();
    let waiting = bed.waiting().await;
    bed.memory.put_principal(&admin(false)).await.unwrap();
    let run = completed(bed.decide(&waiting, Decision::approve(waiting.digest), &root()).await);
    assert_eq!((lines(&bed.ledger), refusals(&run)), (vec![], vec![Some(Refusal::RequiresAdmin)]));
}

#[tokio::test]
async fn rule_g9_the_switches_of_a_write_are_read_in_the_transaction_that_starts_it() {
    let mut bed = approved_drop().await;
    let between = bed.between();
    let waiting = bed.waiting().await;
    let later = bed.clone();
    // After the decision: the read starts, and what it came to is stored with the start of the write.
    between.before_append(2, move || async move { later.tool_switch("drop", Some(false)).await });
    let run = completed(bed.approve(&waiting).await);
    assert_eq!(
        (bed.ledger.names(), refusals(&run)),
        (vec!["get".to_owned()], vec![None, Some(Refusal::ToolDisabled)])
    );
}

#[tokio::test]
async fn rule_g9_each_dispatch_looks_anew() {
    // The first write needs nobody and is in flight while the second is switched off.
    let script = Witness::script([turn(&[("crm__first", "{}"), ("crm__second", "{}")]), text("done")]);
    let mut gate = None;
    let bed = Bed::new(script, |ledger| {
        let (first, open) = crate::kit::gated(free_write("first", ledger));
        gate = Some(open);
        vec![first.into(), free_write("second", ledger).into()]
    })
    .await;
    let run = bed.runtime().start(crate::kit::request(), countersign::Mode::Attended).await.unwrap();
    let driving = bed.drive_apart(&run);
    crate::kit::settle().await;
    bed.group_switch("mcp.crm", Some(false)).await;
    gate.unwrap().send_replace(true);
    let run = completed(driving.await.unwrap().unwrap());
    assert_eq!(
        (bed.ledger.names(), result_kinds(&run)),
        (vec!["crm__first".to_owned()], vec![Is::Ok, Is::Refused])
    );
}

#[tokio::test]
async fn rule_p6_a_tool_too_sensitive_for_the_model_is_neither_offered_nor_run() {
    let script = Witness::script([turn(&[("peek", "{}")]), text("done")]);
    let mut bed = Bed::new(script, |ledger| {
        let mut peek = read("peek", ledger);
        peek.spec.data_class = countersign::DataClass::SecretAdjacent;
        vec![peek.into()]
    })
    .await;
    let provider = countersign::Provider {
        zone: countersign::Zone::ExternalGlobal,
        client: std::sync::Arc::new(bed.witness.clone()),
    };
    bed.models =
        countersign::Models::default().with(countersign::ProviderName::parse("p").unwrap(), provider);
    let run = completed(bed.run().await);
    assert_eq!(bed.witness.seen()[0].offered, []);
    assert_eq!((lines(&bed.ledger), refusals(&run)), (vec![], vec![Some(Refusal::TrustZone)]));
}

#[tokio::test]
async fn case_c41_a_name_that_was_not_offered() {
    let script =
        Witness::script([turn(&[("page_get", r#"{"id":1}"#)]), turn(&[("weather", "{}")]), text("ok")]);
    let bed = Bed::new(script, |ledger| {
        vec![
            in_group("content", read("page_get", ledger)).into(),
            in_group("system", read("clock_now", ledger)).into(),
            in_group("content", read("page_list", ledger)).into(),
        ]
    })
    .await;
    bed.group_switch("content", Some(false)).await;
    bed.tool_switch("page_get", Some(true)).await;
    let run = completed(bed.runtime().run(request_for(&["page_get", "clock_now"])).await.unwrap());
    assert_eq!(
        bed.witness.seen()[0].offered_names(),
        ["clock_now"],
        "a tool's switch does not re-open its group"
    );
    assert_eq!(lines(&bed.ledger), []);
    assert_eq!(refusals(&run), [Some(Refusal::ToolDisabled), Some(Refusal::UnknownTool)]);
    let told = bed.witness.last_results();
    assert_eq!(
        told,
        [
            "Not run: the tool \"page_get\" is not available here.",
            "Not run: the tool \"weather\" is not available here."
        ]
    );
}

#[tokio::test]
async fn rule_g10_a_name_that_is_nearly_right_is_unknown() {
    let names = ["Page_get", "page_get ", "page_gеt", "page_get\u{200b}", "page.get", "", "ｐage_get"];
    let calls: Vec<(&str, &str)> = names.iter().map(|name| (*name, "{}")).collect();
    let bed =
        Bed::new(Witness::script([turn(&calls), text("ok")]), |ledger| vec![read("page_get", ledger).into()])
            .await;
    let run = completed(bed.run().await);
    assert_eq!(lines(&bed.ledger), []);
    assert_eq!(refusals(&run), vec![Some(Refusal::UnknownTool); names.len()]);
}

#[tokio::test]
async fn vector_tl03_a_write_that_was_not_offered_pauses_nothing() {
    let script = Witness::script([turn(&[("drop", "{}"), ("get", "{}")]), text("ok")]);
    let bed = Bed::new(script, |ledger| vec![write("drop", ledger).into(), read("get", ledger).into()]).await;
    let run = completed(bed.runtime().run(request_for(&["get"])).await.unwrap());
    assert_eq!(run.pendings().count(), 0);
    assert_eq!(
        (bed.ledger.names(), refusals(&run)),
        (vec!["get".to_owned()], vec![Some(Refusal::NotOffered), None])
    );
}

#[tokio::test]
async fn what_the_gates_close_is_on_record_from_the_start() {
    let bed = Bed::new(Witness::script([text("ok")]), |ledger| {
        let mut admin = read("admin_only", ledger);
        admin.spec.requires_admin = true;
        vec![read("off", ledger).into(), admin.into(), read("get", ledger).into()]
    })
    .await;
    bed.tool_switch("off", Some(false)).await;
    let requested =
        completed(bed.runtime().run(request_for(&["ghost", "off", "admin_only", "get"])).await.unwrap());
    let closed = |name: &str, reason| (name.to_owned(), reason);
    assert_eq!(
        bed.denials(requested.id()).await,
        [
            closed("ghost", Refusal::UnknownTool),
            closed("off", Refusal::ToolDisabled),
            closed("admin_only", Refusal::RequiresAdmin),
        ]
    );
    // Without a list only the enabled ones are looked at.
    let all = completed(bed.run().await);
    assert_eq!(all.created().tools, ToolRequest::AllEnabled);
    assert_eq!(bed.denials(all.id()).await, [closed("admin_only", Refusal::RequiresAdmin)]);
}

#[tokio::test]
async fn rule_a12_a_definition_that_changed_meanwhile_is_not_what_was_approved() {
    let mut bed = approved_drop().await;
    let waiting = bed.waiting().await;
    // Approved by a process that knows the old definition, dispatched by one that knows another.
    bed.runtime().decide(&waiting.id, Decision::approve(waiting.digest), &bob()).await.unwrap();
    let mut changed = write("drop", &bed.ledger);
    changed.spec.parameters =
        serde_json::json!({ "type": "object", "properties": { "force": { "type": "boolean" } } });
    bed.tools[1] = in_group("pages", changed).into();
    let run = completed(bed.runtime().drive(waiting.run.id()).await.unwrap());
    assert_eq!(
        (bed.ledger.names(), refusals(&run)),
        (vec!["get".to_owned()], vec![None, Some(Refusal::DefinitionChanged)])
    );
}

#[tokio::test]
async fn a_tool_that_gained_a_write_effect_meanwhile_is_not_run_on_an_old_release() {
    // The turn needed approval for `drop` only; `get` writes now, and nobody approved that.
    let mut bed = approved_drop().await;
    let waiting = bed.waiting().await;
    bed.runtime().decide(&waiting.id, Decision::approve(waiting.digest), &bob()).await.unwrap();
    bed.tools[0] = in_group("content", crate::kit::asks_by_operator(read("get", &bed.ledger))).into();
    let run = completed(bed.runtime().drive(waiting.run.id()).await.unwrap());
    assert_eq!(
        (bed.ledger.names(), refusals(&run)),
        (vec!["drop".to_owned()], vec![Some(Refusal::NeedsPerson), None])
    );
}

#[tokio::test]
async fn what_a_gate_closes_beside_a_call_that_waits_is_on_record_as_well() {
    let calls = [("ghost", "{}"), ("drop", "{}"), ("get", "{}")];
    let bed = Bed::new(Witness::script([turn(&calls), text("done")]), |ledger| {
        vec![read("get", ledger).into(), write("drop", ledger).into()]
    })
    .await;
    let waiting = waiting(bed.runtime().run(request_for(&["drop"])).await.unwrap());
    assert_eq!(bed.denials(waiting.run.id()).await, []);
    let run = completed(bed.approve(&waiting).await);
    let closed = |name: &str, reason| (name.to_owned(), reason);
    assert_eq!(
        bed.denials(run.id()).await,
        [closed("ghost", Refusal::UnknownTool), closed("get", Refusal::NotOffered)]
    );
    assert_eq!(result_kinds(&run), [Is::Refused, Is::Ok, Is::Refused]);
    assert!(bed.witness.last_results()[2].contains("not available here"));
}
