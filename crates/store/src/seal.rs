//! Payloads at rest: sealed with XChaCha20-Poly1305, bound to the place where they lie (S3).
//!
//! Invariant: what opens was sealed by this key for this table, column, run and sequence; anything else is an
//! error, never a shorter or an older text. A sealed text names its key, so that after a change of master
//! keys it can be told which one fits. Not here: which key seals what (`vault`), the order of entries
//! (`chain`).

use std::fmt;

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use countersign::Clock;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::mac::mac;

/// The first byte of everything sealed. Frozen: another layout gets another number.
const FORMAT: u8 = 1;
const KEY_ID_BYTES: usize = 8;
const NONCE_BYTES: usize = 24;
pub(crate) const HEADER_BYTES: usize = 1 + KEY_ID_BYTES;

/// The key that everything in a database hangs from. It is wiped when dropped, and shows itself to nobody.
#[derive(Clone)]
pub struct MasterKey(Key);

impl MasterKey {
    /// A key of 32 bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(Key::new(Zeroizing::new(bytes)))
    }

    /// Which key it is, in 32 hex digits; says nothing about the key itself.
    pub fn fingerprint(&self) -> String {
        hex(&mac(self.0.bytes(), "countersign/fingerprint/v1", &[])[..16])
    }

    pub(crate) fn key(&self) -> &Key {
        &self.0
    }

    /// What everything sealed under it begins with.
    pub(crate) fn header(&self) -> [u8; HEADER_BYTES] {
        let mut header = [FORMAT; HEADER_BYTES];
        header[1..].copy_from_slice(&self.0.id);
        header
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "MasterKey({})", self.fingerprint())
    }
}

/// A sealing key: the master key, or the data key of one run.
#[derive(Clone)]
pub(crate) struct Key {
    bytes: Zeroizing<[u8; 32]>,
    id: [u8; KEY_ID_BYTES],
}

impl Key {
    pub(crate) fn new(bytes: Zeroizing<[u8; 32]>) -> Self {
        let mut id = [0; KEY_ID_BYTES];
        id.copy_from_slice(&mac(&bytes, "countersign/key id/v1", &[])[..KEY_ID_BYTES]);
        Self { bytes, id }
    }

    pub(crate) fn random(clock: &dyn Clock) -> Self {
        Self::new(random(clock))
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.bytes
    }

    /// Seals a text for one place: format, key id, nonce, ciphertext.
    pub(crate) fn seal(
        &self,
        clock: &dyn Clock,
        place: Place<'_>,
        text: &[u8],
    ) -> Result<Vec<u8>, NotSealed> {
        let nonce = random(clock);
        let nonce = &nonce[..NONCE_BYTES];
        let mut sealed = Vec::with_capacity(HEADER_BYTES + NONCE_BYTES + text.len() + 16);
        sealed.push(FORMAT);
        sealed.extend_from_slice(&self.id);
        let bound = place.bound(&sealed);
        sealed.extend_from_slice(nonce);
        let nonce = XNonce::try_from(nonce).map_err(|_| NotSealed)?;
        let ciphertext =
            self.cipher().encrypt(&nonce, Payload { msg: text, aad: &bound }).map_err(|_| NotSealed)?;
        sealed.extend_from_slice(&ciphertext);
        Ok(sealed)
    }

    /// Opens what was sealed for this place.
    pub(crate) fn open(&self, place: Place<'_>, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, Unopened> {
        if sealed.first() != Some(&FORMAT) {
            return Err(Unopened::Format);
        }
        let (header, rest) = sealed.split_at_checked(HEADER_BYTES).ok_or(Unopened::Format)?;
        if !bool::from(header[1..].ct_eq(&self.id)) {
            return Err(Unopened::OtherKey);
        }
        let (nonce, ciphertext) = rest.split_at_checked(NONCE_BYTES).ok_or(Unopened::Format)?;
        let nonce = XNonce::try_from(nonce).map_err(|_| Unopened::Format)?;
        self.cipher()
            .decrypt(&nonce, Payload { msg: ciphertext, aad: &place.bound(header) })
            .map(Zeroizing::new)
            .map_err(|_| Unopened::NotThis)
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new((&*self.bytes).into())
    }
}

