//! One decision of the policy, and its driver: carries out the policy's movements on bytes.

use super::Mode;
use super::executor::Executor;
use super::frames::Frame;
use super::maintenance;
use super::page_copy::PageCopy;
use super::plan::PageBytes;
use entresol_core::{Address, Movement, NEVER, ObjectId, Op, Outcome, Page, Request, Tier, Verb};
use entresol_policy::{Driver, Ranked};
use entresol_store::Unfilled;
use entresol_store::mutant::{self, Mutant};
use std::io;

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
/// frames at once. Bytes that go to the store, and pages whose bytes have to be read first, are left to the executor's
/// [`Plan`](super::plan::Plan). No movement waits for a block, or calls a device, except to make room
/// where a decision moves more pages than a segment has.
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

impl<'e, 'b> Decision<'e, 'b> {
    /// Begins the decision on a request for a page.
    pub fn on_request(executor: &'e mut Executor, page: u64, op: Op, contents: PageBytes<'b>, now_us: u64) -> Self {
        executor.now_us = now_us;
        Decision::begin(executor, Purpose::Request, page, op, contents)
    }

    /// Begins to show the policy a recovered page. Frames get their bytes when they are first read.
    pub fn on_recovered(executor: &'e mut Executor, page: u64, op: Op) -> Self {
        Decision::begin(executor, Purpose::Replay, page, op, PageBytes::UNKNOWN)
    }

    /// Begins a decision on work that a hint left, or on the hint.
    pub fn on_hint(executor: &'e mut Executor) -> Self {
        Decision::begin(executor, Purpose::Hint, u64::MAX, Op::Read, PageBytes::UNKNOWN)
    }

    fn begin(executor: &'e mut Executor, purpose: Purpose, page: u64, op: Op, contents: PageBytes<'b>) -> Self {
        Decision { executor, purpose, page, op, contents, past: false, block: None, error: None }
    }

    /// Counts the decided request. `absorbed` when it replaced a dirty version.
    pub fn count(&mut self, outcome: Outcome, absorbed: bool) {
        self.executor.count(self.page, self.op, outcome, absorbed);
    }

    /// Makes room in the log below the policy: for the next request after one that `writes`, or behind a page that was
    /// shown.
    pub fn settle_log(&mut self, writes: Option<bool>, mut policy: Option<&mut dyn Ranked>) {
        let Some(mut policy_log) = self.executor.policy_log.take() else { return };
        match writes {
            Some(writes) => policy_log.settle(writes, self.executor.now_us, policy, |movement| self.emit(movement)),
            None => drop(policy_log.make_room(&mut policy, |movement| self.emit(movement))),
        }
        self.executor.policy_log = Some(policy_log);
    }

