//! R1 and R2: the stored form of events, and what whole logs of it mean.

use countersign_core::*;

use crate::world::*;

/// A log as it lies in a file: one stored event a line, one second after the other.
fn read(log: &str) -> Vec<Entry> {
    let entry = |(seq, line): (u32, &str)| {
        let event = Event::decode(line.as_bytes()).unwrap_or_else(|error| panic!("line {seq}: {error:?}"));
        Entry { seq: seq.into(), at: at(seq.into()), event }
    };
    (0..).zip(log.lines()).map(entry).collect()
}

fn write(log: &[Entry]) -> String {
    log.iter().map(|entry| String::from_utf8(entry.event.encode().unwrap()).unwrap() + "\n").collect()
}

/// What a log comes to: state, limit or failure, iterations, tokens, results, pendings, output.
fn summary(run: &Run) -> String {
    let row = run.row();
    let results: Vec<String> = run
        .history()
        .chain(run.turn())
        .flat_map(Turn::calls)
        .map(|state| {
            format!(
                "{}:{}",
                short(&state.call.id),
                result_of(state.stage).map_or("none", |result| result.kind.as_str())
            )
        })
        .collect();
    let pendings: Vec<String> = run
        .pendings()
        .map(|record| format!("{}:{}", record.pending.question.as_str(), record.status.as_str()))
        .collect();
    format!(
        "{} {} i{} t{} [{}] [{}] {}",
        row.state.as_str(),
        row.limit.map(|limit| limit.as_str().to_owned()).or(row.failure).unwrap_or_default(),
        row.iterations,
        row.usage.total_tokens(),
        results.join(" "),
        pendings.join(" "),
        run.output().unwrap_or_default()
    )
}

const LOGS: [(&str, &str, &str); 11] = [
    (
        "approved",
        include_str!("../logs/v1-approved.jsonl"),
        "completed  i2 t4 [a:ok b:ok] [approval:approved] done",
    ),
    (
        "skills",
        include_str!("../logs/v1-skills.jsonl"),
        "completed  i2 t4 [a:ok b:ok] [approval:approved] done",
    ),
    (
        "denied",
        include_str!("../logs/v1-denied.jsonl"),
        "completed  i2 t4 [a:denied b:not_run] [approval:denied] understood",
    ),
    (
        "expired",
        include_str!("../logs/v1-expired.jsonl"),
        "completed  i3 t6 [a:expired b:expired] [approval:expired approval:expired] too late",
    ),
    (
        "edited",
        include_str!("../logs/v1-edited.jsonl"),
        "completed  i2 t4 [a:error] [approval:superseded approval:approved] done",
    ),
    (
        "input",
        include_str!("../logs/v1-input.jsonl"),
        "completed  i3 t6 [a:ok b:denied] [input:answered input:denied] done",
    ),
    (
        "settled",
        include_str!("../logs/v1-settled.jsonl"),
        "completed  i2 t4 [a:ok b:not_run] [approval:approved resolution:settled] done",
    ),
    (
        "unattended",
        include_str!("../logs/v1-unattended.jsonl"),
        "failed outcome_unknown i1 t2 [a:refused b:none] [] ",
    ),
    (
        "limits",
        include_str!("../logs/v1-limits.jsonl"),
        "completed max_iterations i2 t11 [a:refused b:not_run] [] as far as it goes",
    ),
    ("fitted", include_str!("../logs/v1-fitted.jsonl"), "completed working_time i2 t4 [a:ok b:not_run] [] "),
    (
        "cancelled",
        include_str!("../logs/v1-cancelled.jsonl"),
        "cancelled  i1 t2 [a:cancelled b:cancelled] [approval:withdrawn] ",
    ),
];

#[test]
fn rule_r2_old_events_are_still_read() {
    for (name, log, wanted) in LOGS {
        let entries = read(log);
        let run = Run::fold(run_id(), &entries).unwrap_or_else(|illegal| panic!("{name}: {illegal}"));
        assert_eq!(summary(&run), wanted, "{name}");
        assert_eq!(run.revision(), entries.len() as u64);
    }
}

