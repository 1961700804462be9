//! The one place where "may this tool take part?" is answered: five gates, in order (P1 to P10).
//!
//! Invariant: [`Policy::decide`] is pure and total, and has no default-allow arm. It says one typed reason;
//! nobody re-evaluates to explain. Not here: whether a person must be asked (`approval`), asking (`pending`).

use serde::{Deserialize, Serialize};

use crate::availability::{Allowance, Switches, ToolRequest};
use crate::name::ToolName;
use crate::principal::Principal;
use crate::tool::{DataClass, ToolSpec, Zone};

/// The gates in the order in which they are asked, so that a caller refused early never learns of a
/// later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gate {
    /// P1: a tool of this name is registered.
    NotRegistered,
    /// P2: group and tool are switched on.
    ToolDisabled,
    /// P3: an admin-only tool needs an admin.
    RequiresAdmin,
    /// P4: the agent allows the tool.
    ConfigurationGroup,
    /// P5: the data class fits the zone.
    TrustZone,
}

impl Gate {
    /// The contract's word for the reason.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotRegistered => "not_registered",
            Self::ToolDisabled => "tool_disabled",
            Self::RequiresAdmin => "requires_admin",
            Self::ConfigurationGroup => "configuration_group",
            Self::TrustZone => "trust_zone",
        }
    }

    /// The reason in a sentence, for people; a model never sees it (L2).
    pub fn sentence(self) -> &'static str {
        match self {
            Self::NotRegistered => "no tool of this name is registered",
            Self::ToolDisabled => "the tool or its group is switched off",
            Self::RequiresAdmin => "only administrators may use this tool",
            Self::ConfigurationGroup => "the agent does not allow this tool",
            Self::TrustZone => "the tool's data is too sensitive for where the model runs",
        }
    }
}

/// What the gates say about one tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// Every gate passes.
    Allow,
    /// The trust zone would deny, but it only observes (P8). No other gate can be observed.
    ObservedTrustZone,
    /// This gate denies.
    Deny(Gate),
}

impl Word {
    /// Whether the tool may take part.
    pub fn allows(self) -> bool {
        match self {
            Self::Allow | Self::ObservedTrustZone => true,
            Self::Deny(_) => false,
        }
    }

    /// The gate that denies or would deny.
    pub fn gate(self) -> Option<Gate> {
        match self {
            Self::Allow => None,
            Self::ObservedTrustZone => Some(Gate::TrustZone),
            Self::Deny(gate) => Some(gate),
        }
    }
}

/// One tool's verdict, as `explain` shows it and the loop obeys it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The name as it was asked.
    pub tool: String,
    /// The answer.
    pub word: Word,
    /// The tool's class; the strictest for an unknown name (P6).
    pub data_class: DataClass,
    /// The zone that counts (P7).
    pub zone: Zone,
    /// The zone's ceiling.
    pub ceiling: DataClass,
}

/// Whether the data class is enforced (P8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enforcement {
    /// Denies.
    Enforce,
    /// Reports, and lets local tools pass P5.
    Observe,
}

impl Enforcement {
    /// Observes only on the word `observe`, trimmed, in any case (P8).
    pub fn from_setting(setting: Option<&str>) -> Self {
        if setting.is_some_and(|word| word.trim().eq_ignore_ascii_case("observe")) {
            Self::Observe
        } else {
            Self::Enforce
        }
    }
}

/// The tools that are registered, in registration order.
pub trait Catalogue {
    /// The tool of exactly this name.
    fn find(&self, name: &str) -> Option<&ToolSpec>;
    /// All of them.
    fn all(&self) -> Box<dyn Iterator<Item = &ToolSpec> + '_>;
}

/// A plain list, for small hosts and tests.
impl Catalogue for Vec<ToolSpec> {
    fn find(&self, name: &str) -> Option<&ToolSpec> {
        self.iter().find(|tool| tool.name.as_str() == name)
    }

    fn all(&self) -> Box<dyn Iterator<Item = &ToolSpec> + '_> {
        Box::new(self.iter())
    }
}

/// What the agent contributes to the gates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentGates {
    /// P4: what its settings allow.
    pub allowance: Allowance,
    /// P5: the worst zone of its chain of models.
    pub zone: Zone,
    /// P5: whether the data class is enforced.
    pub enforcement: Enforcement,
}

/// One look at everything the gates depend on. Within it nothing is read again (G9).
#[derive(Clone, Copy)]
pub struct Policy<'a> {
    /// P1.
    pub tools: &'a dyn Catalogue,
    /// P2.
    pub switches: &'a Switches,
    /// P4, P5.
    pub agent: &'a AgentGates,
    /// P3: whoever the run acts for; nobody is not an admin.
    pub principal: Option<&'a Principal>,
}

impl std::fmt::Debug for Policy<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Policy")
            .field("switches", self.switches)
            .field("agent", self.agent)
            .field("principal", &self.principal)
            .finish_non_exhaustive()
    }
}

impl Policy<'_> {
    /// The five gates for one name.
    pub fn decide(&self, name: &str) -> Verdict {
        let tool = self.tools.find(name);
        Verdict {
            tool: name.to_owned(),
            word: self.word(tool),
            data_class: tool.map_or(DataClass::SecretAdjacent, |tool| tool.data_class),
            zone: self.agent.zone,
            ceiling: self.agent.zone.ceiling(),
        }
    }

    fn word(&self, tool: Option<&ToolSpec>) -> Word {
        let Some(tool) = tool else { return Word::Deny(Gate::NotRegistered) };
        if !self.switches.state(tool).effective {
            return Word::Deny(Gate::ToolDisabled);
        }
        if tool.requires_admin && !self.principal.is_some_and(|principal| principal.admin) {
            return Word::Deny(Gate::RequiresAdmin);
        }
        if !self.agent.allowance.allows(&tool.name) {
            return Word::Deny(Gate::ConfigurationGroup);
        }
        if tool.data_class <= self.agent.zone.ceiling() {
            return Word::Allow;
        }
        match self.agent.enforcement {
            Enforcement::Observe if !tool.origin.is_remote() => Word::ObservedTrustZone,
            Enforcement::Observe | Enforcement::Enforce => Word::Deny(Gate::TrustZone),
        }
    }

    /// The names a request asks for: its own list, or every enabled tool (G8).
    pub fn candidates(&self, request: &ToolRequest) -> Vec<String> {
        match request {
            ToolRequest::Only(names) => names.clone(),
            ToolRequest::AllEnabled => self
                .tools
                .all()
                .filter(|tool| self.switches.state(tool).effective)
                .map(|tool| tool.name.as_str().to_owned())
                .collect(),
        }
    }

    /// The candidates that every gate lets pass; input order and duplicates are kept (P9).
    pub fn offerable(&self, request: &ToolRequest) -> Vec<ToolName> {
        self.candidates(request)
            .iter()
            .filter(|name| self.decide(name).word.allows())
            .filter_map(|name| self.tools.find(name).map(|tool| tool.name.clone()))
            .collect()
    }

    /// One verdict per candidate, by the very function that enforces (P9).
    pub fn explain(&self, request: &ToolRequest) -> Vec<Verdict> {
        self.candidates(request).iter().map(|name| self.decide(name)).collect()
    }
}
