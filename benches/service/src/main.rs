//! `service COUNTERSIGN PAGE [--quick]`: the service among few and among very many waiting runs, on either database.
//!
//! Invariant: the service is the program as it is, asked over HTTP; only filling the database goes by the library. Not
//! here: building, and whether a statement of SQLite scans, whose plans do not depend on how many rows there are: the tests
//! of the store say that.

mod approvals;
mod fill;
mod http;
mod lists;
mod place;
mod plans;
mod table;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use bench_kit::monotonic_ns;
use countersign::{AgentName, Clock as _, Revision, SystemClock};
use serde_json::Value;

use fill::{Pattern, RARE};
use http::{Client, Others};
use place::{Database, Place, Postgres};
use table::{Figures, spread};

/// How much is measured.
struct Effort {
    /// Among how many waiting runs, one after another.
    waiting: [u32; 2],
    samples: u32,
    starts: u32,
    approvals: u32,
}

const FULL: Effort = Effort { waiting: [1_000, 100_000], samples: 30, starts: 5, approvals: 200 };
const QUICK: Effort = Effort { waiting: [200, 2_000], samples: 10, starts: 2, approvals: 30 };

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (countersign, page, effort) = match &words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [countersign, page] => (PathBuf::from(countersign), PathBuf::from(page), FULL),
        [countersign, page, "--quick"] => (PathBuf::from(countersign), PathBuf::from(page), QUICK),
        _ => bail!("say: service COUNTERSIGN PAGE [--quick]"),
    };
    let countersign =
        countersign.canonicalize().with_context(|| format!("finding {}", countersign.display()))?;
    let data = bench_kit::data_folder()?.canonicalize()?;
    let measured = measure_all(&data, &countersign, &effort).await;
    std::fs::remove_dir_all(&data)?;
    let text = format!("{}\n\n{}", bench_kit::machine()?, table::text(&measured?));
    println!("{text}");
    bench_kit::write_section(&page, "service", &text)
}

async fn measure_all(data: &Path, countersign: &Path, effort: &Effort) -> Result<Vec<(String, Figures)>> {
    let others = Others::start()?;
    let mut measured = Vec::new();
    for waiting in effort.waiting {
        let data = data.join(format!("sqlite-{waiting}"));
        let place = Place::new(&data, countersign, Database::Sqlite, others.address())?;
        measured.push((format!("SQLite, {waiting}"), measure(&place, &others, waiting, effort).await?));
        eprintln!("{}", table::text(&measured));
    }
    for waiting in effort.waiting {
        let data = data.join(format!("postgres-{waiting}"));
        let database = Database::Postgres(Postgres::make(&data)?);
        let place = Place::new(&data, countersign, database, others.address())?;
        measured.push((format!("PostgreSQL, {waiting}"), measure(&place, &others, waiting, effort).await?));
    }
    Ok(measured)
}

async fn measure(place: &Place, others: &Others, waiting: u32, effort: &Effort) -> Result<Figures> {
    let mut figures = Figures::new();
    let progress = |what: &str| eprintln!("── {}, {waiting} waiting runs: {what}", place.database.name());
    progress("filling");
    one_to_go_by(place)?;
    fill_up(place, waiting, &mut figures).await?;
    progress("claims");
    claims(place, effort, &mut figures).await?;
    progress("starts");
    let first = place.serve()?.0.cpu_when_idle()?;
    starts(place, effort, &mut figures)?;
    let (serve, _) = place.serve()?;
    for (name, cpu) in [
        ("CPU of the first start, with a look at every open question, s", first),
        ("CPU of a start after that, s", serve.cpu_when_idle()?),
    ] {
        figures.push((name.to_owned(), format!("{cpu:.2}")));
    }
    figures.push(("memory of `serve` after its start, MB".to_owned(), format!("{:.0}", serve.megabytes()?)));
    progress("lists");
    lists::measure(place, &serve, waiting, effort, &mut figures)?;
    figures.push((
        "memory of `serve` after all pages of all lists, MB".to_owned(),
        format!("{:.0}", serve.megabytes()?),
    ));
    progress("approvals");
    approvals::measure(place, &serve, others, effort, &mut figures).await?;
    drop(serve);
    if let Database::Postgres(server) = &place.database
        && effort.waiting.last() == Some(&waiting)
    {
        progress("plans");
        plans::look(place, server, others, &mut figures)?;
    }
    progress("db doctor");
    let began = Instant::now();
    let report: Value = serde_json::from_str(&place.says(&["db", "doctor", "--json"])?)?;
    ensure!(report["findings"].as_array().is_some_and(Vec::is_empty), "the doctor found something: {report}");
    figures.push((
        "`db doctor` over all of them, nothing found, s".to_owned(),
        format!("{:.1}", began.elapsed().as_secs_f64()),
    ));
    Ok(figures)
}

