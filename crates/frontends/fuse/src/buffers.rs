//! Memory for answers, which is reused because new memory is zeroed first, by this process or, per page, by the kernel.

use entresol_disk::AlignedBytes;
use std::sync::{Arc, Mutex, PoisonError};

/// Buffers kept while free. More exist while more requests are under way.
const KEPT: usize = 8;

/// Buffers of one size, which O_DIRECT reads into without a copy.
#[derive(Clone)]
pub(super) struct Buffers {
    bytes: usize,
    free: Arc<Mutex<Vec<AlignedBytes>>>,
}

impl Buffers {
    pub fn new(bytes: usize) -> Self {
        Self { bytes, free: Arc::default() }
    }

    /// A buffer of that size with any contents, or a zeroed one of `wanted` bytes if that is larger. A new buffer takes
    /// memory only where it is used.
    pub fn take(&self, wanted: usize) -> AlignedBytes {
        if wanted > self.bytes {
            return AlignedBytes::zeroed(wanted);
        }
        let kept = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        kept.unwrap_or_else(|| AlignedBytes::zeroed(self.bytes))
    }

    /// Takes a buffer back.
    pub fn give(&self, buffer: AlignedBytes) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < KEPT && buffer.len() == self.bytes {
            free.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_given_back_is_the_next_and_no_more_are_kept_than_that() {
        let buffers = Buffers::new(10_000);
        let mut taken: Vec<AlignedBytes> = (0..KEPT + 3).map(|_| buffers.take(1)).collect();
        for (buffer, mark) in taken.iter_mut().zip(1..) {
            assert!(buffer.len() == 10_000 && buffer.as_ptr().align_offset(4096) == 0);
            buffer[9_999] = mark;
        }
        taken.into_iter().for_each(|buffer| buffers.give(buffer));
        for mark in (1..=KEPT as u8).rev() {
            assert_eq!(buffers.take(10_000)[9_999], mark);
        }
        assert_eq!(buffers.take(10_000)[9_999], 0);
        buffers.give(buffers.take(10_001));
        assert_eq!(buffers.take(1).len(), 10_000);
    }
}
