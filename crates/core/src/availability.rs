//! The enable cascade: group, tool, agent, request (G1 to G8).
//!
//! Invariant: switches only restrict. A tool's own switch never re-opens its group (G4), an empty *result*
//! is never read as "no restriction" (G7): setting and result are different types.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use serde::{Deserialize, Serialize};

use crate::name::{GroupName, ToolName};
use crate::tool::ToolSpec;

/// A stored switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// Switched on.
    On,
    /// Switched off.
    Off,
    /// There is a row, but it cannot be read: it counts as off (P10).
    Unreadable,
}

/// One look at all switches. Only overrides are stored (G2, G3); rows of vanished names are inert.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    tools: BTreeMap<String, Switch>,
    groups: BTreeMap<String, Switch>,
    tools_off_at: BTreeMap<String, Timestamp>,
    groups_off_at: BTreeMap<String, Timestamp>,
}

impl Switches {
    /// Adds the row of a tool. A second row for the same name cannot be read as either (P10).
    #[must_use]
    pub fn with_tool(mut self, name: &str, switch: Switch) -> Self {
        insert(&mut self.tools, name, switch);
        self
    }

    /// Adds the row of a group, in the same way.
    #[must_use]
    pub fn with_group(mut self, name: &str, switch: Switch) -> Self {
        insert(&mut self.groups, name, switch);
        self
    }

    /// Adds when a tool was last switched off, whatever became of its switch since.
    #[must_use]
    pub fn with_tool_off_at(mut self, name: &str, at: Timestamp) -> Self {
        self.tools_off_at.insert(name.to_owned(), at);
        self
    }

    /// Adds when a group was last switched off, in the same way.
    #[must_use]
    pub fn with_group_off_at(mut self, name: &str, at: Timestamp) -> Self {
        self.groups_off_at.insert(name.to_owned(), at);
        self
    }

    /// Whether the tool or its group was switched off at or after this moment, even if it is on again. An
    /// approval given then is not revived by switching it on (A12).
    pub fn was_off_since(&self, tool: &ToolSpec, since: Timestamp) -> bool {
        let off_at = [self.tools_off_at.get(tool.name.as_str()), self.groups_off_at.get(tool.group.as_str())];
        off_at.into_iter().flatten().any(|at| *at >= since)
    }

    /// The row of a group, if there is one.
    pub fn group(&self, name: &GroupName) -> Option<Switch> {
        self.groups.get(name.as_str()).copied()
    }

    /// The row of a tool, if there is one.
    pub fn tool(&self, name: &ToolName) -> Option<Switch> {
        self.tools.get(name.as_str()).copied()
    }

    /// All names with a row, tools first; for showing overrides of names that nobody has any more.
    pub fn names(&self) -> (impl Iterator<Item = &str>, impl Iterator<Item = &str>) {
        (self.tools.keys().map(String::as_str), self.groups.keys().map(String::as_str))
    }

    /// All five states of a tool (G4).
    pub fn state(&self, tool: &ToolSpec) -> EnableState {
        let switch = self.tool(&tool.name);
        let tool_on = switch.map_or(tool.enabled_by_default, |switch| switch == Switch::On);
        let group_on = self.group(&tool.group).is_none_or(|switch| switch == Switch::On);
        EnableState {
            effective: group_on && tool_on,
            tool: tool_on,
            group: group_on,
            default: tool.enabled_by_default,
            overridden: switch.is_some(),
        }
    }
}

fn insert(rows: &mut BTreeMap<String, Switch>, name: &str, switch: Switch) {
    rows.entry(name.to_owned()).and_modify(|row| *row = Switch::Unreadable).or_insert(switch);
}

/// Why a tool is on or off, all of it (G4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct EnableState {
    /// The answer: group and tool are on.
    pub effective: bool,
    /// The tool's own state: its switch, else its default.
    pub tool: bool,
    /// The group's state: its switch, else on.
    pub group: bool,
    /// What the tool declares.
    pub default: bool,
    /// Whether the tool has a switch of its own.
    pub overridden: bool,
}

/// The setting `tool_groups` of an agent (G5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupSetting {
    /// Empty or absent: no restriction.
    Unrestricted,
    /// Only tools of these groups. If no registered tool has one of them, no tools.
    Only(BTreeSet<GroupName>),
}

impl GroupSetting {
    /// Reads the list of the configuration: empty means no restriction.
    pub fn from_list(groups: impl IntoIterator<Item = GroupName>) -> Self {
        let groups: BTreeSet<_> = groups.into_iter().collect();
        if groups.is_empty() { Self::Unrestricted } else { Self::Only(groups) }
    }
}

/// What one skill says about tools (G6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SkillOpinion {
    /// No `allowed-tools`: nothing to say.
    None,
    /// `allowed-tools`, possibly empty; also the opinion of a skill that is missing or unreadable.
    Only(BTreeSet<String>),
}

/// A skill as a run was started with it (R7): what it says about tools, kept with the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SkillInForce {
    /// Its name.
    pub name: String,
    /// `allowed-tools`; absent: it has no opinion. Empty: nothing (G6).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_tools: Option<Vec<String>>,
    /// Whether its text was left out for want of space. Its opinion counts all the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub prose_left_out: bool,
}

impl SkillInForce {
    /// What it says about tools (G6).
    pub fn opinion(&self) -> SkillOpinion {
        match &self.allowed_tools {
            None => SkillOpinion::None,
            Some(names) => SkillOpinion::Only(names.iter().cloned().collect()),
        }
    }
}

/// Which tools an agent allows: the result of its settings (G7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allowance {
    /// No setting speaks.
    Everything,
    /// These, possibly none.
    Only(BTreeSet<ToolName>),
}

impl Allowance {
    /// Skills ∩ groups where both speak, else the one that speaks, else everything (G5, G6, G7).
    pub fn of<'a>(
        groups: &GroupSetting,
        skills: &[SkillOpinion],
        registered: impl Iterator<Item = &'a ToolSpec>,
    ) -> Self {
        let mut opinions = skills.iter().filter_map(|opinion| match opinion {
            SkillOpinion::None => None,
            SkillOpinion::Only(names) => Some(names),
        });
        let by_skills: Option<BTreeSet<&String>> =
            opinions.next().map(|first| opinions.flatten().chain(first).collect());
        if by_skills.is_none() && *groups == GroupSetting::Unrestricted {
            return Self::Everything;
        }
        Self::Only(
            registered
                .filter(|tool| match groups {
                    GroupSetting::Unrestricted => true,
                    GroupSetting::Only(names) => names.contains(&tool.group),
                })
                .filter(|tool| {
                    by_skills.as_ref().is_none_or(|names| names.contains(&tool.name.as_str().to_owned()))
                })
                .map(|tool| tool.name.clone())
                .collect(),
        )
    }

    /// What both allow.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Everything, one) | (one, Self::Everything) => one,
            (Self::Only(names), Self::Only(others)) => {
                Self::Only(names.intersection(&others).cloned().collect())
            }
        }
    }

    /// Whether the agent allows this tool.
    pub fn allows(&self, name: &ToolName) -> bool {
        match self {
            Self::Everything => true,
            Self::Only(names) => names.contains(name),
        }
    }
}

/// A run's own list of tools: a request, not a grant (G8).
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(untagged)]
pub enum ToolRequest {
    /// `[…]`: these, possibly none. `[]` is one plain completion.
    Only(Vec<String>),
    /// `null`: all enabled tools.
    AllEnabled,
}
