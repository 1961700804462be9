//! The addresses of a name, judged before one is connected to.
//!
//! Invariant: the client connects to nothing but what came out of here, so the judged address is the connected one;
//! a name with even one address that may not be reached has none. Asked anew for every connection. Not here: caches.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use async_trait::async_trait;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Looks names up.
#[async_trait]
pub(crate) trait Lookup: Send + Sync {
    /// The addresses of a name; port 0 stands for the usual one.
    async fn addresses(&self, name: &str) -> io::Result<Vec<SocketAddr>>;
}

/// Asks the machine, as every program does.
pub(crate) struct MachineLookup;

#[async_trait]
impl Lookup for MachineLookup {
    async fn addresses(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        Ok(tokio::net::lookup_host((name, 0)).await?.collect())
    }
}

/// A name has an address that may not be reached. It says no more: the client's errors carry it along.
#[derive(Debug, thiserror::Error)]
#[error("the name has an address that may not be reached")]
pub(crate) struct NotPublic;

/// Looks up and judges.
#[derive(Clone)]
pub(crate) struct Resolver {
    pub(crate) lookup: Arc<dyn Lookup>,
    pub(crate) may_reach: fn(IpAddr) -> bool,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let Self { lookup, may_reach } = self.clone();
        Box::pin(async move {
            let found = lookup.addresses(name.as_str()).await?;
            if !found.iter().all(|address| may_reach(address.ip())) {
                return Err(NotPublic.into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}
