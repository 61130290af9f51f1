//! The bytes of a node's buffer: memory that is mapped and touched before the first write, and that writers on the host may map too.

use entresol_burst::Extent;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

#[cfg(feature = "measure")]
static NOT_ZEROED: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// Measurement without zeroing: from now on nodes of this process leave freed space as it is, or they zero it again.
#[cfg(feature = "measure")]
pub fn without_zeroing(left_out: bool) {
    NOT_ZEROED.store(left_out, std::sync::atomic::Ordering::Relaxed);
}

/// A shared mapping of a file in memory. Its pages are there from the start: the first touch of memory is about ten times slower
/// than a copy into warm pages.
pub struct Arena {
    base: *mut u8,
    bytes: usize,
    memory: OwnedFd,
}

// SAFETY: an arena is memory and nothing else; access goes through `&self` and `&mut self`, and to bytes of one piece at a time.
unsafe impl Send for Arena {}

impl Arena {
    /// Maps and touches this many bytes.
    ///
    /// # Errors
    /// When there is not so much memory.
    pub fn new(bytes: u64) -> io::Result<Arena> {
        let length = usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
        if length == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a buffer has at least one byte"));
        }
        let memory = memfd_create("entresol-burst", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&memory, bytes)?;
        // A writer that has it cannot take pages away from under the node.
        fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Arena::of(memory, length, MapFlags::SHARED | MapFlags::POPULATE)
    }

    fn of(memory: OwnedFd, bytes: usize, flags: MapFlags) -> io::Result<Arena> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe { mmap(std::ptr::null_mut(), bytes, access, flags, &memory, 0)? };
        Ok(Arena { base: base.cast(), bytes, memory })
    }

    /// The file that a writer on this host maps.
    pub fn memory(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    fn span(&self, offset: usize, length: usize) -> io::Result<*mut u8> {
        let end = offset.checked_add(length).filter(|&end| end <= self.bytes);
        end.ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: the offset is within the mapping.
        Ok(unsafe { self.base.add(offset) })
    }

    /// Copies bytes into a piece, from byte `at` of the piece on.
    ///
    /// # Errors
    /// When they do not fit into its extents.
    pub fn write(&mut self, extents: &[Extent], at: u64, mut bytes: &[u8]) -> io::Result<()> {
        for (offset, length) in spans(extents, at, bytes.len() as u64)? {
            let (part, rest) = bytes.split_at(length);
            let span = self.span(offset, length)?;
            // SAFETY: the span is within the mapping, which nothing in this process refers to; `&mut self` is exclusive.
            unsafe { span.copy_from_nonoverlapping(part.as_ptr(), length) };
            bytes = rest;
        }
        Ok(())
    }

    /// Overwrites bytes with zeros.
    ///
    /// # Errors
    /// When they are not within the buffer.
    pub fn zero(&mut self, extent: Extent) -> io::Result<()> {
        let length = usize::try_from(extent.bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        let span = self.span(extent.offset as usize, length)?;
        #[cfg(feature = "measure")]
        if NOT_ZEROED.load(std::sync::atomic::Ordering::Relaxed) {
            return Ok(());
        }
        // SAFETY: the span is within the mapping, which nothing in this process refers to; `&mut self` is exclusive.
        unsafe { span.write_bytes(0, length) };
        Ok(())
    }

    /// Copies bytes out of a piece, from byte `at` of the piece on.
    ///
    /// # Errors
    /// When its extents do not have so many.
    pub fn read(&self, extents: &[Extent], at: u64, bytes: u64) -> io::Result<Vec<u8>> {
        let mut read = Vec::with_capacity(bytes as usize);
        for (offset, length) in spans(extents, at, bytes)? {
            let span = self.span(offset, length)?;
            // SAFETY: the span is within the mapping. A piece that is read is stored, and no writer writes into it any more.
            read.extend_from_slice(unsafe { std::slice::from_raw_parts(span, length) });
        }
        Ok(read)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping is this object's, and nothing borrows from it any more. A failure leaks it.
        let _ = unsafe { munmap(self.base.cast(), self.bytes) };
    }
}

/// Zeroed memory for the bytes of an object, in large pages where the system has them: the first touch of each page takes longer than
/// the copy into it.
///
/// # Errors
/// When there is not so much memory.
pub fn zeroed(bytes: u64) -> io::Result<Vec<u8>> {
    const LARGE_PAGE: usize = 2 << 20;
    let length = usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
    Vec::<u8>::new().try_reserve_exact(length).map_err(|_| io::ErrorKind::OutOfMemory)?;
    let mut memory = vec![0; length];
    let before = memory.as_ptr().align_offset(LARGE_PAGE);
    if let Some(pages) = memory.get_mut(before..) {
        let pages = &mut pages[..(length - before) / LARGE_PAGE * LARGE_PAGE];
        // SAFETY: the pages are of this object alone, and no byte of them changes. The advice may be refused.
        let _ = unsafe { madvise(pages.as_mut_ptr().cast(), pages.len(), Advice::LinuxHugepage) };
    }
    Ok(memory)
}

/// Offsets and lengths in the arena of `bytes` bytes of a piece.
pub fn spans(extents: &[Extent], mut at: u64, mut bytes: u64) -> io::Result<Vec<(usize, usize)>> {
    let mut spans = Vec::new();
    for extent in extents {
        let part = extent.bytes.saturating_sub(at).min(bytes);
        if part > 0 {
            spans.push(((extent.offset + at) as usize, part as usize));
            bytes -= part;
        }
        at = at.saturating_sub(extent.bytes);
    }
    match bytes {
        0 => Ok(spans),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "beyond the end of the piece")),
    }
}

/// True if extents are not empty, lie within a buffer of `capacity` bytes, and are disjoint.
pub fn are_sound(extents: &[Extent], capacity: u64) -> bool {
    let within = |extent: &Extent| extent.offset.checked_add(extent.bytes).is_some_and(|end| end <= capacity);
    let mut sorted = extents.to_vec();
    sorted.sort_unstable();
    !sorted.is_empty()
        && sorted.iter().all(|extent| extent.bytes > 0 && within(extent))
        && sorted.windows(2).all(|pair| pair[0].end() <= pair[1].offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(offset: u64, bytes: u64) -> Extent {
        Extent { offset, bytes }
    }

    #[test]
    fn a_piece_is_read_as_it_was_written() {
        let mut arena = Arena::new(100).expect("memory");
        let piece = [extent(40, 3), extent(0, 5), extent(90, 10)];
        arena.write(&piece, 2, b"abcdefgh").expect("it fits");
        assert_eq!(arena.read(&piece, 2, 8).expect("it is there"), b"abcdefgh");
        assert_eq!(arena.read(&[extent(0, 5)], 0, 5).expect("it is there"), b"bcdef");
        assert!(arena.write(&piece, 11, &[0; 8]).is_err() && arena.read(&piece, 0, 19).is_err());
        assert!(arena.read(&[extent(99, 2)], 0, 2).is_err(), "beyond the arena");
        assert!(Arena::new(0).is_err());
    }

    #[test]
    fn forged_extents_are_found() {
        assert!(are_sound(&[extent(8, 2), extent(0, 8)], 10));
        assert!(!are_sound(&[], 10) && !are_sound(&[extent(0, 0)], 10) && !are_sound(&[extent(5, 6)], 10));
        assert!(!are_sound(&[extent(u64::MAX, 2)], 10) && !are_sound(&[extent(0, 5), extent(4, 2)], 10));
    }
}
