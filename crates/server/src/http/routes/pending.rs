//! `GET /v1/pending`: the questions that the caller may see.

use axum::Json;
use axum::extract::State;
use countersign::{AgentName, PendingFilter, PendingStatus, RunId, Standing};
use serde_json::Value;

use crate::http::App;
use crate::http::caller::Caller;
use crate::http::look::LOADED_TOGETHER;
use crate::http::openapi::ProblemBody;
use crate::http::params::Params;
use crate::http::problem::Answer;
use crate::json::View;

/// The questions that the caller may see, oldest first. Arguments over 8 kB are left out.
#[utoipa::path(
    get, path = "/v1/pending", tag = "pending",
    params(
        ("status" = Option<String>, Query, description = "Only of this status."),
        ("agent" = Option<String>, Query, description = "Only of this agent's runs."),
        ("run" = Option<String>, Query, description = "Only of this run."),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 200, description = "The most items, from 1 to 200."),
        ("cursor" = Option<String>, Query, description = "The `next` of the page before."),
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
    for rows in found.items.chunks(LOADED_TOGETHER) {
        let ids: Vec<RunId> = rows.iter().map(|row| row.run.clone()).collect();
        for (row, run) in rows.iter().zip(app.runtime().load_each(&ids).await?) {
            // One run that cannot be read hides no other (R2).
            let Ok(run) = run else { continue };
            let may_see = principal.may_see_questions_of(&run.created().owner);
            if let Some(record) = run.pending(&row.id).filter(|_| may_see) {
                items.push(app.question_json(record, &run, view));
            }
        }
    }
    Ok(Json(page.of(&items, found.next.as_deref())))
}
