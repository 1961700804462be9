//! The PostgreSQL store, on a server of its own.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../both/releases.rs"]
mod both;
mod concurrency;
mod contract;
mod holders;
mod plans;
mod releases;
mod server;
mod support;
mod tamper;
mod tls;
mod upkeep;
