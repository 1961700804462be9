//! `delete_file`: a file gone.
//!
//! Not here: deleting folders.

use countersign::Effect;
use serde::Deserialize;

use crate::change::remove;
use crate::diff::{Side, lines};
use crate::failure::Failure;
use crate::path::WorkspacePath;
use crate::precondition::{Change, Shown, Situation, fitting, judge, present};
use crate::tool::{Facts, FileWork};
use crate::workspace::Visit;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeleteFile {
    path: String,
}

impl FileWork for DeleteFile {
    fn facts() -> Facts {
        Facts {
            name: "delete_file",
            description: "Delete a file of the workspace. Folders cannot be deleted.",
            effect: Effect::IdempotentWrite,
            parameters: serde_json::json!({
                "path": { "type": "string", "description": "The file, relative to the workspace." }
            }),
            required: &["path"],
        }
    }

    fn run(self, visit: &Visit<'_>, promised: Option<&[Change]>) -> Result<String, Failure> {
        let path = WorkspacePath::file(&self.path)?;
        let promised = fitting(promised, [&path])?;
        let place = visit.place(&path)?;
        let now = present(&place)?;
        if let Some(changes) = promised {
            changes[0].must_want(None)?;
            let situation = judge(changes, [(&path, now.as_ref())])?;
            if situation == Situation::AlreadyDone && !changes[0].is_from_nothing() {
                return Ok(format!("`{path}` is already deleted."));
            }
        }
        let Some(now) = now else {
            // Also what a repeat finds, so it is no error.
            return Ok(format!("There is no file `{path}`, so there was nothing to delete."));
        };
        remove(visit, &place, &now)?;
        Ok(format!("Deleted `{path}`."))
    }

    fn preview(self, visit: &Visit<'_>) -> Option<Result<Shown, Failure>> {
        Some(self.shown(visit))
    }
}

impl DeleteFile {
    fn shown(&self, visit: &Visit<'_>) -> Result<Shown, Failure> {
        let path = WorkspacePath::file(&self.path)?;
        let place = visit.place(&path)?;
        let Some(now) = present(&place)? else {
            let lines = vec![format!("no change: there is no file {path}, so there is nothing to delete")];
            return Ok(Shown { lines, changes: vec![Change::new(&path, None, None)] });
        };
        // Read after the fingerprint: if the file changes in between, the promise fails and nothing is done.
        let old = Side::of_file(visit.place(&path)?.file.as_ref())?;
        Ok(Shown {
            lines: lines(&path, &old, &Side::Absent),
            changes: vec![Change::new(&path, Some(&now), None)],
        })
    }
}
