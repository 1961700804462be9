use countersign::{FailCode, RunFailed};
use jiff::Timestamp;

use super::*;

const ORIGIN: &str = "https://agents.example";
/// One message a line, of all events in the logs of the core of which somebody is told.
const GOLDEN: &str = include_str!("golden.jsonl");

fn log(stored: &str) -> Vec<Entry> {
    let at = |seq: u64| Timestamp::from_second(1_800_000_000 + i64::try_from(seq).unwrap()).unwrap();
    (0..)
        .zip(stored.lines())
        .map(|(seq, line)| Entry { seq, at: at(seq), event: Event::decode(line.as_bytes()).unwrap() })
        .collect()
}

fn notice(seq: u64) -> Notice {
    Notice {
        webhook: "desk".parse().unwrap(),
        run: "run_1".parse().unwrap(),
        seq,
        attempts: 0,
        token: String::new(),
    }
}

fn messages(log: &[Entry]) -> Vec<String> {
    let told = (0..log.len() as u64).filter_map(|seq| body(ORIGIN, &notice(seq), log));
    told.map(|body| String::from_utf8(body).unwrap()).collect()
}

macro_rules! logs {
    ($($name:literal)*) => {
        [$(include_str!(concat!("../../../../core/tests/logs/v1-", $name, ".jsonl"))),*]
    };
}

#[test]
fn vector_messages_are_as_they_were_shipped() {
    let logs = logs!("approved" "cancelled" "denied" "input" "limits" "settled");
    let mut told: Vec<String> = logs.iter().flat_map(|stored| messages(&log(stored))).collect();
    let mut failed = log(logs[0]);
    let last = failed.last_mut().unwrap();
    last.event = Event::RunFailed(RunFailed { code: FailCode::OutcomeUnknown });
    told.extend(messages(&failed).pop());
    let golden: Vec<&str> = GOLDEN.lines().collect();
    assert_eq!(told, golden, "they would be\n{}\n", told.join("\n"));
    for kind in NoticeKind::ALL {
        assert!(told.iter().any(|message| message.contains(kind.as_str())), "none of {}", kind.as_str());
    }
}

#[test]
fn rule_s5_nothing_that_a_model_or_a_person_wrote_is_in_a_message() {
    let mut log = log(logs!("approved")[0]);
    for entry in &mut log {
        if let Event::PendingOpened(pending) = &mut entry.event {
            pending.calls[0].tool = "made_up_SECRET".to_owned();
            pending.calls[0].facts = None;
        }
        if let Event::PendingDecided(decided) = &mut entry.event {
            decided.decided.reason = Some("because SECRET".to_owned());
        }
    }
    let told = messages(&log).join("\n");
    for word in ["SECRET", "\"id\":7", "arguments", "Home", "tidy up", "preview"] {
        assert!(!told.contains(word), "{word} in {told}");
    }
    assert!(told.contains("page_drop"));
}

#[test]
fn a_notice_of_what_nobody_is_told_of_says_nothing() {
    let log = log(logs!("approved")[0]);
    assert_eq!(body(ORIGIN, &notice(0), &log), None);
    assert_eq!(body(ORIGIN, &notice(1_000), &log), None);
    assert_eq!(body(ORIGIN, &notice(0), &[]), None);
}
