//! The port to a tool's own code.
//!
//! Invariant: only the driver calls [`Tool::call`], and a [`CallContext`] exists only for a call whose start
//! is stored. Not here: the facts (`ToolSpec`), the gate, limits on what comes back.

use std::time::Duration;

use async_trait::async_trait;
use countersign_core::{Arguments, Artifact, CallId, Detail, RunId, Subject, ToolContent, ToolSpec};
use jiff::Timestamp;
use serde_json::Value;

/// How long a call may take when a tool says nothing.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

/// A tool: its facts and its code.
///
/// Mostly written by the attribute [`tool`](macro@crate::tool), which makes it of a type, a struct of arguments and
/// one async function.
///
/// # A tool that reads
///
/// The words of the documentation comments are what the model is told, of the tool and of each argument. What a tool
/// works with is in its own fields.
///
/// ```
/// use std::collections::BTreeMap;
///
/// use countersign::{CallContext, Registry, ToolError, ToolOutput, arguments, tool};
///
/// #[arguments]
/// struct Page {
///     /// The number of the page.
///     id: u64,
/// }
///
/// struct PageGet {
///     pages: BTreeMap<u64, String>,
/// }
///
/// /// Read the text of a page.
/// #[tool(group = "content", effect = read, data_class = editor_content)]
/// impl PageGet {
///     async fn call(&self, page: Page, _cx: &CallContext) -> Result<ToolOutput, ToolError> {
///         match self.pages.get(&page.id) {
///             Some(text) => Ok(text.as_str().into()),
///             None => Err(ToolError::answered(format!("There is no page {}.", page.id))),
///         }
///     }
/// }
///
/// let tools = Registry::new([PageGet { pages: BTreeMap::new() }.into()])?;
/// assert!(tools.tool("page_get").is_some());
/// # Ok::<(), countersign::RegistryError>(())
/// ```
///
/// # A tool that writes
///
/// It pauses its run before it does anything. What `preview` shows is what a person decides on; the precondition that
/// it returns comes back in the call's context, so that nothing is done to a world that has changed meanwhile (A7).
///
/// ```
/// use std::sync::Mutex;
///
/// use countersign::testing::{call_context, preview_context};
/// use countersign::{
///     Arguments, CallContext, PreviewContext, Tool, ToolError, ToolFailure, ToolOutput, ToolPreview, arguments, tool,
/// };
///
/// struct Notice {
///     version: u64,
///     text: String,
/// }
///
/// #[arguments]
/// struct NewText {
///     /// What it is to say.
///     text: String,
/// }
///
/// struct NoticeSave {
///     notice: Mutex<Notice>,
/// }
///
/// /// Replace the notice on the door.
/// #[tool(group = "content", effect = idempotent_write, data_class = public_content)]
/// impl NoticeSave {
///     async fn call(&self, new: NewText, cx: &CallContext) -> Result<ToolOutput, ToolError> {
///         let mut notice = self.notice.lock().map_err(|_| ToolError::no_answer())?;
///         if notice.text == new.text {
///             return Ok("The notice says that already.".into());
///         }
///         if cx.precondition.as_ref().is_some_and(|seen| *seen != notice.version) {
///             return Err(ToolError::answered("The notice has changed meanwhile; read it again."));
///         }
///         *notice = Notice { version: notice.version + 1, text: new.text };
///         Ok(format!("Saved for {}.", cx.actor).into())
///     }
///
///     async fn preview(&self, new: NewText, _cx: &PreviewContext) -> Result<ToolPreview, ToolError> {
///         let notice = self.notice.lock().map_err(|_| ToolError::no_answer())?;
///         Ok(ToolPreview {
///             lines: vec![format!("- {}", notice.text), format!("+ {}", new.text)],
///             precondition: Some(notice.version.into()),
///         })
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let door = NoticeSave { notice: Mutex::new(Notice { version: 1, text: "Open".to_owned() }) };
/// let closed = Arguments::read(Some(r#"{"text":"Closed"}"#))?;
/// let alice = "alice".parse()?;
///
/// let shown = Tool::preview(&door, &closed, &preview_context(&alice)).await.ok_or("it has one")??;
/// assert_eq!(shown.lines, ["- Open", "+ Closed"]);
/// let output = Tool::call(&door, &closed, &call_context(&alice, shown.precondition.clone())).await?;
/// assert_eq!(output.content.kept(), "Saved for alice.");
///
/// // The same preview again, for a world that is another one by now.
/// let open = Arguments::read(Some(r#"{"text":"Open"}"#))?;
/// let refused = Tool::call(&door, &open, &call_context(&alice, shown.precondition)).await;
/// assert!(matches!(refused.unwrap_err().failure(), ToolFailure::Answered(_)));
/// # Ok(())
/// # }
/// ```
///
/// # A tool that a person fills in
///
/// A second type in `call` is what a person is asked for, field by field, each time the model calls the tool (R9). The
/// model neither sees nor writes these fields.
///
/// ```
/// use countersign::testing::call_context;
/// use countersign::{Arguments, CallContext, Pause, Tool, ToolError, ToolOutput, arguments, tool};
///
/// #[arguments]
/// struct Stay {
///     /// The name of the guest.
///     guest: String,
/// }
///
/// #[arguments]
/// struct Dates {
///     /// The day of arrival.
///     from: String,
///     /// How many nights.
///     #[schemars(range(min = 1, max = 30))]
///     nights: u8,
/// }
///
/// struct FindRoom;
///
/// /// Find a free room; the dates are asked of the guest.
/// #[tool(group = "rooms", effect = read)]
/// impl FindRoom {
///     async fn call(&self, stay: Stay, dates: Dates, _cx: &CallContext) -> Result<ToolOutput, ToolError> {
///         Ok(format!("Room 7 is free for {} from {}, {} nights.", stay.guest, dates.from, dates.nights).into())
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// assert!(matches!(FindRoom.spec().pause, Pause::NeedsInput(_)));
/// // As it is called after the answer: the model's field and the person's.
/// let arguments = Arguments::read(Some(r#"{"guest":"Berta","from":"2027-05-01","nights":2}"#))?;
/// let output = Tool::call(&FindRoom, &arguments, &call_context(&"alice".parse()?, None)).await?;
/// assert_eq!(output.content.kept(), "Room 7 is free for Berta from 2027-05-01, 2 nights.");
/// # Ok(())
/// # }
/// ```
///
/// # What does not compile
///
/// A tool that does not say what it does to the world (A2):
///
/// ```compile_fail
/// # use countersign::{CallContext, ToolError, ToolOutput, arguments, tool};
/// # #[arguments]
/// # struct Page { id: u64 }
/// # struct PageDrop;
/// /// Delete a page.
/// #[tool(group = "content")]
/// impl PageDrop {
///     async fn call(&self, page: Page, _cx: &CallContext) -> Result<ToolOutput, ToolError> {
///         Ok(format!("Deleted page {}.", page.id).into())
///     }
/// }
/// ```
///
/// One that writes, and asks a person to fill something in (A3):
///
/// ```compile_fail
/// # use countersign::{CallContext, ToolError, ToolOutput, arguments, tool};
/// # #[arguments]
/// # struct Page { id: u64 }
/// # #[arguments]
/// # struct Reason { text: String }
/// # struct PageDrop;
/// /// Delete a page.
/// #[tool(group = "content", effect = write)]
/// impl PageDrop {
///     async fn call(&self, page: Page, why: Reason, _cx: &CallContext) -> Result<ToolOutput, ToolError> {
///         Ok(format!("Deleted page {} because {}.", page.id, why.text).into())
///     }
/// }
/// ```
///
/// And a name or a group that is none:
///
/// ```compile_fail,E0080
/// # use countersign::{CallContext, ToolError, ToolOutput, arguments, tool};
/// # #[arguments]
/// # struct Page { id: u64 }
/// # struct PageDrop;
/// /// Delete a page.
/// #[tool(name = "page drop", group = "content", effect = write)]
/// impl PageDrop {
///     async fn call(&self, page: Page, _cx: &CallContext) -> Result<ToolOutput, ToolError> {
///         Ok(format!("Deleted page {}.", page.id).into())
///     }
/// }
/// ```
///
/// # By hand
///
/// Where the facts are known only when the program runs, implement the trait: [`ToolSpec`] has all facts, and
/// [`typed`](crate::typed) the schema of a type and the way back from arguments.
#[async_trait]
pub trait Tool: Send + Sync {
    /// What its host declares about it. Read once, at registration.
    fn spec(&self) -> ToolSpec;

