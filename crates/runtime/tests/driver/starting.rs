//! How a run begins: what it is refused for, and what it is offered from the start.

use countersign::testing::{text, turn};
use countersign::{
    AgentName, DataClass, Decision, Enforcement, Event, GroupName, GroupSetting, Mode, ModelRef, Models,
    Provider, ProviderName, Refusal, ResultKind as Is, RunRequest, SkillInForce, StartError, Zone,
};

use crate::kit::{
    Bed, Between, Cut, Witness, agent_name, alice, bob, completed, in_group, model_ref, read, refusals,
    request, result_kinds, robot, waiting, write,
};

#[tokio::test]
async fn what_cannot_begin_leaves_nothing_behind() {
    let bed = Bed::new(Witness::script([]), |_| Vec::new()).await;
    let runtime = bed.runtime();
    let start = async |request| runtime.start(request, Mode::Attended).await.unwrap_err();
    let other = RunRequest { agent: AgentName::parse("other").unwrap(), ..request() };
    assert!(matches!(start(other).await, StartError::UnknownAgent(_)));
    let model = RunRequest { model: Some(model_ref("ghost")), ..request() };
    assert!(matches!(start(model).await, StartError::UnknownModel(_)));
    let mut blank = request();
    blank.input[0].text = " \n".to_owned();
    assert!(matches!(start(blank).await, StartError::EmptyInput));
    assert!(matches!(start(RunRequest { input: Vec::new(), ..request() }).await, StartError::EmptyInput));
    let page =
        countersign::Store::runs(&*bed.memory, &countersign::RunFilter::default(), bed.now(), 10, None)
            .await
            .unwrap();
    assert_eq!(page.items, []);
}

#[tokio::test]
async fn a_run_that_could_not_be_stored_never_asks_a_model() {
    let mut bed = Bed::new(Witness::script([]), |_| Vec::new()).await;
    let memory = std::sync::Arc::clone(&bed.memory) as std::sync::Arc<dyn countersign::Store>;
    bed.store = std::sync::Arc::new(Between::cutting(memory, Cut::Before(0)));
    bed.runtime().run(request()).await.unwrap_err();
    assert_eq!(bed.witness.seen().len(), 0);
}

#[tokio::test]
async fn a_model_of_the_request_stands_alone() {
    let mut bed = Bed::new(Witness::script([]), |_| Vec::new()).await;
    let second = Witness::script([text("from the second")]);
    bed.models = bed.models.clone().with(
        ProviderName::parse("q").unwrap(),
        Provider { zone: Zone::Local, client: std::sync::Arc::new(second.clone()) },
    );
    let model = ModelRef { model: "special".to_owned(), ..model_ref("q") };
    let run =
        completed(bed.runtime().run(RunRequest { model: Some(model.clone()), ..request() }).await.unwrap());
    assert_eq!((run.output(), &run.created().models), (Some("from the second"), &vec![model]));
    assert_eq!((bed.witness.seen().len(), second.seen()[0].model.as_str()), (0, "special"));
}

fn skill(allowed: Option<&[&str]>) -> SkillInForce {
    let allowed_tools = allowed.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
    SkillInForce { name: "editor".to_owned(), allowed_tools, prose_left_out: false }
}

/// The skills of the start, those of the agent at the resume, and whether the held call runs.
#[tokio::test]
async fn rule_r7_the_skills_of_the_start_restrict_a_run_as_much_as_those_of_today() {
    let drop_only = || vec![skill(Some(&["page_drop"]))];
    let get_only = || vec![skill(Some(&["page_get"]))];
    for (started_with, now, runs) in [
        (drop_only(), vec![], true),
        (drop_only(), drop_only(), true),
        (drop_only(), get_only(), false),
        (vec![], get_only(), false),
    ] {
        let script = Witness::script([turn(&[("page_drop", "{}")]), text("done")]);
        let mut bed = Bed::new(script, |ledger| vec![write("page_drop", ledger).into()]).await;
        bed.agent.skills = started_with.clone();
        let held = waiting(bed.run().await);
        assert_eq!(held.run.created().skills, started_with, "they are stored with the run");
        bed.agent.skills = now;
        let run = completed(bed.approve(&held).await);
        assert_eq!(bed.ledger.names().len(), usize::from(runs), "{:?}", refusals(&run));
    }
    // What the start took away does not come back with another configuration.
    let script = Witness::script([turn(&[("page_drop", "{}")]), turn(&[("page_get", "{}")]), text("done")]);
    let tools = |ledger: &countersign::testing::Ledger| {
        vec![write("page_drop", ledger).into(), read("page_get", ledger).into()]
    };
    let mut bed = Bed::new(script, tools).await;
    bed.agent.skills = drop_only();
    let held = waiting(bed.run().await);
    bed.agent.skills = vec![];
    completed(bed.approve(&held).await);
    assert_eq!(bed.ledger.names(), ["page_drop"]);
}

