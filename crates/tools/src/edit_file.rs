//! `edit_file`: one place in a text file replaced.
//!
//! Invariant: the text to find occurs exactly once, overlapping occurrences counted, so there is no doubt about the
//! place. Once previewed, the edit is judged by what the whole file is to become, not by finding the text again.

use countersign::Effect;
use serde::Deserialize;

use crate::change::put;
use crate::content::{Fingerprint, text_of};
use crate::diff::{Side, lines};
use crate::failure::Failure;
use crate::path::WorkspacePath;
use crate::precondition::{Change, Shown, Situation, fitting, judge};
use crate::tool::{Facts, FileWork};
use crate::workspace::Visit;

/// The largest file that is edited: it is held in memory, twice.
const EDITED_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// How far occurrences are counted.
const COUNTED_MAX: usize = 100;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EditFile {
    path: String,
    find: String,
    replace: String,
}

impl FileWork for EditFile {
    fn facts() -> Facts {
        Facts {
            name: "edit_file",
            description: "Replace one place in a text file of the workspace. The text to find must occur exactly \
                          once; include enough of the lines around it.",
            effect: Effect::IdempotentWrite,
            parameters: serde_json::json!({
                "path": { "type": "string", "description": "The file, relative to the workspace." },
                "find": { "type": "string", "minLength": 1, "description": "The text to replace, exactly as it is in the file." },
                "replace": { "type": "string", "description": "The text to put in its place." }
            }),
            required: &["path", "find", "replace"],
        }
    }

    fn run(self, visit: &Visit<'_>, promised: Option<&[Change]>) -> Result<String, Failure> {
        let path = WorkspacePath::file(&self.path)?;
        let promised = fitting(promised, [&path])?;
        let place = visit.place(&path)?;
        let old = match (&place.file, &promised) {
            (Some(file), _) => text_of(file, EDITED_BYTES_MAX),
            (None, Some(_)) => Err(Failure::ChangedMeanwhile(path.clone())),
            (None, None) => Err(Failure::Missing(path.clone())),
        }?;
        let now = Fingerprint::of(old.as_bytes());
        let already = format!("`{path}` already has this change.");
        if let Some(changes) = promised
            && judge(changes, [(&path, Some(&now))])? == Situation::AlreadyDone
        {
            return Ok(already);
        }
        let new = self.applied(&path, &old)?;
        let wanted = Fingerprint::of(new.as_bytes());
        if let Some([change]) = promised {
            change.must_want(Some(&wanted))?;
        }
        if wanted == now {
            return Ok(already);
        }
        put(visit, &place, Some(&now), new.as_bytes())?;
        Ok(format!("Edited `{path}` ({} bytes).", new.len()))
    }

    fn preview(self, visit: &Visit<'_>) -> Option<Result<Shown, Failure>> {
        Some(self.shown(visit))
    }
}

impl EditFile {
    fn shown(&self, visit: &Visit<'_>) -> Result<Shown, Failure> {
        let path = WorkspacePath::file(&self.path)?;
        let file = visit.place(&path)?.file.ok_or_else(|| Failure::Missing(path.clone()))?;
        let old = text_of(&file, EDITED_BYTES_MAX)?;
        let new = self.applied(&path, &old)?;
        let (now, wanted) = (Fingerprint::of(old.as_bytes()), Fingerprint::of(new.as_bytes()));
        Ok(Shown {
            lines: lines(&path, &Side::Text(old), &Side::Text(new)),
            changes: vec![Change::new(&path, Some(&now), Some(&wanted))],
        })
    }

    /// The text after the edit.
    fn applied(&self, path: &WorkspacePath, old: &str) -> Result<String, Failure> {
        let mut starts = Vec::new();
        let mut from = 0;
        while let Some(start) = old.get(from..).and_then(|rest| rest.find(&self.find)) {
            starts.push(from + start);
            // One character on, not one occurrence on: "aa" is twice in "aaa".
            from += start + old[from + start..].chars().next().map_or(1, char::len_utf8);
            if starts.len() > COUNTED_MAX {
                break;
            }
        }
        match starts[..] {
            [start] => Ok([&old[..start], &self.replace, &old[start + self.find.len()..]].concat()),
            [] => Err(Failure::FindAbsent(path.clone())),
            _ if starts.len() > COUNTED_MAX => {
                Err(Failure::FindAmbiguous { path: path.clone(), count: format!("more than {COUNTED_MAX}") })
            }
            _ => Err(Failure::FindAmbiguous { path: path.clone(), count: starts.len().to_string() }),
        }
    }
}
