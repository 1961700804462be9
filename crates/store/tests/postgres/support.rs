//! A database of its own for every test, and a second way into it.

use std::sync::Arc;

use countersign::{Clock, SystemClock};
use countersign_store::{MasterKey, OpenError, PostgresAddress, PostgresStore};
use tokio::sync::OnceCell;

use crate::server::{Server, server};

pub(crate) const KEY: [u8; 32] = [7; 32];

pub(crate) struct Place {
    server: &'static Server,
    database: String,
}

impl Place {
    /// An installation without runs. It is copied from one that is made once, except for its keys.
    pub(crate) async fn new() -> Self {
        static TEMPLATE: OnceCell<String> = OnceCell::const_new();
        let server = server();
        let template = TEMPLATE
            .get_or_init(async || {
                let place = Self { server, database: server.database(None) };
                drop(place.open().await);
                place.change("DELETE FROM installation");
                // A template must have nobody in it.
                place.server.ask(
                    "postgres",
                    &format!(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{}'",
                        place.database
                    ),
                );
                place.database
            })
            .await;
        Self { server, database: server.database(Some(template)) }
    }

    /// A database in which nobody was yet.
    pub(crate) fn empty() -> Self {
        let server = server();
        Self { server, database: server.database(None) }
    }

    pub(crate) fn address(&self) -> PostgresAddress {
        PostgresAddress::parse(&self.server.address(&self.database)).unwrap()
    }

    /// The same, as another account.
    pub(crate) fn address_as(&self, account: &str) -> PostgresAddress {
        let address = self.server.address(&self.database).replacen("countersign@", &format!("{account}@"), 1);
        PostgresAddress::parse(&address).unwrap()
    }

    pub(crate) async fn open(&self) -> PostgresStore {
        self.try_open(KEY).await.unwrap()
    }

    pub(crate) async fn try_open(&self, key: [u8; 32]) -> Result<PostgresStore, OpenError> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        PostgresStore::open(self.address(), MasterKey::new(key), clock).await
    }

    /// From now on every new connection has the server write down how it finds what it is asked for.
    pub(crate) fn explain(&self) {
        for setting in [
            "session_preload_libraries = 'auto_explain'",
            "auto_explain.log_min_duration = 0",
            "auto_explain.log_analyze = on",
            "auto_explain.log_timing = off",
        ] {
            self.server.ask("postgres", &format!("ALTER DATABASE {} SET {setting}", self.database));
        }
    }

    /// What it wrote down: each statement with its plan.
    pub(crate) fn plans(&self) -> Vec<String> {
        let file = "current_setting('unix_socket_directories') || '/log'";
        let log = self.server.ask("postgres", &format!("SELECT pg_read_file({file})"));
        // A message begins with the database that it is about, and goes on in lines that begin with a tab.
        let messages = log.replace("\n\t", "\t");
        let about_it = messages.lines().filter_map(|line| line.strip_prefix(&format!("{}:", self.database)));
        about_it
            .filter(|message| message.contains(" plan:\t"))
            .map(|message| message.replace('\t', "\n"))
            .collect()
    }

    /// Changes something behind the store's back, bound by nothing.
    pub(crate) fn change(&self, statements: &str) -> String {
        self.server.ask(&self.database, statements)
    }
}
