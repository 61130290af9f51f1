//! Carries out a policy's decisions on bytes: the engine's driver.

use super::counts::Counts;
use super::directory::Directory;
use super::frames::{Frame, Frames};
use super::gaps::Gaps;
use super::objects::Objects;
use super::plan::{PageBytes, Plan};
use super::write_back::{Source, WriteBack};
use entresol_core::{Address, Movement, NEVER, ObjectId, Op, Outcome, Page, Request, Tier, Verb};
use entresol_policy::{Driver, Streams};
use entresol_store::{Entry, Unfilled};
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;

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
    /// Frames of the volatile tier, if there is one.
    frames: Frames,
    /// Handles of frames that may be newer than any version in the store or sent below.
    unstored: BTreeSet<u32>,
    /// The tier that the store is.
    store_tier: Tier,
    pub now_us: u64,
}

/// Purpose of a decision.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// A request for a page, or a prefetch of it.
    Request,
    /// A recovered page is shown to the policy: bytes stay where they are.
    Replay,
    /// Work that a hint left.
    Hint,
}

/// One decision of the policy, and the driver of that decision: each movement changes the index, the queue and the
/// frames at once. The last copy of the request's own bytes into the store is left to the [`Plan`].
pub(super) struct Decision<'e, 'b> {
    executor: &'e mut Executor,
    purpose: Purpose,
    /// Page of the request. Another page's bytes are not in `bytes`.
    page: u64,
    op: Op,
    /// Contents of the page as the write leaves them, or as the read returns them.
    contents: PageBytes<'b>,
    /// The write has been sent below.
    past: bool,
    /// Block of the store that the contents are still to be copied to.
    block: Option<Unfilled>,
    error: Option<io::Error>,
}

impl Executor {
    pub fn new(write_back: WriteBack, tiers: usize, handles: usize, objects: Objects) -> Self {
        Executor {
            write_back,
            directory: Directory::new(handles),
            counts: Counts::default(),
            objects,
            streams: None,
            gaps: Gaps::NONE,
            frames: Frames::new(handles),
            unstored: BTreeSet::new(),
            store_tier: Tier(tiers as u8 - 1),
            now_us: 0,
        }
    }

    /// The stores for another policy, whose tiers are still empty, and the frames of this one. Durability needs none
    /// of the frames: see [`store_frames`](Executor::store_frames).
    pub fn passed_on(self, tiers: usize, directory: Directory, frames: Frames) -> (Self, Left) {
        let Executor { write_back, counts, streams, now_us, .. } = self;
        let store_tier = Tier(tiers as u8 - 1);
        let executor = Executor {
            write_back,
            directory,
            counts,
            objects: self.objects.emptied(),
            streams,
            gaps: Gaps::NONE,
            frames,
            unstored: BTreeSet::new(),
            store_tier,
            now_us,
        };
        (executor, Left { frames: self.frames, directory: self.directory })
    }

