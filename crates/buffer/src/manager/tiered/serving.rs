//! The driver of a policy of two tiers while it decides on a request: the executor, and the request's change.

use super::change::Change;
use super::executor::TieredExecutor;
use crate::frame::Key;
use crate::manager::PageIo;
use entresol_core::{Address, Movement, NEVER, ObjectId, Op, Page, Tier, Verb};
use entresol_device::emulated::Clock as DeviceClock;
use entresol_policy::Driver;

/// Driver of a policy while a request is served.
pub(super) struct Serving<'a, 'c, I, C> {
    pub executor: &'a mut TieredExecutor<I, C>,
    pub change: &'a mut Change<'c>,
}

impl<I: PageIo, C: DeviceClock> Serving<'_, '_, I, C> {
    /// Serves a request for a page without a handle.
    pub fn serve_below(&mut self, key: Key, op: Op) {
        let executor = &mut *self.executor;
        executor.start_without_handle(key, op);
        let at = key.address();
        if op != Op::Write && !executor.read_below_into_whole(at) {
            return;
        }
        executor.current.done = !op.is_write() || {
            let lsn = self.change.apply(&mut executor.whole);
            executor.write_whole_below(at, lsn)
        };
    }

    /// Puts the current write into a tier.
    fn install(&mut self, page: Page, to: usize) {
        let executor = &mut *self.executor;
        let update = executor.current.op == Op::Update;
        let in_place = update && executor.is_newest_in(page, to);
        if update && !in_place && !executor.newest_into_whole(page) {
            // The page cannot be completed: it stays as before, and its frame is invalid.
            executor.frame_for(page, to);
            return;
        }
        let frame = executor.frame_for(page, to);
        let range = self.change.range();
        let lsn = if in_place {
            if self.change.reads() {
                executor.memory.read(to, frame, range.start, &mut executor.whole[range.clone()]);
            }
            let lsn = self.change.apply(&mut executor.whole);
            executor.memory.write(to, frame, range.start, &executor.whole[range]);
            lsn
        } else {
            let lsn = self.change.apply(&mut executor.whole);
            executor.memory.write(to, frame, 0, &executor.whole);
            lsn
        };
        executor.new_version(page, lsn);
        executor.set_version(page, to, executor.known[page.index()].newest);
    }

    fn bypass(&mut self, page: Page) {
        let executor = &mut *self.executor;
        let (op, at) = (executor.current.op, executor.address_of(page));
        if op != Op::Write && !executor.newest_into_whole(page) {
            return;
        }
        if !op.is_write() {
            executor.current.done = true;
            return;
        }
        executor.end_write_of(page);
        let lsn = self.change.apply(&mut executor.whole).max(executor.known[page.index()].lsn);
        if executor.write_whole_below(at, lsn) {
            executor.new_version(page, lsn);
            executor.known[page.index()].below = executor.known[page.index()].newest;
        }
    }
}

impl<I: PageIo, C: DeviceClock> Driver for Serving<'_, '_, I, C> {
    /// Always true: no frame is in use or being written while the policy decides.
    fn may_evict(&mut self, _page: Page, _tier: Tier) -> bool {
        true
    }

    fn emit(&mut self, movement: Movement) {
        let executor = &mut *self.executor;
        executor.count_movement(movement);
        let page = movement.page;
        match movement.verb {
            Verb::Fetch { to } => executor.fetch(page, to.index()),
            Verb::Install { to } => self.install(page, to.index()),
            Verb::Copy { from, to } => executor.copy(page, from.index(), to.index()),
            Verb::WriteBack { from } => executor.write_back(page, from.index()),
            Verb::Drop { from } => executor.leave(page, from.index(), false),
            Verb::Supersede { tier } => executor.leave(page, tier.index(), true),
            Verb::Reclaim { tier } => executor.reclaim(page, tier.index()),
            Verb::Bypass => self.bypass(page),
            // A log would write the page again; here one frame is as good as another.
            Verb::Requeue { .. } => {}
            Verb::FetchObject { .. } | Verb::DropObject { .. } => unreachable!("{movement:?} without a query"),
        }
    }

    fn now_us(&self) -> u64 {
        self.executor.now_us
    }

    fn next_use(&self) -> u32 {
        NEVER
    }

    fn address(&self, page: Page) -> Address {
        let at = self.executor.address_of(page);
        Address { object: ObjectId(at.object.0.min(self.executor.objects - 1)), ..at }
    }

    fn successor(&self, page: Page) -> Option<Page> {
        let at = self.executor.address_of(page);
        self.executor.directory.find(Key::pack(Address { block: at.block + 1, ..at })?)
    }

    fn predecessor(&self, page: Page) -> Option<Page> {
        let at = self.executor.address_of(page);
        self.executor.directory.find(Key::pack(Address { block: at.block.checked_sub(1)?, ..at })?)
    }

    fn object_pages(&self, object: ObjectId) -> u64 {
        self.executor.io.object_pages(object)
    }
}