    /// Ends the decision, with its first error. After an error the request's bytes have been copied.
    pub fn end(mut self) -> io::Result<()> {
        match self.error.take() {
            None => {
                if let Some(block) = self.block.take() {
                    self.executor.plan.fill(self.page, block);
                }
                Ok(())
            }
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

    /// Copies the request's bytes now.
    fn settle(&mut self) {
        if let Some(block) = self.block.take() {
            block.fill(self.contents.bytes);
        }
    }

    /// Puts the request's bytes into the store. They are copied later.
    fn put(&mut self, dirty: bool) -> io::Result<()> {
        // The block is reserved again if it is the page's.
        self.settle();
        self.executor.plan.settle_page(self.page);
        self.executor.make_room_to_put();
        if self.contents.bytes.is_empty() {
            // The bytes of a hit come later. They are fetched again when the page is asked for next.
            return Err(io::Error::other("the bytes of the page are not known yet"));
        }
        self.executor.write_back.stirred = true;
        let (_, block) = maintenance::put(&mut self.executor.write_back, self.page, self.contents.crc(), dirty, true)?;
        self.block = Some(block);
        Ok(())
    }

    /// Puts the page that was read into the tier where the policy believes it to be, if that has no bytes of it.
    pub fn fill(&mut self, handle: Page, in_store: bool) {
        if let Some(frame) = self.executor.frames.get_mut(handle) {
            if frame.bytes.is_none() || mutant::is(Mutant::LoadedUnlocked) {
                frame.fill(self.contents.bytes.into(), self.contents.known_crc);
            }
        } else if in_store && (!self.has_stored() || mutant::is(Mutant::LoadedUnlocked)) {
            let kept = self.put(false);
            self.executor.counts.admissions_failed += u64::from(kept.is_err());
        }
    }

    fn has_stored(&self) -> bool {
        self.executor.write_back.store.index().resident(self.page).is_some()
    }

    pub fn attempt(&mut self, result: io::Result<()>) {
        if let Err(error) = result {
            self.error.get_or_insert(error);
        }
    }

    /// Fetches a page from the backing store into a tier. The bytes of another page than the requested one come later.
    fn fetch(&mut self, handle: Page, to: Tier) {
        let page = self.executor.directory.page(handle);
        let in_store = to == self.executor.store_tier();
        if page != self.page || self.op.is_write() {
            if !in_store {
                self.executor.insert_frame(handle, Frame::EMPTY);
            }
            self.executor.plan.load(page);
        } else if in_store {
            // A copy that could not be kept is a miss the next time; the read itself succeeds.
            let kept = self.put(false);
            self.executor.counts.admissions_failed += u64::from(kept.is_err());
        } else {
            self.executor.set_frame(handle, self.contents, false);
        }
    }

    /// Puts the bytes of the write into a tier.
    fn install(&mut self, handle: Page, to: Tier) -> io::Result<()> {
        let landed = if to == self.executor.store_tier() {
            self.put(true)
        } else {
            self.executor.set_frame(handle, self.contents, true);
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
        let crc = self.contents.known_crc.filter(|_| read);
        let write_back = &self.executor.write_back;
        let entry = write_back.store.index().resident(page);
        let dirty = entry.is_some_and(|entry| write_back.is_owed(page, entry));
        self.executor.insert_frame(handle, Frame { bytes, crc, dirty, stored: entry.map(|entry| entry.address) });
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
            return self.executor.write_page_back(handle, Tier::TOP);
        }
        let write_back = &mut self.executor.write_back;
        match write_back.store.index().resident(page) {
            Some(entry) if write_back.is_owed(page, entry) => {
                write_back.write_page_back(page, self.contents.bytes.into(), entry.address);
                Ok(())
            }
            Some(_) => Ok(()),
            None => write_back.write_past(page, self.contents.bytes),
        }
    }

    /// Writes a page back. From the store its bytes may be those that are still to be copied there.
    fn write_page_back(&mut self, handle: Page, from: Tier) -> io::Result<()> {
        let page = self.executor.directory.page(handle);
        let pending = if from != self.executor.store_tier() {
            None
        } else if self.block.is_some() && page == self.page {
            Some(PageCopy::from(self.contents.bytes))
        } else {
            self.executor.plan.copied(page).cloned()
        };
        let Some(bytes) = pending else { return self.executor.write_page_back(handle, from) };
        let write_back = &mut self.executor.write_back;
        let entry = write_back.store.index().resident(page).filter(|&entry| write_back.is_owed(page, entry));
        if let Some(entry) = entry {
            write_back.write_page_back(page, bytes, entry.address);
        }
        Ok(())
    }

    fn carry_out(&mut self, Movement { page: handle, verb, .. }: Movement) -> io::Result<()> {
        let is_replay = self.purpose == Purpose::Replay;
        match verb {
            Verb::Fetch { .. } | Verb::Install { .. } | Verb::Bypass if is_replay => {
                self.executor.replay_movement(handle, verb);
                Ok(())
            }
            Verb::Fetch { to } => {
                self.fetch(handle, to);
                Ok(())
            }
            Verb::Install { to } => self.install(handle, to),
            Verb::Copy { from, .. } if from == self.executor.store_tier() => self.promote(handle),
            Verb::Copy { .. } => self.executor.demote(handle),
            Verb::WriteBack { from } => self.write_page_back(handle, from),
            Verb::Drop { from } | Verb::Supersede { tier: from } => {
                self.executor.give_up(handle, from);
                Ok(())
            }
            // The store accounts for dead versions itself. Held ones are moved when reclaim reaches them.
            Verb::Reclaim { .. } | Verb::Requeue { .. } => Ok(()),
            Verb::Bypass => self.bypass(),
            Verb::FetchObject { .. } | Verb::DropObject { .. } => {
                unreachable!("objects move at the word of queries, and a block cache hears of none")
            }
        }
    }
}

impl Drop for Decision<'_, '_> {
    /// A decision that is not ended leaves no bytes of the request to be copied.
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
        self.executor.write_back.stirred = true;
        if !self.executor.write_back.has_room_to_put() {
            // Making room writes batches, which wait for their blocks.
            self.settle();
        }
        let is_replay = self.purpose == Purpose::Replay;
        let executor = &mut *self.executor;
        // In another mode than write-back the backing store has the page already.
        let is_clean = matches!(movement.verb, Verb::WriteBack { .. }) && executor.mode != Mode::WriteBack;
        let counted = !is_replay && !is_clean;
        if counted {
            executor.counts.movement(movement, self.op.is_write());
        }
        executor.objects.movement(executor.directory.page(movement.page), movement, executor.store_tier(), counted);
        let result = self.carry_out(movement);
        self.attempt(result);
        if let Some(policy_log) = &mut self.executor.policy_log {
            policy_log.movement(movement);
        }
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
