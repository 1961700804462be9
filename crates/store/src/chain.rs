//! What makes a change of a stored run visible (S4): a chain of MACs over its entries, and one over its row.
//!
//! Invariant: the MAC of an entry covers the one before it, its place, its time, its kind and its ciphertext,
//! so no entry can be changed, moved, exchanged, inserted or left out unseen; the MAC of the row covers the
//! length and the last of them, so the end cannot be cut off unseen, and every derived column.
//! Not promised: noticing that a whole run was removed, or put back to an earlier state with its row.

use countersign::{CallId, RunId, RunRow};
use jiff::Timestamp;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::mac::{Mac, mac};
use crate::seal::{MasterKey, hex};
use crate::time;

/// What the chain keys of all runs come from. Made once for an installation; it outlives a change of master
/// keys, and so do the chains and the idempotency keys.
pub(crate) struct Root(Zeroizing<[u8; 32]>);

impl Root {
    /// The root of a new installation. The salt makes two installations under one master key differ.
    pub(crate) fn derive(master: &MasterKey, salt: &[u8; 32]) -> Self {
        Self(Zeroizing::new(mac(master.key().bytes(), "countersign/root/v1", &[salt])))
    }

    /// The root as it was kept.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(|bytes| Self(Zeroizing::new(bytes)))
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The chain of one run.
    pub(crate) fn chain(&self, run: &RunId) -> Chain {
        Chain(Zeroizing::new(mac(&self.0, "countersign/chain/v1", &[run.as_str().as_bytes()])))
    }

    /// A function of installation, run and call that nobody can guess (R4).
    pub(crate) fn idempotency_key(&self, run: &RunId, call: &CallId) -> String {
        hex(&mac(&self.0, "countersign/idempotency/v1", &[run.as_str().as_bytes(), call.as_str().as_bytes()]))
    }

    /// What stands for a request that started a run under a key; it tells nobody what was asked for.
    pub(crate) fn start(&self, starter: &str, key: &str, body: &[u8; 32]) -> Mac {
        mac(&self.0, "countersign/start/v1", &[starter.as_bytes(), key.as_bytes(), body])
    }
}

/// The MACs of one run.
pub(crate) struct Chain(Zeroizing<[u8; 32]>);

impl Chain {
    /// What stands before the first entry.
    pub(crate) const BEGIN: Mac = [0; 32];

    /// The MAC of an entry, given the one before it and the digest of its ciphertext.
    pub(crate) fn entry(&self, before: &Mac, seq: u64, at: &str, kind: &str, digest: &[u8; 32]) -> Mac {
        let fields: [&[u8]; 5] = [before, &seq.to_be_bytes(), at.as_bytes(), kind.as_bytes(), digest];
        mac(&self.0, "countersign/entry/v1", &fields)
    }

    /// What the chain covers of a ciphertext. It is kept where the ciphertext is erased (R10).
    pub(crate) fn digest(sealed: &[u8]) -> [u8; 32] {
        Sha256::digest(sealed).into()
    }

    /// The MAC of the row.
    pub(crate) fn row(&self, row: &RunRow, revision: u64, head: &Mac, erased_at: Option<Timestamp>) -> Mac {
        let RunRow {
            id,
            state,
            agent,
            owner,
            starter,
            unattended,
            continues,
            iterations,
            usage,
            limit,
            failure,
            ..
        } = row;
        let numbers = [
            revision,
            u64::from(*unattended),
            u64::from(*iterations),
            usage.input_tokens,
            usage.output_tokens,
            usage.cached_input_tokens,
            usage.unknown_calls,
        ]
        .map(u64::to_be_bytes);
        let times = [time::text(row.created_at), time::text(row.updated_at)];
        // An absent text must not read like an empty one.
        let optional = |text: Option<&str>| text.map_or_else(String::new, |text| format!("={text}"));
        let optionals = [
            optional(limit.map(|limit| limit.as_str())),
            optional(failure.as_deref()),
            optional(row.finished_at.map(time::text).as_deref()),
        ];
        let mut fields: Vec<&[u8]> = vec![
            head,
            id.as_str().as_bytes(),
            state.as_str().as_bytes(),
            agent.as_str().as_bytes(),
            owner.as_str().as_bytes(),
        ];
        fields.extend(numbers.iter().map(<[u8; 8]>::as_slice));
        fields.extend(times.iter().chain(&optionals).map(String::as_bytes));
        // Fields more, which no row had before there was erasure, continuations, and programs that start runs for
        // others. One is a time, one an id, and one begins as neither does, so none can be taken for another.
        let erased_at = erased_at.map(time::text);
        fields.extend(erased_at.iter().map(String::as_bytes));
        fields.extend(continues.iter().map(|run| run.as_str().as_bytes()));
        let starter = (starter != owner).then(|| optional(Some(starter.as_str())));
        fields.extend(starter.iter().map(String::as_bytes));
        mac(&self.0, "countersign/row/v1", &fields)
    }
}
