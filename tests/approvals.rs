//! Many who approve one question at once: one word counts, one call is made, and everybody else is told whose it was.
//!
//! How often a call was made is read off the tool's own record, not off ours.

use std::collections::BTreeSet;
use std::sync::Barrier;

use serde_json::{Value, json};

use crate::support::model::{Server, calls, says};
use crate::support::serve::{Answer, Client, Serve};
use crate::support::tool::{Comes, ToolServer};
use crate::support::{Done, Folder, declared, text};

const APPROVERS: [&str; 4] = ["ada", "ben", "cleo", "dan"];

struct Bench {
    folder: Folder,
    tool: ToolServer,
    _model: Server,
}

fn bench(folder: Folder) -> Bench {
    let tool = ToolServer::start(Comes::Answer(200, b"{\"content\":\"ok\"}".to_vec()));
    let model = Server::start_by_task(|_, replies| {
        if replies == 0 { calls(&[("page", json!({ "id": 1 }))]) } else { says("done") }
    });
    let how = format!("http = \"{}\"\ntimeout = \"20s\"", tool.url);
    folder.configure(model.url(), &declared("page", &how, "write", ""));
    Bench { folder, tool, _model: model }
}

/// All of them do it at the same moment.
fn at_once<T: Send>(count: usize, act: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let start = Barrier::new(count);
    std::thread::scope(|scope| {
        let begin = |index| {
            let (start, act) = (&start, &act);
            scope.spawn(move || {
                start.wait();
                act(index)
            })
        };
        let acts: Vec<_> = (0..count).map(begin).collect();
        acts.into_iter().map(|act| act.join().unwrap()).collect()
    })
}

/// Who won, by what everybody was told.
enum Told {
    Won(String),
    Lost(String),
}

fn over_http(answer: &Answer) -> Told {
    if answer.status == 200 {
        return Told::Won(text(&answer.json()["decision"]["by"]).to_owned());
    }
    let refused = answer.refused(409, "already_decided");
    let by = text(&refused["decision"]["by"]).to_owned();
    assert_eq!(refused["decision"]["verdict"], "approve", "{refused}");
    assert!(text(&refused["detail"]).starts_with(&format!("{by} has already decided")), "{refused}");
    Told::Lost(by)
}

fn by_command(who: &str, done: &Done) -> Told {
    if done.exit == 0 {
        return Told::Won(who.to_owned());
    }
    assert_eq!(done.exit, 5, "{done:?}");
    let sentence = done.one_sentence();
    assert!(sentence.contains("already_decided"), "{sentence}");
    let named = APPROVERS.into_iter().find(|who| sentence.contains(&format!("{who} has already decided")));
    Told::Lost(named.unwrap_or_else(|| panic!("the winner is not named: {sentence}")).to_owned())
}

/// One word counted, all others were told whose, and the tool was called once.
fn one_effect(bench: &Bench, alice: &Client, run: &Value, told: &[Told]) {
    let won: Vec<&String> =
        told.iter().filter_map(|told| if let Told::Won(by) = told { Some(by) } else { None }).collect();
    let [winner] = won[..] else { panic!("they won: {won:?}") };
    let named: BTreeSet<&String> = told
        .iter()
        .map(|told| match told {
            Told::Won(by) | Told::Lost(by) => by,
        })
        .collect();
    assert_eq!(named, BTreeSet::from([winner]), "everybody is told of the same one");
    let id = text(&run["id"]);
    assert_eq!(alice.run(id)["status"], "completed");
    let made = bench.tool.calls().iter().filter(|(_, body)| body["run"] == *id).count();
    assert_eq!(made, 1, "the tool's own record");
    let kinds = alice.kinds(id);
    let count = |kind: &str| kinds.iter().filter(|seen| *seen == kind).count();
    assert_eq!(
        (count("pending.decided"), count("pending.refused"), count("call.started")),
        (1, 0, 1),
        "{kinds:?}"
    );
}

fn approvers(serve: &Serve, folder: &Folder) -> [Client; 4] {
    APPROVERS.map(|who| serve.client(folder, who, &["--approver"]))
}

#[test]
fn rule_a9_of_twenty_and_of_a_hundred_approvals_at_once_over_two_servers_one_has_an_effect() {
    let bench = bench(Folder::on_postgres());
    let serves = [Serve::start(&bench.folder), Serve::start(&bench.folder)];
    let alice = serves[0].client(&bench.folder, "alice", &[]);
    let approvers = approvers(&serves[0], &bench.folder);
    for count in [20, 100] {
        let run = alice.start("x");
        let answers = at_once(count, |index| {
            let approver = serves[index % 2].stranger().with_token(approvers[index / 2 % 4].token());
            approver.decide(&run["pending"], json!({ "verdict": "approve" }))
        });
        one_effect(&bench, &alice, &run, &answers.iter().map(over_http).collect::<Vec<_>>());
    }
    assert!(bench.folder.run(&["db", "doctor"]).expect(0).out.contains("Nothing was found"));
}

#[test]
fn rule_a9_of_twenty_and_of_a_hundred_approvals_at_once_by_a_server_and_commands_one_has_an_effect() {
    let bench = bench(Folder::new());
    let serve = Serve::start(&bench.folder);
    let alice = serve.client(&bench.folder, "alice", &[]);
    let approvers = approvers(&serve, &bench.folder);
    for count in [20, 100] {
        let run = alice.start("x");
        let pending = &run["pending"];
        let told = at_once(count, |index| {
            let who = index / 2 % 4;
            if index % 2 == 0 {
                return over_http(&approvers[who].decide(pending, json!({ "verdict": "approve" })));
            }
            let (id, digest) = (text(&pending["id"]), text(&pending["digest"]));
            let arguments = ["approve", id, "--digest", digest, "--as", APPROVERS[who], "--detach"];
            by_command(APPROVERS[who], &bench.folder.run(&arguments))
        });
        one_effect(&bench, &alice, &run, &told);
    }
    assert!(bench.folder.run(&["db", "doctor"]).expect(0).out.contains("Nothing was found"));
}
