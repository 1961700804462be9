//! Which key seals what: the master key the root and each run's data key, a data key its run's entries.
//!
//! Invariant: no key, no write. There is no way around it that stores clear text.

use std::fmt;
use std::sync::Arc;

use countersign::{Clock, RunId, StoreFault};
use zeroize::Zeroizing;

use crate::chain::Root;
use crate::seal::{Key, MasterKey, NotSealed, Place, Unopened, random};

const ROOT: Place<'static> = Place { table: "installation", column: "root", run: "", seq: 0 };

/// The keys of an open store, and the chance that new ones are made of.
pub(crate) struct Vault {
    master: MasterKey,
    pub(crate) root: Root,
    clock: Arc<dyn Clock>,
}

impl Vault {
    /// The keys of a new installation, and its root sealed.
    pub(crate) fn new_installation(
        master: MasterKey,
        clock: Arc<dyn Clock>,
    ) -> Result<(Self, Vec<u8>), StoreFault> {
        let root = Root::derive(&master, &random(&*clock));
        let sealed = master.key().seal(&*clock, ROOT, root.bytes()).map_err(unsealed)?;
        Ok((Self { master, root, clock }, sealed))
    }

    /// The keys of an installation whose root is stored.
    pub(crate) fn of_installation(
        master: MasterKey,
        clock: Arc<dyn Clock>,
        sealed: &[u8],
    ) -> Result<Self, Unopened> {
        let root = Root::from_bytes(&master.key().open(ROOT, sealed)?).ok_or(Unopened::NotThis)?;
        Ok(Self { master, root, clock })
    }

    /// A data key for a new run, and the same sealed.
    pub(crate) fn new_run(&self, run: &RunId) -> Result<(RunKey, Vec<u8>), StoreFault> {
        let key = Key::random(&*self.clock);
        let sealed = self.master.key().seal(&*self.clock, key_of(run), key.bytes()).map_err(unsealed)?;
        Ok((RunKey { run: run.clone(), key, clock: Arc::clone(&self.clock) }, sealed))
    }

    /// The data key of a stored run.
    pub(crate) fn run(&self, run: &RunId, sealed: &[u8]) -> Result<RunKey, Unopened> {
        let opened = self.master.key().open(key_of(run), sealed)?;
        let bytes = opened.as_slice().try_into().map_err(|_| Unopened::NotThis)?;
        Ok(RunKey { run: run.clone(), key: Key::new(Zeroizing::new(bytes)), clock: Arc::clone(&self.clock) })
    }
}

impl fmt::Debug for Vault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Vault").field("master", &self.master).finish_non_exhaustive()
    }
}

/// What seals and opens the entries of one run.
pub(crate) struct RunKey {
    run: RunId,
    key: Key,
    clock: Arc<dyn Clock>,
}

impl RunKey {
    /// Seals an entry.
    pub(crate) fn seal(&self, seq: u64, text: &[u8]) -> Result<Vec<u8>, StoreFault> {
        self.key.seal(&*self.clock, self.place(seq), text).map_err(unsealed)
    }

    /// Opens an entry.
    pub(crate) fn open(&self, seq: u64, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, Unopened> {
        self.key.open(self.place(seq), sealed)
    }

    fn place(&self, seq: u64) -> Place<'_> {
        Place { table: "events", column: "sealed", run: self.run.as_str(), seq }
    }
}

fn key_of(run: &RunId) -> Place<'_> {
    Place { table: "runs", column: "key", run: run.as_str(), seq: 0 }
}

fn unsealed(error: NotSealed) -> StoreFault {
    StoreFault::Failed(Box::new(error))
}
