//! `POST /v1/runs`: starts a run.

use std::fmt;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use countersign::{
    AgentName, InputMessage, InputRole, Mode, Principal, RunId, RunRequest, Scope, Standing, StartKey,
    Subject, ToolRequest,
};
use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};

use crate::http::App;
use crate::http::body::Json;
use crate::http::caller::Caller;
use crate::http::openapi::ProblemBody;
use crate::http::patience::Patience;
use crate::http::problem::{Answer, Problem};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The longest key.
const KEY_BYTES_MAX: usize = 255;
/// How many tools may be named: each that is not there is an event.
const TOOLS_MAX: usize = 1_000;

/// What a run is started with.
#[derive(Debug, serde::Deserialize, utoipa::ToSchema)]
pub(crate) struct StartRun {
    /// Which agent; where nobody says, that of the run that is continued, else `default`.
    #[schema(value_type = Option<String>)]
    agent: Option<AgentName>,
    /// What is to be done: a text, or a list of messages.
    #[schema(value_type = Input)]
    input: Messages,
    /// Which tools are wanted; null or absent: all enabled ones, `[]`: none.
    #[schema(max_items = 1000)]
    tools: Option<Vec<String>>,
    /// Whether it must never wait for a person.
    #[serde(default)]
    unattended: bool,
    /// A lower cap of iterations; a higher one has no effect.
    #[schema(value_type = Option<u32>, minimum = 1)]
    max_iterations: Option<Cap>,
    /// The run whose conversation this one goes on with; it has ended, and is the owner's.
    #[schema(value_type = Option<String>)]
    continue_from: Option<RunId>,
    /// Whose run it is to be; only for programs with `run:on_behalf`.
    #[schema(value_type = Option<String>)]
    on_behalf_of: Option<Subject>,
}

/// At least one.
#[derive(Clone, Copy, Debug)]
struct Cap(u32);

impl<'de> Deserialize<'de> for Cap {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Cap;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(out, "a whole number from 1 to {}", u32::MAX)
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Cap, E> {
                let cap = u32::try_from(number).ok().filter(|cap| *cap > 0);
                cap.map(Cap).ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(number), &self))
            }
        }
        source.deserialize_any(Reader)
    }
}

/// A text, or the conversation so far.
#[derive(utoipa::ToSchema)]
#[serde(untagged)]
#[schema(as = Input)]
#[expect(dead_code, reason = "only describes what `Messages` reads")]
pub(crate) enum Input {
    /// What is to be done.
    #[schema(title = "Text")]
    Text(String),
    /// Messages in their order.
    #[schema(title = "Messages")]
    Messages(Vec<InputText>),
}

/// One message of the input.
#[derive(Debug, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct InputText {
    /// Who says it: `user` or `assistant`.
    #[schema(value_type = String)]
    role: InputRole,
    /// What.
    content: String,
}

#[derive(Debug)]
struct Messages(Vec<InputMessage>);

impl<'de> Deserialize<'de> for Messages {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Messages;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a text or a list of messages")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Messages, E> {
                Ok(Messages(vec![InputMessage { role: InputRole::User, text: text.to_owned() }]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Messages, A::Error> {
                let mut messages = Vec::new();
                while let Some(InputText { role, content }) = items.next_element()? {
                    messages.push(InputMessage { role, text: content });
                }
                Ok(Messages(messages))
            }
        }
        source.deserialize_any(Reader)
    }
}

/// Starts a run.
#[utoipa::path(
    post, path = "/v1/runs", tag = "runs",
    request_body = StartRun,
    params(
        ("Idempotency-Key" = Option<String>, Header, description = "The same key and body: the same run. The same key, another body: 422."),
        ("Prefer" = Option<String>, Header, description = "`wait=N` answers when the run stops, or after N seconds."),
        ("traceparent" = Option<String>, Header, description = "W3C Trace Context: where the work is traced, its trace gets a link to this one."),
    ),
    responses(
        (status = 201, description = "The run, which was stored.", body = crate::http::openapi::Run, headers(("Location" = String, description = "Where it is found."))),
        (status = "4XX", description = "Nothing was started.", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn create_run(
    State(app): State<App>,
    caller: Caller,
    patience: Patience,
    headers: HeaderMap,
    Json { body, digest }: Json<StartRun>,
) -> Answer<Response> {
    if body.tools.as_ref().is_some_and(|tools| tools.len() > TOOLS_MAX) {
        return Err(Problem::invalid("invalid_field", format!("tools: at most {TOOLS_MAX} can be named")));
    }
    let starter = caller.subject().clone();
    let owner = owner(&app, caller.principal(), body.on_behalf_of).await?;
    let agent = match (body.agent, &body.continue_from) {
        (Some(agent), _) => agent,
        (None, Some(before)) => app.runtime().predecessor(before, &owner).await?.created().agent.clone(),
        (None, None) => AgentName::parse("default").map_err(|_| Problem::internal())?,
    };
    let request = RunRequest {
        agent,
        input: body.input.0,
        tools: body.tools.map_or(ToolRequest::AllEnabled, ToolRequest::Only),
        model: None,
        max_iterations: body.max_iterations.map(|Cap(cap)| cap),
        max_working_time: None,
        continue_from: body.continue_from,
        owner,
        starter: starter.clone(),
        trace: app.trace_of(&headers),
    };
    let mode = if body.unattended { Mode::Unattended } else { Mode::Attended };
    app.prepare(&request.agent).map_err(|_| Problem::internal())?;
    let id = match key(&headers)? {
        None => app.runtime().start(request, mode).await?,
        Some(key) => {
            app.runtime().start_once(request, mode, &StartKey { starter, key, body: digest }).await?
        }
    };
    if let Some(time) = patience.time() {
        app.until_it_stops(&id, time).await?;
    }
    let run = app.load(&id).await?.run;
    let shown = app.run_json(&run, &caller, false).await?;
    let location = HeaderValue::try_from(format!("/v1/runs/{id}")).map_err(|_| Problem::internal())?;
    let applied: Vec<_> = patience.applied().into_iter().collect();
    let headers = HeaderMap::from_iter([(header::LOCATION, location)].into_iter().chain(applied));
    Ok((StatusCode::CREATED, headers, axum::Json(shown)).into_response())
}

/// Whose run it is.
async fn owner(app: &App, caller: &Principal, on_behalf_of: Option<Subject>) -> Answer<Subject> {
    let Some(person) = on_behalf_of else { return Ok(caller.subject.clone()) };
    match caller.standing {
        Standing::Service(scopes) if scopes.has(Scope::RunOnBehalf) => {}
        Standing::Service(_) | Standing::User | Standing::Approver => {
            return Err(Problem::not_permitted("only programs with run:on_behalf start runs for others"));
        }
    }
    let look = app.store().look(std::slice::from_ref(&person)).await?;
    match look.people.find(&person) {
        Some(found) if !found.is_service() => Ok(person),
        Some(_) | None => {
            Err(Problem::invalid_at("unknown_subject", "/on_behalf_of", "there is no such person"))
        }
    }
}

/// The starter's own key, if they gave one.
pub(super) fn key(headers: &HeaderMap) -> Answer<Option<String>> {
    let mut keys = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(key) = keys.next() else { return Ok(None) };
    let text = key.to_str().ok().map(str::trim);
    match text.filter(|text| (1..=KEY_BYTES_MAX).contains(&text.len()) && keys.next().is_none()) {
        Some(text) => Ok(Some(text.to_owned())),
        None => Err(Problem::invalid(
            "invalid_header",
            format!("Idempotency-Key is given once, as 1 to {KEY_BYTES_MAX} visible characters"),
        )),
    }
}
