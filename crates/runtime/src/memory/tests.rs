//! The suite that every store must pass, in memory.

use std::sync::Arc;

use async_trait::async_trait;

use super::MemoryStore;
use crate::contract::{Damage, Harness};
use crate::{Accounts, Clock, Outbox, Store, Subscriptions, SystemClock};

struct InMemory(Arc<MemoryStore>);

#[async_trait]
impl Harness for InMemory {
    async fn fresh() -> Self {
        let mut secret = [0; 32];
        secret[..16].copy_from_slice(&SystemClock.random());
        Self(Arc::new(MemoryStore::new(secret)))
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.0) as Arc<dyn Store>
    }

    fn accounts(&self) -> Arc<dyn Accounts> {
        Arc::clone(&self.0) as Arc<dyn Accounts>
    }

    fn outbox(&self) -> Arc<dyn Outbox> {
        Arc::clone(&self.0) as Arc<dyn Outbox>
    }

    async fn telling(self, subscriptions: Subscriptions) -> Self {
        let store = Arc::into_inner(self.0).expect("nobody else holds the store");
        Self(Arc::new(store.telling(subscriptions)))
    }

    async fn reopened(self) -> Self {
        self
    }

    async fn damage(&self, what: Damage) {
        self.0.damage(&what);
    }
}

crate::store_contract!(InMemory);
