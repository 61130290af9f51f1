//! Memory at addresses that O_DIRECT accepts.

use std::ops::{Deref, DerefMut};

/// Alignment of addresses, positions and lengths that every device accepts.
pub(super) const ALIGN: usize = 4096;

/// Bytes that begin at a multiple of 4096.
///
/// Large memory is touched when it is used, not before. An allocator asked for aligned zeros writes them; one asked for
/// zeros gets them from the kernel. So the memory is unaligned and longer, and the bytes begin at its first multiple.
pub struct AlignedBytes {
    bytes: Vec<u8>,
    from: usize,
    len: usize,
}

impl AlignedBytes {
    /// Zeros, `len` bytes.
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
