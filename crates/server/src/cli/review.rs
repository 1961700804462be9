//! A look at the questions that are open when a process begins to work: what a tool is may have changed while nothing ran.
//!
//! Invariant: under the same tools each open question is looked at once, by whichever process: the next start goes on from
//! there, so it costs what was asked since and not all that waits. Nothing rests on it: a question that is void is refused
//! to whoever decides it, looked at or not (A8, M2).

use countersign::{Digest, PendingFilter, PendingStatus, Registry, RunId, Runtime};
use countersign_store::{Reviewed, Upkeep};

use crate::http::Watchers;

/// How many open questions are looked at together.
const PAGE: usize = 32;

/// Closes what is void. A store that fails is left alone until the next start.
pub(super) async fn review(store: &dyn Upkeep, runtime: &Runtime, watchers: &Watchers) {
    let definitions = definitions(&runtime.parts().tools);
    let before = store.reviewed().await.ok().flatten().filter(|before| before.definitions == definitions);
    let mut cursor = before.as_ref().and_then(|before| before.cursor.clone());
    let (mut done, mut is_all_judged) = (cursor.clone(), true);
    let filter = PendingFilter { status: Some(PendingStatus::Open), ..PendingFilter::default() };
    loop {
        let Ok(page) = store.pendings(&filter, PAGE, cursor.as_deref()).await else { return };
        let ids: Vec<RunId> = page.items.iter().map(|row| row.run.clone()).collect();
        let Ok(runs) = runtime.load_each(&ids).await else { return };
        // One run that cannot be read stops no other (R2).
        for run in runs.into_iter().flatten() {
            let id = run.id().clone();
            if runtime.is_agent_gone(&run) {
                // Nobody else's agents are ours to judge; if this one comes back, its questions are.
                is_all_judged = false;
                continue;
            }
            match runtime.close_void(run).await {
                Ok(Some(_)) => watchers.ring(&id),
                Ok(None) => {}
                Err(_) => is_all_judged = false,
            }
        }
        let is_last = page.next.is_none();
        cursor = page.next.or(cursor);
        if is_all_judged {
            done.clone_from(&cursor);
        }
        if is_last {
            break;
        }
    }
    let reviewed = Reviewed { definitions, cursor: done };
    if before.as_ref() != Some(&reviewed) {
        // If it cannot be noted, the next start looks again.
        drop(store.note_reviewed(&reviewed).await);
    }
}

/// What all tools are, in one digest.
fn definitions(tools: &Registry) -> Digest {
    let mut each: Vec<String> =
        tools.tools().map(|tool| format!("{} {}\n", tool.spec.name, tool.definition)).collect();
    each.sort();
    Digest::of(each.concat().as_bytes())
}
