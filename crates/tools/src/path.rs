//! A path as a tool may name it: parsed once, or not at all.
//!
//! Invariant: a [`WorkspacePath`] is a list of plain names below the root of the workspace. No `..`, no absolute
//! path, no name that another system would read as something else. `.` and doubled slashes mean nothing and are
//! dropped; everything else is kept byte for byte, so `%2e%2e` is a name like any other.
//!
//! Not here: whether something exists, is a link, or may be touched (`workspace`, `protected`).

use std::fmt;

/// The longest path that is read, in bytes: what Linux itself takes.
const PATH_BYTES_MAX: usize = 4096;
/// The longest name in a path, in bytes: what common file systems take.
const NAME_BYTES_MAX: usize = 255;
/// The most names in a path. Every one of them is opened, so there is a bound.
const NAMES_MAX: usize = 128;

/// Why a text is not a path that the file tools use. The sentence is for the model and does not repeat the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PathError {
    #[error("The path is empty.")]
    Empty,
    #[error("The path must be relative to the workspace, not absolute.")]
    Absolute,
    #[error("The path must not contain `..`.")]
    Parent,
    #[error("The path contains a control character or an invisible direction mark.")]
    Unprintable,
    #[error(
        "The path contains a backslash, a drive letter, or a name that ends in a dot or a space. Separate names with `/`."
    )]
    OtherSystem,
    #[error(
        "The path is too long: at most {PATH_BYTES_MAX} bytes, {NAMES_MAX} names, and {NAME_BYTES_MAX} bytes in a name."
    )]
    TooLong,
    #[error("The path names a folder, and a file is needed.")]
    Folder,
}

/// A parsed path. The empty list of names is the root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WorkspacePath {
    names: Vec<String>,
}

impl WorkspacePath {
    /// The path of a file: at least one name, and nothing after it.
    pub(crate) fn file(text: &str) -> Result<Self, PathError> {
        let path = Self::folder(text)?;
        if path.names.is_empty() || text.ends_with('/') || text.ends_with("/.") {
            return Err(PathError::Folder);
        }
        Ok(path)
    }

    /// The path of a folder; `.` is the root.
    pub(crate) fn folder(text: &str) -> Result<Self, PathError> {
        if text.is_empty() {
            return Err(PathError::Empty);
        }
        if text.len() > PATH_BYTES_MAX {
            return Err(PathError::TooLong);
        }
        if text.chars().any(|character| character.is_control() || redirects_reading(character)) {
            return Err(PathError::Unprintable);
        }
        if text.starts_with('/') {
            return Err(PathError::Absolute);
        }
        let names: Vec<&str> = text.split('/').filter(|name| !name.is_empty() && *name != ".").collect();
        if names.contains(&"..") {
            return Err(PathError::Parent);
        }
        if text.contains('\\')
            || has_drive_letter(text)
            || names.iter().any(|name| name.ends_with(['.', ' ']))
        {
            return Err(PathError::OtherSystem);
        }
        if names.len() > NAMES_MAX || names.iter().any(|name| name.len() > NAME_BYTES_MAX) {
            return Err(PathError::TooLong);
        }
        Ok(Self { names: names.into_iter().map(str::to_owned).collect() })
    }

    /// One name deeper. The name comes from a listing, so it is checked like any other.
    pub(crate) fn child(&self, name: &str) -> Result<Self, PathError> {
        if name.contains('/') {
            return Err(PathError::Folder);
        }
        let Self { names: mut last } = Self::file(name)?;
        let mut names = self.names.clone();
        names.append(&mut last);
        if names.len() > NAMES_MAX { Err(PathError::TooLong) } else { Ok(Self { names }) }
    }

    /// The names from the root down.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// The folders on the way, and the last name. `None` for the root.
    pub(crate) fn split(&self) -> Option<(&[String], &str)> {
        self.names.split_last().map(|(last, parents)| (parents, last.as_str()))
    }
}

impl fmt::Display for WorkspacePath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.names.is_empty() { out.write_str(".") } else { out.write_str(&self.names.join("/")) }
    }
}

/// Characters that make text look like other text where a person decides: direction marks and line separators.
pub(crate) fn redirects_reading(character: char) -> bool {
    matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn has_drive_letter(text: &str) -> bool {
    matches!(text.as_bytes(), [letter, b':', ..] if letter.is_ascii_alphabetic())
}