/// The version that is read is also the one that is written, so the same log comes out byte for byte.
#[test]
fn rule_r2_the_stored_form_of_version_1_is_frozen() {
    assert_eq!(EVENT_VERSION, 1);
    for (name, log, _) in LOGS {
        assert_eq!(write(&read(log)), log, "{name}");
    }
}

#[test]
fn rule_r2_all_kinds_of_events_occur_in_the_old_logs() {
    let kinds: std::collections::BTreeSet<&str> =
        LOGS.iter().flat_map(|(_, log, _)| read(log)).map(|entry| entry.event.kind()).collect();
    assert_eq!(kinds.len(), 19, "{kinds:?}");
}

#[test]
fn case_c20_rule_r2_another_version_is_refused_and_named() {
    for found in [0, 2, 3_000_000_000_u32] {
        let stored = format!(r#"{{"v":{found},"e":{{"run.completed":{{}}}}}}"#);
        let error = Event::decode(stored.as_bytes()).unwrap_err();
        assert!(
            matches!(error, UnreadableEvent::OtherVersion { found: named } if named == found),
            "{error:?}"
        );
    }
    // A newer version may look like nothing we know.
    let error = Event::decode(br#"{"v":2,"sealed":"x"}"#).unwrap_err();
    assert!(error.to_string().contains("newer countersign"), "{error}");
}

#[test]
fn case_c20_what_is_no_event_is_malformed() {
    let broken = [
        "",
        "null",
        "{}",
        "[]",
        r#"{"v":1}"#,
        r#"{"v":1,"e":{}}"#,
        r#"{"v":1,"e":{"run.paused":{}}}"#,
        r#"{"v":"1","e":{"run.completed":{}}}"#,
        r#"{"v":1,"e":{"run.completed":{}},"x":1}"#,
        r#"{"v":1,"e":{"run.completed":{}}} "#,
        r#"{"v":1,"e":{"run.completed":{},"run.failed":{"code":"poisoned"}}}"#,
        r#"{"v":1,"e":{"cancel.requested":{"by":"no name"}}}"#,
        r#"{"v":1,"e":{"cancel.requested":{}}}"#,
        r#"{"e":{"run.completed":{}}}"#,
    ];
    for text in broken {
        let read = Event::decode(text.as_bytes());
        // Blanks after the text are the one thing that JSON allows.
        let blank = text.ends_with(' ');
        assert!(
            blank == read.is_ok() && (blank || matches!(read, Err(UnreadableEvent::Malformed(_)))),
            "{text}"
        );
    }
}

/// Adds a field to each object of a stored text, one at a time.
fn with_one_more_field(value: &serde_json::Value) -> Vec<serde_json::Value> {
    match value {
        serde_json::Value::Object(members) => {
            let mut more = members.clone();
            more.insert("zz_unknown".to_owned(), true.into());
            let deeper = members.iter().flat_map(|(name, member)| {
                // What stands here is a schema, arguments, a precondition or a map of words on calls: not ours.
                let free = [
                    "arguments",
                    "original_arguments",
                    "schema",
                    "needs_input",
                    "precondition",
                    "answer",
                    "data",
                ];
                let inside =
                    if free.contains(&name.as_str()) { Vec::new() } else { with_one_more_field(member) };
                inside.into_iter().map(|changed| {
                    let mut members = members.clone();
                    members.insert(name.clone(), changed);
                    members.into()
                })
            });
            std::iter::once(more.into()).chain(deeper).collect()
        }
        serde_json::Value::Array(items) => {
            let changed = items.iter().enumerate().flat_map(|(index, item)| {
                with_one_more_field(item).into_iter().map(move |changed| {
                    let mut items = items.clone();
                    items[index] = changed;
                    items.into()
                })
            });
            changed.collect()
        }
        _ => Vec::new(),
    }
}

#[test]
fn case_c20_an_unknown_field_is_refused_wherever_it_stands() {
    let mut tried = 0;
    for (name, log, _) in LOGS {
        for line in log.lines() {
            let stored: serde_json::Value = serde_json::from_str(line).unwrap();
            for changed in with_one_more_field(&stored) {
                assert!(Event::decode(changed.to_string().as_bytes()).is_err(), "{name}: {changed}");
                tried += 1;
            }
        }
    }
    assert!(tried > 200, "{tried}");
}

/// Says something without changing where the run stands.
fn is_note(entry: &Entry) -> bool {
    matches!(entry.event, Event::GateDenied(_) | Event::PendingRefused(_))
}

#[test]
fn rule_r1_a_log_that_no_run_can_have_is_refused() {
    let log = read(LOGS[0].1);
    assert!(Run::fold(run_id(), &[]).is_err());
    assert!(Run::fold(run_id(), &log[1..]).is_err(), "without its beginning");
    for left_out in 1..log.len() - 1 {
        let mut gap = log.clone();
        gap.remove(left_out);
        assert!(Run::fold(run_id(), &gap).is_err(), "without {left_out}");
        for (seq, entry) in gap.iter_mut().enumerate() {
            entry.seq = seq as u64;
        }
        // A log without a note is another log; any other event is missed by what follows.
        let note = is_note(&log[left_out]);
        assert_eq!(Run::fold(run_id(), &gap).is_ok(), note, "without {left_out}, renumbered");
    }
    for twice in 0..log.len() {
        let mut doubled = log.clone();
        doubled.insert(twice, log[twice].clone());
        for (seq, entry) in doubled.iter_mut().enumerate() {
            entry.seq = seq as u64;
        }
        let note = is_note(&log[twice]);
        assert_eq!(Run::fold(run_id(), &doubled).is_ok(), note, "{twice} twice");
    }
}

#[test]
fn rule_r1_a_run_is_recorded_and_folded_alike() {
    for (name, log, _) in LOGS {
        let entries = read(log);
        let mut run = Run::fold(run_id(), &entries[..1]).unwrap();
        for entry in &entries[1..] {
            let applied = run.apply(entry).unwrap();
            let (recorded, changes) = run.record(vec![entry.event.clone()], entry.at).unwrap();
            assert_eq!(format!("{applied:?}"), format!("{recorded:?}"), "{name} {}", entry.seq);
            assert_eq!(
                (changes.events(), changes.at(), changes.row()),
                (&[entry.event.clone()][..], entry.at, &applied.row())
            );
            run = applied;
        }
        assert_eq!(format!("{run:?}"), format!("{:?}", Run::fold(run_id(), &entries).unwrap()), "{name}");
    }
}

#[test]
fn rule_r1_the_rows_of_what_changed_come_with_the_events() {
    let mut story = Story::new();
    story.calls(&[("a", "page_drop", "{}")]);
    let opened = Event::PendingOpened(Box::new(story.pending("1", Question::Approval)));
    let (_, changes) = story.run.record(vec![opened.clone()], at(3)).unwrap();
    let wanted = PendingRow {
        id: pending_id("1"),
        run: run_id(),
        kind: "approval".to_owned(),
        status: PendingStatus::Open,
        agent: created().agent,
        owner: subject("alice"),
        created_at: at(3),
        expires_at: Deadline::Never,
        decided_by: None,
    };
    assert_eq!((changes.inbox(), changes.row().state), (&[wanted.clone()][..], RunState::WaitingForApproval));
    story.now = 3;
    story.tell(opened).approve("bob", "1");
    let decided = story.log.pop().unwrap();
    let before = Run::fold(run_id(), &story.log).unwrap();
    let (_, changes) = before.record(vec![decided.event], at(4)).unwrap();
    let decided = PendingRow { status: PendingStatus::Approved, decided_by: Some(subject("bob")), ..wanted };
    assert_eq!((changes.inbox(), changes.row().state), (&[decided][..], RunState::Active));
}
