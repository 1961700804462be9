//! `[tool_settings.NAME]`: what the operator says about tools that are there without them.
//!
//! Invariant: a setting only tightens (A1), except `enabled` and `hosts`. Whether it does is known once the tool is (`setup`).

use countersign::{DataClass, ToolName};

use super::ConfigError;
use countersign_clients::HostPattern;

use super::document::Section;
use super::tools::{ask, data_class};

pub(super) const KEYS: &[&str] = &["enabled", "approval", "requires_admin", "data_class", "hosts"];
/// The only tool that reaches hosts of its own.
pub(crate) const FETCH_PAGE: &str = "fetch_page";

/// The settings of one tool.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ToolSettings {
    /// Of which.
    pub(crate) name: ToolName,
    /// The line of the table.
    pub(crate) line: usize,
    /// The default that a switch may override (G3).
    pub(crate) enabled: Option<bool>,
    /// Whether a person is asked.
    pub(crate) asks: bool,
    /// Whether only administrators may use it, and the line of that word.
    pub(crate) requires_admin: Option<(bool, usize)>,
    /// How sensitive its results are, and the line of that word.
    pub(crate) data_class: Option<(DataClass, usize)>,
    /// The only hosts that `fetch_page` may reach.
    pub(crate) hosts: Vec<HostPattern>,
}

pub(super) fn settings(name: &str, section: &Section<'_>) -> Result<ToolSettings, ConfigError> {
    let name = ToolName::parse(name).map_err(|error| section.wrong(&error.to_string()))?;
    let hosts = section.list("hosts", |host| HostPattern::parse(host).map_err(|error| error.to_string()))?;
    if hosts.is_some() && name.as_str() != FETCH_PAGE {
        return Err(section.wrong_at("hosts", "only fetch_page has hosts"));
    }
    let at = |key: &str| section.line_of(key);
    Ok(ToolSettings {
        name,
        line: section.line(),
        enabled: section.flag("enabled")?,
        asks: section.parsed("approval", ask)?.is_some(),
        requires_admin: section.flag("requires_admin")?.map(|flag| (flag, at("requires_admin"))),
        data_class: section.parsed("data_class", data_class)?.map(|class| (class, at("data_class"))),
        hosts: hosts.unwrap_or_default(),
    })
}
