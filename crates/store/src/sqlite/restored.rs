//! After a backup was put back: nothing is done on the word of a person who spoke before it (I46).
//!
//! The backup does not know what happened after it was made. So an open question is void; a question that was
//! answered, and whose calls have not started, is answered "needs a person" for each of them, so that the model
//! must ask again; a write that was started and has no result has an unknown outcome, also one that could be
//! repeated with its key; a read that was started on a person's word is not run again. What has an unknown
//! outcome already stays so, and so do open questions about it.
//!
//! Invariant: every change is an event that the fold knows, appended like any other, so chain and rows follow.
//! Doing it twice changes nothing. A run that cannot be read is left as it is and counted; nothing can start in
//! it either. Not here: keeping workers away until an operator has confirmed (the program).

use countersign::{
    Append, AppendError, CallFinished, CallResult, CallState, CallUnknown, Changes, Clearance, Closing,
    Durability, Event, LoadError, Log, PendingClosed, Question, Refusal, ResultKind, Run, RunId, Stage,
    Store, StoreFault, Writer,
};
use jiff::Timestamp;

use super::{SqliteStore, fault};
use crate::row::RunRecord;

/// The runs that are listed at a time.
const PAGE: i64 = 200;
/// So often a run is looked at again that somebody else keeps changing.
const ATTEMPTS: u32 = 5;

/// What was made harmless.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// The runs to which something was appended.
    pub runs: u64,
    /// Questions that are void.
    pub voided: u64,
    /// Started writes whose outcome is unknown.
    pub unknown: u64,
    /// Calls that a person had released, and which will not run.
    pub refused: u64,
    /// Runs that cannot be read, and are left as they are.
    pub unreadable: Vec<String>,
}

impl SqliteStore {
    /// Makes everything harmless that a restored backup would go on with. To be called before anything works
    /// on the database; it can be called again after whatever cut it short.
    ///
    /// # Errors
    /// [`StoreFault`]: then nothing may work on the database yet.
    pub async fn restored(&self, now: Timestamp) -> Result<Restored, StoreFault> {
        self.connections
            .write(Durability::Disk, |tx| {
                tx.execute(
                    "UPDATE runs SET lease_token = NULL, lease_until = NULL WHERE lease_token IS NOT NULL",
                    [],
                )
                .map_err(fault)
            })
            .await?;
        let mut restored = Restored::default();
        let mut after = Some(i64::MIN);
        while let Some(last) = after {
            let (found, next) = self.unended(last).await?;
            after = next;
            for run in found {
                match run {
                    Ok(run) => self.make_harmless(&run, now, &mut restored).await?,
                    Err(run) => restored.unreadable.push(run),
                }
            }
        }
        Ok(restored)
    }

    /// Some runs that have not ended, and after which one to go on. One whose row is not good may not have.
    async fn unended(&self, after: i64) -> Result<(Vec<Result<RunId, String>>, Option<i64>), StoreFault> {
        let vault = self.vault();
        self.connections
            .read_aside(move |tx| {
                let statement = format!(
                    "SELECT {}, CAST(id AS BLOB) AS name FROM runs WHERE number > ?1 ORDER BY number LIMIT ?2",
                    RunRecord::COLUMNS
                );
                let mut select = tx.prepare_cached(&statement).map_err(fault)?;
                let mut rows = select.query((after, PAGE)).map_err(fault)?;
                let (mut found, mut last) = (Vec::new(), None);
                while let Some(row) = rows.next().map_err(fault)? {
                    last = Some(row.get("number").map_err(fault)?);
                    match RunRecord::read(row, &vault.root) {
                        Ok(record) if record.row.state.is_end() => {}
                        Ok(record) => found.push(Ok(record.row.id)),
                        Err(_) => found.push(Err(super::finding::shown(
                            &row.get::<_, Vec<u8>>("name").map_err(fault)?,
                        ))),
                    }
                }
                Ok((found, last))
            })
            .await
    }

