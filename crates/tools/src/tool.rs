//! What the seven tools have in common: facts, arguments, and the way from the port to the file work.
//!
//! Invariant: file work blocks, so it never runs on a thread that drives other calls. A tool's logic sees its
//! arguments, a [`Visit`] and the changes promised, and nothing else: no ids, no actor, no clock. Every preview that
//! is shown carries a promise, also the one that says why the call cannot be made.
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
use crate::precondition::{Change, Promise, Shown};
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

    /// Does it, as its preview promised if there was one.
    fn run(self, visit: &Visit<'_>, promised: Option<&[Change]>) -> Result<String, Failure>;

    /// Shows what [`Self::run`] would do. `None` for reads.
    fn preview(self, visit: &Visit<'_>) -> Option<Result<Shown, Failure>>;
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
        let done = tokio::task::spawn_blocking(work).await.map_err(|_| ToolError::no_answer())?;
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
            Err(_) => Some(Err(ToolError::no_answer())),
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
    let promised = precondition.map(|value| Promise::read(value, workspace.mark())).transpose()?;
    let visit = workspace.visit();
    match promised {
        None => work.run(&visit, None),
        Some(Some(changes)) => work.run(&visit, Some(&changes)),
        // A person was shown that nothing can be done, so nothing is.
        Some(None) => match work.preview(&visit) {
            Some(Err(failure)) => Err(failure),
            Some(Ok(_)) | None => Err(Failure::FreedMeanwhile),
        },
    }
}

/// One preview, on this thread. It fails only where the call is refused whatever the workspace holds.
pub(crate) fn preview<W: FileWork>(
    workspace: &Workspace,
    arguments: Value,
) -> Option<Result<ToolPreview, Failure>> {
    let work = match serde_json::from_value::<W>(arguments) {
        Ok(work) => work,
        Err(error) => return Some(Err(error.into())),
    };
    let (lines, changes) = match work.preview(&workspace.visit())? {
        Ok(Shown { lines, changes }) => (lines, Some(changes)),
        Err(failure) if failure.may_pass() => {
            (vec!["no change: this call will do nothing".to_owned(), failure.to_string()], None)
        }
        Err(failure) => return Some(Err(failure)),
    };
    Some(Ok(ToolPreview { lines, precondition: Some(Promise::write(workspace.mark(), changes.as_deref())) }))
}
