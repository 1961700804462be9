//! The suite that every store must pass, on PostgreSQL.

use std::sync::Arc;

use async_trait::async_trait;
use countersign::contract::{Damage, Harness};
use countersign::{Accounts, Outbox, Store, Subscriptions, SwitchName};
use countersign_store::PostgresStore;

use crate::support::Place;

struct OnPostgres {
    place: Place,
    store: Arc<PostgresStore>,
}

#[async_trait]
impl Harness for OnPostgres {
    async fn fresh() -> Self {
        let place = Place::new().await;
        let store = Arc::new(place.open().await);
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
        let store = Arc::new(place.open().await);
        Self { place, store }
    }

    async fn damage(&self, what: Damage) {
        let (table, change, name) = match &what {
            Damage::Entry { run, seq } => (
                "events",
                "sealed = decode(repeat('00', 80), 'hex')",
                format!("run = '{run}' AND seq = {seq}"),
            ),
            Damage::Run(run) => ("runs", "failure = 'spoiled'", format!("id = '{run}'")),
            Damage::Pending(id) => ("pendings", "status = 'unheard_of', owner = ''", format!("id = '{id}'")),
            Damage::Deadline(id) => {
                ("pendings", "expires_at = '2999-02-30T00:00:00.000000000Z'", format!("id = '{id}'"))
            }
            Damage::Switch(SwitchName::Tool(name)) => {
                ("tool_switches", "enabled = 2", format!("name = '{name}'"))
            }
            Damage::Switch(SwitchName::Group(name)) => {
                ("group_switches", "enabled = -1", format!("name = '{name}'"))
            }
        };
        let changed =
            self.place.change(&format!("UPDATE {table} SET {change} WHERE {name} RETURNING 'changed'"));
        assert_eq!(changed, "changed\n", "{what:?}");
    }
}

countersign::store_contract!(OnPostgres);
