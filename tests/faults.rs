//! Kill -9 of what serves and works, under thirty-two runs in flight, on either database.
//!
//! Half of the deaths are at named points of the work with the store (`COUNTERSIGN_DIES_AT`, which a build for tests
//! obeys), the others come from outside: at a random moment of a process's life, its start included, or when a write
//! has reached its tool. On PostgreSQL two servers and a worker share the runs and die apart. Afterwards every run
//! that was accepted is there and ends, every decision that was accepted stands, the tools' own record has each plain
//! write once, and the examination finds nothing.
//!
//! `SERVE_KILLS=200 SERVE_KILLS_SEED=7 cargo test -p countersign-server --test end_to_end faults` chooses how many
//! on each, and repeats the choices of an earlier time; `scripts/kills` runs the whole of it. Which instruction a kill
//! from outside hits is never the same twice.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::os::unix::process::ExitStatusExt as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::chance::{Chance, chosen, seed};
use crate::support::model::Server;
use crate::support::serve::{Answer, Client, Process, Serve};
use crate::support::witness::{Witness, next_turn};
use crate::support::{Folder, text};

/// As many as fit into a test; the campaign of `FAULTS.md` has more.
const KILLS: u64 = 12;
/// From this many on every named point must have been hit.
const KILLS_OF_A_CAMPAIGN: u64 = 200;
const IN_FLIGHT: usize = 32;
const APPROVERS: usize = 2;

/// How long the tools work: the second longer than a heartbeat.
const TOOLS: [Duration; 3] =
    [Duration::from_millis(10), Duration::from_millis(200), Duration::from_millis(50)];
const LEASE: &str = "[workers]\nconcurrency = 32\nlease = \"500ms\"\n";

/// How often a process is looked at.
const TICK: Duration = Duration::from_millis(5);
/// The longest life of one that is killed at a random moment, in ticks, its start included.
const LIFE: u64 = 300;
/// How long its named point is waited for.
const POINT: u64 = 600;
/// How often something that must come is asked for, each time after a pause.
const TRIES: u32 = 240;
const PAUSE: Duration = Duration::from_millis(50);
/// How often somebody looks at a run of theirs. Thirty-two who look all the time are work that others need to do.
const LOOK: Duration = Duration::from_millis(1000);

/// Where a process may die of itself. Those of the first kind only what serves can reach.
const SERVING: [&str; 5] = [
    "before run.created",
    "amid run.created",
    "after run.created",
    "amid pending.decided",
    "after pending.decided",
];
const WORKING: [&str; 18] = [
    "amid claim",
    "after claim",
    "amid call.started",
    "after call.started",
    "before call.finished",
    "amid call.finished",
    "after call.finished",
    "amid call.unknown",
    "after call.unknown",
    "amid pending.opened",
    "after pending.opened",
    "before release",
    "amid release",
    "after release",
    "amid heartbeat",
    "after heartbeat",
    "amid run.completed",
    "after run.completed",
];

/// How one process is to end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Death {
    /// Of itself, when it comes here.
    Named(&'static str),
    /// From outside, after this many ticks.
    Random,
    /// From outside, when a plain write has reached its tool.
    AtTheTool,
}

impl fmt::Display for Death {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(point) => out.write_str(point),
            Self::Random => out.write_str("at a random moment"),
            Self::AtTheTool => out.write_str("with a write at its tool"),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Serve,
    Work,
}

struct Campaign {
    folder: Folder,
    witness: Witness,
    _model: Server,
    /// Where what serves can be reached, by the number of the process.
    addresses: Mutex<BTreeMap<usize, String>>,
    alice: String,
    approver: String,
    /// How many more are to die.
    left: AtomicU64,
    deaths: Mutex<BTreeMap<Death, u64>>,
    /// No new run is begun.
    no_more: AtomicBool,
    all_ended: AtomicBool,
    has_failed: AtomicBool,
    /// The calls that somebody was about to approve.
    approved: Mutex<BTreeSet<String>>,
    /// The decisions that were accepted.
    decided: Mutex<BTreeSet<String>>,
    settled: AtomicU64,
}

/// Who falls tells the others, so that nobody waits for what cannot come.
struct Alarm<'a>(&'a AtomicBool);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::SeqCst);
        }
    }
}

/// What came of it.
struct Came {
    runs: usize,
    /// Writes whose outcome nobody knew.
    unknown: u64,
    deaths: BTreeMap<Death, u64>,
}

