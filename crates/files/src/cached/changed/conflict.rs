//! One file that somebody else changed: its clean pages are dropped, and where it has dirty ones these are neither served nor
//! written to it nor lost.

use super::super::disk::stamp;
use super::super::file::{CachedFile, Shape};
use super::super::map::{REGION_BYTES, Stamp};
use super::Change;
use crate::below::OpenFile;
use crate::mutant::{self, Mutant};
use entresol_engine::Block;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, PoisonError};

/// Outcome for a file that somebody else changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// Attributes alone: its bytes are those that the cache has.
    Attributes,
    /// It has other bytes. The cache had no dirty pages of it, and has none of before any more.
    Dropped,
    /// It has other bytes, and the cache has dirty pages of it.
    Conflict,
}

impl CachedFile {
    /// Compares the file below with how we left it, and draws the consequences; whether bytes of it that were given before are not
    /// those that it has now.
    ///
    /// # Errors
    /// The error of the backing store or of the cache; the next look tries again.
    pub fn look(&self) -> io::Result<bool> {
        match self.below.look()? {
            Change::None => Ok(false),
            Change::Conflict => {
                self.set_size(self.below.size()?);
                Ok(true)
            }
            Change::Attributes | Change::Bytes => self.examine(),
        }
    }

    /// Finds out what a change was, and draws the consequences; whether bytes are not those of before.
    pub fn examine(&self) -> io::Result<bool> {
        let mut shape = self.alone();
        match self.below.change() {
            Change::None => return Ok(false),
            Change::Conflict => return Ok(true),
            Change::Attributes | Change::Bytes => {}
        }
        self.settle_all()?;
        let then = self.below.left();
        let now = stamp(&self.below.file()?.attributes()?);
        let changes = &self.shared().disk.changes;
        if self.below.change() == Change::Attributes {
            if self.bytes_agree()? {
                self.below.accept_attributes(then, now);
                changes.note(self.below.key, News::Attributes);
                return Ok(self.below.change().is_apart());
            }
            self.below.set_change(Change::Bytes);
        }
        let dirty = self.dirty_pages()?;
        if dirty.is_empty() && self.below.change() != Change::Conflict {
            self.drop_clean(&mut shape, now)?;
            changes.note(self.below.key, News::Dropped);
        } else {
            self.below.note_conflict(changes)?;
            self.set_size(now.size);
            self.find_unserved()?;
        }
        changes.is_stale(self.below.key);
        Ok(true)
    }

    /// Flushes and settles the cache, so that from then on only pages that the cache alone has count as dirty.
    /// Pages that only memory had are known to be dirty by then, and pages that were written below are not.
    fn settle_all(&self) -> io::Result<()> {
        self.shared().cache.flush()?;
        self.shared().cache.settle()
    }

    /// The cache has nothing of the file any more, which is taken as it was seen.
    fn drop_clean(&self, shape: &mut Shape, now: Stamp) -> io::Result<()> {
        self.forget_all()?;
        self.take_anew(shape, self.below.size()?);
        self.below.accept_as(now);
        Ok(())
    }

    /// The cache forgets all that it has of the file, durably.
    pub(super) fn forget_all(&self) -> io::Result<()> {
        for (_, region) in self.regions() {
            self.shared().cache.forget(region * REGION_BYTES, REGION_BYTES)?;
        }
        self.shared().cache.flush()
    }

    /// The cache forgets its clean pages of the file, durably. Nobody makes one dirty meanwhile.
    pub(super) fn forget_clean(&self) -> io::Result<()> {
        let page_bytes = self.shared().page_bytes;
        for (page, _) in self.held()?.into_iter().filter(|(_, dirty)| !dirty) {
            self.shared().cache.forget(page * page_bytes, page_bytes)?;
        }
        self.shared().cache.flush()
    }

    /// Pages of the file that the cache holds, by the cache's own page numbers, each with true if it is dirty.
    fn held(&self) -> io::Result<Vec<(u64, bool)>> {
        let mut held = Vec::new();
        for (_, region) in self.regions() {
            held.extend(self.shared().cache.held_in(region * REGION_BYTES, REGION_BYTES)?);
        }
        Ok(held)
    }

