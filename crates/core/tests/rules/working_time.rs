//! L5 and R7: working time is what passes while somebody has the run in hand, over the whole run.

use std::time::Duration;

use countersign_core::*;

use crate::world::*;

use ResultKind::{Denied, NotRun, Timeout};

fn limited(seconds: u64) -> Story {
    let limits = RunLimits { working_ms_max: Some(seconds * 1000), ..RunLimits::iterations(20) };
    Story::of(Created { limits, ..created() })
}

fn began() -> Event {
    Event::WorkBegan(WorkBegan {})
}

impl Story {
    fn after(&mut self, seconds: i64) -> &mut Self {
        self.now += seconds;
        self
    }

    fn worked(&self) -> u64 {
        assert_eq!(self.run.worked().subsec_nanos(), 0);
        self.run.worked().as_secs()
    }
}

#[test]
fn rule_l5_rule_r7_neither_a_person_nor_a_queue_uses_working_time() {
    let mut story = limited(100);
    story.after(50).tell(began());
    assert_eq!(story.worked(), 0, "it lay in the queue");
    story.after(5).calls(&[("a", "page_drop", "{}")]).after(2).ask("1");
    assert_eq!((story.worked(), story.run.is_worked_on()), (7, false));
    assert_eq!(story.run.working_time_left(at(story.now)), None, "it waits");
    story.after(10_000).approve("bob", "1");
    assert_eq!(story.worked(), 7, "a person thought about it");
    story.after(1_000).tell(began());
    assert_eq!((story.worked(), story.run.is_worked_on()), (7, true));
    story.after(3).start("a");
    assert_eq!(story.run.working_time_left(at(story.now + 10)), Some(Duration::from_secs(80)));
    // Its worker died here, and another found it after an hour.
    story.after(3600).tell(began()).after(1).finish("a").text("done");
    assert_eq!(story.worked(), 11);
    assert_eq!(story.follow(), Step::Ended);
    assert_eq!(Run::fold(run_id(), &story.log).unwrap().worked(), story.run.worked(), "from the log alone");
}

#[test]
fn rule_l5_a_run_without_a_budget_of_time_counts_none() {
    let mut story = Story::new();
    story.refuses(began());
    story.after(1_000_000).calls(&[("a", "page_get", "{}")]).start("a").finish("a");
    story.refuses(limit(Limit::WorkingTime));
    assert_eq!((story.worked(), story.run.is_worked_on()), (0, false));
}

#[test]
fn rule_l5_a_clock_that_goes_backwards_takes_no_time() {
    let mut story = limited(100);
    story.tell(began()).after(-30).calls(&[("a", "page_get", "{}")]).after(1).start("a");
    assert_eq!(story.worked(), 1);
}

#[test]
fn rule_l5_time_that_is_up_ends_the_run_before_a_turn_begins() {
    let mut story = limited(10);
    story.tell(began()).after(9).refuses(limit(Limit::WorkingTime));
    story.after(1).calls(&[("a", "page_drop", "{}"), ("b", "page_get", "{}")]);
    assert_eq!(story.run.next(), Step::Record(vec![limit(Limit::WorkingTime)]), "nobody is asked");
    assert_eq!(story.follow(), Step::Ended);
    assert_eq!((story.kinds(), story.run.row().limit), (vec![NotRun, NotRun], Some(Limit::WorkingTime)));
    assert!(story.content_of("a").contains("working time"));
}

#[test]
fn rule_l5_time_that_is_up_within_a_turn_starts_nothing_more_of_it() {
    let mut story = limited(10);
    story.tell(began()).calls(&[("a", "page_get", "{}"), ("b", "page_drop", "{}"), ("c", "page_get", "{}")]);
    story.ask("1").after(99).verdicts("bob", "1", &[("b", CallVerdict::Deny)]).tell(began());
    assert_eq!(story.follow(), Step::Dispatch(vec![call_id("a"), call_id("c")]), "c needs none");
    story.start("a").after(10).refuses(limit(Limit::WorkingTime));
    let stopped = story.result("a", CallResult::from_tool(Timeout, "stopped", vec![], 10_000));
    story.tell(stopped);
    assert_eq!(story.follow(), Step::Ended);
    assert_eq!(story.kinds(), [Timeout, Denied, NotRun], "a denied call was denied");
    assert_eq!(story.run.row().limit, Some(Limit::WorkingTime));
}

#[test]
fn rule_l5_an_answer_that_came_in_time_is_an_answer() {
    let mut story = limited(10);
    story.tell(began()).after(10).text("done");
    story.refuses(limit(Limit::WorkingTime));
    assert_eq!(story.follow(), Step::Ended);
    assert_eq!(story.run.row().limit, None);
}

#[test]
fn rule_l5_a_model_that_is_slow_is_given_up_and_no_other_is_asked() {
    let mut story = limited(10);
    let failed = ModelFailed {
        model: ModelRef::parse("p/m").unwrap(),
        code: ModelFailCode::OutOfTime,
        status: None,
        attempts: 2,
        usage: Usage { unknown_calls: 2, ..Usage::default() },
    };
    story.tell(began()).after(10).tell_all(vec![Event::ModelFailed(failed), limit(Limit::WorkingTime)]);
    assert_eq!(story.follow(), Step::Ended);
    let row = story.run.row();
    assert_eq!((row.limit, row.usage.unknown_calls), (Some(Limit::WorkingTime), 2));
}

#[test]
fn rule_r3_a_write_in_flight_and_an_unknown_outcome_are_not_cut_short() {
    let mut story = limited(10);
    story.tell(began()).calls(&[("a", "page_drop", "{}")]).ask("1").approve("bob", "1").tell(began());
    story.start("a").after(60).refuses(limit(Limit::WorkingTime));
    story.tell(unknown("a", "page_drop")).refuses(limit(Limit::WorkingTime));
    assert_eq!(story.run.next(), Step::OpenResolution(call_id("a")), "a person must say how it came out");
}

#[test]
fn rule_l1_rule_l5_the_closing_completion_has_no_more_time_than_the_run() {
    let limits = RunLimits { working_ms_max: Some(10_000), ..RunLimits::iterations(1) };
    let mut story = Story::of(Created { limits, ..created() });
    story.tell(began()).calls(&[("a", "page_get", "{}")]).follow();
    assert!(matches!(story.run.next(), Step::AskModel(ask) if ask.closing));
    story.after(10).tell(limit(Limit::WorkingTime));
    assert_eq!(story.follow(), Step::Ended);
    assert_eq!(story.run.row().limit, Some(Limit::WorkingTime));
}
