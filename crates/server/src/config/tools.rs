//! `[[tools]]`: tools that any program serves over HTTP, or that are a command. The operator declares their facts.
//!
//! Invariant: what is not declared is the strictest there is: it writes (A2), and only a local model may be shown
//! what it says (P6). Not here: calling them (`countersign-clients`), and whether a schema is one (the registry).

use std::time::Duration;

use countersign::{
    DataClass, Effect, GroupName, OperatorWord, Origin, Pause, TIMEOUT_DEFAULT, ToolName, ToolSpec,
};
use serde_json::json;

use super::document::Section;
use super::settings::FETCH_PAGE;
use super::{ConfigError, duration, one_of};

/// The tools that ship with the program.
pub(crate) const BUILT_IN: [&str; 10] = [
    "list_files",
    "read_file",
    "search_files",
    "write_file",
    "edit_file",
    "move_file",
    "delete_file",
    FETCH_PAGE,
    "list_runs",
    "system_status",
];

/// Those of them that are there also without a workspace.
pub(crate) const ALWAYS_THERE: [&str; 3] = [FETCH_PAGE, "list_runs", "system_status"];

pub(super) const KEYS: &[&str] = &[
    "name",
    "description",
    "group",
    "effect",
    "http",
    "command",
    "timeout",
    "parameters",
    "data_class",
    "approval",
    "enabled",
    "requires_admin",
    "preview",
    "input",
];

/// One tool.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tool {
    /// Its facts.
    pub(crate) spec: ToolSpec,
    /// How it is called.
    pub(crate) way: Way,
    /// Where previews are asked for.
    pub(crate) preview: Option<String>,
    /// How long one call may take.
    pub(crate) timeout: Duration,
    /// The line of its table.
    pub(crate) line: usize,
}

/// How a tool is called.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Way {
    /// At this address.
    Http(String),
    /// As this program with these arguments.
    Command(Vec<String>),
}

pub(super) fn tool(section: &Section<'_>) -> Result<Tool, ConfigError> {
    let missing = |key: &str| section.wrong(&format!("the key {key} is missing"));
    let name = section.parsed("name", |name| ToolName::parse(name).map_err(|error| error.to_string()))?;
    let group =
        section.parsed("group", |group| GroupName::parse(group).map_err(|error| error.to_string()))?;
    let effect = section.parsed("effect", effect)?.unwrap_or(Effect::Write);
    let asks = section.parsed("approval", ask)?.is_some();
    let input = section.json("input")?;
    if input.is_some() && (asks || effect.writes()) {
        return Err(section.wrong_at(
            "input",
            "a tool that needs input must have effect = \"read\" and no approval: it can only do one of them",
        ));
    }
    let way = match (section.text("http")?, section.list("command", |word| Ok(word.to_owned()))?) {
        (Some(url), None) => Way::Http(url.to_owned()),
        (None, Some(command)) => Way::Command(command),
        (Some(_), Some(_)) => {
            return Err(section.wrong_at("command", "a tool has http or command, not both"));
        }
        (None, None) => return Err(section.wrong("one of the keys http and command must be there")),
    };
    let spec = ToolSpec {
        name: name.ok_or_else(|| missing("name"))?,
        description: section.text("description")?.unwrap_or_default().to_owned(),
        group: group.ok_or_else(|| missing("group"))?,
        origin: match way {
            Way::Http(_) => Origin::Http,
            Way::Command(_) => Origin::Command,
        },
        effect,
        data_class: section.parsed("data_class", data_class)?.unwrap_or(DataClass::SecretAdjacent),
        enabled_by_default: section.flag("enabled")?.unwrap_or(true),
        requires_admin: section.flag("requires_admin")?.unwrap_or(false),
        pause: match (input, asks) {
            (Some(schema), _) => Pause::NeedsInput(schema),
            (None, true) => Pause::Asks,
            (None, false) => Pause::Runs,
        },
        operator: OperatorWord::Silent,
        parameters: section
            .json("parameters")?
            .unwrap_or_else(|| json!({ "type": "object", "properties": {} })),
    };
    Ok(Tool {
        spec,
        way,
        preview: section.text("preview")?.map(str::to_owned),
        timeout: section.parsed("timeout", timeout)?.unwrap_or(TIMEOUT_DEFAULT),
        line: section.line(),
    })
}

/// Each name is there once, and none is a built-in's.
pub(super) fn check_names(
    tools: &[Tool],
    wrong: impl Fn(usize, String) -> ConfigError,
) -> Result<(), ConfigError> {
    for (index, tool) in tools.iter().enumerate() {
        let name = &tool.spec.name;
        if BUILT_IN.contains(&name.as_str()) {
            return Err(wrong(
                tool.line,
                format!("tools.{name}: a built-in tool has this name; choose another"),
            ));
        }
        if let Some(first) = tools[..index].iter().find(|first| first.spec.name == *name) {
            return Err(wrong(
                tool.line,
                format!("tools.{name}: the tool of line {} has this name already", first.line),
            ));
        }
    }
    Ok(())
}

fn effect(word: &str) -> Result<Effect, String> {
    let effects = [Effect::Read, Effect::IdempotentWrite, Effect::Write];
    effects
        .into_iter()
        .find(|effect| effect.as_str() == word)
        .ok_or_else(|| one_of(&effects.map(Effect::as_str)))
}

pub(super) fn data_class(word: &str) -> Result<DataClass, String> {
    let words = DataClass::ALL.map(DataClass::as_str);
    DataClass::ALL.into_iter().find(|class| class.as_str() == word).ok_or_else(|| one_of(&words))
}

/// The only word there is: an operator can only tighten (A1).
pub(super) fn ask(word: &str) -> Result<(), String> {
    if word == "ask" { Ok(()) } else { Err("it must be \"ask\", or not be there".to_owned()) }
}

fn timeout(value: &str) -> Result<Duration, String> {
    let timeout = duration::parse(value)?;
    if timeout.is_zero() { Err("a call needs some time".to_owned()) } else { Ok(timeout) }
}