impl Campaign {
    fn new(folder: Folder, kills: u64) -> Self {
        let model = Server::answering(next_turn);
        folder.configure(model.url(), "");
        folder.configure_more(LEASE);
        let witness = Witness::declare(&folder, TOOLS);
        let serve = Serve::start(&folder);
        let token = |who: &str, more: &[&str]| serve.client(&folder, who, more).token().to_owned();
        let (alice, approver) = (token("alice", &[]), token("bob", &["--approver"]));
        drop(serve);
        Self {
            folder,
            witness,
            _model: model,
            addresses: Mutex::default(),
            alice,
            approver,
            left: AtomicU64::new(kills),
            deaths: Mutex::default(),
            no_more: AtomicBool::new(false),
            all_ended: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            approved: Mutex::default(),
            decided: Mutex::default(),
            settled: AtomicU64::new(0),
        }
    }

    /// Kills until there were enough, and then lets all that is owed come to its end.
    fn goes_on(&self, seed: u64, roles: &[Role]) -> Came {
        std::thread::scope(|scope| {
            let killers: Vec<_> = roles
                .iter()
                .enumerate()
                .map(|(slot, role)| {
                    let chance = Chance(seed.wrapping_add(slot as u64));
                    scope.spawn(move || self.lives_and_dies(slot, *role, chance))
                })
                .collect();
            let starters: Vec<_> = (0..IN_FLIGHT)
                .map(|number| {
                    let chance = Chance(seed.wrapping_mul(31).wrapping_add(number as u64));
                    scope.spawn(move || self.begins_runs(number, chance))
                })
                .collect();
            let approvers: Vec<_> = (0..APPROVERS)
                .map(|number| {
                    let chance = Chance(seed.wrapping_mul(37).wrapping_add(number as u64));
                    scope.spawn(move || self.decides(chance))
                })
                .collect();
            // They die by turns until there were enough; each goes on living once more then.
            let killed: Vec<_> = killers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
            self.no_more.store(true, Ordering::SeqCst);
            let runs: Vec<_> = starters.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
            self.all_ended.store(true, Ordering::SeqCst);
            approvers.into_iter().for_each(|approver| approver.join().unwrap());
            let alive: Vec<Process> = killed.into_iter().map(Result::unwrap).collect();
            let runs: Vec<String> = runs.into_iter().flat_map(Result::unwrap).collect();
            self.ends_well(&runs);
            drop(alive);
            let unknown = self.settled.load(Ordering::SeqCst);
            Came { runs: runs.len(), unknown, deaths: self.deaths.lock().unwrap().clone() }
        })
    }

    // --- the processes ---

    /// One process after another, until enough were killed. Gives back the one that lives.
    fn lives_and_dies(&self, slot: usize, role: Role, mut chance: Chance) -> Process {
        let _alarm = Alarm(&self.has_failed);
        loop {
            self.is_well();
            let enough = self
                .left
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
                .is_err();
            if enough {
                let (mut process, said) = self.starts(role, None);
                let address = process.says(said);
                self.is_at(slot, role, address);
                return process;
            }
            let death = self.next_death(role, &mut chance);
            let died = self.dies(slot, role, death, &mut chance);
            *self.deaths.lock().unwrap().entry(died).or_default() += 1;
        }
    }

    fn starts(&self, role: Role, dies_at: Option<String>) -> (Process, &'static str) {
        let (arguments, said): (&[&str], _) = match role {
            Role::Serve => (&["serve", "--listen", "127.0.0.1:0"], "listening on http://"),
            Role::Work => (&["work"], "working on the runs of "),
        };
        let mut command = self.folder.command(arguments);
        if let Some(point) = dies_at {
            command.env("COUNTERSIGN_DIES_AT", point);
        }
        (Process::start(command), said)
    }

    fn is_at(&self, slot: usize, role: Role, address: String) {
        if role == Role::Serve {
            self.addresses.lock().unwrap().insert(slot, address);
        }
    }

    /// Half of them at the points that were hit least.
    fn next_death(&self, role: Role, chance: &mut Chance) -> Death {
        match chance.below(8) {
            0..3 => Death::Random,
            3 => Death::AtTheTool,
            _ => {
                let deaths = self.deaths.lock().unwrap();
                let hit =
                    |point: &&'static str| deaths.get(&Death::Named(point)).copied().unwrap_or_default();
                let serving = if role == Role::Serve { &SERVING[..] } else { &[] };
                let points: Vec<&'static str> = serving.iter().chain(&WORKING).copied().collect();
                let least = points.iter().map(hit).min().unwrap_or_default();
                let points: Vec<&'static str> =
                    points.into_iter().filter(|point| hit(point) == least).collect();
                Death::Named(chance.any(&points).unwrap())
            }
        }
    }

