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
use std::time::Duration;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state, map_response};
use axum::response::{IntoResponse as _, Response};
use countersign::{Accounts, AgentName, Clock, Runtime, Store, StoreFault};
use countersign_clients::SpanContext;
use jiff::Timestamp;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa_axum::router::OpenApiRouter;

use crate::config::PublicUrl;
use crate::log;
use crate::metrics::Metrics;
use crate::setup::{Setup, SetupError};
use problem::Problem;
use throttle::FailedTokens;

pub(crate) use listen::listen;
pub(crate) use openapi::{document, text as openapi_text};
pub(crate) use watch::Watchers;

/// How long a count of the database is good for.
const COUNT_AGAIN: Duration = Duration::from_secs(1);
/// How long it is known that the database can be written, or that it cannot.
const PROBE_AGAIN: Duration = Duration::from_secs(5);

/// Everything that a request can get at. Cheap to clone; all clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct App(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    setup: Setup,
    runtime: Runtime,
    accounts: Arc<dyn Accounts>,
    watchers: Watchers,
    metrics: Arc<Metrics>,
    /// When the database was counted last.
    counted: Mutex<Option<Timestamp>>,
    /// When it was last seen whether the database can be written, and what was seen.
    probed: Mutex<Option<(Timestamp, Result<(), Unwritable>)>>,
    failed_tokens: FailedTokens,
    end: CancellationToken,
}

impl App {
    /// All of it. When `end` is cancelled the process is going to end: nothing new is taken, and nobody waits.
    pub(crate) fn new(
        setup: Setup,
        runtime: Runtime,
        accounts: Arc<dyn Accounts>,
        metrics: Arc<Metrics>,
        end: CancellationToken,
    ) -> Self {
        Self(Arc::new(Inner {
            setup,
            runtime,
            accounts,
            watchers: Watchers::default(),
            metrics,
            counted: Mutex::default(),
            probed: Mutex::default(),
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

    /// Where the caller traces their request, if work is traced here; what is no W3C `traceparent` is passed over.
    pub(crate) fn trace_of(&self, headers: &HeaderMap) -> Option<String> {
        self.setup().telemetry.as_ref()?;
        let mut given = headers.get_all("traceparent").iter();
        let (first, None) = (given.next()?, given.next()) else { return None };
        Some(SpanContext::parse(first.to_str().ok()?)?.traceparent())
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

    /// What is counted.
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// Counts what the database owes, unless that was done just now: everybody may ask.
    pub(crate) async fn count(&self) {
        let mut counted = self.0.counted.lock().await;
        let now = self.clock().now();
        let is_fresh = |at: Timestamp| now.duration_since(at).unsigned_abs() < COUNT_AGAIN;
        if counted.is_some_and(is_fresh) {
            return;
        }
        let census =
            self.0.setup.store.census(now).await.inspect_err(|fault| self.metrics().store_failed(fault));
        let agents = &self.0.runtime.parts().agents;
        self.metrics().owed(census.as_ref().ok(), now, |agent| agents.find(agent).is_some());
        *counted = Some(now);
    }

    /// Whether the database can be written, as was seen at most a few seconds ago: everybody may ask.
    ///
    /// # Errors
    /// [`Unwritable`].
    pub(crate) async fn probe(&self) -> Result<(), Unwritable> {
        let mut probed = self.0.probed.lock().await;
        let now = self.clock().now();
        if let Some((at, seen)) = *probed
            && now.duration_since(at).unsigned_abs() < PROBE_AGAIN
        {
            return seen;
        }
        let written = self.0.setup.store.probe().await;
        let seen = written.inspect_err(|fault| self.metrics().store_failed(fault)).map_err(|fault| {
            log::warn(&format!("the database cannot be written: {}", in_full(&fault)));
            Unwritable::of(&fault)
        });
        *probed = Some((now, seen));
        seen
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

/// Why the database cannot be written, in words that may be told to whoever reaches the port.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unwritable {
    Full,
    ReadOnly,
    Busy,
    Failed,
}

impl Unwritable {
    fn of(fault: &StoreFault) -> Self {
        match fault {
            StoreFault::Full(_) => Self::Full,
            StoreFault::ReadOnly(_) => Self::ReadOnly,
            StoreFault::Busy(_) => Self::Busy,
            StoreFault::Unreachable(_) | StoreFault::Failed(_) | _ => Self::Failed,
        }
    }

    /// What is wrong, and what to do.
    pub(crate) fn sentence(self) -> &'static str {
        match self {
            Self::Full => "the disk of the database is full: make room, and this mends itself",
            Self::ReadOnly => "the database cannot be written; the log of this process says why",
            Self::Busy => "the database was busy for too long",
            Self::Failed => "the store does not answer as it should; the log of this process says how",
        }
    }
}

/// A fault with its causes.
fn in_full(fault: &StoreFault) -> String {
    let (mut words, mut cause) = (fault.to_string(), std::error::Error::source(fault));
    while let Some(error) = cause {
        words = format!("{words}: {error}");
        cause = error.source();
    }
    words
}

/// All routes behind their guards.
pub(crate) fn router(app: &App) -> Router {
    routed(app, routes::all())
}

/// Only what supervisors and monitors ask.
pub(crate) fn health_router(app: &App) -> Router {
    routed(app, routes::health())
}

fn routed(app: &App, routes: Vec<access::Route>) -> Router {
    let routes =
        routes.into_iter().fold(OpenApiRouter::new(), |router, route| router.routes(route.guarded(app)));
    let (router, _) = routes.split_for_parts();
    router
        .fallback(|| async { Problem::not_found("page").into_response() })
        .method_not_allowed_fallback(|request: Request| async move { method_not_allowed(&request) })
        .layer(from_fn_with_state(app.clone(), door::door))
        .layer(map_response(|response: Response| async move { careful(response) }))
        .layer(CatchPanicLayer::custom(|_| Problem::internal().into_response()))
        .layer(from_fn_with_state(app.clone(), tell))
        .with_state(app.clone())
}

/// Writes down and counts that a request was answered: which route, and how, but not by whom and for what.
async fn tell(State(app): State<App>, request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().cloned();
    let method = request.method().clone();
    let began = app.clock().now();
    let response = next.run(request).await;
    let took = Duration::try_from(app.clock().now().duration_since(began)).unwrap_or_default();
    let route = route.as_ref().map_or("none", MatchedPath::as_str);
    // What a method may be called is the caller's choice.
    let known = [Method::GET, Method::HEAD, Method::POST, Method::PATCH, Method::DELETE, Method::PUT];
    let method = if known.contains(&method) { method.as_str() } else { "other" };
    app.metrics().answered(route, response.status().as_u16());
    log::answered(method, route, response.status().as_u16(), took);
    response
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
