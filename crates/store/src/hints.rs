//! What a store hears of the others that work on the same database.
//!
//! Invariant: only a hint. One may be lost, so whoever waits for one also looks by itself now and then; one that
//! comes between a look and the waiting is not missed. Not here: what there is to do.

use tokio::sync::watch;
use tokio::task::AbortHandle;

/// Says that a run changed, or that work may have become owed. Nobody is listened to any more once it is dropped.
#[derive(Debug)]
pub struct Hints {
    heard: watch::Receiver<()>,
    /// Kept where nobody ever says anything, so that waiting does not end.
    _silence: Option<watch::Sender<()>>,
    listener: Option<AbortHandle>,
}

impl Hints {
    /// For a database that only this process works on, or whose others cannot be heard.
    pub(crate) fn silence() -> Self {
        let (silence, heard) = watch::channel(());
        Self { heard, _silence: Some(silence), listener: None }
    }

    /// What a task hears, which ends with this.
    pub(crate) fn of(heard: watch::Receiver<()>, listener: AbortHandle) -> Self {
        Self { heard, _silence: None, listener: Some(listener) }
    }

    /// Returns when something was heard since it last returned. Dropping the wait loses nothing.
    pub async fn next(&mut self) {
        if self.heard.changed().await.is_err() {
            // Whoever listened is gone; nothing will be heard.
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Hints {
    fn drop(&mut self) {
        if let Some(listener) = &self.listener {
            listener.abort();
        }
    }
}
