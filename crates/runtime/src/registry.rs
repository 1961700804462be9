//! The tools of this process: name, facts, schema, code. Built once.
//!
//! Invariant: what is in here could be registered; a write that needs input, a doubled name or a schema that
//! is none are errors here and not at run time (A3). Arguments are checked here, before any gate (A5).

use std::collections::BTreeMap;
use std::sync::Arc;

use countersign_core::{
    Arguments, Catalogue, Digest, Effect, GroupName, InputProblem, Pause, ToolName, ToolSpec, needs_approval,
};
use jsonschema::Validator;
use serde_json::Value;

use crate::model::Offer;
use crate::tool::Tool;

/// Any tool, to be registered.
#[derive(Clone)]
pub struct AnyTool(Arc<dyn Tool>);

impl<T: Tool + 'static> From<T> for AnyTool {
    fn from(tool: T) -> Self {
        Self(Arc::new(tool))
    }
}

impl From<Arc<dyn Tool>> for AnyTool {
    fn from(tool: Arc<dyn Tool>) -> Self {
        Self(tool)
    }
}

impl std::fmt::Debug for AnyTool {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_tuple("AnyTool").field(&self.0.spec().name).finish()
    }
}

/// One registered tool.
pub struct Registered {
    /// What its host declares.
    pub spec: ToolSpec,
    /// What it is, exactly (A6).
    pub definition: Digest,
    pub(crate) tool: Arc<dyn Tool>,
    offer: Offer,
    arguments: Validator,
}

impl std::fmt::Debug for Registered {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Registered").field("spec", &self.spec).finish_non_exhaustive()
    }
}

/// Why a set of tools cannot be registered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// Two tools have one name.
    #[error("two tools are named {0}")]
    DuplicateName(ToolName),
    /// `__` is for remote tools.
    #[error("the local tool {0} has __ in its name, which is for remote tools")]
    RemoteName(ToolName),
    /// `mcp.` is for remote tools.
    #[error(
        "the local tool {tool} is in the group {group}; groups that begin with mcp. are for remote tools"
    )]
    RemoteGroup {
        /// The tool.
        tool: ToolName,
        /// Its group.
        group: GroupName,
    },
    /// It could never run: approval comes first, and carries no input (A3).
    #[error("the tool {0} needs input and also writes or asks for approval; it can only do one of them")]
    NeedsInputAndApproval(ToolName),
    /// A schema that is not one.
    #[error("the schema of {part} of the tool {tool} cannot be used: {reason}")]
    BadSchema {
        /// The tool.
        tool: ToolName,
        /// `parameters` or `input`.
        part: &'static str,
        /// What is wrong with it.
        reason: String,
    },
}

/// All tools of this process.
#[derive(Debug, Default)]
pub struct Registry {
    tools: Vec<Registered>,
    by_name: BTreeMap<ToolName, usize>,
}

impl Registry {
    /// Registers tools, in this order.
    ///
    /// # Errors
    /// [`RegistryError`], naming the first tool that cannot be registered.
    pub fn new(tools: impl IntoIterator<Item = AnyTool>) -> Result<Self, RegistryError> {
        let mut registry = Self::default();
        for AnyTool(tool) in tools {
            let spec = tool.spec();
            check_names(&spec)?;
            let arguments = object_schema(&spec.name, "parameters", &spec.parameters)?;
            if let Pause::NeedsInput(schema) = &spec.pause {
                object_schema(&spec.name, "input", schema)?;
                if spec.effect != Effect::Read || needs_approval(Some(&spec)).is_some() {
                    return Err(RegistryError::NeedsInputAndApproval(spec.name));
                }
                if !schema["properties"].is_object() {
                    // Only fields that stand there are a person's to write (R9), so none of theirs would arrive.
                    return Err(RegistryError::BadSchema {
                        tool: spec.name,
                        part: "input",
                        reason: "it names no fields in `properties`".to_owned(),
                    });
                }
            }
            if registry.by_name.insert(spec.name.clone(), registry.tools.len()).is_some() {
                return Err(RegistryError::DuplicateName(spec.name));
            }
            let offer = Offer {
                name: spec.name.clone(),
                description: Arc::from(spec.description.as_str()),
                parameters: Arc::new(spec.parameters.clone()),
            };
            let definition = spec.definition_hash();
            registry.tools.push(Registered { definition, spec, tool, offer, arguments });
        }
        Ok(registry)
    }

