//! The 32 bytes that describe a frame, and pages packed into one word.

use super::word::FrameWord;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use entresol_core::{Address, ObjectId};

/// The address of a page in one word: object (24 bits), block (40 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key(pub u64);

const BLOCK_BITS: u32 = 40;

impl Key {
    /// The key of no page.
    pub const NONE: Key = Key(u64::MAX);

    /// Packs an address; `None` for objects from 2^24 - 1 and blocks from 2^40 on (4 PiB of 4-KiB pages).
    #[inline(always)]
    pub fn pack(at: Address) -> Option<Key> {
        let fits = at.object.0 < (1 << (64 - BLOCK_BITS)) - 1 && at.block < 1 << BLOCK_BITS;
        fits.then_some(Key(u64::from(at.object.0) << BLOCK_BITS | at.block))
    }

    pub fn address(self) -> Address {
        Address { object: ObjectId((self.0 >> BLOCK_BITS) as u32), block: self.0 & ((1 << BLOCK_BITS) - 1) }
    }
}

/// The handle of a frame whose page the policy does not hold: the last value that fits the 30 bits of a hit's handle.
pub(crate) const NO_HANDLE: u32 = (1 << 30) - 1;

/// Descriptor of a frame. Two fit a cache line, so checking the page costs nothing once the word is loaded.
#[derive(Debug)]
#[repr(C, align(32))]
pub(crate) struct Frame {
    pub word: FrameWord,
    /// The page, valid while the frame is neither free nor being taken. Only its owner changes it.
    key: AtomicU64,
    /// The newest log record that changed the page.
    lsn: AtomicU64,
    /// The page's handle in its shard's directory.
    handle: AtomicU32,
}

impl Frame {
    pub fn new() -> Self {
        Frame {
            word: FrameWord::new(),
            key: AtomicU64::new(Key::NONE.0),
            lsn: AtomicU64::new(0),
            handle: AtomicU32::new(NO_HANDLE),
        }
    }

    // An optimistic reader checks these against the word's version. All others hold the frame or its shard.

    #[inline(always)]
    pub fn key(&self) -> Key {
        Key(self.key.load(Ordering::Relaxed))
    }

    pub fn set_key(&self, key: Key) {
        self.key.store(key.0, Ordering::Relaxed);
    }

    #[inline(always)]
    pub fn handle(&self) -> u32 {
        self.handle.load(Ordering::Relaxed)
    }

    pub fn set_handle(&self, handle: u32) {
        self.handle.store(handle, Ordering::Relaxed);
    }

    pub fn lsn(&self) -> u64 {
        self.lsn.load(Ordering::Relaxed)
    }

    pub fn set_lsn(&self, lsn: u64) {
        self.lsn.store(lsn, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn two_frames_fit_a_cache_line() {
        assert_eq!(size_of::<Frame>(), 32);
    }

    #[test]
    fn addresses_survive_packing_and_what_does_not_fit_is_refused() {
        let at = |object, block| Address { object: ObjectId(object), block };
        for address in [at(0, 0), at(3, 7), at((1 << 24) - 2, (1 << 40) - 1)] {
            assert_eq!(Key::pack(address).expect("a page that fits").address(), address);
        }
        assert_eq!(Key::pack(at((1 << 24) - 1, 0)), None);
        assert_eq!(Key::pack(at(0, 1 << 40)), None);
    }
}
