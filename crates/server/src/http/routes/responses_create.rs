//! `POST /v1/responses`: starts a run, goes on with one, or settles its question, in the shape of OpenAI's Responses.
//!
//! Invariant: this is another spelling and no other way. Runs start where all runs start; an answer to an approval request
//! goes through the function that settles every question (A8, A9), with the rights of that route.

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use countersign::{
    AgentName, Decision, Event, Mode, PendingId, Principal, Run, RunRequest, Said, StartError, StartKey,
};
use std::time::Duration;

use super::pending_id_decision::settle;
use super::runs_create::key;
use super::{SETTLE, START};
use crate::http::App;
use crate::http::body::Json;
use crate::http::caller::Caller;
use crate::http::follow::Following;
use crate::http::look::Seen;
use crate::http::openapi::ProblemBody;
use crate::http::patience::Patience;
use crate::http::problem::{Answer, Problem};
use crate::http::responses::{self, ApprovalAnswer, CreateResponse, ResponseId, Stretch, Wanted, one_word};

/// What OpenAI's clients look at before they send the same again.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// A response that has begun, and how it is to be told.
struct Begun {
    id: ResponseId,
    previous: Option<String>,
    may_see: fn(&Principal, &Run) -> bool,
}

/// Makes a response: starts a run with `input`, or goes on with the conversation of an ended one, or settles the question of a
/// waiting one with answers to its approval requests. It is answered when the run stops.
#[utoipa::path(
    post, path = "/v1/responses", tag = "responses",
    request_body = CreateResponse,
    params(
        ("Idempotency-Key" = Option<String>, Header, description = "For a start: the same key and body, the same run."),
        ("Prefer" = Option<String>, Header, description = "`wait=N` answers after N seconds at the latest; without it, after 300."),
        ("traceparent" = Option<String>, Header, description = "For a start: as for the route that starts runs."),
    ),
    responses(
        (status = 200, description = "The response, as far as it came; or a stream of its events.", content(
            (crate::http::openapi::Response = "application/json"), (String = "text/event-stream"),
        )),
        (status = "4XX", description = "Nothing was started, and a question is still open; codes as those of starting a run and of deciding.", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn create_response(
    State(app): State<App>,
    caller: Caller,
    patience: Patience,
    headers: HeaderMap,
    Json { mut body, digest }: Json<CreateResponse>,
) -> Answer<Response> {
    let is_streamed = body.stream == Some(true);
    let time = if body.background == Some(true) { Duration::ZERO } else { patience.or_longest() };
    let begun = match body.wanted()? {
        Wanted::Run(messages) => {
            START.admits(caller.principal()).then_some(()).ok_or_else(no_right)?;
            let (mut request, previous) = planned(&app, &caller, &body, messages).await?;
            request.trace = app.trace_of(&headers);
            let starter = request.starter.clone();
            let started = match key(&headers)? {
                None => app.runtime().start(request, Mode::Attended).await,
                Some(key) => {
                    let key = StartKey { starter, key, body: digest };
                    app.runtime().start_once(request, Mode::Attended, &key).await
                }
            };
            let id = ResponseId { run: started.map_err(not_started)?, begin: 0 };
            Begun { id, previous, may_see: is_starter }
        }
        Wanted::Settlement(answers) => {
            SETTLE.admits(caller.principal()).then_some(()).ok_or_else(no_right)?;
            settled(&app, &caller, &body, &answers).await?
        }
    };
    let mut told = tell(&app, &caller, begun, is_streamed, time).await?;
    told.headers_mut().extend(patience.applied());
    Ok(told)
}

fn no_right() -> Problem {
    Problem::not_permitted("your rights do not include this")
}

/// Whoever started a run is told what comes of it, as by the route that starts runs.
fn is_starter(principal: &Principal, run: &Run) -> bool {
    run.created().starter == principal.subject
}

/// What the run is started with.
async fn planned(
    app: &App,
    caller: &Caller,
    body: &CreateResponse,
    input: Vec<countersign::InputMessage>,
) -> Answer<(RunRequest, Option<String>)> {
    let owner = caller.subject().clone();
    let before = match &body.previous_response_id {
        None => None,
        Some(previous) => Some(ended(app, caller, previous).await?),
    };
    let agent = match (&body.model, &before) {
        (Some(agent), _) => agent.clone(),
        (None, Some(seen)) => seen.run.created().agent.clone(),
        (None, None) => AgentName::parse("default").map_err(|_| Problem::internal())?,
    };
    app.prepare(&agent).map_err(|_| Problem::internal())?;
    let request = RunRequest {
        agent,
        input,
        tools: body.tool_request()?,
        model: None,
        max_iterations: None,
        max_working_time: None,
        continue_from: before.map(|seen| seen.run.id().clone()),
        starter: owner.clone(),
        owner,
        trace: None,
    };
    Ok((request, body.previous_response_id.clone()))
}

/// The run of a response that the caller may go on with: it has ended, and nothing came after that response.
async fn ended(app: &App, caller: &Caller, previous: &str) -> Answer<Seen> {
    let missing = || Problem::not_found("response");
    let id = ResponseId::parse(previous).ok_or_else(missing)?;
    let may_go_on = app.runtime().predecessor(&id.run, caller.subject()).await;
    if let Err(error) = may_go_on
        && !matches!(error, StartError::RunNotEnded(_))
    {
        return Err(not_started(error));
    }
    // It is the caller's own. A response that it never had is not there, also while it has not ended.
    let seen = app.load(&id.run).await?;
    Stretch::of(&id, &seen).ok_or_else(missing)?;
    if seen.run.end().is_none() {
        return Err(not_started(StartError::RunNotEnded(id.run)));
    }
    let newest = Stretch::newest(&seen);
    if newest == id {
        return Ok(seen);
    }
    let detail = format!("the run went on after this response; look at {newest} and go on with that one");
    let problem = Problem::new(StatusCode::CONFLICT, "not_continuable", detail);
    Err(not_again(problem.with("response", newest.to_string().into())))
}

fn not_started(error: StartError) -> Problem {
    match &error {
        StartError::UnknownAgent(_) => Problem::invalid_at("unknown_agent", "/model", error.to_string()),
        StartError::NoSuchRun(_) => Problem::not_found("response"),
        StartError::EmptyInput
        | StartError::UnknownModel(_)
        | StartError::RunNotEnded(_)
        | StartError::NotContinuable { .. }
        | StartError::KeyReused
        | StartError::Store(_)
        | _ => not_again(error.into()),
    }
}

/// Settles the question that the answers are about.
async fn settled(
    app: &App,
    caller: &Caller,
    body: &CreateResponse,
    answers: &[ApprovalAnswer],
) -> Answer<Begun> {
    let Some(previous) = &body.previous_response_id else {
        return Err(at("/previous_response_id", "name the response whose approval requests are answered"));
    };
    let missing = || Problem::not_found("response");
    let before = ResponseId::parse(previous).ok_or_else(missing)?;
    let may_see = |principal: &Principal, run: &Run| principal.may_see_questions_of(&run.created().owner);
    let seen = app.seen_if(before.run.as_str(), caller, may_see).await.map_err(of_a_response)?;
    let stretch = Stretch::of(&before, &seen).ok_or_else(missing)?;
    if body.model.as_ref().is_some_and(|agent| *agent != seen.run.created().agent) {
        return Err(at("/model", "a run that waits stays with its agent; name that one, or leave this out"));
    }
    if body.tools.is_some() {
        return Err(at("/tools", "a run that waits keeps its tools; leave this out"));
    }
    let (verdicts, reason) = one_word(answers)?;
    let question = answers.first().and_then(|first| stretch.question(first.request.digest));
    for answer in answers {
        if question.is_none_or(|pending| pending.call(&answer.request.call).is_none()) {
            return Err(at(&answer.pointer, "the response before does not ask for this approval"));
        }
    }
    let pending = question.map(|pending| pending.id.clone()).ok_or_else(missing)?;
    let may_follow = caller.principal().may_see(&seen.run);
    if body.stream == Some(true) && caller.principal().is_service() && !may_follow {
        return Err(Problem::not_permitted(
            "a stream tells of the run, which you may not see; settle it without one",
        ));
    }
    let digest = answers.first().map(|first| first.request.digest).ok_or_else(missing)?;
    let decision = Decision { digest, said: Said::Calls { verdicts, reason } };
    if let Err(problem) = settle(app, caller, &seen.run, &pending, decision).await {
        return Err(not_again(with_what_took_its_place(app, &before, problem).await));
    }
    let begin = decided_at(&app.load(&before.run).await?, &pending).ok_or_else(Problem::internal)?;
    let id = ResponseId { run: before.run, begin };
    Ok(Begun { id, previous: Some(previous.clone()), may_see: Principal::may_see })
}

fn at(pointer: &str, detail: &str) -> Problem {
    Problem::invalid_at("invalid_field", pointer, detail)
}

/// Where somebody changed the arguments meanwhile, the refusal brings the requests that took the place of those answered.
async fn with_what_took_its_place(app: &App, before: &ResponseId, problem: Problem) -> Problem {
    if problem.code() != "superseded" {
        return problem;
    }
    match app.load(&before.run).await {
        Ok(seen) => match Stretch::of(before, &seen) {
            Some(stretch) => problem.with("output", stretch.requests().into()),
            None => problem,
        },
        Err(_) => problem,
    }
}

fn decided_at(seen: &Seen, pending: &PendingId) -> Option<u64> {
    let is_it =
        |event: &Event| matches!(event, Event::PendingDecided(decided) if decided.pending == *pending);
    seen.log.iter().find(|entry| is_it(&entry.event)).map(|entry| entry.seq)
}

/// What comes of it: as a stream, or when the run has stopped or the time is over.
async fn tell(
    app: &App,
    caller: &Caller,
    begun: Begun,
    is_streamed: bool,
    time: Duration,
) -> Answer<Response> {
    let Begun { id, previous, may_see } = begun;
    let mut seen = app.load(&id.run).await?;
    if is_streamed {
        let stretch = Stretch::of(&id, &seen).ok_or_else(Problem::internal)?;
        let following = Following::new(app.clone(), caller.clone(), may_see, id.run.clone(), id.begin + 1);
        return Ok(responses::stream(following, id.clone(), previous, stretch));
    }
    let has_stopped = Stretch::of(&id, &seen).is_some_and(|stretch| stretch.has_stopped());
    if !has_stopped && may_see(caller.principal(), &seen.run) {
        app.until_it_stops(&id.run, time).await?;
        seen = app.load(&id.run).await?;
    }
    let stretch = Stretch::of(&id, &seen).ok_or_else(Problem::internal)?;
    // Who settles for others and may not see the run hears that it goes on.
    let stretch = if may_see(caller.principal(), &seen.run) { stretch } else { stretch.begun() };
    Ok(axum::Json(stretch.json(previous.as_deref())).into_response())
}

/// A conflict stays one: a client that sends the same again by itself is told not to.
fn not_again(problem: Problem) -> Problem {
    if problem.status() == StatusCode::CONFLICT {
        problem.header(SHOULD_RETRY, HeaderValue::from_static("false"))
    } else {
        problem
    }
}

/// A run that is not there, or may not be seen, is a response that is not there.
pub(super) fn of_a_response(problem: Problem) -> Problem {
    if problem.status() == StatusCode::NOT_FOUND { Problem::not_found("response") } else { problem }
}