    /// One life. Says of what it ended.
    fn dies(&self, slot: usize, role: Role, death: Death, chance: &mut Chance) -> Death {
        let dies_at = match death {
            Death::Named(point) => {
                // The first time it comes there, and later ones when that was tried.
                let hit = self.deaths.lock().unwrap().get(&death).copied().unwrap_or_default();
                Some(format!("{point} {}", 1 + chance.below(1 + hit.min(3))))
            }
            Death::Random | Death::AtTheTool => None,
        };
        let (mut process, said) = self.starts(role, dies_at);
        let (life, came_before) = (chance.below(LIFE), self.witness.plain_writes());
        let mut is_known = false;
        let mut died = death;
        for tick in 0.. {
            if let Some(ended) = process.has_ended() {
                assert_eq!(ended.signal(), Some(9), "it ended by itself: {}", process.said());
                break;
            }
            if !is_known
                && let Some(address) = process.said().lines().find_map(|line| line.strip_prefix(said))
            {
                is_known = true;
                self.is_at(slot, role, address.to_owned());
            }
            let is_time = match death {
                Death::Random => tick >= life,
                Death::AtTheTool => self.witness.plain_writes() > came_before || tick >= POINT,
                Death::Named(_) => tick >= POINT,
            };
            if is_time {
                if tick >= POINT {
                    died = Death::Random;
                }
                process.kill();
                break;
            }
            std::thread::sleep(TICK);
        }
        self.addresses.lock().unwrap().remove(&slot);
        sane(&process.said());
        died
    }

    // --- the people ---

    fn is_well(&self) {
        assert!(!self.has_failed.load(Ordering::SeqCst), "what failed is said by another thread");
    }

