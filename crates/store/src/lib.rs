//! # Where countersign keeps its runs
//!
//! SQL, and nothing else knows SQL. Everything a model or a tool said is sealed before it reaches the
//! database ([`MasterKey`]), and every run is chained so that a change of the file is noticed when it is read.
//!
//! Not here: what an event means, and who may do what (`countersign-core`).

mod chain;
mod mac;
mod row;
mod seal;
mod sqlite;
mod time;
mod vault;

pub use seal::MasterKey;
pub use sqlite::{
    BackupError, EraseError, Erased, Finding, OpenError, Purged, Report, Restored, Retired, RotateError,
    Rotated, Rotation, SqliteOptions, SqliteStore,
};