    /// How long one call may take.
    fn timeout(&self) -> Duration {
        TIMEOUT_DEFAULT
    }

    /// Does it. The arguments fit the tool's schema.
    ///
    /// # Errors
    /// [`ToolError`], which says whether the world may have changed.
    async fn call(&self, arguments: &Arguments, cx: &CallContext) -> Result<ToolOutput, ToolError>;

    /// Shows what a call would do, without doing it (A7). `None`: this tool has no preview.
    async fn preview(
        &self,
        _arguments: &Arguments,
        _cx: &PreviewContext,
    ) -> Option<Result<ToolPreview, ToolError>> {
        None
    }
}

/// On whose behalf, and under which ids, a call is made.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CallContext {
    /// The run's owner: everything is executed under this identity (A13).
    pub actor: Subject,
    /// The run.
    pub run: RunId,
    /// The call.
    pub call: CallId,
    /// The same over all attempts of this call, different for every other (R4).
    pub idempotency_key: String,
    /// What the preview returned, to see whether the world has changed since (A7).
    pub precondition: Option<Value>,
    /// When the caller stops waiting.
    pub deadline: Timestamp,
}

impl CallContext {
    pub(crate) fn new(
        actor: Subject,
        run: RunId,
        call: CallId,
        idempotency_key: String,
        precondition: Option<Value>,
        deadline: Timestamp,
    ) -> Self {
        Self { actor, run, call, idempotency_key, precondition, deadline }
    }
}

