//! Who asks: by the token of the request, looked up live (S1, S2).
//!
//! Invariant: the identity comes from the credential and from nothing else. Whoever shows no good token is told the same,
//! whatever was wrong with it.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use countersign::{Principal, Subject, Token};

use super::App;
use super::listen::Peer;
use super::problem::{Answer, Problem};

/// Whoever a good token stands for, with the rights of the moment.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    principal: Principal,
    token: Arc<Token>,
}

impl Caller {
    /// Finds them.
    pub(crate) async fn of(app: &App, request: &Parts) -> Answer<Self> {
        let shown = bearer(request);
        let found = match shown {
            None => return Err(unauthenticated("Bearer realm=\"countersign\"")),
            Some(Err(())) => None,
            Some(Ok(token)) => Self::with(app, Arc::new(token)).await?,
        };
        if let Some(caller) = found {
            return Ok(caller);
        }
        let peer = request.extensions.get::<Peer>().map(|peer| peer.0);
        if let Some(after) = app.failed_tokens().count(peer, app.clock().now()) {
            let problem = Problem::new(
                StatusCode::TOO_MANY_REQUESTS,
                "too_many_attempts",
                "too many tokens that are not good came from your address; wait, and check the token",
            );
            return Err(problem.header(header::RETRY_AFTER, after.into()));
        }
        Err(unauthenticated("Bearer realm=\"countersign\", error=\"invalid_token\""))
    }

    async fn with(app: &App, token: Arc<Token>) -> Answer<Option<Self>> {
        Ok(holder(app, &token).await?.map(|principal| Self { principal, token }))
    }

    /// The same with the rights of this moment, for a request that lasts. `None`: the token is good no longer.
    pub(crate) async fn by_now(&self, app: &App) -> Answer<Option<Self>> {
        Self::with(app, Arc::clone(&self.token)).await
    }

    /// With which rights.
    pub(crate) fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Who.
    pub(crate) fn subject(&self) -> &Subject {
        &self.principal.subject
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        // The guard of a route that asks for somebody has put them there.
        parts.extensions.get::<Self>().cloned().ok_or_else(|| unauthenticated("Bearer"))
    }
}

/// `None`: nothing is shown. `Err`: something is, and it is no token.
fn bearer(request: &Parts) -> Option<Result<Token, ()>> {
    let mut shown = request.headers.get_all(header::AUTHORIZATION).iter();
    let first = shown.next()?;
    if shown.next().is_some() {
        return Some(Err(()));
    }
    let text = first.to_str().unwrap_or_default();
    let token = match text.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Token::parse(token.trim()),
        Some(_) | None => None,
    };
    Some(token.ok_or(()))
}

async fn holder(app: &App, token: &Token) -> Answer<Option<Principal>> {
    let Some(kept) = app.accounts().token(token.id()).await? else { return Ok(None) };
    if !token.opens(&kept) {
        return Ok(None);
    }
    let look = app.store().look(std::slice::from_ref(&kept.subject)).await?;
    Ok(look.people.find(&kept.subject).cloned())
}

fn unauthenticated(challenge: &'static str) -> Problem {
    Problem::new(
        StatusCode::UNAUTHORIZED,
        "unauthenticated",
        "this needs a token: `countersign token create` makes one; send it as Authorization: Bearer TOKEN",
    )
    .header(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge))
}
