//! What the seven tools have in common: facts, arguments, and the way from the port to the file work.
//!
//! Invariant: file work blocks, so it never runs on a thread that drives other calls. A tool's logic sees its
//! arguments, a [`Visit`] and the precondition, and nothing else: no ids, no actor, no clock.
//!
//! Not promised: that file work stops when its caller stops waiting. It ends by itself, at the bounds of each tool.

use std::marker::PhantomData;

use async_trait::async_trait;
use countersign::{
    Arguments, CallContext, DataClass, Effect, GroupName, NotAName, OperatorWord, Origin, Pause,
    PreviewContext, Tool, ToolError, ToolName, ToolOutput, ToolPreview, ToolSpec,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::failure::Failure;
use crate::workspace::{Visit, Workspace};

/// What distinguishes one file tool from another.
pub(crate) struct Facts {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    pub(crate) effect: Effect,
    /// JSON Schema of each parameter.
    pub(crate) parameters: Value,
    pub(crate) required: &'static [&'static str],
}

/// The arguments of a file tool, and what it does with them.
pub(crate) trait FileWork: DeserializeOwned + Send + 'static {
    /// Name, words and schema.
    fn facts() -> Facts;

    /// Does it.
    fn run(self, visit: &Visit<'_>, precondition: Option<&Value>) -> Result<String, Failure>;

    /// Shows what [`Self::run`] would do. `None` for reads.
    fn preview(self, visit: &Visit<'_>) -> Option<Result<ToolPreview, Failure>>;
}

/// A built-in file tool.
pub(crate) struct FileTool<W> {
    workspace: Workspace,
    spec: ToolSpec,
    work: PhantomData<fn() -> W>,
}

impl<W: FileWork> FileTool<W> {
    pub(crate) fn new(workspace: &Workspace) -> Result<Self, NotAName> {
        let Facts { name, description, effect, parameters, required } = W::facts();
        let spec = ToolSpec {
            name: ToolName::parse(name)?,
            description: description.to_owned(),
            group: GroupName::parse(if effect.writes() { "editing" } else { "files" })?,
            origin: Origin::Builtin,
            effect,
            data_class: DataClass::EditorContent,
            enabled_by_default: true,
            requires_admin: false,
            pause: Pause::Runs,
            operator: OperatorWord::Silent,
            parameters: serde_json::json!({
                "type": "object", "properties": parameters, "required": required, "additionalProperties": false
            }),
        };
        Ok(Self { workspace: workspace.clone(), spec, work: PhantomData })
    }
}

#[async_trait]
impl<W: FileWork> Tool for FileTool<W> {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    async fn call(&self, arguments: &Arguments, cx: &CallContext) -> Result<ToolOutput, ToolError> {
        let (workspace, arguments, precondition) =
            (self.workspace.clone(), arguments.to_value(), cx.precondition.clone());
        let work = move || run::<W>(&workspace, arguments, precondition.as_ref());
        // A panic in the midst of file work proves nothing about what happened.
        let done = tokio::task::spawn_blocking(work).await.map_err(|_| ToolError::NoAnswer)?;
        Ok(done?.into())
    }

    async fn preview(
        &self,
        arguments: &Arguments,
        _cx: &PreviewContext,
    ) -> Option<Result<ToolPreview, ToolError>> {
        if !self.spec.effect.writes() {
            return None;
        }
        let (workspace, arguments) = (self.workspace.clone(), arguments.to_value());
        match tokio::task::spawn_blocking(move || preview::<W>(&workspace, arguments)).await {
            Ok(shown) => shown.map(|preview| preview.map_err(ToolError::from)),
            Err(_) => Some(Err(ToolError::NoAnswer)),
        }
    }
}

/// One call, on this thread.
pub(crate) fn run<W: FileWork>(
    workspace: &Workspace,
    arguments: Value,
    precondition: Option<&Value>,
) -> Result<String, Failure> {
    let work: W = serde_json::from_value(arguments)?;
    work.run(&workspace.visit(), precondition)
}

/// One preview, on this thread.
pub(crate) fn preview<W: FileWork>(
    workspace: &Workspace,
    arguments: Value,
) -> Option<Result<ToolPreview, Failure>> {
    match serde_json::from_value::<W>(arguments) {
        Ok(work) => work.preview(&workspace.visit()),
        Err(error) => Some(Err(error.into())),
    }
}
