//! Who acts: people and services with their rights (S1). Looked up live; never taken from a body (S2).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::name::Subject;

/// Somebody who is known, with the rights of the moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Principal {
    /// How the record names them.
    pub subject: Subject,
    /// May do everything.
    pub admin: bool,
    /// What kind, and what that kind may.
    pub standing: Standing,
}

/// The kind of a principal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// A person who decides only on their own runs.
    User,
    /// A person who may decide on every run.
    Approver,
    /// A program. It may deny and approve turns that only read; it never releases a write (A8).
    Service,
}

impl Principal {
    /// A person without further rights.
    pub fn user(subject: Subject) -> Self {
        Self { subject, admin: false, standing: Standing::User }
    }

    /// A person who may decide on every run.
    pub fn approver(subject: Subject) -> Self {
        Self { subject, admin: false, standing: Standing::Approver }
    }

    /// A person who may do everything.
    pub fn admin(subject: Subject) -> Self {
        Self { subject, admin: true, standing: Standing::Approver }
    }

    /// Whether it is a program.
    pub fn is_service(&self) -> bool {
        self.standing == Standing::Service
    }

    /// Whether it may see and settle the pendings of a run that `owner` owns.
    pub fn may_settle_for(&self, owner: &Subject) -> bool {
        self.admin || self.standing != Standing::User || self.subject == *owner
    }
}

/// The principals that one look found. Whoever is not in it does not resolve: no right of any kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct People(BTreeMap<Subject, Principal>);

impl People {
    /// Whoever is known under this subject.
    pub fn find(&self, subject: &Subject) -> Option<&Principal> {
        self.0.get(subject)
    }
}

impl FromIterator<Principal> for People {
    fn from_iter<I: IntoIterator<Item = Principal>>(found: I) -> Self {
        Self(found.into_iter().map(|principal| (principal.subject.clone(), principal)).collect())
    }
}
