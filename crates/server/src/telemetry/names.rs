//! What spans and their attributes are called: the only place.
//!
//! `gen_ai.*` and `error.type` are OpenTelemetry's conventions for generative AI, of which every name may still change;
//! what those have no word for is `countersign.*`. There is no name for what was said, asked or answered (S5).

use countersign::Clock;
use countersign_clients::Attributes;

pub(super) const OPERATION: &str = "gen_ai.operation.name";
pub(super) const AGENT: &str = "gen_ai.agent.name";
pub(super) const CONVERSATION: &str = "gen_ai.conversation.id";
pub(super) const PROVIDER: &str = "gen_ai.provider.name";
pub(super) const MODEL: &str = "gen_ai.request.model";
pub(super) const FINISH: &str = "gen_ai.response.finish_reasons";
pub(super) const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
pub(super) const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
pub(super) const CACHED_TOKENS: &str = "gen_ai.usage.cache_read.input_tokens";
pub(super) const TOOL: &str = "gen_ai.tool.name";
pub(super) const TOOL_TYPE: &str = "gen_ai.tool.type";
pub(super) const CALL: &str = "gen_ai.tool.call.id";
pub(super) const ERROR: &str = "error.type";

pub(super) const STATUS: &str = "countersign.run.status";
pub(super) const STOP_REASON: &str = "countersign.run.stop_reason";
pub(super) const HALT: &str = "countersign.drive.halt";
pub(super) const ATTEMPTS: &str = "countersign.model.attempts";
pub(super) const EFFECT: &str = "countersign.tool.effect";
pub(super) const ATTEMPT: &str = "countersign.call.attempt";
pub(super) const RESULT: &str = "countersign.call.result";
pub(super) const REFUSAL: &str = "countersign.call.refusal";
pub(super) const PENDING: &str = "countersign.pending.id";
pub(super) const PENDING_KIND: &str = "countersign.pending.kind";
pub(super) const PENDING_STATUS: &str = "countersign.pending.status";
pub(super) const LIMIT: &str = "countersign.limit";
pub(super) const LINK: &str = "countersign.link";

/// What this process is.
pub(super) fn process(clock: &dyn Clock) -> Attributes {
    let instance: String = clock.random().iter().map(|byte| format!("{byte:02x}")).collect();
    vec![
        ("service.name", "countersign".into()),
        ("service.version", env!("CARGO_PKG_VERSION").into()),
        ("service.instance.id", instance.as_str().into()),
    ]
}
