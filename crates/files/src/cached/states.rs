//! States of the cached files that outlive the process, in memory that somebody else keeps open. `docs/arena.md` draws
//! the file to the byte.
//!
//! Below a process that was killed, the kernel keeps all that was written to the files. What it cannot tell is which of
//! the changes were the cache's own, and which of them were synced. Each file with regions has a slot here for that.
//! A slot is written in one call and lies in one page of memory, so a kill leaves all of a write or nothing.

use super::map::{FileKey, Stamp};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const MAGIC: u64 = u64::from_le_bytes(*b"ETSTATE1");
/// Words of the header, and of a slot.
const WORDS: usize = 8;
const BYTES: usize = 8 * WORDS;

/// Words of the header after the magic number and the identifier of the map.
const AT_STARTED: usize = 3;
const AT_IN_USE: usize = 4;
const AT_INCOMPLETE: usize = 5;

type Words = [u64; WORDS];

/// Bits of a slot's third word.
const USED: u64 = 1;
const STAMPED: u64 = 1 << 1;
const UNDER_WAY: u64 = 1 << 2;
const RESTORES: u64 = 1 << 3;
const TOUCHED: u64 = 1 << 4;
const UNSYNCED: u64 = 1 << 5;
const WRITTEN: u64 = 1 << 6;
const EMPTIED: u64 = 1 << 7;

/// State of a file, as the next process finds it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct FileState {
    /// The file after the cache's last change, if that is known.
    pub stamp: Option<Stamp>,
    /// Least and greatest size in bytes that a change of the cache under way may leave; none while there is no change.
    pub under_way: Option<(u64, u64)>,
    /// Changes under way are to leave the time of modification as it is in the stamp.
    pub restores: bool,
    /// Another program changed the attributes, so the bytes are to be compared.
    pub touched: bool,
    /// The cache changed the file since the last sync of its writes.
    pub unsynced: bool,
    /// The file's times do not show the last write to the cache.
    pub written: bool,
    /// The file was cut to zero bytes while it was open.
    pub emptied: bool,
}

impl FileState {
    fn words(&self, key: FileKey) -> Words {
        let bits = [
            (true, USED),
            (self.stamp.is_some(), STAMPED),
            (self.under_way.is_some(), UNDER_WAY),
            (self.restores, RESTORES),
            (self.touched, TOUCHED),
            (self.unsynced, UNSYNCED),
            (self.written, WRITTEN),
            (self.emptied, EMPTIED),
        ];
        let bits = bits.into_iter().filter(|(is_set, _)| *is_set).fold(0, |all, (_, bit)| all | bit);
        let stamp = self.stamp.unwrap_or(Stamp { size: 0, modified: 0, changed: 0 });
        let (least, greatest) = self.under_way.unwrap_or_default();
        [key.inode, key.made, bits, stamp.size, stamp.modified as u64, stamp.changed as u64, least, greatest]
    }

    /// The state in a slot, unless that is free.
    fn of(words: &Words) -> Option<(FileKey, Self)> {
        let has = |bit: u64| words[2] & bit != 0;
        let stamp = Stamp { size: words[3], modified: words[4] as i64, changed: words[5] as i64 };
        let state = FileState {
            stamp: has(STAMPED).then_some(stamp),
            under_way: has(UNDER_WAY).then_some((words[6], words[7])),
            restores: has(RESTORES),
            touched: has(TOUCHED),
            unsynced: has(UNSYNCED),
            written: has(WRITTEN),
            emptied: has(EMPTIED),
        };
        has(USED).then_some((FileKey { inode: words[0], made: words[1] }, state))
    }
}

/// States of the cached files that outlive the process.
pub struct FileStates {
    file: File,
    inner: Mutex<Inner>,
}

struct Inner {
    header: Words,
    /// Slots that are not in use.
    free: Vec<u64>,
    /// Slots in the file.
    slots: u64,
    /// Slots that a former process left, by file.
    former: HashMap<FileKey, (u64, FileState)>,
}

