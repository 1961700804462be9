//! Names and ids: parsed once, or not at all.
//!
//! Invariant: a value of these types keeps the alphabet of the contract. Names are compared byte for byte
//! and never repaired (G10): what does not parse is unknown.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Why a text is not a name or an id of the wanted kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {kind}: {rule}")]
pub struct NotAName {
    /// What was wanted, with its article.
    pub kind: &'static str,
    /// The rule it breaks, in words.
    pub rule: &'static str,
    /// The text as it was given.
    pub text: String,
}

macro_rules! parsed_name {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $rule:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Parses a name; nothing is trimmed, folded or repaired.
            ///
            /// # Errors
            /// [`NotAName`], naming the rule that the text breaks.
            pub fn parse(text: &str) -> Result<Self, NotAName> {
                let check: fn(&str) -> bool = $check;
                if check(text) {
                    Ok(Self(Arc::from(text)))
                } else {
                    Err(NotAName { kind: $kind, rule: $rule, text: text.to_owned() })
                }
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = NotAName;
            fn try_from(text: String) -> Result<Self, NotAName> {
                Self::parse(&text)
            }
        }

        impl std::str::FromStr for $name {
            type Err = NotAName;
            fn from_str(text: &str) -> Result<Self, NotAName> {
                Self::parse(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0.as_ref().to_owned()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(out, "{:?}", &*self.0)
            }
        }
    };
}

parsed_name!(
    /// The name of a tool, as a model calls it.
    ToolName, "a tool name", "1 to 64 of A-Z a-z 0-9 _ -", is_tool_name
);
parsed_name!(
    /// The family a tool belongs to (G1).
    GroupName, "a group name", "1 to 64 of a-z 0-9 _ . - and first a letter or digit", is_plain_name
);
parsed_name!(
    /// A named configuration that runs are started with.
    AgentName, "an agent name", "1 to 64 of a-z 0-9 _ . - and first a letter or digit", is_plain_name
);
parsed_name!(
    /// A person or a service, as the record names them (S2).
    Subject, "a subject", "1 to 128 of A-Z a-z 0-9 _ . @ : - and first a letter or digit",
    |text| {
        (1..=128).contains(&text.len())
            && text.as_bytes()[0].is_ascii_alphanumeric()
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.@:-".contains(&byte))
    }
);
parsed_name!(
    /// A model provider of the configuration.
    ProviderName, "a provider name", "1 to 64 of a-z 0-9 _ . - and first a letter or digit", is_plain_name
);
parsed_name!(
    /// A webhook of the configuration.
    WebhookName, "a webhook name", "1 to 64 of a-z 0-9 _ . - and first a letter or digit", is_plain_name
);
parsed_name!(
    /// A remote (MCP) server.
    ServerName, "a server name", "1 to 32 of a-z 0-9 - and neither first nor last a -",
    |text| {
        let bytes = text.as_bytes();
        (1..=32).contains(&bytes.len())
            && bytes.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-')
            && bytes[0] != b'-'
            && bytes[bytes.len() - 1] != b'-'
    }
);

impl ToolName {
    /// Whether a text is a tool name. In a `const` it checks a program's own text when that is compiled.
    pub const fn is_valid(text: &str) -> bool {
        is_tool_name(text)
    }
}

impl GroupName {
    /// Whether a text is a group name, as [`ToolName::is_valid`].
    pub const fn is_valid(text: &str) -> bool {
        is_plain_name(text)
    }
}

const fn is_tool_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if !matches!(bytes[at], b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-') {
            return false;
        }
        at += 1;
    }
    1 <= at && at <= 64
}

const fn is_plain_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let fits = match bytes[at] {
            b'a'..=b'z' | b'0'..=b'9' => true,
            b'_' | b'.' | b'-' => at > 0,
            _ => false,
        };
        if !fits {
            return false;
        }
        at += 1;
    }
    1 <= at && at <= 64
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $prefix:literal) => {
        parsed_name!(
            $(#[$doc])*
            $name, $kind, "its prefix and 1 to 40 of A-Z a-z 0-9",
            |text| text.strip_prefix($prefix).is_some_and(|rest| {
                (1..=40).contains(&rest.len()) && rest.bytes().all(|byte| byte.is_ascii_alphanumeric())
            })
        );

        impl $name {
            /// A new id from 16 random bytes, of which 100 bits are used.
            pub fn from_random(bytes: [u8; 16]) -> Self {
                Self(Arc::from(format!("{}{}", $prefix, twenty_letters(bytes))))
            }
        }
    };
}

id!(
    /// One execution of an agent.
    RunId, "a run id", "run_"
);
id!(
    /// One thing that a person must settle.
    PendingId, "a pending id", "pnd_"
);
id!(
    /// One tool call of one turn. Ours; a provider's own id is never the key of anything (L9).
    CallId, "a call id", "call_"
);

id!(
    /// One token that somebody was given. It names the token and opens nothing.
    TokenId, "a token id", "tok_"
);

/// Twenty characters of five bits each: no vowels that spell words, no characters that look alike.
fn twenty_letters(bytes: [u8; 16]) -> String {
    const ALPHABET: &[u8; 32] = b"0123456789bcdfghjkmnpqrstvwxyzAC";
    let mut bits = u128::from_be_bytes(bytes);
    (0..20)
        .map(|_| {
            let letter = ALPHABET[(bits & 31) as usize];
            bits >>= 5;
            char::from(letter)
        })
        .collect()
}

/// A model of a provider, written `provider/model` and split at the first `/`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ModelRef {
    /// The provider that serves it.
    pub provider: ProviderName,
    /// The model's name at that provider, as it goes on the wire.
    pub model: String,
}

impl ModelRef {
    /// Parses `provider/model`.
    ///
    /// # Errors
    /// [`NotAName`] when there is no `/`, no model, or the provider's part is no name.
    pub fn parse(text: &str) -> Result<Self, NotAName> {
        let refused = |rule| NotAName { kind: "a model", rule, text: text.to_owned() };
        let (provider, model) = text.split_once('/').ok_or(refused("PROVIDER/MODEL, with a / between"))?;
        if model.is_empty() || model.chars().any(char::is_control) {
            return Err(refused("PROVIDER/MODEL, with a model after the /"));
        }
        Ok(Self { provider: ProviderName::parse(provider)?, model: model.to_owned() })
    }
}

impl TryFrom<String> for ModelRef {
    type Error = NotAName;
    fn try_from(text: String) -> Result<Self, NotAName> {
        Self::parse(&text)
    }
}

impl From<ModelRef> for String {
    fn from(model: ModelRef) -> String {
        model.to_string()
    }
}

impl fmt::Display for ModelRef {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.provider, self.model)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_g10_names_are_never_repaired() {
        for text in ["", " page_get", "page_get ", "page.get", "page\u{200b}get", "ｐage", &"a".repeat(65)] {
            assert!(ToolName::parse(text).is_err(), "{text:?}");
        }
        assert_ne!(ToolName::parse("Page").unwrap(), ToolName::parse("page").unwrap());
    }

    #[test]
    fn a_model_is_split_at_the_first_slash() {
        let model = ModelRef::parse("router/vendor/model").unwrap();
        assert_eq!((model.provider.as_str(), model.model.as_str()), ("router", "vendor/model"));
        assert!(ModelRef::parse("alone").is_err());
        assert!(ModelRef::parse("router/").is_err());
    }

    #[test]
    fn ids_carry_their_prefix() {
        let id = CallId::from_random([7; 16]);
        assert_eq!(CallId::parse(id.as_str()).unwrap(), id);
        assert!(RunId::parse(id.as_str()).is_err());
    }
}
