//! `write_file`: a file with exactly this content.

use countersign::Effect;
use serde::Deserialize;

use crate::change::put;
use crate::content::Fingerprint;
use crate::diff::{Side, lines};
use crate::failure::Failure;
use crate::path::WorkspacePath;
use crate::precondition::{Change, Shown, Situation, fitting, judge, present};
use crate::tool::{Facts, FileWork};
use crate::workspace::Visit;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WriteFile {
    path: String,
    content: String,
}

impl FileWork for WriteFile {
    fn facts() -> Facts {
        Facts {
            name: "write_file",
            description: "Write a text file of the workspace: create it, with the folders it needs, or replace all \
                          that is in it. To change a part, use edit_file.",
            effect: Effect::IdempotentWrite,
            parameters: serde_json::json!({
                "path": { "type": "string", "description": "The file, relative to the workspace." },
                "content": { "type": "string", "description": "All that the file is to contain." }
            }),
            required: &["path", "content"],
        }
    }

    fn run(self, visit: &Visit<'_>, promised: Option<&[Change]>) -> Result<String, Failure> {
        let path = WorkspacePath::file(&self.path)?;
        let promised = fitting(promised, [&path])?;
        let wanted = Fingerprint::of(self.content.as_bytes());
        let place = visit.place(&path)?;
        let now = present(&place)?;
        let situation = match promised {
            Some(changes) => {
                changes[0].must_want(Some(&wanted))?;
                judge(changes, [(&path, now.as_ref())])?
            }
            None if now.as_ref() == Some(&wanted) => Situation::AlreadyDone,
            None => Situation::Due,
        };
        let bytes = self.content.len();
        if situation == Situation::AlreadyDone {
            return Ok(format!("`{path}` already has this content ({bytes} bytes)."));
        }
        put(visit, &place, now.as_ref(), self.content.as_bytes())?;
        Ok(format!("{} `{path}` ({bytes} bytes).", if now.is_some() { "Replaced" } else { "Created" }))
    }

    fn preview(self, visit: &Visit<'_>) -> Option<Result<Shown, Failure>> {
        Some(self.shown(visit))
    }
}

impl WriteFile {
    fn shown(&self, visit: &Visit<'_>) -> Result<Shown, Failure> {
        let path = WorkspacePath::file(&self.path)?;
        let place = visit.place(&path)?;
        let now = present(&place)?;
        let wanted = Fingerprint::of(self.content.as_bytes());
        // Read after the fingerprint: if the file changes in between, the promise fails and nothing is done.
        let old = Side::of_file(visit.place(&path)?.file.as_ref())?;
        Ok(Shown {
            lines: lines(&path, &old, &Side::of_text(&self.content)),
            changes: vec![Change::new(&path, now.as_ref(), Some(&wanted))],
        })
    }
}
