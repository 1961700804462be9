//! `[telemetry]`: where the work on runs is traced.
//!
//! Invariant: the collector is here, in TLS, or declared otherwise. What it must be shown is in the environment; the file
//! names its variable. Not here: what is traced (`crate::telemetry`).

use countersign_clients::CollectorTarget;

use super::ConfigError;
use super::document::Section;

pub(super) const KEYS: &[&str] = &["otlp", "headers_env", "cleartext"];

/// `[telemetry]`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Telemetry {
    /// The line of the table.
    pub(crate) line: usize,
    /// The collector.
    pub(crate) collector: CollectorTarget,
    /// The variable with what is sent along with every request.
    pub(crate) headers_env: Option<String>,
}

pub(super) fn telemetry(section: &Section<'_>) -> Result<Telemetry, ConfigError> {
    let cleartext = section.flag("cleartext")? == Some(true);
    let collector = |text: &str| CollectorTarget::parse(text, cleartext).map_err(|error| error.to_string());
    let missing = || section.wrong("the key otlp is missing: where the collector takes OTLP over HTTP");
    Ok(Telemetry {
        line: section.line(),
        collector: section.parsed("otlp", collector)?.ok_or_else(missing)?,
        headers_env: section.text("headers_env")?.map(str::to_owned),
    })
}
