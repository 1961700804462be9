//! The conversation, without any vendor's spelling.
//!
//! Invariant: what a model said is kept as it was said. Opaque parts go back, byte for byte, to the provider
//! that sent them and to no other (L3). Not here: JSON of a wire (the clients).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::name::{CallId, ProviderName};

/// What the run was started with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InputMessage {
    /// Who says it.
    pub role: InputRole,
    /// What.
    pub text: String,
}

/// Who may speak in the input of a run. There is no system role: that is the agent's prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the two roles are what they say")]
pub enum InputRole {
    User,
    Assistant,
}

/// Why a model stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// It said what it wanted to say, calls included.
    Stop,
    /// The limit of output tokens cut it off; nothing of the turn can be relied on (L8).
    Length,
    /// Something else; the provider's word is in the record.
    Other,
}

/// Tokens of one or several model calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// Tokens read, cached ones included.
    pub input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
    /// Of the tokens read, those served from a cache.
    pub cached_input_tokens: u64,
    /// Attempts that were sent and whose answer told no usage.
    pub unknown_calls: u64,
}

impl Usage {
    /// Adds, and stops at the largest number rather than wrapping around.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            cached_input_tokens: self.cached_input_tokens.saturating_add(other.cached_input_tokens),
            unknown_calls: self.unknown_calls.saturating_add(other.unknown_calls),
        }
    }

    /// What a token budget counts.
    pub fn total_tokens(self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }
}

/// Parts of a provider's answer that we do not understand: names and the raw JSON under them, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Opaque(pub Vec<(String, String)>);

impl Opaque {
    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// One call as a model proposed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProposedCall {
    /// Our id.
    pub id: CallId,
    /// The provider's id, if it sent one. It goes back to that provider only (L9).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire_id: Option<String>,
    /// The name as it was sent; it need not be a name.
    pub name: String,
    /// The text of the arguments as it was sent; absent when there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
    /// What else the provider said about the call.
    #[serde(default, skip_serializing_if = "Opaque::is_empty")]
    pub opaque: Opaque,
}

/// One answer of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reply {
    /// Who answered.
    pub provider: ProviderName,
    /// Which model, as the configuration names it.
    pub model: String,
    /// The text, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The calls, in the model's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ProposedCall>,
    /// Why it stopped.
    pub finish: Finish,
    /// What the calls of this request cost, failed attempts included.
    pub usage: Usage,
    /// How many requests it took.
    pub attempts: u32,
    /// What else the provider said, for that provider only.
    #[serde(default, skip_serializing_if = "Opaque::is_empty")]
    pub opaque: Opaque,
}

/// One message of a request to a model.
#[derive(Clone, Debug, PartialEq)]
pub enum Message<'a> {
    /// The agent's prompt.
    System(&'a str),
    /// What the run was started with.
    Input(&'a InputMessage),
    /// What the model said. Its calls are answered by the results that follow, one each, in order.
    Reply(&'a Reply),
    /// What the model said and is not told again, to make room (L6). Nothing of it is sent, and no results
    /// follow; its calls are numbered all the same, so that the ids of all others stay what they are (L9).
    LeftOut(&'a Reply),
    /// The answer to a call.
    Result {
        /// Which call.
        call: &'a CallId,
        /// The text for the model.
        content: std::borrow::Cow<'a, str>,
        /// Whether it is an error.
        is_error: bool,
    },
}

/// The ids under which one provider sees the calls of a conversation (L9), given out in order as the
/// conversation grows.
///
/// The provider's own id is used where it sent the call itself, the id is not empty and no earlier call of
/// the request carries it. Everything else gets nine characters of ours, the same after every restart.
#[derive(Debug)]
pub struct WireIds {
    provider: ProviderName,
    carried: BTreeSet<String>,
    calls: u64,
}

impl WireIds {
    /// No calls yet.
    pub fn new(provider: ProviderName) -> Self {
        Self { provider, carried: BTreeSet::new(), calls: 0 }
    }

    /// The ids of the next reply's calls, in order.
    pub fn assign(&mut self, reply: &Reply) -> Vec<String> {
        let own = reply.provider == self.provider;
        reply
            .calls
            .iter()
            .map(|call| self.next(call.wire_id.as_deref().filter(|id| own && !id.is_empty())))
            .collect()
    }

    fn next(&mut self, own: Option<&str>) -> String {
        self.calls += 1;
        let id = match own.filter(|id| !self.carried.contains(*id)) {
            Some(own) => own.to_owned(),
            // A provider may have sent ids that look like ours; then the next free one is taken.
            None => (0..36)
                .map(|salt| nine_characters(self.calls, salt))
                .find(|id| !self.carried.contains(id))
                .unwrap_or_else(|| nine_characters(u64::MAX - self.calls, 0)),
        };
        self.carried.insert(id.clone());
        id
    }
}

/// `c`, the number of the call in seven base-36 digits, and one more character for the rare collision.
fn nine_characters(ordinal: u64, salt: u64) -> String {
    const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let digit = |number: u64| char::from(DIGITS[(number % 36) as usize]);
    let mut id = String::with_capacity(9);
    id.push('c');
    for place in (0..7_u32).rev() {
        id.push(digit(ordinal / 36_u64.pow(place)));
    }
    id.push(digit(salt));
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(provider: &str, ids: &[Option<&str>]) -> Reply {
        Reply {
            provider: ProviderName::parse(provider).unwrap(),
            model: "m".into(),
            text: None,
            calls: ids
                .iter()
                .enumerate()
                .map(|(index, id)| ProposedCall {
                    id: CallId::from_random([u8::try_from(index).unwrap(); 16]),
                    wire_id: id.map(str::to_owned),
                    name: "t".into(),
                    arguments: None,
                    opaque: Opaque::default(),
                })
                .collect(),
            finish: Finish::Stop,
            usage: Usage::default(),
            attempts: 1,
            opaque: Opaque::default(),
        }
    }

    fn wire_ids(replies: &[&Reply], provider: &ProviderName) -> Vec<String> {
        let mut ids = WireIds::new(provider.clone());
        replies.iter().flat_map(|reply| ids.assign(reply)).collect()
    }

    #[test]
    fn rule_l9_own_ids_go_back_and_all_others_are_ours() {
        let first = reply("p", &[Some("x"), Some("x"), Some(""), None]);
        let second = reply("q", &[Some("y")]);
        let third = reply("p", &[Some("x"), Some("z")]);
        let all = [&first, &second, &third];
        let p = ProviderName::parse("p").unwrap();
        let ids = wire_ids(&all, &p);
        assert_eq!(ids, ["x", "c00000020", "c00000030", "c00000040", "c00000050", "c00000060", "z"]);
        assert!(
            ids.iter()
                .filter(|id| id.len() == 9)
                .all(|id| id.bytes().all(|byte| byte.is_ascii_alphanumeric()))
        );
        let longer = wire_ids(&[&first, &second, &third, &reply("p", &[Some("new")])], &p);
        assert_eq!(longer[..7], ids[..], "ids never change when the conversation grows");
    }

    #[test]
    fn rule_l9_an_id_that_looks_like_ours_is_no_collision() {
        let sly = reply("p", &[Some("c00000020"), None]);
        assert_eq!(wire_ids(&[&sly], &ProviderName::parse("p").unwrap()), ["c00000020", "c00000021"]);
    }
}
