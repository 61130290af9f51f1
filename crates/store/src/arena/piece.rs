//! Pieces of an arena: mapped memory, and the batch that lies in one.

use super::{Arena, Sizes, Slot, Word, moment};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

/// Words before the bit map of filled blocks.
pub(in crate::arena) const HEAD_WORDS: usize = 8;

/// Words of a piece's head.
pub(in crate::arena) const AT_KIND: usize = 0;
pub(in crate::arena) const AT_NUMBER: usize = 1;
pub(in crate::arena) const AT_OPS: usize = 2;

/// Uses of a piece. A piece of slots keeps its use.
pub(in crate::arena) const FREE: u64 = 0;
pub(in crate::arena) const BATCH: u64 = 1;
pub(in crate::arena) const PAGES: u64 = 2;
pub(in crate::arena) const MARKERS: u64 = 3;

/// An entry of the list of what a batch does, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// The block has a dirty version of the page, once it is filled.
    Dirty { page: u64, block: usize },
    /// The store's version of the page is obsolete.
    Gone { page: u64 },
}

/// Stands for no block.
const NO_BLOCK: u64 = u32::MAX as u64;

impl Op {
    fn words(self) -> [u64; 2] {
        match self {
            Op::Dirty { page, block } => [page, block as u64],
            Op::Gone { page } => [page, NO_BLOCK],
        }
    }

    pub fn of(words: [u64; 2], sizes: &Sizes) -> Option<Self> {
        match words {
            [page, NO_BLOCK] => Some(Op::Gone { page }),
            [page, block] => (block < sizes.blocks as u64).then_some(Op::Dirty { page, block: block as usize }),
        }
    }
}

/// A part of the file, mapped.
struct Mapping {
    start: *mut u8,
    len: usize,
}

// SAFETY: the memory stays where it is until the mapping is dropped, whichever thread does that.
unsafe impl Send for Mapping {}
// SAFETY: nothing is read or written by way of a mapping itself.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(file: &File, offset: u64, len: usize) -> io::Result<Self> {
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let start = unsafe {
            mmap(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file, offset)?
        };
        Ok(Mapping { start: start.cast(), len })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and no longer used.
        let unmapped = unsafe { munmap(self.start.cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "the mapping is ours");
    }
}

/// A piece of the file, in a mapping that others may lie in too.
pub(in crate::arena) struct PieceMap {
    start: *mut u8,
    len: usize,
    /// Offset in the file.
    offset: u64,
    /// Keeps the memory.
    _mapping: Arc<Mapping>,
}

// SAFETY: the mapping lives as long as the struct does. Words are atomic; who reads and writes the rest is for the users to keep apart.
unsafe impl Send for PieceMap {}
// SAFETY: as above.
unsafe impl Sync for PieceMap {}

impl PieceMap {
    /// Maps a part of a file that is so long at least.
    pub fn new(file: &File, offset: u64, len: usize) -> io::Result<Self> {
        let mapping = Arc::new(Mapping::new(file, offset, len)?);
        Ok(PieceMap { start: mapping.start, len, offset, _mapping: mapping })
    }

    /// Maps pieces that lie one behind another, at once: a former process may have left thousands.
    pub fn several(file: &File, offset: u64, len: usize, count: usize) -> io::Result<Vec<Self>> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let mapping = Arc::new(Mapping::new(file, offset, len * count)?);
        let piece = |at: usize| {
            // SAFETY: inside the mapping, which has so many pieces.
            let start = unsafe { mapping.start.add(at * len) };
            PieceMap { start, len, offset: offset + (at * len) as u64, _mapping: Arc::clone(&mapping) }
        };
        Ok((0..count).map(piece).collect())
    }

    /// Number of the piece in the file.
    pub fn index(&self, piece_bytes: usize) -> u64 {
        (self.offset - super::ALIGNMENT as u64) / piece_bytes as u64
    }

    /// A word, by its number.
    pub fn word(&self, at: usize) -> &Word {
        assert!(8 * (at + 1) <= self.len, "word {at} of {} bytes", self.len);
        // SAFETY: inside the mapping, which is page aligned; all access to words is atomic.
        unsafe { AtomicU64::from_ptr(self.start.add(8 * at).cast()) }
    }

    /// Address of a byte.
    pub fn byte(&self, at: usize) -> *mut u8 {
        assert!(at <= self.len, "byte {at} of {}", self.len);
        // SAFETY: inside the mapping or at its end.
        unsafe { self.start.add(at) }
    }

    /// Copies bytes into the piece.
    ///
    /// # Safety
    /// Nobody else reads or writes them meanwhile.
    pub unsafe fn copy_in(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.len, "byte {at} of {}", self.len);
        // SAFETY: inside the mapping; the caller answers for the rest.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.add(at), bytes.len()) };
    }

    /// Bytes of the piece.
    ///
    /// # Safety
    /// Nobody writes them while they are borrowed.
    pub unsafe fn bytes(&self, at: usize, len: usize) -> &[u8] {
        assert!(at + len <= self.len, "byte {at} of {}", self.len);
        // SAFETY: inside the mapping; the caller answers for the rest.
        unsafe { std::slice::from_raw_parts(self.start.add(at), len) }
    }
}

