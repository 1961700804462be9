//! `report COUNTERSIGN PAGE [--quick]`: measures everything in one go and writes the tables into the page.
//!
//! Invariant: peers are measured in turn, round by round, each sample in a process that does nothing else; what is
//! compared was measured minutes apart at most. Not here: what a sample is (`bench_kit`), building.

mod bed;
mod figures;

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use bed::{Bed, FLOOR, MEMORY, RIG, SQLITE, Stored};
use figures::{Figures, Goal, Table, bytes, micros, times};

const TURNS: [u32; 3] = [10, 50, 200];
const PEERS: [&[&str]; 4] = [FLOOR, RIG, MEMORY, SQLITE];
/// A write at once, and one after ten turns.
const ROUND_TRIPS: [&str; 2] = ["write-1", "loop-10w1"];
/// Runs at once or waiting, where their memory is looked at.
const RUNS_IN_MEMORY: u32 = 500;
/// Runs in a database whose size is looked at.
const RUNS_STORED: u32 = 10;

/// How much is measured.
struct Effort {
    rounds: usize,
    /// Runs a process of so many turns each does.
    runs: fn(u32) -> u32,
    round_trips: u32,
    starts: usize,
}

const FULL: Effort = Effort { rounds: 7, runs: |turns| 1000 / turns + 1, round_trips: 20, starts: 5 };
const QUICK: Effort = Effort { rounds: 2, runs: |turns| 300 / turns + 1, round_trips: 5, starts: 3 };

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (countersign, page, effort) = match &words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [countersign, page] => (PathBuf::from(countersign), PathBuf::from(page), FULL),
        [countersign, page, "--quick"] => (PathBuf::from(countersign), PathBuf::from(page), QUICK),
        _ => bail!("say: report COUNTERSIGN PAGE [--quick]"),
    };
    let bed = Bed::set_up(countersign)?;
    let mut figures = Figures::default();
    for round in 0..effort.rounds {
        bed::progress(&format!("round {} of {}", round + 1, effort.rounds));
        measure_round(&bed, &effort, round, &mut figures)?;
    }
    bed::progress("fsyncs, stored bytes, memory");
    measure_once(&bed, &mut figures)?;
    let text = text(&figures, &effort)?;
    println!("{text}");
    bench_kit::write_section(&page, "measured", &text)
}

fn measure_round(bed: &Bed, effort: &Effort, round: usize, figures: &mut Figures) -> Result<()> {
    // Nobody always comes first, or after the same one.
    let mut peers = PEERS;
    peers.rotate_left(round % PEERS.len());
    for turns in TURNS {
        for peer in peers {
            let (turns, runs) = (turns.to_string(), (effort.runs)(turns).to_string());
            for sample in bed.samples(peer, &["turns", &turns, &runs])? {
                figures.add(&["turns", peer.join(" ").as_str(), &turns, "cpu"], number(&sample, "cpu_us")?);
                figures.add(&["turns", peer.join(" ").as_str(), &turns, "wall"], number(&sample, "wall_us")?);
            }
        }
    }
    for script in ROUND_TRIPS {
        for peer in [FLOOR, SQLITE] {
            for sample in bed.samples(peer, &["roundtrip", script, &effort.round_trips.to_string()])? {
                figures
                    .add(&["roundtrip", peer.join(" ").as_str(), script, "cpu"], number(&sample, "cpu_us")?);
                figures.add(
                    &["roundtrip", peer.join(" ").as_str(), script, "wall"],
                    number(&sample, "wall_us")?,
                );
            }
        }
    }
    let project = bed.project()?;
    bed.first_request_of_countersign(&project)?;
    for _ in 0..effort.starts {
        figures.add(&["start", "floor"], bed.first_request(FLOOR, &["cold"])?);
        figures.add(&["start", "again"], bed.first_request_of_countersign(&project)?);
        figures.add(&["start", "new"], bed.first_request_of_countersign(&bed.project()?)?);
    }
    Ok(())
}

