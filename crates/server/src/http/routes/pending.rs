//! `GET /v1/pending`: the questions that the caller may see.

use axum::Json;
use axum::extract::State;
use countersign::{AgentName, PendingFilter, PendingStatus, RunId, Standing};
use serde_json::Value;

use crate::http::App;
use crate::http::caller::Caller;
use crate::http::openapi::ProblemBody;
use crate::http::params::{PageParams, Params};
use crate::http::problem::Answer;
use crate::json::View;

/// The questions that the caller may see, oldest first. Arguments over 8 kB are left out.
#[utoipa::path(
    get, path = "/v1/pending", tag = "pending",
    params(
        ("status" = Option<String>, Query, description = "Only of this status."),
        ("agent" = Option<String>, Query, description = "Only of this agent's runs."),
        ("run" = Option<String>, Query, description = "Only of this run."),
        PageParams,
    ),
    responses(
        (status = 200, description = "A page of questions.", body = crate::http::openapi::PendingPage),
        (status = "4XX", description = "Refused.", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn list_pending(
    State(app): State<App>,
    caller: Caller,
    mut params: Params,
) -> Answer<Json<Value>> {
    let page = params.page("pending")?;
    let principal = caller.principal();
    let sees_all = principal.admin || principal.standing != Standing::User;
    let filter = PendingFilter {
        status: params.take("status", PendingStatus::from_word)?,
        agent: params.take("agent", |text| AgentName::parse(text).ok())?,
        run: params.take("run", |text| RunId::parse(text).ok())?,
        owner: (!sees_all).then(|| principal.subject.clone()),
    };
    params.done()?;
    let found = app.store().pendings(&filter, page.limit, page.after.as_deref()).await?;
    let view = View { admin: principal.admin, listed: true };
    let mut items = Vec::with_capacity(found.items.len());
    app.each_with_its_run(
        &found.items,
        |row| &row.run,
        |row, run| {
            let run = run.ok().filter(|run| principal.may_see_questions_of(&run.created().owner));
            let found = run.as_ref().and_then(|run| Some((run.pending(&row.id)?, run)));
            items.extend(found.map(|(record, run)| app.question_json(record, run, view)));
        },
    )
    .await?;
    Ok(Json(page.of(&items, found.next.as_deref())))
}
