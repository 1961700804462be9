//! `move_file`: a file under another path.
//!
//! Invariant: only regular files move, never folders and never links, so no protected place can be moved away with
//! the folder it lies in, and none can be replaced by another (S2). A path that is taken is never taken over.

use countersign::Effect;
use serde::Deserialize;

use crate::change::{is_half_moved, relocate, remove};
use crate::content::Fingerprint;
use crate::failure::Failure;
use crate::path::WorkspacePath;
use crate::precondition::{Change, Shown, Situation, fitting, judge, present};
use crate::tool::{Facts, FileWork};
use crate::workspace::{Place, Visit};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MoveFile {
    from: String,
    to: String,
}

impl FileWork for MoveFile {
    fn facts() -> Facts {
        Facts {
            name: "move_file",
            description: "Move or rename a file of the workspace. Folders that the new path needs are created; a \
                          path that already exists is never replaced.",
            effect: Effect::IdempotentWrite,
            parameters: serde_json::json!({
                "from": { "type": "string", "description": "The file, relative to the workspace." },
                "to": { "type": "string", "description": "Its new path, with its name, relative to the workspace." }
            }),
            required: &["from", "to"],
        }
    }

    fn run(self, visit: &Visit<'_>, promised: Option<&[Change]>) -> Result<String, Failure> {
        let (from, to) = self.places(visit)?;
        let promised = fitting(promised, [&from.path, &to.path])?;
        let (source, target) = (present(&from)?, present(&to)?);
        let moved = || Ok(format!("Moved `{}` to `{}`.", from.path, to.path));
        let Some(changes) = promised else {
            let source = source.ok_or_else(|| Failure::Missing(from.path.clone()))?;
            must_be_free(&to)?;
            relocate(visit, &from, &to, &source)?;
            return moved();
        };
        if let Some(source) = &source
            && is_half_moved(&from, &to)
        {
            changes[1].must_want(Some(source))?;
            remove(visit, &from, source)?;
            return moved();
        }
        let places = [(&from.path, source.as_ref()), (&to.path, target.as_ref())];
        match (judge(changes, places)?, source) {
            (Situation::AlreadyDone, _) => Ok(format!("`{}` is already moved to `{}`.", from.path, to.path)),
            (Situation::Due, Some(source)) => {
                changes[0].must_want(None)?;
                changes[1].must_want(Some(&source))?;
                must_be_free(&to)?;
                relocate(visit, &from, &to, &source)?;
                moved()
            }
            (Situation::Due, None) => Err(Failure::ForeignPrecondition),
        }
    }

    fn preview(self, visit: &Visit<'_>) -> Option<Result<Shown, Failure>> {
        Some(self.shown(visit))
    }
}

impl MoveFile {
    fn places(&self, visit: &Visit<'_>) -> Result<(Place, Place), Failure> {
        let (from, to) = (WorkspacePath::file(&self.from)?, WorkspacePath::file(&self.to)?);
        if from == to { Err(Failure::SamePath) } else { Ok((visit.place(&from)?, visit.place(&to)?)) }
    }

    fn shown(&self, visit: &Visit<'_>) -> Result<Shown, Failure> {
        let (from, to) = self.places(visit)?;
        let source: Fingerprint = present(&from)?.ok_or_else(|| Failure::Missing(from.path.clone()))?;
        must_be_free(&to)?;
        Ok(Shown {
            lines: vec![format!("move {} → {}", from.path, to.path)],
            changes: vec![
                Change::new(&from.path, Some(&source), None),
                Change::new(&to.path, None, Some(&source)),
            ],
        })
    }
}

fn must_be_free(place: &Place) -> Result<(), Failure> {
    if place.file.is_some() { Err(Failure::Exists(place.path.clone())) } else { Ok(()) }
}
