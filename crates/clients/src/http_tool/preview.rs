//! Previews over HTTP (A7), for tools of either kind.
//!
//! Invariant: asking changes nothing and carries no idempotency key; whatever goes wrong is a sentence for the
//! person who looks, without anything the server said (S5).

use std::time::Duration;

use countersign::{Arguments, PreviewContext, ToolError, ToolName, ToolPreview};
use reqwest::Url;
use reqwest::header::HeaderMap;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{BadBody, Posted, body, raw};
use crate::http::Http;
use crate::shorten::{Shortened, Unreadable};
use crate::tool_setup::{ToolSetupError, address};

/// The most JSON of one preview that is looked at; the core keeps far less.
const PREVIEW_READ_MAX: usize = 4 * 1024 * 1024;
/// The most that a precondition may be, as JSON: it is stored, and goes back with the call.
const PRECONDITION_BYTES_MAX: usize = 64 * 1024;

/// Where previews come from.
#[derive(Clone)]
pub(crate) struct HttpPreview {
    url: Url,
    http: Http,
}

#[derive(Deserialize)]
struct Wire<'a> {
    lines: Vec<String>,
    #[serde(borrow)]
    precondition: Option<&'a RawValue>,
}

impl HttpPreview {
    pub(crate) fn new(url: &str, timeout: Duration) -> Result<Self, ToolSetupError> {
        let url = address("preview", url)?;
        let http = Http::for_calls(&url, timeout)?;
        Ok(Self { url, http })
    }

    /// Asks once.
    pub(crate) async fn show(
        &self,
        tool: &ToolName,
        arguments: &Arguments,
        cx: &PreviewContext,
    ) -> Result<ToolPreview, ToolError> {
        self.ask(tool, arguments, cx).await.map_err(|how| ToolError::answered(format!("{tool} {how}.")))
    }

    async fn ask(
        &self,
        tool: &ToolName,
        arguments: &Arguments,
        cx: &PreviewContext,
    ) -> Result<ToolPreview, String> {
        let body_sent = raw(arguments).and_then(|arguments| {
            let body = Posted {
                run: cx.run.as_str(),
                call: cx.call.as_str(),
                tool: tool.as_str(),
                arguments,
                actor: cx.actor.as_str(),
                precondition: None,
            };
            serde_json::to_vec(&body).ok()
        });
        let body_sent = body_sent.ok_or("cannot be asked")?;
        let answer = self.http.post_json(self.url.clone(), HeaderMap::new(), body_sent).await;
        let answer = answer.map_err(|error| {
            if error.was_sent() { "gave no answer" } else { "could not be reached" }.to_owned()
        })?;
        if answer.status != 200 {
            return Err(format!("answered with status {}", answer.status));
        }
        let body = body(answer).await.shortened.map_err(|bad| match bad {
            BadBody::Broken(_) => "gave no whole answer",
            BadBody::Unreadable(Unreadable::TooLarge) => "gave an answer that is too large",
            BadBody::Unreadable(Unreadable::Malformed | Unreadable::Incomplete) => {
                "gave an answer that is not the JSON of a preview"
            }
        })?;
        decode(&body).map_err(str::to_owned)
    }
}

fn decode(body: &Shortened) -> Result<ToolPreview, &'static str> {
    const MALFORMED: &str = "gave an answer that is not the JSON of a preview";
    if body.json.len() > PREVIEW_READ_MAX {
        return Err("gave an answer that is too large");
    }
    if !body.json.trim_start().starts_with('{') {
        return Err(MALFORMED);
    }
    let wire: Wire<'_> = serde_json::from_str(&body.json).map_err(|_| MALFORMED)?;
    let precondition = match wire.precondition {
        Some(raw) if raw.get().len() > PRECONDITION_BYTES_MAX => {
            return Err("gave a precondition that is too large");
        }
        Some(raw) => Some(serde_json::from_str::<Value>(raw.get()).map_err(|_| MALFORMED)?),
        None => None,
    };
    Ok(ToolPreview { lines: wire.lines, precondition })
}
