//! How a change is shown to the person who decides (A7).
//!
//! Invariant: what is shown is what is there: a character that a screen would swallow or obey is written out. Not
//! here: the bound on lines and their length, which is the runtime's.

use std::time::Duration;

use similar::{ChangeTag, TextDiff};

use crate::content::bytes_of;
use crate::failure::Failure;
use crate::path::{WorkspacePath, redirects_reading};
use crate::workspace::OpenFile;

/// The largest content that is compared line by line. A person reads at most 200 lines of it.
const COMPARED_BYTES_MAX: u64 = 1024 * 1024;
/// When the search for the smallest difference stops and a correct larger one is shown.
const COMPARE_TIME_MAX: Duration = Duration::from_secs(2);
/// The most lines, of both sides together, that are compared. Beyond them the new content is shown as it is.
const COMPARED_LINES_MAX: usize = 50_000;
/// How many lines of a content are shown that is not compared: more than a person reads.
const SHOWN_LINES_MAX: usize = 1_000;
/// Unchanged lines around a change.
const CONTEXT_LINES: usize = 3;

/// What is on one side of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// There is no file.
    Absent,
    /// Text that can be compared.
    Text(String),
    /// Why it is not compared.
    Opaque(String),
}

impl Side {
    /// The present content of a file.
    pub(crate) fn of_file(file: Option<&OpenFile>) -> Result<Self, Failure> {
        let Some(file) = file else { return Ok(Self::Absent) };
        if file.metadata.len() > COMPARED_BYTES_MAX {
            return Ok(Self::Opaque(format!("{} bytes, too many to compare", file.metadata.len())));
        }
        let text = String::from_utf8(bytes_of(file, COMPARED_BYTES_MAX)?);
        Ok(text.map_or_else(
            |error| Self::Opaque(format!("{} bytes, not text", error.as_bytes().len())),
            Self::Text,
        ))
    }

    /// Content that is to be written.
    pub(crate) fn of_text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// The change as lines: a title, and a unified diff where both sides are text.
pub(crate) fn lines(path: &WorkspacePath, old: &Side, new: &Side) -> Vec<String> {
    let (old_text, new_text) = match (old, new) {
        (Side::Opaque(why), Side::Absent) => return vec![format!("deleted file {path} ({why})")],
        (Side::Opaque(why), Side::Text(new)) => {
            let mut lines = vec![format!("replaced file {path} (before: {why})")];
            lines.extend(compared("/dev/null", &format!("b/{path}"), "", new));
            return lines;
        }
        (old, new) => (text(old), text(new)),
    };
    let title = match (old, new) {
        (Side::Absent, _) => {
            Some(format!("new file {path}{}", if new_text.is_empty() { " (empty)" } else { "" }))
        }
        (_, Side::Absent) => {
            Some(format!("deleted file {path}{}", if old_text.is_empty() { " (empty)" } else { "" }))
        }
        _ if old_text == new_text => Some(format!("no change: {path} already has this content")),
        _ => None,
    };
    let name = |side: &Side, letter: char| {
        if *side == Side::Absent { "/dev/null".to_owned() } else { format!("{letter}/{path}") }
    };
    title.into_iter().chain(compared(&name(old, 'a'), &name(new, 'b'), old_text, new_text)).collect()
}

fn text(side: &Side) -> &str {
    match side {
        Side::Text(text) => text,
        Side::Absent | Side::Opaque(_) => "",
    }
}

fn compared(old_name: &str, new_name: &str, old: &str, new: &str) -> Vec<String> {
    let [old_lines, new_lines] = [old, new].map(|text| text.lines().count());
    if old_lines + new_lines > COMPARED_LINES_MAX {
        let (sign, side) = if new.is_empty() { ('-', old) } else { ('+', new) };
        let mut lines = vec![
            format!("--- {old_name}"),
            format!("+++ {new_name}"),
            format!("@@ -1,{old_lines} +1,{new_lines} @@ too many lines to compare"),
        ];
        lines.extend(side.split('\n').take(SHOWN_LINES_MAX).map(|line| format!("{sign}{}", shown(line))));
        lines.push(format!("[{} more lines]", side.lines().count().saturating_sub(SHOWN_LINES_MAX)));
        return lines;
    }
    let diff = TextDiff::configure().timeout(COMPARE_TIME_MAX).diff_lines(old, new);
    let mut unified = diff.unified_diff();
    let mut lines = Vec::new();
    for hunk in unified.context_radius(CONTEXT_LINES).iter_hunks() {
        if lines.is_empty() {
            lines.extend([format!("--- {old_name}"), format!("+++ {new_name}")]);
        }
        lines.push(hunk.header().to_string());
        for change in hunk.iter_changes() {
            let sign = match change.tag() {
                ChangeTag::Equal => ' ',
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
            };
            let line = change.value();
            lines.push(format!("{sign}{}", shown(line.strip_suffix('\n').unwrap_or(line))));
            if change.missing_newline() {
                lines.push("\\ No newline at end of file".to_owned());
            }
        }
    }
    lines
}

/// A line with everything written out that a screen would not show as itself.
fn shown(line: &str) -> String {
    let hides = |character: char| {
        (character.is_control() && character != '\t')
            || redirects_reading(character)
            || matches!(character, '\u{ad}' | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2064}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
    };
    let mut shown = String::with_capacity(line.len());
    for character in line.chars() {
        let code = u32::from(character);
        match char::from_u32(0x2400 + code) {
            Some(picture) if code < 0x20 && hides(character) => shown.push(picture),
            _ if hides(character) => shown.push_str(&format!("<U+{code:04X}>")),
            _ => shown.push(character),
        }
    }
    shown
}
