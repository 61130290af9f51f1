//! Carries out what a policy decides, on bytes: the engine's driver.

use super::counts::Counts;
use super::directory::Directory;
use super::frames::{Frame, Frames};
use super::gaps::Gaps;
use super::keeper::{Keeper, Source};
use super::objects::Objects;
use crate::store::Entry;
use entresol_core::{Address, Movement, NEVER, ObjectId, Op, Outcome, Page, Request, Tier, Verb};
use entresol_policy::{Driver, Streams};
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;

/// Current request, with its page and the page's bytes.
struct Current {
    page: u64,
    op: Op,
    /// Contents of the page as the write leaves it, or as it was read; undefined between requests.
    bytes: Box<[u8]>,
    /// The write has been sent below.
    past: bool,
}

/// The volatile tier of a policy whose place another has taken: copies of pages, of which durability needs none.
pub(super) struct Left {
    frames: Frames,
    directory: Directory,
}

impl Left {
    /// There is a newer version of a page, or none.
    pub fn void(&mut self, page: u64) {
        if let Some(handle) = self.directory.find(page) {
            self.frames.remove(handle);
        }
    }

    /// Pages of so many frames before a place, and the place of the first of them.
    pub fn pages_before(&self, end: usize, most: usize) -> (Vec<u64>, usize) {
        self.frames.pages_before(&self.directory, end, most)
    }

    /// Pages that are left.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// A page, with what was held of it.
    pub fn pop(&mut self) -> Option<(u64, Frame)> {
        let (handle, frame) = self.frames.pop()?;
        Some((self.directory.page(handle), frame))
    }
}

/// Tiers, directory and stores: all that a policy's movements act on.
pub(super) struct World {
    pub keeper: Keeper,
    pub directory: Directory,
    pub counts: Counts,
    pub objects: Objects,
    /// Detector of the long sequential streams that pass the cache by; none if none do.
    pub streams: Option<Box<Streams>>,
    /// Gaps in them that may be read from below.
    pub gaps: Gaps,
    /// Of the volatile tier, if there is one.
    frames: Frames,
    /// Handles of frames that may be newer than anything the log has or was sent below.
    unlogged: BTreeSet<u32>,
    /// The tier that the log is.
    log_tier: Tier,
    current: Current,
    /// Recovered pages are being shown to the policy: bytes stay where they are.
    replaying: bool,
    now_us: u64,
    error: Option<io::Error>,
}

impl World {
    pub fn new(keeper: Keeper, tiers: usize, handles: usize, page_bytes: usize, objects: Objects) -> Self {
        World {
            keeper,
            directory: Directory::new(handles),
            counts: Counts::default(),
            objects,
            streams: None,
            gaps: Gaps::NONE,
            frames: Frames::new(handles),
            unlogged: BTreeSet::new(),
            log_tier: Tier(tiers as u8 - 1),
            current: Current { page: 0, op: Op::Read, bytes: vec![0; page_bytes].into(), past: false },
            replaying: false,
            now_us: 0,
            error: None,
        }
    }

    /// The stores for another policy, whose tiers hold nothing yet, and what the tiers of this one had. Of frames durability needs
    /// nothing: see [`log_frames`](World::log_frames).
    pub fn passed_on(self, tiers: usize, directory: Directory, frames: Frames) -> (Self, Left) {
        let World { keeper, counts, streams, now_us, current, .. } = self;
        let log_tier = Tier(tiers as u8 - 1);
        let world = World {
            keeper,
            directory,
            counts,
            objects: self.objects.emptied(),
            streams,
            gaps: Gaps::NONE,
            frames,
            unlogged: BTreeSet::new(),
            log_tier,
            current,
            replaying: false,
            now_us,
            error: None,
        };
        (world, Left { frames: self.frames, directory: self.directory })
    }

    /// Begins a request for a page, whose bytes are these: as the write leaves it, or as it reads.
    pub fn begin(&mut self, page: u64, op: Op, bytes: &[u8], now_us: u64) {
        self.current.bytes.copy_from_slice(bytes);
        self.begin_page(page, op, now_us);
    }

    fn begin_page(&mut self, page: u64, op: Op, now_us: u64) {
        self.current = Current { page, op, past: false, bytes: std::mem::take(&mut self.current.bytes) };
        self.now_us = now_us;
    }

