//! A credential that does not show itself.
//!
//! Invariant: neither `Debug` nor any error of this crate holds the text (S5). There is no `Display`, no
//! serialisation and no comparison; only this crate can read it.

use std::fmt;

/// A credential, for one header of one provider.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// Takes the text as it is; nothing is trimmed.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Secret(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_s5_debug_hides_the_text() {
        assert_eq!(format!("{:?}", Some(Secret::new("key-SECRET-2".into()))), "Some(Secret(hidden))");
    }
}
