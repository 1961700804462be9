//! The same work done by countersign: `ours memory …` over its memory store, `ours sqlite …` over SQLite.
//!
//! Everything is as a program that embeds the library has it: the OpenAI client, the limits of the command line,
//! sealed and chained rows. `ours sqlite stored SCRIPT RUNS` leaves a database with so many runs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use async_trait::async_trait;
use bench_kit::{
    PROMPT, Peer, Resumes, SYSTEM_PROMPT, ToolSchema, data_folder, lookup, measure_resumes, model_address,
    on_one_thread, schemas, show, write_record,
};
use countersign::{
    Agent, Agents, AnyTool, Arguments, CallContext, DataClass, Decision, Digest, Effect, Enforcement,
    Finished, Limits, MemoryStore, ModelRef, Models, Outcome, Parts, PendingId, Principal, Provider,
    Registry, RunId, RunRequest, Runtime, Store, Subject, SystemClock, Tool, ToolError, ToolOutput, ToolSpec,
    Zone,
};
use countersign_clients::{OpenAi, OpenAiConfig, Secret};
use countersign_store::{MasterKey, SqliteOptions, SqliteStore};
use serde_json::json;

const KEY: [u8; 32] = [7; 32];
const PROVIDER: &str = "mock";
const AGENT: &str = "worker";
const OWNER: &str = "alice";
const APPROVER: &str = "bob";

struct Ours {
    runtime: Runtime,
    owner: Subject,
    approver: Subject,
}

/// A run that waits for a person, as another process knows it.
struct Ticket {
    run: RunId,
    pending: PendingId,
    digest: Digest,
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some((store, words)) = words.split_first() else {
        bail!("say: memory | sqlite, and what to measure")
    };
    match (store.as_str(), words) {
        ("memory", _) => measure_resumes(words, async || Ours::over(Arc::new(MemoryStore::new(KEY))).await),
        ("sqlite", [what, script, runs]) if what == "stored" => {
            let runs = runs.parse()?;
            on_one_thread(stored(script, runs))
        }
        ("sqlite", _) => measure_resumes(words, async || Ours::over(Arc::new(sqlite()?)).await),
        _ => bail!("say: memory | sqlite, and what to measure"),
    }
}

fn database() -> Result<PathBuf> {
    Ok(data_folder()?.join("countersign.db"))
}

fn sqlite() -> Result<SqliteStore> {
    Ok(SqliteStore::open(SqliteOptions::new(database()?), MasterKey::new(KEY), Arc::new(SystemClock))?)
}

/// Runs a script so often, and says where the database is.
async fn stored(script: &str, runs: u32) -> Result<()> {
    let ours = Ours::over(Arc::new(sqlite()?)).await?;
    for _ in 0..runs {
        match ours.runtime.run(ours.request(script)?).await? {
            Outcome::Done(finished) => drop(text(&finished)?),
            Outcome::Waiting(waiting) => drop(ours.release(Ticket::of(&waiting)).await?),
        }
    }
    show(&json!({ "database": database()? }));
    Ok(())
}

impl Ours {
    async fn over(store: Arc<dyn Store>) -> Result<Self> {
        let (owner, approver) = (OWNER.parse::<Subject>()?, APPROVER.parse::<Subject>()?);
        store.put_principal(&Principal::user(owner.clone())).await?;
        store.put_principal(&Principal::approver(approver.clone())).await?;
        let client = OpenAi::new(OpenAiConfig {
            provider: PROVIDER.parse()?,
            base_url: format!("{}/v1", model_address()),
            api_key: Some(Secret::new("none".to_owned())),
            timeout: Duration::from_secs(300),
        })?;
        let mut agent = Agent::new(AGENT.parse()?, [ModelRef::parse(&format!("{PROVIDER}/loop-1"))?]);
        agent.system_prompt = Some(SYSTEM_PROMPT.to_owned());
        agent.limits.iterations_max = u32::MAX;
        let runtime = Runtime::new(Parts {
            store,
            models: Models::default()
                .with(PROVIDER.parse()?, Provider { zone: Zone::Local, client: Arc::new(client) }),
            tools: Registry::new(tools()?)?,
            agents: Agents::new(Enforcement::Enforce, [agent]),
            limits: Limits {
                lease: Duration::from_secs(30),
                parallel_reads: 8,
                poll: Duration::from_millis(250),
            },
            clock: Arc::new(SystemClock),
        });
        Ok(Self { runtime, owner, approver })
    }

    /// The script is the model.
    fn request(&self, script: &str) -> Result<RunRequest> {
        let mut request = RunRequest::new(AGENT.parse()?, self.owner.clone(), PROMPT);
        request.model = Some(ModelRef::parse(&format!("{PROVIDER}/{script}"))?);
        Ok(request)
    }
}

impl Ticket {
    fn of(waiting: &countersign::Waiting) -> Self {
        Self { run: waiting.run.id().clone(), pending: waiting.id.clone(), digest: waiting.digest.clone() }
    }
}

fn text(finished: &Finished) -> Result<String> {
    Ok(finished.output().with_context(|| format!("ended by {:?}", finished.end()))?.to_owned())
}

impl Peer for Ours {
    async fn run(&self, script: &str) -> Result<String> {
        match self.runtime.run(self.request(script)?).await? {
            Outcome::Done(finished) => text(&finished),
            Outcome::Waiting(_) => bail!("a write in the way"),
        }
    }
}

impl Resumes for Ours {
    type Ticket = Ticket;

    async fn hold(&self, script: &str) -> Result<Ticket> {
        match self.runtime.run(self.request(script)?).await? {
            Outcome::Waiting(waiting) => Ok(Ticket::of(&waiting)),
            Outcome::Done(_) => bail!("no write"),
        }
    }

    async fn release(&self, ticket: Ticket) -> Result<String> {
        self.runtime.decide(&ticket.pending, Decision::approve(ticket.digest), &self.approver).await?;
        match self.runtime.drive(&ticket.run).await? {
            Outcome::Done(finished) => text(&finished),
            Outcome::Waiting(_) => bail!("asked twice"),
        }
    }
}

fn tools() -> Result<[AnyTool; 2]> {
    let [read, write] = schemas();
    Ok([Lookup(spec(read, Effect::Read)?).into(), WriteRecord(spec(write, Effect::Write)?).into()])
}

fn spec(schema: ToolSchema, effect: Effect) -> Result<ToolSpec> {
    let ToolSchema { name, description, parameters } = schema;
    let class = DataClass::EditorContent;
    Ok(ToolSpec::library(name.parse()?, description, "records".parse()?, effect, class, parameters))
}

struct Lookup(ToolSpec);

#[async_trait]
impl Tool for Lookup {
    fn spec(&self) -> ToolSpec {
        self.0.clone()
    }

    async fn call(&self, arguments: &Arguments, _cx: &CallContext) -> Result<ToolOutput, ToolError> {
        Ok(lookup(id(arguments)).into())
    }
}

struct WriteRecord(ToolSpec);

#[async_trait]
impl Tool for WriteRecord {
    fn spec(&self) -> ToolSpec {
        self.0.clone()
    }

    async fn call(&self, arguments: &Arguments, _cx: &CallContext) -> Result<ToolOutput, ToolError> {
        let text = arguments.to_value()["text"].as_str().unwrap_or_default().to_owned();
        Ok(write_record(id(arguments), &text).into())
    }
}

/// The schema requires it.
fn id(arguments: &Arguments) -> u64 {
    arguments.to_value()["id"].as_u64().unwrap_or_default()
}
