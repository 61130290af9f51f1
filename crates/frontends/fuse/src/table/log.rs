//! The table's records in shared memory, which outlives the process: two files of memory, of which one is in use.
//!
//! A record is valid once its first word is stored, and a file once its generation is. Both are stored last: the
//! process may be killed between any two instructions. The memory itself is never torn, as its stores are not undone.

use super::record::{Bad, Record};
use crate::mutant::{Mutant, is, step};
use rustix::fs::{FallocateFlags, MemfdFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Release};

const MAGIC: [u8; 8] = *b"\x89ETFUSE\x01";
const VERSION: u64 = 1;
/// Offsets of the version and the generation.
const AT_VERSION: usize = 8;
const AT_GENERATION: usize = 16;
/// Offset of the first record.
const FIRST: usize = 24;
/// Marks the first word of a record, in its upper 16 bits.
const MARK: u64 = 0xE7FE;
/// Bytes of a file at least.
const BYTES_MIN: usize = 1 << 16;
/// Bytes of a file that are read at most: a table of a hundred million nodes.
const BYTES_MAX: u64 = 1 << 34;

/// A file of memory, mapped.
struct Map {
    at: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory is shared with no other thread except through a reference to this.
unsafe impl Send for Map {}

impl Map {
    fn new(file: BorrowedFd<'_>, bytes: usize) -> io::Result<Self> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping, at an address that the system chooses.
        let at = unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, flags, file, 0) }?;
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { at, bytes })
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        assert!(at <= self.bytes && bytes.len() <= self.bytes - at, "it fits");
        // SAFETY: the range lies in the mapping, which `bytes` does not overlap.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at.as_ptr().add(at), bytes.len()) };
    }

    /// Stores a word after all that was written before.
    fn commit(&mut self, at: usize, word: u64) {
        assert!(at.is_multiple_of(8) && at + 8 <= self.bytes, "it fits");
        // SAFETY: the word lies in the mapping, which begins at a page, and is aligned.
        let place = unsafe { AtomicU64::from_ptr(self.at.as_ptr().add(at).cast()) };
        place.store(word.to_le(), Release);
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and no reference into it is left.
        let _ = unsafe { rustix::mm::munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}

/// The log of records.
pub struct Log {
    files: [OwnedFd; 2],
    /// Index of the file in use.
    in_use: usize,
    map: Map,
    used: usize,
    generation: u64,
}

impl Log {
    /// Two files of memory for [`rewrite`](Self::rewrite).
    pub fn files() -> io::Result<[OwnedFd; 2]> {
        let file = || rustix::fs::memfd_create("entresol-fuse-table", MemfdFlags::CLOEXEC);
        Ok([file()?, file()?])
    }

    /// A log of these records, in the file of this index. The other file's records count until that is complete, and
    /// are discarded then.
    pub fn rewrite(
        files: [OwnedFd; 2],
        index: usize,
        generation: u64,
        records: impl Iterator<Item = Record>,
    ) -> io::Result<Self> {
        let mut all = vec![0; FIRST];
        for record in records {
            append(&mut all, &record);
        }
        let (map, used) = written(&files[index], generation, &all)?;
        rustix::fs::ftruncate(&files[1 - index], 0)?;
        Ok(Self { files, in_use: index, map, used, generation })
    }

    /// Moves to the other file, which gets these records only.
    ///
    /// # Errors
    /// The error of the system, for want of memory say; the log goes on as it was.
    pub fn compact(&mut self, records: impl Iterator<Item = Record>) -> io::Result<()> {
        let mut all = vec![0; FIRST];
        for record in records {
            append(&mut all, &record);
        }
        let (other, generation) = (1 - self.in_use, self.generation + 1);
        let (map, used) = written(&self.files[other], generation, &all)?;
        let before = std::mem::replace(&mut self.map, map);
        drop(before);
        step();
        // Only gives memory back: the higher generation counts.
        let _ = rustix::fs::ftruncate(&self.files[self.in_use], 0);
        (self.in_use, self.used, self.generation) = (other, used, generation);
        Ok(())
    }

    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.files[0].as_fd(), self.files[1].as_fd()]
    }

    /// Bytes written so far.
    #[cfg(test)]
    pub fn used(&self) -> usize {
        self.used
    }

    /// Appends a record; false if there is no space, which [`compact`](Self::compact) makes.
    pub fn push(&mut self, record: &Record, scratch: &mut Vec<u8>) -> bool {
        scratch.clear();
        let word = append(scratch, record);
        // The word after a record stays 0 until the next one is complete.
        if self.used + scratch.len() + 8 > self.map.bytes {
            return false;
        }
        if is(Mutant::CommittedEarly) {
            self.map.commit(self.used, word);
            step();
        }
        self.map.write(self.used + 8, &scratch[8..]);
        step();
        self.map.commit(self.used, word);
        self.used += scratch.len();
        step();
        true
    }
}

