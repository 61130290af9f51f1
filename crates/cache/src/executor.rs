//! The state that a decision acts on: tiers, directory and stores.

use super::Mode;
use super::counts::Counts;
use super::directory::Directory;
use super::durability::{Source, WriteBack};
use super::frame_hits::FrameHits;
use super::frames::{Frame, Frames};
use super::gaps::{CUTOFFS_MAX, Gaps};
use super::maintenance;
use super::objects::Objects;
use super::page_copy::PageCopy;
use super::plan::{PageBytes, Plan};
use entresol_core::{Op, Outcome, Page, Tier, Verb};
use entresol_policy::{Log, Streams};
use entresol_store::mutant::{self, Mutant};
use entresol_store::{Entry, page_crc};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

/// The volatile tier of a replaced policy: copies of pages, none of which durability needs.
pub(super) struct Left {
    frames: Frames,
    directory: Directory,
}

impl Left {
    /// Drops the frame of a page that has changed since, or is no longer there.
    pub fn void(&mut self, page: u64) {
        if let Some(handle) = self.directory.find(page) {
            self.frames.remove(handle);
        }
    }

    /// Pages of at most `most` frames before position `end`, and the position of the first of them.
    pub fn pages_before(&self, end: usize, most: usize) -> (Vec<u64>, usize) {
        self.frames.pages_before(&self.directory, end, most)
    }

    /// Pages that are left.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Takes a page out, with its frame.
    pub fn pop(&mut self) -> Option<(u64, Frame)> {
        let (handle, frame) = self.frames.pop()?;
        Some((self.directory.page(handle), frame))
    }
}

/// Tiers, directory and stores: the state that a policy's movements act on.
pub(super) struct Executor {
    pub write_back: WriteBack,
    pub directory: Directory,
    pub counts: Counts,
    pub objects: Objects,
    /// Detector of long sequential streams that bypass the cache. None: no stream does.
    pub streams: Option<Box<Streams>>,
    /// Gaps in these streams that may be read from the backing store.
    pub gaps: Gaps,
    /// Segments of the policy's pages, where the store gives its slots by segments.
    pub policy_log: Option<Box<Log>>,
    /// Frames of the volatile tier, if there is one.
    pub frames: Frames,
    /// Frames that are read without the core's lock.
    frame_hits: Option<Arc<FrameHits>>,
    /// Steps that the decisions of this hold of the core's lock leave, and pages to be loaded.
    pub plan: Plan,
    /// Handles of frames that may be newer than any version in the store or sent below.
    unstored: BTreeSet<u32>,
    /// The tier that the store is.
    store_tier: Tier,
    /// Handling of writes. Only in write-back does a write-back of the policy count: in the other modes the backing store
    /// has each write already.
    pub mode: Mode,
    pub now_us: u64,
}

impl Executor {
    pub fn new(
        write_back: WriteBack,
        tiers: usize,
        handles: usize,
        objects: Objects,
        policy_log: Option<Box<Log>>,
        mode: Mode,
    ) -> Self {
        Executor {
            write_back,
            directory: Directory::new(handles),
            counts: Counts::default(),
            objects,
            streams: None,
            gaps: Gaps::NONE,
            policy_log,
            frames: Frames::new(handles),
            frame_hits: None,
            plan: Plan::default(),
            unstored: BTreeSet::new(),
            store_tier: Tier(tiers as u8 - 1),
            mode,
            now_us: 0,
        }
    }

    /// The stores for another policy, whose tiers are still empty, and the frames of this one. Durability needs none
    /// of the frames: see [`store_frames`](Executor::store_frames).
    pub fn passed_on(
        self,
        tiers: usize,
        directory: Directory,
        frames: Frames,
        policy_log: Option<Box<Log>>,
    ) -> (Self, Left) {
        let Executor { write_back, counts, frame_hits, streams, mode, now_us, .. } = self;
        let store_tier = Tier(tiers as u8 - 1);
        let executor = Executor {
            write_back,
            directory,
            counts,
            objects: self.objects.emptied(),
            streams,
            gaps: Gaps::NONE,
            policy_log,
            frames,
            frame_hits,
            plan: Plan::default(),
            unstored: BTreeSet::new(),
            store_tier,
            mode,
            now_us,
        };
        (executor, Left { frames: self.frames, directory: self.directory })
    }

