//! A database that somebody changed: noticed when it is read, refused, kept as it is; other runs unaffected (S4).

use std::time::Duration;

use countersign::contract::sample::{approval, at, go_on, run_id, start, start_waiting, subject};
use countersign::{
    Append, AppendError, CancelRequested, ClaimError, Deadline, Event, LoadError, Revision, Run, RunFilter,
    RunId, Store, Writer,
};
use countersign_store::{Finding, PostgresStore, Upkeep};

use crate::support::Place;

/// Two runs with logs of four entries each; the first is the one that is tampered with.
async fn two_runs() -> (Place, PostgresStore, Run) {
    let place = Place::new().await;
    let store = place.open().await;
    let mut runs = Vec::new();
    for number in [1, 2] {
        let run = start_waiting(&store, number, "default", "alice", Deadline::Never).await;
        runs.push(go_on(&store, &run, vec![approval(number)], at(9)).await);
    }
    let first = runs.swap_remove(0);
    (place, store, first)
}

async fn refusal(store: &PostgresStore, run: &RunId) -> String {
    match store.load(run).await {
        Err(LoadError::Unreadable { run: named, reason }) if named == *run => reason,
        other => panic!("{other:?}"),
    }
}

async fn append(store: &PostgresStore, run: &Run) -> Result<(), AppendError> {
    let event = Event::CancelRequested(CancelRequested { by: subject("alice") });
    let changes = Append::Plain(run.record(vec![event], at(10)).unwrap().1);
    store.append(run.id(), Revision(run.revision()), &Writer::Anyone, at(10), changes).await.map(drop)
}

async fn found(store: &PostgresStore) -> Vec<String> {
    let report = store.examine(None, at(1000), &mut |_| {}).await.unwrap();
    report.findings.iter().map(Finding::sentence).collect()
}

const ENTRIES: &str =
    "SELECT run, seq, at, kind, encode(sealed, 'hex'), encode(mac, 'hex') FROM events ORDER BY run, seq";

#[tokio::test]
async fn rule_s4_every_change_of_a_log_is_noticed_on_reading_and_by_the_doctor_and_hides_no_other_run() {
    let zeros = |bytes: u8| format!("decode(repeat('00', {bytes}), 'hex')");
    let [one, two] = [1, 2].map(|number| format!("run = '{}'", run_id(number)));
    let reordered = format!(
        "UPDATE events SET seq = 9 WHERE {one} AND seq = 1; UPDATE events SET seq = 1 WHERE {one} AND seq = 2; \
         UPDATE events SET seq = 2 WHERE {one} AND seq = 9"
    );
    let inserted = |seq: i64| {
        format!(
            "INSERT INTO events (run, seq, at, kind, sealed, mac) \
             SELECT run, {seq}, at, kind, sealed, mac FROM events WHERE {one} AND seq = 3"
        )
    };
    let moved = format!(
        "DELETE FROM events WHERE {one} AND seq = 3; UPDATE events SET {one} WHERE {two} AND seq = 3"
    );
    let copied = format!(
        "UPDATE events SET sealed = (SELECT sealed FROM events WHERE {two} AND seq = 1) WHERE {one} AND seq = 1"
    );
    let update = |what: &str, seq: i64| format!("UPDATE events SET {what} WHERE {one} AND seq = {seq}");
    // What is done, what is said, and whether it is the end that is spoiled.
    for (change, expected, at_the_end) in [
        (update("kind = 'run.created'", 1), "entry 1 was changed", false),
        (update("at = '2026-01-01T00:00:00.000000000Z'", 3), "entry 3 was changed", true),
        (update(&format!("sealed = {}", zeros(80)), 3), "entry 3 was changed", true),
        (update("sealed = ''", 0), "entry 0 was changed", false),
        (update(&format!("digest = {}", zeros(32)), 3), "entry 3 was changed", true),
        (update("digest = ''", 1), "events.digest of row 1 cannot be read", false),
        (update(&format!("mac = {}", zeros(32)), 2), "entry 2 was changed", true),
        (
            format!("DELETE FROM events WHERE {one} AND seq = 3"),
            "its end is missing: 3 of 4 entries are there",
            true,
        ),
        (format!("DELETE FROM events WHERE {one} AND seq = 1"), "entry 1 is missing", false),
        (format!("DELETE FROM events WHERE {one}"), "its end is missing: 0 of 4 entries are there", true),
        (inserted(4), "entries were added: the log has 4", true),
        (inserted(-1), "entries were added: the log has 4", false),
        (reordered, "entries were reordered: entry 1 holds what was stored as entry 2", false),
        (moved, "entry 3 was changed", true),
        (copied, "entry 1 was changed", false),
    ] {
        let (place, store, run) = two_runs().await;
        place.change(&change);
        let tampered = place.change(ENTRIES);
        assert_eq!(refusal(&store, run.id()).await, expected, "{change}");
        let said = format!("the log of run {} cannot be read: {expected}", run.id());
        assert!(found(&store).await.contains(&said), "{change}");
        if at_the_end {
            let refused = append(&store, &run).await;
            assert!(matches!(refused, Err(AppendError::Unreadable { .. })), "{change}: {refused:?}");
        }
        assert_eq!(place.change(ENTRIES), tampered, "nothing is mended and nothing is removed: {change}");
        if !change.contains(&two) {
            assert_eq!(store.load(&run_id(2)).await.unwrap().revision(), Revision(4), "{change}");
        }
        start(&store, 3).await;
        assert_eq!(store.load(&run_id(3)).await.unwrap().revision(), Revision(1), "{change}");
    }
}

