//! Lists, page by page, and the count of what is owed.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::Effort;
use crate::fill::{FEW, MANY, RARE};
use crate::http::Client;
use crate::place::{Place, Serve};
use crate::table::{Figures, spread};

/// What is open, as everybody asks for it.
const OPEN: &str = "/v1/pending?status=open";

pub(crate) fn measure(
    place: &Place,
    serve: &Serve,
    waiting: u32,
    effort: &Effort,
    figures: &mut Figures,
) -> Result<()> {
    let token = |subject: &str, more: &[&str]| {
        let mut words = vec!["token", "create", "--subject", subject];
        words.extend(more);
        place.says(&words)
    };
    let (admin, many, few) = (token("root", &["--admin"])?, token(MANY, &[])?, token(FEW, &[])?);
    let mut admin = Client::connect(serve.at, Some(&admin))?;
    let inbox = walk(&mut admin, OPEN)?;
    ensure!(inbox.items >= waiting as usize, "only {} questions are listed", inbox.items);
    let runs = walk(&mut admin, "/v1/runs?status=waiting_for_approval")?;
    ensure!(runs.items >= waiting as usize, "only {} runs are listed", runs.items);
    for (name, walked) in [("inbox", &inbox), ("list of waiting runs", &runs)] {
        figures.push((
            format!("a page of 200, over the whole {name}, ms"),
            format!("{:.1}", walked.ms_per_page),
        ));
    }
    let rare = format!("{OPEN}&agent={RARE}");
    let failed_of_many = "/v1/runs?status=failed&agent=default";
    let by_admin: [(&str, &str, usize); 10] = [
        ("`GET /v1/pending?status=open`, an administrator: first page of 50, ms", OPEN, 50),
        ("… a page at the end", &inbox.deep, 50),
        ("… of an agent with three", &rare, 3),
        ("`GET /v1/pending`, of any status", "/v1/pending", 50),
        ("`GET /v1/pending?status=denied`, of which there is none", "/v1/pending?status=denied", 0),
        ("`GET /v1/runs`, an administrator: first page of 50, ms", "/v1/runs", 50),
        (
            "`GET /v1/runs?status=waiting_for_approval`, first page",
            "/v1/runs?status=waiting_for_approval",
            50,
        ),
        ("… a page at their end", &runs.deep, 50),
        ("`GET /v1/runs?status=failed`, of which there is none", "/v1/runs?status=failed", 0),
        ("… of an agent with nearly all", failed_of_many, 0),
    ];
    for (name, path, items) in by_admin {
        figures.push((name.to_owned(), timed(&mut admin, path, items, effort)?));
    }
    // Connected only now: the service does not keep a connection that is silent for long.
    let (mut many, mut few) =
        (Client::connect(serve.at, Some(&many))?, Client::connect(serve.at, Some(&few))?);
    let of_many = (waiting as usize / 10).min(50);
    figures.push((
        "`GET /v1/pending?status=open`, a user with one in ten: first page, ms".to_owned(),
        timed(&mut many, OPEN, of_many, effort)?,
    ));
    figures.push(("… a user with three, the last ones".to_owned(), timed(&mut few, OPEN, 3, effort)?));
    figures.push(("`GET /v1/runs`, that user, ms".to_owned(), timed(&mut few, "/v1/runs", 3, effort)?));
    let mut scrapes = Vec::new();
    for _ in 0..10 {
        // What was counted is given out for a second.
        std::thread::sleep(Duration::from_millis(1100));
        let scraped = admin.ask("GET /metrics", "", "")?;
        ensure!(scraped.status == 200, "{} {}", scraped.status, scraped.body);
        scrapes.push(scraped.ms);
    }
    figures.push(("`GET /metrics`, counting anew, ms".to_owned(), spread(scrapes)));
    Ok(())
}

/// A list from its first page to its last, as somebody goes through it who looks for the last one.
struct Walked {
    items: usize,
    ms_per_page: f64,
    /// A page shortly before the end.
    deep: String,
}

fn walk(client: &mut Client, list: &str) -> Result<Walked> {
    let (mut pages, mut items, mut path) = (0, 0, format!("{list}&limit=200"));
    let mut deep = path.clone();
    let began = Instant::now();
    loop {
        let (page, _) = client.get(&path)?;
        pages += 1;
        items += page["items"].as_array().context("no items")?.len();
        let Some(next) = page["next"].as_str() else { break };
        deep = path;
        path = format!("{list}&limit=200&cursor={next}");
    }
    let ms_per_page = began.elapsed().as_secs_f64() * 1e3 / f64::from(pages);
    Ok(Walked { items, ms_per_page, deep: deep.replace("limit=200", "limit=50") })
}

fn timed(client: &mut Client, path: &str, items: usize, effort: &Effort) -> Result<String> {
    let mut samples = Vec::new();
    for _ in 0..effort.samples {
        let (page, ms) = client.get(path)?;
        let found = page["items"].as_array().map(Vec::len);
        ensure!(found == Some(items), "{path}: {found:?} items");
        samples.push(ms);
    }
    Ok(spread(samples))
}

/// Everything that is asked here, once.
pub(crate) fn ask_all(client: &mut Client) -> Result<Value> {
    let next = |page: &Value| page["next"].as_str().map(str::to_owned).context("no second page");
    let (page, _) = client.get(&format!("{OPEN}&limit=200"))?;
    client.get(&format!("{OPEN}&cursor={}", next(&page)?))?;
    let (runs, _) = client.get("/v1/runs?limit=200")?;
    client.get(&format!("/v1/runs?cursor={}", next(&runs)?))?;
    for path in [
        "/v1/pending",
        "/v1/pending?status=denied",
        &format!("{OPEN}&agent={RARE}"),
        "/v1/runs?status=waiting_for_approval",
        "/v1/runs?status=failed",
        "/v1/runs?status=failed&agent=default",
    ] {
        client.get(path)?;
    }
    let scraped = client.ask("GET /metrics", "", "")?;
    ensure!(scraped.status == 200, "{} {}", scraped.status, scraped.body);
    Ok(page["items"][0].clone())
}
