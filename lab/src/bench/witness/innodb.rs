//! Checkpoints of InnoDB, compared with what was synced. A checkpoint at an LSN says that all changes before it are durable
//! in the files. Where pages were written and not synced before the checkpoint, a loss of those writes damages the
//! database, whatever is below it.

use super::{CHECKPOINT, EARLY, Notes};
use entresol_files::{AtOnce, FileData, Sought};
use rustix::fs::FallocateFlags;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Name of the redo log since MariaDB 10.8.
pub(super) const REDO: &str = "ib_logfile0";
/// Offsets of the two checkpoints in the redo log: the LSN is in their first eight bytes, big-endian.
const CHECKPOINTS: [u64; 2] = [0x1000, 0x2000];
/// Offsets in a page: its number, and the LSN of its last change.
const NUMBER: usize = 4;
const LSN: usize = 16;

/// A page that was written.
struct Written {
    file: String,
    lsn: u64,
    /// Number after its answer.
    answered: u64,
}

#[derive(Default)]
struct Pages {
    /// By file and page.
    written: HashMap<(u64, u64), Written>,
    /// Number of the latest sync that was answered, by file.
    synced: HashMap<u64, u64>,
}

/// Pages of InnoDB that this process has written.
#[derive(Default)]
pub(super) struct State(Mutex<Pages>);

impl State {
    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes an answered write of whole pages.
    pub fn written(&self, name: &str, inode: u64, (page_bytes, offset): (u64, u64), bytes: &[u8], answered: u64) {
        if !(name.ends_with(".ibd") || name == "ibdata1") || !offset.is_multiple_of(page_bytes) {
            return;
        }
        let mut pages = self.pages();
        for (page, whole) in (offset / page_bytes..).zip(bytes.chunks_exact(page_bytes as usize)) {
            let number = u32::from_be_bytes(whole[NUMBER..][..4].try_into().expect("four bytes"));
            // Pages of the doublewrite buffer have the numbers of others.
            if u64::from(number) == page {
                let lsn = u64::from_be_bytes(whole[LSN..][..8].try_into().expect("eight bytes"));
                pages.written.insert((inode, page), Written { file: name.to_owned(), lsn, answered });
            }
        }
    }

    /// Notes an answered sync, by the number at its beginning.
    pub fn synced(&self, inode: u64, number: u64) {
        let mut pages = self.pages();
        let latest = pages.synced.entry(inode).or_default();
        *latest = number.max(*latest);
    }

    /// Forgets the pages of a file from one on.
    pub fn forget(&self, inode: u64, from: u64) {
        self.pages().written.retain(|&(of, page), _| of != inode || page < from);
    }

    /// Reason why a checkpoint at this LSN is too early; none if it is not.
    fn fault(&self, lsn: u64) -> Option<String> {
        let pages = self.pages();
        let uncovered = pages.written.iter().filter(|((inode, _), page)| {
            page.lsn < lsn && page.answered > pages.synced.get(inode).copied().unwrap_or(0)
        });
        let uncovered: Vec<_> = uncovered.map(|((_, page), written)| (page, written)).collect();
        let (page, written) = uncovered.iter().min_by_key(|(_, written)| written.lsn)?;
        let (file, its) = (&written.file, written.lsn);
        let count = uncovered.len();
        Some(format!(
            "the database's own checkpoint at LSN {lsn} counts on {count} pages that no sync has covered: page {page} of {file} has LSN {its}"
        ))
    }
}

/// The redo log.
pub(super) struct Redo {
    pub data: Arc<dyn FileData>,
    pub notes: Arc<Notes>,
}

impl FileData for Redo {
    fn size_bytes(&self) -> io::Result<u64> {
        self.data.size_bytes()
    }

    fn read_now(&self, offset: u64, bytes: &mut [u8]) -> io::Result<AtOnce> {
        self.data.read_now(offset, bytes)
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.data.read(offset, bytes)
    }

    fn write_now(&self, _offset: u64, _bytes: &[u8]) -> io::Result<usize> {
        Ok(0)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        for at in CHECKPOINTS {
            let lsn = at.checked_sub(offset).and_then(|from| bytes.get(from as usize..)?.first_chunk());
            let Some(lsn) = lsn.map(|lsn| u64::from_be_bytes(*lsn)) else { continue };
            self.notes.find(CHECKPOINT, &lsn.to_string())?;
            if let Some(why) = self.notes.innodb.fault(lsn) {
                self.notes.find(EARLY, &why)?;
            }
        }
        self.data.write(offset, bytes)
    }

    fn sync(&self, data_only: bool) -> io::Result<()> {
        self.data.sync(data_only)
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.data.truncate(bytes)
    }

    fn allocate(&self, how: FallocateFlags, offset: u64, bytes: u64) -> io::Result<()> {
        self.data.allocate(how, offset, bytes)
    }

    fn seek(&self, sought: Sought, offset: u64) -> io::Result<u64> {
        self.data.seek(sought, offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_is_too_early_while_a_page_with_an_older_change_is_not_synced() {
        let page = |number: u32, lsn: u64| {
            let mut bytes = vec![0; 64];
            bytes[NUMBER..][..4].copy_from_slice(&number.to_be_bytes());
            bytes[LSN..][..8].copy_from_slice(&lsn.to_be_bytes());
            bytes
        };
        let state = State::default();
        state.written("t.ibd", 1, (64, 64), &[page(1, 100), page(2, 200)].concat(), 5);
        // In the doublewrite buffer.
        state.written("ibdata1", 2, (64, 640), &page(2, 200), 4);
        assert!(state.fault(100).is_none());
        assert!(state.fault(150).is_some_and(|why| why.contains(" 1 pages ") && why.contains("page 1 of t.ibd")));
        assert!(state.fault(201).is_some_and(|why| why.contains(" 2 pages ")));
        state.synced(2, 9);
        state.synced(1, 4);
        assert!(state.fault(201).is_some(), "the sync began before the write was answered");
        state.synced(1, 6);
        assert!(state.fault(201).is_none());
    }
}
