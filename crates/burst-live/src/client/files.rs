//! The files of a job's checkpoints, as a directory of them needs them: names, lengths, and the way to read and to write
//! each.

use super::inventory::Found;
use super::restore::{ROUNDS, Reader};
use super::{Acknowledgement, Client, ClientError, Level, Peers, State};
use crate::clock;
use crate::index::{Claim, FILES_MAX, GENERATIONS, Index, slot};
use crate::layout::{self, Census};
use crate::message::About;
use crate::names::Names;
use crate::pfs::Directory;
use crate::report::report;
use crate::server::lock;
use entresol_burst::{CheckpointId, JobId, Object};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Time for which a file that was found is not looked for again.
const FRESH: Duration = Duration::from_secs(1);
/// Time for which pieces go to the PFS after the buffers have failed: a wait for each piece would add up.
const AVOIDANCE: Duration = Duration::from_secs(10);
/// Length of a wait for buffers that is avoided so.
const LONG: Duration = Duration::from_millis(500);
/// Most checkpoints whose files are remembered.
const REMEMBERED: usize = 4;

/// Reason why a file cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// There is no committed file of this name.
    #[error("no committed file of this name")]
    Missing,
    /// A committed file is replaced as a whole or not at all.
    #[error("a committed file is not changed: open it with O_TRUNC to write it anew")]
    Committed,
    /// The nodes cannot be asked if a file that was opened for writing before is committed.
    #[error("without the nodes it is not known if this file is committed: open it with O_TRUNC to write it anew")]
    Unknown,
    /// All slots of the checkpoint belong to other names.
    #[error("the checkpoint has its {0} files (--files)")]
    Full(u32),
    /// The file was opened for writing too often.
    #[error("the file was opened for writing {GENERATIONS} times: write it under another name or checkpoint")]
    Openings,
    /// The file has as many pieces as it can have.
    #[error("the file has {0} pieces: write larger ranges between two seeks or syncs")]
    Pieces(u32),
    /// The file is committed, or is to be under the name that it has.
    #[error("only a file that was written here under a temporary name is renamed or removed")]
    Named,
    /// Another mount has opened the file for writing since.
    #[error("another mount has opened this file for writing: its bytes from here do not count")]
    Stale,
    /// A range beyond the largest offset.
    #[error("beyond the largest offset of a file")]
    TooLong,
    /// The names on the PFS cannot be read or written.
    #[error("the names on the PFS: {0}")]
    Names(io::Error),
    /// The bytes cannot be stored or read.
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// A committed file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Length in bytes.
    pub bytes: u64,
    /// Time of the commit, nanoseconds since 1970.
    pub at_ns: u64,
}

/// An index that was read, or the reason why not.
pub(super) type ReadIndex = (About, Result<Arc<Index>, String>);

/// Indexes by rank.
pub(super) type Indexes = BTreeMap<u32, ReadIndex>;

/// A committed version of a file: where its pieces are, and its index.
pub(super) type Version = (Arc<Snapshot>, About, Arc<Index>);

/// State of the files of one checkpoint.
pub(super) struct Snapshot {
    taken: Instant,
    pub found: Found,
    pub census: Census,
    /// Indexes by rank.
    indexes: Indexes,
    /// True if the nodes could not be asked, and only the PFS was.
    partial: bool,
}

impl Snapshot {
    /// The committed index of a slot.
    fn index(&self, of: u32) -> Option<&ReadIndex> {
        let own = self.indexes.iter().find(|(rank, _)| slot(self.census.ranks, **rank) == of);
        own.map(|(_, index)| index)
    }
}

/// The files of a job's checkpoints.
pub struct Files {
    pub(super) client: Client,
    directory: Arc<Directory>,
    pub(super) job: JobId,
    /// Number of files of each checkpoint.
    files: u32,
    seen: Mutex<BTreeMap<CheckpointId, Arc<Snapshot>>>,
    /// Time of the last failure of the buffers.
    failed: Mutex<Option<Instant>>,
}

impl Client {
    /// The parts of a checkpoint with its indexes, and the reason if only the PFS was asked. Parts move while they are
    /// read: an index that is nowhere is looked for anew.
    pub(super) fn found_files(
        &self,
        job: JobId,
        checkpoint: CheckpointId,
        before: &Indexes,
        peers: &mut Peers,
    ) -> Result<(Found, Indexes, Option<ClientError>), ClientError> {
        let mut round = 1;
        loop {
            let (found, partial) = self.found(job, checkpoint, peers)?;
            let indexes = self.indexes(job, checkpoint, &found, before, peers);
            if round == ROUNDS || indexes.values().all(|(_, index)| index.is_ok()) {
                return Ok((found, indexes, partial));
            }
            round += 1;
        }
    }

