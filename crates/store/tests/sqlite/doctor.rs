//! A look through the whole database finds what was planted, each kind, and nothing in a clean one.

use std::time::Duration;

use crate::support::{Place, ended, many, unknown};
use countersign::contract::sample::{
    agent, approval, at, go_on, pending_id, run_id, start, start_waiting, subject,
};
use countersign::{Deadline, GroupName, Principal, Store, SwitchName, ToolName};
use countersign_store::{Finding, Report, SqliteStore, Upkeep};

async fn examine(store: &SqliteStore) -> Report {
    let agents = [agent("default")];
    store.examine(Some(&agents), at(1000), &mut |_| {}).await.unwrap()
}

/// A database with a run in every state, switches and people.
async fn filled() -> (Place, SqliteStore) {
    let place = Place::new();
    let store = place.open();
    start_waiting(&store, 1, "default", "alice", Deadline::At(at(50))).await;
    ended(&store, 2).await;
    start(&store, 3).await;
    unknown(&store, 4).await;
    let decided = start_waiting(&store, 5, "default", "alice", Deadline::Never).await;
    go_on(&store, &decided, vec![approval(5)], at(9)).await;
    store.claim(&run_id(3), "t".to_owned(), at(9), Duration::from_secs(30)).await.unwrap();
    store
        .set_switch(
            &SwitchName::Tool(ToolName::parse("page_drop").unwrap()),
            Some(false),
            jiff::Timestamp::UNIX_EPOCH,
        )
        .await
        .unwrap();
    store
        .set_switch(
            &SwitchName::Group(GroupName::parse("content").unwrap()),
            Some(true),
            jiff::Timestamp::UNIX_EPOCH,
        )
        .await
        .unwrap();
    store.put_principal(&Principal::user(subject("alice"))).await.unwrap();
    (place, store)
}

#[tokio::test]
async fn rule_r1_doctor_finds_nothing_in_a_clean_database_and_says_how_far_it_is() {
    let (place, store) = filled().await;
    let report = examine(&store).await;
    assert_eq!(report, Report { runs: 5, events: 18, pendings: 4, ..Report::default() });
    many(&store, 60).await;
    let stored =
        || ["runs.db", "runs.db-wal"].map(|file| std::fs::read(place.folder.path().join(file)).unwrap());
    let before = stored();
    let mut heard = Vec::new();
    let report = store.examine(None, at(1000), &mut |runs| heard.push(runs)).await.unwrap();
    assert!(report.is_clean());
    assert_eq!((report.runs, heard), (65, vec![20, 40, 60, 65, 65]));
    assert!(stored() == before, "it only looks");
    let other = place.open();
    assert_eq!(examine(&other).await, report);
}