/// On whose behalf a preview is made.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PreviewContext {
    /// The run's owner (A7).
    pub actor: Subject,
    /// The run.
    pub run: RunId,
    /// The call.
    pub call: CallId,
}

impl PreviewContext {
    pub(crate) fn new(actor: Subject, run: RunId, call: CallId) -> Self {
        Self { actor, run, call }
    }
}

/// What a tool answers. The content may be of any size; the runtime bounds it (L4).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolOutput {
    /// The text for the model.
    pub content: ToolContent,
    /// For people; never sent to a model.
    pub artifacts: Vec<Artifact>,
}

impl<C: Into<ToolContent>> From<C> for ToolOutput {
    fn from(content: C) -> Self {
        Self { content: content.into(), artifacts: Vec::new() }
    }
}

/// What a call would do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolPreview {
    /// Lines for people; the runtime bounds them.
    pub lines: Vec<String>,
    /// Given back to the call, to notice that the world has changed meanwhile.
    pub precondition: Option<Value>,
}

/// How a call went wrong: what that proves, what the model is told, and what only people may read.
///
/// The words of [`ToolError::answered`] and [`ToolError::not_sent`] are for the model. What a server or a program
/// said on its way down is not: it goes into a [`Detail`], which is kept in the call's sealed record.
///
/// ```
/// use countersign::{Detail, ToolError, ToolFailure};
///
/// let error = ToolError::answered("The tool page_get failed: it answered with status 500.")
///     .with_detail(Detail::beginning_of("status 500", b"no such table: pages"));
/// assert!(matches!(error.failure(), ToolFailure::Answered(_)));
/// assert!(!format!("{error} {error:?}").contains("pages"));
/// ```
#[derive(Debug, thiserror::Error)]
#[error("{failure}")]
pub struct ToolError {
    failure: ToolFailure,
    detail: Option<Detail>,
}

/// What is known of a call that went wrong. The difference matters for writes: only an answer proves what happened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ToolFailure {
    /// The tool answered that it could not do it; the words are for the model.
    #[error("{}", .0.kept())]
    Answered(ToolContent),
    /// Nothing was sent, so nothing happened; the words are for the model.
    #[error("{}", .0.kept())]
    NotSent(ToolContent),
    /// It may have happened: sent, and no answer. For a write the outcome is unknown (R3).
    #[error("the tool gave no answer")]
    NoAnswer,
    /// Stopped at its deadline by the tool itself: it may have happened, as with [`NoAnswer`](Self::NoAnswer); a
    /// model is told of a read that it timed out.
    #[error("the tool timed out")]
    TimedOut,
}

impl ToolError {
    /// The tool answered that it could not do it.
    pub fn answered(words: impl Into<ToolContent>) -> Self {
        Self { failure: ToolFailure::Answered(words.into()), detail: None }
    }

    /// Nothing was sent, so nothing happened.
    pub fn not_sent(words: impl Into<ToolContent>) -> Self {
        Self { failure: ToolFailure::NotSent(words.into()), detail: None }
    }

    /// Sent, and no answer: it may have happened.
    pub fn no_answer() -> Self {
        Self { failure: ToolFailure::NoAnswer, detail: None }
    }

    /// Sent, and stopped at the deadline without an answer: it may have happened.
    pub fn timed_out() -> Self {
        Self { failure: ToolFailure::TimedOut, detail: None }
    }

    /// With what is known beside that, for the record.
    #[must_use]
    pub fn with_detail(self, detail: Detail) -> Self {
        Self { detail: Some(detail), ..self }
    }

    /// What is known of the call.
    pub fn failure(&self) -> &ToolFailure {
        &self.failure
    }

    /// What the record keeps.
    pub fn detail(&self) -> Option<&Detail> {
        self.detail.as_ref()
    }

    pub(crate) fn into_parts(self) -> (ToolFailure, Option<Detail>) {
        (self.failure, self.detail)
    }
}
