//! HMAC-SHA256 over labelled fields.
//!
//! Invariant: the encoding is injective. Every field stands behind its length and the label comes first, so
//! two different lists of fields, or the same list for two purposes, never give the same bytes.

use hmac::{Hmac, KeyInit, Mac as _};
use sha2::Sha256;
use subtle::ConstantTimeEq;
use zeroize::Zeroize;

/// A message authentication code.
pub(crate) type Mac = [u8; 32];

/// The MAC of these fields for this purpose.
pub(crate) fn mac(key: &[u8; 32], label: &str, fields: &[&[u8]]) -> Mac {
    // A key shorter than a block is padded with zeros, which is what HMAC does by itself.
    let mut block = [0; 64];
    block[..32].copy_from_slice(key);
    let mut code = Hmac::<Sha256>::new((&block).into());
    block.zeroize();
    for field in std::iter::once(label.as_bytes()).chain(fields.iter().copied()) {
        code.update(&(field.len() as u64).to_be_bytes());
        code.update(field);
    }
    code.finalize().into_bytes().into()
}

/// Whether a stored code is the expected one, in a time that does not tell where they differ.
pub(crate) fn same(expected: &Mac, stored: &[u8]) -> bool {
    expected.as_slice().ct_eq(stored).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_do_not_run_into_each_other() {
        let key = [1; 32];
        let one = mac(&key, "l", &[b"ab", b"c"]);
        for other in [
            mac(&key, "l", &[b"a", b"bc"]),
            mac(&key, "l", &[b"abc"]),
            mac(&key, "l", &[b"ab", b"c", b""]),
            mac(&key, "la", &[b"b", b"c"]),
            mac(&[2; 32], "l", &[b"ab", b"c"]),
        ] {
            assert!(!same(&one, &other));
        }
        assert!(same(&one, &mac(&key, "l", &[b"ab", b"c"])));
        assert!(!same(&one, &one[..31]));
    }
}
