//! Tokens: what somebody shows to be recognised.
//!
//! Invariant: a token is 256 random bits, shown once; only its SHA-256 is kept, and compared in a time that does not
//! tell where two differ. It carries a name and no rights: whom it stands for, and what they may, is looked up each time
//! (S1). Not here: where tokens are kept (`store`).

use std::fmt;

use countersign_core::{Subject, TokenId};
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::clock::Clock;

/// What every token begins with, so that a scanner finds one that was left somewhere.
const PREFIX: &str = "cs_";
/// What the id of a token begins with.
const ID_PREFIX: &str = "tok_";

/// What is kept of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRow {
    /// Which.
    pub id: TokenId,
    /// Whom it stands for.
    pub subject: Subject,
    /// The SHA-256 of its secret part.
    pub hash: [u8; 32],
    /// When it was made.
    pub created_at: Timestamp,
    /// Since when it opens nothing.
    pub revoked_at: Option<Timestamp>,
}

/// A token as text. Whoever has it is its subject, so it shows itself only where somebody asks for it.
pub struct Token {
    id: TokenId,
    secret: String,
}

impl fmt::Debug for Token {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Token").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Token {
    /// A new token for somebody, and what to keep of it.
    pub fn new(subject: Subject, clock: &dyn Clock) -> (Self, TokenRow) {
        let id = TokenId::from_random(clock.random());
        let secret = [clock.random(), clock.random()].concat();
        let secret: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        let token = Self { id: id.clone(), secret };
        let hash = token.hash();
        (token, TokenRow { id, subject, hash, created_at: clock.now(), revoked_at: None })
    }

    /// Reads what somebody shows. `None`: this is no token, whatever else it is.
    pub fn parse(text: &str) -> Option<Self> {
        let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
        let is_secret = secret.len() == 64 && secret.bytes().all(|byte| b"0123456789abcdef".contains(&byte));
        let id = TokenId::parse(&format!("{ID_PREFIX}{id}")).ok()?;
        is_secret.then(|| Self { id, secret: secret.to_owned() })
    }

    /// Which token it claims to be.
    pub fn id(&self) -> &TokenId {
        &self.id
    }

    /// The whole of it, to be shown once.
    pub fn text(&self) -> String {
        let id = self.id.as_str();
        format!("{PREFIX}{}_{}", id.strip_prefix(ID_PREFIX).unwrap_or(id), self.secret)
    }

    /// Whether it is the token that was kept, and still good.
    pub fn opens(&self, kept: &TokenRow) -> bool {
        let same: bool = self.hash().ct_eq(&kept.hash).into();
        same && kept.revoked_at.is_none() && kept.id == self.id
    }

    fn hash(&self) -> [u8; 32] {
        Sha256::digest(self.secret.as_bytes()).into()
    }
}

#[cfg(test)]
mod tests {
    use countersign_core::Subject;

    use super::*;
    use crate::clock::SystemClock;

    #[test]
    fn rule_s1_a_token_opens_what_was_kept_of_it_and_nothing_else() {
        let subject = Subject::parse("alice").unwrap();
        let (token, kept) = Token::new(subject.clone(), &SystemClock);
        let (other, _) = Token::new(subject, &SystemClock);
        let shown = Token::parse(&token.text()).unwrap();
        assert_eq!(shown.id(), &kept.id);
        assert!(shown.opens(&kept));
        assert!(!other.opens(&kept));
        // Another secret under the right id.
        let mixed = token.text().replace(&token.secret, &other.secret);
        assert!(!Token::parse(&mixed).unwrap().opens(&kept));
        let revoked = TokenRow { revoked_at: Some(kept.created_at), ..kept };
        assert!(!shown.opens(&revoked));
    }

    #[test]
    fn rule_s5_a_token_is_in_no_debug_output_and_its_secret_is_not_kept() {
        let (token, kept) = Token::new(Subject::parse("alice").unwrap(), &SystemClock);
        assert!(!format!("{token:?}{kept:?}").contains(&token.secret));
    }

    #[test]
    fn rule_s1_what_is_no_token_is_refused_before_anything_is_looked_up() {
        let (token, _) = Token::new(Subject::parse("alice").unwrap(), &SystemClock);
        let text = token.text();
        for wrong in [
            "",
            "cs_",
            "cs__",
            "Bearer x",
            &text[1..],
            &text[..text.len() - 1],
            &format!("{text}0"),
            &text.to_uppercase(),
        ] {
            assert!(Token::parse(wrong).is_none(), "{wrong}");
        }
    }
}
