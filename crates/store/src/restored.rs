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
    Detail, Event, LoadError, Log, PendingClosed, Question, Refusal, ResultKind, Run, RunId, Stage, Store,
    StoreFault, WorkBegan, Writer,
};
use jiff::Timestamp;

use crate::finding::shown;
use crate::row::{Row, RunRecord};
use crate::vault::Vault;

/// The runs that are listed at a time.
pub(crate) const PAGE: i64 = 200;
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

/// A run that has not ended, or whose row is not good, so that it may not have: then its name. `None`: it has.
pub(crate) fn unended(row: &dyn Row, name: &[u8], vault: &Vault) -> Option<Result<RunId, String>> {
    match RunRecord::read(row, &vault.root) {
        Ok(record) if record.row.state.is_end() => None,
        Ok(record) => Some(Ok(record.row.id)),
        Err(_) => Some(Err(shown(name))),
    }
}

/// Makes one page of runs harmless.
pub(crate) async fn make_all_harmless(
    store: &dyn Store,
    found: Vec<Result<RunId, String>>,
    now: Timestamp,
    restored: &mut Restored,
) -> Result<(), StoreFault> {
    for run in found {
        match run {
            Ok(run) => make_harmless(store, &run, now, restored).await?,
            Err(run) => restored.unreadable.push(run),
        }
    }
    Ok(())
}

async fn make_harmless(
    store: &dyn Store,
    id: &RunId,
    now: Timestamp,
    restored: &mut Restored,
) -> Result<(), StoreFault> {
    for _ in 0..ATTEMPTS {
        let log = match store.load(id).await {
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
        match store.append(id, log.revision(), &Writer::Anyone, now, Append::Plain(changes)).await {
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
            } else if let Event::CallFinished(_) = event {
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
    if run.is_worked_on() && [void, unknown, refused].iter().any(|look| !look(&run).is_empty()) {
        // Nobody has worked on it since the backup was made (L5).
        let began = Event::WorkBegan(WorkBegan {});
        run = run.record(vec![began.clone()], now).ok()?.0;
        events.push(began);
    }
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
    let why =
        Detail::new("the installation was restored from a backup that was made while the call was under way");
    started
        .map(|state| {
            let (call, tool) = (state.call.id.clone(), state.call.name.clone());
            Event::CallUnknown(CallUnknown { call, tool, detail: Some(why.clone()) })
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
            result(state).map(|result| Event::CallFinished(Box::new(CallFinished::new(call, tool, result))))
        })
        .collect()
}

fn calls(run: &Run) -> impl Iterator<Item = CallState<'_>> {
    run.turn().into_iter().flat_map(|turn| turn.calls())
}