/// Appends a record's bytes; returns its first word.
fn append(all: &mut Vec<u8>, record: &Record) -> u64 {
    let start = all.len();
    all.extend_from_slice(&[0; 8]);
    let kind = record.encode(all);
    let word = (MARK << 48) | (u64::from(kind) << 32) | (all.len() - start - 8) as u64;
    all[start..start + 8].copy_from_slice(&word.to_le_bytes());
    word
}

/// Writes a whole file, its generation last. It has space for three times as much.
fn written(file: &OwnedFd, generation: u64, all: &[u8]) -> io::Result<(Map, usize)> {
    let bytes = (all.len() * 4).next_multiple_of(BYTES_MIN);
    rustix::fs::ftruncate(file, 0)?;
    // Memory is taken now, because a later want of it would be a signal.
    rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes as u64)?;
    let mut map = Map::new(file.as_fd(), bytes)?;
    map.write(FIRST, &all[FIRST..]);
    map.write(AT_VERSION, &VERSION.to_le_bytes());
    map.write(0, &MAGIC);
    step();
    map.commit(AT_GENERATION, generation);
    step();
    Ok((map, all.len()))
}

/// The records of a former server: those of the complete file with the higher generation, whose index and generation
/// are returned too.
///
/// # Errors
/// [`Bad`] if no file is complete, or a record is none.
pub fn read(files: &[OwnedFd; 2]) -> Result<(usize, u64, Vec<Record>), Bad> {
    let mut best: Option<(usize, u64, Vec<u8>)> = None;
    for (index, file) in files.iter().enumerate() {
        let bytes = bytes_of(file).map_err(|_| Bad("it cannot be read"))?;
        if let Some(generation) = generation(&bytes)?
            && best.as_ref().is_none_or(|best| best.1 < generation)
        {
            best = Some((index, generation, bytes));
        }
    }
    let (index, generation, bytes) = best.ok_or(Bad("it is not complete"))?;
    Ok((index, generation, records(&bytes)?))
}

fn bytes_of(file: &OwnedFd) -> io::Result<Vec<u8>> {
    let file = std::fs::File::from(file.try_clone()?);
    let bytes = file.metadata()?.len();
    if bytes > BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut all = vec![0; bytes as usize];
    file.read_exact_at(&mut all, 0)?;
    Ok(all)
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*word))
}

/// Generation of a complete file.
fn generation(bytes: &[u8]) -> Result<Option<u64>, Bad> {
    match word(bytes, AT_GENERATION) {
        None | Some(0) => Ok(None),
        Some(_) if bytes[..8] != MAGIC => Err(Bad("it is none")),
        Some(_) if word(bytes, AT_VERSION) != Some(VERSION) => Err(Bad("its version is unknown")),
        Some(u64::MAX) => Err(Bad("its generation is the last")),
        generation => Ok(generation),
    }
}

/// The records of a file up to the first that is not committed.
pub fn records(bytes: &[u8]) -> Result<Vec<Record>, Bad> {
    let (mut at, mut records) = (FIRST, Vec::new());
    while let Some(first) = word(bytes, at).filter(|&first| first != 0) {
        let length = (first & u64::from(u32::MAX)) as usize;
        if first >> 48 != MARK || (first >> 40) & 0xFF != 0 || !length.is_multiple_of(8) {
            return Err(Bad("a record begins with senseless bytes"));
        }
        let body = bytes.get(at + 8..at + 8 + length).ok_or(Bad("a record goes beyond the end"))?;
        records.push(Record::decode((first >> 32) as u8, body)?);
        at += 8 + length;
    }
    Ok(records)
}