/// The transcripts whose stored size is looked at: the script, and how much each `lookup` answers.
const STORED: [(&str, &str, Option<u32>); 5] = [
    ("100 short turns and a write", "loop-100w1", None),
    ("200 short turns", "loop-200", None),
    ("400 short turns", "loop-400", None),
    ("20 turns with results of 2 kB", "loop-20", Some(2_000)),
    ("one result of 200 kB", "loop-1", Some(200_000)),
];

fn measure_once(bed: &Bed, figures: &mut Figures) -> Result<()> {
    for peer in [FLOOR, SQLITE] {
        // What setting up costs is in both, and goes. So few that SQLite does not yet move its log into its file.
        let (few, many) = (1, 9);
        let syncs = |count: u32| bed.syncs(peer, &["roundtrip", "write-1", &count.to_string()]);
        let syncs = (syncs(many)? - syncs(few)?) / f64::from(many - few);
        figures.add(&["syncs", peer.join(" ").as_str()], syncs);
    }
    let stored = |script, result, runs: u32| {
        Stored::open(&bed.sample_with(result, SQLITE, &["stored", script, &runs.to_string()])?)
    };
    let empty = stored("loop-0", None, 0)?.bytes()?;
    for (name, script, result) in STORED {
        let transcript = bed.sample_with(result, FLOOR, &["transcript", script])?;
        let stored = stored(script, result, RUNS_STORED)?;
        figures.add(&["stored", name, "transcript"], number(&transcript, "bytes")?);
        figures.add(&["stored", name, "each"], (stored.bytes()? - empty) / f64::from(RUNS_STORED));
        if script == STORED[0].1 {
            for (table, bytes) in stored.largest()? {
                figures.add(&["pages", &table], bytes / f64::from(RUNS_STORED));
            }
        }
    }
    let runs = RUNS_IN_MEMORY.to_string();
    for peer in PEERS {
        let sample = bed.sample_with(None, peer, &["inflight", &runs])?;
        figures.add(&["inflight", peer.join(" ").as_str()], number(&sample, "kb_per_run")?);
    }
    for peer in [FLOOR, MEMORY, SQLITE] {
        let sample = bed.sample_with(None, peer, &["waiting", &runs])?;
        figures.add(&["waiting", peer.join(" ").as_str()], number(&sample, "kb_per_run")?);
    }
    Ok(())
}

fn number(sample: &Value, member: &str) -> Result<f64> {
    sample[member].as_f64().with_context(|| format!("no {member} in {sample}"))
}

const FLOOR_NAME: &str = "floor";
const MEMORY_NAME: &str = "ours memory";
const SQLITE_NAME: &str = "ours sqlite";