    /// Begins the replay of a recovered page.
    pub fn begin_replay(&mut self, page: u64, op: Op) {
        self.replaying = true;
        self.begin_page(page, op, self.now_us);
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> usize {
        self.current.bytes.len()
    }

    /// The tier that the log is.
    pub fn log_tier(&self) -> Tier {
        self.log_tier
    }

    /// Counts a request that was decided. `absorbed` when it replaced what was dirty.
    pub fn count(&mut self, page: u64, op: Op, outcome: Outcome, absorbed: bool) {
        self.counts.outcome(op, outcome);
        self.objects.outcome(page, op, outcome, absorbed, self.log_tier);
    }

    /// Counts a request that went past the policy as one of a long stream: as the policy's own bypass, and by itself.
    pub fn count_passed(&mut self, page: u64, op: Op) {
        self.counts.passed += 1;
        self.counts.bypasses += 1;
        self.counts.fetches += u64::from(!op.is_write());
        if !op.is_write() {
            self.passed(page);
        }
        self.count(page, op, Outcome::BYPASSED, false);
    }

    /// Ends a request: the error that befell it.
    pub fn end(&mut self) -> io::Result<()> {
        self.error.take().map_or(Ok(()), Err)
    }

    /// Has the current write been sent below, past the tiers?
    pub fn went_past(&self) -> bool {
        self.current.past
    }

    /// Finds the newest version of a page, wherever it is.
    pub fn locate(&mut self, page: u64, handle: Option<Page>, bytes: &mut [u8]) -> io::Result<Source> {
        let held = match handle.and_then(|handle| self.frames.get(handle)) {
            Some(Frame { bytes: Some(held), .. }) => {
                bytes.copy_from_slice(held);
                return Ok(Source::Memory);
            }
            Some(frame) => self.keeper.log.index().get(page).filter(|entry| frame.logged == Some(entry.place)),
            None => self.keeper.log.index().resident(page),
        };
        match held {
            Some(entry) => self.keeper.locate_logged(entry, bytes),
            None => self.keeper.locate_below(page, bytes),
        }
    }

    /// The frame of a handle.
    pub(super) fn frame(&self, handle: Page) -> Option<&Frame> {
        self.frames.get(handle)
    }

    /// Reads the newest version of a page, for what no request waits for outside of the lock.
    fn read_newest(&mut self, page: u64, handle: Page, bytes: &mut [u8]) -> io::Result<()> {
        match self.locate(page, Some(handle), bytes)? {
            Source::Memory => Ok(()),
            Source::Log(entry) => self.keeper.read_log(page, entry, bytes),
            Source::Below => self.keeper.read_below(page, bytes),
        }
    }

    /// The page that was just read is put where the policy believes it to be, if there is nothing under it.
    pub fn fill(&mut self, handle: Page, in_log: bool) {
        let bytes = &self.current.bytes;
        if let Some(frame) = self.frames.get_mut(handle) {
            frame.bytes.get_or_insert_with(|| bytes.clone());
        } else if in_log && self.keeper.log.index().resident(self.current.page).is_none() {
            let kept = self.keeper.put(self.current.page, bytes, false, true);
            self.counts.admissions_failed += u64::from(kept.is_err());
        }
    }

    /// The policy may go on believing that it holds a page: there is nothing under it any more.
    pub fn hollow_out(&mut self, page: u64) {
        self.keeper.set_in_memory(page, false);
        let handle = self.directory.find(page);
        if let Some(frame) = handle.and_then(|handle| self.frames.get_mut(handle)) {
            *frame = Frame { bytes: None, dirty: false, logged: None };
        }
    }

    /// As [`Keeper::copy_is_bad`]: a frame that left its bytes in that copy does not look for them there again.
    pub fn copy_is_bad(&mut self, page: u64, entry: Entry, error: io::Error) -> io::Result<()> {
        self.keeper.copy_is_bad(page, entry, error)?;
        let frame = self.directory.find(page).and_then(|handle| self.frames.get(handle));
        if frame.is_some_and(|frame| frame.bytes.is_none() && frame.logged == Some(entry.place)) {
            self.hollow_out(page);
        }
        Ok(())
    }

    /// Frames that there are.
    pub fn frames_len(&self) -> usize {
        self.frames.len()
    }

    /// Pages of so many frames before a place, and the place of the first of them.
    pub fn framed_before(&self, end: usize, most: usize) -> (Vec<u64>, usize) {
        self.frames.pages_before(&self.directory, end, most)
    }

    /// True if anything is held of a page.
    pub fn holds(&self, page: u64) -> bool {
        let in_frame = || self.directory.find(page).is_some_and(|handle| self.frames.get(handle).is_some());
        self.keeper.holds(page) || in_frame()
    }

    /// Pages of a range of which anything is held, ascending.
    pub fn held_in(&self, range: &Range<u64>) -> Vec<u64> {
        let mut held = self.keeper.held_in(range);
        let in_frames = self.frames.handles().into_iter().map(|handle| self.directory.page(handle));
        held.extend(in_frames.filter(|page| range.contains(page)));
        held.sort_unstable();
        held.dedup();
        held
    }

    fn attempt(&mut self, result: io::Result<()>) {
        if let Err(error) = result {
            self.error.get_or_insert(error);
        }
    }

    fn set_frame(&mut self, handle: Page, bytes: &[u8], dirty: bool, logged: Option<u64>) {
        if dirty && logged.is_none() {
            self.unlogged.insert(handle.0);
            self.keeper.set_in_memory(self.directory.page(handle), true);
        }
        self.frames.insert(handle, Frame { bytes: Some(bytes.into()), dirty, logged });
    }

    /// A page comes up from below.
    fn fetch(&mut self, handle: Page, to: Tier) -> io::Result<()> {
        let page = self.directory.page(handle);
        let wanted = page == self.current.page && !self.current.op.is_write();
        let len = self.current.bytes.len();
        let mut bytes = if wanted { std::mem::take(&mut self.current.bytes) } else { vec![0; len].into_boxed_slice() };
        let read = if wanted { Ok(()) } else { self.keeper.read_below(page, &mut bytes) };
        let kept = match &read {
            Ok(()) if to == self.log_tier => self.keeper.put(page, &bytes, false, true).map(|_| ()),
            Ok(()) => {
                self.set_frame(handle, &bytes, false, None);
                Ok(())
            }
            Err(_) => Ok(()),
        };
        if wanted {
            self.current.bytes = bytes;
        }
        // A copy that could not be kept is a miss the next time; the reader has what it wants.
        self.counts.admissions_failed += u64::from(kept.is_err());
        read
    }

    /// The bytes of the current write land in a tier.
    fn install(&mut self, handle: Page, to: Tier) -> io::Result<()> {
        let bytes = std::mem::take(&mut self.current.bytes);
        let landed = if to == self.log_tier {
            self.keeper.put(self.current.page, &bytes, true, true).map(|_| ())
        } else {
            self.set_frame(handle, &bytes, true, None);
            Ok(())
        };
        self.current.bytes = bytes;
        match landed {
            // There is no room in the log just now: the policy believes in a page with nothing under it.
            Err(_) if !self.keeper.is_broken() => {
                self.counts.admissions_failed += 1;
                self.current.past = true;
                self.keeper.write_past(self.current.page, &self.current.bytes)
            }
            landed => landed,
        }
    }

    fn promote(&mut self, handle: Page) -> io::Result<()> {
        let page = self.directory.page(handle);
        let read = page == self.current.page && !self.current.op.is_write() && !self.replaying;
        // Whoever asks for other pages reads them; a write brings its bytes next.
        let bytes = read.then(|| self.current.bytes.clone());
        let entry = self.keeper.log.index().resident(page);
        let dirty = entry.is_some_and(|entry| self.keeper.is_owed(page, entry));
        self.frames.insert(handle, Frame { bytes, dirty, logged: entry.map(|entry| entry.place) });
        Ok(())
    }

    fn demote(&mut self, handle: Page) -> io::Result<()> {
        let page = self.directory.page(handle);
        let Some(frame) = self.frames.get(handle) else {
            return Ok(());
        };
        let (dirty, logged) = (frame.dirty, frame.logged);
        if frame.bytes.is_none() && logged.is_none() {
            // Nothing is held there, and nothing here.
            return Ok(());
        }
        let held = self.keeper.log.index().get(page);
        if held.is_some_and(|entry| logged == Some(entry.place)) {
            // The log has this version already: from a flush, or from before it was promoted.
            self.keeper.log.index_mut().update(page, |entry| entry.resident = true);
            return Ok(());
        }
        let mut bytes = vec![0; self.current.bytes.len()];
        self.read_newest(page, handle, &mut bytes)?;
        match self.keeper.put(page, &bytes, dirty, true) {
            Ok(entry) => {
                if let Some(frame) = self.frames.get_mut(handle) {
                    frame.logged = Some(entry.place);
                }
                self.keeper.set_in_memory(page, false);
                Ok(())
            }
            // The policy goes on to free the frame: what only it has must have left it.
            Err(error) if dirty => self.keeper.write_past(page, &bytes).and(Err(error)),
            Err(error) => Err(error),
        }
    }

    fn write_back(&mut self, handle: Page, from: Tier) -> io::Result<()> {
        let page = self.directory.page(handle);
        if from == self.log_tier {
            // Not there, or sent below before by durability's own rules: nothing is owed.
            let entry = self.keeper.log.index().resident(page).filter(|&entry| self.keeper.is_owed(page, entry));
            if let Some(entry) = entry {
                self.keeper.write_back_logged(page, entry);
            }
            return Ok(());
        }
        let Some(logged) = self.frames.get_mut(handle).filter(|frame| frame.dirty).map(|frame| frame.logged) else {
            return Ok(());
        };
        let mut bytes = vec![0; self.current.bytes.len()];
        self.read_newest(page, handle, &mut bytes)?;
        match self.keeper.log.index().get(page).filter(|entry| logged == Some(entry.place)) {
            Some(entry) if self.keeper.is_owed(page, entry) => self.keeper.write_back(page, &bytes, entry.place),
            // A drain has sent it below meanwhile.
            Some(_) => {}
            None => self.keeper.write_past(page, &bytes)?,
        }
        if let Some(frame) = self.frames.get_mut(handle) {
            frame.dirty = false;
        }
        self.keeper.set_in_memory(page, false);
        Ok(())
    }

    fn give_up(&mut self, handle: Page, from: Tier) {
        if from == self.log_tier {
            self.keeper.release(self.directory.page(handle));
        } else {
            self.frames.remove(handle);
            self.keeper.set_in_memory(self.directory.page(handle), false);
        }
    }

    fn bypass(&mut self) -> io::Result<()> {
        if !self.current.op.is_write() {
            return Ok(());
        }
        self.current.past = true;
        self.keeper.write_past(self.current.page, &self.current.bytes)
    }

    /// A movement of a page that was recovered: its bytes are in the log already.
    fn replay(&mut self, handle: Page, verb: Verb) -> io::Result<()> {
        let page = self.directory.page(handle);
        match verb {
            Verb::Fetch { to } | Verb::Install { to } if to == self.log_tier => {
                self.keeper.log.index_mut().update(page, |entry| entry.resident = true);
            }
            Verb::Fetch { .. } | Verb::Install { .. } => {
                let entry = self.keeper.log.index().get(page);
                let dirty = entry.is_some_and(|entry| entry.dirty);
                let logged = entry.map(|entry| entry.place);
                self.frames.insert(handle, Frame { bytes: None, dirty, logged });
            }
            Verb::Bypass => {
                let owed = self.keeper.log.index().get(page).filter(|&entry| self.keeper.is_owed(page, entry));
                if let Some(entry) = owed {
                    self.keeper.write_back_logged(page, entry);
                }
            }
            _ => unreachable!("{verb:?} needs no replay of its own"),
        }
        Ok(())
    }

    /// Ends the replay. Frames get their bytes when they are first read.
    pub fn end_replay(&mut self) {
        self.replaying = false;
    }

    /// Handles of what only volatile memory may have: so many at most, from this one on, ascending.
    pub fn unlogged(&self, from: u32, most: usize) -> Vec<Page> {
        self.unlogged.range(from..).take(most).map(|&handle| Page(handle)).collect()
    }

    /// Hands to the keeper what only volatile memory has of these.
    pub fn log_frames(&mut self, handles: &[Page]) -> io::Result<()> {
        for &handle in handles {
            // Since they were listed the policy may have been changed.
            let frame = self.frames.get(handle);
            if let Some(frame) = frame.filter(|frame| frame.dirty) {
                let page = self.directory.page(handle);
                let held = self.keeper.log.index().get(page);
                let logged = held.is_some_and(|entry| frame.logged == Some(entry.place));
                if let Some(bytes) = frame.bytes.as_ref().filter(|_| !logged) {
                    let resident = held.is_some_and(|entry| entry.resident);
                    let entry = self.keeper.put(page, bytes, true, resident)?;
                    self.frames.get_mut(handle).expect("just seen").logged = Some(entry.place);
                }
                self.keeper.set_in_memory(page, false);
            }
            self.unlogged.remove(&handle.0);
        }
        Ok(())
    }

    /// Sends below what memory alone has of a page, by the queue.
    pub fn hand_down(&mut self, page: u64) -> io::Result<()> {
        let dirty = |handle: &Page| self.frames.get(*handle).is_some_and(|frame| frame.dirty);
        match self.directory.find(page).filter(dirty) {
            Some(handle) => self.write_back(handle, Tier::TOP),
            None => {
                self.keeper.set_in_memory(page, false);
                Ok(())
            }
        }
    }

    /// Ages are kept from now on: of what only memory has too.
    pub fn age_frames(&mut self) {
        for handle in self.unlogged(0, usize::MAX) {
            if self.frames.get(handle).is_some_and(|frame| frame.dirty) {
                self.keeper.set_in_memory(self.directory.page(handle), true);
            }
        }
    }

    /// Queues a page if it has to be written below still: what a frame has, which needs no device to be read, or the log's copy.
    pub fn queue_owed(&mut self, page: u64) -> io::Result<()> {
        let has_bytes =
            |handle: &Page| self.frames.get(*handle).is_some_and(|frame| frame.dirty && frame.bytes.is_some());
        if let Some(handle) = self.directory.find(page).filter(has_bytes) {
            self.write_back(handle, Tier::TOP)?;
        }
        self.keeper.queue_owed(&[page]);
        Ok(())
    }

    /// Sends below what only volatile memory has, when there is no log any more.
    pub fn write_frames_below_without_log(&mut self) {
        for handle in self.frames.handles() {
            let page = self.directory.page(handle);
            let Some(frame) = self.frames.get_mut(handle).filter(|frame| frame.dirty) else { continue };
            if let Some(bytes) = &frame.bytes {
                self.keeper.write_without_log(page, bytes);
                frame.dirty = false;
            }
        }
    }

    /// The current write goes below at once as well.
    pub fn write_through(&mut self, handle: Page) -> io::Result<()> {
        let page = self.current.page;
        if self.frames.get(handle).is_some() {
            return self.write_back(handle, Tier::TOP);
        }
        match self.keeper.log.index().resident(page) {
            Some(entry) if self.keeper.is_owed(page, entry) => {
                self.keeper.write_back(page, &self.current.bytes, entry.place);
                Ok(())
            }
            Some(_) => Ok(()),
            None => self.keeper.write_past(page, &self.current.bytes),
        }
    }

    fn carry_out(&mut self, Movement { page: handle, verb, .. }: Movement) -> io::Result<()> {
        match verb {
            Verb::Fetch { .. } | Verb::Install { .. } | Verb::Bypass if self.replaying => self.replay(handle, verb),
            Verb::Fetch { to } => self.fetch(handle, to),
            Verb::Install { to } => self.install(handle, to),
            Verb::Copy { from, .. } if from == self.log_tier => self.promote(handle),
            Verb::Copy { .. } => self.demote(handle),
            Verb::WriteBack { from } => self.write_back(handle, from),
            Verb::Drop { from } | Verb::Supersede { tier: from } => {
                self.give_up(handle, from);
                Ok(())
            }
            // The log keeps its own account of dead versions, and gives those that are held their second chance when
            // it reclaims their segment.
            Verb::Reclaim { .. } | Verb::Requeue { .. } => Ok(()),
            Verb::Bypass => self.bypass(),
            Verb::FetchObject { .. } | Verb::DropObject { .. } => {
                unreachable!("objects move at the word of queries, and a block cache hears of none")
            }
        }
    }
}

impl Driver for World {
    fn may_evict(&mut self, _page: Page, _tier: Tier) -> bool {
        // One request at a time, and none holds on to a page.
        true
    }

    fn emit(&mut self, movement: Movement) {
        if !self.replaying {
            self.counts.movement(movement, self.current.op.is_write());
        }
        self.objects.movement(self.directory.page(movement.page), movement, self.log_tier, !self.replaying);
        let result = self.carry_out(movement);
        self.attempt(result);
    }

    fn now_us(&self) -> u64 {
        self.now_us
    }

    fn next_use(&self) -> u32 {
        NEVER
    }

    fn address(&self, page: Page) -> Address {
        self.objects.address(self.directory.page(page))
    }

    fn successor(&self, page: Page) -> Option<Page> {
        self.directory.find(self.objects.neighbour(self.directory.page(page), 1)?)
    }

    fn predecessor(&self, page: Page) -> Option<Page> {
        self.directory.find(self.objects.neighbour(self.directory.page(page), -1)?)
    }

    fn object_pages(&self, object: ObjectId) -> u64 {
        self.objects.pages(object)
    }
}

/// A request as a policy sees it.
pub(super) fn request(handle: Page, op: Op, sequential: bool) -> Request {
    Request { page: handle, op, sequential }
}
