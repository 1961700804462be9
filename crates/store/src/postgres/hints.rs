//! Listening to the others on a connection of its own.
//!
//! Invariant: a hint comes after the commit that it is about. When the connection was lost, coming back is a hint
//! too, because some may have been missed. The same connection is what others tell by that this process is there
//! ([`super::holders`]).

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use countersign::Clock;
use tokio::sync::watch;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{AsyncMessage, NoTls, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::PostgresStore;
use super::address::PostgresAddress;
use super::connections::configured;
use super::holders::Holder;
use crate::hints::Hints;

/// How long after a failure it is tried again.
const PAUSE: Duration = Duration::from_secs(1);

impl PostgresStore {
    /// Must be called in a runtime. Without a connection it is silent until there is one.
    pub(super) fn listen(&self) -> Hints {
        let (tell, heard) = watch::channel(());
        let clock: Arc<dyn Clock> = self.clock();
        let listener =
            Listener { address: self.address.clone(), clock, holder: Arc::clone(&self.holder), tell };
        let listener = tokio::spawn(async move {
            loop {
                listener.listen().await;
                listener.clock.sleep(PAUSE).await;
            }
        });
        Hints::of(heard, listener.abort_handle())
    }
}

struct Listener {
    address: PostgresAddress,
    clock: Arc<dyn Clock>,
    holder: Arc<Holder>,
    tell: watch::Sender<()>,
}

impl Listener {
    /// Listens until the connection is lost.
    async fn listen(&self) {
        match self.address.tls() {
            Ok(None) => self.listen_over(NoTls).await,
            Ok(Some(tls)) => self.listen_over(MakeRustlsConnect::new(tls)).await,
            // The pool says so to whoever needs it.
            Err(_) => {}
        }
    }

    async fn listen_over<T>(&self, tls: T)
    where
        T: MakeTlsConnect<Socket>,
        T::Stream: Send + 'static,
    {
        let Ok((client, mut connection)) = configured(&self.address).connect(tls).await else { return };
        let tell = || self.tell.send_replace(());
        let heard = async {
            while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                if let AsyncMessage::Notification(_) = message {
                    tell();
                }
            }
        };
        let listening = async {
            if client.batch_execute("LISTEN countersign").await.is_ok() {
                tell();
                // It ends when the connection does.
                drop(self.holder.keep(&client, &*self.clock, tell).await);
            }
        };
        tokio::select! {
            () = heard => {}
            () = listening => {}
        }
    }
}
