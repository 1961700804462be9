//! One look at switches and rights, with the questions that can be asked of it (G9).

use std::sync::Arc;

use countersign_core::{AgentGates, ModelRef, Policy, Principal, Subject, ToolName, ToolRequest, Verdict};

use crate::agent::Agent;
use crate::runtime::Parts;
use crate::store::Look;

/// The five gates for one agent and one principal, as of one moment.
#[derive(Clone, Debug)]
pub struct PolicyLook {
    parts: Arc<Parts>,
    gates: AgentGates,
    look: Look,
    principal: Option<Principal>,
}

/// The policy, as others inject and fake it. There is no permissive one.
pub trait ToolPolicy: Send + Sync {
    /// The tools that every gate lets pass; `None` asks for all enabled ones (P9).
    fn offerable(&self, requested: Option<&[String]>) -> Vec<ToolName>;

    /// One verdict per candidate, by the very function that enforces (P9).
    fn explain(&self, requested: Option<&[String]>) -> Vec<Verdict>;
}

impl PolicyLook {
    pub(crate) fn new(
        parts: Arc<Parts>,
        agent: &Agent,
        chain: &[ModelRef],
        look: Look,
        actor: &Subject,
    ) -> Self {
        let gates = parts.agents.gates(agent, chain, &parts.models, &parts.tools);
        let principal = look.people.find(actor).cloned();
        Self { parts, gates, look, principal }
    }

    pub(crate) fn policy(&self) -> Policy<'_> {
        Policy {
            tools: &self.parts.tools,
            switches: &self.look.switches,
            agent: &self.gates,
            principal: self.principal.as_ref(),
        }
    }

    /// What this look saw.
    pub fn look(&self) -> &Look {
        &self.look
    }
}

impl ToolPolicy for PolicyLook {
    fn offerable(&self, requested: Option<&[String]>) -> Vec<ToolName> {
        self.policy().offerable(&request(requested))
    }

    fn explain(&self, requested: Option<&[String]>) -> Vec<Verdict> {
        self.policy().explain(&request(requested))
    }
}

fn request(requested: Option<&[String]>) -> ToolRequest {
    requested.map_or(ToolRequest::AllEnabled, |names| ToolRequest::Only(names.to_vec()))
}
