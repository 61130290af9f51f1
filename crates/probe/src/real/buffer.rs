//! Memory that direct I/O accepts, filled with bytes that no device compresses or recognises.

use entresol_core::Random;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

/// Alignment in memory; every file system and device accepts it.
const ALIGN: usize = 4096;

/// Buffers of equal size in one piece of memory, each aligned.
#[derive(Debug)]
pub(super) struct Buffers {
    start: *mut u8,
    layout: Layout,
    stride: usize,
    bytes: usize,
    stamp: u64,
}

// SAFETY: the memory belongs to this value alone, as a boxed slice's does.
unsafe impl Send for Buffers {}

impl Buffers {
    /// `count` buffers of `bytes` each, with random content that begins at `seed`; all of it is touched.
    pub(super) fn new(count: usize, bytes: u32, seed: u64) -> Self {
        let stride = (bytes as usize).next_multiple_of(ALIGN);
        let layout = Layout::from_size_align(stride * count.max(1), ALIGN).expect("buffers that fit into memory");
        // SAFETY: the layout is not empty, for a stride is at least one page.
        let start = unsafe { alloc_zeroed(layout) };
        if start.is_null() {
            handle_alloc_error(layout);
        }
        let mut buffers = Buffers { start, layout, stride, bytes: bytes as usize, stamp: seed };
        let mut random = Random::new(seed);
        for index in 0..count {
            buffers
                .slice(index)
                .chunks_mut(8)
                .for_each(|c| c.copy_from_slice(&random.next_u64().to_le_bytes()[..c.len()]));
        }
        buffers
    }

    /// Address of a buffer's first byte, for the kernel.
    pub(super) fn pointer(&self, index: usize) -> *mut u8 {
        assert!((index + 1) * self.stride <= self.layout.size(), "buffer {index} does not exist");
        // SAFETY: the assertion keeps the offset within the allocation.
        unsafe { self.start.add(index * self.stride) }
    }

    /// A buffer's bytes.
    pub(super) fn slice(&mut self, index: usize) -> &mut [u8] {
        let pointer = self.pointer(index);
        // SAFETY: the bytes are within the allocation and initialised, and `self` is borrowed for as long.
        unsafe { std::slice::from_raw_parts_mut(pointer, self.bytes) }
    }

    /// Makes each page of a buffer unlike any written before, so that a deduplicating device finds no duplicates.
    pub(super) fn stamp(&mut self, index: usize) {
        self.stamp = self.stamp.wrapping_add(1);
        let mark = Random::mix(self.stamp).to_le_bytes();
        self.slice(index).chunks_mut(ALIGN).for_each(|page| {
            let length = page.len().min(mark.len());
            page[..length].copy_from_slice(&mark[..length]);
        });
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and freed nowhere else.
        unsafe { dealloc(self.start, self.layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_apart_and_stamped() {
        let mut buffers = Buffers::new(3, 6000, 1);
        assert!((0..3).all(|i| (buffers.pointer(i) as usize).is_multiple_of(ALIGN)));
        buffers.slice(0).fill(0);
        assert!(buffers.slice(1).iter().any(|b| *b != 0));
        let before = buffers.slice(1).to_vec();
        buffers.stamp(1);
        let now = buffers.slice(1).to_vec();
        assert_ne!(before[..8], now[..8]);
        assert_ne!(before[4096..4104], now[4096..4104]);
        assert_eq!(before[8..4096], now[8..4096]);
    }
}