    /// The tool of exactly this name.
    pub fn tool(&self, name: &str) -> Option<&Registered> {
        // A text that is no name is nobody's name (G10).
        let name = ToolName::parse(name).ok()?;
        self.by_name.get(&name).map(|index| &self.tools[*index])
    }

    /// All tools, in registration order.
    pub fn tools(&self) -> impl Iterator<Item = &Registered> {
        self.tools.iter()
    }

    /// Whether any tool is in this group.
    pub fn has_group(&self, group: &GroupName) -> bool {
        self.tools.iter().any(|tool| tool.spec.group == *group)
    }

    /// What a model is shown of these names: each once, in registration order, so that the same set always
    /// gives the same bytes.
    pub(crate) fn offers(&self, names: &[ToolName]) -> Vec<Offer> {
        self.tools
            .iter()
            .filter(|tool| names.contains(&tool.spec.name))
            .map(|tool| tool.offer.clone())
            .collect()
    }
}

impl Catalogue for Registry {
    fn find(&self, name: &str) -> Option<&ToolSpec> {
        self.tool(name).map(|tool| &tool.spec)
    }

    fn all(&self) -> Box<dyn Iterator<Item = &ToolSpec> + '_> {
        Box::new(self.tools.iter().map(|tool| &tool.spec))
    }
}

impl Registered {
    /// Reads arguments strictly and checks them against the schema (A5). The sentence of a failure is for
    /// the model.
    pub(crate) fn check(&self, text: Option<&str>) -> Result<Arguments, String> {
        let arguments = Arguments::read(text).map_err(|error| format!("Not run: {error}."))?;
        self.check_read(&arguments)?;
        Ok(arguments)
    }

    /// Checks arguments that were read before: a person's, or with a person's input.
    pub(crate) fn check_read(&self, arguments: &Arguments) -> Result<(), String> {
        let problems = problems(&self.arguments, &arguments.to_value());
        if problems.is_empty() {
            return Ok(());
        }
        let listed: Vec<String> = problems
            .iter()
            .map(|problem| match problem.pointer.as_str() {
                "" => problem.detail.clone(),
                pointer => format!("at {pointer}: {}", problem.detail),
            })
            .collect();
        Err(format!("Not run: the arguments are not valid for this tool: {}.", listed.join("; ")))
    }
}

fn check_names(spec: &ToolSpec) -> Result<(), RegistryError> {
    if spec.origin.is_remote() {
        return Ok(());
    }
    if spec.name.as_str().contains("__") {
        return Err(RegistryError::RemoteName(spec.name.clone()));
    }
    if spec.group.as_str().starts_with("mcp.") {
        return Err(RegistryError::RemoteGroup { tool: spec.name.clone(), group: spec.group.clone() });
    }
    Ok(())
}

fn object_schema(tool: &ToolName, part: &'static str, schema: &Value) -> Result<Validator, RegistryError> {
    let bad = |reason: String| RegistryError::BadSchema { tool: tool.clone(), part, reason };
    if !schema.is_object() {
        return Err(bad("it is not an object".to_owned()));
    }
    if schema.get("type").is_some_and(|kind| kind != "object") {
        return Err(bad(format!("it describes {} and no object", schema["type"])));
    }
    validator(schema).map_err(bad)
}

/// A validator of JSON Schema 2020-12. References to anywhere else are not fetched.
pub(crate) fn validator(schema: &Value) -> Result<Validator, String> {
    jsonschema::draft202012::options()
        .should_validate_formats(true)
        .build(schema)
        .map_err(|error| error.to_string())
}

/// At most this many problems are reported at once.
const PROBLEMS_MAX: usize = 10;
/// At most this many characters of one problem are kept: it may quote the value.
const PROBLEM_CHARS_MAX: usize = 300;

/// Where a value breaks a schema.
pub(crate) fn problems(validator: &Validator, value: &Value) -> Vec<InputProblem> {
    validator
        .iter_errors(value)
        .take(PROBLEMS_MAX)
        .map(|error| InputProblem {
            pointer: error.instance_path().to_string(),
            detail: error.to_string().chars().take(PROBLEM_CHARS_MAX).collect(),
        })
        .collect()
}
