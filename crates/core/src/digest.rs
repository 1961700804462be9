//! A SHA-256, written `sha256:` and 64 hex digits.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::name::NotAName;

/// What was seen, in 32 bytes (A6).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

impl Digest {
    pub(crate) fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The 32 bytes.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Parses `sha256:` and 64 lower-case hex digits.
    ///
    /// # Errors
    /// [`NotAName`] for any other text.
    pub fn parse(text: &str) -> Result<Self, NotAName> {
        let refused =
            || NotAName { kind: "a digest", rule: "sha256: and 64 hex digits", text: text.to_owned() };
        let hex = text.strip_prefix("sha256:").ok_or_else(refused)?.as_bytes();
        if hex.len() != 64 {
            return Err(refused());
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(hex.chunks_exact(2)) {
            let digit = |letter: u8| match letter {
                b'0'..=b'9' => Some(letter - b'0'),
                b'a'..=b'f' => Some(letter - b'a' + 10),
                _ => None,
            };
            *byte = digit(pair[0]).ok_or_else(refused)? << 4 | digit(pair[1]).ok_or_else(refused)?;
        }
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for Digest {
    type Error = NotAName;
    fn try_from(text: String) -> Result<Self, NotAName> {
        Self::parse(&text)
    }
}

impl std::str::FromStr for Digest {
    type Err = NotAName;
    fn from_str(text: &str) -> Result<Self, NotAName> {
        Self::parse(text)
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> String {
        digest.to_string()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}
