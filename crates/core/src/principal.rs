//! Who acts: people and services (S1). Looked up live; never taken from a body (S2).
//!
//! Not here: what they may do to a run (`rights`).

use std::collections::BTreeMap;
use std::fmt;

use crate::name::Subject;

/// Somebody who is known, with the rights of the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// How the record names them.
    pub subject: Subject,
    /// May do everything. No program is.
    pub admin: bool,
    /// What kind, and what that kind may.
    pub standing: Standing,
}

/// The kind of a principal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// A person who decides only on their own runs.
    User,
    /// A person who may decide on every run.
    Approver,
    /// A program, which may do exactly this. It never releases a write (A8).
    Service(Scopes),
}

/// One thing that a program may be allowed to do (S1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Start runs.
    RunCreate,
    /// Start them for somebody else, who then owns them.
    RunOnBehalf,
    /// Read the runs it started.
    RunRead,
    /// Cancel the runs it started.
    RunCancel,
    /// Read every question.
    PendingRead,
    /// Read and decide every question, as far as a program may.
    PendingDecide,
    /// Switch tools and groups.
    ToolsManage,
    /// Import and accept the tools of remote servers.
    McpManage,
}

impl Scope {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::RunCreate,
        Self::RunOnBehalf,
        Self::RunRead,
        Self::RunCancel,
        Self::PendingRead,
        Self::PendingDecide,
        Self::ToolsManage,
        Self::McpManage,
    ];

    /// The contract's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RunCreate => "run:create",
            Self::RunOnBehalf => "run:on_behalf",
            Self::RunRead => "run:read",
            Self::RunCancel => "run:cancel",
            Self::PendingRead => "pending:read",
            Self::PendingDecide => "pending:decide",
            Self::ToolsManage => "tools:manage",
            Self::McpManage => "mcp:manage",
        }
    }

    /// Reads the contract's word. There is no wildcard.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == word)
    }

    fn bit(self) -> u8 {
        1 << (self as u8)
    }
}

/// What a program may do: exactly this, and nothing where nobody said so (S1).
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Scopes(u8);

impl Scopes {
    /// Whether this is among them.
    pub fn has(self, scope: Scope) -> bool {
        self.0 & scope.bit() != 0
    }

    /// These and those.
    #[must_use]
    pub fn and(self, more: Self) -> Self {
        Self(self.0 | more.0)
    }

    /// Each of them, in the order of [`Scope::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.into_iter().filter(move |scope| self.has(*scope))
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Self(scopes.into_iter().fold(0, |bits, scope| bits | scope.bit()))
    }
}

impl fmt::Debug for Scopes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_set().entries(self.iter().map(Scope::as_str)).finish()
    }
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

    /// A program that may do this.
    pub fn service(subject: Subject, scopes: Scopes) -> Self {
        Self { subject, admin: false, standing: Standing::Service(scopes) }
    }

    /// Whether it is a program.
    pub fn is_service(&self) -> bool {
        matches!(self.standing, Standing::Service(_))
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
