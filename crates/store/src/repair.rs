//! Reads every newest version of a store that is not in use, and declares damaged versions in the store. So damage is
//! found before a request meets it.

use super::checksum::crc32c;
use super::either::AnyStore;
use super::error::StoreError;
use super::index::Entry;
use super::rewrite::{self, Past};
use crate::mutant::{self, Mutant};
use entresol_disk::{AlignedBytes, Disk, Transfer};

/// Pages that are read in one submission.
const PAGES: usize = 128;

/// Result of a repair. The superblocks are written again in any case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// Pages read.
    pub pages: u64,
    /// Bytes of the device at which a damaged table or block of the journal was written again from its copy.
    pub tables: Vec<u64>,
    /// Pages whose clean copy was damaged. The copy is forgotten; the backing store has the page.
    pub gone: Vec<u64>,
    /// Pages whose dirty copy was damaged. The last write to each is lost, and reading it is an error until it is
    /// written again.
    pub lost: Vec<u64>,
    /// Tables, or blocks of the journal, that are gone with all copies: byte of the device, and most pages named there.
    /// Neither these pages nor their last contents are known.
    pub unknown: Vec<(u64, u64)>,
    /// Dirty pages whose version is older than such a table, and may be out of date.
    pub doubtful: Vec<u64>,
}

/// Treatment of dirty versions that may be out of date, because a later table is gone with all its copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubtful {
    /// Keeps such a version as the newest known one.
    Keep,
    /// Makes reading the page an error until it is written again.
    Lose,
}

/// Checks every page of a store whose tables or journal are readable, and declares damaged pages gone or lost.
///
/// # Errors
/// - The store cannot be opened, as after damage of a durable table, of a block of the journal or of both superblocks.
/// - The device fails.
/// - `StorageFull` when there is no space to declare what was found. Draining the cache makes some.
pub fn repair<D: Disk>(disk: D, backing: [u8; 16], backing_pages: u64) -> Result<Repaired, StoreError> {
    finish(AnyStore::find(disk, backing, backing_pages, None)?.0, Doubtful::Lose)
}

/// As [`repair`], of a store in which tables, or blocks of the journal, may be gone with all copies. Their contents are
/// unknown: of every page not written since, a newer version may be lost. An empty block takes the place of each.
///
/// # Errors
/// As [`repair`], except for such missing tables or blocks.
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
    // The fillers go last: without a hole no later repair would know that any page was in doubt.
    let fillers: Vec<_> = past.into_iter().flat_map(|past| past.holes).filter_map(|hole| hole.filler).collect();
    rewrite::write(log.disk(), &fillers)?;
    log.close()?;
    repaired.gone.sort_unstable();
    repaired.lost.sort_unstable();
    Ok(repaired)
}

impl<D: Disk> AnyStore<D> {
    /// Declares the fate of pages that no table after a missing one names.
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
                // The backing store has this version, or a newer one.
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

    /// The versions whose bytes are not those that were written.
    fn damaged(&mut self, versions: &[(u64, Entry)]) -> Result<Vec<(u64, Entry)>, StoreError> {
        let page_bytes = self.geometry().page_bytes as usize;
        let mut bytes = AlignedBytes::zeroed(versions.len() * page_bytes);
        let addresses = versions.iter().map(|(_, entry)| self.byte_of(entry.address));
        let reads = addresses.zip(bytes.chunks_exact_mut(page_bytes));
        let mut reads: Vec<Transfer> = reads.map(|(at, bytes)| Transfer::Read { at, bytes }).collect();
        // A failed submission is repeated below, page by page.
        let all = self.disk().submit(&mut reads).is_ok();
        drop(reads);
        let mut damaged = Vec::new();
        let mut again = vec![0; page_bytes];
        for (&(page, entry), bytes) in versions.iter().zip(bytes.chunks_exact(page_bytes)) {
            let sound = all && crc32c(bytes) == entry.crc;
            // A copy is bad only if a second read is bad too.
            if !sound && self.read(entry, &mut again).is_err() {
                damaged.push((page, entry));
            }
        }
        Ok(damaged)
    }
}
