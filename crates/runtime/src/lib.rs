//! # countersign: run tool calls that somebody answers for
//!
//! The library people embed: the ports (model, tool, store, clock) and the one loop.

mod clock;
mod model;
mod store;
mod tool;

pub use clock::{Clock, SystemClock};
pub use countersign_core::*;
pub use model::{ATTEMPTS_MAX, Answer, AnsweredCall, Conversation, Model, ModelError, Models, Offer, Provider};
pub use store::{
    Append, AppendError, ClaimError, CreateError, Lease, LoadError, Log, Look, Page, PendingFilter, Revision, RunFilter, RunListing,
    Store, StoreFault, SwitchName, Writer,
};
pub use tool::{CallContext, PreviewContext, TIMEOUT_DEFAULT, Tool, ToolError, ToolOutput, ToolPreview};
