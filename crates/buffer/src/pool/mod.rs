//! Memory of frames and tables: anonymous mappings aligned to 2 MiB, on huge pages where the kernel has any.
//!
//! With 4-KiB translation entries, nearly every hit in a pool of gigabytes misses both the TLB and the cache. With huge
//! pages it misses only the cache.

mod region;

use region::Region;
use std::io;

pub(crate) use region::Array;

/// The page sizes a pool can have, smallest and largest, in bytes.
pub const PAGE_BYTES: (usize, usize) = (4096, 65536);

/// Page-sized frames in one region, numbered from 0.
pub struct Pool {
    region: Region,
    frames: usize,
    /// Size of a page, and its logarithm: a shift finds a frame faster than a multiplication.
    page_bytes: usize,
    page_bits: u32,
}

/// Why a pool cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// The page size is not one that the engine works with.
    #[error("a page of {0} B: it must be a power of two from {min} to {max} B", min = PAGE_BYTES.0, max = PAGE_BYTES.1)]
    PageBytes(usize),
    /// The size of the pool does not fit the address space.
    #[error("{frames} frames of {page_bytes} B are more than the address space holds")]
    TooLarge {
        /// Frames asked for.
        frames: usize,
        /// Bytes of each.
        page_bytes: usize,
    },
    /// The kernel gave no memory.
    #[error("no memory for {frames} frames of {page_bytes} B: {source}")]
    Map {
        /// Frames asked for.
        frames: usize,
        /// Bytes of each.
        page_bytes: usize,
        /// Error of the kernel.
        source: io::Error,
    },
}

impl Pool {
    /// Maps frames of `page_bytes` each. They read as zeroes, and take memory when they are first touched.
    ///
    /// # Errors
    /// If the page size is not a power of two in [`PAGE_BYTES`], or there is too little memory.
    pub fn new(frames: usize, page_bytes: usize) -> Result<Self, PoolError> {
        if !page_bytes.is_power_of_two() || !(PAGE_BYTES.0..=PAGE_BYTES.1).contains(&page_bytes) {
            return Err(PoolError::PageBytes(page_bytes));
        }
        let bytes = frames.checked_mul(page_bytes).ok_or(PoolError::TooLarge { frames, page_bytes })?;
        let region = Region::new(bytes).map_err(|source| PoolError::Map { frames, page_bytes, source })?;
        Ok(Pool { region, frames, page_bytes, page_bits: page_bytes.trailing_zeros() })
    }

    /// Number of frames.
    pub fn frames(&self) -> usize {
        self.frames
    }

    /// Size of a frame in bytes.
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// The reason why the pool is not on huge pages, if it is known not to be.
    pub fn without_huge_pages(&self) -> Option<&str> {
        self.region.without_huge_pages()
    }

    /// The first byte of a frame. A caller that dereferences the pointer must hold the frame by its word.
    ///
    /// # Panics
    /// When there is no such frame.
    #[inline(always)]
    pub(crate) fn frame(&self, frame: u32) -> *mut u8 {
        assert!((frame as usize) < self.frames, "frame {frame} of {}", self.frames);
        // SAFETY: the frame lies within the region, as was just checked.
        unsafe { self.region.base().add((frame as usize) << self.page_bits) }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn frames_are_aligned_apart_and_zero() {
        for page_bytes in [4096, 8192, 65536] {
            let pool = Pool::new(700, page_bytes).expect("a pool");
            assert_eq!(pool.frame(0) as usize % (2 << 20), 0, "the region begins on a huge page");
            for frame in [0, 1, 699] {
                let at = pool.frame(frame);
                assert_eq!(at as usize % page_bytes, 0);
                // SAFETY: the pool is this test's alone, and the frame has this many bytes.
                let bytes = unsafe { std::slice::from_raw_parts_mut(at, page_bytes) };
                assert!(bytes.iter().all(|&b| b == 0), "frame {frame} overlaps another");
                bytes.fill(frame as u8 + 1);
            }
        }
    }

    #[test]
    fn sizes_that_make_no_sense_are_refused() {
        for page_bytes in [0, 512, 2048, 5000, 131_072] {
            let error = Pool::new(10, page_bytes).err().expect("no pool").to_string();
            assert!(error.contains("power of two from 4096 to 65536"), "{error}");
        }
        assert!(matches!(Pool::new(usize::MAX / 2, 4096), Err(PoolError::TooLarge { .. })));
        assert!(matches!(Pool::new(1 << 46, 4096), Err(PoolError::Map { .. })));
    }

    #[test]
    #[should_panic(expected = "frame 10 of 10")]
    fn no_frame_beyond_the_last() {
        Pool::new(10, 4096).expect("a pool").frame(10);
    }

    /// The pool must be on huge pages where the kernel grants them on request, and must give the reason elsewhere.
    #[test]
    fn the_pool_is_on_huge_pages_or_says_why_not() {
        let pool = Pool::new(4096, 4096).expect("a pool");
        // SAFETY: the pool is this test's alone.
        (0..4096).for_each(|frame| unsafe { pool.frame(frame).write(1) });
        let enabled = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
        let granted = enabled.contains("[always]") || enabled.contains("[madvise]");
        println!("kernel: '{}', pool: {:?}", enabled.trim(), pool.without_huge_pages());
        assert_eq!(pool.without_huge_pages().is_none(), granted);
    }
}