    /// Shares frames with a table from now on.
    pub fn share_frames(&mut self, hits: Arc<FrameHits>) {
        self.frame_hits = Some(hits);
    }

    /// Has no frame be read without the core's lock from now on: without the store, pages are written past them.
    pub fn close_frames(&self) {
        if let Some(hits) = &self.frame_hits {
            hits.close();
        }
    }

    /// Lets a frame be read without the core's lock, if it has the bytes of its page.
    pub fn enter_frame(&self, handle: Page) {
        let bytes = self.frames.get(handle).and_then(|frame| frame.bytes.as_ref());
        if let (Some(hits), Some(bytes)) = (&self.frame_hits, bytes) {
            hits.enter(self.directory.page(handle), bytes);
        }
    }

    /// Has a frame no longer be read without the core's lock: its bytes are about to change.
    fn hide_frame(&self, handle: Page) {
        if let Some(hits) = &self.frame_hits
            && !mutant::is(Mutant::HitOutlivesFrame)
        {
            hits.remove(self.directory.page(handle));
        }
    }

    /// Gives a handle a frame, in place of any that it has.
    pub fn insert_frame(&mut self, handle: Page, frame: Frame) {
        self.hide_frame(handle);
        self.frames.insert(handle, frame);
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> usize {
        self.write_back.page_bytes
    }

    /// The tier that the store is.
    pub fn store_tier(&self) -> Tier {
        self.store_tier
    }

    /// Counts a decided request. `absorbed` when it replaced a dirty version.
    pub fn count(&mut self, page: u64, op: Op, outcome: Outcome, absorbed: bool) {
        self.counts.outcome(op, outcome);
        self.objects.outcome(page, op, outcome, absorbed, self.store_tier);
    }

    /// Counts a request of a long stream that bypassed the policy: as a bypass of the policy, and by itself.
    pub fn count_passed(&mut self, page: u64, op: Op) {
        self.counts.passed += 1;
        self.counts.bypasses += 1;
        self.counts.fetches += u64::from(!op.is_write());
        if !op.is_write() {
            self.passed(page);
        }
        self.count(page, op, Outcome::BYPASSED, false);
    }

    /// Counts a write of a page that is not cached, which the mode sends past the policy. A partial write has read the
    /// rest of its page.
    pub fn count_around(&mut self, page: u64, op: Op) {
        self.counts.around += 1;
        self.counts.outcome(op, Outcome::BYPASSED);
        self.objects.went_around(page);
    }

    /// Finds the newest version of a page, wherever it is.
    pub fn locate(&mut self, page: u64, handle: Option<Page>, bytes: &mut [u8]) -> io::Result<Source> {
        let held = match handle.and_then(|handle| self.frames.get(handle)) {
            Some(Frame { bytes: Some(held), .. }) => {
                bytes.copy_from_slice(held);
                return Ok(Source::Memory);
            }
            Some(frame) => self.write_back.store.index().get(page).filter(|entry| frame.stored == Some(entry.address)),
            None => self.write_back.store.index().resident(page),
        };
        match held {
            Some(entry) => self.write_back.locate_stored(entry, bytes),
            None => self.write_back.locate_below(page, bytes),
        }
    }

    /// The frame of a handle.
    pub(super) fn frame(&self, handle: Page) -> Option<&Frame> {
        self.frames.get(handle)
    }

    /// Invalidates a page: the policy may go on believing that it holds the page, with no bytes behind that.
    pub fn invalidate(&mut self, page: u64) {
        self.write_back.set_in_memory(page, false);
        let handle = self.directory.find(page).filter(|&handle| self.frames.get(handle).is_some());
        if let Some(handle) = handle {
            self.insert_frame(handle, Frame::EMPTY);
        }
    }

    /// As [`WriteBack::copy_is_bad`]; a frame that left its bytes in that copy is invalidated too.
    pub fn copy_is_bad(&mut self, page: u64, entry: Entry, error: io::Error) -> io::Result<()> {
        self.write_back.copy_is_bad(page, entry, error)?;
        let frame = self.directory.find(page).and_then(|handle| self.frames.get(handle));
        if frame.is_some_and(|frame| frame.bytes.is_none() && frame.stored == Some(entry.address)) {
            self.invalidate(page);
        }
        Ok(())
    }

    /// Number of frames.
    pub fn frames_len(&self) -> usize {
        self.frames.len()
    }

    /// Pages of at most `most` frames before position `end`, and the position of the first of them.
    pub fn framed_before(&self, end: usize, most: usize) -> (Vec<u64>, usize) {
        self.frames.pages_before(&self.directory, end, most)
    }

    /// True if anything is held of a page.
    pub fn holds(&self, page: u64) -> bool {
        let in_frame = || self.directory.find(page).is_some_and(|handle| self.frames.get(handle).is_some());
        self.write_back.holds(page) || in_frame()
    }

    /// Pages of a range of which anything is held, ascending.
    #[cfg(test)]
    pub fn held_in(&self, range: &std::ops::Range<u64>) -> Vec<u64> {
        let mut held = self.write_back.held_in(range);
        let in_frames = self.frames.handles().into_iter().map(|handle| self.directory.page(handle));
        held.extend(in_frames.filter(|page| range.contains(page)));
        held.sort_unstable();
        held.dedup();
        held
    }

    /// Puts bytes into the frame of a handle.
    pub fn set_frame(&mut self, handle: Page, contents: PageBytes, dirty: bool) {
        let bytes = if dirty {
            let page = self.directory.page(handle);
            self.unstored.insert(handle.0);
            self.write_back.set_in_memory(page, true);
            self.write_back.keep(page, contents.bytes)
        } else {
            contents.bytes.into()
        };
        self.insert_frame(handle, Frame { bytes: Some(bytes), crc: contents.known_crc, dirty, stored: None });
    }

    /// Makes room for a decision that moves more pages than a segment has, though a device is called for that. Not while
    /// blocks for bytes of the request are to be filled, which the write of their batch awaits.
    pub fn make_room_to_put(&mut self) {
        if !self.write_back.has_room_to_put() && !self.write_back.apart && !self.plan.has_own() {
            self.plan.settle_copies();
            // The decision finds whether there is room.
            let _made = maintenance::make_room(&mut self.write_back);
        }
    }

    /// Appends a frame's bytes to the store, and leaves the copy to a step. Returns the version's address.
    fn put_frame(
        &mut self,
        page: u64,
        (bytes, crc): (PageCopy, Option<u32>),
        dirty: bool,
        resident: bool,
    ) -> io::Result<u64> {
        self.plan.settle_page(page);
        self.make_room_to_put();
        let crc = crc.unwrap_or_else(|| page_crc(&bytes));
        let (entry, block) = maintenance::put(&mut self.write_back, page, crc, dirty, resident)?;
        self.plan.copy(page, block, bytes);
        Ok(entry.address)
    }

    /// Moves a page down, from its frame to the store.
    pub fn demote(&mut self, handle: Page) -> io::Result<()> {
        let page = self.directory.page(handle);
        let Some(frame) = self.frames.get(handle) else {
            return Ok(());
        };
        let (dirty, stored) = (frame.dirty, frame.stored);
        let held = self.write_back.store.index().get(page);
        if held.is_some_and(|entry| stored == Some(entry.address)) {
            // The store has this version already: from a flush, or from before the promotion.
            self.write_back.store.index_mut().update(page, |entry| entry.resident = true);
            return Ok(());
        }
        let Some(bytes) = frame.bytes.clone() else {
            if stored.is_some() {
                self.demote_without_bytes(page, held);
            }
            // The frame was invalidated otherwise.
            return Ok(());
        };
        match self.put_frame(page, (bytes.clone(), frame.crc), dirty, true) {
            Ok(address) => {
                if let Some(frame) = self.frames.get_mut(handle) {
                    frame.stored = Some(address);
                }
                self.write_back.set_in_memory(page, false);
                Ok(())
            }
            Err(error) => {
                // The policy frees the frame next: a version that only the frame has must have left it before.
                let past = if dirty { self.write_back.write_past(page, &bytes) } else { Ok(()) };
                // Without free space the policy believes in a page with no bytes behind it.
                self.counts.admissions_failed += 1;
                if self.write_back.is_broken() { past.and(Err(error)) } else { past }
            }
        }
    }

    /// Moves a page down that has no bytes in its frame, and that the store no longer has at the address of before.
    /// Reclaim has moved the version, or has given it up once a newer one or the same was sent below.
    fn demote_without_bytes(&mut self, page: u64, held: Option<Entry>) {
        let is_newest = |entry: &Entry| !entry.lost && !self.write_back.is_overtaken(page);
        if held.as_ref().is_some_and(is_newest) {
            self.write_back.store.index_mut().update(page, |entry| entry.resident = true);
        } else {
            self.plan.load(page);
        }
    }

    pub fn write_page_back(&mut self, handle: Page, from: Tier) -> io::Result<()> {
        let page = self.directory.page(handle);
        if from == self.store_tier {
            // The store's copy is gone, or was sent below by durability's own rules: nothing is to be written back.
            let entry =
                self.write_back.store.index().resident(page).filter(|&entry| self.write_back.is_owed(page, entry));
            if let Some(entry) = entry {
                self.write_back.write_back_stored(page, entry);
            }
            return Ok(());
        }
        let Some(frame) = self.frames.get(handle).filter(|frame| frame.dirty) else {
            return Ok(());
        };
        let (stored, bytes) = (frame.stored, frame.bytes.clone());
        let entry = self.write_back.store.index().get(page);
        match (entry.filter(|entry| stored == Some(entry.address) || bytes.is_none()), bytes) {
            (Some(entry), bytes) if self.write_back.is_owed(page, entry) => match bytes {
                Some(bytes) => self.write_back.write_page_back(page, bytes, entry.address),
                None if entry.lost => {}
                None => self.write_back.write_back_stored(page, entry),
            },
            // A drain has sent the version below meanwhile, or reclaim.
            (Some(_), _) | (None, None) => {}
            (None, Some(bytes)) => self.write_back.write_past(page, &bytes)?,
        }
        if let Some(frame) = self.frames.get_mut(handle) {
            frame.dirty = false;
        }
        self.write_back.set_in_memory(page, false);
        Ok(())
    }

    pub fn give_up(&mut self, handle: Page, from: Tier) {
        if from == self.store_tier {
            self.write_back.release(self.directory.page(handle));
        } else {
            self.hide_frame(handle);
            self.frames.remove(handle);
            self.write_back.set_in_memory(self.directory.page(handle), false);
        }
    }

    /// Replays a movement of a recovered page, whose bytes are in the store already.
    pub fn replay_movement(&mut self, handle: Page, verb: Verb) {
        let page = self.directory.page(handle);
        match verb {
            Verb::Fetch { to } | Verb::Install { to } if to == self.store_tier => {
                self.write_back.store.index_mut().update(page, |entry| entry.resident = true);
            }
            Verb::Fetch { .. } | Verb::Install { .. } => {
                let entry = self.write_back.store.index().get(page);
                let dirty = entry.is_some_and(|entry| entry.dirty);
                let stored = entry.map(|entry| entry.address);
                self.insert_frame(handle, Frame { dirty, stored, ..Frame::EMPTY });
            }
            Verb::Bypass => {
                let owed =
                    self.write_back.store.index().get(page).filter(|&entry| self.write_back.is_owed(page, entry));
                if let Some(entry) = owed {
                    self.write_back.write_back_stored(page, entry);
                }
            }
            _ => unreachable!("{verb:?} needs no replay of its own"),
        }
    }

    /// Handles of frames that only volatile memory may have: at most `most`, from handle `from` on, ascending.
    pub fn unstored(&self, from: u32, most: usize) -> Vec<Page> {
        self.unstored.range(from..).take(most).map(|&handle| Page(handle)).collect()
    }

    /// Hands to the store those of these frames that only volatile memory has, as long as there is space. Returns the
    /// number of frames that need no more.
    pub fn store_frames(&mut self, handles: &[Page]) -> io::Result<usize> {
        for (at, &handle) in handles.iter().enumerate() {
            if !self.write_back.has_room_to_put() {
                return Ok(at);
            }
            // The policy may have been changed since the frames were listed.
            let frame = self.frames.get(handle);
            if let Some(frame) = frame.filter(|frame| frame.dirty) {
                let page = self.directory.page(handle);
                let held = self.write_back.store.index().get(page);
                let stored = held.is_some_and(|entry| frame.stored == Some(entry.address));
                if let Some(bytes) = frame.bytes.clone().filter(|_| !stored) {
                    let resident = held.is_some_and(|entry| entry.resident);
                    let address = self.put_frame(page, (bytes, frame.crc), true, resident)?;
                    self.frames.get_mut(handle).expect("just seen").stored = Some(address);
                }
                self.write_back.set_in_memory(page, false);
            }
            self.unstored.remove(&handle.0);
        }
        Ok(handles.len())
    }

    /// Queues a page that only memory has to be written below.
    pub fn hand_down(&mut self, page: u64) -> io::Result<()> {
        let dirty = |handle: &Page| self.frames.get(*handle).is_some_and(|frame| frame.dirty);
        match self.directory.find(page).filter(dirty) {
            Some(handle) => self.write_page_back(handle, Tier::TOP),
            None => {
                self.write_back.set_in_memory(page, false);
                Ok(())
            }
        }
    }

    /// Begins to keep ages of dirty frames that only memory has.
    pub fn age_frames(&mut self) {
        for handle in self.unstored(0, usize::MAX) {
            if self.frames.get(handle).is_some_and(|frame| frame.dirty) {
                self.write_back.set_in_memory(self.directory.page(handle), true);
            }
        }
    }

    /// Queues a page that is still to be written below: from its frame, which needs no device, or else the store's
    /// copy.
    pub fn queue_owed(&mut self, page: u64) -> io::Result<()> {
        let has_bytes =
            |handle: &Page| self.frames.get(*handle).is_some_and(|frame| frame.dirty && frame.bytes.is_some());
        if let Some(handle) = self.directory.find(page).filter(has_bytes) {
            self.write_page_back(handle, Tier::TOP)?;
        }
        self.write_back.queue_owed(&[page]);
        Ok(())
    }

    /// Queues all dirty frames to be written below, when the store has been given up.
    pub fn write_frames_below_without_store(&mut self) {
        for handle in self.frames.handles() {
            let page = self.directory.page(handle);
            let Some(frame) = self.frames.get_mut(handle).filter(|frame| frame.dirty) else { continue };
            if let Some(bytes) = &frame.bytes {
                self.write_back.write_without_store(page, bytes);
                frame.dirty = false;
            }
        }
    }

    /// True if the backing store durably has the version that the cache holds of a page.
    pub fn is_same_below(&self, page: u64) -> bool {
        let is_newer = |handle| self.frame(handle).is_some_and(|frame| frame.dirty);
        !self.write_back.has_more_than_below(page) && !self.directory.find(page).is_some_and(is_newer)
    }

    /// Notes that a page of a stream has passed.
    pub fn passed(&mut self, page: u64) {
        let cutoff_pages = self.streams.as_ref().map_or(0, |streams| streams.cutoff_pages());
        self.gaps.earn(page, CUTOFFS_MAX * cutoff_pages);
    }
}
