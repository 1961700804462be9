//! The shapes of answers, as `crate::json` writes them.
#![expect(dead_code, reason = "these describe; nothing of them is ever made")]

use std::collections::BTreeMap;

use utoipa::ToSchema;

/// A refusal (RFC 9457).
#[derive(ToSchema)]
#[schema(as = Problem)]
pub(crate) struct ProblemBody {
    r#type: String,
    title: String,
    status: u16,
    /// What happened, for people.
    detail: String,
    /// What happened, for programs: stable.
    code: String,
    /// Where a body is not what it must be.
    errors: Option<Vec<ProblemAt>>,
    /// With `already_decided`: what was decided.
    decision: Option<Decision>,
}

/// Where a body is not what it must be.
#[derive(ToSchema)]
pub(crate) struct ProblemAt {
    /// A JSON pointer.
    pointer: String,
    detail: String,
}

/// One execution of an agent.
#[derive(ToSchema)]
pub(crate) struct Run {
    id: String,
    status: RunStatus,
    agent: String,
    owner: String,
    unattended: bool,
    /// The run whose conversation it goes on with.
    #[schema(required)]
    continues: Option<String>,
    iterations: u32,
    usage: Usage,
    /// The final text.
    #[schema(required)]
    output: Option<String>,
    truncated: bool,
    #[schema(required)]
    stop_reason: Option<String>,
    #[schema(required)]
    error: Option<RunError>,
    /// The open question.
    #[schema(required)]
    pending: Option<Pending>,
    #[schema(format = DateTime)]
    created_at: String,
    #[schema(format = DateTime)]
    updated_at: String,
    #[schema(required, format = DateTime)]
    finished_at: Option<String>,
}

/// Where a run stands.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(crate) enum RunStatus {
    Queued,
    Running,
    WaitingForApproval,
    WaitingForInput,
    NeedsResolution,
    Completed,
    Failed,
    Cancelled,
}

/// What the models have used.
#[derive(ToSchema)]
pub(crate) struct Usage {
    input_tokens: u64,
    output_tokens: u64,
    cached_input_tokens: u64,
    /// Model attempts whose answer told no usage.
    unknown_calls: u64,
}

/// Why a run ended without an answer of its own.
#[derive(ToSchema)]
pub(crate) struct RunError {
    code: String,
    detail: String,
}

/// One thing that a person must settle.
#[derive(ToSchema)]
pub(crate) struct Pending {
    id: String,
    run: String,
    kind: PendingKind,
    status: PendingStatus,
    /// Of everything that will run; a decision names it.
    digest: String,
    #[schema(format = DateTime)]
    created_at: String,
    /// A time, null for never, or `unreadable`, which counts as expired.
    #[schema(required)]
    expires_at: Option<String>,
    calls: Vec<HeldCall>,
    #[schema(required)]
    input: Option<AskedInput>,
    #[schema(required)]
    resolution: Option<AskedOutcome>,
    /// Who changed arguments last, if somebody did.
    #[schema(required)]
    edited_by: Option<String>,
    #[schema(required)]
    decision: Option<Decision>,
}

/// What is asked.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(crate) enum PendingKind {
    Approval,
    Input,
    Resolution,
}

/// Where a question stands.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(crate) enum PendingStatus {
    Open,
    Approved,
    Denied,
    Answered,
    Settled,
    Expired,
    Withdrawn,
    Void,
    Superseded,
}

/// One call of the held turn.
#[derive(ToSchema)]
pub(crate) struct HeldCall {
    id: String,
    tool: String,
    #[schema(required)]
    remote_name: Option<String>,
    #[schema(required)]
    group: Option<String>,
    #[schema(required)]
    origin: Option<String>,
    #[schema(required)]
    server: Option<String>,
    #[schema(required)]
    effect: Option<String>,
    /// Null in a list where they are long; `arguments_bytes` then says how long.
    #[schema(required, value_type = Option<Object>)]
    arguments: Option<()>,
    arguments_bytes: Option<u64>,
    /// The model's, where a person changed them.
    #[schema(required, value_type = Option<Object>)]
    original_arguments: Option<()>,
    needs_approval: bool,
    #[schema(required)]
    because: Option<String>,
    will_run: bool,
    #[schema(required)]
    refusal: Option<String>,
    #[schema(required)]
    preview: Option<Preview>,
}

