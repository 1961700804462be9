//! `[tool_settings.NAME]`: what the operator says about tools that are there without them.
//!
//! Invariant: a setting only tightens (A1), except `enabled`. Whether it does is known once the tool is (`setup`).

use countersign::{DataClass, ToolName};

use super::ConfigError;
use super::document::Section;
use super::tools::{ask, data_class};

pub(super) const KEYS: &[&str] = &["enabled", "approval", "requires_admin", "data_class"];

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
}

pub(super) fn settings(name: &str, section: &Section<'_>) -> Result<ToolSettings, ConfigError> {
    let name = ToolName::parse(name).map_err(|error| section.wrong(&error.to_string()))?;
    let at = |key: &str| section.line_of(key);
    Ok(ToolSettings {
        name,
        line: section.line(),
        enabled: section.flag("enabled")?,
        asks: section.parsed("approval", ask)?.is_some(),
        requires_admin: section.flag("requires_admin")?.map(|flag| (flag, at("requires_admin"))),
        data_class: section.parsed("data_class", data_class)?.map(|class| (class, at("data_class"))),
    })
}
