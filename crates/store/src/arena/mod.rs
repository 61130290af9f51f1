//! Memory that outlives the process: batches that the device does not have yet, and pages that no batch has.
//!
//! A write is answered when its bytes are in memory. If the process is killed afterwards, a client that lives on must
//! not read an older version. So that memory is a file that somebody else keeps open, and the next process repeats
//! what it finds there. `docs/arena.md` draws the file to the byte.
//!
//! The file is read after a kill between any two instructions. Therefore bytes come before the word that says that
//! they count, and that word comes before the answer. The order of stores within a process is all that is needed:
//! after a loss of power nothing of the file is left.

mod changes;
mod missing;
mod piece;
mod slot;
mod survivors;

pub use missing::Missing;
pub use slot::{Slot, SlotKind};
pub use survivors::Survivors;

pub(crate) use piece::{Op, Piece};

use crate::mutant::{self, Mutant};
use piece::PieceMap;
use slot::Slots;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

const MAGIC: u64 = u64::from_le_bytes(*b"ETARENA1");

/// Bytes of the header, and the alignment of everything after it.
pub(super) const ALIGNMENT: usize = 4096;

/// Words of the header.
const AT_MAGIC: usize = 0;
const AT_PAGE_BYTES: usize = 1;
const AT_BLOCKS: usize = 2;
const AT_UUID: usize = 4;
const AT_EPOCH: usize = 6;
const AT_NEXT_EPOCH: usize = 7;
const AT_MISSING: usize = 8;
const AT_FAILED: usize = 9;
const AT_CHANGED: usize = 10;
const AT_REPEATED: usize = 11;

/// Reason for which an arena cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ArenaError {
    /// The operating system refused.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file is not an arena of this store, or its contents contradict one another.
    #[error("the memory that the former process left cannot be used: {0}")]
    Unusable(&'static str),
}

/// Sizes of an arena's pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    pub page_bytes: usize,
    /// Blocks of a page in a piece.
    pub blocks: usize,
}

impl Sizes {
    /// Most operations that a piece has room for.
    pub fn ops(&self) -> usize {
        2 * self.blocks + self.page_bytes / 4
    }

    /// Words of the bit map of filled blocks.
    pub fn filled_words(&self) -> usize {
        self.blocks.div_ceil(64)
    }

    /// Bytes of a piece before its blocks.
    pub fn head_bytes(&self) -> usize {
        let words = piece::HEAD_WORDS + self.filled_words() + (2 * self.ops()).max(slot::WORDS * self.blocks);
        (8 * words).next_multiple_of(ALIGNMENT)
    }

    pub fn piece_bytes(&self) -> usize {
        self.head_bytes() + (self.blocks * self.page_bytes).next_multiple_of(ALIGNMENT)
    }

    /// Markers that fit into the blocks of a piece.
    pub fn markers(&self) -> usize {
        self.blocks * self.page_bytes / (8 * slot::WORDS)
    }
}

/// Memory that outlives the process.
pub struct Arena {
    file: File,
    sizes: Sizes,
    header: Arc<PieceMap>,
    /// Number of what the former process had in memory of its own alone when it ended.
    missed: u64,
    inner: Mutex<Inner>,
    /// True if a test wants the file not to grow.
    #[cfg(any(test, feature = "mutants"))]
    full: std::sync::atomic::AtomicBool,
}

struct Inner {
    /// Number of the next batch or slot: later ones are newer.
    next: u64,
    /// Pieces that are not in use.
    free: Vec<Arc<PieceMap>>,
    /// Pieces in the file.
    pieces: usize,
    slots: Slots,
    /// The slot with the newest version of a page, of pages that have one.
    newest: HashMap<u64, Weak<Slot>>,
}

impl std::fmt::Debug for Arena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arena").field("sizes", &self.sizes).finish_non_exhaustive()
    }
}

