//! # countersign: run tool calls that somebody answers for
//!
//! The library people embed: the ports (model, tool, store, clock), the one loop, and a person's word.
//! What a run *is* stands in `countersign-core`, all of which is re-exported here.
//!
//! Rule numbers in the documentation refer to `docs/spec.md`.

mod agent;
mod ask;
mod clock;
mod decide;
mod driver;
mod edit;
mod journal;
mod judge;
mod look;
mod memory;
mod model;
mod preview;
mod progress;
mod registry;
mod runtime;
mod store;
mod tool;
mod unattended;
mod worker;

#[cfg(any(test, feature = "contract"))]
pub mod contract;
pub mod testing;

pub use agent::{Agent, Agents};
pub use clock::{Clock, SystemClock};
pub use countersign_core::*;
pub use decide::DecideError;
pub use driver::Halt;
pub use journal::DriveError;
pub use look::{PolicyLook, ToolPolicy};
pub use memory::MemoryStore;
pub use model::{
    ATTEMPTS_MAX, Answer, AnsweredCall, Conversation, Model, ModelError, Models, Offer, Provider,
};
pub use progress::{Doing, Progress, Unwatched};
pub use registry::{AnyTool, Registered, Registry, RegistryError};
pub use runtime::{
    AgentLoop, CancelError, Finished, Limits, Mode, Outcome, Parts, RunError, RunRequest, Runtime,
    StartError, Waiting,
};
pub use store::{
    Append, AppendError, ClaimError, CreateError, Judge, Lease, LoadError, Log, Look, Page, PendingFilter,
    Revision, RunFilter, RunListing, Store, StoreFault, SwitchName, Writer,
};
pub use tool::{CallContext, PreviewContext, TIMEOUT_DEFAULT, Tool, ToolError, ToolOutput, ToolPreview};
pub use unattended::{RegistryFilter, Unattended, UnattendedError, UnattendedFilter};
pub use worker::Worked;
