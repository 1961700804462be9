//! A conversation that grows over its context window is made shorter, in the same way whoever drives (L6, R7).

use countersign::testing::{Behaviour, Line, text, turn};
use countersign::{Event, Limit, RunLimits};

use crate::kit::{Bed, Sent, Witness, ended, limit_of, model_ref, read, write};

fn get() -> Line {
    turn(&[("get", "{}")])
}

async fn bed(window: u64, lines: impl IntoIterator<Item = Line>) -> Bed {
    let mut bed = Bed::new(Witness::script(lines), |ledger| {
        vec![read("get", ledger).that(Behaviour::Says("x".repeat(500))).into(), write("drop", ledger).into()]
    })
    .await;
    bed.agent.limits = RunLimits { window_tokens: Some(window), ..RunLimits::iterations(20) };
    bed
}

fn fitted(events: &[Event]) -> Vec<(u64, Option<u32>)> {
    let fitted = events.iter().filter_map(|event| match event {
        Event::ContextFitted(fitted) => Some((fitted.left_out, fitted.first_turn)),
        _ => None,
    });
    fitted.collect()
}

/// How many replies each request held.
fn replies(bed: &Bed) -> Vec<usize> {
    let count = |sent: &[Sent]| sent.iter().filter(|sent| matches!(sent, Sent::Reply(_))).count();
    bed.witness.seen().iter().map(|seen| count(&seen.sent)).collect()
}

#[tokio::test]
async fn rule_l6_old_turns_go_as_new_ones_come_and_the_log_says_so_once() {
    let bed = bed(1000, [get(), get(), get(), get(), get(), text("done")]).await;
    let run = ended(bed.run().await);
    assert_eq!(replies(&bed), [0, 1, 2, 3, 3, 3]);
    let events = bed.events(run.id()).await;
    assert_eq!(fitted(&events), [(1, Some(2)), (2, Some(3))]);
    for seen in bed.witness.seen() {
        assert!(matches!(&seen.sent[..2], [Sent::System(_), Sent::Input(_)]), "the head is always there");
    }
}

#[tokio::test]
async fn rule_l6_rule_r7_a_resumed_run_sends_the_same_as_one_that_never_stopped() {
    let script = || [get(), get(), get(), get(), turn(&[("drop", "{}")]), get(), text("done")];
    let whole = bed(1000, script()).await;
    let run = ended(whole.approve(&whole.waiting().await).await);
    let events = whole.events(run.id()).await;
    // The same, by a new driver for every step.
    let pieces = bed(1000, script()).await;
    let id = pieces.runtime().start(crate::kit::request(), countersign::Mode::Attended).await.unwrap();
    let mut pieces_run = None;
    for _ in 0..100 {
        let stop = StopAfterOne::default();
        let token = stop.token.clone();
        match pieces.runtime().drive_watched(&id, std::sync::Arc::new(stop), token).await {
            Ok(countersign::Outcome::Done(done)) => {
                pieces_run = Some(done.run);
                break;
            }
            Ok(countersign::Outcome::Waiting(waiting)) => {
                let decision = countersign::Decision::approve(waiting.digest);
                pieces.runtime().decide(&waiting.id, decision, &crate::kit::bob()).await.unwrap();
            }
            Err(error) => assert!(matches!(error, countersign::RunError::Stopped(_)), "{error}"),
        }
    }
    let bodies = |bed: &Bed| {
        let told = |sent: Sent| match sent {
            Sent::Reply(calls) => format!("reply {}", calls.len()),
            Sent::Result { content, .. } => content,
            Sent::System(text) | Sent::Input(text) => text,
        };
        let seen = bed.witness.seen().into_iter();
        seen.map(|seen| seen.sent.into_iter().map(told).collect::<Vec<_>>()).collect::<Vec<_>>()
    };
    assert_eq!(bodies(&pieces), bodies(&whole));
    assert_eq!(fitted(&pieces.events(pieces_run.unwrap().id()).await), fitted(&events));
    assert!(!fitted(&events).is_empty());
}

/// Stops its driver after the first thing that is stored.
#[derive(Default)]
struct StopAfterOne {
    token: tokio_util::sync::CancellationToken,
}

impl countersign::Progress for StopAfterOne {
    fn happened(&self, _event: &Event) {
        self.token.cancel();
    }

    fn doing(&self, _doing: countersign::Doing<'_>) {}
}

#[tokio::test]
async fn rule_l6_vector_tl10_what_does_not_fit_is_not_asked() {
    let bed = bed(300, [get(), text("never")]).await;
    let run = ended(bed.run().await);
    assert_eq!((limit_of(&run), bed.witness.seen().len()), (Limit::ContextExhausted, 1));
    let reached = bed.events(run.id()).await.into_iter().find_map(|event| match event {
        Event::LimitReached(reached) => reached.estimated_tokens,
        _ => None,
    });
    assert!(reached.is_some_and(|tokens| tokens > 300 - 300 / 8), "{reached:?}");
}

#[tokio::test]
async fn rule_l6_what_is_offered_counts_too() {
    let mut bed = bed(300, [text("never")]).await;
    let ledger = bed.ledger.clone();
    let mut long = read("explain", &ledger);
    long.spec.description = "x".repeat(2000);
    bed.tools.push(long.into());
    assert_eq!(limit_of(&ended(bed.run().await)), Limit::ContextExhausted);
    assert_eq!(bed.witness.seen().len(), 0);
}

#[tokio::test]
async fn rule_l6_rule_l7_a_fallback_gets_the_request_as_it_was_fitted() {
    let failing = || Line::Fails(countersign::ModelError::Refused { status: 400 });
    let mut bed = bed(1000, [get(), get(), get(), get(), failing(), text("done")]).await;
    let provider = bed.models.find(&model_ref("p")).unwrap().clone();
    bed.models = bed.models.with(countersign::ProviderName::parse("q").unwrap(), provider);
    bed.agent.models.push(model_ref("q"));
    let run = ended(bed.run().await);
    let seen = bed.witness.seen();
    let told = |at: usize| seen[at].sent.clone();
    assert_eq!(told(4), told(5));
    assert_eq!(fitted(&bed.events(run.id()).await).len(), 1);
}
