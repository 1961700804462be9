//! The library as its contract and the README show it: what somebody writes who embeds it. Their examples are
//! looked up here, word for word.

#![cfg(test)]

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use countersign::testing::{ScriptedModel, text, turn};
use countersign::{
    Agent, AgentLoop, AgentName, Agents, CallContext, Decision, Enforcement, Finished, GroupSetting,
    InputMessage, InputRole, Limits, MemoryStore, ModelRef, Models, Outcome, Parts, PendingId,
    PreviewContext, Principal, Provider, ProviderName, Registry, RunError, RunId, RunLimits, RunRequest,
    Runtime, Store, Subject, SystemClock, ToolError, ToolName, ToolOutput, ToolPolicy, ToolPreview,
    ToolRequest, UnattendedFilter, Waiting, Zone, arguments, tool,
};

#[arguments]
struct Page {
    /// The number of the page.
    id: u64,
}

struct PageGet;

/// Read a page.
#[tool(group = "content", effect = read, data_class = editor_content)]
impl PageGet {
    async fn call(&self, page: Page, _cx: &CallContext) -> Result<ToolOutput, ToolError> {
        match page.id {
            7 => Ok("The page of seven.".into()),
            _ => Err(ToolError::answered("There is no such page.")),
        }
    }
}

struct PageDrop;

/// Delete a page.
#[tool(group = "content", effect = write, data_class = editor_content)]
impl PageDrop {
    async fn call(&self, page: Page, cx: &CallContext) -> Result<ToolOutput, ToolError> {
        Ok(format!("Deleted page {} for {}.", page.id, cx.actor).into())
    }

    async fn preview(&self, page: Page, cx: &PreviewContext) -> Result<ToolPreview, ToolError> {
        let line = format!("page {} goes, as {} wants", page.id, cx.actor);
        Ok(ToolPreview { lines: vec![line], precondition: None })
    }
}

fn request_of(owner: &Subject, agent: &AgentName) -> RunRequest {
    RunRequest {
        agent: agent.clone(),
        input: vec![InputMessage { role: InputRole::User, text: "Delete page 7".to_owned() }],
        tools: ToolRequest::AllEnabled,
        model: None,
        max_iterations: None,
        max_working_time: None,
        continue_from: None,
        owner: owner.clone(),
        starter: owner.clone(),
        trace: None,
    }
}

async fn runtime(
    model: ScriptedModel,
    agent: &AgentName,
    owner: &Subject,
) -> Result<Runtime, Box<dyn Error>> {
    let store = Arc::new(MemoryStore::new([1; 32]));
    store.put_principal(&Principal::user(owner.clone())).await?;
    let provider = ProviderName::parse("stub")?;
    let models =
        Models::default().with(provider.clone(), Provider { zone: Zone::Local, client: Arc::new(model) });
    let agents = Agents::new(
        Enforcement::Enforce,
        [Agent {
            name: agent.clone(),
            models: vec![ModelRef { provider, model: "scripted".to_owned() }],
            system_prompt: None,
            groups: GroupSetting::Unrestricted,
            skills: Vec::new(),
            limits: RunLimits::iterations(20),
            approval_ttl: None,
            second_approver: false,
        }],
    );
    let limits = Limits { lease: Duration::from_secs(30), parallel_reads: 8, poll: Duration::from_secs(1) };
    let clock = Arc::new(SystemClock);

    let tools = Registry::new([PageGet.into(), PageDrop.into()])?;
    let runtime = Runtime::new(Parts { store, models, tools, agents, limits, clock });
    Ok(runtime)
}

