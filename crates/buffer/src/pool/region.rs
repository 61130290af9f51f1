//! Anonymous mappings on huge pages, and arrays in them.

use crate::frame::Frame;
use crate::sync::atomic::{AtomicU32, AtomicU64};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::io;
use std::ops::Deref;

/// Size and alignment of a huge page.
const HUGE: usize = 2 << 20;

/// A private anonymous mapping, zeroed, aligned to [`HUGE`].
pub(super) struct Region {
    base: *mut u8,
    bytes: usize,
    without_huge_pages: Option<String>,
}

// SAFETY: a region is memory and nothing else; its users control access to its bytes.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    pub fn new(bytes: usize) -> io::Result<Self> {
        let too_large = || io::Error::from(io::ErrorKind::OutOfMemory);
        let bytes = bytes.max(1).checked_next_multiple_of(HUGE).ok_or_else(too_large)?;
        let mapped = bytes.checked_add(HUGE).ok_or_else(too_large)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), mapped, ProtFlags::READ | ProtFlags::WRITE, flags)? };
        let before = start.cast::<u8>().align_offset(HUGE);
        // SAFETY: `before` is less than HUGE, by which the mapping is longer than the region.
        let base = unsafe { start.cast::<u8>().add(before) };
        // SAFETY: both ends belong to the mapping just made and lie outside the region; no pointer into them exists.
        unsafe {
            unmap(start, before);
            unmap(base.add(bytes).cast(), HUGE - before);
        }
        // SAFETY: the range is the region's; the advice changes how the memory is backed, not its contents.
        let advised = unsafe { madvise(base.cast(), bytes, Advice::LinuxHugepage) };
        let without_huge_pages = match advised {
            Err(error) => Some(format!("the kernel gives no huge pages: {}", io::Error::from(error))),
            Ok(()) => switched_off(),
        };
        Ok(Region { base, bytes, without_huge_pages })
    }

    #[inline(always)]
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    pub fn without_huge_pages(&self) -> Option<&str> {
        self.without_huge_pages.as_deref()
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the region is mapped and owned by this object, and nothing borrows from it any more.
        unsafe { unmap(self.base.cast(), self.bytes) }
    }
}

/// # Safety
/// The range is mapped and no longer in use.
unsafe fn unmap(start: *mut c_void, bytes: usize) {
    if bytes > 0 {
        // SAFETY: as the caller promises.
        let gone = unsafe { munmap(start, bytes) };
        debug_assert!(gone.is_ok(), "a mapping of our own can be unmapped: {gone:?}");
    }
}

/// The reason why huge pages are off, if they are: `madvise` succeeds even where the kernel is set to ignore it.
fn switched_off() -> Option<String> {
    let path = "/sys/kernel/mm/transparent_hugepage/enabled";
    match std::fs::read_to_string(path) {
        Ok(setting) if setting.contains("[never]") => Some(format!("huge pages are switched off in {path}")),
        Ok(_) => None,
        Err(error) => Some(format!("it is not known whether there are huge pages: {path}: {error}")),
    }
}

/// Types that are valid when all their bytes are zero, and that need no drop.
///
/// # Safety
/// Both must be true.
pub(crate) unsafe trait Zeroed {}

// SAFETY: an atomic integer has the representation of the integer. (Shuttle's integers do not, but are never put into
// an array of zeroes: see `Array::new`.)
unsafe impl Zeroed for AtomicU32 {}
// SAFETY: as above.
unsafe impl Zeroed for AtomicU64 {}

/// A fixed array on huge pages, initially zeroes.
pub(crate) struct Array<T> {
    start: *const T,
    length: usize,
    /// Owns the memory at `start`.
    _memory: Memory<T>,
}

enum Memory<T> {
    Mapped { _region: Region },
    Boxed { _elements: Box<[T]> },
}

// SAFETY: an array owns its elements and lends them out shared only.
unsafe impl<T: Send> Send for Array<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Array<T> {}

impl<T> Array<T> {
    /// # Safety
    /// The region holds `length` initialised elements from its start, and nobody else uses it.
    unsafe fn mapped(region: Region, length: usize) -> Self {
        Array { start: region.base().cast(), length, _memory: Memory::Mapped { _region: region } }
    }

    fn boxed(elements: Box<[T]>) -> Self {
        Array { start: elements.as_ptr(), length: elements.len(), _memory: Memory::Boxed { _elements: elements } }
    }
}

impl<T: Zeroed + Default> Array<T> {
    /// Smaller arrays are on the heap: a huge page for each would be a waste.
    const MAPPED_FROM: usize = HUGE / 4;

    pub fn new(length: usize) -> io::Result<Self> {
        const { assert!(!std::mem::needs_drop::<T>() || cfg!(shuttle)) };
        let bytes = length.checked_mul(size_of::<T>()).ok_or(io::ErrorKind::OutOfMemory)?;
        if bytes < Self::MAPPED_FROM || cfg!(shuttle) {
            return Ok(Array::boxed((0..length).map(|_| T::default()).collect()));
        }
        // SAFETY: a new region is long enough, aligned, and all zeroes, which are valid elements.
        Ok(unsafe { Array::mapped(Region::new(bytes)?, length) })
    }
}

impl Array<Frame> {
    /// Descriptors of free frames, which are not all zeroes.
    pub fn of_frames(length: usize) -> io::Result<Self> {
        if cfg!(shuttle) {
            return Ok(Array::boxed((0..length).map(|_| Frame::new()).collect()));
        }
        let region = Region::new(length.checked_mul(size_of::<Frame>()).ok_or(io::ErrorKind::OutOfMemory)?)?;
        for i in 0..length {
            // SAFETY: the region fits `length` descriptors and is aligned for them; no other pointer to it exists yet.
            unsafe { region.base().cast::<Frame>().add(i).write(Frame::new()) };
        }
        // SAFETY: all `length` descriptors were just written.
        Ok(unsafe { Array::mapped(region, length) })
    }
}

impl<T> Deref for Array<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: both constructors promise `length` initialised elements from `start`, which live as long as `self`.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }
}
