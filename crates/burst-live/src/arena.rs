//! The bytes of a node's buffer: anonymous memory, mapped and touched before the first write.

use entresol_burst::Extent;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::io;

/// A private anonymous mapping. Its pages are there from the start: the first touch of memory is about ten times slower
/// than a copy into warm pages.
pub struct Arena {
    base: *mut u8,
    bytes: usize,
}

// SAFETY: an arena is memory and nothing else; access goes through `&self` and `&mut self`.
unsafe impl Send for Arena {}

impl Arena {
    /// Maps and touches this many bytes.
    ///
    /// # Errors
    /// When there is not so much memory.
    pub fn new(bytes: u64) -> io::Result<Arena> {
        let bytes = usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
        if bytes == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a buffer has at least one byte"));
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, access, flags)? };
        Ok(Arena { base: base.cast(), bytes })
    }

    fn all(&self) -> &[u8] {
        // SAFETY: the mapping is `bytes` long, lives as long as `self`, and is changed through `&mut self` alone.
        unsafe { std::slice::from_raw_parts(self.base, self.bytes) }
    }

    fn all_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.base, self.bytes) }
    }

    /// Copies bytes into a piece, from byte `at` of the piece on.
    ///
    /// # Errors
    /// When they do not fit into its extents.
    pub fn write(&mut self, extents: &[Extent], at: u64, mut bytes: &[u8]) -> io::Result<()> {
        for (offset, length) in spans(extents, at, bytes.len() as u64)? {
            let (part, rest) = bytes.split_at(length);
            let span = self.all_mut().get_mut(offset..offset + length).ok_or(io::ErrorKind::InvalidInput)?;
            span.copy_from_slice(part);
            bytes = rest;
        }
        Ok(())
    }

    /// Copies bytes out of a piece, from byte `at` of the piece on.
    ///
    /// # Errors
    /// When its extents do not have so many.
    pub fn read(&self, extents: &[Extent], at: u64, bytes: u64) -> io::Result<Vec<u8>> {
        let mut read = Vec::with_capacity(bytes as usize);
        for (offset, length) in spans(extents, at, bytes)? {
            read.extend_from_slice(self.all().get(offset..offset + length).ok_or(io::ErrorKind::InvalidInput)?);
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

/// Offsets and lengths in the arena of `bytes` bytes of a piece.
fn spans(extents: &[Extent], mut at: u64, mut bytes: u64) -> io::Result<Vec<(usize, usize)>> {
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
