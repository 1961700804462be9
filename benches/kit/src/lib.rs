//! What every peer does and how it is measured: the same work against the same scripted model.
//!
//! Invariant: a peer is measured by its own process's CPU clock and nothing else of the machine; the model runs
//! in another process. Not here: any peer, and what is made of the numbers (`bin/report.rs`).

mod machine;
mod measure;
mod page;
mod script;
mod work;

pub use machine::machine;
pub use measure::{Peer, Resumes, data_folder, measure, measure_resumes, monotonic_ns, on_one_thread, show};
pub use page::write_section;
pub use script::{NotAScript, Script, Turn};
pub use work::{PROMPT, SYSTEM_PROMPT, ToolSchema, lookup, schemas, write_record};

/// Where the scripted model listens when nobody says otherwise.
pub const MODEL_PORT: u16 = 18181;

/// The scripted model's address, `http://HOST:PORT`: `BENCH_MODEL`, or the usual port of this machine.
pub fn model_address() -> String {
    std::env::var("BENCH_MODEL").unwrap_or_else(|_| format!("http://127.0.0.1:{MODEL_PORT}"))
}
