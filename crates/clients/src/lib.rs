//! # Everyone countersign calls over a wire
//!
//! Each client turns the one transcript of `countersign` into its vendor's JSON and back. Nothing outside
//! this crate knows that JSON, and nothing in here decides, retries or stores. The tools that an operator
//! declares, over HTTP or as a command, are called from here too, and the one built-in tool that needs a wire,
//! `fetch_page`. So are the webhooks that are told of runs, and whoever collects traces of them.

// What they share.
mod address;
mod http;
mod kept;
mod resolve;
mod secret;
mod shorten;

// Models.
mod demo;
mod openai;

// Tools that the operator declares.
mod command_tool;
mod http_tool;
mod tool_setup;

// The tool that reads the web.
mod fetch_page;

// Whoever is told that a run waits.
mod webhook;

// Whoever collects the traces of the work on runs.
mod otlp;

pub use command_tool::{CommandEnvironment, CommandTool, CommandToolConfig};
pub use demo::{DEMO_MODEL, DEMO_PROVIDER, Demo, tour_files};
pub use fetch_page::{FetchPage, FetchPageConfig, HostPattern, NotAHostPattern};
pub use http::ANSWER_BYTES_MAX;
pub use http_tool::{HttpTool, HttpToolConfig};
pub use openai::{OpenAi, OpenAiConfig, SetupError};
pub use otlp::{
    AttributeValue, Attributes, Collector, CollectorHeaders, CollectorTarget, Handed, NotACollector,
    NotHeaders, Span, SpanContext, SpanEvent, SpanKind, SpanLink,
};
pub use secret::Secret;
pub use tool_setup::ToolSetupError;
pub use webhook::{NotASecret, NotATarget, Sent, Webhook, WebhookSecret, WebhookTarget};
