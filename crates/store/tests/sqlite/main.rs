//! SQLite: the suite that every store must pass, and what only a file can promise.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../both/releases.rs"]
mod both;
mod contract;
mod doctor;
mod file;
mod holders;
mod keeping;
mod releases;
mod restored;
mod rotate;
mod support;
mod tamper;
