//! Kill -9 at random moments: while runs start, are approved and go on, and while the master key is changed.
//!
//! Whatever was killed when: every question still opens and can be answered to its run's end, the examination
//! finds nothing, and the tool's own ledger has each approved write exactly once. The moment of a kill is the one
//! thing here that is a matter of time: a random part of what the command took when nobody killed it.
//!
//! `KILLS=200 KILLS_SEED=7 cargo test -p countersign-server --test end_to_end kills` chooses how many, and
//! repeats the choices of an earlier time. Which instruction a kill hits is never the same twice.

use std::collections::BTreeMap;
use std::process::Child;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::chance::{Chance, chosen, seed};
use crate::support::model::Server;
use crate::support::witness::{Witness, next_turn};
use crate::support::{Done, Folder, text, until_at_most};

const KILLS: u64 = 200;
/// The kills are shared by this many installations, one after another in each and side by side.
const INSTALLATIONS: u64 = 4;

/// How long a tool works: so long that kills hit it at work, and not only before and after.
const TOOL: Duration = Duration::from_millis(40);

/// How often is looked whether all has come to its end, each time with several commands: a multiple of the lease.
const LOOKS: u32 = 60;

/// An installation with its tools. What it did is in their ledgers.
struct Installation {
    folder: Folder,
    witness: Witness,
    model: Server,
}

impl Installation {
    fn new() -> Self {
        let model = Server::answering(next_turn);
        let folder = Folder::new();
        folder.configure(model.url(), "");
        folder.configure_more("[workers]\nlease = \"1s\"\n");
        let witness = Witness::declare(&folder, [TOOL; 3]);
        Self { folder, witness, model }
    }

    /// How many words were said to the model and the tools so far.
    fn words(&self) -> usize {
        self.model.count() + self.witness.count()
    }

    /// The open questions, each of which must open.
    fn open(&self) -> Vec<Value> {
        let list = self.folder.json(&["pending", "list", "--json"]);
        let show = |item: &Value| self.folder.json(&["pending", "show", text(&item["id"]), "--json"]);
        list["items"].as_array().unwrap().iter().map(show).collect()
    }

    /// Approves, or says what the ledger says; records it only.
    fn answer(&self, open: &Value) -> Done {
        let mut arguments = vec!["approve", text(&open["id"]), "--digest", text(&open["digest"]), "--detach"];
        if open["kind"] == "resolution" {
            arguments[0] = "settle";
            match self.witness.result_of(&open["resolution"]["call"]) {
                Some(result) => arguments.extend(["--outcome", "happened", "--result", result]),
                None => arguments.extend(["--outcome", "did_not_happen"]),
            }
        }
        self.folder.run(&arguments)
    }
}

/// A command that is killed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Act {
    Migrate,
    Run,
    Approve,
    ApproveOnly,
    Resume,
    Rotate,
}

/// From where the moment of a kill is counted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum From {
    /// The beginning of the command.
    Start,
    /// Its first word to a model or a tool: little of a command's life, and most of what can go wrong.
    Work,
    /// Its first word to a tool whose write may not be repeated.
    Write,
}

/// What each takes from there when nobody kills it.
type Usual = BTreeMap<(Act, From), Duration>;

fn timed(act: impl FnOnce() -> Done) -> (Duration, Done) {
    #[expect(clippy::disallowed_methods, reason = "what a command takes says when it can be killed")]
    let begin = Instant::now();
    let done = act();
    (begin.elapsed(), done)
}

fn measured() -> Usual {
    let at = Installation::new();
    let took = |arguments: &[&str], exit: i32| {
        let (took, done) = timed(|| at.folder.run(arguments));
        done.expect(exit);
        took
    };
    let mut took: Vec<(Act, Duration)> = vec![
        (Act::Migrate, took(&["db", "migrate"], 0)),
        (Act::Run, took(&["run", "x"], 3)),
        (Act::Rotate, took(&["keys", "rotate"], 0)),
    ];
    let (only, done) = timed(|| at.answer(&at.open()[0]));
    done.expect(0);
    let (resume, done) = timed(|| at.folder.run(&["runs", "resume", "--all"]));
    done.expect(3);
    let (approve, done) = timed(|| at.folder.decide("approve", &[]));
    done.expect(0);
    took.extend([(Act::ApproveOnly, only), (Act::Resume, resume), (Act::Approve, approve)]);
    took.into_iter()
        .flat_map(|(act, took)| {
            [(From::Start, took), (From::Work, took / 4), (From::Write, 2 * TOOL)]
                .map(|(from, took)| ((act, from), took))
        })
        .collect()
}

/// One installation under its kills.
struct Campaign {
    at: Installation,
    chance: Chance,
    usual: Usual,
    /// How many were alive when they were killed.
    killed: u64,
}

impl Campaign {
    fn begins(&self, arguments: &[&str]) -> Child {
        self.at.folder.command(arguments).spawn().unwrap()
    }