    /// The indexes of the committed files of a checkpoint by rank. Those of the same attempts are taken from `before`.
    fn indexes(
        &self,
        job: JobId,
        checkpoint: CheckpointId,
        found: &Found,
        before: &Indexes,
        peers: &mut Peers,
    ) -> Indexes {
        let census = found.census();
        let mut reader = Reader::new(self, peers);
        let mut read = |rank: u32, about: &About| {
            if let Some(same) = before.get(&rank).filter(|(of, index)| of == about && index.is_ok()) {
                return same.clone();
            }
            let bytes = reader.object(found, Object { job, checkpoint, rank }, about).map_err(|why| why.to_string());
            let index = bytes.and_then(|(bytes, _)| Index::parse(&bytes).map_err(|why| why.to_string()));
            (*about, index.map(Arc::new))
        };
        census.whole.iter().filter(|_| census.is_files).map(|(&rank, about)| (rank, read(rank, about))).collect()
    }
}

impl Files {
    /// The files of a job whose checkpoints have `files` files each. `directory` is the PFS for names, which the client
    /// uses for bytes.
    ///
    /// # Errors
    /// When the number of files is 0 or above [`FILES_MAX`].
    pub fn new(client: Client, directory: Arc<Directory>, job: JobId, files: u32) -> io::Result<Files> {
        if !(1..=FILES_MAX).contains(&files) {
            let why = format!("a checkpoint has 1 to {FILES_MAX} files, not {files}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        Ok(Files { client, directory, job, files, seen: Mutex::default(), failed: Mutex::default() })
    }

    fn names(&self, checkpoint: CheckpointId, files: u32) -> Names<'_> {
        Names::new(&self.directory, self.job, checkpoint, files)
    }

    /// The checkpoints that have a folder on the PFS. Every checkpoint with files has one.
    ///
    /// # Errors
    /// When the PFS cannot be read.
    pub fn checkpoints(&self) -> io::Result<BTreeSet<CheckpointId>> {
        layout::checkpoints(&*self.directory, self.job)
    }

    /// True if a checkpoint has a folder.
    ///
    /// # Errors
    /// When the PFS cannot be read.
    pub fn has(&self, checkpoint: CheckpointId) -> io::Result<bool> {
        self.directory.path(&layout::folder(self.job, checkpoint)).try_exists()
    }

    /// Path of the PFS.
    pub fn root(&self) -> &Path {
        self.directory.root()
    }

    /// Makes the folder of a checkpoint.
    ///
    /// # Errors
    /// When the PFS fails.
    pub fn make(&self, checkpoint: CheckpointId) -> io::Result<()> {
        self.directory.create_folder(&layout::folder(self.job, checkpoint)).map(drop)
    }

    /// The newest checkpoint all of whose files are committed and can be read.
    ///
    /// # Errors
    /// When the coordinator or the PFS cannot be asked.
    pub fn newest_complete(&self) -> Result<Option<CheckpointId>, ClientError> {
        let (states, _) = self.client.list(self.job)?;
        let complete = states.into_iter().filter(|it| matches!(it.state, State::Complete(_)));
        Ok(complete.map(|it| it.checkpoint).max())
    }

    /// The names of the committed files of a checkpoint.
    ///
    /// # Errors
    /// When the PFS or the coordinator cannot be asked.
    pub fn list(&self, checkpoint: CheckpointId) -> Result<Vec<OsString>, FileError> {
        let snapshot = self.snapshot(checkpoint, Duration::ZERO)?;
        if !snapshot.census.is_files {
            return Ok(Vec::new());
        }
        let names = self.names(checkpoint, snapshot.census.ranks).list().map_err(FileError::Names)?;
        Ok(names.into_iter().filter(|(slot, _)| snapshot.index(*slot).is_some()).map(|(_, name)| name).collect())
    }

    /// Length and time of a committed file.
    ///
    /// # Errors
    /// [`FileError::Missing`] if it is not committed.
    pub fn committed(&self, checkpoint: CheckpointId, name: &OsStr) -> Result<Committed, FileError> {
        let (_, about, index) = self.find(checkpoint, name)?;
        Ok(Committed { bytes: index.bytes, at_ns: about.attempt })
    }

    /// Begins an opening for writing of a file: a new one, or one that is committed and is to be replaced.
    pub(super) fn begin(&self, checkpoint: CheckpointId, name: &OsStr, replace: bool) -> Result<Claim, FileError> {
        if replace {
            return self.claim(checkpoint, name);
        }
        self.check_uncommitted(checkpoint, name)?;
        let claim = self.claim(checkpoint, name)?;
        // A mount that committed meanwhile finds the claim, or is found here. A name without an earlier claim is new.
        if claim.generation > 0 {
            self.forget(checkpoint);
            self.check_uncommitted(checkpoint, name)?;
            if self.snapshot(checkpoint, FRESH)?.partial {
                return Err(FileError::Unknown);
            }
        }
        Ok(claim)
    }

    /// Begins an opening for writing of a file under a temporary name.
    pub(super) fn begin_temporary(&self, checkpoint: CheckpointId, name: &OsStr) -> Result<Claim, FileError> {
        let claim = self.names(checkpoint, self.files).claim_temporary(name).map_err(FileError::Names)?;
        claim.ok_or(FileError::Openings)
    }

    fn check_uncommitted(&self, checkpoint: CheckpointId, name: &OsStr) -> Result<(), FileError> {
        match self.find(checkpoint, name) {
            Ok(_) => Err(FileError::Committed),
            Err(FileError::Missing) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn claim(&self, checkpoint: CheckpointId, name: &OsStr) -> Result<Claim, FileError> {
        let names = self.names(checkpoint, self.files);
        if let Some(claim) = names.claim(name).map_err(FileError::Names)? {
            return Ok(claim);
        }
        match names.find(name).map_err(FileError::Names)? {
            Some(_) => Err(FileError::Openings),
            None => Err(FileError::Full(self.files)),
        }
    }

    /// Stores an object. The wait for buffers without progress began at `since`.
    pub(super) fn store(
        &self,
        object: Object,
        ranks: u32,
        bytes: &[u8],
        since: Instant,
    ) -> Result<Acknowledgement, FileError> {
        let avoided = lock(&self.failed).is_some_and(|failed| clock::elapsed(failed) < AVOIDANCE);
        let patience =
            if avoided { Duration::ZERO } else { self.client.settings.patience.saturating_sub(clock::elapsed(since)) };
        let begin = clock::now();
        let acknowledged = self.client.store(object, ranks, bytes, patience)?;
        if !acknowledged.failures.is_empty() {
            report!("{object}: tried again: {}", acknowledged.failures.join("; "));
            let is_long = acknowledged.level == Level::Durable && clock::elapsed(begin) >= LONG;
            *lock(&self.failed) = is_long.then(clock::now);
        }
        Ok(acknowledged)
    }

    /// True if no other opening for writing has followed.
    pub(super) fn is_newest(&self, checkpoint: CheckpointId, claim: Claim) -> Result<bool, FileError> {
        self.names(checkpoint, claim.files).is_newest(claim).map_err(FileError::Names)
    }

    /// The newest version of a file.
    pub(super) fn newest(&self, checkpoint: CheckpointId, name: &OsStr) -> Result<Version, FileError> {
        self.find_in(&self.snapshot(checkpoint, Duration::ZERO)?, checkpoint, name)
    }

    fn find(&self, checkpoint: CheckpointId, name: &OsStr) -> Result<Version, FileError> {
        let begin = clock::now();
        let snapshot = self.snapshot(checkpoint, FRESH)?;
        match self.find_in(&snapshot, checkpoint, name) {
            // A file that was there is there. One that was not may have been committed since.
            Err(_) if snapshot.taken < begin => {
                self.find_in(&self.snapshot(checkpoint, Duration::ZERO)?, checkpoint, name)
            }
            found => found,
        }
    }

    fn find_in(&self, snapshot: &Arc<Snapshot>, checkpoint: CheckpointId, name: &OsStr) -> Result<Version, FileError> {
        if !snapshot.census.is_files {
            return Err(FileError::Missing);
        }
        let slot = self.names(checkpoint, snapshot.census.ranks).find(name).map_err(FileError::Names)?;
        match slot.and_then(|slot| snapshot.index(slot)) {
            Some((about, Ok(index))) => Ok((Arc::clone(snapshot), *about, Arc::clone(index))),
            Some((_, Err(why))) => Err(ClientError::Unexpected(format!("the index of the file: {why}")).into()),
            None => Err(FileError::Missing),
        }
    }

    /// State of a checkpoint that is at most so old.
    pub(super) fn snapshot(&self, checkpoint: CheckpointId, age: Duration) -> Result<Arc<Snapshot>, ClientError> {
        let before = lock(&self.seen).get(&checkpoint).cloned();
        if let Some(seen) = before.as_ref().filter(|seen| clock::elapsed(seen.taken) < age) {
            return Ok(Arc::clone(seen));
        }
        let taken = clock::now();
        let mut peers = self.client.peers();
        let none = BTreeMap::new();
        let known = before.as_ref().map_or(&none, |before| &before.indexes);
        let (found, indexes, partial) = self.client.found_files(self.job, checkpoint, known, &mut peers)?;
        if let Some(why) = &partial {
            report!("checkpoint {}: only files on the PFS are seen: {why}", checkpoint.0);
        }
        let snapshot = Arc::new(Snapshot { taken, census: found.census(), found, indexes, partial: partial.is_some() });
        let mut seen = lock(&self.seen);
        seen.insert(checkpoint, Arc::clone(&snapshot));
        while seen.len() > REMEMBERED {
            let oldest = seen.iter().min_by_key(|(_, it)| it.taken).map(|(&checkpoint, _)| checkpoint);
            oldest.map(|oldest| seen.remove(&oldest));
        }
        Ok(snapshot)
    }

    /// Forgets what was seen of a checkpoint: it has changed.
    pub(super) fn forget(&self, checkpoint: CheckpointId) {
        lock(&self.seen).remove(&checkpoint);
    }
}
