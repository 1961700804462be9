//! How new a database is, and how old a program may be that works on it.
//!
//! Invariant: beside its version a database says the oldest schema that a program must know to work on it. A program
//! that knows less is refused when it opens the database, and claims, creates and keeps nothing from the moment on at
//! which a newer program raised that bar. What does not say so is refused by every older program (R2). Not here: SQL.

use countersign::StoreFault;

use crate::open::OpenError;

/// One step of a schema. A shipped one is never edited.
pub(crate) struct Migration {
    /// What is done.
    pub(crate) statements: &'static str,
    /// The oldest schema that a program must know to work on a database after this step. It is the step's own, unless
    /// every statement of an older program means afterwards what it meant before, and what such a program writes is
    /// whole for the newer one.
    pub(crate) readable_from: u32,
}

impl Migration {
    pub(crate) const fn new(readable_from: u32, statements: &'static str) -> Self {
        Self { statements, readable_from }
    }
}

/// How new a database is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    /// How many migrations it has seen.
    pub(crate) found: u32,
    /// What a program must know to work on it; absent: it does not say.
    pub(crate) readable_from: Option<u32>,
}

impl Version {
    /// Whether a program that knows this schema may work on it.
    ///
    /// # Errors
    /// [`OpenError::Newer`].
    pub(crate) fn check(self, known: u32) -> Result<(), OpenError> {
        if self.found <= known || self.readable_from.is_some_and(|from| from <= known) {
            return Ok(());
        }
        Err(OpenError::Newer { found: self.found, known })
    }
}

/// Whether a program that has a database open may still work on it.
pub(crate) fn still_readable(readable_from: i64, known: u32) -> Result<(), StoreFault> {
    if readable_from <= i64::from(known) {
        return Ok(());
    }
    Err(StoreFault::Failed(Box::new(LeftBehind { readable_from, known })))
}

/// The database moved on while this process worked.
#[derive(Debug, thiserror::Error)]
#[error(
    "a newer countersign has changed the database for those that know schema {readable_from}, and this process knows \
     {known}: end it, and start the newer one"
)]
struct LeftBehind {
    readable_from: i64,
    known: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_r2_a_newer_schema_is_for_those_that_it_names_and_for_nobody_if_it_names_none() {
        let may = |found, readable_from| Version { found, readable_from }.check(7).is_ok();
        assert!(may(0, None) && may(3, None) && may(7, Some(7)) && may(7, None));
        assert!(may(8, Some(7)) && may(12, Some(5)), "what was added does not concern it");
        assert!(!may(8, Some(8)) && !may(9, Some(8)), "what was changed does");
        assert!(!may(8, None), "nobody says so");
    }
}
