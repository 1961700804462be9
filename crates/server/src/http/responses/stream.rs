//! A response as it comes, in the events that OpenAI's clients expect.
//!
//! Invariant: it tells what the plain answer would say, from the same stretch of the log, item by item. A text is told in one
//! piece once it is stored: what a model has said is not taken back. Not here: the run, which goes on whoever listens.

use std::collections::VecDeque;
use std::convert::Infallible;

use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream::unfold;
use serde_json::{Value, json};

use super::{ResponseId, Stretch};
use crate::http::follow::{Following, still_there};

/// A stream in the making.
struct Telling {
    following: Following,
    id: ResponseId,
    previous: Option<String>,
    /// Events that were not given yet.
    ready: VecDeque<Value>,
    /// How many events there were so far.
    events: u64,
    /// How many items were told.
    items: usize,
    is_told: bool,
}

/// The answer, from `begun` on.
pub(crate) fn stream(
    following: Following,
    id: ResponseId,
    previous: Option<String>,
    begun: Stretch<'_>,
) -> Response {
    let mut telling =
        Telling { following, id, previous, ready: VecDeque::new(), events: 0, items: 0, is_told: false };
    let response = begun.begun().json(telling.previous.as_deref());
    telling.event("response.created", json!({ "response": response }));
    telling.event("response.in_progress", json!({ "response": response }));
    let events = unfold(telling, |mut telling| async move {
        loop {
            if let Some(event) = telling.ready.pop_front() {
                let line = Event::default().event(event["type"].as_str().unwrap_or("error"));
                return Some((Ok::<_, Infallible>(line.data(event.to_string())), telling));
            }
            if telling.is_told {
                return None;
            }
            telling.listen().await?;
        }
    });
    Sse::new(events).keep_alive(still_there()).into_response()
}

impl Telling {
    /// Waits for what comes next, and tells it.
    async fn listen(&mut self) -> Option<()> {
        let news = self.following.news().await?;
        let stretch = Stretch::of(&self.id, &news.seen)?;
        for item in stretch.items().into_iter().skip(self.items) {
            self.item(&item);
        }
        self.is_told = stretch.has_stopped() || news.has_stopped;
        if stretch.has_stopped() {
            let kind = match stretch.status() {
                "completed" => "response.completed",
                "incomplete" => "response.incomplete",
                _ => "response.failed",
            };
            let response = stretch.json(self.previous.as_deref());
            self.event(kind, json!({ "response": response }));
        }
        Some(())
    }

    fn event(&mut self, kind: &str, mut event: Value) {
        event["type"] = kind.into();
        event["sequence_number"] = self.events.into();
        self.events += 1;
        self.ready.push_back(event);
    }

    fn item(&mut self, item: &Value) {
        let at = self.items;
        self.items += 1;
        let Some(content) = item["content"].as_array() else {
            self.event("response.output_item.added", json!({ "output_index": at, "item": item }));
            self.event("response.output_item.done", json!({ "output_index": at, "item": item }));
            return;
        };
        let mut begun = item.clone();
        begun["status"] = "in_progress".into();
        begun["content"] = json!([]);
        self.event("response.output_item.added", json!({ "output_index": at, "item": begun }));
        for (index, part) in content.iter().enumerate() {
            let within = |more: Value| {
                let mut event = more;
                event["item_id"] = item["id"].clone();
                event["output_index"] = at.into();
                event["content_index"] = index.into();
                event
            };
            let mut empty = part.clone();
            empty["text"] = "".into();
            self.event("response.content_part.added", within(json!({ "part": empty })));
            let text = &part["text"];
            self.event("response.output_text.delta", within(json!({ "delta": text, "logprobs": [] })));
            self.event("response.output_text.done", within(json!({ "text": text, "logprobs": [] })));
            self.event("response.content_part.done", within(json!({ "part": part })));
        }
        self.event("response.output_item.done", json!({ "output_index": at, "item": item }));
    }
}
