//! What can be counted of a process and of its database, as Prometheus reads it.
//!
//! Invariant: every label has few values, all of them ours or the operator's: no run, no person, no tool that a model
//! made up, no path. A scrape costs what is owed, not what was ever done ([`countersign_store::Census`]), and is answered
//! from the last count when it comes again at once. Not here: who tells (`observed`, `http`).

use std::borrow::Cow;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use countersign::{AgentName, Event, Limit, PendingRow, RunState, StoreFault};
use countersign_store::Census;
use jiff::Timestamp;
use prometheus_client::encoding::prometheus_text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// The type of the answer.
pub(crate) use prometheus_text::CONTENT_TYPE;

type Labels = Vec<(&'static str, Cow<'static, str>)>;
type Counts = Family<Labels, Counter>;
type Levels = Family<Labels, Gauge<f64, AtomicU64>>;
type Times = Family<Labels, Histogram, fn() -> Histogram>;

/// What is asked of a person, so that what is not asked reads as none.
const KINDS: [&str; 3] = ["approval", "input", "resolution"];

/// Everything that is counted.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    counts: Counted,
    owed: Owed,
    /// When the process was told to end.
    drains_since: OnceLock<Timestamp>,
}

/// What this process saw happen.
#[derive(Debug)]
struct Counted {
    events: Counts,
    runs_ended: Counts,
    pendings_opened: Counts,
    pendings_closed: Counts,
    decisions: Counts,
    decisions_refused: Counts,
    decision_seconds: Times,
    gate_denials: Counts,
    calls: Counts,
    call_seconds: Times,
    calls_refused: Counts,
    calls_unknown: Counts,
    calls_taken_up: Counts,
    model_replies: Counts,
    model_failures: Counts,
    tokens: Counts,
    leases_lost: Counts,
    append_conflicts: Counter,
    append_seconds: Times,
    store_faults: Counts,
    runs_unreadable: Counter,
    http_requests: Counts,
    spans: Counts,
    queued_seconds: Times,
    heartbeat_lag_seconds: Times,
    draining: Gauge,
    drain: Gauge<f64, AtomicU64>,
}

/// What stands in the database, whoever did it.
#[derive(Debug, Default)]
struct Owed {
    runs: Levels,
    runs_agent_unknown: Gauge,
    run_queued_oldest_age: Gauge<f64, AtomicU64>,
    pendings_open: Levels,
    pending_oldest_age: Levels,
    outcome_unknown_open: Gauge,
    outcome_unknown_oldest_age: Gauge<f64, AtomicU64>,
    store_up: Gauge,
}

/// What is known of the tool of a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Kind {
    /// Its group.
    pub(crate) group: String,
    /// What it does to the world.
    pub(crate) effect: &'static str,
}

fn quick() -> Histogram {
    Histogram::new([0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0])
}

fn working() -> Histogram {
    Histogram::new([0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0])
}

fn human() -> Histogram {
    Histogram::new([1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0, 604_800.0])
}

fn label<const N: usize>(labels: [(&'static str, Cow<'static, str>); N]) -> Labels {
    labels.into()
}

impl Default for Metrics {
    fn default() -> Self {
        let times = |make: fn() -> Histogram| Times::new_with_constructor(make);
        let counts = Counted {
            events: Counts::default(),
            runs_ended: Counts::default(),
            pendings_opened: Counts::default(),
            pendings_closed: Counts::default(),
            decisions: Counts::default(),
            decisions_refused: Counts::default(),
            decision_seconds: times(human),
            gate_denials: Counts::default(),
            calls: Counts::default(),
            call_seconds: times(working),
            calls_refused: Counts::default(),
            calls_unknown: Counts::default(),
            calls_taken_up: Counts::default(),
            model_replies: Counts::default(),
            model_failures: Counts::default(),
            tokens: Counts::default(),
            leases_lost: Counts::default(),
            append_conflicts: Counter::default(),
            append_seconds: times(quick),
            store_faults: Counts::default(),
            runs_unreadable: Counter::default(),
            http_requests: Counts::default(),
            spans: Counts::default(),
            queued_seconds: times(quick),
            heartbeat_lag_seconds: times(quick),
            draining: Gauge::default(),
            drain: Gauge::default(),
        };
        let owed = Owed::default();
        Self { registry: registry(&counts, &owed), counts, owed, drains_since: OnceLock::new() }
    }
}