    /// True if every clean page that the cache holds has the bytes that the file has now.
    fn bytes_agree(&self) -> io::Result<bool> {
        let page_bytes = self.shared().page_bytes;
        let (mut above, mut below) = (vec![0; page_bytes as usize], vec![0; page_bytes as usize]);
        for (page, _) in self.held()?.into_iter().filter(|(_, dirty)| !dirty) {
            let Some((_, offset)) = self.shared().disk.file_at(page * page_bytes) else { continue };
            let inside = self.size().saturating_sub(offset).min(page_bytes) as usize;
            if inside == 0 {
                continue;
            }
            self.shared().cache.peek(page, &mut above)?;
            self.below.read(offset, &mut below)?;
            if above[..inside] != below[..inside] {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Pages of the file that the cache has as dirty. What only memory has is in it after a flush.
    fn dirty_pages(&self) -> io::Result<BTreeSet<u64>> {
        let page_bytes = self.shared().page_bytes;
        let page = |at: u64| Some(self.shared().disk.file_at(at * page_bytes)?.1 / page_bytes);
        Ok(self.held()?.into_iter().filter_map(|(at, dirty)| page(at).filter(|_| dirty)).collect())
    }

    /// Pages of a file in conflict that are not served: those that the cache has as dirty, and those that are kept from it already.
    pub fn unserved(&self) -> io::Result<Arc<BTreeSet<u64>>> {
        if let Some(known) = self.known_unserved() {
            return Ok(known);
        }
        // Writes that began before it was in conflict have ended then.
        let _alone = self.alone();
        self.find_unserved()
    }

    fn known_unserved(&self) -> Option<Arc<BTreeSet<u64>>> {
        self.unserved.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// As [`unserved`](Self::unserved), for who has the file alone.
    pub(super) fn find_unserved(&self) -> io::Result<Arc<BTreeSet<u64>>> {
        if let Some(known) = self.known_unserved() {
            return Ok(known);
        }
        self.settle_all()?;
        // What is dirty no more when this is asked is among what was kept from the file by then.
        let mut pages = self.dirty_pages()?;
        let page_bytes = self.shared().page_bytes;
        let kept = self.below.pages_aside(&self.shared().disk.changes, page_bytes)?;
        pages.extend(kept.into_iter().map(|offset| offset / page_bytes));
        // A crash may bring clean pages back as dirty: they would be kept, and written over what the file has now.
        if !mutant::is(Mutant::CleanNotDropped) {
            self.forget_clean()?;
        }
        let pages = Arc::new(pages);
        *self.unserved.lock().unwrap_or_else(PoisonError::into_inner) = Some(pages.clone());
        Ok(pages)
    }

    /// Reads a file that has other bytes than the cache knows: from below, except for pages that are dirty in the cache.
    pub fn read_apart(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        if self.below.change() == Change::Bytes {
            self.examine()?;
        }
        if self.below.change() != Change::Conflict {
            return self.read(offset, bytes);
        }
        let unserved = self.unserved()?;
        let _shape = self.shape();
        let size = self.below.size()?;
        let count = size.saturating_sub(offset).min(bytes.len() as u64) as usize;
        if count == 0 {
            return Ok(0);
        }
        // Fewer bytes than were asked for would be an end.
        if unserved.range(self.pages(offset, offset + count as u64)).next().is_some() {
            return Err(Errno::IO.into());
        }
        self.below.read(offset, &mut bytes[..count])?;
        Ok(count)
    }

    /// Does what is refused while the file has other bytes than the cache knows; once more if it turns out that the cache has no
    /// dirty pages of it.
    pub fn while_ours<T>(&self, act: impl Fn() -> io::Result<T>) -> io::Result<T> {
        match act() {
            Err(_) if self.below.change() == Change::Bytes => {
                self.examine()?;
                act()
            }
            done => done,
        }
    }
}
