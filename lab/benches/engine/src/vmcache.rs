//! The floor: the hit path of vmcache (Leis, Alhomssi, Ziegler, Loeck, Dietrich: Virtual-memory assisted buffer
//! management, SIGMOD 2023) and nothing else. The page number is the address, so there is no page table to look into:
//! one word of state per page, and the page itself at its offset in a mapping. This version evicts nothing and
//! notifies no policy.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// The state word: version in the low 56 bits, above it 0 for unlocked, up to 252 for readers, 253 for a writer.
const STATE_SHIFT: u32 = 56;
const READER: u64 = 1 << STATE_SHIFT;
const MAX_READERS: u64 = 252;

pub struct VmCache {
    states: Vec<AtomicU64>,
    start: *mut u8,
    bytes: usize,
    page_bytes: usize,
}

impl VmCache {
    /// All pages resident, page `p` filled by `fill`. vmcache evicts single pages from its mapping, so it cannot use
    /// huge pages; `huge` shows its speed with them.
    pub fn new(pages: usize, page_bytes: usize, huge: bool, fill: impl Fn(u64) -> u64) -> io::Result<Self> {
        let bytes = pages * page_bytes;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps no existing memory.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags)? };
        let advice = if huge { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
        // SAFETY: the range is the mapping just made.
        unsafe { madvise(start, bytes, advice)? };
        let cache =
            VmCache { states: (0..pages).map(|_| AtomicU64::new(0)).collect(), start: start.cast(), bytes, page_bytes };
        for page in 0..pages {
            let words = cache.page(page).cast::<u64>();
            (0..page_bytes / 8).for_each(|i| {
                // SAFETY: word `i` of the page lies in the mapping, which is this object's alone.
                unsafe { words.add(i).write(fill(page as u64)) }
            });
        }
        Ok(cache)
    }

    fn page(&self, page: usize) -> *mut u8 {
        assert!(page < self.states.len());
        // SAFETY: the mapping has as many pages as there are states.
        unsafe { self.start.add(page * self.page_bytes) }
    }

    /// A word of a page, read optimistically.
    #[inline(always)]
    pub fn read(&self, page: usize, word: usize) -> u64 {
        assert!(word < self.page_bytes / 8);
        let state = &self.states[page];
        loop {
            let before = state.load(Ordering::Acquire);
            if before >> STATE_SHIFT <= MAX_READERS {
                // SAFETY: the word lies in the page, which lies in the mapping.
                let value = unsafe { (*self.page(page).cast::<AtomicU64>().add(word)).load(Ordering::Relaxed) };
                fence(Ordering::Acquire);
                if state.load(Ordering::Relaxed) << 8 == before << 8 {
                    return value;
                }
            }
            std::hint::spin_loop();
        }
    }

    /// A word of a page, read under a shared lock.
    #[inline(always)]
    pub fn read_locked(&self, page: usize, word: usize) -> u64 {
        assert!(word < self.page_bytes / 8);
        let state = &self.states[page];
        loop {
            let before = state.load(Ordering::Relaxed);
            let free = before >> STATE_SHIFT < MAX_READERS;
            if free && state.compare_exchange(before, before + READER, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                // SAFETY: the word lies in the page, which lies in the mapping.
                let value = unsafe { (*self.page(page).cast::<AtomicU64>().add(word)).load(Ordering::Relaxed) };
                state.fetch_sub(READER, Ordering::Release);
                return value;
            }
            std::hint::spin_loop();
        }
    }
}

impl Drop for VmCache {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this object, and no borrow of it remains.
        let gone = unsafe { munmap(self.start.cast(), self.bytes) };
        debug_assert!(gone.is_ok());
    }
}