#[tokio::test]
async fn rule_r1_doctor_finds_every_kind_of_damage_and_only_that() {
    let [one, two, five] = [1, 2, 5].map(run_id);
    let [asked, settled] = [1, 5].map(pending_id);
    let other = run_id(9);
    let differs = |column: &str| {
        format!("the row of pending {asked} does not say what the log of run {one} says: {column}")
    };
    let changed =
        |column: &str| format!("run {one} cannot be read: runs.{column} of row {one} cannot be read");
    let broken = |what: &str| format!("the log of run {one} cannot be read: {what}");
    let update = |change: &str| format!("UPDATE pendings SET {change} WHERE id = '{asked}'");
    let table = [
        // Runs: what is believed only with its MAC.
        (format!("UPDATE runs SET state = 'completed' WHERE id = '{one}'"), changed("mac")),
        (format!("UPDATE runs SET iterations = 7 WHERE id = '{one}'"), changed("mac")),
        (format!("UPDATE runs SET state = 'unheard_of' WHERE id = '{one}'"), changed("state")),
        (
            format!("UPDATE runs SET id = 'no' || char(27) || 'name' WHERE id = '{one}'"),
            "run no\\u{1b}name cannot be read: runs.id of row no\u{1b}name cannot be read".to_owned(),
        ),
        (format!("UPDATE runs SET key = zeroblob(81) WHERE id = '{one}'"), broken("its key does not open: it is sealed in a format that this countersign does not know")),
        // Logs.
        (format!("UPDATE events SET kind = 'x' WHERE run = '{one}' AND seq = 1"), broken("entry 1 was changed")),
        (format!("DELETE FROM events WHERE run = '{one}' AND seq = 1"), broken("entry 1 is missing")),
        (format!("DELETE FROM events WHERE run = '{one}' AND seq = 2"), broken("its end is missing: 2 of 3 entries are there")),
        // The inbox.
        (update("status = 'approved'"), differs("status")),
        (update("kind = 'input'"), differs("kind")),
        (update("agent = 'other'"), differs("agent")),
        (update("owner = 'mallory'"), differs("owner")),
        (update("created_at = '2026-01-01T00:00:00.000000000Z'"), differs("created_at")),
        (update("expires_at = NULL"), differs("expires_at")),
        (update("expires_at = 'soon'"), differs("expires_at")),
        (update("decided_by = 'mallory'"), differs("decided_by")),
        (update("status = 'unheard_of'"), format!("pending {asked} of run {one} cannot be read: pendings.status of row {asked} cannot be read")),
        (format!("DELETE FROM pendings WHERE id = '{asked}'"), format!("pending {asked} of run {one} is not in the inbox")),
        (
            format!("INSERT INTO pendings (id, run, kind, status, agent, owner, created_at) SELECT '{}', run, kind, 'approved', agent, owner, created_at FROM pendings WHERE id = '{settled}'", pending_id(9)),
            format!("pending {} is in the inbox, but run {five} never asked it", pending_id(9)),
        ),
        // What belongs to nobody.
        (
            format!("INSERT INTO pendings (id, run, kind, status, agent, owner, created_at) SELECT '{}', '{other}', kind, status, agent, owner, created_at FROM pendings WHERE id = '{settled}'", pending_id(9)),
            format!("pending {} belongs to run {other}, which is not there", pending_id(9)),
        ),
        (
            format!("INSERT INTO events (run, seq, at, kind, sealed, mac) SELECT '{other}', seq, at, kind, sealed, mac FROM events WHERE run = '{one}'"),
            format!("3 events belong to run {other}, which is not there"),
        ),
        // Who works on what.
        (
            format!("UPDATE runs SET lease_token = 't', lease_until = '2026-09-01T00:00:00.000000000Z' WHERE id = '{one}'"),
            format!("run {one} waits for a person and still carries a lease, over since 2026-09-01T00:00:00Z"),
        ),
        // Policy.
        ("UPDATE tool_switches SET enabled = 2".to_owned(), "the switch page_drop in tool_switches is neither on nor off; it counts as off".to_owned()),
        ("UPDATE group_switches SET enabled = -1".to_owned(), "the switch content in group_switches is neither on nor off; it counts as off".to_owned()),
        (
            "UPDATE principals SET standing = 'king'".to_owned(),
            "principal alice cannot be read and has no right: principals.standing of row alice cannot be read".to_owned(),
        ),
    ];
    for (change, sentence) in table {
        let (place, store) = filled().await;
        let meddler = place.meddle();
        meddler.execute_batch(&change).unwrap();
        let found: Vec<_> = examine(&store).await.findings.iter().map(Finding::sentence).collect();
        // A row that has lost its name has lost its events too.
        let own: Vec<_> = found
            .iter()
            .filter(|found| !change.contains("SET id") || !found.contains("which is not there"))
            .collect();
        assert_eq!(own, [&sentence], "{change}");
    }
    // An end with an open question, said twice: by the log and by itself.
    let (place, store) = filled().await;
    place
        .meddle()
        .execute("UPDATE pendings SET run = ?1 WHERE id = ?2", [two.as_str(), settled.as_str()])
        .unwrap();
    place.meddle().execute("UPDATE pendings SET status = 'open' WHERE id = ?1", [settled.as_str()]).unwrap();
    let found: Vec<_> = examine(&store).await.findings.iter().map(Finding::sentence).collect();
    assert!(found.contains(&format!("pending {settled} is open, but run {two} has ended")), "{found:?}");
    assert_eq!(found.len(), 3, "and its own run misses it: {found:?}");
}

