//! Which key seals what: a master key the root and each run's data key, a data key its run's entries.
//!
//! Invariant: no key, no write. There is no way around it that stores clear text. A vault knows one master
//! key, or two while a rotation goes on; what was sealed names the one that fits. Not here: which of them is
//! the installation's at this moment (`keys`).

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use countersign::{Clock, RunId, StoreFault};
use zeroize::Zeroizing;

use crate::chain::Root;
use crate::seal::{Key, MasterKey, NotSealed, Place, Unopened, random};

/// As long as a batch of work takes.
const PAUSE: Duration = Duration::from_millis(5);
const ROOT: Place<'static> = Place { table: "installation", column: "root", run: "", seq: 0 };

/// The keys of an open store, and the chance that new ones are made of.
pub(crate) struct Vault {
    masters: RwLock<Vec<MasterKey>>,
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
        let sealed = seal_root(&*clock, &master, &root)?;
        Ok((Self { masters: RwLock::new(vec![master]), root, clock }, sealed))
    }

    /// The keys of an installation whose root is stored, sealed under one of these.
    pub(crate) fn of_installation(
        masters: Vec<MasterKey>,
        clock: Arc<dyn Clock>,
        sealed: &[u8],
    ) -> Result<Self, Unopened> {
        let root = Root::from_bytes(&open(&masters, ROOT, sealed)?).ok_or(Unopened::NotThis)?;
        Ok(Self { masters: RwLock::new(masters), root, clock })
    }

    /// A pause in which other processes come to the file, which wait for it by trying again.
    pub(crate) async fn breathe(&self) {
        self.clock.sleep(PAUSE).await;
    }

    /// The master key of this fingerprint, if it is known here.
    pub(crate) fn master(&self, fingerprint: &str) -> Option<MasterKey> {
        self.masters().into_iter().find(|master| master.fingerprint() == fingerprint)
    }

    /// The master keys that are known here.
    pub(crate) fn masters(&self) -> Vec<MasterKey> {
        self.masters.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Learns a master key.
    pub(crate) fn learn(&self, master: MasterKey) {
        let mut masters = self.masters.write().unwrap_or_else(PoisonError::into_inner);
        if masters.iter().all(|known| known.fingerprint() != master.fingerprint()) {
            masters.push(master);
        }
    }

    /// Forgets a master key.
    pub(crate) fn forget(&self, fingerprint: &str) {
        let mut masters = self.masters.write().unwrap_or_else(PoisonError::into_inner);
        masters.retain(|known| known.fingerprint() != fingerprint);
    }

    /// The root, sealed under another master key.
    pub(crate) fn root_under(&self, master: &MasterKey) -> Result<Vec<u8>, StoreFault> {
        seal_root(&*self.clock, master, &self.root)
    }

    /// A master key, sealed under another one for the time of a rotation.
    pub(crate) fn handed(
        &self,
        which: Handed,
        under: &MasterKey,
        key: &MasterKey,
    ) -> Result<Vec<u8>, StoreFault> {
        under.key().seal(&*self.clock, which.place(), key.key().bytes()).map_err(unsealed)
    }

    /// A data key for a new run, and the same sealed.
    pub(crate) fn new_run(&self, master: &MasterKey, run: &RunId) -> Result<(RunKey, Vec<u8>), StoreFault> {
        let key = Key::random(&*self.clock);
        let sealed = master.key().seal(&*self.clock, key_of(run), key.bytes()).map_err(unsealed)?;
        Ok((RunKey { run: run.clone(), key, clock: Arc::clone(&self.clock) }, sealed))
    }

    /// The data key of a stored run.
    pub(crate) fn run(&self, run: &RunId, sealed: &[u8]) -> Result<RunKey, Unopened> {
        let opened = open(&self.masters(), key_of(run), sealed)?;
        let bytes = opened.as_slice().try_into().map_err(|_| Unopened::NotThis)?;
        Ok(RunKey { run: run.clone(), key: Key::new(Zeroizing::new(bytes)), clock: Arc::clone(&self.clock) })
    }

    /// The data key of a stored run, sealed under this master key.
    pub(crate) fn rewrapped(&self, to: &MasterKey, run: &RunId, sealed: &[u8]) -> Result<Vec<u8>, Unopened> {
        let opened = open(&self.masters(), key_of(run), sealed)?;
        to.key().seal(&*self.clock, key_of(run), &opened).map_err(|_| Unopened::NotThis)
    }
}

impl fmt::Debug for Vault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Vault").field("masters", &self.masters()).finish_non_exhaustive()
    }
}

/// Which of the two keys of a rotation is handed over.
#[derive(Clone, Copy)]
pub(crate) enum Handed {
    /// The new one, to those who hold the old one.
    To,
    /// The old one, to those who hold the new one.
    From,
}

impl Handed {
    fn place(self) -> Place<'static> {
        let column = match self {
            Self::To => "to_key",
            Self::From => "from_key",
        };
        Place { table: "rotation", column, run: "", seq: 0 }
    }

    /// Opens what was handed over with the key that its receiver holds.
    pub(crate) fn open(self, held: &MasterKey, sealed: &[u8]) -> Result<MasterKey, Unopened> {
        let opened = held.key().open(self.place(), sealed)?;
        opened.as_slice().try_into().map(MasterKey::new).map_err(|_| Unopened::NotThis)
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

fn seal_root(clock: &dyn Clock, master: &MasterKey, root: &Root) -> Result<Vec<u8>, StoreFault> {
    master.key().seal(clock, ROOT, root.bytes()).map_err(unsealed)
}

/// Opens a sealed text with the one of these keys that it names.
fn open(masters: &[MasterKey], place: Place<'_>, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, Unopened> {
    let mut why = Unopened::OtherKey;
    for master in masters {
        match master.key().open(place, sealed) {
            Err(Unopened::OtherKey) => {}
            Err(other) => why = other,
            Ok(opened) => return Ok(opened),
        }
    }
    Err(why)
}

fn unsealed(error: NotSealed) -> StoreFault {
    StoreFault::Failed(Box::new(error))
}
