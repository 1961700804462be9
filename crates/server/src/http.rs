//! The HTTP API: the same runs, questions and switches as the command line, for programs.
//!
//! Invariant: nothing here decides. Who may do what is said in `countersign_core::rights`, what a decision does in rule A8;
//! here a request becomes a call, and what comes of it an answer. One endpoint is one file in `routes`, and `routes` is
//! the list of all with who may use each. Not here: workers (`countersign::Runtime::work`), and the command that starts
//! all of it (`cli::serve`).

mod access;
mod body;
mod caller;
mod door;
mod follow;
mod listen;
mod look;
mod openapi;
mod params;
mod patience;
mod problem;
mod refusal;
mod responses;
mod routes;
mod throttle;
mod watch;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::{IntoResponse as _, Response};
use countersign::{Accounts, AgentName, Clock, Runtime, Store};
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa_axum::router::OpenApiRouter;

use crate::config::PublicUrl;
use crate::setup::{Setup, SetupError};
use problem::Problem;
use throttle::FailedTokens;

pub(crate) use listen::listen;
pub(crate) use openapi::{document, text as openapi_text};
pub(crate) use watch::Watchers;

/// Everything that a request can get at. Cheap to clone; all clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct App(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    setup: Setup,
    runtime: Runtime,
    accounts: Arc<dyn Accounts>,
    watchers: Watchers,
    failed_tokens: FailedTokens,
    end: CancellationToken,
}

impl App {
    /// All of it. When `end` is cancelled the process is going to end: nothing new is taken, and nobody waits.
    pub(crate) fn new(
        setup: Setup,
        runtime: Runtime,
        accounts: Arc<dyn Accounts>,
        end: CancellationToken,
    ) -> Self {
        Self(Arc::new(Inner {
            setup,
            runtime,
            accounts,
            watchers: Watchers::default(),
            failed_tokens: FailedTokens::default(),
            end,
        }))
    }

    /// The runtime: starts, decides, cancels.
    pub(crate) fn runtime(&self) -> &Runtime {
        &self.0.runtime
    }

    /// Where runs are kept.
    pub(crate) fn store(&self) -> &dyn Store {
        &*self.0.runtime.parts().store
    }

    /// Who is known.
    pub(crate) fn accounts(&self) -> &dyn Accounts {
        &*self.0.accounts
    }

    /// Time and chance.
    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.0.runtime.parts().clock)
    }

    /// What the process was set up from.
    pub(crate) fn setup(&self) -> &Setup {
        &self.0.setup
    }

    /// Makes what a new run of this agent needs: the files of the tour, where the script serves it.
    ///
    /// # Errors
    /// [`SetupError`].
    pub(crate) fn prepare(&self, agent: &AgentName) -> Result<(), SetupError> {
        let model = self.setup().model_of(agent)?;
        if model.is_some_and(|model| self.setup().is_tour(&model)) {
            self.setup().remake_tour()
        } else {
            Ok(())
        }
    }

    /// What it is called from outside.
    pub(crate) fn public_url(&self) -> Option<&PublicUrl> {
        self.0.setup.config.public_url.as_ref()
    }

    /// The bells of runs that somebody waits for.
    pub(crate) fn watchers(&self) -> &Watchers {
        &self.0.watchers
    }

    /// The wrong tokens of late.
    pub(crate) fn failed_tokens(&self) -> &FailedTokens {
        &self.0.failed_tokens
    }

    /// Cancelled when the process is going to end.
    pub(crate) fn end(&self) -> &CancellationToken {
        &self.0.end
    }

    /// Whether it is.
    pub(crate) fn is_draining(&self) -> bool {
        self.0.end.is_cancelled()
    }
}

/// All routes behind their guards.
pub(crate) fn router(app: &App) -> Router {
    let routes = routes::all()
        .into_iter()
        .fold(OpenApiRouter::new(), |router, route| router.routes(route.guarded(app)));
    let (router, _) = routes.split_for_parts();
    router
        .fallback(|| async { Problem::not_found("page").into_response() })
        .method_not_allowed_fallback(|request: Request| async move { method_not_allowed(&request) })
        .layer(from_fn_with_state(app.clone(), door::door))
        .layer(map_response(|response: Response| async move { careful(response) }))
        .layer(CatchPanicLayer::custom(|_| Problem::internal().into_response()))
        .with_state(app.clone())
}

fn method_not_allowed(request: &Request) -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        format!("{} cannot be done here; the header Allow says what can", request.method()),
    )
}

fn draining() -> Problem {
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "draining",
        "the server is about to end; ask again in a moment, or ask another one",
    )
    .header(header::RETRY_AFTER, HeaderValue::from_static("1"))
    .header(header::CONNECTION, HeaderValue::from_static("close"))
}

/// What every answer carries: nobody in between keeps it, and nobody takes it for something else.
fn careful(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}
