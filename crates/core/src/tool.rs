//! What a host declares about a tool. The facts come from code or from the operator, never from a model
//! and never from a remote server (A2, S2).
//!
//! Not here: whether a tool may be called (`policy`), and the tool's own code (the runtime's `Tool`).

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::canonical::canonical;
use crate::digest::Digest;
use crate::name::{GroupName, ServerName, ToolName};

/// What a call of the tool does to the world (A2). There is no default: whoever declares a tool says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Changes nothing; may be repeated at will.
    Read,
    /// Changes something; repeated under the same idempotency key it changes it once.
    IdempotentWrite,
    /// Changes something; repeated it may change it again, so we never do.
    Write,
}

impl Effect {
    /// Whether it changes anything.
    pub fn writes(self) -> bool {
        self != Self::Read
    }

    /// The contract's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::IdempotentWrite => "idempotent_write",
            Self::Write => "write",
        }
    }

    /// Reads a stored or configured word; an unknown one writes (A2).
    pub fn from_word(word: &str) -> Self {
        match word {
            "read" => Self::Read,
            "idempotent_write" => Self::IdempotentWrite,
            _ => Self::Write,
        }
    }
}

/// How sensitive what a tool returns is (P6). Ordered: a later one needs more trust.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the words of rule P6 say all there is")]
pub enum DataClass {
    PublicContent,
    EditorContent,
    SourceCode,
    InternalConfiguration,
    SystemDiagnostics,
    SecretAdjacent,
}

impl DataClass {
    /// All classes, least sensitive first.
    pub const ALL: [Self; 6] = [
        Self::PublicContent,
        Self::EditorContent,
        Self::SourceCode,
        Self::InternalConfiguration,
        Self::SystemDiagnostics,
        Self::SecretAdjacent,
    ];

    /// The contract's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PublicContent => "public_content",
            Self::EditorContent => "editor_content",
            Self::SourceCode => "source_code",
            Self::InternalConfiguration => "internal_configuration",
            Self::SystemDiagnostics => "system_diagnostics",
            Self::SecretAdjacent => "secret_adjacent",
        }
    }

    /// Reads a word; undeclared or unknown is the strictest class (P6).
    pub fn from_word(word: Option<&str>) -> Self {
        Self::ALL.into_iter().find(|class| Some(class.as_str()) == word).unwrap_or(Self::SecretAdjacent)
    }
}

/// Where a model provider stands (P6). Ordered: a later one is trusted less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the words of rule P6 say all there is")]
pub enum Zone {
    Local,
    PrivateHosted,
    ExternalEu,
    ExternalGlobal,
}

impl Zone {
    /// All zones, most trusted first.
    pub const ALL: [Self; 4] = [Self::Local, Self::PrivateHosted, Self::ExternalEu, Self::ExternalGlobal];

    /// The contract's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::PrivateHosted => "private_hosted",
            Self::ExternalEu => "external_eu",
            Self::ExternalGlobal => "external_global",
        }
    }

    /// Reads a word; undeclared or unknown is the least trusted zone (P6).
    pub fn from_word(word: Option<&str>) -> Self {
        Self::ALL.into_iter().find(|zone| Some(zone.as_str()) == word).unwrap_or(Self::ExternalGlobal)
    }

    /// The most sensitive class that may be shown to a model in this zone (P6).
    pub fn ceiling(self) -> DataClass {
        match self {
            Self::Local => DataClass::SecretAdjacent,
            Self::PrivateHosted => DataClass::SystemDiagnostics,
            Self::ExternalEu => DataClass::InternalConfiguration,
            Self::ExternalGlobal => DataClass::EditorContent,
        }
    }

    /// The zone that counts for a chain of models: the worst (P7). A model that does not resolve is
    /// `None` and counts as the least trusted; so does an empty chain.
    pub fn of_chain(chain: impl IntoIterator<Item = Option<Self>>) -> Self {
        chain
            .into_iter()
            .map(|zone| zone.unwrap_or(Self::ExternalGlobal))
            .max()
            .unwrap_or(Self::ExternalGlobal)
    }
}

/// Whether a call of the tool waits for a person by itself (A3). The type cannot say "asks and needs input".
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pause {
    /// No marker; the effect decides.
    Runs,
    /// The approval marker: asks even for a read.
    Asks,
    /// The input marker: a person supplies these fields. JSON Schema 2020-12 of an object.
    NeedsInput(Value),
}

/// The operator's word on approval for a local tool. It can only tighten (A1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperatorWord {
    /// Nothing said.
    Silent,
    /// `approval = "ask"`.
    Asks,
}

/// The operator's declaration for a remote tool (A1, M3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the words of the contract say all there is")]
pub enum RemoteApproval {
    Required,
    NotRequired,
    Undeclared,
}

