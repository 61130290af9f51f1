//! One file that another program changed. Its clean pages are dropped; its dirty pages are neither served, nor written
//! to the file, nor lost.

use super::super::disk::stamp;
use super::super::file::{CachedFile, Shape};
use super::super::map::{REGION_BYTES, Stamp};
use super::Change;
use crate::below::OpenFile;
use crate::mutant::{self, Mutant};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, PoisonError};

/// Outcome for a file that another program changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// Attributes alone changed: the file's bytes are those in the cache.
    Attributes,
    /// The bytes changed. The cache had no dirty pages of the file, and has dropped the clean ones.
    Dropped,
    /// The bytes changed, and the cache has dirty pages of the file.
    Conflict,
}

impl CachedFile {
    /// Compares the backing file with its stamp and acts on a difference. True if bytes read before may differ from
    /// those it has now.
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
            Change::Attributes | Change::Bytes | Change::Since => self.examine(),
        }
    }

    /// Determines the kind of a change and acts on it; true if bytes differ from earlier ones.
    pub fn examine(&self) -> io::Result<bool> {
        let mut shape = self.alone();
        match self.below.change() {
            Change::None => return Ok(false),
            Change::Conflict => return Ok(true),
            Change::Attributes | Change::Bytes | Change::Since => {}
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

    /// Flushes and settles the cache, so that from then on only pages that the cache alone has count as dirty. Pages
    /// that only memory had then count as dirty, and pages that were written back do not.
    fn settle_all(&self) -> io::Result<()> {
        self.shared().cache.flush_ahead()?;
        self.shared().cache.settle()
    }

    /// Drops the clean pages of a file without dirty ones, and accepts the file as it was seen.
    fn drop_clean(&self, shape: &mut Shape, now: Stamp) -> io::Result<()> {
        self.forget_all()?;
        self.take_anew(shape, self.below.size()?);
        self.below.accept_as(now);
        Ok(())
    }

    /// Forgets all cached pages of the file, durably.
    pub(super) fn forget_all(&self) -> io::Result<()> {
        for (_, region) in self.regions() {
            self.shared().cache.forget(region * REGION_BYTES, REGION_BYTES)?;
        }
        self.shared().cache.flush_ahead()
    }

    /// Forgets the clean cached pages of the file, durably. The caller prevents that one becomes dirty meanwhile.
    pub(super) fn forget_clean(&self) -> io::Result<()> {
        let page_bytes = self.shared().page_bytes;
        for (page, _) in self.held()?.into_iter().filter(|(_, dirty)| !dirty) {
            self.shared().cache.forget(page * page_bytes, page_bytes)?;
        }
        self.shared().cache.flush_ahead()
    }

    /// Cached pages of the file, by the cache's page numbers, each with true if it is dirty.
    fn held(&self) -> io::Result<Vec<(u64, bool)>> {
        let mut held = Vec::new();
        for (_, region) in self.regions() {
            held.extend(self.shared().cache.held_in(region * REGION_BYTES, REGION_BYTES)?);
        }
        Ok(held)
    }

    /// True if every clean cached page has the bytes of the file.
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

    /// Dirty pages of the file, by their numbers in it. Pages that only memory has count after a flush.
    fn dirty_pages(&self) -> io::Result<BTreeSet<u64>> {
        let page_bytes = self.shared().page_bytes;
        let page = |at: u64| Some(self.shared().disk.file_at(at * page_bytes)?.1 / page_bytes);
        Ok(self.held()?.into_iter().filter_map(|(at, dirty)| page(at).filter(|_| dirty)).collect())
    }

    /// Pages of a file in conflict that are not served: dirty ones in the cache, and those already kept aside.
    pub fn unserved(&self) -> io::Result<Arc<BTreeSet<u64>>> {
        if let Some(known) = self.known_unserved() {
            return Ok(known);
        }
        // Writes that began before the conflict have ended then.
        let _alone = self.alone();
        self.find_unserved()
    }

    fn known_unserved(&self) -> Option<Arc<BTreeSet<u64>>> {
        self.unserved.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Like [`unserved`](Self::unserved), for a caller with exclusive access to the file.
    pub(super) fn find_unserved(&self) -> io::Result<Arc<BTreeSet<u64>>> {
        if let Some(known) = self.known_unserved() {
            return Ok(known);
        }
        self.settle_all()?;
        // Dirty pages first: a page that was written back before this look is in the aside file by the next one.
        let mut pages = self.dirty_pages()?;
        let page_bytes = self.shared().page_bytes;
        let kept = self.below.pages_aside(&self.shared().disk.changes, page_bytes)?;
        pages.extend(kept.into_iter().map(|offset| offset / page_bytes));
        // A crash may bring clean pages back as dirty: they would be kept, and written over the file's new bytes.
        if !mutant::is(Mutant::CleanNotDropped) {
            self.forget_clean()?;
        }
        let pages = Arc::new(pages);
        *self.unserved.lock().unwrap_or_else(PoisonError::into_inner) = Some(pages.clone());
        Ok(pages)
    }

    /// Reads a file with other bytes than the cache knows: from the backing file, except pages that are dirty in the
    /// cache.
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
        // A short read would mean the end of the file.
        if unserved.range(self.pages(offset, offset + count as u64)).next().is_some() {
            return Err(Errno::IO.into());
        }
        self.below.read(offset, &mut bytes[..count])?;
        Ok(count)
    }

    /// Runs an act that is refused while the file has other bytes than the cache knows. It runs once more if the cache
    /// turns out to have no dirty pages of the file.
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
