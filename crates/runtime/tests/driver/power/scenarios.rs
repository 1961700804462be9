//! What is going on when the power is cut.

use std::time::Duration;

use async_trait::async_trait;
use countersign::testing::{Ledger, Line, ManualClock, RecordingTool, turn};
use countersign::{
    Answer, Arguments, Conversation, Effect, Limit, Message, Mode, Model, ModelError, ModelRef, Models,
    Offer, Provider, ProviderName, RemoteApproval, ResultKind, Run, RunRequest, RunState, Zone,
};
use serde_json::json;

use crate::kit::{
    ByTurn, Witness, arguments, completed_run, date_input, free_write, idempotent, limit_of, model_ref, read,
    remote, request, result_kinds, write,
};

/// Longer than the driver holds anything back while a model answers, and far shorter than a heartbeat.
const LONGER_THAN_HELD_BACK: Duration = Duration::from_millis(25);

/// What the person says.
#[derive(Clone, Copy)]
pub(crate) enum Word {
    Approve,
    Deny,
    OnlyTheFirst,
    Cancel,
    /// Nothing, until it is too late.
    Nothing,
}

pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) script: fn() -> Vec<Line>,
    pub(crate) tools: fn(&Ledger) -> Vec<RecordingTool>,
    pub(crate) word: Word,
    pub(crate) mode: Mode,
    pub(crate) request: fn() -> RunRequest,
    /// The first model of the chain refuses everything.
    pub(crate) fallback: bool,
    /// The model takes its time: what was held back is stored before it answers.
    pub(crate) slow: bool,
    /// What an end without an unknown outcome looks like.
    pub(crate) end: fn(&Run),
    /// At least so many different cuts hit it.
    pub(crate) cuts_min: usize,
}

impl Scenario {
    pub(crate) fn chain(&self) -> Vec<ModelRef> {
        if self.fallback { vec![model_ref("first"), model_ref("p")] } else { vec![model_ref("p")] }
    }
}