/// Where a sealed text lies. It opens there and nowhere else.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) table: &'static str,
    pub(crate) column: &'static str,
    /// The run, or nothing.
    pub(crate) run: &'a str,
    /// The place in its log, or 0.
    pub(crate) seq: u64,
}

impl Place<'_> {
    /// The associated data: every part with its length, so that no two places read alike.
    fn bound(self, header: &[u8]) -> Vec<u8> {
        let mut bound = Vec::with_capacity(128);
        for part in [
            header,
            self.table.as_bytes(),
            self.column.as_bytes(),
            self.run.as_bytes(),
            &self.seq.to_be_bytes(),
        ] {
            bound.extend_from_slice(&(part.len() as u64).to_be_bytes());
            bound.extend_from_slice(part);
        }
        bound
    }
}

/// A text is too long to be sealed.
#[derive(Debug, thiserror::Error)]
#[error("the text cannot be sealed")]
pub(crate) struct NotSealed;

/// Why a sealed text does not open. It is kept as it is.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unopened {
    #[error("it is sealed in a format that this countersign does not know")]
    Format,
    #[error("it is sealed under another key")]
    OtherKey,
    #[error("it is not what was sealed here")]
    NotThis,
}

/// Thirty-two random bytes.
pub(crate) fn random(clock: &dyn Clock) -> Zeroizing<[u8; 32]> {
    let mut bytes = Zeroizing::new([0; 32]);
    bytes[..16].copy_from_slice(&clock.random());
    bytes[16..].copy_from_slice(&clock.random());
    bytes
}

/// Lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersign::SystemClock;

    const HERE: Place<'_> = Place { table: "events", column: "sealed", run: "run_a", seq: 3 };

    #[test]
    fn rule_s3_what_is_sealed_opens_only_at_its_place_and_under_its_key() {
        let key = Key::random(&SystemClock);
        let sealed = key.seal(&SystemClock, HERE, b"text").unwrap();
        assert_eq!(**key.open(HERE, &sealed).unwrap(), *b"text");
        for elsewhere in [
            Place { table: "runs", ..HERE },
            Place { column: "key", ..HERE },
            Place { run: "run_b", ..HERE },
            Place { seq: 4, ..HERE },
            Place { table: "event", column: "ssealed", ..HERE },
        ] {
            assert_eq!(key.open(elsewhere, &sealed).unwrap_err(), Unopened::NotThis);
        }
        assert_eq!(Key::random(&SystemClock).open(HERE, &sealed).unwrap_err(), Unopened::OtherKey);
    }

    #[test]
    fn rule_s3_no_byte_of_a_sealed_text_can_be_changed_or_left_out() {
        let key = Key::random(&SystemClock);
        let sealed = key.seal(&SystemClock, HERE, b"text").unwrap();
        for place in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[place] ^= 1;
            assert!(key.open(HERE, &changed).is_err(), "byte {place}");
            assert!(key.open(HERE, &sealed[..place]).is_err(), "the first {place} bytes");
        }
    }

    #[test]
    fn the_same_text_is_never_sealed_alike() {
        let key = Key::random(&SystemClock);
        let seal = || key.seal(&SystemClock, HERE, b"text").unwrap();
        assert_ne!(seal(), seal());
    }

    #[test]
    fn rule_s5_a_master_key_shows_only_its_fingerprint() {
        let key = MasterKey::new([0xab; 32]);
        let shown = format!("{key:?}");
        assert!(!shown.contains("abab") && !shown.contains("171"), "{shown}");
        assert_ne!(key.fingerprint(), MasterKey::new([0xac; 32]).fingerprint());
    }
}
