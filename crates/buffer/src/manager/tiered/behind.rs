//! Writing to storage behind the requester's back, as in the simulator, where the storage has a queue of writes.
//!
//! The policy alone sets the order: when it writes a page back, the write of a copy starts at once. The frame is free
//! at once, so no requester waits for the write unless too many are under way. Until the write has ended, the copy is
//! read like a page in a tier. A page that was changed meanwhile, or whose write failed, is still newer than storage.
//!
//! Writes are started and ended under the buffer's lock, by its current owner: there is no thread here. At most one
//! write of a page is under way, because a queue keeps no order.

use super::executor::TieredExecutor;
use crate::manager::{BufferError, PageIo};
use entresol_core::Page;
use entresol_device::emulated::Clock as DeviceClock;
use entresol_disk::AlignedBytes;
use std::collections::HashMap;
use std::sync::Arc;

/// A page whose write is under way.
struct Leaving {
    version: u64,
    bytes: Arc<AlignedBytes>,
}

/// Writes under way.
pub(super) struct Behind {
    pages_max: usize,
    leaving: HashMap<Page, Leaving>,
    /// The first failure that no flush has reported.
    error: Option<BufferError>,
    /// Times that a caller waited for one of the writes to end.
    pub waits: u64,
}

impl Behind {
    pub fn new(pages_max: usize) -> Self {
        Behind { pages_max, leaving: HashMap::new(), error: None, waits: 0 }
    }

    /// True if the write of this version of the page is under way.
    pub fn has(&self, page: Page, version: u64) -> bool {
        self.leaving.get(&page).is_some_and(|leaving| leaving.version == version)
    }

    /// The bytes of this version, if its write is under way.
    pub fn bytes(&self, page: Page, version: u64) -> Option<&[u8]> {
        self.leaving.get(&page).filter(|leaving| leaving.version == version).map(|leaving| &**leaving.bytes)
    }

    pub fn under_way(&self) -> usize {
        self.leaving.len()
    }

    pub fn take_error(&mut self) -> Result<(), BufferError> {
        self.error.take().map_or(Ok(()), Err)
    }
}

impl<I: PageIo, C: DeviceClock> TieredExecutor<I, C> {
    /// Writes a page back for the policy: starts the write, or does it at once where the storage has no queue.
    pub fn write_back(&mut self, page: Page, from: usize) {
        let known = self.known[page.index()];
        let copy = known.copies[from].expect("a policy writes back what it has");
        if copy.version <= known.below || self.behind.has(page, copy.version) {
            self.stats.skipped_write_backs += 1;
        } else if self.behind.pages_max > 0 && self.io.write_queue().is_some() {
            self.start_write(page, from);
        } else {
            self.write_copy_below(page, from);
        }
    }

    fn start_write(&mut self, page: Page, from: usize) {
        self.end_writes();
        self.end_write_of(page);
        while self.behind.leaving.len() >= self.behind.pages_max {
            self.wait_for_write();
        }
        let (at, known) = (self.address_of(page), self.known[page.index()]);
        let copy = known.copies[from].expect("ending writes takes no copy away");
        let logged = self.log_first(at, known.lsn);
        if !self.attempt(logged) {
            return;
        }
        let mut bytes = AlignedBytes::zeroed(self.memory.page_bytes());
        self.memory.read(from, copy.frame, 0, &mut bytes);
        let bytes = Arc::new(bytes);
        let queue = self.io.write_queue().expect("storage that has a queue keeps it");
        let started = queue.start(u64::from(page.0), at, &bytes);
        if self.attempt(started.map_err(|source| BufferError::Write { at, source })) {
            self.behind.leaving.insert(page, Leaving { version: copy.version, bytes });
        }
    }

    /// Takes the results of the writes that have ended.
    pub fn end_writes(&mut self) {
        while self.behind.under_way() > 0 && self.end_one(false) {}
    }

    /// Waits until no write of this page is under way.
    pub fn end_write_of(&mut self, page: Page) {
        while self.behind.leaving.contains_key(&page) {
            self.wait_for_write();
        }
    }

    /// Waits until no write is under way.
    pub fn end_all_writes(&mut self) {
        while self.behind.under_way() > 0 {
            self.wait_for_write();
        }
    }

    fn wait_for_write(&mut self) {
        if !self.end_one(false) {
            self.behind.waits += 1;
            assert!(self.end_one(true), "the storage forgot a write");
        }
    }

    fn end_one(&mut self, wait: bool) -> bool {
        let Some((tag, result)) = self.io.write_queue().and_then(|queue| queue.ended(wait)) else { return false };
        let page = Page(tag as u32);
        let Leaving { version, bytes } = self.behind.leaving.remove(&page).expect("only what was started ends");
        let at = self.address_of(page);
        let known = &mut self.known[page.index()];
        debug_assert!(known.below < version && version <= known.newest, "{at:?} was written meanwhile");
        match result {
            Ok(()) => {
                self.stats.page_writes += 1;
                known.below = version;
                if version == known.newest {
                    self.evicted_dirty.remove(&page);
                }
            }
            Err(source) => {
                self.stats.errors += 1;
                self.behind.error.get_or_insert(BufferError::Write { at, source });
                if version == known.newest && self.newest_copy(page).is_none() {
                    self.evicted_dirty.insert(page, bytes);
                }
            }
        }
        true
    }
}
