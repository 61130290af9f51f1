//! The change that a write makes to a page, and the view that a reader has of one.

use super::executor::Memory;
use entresol_device::emulated::Clock as DeviceClock;
use std::ops::{Deref, DerefMut, Range};

/// The bytes of a page that are being changed.
pub struct PageChange<'a> {
    bytes: &'a mut [u8],
    lsn: u64,
}

impl PageChange<'_> {
    /// Sets the newest log record that changes the page, up to which the log must be durable before the page is
    /// written.
    pub fn set_lsn(&mut self, lsn: u64) {
        self.lsn = lsn;
    }
}

impl Deref for PageChange<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

impl DerefMut for PageChange<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.bytes
    }
}

/// The change that the current request makes.
pub(super) enum Change<'a> {
    /// Nothing: the request is a read.
    Nothing,
    /// These bytes, from an offset on; the old bytes do not matter.
    Bytes(usize, &'a [u8]),
    /// A change by a caller's function to the current bytes, or to zeroes.
    With { range: Range<usize>, zeroed: bool, with: &'a mut dyn FnMut(&mut PageChange) },
}

impl Change<'_> {
    /// The bytes that change.
    pub fn range(&self) -> Range<usize> {
        match self {
            Change::Nothing => 0..0,
            Change::Bytes(offset, bytes) => *offset..offset + bytes.len(),
            Change::With { range, .. } => range.clone(),
        }
    }

    /// True if the bytes in place must be read before they are changed.
    pub fn reads(&self) -> bool {
        matches!(self, Change::With { zeroed: false, .. })
    }

    /// Changes a page, of which at least the changed range is right. Returns the change's log record, 0 for none.
    pub fn apply(&mut self, page: &mut [u8]) -> u64 {
        let range = self.range();
        match self {
            Change::Nothing => 0,
            Change::Bytes(_, bytes) => {
                page[range].copy_from_slice(bytes);
                0
            }
            Change::With { zeroed, with, .. } => {
                if *zeroed {
                    page.fill(0);
                }
                let mut change = PageChange { bytes: &mut page[range], lsn: 0 };
                with(&mut change);
                change.lsn
            }
        }
    }
}

/// A page in place: in DRAM, in NVM, or, if no tier took it, in memory of the request.
///
/// NVM lends out no slice, because reading NVM has a price: each call pays for the bytes that it reads.
pub struct PageInPlace<'a> {
    pub(super) place: &'a dyn Place,
}

/// Bytes of a page.
pub(super) trait Place {
    fn size_bytes(&self) -> usize;

    fn tier(&self) -> Option<usize>;

    fn read(&self, offset: usize, into: &mut [u8]);
}

impl PageInPlace<'_> {
    /// Size of the page in bytes.
    pub fn size_bytes(&self) -> usize {
        self.place.size_bytes()
    }

    /// The page's tier: 0 for DRAM, 1 for NVM; `None` if the page bypassed both.
    pub fn tier(&self) -> Option<usize> {
        self.place.tier()
    }

    /// Copies bytes out, from an offset on.
    ///
    /// # Panics
    /// Beyond the end of the page.
    pub fn copy_to(&self, offset: usize, into: &mut [u8]) {
        let inside = offset.checked_add(into.len()).is_some_and(|end| end <= self.size_bytes());
        assert!(inside, "{} bytes at {offset} of a page of {} B", into.len(), self.size_bytes());
        self.place.read(offset, into);
    }

    /// The byte at an offset.
    ///
    /// # Panics
    /// Beyond the end of the page.
    pub fn u8_at(&self, offset: usize) -> u8 {
        let mut byte = [0];
        self.copy_to(offset, &mut byte);
        byte[0]
    }

    /// The eight bytes at an offset, as a little-endian number.
    ///
    /// # Panics
    /// Beyond the end of the page.
    pub fn u64_at(&self, offset: usize) -> u64 {
        let mut bytes = [0; 8];
        self.copy_to(offset, &mut bytes);
        u64::from_le_bytes(bytes)
    }
}

/// A page in a frame of a tier.
pub(super) struct InTier<'a, C> {
    pub memory: &'a Memory<C>,
    pub tier: usize,
    pub frame: u32,
}

impl<C: DeviceClock> Place for InTier<'_, C> {
    fn size_bytes(&self) -> usize {
        self.memory.page_bytes()
    }

    fn tier(&self) -> Option<usize> {
        Some(self.tier)
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        self.memory.read(self.tier, self.frame, offset, into);
    }
}

/// A page that bypasses the tiers.
pub(super) struct Passing<'a>(pub &'a [u8]);

impl Place for Passing<'_> {
    fn size_bytes(&self) -> usize {
        self.0.len()
    }

    fn tier(&self) -> Option<usize> {
        None
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        into.copy_from_slice(&self.0[offset..offset + into.len()]);
    }
}
