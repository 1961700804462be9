//! Tools that any program serves over HTTP, in any language, declared by the operator.
//!
//! Invariant: one call is one POST with the call's idempotency key (R4), and what comes of it tells apart the
//! three things that matter for a write: an answer, nothing sent, and no answer (R3). An answer is an answer
//! whatever its status, except 502 and 504, which a go-between gives when the tool gave none. Of what the server
//! says only content meant for the model gets into a sentence for the model; the rest is detail for the sealed
//! record (S5). Not here: retries, redirects, what
//! no answer means for a read or a write (the runtime).

mod answer;
mod preview;

use std::fmt;
use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use async_trait::async_trait;
use countersign::{
    Arguments, CallContext, Detail, PreviewContext, Tool, ToolError, ToolName, ToolOutput, ToolPreview,
    ToolSpec,
};
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::timeout;

pub(crate) use self::preview::HttpPreview;
use crate::http::{Answer, Http, NoAnswer};
use crate::kept::Beginning;
use crate::shorten::{Shortened, Shortener, Unreadable};
use crate::tool_setup::{ToolSetupError, address};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// How long the record of a failure waits for words that only people will read.
const BEGINNING_WAIT: Duration = Duration::from_secs(1);

/// A tool that is served over HTTP.
#[derive(Clone, Debug)]
pub struct HttpToolConfig {
    /// Its facts.
    pub spec: ToolSpec,
    /// Where calls go.
    pub url: String,
    /// Where previews are asked for, if there are any.
    pub preview: Option<String>,
    /// How long one call may take, its whole answer included. Connecting may take three quarters of it, and
    /// never more than ten seconds.
    pub timeout: Duration,
}

/// A tool that is served over HTTP.
///
/// A call posts `{"run","call","tool","arguments","actor","precondition"}`, with `null` for a call without a
/// precondition, and the header `Idempotency-Key`. The answer is `200` and `{"content":"…"}`, with `is_error`
/// and `artifacts` if the tool wants; other members are ignored, and `null` is as good as absent for the two.
///
/// ```
/// # use countersign::{DataClass, Effect, OperatorWord, Origin, Pause, ToolSpec};
/// use countersign_clients::{HttpTool, HttpToolConfig};
///
/// # let spec = ToolSpec {
/// #     name: "page_get".parse()?, description: String::new(), group: "content".parse()?, origin: Origin::Http,
/// #     effect: Effect::Read, data_class: DataClass::EditorContent, enabled_by_default: true,
/// #     requires_admin: false, pause: Pause::Runs, operator: OperatorWord::Silent,
/// #     parameters: serde_json::json!({ "type": "object" }),
/// # };
/// let tool = HttpTool::new(HttpToolConfig {
///     spec,
///     url: "http://127.0.0.1:9200/page_get".to_owned(),
///     preview: None,
///     timeout: std::time::Duration::from_secs(30),
/// })?;
/// # drop(tool);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct HttpTool {
    spec: ToolSpec,
    url: Url,
    preview: Option<HttpPreview>,
    timeout: Duration,
    http: Http,
}

impl fmt::Debug for HttpTool {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An address may hold what is nobody's business.
        out.debug_struct("HttpTool").field("name", &self.spec.name).finish_non_exhaustive()
    }
}

impl HttpTool {
    /// Checks the declaration and makes the client. Nothing is sent yet.
    ///
    /// # Errors
    /// [`ToolSetupError`].
    pub fn new(config: HttpToolConfig) -> Result<Self, ToolSetupError> {
        let HttpToolConfig { spec, url, preview, timeout } = config;
        let url = address("http", &url)?;
        let http = Http::for_calls(&url, timeout)?;
        let preview = preview.map(|url| HttpPreview::new(&url, timeout)).transpose()?;
        Ok(Self { spec, url, preview, timeout, http })
    }
}