fn text(figures: &Figures, effort: &Effort) -> Result<String> {
    let cpu = |peer: &str, turns: &str| figures.median(&["turns", peer, turns, "cpu"]);
    let growth = |peer: &str| Ok::<_, anyhow::Error>(cpu(peer, "200")? / cpu(peer, "10")?);
    let trip = |peer: &str, script: &str| figures.median(&["roundtrip", peer, script, "cpu"]);
    let start = |which: &str| figures.median(&["start", which]);

    let mut goals = vec![
        Goal::at_most(
            "CPU per turn, 50 turns, memory store",
            2.0,
            cpu(MEMORY_NAME, "50")? / cpu(FLOOR_NAME, "50")?,
            "× floor",
        ),
        Goal::at_most("… SQLite", 4.0, cpu(SQLITE_NAME, "50")? / cpu(FLOOR_NAME, "50")?, "× floor"),
        Goal::at_most(
            "growth of CPU per turn from 10 to 200 turns, memory store",
            1.3,
            growth(MEMORY_NAME)? / growth(FLOOR_NAME)?,
            "× the floor's",
        ),
        Goal::at_most("… SQLite", 1.3, growth(SQLITE_NAME)? / growth(FLOOR_NAME)?, "× the floor's"),
        Goal::at_most(
            "waits for the disk in a round trip",
            6.0,
            figures.median(&["syncs", SQLITE_NAME])?,
            "",
        ),
        Goal::at_most(
            "CPU of a round trip",
            2.5,
            trip(SQLITE_NAME, "write-1")? / trip(FLOOR_NAME, "write-1")?,
            "× floor",
        ),
    ];
    for (name, _, _) in STORED {
        let ratio =
            figures.median(&["stored", name, "each"])? / figures.median(&["stored", name, "transcript"])?;
        goals.push(Goal::at_most(&format!("stored bytes, {name}"), 1.5, ratio, "× transcript"));
    }
    goals.push(Goal::at_most(
        "start to first request, beyond the floor",
        8.0,
        start("again")? - start("floor")?,
        "ms",
    ));

    let mut turns = Table::new(&["µs per turn", "10 turns", "50 turns", "200 turns"]);
    for (kind, word) in [("cpu", "CPU"), ("wall", "wall")] {
        for peer in PEERS {
            let peer = peer.join(" ");
            let cells = TURNS.map(|turns| {
                let turns = turns.to_string();
                figures.spread(&["turns", &peer, &turns, kind], micros)
            });
            turns.row(&format!("{word}, {peer}"), cells)?;
        }
    }
    let mut trips = Table::new(&["round trip, ms", "a write at once", "after ten turns"]);
    for (kind, word) in [("cpu", "CPU"), ("wall", "wall")] {
        for peer in [FLOOR_NAME, SQLITE_NAME] {
            let cells = ROUND_TRIPS.map(|script| {
                figures.spread(&["roundtrip", peer, script, kind], |micros| format!("{:.2}", micros / 1000.0))
            });
            trips.row(&format!("{word}, {peer}"), cells)?;
        }
    }
    for peer in [FLOOR_NAME, SQLITE_NAME] {
        let cell = format!("{:.2}", figures.median(&["syncs", peer])?);
        trips.row(&format!("waits for the disk, {peer}"), [Ok(cell), Ok(String::new())])?;
    }
    let mut stored = Table::new(&["bytes per run", "transcript", "database", "ratio"]);
    for (name, _, _) in STORED {
        let (transcript, each) =
            (figures.median(&["stored", name, "transcript"])?, figures.median(&["stored", name, "each"])?);
        stored.row(name, [bytes(transcript), bytes(each), times(each / transcript)].map(Ok))?;
    }
    let mut pages = Table::new(&["of the first of these", "bytes per run"]);
    for (table, size) in figures.below(&["pages"]) {
        pages.row(&format!("`{table}`"), [Ok(bytes(size))])?;
    }
    let mut starts = Table::new(&["start to first request", "ms"]);
    for (which, name) in [
        ("floor", "floor"),
        ("again", "`countersign run`"),
        ("new", "`countersign run`, making key and database"),
    ] {
        starts.row(name, [figures.spread(&["start", which], |ms| format!("{ms:.1}"))])?;
    }
    let mut memory = Table::new(&["kB per run", "waiting for a person", "waiting for the model"]);
    for peer in PEERS {
        let peer = peer.join(" ");
        let of = |what| figures.median(&[what, &peer]).map_or("–".to_owned(), |kb| format!("{kb:.1}"));
        memory.row(&peer, [Ok(of("waiting")), Ok(of("inflight"))])?;
    }
    let goals = Goal::table(&goals)?;
    let rounds = effort.rounds;
    Ok([
        format!("{}\n\nMedians of {rounds} rounds (least – most).", bench_kit::machine()?),
        goals.to_string(),
        turns.to_string(),
        trips.to_string(),
        stored.to_string(),
        pages.to_string(),
        starts.to_string(),
        memory.to_string(),
    ]
    .join("\n\n"))
}