/// All of them by name. What is counted here ends in `_total` where it is read.
fn registry(counts: &Counted, owed: &Owed) -> Registry {
    let mut all = Registry::with_prefix("countersign");
    let build = Levels::default();
    build.get_or_create(&label([("version", env!("CARGO_PKG_VERSION").into())])).set(1.0);
    all.register("build_info", "Which version this is", build);
    all.register("draining", "Whether this process is about to end", counts.draining.clone());
    all.register_with_unit(
        "drain",
        "How long ago this process was told to end",
        Unit::Seconds,
        counts.drain.clone(),
    );

    all.register("store_up", "Whether the database could be counted", owed.store_up.clone());
    all.register("runs", "Runs that have not ended", owed.runs.clone());
    all.register(
        "runs_agent_unknown",
        "Runs that have not ended, of agents that are not configured here",
        owed.runs_agent_unknown.clone(),
    );
    all.register_with_unit(
        "run_queued_oldest_age",
        "How long the run waits that has waited longest for a worker",
        Unit::Seconds,
        owed.run_queued_oldest_age.clone(),
    );
    all.register("pendings_open", "Questions that nobody has settled", owed.pendings_open.clone());
    all.register_with_unit(
        "pending_oldest_age",
        "How long the oldest of them has been open",
        Unit::Seconds,
        owed.pending_oldest_age.clone(),
    );
    all.register(
        "outcome_unknown_open",
        "Writes of which nobody has said whether they happened",
        owed.outcome_unknown_open.clone(),
    );
    all.register_with_unit(
        "outcome_unknown_oldest_age",
        "How long the oldest of them has been unknown",
        Unit::Seconds,
        owed.outcome_unknown_oldest_age.clone(),
    );

    let seen: [(&str, &str, &Counts); 18] = [
        ("events", "Events stored by this process", &counts.events),
        ("runs_ended", "Runs that ended here, and how", &counts.runs_ended),
        ("pendings_opened", "Questions asked", &counts.pendings_opened),
        ("pendings_closed", "Questions that ended without a decision", &counts.pendings_closed),
        ("decisions", "Questions decided", &counts.decisions),
        ("decisions_refused", "Decisions that were refused and recorded", &counts.decisions_refused),
        ("gate_denials", "Tools that a gate kept out", &counts.gate_denials),
        ("calls", "Calls that have a result", &counts.calls),
        ("calls_refused", "Calls that were refused, and why", &counts.calls_refused),
        ("calls_unknown", "Writes whose outcome became unknown", &counts.calls_unknown),
        ("calls_taken_up", "Calls made again after their worker was lost", &counts.calls_taken_up),
        ("model_replies", "Answers of models", &counts.model_replies),
        ("model_failures", "Models that gave no usable answer in all attempts", &counts.model_failures),
        ("tokens", "Tokens that models counted", &counts.tokens),
        ("leases_lost", "Runs that were lost to another worker", &counts.leases_lost),
        ("store_faults", "What the database could not do", &counts.store_faults),
        ("http_requests", "Requests answered", &counts.http_requests),
        ("spans", "Spans that the collector of traces has, or that were lost", &counts.spans),
    ];
    for (name, help, family) in seen {
        all.register(name, help, family.clone());
    }
    all.register(
        "append_conflicts",
        "Appends that came too late because the log had moved on",
        counts.append_conflicts.clone(),
    );
    all.register("runs_unreadable", "Looks at a run that cannot be read", counts.runs_unreadable.clone());
    let times: [(&str, &str, &Times); 5] = [
        ("decision", "From a question to its decision", &counts.decision_seconds),
        ("call", "How long tools took", &counts.call_seconds),
        ("append", "How long the database took to store", &counts.append_seconds),
        (
            "queued",
            "From the last that was stored of a run to the worker that took it up",
            &counts.queued_seconds,
        ),
        ("heartbeat_lag", "How late a lease was renewed", &counts.heartbeat_lag_seconds),
    ];
    for (name, help, family) in times {
        all.register_with_unit(name, help, Unit::Seconds, family.clone());
    }
    all
}

