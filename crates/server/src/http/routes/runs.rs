//! `GET /v1/runs`: the runs that the caller may see.

use axum::Json;
use axum::extract::State;
use countersign::{AgentName, RunFilter, RunListing, RunState, Standing, Subject};
use serde_json::Value;

use crate::http::App;
use crate::http::caller::Caller;
use crate::http::openapi::ProblemBody;
use crate::http::params::{PageParams, Params};
use crate::http::problem::Answer;
use crate::json::{self, View};

/// The caller's runs, newest first; an administrator sees all, a program those that it started.
#[utoipa::path(
    get, path = "/v1/runs", tag = "runs",
    params(
        ("status" = Option<String>, Query, description = "Only of this status."),
        ("agent" = Option<String>, Query, description = "Only of this agent."),
        ("owner" = Option<String>, Query, description = "Only of this owner."),
        PageParams,
    ),
    responses(
        (status = 200, description = "A page of runs.", body = crate::http::openapi::RunPage),
        (status = "4XX", description = "Refused.", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn list_runs(
    State(app): State<App>,
    caller: Caller,
    mut params: Params,
) -> Answer<Json<Value>> {
    let page = params.page("runs")?;
    let status = params.take("status", status)?;
    let agent = params.take("agent", |text| AgentName::parse(text).ok())?;
    let mut owner = params.take("owner", |text| Subject::parse(text).ok())?;
    params.done()?;
    let principal = caller.principal();
    let mut starter = None;
    match principal.standing {
        Standing::User | Standing::Approver if !principal.admin => {
            if owner.as_ref().is_some_and(|owner| *owner != principal.subject) {
                return Ok(Json(page.of(&[], None)));
            }
            owner = Some(principal.subject.clone());
        }
        Standing::User | Standing::Approver => {}
        Standing::Service(_) => starter = Some(principal.subject.clone()),
    }
    let (states, leased) = status.unwrap_or_default();
    let filter = RunFilter { states, agent, owner, starter };
    let now = app.clock().now();
    let found = app.store().runs(&filter, now, page.limit, page.after.as_deref()).await?;
    let view = View { admin: principal.admin, listed: true };
    let mut items = Vec::with_capacity(found.items.len());
    let listed: Vec<&RunListing> =
        found.items.iter().filter(|listing| leased.is_none_or(|leased| leased == listing.leased)).collect();
    app.each_with_its_run(
        &listed,
        |listing| &listing.row.id,
        |listing, run| match run {
            Ok(run) if principal.may_see(&run) => items.push(app.shown(&run, listing.leased, view)),
            Err(error) if principal.may_see_line(&listing.row) => {
                items.push(json::unreadable_run(listing, &error));
            }
            Ok(_) | Err(_) => {}
        },
    )
    .await?;
    Ok(Json(page.of(&items, found.next.as_deref())))
}

/// The states of a status, and whether somebody must be working on the run.
fn status(word: &str) -> Option<(Vec<RunState>, Option<bool>)> {
    let leased = match word {
        "queued" => Some(false),
        "running" => Some(true),
        _ => None,
    };
    let states: Vec<RunState> = RunState::ALL
        .into_iter()
        .filter(|state| [state.status(false), state.status(true)].contains(&word))
        .collect();
    (!states.is_empty()).then_some((states, leased))
}
