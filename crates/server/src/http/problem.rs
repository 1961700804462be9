//! How a request is refused: `application/problem+json` with a stable code (RFC 9457).
//!
//! Invariant: a code is part of the contract; its sentence is for people, and holds nothing of arguments, results or
//! secrets (S5). What a caller may not see is refused like what is not there.

use std::error::Error as _;

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use countersign::{LoadError, NotAName, StartError, StoreFault};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::log;

/// A refusal.
#[derive(Clone, Debug)]
pub(crate) struct Problem(Box<Told>);

#[derive(Clone, Debug)]
struct Told {
    status: StatusCode,
    code: &'static str,
    detail: String,
    members: Map<String, Value>,
    headers: HeaderMap,
}

/// What every handler may answer instead of its own.
pub(crate) type Answer<T> = Result<T, Problem>;

impl Problem {
    /// A refusal with a code of the contract and a sentence that says what happened and what to do.
    pub(crate) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self(Box::new(Told { status, code, detail, members: Map::new(), headers: HeaderMap::new() }))
    }

    /// The same with a further member.
    #[must_use]
    pub(crate) fn with(mut self, member: &str, value: Value) -> Self {
        self.0.members.insert(member.to_owned(), value);
        self
    }

    /// The same with a header.
    #[must_use]
    pub(crate) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers.insert(name, value);
        self
    }

    /// There is none, or the caller may not see it.
    pub(crate) fn not_found(what: &str) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "not_found",
            format!("there is no such {what}, or you may not see it"),
        )
    }

    /// The caller may not do this.
    pub(crate) fn not_permitted(detail: &str) -> Self {
        Self::new(StatusCode::FORBIDDEN, "not_permitted", detail)
    }

    /// A body, or a part of it, is not what it must be.
    pub(crate) fn invalid(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, code, detail)
    }

    /// One member of a body is not what it must be.
    pub(crate) fn invalid_at(code: &'static str, pointer: &str, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        let errors = json!([{ "pointer": pointer, "detail": detail }]);
        Self::invalid(code, detail).with("errors", errors)
    }

    /// A part of a path or a parameter is no name; so there is nothing of that name.
    pub(crate) fn no_name(what: &str) -> impl Fn(NotAName) -> Self {
        move |_| Self::not_found(what)
    }

    /// What is stored of a run cannot be read; it is kept as it is (R2).
    pub(crate) fn unreadable() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "unreadable_state",
            "what is stored of this run cannot be read; it is kept as it is, and no other run is affected",
        )
    }

    /// The content of the run was destroyed, as somebody asked (R10).
    pub(crate) fn erased(at: Timestamp) -> Self {
        Self::new(
            StatusCode::GONE,
            "erased",
            format!("the content of this run was erased at {at}; only its line in the list of runs is left"),
        )
    }

    /// The store failed; nothing has changed.
    pub(crate) fn store(fault: &StoreFault) -> Self {
        // Why is for the operator, who can do something about it.
        let why = fault.source().map(|source| format!(" ({source})")).unwrap_or_default();
        log::warn(&format!("a request could not be answered: {fault}{why}"));
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "store_unavailable",
            format!("{fault}; nothing has changed, try again"),
        )
        .header(header::RETRY_AFTER, HeaderValue::from_static("1"))
    }

    /// A fault of the program.
    pub(crate) fn internal() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "the program could not answer this request; what is stored is as it was",
        )
    }

    /// The status.
    pub(crate) fn status(&self) -> StatusCode {
        self.0.status
    }

    /// The code.
    pub(crate) fn code(&self) -> &'static str {
        self.0.code
    }
}

impl From<StoreFault> for Problem {
    fn from(fault: StoreFault) -> Self {
        Self::store(&fault)
    }
}

impl From<LoadError> for Problem {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::NotFound(_) => Self::not_found("run"),
            LoadError::Fault(fault) => Self::store(&fault),
            LoadError::Erased { at, .. } => Self::erased(at),
            // What else there may be is no state that can be shown.
            LoadError::Unreadable { .. } | _ => Self::unreadable(),
        }
    }
}

impl From<StartError> for Problem {
    fn from(error: StartError) -> Self {
        match &error {
            StartError::UnknownAgent(_) => Self::invalid_at("unknown_agent", "/agent", error.to_string()),
            StartError::EmptyInput => Self::invalid_at("empty_input", "/input", error.to_string()),
            StartError::KeyReused => Self::invalid(
                "idempotency_key_reused",
                "this Idempotency-Key was used for another request; use a new one",
            ),
            StartError::NoSuchRun(_) => Self::not_found("run"),
            StartError::RunNotEnded(_) => Self::new(StatusCode::CONFLICT, "run_not_ended", error.to_string()),
            StartError::NotContinuable { .. } => {
                Self::new(StatusCode::CONFLICT, "not_continuable", error.to_string())
            }
            StartError::Store(fault) => Self::store(fault),
            StartError::UnknownModel(_) => Self::invalid("unknown_model", error.to_string()),
            _ => Self::invalid("not_started", error.to_string()),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Told { status, code, detail, members: mut body, headers } = *self.0;
        let title = code.replace('_', " ");
        body.insert("type".to_owned(), format!("urn:countersign:problem:{code}").into());
        body.insert("title".to_owned(), title.into());
        body.insert("status".to_owned(), status.as_u16().into());
        body.insert("detail".to_owned(), detail.into());
        body.insert("code".to_owned(), code.into());
        let content_type = (header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        (status, [content_type], headers, Value::Object(body).to_string()).into_response()
    }
}
