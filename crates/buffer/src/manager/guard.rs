//! Access to the bytes of a page.

use super::BufferManager;
use super::io::PageIo;
use crate::frame::Key;
use crate::table::PageTable;
use entresol_core::Address;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// A page that may change while it is looked at. Values read from it count only if the whole read is confirmed, as
/// [`BufferManager::read`] does. So a view lends out no slice, and values read from one page need not agree.
pub struct PageView<'a> {
    start: *const u8,
    bytes: usize,
    _frame: PhantomData<&'a u8>,
}

impl PageView<'_> {
    /// # Safety
    /// `start` points to this many bytes that stay mapped for the life of the view, aligned to 8.
    pub(super) unsafe fn new(start: *const u8, bytes: usize) -> Self {
        PageView { start, bytes, _frame: PhantomData }
    }

    /// Size of the page in bytes.
    pub fn size_bytes(&self) -> usize {
        self.bytes
    }

    /// The byte at an offset.
    ///
    /// # Panics
    /// Beyond the end of the page.
    #[inline(always)]
    pub fn u8_at(&self, offset: usize) -> u8 {
        assert!(offset < self.bytes, "byte {offset} of a page of {} B", self.bytes);
        // SAFETY: the byte lies in the page, which stays mapped. A writer may store to it meanwhile: the frame's
        // version then makes the reader discard the value, and a relaxed atomic load keeps the race defined.
        unsafe { (*self.start.add(offset).cast::<AtomicU8>()).load(Ordering::Relaxed) }
    }

    /// The eight bytes at an offset that is a multiple of 8, as a little-endian number.
    ///
    /// # Panics
    /// Beyond the end of the page, or at another offset.
    #[inline(always)]
    pub fn u64_at(&self, offset: usize) -> u64 {
        let inside = offset.checked_add(8).is_some_and(|end| end <= self.bytes);
        assert!(inside && offset.is_multiple_of(8), "eight bytes at {offset} of a page of {} B", self.bytes);
        // SAFETY: as in `u8_at`; the page is aligned to more than 8.
        u64::from_le(unsafe { (*self.start.add(offset).cast::<AtomicU64>()).load(Ordering::Relaxed) })
    }

    /// Copies bytes out, from an offset on.
    ///
    /// # Panics
    /// Beyond the end of the page.
    pub fn copy_to(&self, offset: usize, into: &mut [u8]) {
        let end = offset.checked_add(into.len());
        assert!(end.is_some_and(|end| end <= self.bytes), "{} bytes at {offset} of a page", into.len());
        let head = offset.next_multiple_of(8).min(offset + into.len()) - offset;
        let (head, rest) = into.split_at_mut(head);
        head.iter_mut().enumerate().for_each(|(i, byte)| *byte = self.u8_at(offset + i));
        let mut at = offset + head.len();
        let mut words = rest.chunks_exact_mut(8);
        for word in &mut words {
            word.copy_from_slice(&self.u64_at(at).to_le_bytes());
            at += 8;
        }
        words.into_remainder().iter_mut().enumerate().for_each(|(i, byte)| *byte = self.u8_at(at + i));
    }
}

/// A pinned page: its bytes neither change nor leave while the guard lives.
///
/// A thread that holds pins and waits for more can wait for ever, as with any lock. Hosts take pages in one order, or
/// copy bytes with [`BufferManager::read`].
pub struct PinGuard<'m, T: PageTable, I: PageIo> {
    pub(super) manager: &'m BufferManager<T, I>,
    pub(super) frame: u32,
    /// True if the policy did not take the page: the page leaves with the guard.
    pub(super) passing: bool,
}

impl<T: PageTable, I: PageIo> Deref for PinGuard<'_, T, I> {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        // SAFETY: the frame is mapped and initialised (zeroes at least). No thread owns or writes a pinned frame.
        unsafe { std::slice::from_raw_parts(self.manager.pool.frame(self.frame), self.manager.pool.page_bytes()) }
    }
}

impl<T: PageTable, I: PageIo> Drop for PinGuard<'_, T, I> {
    #[inline]
    fn drop(&mut self) {
        let manager = self.manager;
        manager.parking.wake(self.frame, manager.frames[self.frame as usize].word.unpin());
        if self.passing {
            manager.let_pass(self.frame);
        }
    }
}

/// A page that the guard alone owns, to be changed. The page is dirty once the guard is dropped.
///
/// A page that the policy does not take is written to storage when the guard is dropped. If that fails, the page stays
/// dirty, and the next [`flush`](BufferManager::flush) reports the error.
pub struct WriteGuard<'m, T: PageTable, I: PageIo> {
    pub(super) manager: &'m BufferManager<T, I>,
    pub(super) frame: u32,
    pub(super) passing: bool,
}

impl<T: PageTable, I: PageIo> WriteGuard<'_, T, I> {
    /// Address of the page.
    pub fn address(&self) -> Address {
        self.key().address()
    }

    fn key(&self) -> Key {
        self.manager.frames[self.frame as usize].key()
    }

    /// Sets the newest log record that changes the page, up to which the log must be durable before the page is
    /// written.
    pub fn set_lsn(&mut self, lsn: u64) {
        self.manager.frames[self.frame as usize].set_lsn(lsn);
    }
}

impl<T: PageTable, I: PageIo> Deref for WriteGuard<'_, T, I> {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        // SAFETY: the frame is mapped and initialised, and the guard owns it: no other slice of it exists.
        unsafe { std::slice::from_raw_parts(self.manager.pool.frame(self.frame), self.manager.pool.page_bytes()) }
    }
}

impl<T: PageTable, I: PageIo> DerefMut for WriteGuard<'_, T, I> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above. Optimistic readers may look at the bytes, through atomic loads whose values they discard
        // when they find that the frame was owned.
        unsafe { std::slice::from_raw_parts_mut(self.manager.pool.frame(self.frame), self.manager.pool.page_bytes()) }
    }
}

impl<T: PageTable, I: PageIo> Drop for WriteGuard<'_, T, I> {
    fn drop(&mut self) {
        let manager = self.manager;
        let word = &manager.frames[self.frame as usize].word;
        // Counted before the page is dirty for others, so that the count never falls below the number of dirty pages.
        manager.count_dirty();
        let (wake, was_dirty) = word.release_dirty();
        manager.parking.wake(self.frame, wake);
        if was_dirty {
            manager.uncount_dirty();
        }
        if self.passing {
            manager.let_pass(self.frame);
        }
    }
}
