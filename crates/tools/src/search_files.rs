//! `search_files`: the lines that contain a text.
//!
//! Invariant: files, bytes and answer are bounded, and an answer that is not complete says why.

use countersign::Effect;
use serde::Deserialize;

use crate::content::bytes_of;
use crate::failure::Failure;
use crate::listing::{ANSWER_BYTES_MAX, Kind, list};
use crate::path::WorkspacePath;
use crate::precondition::{Change, Shown};
use crate::tool::{Facts, FileWork};
use crate::workspace::{Folder, OpenFile, Visit};

/// How many lines are answered when the call does not say, and at most.
const MATCHES_DEFAULT: u64 = 100;
const MATCHES_MAX: u64 = 1_000;
/// How many files are opened.
const FILES_MAX: usize = 20_000;
/// The largest file that is searched, in bytes.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// How much is searched in all, in bytes: what fits well into a call's time.
const SEARCHED_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// How far into a file a NUL byte is looked for, which says that it is no text.
const TEXT_CHECKED_BYTES: usize = 8 * 1024;
/// How much of a line is shown, in characters.
const LINE_CHARS_MAX: usize = 300;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SearchFiles {
    text: String,
    path: Option<String>,
    limit: Option<u64>,
}

impl FileWork for SearchFiles {
    fn facts() -> Facts {
        Facts {
            name: "search_files",
            description: "Search the text files of the workspace for a text, literally and with its case. Answers \
                          `path:line: text` for each line that contains it.",
            effect: Effect::Read,
            parameters: serde_json::json!({
                "text": { "type": "string", "minLength": 1, "description": "The text to find: part of one line, not a pattern." },
                "path": { "type": "string", "description": "The folder or file to search, relative to the workspace. Default: the workspace, except .git." },
                "limit": { "type": "integer", "minimum": 1, "maximum": MATCHES_MAX, "description": "At most this many lines. Default: 100." }
            }),
            required: &["text"],
        }
    }

    fn run(self, visit: &Visit<'_>, _promised: Option<&[Change]>) -> Result<String, Failure> {
        if self.text.is_empty() || self.text.contains('\n') {
            return Err(Failure::NotALine);
        }
        let mut search = Search {
            text: &self.text,
            matches_left: self.limit.unwrap_or(MATCHES_DEFAULT).min(MATCHES_MAX),
            files_left: FILES_MAX,
            bytes_left: SEARCHED_BYTES_MAX,
            found: String::new(),
            skipped: 0,
            stopped: None,
        };
        let path = WorkspacePath::folder(self.path.as_deref().unwrap_or("."))?;
        match visit.folder(&path) {
            Ok(folder) => search.folder(visit, &folder, 0)?,
            Err(Failure::NotAFolder(_)) => search.file(&visit.file(&path)?)?,
            Err(failure) => return Err(failure),
        }
        Ok(search.answer())
    }

    fn preview(self, _visit: &Visit<'_>) -> Option<Result<Shown, Failure>> {
        None
    }
}

struct Search<'t> {
    text: &'t str,
    matches_left: u64,
    files_left: usize,
    bytes_left: u64,
    found: String,
    /// Files that could not be searched, or were too large.
    skipped: usize,
    stopped: Option<&'static str>,
}

impl Search<'_> {
    fn folder(&mut self, visit: &Visit<'_>, folder: &Folder, depth: usize) -> Result<(), Failure> {
        let listing = list(visit, folder)?;
        for entry in &listing.entries {
            let searched = match entry.kind {
                Kind::File => visit
                    .file_in(folder, &entry.name)
                    .and_then(|file| file.map_or(Ok(()), |file| self.file(&file))),
                Kind::Folder if entry.is_entered(depth) => {
                    visit.enter(folder, &entry.name).and_then(|below| self.folder(visit, &below, depth + 1))
                }
                Kind::Folder | Kind::Link | Kind::Other => Ok(()),
            };
            if searched.is_err() {
                self.skipped += 1;
            }
            if self.stopped.is_some() {
                return Ok(());
            }
        }
        self.skipped += usize::from(listing.is_partial);
        Ok(())
    }

    fn file(&mut self, opened: &OpenFile) -> Result<(), Failure> {
        if self.files_left == 0 || self.bytes_left < opened.metadata.len().min(FILE_BYTES_MAX) {
            self.stopped = Some("there is more to search than one call does");
            return Ok(());
        }
        let bytes = bytes_of(opened, FILE_BYTES_MAX)?;
        self.files_left -= 1;
        self.bytes_left = self.bytes_left.saturating_sub(bytes.len() as u64);
        if bytes.iter().take(TEXT_CHECKED_BYTES).any(|byte| *byte == 0) {
            return Ok(());
        }
        let content = String::from_utf8_lossy(&bytes);
        if !content.contains(self.text) {
            return Ok(());
        }
        for (number, line) in content.lines().enumerate().filter(|(_, line)| line.contains(self.text)) {
            let shown: String = line.chars().take(LINE_CHARS_MAX).collect();
            let more = if shown.len() < line.len() { "…" } else { "" };
            let line = format!("{}:{}: {shown}{more}\n", opened.path, number + 1);
            if self.matches_left == 0 || self.found.len() + line.len() > ANSWER_BYTES_MAX {
                self.stopped = Some("there are more lines than are shown");
                return Ok(());
            }
            self.matches_left -= 1;
            self.found.push_str(&line);
        }
        Ok(())
    }

    fn answer(mut self) -> String {
        if self.found.is_empty() && self.stopped.is_none() {
            self.found.push_str("No line contains the text.\n");
        }
        if let Some(why) = self.stopped {
            self.found
                .push_str(&format!("[stopped early: {why}; search a folder below, or a longer text]\n"));
        }
        if self.skipped > 0 {
            self.found.push_str(&format!(
                "[{} files or folders too large or not readable were skipped]\n",
                self.skipped
            ));
        }
        self.found.truncate(self.found.trim_end().len());
        self.found
    }
}
