//! Whoever watches a run sees every stored event once, in order, and changes nothing.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use countersign::testing::{Line, text, turn};
use countersign::{Doing, Event, Mode, ModelError, Progress};
use tokio_util::sync::CancellationToken;

use crate::kit::{Bed, Witness, completed, read, request};

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
