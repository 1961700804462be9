//! The same work done by rig, in the version that this workspace pins: its OpenAI client and its agent, with the
//! features it has by default. It has no pause for a person, so only whole runs are measured.

use std::convert::Infallible;

use anyhow::Result;
use bench_kit::{PROMPT, Peer, SYSTEM_PROMPT, lookup, measure, model_address, schemas, write_record};
use rig::agent::AgentBuilder;
use rig::providers::openai::{OpenAI, OpenAIConfig};
use rig::tool::PortableTool;
use serde::Deserialize;
use serde_json::Value;

/// More than any script has.
const TURNS_MAX: usize = 1_000_000;

struct Rig(OpenAI);

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    measure(&words, async || {
        let config = OpenAIConfig::new("none").with_base_url(format!("{}/v1", model_address()));
        Ok(Rig(config.client()))
    })
}

impl Peer for Rig {
    async fn run(&self, script: &str) -> Result<String> {
        let agent =
            AgentBuilder::new(self.0.chat(script)).preamble(SYSTEM_PROMPT).default_max_turns(TURNS_MAX);
        let [read, write] = schemas();
        let agent = agent.tool(Lookup(read.parameters)).tool(WriteRecord(write.parameters)).build();
        Ok(agent.prompt(PROMPT).await?.output())
    }
}

struct Lookup(Value);

#[derive(Deserialize)]
struct Id {
    id: u64,
}

impl PortableTool for Lookup {
    const NAME: &'static str = "lookup";
    type Args = Id;
    type Output = String;
    type Error = Infallible;

    fn description(&self) -> String {
        "Look a record up.".to_owned()
    }

    fn parameters(&self) -> Value {
        self.0.clone()
    }

    async fn call(&self, Id { id }: Id) -> Result<String, Infallible> {
        Ok(lookup(id))
    }
}

struct WriteRecord(Value);

#[derive(Deserialize)]
struct IdAndText {
    id: u64,
    text: String,
}

impl PortableTool for WriteRecord {
    const NAME: &'static str = "write_record";
    type Args = IdAndText;
    type Output = String;
    type Error = Infallible;

    fn description(&self) -> String {
        "Write a record.".to_owned()
    }

    fn parameters(&self) -> Value {
        self.0.clone()
    }

    async fn call(&self, IdAndText { id, text }: IdAndText) -> Result<String, Infallible> {
        Ok(write_record(id, &text))
    }
}
