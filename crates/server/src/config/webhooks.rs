//! `[webhooks.NAME]`: who is told that a run waits, and of what else.
//!
//! Invariant: a target that is not declared otherwise is public and spoken to in TLS. The secret is in the environment;
//! the file names its variable. Not here: telling (`crate::webhooks`).

use std::collections::BTreeSet;

use countersign::{NoticeKind, Subscription, Subscriptions, WebhookName};
use countersign_clients::WebhookTarget;

use super::document::Section;
use super::{ConfigError, one_of};

pub(super) const KEYS: &[&str] = &["url", "secret_env", "events", "private", "cleartext"];

/// Somebody who is told.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Webhook {
    /// Its name.
    pub(crate) name: WebhookName,
    /// The line of the table.
    pub(crate) line: usize,
    /// Where it is told.
    pub(crate) target: WebhookTarget,
    /// The variable with what it and we share.
    pub(crate) secret_env: String,
    /// Of what it is told.
    pub(crate) kinds: BTreeSet<NoticeKind>,
}

pub(super) fn webhook(name: &str, section: &Section<'_>) -> Result<Webhook, ConfigError> {
    let name = WebhookName::parse(name).map_err(|error| section.wrong(&error.to_string()))?;
    let (private, cleartext) =
        (section.flag("private")? == Some(true), section.flag("cleartext")? == Some(true));
    let target = |url: &str| WebhookTarget::parse(url, private, cleartext).map_err(|error| error.to_string());
    let missing = |key: &str| section.wrong(&format!("the key {key} is missing"));
    let kinds = section.list("events", kind)?;
    if kinds.as_ref().is_some_and(Vec::is_empty) {
        return Err(section.wrong_at("events", "it names none; without the key it is all of them"));
    }
    Ok(Webhook {
        name,
        line: section.line(),
        target: section.parsed("url", target)?.ok_or_else(|| missing("url"))?,
        secret_env: section.text("secret_env")?.ok_or_else(|| missing("secret_env"))?.to_owned(),
        kinds: kinds.map_or_else(|| NoticeKind::ALL.into(), |kinds| kinds.into_iter().collect()),
    })
}

fn kind(word: &str) -> Result<NoticeKind, String> {
    NoticeKind::from_word(word).ok_or_else(|| one_of(&NoticeKind::ALL.map(NoticeKind::as_str)))
}

/// Who is told of what, for a store.
pub(crate) fn subscriptions(webhooks: &[Webhook]) -> Subscriptions {
    let of = |told: &Webhook| Subscription { webhook: told.name.clone(), kinds: told.kinds.clone() };
    Subscriptions::new(webhooks.iter().map(of))
}