impl RemoteApproval {
    /// Reads a stored word: nothing but the two loosening words loosens.
    pub fn from_word(word: Option<&str>) -> Self {
        match word {
            Some("not_required") => Self::NotRequired,
            Some("undeclared") => Self::Undeclared,
            _ => Self::Required,
        }
    }
}

/// Who answers a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Origin {
    /// Ships with countersign.
    Builtin,
    /// Declared in the configuration, served over HTTP.
    Http,
    /// Declared in the configuration, a command of this machine.
    Command,
    /// Given by the program that embeds the library.
    Library,
    /// A remote MCP server.
    Mcp {
        /// The server it comes from.
        server: ServerName,
        /// Its name there.
        remote_name: String,
        /// What the operator declared about approval.
        approval: RemoteApproval,
    },
}

impl Origin {
    /// The contract's word.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Builtin => "builtin",
            Self::Http => "http",
            Self::Command => "command",
            Self::Library => "library",
            Self::Mcp { .. } => "mcp",
        }
    }

    /// Whether the behaviour lives outside this installation (P8).
    pub fn is_remote(&self) -> bool {
        matches!(self, Self::Mcp { .. })
    }

    /// Server and remote name of a remote tool.
    pub fn remote(&self) -> Option<(&ServerName, &str)> {
        match self {
            Self::Mcp { server, remote_name, .. } => Some((server, remote_name)),
            Self::Builtin | Self::Http | Self::Command | Self::Library => None,
        }
    }
}

/// Everything a host declares about one tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// The name a model calls.
    pub name: ToolName,
    /// What the model is told.
    pub description: String,
    /// The family it is switched with (G1).
    pub group: GroupName,
    /// Who answers.
    pub origin: Origin,
    /// What a call does (A2).
    pub effect: Effect,
    /// How sensitive the results are (P6).
    pub data_class: DataClass,
    /// Whether it is on while no switch says otherwise (G3).
    pub enabled_by_default: bool,
    /// Whether only administrators' runs may use it (P3).
    pub requires_admin: bool,
    /// The marker (A3).
    pub pause: Pause,
    /// What the operator adds (A1).
    pub operator: OperatorWord,
    /// JSON Schema 2020-12 of the arguments: an object.
    pub parameters: Value,
}

impl ToolSpec {
    /// A tool of the program that embeds the library: on, for everybody, without a marker. Effect and data class
    /// have no default (A2, P6); change the other fields at will.
    pub fn library(
        name: ToolName,
        description: &str,
        group: GroupName,
        effect: Effect,
        data_class: DataClass,
        parameters: Value,
    ) -> Self {
        Self {
            name,
            description: description.to_owned(),
            group,
            origin: Origin::Library,
            effect,
            data_class,
            enabled_by_default: true,
            requires_admin: false,
            pause: Pause::Runs,
            operator: OperatorWord::Silent,
            parameters,
        }
    }

    /// Identifies what the tool *is*, so that an approval of one definition never covers another (A6).
    /// For local tools: name, parameters, input schema, effect. For remote ones M2 adds the server, the
    /// remote name and the description.
    pub fn definition_hash(&self) -> Digest {
        let input = match &self.pause {
            Pause::NeedsInput(schema) => schema.clone(),
            Pause::Runs | Pause::Asks => Value::Null,
        };
        let mut facts = vec![
            Value::from("countersign/definition/v1"),
            Value::from(self.name.as_str()),
            self.parameters.clone(),
            input,
            Value::from(self.effect.as_str()),
        ];
        if let Some((server, remote_name)) = self.origin.remote() {
            facts.extend([server.as_str().into(), remote_name.into(), self.description.as_str().into()]);
        }
        Digest::new(Sha256::digest(canonical(&Value::Array(facts)).as_bytes()).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_p6_unknown_words_are_the_strictest() {
        assert_eq!(DataClass::from_word(None), DataClass::SecretAdjacent);
        assert_eq!(DataClass::from_word(Some("Public_content")), DataClass::SecretAdjacent);
        assert_eq!(Zone::from_word(Some("lokal")), Zone::ExternalGlobal);
        assert_eq!(Effect::from_word("reads"), Effect::Write);
        assert_eq!(RemoteApproval::from_word(Some("0")), RemoteApproval::Required);
        assert_eq!(RemoteApproval::from_word(None), RemoteApproval::Required);
    }

    #[test]
    fn rule_p6_ceilings() {
        let ceilings = Zone::ALL.map(|zone| zone.ceiling().as_str());
        assert_eq!(
            ceilings,
            ["secret_adjacent", "system_diagnostics", "internal_configuration", "editor_content"]
        );
    }

    #[test]
    fn rule_p7_the_worst_of_the_chain_counts() {
        assert_eq!(Zone::of_chain([Some(Zone::Local), Some(Zone::ExternalEu)]), Zone::ExternalEu);
        assert_eq!(Zone::of_chain([Some(Zone::Local), None]), Zone::ExternalGlobal);
        assert_eq!(Zone::of_chain([]), Zone::ExternalGlobal);
    }
}
