//! All routes, each with who may use it. One endpoint, one file.
//!
//! Invariant: this list is the whole API. A new endpoint is a file here and a line in the list; without an entry for who
//! may use it the line does not compile.

mod agents;
mod agents_name;
mod groups;
mod groups_name_switch;
mod health;
mod metrics;
mod openapi_json;
mod pending;
mod pending_id;
mod pending_id_decision;
mod pending_id_edit;
mod policy_explain;
mod policy_offerable;
mod policy_unattended;
mod ready;
mod responses_create;
mod responses_id;
mod runs;
mod runs_create;
mod runs_id;
mod runs_id_cancel;
mod runs_id_events;
mod tools;
mod tools_name;
mod tools_name_switch;

use countersign::Scope;
use utoipa_axum::routes;

use super::access::{Access, Route, admins_and, all_and};

/// Programs that read questions.
const READ_QUESTIONS: &[Scope] = &[Scope::PendingRead, Scope::PendingDecide];
/// Programs that may look at agents: whoever starts runs must know what there is.
const LOOK_AT_AGENTS: &[Scope] = &[Scope::RunCreate];
/// Programs that may look at tools, groups and gates.
const LOOK_AT_TOOLS: &[Scope] = &[Scope::RunCreate, Scope::ToolsManage];

/// Who starts runs.
const START: Access = all_and(&[Scope::RunCreate]);
/// Who reaches a question to settle it. Who may read it and not decide it is told so by rule A8, and that is recorded (A9).
const SETTLE: Access = all_and(READ_QUESTIONS);

/// What supervisors and monitors ask: all that there is where nothing else is served.
pub(crate) fn health() -> Vec<Route> {
    vec![
        Route::new(Access::Open, routes!(health::healthz)),
        Route::new(Access::Open, routes!(ready::readyz)),
        Route::new(Access::Open, routes!(metrics::metrics)),
    ]
}

/// The list.
pub(crate) fn all() -> Vec<Route> {
    let mut all = health();
    all.extend(vec![
        Route::new(Access::Open, routes!(openapi_json::openapi)),
        Route::new(START, routes!(runs_create::create_run)),
        Route::new(all_and(&[Scope::RunRead]), routes!(runs::list_runs)),
        Route::new(all_and(&[Scope::RunRead]), routes!(runs_id::get_run)),
        Route::new(all_and(&[Scope::RunRead]), routes!(runs_id_events::list_events)),
        Route::new(all_and(&[Scope::RunCancel]), routes!(runs_id_cancel::cancel_run)),
        Route::new(all_and(READ_QUESTIONS), routes!(pending::list_pending)),
        Route::new(all_and(READ_QUESTIONS), routes!(pending_id::get_pending)),
        Route::new(SETTLE, routes!(pending_id_decision::decide)),
        Route::new(all_and(READ_QUESTIONS), routes!(pending_id_edit::edit)),
        Route::new(all_and(LOOK_AT_TOOLS), routes!(tools::list_tools)),
        Route::new(all_and(LOOK_AT_TOOLS), routes!(tools_name::get_tool)),
        Route::new(admins_and(&[Scope::ToolsManage]), routes!(tools_name_switch::switch_tool)),
        Route::new(all_and(LOOK_AT_TOOLS), routes!(groups::list_groups)),
        Route::new(admins_and(&[Scope::ToolsManage]), routes!(groups_name_switch::switch_group)),
        Route::new(all_and(LOOK_AT_AGENTS), routes!(agents::list_agents)),
        Route::new(all_and(LOOK_AT_AGENTS), routes!(agents_name::get_agent)),
        Route::new(all_and(LOOK_AT_TOOLS), routes!(policy_offerable::offerable)),
        Route::new(all_and(LOOK_AT_TOOLS), routes!(policy_unattended::unattended)),
        Route::new(all_and(LOOK_AT_TOOLS), routes!(policy_explain::explain)),
        // It starts or it settles; which of the two is in the body, and then START or SETTLE is asked again.
        Route::new(
            all_and(&[Scope::RunCreate, Scope::PendingRead, Scope::PendingDecide]),
            routes!(responses_create::create_response),
        ),
        Route::new(all_and(&[Scope::RunRead]), routes!(responses_id::get_response)),
    ]);
    all
}
