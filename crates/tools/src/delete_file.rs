//! `delete_file`: a file gone.
//!
//! Not here: deleting folders.

use countersign::{Effect, ToolPreview};
use serde::Deserialize;
use serde_json::Value;

use crate::change::remove;
use crate::diff::{Side, lines};
use crate::failure::Failure;
use crate::path::WorkspacePath;
use crate::precondition::{Situation, judge, present, promise, read};
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

    fn run(self, visit: &Visit<'_>, precondition: Option<&Value>) -> Result<String, Failure> {
        let path = WorkspacePath::file(&self.path)?;
        let promised = read(precondition, [&path])?;
        let place = visit.place(&path)?;
        let now = present(&place)?;
        if let Some(changes) = promised {
            changes[0].must_want(None)?;
            if judge(&changes, [(&path, now.as_ref())])? == Situation::AlreadyDone {
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

    fn preview(self, visit: &Visit<'_>) -> Option<Result<ToolPreview, Failure>> {
        Some(self.shown(visit))
    }
}

impl DeleteFile {
    fn shown(&self, visit: &Visit<'_>) -> Result<ToolPreview, Failure> {
        let path = WorkspacePath::file(&self.path)?;
        let place = visit.place(&path)?;
        let now = present(&place)?.ok_or_else(|| Failure::Missing(path.clone()))?;
        // Read after the fingerprint: if the file changes in between, the promise fails and nothing is done.
        let old = Side::of_file(visit.place(&path)?.file.as_ref())?;
        Ok(ToolPreview {
            lines: lines(&path, &old, &Side::Absent),
            precondition: Some(promise(&[(&path, Some(&now), None)])),
        })
    }
}
