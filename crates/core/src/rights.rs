//! Who may see and do what to runs and their questions (contract, section 4, "Rights").
//!
//! Invariant: these are the only words on it; the command line, the HTTP API and rule A8 ask here. A program may do
//! exactly what its scopes say. Not here: what a decision would release (`decision::settle`), and who may switch
//! tools, which no run has to do with.

use crate::name::Subject;
use crate::principal::{Principal, Scope, Standing};
use crate::run::{PendingRecord, Run};
use crate::summary::RunRow;

impl Principal {
    /// Whether it may see the questions of runs that `owner` owns.
    pub fn may_see_questions_of(&self, owner: &Subject) -> bool {
        match self.standing {
            Standing::Service(scopes) => scopes.has(Scope::PendingRead) || scopes.has(Scope::PendingDecide),
            Standing::Approver => true,
            Standing::User => self.admin || self.subject == *owner,
        }
    }

    /// Whether it may decide the questions of runs that `owner` owns. What is released by that is judged apart (A8).
    pub fn may_settle_for(&self, owner: &Subject) -> bool {
        match self.standing {
            Standing::Service(scopes) => scopes.has(Scope::PendingDecide),
            Standing::Approver => true,
            Standing::User => self.admin || self.subject == *owner,
        }
    }

    /// Whether it may see this run: its own, what it started as a program, as an approver what is asked or was decided
    /// by it, as an administrator everything.
    pub fn may_see(&self, run: &Run) -> bool {
        let created = run.created();
        let decided = |record: &PendingRecord| {
            record.decided.as_ref().is_some_and(|decided| decided.by == self.subject)
        };
        match self.standing {
            Standing::Service(scopes) => scopes.has(Scope::RunRead) && created.starter == self.subject,
            Standing::User | Standing::Approver if self.admin || created.owner == self.subject => true,
            Standing::User => false,
            Standing::Approver => run.open_pending().is_some() || run.pendings().any(decided),
        }
    }

    /// Whether it may see the line of a run whose log cannot be read.
    pub fn may_see_line(&self, row: &RunRow) -> bool {
        match self.standing {
            Standing::Service(scopes) => scopes.has(Scope::RunRead) && row.starter == self.subject,
            Standing::User | Standing::Approver => self.admin || row.owner == self.subject,
        }
    }

    /// Whether it may cancel this run.
    pub fn may_cancel(&self, run: &Run) -> bool {
        let created = run.created();
        match self.standing {
            Standing::Service(scopes) => scopes.has(Scope::RunCancel) && created.starter == self.subject,
            Standing::User | Standing::Approver => self.admin || created.owner == self.subject,
        }
    }
}
