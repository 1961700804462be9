//! The measurements, written once for all peers. Each prints one JSON object a sample.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

/// Whoever does the work.
pub trait Peer: Send + Sync + 'static {
    /// Does all of a script that writes nothing, and says the text at the end.
    fn run(&self, script: &str) -> impl Future<Output = Result<String>> + Send;
}

/// Whoever can stop before a write, for as long as a person thinks, and go on in another process.
pub trait Resumes: Peer {
    /// What the other process must know.
    type Ticket: Send;

    /// Runs until a write waits, and keeps the run where the other process will find it.
    fn hold(&self, script: &str) -> impl Future<Output = Result<Self::Ticket>> + Send;

    /// Takes a held run up, approved, and runs it to its end.
    fn release(&self, ticket: Self::Ticket) -> impl Future<Output = Result<String>> + Send;
}

/// Runs what the command line says of a peer that cannot pause:
/// `turns N REPETITIONS` | `inflight RUNS` | `cold`.
///
/// # Errors
/// When the words are none of these, or the peer fails.
pub fn measure<P: Peer>(words: &[String], new: impl AsyncFn() -> Result<P>) -> Result<()> {
    on_one_thread(async {
        match &words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["turns", turns, repetitions] => {
                by_turn(new().await?, turns.parse()?, repetitions.parse()?).await
            }
            ["inflight", runs] => in_flight(new().await?, runs.parse()?).await,
            ["cold"] => finished(&new().await?.run("loop-0").await?),
            _ => anyhow::bail!("say: turns N REPETITIONS | inflight RUNS | cold"),
        }
    })
}

/// The same for one that can pause, also: `roundtrip SCRIPT REPETITIONS` | `waiting RUNS`.
///
/// # Errors
/// When the words are none of these, or the peer fails.
pub fn measure_resumes<P: Resumes>(words: &[String], new: impl AsyncFn() -> Result<P>) -> Result<()> {
    match &words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["roundtrip", script, repetitions] => on_one_thread(async {
            round_trips(new().await?, new().await?, script, repetitions.parse()?).await
        }),
        ["waiting", runs] => on_one_thread(async { waiting(new().await?, runs.parse()?).await }),
        _ => measure(words, new),
    }
}

/// Prints a sample.
pub fn show(sample: &Value) {
    println!("{sample}");
}

/// Where peers keep their files: on the disk of the checkout, never in a file system that is memory.
///
/// # Errors
/// When it cannot be made.
pub fn data_folder() -> Result<PathBuf> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/data"))
        .join(std::process::id().to_string());
    std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    Ok(folder)
}

/// The machine's steady clock, which all of its processes share.
pub fn monotonic_ns() -> i64 {
    nanoseconds(ClockId::Monotonic)
}

fn nanoseconds(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Works as peers are measured: on one thread, whatever they start beside it.
///
/// # Errors
/// Those of the work.
pub fn on_one_thread(work: impl Future<Output = Result<()>>) -> Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

/// CPU of this process, all threads, user and system; and the time on the wall.
struct Spent {
    cpu_ns: i64,
    since: Instant,
}

impl Spent {
    fn from_here() -> Self {
        Self { cpu_ns: nanoseconds(ClockId::ProcessCPUTime), since: Instant::now() }
    }

    /// In microseconds, over so many units.
    fn sample(&self, units: u32) -> Value {
        let cpu = Duration::from_nanos((nanoseconds(ClockId::ProcessCPUTime) - self.cpu_ns).unsigned_abs());
        let micros = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(units);
        json!({ "cpu_us": micros(cpu), "wall_us": micros(self.since.elapsed()) })
    }
}

fn finished(text: &str) -> Result<()> {
    ensure!(text.contains("done"), "not finished: {text:?}");
    Ok(())
}

async fn by_turn(peer: impl Peer, turns: u32, repetitions: u32) -> Result<()> {
    peer.run("loop-10").await?;
    for _ in 0..repetitions {
        let spent = Spent::from_here();
        let text = peer.run(&format!("loop-{turns}")).await?;
        show(&spent.sample(turns));
        finished(&text)?;
    }
    Ok(())
}

async fn round_trips<P: Resumes>(one: P, other: P, script: &str, repetitions: u32) -> Result<()> {
    for repetition in 0..=repetitions {
        let spent = Spent::from_here();
        let ticket = one.hold(script).await?;
        let text = other.release(ticket).await?;
        if repetition > 0 {
            show(&spent.sample(1));
        }
        finished(&text)?;
    }
    Ok(())
}

/// Resident memory of this process, in kilobytes.
fn resident_kb() -> Result<i64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

fn show_memory(before_kb: i64, runs: u32) -> Result<()> {
    let kb_per_run = (resident_kb()? - before_kb) as f64 / f64::from(runs);
    show(&json!({ "kb_per_run": kb_per_run, "before_kb": before_kb }));
    Ok(())
}

async fn waiting<P: Resumes>(peer: P, runs: u32) -> Result<()> {
    let mut tickets = vec![peer.hold("write-1").await?];
    let before = resident_kb()?;
    for _ in 0..runs {
        tickets.push(peer.hold("write-1").await?);
    }
    show_memory(before, runs)
}

/// Runs that all wait for the model's first answer.
async fn in_flight<P: Peer>(peer: P, runs: u32) -> Result<()> {
    let peer = Arc::new(peer);
    peer.run("loop-2").await?;
    let before = resident_kb()?;
    let tasks: Vec<_> = (0..runs)
        .map(|_| {
            let peer = Arc::clone(&peer);
            tokio::spawn(async move { peer.run("loop-1-l8000").await })
        })
        .collect();
    // Long before the first answer, and long after the last request.
    tokio::time::sleep(Duration::from_secs(6)).await;
    show_memory(before, runs)?;
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    Ok(())
}
