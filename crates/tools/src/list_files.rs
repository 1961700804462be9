//! `list_files`: what is in a folder.

use countersign::Effect;
use serde::Deserialize;

use crate::failure::Failure;
use crate::listing::{ANSWER_BYTES_MAX, Kind, list};
use crate::path::WorkspacePath;
use crate::precondition::{Change, Shown};
use crate::tool::{Facts, FileWork};
use crate::workspace::{Folder, Visit};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListFiles {
    path: Option<String>,
    #[serde(default)]
    recursive: bool,
}

impl FileWork for ListFiles {
    fn facts() -> Facts {
        Facts {
            name: "list_files",
            description: "List the files and folders in a folder of the workspace, one path a line, folders with a \
                          trailing /. Symbolic links are marked and not followed.",
            effect: Effect::Read,
            parameters: serde_json::json!({
                "path": { "type": "string", "description": "The folder, relative to the workspace. Default: the workspace itself." },
                "recursive": { "type": "boolean", "description": "Also list what is in the folders below, except in .git. Default: false." }
            }),
            required: &[],
        }
    }

    fn run(self, visit: &Visit<'_>, _promised: Option<&[Change]>) -> Result<String, Failure> {
        let path = WorkspacePath::folder(self.path.as_deref().unwrap_or("."))?;
        let mut paths = Paths::default();
        paths.add(visit, &visit.folder(&path)?, self.recursive, 0)?;
        if paths.text.is_empty() && paths.notes.is_empty() {
            return Ok(format!("The folder `{path}` is empty."));
        }
        if paths.unusable > 0 {
            paths.notes.push(format!("[{} more with names that cannot be used here]", paths.unusable));
        }
        Ok(paths.text + &paths.notes.join("\n"))
    }

    fn preview(self, _visit: &Visit<'_>) -> Option<Result<Shown, Failure>> {
        None
    }
}

#[derive(Default)]
struct Paths {
    text: String,
    notes: Vec<String>,
    unusable: usize,
    is_full: bool,
}

impl Paths {
    fn add(
        &mut self,
        visit: &Visit<'_>,
        folder: &Folder,
        recursive: bool,
        depth: usize,
    ) -> Result<(), Failure> {
        let listing = list(visit, folder)?;
        self.unusable += listing.unusable;
        for entry in &listing.entries {
            let path = folder.path.child(&entry.name)?;
            let line = match entry.kind {
                Kind::Folder => format!("{path}/\n"),
                Kind::File => format!("{path}\n"),
                Kind::Link => format!("{path} (symbolic link, not followed)\n"),
                Kind::Other => format!("{path} (not a file)\n"),
            };
            if self.text.len() + line.len() > ANSWER_BYTES_MAX {
                self.is_full = true;
                self.notes.push(format!(
                    "[stopped before {path}: the list is too long; list a folder below instead]"
                ));
            }
            if self.is_full {
                return Ok(());
            }
            self.text.push_str(&line);
            if recursive && entry.is_entered(depth) {
                match visit
                    .enter(folder, &entry.name)
                    .and_then(|below| self.add(visit, &below, true, depth + 1))
                {
                    Ok(()) => {}
                    // A folder that vanished or may not be read spoils no list.
                    Err(_) if self.notes.len() < 20 => {
                        self.notes.push(format!("[{path}/ could not be read]"));
                    }
                    Err(_) => {}
                }
                if self.is_full {
                    return Ok(());
                }
            }
        }
        if listing.is_partial {
            self.notes.push(format!("[{} has more entries than are listed]", folder.path));
        }
        Ok(())
    }
}