/// What a call would do.
#[derive(ToSchema)]
pub(crate) struct Preview {
    lines: Vec<String>,
    failed: bool,
}

/// The fields that a person must supply.
#[derive(ToSchema)]
pub(crate) struct AskedInput {
    call: String,
    /// JSON Schema 2020-12.
    #[schema(value_type = Object)]
    schema: (),
    message: String,
    #[schema(required)]
    server: Option<String>,
    mode: String,
    #[schema(required)]
    url: Option<String>,
}

/// The call whose outcome is not known.
#[derive(ToSchema)]
pub(crate) struct AskedOutcome {
    call: String,
    /// Before this, that it did not happen cannot be said.
    #[schema(format = DateTime)]
    not_before: String,
}

/// What was decided.
#[derive(ToSchema)]
pub(crate) struct Decision {
    by: String,
    #[schema(required, format = DateTime)]
    at: Option<String>,
    verdict: String,
    calls: BTreeMap<String, String>,
    #[schema(required)]
    reason: Option<String>,
    attribution: String,
}

/// Something that a model may call; of one that is not there any more only its switch.
#[derive(ToSchema)]
pub(crate) struct Tool {
    name: String,
    description: Option<String>,
    group: Option<String>,
    origin: Option<String>,
    server: Option<String>,
    remote_name: Option<String>,
    effect: Option<String>,
    data_class: Option<String>,
    requires_admin: Option<bool>,
    /// A JSON Schema.
    #[schema(value_type = Option<Object>)]
    parameters: Option<()>,
    enabled: Enabled,
    approval: Option<ToolApproval>,
    unattended: Option<bool>,
    /// `never`, `may` or `always`.
    suspends: Option<String>,
    /// Whether there is a switch and no such tool.
    orphaned: bool,
}

/// Whether it may be called, and what that comes from.
#[derive(ToSchema)]
pub(crate) struct Enabled {
    effective: bool,
    tool: bool,
    #[schema(required)]
    group: Option<bool>,
    #[schema(required)]
    default: Option<bool>,
    overridden: bool,
}

/// Whether a person is asked.
#[derive(ToSchema)]
pub(crate) struct ToolApproval {
    required: bool,
    #[schema(required)]
    because: Option<String>,
    /// False: the operator said nothing about it.
    declared: bool,
}

/// A family of tools.
#[derive(ToSchema)]
pub(crate) struct Group {
    name: String,
    enabled: bool,
    overridden: bool,
    tools: Vec<String>,
    /// Whether there is a switch and no such group.
    orphaned: bool,
}

/// What runs can be started with.
#[derive(ToSchema)]
pub(crate) struct Agent {
    name: String,
    models: Vec<String>,
    /// The worst of the whole chain.
    zone: String,
    tool_groups: Vec<String>,
    skills: Vec<String>,
    max_iterations: u32,
    #[schema(required)]
    max_tokens: Option<u64>,
    #[schema(required)]
    approval_ttl_s: Option<u64>,
    second_approver: bool,
}

/// Why a tool may be offered, or may not.
#[derive(ToSchema)]
pub(crate) struct Verdict {
    tool: String,
    allowed: bool,
    reason: String,
    observed_only: bool,
    data_class: String,
    zone: String,
    ceiling: String,
    approval: VerdictApproval,
    unattended: bool,
}

/// Whether a person is asked.
#[derive(ToSchema)]
pub(crate) struct VerdictApproval {
    required: bool,
    #[schema(required)]
    because: Option<String>,
}

/// Something that happened to a run.
#[derive(ToSchema)]
pub(crate) struct Event {
    /// Gapless from 0.
    seq: u64,
    #[schema(format = DateTime)]
    at: String,
    kind: String,
    #[schema(value_type = Object)]
    data: (),
}

/// Names of tools.
#[derive(ToSchema)]
pub(crate) struct ToolNames {
    tools: Vec<String>,
}

/// One verdict a tool.
#[derive(ToSchema)]
pub(crate) struct Verdicts {
    items: Vec<Verdict>,
}

