//! The two tools, as every peer offers and does them.

use std::sync::LazyLock;

use serde_json::{Value, json};

/// What every conversation begins with.
pub const SYSTEM_PROMPT: &str = "You are a helpful agent.";
/// The task.
pub const PROMPT: &str = "Do the work.";

/// How many bytes `lookup` answers; one line when nobody says: `BENCH_RESULT_BYTES`.
static RESULT_BYTES: LazyLock<Option<usize>> =
    LazyLock::new(|| std::env::var("BENCH_RESULT_BYTES").ok().and_then(|bytes| bytes.parse().ok()));

/// Reads a record.
pub fn lookup(id: u64) -> String {
    match *RESULT_BYTES {
        None => format!("record {id}: ok, nothing unusual"),
        Some(bytes) => "All is well with this one. ".chars().cycle().take(bytes).collect(),
    }
}

/// Writes a record; a person must be asked before.
pub fn write_record(id: u64, text: &str) -> String {
    format!("wrote {id}: {text}")
}

/// A tool as models are shown it.
pub struct ToolSchema {
    /// Its name.
    pub name: &'static str,
    /// What models are told.
    pub description: &'static str,
    /// JSON Schema of its arguments.
    pub parameters: Value,
}

/// `lookup` and `write_record`.
pub fn schemas() -> [ToolSchema; 2] {
    let (id, text) = (json!({ "type": "integer" }), json!({ "type": "string" }));
    [
        ToolSchema {
            name: "lookup",
            description: "Look a record up.",
            parameters: json!({ "type": "object", "properties": { "id": id }, "required": ["id"] }),
        },
        ToolSchema {
            name: "write_record",
            description: "Write a record.",
            parameters: json!({
                "type": "object", "properties": { "id": id, "text": text }, "required": ["id", "text"]
            }),
        },
    ]
}