/// The slot of a file.
pub(super) struct Slot {
    states: Arc<FileStates>,
    key: FileKey,
    at: u64,
    /// None once the slot was given back.
    state: Mutex<Option<FileState>>,
}

fn bytes_of(words: &Words) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes.chunks_exact_mut(8).zip(words).for_each(|(chunk, word)| chunk.copy_from_slice(&word.to_le_bytes()));
    bytes
}

fn words_of(bytes: &[u8]) -> Words {
    let mut words = [0; WORDS];
    let word = |chunk: &[u8]| u64::from_le_bytes(chunk.try_into().expect("eight bytes"));
    words.iter_mut().zip(bytes.chunks_exact(8)).for_each(|(into, chunk)| *into = word(chunk));
    words
}

/// A moment at which a kill would leave another state than before.
fn moment() {
    #[cfg(test)]
    entresol_store::arena::moments::passed();
}

impl FileStates {
    /// States in an empty file, such as one of `memfd_create`.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn create(file: File) -> io::Result<Arc<Self>> {
        let mut header = [0; WORDS];
        header[0] = MAGIC;
        file.write_all_at(&bytes_of(&header), 0)?;
        let inner = Inner { header, free: Vec::new(), slots: 0, former: HashMap::new() };
        Ok(Arc::new(FileStates { file, inner: Mutex::new(inner) }))
    }

    /// States in memory, whose file somebody else may be given.
    ///
    /// # Errors
    /// As [`create`](FileStates::create).
    #[cfg(target_os = "linux")]
    pub fn anonymous() -> io::Result<Arc<Self>> {
        let file = rustix::fs::memfd_create("entresol file states", rustix::fs::MemfdFlags::CLOEXEC)?;
        FileStates::create(file.into())
    }

    /// The states that a former process left in a file.
    ///
    /// # Errors
    /// `InvalidData` if the file has none of this version, else the error of the operating system.
    pub fn open(file: File) -> io::Result<Arc<Self>> {
        let mut bytes = vec![0; file.metadata()?.len() as usize];
        file.read_exact_at(&mut bytes, 0)?;
        let mut blocks = bytes.chunks_exact(BYTES).map(words_of);
        let header = blocks.next().filter(|header| header[0] == MAGIC).ok_or(io::ErrorKind::InvalidData)?;
        let (mut free, mut slots, mut former) = (Vec::new(), 0, HashMap::new());
        for (words, at) in blocks.zip(0..) {
            match FileState::of(&words) {
                Some((key, state)) => drop(former.insert(key, (at, state))),
                None => free.push(at),
            }
            slots = at + 1;
        }
        Ok(Arc::new(FileStates { file, inner: Mutex::new(Inner { header, free, slots, former }) }))
    }

    /// The file, for somebody who keeps it.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_header(&self, inner: &Inner) -> io::Result<()> {
        self.file.write_all_at(&bytes_of(&inner.header), 0)?;
        moment();
        Ok(())
    }

    /// Time of the first start with these states, in nanoseconds since 1970, if a process left them in use for the map
    /// with this identifier and nothing is missing.
    pub(super) fn former_start(&self, map: [u8; 16]) -> Option<u64> {
        let header = self.inner().header;
        let is_of = header[1..AT_STARTED] == id_words(map);
        (is_of && header[AT_IN_USE] == 1 && header[AT_INCOMPLETE] == 0).then_some(header[AT_STARTED])
    }

    /// State of a file that a former process left, with its slot.
    pub(super) fn former(self: &Arc<Self>, key: FileKey) -> Option<(FileState, Slot)> {
        let (at, state) = self.inner().former.remove(&key)?;
        Some((state, Slot { states: self.clone(), key, at, state: Mutex::new(Some(state)) }))
    }

    /// Gives up the states of files that no longer exist.
    pub(super) fn forget_former(&self) -> io::Result<()> {
        let mut inner = self.inner();
        let gone: Vec<u64> = inner.former.drain().map(|(_, (at, _))| at).collect();
        inner.free.extend(&gone);
        drop(inner);
        gone.into_iter().try_for_each(|at| self.write(at, &[0; WORDS]))
    }

    /// Forgets everything, before a start that takes nothing over.
    pub(super) fn clear(&self) -> io::Result<()> {
        let mut inner = self.inner();
        *inner = Inner { header: [0; WORDS], free: Vec::new(), slots: 0, former: HashMap::new() };
        inner.header[0] = MAGIC;
        self.write_header(&inner)?;
        self.file.set_len(BYTES as u64)
    }

    /// Notes that the states are in use for the map with this identifier, since a time in nanoseconds since 1970.
    pub(super) fn begin(&self, map: [u8; 16], started: u64) -> io::Result<()> {
        let mut inner = self.inner();
        inner.header[1..AT_STARTED].copy_from_slice(&id_words(map));
        (inner.header[AT_STARTED], inner.header[AT_IN_USE]) = (started, 1);
        self.write_header(&inner)
    }

    /// Notes that the files were closed in good order.
    pub(super) fn end(&self) -> io::Result<()> {
        let mut inner = self.inner();
        inner.header[AT_IN_USE] = 0;
        self.write_header(&inner)
    }

    fn write(&self, at: u64, words: &Words) -> io::Result<()> {
        let written = self.file.write_all_at(&bytes_of(words), (at + 1) * BYTES as u64);
        moment();
        written.inspect_err(|_| self.is_incomplete())
    }

    /// Notes that a state could not be kept, for want of memory: the next start takes none of them over.
    fn is_incomplete(&self) {
        let mut inner = self.inner();
        inner.header[AT_INCOMPLETE] = 1;
        // The page of the header is there already.
        let _no_room_needed = self.write_header(&inner);
    }

    /// A slot for a file; none for want of memory.
    pub(super) fn slot(self: &Arc<Self>, key: FileKey, state: FileState) -> Option<Slot> {
        let mut inner = self.inner();
        let at = inner.free.pop().unwrap_or_else(|| {
            inner.slots += 1;
            inner.slots - 1
        });
        drop(inner);
        self.write(at, &state.words(key)).ok()?;
        Some(Slot { states: self.clone(), key, at, state: Mutex::new(Some(state)) })
    }

    /// The states as a kill at this moment leaves them to the next process.
    #[cfg(test)]
    pub(super) fn killed(&self) -> Arc<Self> {
        let mut bytes = vec![0; self.file.metadata().expect("a length").len() as usize];
        self.file.read_exact_at(&mut bytes, 0).expect("memory is read");
        let copy = FileStates::anonymous().expect("memory");
        let file = copy.file.try_clone().expect("a descriptor");
        file.write_all_at(&bytes, 0).expect("memory is written");
        FileStates::open(file).expect("the states")
    }
}

fn id_words(id: [u8; 16]) -> [u64; 2] {
    let id = u128::from_le_bytes(id);
    [id as u64, (id >> 64) as u64]
}

impl Slot {
    fn state(&self) -> MutexGuard<'_, Option<FileState>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state. If it cannot be written, the header says so.
    pub fn change(&self, change: impl FnOnce(&mut FileState)) {
        let mut state = self.state();
        let Some(state) = state.as_mut() else { return };
        let before = *state;
        change(state);
        if *state != before {
            let _incomplete = self.states.write(self.at, &state.words(self.key));
        }
    }

    /// Gives the slot back: the file is gone.
    pub fn give_back(&self) {
        let mut state = self.state();
        if state.take().is_some() && self.states.write(self.at, &[0; WORDS]).is_ok() {
            self.states.inner().free.push(self.at);
        }
    }
}
