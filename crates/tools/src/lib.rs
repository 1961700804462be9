//! # The built-in file tools
//!
//! Seven tools over one folder: list, read, search (group `files`) and write, edit, move, delete (group `editing`).
//! The folder is opened once; nothing outside it can be named, the state of countersign inside it does not exist for
//! them, and configuration and skills are read-only (S2). Writes show a diff before they happen, are atomic, and may
//! be repeated (A7, R3).
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

#[cfg(test)]
mod tests;

use std::sync::Arc;

use countersign::{NotAName, Tool};

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