    /// Begins the decision on a request for a page.
    pub fn decide<'b>(&mut self, page: u64, op: Op, contents: PageBytes<'b>, now_us: u64) -> Decision<'_, 'b> {
        self.now_us = now_us;
        self.begin(Purpose::Request, page, op, contents)
    }

    /// Begins to show the policy a recovered page. Frames get their bytes when they are first read.
    pub fn replay(&mut self, page: u64, op: Op) -> Decision<'_, 'static> {
        self.begin(Purpose::Replay, page, op, PageBytes::UNKNOWN)
    }

    /// Begins a decision on work that a hint left, or on the hint.
    pub fn hinted(&mut self) -> Decision<'_, 'static> {
        self.begin(Purpose::Hint, u64::MAX, Op::Read, PageBytes::UNKNOWN)
    }

    fn begin<'b>(&mut self, purpose: Purpose, page: u64, op: Op, contents: PageBytes<'b>) -> Decision<'_, 'b> {
        Decision { executor: self, purpose, page, op, contents, past: false, block: None, error: None }
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

    /// Reads the newest version of a page under the core's lock, where no read was made before the lock was taken.
    fn read_newest(&mut self, page: u64, handle: Page, bytes: &mut [u8]) -> io::Result<()> {
        match self.locate(page, Some(handle), bytes)? {
            Source::Memory => Ok(()),
            Source::Store(entry) => self.write_back.read_store(page, entry, bytes),
            Source::Below => self.write_back.read_below(page, bytes),
        }
    }

    /// Invalidates a page: the policy may go on believing that it holds the page, with no bytes behind that.
    pub fn invalidate(&mut self, page: u64) {
        self.write_back.set_in_memory(page, false);
        let handle = self.directory.find(page);
        if let Some(frame) = handle.and_then(|handle| self.frames.get_mut(handle)) {
            *frame = Frame { bytes: None, dirty: false, stored: None };
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
    pub fn held_in(&self, range: &Range<u64>) -> Vec<u64> {
        let mut held = self.write_back.held_in(range);
        let in_frames = self.frames.handles().into_iter().map(|handle| self.directory.page(handle));
        held.extend(in_frames.filter(|page| range.contains(page)));
        held.sort_unstable();
        held.dedup();
        held
    }

    fn set_frame(&mut self, handle: Page, bytes: &[u8], dirty: bool, stored: Option<u64>) {
        if dirty && stored.is_none() {
            self.unstored.insert(handle.0);
            self.write_back.set_in_memory(self.directory.page(handle), true);
        }
        self.frames.insert(handle, Frame { bytes: Some(bytes.into()), dirty, stored });
    }

    fn demote(&mut self, handle: Page) -> io::Result<()> {
        let page = self.directory.page(handle);
        let Some(frame) = self.frames.get(handle) else {
            return Ok(());
        };
        let (dirty, stored) = (frame.dirty, frame.stored);
        if frame.bytes.is_none() && stored.is_none() {
            // The frame was invalidated: the page moves down without bytes.
            return Ok(());
        }
        let held = self.write_back.store.index().get(page);
        if held.is_some_and(|entry| stored == Some(entry.address)) {
            // The store has this version already: from a flush, or from before the promotion.
            self.write_back.store.index_mut().update(page, |entry| entry.resident = true);
            return Ok(());
        }
        let mut bytes = vec![0; self.page_bytes()];
        self.read_newest(page, handle, &mut bytes)?;
        match self.write_back.put_filled(page, &bytes, dirty, true) {
            Ok(entry) => {
                if let Some(frame) = self.frames.get_mut(handle) {
                    frame.stored = Some(entry.address);
                }
                self.write_back.set_in_memory(page, false);
                Ok(())
            }
            // The policy frees the frame next: a version that only the frame has must have left it before.
            Err(error) if dirty => self.write_back.write_past(page, &bytes).and(Err(error)),
            Err(error) => Err(error),
        }
    }

    fn write_page_back(&mut self, handle: Page, from: Tier) -> io::Result<()> {
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
        let Some(stored) = self.frames.get_mut(handle).filter(|frame| frame.dirty).map(|frame| frame.stored) else {
            return Ok(());
        };
        let mut bytes = vec![0; self.page_bytes()];
        self.read_newest(page, handle, &mut bytes)?;
        match self.write_back.store.index().get(page).filter(|entry| stored == Some(entry.address)) {
            Some(entry) if self.write_back.is_owed(page, entry) => {
                self.write_back.write_page_back(page, &bytes, entry.address)
            }
            // A drain has sent the version below meanwhile.
            Some(_) => {}
            None => self.write_back.write_past(page, &bytes)?,
        }
        if let Some(frame) = self.frames.get_mut(handle) {
            frame.dirty = false;
        }
        self.write_back.set_in_memory(page, false);
        Ok(())
    }

    fn give_up(&mut self, handle: Page, from: Tier) {
        if from == self.store_tier {
            self.write_back.release(self.directory.page(handle));
        } else {
            self.frames.remove(handle);
            self.write_back.set_in_memory(self.directory.page(handle), false);
        }
    }

    /// Replays a movement of a recovered page, whose bytes are in the store already.
    fn replay_movement(&mut self, handle: Page, verb: Verb) {
        let page = self.directory.page(handle);
        match verb {
            Verb::Fetch { to } | Verb::Install { to } if to == self.store_tier => {
                self.write_back.store.index_mut().update(page, |entry| entry.resident = true);
            }
            Verb::Fetch { .. } | Verb::Install { .. } => {
                let entry = self.write_back.store.index().get(page);
                let dirty = entry.is_some_and(|entry| entry.dirty);
                let stored = entry.map(|entry| entry.address);
                self.frames.insert(handle, Frame { bytes: None, dirty, stored });
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

    /// Hands to the store those of these frames that only volatile memory has.
    pub fn store_frames(&mut self, handles: &[Page]) -> io::Result<()> {
        for &handle in handles {
            // The policy may have been changed since the frames were listed.
            let frame = self.frames.get(handle);
            if let Some(frame) = frame.filter(|frame| frame.dirty) {
                let page = self.directory.page(handle);
                let held = self.write_back.store.index().get(page);
                let stored = held.is_some_and(|entry| frame.stored == Some(entry.address));
                if let Some(bytes) = frame.bytes.as_ref().filter(|_| !stored) {
                    let resident = held.is_some_and(|entry| entry.resident);
                    let entry = self.write_back.put_filled(page, bytes, true, resident)?;
                    self.frames.get_mut(handle).expect("just seen").stored = Some(entry.address);
                }
                self.write_back.set_in_memory(page, false);
            }
            self.unstored.remove(&handle.0);
        }
        Ok(())
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
}

impl<'b> Decision<'_, 'b> {
    /// Counts the decided request. `absorbed` when it replaced a dirty version.
    pub fn count(&mut self, outcome: Outcome, absorbed: bool) {
        self.executor.count(self.page, self.op, outcome, absorbed);
    }

    /// Ends the decision, with its first error. After an error nothing is left to be done.
    pub fn end(mut self) -> io::Result<Plan> {
        match self.error.take() {
            None => Ok(Plan::of(self.page, self.block.take())),
            Some(error) => Err(error),
        }
    }

    /// True if a movement has failed.
    pub fn has_failed(&self) -> bool {
        self.error.is_some()
    }

    /// True if the write has been sent below, bypassing the tiers.
    pub fn went_past(&self) -> bool {
        self.past
    }

    /// Copies the request's bytes now, before anything that may read them in the store.
    fn settle(&mut self) {
        if let Some(block) = self.block.take() {
            block.fill(self.contents.bytes);
        }
    }

    /// Puts the request's bytes into the store. They are copied later, unless another movement follows.
    fn put(&mut self, dirty: bool) -> io::Result<()> {
        self.settle();
        if self.contents.bytes.is_empty() {
            // The bytes of a hit come later. They are fetched again when the page is asked for next.
            return Err(io::Error::other("the bytes of the page are not known yet"));
        }
        let (_, block) = self.executor.write_back.put(self.page, self.contents.crc(), dirty, true)?;
        self.block = Some(block);
        Ok(())
    }

    /// Puts the page that was read into the tier where the policy believes it to be, if that has no bytes of it.
    pub fn fill(&mut self, handle: Page, in_store: bool) {
        let bytes = self.contents.bytes;
        if let Some(frame) = self.executor.frames.get_mut(handle) {
            frame.bytes.get_or_insert_with(|| bytes.into());
        } else if in_store && self.executor.write_back.store.index().resident(self.page).is_none() {
            let kept = self.put(false);
            self.executor.counts.admissions_failed += u64::from(kept.is_err());
        }
    }

    pub fn attempt(&mut self, result: io::Result<()>) {
        if let Err(error) = result {
            self.error.get_or_insert(error);
        }
    }

    /// Fetches a page from the backing store into a tier.
    fn fetch(&mut self, handle: Page, to: Tier) -> io::Result<()> {
        let page = self.executor.directory.page(handle);
        let in_store = to == self.executor.store_tier;
        // A copy that could not be kept is a miss the next time; the read itself succeeds.
        if page == self.page && !self.op.is_write() {
            let kept = if in_store {
                self.put(false)
            } else {
                self.executor.set_frame(handle, self.contents.bytes, false, None);
                Ok(())
            };
            self.executor.counts.admissions_failed += u64::from(kept.is_err());
            return Ok(());
        }
        let mut bytes = vec![0; self.executor.page_bytes()];
        self.executor.write_back.read_below(page, &mut bytes)?;
        if in_store {
            let kept = self.executor.write_back.put_filled(page, &bytes, false, true);
            self.executor.counts.admissions_failed += u64::from(kept.is_err());
        } else {
            self.executor.set_frame(handle, &bytes, false, None);
        }
        Ok(())
    }

    /// Puts the bytes of the write into a tier.
    fn install(&mut self, handle: Page, to: Tier) -> io::Result<()> {
        let landed = if to == self.executor.store_tier {
            self.put(true)
        } else {
            self.executor.set_frame(handle, self.contents.bytes, true, None);
            Ok(())
        };
        match landed {
            // The store has no free segment at the moment: the policy believes in a page with no bytes behind it.
            Err(_) if !self.executor.write_back.is_broken() => {
                self.executor.counts.admissions_failed += 1;
                self.past = true;
                self.executor.write_back.write_past(self.page, self.contents.bytes)
            }
            landed => landed,
        }
    }

    fn promote(&mut self, handle: Page) -> io::Result<()> {
        let page = self.executor.directory.page(handle);
        let read = page == self.page && !self.op.is_write() && self.purpose == Purpose::Request;
        // A read of another page reads its bytes later; a write brings its own bytes next.
        let bytes = read.then(|| self.contents.bytes.into());
        let write_back = &self.executor.write_back;
        let entry = write_back.store.index().resident(page);
        let dirty = entry.is_some_and(|entry| write_back.is_owed(page, entry));
        self.executor.frames.insert(handle, Frame { bytes, dirty, stored: entry.map(|entry| entry.address) });
        Ok(())
    }

    fn bypass(&mut self) -> io::Result<()> {
        if !self.op.is_write() {
            return Ok(());
        }
        self.past = true;
        self.executor.write_back.write_past(self.page, self.contents.bytes)
    }

    /// Sends the write below at once as well.
    pub fn write_through(&mut self, handle: Page) -> io::Result<()> {
        let page = self.page;
        if self.executor.frames.get(handle).is_some() {
            self.settle();
            return self.executor.write_page_back(handle, Tier::TOP);
        }
        let write_back = &mut self.executor.write_back;
        match write_back.store.index().resident(page) {
            Some(entry) if write_back.is_owed(page, entry) => {
                write_back.write_page_back(page, self.contents.bytes, entry.address);
                Ok(())
            }
            Some(_) => Ok(()),
            None => write_back.write_past(page, self.contents.bytes),
        }
    }

    fn carry_out(&mut self, Movement { page: handle, verb, .. }: Movement) -> io::Result<()> {
        let is_replay = self.purpose == Purpose::Replay;
        match verb {
            Verb::Fetch { .. } | Verb::Install { .. } | Verb::Bypass if is_replay => {
                self.executor.replay_movement(handle, verb);
                Ok(())
            }
            Verb::Fetch { to } => self.fetch(handle, to),
            Verb::Install { to } => self.install(handle, to),
            Verb::Copy { from, .. } if from == self.executor.store_tier => self.promote(handle),
            Verb::Copy { .. } => self.executor.demote(handle),
            Verb::WriteBack { from } => self.executor.write_page_back(handle, from),
            Verb::Drop { from } | Verb::Supersede { tier: from } => {
                self.executor.give_up(handle, from);
                Ok(())
            }
            // The store accounts for dead versions itself. Held ones get their second chance when reclaim reaches them.
            Verb::Reclaim { .. } | Verb::Requeue { .. } => Ok(()),
            Verb::Bypass => self.bypass(),
            Verb::FetchObject { .. } | Verb::DropObject { .. } => {
                unreachable!("objects move at the word of queries, and a block cache hears of none")
            }
        }
    }
}

impl Drop for Decision<'_, '_> {
    /// A decision that nobody asks for a plan leaves nothing to be done.
    fn drop(&mut self) {
        self.settle();
    }
}

impl Driver for Decision<'_, '_> {
    fn may_evict(&mut self, _page: Page, _tier: Tier) -> bool {
        // Decisions come one at a time, and none pins a page. Whoever reads a block of the store that is reserved and
        // not filled waits for it.
        true
    }

    fn emit(&mut self, movement: Movement) {
        self.settle();
        let is_replay = self.purpose == Purpose::Replay;
        let executor = &mut *self.executor;
        if !is_replay {
            executor.counts.movement(movement, self.op.is_write());
        }
        executor.objects.movement(executor.directory.page(movement.page), movement, executor.store_tier, !is_replay);
        let result = self.carry_out(movement);
        self.attempt(result);
    }

    fn now_us(&self) -> u64 {
        self.executor.now_us
    }

    fn next_use(&self) -> u32 {
        NEVER
    }

    fn address(&self, page: Page) -> Address {
        self.executor.objects.address(self.executor.directory.page(page))
    }

    fn successor(&self, page: Page) -> Option<Page> {
        let Executor { directory, objects, .. } = &*self.executor;
        directory.find(objects.neighbour(directory.page(page), 1)?)
    }

    fn predecessor(&self, page: Page) -> Option<Page> {
        let Executor { directory, objects, .. } = &*self.executor;
        directory.find(objects.neighbour(directory.page(page), -1)?)
    }

    fn object_pages(&self, object: ObjectId) -> u64 {
        self.executor.objects.pages(object)
    }
}

/// A request as a policy sees it.
pub(super) fn request(handle: Page, op: Op, sequential: bool) -> Request {
    Request { page: handle, op, sequential }
}
