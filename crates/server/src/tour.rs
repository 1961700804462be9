//! The scratch copy of the tour files, over which the demo script runs.
//!
//! Invariant: only what lies in the scratch folder is ever removed or written here.

use std::io;
use std::path::{Path, PathBuf};

use countersign_clients::tour_files;

/// The scratch folder in the folder of the state.
pub(crate) fn folder(state: &Path) -> PathBuf {
    state.join("tour")
}

/// Makes the copy anew. The folder itself stays: another process may have it open.
pub(crate) fn remake(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            std::fs::remove_dir_all(entry.path())?;
        } else {
            std::fs::remove_file(entry.path())?;
        }
    }
    tour_files().iter().try_for_each(|(name, text)| std::fs::write(folder.join(name), text))
}

/// Makes the copy if there is none.
pub(crate) fn ensure(folder: &Path) -> io::Result<()> {
    if folder.is_dir() { Ok(()) } else { remake(folder) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_is_made_anew_and_left_alone_otherwise() {
        let state = tempfile::tempdir().unwrap();
        let folder = folder(state.path());
        ensure(&folder).unwrap();
        let notice = folder.join("opening-hours.md");
        std::fs::write(&notice, "changed").unwrap();
        std::fs::create_dir(folder.join("new")).unwrap();
        ensure(&folder).unwrap();
        assert_eq!(std::fs::read_to_string(&notice).unwrap(), "changed");
        remake(&folder).unwrap();
        assert!(std::fs::read_to_string(&notice).unwrap().contains("71:00"));
        assert!(!folder.join("new").exists());
    }
}
