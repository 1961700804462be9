//! What a signal to the process does: Ctrl-C, SIGTERM, SIGHUP.
//!
//! Invariant: the first one stops at the next boundary, where the lease is released and the run can be resumed; it
//! never cancels. The second Ctrl-C ends the process at once.

use std::sync::{Arc, OnceLock};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::log;

use super::Exit;

/// Cancelled by the first signal, and knows which it was.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt {
    token: CancellationToken,
    again: CancellationToken,
    by: Arc<OnceLock<Exit>>,
}

impl Interrupt {
    /// Listens from now on, for the rest of the process.
    pub(crate) fn listen() -> Self {
        let interrupt =
            Self { token: CancellationToken::new(), again: CancellationToken::new(), by: Arc::default() };
        let ways = [
            (SignalKind::interrupt(), Exit::Interrupted),
            (SignalKind::terminate(), Exit::Terminated),
            (SignalKind::hangup(), Exit::HungUp),
        ];
        for (kind, exit) in ways {
            // Where a signal cannot be listened to, it does what the system lets it do: the run is stored anyway.
            if let Ok(signal) = signal(kind) {
                tokio::spawn(interrupt.clone().hear(signal, exit));
            }
        }
        interrupt
    }

    async fn hear(self, mut signal: Signal, exit: Exit) {
        while signal.recv().await.is_some() {
            let is_first = self.by.set(exit).is_ok();
            self.token.cancel();
            if is_first {
                log::note("stopping at the next boundary; Ctrl-C again stops at once");
            } else if exit == Exit::Interrupted {
                std::process::exit(i32::from(exit.code()));
            } else {
                self.again.cancel();
            }
        }
    }

    /// For what stops with it.
    pub(crate) fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// Cancelled when a second one comes, for what waits for something after the first.
    pub(crate) fn again(&self) -> CancellationToken {
        self.again.clone()
    }

    /// Whether it has come.
    pub(crate) fn has_come(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Returns once it has come.
    pub(crate) async fn come(&self) {
        self.token.cancelled().await;
    }

    /// How the process ends that it stopped.
    pub(crate) fn exit(&self) -> Exit {
        self.by.get().copied().unwrap_or(Exit::Interrupted)
    }
}
