//! The world while a policy decides on a request, with what the request changes.

use super::change::Change;
use super::world::World;
use crate::buffer::PageIo;
use crate::frame::Key;
use entresol_core::{Address, Movement, NEVER, ObjectId, Op, Page, Tier, Verb};
use entresol_device::emulated::Clock as DeviceClock;
use entresol_policy::Driver;

/// Driver of a policy while a request is served.
pub(super) struct Serving<'a, 'c, I, C> {
    pub world: &'a mut World<I, C>,
    pub change: &'a mut Change<'c>,
}

impl<I: PageIo, C: DeviceClock> Serving<'_, '_, I, C> {
    /// Serves a request of a page without a handle.
    pub fn serve_below(&mut self, key: Key, op: Op) {
        let world = &mut *self.world;
        world.start_without_handle(key, op);
        let at = key.address();
        if op != Op::Write && !world.read_below_into_whole(at) {
            return;
        }
        world.current.done = !op.is_write() || {
            let lsn = self.change.apply(&mut world.whole);
            world.write_whole_below(at, lsn)
        };
    }

    /// The current write lands in a tier.
    fn install(&mut self, page: Page, to: usize) {
        let world = &mut *self.world;
        let update = world.current.op == Op::Update;
        let in_place = update && world.is_newest_in(page, to);
        if update && !in_place && !world.newest_into_whole(page) {
            // The page cannot be completed: it is as before, and its frame hollow.
            world.frame_for(page, to);
            return;
        }
        let frame = world.frame_for(page, to);
        let range = self.change.range();
        let lsn = if in_place {
            if self.change.reads() {
                world.memory.read(to, frame, range.start, &mut world.whole[range.clone()]);
            }
            let lsn = self.change.apply(&mut world.whole);
            world.memory.write(to, frame, range.start, &world.whole[range]);
            lsn
        } else {
            let lsn = self.change.apply(&mut world.whole);
            world.memory.write(to, frame, 0, &world.whole);
            lsn
        };
        world.new_version(page, lsn);
        world.set_version(page, to, world.known[page.index()].newest);
    }

    fn bypass(&mut self, page: Page) {
        let world = &mut *self.world;
        let (op, at) = (world.current.op, world.address_of(page));
        if op != Op::Write && !world.newest_into_whole(page) {
            return;
        }
        if !op.is_write() {
            world.current.done = true;
            return;
        }
        world.end_write_of(page);
        let lsn = self.change.apply(&mut world.whole).max(world.known[page.index()].lsn);
        if world.write_whole_below(at, lsn) {
            world.new_version(page, lsn);
            world.known[page.index()].below = world.known[page.index()].newest;
        }
    }
}

impl<I: PageIo, C: DeviceClock> Driver for Serving<'_, '_, I, C> {
    /// Nothing is in use or under way while the policy decides.
    fn may_evict(&mut self, _page: Page, _tier: Tier) -> bool {
        true
    }

    fn emit(&mut self, movement: Movement) {
        let world = &mut *self.world;
        world.count_movement(movement);
        let page = movement.page;
        match movement.verb {
            Verb::Fetch { to } => world.fetch(page, to.index()),
            Verb::Install { to } => self.install(page, to.index()),
            Verb::Copy { from, to } => world.copy(page, from.index(), to.index()),
            Verb::WriteBack { from } => world.write_back(page, from.index()),
            Verb::Drop { from } => world.leave(page, from.index(), false),
            Verb::Supersede { tier } => world.leave(page, tier.index(), true),
            Verb::Reclaim { tier } => world.reclaim(page, tier.index()),
            Verb::Bypass => self.bypass(page),
            // In a log it would be written again; here a frame is as good as any other.
            Verb::Requeue { .. } => {}
            Verb::FetchObject { .. } | Verb::DropObject { .. } => unreachable!("{movement:?} without a query"),
        }
    }

    fn now_us(&self) -> u64 {
        self.world.now_us
    }

    fn next_use(&self) -> u32 {
        NEVER
    }

    fn address(&self, page: Page) -> Address {
        let at = self.world.address_of(page);
        Address { object: ObjectId(at.object.0.min(self.world.objects - 1)), ..at }
    }

    fn successor(&self, page: Page) -> Option<Page> {
        let at = self.world.address_of(page);
        self.world.directory.find(Key::pack(Address { block: at.block + 1, ..at })?)
    }

    fn predecessor(&self, page: Page) -> Option<Page> {
        let at = self.world.address_of(page);
        self.world.directory.find(Key::pack(Address { block: at.block.checked_sub(1)?, ..at })?)
    }

    fn object_pages(&self, object: ObjectId) -> u64 {
        self.world.io.object_pages(object)
    }
}
