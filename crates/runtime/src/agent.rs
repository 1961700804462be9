//! Named configurations that runs are started with.

use std::collections::BTreeMap;
use std::time::Duration;

use countersign_core::{
    AgentGates, AgentName, Allowance, Catalogue, Created, Enforcement, GroupSetting, ITERATIONS_DEFAULT,
    ModelRef, RunLimits, SkillInForce, SkillOpinion,
};

use crate::model::Models;

/// One named configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Agent {
    /// Its name.
    pub name: AgentName,
    /// The chain: the first serves, the rest are fallbacks (L7).
    pub models: Vec<ModelRef>,
    /// What every conversation begins with.
    pub system_prompt: Option<String>,
    /// G5.
    pub groups: GroupSetting,
    /// G6: its skills, and what they say about tools. Their texts are in the system prompt.
    pub skills: Vec<SkillInForce>,
    /// The caps of a whole run; a request may only lower them.
    pub limits: RunLimits,
    /// How long a question stays open; absent: for ever.
    pub approval_ttl: Option<Duration>,
    /// Four eyes: whoever takes part in a run may not release its calls (A8).
    pub second_approver: bool,
}

impl Agent {
    /// An agent on this chain of models that restricts nothing, keeps questions open for ever and has the default
    /// cap of iterations; change the other fields at will.
    pub fn new(name: AgentName, models: impl IntoIterator<Item = ModelRef>) -> Self {
        Self {
            name,
            models: models.into_iter().collect(),
            system_prompt: None,
            groups: GroupSetting::Unrestricted,
            skills: Vec::new(),
            limits: RunLimits::iterations(ITERATIONS_DEFAULT),
            approval_ttl: None,
            second_approver: false,
        }
    }
}

/// All agents, and what holds for all of them.
#[derive(Clone, Debug)]
pub struct Agents {
    agents: BTreeMap<AgentName, Agent>,
    enforcement: Enforcement,
}

impl Agents {
    /// Agents by their names; of two with one name the later stands.
    pub fn new(enforcement: Enforcement, agents: impl IntoIterator<Item = Agent>) -> Self {
        Self { agents: agents.into_iter().map(|agent| (agent.name.clone(), agent)).collect(), enforcement }
    }

    /// The agent of this name.
    pub fn find(&self, name: &AgentName) -> Option<&Agent> {
        self.agents.get(name)
    }

    /// Whether data classes are enforced (P8).
    pub(crate) fn enforces(&self) -> bool {
        self.enforcement == Enforcement::Enforce
    }

    /// All of them, by name.
    pub fn all(&self) -> impl Iterator<Item = &Agent> {
        self.agents.values()
    }

    /// What the agent contributes to the gates, for a run on this chain of models (P4, P5, P7).
    pub(crate) fn gates(
        &self,
        agent: &Agent,
        chain: &[ModelRef],
        models: &Models,
        tools: &dyn Catalogue,
    ) -> AgentGates {
        AgentGates {
            allowance: Allowance::of(&agent.groups, &opinions(&agent.skills), tools.all()),
            zone: models.zone_of(chain),
            enforcement: self.enforcement,
        }
    }

    /// The same for a run that was started some time ago: the skills that it was started with restrict it as well
    /// as those that its agent has now (R7). Neither gives back what the other takes away.
    pub(crate) fn gates_of_run(
        &self,
        agent: &Agent,
        created: &Created,
        models: &Models,
        tools: &dyn Catalogue,
    ) -> AgentGates {
        let mut gates = self.gates(agent, &created.models, models, tools);
        let started_with =
            Allowance::of(&GroupSetting::Unrestricted, &opinions(&created.skills), tools.all());
        gates.allowance = gates.allowance.and(started_with);
        gates
    }
}

fn opinions(skills: &[SkillInForce]) -> Vec<SkillOpinion> {
    skills.iter().map(SkillInForce::opinion).collect()
}
