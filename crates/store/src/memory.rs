//! Memory of a batch. Requests fill its blocks while the core's lock is free.
//!
//! An append reserves a block of the open batch under the lock, and the index names the block at once. The request
//! copies its bytes after it has given the lock back. Between the two the block is unfilled:
//!
//! - The holder of the [`Unfilled`] alone writes the block. It waits for nothing meanwhile, so that a copy of one page is
//!   the longest wait for it.
//! - A reader of a block waits until that is filled, and the write of a sealed batch until all are.
//! - A thread that holds an `Unfilled` must fill it before it waits for its block or for the batch.
//!
//! With an [arena](crate::arena) the memory outlives the process, and has a list of what the batch does. The list and
//! the bits of filled blocks are what the next process goes by.

use crate::arena::{Arena, Missing, Op, Piece, Slot};
use crate::mutant::{self, Mutant};
use entresol_disk::AlignedBytes;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Tries to find blocks filled before a thread gives its processor away, and before it sleeps.
const SPINS: u32 = 64;
const YIELDS: u32 = 4096;
const NAP: Duration = Duration::from_micros(50);

/// Buffers that are kept for future batches.
const SPARE_MAX: usize = 2;

/// Memory for a batch.
pub(crate) enum Memory {
    /// Of this process alone; with an arena that could not grow, something is missing in that.
    Private(AlignedBytes, #[expect(dead_code, reason = "counts as long as it lives")] Option<Missing>),
    /// Of an arena.
    Shared(Piece),
}

impl Memory {
    /// Memory of so many bytes, of an arena if there is one.
    pub fn new(arena: Option<&Arc<Arena>>, bytes: usize) -> Self {
        let arena = arena.filter(|_| !mutant::is(Mutant::ArenaBatchPrivate));
        match arena.map(|arena| arena.batch().map_err(|_| Missing::begin(arena))) {
            Some(Ok(piece)) => Memory::Shared(piece),
            missing => Memory::Private(AlignedBytes::zeroed(bytes), missing.and_then(Result::err)),
        }
    }

    /// True if an arena is there that the memory is not of: it should be replaced.
    fn is_of(&self, arena: Option<&Arc<Arena>>) -> bool {
        matches!(self, Memory::Shared(_)) == arena.is_some()
    }
}

/// Memory of the open batch, and of future ones.
pub(crate) struct Memories {
    arena: Option<Arc<Arena>>,
    block_bytes: usize,
    blocks: usize,
    spare: Vec<Memory>,
}

impl Memories {
    /// For batches of so many blocks.
    pub fn new(blocks: usize, block_bytes: usize) -> Self {
        Memories { arena: None, block_bytes, blocks, spare: Vec::new() }
    }

    /// Blocks of a batch.
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// Has the memory of future batches be of an arena.
    pub fn keep_in(&mut self, arena: &Arc<Arena>) {
        self.arena = Some(Arc::clone(arena));
        self.spare.clear();
    }

    /// Memory for the next batch.
    pub fn next(&mut self) -> Arc<BatchMemory> {
        let memory = match self.spare.pop() {
            Some(Memory::Shared(piece)) => Memory::Shared(piece.again()),
            Some(private) => private,
            None => Memory::new(self.arena.as_ref(), self.blocks * self.block_bytes),
        };
        BatchMemory::new(memory, self.block_bytes)
    }

    /// Takes back the memory of a batch that the device has.
    pub fn put(&mut self, memory: Option<Memory>) {
        let arena = self.arena.as_ref();
        self.spare.extend(memory.filter(|memory| memory.is_of(arena)));
        self.spare.truncate(SPARE_MAX);
    }
}

/// Memory of the open batch, or of a sealed one.
pub(crate) struct BatchMemory {
    /// Not used between [`new`](BatchMemory::new) and [`into_memory`](BatchMemory::into_memory), except by `start`.
    owned: Memory,
    start: *mut u8,
    len: usize,
    block_bytes: usize,
    /// A bit for each block that is reserved and not filled yet. Bits are set under the core's lock only, and not once
    /// the batch is sealed.
    unfilled: Box<[AtomicU64]>,
}

// SAFETY: `start` points into `owned`, which lives as long. Threads write distinct blocks, and read none that is being
// written (see the head of this file).
unsafe impl Send for BatchMemory {}
// SAFETY: as above.
unsafe impl Sync for BatchMemory {}

impl BatchMemory {
    /// Memory for blocks of so many bytes.
    pub fn new(mut owned: Memory, block_bytes: usize) -> Arc<Self> {
        let (start, len) = match &mut owned {
            Memory::Private(bytes, _) => (bytes.as_mut_ptr(), bytes.len()),
            Memory::Shared(piece) => piece.blocks(),
        };
        let words = (len / block_bytes).div_ceil(64);
        let unfilled = std::iter::repeat_with(AtomicU64::default).take(words).collect();
        Arc::new(BatchMemory { owned, start, len, block_bytes, unfilled })
    }

