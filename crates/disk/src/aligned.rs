//! Memory at addresses that O_DIRECT accepts.

use std::ops::{Deref, DerefMut};

/// Alignment of addresses, positions and lengths that every device accepts.
pub(super) const ALIGN: usize = 4096;

/// Bytes that begin at a multiple of 4096.
///
/// The memory of many is touched when they are, not before: an allocator that is asked for aligned zeros writes them, one
/// that is asked for zeros has them of the kernel. So there is room to begin at the first multiple.
pub struct AlignedBytes {
    bytes: Vec<u8>,
    from: usize,
    len: usize,
}

impl AlignedBytes {
    /// So many zeros.
    pub fn zeroed(len: usize) -> Self {
        let bytes = if len == 0 { Vec::new() } else { vec![0; len + ALIGN - 1] };
        let from = if len == 0 { 0 } else { bytes.as_ptr().align_offset(ALIGN) };
        AlignedBytes { bytes, from, len }
    }
}

impl Deref for AlignedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.from..][..self.len]
    }
}

impl DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.from..][..self.len]
    }
}
