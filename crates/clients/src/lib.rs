//! # Everyone countersign calls over a wire
//!
//! Each client turns the one transcript of `countersign` into its vendor's JSON and back. Nothing outside
//! this crate knows that JSON, and nothing in here decides, retries or stores.

mod demo;
mod http;
mod openai;
mod secret;

pub use demo::{DEMO_MODEL, DEMO_PROVIDER, Demo, tour_files};
pub use http::ANSWER_BYTES_MAX;
pub use openai::{OpenAi, OpenAiConfig, SetupError};
pub use secret::Secret;
