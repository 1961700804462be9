//! # Where countersign keeps its runs
//!
//! SQL, and nothing else knows SQL. Everything a model or a tool said is sealed before it reaches the
//! database ([`MasterKey`]), and every run is chained so that a change of the file is noticed when it is read.
//!
//! Not here: what an event means, and who may do what (`countersign-core`).

mod census;
mod chain;
mod entries;
mod finding;
mod hints;
mod inspection;
mod keys;
mod mac;
mod migration;
mod open;
mod outbox;
mod page;
mod postgres;
mod restored;
mod rotation;
mod row;
mod seal;
mod sqlite;
mod time;
mod upkeep;
mod vault;
mod words;

pub use census::{Census, LiveRuns, OpenQuestions};
pub use finding::{Finding, Report};
pub use hints::Hints;
pub use open::OpenError;
pub use postgres::{DatabaseClock, NotAnAddress, PostgresAddress, PostgresStore};
pub use restored::Restored;
pub use rotation::{Retired, RotateError, Rotated, Rotation};
pub use seal::MasterKey;
pub use sqlite::{SqliteOptions, SqliteStore};
pub use upkeep::{BackupError, EraseError, Erased, Purged, Reviewed, Upkeep};