impl Metrics {
    /// Events were stored, at this moment, with these lines of the inbox. `kind` knows the tools of this process.
    pub(crate) fn stored(
        &self,
        events: &[Event],
        at: Timestamp,
        inbox: &[PendingRow],
        kind: impl Fn(&str) -> Option<Kind>,
    ) {
        for event in events {
            self.counts.events.get_or_create(&label([("kind", event.kind().into())])).inc();
            self.happened(event, &kind);
        }
        for row in inbox.iter().filter(|row| row.decided_by.is_some()) {
            let took = seconds(row.created_at, at);
            let labels = label([("kind", kind_of_question(&row.kind))]);
            self.counts.decision_seconds.get_or_create(&labels).observe(took);
        }
    }

    fn happened(&self, event: &Event, kind: impl Fn(&str) -> Option<Kind>) {
        let one = |counts: &Counts, labels: Labels| {
            counts.get_or_create(&labels).inc();
        };
        let counts = &self.counts;
        match event {
            Event::GateDenied(denied) => {
                let observed = if denied.observed_only { "true" } else { "false" };
                let reason = denied.reason.as_str();
                one(
                    &counts.gate_denials,
                    label([("reason", reason.into()), ("observed_only", observed.into())]),
                );
            }
            Event::ModelReplied(replied) => {
                let provider = || Cow::Owned(replied.reply.provider.to_string());
                one(&counts.model_replies, label([("provider", provider())]));
                let usage = replied.reply.usage;
                for (kind, tokens) in [
                    ("input", usage.input_tokens),
                    ("output", usage.output_tokens),
                    ("cached_input", usage.cached_input_tokens),
                ] {
                    let labels = label([("provider", provider()), ("kind", kind.into())]);
                    counts.tokens.get_or_create(&labels).inc_by(tokens);
                }
            }
            Event::ModelFailed(failed) => {
                let provider = Cow::Owned(failed.model.provider.to_string());
                one(
                    &counts.model_failures,
                    label([("provider", provider), ("code", failed.code.as_str().into())]),
                );
            }
            Event::PendingOpened(pending) | Event::PendingEdited(pending) => {
                let kind = kind_of_question(pending.question.as_str());
                one(&counts.pendings_opened, label([("kind", kind)]));
            }
            Event::PendingDecided(decided) => {
                one(&counts.decisions, label([("verdict", decided.decided.verdict.as_str().into())]));
            }
            Event::PendingRefused(refused) => {
                one(&counts.decisions_refused, label([("code", Cow::Owned(refused.code.clone()))]));
            }
            Event::PendingClosed(closed) => {
                let status = countersign::PendingStatus::from(closed.status).as_str();
                one(&counts.pendings_closed, label([("status", status.into())]));
            }
            Event::CallStarted(started) if started.attempt > 1 => {
                one(&counts.calls_taken_up, label([("effect", started.effect.as_str().into())]));
            }
            Event::CallFinished(finished) => {
                let result = &finished.result;
                let labels = labels_of(kind(&finished.tool));
                if let Some(refusal) = result.refusal {
                    one(&counts.calls_refused, label([("reason", refusal.as_str().into())]));
                } else if result.duration_ms > 0 {
                    let took = Duration::from_millis(result.duration_ms).as_secs_f64();
                    counts.call_seconds.get_or_create(&labels).observe(took);
                }
                one(&counts.calls, [labels, label([("result", result.kind.as_str().into())])].concat());
            }
            Event::CallUnknown(unknown) => one(&counts.calls_unknown, labels_of(kind(&unknown.tool))),
            Event::RunCompleted(completed) => {
                let reason = completed.limit.map_or("answer", Limit::stop_reason);
                one(&counts.runs_ended, label([("status", "completed".into()), ("reason", reason.into())]));
            }
            Event::RunFailed(failed) => {
                let reason = failed.code.as_str();
                one(&counts.runs_ended, label([("status", "failed".into()), ("reason", reason.into())]));
            }
            Event::RunCancelled(_) => {
                one(
                    &counts.runs_ended,
                    label([("status", "cancelled".into()), ("reason", "cancelled".into())]),
                );
            }
            Event::RunCreated(_)
            | Event::WorkBegan(_)
            | Event::ContextFitted(_)
            | Event::CallStarted(_)
            | Event::LimitReached(_)
            | Event::CancelRequested(_) => {}
        }
    }

    /// How long the database took for one append.
    pub(crate) fn appended_in(&self, took: Duration) {
        self.counts.append_seconds.get_or_create(&Labels::default()).observe(took.as_secs_f64());
    }

