//! The signature of Standard Webhooks, version 1.
//!
//! Invariant: what is signed is the id, the second and the exact bytes of the body, with points between; neither the id
//! nor the second holds a point, so nothing signed reads as something else.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use zeroize::Zeroizing;

/// How a secret begins.
const PREFIX: &str = "whsec_";
/// How long a secret may be, in bytes.
const LENGTH: std::ops::RangeInclusive<usize> = 24..=64;

/// What a webhook and its receiver share.
#[derive(Clone)]
pub struct WebhookSecret(Zeroizing<Vec<u8>>);

/// A text is no secret of a webhook. It is not repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a secret is whsec_ and then 24 to 64 random bytes in base64")]
pub struct NotASecret;

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("WebhookSecret(hidden)")
    }
}

impl WebhookSecret {
    /// Reads `whsec_` and base64.
    ///
    /// # Errors
    /// [`NotASecret`].
    pub fn parse(text: &str) -> Result<Self, NotASecret> {
        let encoded = text.strip_prefix(PREFIX).ok_or(NotASecret)?;
        let bytes = Zeroizing::new(STANDARD.decode(encoded).map_err(|_| NotASecret)?);
        if LENGTH.contains(&bytes.len()) { Ok(Self(bytes)) } else { Err(NotASecret) }
    }

    /// The signature of a message as it stands in its header.
    pub(super) fn sign(&self, id: &str, second: i64, body: &[u8]) -> String {
        #[expect(clippy::expect_used, reason = "an HMAC takes a key of any length")]
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("any length");
        mac.update(format!("{id}.{second}.").as_bytes());
        mac.update(body);
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

#[cfg(test)]
pub(super) fn sample() -> WebhookSecret {
    WebhookSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vector_of_standard_webhooks() {
        // The values that the reference implementations of Standard Webhooks test with.
        let signed = sample().sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn rule_s5_a_secret_is_read_strictly_and_never_shown() {
        let encoded = |bytes: usize| format!("whsec_{}", STANDARD.encode(vec![7; bytes]));
        for bytes in [24, 32, 64] {
            assert_eq!(format!("{:?}", WebhookSecret::parse(&encoded(bytes))), "Ok(WebhookSecret(hidden))");
        }
        for text in
            ["", "whsec_", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_***", &encoded(23), &encoded(65)]
        {
            assert_eq!(WebhookSecret::parse(text).err(), Some(NotASecret), "{text}");
        }
    }
}