    fn bit(&self, block: usize) -> (&AtomicU64, u64) {
        (&self.unfilled[block / 64], 1 << (block % 64))
    }

    fn shared(&self) -> Option<&Piece> {
        match &self.owned {
            Memory::Private(..) => None,
            Memory::Shared(piece) => Some(piece),
        }
    }

    /// True if the arena has no space for another entry about this batch.
    pub fn is_list_full(&self) -> bool {
        self.shared().is_some_and(Piece::is_full)
    }

    /// Notes in the arena that the store's version of a page is obsolete. Under the core's lock only.
    pub fn note_gone(&self, page: u64) {
        if let Some(piece) = self.shared().filter(|_| !mutant::is(Mutant::ArenaGoneUnsaid)) {
            piece.note(Op::Gone { page });
        }
    }

    /// Notes in the arena that the device has the batch.
    pub fn release(&self) {
        if let Some(piece) = self.shared() {
            piece.release();
        }
    }

    /// Reserves a block of the open batch. Under the core's lock only. If the block was reserved before, its earlier
    /// bytes are awaited: they must not come after these. `noted` is the page whose dirty version the block has from
    /// now on, if the block had none before.
    pub fn reserve(self: &Arc<Self>, block: usize, noted: Option<u64>) -> Unfilled {
        assert!((block + 1) * self.block_bytes <= self.len, "block {block} of {} bytes", self.len);
        if !mutant::is(Mutant::ReservedAgain) {
            self.wait_for(block);
        }
        let (word, bit) = self.bit(block);
        word.fetch_or(bit, Ordering::Relaxed);
        if let (Some(piece), Some(page)) = (self.shared(), noted) {
            piece.note(Op::Dirty { page, block });
        }
        Unfilled { memory: Arc::clone(self), block, older: None }
    }

    /// Waits until a block is filled, if it is reserved.
    fn wait_for(&self, block: usize) {
        let (word, bit) = self.bit(block);
        wait_while(|| word.load(Ordering::Acquire) & bit != 0);
    }

    /// Waits until all reserved blocks are filled.
    pub fn wait(&self) {
        wait_while(|| self.unfilled.iter().any(|word| word.load(Ordering::Acquire) != 0));
    }

    /// Bytes of a block, once it is filled. The block may not be reserved while they are borrowed.
    pub fn filled(&self, block: usize) -> &[u8] {
        if !mutant::is(Mutant::ReadBeforeBytes) {
            self.wait_for(block);
        }
        self.at(block * self.block_bytes..(block + 1) * self.block_bytes)
    }

    /// As [`filled`](Self::filled), without a wait: none while the block is reserved.
    pub fn filled_now(&self, block: usize) -> Option<&[u8]> {
        let (word, bit) = self.bit(block);
        let is_filled = word.load(Ordering::Acquire) & bit == 0 || mutant::is(Mutant::QueuedBeforeBytes);
        is_filled.then(|| self.at(block * self.block_bytes..(block + 1) * self.block_bytes))
    }

    /// Bytes for the device, of a sealed batch whose blocks are filled; or of blocks that no append reserves.
    pub fn at(&self, range: Range<usize>) -> &[u8] {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {} bytes", self.len);
        // SAFETY: the range is inside. Its blocks are filled, and none is reserved while it is borrowed, since that takes
        // the store mutably. (A mutant reads too early, of one thread.)
        unsafe { std::slice::from_raw_parts(self.start.add(range.start), range.len()) }
    }

    /// Writes blocks that no append reserves: those of the table. `&mut` of the store stands for the lock.
    pub fn write(&self, range: Range<usize>, write: impl FnOnce(&mut [u8])) {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {} bytes", self.len);
        // SAFETY: the range is inside, and neither reserved nor borrowed.
        write(unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) });
    }

    /// The memory, for another batch.
    pub fn into_memory(self) -> Memory {
        self.owned
    }
}

/// A reserved block of a batch whose bytes are still to be copied.
#[must_use = "the batch cannot be written before its blocks are filled"]
pub struct Unfilled {
    memory: Arc<BatchMemory>,
    block: usize,
    /// The older version of the page in the arena, which counts until the block is filled.
    older: Option<Arc<Slot>>,
}

