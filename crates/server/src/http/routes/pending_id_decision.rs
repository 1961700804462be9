//! `POST /v1/pending/{id}/decision`: somebody's word on a question (A8).
//!
//! The order of the answers is that of A8: visible, well-formed, with a digest, and then what the rule says.

use std::collections::BTreeMap;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use countersign::{
    Arguments, CallId, CallVerdict, Decision, Digest, PendingId, Run, Said, SettledOutcome, well_formed,
};
use serde_json::Value;

use crate::http::App;
use crate::http::body::Json;
use crate::http::caller::Caller;
use crate::http::openapi::ProblemBody;
use crate::http::patience::Patience;
use crate::http::problem::{Answer, Problem};
use crate::http::refusal::refused;
use crate::json::View;

/// A decision, always with the digest of what was seen, here or in `If-Match`. Exactly one of `verdict`, `calls`, `answer`
/// and `outcome`.
#[derive(Debug, serde::Deserialize, utoipa::ToSchema)]
pub(crate) struct Decide {
    /// The digest of what was seen.
    digest: Option<String>,
    /// On an approval, for the whole turn: `approve` or `deny`. On an input: `deny`.
    #[schema(value_type = Option<String>)]
    verdict: Option<CallVerdict>,
    /// On an approval: `approve` or `deny` for every call that needs it, no more, no less.
    #[schema(value_type = Option<BTreeMap<String, String>>)]
    calls: Option<BTreeMap<CallId, CallVerdict>>,
    /// Why. The model is told of a denial's.
    reason: Option<String>,
    /// On an input: the fields.
    #[schema(value_type = Option<Object>)]
    answer: Option<Arguments>,
    /// On an unknown outcome: `happened`, `did_not_happen` or `give_up`.
    #[schema(value_type = Option<String>)]
    outcome: Option<SettledOutcome>,
    /// What the call would have answered, if it happened.
    result: Option<String>,
}

/// Settles a question.
#[utoipa::path(
    post, path = "/v1/pending/{id}/decision", tag = "pending",
    request_body = Decide,
    params(
        ("id" = String, Path, description = "The question's id."),
        ("If-Match" = Option<String>, Header, description = "The digest of what was seen, in quotes."),
        ("Prefer" = Option<String>, Header, description = "`wait=N` answers when the run next stops, or after N seconds."),
    ),
    responses(
        (status = 200, description = "The question, settled.", body = crate::http::openapi::Pending),
        (status = 409, description = "It is not open any more: `already_decided` (with `decision`), `withdrawn`, `void`, `superseded`; or `agent_gone`, `too_early`.", body = ProblemBody, content_type = "application/problem+json"),
        (status = 410, description = "`expired`", body = ProblemBody, content_type = "application/problem+json"),
        (status = 412, description = "`stale_digest`", body = ProblemBody, content_type = "application/problem+json"),
        (status = 428, description = "`digest_required`", body = ProblemBody, content_type = "application/problem+json"),
        (status = "4XX", description = "Refused; the question is still open.", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn decide(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    patience: Patience,
    headers: HeaderMap,
    body: Answer<Json<Decide>>,
) -> Answer<Response> {
    let (id, run) = app.asked(&id, &caller).await?;
    let mut body = body?.body;
    let given = body.digest.take();
    let said = said(body)?;
    if let Some(record) = run.pending(&id) {
        well_formed(&record.pending, &said).map_err(|error| refused(&error.into(), None))?;
    }
    let digest = digest(given, &headers)?;
    settle(&app, &caller, &run, &id, Decision { digest, said }).await?;
    if let Some(time) = patience.time() {
        app.until_it_stops(run.id(), time).await?;
    }
    let run = app.load(run.id()).await?.run;
    let record = run.pending(&id).ok_or_else(Problem::internal)?;
    let view = View { admin: caller.principal().admin, listed: false };
    let shown = app.question_json(record, &run, view);
    Ok((HeaderMap::from_iter(patience.applied()), axum::Json(shown)).into_response())
}

/// Settles it, by whatever route the word came: the one place that does.
pub(super) async fn settle(
    app: &App,
    caller: &Caller,
    run: &Run,
    id: &PendingId,
    decision: Decision,
) -> Answer<()> {
    let decided = app.runtime().decide_in(run.clone(), id, decision, caller.subject()).await;
    app.watchers().ring(run.id());
    match decided {
        Ok(_) => Ok(()),
        Err(error) => Err(refused(&error, decision_of(app, run, id).await)),
    }
}

/// Exactly one thing is said.
fn said(body: Decide) -> Answer<Said> {
    let Decide { digest: _, verdict, calls, reason, answer, outcome, result } = body;
    let result_is_out_of_place = result.is_some() && outcome != Some(SettledOutcome::Happened);
    if result_is_out_of_place || (reason.is_some() && verdict.is_none() && calls.is_none()) {
        return Err(Problem::invalid(
            "malformed_decision",
            "`reason` goes with `verdict` or `calls`, and `result` with `outcome` happened",
        ));
    }
    match (verdict, calls, answer, outcome) {
        (Some(verdict), None, None, None) => Ok(Said::Turn { verdict, reason }),
        (None, Some(verdicts), None, None) => Ok(Said::Calls { verdicts, reason }),
        (None, None, Some(answer), None) => Ok(Said::Answer(answer)),
        (None, None, None, Some(outcome)) => Ok(Said::Settle { outcome, result }),
        _ => Err(Problem::invalid(
            "malformed_decision",
            "a decision says exactly one of `verdict`, `calls`, `answer` and `outcome`",
        )),
    }
}

/// The digest of what was seen, from the body or from `If-Match`.
pub(super) fn digest(given: Option<String>, headers: &HeaderMap) -> Answer<Digest> {
    let mut matches = headers.get_all(header::IF_MATCH).iter();
    let from_header = matches.next().map(|value| value.to_str().unwrap_or_default().trim().trim_matches('"'));
    let stale = || {
        Problem::new(
            StatusCode::PRECONDITION_FAILED,
            "stale_digest",
            "the digest is not that of this question: look at it again",
        )
    };
    let text = match (given, from_header) {
        (None, None) => {
            return Err(Problem::new(
                StatusCode::PRECONDITION_REQUIRED,
                "digest_required",
                "a decision names the digest of what was seen, as `digest` or in If-Match",
            ));
        }
        (Some(given), Some(header)) if given != header => return Err(stale()),
        (Some(given), _) => given,
        (None, Some(header)) => header.to_owned(),
    };
    if matches.next().is_some() {
        return Err(stale());
    }
    Digest::parse(&text).map_err(|_| stale())
}

/// What was decided, if something was.
async fn decision_of(app: &App, run: &Run, id: &PendingId) -> Option<Value> {
    let run = app.load(run.id()).await.ok()?.run;
    let record = run.pending(id)?;
    let decided = record.decided.as_ref()?;
    Some(crate::json::decision(decided, record.settled_at))
}
