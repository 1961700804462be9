//! # The built-in tools
//!
//! Seven file tools over one folder: list, read, search (group `files`) and write, edit, move, delete (group `editing`).
//! The folder is opened once; nothing outside it can be named, the state of countersign inside it does not exist for
//! them, wherever in it a folder named `.countersign` lies, and configuration and skills are read-only (S2). Writes
//! show a diff before they happen, are atomic, and may be repeated (A7, R3).
//!
//! What was previewed in one workspace is done in no other. A workspace that was moved, or restored from a backup,
//! counts as another: what was approved for it before is answered "changed meanwhile", and has to be asked again.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let folder = folder.path();
//! use countersign_tools::{Workspace, file_tools};
//!
//! let workspace = Workspace::open(folder, &[".countersign".into()], &["countersign.toml".into(), "skills".into()])?;
//! let names: Vec<String> = file_tools(&workspace)?.iter().map(|tool| tool.spec().name.to_string()).collect();
//! assert_eq!(
//!     names,
//!     ["list_files", "read_file", "search_files", "write_file", "edit_file", "move_file", "delete_file"]
//! );
//! # Ok(())
//! # }
//! ```
//!
//! Two more tell of the installation itself: `list_runs` (group `runs`), the runs of whom a run belongs to, and
//! `system_status` (group `system`), how many of what there are. They read the rows of the store and no log.
//!
//! Not here: whether a call may run and who must be asked (the core), bounds on what comes back (the runtime).

// What may be reached.
mod path;
mod protected;
mod workspace;

// What is said, and what is promised.
mod failure;
mod precondition;

// What is read, shown and changed.
mod change;
mod content;
mod diff;
mod leftover;
mod listing;

// The tools.
mod delete_file;
mod edit_file;
mod list_files;
mod move_file;
mod read_file;
mod search_files;
mod tool;
mod write_file;

// The tools about runs.
mod list_runs;
mod status;
mod system_status;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use countersign::{Clock, NotAName, Store, Tool};

use crate::status::Records;
use crate::tool::FileTool;

pub use workspace::{OpenError, Workspace};

/// The seven file tools over one workspace, for the registry.
///
/// # Errors
/// [`NotAName`], if a name of theirs broke the rules of the contract; the names are constants, so it does not happen.
pub fn file_tools(workspace: &Workspace) -> Result<Vec<Arc<dyn Tool>>, NotAName> {
    Ok(vec![
        Arc::new(FileTool::<list_files::ListFiles>::new(workspace)?),
        Arc::new(FileTool::<read_file::ReadFile>::new(workspace)?),
        Arc::new(FileTool::<search_files::SearchFiles>::new(workspace)?),
        Arc::new(FileTool::<write_file::WriteFile>::new(workspace)?),
        Arc::new(FileTool::<edit_file::EditFile>::new(workspace)?),
        Arc::new(FileTool::<move_file::MoveFile>::new(workspace)?),
        Arc::new(FileTool::<delete_file::DeleteFile>::new(workspace)?),
    ])
}

/// The tools `list_runs` and `system_status` over one store, for the registry. `version` is the program's own.
///
/// ```
/// # use std::sync::Arc;
/// use countersign::{MemoryStore, SystemClock};
/// use countersign_tools::status_tools;
///
/// let tools = status_tools(Arc::new(MemoryStore::new([7; 32])), Arc::new(SystemClock), "0.1.0")?;
/// let names: Vec<String> = tools.iter().map(|tool| tool.spec().name.to_string()).collect();
/// assert_eq!(names, ["list_runs", "system_status"]);
/// # Ok::<(), countersign::NotAName>(())
/// ```
///
/// # Errors
/// [`NotAName`], as for [`file_tools`].
pub fn status_tools(
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    version: &str,
) -> Result<Vec<Arc<dyn Tool>>, NotAName> {
    let records = Records { store, clock };
    Ok(vec![
        Arc::new(list_runs::ListRuns::new(records.clone())?),
        Arc::new(system_status::SystemStatus::new(records, version)?),
    ])
}