    /// An append came too late.
    pub(crate) fn came_too_late(&self) {
        self.counts.append_conflicts.inc();
    }

    /// A worker of this process lost a run, and saw it at an append or at a heartbeat.
    pub(crate) fn lost_a_lease(&self, seen_at: &'static str) {
        self.counts.leases_lost.get_or_create(&label([("seen_at", seen_at.into())])).inc();
    }

    /// The collector of traces took so many spans.
    pub(crate) fn handed_spans(&self, count: u64) {
        self.counts.spans.get_or_create(&label([("outcome", "sent".into())])).inc_by(count);
    }

    /// So many spans were lost on the way to the collector.
    pub(crate) fn lost_spans(&self, count: u64) {
        self.counts.spans.get_or_create(&label([("outcome", "lost".into())])).inc_by(count);
    }

    /// A run cannot be read.
    pub(crate) fn cannot_read(&self) {
        self.counts.runs_unreadable.inc();
    }

    /// The database could not do something.
    pub(crate) fn store_failed(&self, fault: &StoreFault) {
        let kind = match fault {
            StoreFault::Full(_) => "full",
            StoreFault::ReadOnly(_) => "read_only",
            StoreFault::Busy(_) => "busy",
            StoreFault::Unreachable(_) => "unreachable",
            StoreFault::Failed(_) | _ => "failed",
        };
        self.counts.store_faults.get_or_create(&label([("kind", kind.into())])).inc();
    }

    /// A request was answered. `route` is the pattern.
    pub(crate) fn answered(&self, route: &str, status: u16) {
        let labels = label([("route", Cow::Owned(route.to_owned())), ("status", status.to_string().into())]);
        self.counts.http_requests.get_or_create(&labels).inc();
    }

    /// The process was told to end, now or before.
    pub(crate) fn drains(&self, now: Timestamp) {
        self.counts.draining.set(1);
        self.counts.drain.set(seconds(*self.drains_since.get_or_init(|| now), now));
    }

    /// A worker took up a run of which something was stored last at this moment.
    pub(crate) fn took_up(&self, owed_since: Timestamp, now: Timestamp) {
        self.counts.queued_seconds.get_or_create(&Labels::default()).observe(seconds(owed_since, now));
    }

    /// A lease was renewed that was to be renewed at this moment.
    pub(crate) fn renewed(&self, due: Timestamp, now: Timestamp) {
        self.counts.heartbeat_lag_seconds.get_or_create(&Labels::default()).observe(seconds(due, now));
    }

    /// What was counted in the database; `None`: it could not be.
    pub(crate) fn owed(
        &self,
        census: Option<&Census>,
        now: Timestamp,
        is_known: impl Fn(&AgentName) -> bool,
    ) {
        let owed = &self.owed;
        owed.store_up.set(i64::from(census.is_some()));
        let Some(census) = census else {
            // What is not known is not told: a number of an hour ago would pass for one of now.
            for levels in [&owed.runs, &owed.pendings_open, &owed.pending_oldest_age] {
                levels.clear();
            }
            return;
        };
        let age = |oldest: Option<Timestamp>| oldest.map_or(0.0, |oldest| seconds(oldest, now));
        let (mut queued, mut running, mut unknown, mut oldest) = (0, 0, 0, None);
        let mut waiting =
            [RunState::WaitingForApproval, RunState::WaitingForInput, RunState::NeedsResolution]
                .map(|state| (state, 0));
        for live in &census.runs {
            if !AgentName::parse(&live.agent).is_ok_and(|agent| is_known(&agent)) {
                unknown += live.runs;
            }
            if live.state == RunState::Active {
                running += live.leased;
                queued += live.runs - live.leased.min(live.runs);
                oldest = [oldest, live.oldest].into_iter().flatten().min();
            } else if let Some((_, count)) = waiting.iter_mut().find(|(state, _)| *state == live.state) {
                *count += live.runs;
            }
        }
        let set = |levels: &Levels, name, value: &'static str, level: f64| {
            levels.get_or_create(&label([(name, value.into())])).set(level);
        };
        set(&owed.runs, "status", RunState::Active.status(false), many(queued));
        set(&owed.runs, "status", RunState::Active.status(true), many(running));
        waiting.iter().for_each(|(state, count)| set(&owed.runs, "status", state.as_str(), many(*count)));
        owed.runs_agent_unknown.set(i64::try_from(unknown).unwrap_or(i64::MAX));
        owed.run_queued_oldest_age.set(age(oldest));
        for kind in KINDS {
            let open = census.open.iter().find(|open| open.kind == kind);
            let (count, oldest) = open.map_or((0, 0.0), |open| (open.pendings, age(open.oldest)));
            set(&owed.pendings_open, "kind", kind, many(count));
            set(&owed.pending_oldest_age, "kind", kind, oldest);
            if kind == "resolution" {
                owed.outcome_unknown_open.set(i64::try_from(count).unwrap_or(i64::MAX));
                owed.outcome_unknown_oldest_age.set(oldest);
            }
        }
    }

    /// All of it, as text of Prometheus.
    ///
    /// # Errors
    /// Only if a value cannot be text, which none of them can.
    pub(crate) fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        prometheus_text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

