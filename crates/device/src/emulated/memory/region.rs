//! Memory that is mapped, as atomic words.

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a word.
pub(super) const WORD: usize = size_of::<u64>();

/// A file in memory that no other process has.
pub(super) fn anonymous(bytes: u64) -> io::Result<File> {
    let file = File::from(memfd_create("entresol-nvm", MemfdFlags::CLOEXEC)?);
    file.set_len(bytes)?;
    Ok(file)
}

/// A mapped file.
#[derive(Debug)]
pub(super) struct Region {
    map: MmapRaw,
}

impl Region {
    /// Maps a file whose size is a multiple of a word. All pages are mapped at once, so that no access pays for a page
    /// fault.
    pub(super) fn of(file: &File) -> io::Result<Self> {
        let map = MmapOptions::new().populate().map_raw(file)?;
        assert!(map.len().is_multiple_of(WORD), "the caller has checked the size");
        Ok(Region { map })
    }

    /// Size in bytes.
    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    /// All words of the region.
    pub(super) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is shared, writable, aligned to a page, valid as long as `self`, and its length is a
        // multiple of a word. All references to it are to atomic words.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast(), self.map.len() / WORD) }
    }

    /// Has the system write a range to the file.
    pub(super) fn sync(&self, range: &Range<usize>) -> io::Result<()> {
        self.map.flush_range(range.start, range.len())
    }

    /// Copies bytes out of the region.
    pub(super) fn load(&self, offset: usize, bytes: &mut [u8]) {
        let words = self.words();
        let (mut at, skip) = (offset / WORD, offset % WORD);
        let word = |at: usize| words[at].load(Ordering::Relaxed).to_ne_bytes();
        let (head, rest) = bytes.split_at_mut(if skip == 0 { 0 } else { (WORD - skip).min(bytes.len()) });
        if !head.is_empty() {
            head.copy_from_slice(&word(at)[skip..skip + head.len()]);
            at += 1;
        }
        let (whole, tail) = rest.as_chunks_mut::<WORD>();
        for (place, chunk) in whole.iter_mut().enumerate() {
            *chunk = word(at + place);
        }
        if !tail.is_empty() {
            tail.copy_from_slice(&word(at + whole.len())[..tail.len()]);
        }
    }

    /// Copies bytes into the region.
    pub(super) fn store(&self, offset: usize, bytes: &[u8]) {
        let words = self.words();
        let (mut at, skip) = (offset / WORD, offset % WORD);
        // A word that is written in part keeps the rest, even when another thread writes that rest.
        let merge = |at: usize, skip: usize, part: &[u8]| {
            let merged = |old: u64| {
                let mut word = old.to_ne_bytes();
                word[skip..skip + part.len()].copy_from_slice(part);
                Some(u64::from_ne_bytes(word))
            };
            words[at].fetch_update(Ordering::Relaxed, Ordering::Relaxed, merged).expect("it always merges");
        };
        let (head, rest) = bytes.split_at(if skip == 0 { 0 } else { (WORD - skip).min(bytes.len()) });
        if !head.is_empty() {
            merge(at, skip, head);
            at += 1;
        }
        let (whole, tail) = rest.as_chunks::<WORD>();
        for (place, chunk) in whole.iter().enumerate() {
            words[at + place].store(u64::from_ne_bytes(*chunk), Ordering::Relaxed);
        }
        if !tail.is_empty() {
            merge(at + whole.len(), 0, tail);
        }
    }
}
