//! Very many runs that wait, stored by the library itself.
//!
//! Invariant: each is what the service would have stored: a run that it has really brought to its question is taken as
//! the pattern, and only ids, owner and agent are others. One transaction stores one run.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use countersign::{
    AgentName, CallId, Changes, Clock as _, Created, Event, PendingId, Run, RunFilter, RunId, Store, Subject,
    SystemClock,
};

/// Whose questions one in ten is.
pub(crate) const MANY: &str = "many";
/// Whose the last three are.
pub(crate) const FEW: &str = "few";
/// The agent of three in the middle.
pub(crate) const RARE: &str = "rare";

/// The run that the others are made after.
pub(crate) struct Pattern {
    created: Created,
    rest: Vec<Event>,
}

impl Pattern {
    /// The only run that is there.
    pub(crate) async fn of(store: &dyn Store) -> Result<Self> {
        let page = store.runs(&RunFilter::default(), SystemClock.now(), 1, None).await?;
        let run = &page.items.first().context("no run to go by")?.row.id;
        let mut events = store.load(run).await?.entries.into_iter().map(|entry| entry.event);
        let Some(Event::RunCreated(created)) = events.next() else {
            anyhow::bail!("a log without a beginning")
        };
        Ok(Self { created: *created, rest: events.collect() })
    }

    /// One that waits like it.
    pub(crate) fn waiting(&self, index: u32, count: u32) -> Result<Changes> {
        let owner = match index {
            _ if index + 3 >= count => FEW.to_owned(),
            _ if index.is_multiple_of(10) => MANY.to_owned(),
            _ => format!("user-{}", index % 97),
        };
        let agent = if (count / 2..count / 2 + 3).contains(&index) { RARE } else { "default" };
        self.stored(&owner, agent, self.rest.clone())
    }

    /// One that nobody has begun to work on.
    pub(crate) fn active(&self) -> Result<Changes> {
        self.stored("user-0", "default", Vec::new())
    }

    fn stored(&self, owner: &str, agent: &str, mut rest: Vec<Event>) -> Result<Changes> {
        let owner: Subject = owner.parse()?;
        let created = Created {
            owner: owner.clone(),
            starter: owner,
            agent: agent.parse::<AgentName>()?,
            ..self.created.clone()
        };
        let call = CallId::from_random(SystemClock.random());
        for event in &mut rest {
            if let Event::ModelReplied(replied) = event {
                let reply = Arc::make_mut(&mut replied.reply);
                reply.calls.iter_mut().for_each(|proposed| proposed.id = call.clone());
            } else if let Event::PendingOpened(pending) = event {
                pending.id = PendingId::from_random(SystemClock.random());
                pending.calls.iter_mut().for_each(|held| held.id = call.clone());
            }
        }
        let id = RunId::from_random(SystemClock.random());
        let (_, changes) = Run::create(id, created, rest, SystemClock.now())?;
        Ok(changes)
    }
}

/// Stores so many, several at once where the store can.
pub(crate) async fn fill(
    store: Arc<dyn Store>,
    pattern: Arc<Pattern>,
    count: u32,
    at_once: u32,
) -> Result<()> {
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..at_once {
        let (store, pattern) = (Arc::clone(&store), Arc::clone(&pattern));
        tasks.spawn(async move {
            for index in (task..count).step_by(at_once as usize) {
                store.create(pattern.waiting(index, count)?).await?;
                if index % 20_000 == 0 && index > 0 {
                    eprintln!("   {index} runs");
                }
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}
