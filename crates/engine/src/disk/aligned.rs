//! Memory at addresses that O_DIRECT accepts.

use std::ops::{Deref, DerefMut};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Alignment of addresses, positions and lengths that every device accepts.
pub(super) const ALIGN: usize = 4096;

#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Unit([u8; ALIGN]);

/// Bytes that begin at a multiple of 4096.
#[derive(Clone)]
pub struct AlignedBytes {
    units: Vec<Unit>,
    len: usize,
}

impl AlignedBytes {
    /// So many zeros.
    pub fn zeroed(len: usize) -> Self {
        let units = vec![Unit([0; ALIGN]); len.div_ceil(ALIGN)];
        AlignedBytes { units, len }
    }
}

impl Deref for AlignedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.units.as_bytes()[..self.len]
    }
}

impl DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.units.as_mut_bytes()[..self.len]
    }
}
