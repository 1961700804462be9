//! The one approval rule (A1), and the unattended set that asks it (U1).
//!
//! Invariant: there is no second rule. The answer is per tool, not per call, and nothing that a server or a
//! model says moves it towards "no".

use serde::{Deserialize, Serialize};

use crate::tool::{OperatorWord, Origin, Pause, RemoteApproval, ToolSpec};

/// Why a call of a tool needs a person's approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Because {
    /// The tool carries the approval marker.
    Marked,
    /// The operator says so: a setting for this tool, or a remote server that requires approval.
    Operator,
    /// It is a local tool that writes.
    Writes,
}

impl Because {
    /// The contract's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Marked => "marked",
            Self::Operator => "operator",
            Self::Writes => "writes",
        }
    }
}

/// Whether calls of this tool need a person's approval, and why; first match wins (A1). An unknown name
/// (`None`) needs none: it is refused at dispatch.
pub fn needs_approval(tool: Option<&ToolSpec>) -> Option<Because> {
    let tool = tool?;
    if tool.pause == Pause::Asks {
        return Some(Because::Marked);
    }
    if tool.operator == OperatorWord::Asks {
        return Some(Because::Operator);
    }
    match &tool.origin {
        Origin::Mcp { approval: RemoteApproval::Required, .. } => Some(Because::Operator),
        Origin::Mcp { approval: RemoteApproval::NotRequired | RemoteApproval::Undeclared, .. } => None,
        Origin::Builtin | Origin::Http | Origin::Command | Origin::Library => {
            tool.effect.writes().then_some(Because::Writes)
        }
    }
}

/// Whether a tool runs with no human pause of either kind (U1). Enablement, admin, agent and zone are not
/// asked: that is the policy's business.
pub fn runs_unattended(tool: Option<&ToolSpec>) -> bool {
    match tool {
        None => false,
        Some(ToolSpec { pause: Pause::NeedsInput(_), .. }) => false,
        Some(ToolSpec { pause: Pause::Runs | Pause::Asks, .. }) => needs_approval(tool).is_none(),
    }
}

/// Keeps the names that run unattended, in order, with duplicates; empty in, empty out (U1).
pub fn unattended<'a>(names: &[String], find: impl Fn(&str) -> Option<&'a ToolSpec>) -> Vec<String> {
    names.iter().filter(|name| runs_unattended(find(name))).cloned().collect()
}
