//! Memory of a batch. Requests fill its blocks while the core's lock is free.
//!
//! An append reserves a block of the open batch under the lock, and the index names the block at once. The request
//! copies its bytes after it has given the lock back. Between the two the block is unfilled:
//!
//! - The holder of the [`Unfilled`] alone writes the block. It waits for nothing meanwhile, so that a copy of one page is
//!   the longest wait for it.
//! - A reader of the batch, and the write of a sealed batch, waits until no block of it is unfilled.
//! - A thread that holds an `Unfilled` must fill it before it waits for the same batch.

use crate::mutant::{self, Mutant};
use entresol_disk::AlignedBytes;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Tries to find all blocks filled before a thread gives its processor away, and before it sleeps.
const SPINS: u32 = 64;
const YIELDS: u32 = 4096;
const NAP: Duration = Duration::from_micros(50);

/// Memory of the open batch, or of a sealed one.
pub(crate) struct BatchMemory {
    /// Not used between [`new`](BatchMemory::new) and [`into_bytes`](BatchMemory::into_bytes), except by `start`.
    owned: AlignedBytes,
    start: *mut u8,
    len: usize,
    /// Reserved blocks that are not filled yet. It grows under the core's lock only, and not once the batch is sealed.
    unfilled: AtomicUsize,
}

// SAFETY: `start` points into `owned`, which lives as long. Threads write distinct blocks, and read none that is being
// written (see the head of this file).
unsafe impl Send for BatchMemory {}
// SAFETY: as above.
unsafe impl Sync for BatchMemory {}

impl BatchMemory {
    pub fn new(mut owned: AlignedBytes) -> Arc<Self> {
        let (start, len) = (owned.as_mut_ptr(), owned.len());
        Arc::new(BatchMemory { owned, start, len, unfilled: AtomicUsize::new(0) })
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Reserves a block of the open batch. Under the core's lock only. A block that was reserved before must be filled
    /// by now: see [`wait`](BatchMemory::wait).
    pub fn reserve(self: &Arc<Self>, block: Range<usize>) -> Unfilled {
        assert!(block.start <= block.end && block.end <= self.len, "{block:?} of {} bytes", self.len);
        self.unfilled.fetch_add(1, Ordering::Relaxed);
        Unfilled { memory: Arc::clone(self), block }
    }

    /// Waits until all reserved blocks are filled.
    pub fn wait(&self) {
        #[cfg(any(test, feature = "mutants"))]
        waiting::called();
        let mut tries = 0;
        while self.unfilled.load(Ordering::Acquire) > 0 {
            tries += 1;
            match tries {
                0..SPINS => std::hint::spin_loop(),
                SPINS..YIELDS => std::thread::yield_now(),
                _ => std::thread::sleep(NAP),
            }
        }
    }

    /// Bytes of the batch, once all reserved blocks are filled. No block may be reserved while they are borrowed.
    pub fn filled(&self, range: Range<usize>) -> &[u8] {
        if !mutant::is(Mutant::ReadBeforeBytes) {
            self.wait();
        }
        self.at(range)
    }

    /// Bytes for the device. As [`filled`](BatchMemory::filled), of a sealed batch.
    pub fn at(&self, range: Range<usize>) -> &[u8] {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {} bytes", self.len);
        // SAFETY: the range is inside. No block is written while it is borrowed: none is unfilled, and none is
        // reserved meanwhile, since that takes the store mutably. (A mutant reads too early, of one thread.)
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
    block: Range<usize>,
}

impl Unfilled {
    /// Copies the bytes, whose CRC was given when the block was reserved.
    pub fn fill(self, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.block.len(), "bytes of a page");
        // SAFETY: the block is inside, and this is its only holder.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.memory.start.add(self.block.start), bytes.len()) };
    }
}

impl Drop for Unfilled {
    /// Whoever waits may go on. After a panic the block has other bytes than its CRC says, and is an error to a reader.
    fn drop(&mut self) {
        self.memory.unfilled.fetch_sub(1, Ordering::Release);
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
    fn a_reader_waits_until_every_reserved_block_is_filled() {
        let memory = BatchMemory::new(AlignedBytes::zeroed(1 << 16));
        for round in 0..200u8 {
            let blocks: Vec<Unfilled> = (0..16).map(|block| memory.reserve(block << 12..(block + 1) << 12)).collect();
            thread::scope(|scope| {
                for unfilled in blocks {
                    scope.spawn(|| unfilled.fill(&[round; 4096]));
                }
                assert!(memory.filled(0..1 << 16).iter().all(|&byte| byte == round));
            });
        }
        assert_eq!(Arc::into_inner(memory).expect("no other holder").into_bytes().len(), 1 << 16);
    }

    #[test]
    fn a_block_that_is_given_up_keeps_nobody_waiting() {
        let memory = BatchMemory::new(AlignedBytes::zeroed(4096));
        drop(memory.reserve(0..4096));
        assert_eq!(memory.filled(0..1), [0]);
    }
}