#[tokio::test]
async fn rule_r6_doctor_finds_runs_of_agents_that_nobody_has() {
    let (_place, store) = filled().await;
    let report = store.examine(Some(&[]), at(1000), &mut |_| {}).await.unwrap();
    let orphans =
        report.findings.iter().filter(|finding| matches!(finding, Finding::AgentGone { .. })).count();
    assert_eq!((orphans, report.findings.len()), (4, 4), "what has ended needs nobody");
    assert!(report.findings.iter().all(|finding| !finding.is_damage()));
}

#[tokio::test]
async fn rule_s3_doctor_finds_a_key_that_is_not_retired() {
    let (_place, store) = filled().await;
    store.rotate(countersign_store::MasterKey::new([8; 32]), &mut |_| {}).await.unwrap();
    let report = examine(&store).await;
    assert!(matches!(&report.findings[..], [Finding::KeyBeingChanged(rotation)] if rotation.switched));
    store.retire(at(100)).await.unwrap();
    assert!(examine(&store).await.is_clean());
}

#[tokio::test]
async fn rule_r2_doctor_looks_at_the_rest_of_a_torn_file() {
    let (place, store) = filled().await;
    many(&store, 100).await;
    drop(store);
    let good = std::fs::read(place.path()).unwrap();
    let pages = good.len() / 4096;
    let (mut found, mut opened) = (0, 0);
    for page in 1..pages {
        let mut bytes = good.clone();
        bytes[page * 4096..page * 4096 + 64].fill(0xa5);
        let torn = Place::new();
        std::fs::write(torn.path(), bytes).unwrap();
        let Ok(store) = torn.try_open(crate::support::KEY) else { continue };
        opened += 1;
        let report = examine(&store).await;
        found += usize::from(!report.is_clean());
        assert!(!report.is_clean() || report.runs == 105, "page {page}");
    }
    assert!(opened > 10 && found + 2 >= opened, "{found} of {opened}");
}

#[tokio::test]
async fn rule_r6_the_census_counts_what_is_owed_and_by_whom_it_is_worked_on() {
    let (place, store) = filled().await;
    let now = at(10);
    let census = store.census(now).await.unwrap();
    let mut runs: Vec<_> = census
        .runs
        .iter()
        .map(|live| (live.state.as_str(), live.agent.as_str(), live.runs, live.leased, live.oldest))
        .collect();
    runs.sort();
    assert_eq!(
        runs,
        [
            // One is leased, and one was decided at 9 and is free.
            ("active", "default", 2, 1, Some(at(9))),
            ("needs_resolution", "default", 1, 0, None),
            ("waiting_for_approval", "default", 1, 0, None),
        ],
        "what has ended is not counted"
    );
    let open: Vec<_> = census.open.iter().map(|open| (open.kind.as_str(), open.pendings)).collect();
    assert_eq!(open, [("approval", 1), ("resolution", 1)]);
    // When the lease is over, the run waits for somebody; a time that cannot be read stops nothing.
    place.meddle().execute("UPDATE pendings SET created_at = 'soon'", ()).unwrap();
    let later = store.census(at(10_000)).await.unwrap();
    assert!(later.runs.iter().all(|live| live.leased == 0), "{later:?}");
    assert!(later.open.iter().all(|open| open.oldest.is_none()), "{later:?}");
}

#[tokio::test]
async fn rule_m2_what_was_reviewed_is_noted_and_what_cannot_be_read_was_not() {
    let place = Place::new();
    let store = place.open();
    assert_eq!(store.reviewed().await.unwrap(), None);
    let definitions = countersign::Digest::of(b"the tools");
    for cursor in [None, Some("17".to_owned()), Some("42".to_owned())] {
        let reviewed = countersign_store::Reviewed { definitions, cursor };
        store.note_reviewed(&reviewed).await.unwrap();
        assert_eq!(store.reviewed().await.unwrap(), Some(reviewed));
    }
    place.meddle().execute("UPDATE reviewed SET definitions = 'some'", ()).unwrap();
    assert_eq!(store.reviewed().await.unwrap(), None);
}