    /// Kills it at a random moment of its life.
    fn ends(&mut self, act: Act, mut child: Child) {
        let from = match act {
            Act::Run => self.chance.any(&[From::Start, From::Work, From::Work]),
            Act::Resume | Act::Approve => {
                self.chance.any(&[From::Start, From::Work, From::Write, From::Write])
            }
            Act::Migrate | Act::ApproveOnly | Act::Rotate => None,
        };
        let from = from.unwrap_or(From::Start);
        let said = |at: &Installation| match from {
            From::Start => usize::MAX,
            From::Work => at.words(),
            From::Write => at.witness.plain_writes(),
        };
        let before = said(&self.at);
        while from != From::Start && said(&self.at) == before && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let usual = self.usual.get_mut(&(act, from)).unwrap();
        std::thread::sleep(self.chance.moment(*usual));
        child.kill().unwrap();
        let alive = child.wait().unwrap().code().is_none();
        self.killed += u64::from(alive);
        // What it takes changes with what else this machine does: about every third is to come to its end.
        *usual = *usual * if alive { 23 } else { 16 } / 20;
    }

    /// The next command.
    fn next(&mut self) -> (Act, Child) {
        use Act::{Approve, ApproveOnly, Resume, Rotate, Run};
        let act = self
            .chance
            .any(&[Run, Resume, Resume, ApproveOnly, ApproveOnly, Approve, Approve, Rotate])
            .unwrap();
        let arguments: &[&str] = match act {
            Approve | ApproveOnly => {
                let open =
                    self.at.folder.json(&["pending", "list", "--json"])["items"].as_array().unwrap().clone();
                let open: Vec<&Value> = open.iter().collect();
                let Some(open) = self.chance.any(&open) else { return (Run, self.begins(&["run", "x"])) };
                let approve = ["approve", text(&open["id"]), "--digest", text(&open["digest"]), "--detach"];
                let arguments = if act == ApproveOnly { &approve[..] } else { &approve[..4] };
                return (act, self.begins(arguments));
            }
            Resume => &["runs", "resume", "--all"],
            Rotate => &["keys", "rotate"],
            Run | Act::Migrate => &["run", "x"],
        };
        (act, self.begins(arguments))
    }

    fn goes_on_to(&mut self, kills: u64) {
        // The first command of all makes the key and the database.
        for _ in 0..kills / 10 {
            let child = self.begins(&["db", "migrate"]);
            self.ends(Act::Migrate, child);
        }
        self.at.folder.run(&["db", "migrate"]).expect(0);
        while self.killed < kills {
            let (act, child) = self.next();
            // Every third time the key is changed beside it, and that is killed too.
            let beside = (self.chance.below(3) == 0).then(|| self.begins(&["keys", "rotate"]));
            if let Some(beside) = beside {
                self.ends(Act::Rotate, beside);
            }
            self.ends(act, child);
        }
    }
}

/// What a campaign had to do with.
struct Seen {
    runs: usize,
    /// Writes whose outcome nobody knew.
    unknown: usize,
}

/// Whatever was killed when.
fn ends_well(at: &Installation) -> Seen {
    until_at_most(LOOKS, "a change of the key that comes to its end", || {
        (at.folder.run(&["keys", "rotate"]).exit == 0).then_some(())
    });
    until_at_most(LOOKS, "an end of every run", || {
        at.folder.run(&["runs", "resume", "--all"]);
        let open = at.open();
        for open in &open {
            // Whether a write did not happen is known only after its deadline.
            assert!(matches!(at.answer(open), Done { exit: 0, .. } | Done { exit: 5, .. }), "{open}");
        }
        let runs = at.folder.json(&["runs", "list", "--json"]);
        let ended = |run: &Value| !run["finished_at"].is_null();
        (open.is_empty() && runs["items"].as_array().unwrap().iter().all(ended)).then_some(())
    });
    let doctor = at.folder.run(&["db", "doctor"]);
    assert!(doctor.exit == 0 && doctor.out.starts_with("Nothing was found"), "{doctor:?}");

    let runs = at.folder.json(&["runs", "list", "--json"]);
    assert_eq!(runs["next"], Value::Null, "all of them");
    let runs = runs["items"].as_array().unwrap();
    at.witness.agrees_with(runs);
    let is_unknown =
        |event: &&Value| event["kind"] == "call.unknown" && event.to_string().contains("\"drop\"");
    let unknown = |run: &Value| at.folder.events(text(&run["id"])).iter().filter(is_unknown).count();
    Seen { runs: runs.len(), unknown: runs.iter().map(unknown).sum() }
}

#[test]
fn rule_r3_rule_s3_killed_two_hundred_times_nothing_is_lost_and_nothing_happens_twice() {
    let seed = seed("KILLS_SEED");
    let kills = chosen("KILLS").unwrap_or(KILLS).div_ceil(INSTALLATIONS);
    let usual = measured();
    let seen: Vec<Seen> = std::thread::scope(|scope| {
        let campaign = |installation| {
            let (usual, chance) = (usual.clone(), Chance(seed.wrapping_add(installation)));
            let mut campaign = Campaign { at: Installation::new(), chance, usual, killed: 0 };
            scope.spawn(move || {
                campaign.goes_on_to(kills);
                ends_well(&campaign.at)
            })
        };
        let campaigns: Vec<_> = (0..INSTALLATIONS).map(campaign).collect();
        campaigns.into_iter().map(|campaign| campaign.join().unwrap()).collect()
    });
    let (runs, unknown) = seen.iter().fold((0, 0), |sum, seen| (sum.0 + seen.runs, sum.1 + seen.unknown));
    println!("{runs} runs, {unknown} writes of unknown outcome");
    assert!(runs as u64 > kills / 4, "nearly nothing was ever at work: {runs} runs");
    // Or the campaign would not notice that writes are repeated.
    assert!(unknown > 0 || kills < 50, "no kill ever hit a write at work");
}