/// A piece with a batch: the list of what the batch does, and its blocks.
pub(crate) struct Piece {
    arena: Arc<Arena>,
    map: Arc<PieceMap>,
    /// Entries of the list. Changed under the core's lock only.
    ops: AtomicU64,
}

impl Piece {
    pub(super) fn begin(arena: Arc<Arena>, map: Arc<PieceMap>, number: u64) -> Self {
        let piece = Piece { arena, map, ops: AtomicU64::new(0) };
        piece.start(number);
        piece
    }

    fn start(&self, number: u64) {
        // The piece is free: nobody reads this before its kind says so.
        self.ops.store(0, Relaxed);
        self.map.word(AT_OPS).store(0, Relaxed);
        for word in 0..self.arena.sizes.filled_words() {
            self.map.word(HEAD_WORDS + word).store(0, Relaxed);
        }
        self.map.word(AT_NUMBER).store(number, Relaxed);
        self.map.word(AT_KIND).store(BATCH, Release);
        moment();
    }

    /// The same piece for the batch that begins now. It must have been [released](Piece::release).
    pub fn again(self) -> Self {
        self.start(self.arena.next_number());
        self
    }

    /// First byte of the blocks, and their length in bytes.
    pub fn blocks(&self) -> (*mut u8, usize) {
        let sizes = self.arena.sizes;
        (self.map.byte(sizes.head_bytes()), sizes.blocks * sizes.page_bytes)
    }

    /// True if the list is full.
    pub fn is_full(&self) -> bool {
        self.ops.load(Relaxed) as usize >= self.arena.sizes.ops()
    }

    /// Adds an entry to the list. Under the core's lock only.
    pub fn note(&self, op: Op) {
        let at = self.ops.load(Relaxed);
        let word = HEAD_WORDS + self.arena.sizes.filled_words() + 2 * at as usize;
        for (number, word) in op.words().into_iter().zip(word..) {
            self.map.word(word).store(number, Relaxed);
        }
        self.ops.store(at + 1, Relaxed);
        self.map.word(AT_OPS).store(at + 1, Release);
        moment();
    }

    fn filled(&self, block: usize) -> (&Word, u64) {
        (self.map.word(HEAD_WORDS + block / 64), 1 << (block % 64))
    }

    /// True if a block has been filled once.
    pub fn is_filled(&self, block: usize) -> bool {
        let (word, bit) = self.filled(block);
        word.load(Relaxed) & bit != 0
    }

    /// Notes that a block is filled.
    pub fn fill(&self, block: usize) {
        let (word, bit) = self.filled(block);
        word.fetch_or(bit, Release);
        moment();
    }

    /// Notes that a block is filled no longer.
    pub fn empty(&self, block: usize) {
        let (word, bit) = self.filled(block);
        word.fetch_and(!bit, AcqRel);
        moment();
    }

    /// Keeps the bytes that are about to overwrite a block, until the result is dropped.
    pub fn overwriting(&self, block: usize, bytes: &[u8]) -> Slot {
        self.arena.again(&self.map, block, bytes)
    }

    /// Notes that the device has the batch.
    pub fn release(&self) {
        moment();
        self.map.word(AT_KIND).store(FREE, Release);
        moment();
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if self.map.word(AT_KIND).load(Relaxed) == BATCH {
            self.release();
        }
        self.arena.give_back(Arc::clone(&self.map));
    }
}