    /// Asks whatever serves, if something does and lives until it has answered.
    fn asks(
        &self,
        chance: &mut Chance,
        token: &str,
        (method, path): (&str, &str),
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Option<Answer> {
        let addresses: Vec<String> = self.addresses.lock().unwrap().values().cloned().collect();
        let address = addresses.get(usize::try_from(chance.below(addresses.len().max(1) as u64)).unwrap())?;
        let body = body.map(Value::to_string);
        let answer = Client::at(address, token).try_ask(method, path, headers, body.as_deref())?;
        assert!(answer.status < 500, "{method} {path}: {answer:?}");
        Some(answer)
    }

    /// The same until there is an answer.
    fn asks_until(
        &self,
        chance: &mut Chance,
        token: &str,
        what: (&str, &str),
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Answer {
        for _ in 0..TRIES {
            self.is_well();
            if let Some(answer) = self.asks(chance, token, what, headers, body) {
                return answer;
            }
            std::thread::sleep(PAUSE);
        }
        panic!("nobody answers: {what:?}");
    }

    fn starts_run(&self, chance: &mut Chance, key: &str) -> String {
        let body = json!({ "input": key });
        let answer = self.asks_until(
            chance,
            &self.alice,
            ("POST", "/v1/runs"),
            &[("Idempotency-Key", key)],
            Some(&body),
        );
        assert!(matches!(answer.status, 200 | 201), "{answer:?}");
        text(&answer.json()["id"]).to_owned()
    }

    /// One run after another, each to its end.
    fn begins_runs(&self, number: usize, mut chance: Chance) -> Vec<String> {
        let _alarm = Alarm(&self.has_failed);
        let mut runs = Vec::new();
        while !self.no_more.load(Ordering::SeqCst) {
            let id = self.starts_run(&mut chance, &format!("{number}-{}", runs.len()));
            self.follows(&mut chance, &id);
            runs.push(id);
        }
        // Whoever asks once more with the key of a run that was accepted gets that run.
        for (index, id) in runs.iter().enumerate() {
            assert_eq!(self.starts_run(&mut chance, &format!("{number}-{index}")), *id);
        }
        runs
    }

    fn follows(&self, chance: &mut Chance, id: &str) {
        let path = format!("/v1/runs/{id}");
        let mut last = Value::Null;
        for _ in 0..TRIES {
            self.is_well();
            let run = self.asks(chance, &self.alice, ("GET", &path), &[], None);
            if let Some(run) = run {
                // One that was accepted is there.
                last = run.expect(200);
                if !last["finished_at"].is_null() {
                    return;
                }
            }
            std::thread::sleep(LOOK);
        }
        panic!("it neither ends nor waits for somebody: {last}");
    }

    /// Decides whatever is open.
    fn decides(&self, mut chance: Chance) {
        let _alarm = Alarm(&self.has_failed);
        while !self.all_ended.load(Ordering::SeqCst) {
            let open = ("GET", "/v1/pending?status=open&limit=200");
            let page = self.asks(&mut chance, &self.approver, open, &[], None);
            let page = page.map(|page| page.expect(200)["items"].as_array().unwrap().clone());
            for pending in page.into_iter().flatten() {
                self.decides_on(&mut chance, &pending);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Approves, or says of an unknown outcome what the tools say.
    fn decides_on(&self, chance: &mut Chance, pending: &Value) {
        let id = text(&pending["id"]);
        let body = if pending["kind"] == "resolution" {
            match self.witness.result_of(&pending["resolution"]["call"]) {
                Some(result) => {
                    json!({ "digest": pending["digest"], "outcome": "happened", "result": result })
                }
                None => json!({ "digest": pending["digest"], "outcome": "did_not_happen" }),
            }
        } else {
            let calls = pending["calls"].as_array().unwrap().iter().map(|call| text(&call["id"]).to_owned());
            self.approved.lock().unwrap().extend(calls);
            json!({ "digest": pending["digest"], "verdict": "approve" })
        };
        let path = format!("/v1/pending/{id}/decision");
        let Some(answer) = self.asks(chance, &self.approver, ("POST", &path), &[], Some(&body)) else {
            return;
        };
        if answer.status == 200 {
            self.decided.lock().unwrap().insert(id.to_owned());
            self.settled.fetch_add(u64::from(pending["kind"] == "resolution"), Ordering::SeqCst);
        } else {
            // The other was first, or it was stored and the answer to it was lost; or it is too early to tell.
            let problem = answer.json();
            assert_eq!(answer.status, 409, "{answer:?}");
            assert!(matches!(text(&problem["code"]), "already_decided" | "too_early"), "{problem}");
        }
    }

    // --- afterwards ---

    fn ends_well(&self, accepted: &[String]) {
        let mut chance = Chance(0);
        let mut runs = Vec::new();
        let mut next = String::new();
        loop {
            let path = format!("/v1/runs?limit=200{next}");
            let page = self.asks_until(&mut chance, &self.alice, ("GET", &path), &[], None).expect(200);
            runs.extend(page["items"].as_array().unwrap().clone());
            let Some(cursor) = page["next"].as_str() else { break };
            next = format!("&cursor={cursor}");
        }
        let there: BTreeSet<&str> = runs.iter().map(|run| text(&run["id"])).collect();
        let wanted: BTreeSet<&str> = accepted.iter().map(String::as_str).collect();
        assert_eq!(there, wanted, "one run a key, whoever was killed between storing and answering");
        let poisoned = self.witness.agrees_with(&runs);

        let approved = self.approved.lock().unwrap();
        for call in self.witness.written() {
            assert!(approved.contains(&call), "{call} was made, and nobody approved it");
        }
        for id in &*self.decided.lock().unwrap() {
            let path = format!("/v1/pending/{id}");
            let pending = self.asks_until(&mut chance, &self.approver, ("GET", &path), &[], None).expect(200);
            let stands = matches!(text(&pending["status"]), "approved" | "settled");
            assert!(stands && pending["decision"]["by"] == "bob", "it was accepted: {pending}");
        }
        let doctor = self.folder.run(&["db", "doctor"]);
        assert!(doctor.exit == 0 && doctor.out.starts_with("Nothing was found"), "{doctor:?}");
        println!(
            "{} runs accepted and ended ({poisoned} of them poisoned), {} unknown outcomes settled, {} repeatable \
             writes repeated",
            runs.len(),
            self.settled.load(Ordering::SeqCst),
            self.witness.repeated()
        );
    }
}

/// No process ever says that something broke which a kill does not break.
fn sane(said: &str) {
    for words in ["a fault in the program", "cannot be read"] {
        assert!(!said.contains(words), "{said}");
    }
}

fn killed_on(folder: Folder, roles: &[Role]) {
    let seed = seed("SERVE_KILLS_SEED");
    let kills = chosen("SERVE_KILLS").unwrap_or(KILLS);
    let came = Campaign::new(folder, kills).goes_on(seed, roles);
    for (death, times) in &came.deaths {
        println!("{times:>5}  {death}");
    }
    assert_eq!(came.deaths.values().sum::<u64>(), kills);
    assert!(came.runs >= IN_FLIGHT, "nearly nothing was ever at work: {} runs", came.runs);
    if kills >= KILLS_OF_A_CAMPAIGN {
        // Or it would not notice that writes are repeated.
        assert!(came.unknown > 0, "no kill ever hit a write at work");
        let serving = SERVING.iter().chain(&WORKING).map(|point| Death::Named(point));
        let missed: Vec<String> = serving
            .chain([Death::Random, Death::AtTheTool])
            .filter(|death| !came.deaths.contains_key(death))
            .map(|death| death.to_string())
            .collect();
        assert!(missed.is_empty(), "nobody ever died there: {missed:?}");
    }
}

#[test]
fn rule_r3_a_server_killed_again_and_again_loses_no_run_and_repeats_no_write_on_sqlite() {
    killed_on(Folder::new(), &[Role::Serve]);
}

#[test]
fn rule_r3_servers_and_a_worker_killed_again_and_again_lose_no_run_and_repeat_no_write_on_postgresql() {
    killed_on(Folder::on_postgres(), &[Role::Serve, Role::Serve, Role::Work]);
}