fn labels_of(kind: Option<Kind>) -> Labels {
    let (group, effect) = kind.map_or(("none".into(), "none"), |kind| (Cow::Owned(kind.group), kind.effect));
    label([("group", group), ("effect", effect.into())])
}

/// A kind of question; one that nobody knows is not a value of its own.
fn kind_of_question(kind: &str) -> Cow<'static, str> {
    KINDS.into_iter().find(|known| *known == kind).unwrap_or("other").into()
}

fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64().max(0.0)
}

#[expect(clippy::cast_precision_loss, reason = "nobody has that many runs")]
fn many(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The names of all that is counted, as a scrape shows them.
    fn names() -> BTreeSet<String> {
        let metrics = Metrics::default();
        let Counted {
            events,
            runs_ended,
            pendings_opened,
            pendings_closed,
            decisions,
            decisions_refused,
            decision_seconds,
            gate_denials,
            calls,
            call_seconds,
            calls_refused,
            calls_unknown,
            calls_taken_up,
            model_replies,
            model_failures,
            tokens,
            leases_lost,
            append_conflicts: _,
            append_seconds,
            store_faults,
            runs_unreadable: _,
            http_requests,
            spans,
            queued_seconds,
            heartbeat_lag_seconds,
            draining: _,
            drain: _,
        } = &metrics.counts;
        // What has no value yet has no name in a scrape.
        for counts in [
            events,
            runs_ended,
            pendings_opened,
            pendings_closed,
            decisions,
            decisions_refused,
            gate_denials,
            calls,
            calls_refused,
            calls_unknown,
            calls_taken_up,
            model_replies,
            model_failures,
            tokens,
            leases_lost,
            store_faults,
            http_requests,
            spans,
        ] {
            counts.get_or_create(&Labels::default()).inc();
        }
        for times in [decision_seconds, call_seconds, append_seconds, queued_seconds, heartbeat_lag_seconds] {
            times.get_or_create(&Labels::default()).observe(1.0);
        }
        metrics.owed(Some(&Census::default()), Timestamp::UNIX_EPOCH, |_| true);
        let text = metrics.text().unwrap();
        let names = text.lines().filter_map(|line| line.strip_prefix("# TYPE countersign_"));
        names.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
    }

    /// The names that stand in the tables of the page, between backticks and without their labels.
    fn in_the_page(page: &str) -> BTreeSet<String> {
        let rows = page.lines().filter(|line| line.starts_with("| `"));
        let cells = rows.filter_map(|row| row.split('|').nth(1));
        let names = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
        names.filter_map(|name| name.split('{').next()).map(str::to_owned).collect()
    }

    #[test]
    fn the_page_about_operations_names_what_is_counted_and_nothing_else() {
        assert_eq!(in_the_page(include_str!("../../../docs/operations.md")), names());
    }

    #[test]
    fn the_rules_for_alerts_name_only_what_is_counted() {
        let (rules, known) = (include_str!("../../../deploy/alerts.yml"), names());
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let named: BTreeSet<&str> = rules
            .split("countersign_")
            .skip(1)
            .map(|rest| &rest[..rest.find(|letter| !is_part(letter)).unwrap_or(rest.len())])
            .collect();
        assert!(named.len() > 8, "{named:?}");
        for name in named {
            let histogram = name.strip_suffix("_bucket").or_else(|| name.strip_suffix("_count"));
            assert!(known.contains(histogram.unwrap_or(name)), "countersign_{name} is counted by nobody");
        }
    }
}
