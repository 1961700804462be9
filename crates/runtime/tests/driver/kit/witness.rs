//! A model's side of the wire: hears every request, checks that it is valid, and lets a script answer.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use countersign::testing::{Line, ScriptedModel, text};
use countersign::{Answer, CallId, Conversation, Message, Model, ModelError, Offer};

/// One message as a model was told it, with everything that a request must keep apart.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Sent {
    System(String),
    Input(String),
    Reply(Vec<CallId>),
    Result { call: CallId, content: String, is_error: bool },
}

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) model: String,
    pub(crate) sent: Vec<Sent>,
    pub(crate) offered: Vec<Offer>,
}

impl Seen {
    pub(crate) fn offered_names(&self) -> Vec<&str> {
        self.offered.iter().map(|offer| offer.name.as_str()).collect()
    }

    /// The contents of all results, in order.
    pub(crate) fn results(&self) -> Vec<&str> {
        let results = self.sent.iter().filter_map(|sent| match sent {
            Sent::Result { content, .. } => Some(content.as_str()),
            Sent::System(_) | Sent::Input(_) | Sent::Reply(_) => None,
        });
        results.collect()
    }

    /// Rule L3, whoever asks: every call is answered exactly once, in order, before the next message, under
    /// an id of its own; an offer is made once and in the same form.
    fn assert_valid(&self) {
        let mut ids = BTreeSet::new();
        let mut owed: Vec<CallId> = Vec::new();
        for sent in &self.sent {
            match sent {
                Sent::Result { call, content, .. } => {
                    assert!(!owed.is_empty(), "a result of {call} that nobody waits for: {:#?}", self.sent);
                    assert_eq!(
                        owed.remove(0),
                        *call,
                        "results come in the order of the calls: {:#?}",
                        self.sent
                    );
                    assert!(!content.contains('\0') && content.len() <= 50_000, "a result is bounded text");
                }
                Sent::System(_) | Sent::Input(_) | Sent::Reply(_) => {
                    assert_eq!(owed, [], "every call is answered before the next message: {:#?}", self.sent);
                }
            }
            if let Sent::Reply(calls) = sent {
                assert!(
                    calls.iter().all(|call| ids.insert(call.clone())),
                    "an id occurs twice: {:#?}",
                    self.sent
                );
                owed.clone_from(calls);
            }
        }
        assert_eq!(owed, [], "every call is answered: {:#?}", self.sent);
        let names: BTreeSet<&str> = self.offered_names().into_iter().collect();
        assert_eq!(names.len(), self.offered.len(), "a tool is offered once");
    }
}

/// Listens to a model.
#[derive(Clone)]
pub(crate) struct Witness {
    model: Arc<dyn Model>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Witness {
    pub(crate) fn of(model: impl Model + 'static) -> Self {
        Self { model: Arc::new(model), seen: Arc::default() }
    }

    /// Of a model that plays these lines.
    pub(crate) fn script(lines: impl IntoIterator<Item = Line>) -> Self {
        Self::of(ScriptedModel::new(lines))
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// The results that the last request held.
    pub(crate) fn last_results(&self) -> Vec<String> {
        self.seen().last().unwrap().results().into_iter().map(str::to_owned).collect()
    }
}

impl Model for Witness {
    fn converse(&self, model: &str) -> Box<dyn Conversation> {
        let heard = Heard {
            conversation: self.model.converse(model),
            model: model.to_owned(),
            sent: Vec::new(),
            seen: Arc::clone(&self.seen),
        };
        Box::new(heard)
    }
}

struct Heard {
    conversation: Box<dyn Conversation>,
    model: String,
    sent: Vec<Sent>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

#[async_trait]
impl Conversation for Heard {
    fn add(&mut self, message: &Message<'_>) {
        self.sent.extend(match message {
            Message::System(text) => Some(Sent::System((*text).to_owned())),
            Message::Input(input) => Some(Sent::Input(input.text.clone())),
            Message::Reply(reply) => {
                Some(Sent::Reply(reply.calls.iter().map(|call| call.id.clone()).collect()))
            }
            Message::LeftOut(_) => None,
            Message::Result { call, content, is_error } => Some(Sent::Result {
                call: (*call).clone(),
                content: content.to_string(),
                is_error: *is_error,
            }),
        });
        self.conversation.add(message);
    }

    async fn ask(&mut self, offers: &[Offer]) -> Result<Answer, ModelError> {
        let seen = Seen { model: self.model.clone(), sent: self.sent.clone(), offered: offers.to_vec() };
        seen.assert_valid();
        self.seen.lock().unwrap().push(seen);
        self.conversation.ask(offers).await
    }
}

/// A model whose answer depends only on how many answers it is told it gave: what was lost with a process
/// it says again.
#[derive(Clone)]
pub(crate) struct ByTurn(Arc<Vec<Answer>>);

impl ByTurn {
    /// These answers, then `done` for ever.
    pub(crate) fn new(lines: impl IntoIterator<Item = Line>) -> Self {
        Self(Arc::new(lines.into_iter().map(says).collect()))
    }
}

impl Model for ByTurn {
    fn converse(&self, _model: &str) -> Box<dyn Conversation> {
        Box::new(Told { answers: Arc::clone(&self.0), replies: 0 })
    }
}

struct Told {
    answers: Arc<Vec<Answer>>,
    replies: usize,
}

#[async_trait]
impl Conversation for Told {
    fn add(&mut self, message: &Message<'_>) {
        self.replies += usize::from(matches!(message, Message::Reply(_) | Message::LeftOut(_)));
    }

    async fn ask(&mut self, _offers: &[Offer]) -> Result<Answer, ModelError> {
        match self.answers.get(self.replies) {
            Some(answer) => Ok(answer.clone()),
            None => Ok(says(text("done"))),
        }
    }
}

fn says(line: Line) -> Answer {
    match line {
        Line::Says(answer) => answer,
        other => panic!("it answers by the turn, and cannot do this: {other:?}"),
    }
}
