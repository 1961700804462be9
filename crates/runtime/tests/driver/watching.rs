//! Whoever watches a run sees every stored event once, in order, and changes nothing.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use countersign::testing::{Line, text, turn};
use countersign::{Decision, Doing, DriveError, Event, Halt, Mode, ModelError, Progress, Run};
use tokio_util::sync::CancellationToken;

use crate::kit::{Bed, Witness, bob, completed, read, request, waiting, write};

#[derive(Default)]
struct Diary(Mutex<Vec<String>>);

impl Progress for Diary {
    fn happened(&self, event: &Event) {
        self.0.lock().unwrap().push(event.kind().to_owned());
    }

    fn doing(&self, doing: Doing<'_>) {
        self.0.lock().unwrap().push(match doing {
            Doing::Asking(model) => format!("asking {}", model.provider),
            Doing::Retrying { reason, after, .. } => format!("again after {after:?}: {reason}"),
            other => format!("{other:?}"),
        });
    }
}

#[tokio::test]
async fn every_event_is_seen_once_and_in_order() {
    let busy = Line::Fails(ModelError::Busy { retry_after: Some(Duration::from_secs(7)) });
    let script = Witness::script([turn(&[("get", "{}"), ("get", "{}")]), busy, text("done")]);
    let bed = Bed::new(script, |ledger| vec![read("get", ledger).into()]).await;
    let runtime = bed.runtime();
    let run = runtime.start(request(), Mode::Attended).await.unwrap();
    let diary = Arc::new(Diary::default());
    let driving = tokio::spawn({
        let (diary, run) = (Arc::clone(&diary), run.clone());
        async move { runtime.drive_watched(&run, diary, CancellationToken::new()).await }
    });
    completed(bed.pass_until_finished(driving).await.unwrap());
    let seen = diary.0.lock().unwrap().clone();
    assert_eq!(
        seen,
        [
            "asking p",
            "model.replied",
            "call.started",
            "call.started",
            "call.finished",
            "call.finished",
            "asking p",
            "again after 7s: too many requests",
            "asking p",
            "model.replied",
            "run.completed",
        ]
    );
    let stored: Vec<_> = seen.iter().filter(|line| line.contains('.')).map(String::as_str).collect();
    assert_eq!(stored, bed.kinds(&run).await[1..]);
}

/// Traces nothing, but says where.
#[derive(Default)]
struct Tracing(Diary);

impl Progress for Tracing {
    fn takes_up(&self, run: &Run) -> Option<String> {
        self.0.0.lock().unwrap().push(format!("up at {}", run.revision()));
        Some(format!("trace {}", run.revision()))
    }

    fn happened(&self, event: &Event) {
        self.0.happened(event);
    }

    fn doing(&self, _doing: Doing<'_>) {}

    fn lets_go(&self, driven: &Result<(Halt, Run), DriveError>) {
        self.0.0.lock().unwrap().push(match driven {
            Ok((halt, run)) => format!("{halt:?} at {}", run.revision()),
            Err(error) => error.to_string(),
        });
    }
}

#[tokio::test]
async fn a_question_says_where_the_work_that_led_to_it_is_traced_and_nothing_else_is_stored() {
    let script = Witness::script([turn(&[("drop", "{}")]), text("done")]);
    let bed = Bed::new(script, |ledger| vec![write("drop", ledger).into()]).await;
    let runtime = bed.runtime();
    let run = runtime.start(request(), Mode::Attended).await.unwrap();
    let tracing = Arc::new(Tracing::default());
    let watched = || runtime.drive_watched(&run, Arc::clone(&tracing) as _, CancellationToken::new());
    let asked = waiting(watched().await.unwrap());
    assert_eq!(asked.record.pending.trace.as_deref(), Some("trace 1"));
    // It stays with the question when somebody changes it: that is one pause.
    let call = asked.record.pending.calls[0].id.clone();
    let changes = [(call, r#"{"x":1}"#.to_owned())].into();
    let edited = runtime.edit(&asked.id, asked.digest, &changes, &bob()).await.unwrap();
    assert_eq!(edited.pending.trace.as_deref(), Some("trace 1"));
    let digest = edited.pending.digest(&run);
    runtime.decide(&edited.pending.id, Decision::approve(digest), &bob()).await.unwrap();
    completed(watched().await.unwrap());
    let seen = tracing.0.0.lock().unwrap().clone();
    assert_eq!((seen[0].as_str(), seen[3].as_str()), ("up at 1", "Parked at 3"), "{seen:?}");
    assert_eq!((seen[4].as_str(), seen.last().unwrap().as_str()), ("up at 5", "Ended at 9"), "{seen:?}");
    let kinds = bed.kinds(&run).await;
    assert!(!kinds.contains(&"work.began"), "{kinds:?}");
}
