//! A witness of what really happened: three tools outside the program, and what they were asked.
//!
//! A run reads, then writes what may be repeated, then writes what may not, and asks again for what did not
//! happen. So whoever kills the program, and however often, the tools' own record says whether a write came
//! twice or not at all. The program's own tables are never asked.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::model::{Play, calls, says};
use super::tool::{Comes, ToolServer};
use super::{Folder, declared, text};

/// The tools.
pub(crate) struct Witness {
    get: ToolServer,
    save: ToolServer,
    drop: ToolServer,
}

/// How often each run called with each key.
type Ledger = BTreeMap<String, BTreeMap<String, usize>>;

/// What the model says next in a run that uses each tool once.
pub(crate) fn next_turn(request: &Value) -> Play {
    let said: Vec<&str> = request["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| text(&message["content"]))
        .collect();
    let next =
        ["get", "save", "drop"].into_iter().find(|tool| !said.contains(&format!("{tool} done").as_str()));
    next.map_or_else(|| says("done"), |tool| calls(&[(tool, json!({ "id": 1 }))]))
}

impl Witness {
    /// Starts the tools and declares them; each works this long.
    pub(crate) fn declare(folder: &Folder, [get, save, drop]: [Duration; 3]) -> Self {
        let tool = |name: &str, effect: &str, takes: Duration| {
            let done = json!({ "content": format!("{name} done") }).to_string();
            let tool = ToolServer::start(Comes::Takes(takes, done.into()));
            let how = format!("http = \"{}\"", tool.url);
            folder.configure_more(&declared(name, &how, effect, "timeout = \"2s\""));
            tool
        };
        Self {
            get: tool("get", "read", get),
            save: tool("save", "idempotent_write", save),
            drop: tool("drop", "write", drop),
        }
    }

    /// How many calls there were so far.
    pub(crate) fn count(&self) -> usize {
        self.get.count() + self.save.count() + self.drop.count()
    }

    /// How many calls there were so far of the write that must not come twice.
    pub(crate) fn plain_writes(&self) -> usize {
        self.drop.count()
    }

    /// What a write of this call answered, if it happened.
    pub(crate) fn result_of(&self, call: &Value) -> Option<&'static str> {
        let happened = |tool: &ToolServer| tool.calls().iter().any(|(_, body)| body["call"] == *call);
        [("save done", &self.save), ("drop done", &self.drop)]
            .into_iter()
            .find_map(|(result, tool)| happened(tool).then_some(result))
    }

    /// The calls of writes that happened.
    pub(crate) fn written(&self) -> Vec<String> {
        let calls = self.save.calls().into_iter().chain(self.drop.calls());
        calls.map(|(_, body)| text(&body["call"]).to_owned()).collect()
    }

    /// How many writes came again, with the key of an earlier one.
    pub(crate) fn repeated(&self) -> usize {
        let saved = ledger(&self.save);
        saved.values().flat_map(BTreeMap::values).map(|times| times - 1).sum()
    }

    /// Whether each of these runs, which have ended, did what it says and did it once, and nobody else did
    /// anything. Says how many were ended because their reads ended too many workers.
    pub(crate) fn agrees_with(&self, runs: &[Value]) -> usize {
        let (got, saved, dropped) = (ledger(&self.get), ledger(&self.save), ledger(&self.drop));
        let mut poisoned = 0;
        for run in runs {
            let times = |ledger: &Ledger| {
                ledger.get(text(&run["id"])).map(|keys| keys.values().copied().collect()).unwrap_or_default()
            };
            let (got, saved, dropped): (Vec<usize>, Vec<usize>, Vec<usize>) =
                (times(&got), times(&saved), times(&dropped));
            // A read that ended its worker three times ends the run, before anything was asked.
            if run["error"]["code"] == "poisoned" {
                assert!(saved.is_empty() && dropped.is_empty(), "{run}");
                poisoned += 1;
                continue;
            }
            assert_eq!(run["status"], "completed", "{run}");
            assert!(!got.is_empty(), "{run}");
            assert_eq!(saved.len(), 1, "one call, however often it came, under one key: {run}");
            assert_eq!(dropped, [1], "an approved write happens once: {run}");
        }
        let known = |id: &String| runs.iter().any(|run| run["id"] == **id);
        assert!(
            [&got, &saved, &dropped].iter().flat_map(|ledger| ledger.keys()).all(known),
            "of runs that are there"
        );
        poisoned
    }
}

fn ledger(tool: &ToolServer) -> Ledger {
    let mut runs = Ledger::new();
    for (key, body) in tool.calls() {
        *runs.entry(text(&body["run"]).to_owned()).or_default().entry(key).or_default() += 1;
    }
    runs
}
