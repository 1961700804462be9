//! The page that the tables go into, between two marks.

use std::path::Path;

use anyhow::{Context as _, Result};

const BEGIN: &str = "<!-- measured: begin -->";
const END: &str = "<!-- measured: end -->";

/// Puts the text where the last one was.
pub(crate) fn write(page: &Path, text: &str) -> Result<()> {
    let old = std::fs::read_to_string(page).with_context(|| format!("reading {}", page.display()))?;
    let missing = || format!("{} lacks {BEGIN} or {END}", page.display());
    let (before, rest) = old.split_once(BEGIN).with_context(missing)?;
    let (_, after) = rest.split_once(END).with_context(missing)?;
    std::fs::write(page, format!("{before}{BEGIN}\n\n{text}\n\n{END}{after}"))?;
    Ok(())
}