#[tokio::test]
async fn rule_p4_groups_and_skills_of_the_agent_restrict_what_is_offered_and_run() {
    let script = || Witness::script([turn(&[("page_get", "{}"), ("clock_now", "{}")]), text("done")]);
    let tools = |ledger: &countersign::testing::Ledger| {
        vec![
            in_group("content", read("page_get", ledger)).into(),
            in_group("system", read("clock_now", ledger)).into(),
        ]
    };
    let system = GroupSetting::from_list([GroupName::parse("system").unwrap()]);
    let ghost = GroupSetting::from_list([GroupName::parse("ghost").unwrap()]);
    let (clock, nothing, silent) = (skill(Some(&["clock_now"])), skill(Some(&[])), skill(None));
    let open = GroupSetting::Unrestricted;
    for (groups, skills, offered) in [
        (system.clone(), vec![], vec!["clock_now"]),
        (ghost, vec![], vec![]),
        (open.clone(), vec![clock, nothing.clone()], vec!["clock_now"]),
        (open.clone(), vec![silent.clone(), nothing], vec![]),
        (open, vec![silent], vec!["page_get", "clock_now"]),
    ] {
        let mut bed = Bed::new(script(), tools).await;
        bed.agent.groups = groups;
        bed.agent.skills = skills;
        let run = completed(bed.run().await);
        assert_eq!(bed.witness.seen()[0].offered_names(), offered);
        assert_eq!(bed.ledger.names(), offered, "what is not offered does not run");
        assert_eq!(refusals(&run).iter().flatten().count(), 2 - offered.len());
    }
}

#[tokio::test]
async fn rule_p8_an_observed_gate_is_on_record_and_closes_nothing_local() {
    let script = Witness::script([turn(&[("peek", "{}"), ("crm__peek", "{}")]), text("done")]);
    let mut bed = Bed::new(script, |ledger| {
        let mut peek = read("peek", ledger);
        peek.spec.data_class = DataClass::SecretAdjacent;
        let undeclared = countersign::RemoteApproval::Undeclared;
        let mut remote = crate::kit::remote("peek", countersign::Effect::Read, undeclared, ledger);
        remote.spec.data_class = DataClass::SecretAdjacent;
        vec![peek.into(), remote.into()]
    })
    .await;
    bed.enforcement = Enforcement::Observe;
    let global = Provider { zone: Zone::ExternalGlobal, client: std::sync::Arc::new(bed.witness.clone()) };
    bed.models = Models::default().with(ProviderName::parse("p").unwrap(), global);
    let run = completed(bed.run().await);
    assert_eq!(result_kinds(&run), [Is::Ok, Is::Refused], "remote tools are always enforced");
    let observed: Vec<_> = bed
        .events(run.id())
        .await
        .into_iter()
        .filter_map(|event| match event {
            Event::GateDenied(denied) => Some((denied.tool, denied.reason, denied.observed_only)),
            _ => None,
        })
        .collect();
    let zone = Refusal::TrustZone;
    let (local, remote) = ("peek".to_owned(), "crm__peek".to_owned());
    assert_eq!(observed, [(local, zone, true), (remote.clone(), zone, false), (remote, zone, false)]);
}

#[tokio::test]
async fn rule_p7_a_fallback_that_is_trusted_less_counts_for_the_whole_run() {
    let mut bed = Bed::new(Witness::script([turn(&[("peek", "{}")])]), |ledger| {
        let mut peek = read("peek", ledger);
        peek.spec.data_class = DataClass::SourceCode;
        vec![peek.into()]
    })
    .await;
    bed.agent.models = vec![model_ref("p"), model_ref("ghost")];
    let run = completed(bed.run().await);
    assert_eq!((bed.witness.seen()[0].offered.len(), refusals(&run)), (0, vec![Some(Refusal::TrustZone)]));
}

#[tokio::test]
async fn vector_tr11_a_run_that_a_program_started_has_no_known_initiator() {
    let script = Witness::script([turn(&[("drop", "{}")]), text("done")]);
    let bed = Bed::new(script, |ledger| vec![write("drop", ledger).into()]).await;
    let waiting = waiting(bed.runtime().run(RunRequest { starter: robot(), ..request() }).await.unwrap());
    let run = completed(bed.decide(&waiting, Decision::approve(waiting.digest), &bob()).await);
    let decided = run.pending(&waiting.id).unwrap().decided.clone().unwrap();
    assert_eq!((decided.attribution.as_str(), &decided.by), ("initiator_unknown", &bob()));
    assert_eq!(bed.ledger.calls()[0].cx.actor, alice());
    assert_eq!(run.created().agent, agent_name());
}

#[tokio::test]
async fn rule_a10_a_fraction_of_a_second_is_no_less_than_a_second_to_decide() {
    let mut bed = Bed::new(Witness::script([]), |_| Vec::new()).await;
    bed.agent.approval_ttl = Some(std::time::Duration::from_millis(1500));
    let runtime = bed.runtime();
    let run = runtime.start(request(), Mode::Attended).await.unwrap();
    assert_eq!(runtime.load(&run).await.unwrap().created().approval_ttl_s, Some(2));
}
