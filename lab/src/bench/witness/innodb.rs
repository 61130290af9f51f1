//! Checkpoints of InnoDB, compared with what was synced. A checkpoint at an LSN says that all changes before it are durable
//! in the files. Where pages with such changes were written and not synced before the checkpoint, a loss of those writes
//! damages the database, whatever is below it.
//!
//! A page has the LSN of its last change alone. A checkpoint is certainly too early where an unsynced page has an LSN
//! before it. It may be too early where only the version before that, which a sync has covered, has one: whether the changes
//! in between began before the checkpoint is not in the page.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Name of the redo log since MariaDB 10.8.
pub(super) const REDO: &str = "ib_logfile0";
/// Offsets of the two checkpoints in the redo log: the LSN is in their first eight bytes, big-endian.
const CHECKPOINTS: [u64; 2] = [0x1000, 0x2000];
/// Offsets in a page: its number, and the LSN of its last change.
const NUMBER: usize = 4;
const LSN: usize = 16;

/// True for the file of a tablespace.
pub(super) fn is_tablespace(name: &str) -> bool {
    name.ends_with(".ibd") || name == "ibdata1"
}

/// A page that was written.
struct Written {
    file: String,
    lsn: u64,
    /// Number after its answer.
    answered: u64,
    /// LSN of the version that a sync has covered, 0 where this process knows of none.
    durable: u64,
}

/// A checkpoint that counts on pages which no sync has covered.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Early {
    Certainly(String),
    Perhaps(String),
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
        if !is_tablespace(name) || !offset.is_multiple_of(page_bytes) {
            return;
        }
        let mut pages = self.pages();
        for (page, whole) in (offset / page_bytes..).zip(bytes.chunks_exact(page_bytes as usize)) {
            let number = u32::from_be_bytes(whole[NUMBER..][..4].try_into().expect("four bytes"));
            // Pages of the doublewrite buffer have the numbers of others.
            if u64::from(number) == page {
                let lsn = u64::from_be_bytes(whole[LSN..][..8].try_into().expect("eight bytes"));
                let synced = pages.synced.get(&inode).copied().unwrap_or(0);
                let before = pages.written.get(&(inode, page));
                let durable = before.map_or(0, |it| if it.answered <= synced { it.lsn } else { it.durable });
                pages.written.insert((inode, page), Written { file: name.to_owned(), lsn, answered, durable });
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
    pub fn fault(&self, lsn: u64) -> Option<Early> {
        let pages = self.pages();
        let uncovered = pages.written.iter().filter(|((inode, _), page)| {
            page.durable < lsn && page.answered > pages.synced.get(inode).copied().unwrap_or(0)
        });
        let uncovered: Vec<_> = uncovered.map(|((_, page), written)| (page, written)).collect();
        let certain = uncovered.iter().filter(|(_, written)| written.lsn < lsn).count();
        let (page, Written { file, lsn: its, durable, .. }) = uncovered.iter().min_by_key(|(_, it)| it.lsn)?;
        let checkpoint = format!("the database's own checkpoint at LSN {lsn}");
        Some(if certain > 0 {
            Early::Certainly(format!(
                "{checkpoint} counts on {certain} pages that no sync has covered: page {page} of {file} has LSN {its}"
            ))
        } else {
            let count = uncovered.len();
            Early::Perhaps(format!(
                "{checkpoint} may count on {count} pages that no sync has covered: page {page} of {file} has LSN {its}, and {durable} before"
            ))
        })
    }
}

/// LSNs of the checkpoints that a write to the redo log makes.
pub(super) fn checkpoints(offset: u64, bytes: &[u8]) -> impl Iterator<Item = u64> {
    CHECKPOINTS.into_iter().filter_map(move |at| {
        let lsn = bytes.get(usize::try_from(at.checked_sub(offset)?).ok()?..)?.first_chunk()?;
        Some(u64::from_be_bytes(*lsn))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_are_found_where_a_write_has_them() {
        let lsn = |value: u64| [&value.to_be_bytes()[..], &[0; 504]].concat();
        let of = |offset: u64, bytes: &[u8]| checkpoints(offset, bytes).collect::<Vec<_>>();
        assert_eq!(of(0x1000, &lsn(77)), [77]);
        assert_eq!(of(0x2000, &lsn(78)), [78]);
        assert_eq!(of(0xe00, &[lsn(1), lsn(77)].concat()), [77]);
        assert!(of(0x3000, &lsn(77)).is_empty() && of(0x1001, &lsn(77)).is_empty());
    }

    #[test]
    fn a_checkpoint_is_too_early_while_a_page_with_an_older_change_is_not_synced() {
        let page = |number: u32, lsn: u64| {
            let mut bytes = vec![0; 64];
            bytes[NUMBER..][..4].copy_from_slice(&number.to_be_bytes());
            bytes[LSN..][..8].copy_from_slice(&lsn.to_be_bytes());
            bytes
        };
        let certain = |state: &State, lsn: u64, what: &str| {
            state.fault(lsn).is_some_and(|early| matches!(early, Early::Certainly(why) if why.contains(what)))
        };
        let perhaps = |state: &State, lsn: u64| matches!(state.fault(lsn), Some(Early::Perhaps(_)));
        let state = State::default();
        state.written("t.ibd", 1, (64, 64), &[page(1, 100), page(2, 200)].concat(), 5);
        // In the doublewrite buffer.
        state.written("ibdata1", 2, (64, 640), &page(2, 200), 4);
        assert!(perhaps(&state, 100), "nothing is known of the versions before");
        assert!(certain(&state, 150, " 1 pages ") && certain(&state, 150, "page 1 of t.ibd"));
        assert!(certain(&state, 201, " 2 pages "));
        state.synced(2, 9);
        state.synced(1, 4);
        assert!(certain(&state, 201, ""), "the sync began before the write was answered");
        state.synced(1, 6);
        assert!(state.fault(201).is_none());
        state.written("t.ibd", 1, (64, 64), &page(1, 300), 7);
        state.written("t.ibd", 1, (64, 64), &page(1, 400), 8);
        assert!(state.fault(100).is_none(), "the version that is durable has all changes before it");
        assert!(perhaps(&state, 250), "there may be a change between 100 and 250");
        assert!(certain(&state, 401, " 1 pages "));
    }
}
