//! `read_file`: the text of a file, or some of its lines.
//!
//! Invariant: the file is read in one pass with bounded memory; an answer that is not the whole file says so and
//! names the line to go on with.

use std::io::{self, BufRead, BufReader, Read as _};

use countersign::Effect;
use serde::Deserialize;

use crate::failure::Failure;
use crate::listing::ANSWER_BYTES_MAX;
use crate::path::WorkspacePath;
use crate::precondition::{Change, Shown};
use crate::tool::{Facts, FileWork};
use crate::workspace::{OpenFile, Visit};

/// How far into a file lines are counted, in bytes.
const SCANNED_BYTES_MAX: u64 = 64 * 1024 * 1024;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadFile {
    path: String,
    from_line: Option<u64>,
    lines: Option<u64>,
}

impl FileWork for ReadFile {
    fn facts() -> Facts {
        Facts {
            name: "read_file",
            description: "Read a text file of the workspace (UTF-8). A long file is read in parts: the answer says \
                          which line to go on with.",
            effect: Effect::Read,
            parameters: serde_json::json!({
                "path": { "type": "string", "description": "The file, relative to the workspace." },
                "from_line": { "type": "integer", "minimum": 1, "description": "The first line to read, counted from 1. Default: 1." },
                "lines": { "type": "integer", "minimum": 1, "description": "How many lines to read. Default: as many as fit into an answer." }
            }),
            required: &["path"],
        }
    }

    fn run(self, visit: &Visit<'_>, _promised: Option<&[Change]>) -> Result<String, Failure> {
        let opened = visit.file(&WorkspacePath::file(&self.path)?)?;
        read(&opened, self.from_line.unwrap_or(1).max(1), self.lines.unwrap_or(u64::MAX))
    }

    fn preview(self, _visit: &Visit<'_>) -> Option<Result<Shown, Failure>> {
        None
    }
}

/// One line within a bound.
struct Line {
    /// Its beginning, at most as long as asked for, with the line end if that fits.
    kept: Vec<u8>,
    /// Its length in the file.
    bytes: u64,
}

fn read(opened: &OpenFile, from: u64, lines: u64) -> Result<String, Failure> {
    let failed = |error: io::Error| Failure::system(&opened.path, &error);
    let not_text = || Failure::NotText(opened.path.clone());
    let size = opened.metadata.len();
    let mut source = BufReader::new((&opened.file).take(SCANNED_BYTES_MAX));
    let (mut number, mut scanned) = (0, 0);
    let mut text = String::new();
    let mut note = None;
    while let Some(line) = next_line(&mut source, ANSWER_BYTES_MAX).map_err(failed)? {
        number += 1;
        scanned += line.bytes;
        if number < from && scanned >= SCANNED_BYTES_MAX {
            return Err(Failure::TooLarge {
                path: opened.path.clone(),
                bytes: size,
                limit: SCANNED_BYTES_MAX,
            });
        }
        if number < from {
            continue;
        }
        let last = number - 1;
        if number - from >= lines {
            note = Some(format!(
                "[lines {from} to {last} of a file of {size} bytes; go on with from_line {number}]"
            ));
            break;
        }
        if scanned >= SCANNED_BYTES_MAX && !line.kept.ends_with(b"\n") {
            break;
        }
        let is_cut = line.bytes > line.kept.len() as u64;
        let line = if is_cut { without_broken_end(line.kept) } else { line.kept };
        let line = String::from_utf8(line).map_err(|_| not_text())?;
        if text.is_empty() && is_cut {
            text = line;
            note = Some(format!(
                "[the beginning of line {number}, which is too long to be shown; the file has {size} bytes; go on with from_line {}]",
                number + 1
            ));
            break;
        }
        if is_cut || text.len() + line.len() > ANSWER_BYTES_MAX {
            note = Some(format!(
                "[lines {from} to {last} of a file of {size} bytes; go on with from_line {number}]"
            ));
            break;
        }
        text.push_str(&line);
    }
    if note.is_none() && scanned >= SCANNED_BYTES_MAX {
        note = Some(format!("[the file has {size} bytes; only the first {SCANNED_BYTES_MAX} are read]"));
    }
    if number == 0 && from == 1 {
        return Ok(format!("[`{}` is empty]", opened.path));
    }
    if number < from && scanned >= SCANNED_BYTES_MAX {
        return Err(Failure::TooLarge { path: opened.path.clone(), bytes: size, limit: SCANNED_BYTES_MAX });
    }
    if number < from {
        return Err(Failure::NoSuchLine { path: opened.path.clone(), count: number, wanted: from });
    }
    if let Some(note) = note {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&note);
    }
    Ok(text)
}

/// The next line, of which at most `limit` bytes are kept.
fn next_line(source: &mut impl BufRead, limit: usize) -> io::Result<Option<Line>> {
    let mut line = Line { kept: Vec::new(), bytes: 0 };
    loop {
        let buffer = match source.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            filled => filled?,
        };
        if buffer.is_empty() {
            return Ok(Some(line).filter(|line| line.bytes > 0));
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(buffer.len(), |end| end + 1);
        let room = limit - line.kept.len();
        line.kept.extend_from_slice(&buffer[..taken.min(room)]);
        line.bytes += taken as u64;
        source.consume(taken);
        if end.is_some() {
            return Ok(Some(line));
        }
    }
}

/// Drops the part of a character that a cut left at the end.
fn without_broken_end(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Err(error) = std::str::from_utf8(&bytes)
        && error.error_len().is_none()
    {
        bytes.truncate(error.valid_up_to());
    }
    bytes
}
