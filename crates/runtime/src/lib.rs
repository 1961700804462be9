//! # countersign: run tool calls that somebody answers for
//!
//! The library people embed: the ports (model, tool, store, clock), the one loop, and a person's word.
//! What a run *is* stands in `countersign-core`, all of which is re-exported here.
//!
//! ## Start here
//!
//! A tool is a type, a struct of arguments and one async function. A call that writes pauses the run before it runs;
//! the run is stored, and goes on after a person's word, in this process or another.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use countersign::testing::{ScriptedModel, text, turn};
//! use countersign::*;
//!
//! #[arguments]
//! struct Page {
//!     /// The number of the page.
//!     id: u64,
//! }
//!
//! struct PageDrop;
//!
//! /// Delete a page.
//! #[tool(group = "content", effect = write, data_class = editor_content)]
//! impl PageDrop {
//!     async fn call(&self, page: Page, cx: &CallContext) -> Result<ToolOutput, ToolError> {
//!         Ok(format!("{} deleted page {}", cx.actor, page.id).into())
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A script in the place of a model: it asks for one call, and then it is done.
//! let model = ScriptedModel::new([turn(&[("page_drop", r#"{"id":7}"#)]), text("Page 7 is gone.")]);
//! let provider = Provider { zone: Zone::Local, client: Arc::new(model) };
//! let agent: AgentName = "keeper".parse()?;
//! let store = Arc::new(MemoryStore::new([7; 32]));
//! let runtime = Runtime::new(Parts {
//!     store: store.clone(),
//!     models: Models::default().with("script".parse()?, provider),
//!     tools: Registry::new([PageDrop.into()])?,
//!     agents: Agents::new(Enforcement::Enforce, [Agent::new(agent.clone(), [ModelRef::parse("script/any")?])]),
//!     limits: Limits { lease: Duration::from_secs(30), parallel_reads: 8, poll: Duration::from_millis(250) },
//!     clock: Arc::new(SystemClock),
//! });
//!
//! // Rights are looked up in the store when somebody decides, so the store must know them.
//! let (alice, bob): (Subject, Subject) = ("alice".parse()?, "bob".parse()?);
//! store.put_principal(&Principal::user(alice.clone())).await?;
//! store.put_principal(&Principal::approver(bob.clone())).await?;
//!
//! let Outcome::Waiting(waiting) = runtime.run(RunRequest::new(agent, alice, "Delete page 7")).await? else {
//!     panic!("a write waits for a person");
//! };
//! runtime.decide(&waiting.id, Decision::approve(waiting.digest), &bob).await?;
//! let Outcome::Done(finished) = runtime.drive(waiting.run.id()).await? else { panic!("nothing is asked again") };
//! assert_eq!(finished.output(), Some("Page 7 is gone."));
//! # Ok(())
//! # }
//! ```
//!
//! Then: [`Tool`] for tools of your own, with examples of each kind, [`Model`] for a provider, [`Store`] for where runs are
//! kept, [`Runtime::policy`] and [`Runtime::unattended`] for callers with nobody to ask.
//!
//! Rule numbers in the documentation refer to `docs/spec.md`.

mod accounts;
mod agent;
mod ask;
mod clock;
mod decide;
mod driver;
mod earlier;
mod edit;
mod journal;
mod judge;
mod look;
mod memory;
mod model;
mod outbox;
mod preview;
mod progress;
mod registry;
mod runtime;
mod store;
mod token;
mod tool;
mod unattended;
mod worker;

#[cfg(any(test, feature = "contract"))]
pub mod contract;
pub mod testing;
pub mod typed;

pub use accounts::{Account, Accounts};
pub use agent::{Agent, Agents};
pub use clock::{Clock, SystemClock};
pub use countersign_core::*;
pub use countersign_macros::{arguments, tool};
pub use decide::DecideError;
pub use driver::Halt;
pub use journal::DriveError;
pub use look::{PolicyLook, ToolPolicy};
pub use memory::MemoryStore;
pub use model::{
    ATTEMPTS_MAX, Answer, AnsweredCall, Conversation, Model, ModelError, Models, Offer, Provider,
};
pub use outbox::{Notice, Outbox, PUT_OFF_MAX, Telling, WebhookState};
pub use progress::{Doing, Progress, Unwatched};
pub use registry::{AnyTool, Registered, Registry, RegistryError};
pub use runtime::{
    AgentLoop, CancelError, Finished, Limits, Mode, Outcome, Parts, RunError, RunRequest, Runtime,
    StartError, Waiting,
};
pub use store::{
    Append, AppendError, ClaimError, CreateError, Judge, Lease, LoadError, Log, Look, Page, PendingFilter,
    Revision, RunFilter, RunListing, StartKey, StartedBefore, Store, StoreFault, SwitchName, Writer,
};
pub use token::{Token, TokenRow};
pub use tool::{
    CallContext, PreviewContext, TIMEOUT_DEFAULT, Tool, ToolError, ToolFailure, ToolOutput, ToolPreview,
};
pub use unattended::{RegistryFilter, Unattended, UnattendedError, UnattendedFilter};
pub use worker::{Drained, Overseer, Shift, Worked};
