//! Who may use which route at all.
//!
//! Invariant: there is no route without an entry: [`Route::new`] wants one, and nothing else puts a route into the router.
//! What a caller may see or do to one run or question is not said here, but where the run is known
//! (`countersign_core::rights`, `look`).

use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use countersign::{Principal, Scope, Standing};
use utoipa_axum::router::{UtoipaMethodRouter, UtoipaMethodRouterExt as _};

use super::App;
use super::caller::Caller;
use super::problem::{Answer, Problem};

/// Who may use a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Everybody, known or not.
    Open,
    /// Whoever is known: these people, and programs with one of these scopes.
    Known {
        /// Which people.
        people: People,
        /// Which programs; with none of them, no program.
        programs: &'static [Scope],
    },
}

/// Which people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum People {
    /// All of them.
    All,
    /// Administrators.
    Admins,
}

/// All people, and programs with one of these scopes.
pub(crate) const fn all_and(programs: &'static [Scope]) -> Access {
    Access::Known { people: People::All, programs }
}

/// Administrators, and programs with one of these scopes.
pub(crate) const fn admins_and(programs: &'static [Scope]) -> Access {
    Access::Known { people: People::Admins, programs }
}

impl Access {
    /// Whether this principal may use the route.
    pub(crate) fn admits(self, principal: &Principal) -> bool {
        match (self, principal.standing) {
            (Self::Open, _) => true,
            (Self::Known { programs, .. }, Standing::Service(scopes)) => {
                programs.iter().any(|scope| scopes.has(*scope))
            }
            (Self::Known { people: People::All, .. }, Standing::User | Standing::Approver) => true,
            (Self::Known { people: People::Admins, .. }, Standing::User | Standing::Approver) => {
                principal.admin
            }
        }
    }
}

impl Access {
    /// Who that is.
    pub(crate) fn in_words(self) -> String {
        let (people, programs) = match self {
            Self::Open => return "Open to everybody.".to_owned(),
            Self::Known { people: People::All, programs } => ("Everybody who is known", programs),
            Self::Known { people: People::Admins, programs } => ("Administrators", programs),
        };
        let scopes: Vec<&str> = programs.iter().map(|scope| scope.as_str()).collect();
        if scopes.is_empty() {
            format!("{people}.")
        } else {
            format!("{people}; programs with {}.", scopes.join(" or "))
        }
    }
}

/// One endpoint and who may use it.
pub(crate) struct Route {
    access: Access,
    endpoint: UtoipaMethodRouter<App>,
}

impl Route {
    /// An endpoint, as `routes!(handler)` makes it, with its entry.
    pub(crate) fn new(access: Access, endpoint: UtoipaMethodRouter<App>) -> Self {
        Self { access, endpoint }
    }

    /// Its entry.
    pub(crate) fn access(&self) -> Access {
        self.access
    }

    /// The endpoint without its guard, to be described.
    pub(crate) fn described(self) -> UtoipaMethodRouter<App> {
        self.endpoint
    }

    /// The endpoint behind its guard.
    pub(crate) fn guarded(self, app: &App) -> UtoipaMethodRouter<App> {
        let access = self.access;
        self.endpoint.map(|methods| {
            methods.route_layer(from_fn_with_state(
                app.clone(),
                move |State(app): State<App>, request: Request, next: Next| guard(app, access, request, next),
            ))
        })
    }
}

async fn guard(app: App, access: Access, request: Request, next: Next) -> Answer<Response> {
    if access == Access::Open {
        return Ok(next.run(request).await);
    }
    if app.is_draining() {
        return Err(super::draining());
    }
    let (mut parts, body) = request.into_parts();
    let caller = Caller::of(&app, &parts).await?;
    if !access.admits(caller.principal()) {
        return Err(Problem::not_permitted("your rights do not include this"));
    }
    parts.extensions.insert(caller);
    Ok(next.run(Request::from_parts(parts, body)).await)
}
