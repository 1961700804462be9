//! Listening to the others on a connection of its own.
//!
//! Invariant: a hint comes after the commit that it is about. When the connection was lost, coming back is a hint
//! too, because some may have been missed.

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
use crate::hints::Hints;

/// How long after a failure it is tried again.
const PAUSE: Duration = Duration::from_secs(1);

impl PostgresStore {
    /// Must be called in a runtime. Without a connection it is silent until there is one.
    pub(super) fn listen(&self) -> Hints {
        let (tell, heard) = watch::channel(());
        let (address, clock): (_, Arc<dyn Clock>) = (self.address.clone(), self.clock());
        let listener = tokio::spawn(async move {
            loop {
                listen(&address, &tell).await;
                clock.sleep(PAUSE).await;
            }
        });
        Hints::of(heard, listener.abort_handle())
    }
}

/// Listens until the connection is lost.
async fn listen(address: &PostgresAddress, tell: &watch::Sender<()>) {
    match address.tls() {
        Ok(None) => listen_over(address, NoTls, tell).await,
        Ok(Some(tls)) => listen_over(address, MakeRustlsConnect::new(tls), tell).await,
        // The pool says so to whoever needs it.
        Err(_) => {}
    }
}

async fn listen_over<T>(address: &PostgresAddress, tls: T, tell: &watch::Sender<()>)
where
    T: MakeTlsConnect<Socket>,
    T::Stream: Send + 'static,
{
    let Ok((client, mut connection)) = configured(address).connect(tls).await else { return };
    let heard = async {
        while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
            if let AsyncMessage::Notification(_) = message {
                tell.send_replace(());
            }
        }
    };
    let listening = async {
        if client.batch_execute("LISTEN countersign").await.is_ok() {
            tell.send_replace(());
            // The connection ends when its client does.
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = heard => {}
        () = listening => {}
    }
}
