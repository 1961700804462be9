//! Callers with nobody to ask (U1 to U3).

use std::sync::Arc;

use countersign::testing::{Behaviour, Ledger, text, turn};
use countersign::{
    AnyTool, Doing, Effect, Event, Mode, Progress, Refusal, RemoteApproval, ResultKind as Is, RunError,
    ToolName, ToolPolicy, UnattendedError, UnattendedFilter,
};

use tokio_util::sync::CancellationToken;

use crate::kit::{
    Bed, Witness, alice, completed, date_input, free_write, lines, read, refusals, remote, request,
    request_for, result_kinds, write,
};

fn tools(ledger: &Ledger) -> Vec<AnyTool> {
    vec![
        write("page_drop", ledger).into(),
        read("clock_now", ledger).into(),
        date_input("pick_date", ledger).into(),
        remote("lookup", Effect::Read, RemoteApproval::Undeclared, ledger).into(),
        remote("purge", Effect::Write, RemoteApproval::Required, ledger).into(),
        read("page_get", ledger).into(),
    ]
}

struct StopsAtTheFirstReply(CancellationToken);

impl Progress for StopsAtTheFirstReply {
    fn happened(&self, event: &Event) {
        if matches!(event, Event::ModelReplied(_)) {
            self.0.cancel();
        }
    }

    fn doing(&self, _doing: Doing<'_>) {}
}

fn names(names: &[&str]) -> Vec<ToolName> {
    names.iter().map(|name| ToolName::parse(name).unwrap()).collect()
}

#[tokio::test]
async fn case_c43_the_filter_keeps_what_needs_nobody_in_order() {
    let bed = Bed::new(Witness::script([]), tools).await;
    let filter = bed.runtime().unattended_filter();
    let all = ["page_drop", "clock_now", "no_such", "pick_date", "crm__lookup", "crm__purge", "page_get"];
    assert_eq!(filter.unattended(&names(&all)), names(&["clock_now", "crm__lookup", "page_get"]));
    assert_eq!(filter.unattended(&names(&["page_get", "page_get"])), names(&["page_get", "page_get"]));
    assert_eq!(filter.unattended(&[]), []);
    bed.tool_switch("page_get", Some(false)).await;
    assert_eq!(
        filter.unattended(&names(&["page_get"])),
        names(&["page_get"]),
        "rule U1: enablement is not asked"
    );
    let policy = bed.runtime().policy(&crate::kit::agent_name(), &alice()).await.unwrap();
    assert_eq!(filter.unattended(&policy.offerable(None)), names(&["clock_now", "crm__lookup"]));
}

#[tokio::test]
async fn case_c43_an_unattended_run_never_waits_and_never_runs_what_needs_a_person() {
    let calls = [("page_drop", "{}"), ("pick_date", "{}"), ("crm__purge", "{}"), ("page_get", "{}")];
    let bed = Bed::new(Witness::script([turn(&calls), text("done")]), tools).await;
    let finished = bed.runtime().unattended().run(request()).await.unwrap();
    assert_eq!(bed.witness.seen()[0].offered_names(), ["clock_now", "crm__lookup", "page_get"]);
    assert_eq!(bed.ledger.names(), ["page_get"], "a sibling is not hurt");
    let needs = Some(Refusal::NeedsPerson);
    assert_eq!(refusals(&finished.run), [needs, needs, needs, None]);
    assert_eq!((finished.run.pendings().count(), finished.output()), (0, Some("done")));
    assert!(bed.witness.last_results()[0].contains("not available here"));
    assert_eq!(bed.denials(finished.run.id()).await.len(), 3);
}

#[tokio::test]
async fn vector_tu04_nothing_in_nothing_offered() {
    let bed = Bed::new(Witness::script([text("done")]), tools).await;
    let finished = bed.runtime().unattended().run(request_for(&["page_drop", "pick_date"])).await.unwrap();
    assert_eq!(bed.witness.seen()[0].offered, []);
    crate::kit::completed_run(&finished.run);
}

#[tokio::test]
async fn rule_u3_a_rule_that_changed_meanwhile_refuses_at_dispatch() {
    // The first process offers the read and stops before it judges; the next knows it as approval-bound.
    let mut bed = Bed::new(Witness::script([turn(&[("page_get", "{}")]), text("done")]), tools).await;
    let runtime = bed.runtime();
    let run = runtime.start(request(), Mode::Unattended).await.unwrap();
    let stop = CancellationToken::new();
    let stopping = Arc::new(StopsAtTheFirstReply(stop.clone()));
    assert!(matches!(runtime.drive_watched(&run, stopping, stop).await, Err(RunError::Stopped(_))));
    assert_eq!(bed.kinds(&run).await.last(), Some(&"model.replied"));

    bed.tools[5] = crate::kit::asks_by_operator(read("page_get", &bed.ledger)).into();
    let run = completed(bed.runtime().drive(&run).await.unwrap());
    assert_eq!(bed.witness.seen().len(), 2);
    assert_eq!((lines(&bed.ledger), refusals(&run)), (vec![], vec![Some(Refusal::NeedsPerson)]));
    assert!(!bed.witness.seen()[1].offered_names().contains(&"page_get"));
}

#[tokio::test]
async fn rule_u3_an_unknown_outcome_is_an_error_of_its_own() {
    let script = Witness::script([turn(&[("page_get", "{}"), ("crm__purge", "{}")]), text("done")]);
    let bed = Bed::new(script, |ledger| {
        vec![read("page_get", ledger).into(), free_write("purge", ledger).that(Behaviour::NoAnswer).into()]
    })
    .await;
    let Err(UnattendedError::OutcomeUnknown(finished)) = bed.runtime().unattended().run(request()).await
    else {
        panic!("an unknown outcome must not pass for an end");
    };
    assert_eq!((result_kinds(&finished.run), finished.run.pendings().count()), (vec![Is::Ok], 0));
}