#[tokio::test]
async fn the_example_of_the_contract_does_what_it_says() -> Result<(), Box<dyn Error>> {
    let (agent, actor) = (AgentName::parse("default")?, Subject::parse("alice")?);
    let model = ScriptedModel::new([
        turn(&[("page_get", r#"{"id":7}"#), ("page_drop", r#"{"id":7}"#)]),
        text("Page 7 is gone."),
        turn(&[("page_get", r#"{"id":7}"#)]),
        text("It says seven."),
    ]);
    let runtime = runtime(model.clone(), &agent, &actor).await?;

    let request = request_of(&actor, &agent);
    let again = request.clone();
    let pending: Waiting = match runtime.run(request).await? {
        Outcome::Done(answer) => panic!("a write waits for a person: {answer:?}"),
        Outcome::Waiting(pending) => *pending,
    };
    let run = pending.run.id().clone();
    runtime.decide(&pending.id, Decision::approve(pending.digest), &actor).await?;
    let outcome = runtime.drive(&run).await?;
    let Outcome::Done(answer) = outcome else { panic!("nothing is left to ask") };
    assert_eq!(answer.output(), Some("Page 7 is gone."));

    let policy = runtime.policy(&agent, &actor).await?;
    let may = policy.offerable(None);
    let alone = runtime.unattended_filter().unattended(&may);
    assert_eq!((may.len(), alone), (2, vec![ToolName::parse("page_get")?]));

    let request = again;
    let answer = runtime.unattended().run(request).await?;
    assert_eq!(answer.output(), Some("It says seven."));
    assert_eq!(model.requests().last().unwrap().offered, ["page_get"]);
    Ok(())
}

#[tokio::test]
async fn the_example_of_the_readme_tells_whom_it_waits_for() -> Result<(), Box<dyn Error>> {
    let (agent, actor) = (AgentName::parse("default")?, Subject::parse("alice")?);
    let model = ScriptedModel::new([turn(&[("page_drop", r#"{"id":7}"#)])]);
    let runtime = runtime(model, &agent, &actor).await?;
    let request = request_of(&actor, &agent);
    let told = Mutex::new(Vec::new());
    let notify = |pending: &PendingId| told.lock().unwrap().push(pending.clone());
    match runtime.run(request).await? {
        Outcome::Done(finished) => println!("{:?}", finished.output()),
        Outcome::Waiting(pending) => notify(&pending.id),
    }
    assert_eq!(told.lock().unwrap().len(), 1);
    Ok(())
}

/// A loop that somebody else wrote: the three interfaces can be injected and faked.
struct NothingToDo(Finished);

#[async_trait]
impl AgentLoop for NothingToDo {
    async fn run(&self, _request: RunRequest) -> Result<Outcome, RunError> {
        Ok(Outcome::Done(Box::new(self.0.clone())))
    }

    async fn drive(&self, run: &RunId) -> Result<Outcome, RunError> {
        Err(RunError::AgentGone(run.clone()))
    }
}

#[tokio::test]
async fn the_loop_the_filter_and_the_policy_can_be_injected() -> Result<(), Box<dyn Error>> {
    let (agent, actor) = (AgentName::parse("default")?, Subject::parse("alice")?);
    let real = runtime(ScriptedModel::new([text("done")]), &agent, &actor).await?;
    let policy: Box<dyn ToolPolicy> = Box::new(real.policy(&agent, &actor).await?);
    let filter: Box<dyn UnattendedFilter> = Box::new(real.unattended_filter());
    assert_eq!(filter.unattended(&policy.offerable(None)).len(), 1);
    assert_eq!(
        policy.explain(Some(&["ghost".to_owned()]))[0].word.gate().unwrap().as_str(),
        "not_registered"
    );

    let loops: Box<dyn AgentLoop> = Box::new(real);
    let Outcome::Done(finished) = loops.run(request_of(&actor, &agent)).await? else {
        panic!("it asks for nothing")
    };
    let loops: Box<dyn AgentLoop> = Box::new(NothingToDo(*finished));
    let Outcome::Done(again) = loops.run(request_of(&actor, &agent)).await? else { panic!("it never waits") };
    assert_eq!(again.output(), Some("done"));
    assert!(matches!(loops.drive(again.run.id()).await, Err(RunError::AgentGone(_))));
    Ok(())
}
