//! Following a run: what comes to its log, as it comes.
//!
//! Invariant: there is no second loop. Whoever follows reads the log that the driver writes; that they are told of news at
//! once rests on a ring, that they are told at all rests on looking (`watch`). Nothing is told to somebody who may not see
//! the run any more, by their token and rights of the moment. Not here: what is made of it (`routes::runs_id_events`, `responses::stream`).

use std::time::Duration;

use axum::response::sse::KeepAlive;
use countersign::{Principal, Run, RunId, RunState};

use super::App;
use super::caller::Caller;
use super::look::Seen;
use super::watch::Watcher;

/// After so long without an event a stream says that it is still there.
const STILL_THERE: Duration = Duration::from_secs(15);

/// Somebody who follows a run.
pub(crate) struct Following {
    app: App,
    caller: Caller,
    may_see: fn(&Principal, &Run) -> bool,
    run: RunId,
    watcher: Watcher,
    /// The sequence of the next entry to tell.
    next: u64,
}

/// What has come.
pub(crate) struct News {
    /// The run with its whole log.
    pub(crate) seen: Seen,
    /// The place of the first entry that was not told before.
    pub(crate) from: usize,
    /// Whether the run had stopped by then.
    pub(crate) has_stopped: bool,
}

impl Following {
    /// From this sequence on, as long as `may_see` says so.
    pub(crate) fn new(
        app: App,
        caller: Caller,
        may_see: fn(&Principal, &Run) -> bool,
        run: RunId,
        next: u64,
    ) -> Self {
        let watcher = app.watchers().watch(&run);
        Self { app, caller, may_see, run, watcher, next }
    }

    /// Returns when something has come, or when the run has stopped. `None`: nothing more is told, because the run may not
    /// be seen any more or cannot be read, or because the process is going to end.
    pub(crate) async fn news(&mut self) -> Option<News> {
        loop {
            // Most looks find nothing new, and the length of a log is cheap to ask for.
            let clock = self.app.clock();
            let revision = self.app.store().revision(&self.run).await.ok()?;
            let state = self.app.store().run(&self.run, clock.now()).await.ok()?.row.state;
            if revision.0 > self.next || state != RunState::Active {
                self.caller = self.caller.by_now(&self.app).await.ok()??;
                let seen = self.app.seen_if(self.run.as_str(), &self.caller, self.may_see).await.ok()?;
                let from = usize::try_from(self.next).unwrap_or(usize::MAX).min(seen.log.len());
                self.next = self.next.max(seen.log.len() as u64);
                let has_stopped = seen.run.state() != RunState::Active;
                if from < seen.log.len() || has_stopped {
                    return Some(News { seen, from, has_stopped });
                }
            }
            tokio::select! {
                () = self.watcher.something(&*clock) => {}
                () = self.app.end().cancelled() => return None,
            }
        }
    }
}

/// What keeps a stream open on which nothing happens: a comment now and then.
pub(crate) fn still_there() -> KeepAlive {
    KeepAlive::new().interval(STILL_THERE)
}
