//! How PostgreSQL finds what the service really asks it for, among all these rows, in its own words.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use crate::approvals;
use crate::http::{Client, Others};
use crate::lists;
use crate::place::{Place, Postgres};
use crate::table::Figures;

/// Has everything written down that is sent while a service starts, shows its lists, is counted and is told an approval.
const EXPLAIN: &str = "-c session_preload_libraries=auto_explain -c auto_explain.log_min_duration=0 \
     -c auto_explain.log_analyze=on -c auto_explain.log_timing=off";
/// Where the plans are put.
const PLANS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/plans.txt");

pub(crate) fn look(place: &Place, server: &Postgres, others: &Others, figures: &mut Figures) -> Result<()> {
    server.restart(EXPLAIN)?;
    let before = server.log()?.len();
    {
        let (serve, _) = place.serve()?;
        let token = place.says(&["token", "create", "--subject", "root", "--admin"])?;
        let mut client = Client::connect(serve.at, Some(&token))?;
        let question = lists::ask_all(&mut client)?;
        approvals::approve_one(&mut client, others, &question)?;
    }
    let plans = plans(&server.log()?[before..]);
    server.restart("")?;
    let scans: Vec<&String> = plans.values().filter(|plan| scans(plan)).collect();
    std::fs::write(PLANS, plans.values().map(|plan| format!("{plan}\n\n")).collect::<String>())?;
    let place = Path::new(PLANS).canonicalize()?;
    eprintln!("   {} plans are in {}", plans.len(), place.display());
    scans.iter().for_each(|plan| eprintln!("   a table is scanned:\n{plan}"));
    ensure!(plans.len() > 20, "nothing was written down");
    figures.push((
        "different statements sent by a start, all lists, a count and an approval; those that scan a table"
            .to_owned(),
        format!("{}; {}", plans.len(), scans.len()),
    ));
    Ok(())
}

/// The last plan of each statement.
fn plans(log: &str) -> BTreeMap<String, String> {
    // A message goes on in lines that begin with a tab.
    let messages = log.replace("\n\t", "\t");
    let about = messages.lines().filter_map(|line| line.split_once(" plan:\tQuery Text: "));
    about
        .map(|(_, plan)| plan.replace('\t', "\n"))
        .filter(|plan| {
            ["runs", "events", "pendings"].iter().any(|table| plan.contains(&format!(" on {table}")))
        })
        .map(|plan| (plan.lines().next().unwrap_or_default().to_owned(), plan))
        .collect()
}

/// Whether one of the large tables is read from end to end.
fn scans(plan: &str) -> bool {
    ["runs", "events", "pendings"].iter().any(|table| plan.contains(&format!("Seq Scan on {table}")))
}

impl Postgres {
    fn log(&self) -> Result<String> {
        std::fs::read_to_string(self.folder().join("log")).context("reading the server's log")
    }
}