impl Unfilled {
    /// Has an older version of the page, in a slot of the arena, count until the block is filled.
    pub fn replaces(&mut self, older: Option<Arc<Slot>>) {
        self.older = older;
    }

    /// Copies the bytes, whose CRC was given when the block was reserved.
    pub fn fill(self, bytes: &[u8]) {
        let memory = &*self.memory;
        assert_eq!(bytes.len(), memory.block_bytes, "bytes of a page");
        let Some(piece) = memory.shared() else {
            self.copy(bytes);
            // Memory of the process alone is noted as missing in the arena until the device has it: a kill before that may
            // lose both versions, and one after it must not bring the older one back.
            return self.settle_older();
        };
        // Bytes that an answered write left in the block must not be torn by a kill.
        let torn = piece.is_filled(self.block) && !mutant::is(Mutant::ArenaOverwritten);
        let again = torn.then(|| piece.overwriting(self.block, bytes));
        if again.as_ref().is_some_and(Slot::is_private) && !mutant::is(Mutant::ArenaTornCounts) {
            // A kill loses what memory has of the page, as it is noted to be missing.
            piece.empty(self.block);
        }
        if mutant::is(Mutant::ArenaFilledEarly) {
            piece.fill(self.block);
        }
        self.copy(bytes);
        piece.fill(self.block);
        self.settle_older();
    }

    fn settle_older(&self) {
        if let Some(older) = &self.older {
            older.settle();
        }
    }

    fn copy(&self, bytes: &[u8]) {
        let at = self.block * bytes.len();
        // SAFETY: the block is inside, and this is its only holder.
        let into = unsafe { std::slice::from_raw_parts_mut(self.memory.start.add(at), bytes.len()) };
        #[cfg(any(test, feature = "mutants"))]
        {
            // A kill may come in the middle of it.
            let half = bytes.len() / 2;
            into[..half].copy_from_slice(&bytes[..half]);
            crate::arena::moments::passed();
        }
        into.copy_from_slice(bytes);
    }
}

impl Drop for Unfilled {
    /// The end of the wait for the block. After a panic its bytes are others than its CRC says: an error to a reader.
    fn drop(&mut self) {
        let (word, bit) = self.memory.bit(self.block);
        word.fetch_and(!bit, Ordering::Release);
    }
}

/// Waits as long as others have blocks to fill.
fn wait_while(unfilled: impl Fn() -> bool) {
    if !unfilled() {
        return;
    }
    #[cfg(any(test, feature = "mutants"))]
    waiting::called();
    let mut tries = 0;
    while unfilled() {
        tries += 1;
        match tries {
            0..SPINS => std::hint::spin_loop(),
            SPINS..YIELDS => std::thread::yield_now(),
            _ => std::thread::sleep(NAP),
        }
    }
}

/// A call before each wait, for tests that hold plans open on one thread.
#[cfg(any(test, feature = "mutants"))]
pub mod waiting {
    use std::cell::Cell;

    thread_local! {
        static CALLED: Cell<Option<fn()>> = const { Cell::new(None) };
    }

    /// Has `call` called before each wait of this thread.
    pub fn call_before(call: Option<fn()>) {
        CALLED.set(call);
    }

    pub(super) fn called() {
        if let Some(call) = CALLED.get() {
            call();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_reader_waits_until_its_block_is_filled_and_a_write_until_all_are() {
        const BLOCKS: usize = 80;
        let memory = BatchMemory::new(Memory::new(None, BLOCKS << 12), 1 << 12);
        for round in 0..100u8 {
            let mut blocks: Vec<Unfilled> = (0..BLOCKS).map(|block| memory.reserve(block, None)).collect();
            let last = blocks.pop().expect("there are some");
            thread::scope(|scope| {
                for unfilled in blocks {
                    scope.spawn(|| unfilled.fill(&[round; 4096]));
                }
                // No other block keeps a reader waiting.
                assert_eq!(memory.filled(round as usize % (BLOCKS - 1)), [round; 4096]);
                last.fill(&[round; 4096]);
                memory.wait();
                assert!(memory.at(0..BLOCKS << 12).iter().all(|&byte| byte == round));
            });
        }
        assert!(Arc::into_inner(memory).is_some(), "no other holder");
    }

    #[test]
    fn a_block_that_is_given_up_keeps_nobody_waiting() {
        let memory = BatchMemory::new(Memory::new(None, 4096), 4096);
        drop(memory.reserve(0, None));
        assert_eq!(memory.filled(0), [0; 4096]);
    }
}