const PLAIN: Scenario = Scenario {
    name: "",
    script: Vec::new,
    tools: |ledger| vec![read("look", ledger), write("drop", ledger), write("post", ledger)],
    word: Word::Approve,
    mode: Mode::Attended,
    request,
    fallback: false,
    slow: false,
    end: |run| completed_run(run),
    cuts_min: 0,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "only reads",
        script: || vec![turn(&[("look", r#"{"id":1}"#), ("look", r#"{"id":2}"#)])],
        cuts_min: 8,
        ..PLAIN
    },
    Scenario {
        name: "a read and a write, approved",
        script: || vec![turn(&[("look", r#"{"id":1}"#), ("drop", r#"{"id":2}"#)])],
        cuts_min: 20,
        ..PLAIN
    },
    Scenario {
        name: "two writes, approved",
        script: || vec![turn(&[("drop", r#"{"id":1}"#), ("post", r#"{"id":2}"#)])],
        cuts_min: 22,
        ..PLAIN
    },
    Scenario {
        name: "denied",
        script: || vec![turn(&[("look", "{}"), ("drop", "{}")])],
        word: Word::Deny,
        end: |run| {
            completed_run(run);
            assert_eq!(result_kinds(run), [ResultKind::NotRun, ResultKind::Denied]);
        },
        cuts_min: 12,
        ..PLAIN
    },
    Scenario {
        name: "one word for each call",
        script: || vec![turn(&[("look", "{}"), ("drop", "{}"), ("post", "{}"), ("look", r#"{"id":9}"#)])],
        word: Word::OnlyTheFirst,
        cuts_min: 23,
        ..PLAIN
    },
    Scenario {
        name: "an idempotent write between a read and a write",
        script: || vec![turn(&[("look", "{}"), ("put", "{}"), ("drop", "{}")])],
        tools: |ledger| vec![read("look", ledger), idempotent("put", ledger), write("drop", ledger)],
        cuts_min: 25,
        ..PLAIN
    },
    Scenario {
        name: "remote writes that need nobody",
        script: || {
            vec![turn(&[("crm__purge", r#"{"id":1}"#), ("look", "{}"), ("crm__purge", r#"{"id":2}"#)])]
        },
        tools: |ledger| vec![read("look", ledger), free_write("purge", ledger)],
        cuts_min: 17,
        ..PLAIN
    },
    Scenario {
        name: "input",
        script: || vec![turn(&[("look", "{}"), ("pick", r#"{"why":"trip"}"#)])],
        tools: |ledger| vec![read("look", ledger), date_input("pick", ledger)],
        cuts_min: 16,
        ..PLAIN
    },
    Scenario {
        name: "approval, then two inputs",
        script: || vec![turn(&[("pick", "{}"), ("drop", "{}"), ("pick", r#"{"why":"again"}"#)])],
        tools: |ledger| vec![date_input("pick", ledger), write("drop", ledger)],
        cuts_min: 31,
        ..PLAIN
    },
    Scenario {
        name: "two rounds",
        script: || {
            vec![turn(&[("drop", r#"{"id":1}"#)]), turn(&[("look", "{}")]), turn(&[("drop", r#"{"id":1}"#)])]
        },
        cuts_min: 33,
        ..PLAIN
    },
    Scenario {
        name: "reads and a write for a slow model",
        script: || {
            vec![
                turn(&[("look", r#"{"id":1}"#), ("look", r#"{"id":2}"#)]),
                turn(&[("look", r#"{"id":3}"#), ("drop", "{}")]),
                turn(&[("look", r#"{"id":4}"#)]),
            ]
        },
        slow: true,
        cuts_min: 1,
        ..PLAIN
    },
    Scenario {
        name: "the limit of iterations",
        script: || vec![turn(&[("look", r#"{"id":1}"#)]), turn(&[("look", r#"{"id":2}"#)])],
        request: || RunRequest { max_iterations: Some(2), ..request() },
        end: |run| {
            assert_eq!(limit_of(run), Limit::MaxIterations);
            assert_eq!(result_kinds(run), [ResultKind::Ok, ResultKind::NotRun]);
        },
        cuts_min: 9,
        ..PLAIN
    },
    Scenario {
        name: "a fallback model",
        script: || vec![turn(&[("drop", "{}")])],
        fallback: true,
        cuts_min: 21,
        ..PLAIN
    },
    Scenario {
        name: "unattended",
        script: || vec![turn(&[("look", "{}"), ("crm__purge", "{}"), ("drop", "{}")])],
        tools: |ledger| {
            let lookup = remote("lookup", Effect::Read, RemoteApproval::Undeclared, ledger);
            vec![read("look", ledger), free_write("purge", ledger), write("drop", ledger), lookup]
        },
        mode: Mode::Unattended,
        end: |run| {
            completed_run(run);
            assert_eq!(result_kinds(run), [ResultKind::Ok, ResultKind::Ok, ResultKind::Refused]);
        },
        cuts_min: 14,
        ..PLAIN
    },
    Scenario {
        name: "expired",
        script: || vec![turn(&[("look", "{}"), ("drop", "{}")])],
        word: Word::Nothing,
        end: |run| {
            completed_run(run);
            assert_eq!(result_kinds(run), [ResultKind::NotRun, ResultKind::Expired]);
        },
        cuts_min: 12,
        ..PLAIN
    },
    Scenario {
        name: "cancelled while it waits",
        script: || vec![turn(&[("look", "{}"), ("drop", "{}")])],
        word: Word::Cancel,
        end: |run| {
            assert_eq!(run.state(), RunState::Cancelled);
            assert_eq!(result_kinds(run), [ResultKind::Cancelled, ResultKind::Cancelled]);
        },
        cuts_min: 10,
        ..PLAIN
    },
];

/// What the person supplies.
pub(crate) fn date() -> Arguments {
    arguments(&json!({ "date": "2027-01-01" }))
}

/// The models of a scenario, and who hears what they are asked.
pub(crate) fn models(scenario: &Scenario, clock: &ManualClock) -> (Witness, Models) {
    let model = ByTurn::new((scenario.script)());
    let witness =
        if scenario.slow { Witness::of(Slow { model, clock: clock.clone() }) } else { Witness::of(model) };
    let provider = |client| Provider { zone: Zone::Local, client };
    let models = Models::default()
        .with(ProviderName::parse("p").unwrap(), provider(std::sync::Arc::new(witness.clone())))
        .with(ProviderName::parse("first").unwrap(), provider(std::sync::Arc::new(Witness::of(Refuses))));
    (witness, models)
}

/// A model that answers after longer than anything is held back while it is asked.
struct Slow {
    model: ByTurn,
    clock: ManualClock,
}

impl Model for Slow {
    fn converse(&self, model: &str) -> Box<dyn Conversation> {
        Box::new(Thinks { conversation: self.model.converse(model), clock: self.clock.clone() })
    }
}

struct Thinks {
    conversation: Box<dyn Conversation>,
    clock: ManualClock,
}

#[async_trait]
impl Conversation for Thinks {
    fn add(&mut self, message: &Message<'_>) {
        self.conversation.add(message);
    }

    async fn ask(&mut self, offers: &[Offer]) -> Result<Answer, ModelError> {
        // Whoever asks begins to wait, its time comes, and it does what it waited to do.
        tokio::task::yield_now().await;
        self.clock.advance(LONGER_THAN_HELD_BACK);
        for _ in 0..2 {
            tokio::task::yield_now().await;
        }
        self.conversation.ask(offers).await
    }
}

/// A model that refuses every request.
struct Refuses;

impl Model for Refuses {
    fn converse(&self, _model: &str) -> Box<dyn Conversation> {
        Box::new(Self)
    }
}

#[async_trait]
impl Conversation for Refuses {
    fn add(&mut self, _message: &Message<'_>) {}

    async fn ask(&mut self, _offers: &[Offer]) -> Result<Answer, ModelError> {
        Err(ModelError::Refused { status: 400 })
    }
}