/// The service itself brings one run to its question.
fn one_to_go_by(place: &Place) -> Result<()> {
    let (serve, _) = place.serve()?;
    let token = place.says(&["token", "create", "--subject", "root", "--admin"])?;
    let mut client = Client::connect(serve.at, Some(&token))?;
    let started = client.ask("POST /v1/runs", "prefer: wait=30\r\n", r#"{"input":"Drop page 7"}"#)?;
    ensure!(started.body.contains("waiting_for_approval"), "{} {}", started.status, started.body);
    Ok(())
}

async fn fill_up(place: &Place, waiting: u32, figures: &mut Figures) -> Result<()> {
    place.begin_to_fill()?;
    let began = Instant::now();
    {
        let store = place.open().await?;
        let pattern = Arc::new(Pattern::of(&*store).await?);
        fill::fill(store, pattern, waiting, 8).await?;
    }
    place.filled().await?;
    eprintln!("   filled in {:.0} s", began.elapsed().as_secs_f64());
    figures.push(("size of the database, MB".to_owned(), format!("{:.0}", place.megabytes().await?)));
    Ok(())
}

/// A worker that looks for something to do, where there is nothing, and where there is one run.
async fn claims(place: &Place, effort: &Effort, figures: &mut Figures) -> Result<()> {
    let store = place.open().await?;
    let agents: [AgentName; 2] = ["default".parse()?, RARE.parse()?];
    let lease = Duration::from_secs(30);
    let claim = async || {
        let began = monotonic_ns();
        let claimed = store.claim_any(&agents, "token".to_owned(), SystemClock.now(), lease).await?;
        anyhow::Ok((claimed, (monotonic_ns() - began) as f64 / 1e6))
    };
    let (mut in_vain, mut found) = (Vec::new(), Vec::new());
    for _ in 0..effort.samples {
        let (claimed, ms) = claim().await?;
        ensure!(claimed.is_none(), "something is owed");
        in_vain.push(ms);
    }
    store.create(Pattern::of(&*store).await?.active()?).await?;
    for _ in 0..effort.samples {
        let (claimed, ms) = claim().await?;
        found.push(ms);
        store.release(&claimed.context("nothing is owed")?, Revision::PAST_ALL).await?;
    }
    figures.push(("a worker looks for work, in vain, ms".to_owned(), spread(in_vain)));
    figures.push(("a worker claims the one run that is owed work, ms".to_owned(), spread(found)));
    Ok(())
}

/// From starting the process to its first answer that it is ready.
fn starts(place: &Place, effort: &Effort, figures: &mut Figures) -> Result<()> {
    let mut times = Vec::new();
    for _ in 0..effort.starts {
        times.push(place.serve()?.1);
    }
    figures.push(("start of `serve` to ready, ms".to_owned(), spread(times)));
    // On SQLite there is no other process that works.
    if matches!(place.database, Database::Postgres(_)) {
        let mut times = Vec::new();
        for _ in 0..effort.starts {
            times.push(place.start("work")?.1);
        }
        figures.push(("start of `work` to ready, ms".to_owned(), spread(times)));
    }
    Ok(())
}