    async fn make_harmless(
        &self,
        id: &RunId,
        now: Timestamp,
        restored: &mut Restored,
    ) -> Result<(), StoreFault> {
        for _ in 0..ATTEMPTS {
            let log = match self.load(id).await {
                Ok(log) => log,
                Err(LoadError::Fault(fault)) => return Err(fault),
                // It is gone, or not to be read.
                Err(LoadError::NotFound(_)) => return Ok(()),
                Err(_) => {
                    restored.unreadable.push(id.to_string());
                    return Ok(());
                }
            };
            let Some((events, changes)) = harmless(id, &log, now) else {
                restored.unreadable.push(id.to_string());
                return Ok(());
            };
            if events.is_empty() {
                return Ok(());
            }
            match self.append(id, log.revision(), &Writer::Anyone, now, Append::Plain(changes)).await {
                Ok(_) => {
                    restored.count(&events);
                    return Ok(());
                }
                Err(AppendError::Conflict) => {}
                Err(AppendError::Fault(fault)) => return Err(fault),
                Err(_) => {
                    restored.unreadable.push(id.to_string());
                    return Ok(());
                }
            }
        }
        Err(StoreFault::Failed(Box::new(AtWork { run: id.clone() })))
    }
}

/// Somebody works on the database, who should not.
#[derive(Debug, thiserror::Error)]
#[error("run {run} keeps changing: nothing may work on a restored database before it was made harmless")]
struct AtWork {
    run: RunId,
}

impl Restored {
    fn count(&mut self, events: &[Event]) {
        self.runs += 1;
        for event in events {
            if let Event::PendingClosed(_) = event {
                self.voided += 1;
            } else if let Event::CallUnknown(_) = event {
                self.unknown += 1;
            } else {
                self.refused += 1;
            }
        }
    }
}

/// What must be appended to a run; nothing, if nothing in it rests on an old word. `None`: no run has this log.
fn harmless(id: &RunId, log: &Log, now: Timestamp) -> Option<(Vec<Event>, Changes)> {
    let before = Run::fold(id.clone(), &log.entries).ok()?;
    let mut run = before.clone();
    let mut events = Vec::new();
    // One after the other: each may settle what the next one would have been about.
    for look in [void, unknown, refused] {
        for event in look(&run) {
            run = run.record(vec![event.clone()], now).ok()?.0;
            events.push(event);
        }
    }
    let changes = before.record(events.clone(), now).ok()?.1;
    Some((events, changes))
}

/// The question that nobody may answer any more. What became of a call may still be answered.
fn void(run: &Run) -> Vec<Event> {
    let open = run.open_pending().filter(|open| match open.pending.question {
        Question::Approval | Question::Input { .. } => true,
        Question::Resolution { .. } => false,
    });
    open.map(|open| {
        let pending = open.pending.id.clone();
        Event::PendingClosed(PendingClosed { pending, status: Closing::Void, by: None })
    })
    .into_iter()
    .collect()
}

/// The writes of which the backup does not know how they ended.
fn unknown(run: &Run) -> Vec<Event> {
    let started = calls(run).filter(|state| matches!(state.stage, Stage::Running(it) if it.effect.writes()));
    started
        .map(|state| {
            Event::CallUnknown(CallUnknown { call: state.call.id.clone(), tool: state.call.name.clone() })
        })
        .collect()
}

/// The results of calls that rest on a person's word, and will not run on it. Every call that is cleared lay in
/// a turn that a person released.
fn refused(run: &Run) -> Vec<Event> {
    let result = |state: CallState<'_>| match state.stage {
        Stage::Cleared(_) => Some(CallResult::refused(
            Refusal::NeedsPerson,
            &state.call.name,
            Some(
                "Not run: it was released before this installation was restored from a backup. It needs to be asked \
                 again.",
            ),
        )),
        Stage::Running(running) if running.clearance != Clearance::NotNeeded => {
            let words = "This call was interrupted, and this installation was restored from a backup. Its result is \
                         not known, and it was not run again.";
            Some(CallResult::not_from_tool(ResultKind::Error, words))
        }
        Stage::Running(_)
        | Stage::Proposed
        | Stage::Held
        | Stage::AwaitingInput
        | Stage::Barred(_)
        | Stage::Unknown { .. }
        | Stage::Finished(_) => None,
    };
    calls(run)
        .filter_map(|state| {
            let (call, tool) = (state.call.id.clone(), state.call.name.clone());
            result(state).map(|result| Event::CallFinished(Box::new(CallFinished { call, tool, result })))
        })
        .collect()
}

fn calls(run: &Run) -> impl Iterator<Item = CallState<'_>> {
    run.turn().into_iter().flat_map(|turn| turn.calls())
}