impl Arena {
    /// An arena in an empty file, such as one of `memfd_create`, for pages of so many bytes in pieces of so many blocks.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn create(file: File, page_bytes: usize, blocks: usize) -> Result<Arc<Self>, ArenaError> {
        file.set_len(ALIGNMENT as u64)?;
        let header = Arc::new(PieceMap::new(&file, 0, ALIGNMENT)?);
        header.word(AT_PAGE_BYTES).store(page_bytes as u64, Relaxed);
        header.word(AT_BLOCKS).store(blocks as u64, Relaxed);
        header.word(AT_MAGIC).store(MAGIC, Release);
        Ok(Arena::new(file, Sizes { page_bytes, blocks }, header, 0))
    }

    /// An arena in memory, whose file somebody else may be given.
    ///
    /// # Errors
    /// As [`create`](Arena::create).
    #[cfg(target_os = "linux")]
    pub fn anonymous(page_bytes: usize, blocks: usize) -> Result<Arc<Self>, ArenaError> {
        let file = rustix::fs::memfd_create("entresol arena", rustix::fs::MemfdFlags::CLOEXEC);
        Arena::create(file.map_err(io::Error::from)?.into(), page_bytes, blocks)
    }

    /// The arena that a former process left in a file. What it left is in [`survivors`](Arena::survivors), whose
    /// memory is not used again before [`Survivors::release`].
    ///
    /// # Errors
    /// [`ArenaError::Unusable`] if the file is no arena, else the error of the operating system.
    pub fn open(file: File) -> Result<Arc<Self>, ArenaError> {
        let len = file.metadata()?.len();
        if len < ALIGNMENT as u64 {
            return Err(ArenaError::Unusable("its header is missing"));
        }
        let header = Arc::new(PieceMap::new(&file, 0, ALIGNMENT)?);
        if header.word(AT_MAGIC).load(Acquire) != MAGIC {
            return Err(ArenaError::Unusable("it has no header of this version"));
        }
        let [page_bytes, blocks] = [AT_PAGE_BYTES, AT_BLOCKS].map(|at| header.word(at).load(Relaxed));
        if !(512..=1 << 20).contains(&page_bytes) || !page_bytes.is_power_of_two() || !(1..=1 << 20).contains(&blocks) {
            return Err(ArenaError::Unusable("its sizes cannot be"));
        }
        let sizes = Sizes { page_bytes: page_bytes as usize, blocks: blocks as usize };
        let (pieces, rest) = ((len - ALIGNMENT as u64) / sizes.piece_bytes() as u64, len - ALIGNMENT as u64);
        if rest % sizes.piece_bytes() as u64 != 0 {
            return Err(ArenaError::Unusable("its length is not a number of pieces"));
        }
        Ok(Arena::new(file, sizes, header, pieces as usize))
    }

    fn new(file: File, sizes: Sizes, header: Arc<PieceMap>, pieces: usize) -> Arc<Self> {
        let inner = Inner { next: 1, free: Vec::new(), pieces, slots: Slots::default(), newest: HashMap::new() };
        let missed = header.word(AT_MISSING).load(Relaxed);
        Arc::new(Arena {
            file,
            sizes,
            header,
            missed,
            inner: Mutex::new(inner),
            #[cfg(any(test, feature = "mutants"))]
            full: Default::default(),
        })
    }

    /// The file, for somebody who keeps it.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub(super) fn sizes(&self) -> Sizes {
        self.sizes
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if pages and batches of this store fit.
    pub fn fits(&self, page_bytes: usize, blocks: usize) -> bool {
        self.sizes == Sizes { page_bytes, blocks }
    }

    /// True if no store was in use with the arena yet.
    pub fn is_new(&self) -> bool {
        let word = |at: usize| self.header.word(at).load(Relaxed);
        word(AT_EPOCH) == 0 && word(AT_NEXT_EPOCH) == 0
    }

    /// True if the arena was of this store when that was last in use: of this UUID, and in this epoch, which is the one
    /// found on the device.
    pub fn is_of(&self, uuid: [u8; 16], epoch: u64) -> bool {
        let word = |at: usize| self.header.word(at).load(Relaxed);
        let found = [word(AT_UUID), word(AT_UUID + 1)];
        found == uuid_words(uuid) && [word(AT_EPOCH), word(AT_NEXT_EPOCH)].contains(&epoch)
    }

    /// Notes which store is about to be in use, in which epoch. The device has the epoch before.
    pub fn begin_epoch(&self, uuid: [u8; 16], epoch: u64) {
        for (word, at) in uuid_words(uuid).into_iter().zip(AT_UUID..) {
            self.header.word(at).store(word, Relaxed);
        }
        // The epoch that the device has now: an earlier process may have been killed before it noted that, and the first
        // has not noted any.
        if !mutant::is(Mutant::ArenaEpochOld) {
            self.header.word(AT_EPOCH).store(epoch - 1, Release);
            moment();
        }
        self.header.word(AT_NEXT_EPOCH).store(epoch, Release);
        moment();
    }

    /// Notes that the device says so too.
    pub fn end_epoch(&self) {
        let next = self.header.word(AT_NEXT_EPOCH).load(Relaxed);
        self.header.word(AT_EPOCH).store(next, Release);
        moment();
    }

    /// Number for a new batch or slot.
    fn number(inner: &mut Inner) -> u64 {
        let number = inner.next;
        inner.next = number.wrapping_add(1);
        number
    }

    /// A piece that is not in use.
    fn take(&self, inner: &mut Inner) -> io::Result<Arc<PieceMap>> {
        if let Some(piece) = inner.free.pop() {
            return Ok(piece);
        }
        #[cfg(any(test, feature = "mutants"))]
        if self.full.load(Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let (at, len) = (inner.pieces, self.sizes.piece_bytes());
        let offset = ALIGNMENT as u64 + (at * len) as u64;
        self.file.set_len(offset + len as u64)?;
        let piece = PieceMap::new(&self.file, offset, len)?;
        inner.pieces += 1;
        Ok(Arc::new(piece))
    }

    /// A piece for a batch.
    ///
    /// # Errors
    /// The error of the operating system, if the file would have to grow and cannot.
    pub(crate) fn batch(self: &Arc<Self>) -> io::Result<Piece> {
        let mut inner = self.inner();
        let map = self.take(&mut inner)?;
        let number = Arena::number(&mut inner);
        Ok(Piece::begin(Arc::clone(self), map, number))
    }

    /// Another number for a piece that goes on as another batch.
    fn next_number(&self) -> u64 {
        Arena::number(&mut self.inner())
    }

    fn give_back(&self, map: Arc<PieceMap>) {
        self.inner().free.push(map);
    }

    /// Keeps bytes of a page that no batch has. An older version of the page in a slot no longer counts.
    pub fn page(self: &Arc<Self>, page: u64, bytes: &[u8]) -> Arc<Slot> {
        self.slot(SlotKind::Page, page, bytes)
    }

    /// Notes that a page was changed below: versions of it that the store or a slot have do not count.
    pub fn void(self: &Arc<Self>, page: u64) -> Arc<Slot> {
        self.slot(SlotKind::Void, page, &[])
    }

    fn slot(self: &Arc<Self>, kind: SlotKind, page: u64, bytes: &[u8]) -> Arc<Slot> {
        let mut inner = self.inner();
        let number = Arena::number(&mut inner);
        let spot = self.spot(&mut inner, kind);
        let slot = Arc::new(Slot::fill(Arc::clone(self), spot.ok(), kind, page, number, bytes));
        let older = inner.newest.insert(page, Arc::downgrade(&slot));
        // Dropping the last reference takes the lock again.
        drop(inner);
        if let Some(older) = older.and_then(|older| older.upgrade()) {
            older.settle();
        }
        slot
    }

    fn spot(&self, inner: &mut Inner, kind: SlotKind) -> io::Result<slot::Spot> {
        if let Some(spot) = inner.slots.take(kind) {
            return Ok(spot);
        }
        let piece = self.take(inner)?;
        Ok(inner.slots.add(kind, piece, &self.sizes))
    }

    /// The slot of a page whose newer version a batch is about to have: it counts until that is filled, or until another
    /// slot has a version that is newer still. The block may be filled after that.
    pub fn older(&self, page: u64) -> Option<Arc<Slot>> {
        let mut inner = self.inner();
        if inner.newest.is_empty() {
            None
        } else if mutant::is(Mutant::ArenaOlderForgotten) {
            inner.newest.remove(&page)?.upgrade()
        } else {
            inner.newest.get(&page)?.upgrade()
        }
    }

    /// Bytes that are about to overwrite a block of a batch.
    fn again(self: &Arc<Self>, piece: &PieceMap, block: usize, bytes: &[u8]) -> Slot {
        let mut inner = self.inner();
        let number = Arena::number(&mut inner);
        let spot = self.spot(&mut inner, SlotKind::Again);
        let target = piece.index(self.sizes.piece_bytes()) << 32 | block as u64;
        Slot::fill(Arc::clone(self), spot.ok(), SlotKind::Again, target, number, bytes)
    }

    fn give_back_slot(&self, spot: Option<slot::Spot>, kind: SlotKind, page: u64) {
        let mut inner = self.inner();
        if kind != SlotKind::Again && inner.newest.get(&page).is_some_and(|slot| slot.strong_count() == 0) {
            inner.newest.remove(&page);
        }
        if let Some(spot) = spot {
            inner.slots.put(kind, spot);
        }
    }

    /// Has the file not grow from now on, or grow again.
    #[cfg(any(test, feature = "mutants"))]
    #[doc(hidden)]
    pub fn stop_growing(&self, full: bool) {
        self.full.store(full, Relaxed);
    }

    /// The arena as a kill at this moment leaves it to the next process.
    ///
    /// # Errors
    /// As [`open`](Arena::open).
    #[cfg(any(test, feature = "mutants"))]
    #[doc(hidden)]
    pub fn killed(&self) -> Result<Arc<Self>, ArenaError> {
        use std::os::unix::fs::FileExt;
        let mut bytes = vec![0; self.file.metadata()?.len() as usize];
        self.file.read_exact_at(&mut bytes, 0)?;
        let copy = Arena::anonymous(self.sizes.page_bytes, self.sizes.blocks)?;
        let file = copy.file.try_clone()?;
        file.set_len(bytes.len() as u64)?;
        file.write_all_at(&bytes, 0)?;
        Arena::open(file)
    }
}

fn uuid_words(uuid: [u8; 16]) -> [u64; 2] {
    let uuid = u128::from_le_bytes(uuid);
    [uuid as u64, (uuid >> 64) as u64]
}

/// A word of mapped memory, which the next process reads.
pub(super) type Word = AtomicU64;

/// A call at each moment at which a kill would leave another state.
#[cfg(any(test, feature = "mutants"))]
#[doc(hidden)]
pub mod moments {
    use std::cell::RefCell;

    type Call = Box<dyn FnMut()>;

    thread_local! {
        static CALLED: RefCell<Option<Call>> = const { RefCell::new(None) };
    }

    /// Has `call` called at each such moment of this thread.
    pub fn call(call: Option<Call>) {
        CALLED.with(|called| *called.borrow_mut() = call);
    }

    /// One such moment.
    pub fn passed() {
        CALLED.with(|called| {
            // The call itself may pass such moments.
            let Ok(mut called) = called.try_borrow_mut() else { return };
            if let Some(call) = called.as_mut() {
                call();
            }
        });
    }
}

/// A moment at which a kill would leave another state than before.
pub(super) fn moment() {
    #[cfg(any(test, feature = "mutants"))]
    moments::passed();
}