#[async_trait]
impl Tool for HttpTool {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    async fn call(&self, arguments: &Arguments, cx: &CallContext) -> Result<ToolOutput, ToolError> {
        let tool = &self.spec.name;
        // What a failing answer says beside its status must not make the answer late.
        let mut nearly_late = pin!(timeout(self.timeout - self.timeout / 10, pending::<()>()));
        let unsendable = || ToolError::not_sent(format!("The tool {tool} failed: the call cannot be sent."));
        let body = Posted {
            run: cx.run.as_str(),
            call: cx.call.as_str(),
            tool: tool.as_str(),
            arguments: raw(arguments).ok_or_else(unsendable)?,
            actor: cx.actor.as_str(),
            precondition: cx.precondition.as_ref(),
        };
        let key = HeaderValue::from_str(&cx.idempotency_key).map_err(|_| unsendable())?;
        let headers = HeaderMap::from_iter([(IDEMPOTENCY_KEY, key)]);
        let body = serde_json::to_vec(&body).map_err(|_| unsendable())?;
        let sent = self.http.post_json(self.url.clone(), headers, body).await;
        let answer = sent.map_err(|error| no_answer(tool, &error))?;
        match answer.status {
            200 => answer::output(tool, answer).await,
            status => {
                let beginning = beginning(answer, nearly_late.as_mut()).await;
                Err(match status {
                    502 | 504 => ToolError::no_answer(),
                    _ => failed(tool, &format!("it answered with status {status}")),
                }
                .with_detail(beginning.detail(&format!("status {status}"))))
            }
        }
    }

    async fn preview(
        &self,
        arguments: &Arguments,
        cx: &PreviewContext,
    ) -> Option<Result<ToolPreview, ToolError>> {
        Some(self.preview.as_ref()?.show(&self.spec.name, arguments, cx).await)
    }
}

/// What is posted, members in this order.
#[derive(Serialize)]
struct Posted<'a> {
    run: &'a str,
    call: &'a str,
    tool: &'a str,
    arguments: Box<RawValue>,
    actor: &'a str,
    precondition: Option<&'a Value>,
}

/// The arguments exactly as they were shown and hashed (A5).
fn raw(arguments: &Arguments) -> Option<Box<RawValue>> {
    RawValue::from_string(arguments.text()).ok()
}

fn failed(tool: &ToolName, how: &str) -> ToolError {
    ToolError::answered(format!("The tool {tool} failed: {how}."))
}

fn no_answer(tool: &ToolName, error: &NoAnswer) -> ToolError {
    let failed = if error.was_sent() {
        ToolError::no_answer()
    } else {
        ToolError::not_sent(format!(
            "The tool {tool} failed: its server could not be reached, so nothing was sent."
        ))
    };
    failed.with_detail(Detail::new(&error.all_causes()))
}

/// The beginning of a body that is not looked into, as far as it comes at once. With the head the answer was
/// there; a body that does not end changes nothing about that.
async fn beginning(mut answer: Answer, nearly_late: impl Future) -> Beginning {
    let mut beginning = Beginning::default();
    let read = async {
        while !beginning.is_full()
            && let Ok(Some(chunk)) = answer.chunk().await
        {
            beginning.push(chunk.as_ref());
        }
    };
    tokio::select! {
        () = read => {}
        _ = nearly_late => {}
        _ = timeout(BEGINNING_WAIT, pending::<()>()) => {}
    }
    beginning
}

/// Why the body of an answer is of no use.
enum BadBody {
    Broken(NoAnswer),
    Unreadable(Unreadable),
}

/// A body without the ends of long strings, and how it began.
struct Body {
    beginning: Beginning,
    shortened: Result<Shortened, BadBody>,
}

/// Reads a whole body.
async fn body(mut answer: Answer) -> Body {
    let mut beginning = Beginning::default();
    let read = async {
        let mut shortener = Shortener::default();
        while let Some(chunk) = answer.chunk().await.map_err(BadBody::Broken)? {
            beginning.push(chunk.as_ref());
            shortener.push(chunk.as_ref()).map_err(BadBody::Unreadable)?;
        }
        shortener.end().map_err(BadBody::Unreadable)
    };
    let shortened = read.await;
    Body { beginning, shortened }
}
