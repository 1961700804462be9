//! The suite that every store must pass, on SQLite.

use std::sync::Arc;

use crate::support::Place;
use async_trait::async_trait;
use countersign::contract::{Damage, Harness};
use countersign::{Accounts, Outbox, Store, Subscriptions, SwitchName};
use countersign_store::SqliteStore;

struct OnSqlite {
    place: Place,
    store: Arc<SqliteStore>,
}

#[async_trait]
impl Harness for OnSqlite {
    async fn fresh() -> Self {
        let place = Place::new();
        let store = Arc::new(place.open());
        Self { place, store }
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as Arc<dyn Store>
    }

    fn accounts(&self) -> Arc<dyn Accounts> {
        Arc::clone(&self.store) as Arc<dyn Accounts>
    }

    fn outbox(&self) -> Arc<dyn Outbox> {
        Arc::clone(&self.store) as Arc<dyn Outbox>
    }

    async fn telling(self, subscriptions: Subscriptions) -> Self {
        let Self { place, store } = self;
        let store = Arc::into_inner(store).expect("nobody else holds the store");
        Self { place, store: Arc::new(store.telling(subscriptions)) }
    }

    async fn reopened(self) -> Self {
        let Self { place, store } = self;
        drop(Arc::into_inner(store).expect("nobody else holds the store"));
        let store = Arc::new(place.open());
        Self { place, store }
    }

    async fn damage(&self, what: Damage) {
        let meddler = self.place.meddle();
        let changed = match &what {
            Damage::Entry { run, seq } => meddler.execute(
                "UPDATE events SET sealed = zeroblob(80) WHERE run = ?1 AND seq = ?2",
                (run.as_str(), i64::try_from(*seq).unwrap()),
            ),
            Damage::Run(run) => {
                meddler.execute("UPDATE runs SET failure = 'spoiled' WHERE id = ?1", [run.as_str()])
            }
            Damage::Pending(id) => meddler.execute(
                "UPDATE pendings SET status = CAST(x'ff' AS TEXT), owner = '' WHERE id = ?1",
                [id.as_str()],
            ),
            Damage::Deadline(id) => meddler.execute(
                "UPDATE pendings SET expires_at = '2999-02-30T00:00:00.000000000Z' WHERE id = ?1",
                [id.as_str()],
            ),
            Damage::Switch(SwitchName::Tool(name)) => {
                meddler.execute("UPDATE tool_switches SET enabled = 2 WHERE name = ?1", [name.as_str()])
            }
            Damage::Switch(SwitchName::Group(name)) => {
                meddler.execute("UPDATE group_switches SET enabled = -1 WHERE name = ?1", [name.as_str()])
            }
        };
        assert_eq!(changed.unwrap(), 1, "{what:?}");
    }
}

countersign::store_contract!(OnSqlite);
