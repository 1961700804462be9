//! `GET /v1/runs/{id}/events`: what happened to a run, as a list or as a stream.

use std::convert::Infallible;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::sse::{self, Sse};
use axum::response::{IntoResponse as _, Response};
use countersign::Principal;
use futures_util::stream::{self, Stream};
use serde_json::Value;

use crate::http::App;
use crate::http::caller::Caller;
use crate::http::follow::{Following, still_there};
use crate::http::openapi::ProblemBody;
use crate::http::params::{PageParams, Params};
use crate::http::problem::{Answer, Problem};
use crate::json;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// What happened to a run: a list of the events after a sequence, or a stream that follows the run to its next stop.
#[utoipa::path(
    get, path = "/v1/runs/{id}/events", tag = "runs",
    params(
        ("id" = String, Path, description = "The run's id."),
        ("after" = Option<u64>, Query, description = "Only events after this sequence."),
        PageParams,
        ("Accept" = Option<String>, Header, description = "`text/event-stream` for a stream."),
        ("Last-Event-ID" = Option<String>, Header, description = "The last sequence that a stream has given; it goes on after it."),
    ),
    responses(
        (status = 200, description = "Events in their order; a stream ends with the run's end or pause.", content(
            (crate::http::openapi::EventPage = "application/json"), (String = "text/event-stream"),
        )),
        (status = 204, description = "To a stream that goes on: the run has ended, and there is nothing more."),
        (status = "4XX", description = "Refused.", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn list_events(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    headers: HeaderMap,
    mut params: Params,
) -> Answer<Response> {
    let seen = app.seen(&id, &caller).await?;
    let page = params.page("events")?;
    let after = params
        .take("after", |text| text.parse::<u64>().ok().filter(|after| i64::try_from(*after).is_ok()))?;
    params.done()?;
    if !wants_stream(&headers) {
        let from_cursor = page.after.as_deref().and_then(|after| after.parse().ok());
        let first = from_cursor.max(after).map_or(0, |after| after.saturating_add(1));
        let first = usize::try_from(first).unwrap_or(usize::MAX);
        let events = json::events(&seen.log);
        let end = first.saturating_add(page.limit).min(events.len());
        let items = events.get(first..end).unwrap_or_default();
        let next = (end < events.len() && first < end).then(|| (end - 1).to_string());
        return Ok(axum::Json(page.of(items, next.as_deref())).into_response());
    }
    let last_seen = match headers.get(LAST_EVENT_ID) {
        None => None,
        Some(value) => {
            let number = value.to_str().ok().and_then(|text| text.trim().parse::<u64>().ok());
            Some(number.ok_or_else(|| {
                Problem::invalid("invalid_header", "Last-Event-ID is the sequence of an event")
            })?)
        }
    };
    let next = last_seen.or(after).map_or(0, |after| after.saturating_add(1));
    if last_seen.is_some() && seen.run.end().is_some() && next >= seen.log.len() as u64 {
        // A browser would come back for ever.
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let following = Following::new(app, caller, Principal::may_see, seen.run.id().clone(), next);
    let stream = told(Telling { following, ready: Vec::new(), has_stopped: false });
    Ok(Sse::new(stream).keep_alive(still_there()).into_response())
}

fn wants_stream(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|text| text.split(',')).any(|kind| {
        kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("text/event-stream"))
    })
}

/// A stream in the making.
struct Telling {
    following: Following,
    /// Events that were read and not given yet, the last first.
    ready: Vec<Value>,
    has_stopped: bool,
}

/// The events as they come, until the run stops.
fn told(telling: Telling) -> impl Stream<Item = Result<sse::Event, Infallible>> {
    stream::unfold(telling, |mut telling| async move {
        loop {
            if let Some(event) = telling.ready.pop() {
                let line = sse::Event::default()
                    .id(event["seq"].to_string())
                    .event(event["kind"].as_str().unwrap_or("event"))
                    .data(event.to_string());
                return Some((Ok(line), telling));
            }
            if telling.has_stopped {
                return None;
            }
            let news = telling.following.news().await?;
            telling.ready = json::events(&news.seen.log).into_iter().skip(news.from).rev().collect();
            telling.has_stopped = news.has_stopped;
        }
    })
}
