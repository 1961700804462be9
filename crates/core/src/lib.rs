//! # What a run is, and what may happen to it
//!
//! Pure: no clock, no store, no network, no async. A run is an append-only log of events; [`Run::apply`] says
//! what a log means, [`Run::next`] what is owed, [`Policy::decide`] whether a tool may take part,
//! [`needs_approval`] whether a person must be asked, [`settle`] what becomes of a person's answer.
//!
//! Rule numbers in the documentation refer to `docs/spec.md`.

mod approval;
mod arguments;
mod availability;
mod canonical;
mod content;
mod decision;
mod detail;
mod digest;
mod event;
mod limits;
mod message;
mod name;
mod notice;
mod pending;
mod policy;
mod principal;
mod result;
mod rights;
mod run;
mod summary;
mod tool;

pub use approval::{Because, needs_approval, runs_unattended, unattended};
pub use arguments::{ARGUMENTS_BYTES_MAX, ARGUMENTS_DEPTH_MAX, Arguments, ArgumentsError};
pub use availability::{
    Allowance, EnableState, GroupSetting, SkillInForce, SkillOpinion, Switch, Switches, ToolRequest,
};
pub use canonical::canonical;
pub use content::{CONTENT_BYTES_MAX, ToolContent};
pub use decision::{
    Attribution, CallVerdict, Decided, Decision, DecisionRefused, Form, InputProblem, Judgement, RefusedWith,
    Said, SettledOutcome, VerdictWord, may_edit, settle, well_formed,
};
pub use detail::{DETAIL_BYTES_MAX, Detail};
pub use digest::Digest;
pub use event::{
    CallFinished, CallStarted, CallUnknown, CancelRequested, Clearance, ContextFitted, Created, Durability,
    EVENT_VERSION, Entry, Event, FailCode, GateDenied, LimitReached, ModelFailCode, ModelFailed,
    ModelReplied, PendingClosed, PendingDecided, PendingRefused, RunCancelled, RunCompleted, RunFailed,
    UnreadableEvent, WorkBegan,
};
pub use limits::{CUT_OFF_MAX, DENIED_REPEATS_MAX, INTERRUPTIONS_MAX, ITERATIONS_DEFAULT, Limit, RunLimits};
pub use message::{Finish, InputMessage, InputRole, Message, Opaque, ProposedCall, Reply, Usage, WireIds};
pub use name::{
    AgentName, CallId, GroupName, ModelRef, NotAName, PendingId, ProviderName, RunId, ServerName, Subject,
    TokenId, ToolName, WebhookName,
};
pub use notice::{NoticeKind, Subscription, Subscriptions};
pub use pending::{
    Closing, Deadline, HeldCall, HeldFacts, Outlook, PREVIEW_LINE_CHARS_MAX, PREVIEW_LINES_MAX, Pending,
    PendingStatus, Preview, Question,
};
pub use policy::{AgentGates, Catalogue, Enforcement, Gate, Policy, Verdict, Word};
pub use principal::{People, Principal, Scope, Scopes, Standing};
pub use result::{
    ARTIFACT_DEPTH_MAX, ARTIFACTS_BYTES_MAX, Artifact, ArtifactKind, CallResult, Refusal, ResultKind,
};
pub use run::{
    Ask, Bar, CallState, End, Exhausted, Illegal, PendingRecord, Run, Running, Stage, Step, Transcript, Turn,
};
pub use summary::{Changes, PendingRow, RunRow, RunState};
pub use tool::{DataClass, Effect, OperatorWord, Origin, Pause, RemoteApproval, ToolSpec, Zone};
