//! From an approval to the next request at the model, and what that is made of.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use bench_kit::monotonic_ns;
use serde_json::{Value, json};

use crate::Effort;
use crate::http::{Client, Heard, Others};
use crate::place::{Place, Serve};
use crate::table::{Figures, median, spread};

/// Approvals whose waits for the disk are counted.
const COUNTED: usize = 20;
/// Approvals by another process.
const FROM_OUTSIDE: usize = 10;
/// Commits between an approval and the next request at the model that wait for the disk: the decision, the start of the
/// write, its result.
const COMMITS: f64 = 3.0;

pub(crate) async fn measure(
    place: &Place,
    serve: &Serve,
    others: &Others,
    effort: &Effort,
    figures: &mut Figures,
) -> Result<()> {
    let token = place.says(&["token", "create", "--subject", "root", "--admin"])?;
    let mut client = Client::connect(serve.at, Some(&token))?;
    let half = effort.approvals as usize / 2;
    let mut commits = place.commits(effort.approvals / 2).await?;
    let (mut whole, mut tools, mut befores, mut afters) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..2 {
        for question in open(&mut client, half)? {
            let Times { sent, tool, answered, model } = approve(&mut client, others, &question)?;
            let ms = |from: i64, to: i64| (to - from) as f64 / 1e6;
            whole.push(ms(sent, model));
            befores.push(ms(sent, tool));
            tools.push(ms(tool, answered));
            afters.push(ms(answered, model));
        }
        if round == 0 {
            commits.extend(place.commits(effort.approvals / 2).await?);
        }
    }
    let commit = median(commits.clone());
    let tool = median(tools.clone());
    let ours = median(whole.clone()) - tool - COMMITS * commit;
    for (name, samples) in [
        ("an approval sent, to the next request at the model, ms", whole),
        ("… of that, to the call of the tool", befores),
        ("… the tool", tools),
        ("… from its answer to the request", afters),
        ("one commit that waits for this disk, by the database's own client, ms", commits),
    ] {
        figures.push((name.to_owned(), spread(samples)));
    }
    let word = if ours <= 1.0 { "met" } else { "**missed**" };
    figures.push((
        "**ours**: the whole without the tool and three such commits; goal: 1 ms".to_owned(),
        format!("{ours:.2}, {word}"),
    ));
    let counted = counted(place, serve, others, &mut client).await?;
    figures.push((
        "commits that wait for the disk, of an approval up to the end of its run".to_owned(),
        format!("{counted:.2}"),
    ));
    let mut outside = Vec::new();
    for question in open(&mut client, FROM_OUTSIDE)? {
        outside.push(approve_from_outside(place, &mut client, others, &question)?);
    }
    figures.push((
        "`countersign approve` beside `serve`: from starting that process to the call of the tool, ms"
            .to_owned(),
        spread(outside),
    ));
    Ok(())
}

/// So many open questions.
fn open(client: &mut Client, count: usize) -> Result<Vec<Value>> {
    let (page, _) = client.get(&format!("/v1/pending?status=open&limit={count}"))?;
    let items = page["items"].as_array().context("no items")?;
    ensure!(items.len() == count, "only {} are open", items.len());
    Ok(items.clone())
}

/// When it was sent, the tool called, the tool answered, and the model asked.
struct Times {
    sent: i64,
    tool: i64,
    answered: i64,
    model: i64,
}

fn approve(client: &mut Client, others: &Others, question: &Value) -> Result<Times> {
    let body = json!({ "digest": text(question, "digest")?, "verdict": "approve" }).to_string();
    others.forget();
    let sent = monotonic_ns();
    let answer = client.ask(&format!("POST /v1/pending/{}/decision", text(question, "id")?), "", &body)?;
    ensure!(answer.status == 200, "{} {}", answer.status, answer.body);
    let times = Times {
        sent,
        tool: others.when(Heard::Tool)?,
        answered: others.when(Heard::Answered)?,
        model: others.when(Heard::Model)?,
    };
    until_it_ends(client, question)?;
    Ok(times)
}

fn approve_from_outside(
    place: &Place,
    client: &mut Client,
    others: &Others,
    question: &Value,
) -> Result<f64> {
    others.forget();
    let sent = monotonic_ns();
    place.says(&["approve", text(question, "id")?, "--digest", text(question, "digest")?, "--detach"])?;
    let called = others.when(Heard::Tool)?;
    until_it_ends(client, question)?;
    Ok((called - sent) as f64 / 1e6)
}

/// The next one finds nothing of this one in its way.
fn until_it_ends(client: &mut Client, question: &Value) -> Result<()> {
    let ended = client.ask(&format!("GET /v1/runs/{}", text(question, "run")?), "prefer: wait=30\r\n", "")?;
    ensure!(ended.body.contains("\"completed\""), "{} {}", ended.status, ended.body);
    Ok(())
}

fn text<'a>(question: &'a Value, name: &str) -> Result<&'a str> {
    question[name].as_str().with_context(|| format!("no {name}"))
}

/// Approves one, without looking at the clock.
pub(crate) fn approve_one(client: &mut Client, others: &Others, question: &Value) -> Result<()> {
    approve(client, others, question).map(drop)
}

/// How often an approved run waits for the disk, by whoever commits for it.
async fn counted(place: &Place, serve: &Serve, others: &Others, client: &mut Client) -> Result<f64> {
    let questions = open(client, COUNTED)?;
    let counts = place.folder.join("syncs");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-e", "trace=fsync,fdatasync", "-o"]).arg(&counts);
    for process in place.committers(serve).await? {
        strace.args(["-p", &process.to_string()]);
    }
    let mut tracing = strace.spawn().context("starting strace")?;
    std::thread::sleep(std::time::Duration::from_secs(1));
    for question in questions {
        approve(client, others, &question)?;
    }
    let process = rustix::process::Pid::from_child(&tracing);
    rustix::process::kill_process(process, rustix::process::Signal::INT)?;
    tracing.wait()?;
    let waits = std::fs::read_to_string(counts)?.lines().filter(|line| line.contains("sync(")).count();
    Ok(waits as f64 / COUNTED as f64)
}