macro_rules! page {
    ($name:ident of $item:ident) => {
        #[doc = "One page of a list; `next` is the `cursor` of the following one."]
        #[derive(ToSchema)]
        pub(crate) struct $name {
            items: Vec<$item>,
            #[schema(required)]
            next: Option<String>,
        }
    };
}

page!(RunPage of Run);
page!(PendingPage of Pending);
page!(EventPage of Event);
page!(ToolPage of Tool);
page!(GroupPage of Group);
page!(AgentPage of Agent);

/// A stretch of a run, from what set it going to where it next stopped.
#[derive(ToSchema)]
pub(crate) struct Response {
    id: String,
    object: String,
    /// Seconds since 1970.
    created_at: i64,
    /// Seconds since 1970; only where it is completed.
    #[schema(required)]
    completed_at: Option<i64>,
    status: ResponseStatus,
    background: bool,
    #[schema(required)]
    error: Option<ResponseError>,
    #[schema(required)]
    incomplete_details: Option<IncompleteDetails>,
    #[schema(required)]
    instructions: Option<String>,
    #[schema(required)]
    max_output_tokens: Option<u64>,
    metadata: ResponseMetadata,
    /// The agent.
    model: String,
    output: Vec<OutputItem>,
    parallel_tool_calls: bool,
    #[schema(required)]
    previous_response_id: Option<String>,
    store: bool,
    #[schema(required)]
    temperature: Option<u32>,
    text: ResponseText,
    tool_choice: String,
    /// Always empty: tools are the operator's.
    tools: Vec<String>,
    #[schema(required)]
    top_p: Option<u32>,
    truncation: String,
    /// Of this response; null while the run has not stopped.
    #[schema(required)]
    usage: Option<ResponseUsage>,
}

/// Where it stands. A run that waits for an approval is completed, with requests among the output.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(crate) enum ResponseStatus {
    InProgress,
    Completed,
    Incomplete,
    Failed,
    Cancelled,
}

/// Why there is no answer.
#[derive(ToSchema)]
pub(crate) struct ResponseError {
    code: String,
    message: String,
}

/// Why there is no more of it.
#[derive(ToSchema)]
pub(crate) struct IncompleteDetails {
    reason: String,
}

/// Our own words, each a text.
#[derive(ToSchema)]
pub(crate) struct ResponseMetadata {
    /// The run.
    run: String,
    /// Where the run stopped: a status of the run.
    status: Option<String>,
    /// The question.
    pending: Option<String>,
    stop_reason: Option<String>,
    /// The code of a failed run.
    error: Option<String>,
    /// The response after this one.
    next: Option<String>,
}

/// The form of texts.
#[derive(ToSchema)]
pub(crate) struct ResponseText {
    format: ResponseFormat,
}

/// The form of texts.
#[derive(ToSchema)]
pub(crate) struct ResponseFormat {
    r#type: String,
}

/// What the models have used.
#[derive(ToSchema)]
pub(crate) struct ResponseUsage {
    input_tokens: u64,
    input_tokens_details: InputTokensDetails,
    output_tokens: u64,
    output_tokens_details: OutputTokensDetails,
    total_tokens: u64,
}

/// Of the tokens read.
#[derive(ToSchema)]
pub(crate) struct InputTokensDetails {
    cached_tokens: u64,
    cache_write_tokens: u64,
}

/// Of the tokens written.
#[derive(ToSchema)]
pub(crate) struct OutputTokensDetails {
    reasoning_tokens: u64,
}

/// A `message`; an `mcp_approval_request`; or an `mcp_call` that runs along when the turn is released.
#[derive(ToSchema)]
pub(crate) struct OutputItem {
    r#type: String,
    id: String,
    status: Option<String>,
    role: Option<String>,
    content: Option<Vec<OutputText>>,
    /// The server of a remote tool; the group of any other.
    server_label: Option<String>,
    name: Option<String>,
    /// JSON as text: exactly what runs.
    arguments: Option<String>,
    approval_request_id: Option<String>,
    output: Option<String>,
    error: Option<String>,
}

/// A text.
#[derive(ToSchema)]
pub(crate) struct OutputText {
    r#type: String,
    text: String,
    annotations: Vec<String>,
    logprobs: Vec<String>,
}