#[tokio::test]
async fn rule_s4_every_derived_column_of_a_run_is_covered() {
    let (place, store, run) = two_runs().await;
    let good = store.load(run.id()).await.unwrap();
    place.change("CREATE TABLE kept AS SELECT * FROM runs WHERE number = 1");
    for change in [
        "state = 'waiting_for_approval'",
        "state = 'unheard_of'",
        "agent = 'other'",
        "owner = 'mallory'",
        "owner = ''",
        "unattended = 1",
        "unattended = 2",
        "iterations = iterations - 1",
        "iterations = -1",
        "input_tokens = 0",
        "output_tokens = -1",
        "cached_input_tokens = 1",
        "unknown_calls = 0",
        "limit_reached = 'max_iterations'",
        "limit_reached = 'no_limit'",
        "failure = ''",
        "created_at = '2026-01-01T00:00:00.000000000Z'",
        "updated_at = 'soon'",
        "finished_at = updated_at",
        "revision = revision - 1",
        "head = (SELECT mac FROM events WHERE run = runs.id AND seq = 2), revision = 3",
        "head = ''",
        "mac = (SELECT mac FROM runs AS other WHERE other.number = 2)",
        "lease_until = 'soon'",
        "erased_at = updated_at",
    ] {
        place.change(&format!("UPDATE runs SET {change} WHERE number = 1"));
        refusal(&store, run.id()).await;
        assert!(matches!(store.run(run.id(), at(9)).await, Err(LoadError::Unreadable { .. })), "{change}");
        let judged =
            Append::Judged { subjects: vec![], judge: Box::new(|_| panic!("nothing is judged on it")) };
        let refused = store.append(run.id(), Revision(4), &Writer::Anyone, at(9), judged).await;
        assert!(matches!(refused, Err(AppendError::Unreadable { .. })), "{change}: {refused:?}");
        let claim = store.claim(run.id(), "t".to_owned(), at(9), Duration::from_secs(30)).await;
        assert!(matches!(claim, Err(ClaimError::Unreadable { .. })), "{change}: {claim:?}");
        let listed = store.runs(&RunFilter::default(), at(9), 10, None).await.unwrap();
        assert_eq!(listed.items.len(), 1, "{change}");
        assert!(found(&store).await[0].starts_with(&format!("run {} cannot be read", run.id())), "{change}");
        place.change("DELETE FROM runs WHERE number = 1; INSERT INTO runs SELECT * FROM kept");
        assert_eq!(store.load(run.id()).await.unwrap(), good, "{change}");
    }
}

#[tokio::test]
async fn rule_r1_the_doctor_finds_every_kind_of_damage_beside_the_logs_and_only_that() {
    let one = run_id(1);
    let asked = countersign::contract::sample::pending_id(1);
    let differs = |column: &str| {
        format!("the row of pending {asked} does not say what the log of run {one} says: {column}")
    };
    let update = |change: &str| format!("UPDATE pendings SET {change} WHERE id = '{asked}'");
    for (change, sentence) in [
        (update("status = 'denied'"), differs("status")),
        (update("owner = 'mallory'"), differs("owner")),
        (update("expires_at = 'soon'"), differs("expires_at")),
        (
            update("status = 'unheard_of'"),
            format!("pending {asked} of run {one} cannot be read: pendings.status of row {asked} cannot be read"),
        ),
        (
            format!("DELETE FROM pendings WHERE id = '{asked}'"),
            format!("pending {asked} of run {one} is not in the inbox"),
        ),
        (
            format!("INSERT INTO events (run, seq, at, kind, sealed, mac) SELECT 'x', seq, at, kind, sealed, mac FROM events WHERE run = '{one}'"),
            "4 events belong to run x, which is not there".to_owned(),
        ),
        (
            "INSERT INTO tool_switches (name, enabled) VALUES ('page_drop', 2)".to_owned(),
            "the switch page_drop in tool_switches is neither on nor off; it counts as off".to_owned(),
        ),
        (
            "INSERT INTO principals (subject, admin, standing) VALUES ('alice', 0, 'king')".to_owned(),
            "principal alice cannot be read and has no right: principals.standing of row alice cannot be read"
                .to_owned(),
        ),
    ] {
        let (place, store, _) = two_runs().await;
        assert_eq!(found(&store).await, Vec::<String>::new(), "before");
        place.change(&change);
        assert_eq!(found(&store).await, [sentence], "{change}");
    }
}
