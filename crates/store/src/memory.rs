//! Memory of a batch. Requests fill its blocks while the core's lock is free.
//!
//! An append reserves a block of the open batch under the lock, and the index names the block at once. The request
//! copies its bytes after it has given the lock back. Between the two the block is unfilled:
//!
//! - The holder of the [`Unfilled`] alone writes the block. It waits for nothing meanwhile, so that a copy of one page is
//!   the longest wait for it.
//! - A reader of a block waits until that is filled, and the write of a sealed batch until all are.
//! - A thread that holds an `Unfilled` must fill it before it waits for its block or for the batch.

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
pub(crate) const SPARE_MAX: usize = 2;

/// Memory of the open batch, or of a sealed one.
pub(crate) struct BatchMemory {
    /// Not used between [`new`](BatchMemory::new) and [`into_bytes`](BatchMemory::into_bytes), except by `start`.
    owned: AlignedBytes,
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
    pub fn new(mut owned: AlignedBytes, block_bytes: usize) -> Arc<Self> {
        let (start, len) = (owned.as_mut_ptr(), owned.len());
        let words = (len / block_bytes).div_ceil(64);
        let unfilled = std::iter::repeat_with(AtomicU64::default).take(words).collect();
        Arc::new(BatchMemory { owned, start, len, block_bytes, unfilled })
    }

    fn bit(&self, block: usize) -> (&AtomicU64, u64) {
        (&self.unfilled[block / 64], 1 << (block % 64))
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Reserves a block of the open batch. Under the core's lock only. If the block was reserved before, its earlier
    /// bytes are awaited: they must not come after these.
    pub fn reserve(self: &Arc<Self>, block: usize) -> Unfilled {
        assert!((block + 1) * self.block_bytes <= self.len, "block {block} of {} bytes", self.len);
        self.wait_for(block);
        let (word, bit) = self.bit(block);
        word.fetch_or(bit, Ordering::Relaxed);
        Unfilled { memory: Arc::clone(self), block }
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
    pub fn into_bytes(self) -> AlignedBytes {
        self.owned
    }
}

/// A reserved block of a batch whose bytes are still to be copied.
#[must_use = "the batch cannot be written before its blocks are filled"]
pub struct Unfilled {
    memory: Arc<BatchMemory>,
    block: usize,
}

impl Unfilled {
    /// Copies the bytes, whose CRC was given when the block was reserved.
    pub fn fill(self, bytes: &[u8]) {
        let memory = &*self.memory;
        assert_eq!(bytes.len(), memory.block_bytes, "bytes of a page");
        // SAFETY: the block is inside, and this is its only holder.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), memory.start.add(self.block * bytes.len()), bytes.len());
        }
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
        let memory = BatchMemory::new(AlignedBytes::zeroed(BLOCKS << 12), 1 << 12);
        for round in 0..100u8 {
            let mut blocks: Vec<Unfilled> = (0..BLOCKS).map(|block| memory.reserve(block)).collect();
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
        assert_eq!(Arc::into_inner(memory).expect("no other holder").into_bytes().len(), BLOCKS << 12);
    }

    #[test]
    fn a_block_that_is_given_up_keeps_nobody_waiting() {
        let memory = BatchMemory::new(AlignedBytes::zeroed(4096), 4096);
        drop(memory.reserve(0));
        assert_eq!(memory.filled(0), [0; 4096]);
    }
}
