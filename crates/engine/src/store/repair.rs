//! Reads every newest version of a store that is not in use, and declares in the log what became of those that are
//! damaged: nobody else finds out at the worst time.

use super::rewrite::{self, Past};
use super::{AnyStore, Entry, StoreError, crc32c};
use crate::disk::{AlignedBytes, Disk, Transfer};
use crate::mutant::{self, Mutant};

/// Pages that are read in one submission.
const PAGES: usize = 128;

/// Result of a repair. The superblocks are written anew in any case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// Pages read.
    pub pages: u64,
    /// Bytes of the device at which a table or block of the journal was damaged and is written again, from its copy.
    pub tables: Vec<u64>,
    /// Pages whose clean copy was damaged: it is forgotten, the backing store has them.
    pub gone: Vec<u64>,
    /// Pages whose dirty copy was damaged: what was written last is lost, and reading them is an error until they are
    /// written again.
    pub lost: Vec<u64>,
    /// Tables, or blocks of the journal, that are gone with all copies: the byte of the device, and how many pages each may have told of
    /// at most. Which these are is not known; what they held last is lost.
    pub unknown: Vec<(u64, u64)>,
    /// Dirty pages whose version is older than that, so that it may be out of date.
    pub doubtful: Vec<u64>,
}

/// Treatment of dirty versions that may be out of date, because a later table is gone with all its copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubtful {
    /// They are kept, as the newest that is known.
    Keep,
    /// Reading them is an error until they are written again.
    Lose,
}

/// Checks every page of a store that has its tables or its journal, and declares damaged ones gone or lost.
///
/// # Errors
/// When the store cannot be opened, as damage of a durable table, of a block of the journal or of both superblocks has it; when the device fails;
/// `StorageFull` when there is no room to say what was found: draining the cache makes some.
pub fn repair<D: Disk>(disk: D, backing: [u8; 16], backing_pages: u64) -> Result<Repaired, StoreError> {
    finish(AnyStore::find(disk, backing, backing_pages, None)?.0, Doubtful::Lose)
}

/// As [`repair`], of a store of which tables, or blocks of the journal, may be gone with all copies. What they said cannot be told: of
/// every page that was not written since, a newer version may be lost. A block that says nothing takes the place of each.
///
/// # Errors
/// As there, but for that.
pub fn repair_past<D: Disk>(
    disk: D,
    backing: [u8; 16],
    backing_pages: u64,
    doubtful: Doubtful,
) -> Result<Repaired, StoreError> {
    finish(AnyStore::find_past(disk, backing, backing_pages)?, doubtful)
}

fn finish<D: Disk>(mut log: AnyStore<D>, doubtful: Doubtful) -> Result<Repaired, StoreError> {
    let past = log.take_past().filter(|past| !past.holes.is_empty());
    log.begin()?;
    let tables = log.rewrite_copied()?;
    let held: Vec<(u64, Entry)> = log.index().iter().filter(|(_, entry)| !entry.lost).collect();
    let mut repaired = Repaired { pages: held.len() as u64, tables, ..Repaired::default() };
    for part in held.chunks(PAGES) {
        for (page, entry) in log.damaged(part)? {
            if entry.dirty && !mutant::is(Mutant::RepairForgets) {
                log.lost(page)?;
                repaired.lost.push(page);
            } else {
                log.gone(page)?;
                repaired.gone.push(page);
            }
        }
    }
    if let Some(past) = &past {
        log.settle_doubt(past, doubtful, &mut repaired)?;
    }
    log.write_out()?;
    log.sync()?;
    // Only now: without a gap nobody would know that anything was in doubt.
    let fillers: Vec<_> = past.into_iter().flat_map(|past| past.holes).filter_map(|hole| hole.filler).collect();
    rewrite::write(log.disk(), &fillers)?;
    log.close()?;
    repaired.gone.sort_unstable();
    repaired.lost.sort_unstable();
    Ok(repaired)
}

impl<D: Disk> AnyStore<D> {
    /// Declares what becomes of pages of which nothing was said after a table that is missing.
    fn settle_doubt(&mut self, past: &Past, doubtful: Doubtful, repaired: &mut Repaired) -> Result<(), StoreError> {
        if past.holes.iter().any(|hole| hole.filler.is_none()) {
            let why = "a table that was durable is not there any more, and nothing can take its place";
            return Err(StoreError::Damaged { block: 0, byte: past.holes[0].byte, why });
        }
        repaired.unknown = past.holes.iter().map(|hole| (hole.byte, hole.pages)).collect();
        let in_doubt = |&(page, entry): &(u64, Entry)| !entry.lost && !past.named.contains(&page);
        let older: Vec<(u64, Entry)> = self.index().iter().filter(in_doubt).collect();
        for (page, entry) in older {
            match (entry.dirty, doubtful) {
                // The backing store has it, or something newer.
                (false, _) => self.gone(page)?,
                (true, Doubtful::Keep) => {}
                (true, Doubtful::Lose) => self.lost(page)?,
            }
            repaired.doubtful.extend(entry.dirty.then_some(page));
        }
        for &page in past.displaced.difference(&past.named) {
            self.lost(page)?;
            repaired.doubtful.push(page);
        }
        repaired.doubtful.sort_unstable();
        Ok(())
    }

    /// Those of the versions that are not what was written.
    fn damaged(&mut self, versions: &[(u64, Entry)]) -> Result<Vec<(u64, Entry)>, StoreError> {
        let page_bytes = self.geometry().page_bytes as usize;
        let mut bytes = AlignedBytes::zeroed(versions.len() * page_bytes);
        let addresses = versions.iter().map(|(_, entry)| self.byte_of(entry.address));
        let reads = addresses.zip(bytes.chunks_exact_mut(page_bytes));
        let mut reads: Vec<Transfer> = reads.map(|(at, bytes)| Transfer::Read { at, bytes }).collect();
        // A device that cannot read one of them is asked for each again below.
        let all = self.disk().submit(&mut reads).is_ok();
        drop(reads);
        let mut damaged = Vec::new();
        let mut again = vec![0; page_bytes];
        for (&(page, entry), bytes) in versions.iter().zip(bytes.chunks_exact(page_bytes)) {
            let sound = all && crc32c(bytes) == entry.crc;
            // A copy is bad when it is bad more than once.
            if !sound && self.read(entry, &mut again).is_err() {
                damaged.push((page, entry));
            }
        }
        Ok(damaged)
    }
}
