//! What is in a file: its fingerprint, and its text within a bound.
//!
//! Invariant: no file, however large, is held in memory beyond the bound the caller names.

use std::fmt;
use std::io::{self, Read as _};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::failure::Failure;
use crate::workspace::OpenFile;

/// The largest file that the editing tools replace, move or delete: it is read in full to know that it is still the
/// one that was previewed, and that must fit into a call's time.
pub(crate) const CHANGED_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// The SHA-256 of a file's content, in hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Fingerprint(String);

impl Fingerprint {
    /// Of bytes in memory.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self::from_hasher(Sha256::new_with_prefix(bytes))
    }

    /// Of a file, read from its start.
    pub(crate) fn of_file(opened: &OpenFile) -> Result<Self, Failure> {
        if opened.metadata.len() > CHANGED_BYTES_MAX {
            return Err(too_large(opened, CHANGED_BYTES_MAX));
        }
        let mut hasher = Sha256::new();
        let mut source = (&opened.file).take(CHANGED_BYTES_MAX + 1);
        let mut buffer = vec![0; 64 * 1024];
        let mut bytes = 0;
        loop {
            match source.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => {
                    hasher.update(&buffer[..count]);
                    bytes += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Failure::system(&opened.path, &error)),
            }
        }
        if bytes > CHANGED_BYTES_MAX {
            Err(too_large(opened, CHANGED_BYTES_MAX))
        } else {
            Ok(Self::from_hasher(hasher))
        }
    }

    fn from_hasher(hasher: Sha256) -> Self {
        Self(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// All bytes of a file of at most `limit` bytes.
pub(crate) fn bytes_of(opened: &OpenFile, limit: u64) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = (&opened.file).take(limit + 1).read_to_end(&mut bytes);
    read.map_err(|error| Failure::system(&opened.path, &error))?;
    if bytes.len() as u64 > limit { Err(too_large(opened, limit)) } else { Ok(bytes) }
}

/// The text of a file of at most `limit` bytes.
pub(crate) fn text_of(opened: &OpenFile, limit: u64) -> Result<String, Failure> {
    String::from_utf8(bytes_of(opened, limit)?).map_err(|_| Failure::NotText(opened.path.clone()))
}

fn too_large(opened: &OpenFile, limit: u64) -> Failure {
    Failure::TooLarge { path: opened.path.clone(), bytes: opened.metadata.len(), limit }
}
