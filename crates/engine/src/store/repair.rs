//! Reads every newest version of a store that is not in use, and declares in the log what became of those that are
//! damaged: nobody else finds out at the worst time.

use super::{AnyLog, Entry, StoreError, crc32c};
use crate::disk::{AlignedBytes, Disk, Transfer};
use crate::mutant::{self, Mutant};

/// Pages that are read in one submission.
const PAGES: usize = 128;

/// What a repair did. The superblocks are written anew in any case.
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
}

/// Checks every page of a store that has its tables or its journal, and declares damaged ones gone or lost.
///
/// # Errors
/// When the store cannot be opened, as damage of a durable table, of a block of the journal or of both superblocks has it; when the device fails;
/// `StorageFull` when there is no room to say what was found: draining the cache makes some.
pub fn repair<D: Disk>(disk: D, backing: [u8; 16], backing_pages: u64) -> Result<Repaired, StoreError> {
    let (mut log, _) = AnyLog::find(disk, backing, backing_pages, None)?;
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
    log.write_out()?;
    log.sync()?;
    log.close()?;
    repaired.gone.sort_unstable();
    repaired.lost.sort_unstable();
    Ok(repaired)
}

impl<D: Disk> AnyLog<D> {
    /// Those of the versions that are not what was written.
    fn damaged(&mut self, versions: &[(u64, Entry)]) -> Result<Vec<(u64, Entry)>, StoreError> {
        let page_bytes = self.geometry().page_bytes as usize;
        let mut bytes = AlignedBytes::zeroed(versions.len() * page_bytes);
        let places = versions.iter().map(|(_, entry)| self.byte_of(entry.place));
        let reads = places.zip(bytes.chunks_exact_mut(page_bytes));
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
