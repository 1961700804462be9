//! The PostgreSQL store, on a server of its own.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod concurrency;
mod contract;
mod holders;
mod plans;
mod server;
mod support;
mod tamper;
mod tls;
mod upkeep;
