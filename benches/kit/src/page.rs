//! The pages that results go into, each between two marks of its own.

use std::path::Path;

use anyhow::{Context as _, Result};

/// Puts the text where the last one of this name was.
///
/// # Errors
/// When the page cannot be read or written, or lacks the marks.
pub fn write_section(page: &Path, name: &str, text: &str) -> Result<()> {
    let (begin, end) = (format!("<!-- {name}: begin -->"), format!("<!-- {name}: end -->"));
    let old = std::fs::read_to_string(page).with_context(|| format!("reading {}", page.display()))?;
    let missing = || format!("{} lacks {begin} or {end}", page.display());
    let (before, rest) = old.split_once(&begin).with_context(missing)?;
    let (_, after) = rest.split_once(&end).with_context(missing)?;
    std::fs::write(page, format!("{before}{begin}\n\n{text}\n\n{end}{after}"))?;
    Ok(())
}
