//! One policy with its world: serves pages, one request at a time.

use super::counts::Counts;
use super::keeper::{Keeper, KeeperCounts, Source};
use super::objects::Objects;
use super::upkeep;
use super::world::{World, request};
use super::{CacheConfig, CacheError, CacheStats, Mode, Refused, Tag, change};
use crate::mutant::{self, Mutant};
use crate::store::{Clock, Entry};
use entresol_core::{Hint, ObjectId, Op, Outcome, Page};
use entresol_policy::{Choice, Config, Policy, Streams};
use std::io;
use std::ops::Range;
use std::time::Duration;

/// A core of any policy: one virtual call per step. None of them waits for I/O but those that say so.
pub(super) trait Core: Send {
    /// The log and the way below.
    fn keeper(&mut self) -> &mut Keeper;
    /// Begins to serve what was recovered, up to so many pages of it; all that is dirty goes below first if it is to. Does I/O.
    fn start(&mut self, pages: usize, drain: bool) -> io::Result<()>;
    /// Which pages are whose, and the account of each object.
    fn objects(&mut self) -> &mut Objects;
    /// Tells the policy of a query.
    fn hint(&mut self, hint: Hint);
    /// Pages that an object has where the policy holds it whole; else 0.
    fn placed(&self, object: ObjectId) -> u64;
    /// Has the policy do a little of what a hint left to be done; whether there is more.
    fn go_on(&mut self) -> bool;
    /// Does the policy hold the page?
    fn holds(&mut self, page: u64) -> bool;
    /// A page of an object that the policy holds whole is brought, whose newest version these are the bytes of; whether it is
    /// held now and was not before. This is no request.
    fn bring(&mut self, page: u64, bytes: &[u8], tag: Tag) -> bool;
    /// Is the cache device out of use?
    fn is_off(&self) -> bool;
    /// What becomes of writes.
    fn mode(&self) -> Mode;
    /// What long sequential streams pass by from now on, if they are to.
    fn follow(&mut self, streams: Option<Box<Streams>>);
    /// Finds the newest version of a page; its bytes, if memory has them.
    fn locate(&mut self, page: u64, bytes: &mut [u8]) -> io::Result<Source>;
    /// The copy of a page that the log holds cannot be read; the error if that is a loss. Else the page is found elsewhere.
    fn copy_is_bad(&mut self, page: u64, entry: Entry, error: io::Error) -> io::Result<()>;
    /// Decides on a read of a page, whose newest version these are the bytes of.
    fn read(&mut self, page: u64, bytes: &[u8], tag: Tag);
    /// Reads whole pages from one on and decides on each, if all are in memory where a hit moves nothing; whether it did.
    fn read_now(&mut self, first: u64, bytes: &mut [u8], tag: Tag) -> bool;
    /// Whether whole pages from one on can be had from below in one piece; which of them are held here as well, as bits.
    /// `bytes` may then hold anything.
    fn find_below(&mut self, first: u64, bytes: &mut [u8]) -> Option<u64>;
    /// The backing store did not have in memory what was held here as well.
    fn leave_gaps(&mut self);
    /// Writes a page. `whole` when none of the bytes were read for it.
    fn write(&mut self, page: u64, bytes: &[u8], whole: bool, tag: Tag) -> io::Result<()>;
    /// What a flush has to hand over to the log, by [`log_frames`](Core::log_frames), a few at a time.
    fn unlogged(&self) -> Vec<Page>;
    /// Hands frames over to the log.
    fn log_frames(&mut self, handles: &[Page]) -> io::Result<()>;
    /// Sends below what memory alone has of pages, by the queue.
    fn hand_down(&mut self, pages: &[u64]) -> io::Result<()>;
    /// Sets for how long pages may differ from the backing store.
    fn set_dirty_age(&mut self, bound: Option<Duration>, clock: &Clock);
    /// After a failure of the cache device: everything that can be saved goes below, and the cache is out of use. Does
    /// I/O.
    fn give_up_cache(&mut self) -> io::Result<()>;
    /// Discards whole pages. Does I/O.
    fn discard(&mut self, pages: Range<u64>) -> io::Result<()>;
    /// Whole pages were changed below: what is held of them is void. Does I/O.
    fn forget(&mut self, pages: Range<u64>) -> io::Result<()>;
    /// Changes the mode. Does I/O.
    fn set_mode(&mut self, mode: Mode) -> io::Result<()>;
    /// Writes every dirty page below. Does I/O.
    fn drain(&mut self) -> io::Result<()>;
    /// Notes that all is in order, after a flush. Does I/O.
    fn close(&mut self) -> io::Result<()>;
    /// Makes ready for [`change`](Core::change).
    fn settle_for_change(&mut self) -> io::Result<()>;
    /// Another policy over the same stores, after [`settle_for_change`](Core::settle_for_change); itself again with the
    /// reason if that cannot be.
    fn change(self: Box<Self>, to: &CacheConfig, built_for: &Config) -> (Box<dyn Core>, Result<(), CacheError>);
    /// Counts and state.
    fn stats(&self) -> CacheStats;
    /// What the policy tells of itself.
    fn gauges(&self) -> Vec<(&'static str, f64)>;
    /// What a policy that has one of several decide knows of them.
    fn choice(&self) -> Option<Choice>;
    /// How the policy has found an object to be used.
    fn verdict(&self, object: ObjectId) -> Option<&'static str>;
    /// Pages whose only copy was lost.
    fn lost_pages(&self) -> Vec<u64>;
    /// Dirty pages that the backing store refuses. Does I/O.
    fn retry_refused(&mut self) -> io::Result<Refused>;
    /// Writes every dirty page below that the backing store takes; those that it refuses. Does I/O.
    fn drain_past_refused(&mut self) -> io::Result<Refused>;
    /// Pages that the log holds, in no order, and whether each is dirty.
    fn held_pages(&self) -> Vec<(u64, bool)>;
    /// Pages of a range of which anything is held, ascending, and whether the log has each as dirty.
    fn held_in(&self, pages: &Range<u64>) -> Vec<(u64, bool)>;
}

/// Recovered pages that the policy is shown behind each request: few enough that the next one does not notice, and enough
/// that a large cache has its policy back after as many requests as it serves in a second.
const SHOWN_PER_REQUEST: usize = 64;

pub(super) struct Engine<P> {
    pub(super) policy: P,
    pub(super) world: World,
    mode: Mode,
    /// Versions in the log from this place on may be of pages that the policy has not been shown since they were recovered.
    pub(super) unseen: Option<u64>,
    /// The cache device has failed and is out of use.
    off: bool,
}

impl<P: Policy> Engine<P> {
    pub fn new(policy: P, world: World, mode: Mode) -> Self {
        Engine { policy, world, mode, unseen: None, off: false }
    }

    /// Policy, world and mode.
    pub fn into_parts(self) -> (P, World, Mode) {
        (self.policy, self.world, self.mode)
    }

    /// Makes durable where it goes what is on its way, and puts into the log what only frames have.
    pub fn hand_over(&mut self) -> io::Result<()> {
        let settled = mutant::is(Mutant::NotSettledForChange);
        let result = self.world.hand_over_frames();
        let result = result.and_then(|()| if settled { Ok(()) } else { upkeep::flush(&mut self.world.keeper, true) });
        self.after(result, |_| Ok(()))
    }

    /// Has the policy shown what was recovered, so that it holds it again: a few pages behind each request, oldest first,
    /// and each at the latest when it is asked for. Until then it counts as cached, if it is among the newest `pages`.
    pub fn replay(&mut self, pages: usize) {
        let room = self.world.keeper.log.geometry().capacity_pages() as usize;
        self.world.keeper.log.index_mut().hold_newest(pages.min(room));
        self.unseen = Some(0);
    }

    /// Shows the policy all that is held after a change. What fails then fails again for the next request, and the rest is
    /// shown behind that.
    pub fn show_all(&mut self) {
        while self.unseen.is_some() && upkeep::make_ready(&mut self.world.keeper).is_ok() {
            self.show_some();
        }
    }

    /// Shows the policy some of what it has not seen.
    fn show_some(&mut self) {
        let Some(mut cursor) = self.unseen else { return };
        let mut some = [0; SHOWN_PER_REQUEST];
        let mut found = 0;
        for page in &mut some {
            let Some((next, after)) = self.world.keeper.log.index_mut().next(cursor) else { break };
            (*page, cursor) = (next, after);
            self.world.directory.prefetch(next);
            found += 1;
        }
        // What reclaim appends again before it was seen comes later.
        self.unseen = (found == some.len()).then_some(cursor);
        some[..found].iter().for_each(|&page| self.show(page));
    }

    /// After a request: the policy is shown more if there is room for what it writes back.
    fn go_on_showing(&mut self) {
        if self.unseen.is_some() && self.world.keeper.is_ready() {
            self.show_some();
        }
    }

    /// Shows the policy a page if it was recovered and not seen yet.
    fn show(&mut self, page: u64) {
        let Some(entry) = self.world.keeper.log.index().get(page).filter(|entry| !entry.lost) else { return };
        if self.is_held(page) {
            return;
        }
        if !entry.resident {
            // There is no room for it; it leaves the cache as it would if it had been shown.
            if self.world.keeper.is_owed(page, entry) {
                self.world.keeper.write_back_logged(page, entry);
            }
            return;
        }
        let policy = &self.policy;
        let handle = self.world.directory.handle(page, |handle| !policy.state(handle).known);
        if let Some(handle) = handle {
            let op = if entry.dirty { Op::Write } else { Op::Read };
            self.world.begin_replay(page, op);
            self.policy.access(request(handle, op, false), &mut self.world);
            // Trouble with other pages: they stay queued or are listed.
            let _trouble = self.world.end();
            self.world.end_replay();
        }
        if !handle.is_some_and(|handle| self.policy.state(handle).tiers.contains(self.world.log_tier())) {
            self.world.keeper.release(page);
        }
    }

    /// Runs one page request through the policy; none when the directory has no handle for its page.
    fn access(&mut self, page: u64, op: Op, bytes: &[u8], tag: Tag) -> Option<(Page, io::Result<()>)> {
        self.meet(page);
        let policy = &self.policy;
        let handle = self.world.directory.handle(page, |handle| !policy.state(handle).known);
        let Some(handle) = handle else {
            self.world.counts.directory_full += 1;
            return None;
        };
        self.world.begin(page, op, bytes, tag.now_us);
        let absorbed = op.is_write() && self.mode == Mode::WriteBack && self.policy.state(handle).dirty;
        let outcome = self.policy.access(request(handle, op, tag.sequential), &mut self.world);
        self.world.count(page, op, outcome, absorbed);
        Some((handle, self.world.end()))
    }

    /// Before a request for a page: the policy is to know that it is held.
    fn meet(&mut self, page: u64) {
        if self.unseen.is_some() && self.world.keeper.log.index().resident(page).is_some() {
            self.show(page);
        }
    }

    /// Takes notice of a request in its stream; whether it is one of a long stream that the policy need not hear of. What the
    /// policy holds it hears of.
    fn passes(&mut self, page: u64) -> bool {
        let Some(streams) = &mut self.world.streams else { return false };
        let at = self.world.objects.address(page);
        streams.passes(at) && self.policy.placed(at.object) == 0 && !self.is_cached(page)
    }

    fn is_cached(&mut self, page: u64) -> bool {
        self.meet(page);
        self.is_held(page)
    }

    fn is_held(&self, page: u64) -> bool {
        self.world.directory.find(page).is_some_and(|handle| !self.policy.state(handle).tiers.is_empty())
    }

    fn write_page(&mut self, page: u64, op: Op, bytes: &[u8], tag: Tag) -> io::Result<()> {
        let passes = self.passes(page);
        if self.mode == Mode::WriteAround && !self.is_cached(page) {
            self.world.counts.around += 1;
            self.world.counts.writes += 1;
            self.world.objects.went_around(page);
            return self.world.keeper.write_past(page, bytes);
        }
        if passes {
            self.world.count_passed(page, op);
            return self.world.keeper.write_past(page, bytes);
        }
        let Some((handle, result)) = self.access(page, op, bytes, tag) else {
            return self.world.keeper.write_past(page, bytes);
        };
        result?;
        if self.mode != Mode::WriteBack && !self.world.went_past() {
            self.world.write_through(handle)?;
        }
        Ok(())
    }

    /// Discards a page of which something is held: it goes through the queue, so that the order of things is kept.
    fn discard_held(&mut self, page: u64) -> io::Result<()> {
        self.make_ready()?;
        self.world.hollow_out(page);
        if self.off {
            self.world.keeper.discard_without_log(page);
            return Ok(());
        }
        let result = self.world.keeper.discard_past(page);
        self.after(result, |engine| {
            engine.world.keeper.discard_without_log(page);
            Ok(())
        })
    }

    /// Before an operation that has the cache to itself: see [`upkeep::make_ready`].
    fn make_ready(&mut self) -> io::Result<()> {
        if self.off {
            return self.world.keeper.make_ready_without_log();
        }
        let result = upkeep::make_ready(&mut self.world.keeper);
        self.after(result, |_| Ok(()))
    }

    /// Ends an operation. A failure of the cache device turns into an error only where it cost data or an
    /// acknowledgement.
    fn after(&mut self, result: io::Result<()>, again: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        if self.off || !self.world.keeper.is_broken() {
            return result;
        }
        self.give_up_cache()?;
        if result.is_err() { again(self) } else { Ok(()) }
    }
}

impl<P: Policy> Core for Engine<P> {
    fn keeper(&mut self) -> &mut Keeper {
        &mut self.world.keeper
    }

    fn start(&mut self, pages: usize, drain: bool) -> io::Result<()> {
        self.replay(pages);
        if !drain {
            return Ok(());
        }
        // What a crash left dirty must not depend on the cache device any longer. A page whose only copy is bad is listed, and
        // the others go below without it.
        loop {
            let lost = self.world.keeper.lost_pages().len();
            match Core::drain(self) {
                Err(_) if self.world.keeper.lost_pages().len() > lost => {}
                drained => return drained,
            }
        }
    }

    fn objects(&mut self) -> &mut Objects {
        &mut self.world.objects
    }

    fn hint(&mut self, hint: Hint) {
        if !self.off {
            self.policy.hint(hint, &mut self.world);
        }
    }

    fn placed(&self, object: ObjectId) -> u64 {
        if self.off { 0 } else { self.policy.placed(object) }
    }

    fn go_on(&mut self) -> bool {
        if self.off {
            return false;
        }
        let more = self.policy.go_on(&mut self.world);
        // What could not be written below stays queued or is listed.
        let _trouble = self.world.end();
        more
    }

    fn holds(&mut self, page: u64) -> bool {
        self.is_cached(page)
    }

    fn bring(&mut self, page: u64, bytes: &[u8], tag: Tag) -> bool {
        let object = self.world.objects.address(page).object;
        if self.placed(object) == 0 || self.is_cached(page) {
            return false;
        }
        let policy = &self.policy;
        let Some(handle) = self.world.directory.handle(page, |handle| !policy.state(handle).known) else {
            return false;
        };
        let before = self.world.counts;
        self.world.begin(page, Op::Read, bytes, tag.now_us);
        let brought = self.policy.access(request(handle, Op::Read, tag.sequential), &mut self.world);
        let _trouble = self.world.end();
        let brought = brought == Outcome::ADMITTED;
        // Of what that moved only what went below is counted with what requests move.
        let Counts { write_backs, write_back_ios, admissions_failed, .. } = self.world.counts;
        let placed = before.placed + u64::from(brought);
        self.world.counts = Counts { write_backs, write_back_ios, admissions_failed, placed, ..before };
        // What was recovered and not seen yet counts as cached: beside as much that is brought there is no room for it.
        self.go_on_showing();
        brought
    }

    fn is_off(&self) -> bool {
        self.off
    }

    fn mode(&self) -> Mode {
        self.mode
    }

    fn follow(&mut self, streams: Option<Box<Streams>>) {
        self.world.streams = streams;
    }

    fn locate(&mut self, page: u64, bytes: &mut [u8]) -> io::Result<Source> {
        if self.off {
            return self.world.keeper.locate_below(page, bytes);
        }
        let handle = self.world.directory.find(page);
        self.world.locate(page, handle, bytes)
    }

    fn copy_is_bad(&mut self, page: u64, entry: Entry, error: io::Error) -> io::Result<()> {
        self.world.copy_is_bad(page, entry, error)
    }

    fn read(&mut self, page: u64, bytes: &[u8], tag: Tag) {
        if self.off {
            return;
        }
        if self.passes(page) {
            self.world.count_passed(page, Op::Read);
        } else if let Some((handle, _trouble)) = self.access(page, Op::Read, bytes, tag) {
            // The reader has what it wants and is not told of trouble with other pages: they stay queued or are listed.
            let in_log = self.policy.state(handle).tiers.contains(self.world.log_tier());
            self.world.fill(handle, in_log);
        }
        self.go_on_showing();
    }

    fn read_now(&mut self, first: u64, bytes: &mut [u8], tag: Tag) -> bool {
        self.read_uppermost(first, bytes, tag)
    }

    fn find_below(&mut self, first: u64, bytes: &mut [u8]) -> Option<u64> {
        Engine::find_below(self, first, bytes)
    }

    fn leave_gaps(&mut self) {
        self.world.gaps.leave();
    }

    fn write(&mut self, page: u64, bytes: &[u8], whole: bool, tag: Tag) -> io::Result<()> {
        if self.off {
            self.world.keeper.write_without_log(page, bytes);
            return Ok(());
        }
        let result = self.write_page(page, if whole { Op::Write } else { Op::Update }, bytes, tag);
        self.go_on_showing();
        result
    }

    fn unlogged(&self) -> Vec<Page> {
        self.world.unlogged()
    }

    fn log_frames(&mut self, handles: &[Page]) -> io::Result<()> {
        if self.off { Ok(()) } else { self.world.log_frames(handles) }
    }

    fn hand_down(&mut self, pages: &[u64]) -> io::Result<()> {
        pages.iter().try_for_each(|&page| self.world.hand_down(page))
    }

    fn set_dirty_age(&mut self, bound: Option<Duration>, clock: &Clock) {
        self.world.keeper.set_dirty_age(bound, clock);
        self.world.age_frames();
    }

    fn give_up_cache(&mut self) -> io::Result<()> {
        self.off = true;
        self.unseen = None;
        let late = mutant::is(Mutant::FramesAfterLog);
        if late {
            self.world.keeper.abandon_log();
        }
        // First what memory has: what the log has of those pages is older, and no loss where it cannot be read.
        self.world.write_frames_below(false)?;
        if !late {
            self.world.keeper.abandon_log();
        }
        upkeep::flush_without_log(&mut self.world.keeper)
    }

    fn discard(&mut self, pages: Range<u64>) -> io::Result<()> {
        let mut free_from = pages.start;
        for held in self.world.held_in(&pages).into_iter().chain([pages.end]) {
            if free_from < held {
                self.make_ready()?;
                self.world.keeper.discard_below(free_from..held)?;
            }
            free_from = held + 1;
            if held < pages.end {
                self.discard_held(held)?;
            }
        }
        Ok(())
    }

    fn forget(&mut self, pages: Range<u64>) -> io::Result<()> {
        let held = self.world.held_in(&pages);
        held.iter().for_each(|&page| self.world.hollow_out(page));
        if self.off {
            self.world.keeper.forget_without_log(&held);
            return Ok(());
        }
        let result = self.world.keeper.forget(pages, &held);
        self.after(result, |engine| {
            engine.world.keeper.forget_without_log(&held);
            Ok(())
        })
    }

    fn set_mode(&mut self, mode: Mode) -> io::Result<()> {
        if self.mode == Mode::WriteBack && mode != Mode::WriteBack {
            self.drain()?;
        }
        self.mode = mode;
        Ok(())
    }

    fn drain(&mut self) -> io::Result<()> {
        if self.off {
            return upkeep::flush_without_log(&mut self.world.keeper);
        }
        let result = self.world.write_frames_below(true).and_then(|()| self.world.keeper.drain());
        self.after(result, |_| Ok(()))
    }

    fn close(&mut self) -> io::Result<()> {
        if self.off {
            return Ok(());
        }
        let result = self.world.keeper.close();
        self.after(result, |_| Ok(()))
    }

    fn settle_for_change(&mut self) -> io::Result<()> {
        Engine::settle_for_change(self)
    }

    fn change(self: Box<Self>, to: &CacheConfig, built_for: &Config) -> (Box<dyn Core>, Result<(), CacheError>) {
        change::rebuild(*self, to, built_for)
    }

    fn stats(&self) -> CacheStats {
        let counts: Counts = self.world.counts;
        let keeper: KeeperCounts = self.world.keeper.counts;
        CacheStats {
            counts,
            keeper,
            log: self.world.keeper.log.counts(),
            dirty_pages: self.world.keeper.log.index().dirty_len() as u64,
            dirty_age: self.world.keeper.dirty_age(),
            index_bytes: self.world.keeper.log.index().memory_bytes() as u64,
            directory_bytes: self.world.directory.memory_bytes() as u64,
            ages_bytes: self.world.keeper.log.ages().map_or(0, |ages| ages.memory_bytes() as u64),
            mode: self.mode,
            failed: self.off.then(|| self.world.keeper.failure.clone().unwrap_or_default()),
        }
    }

    fn gauges(&self) -> Vec<(&'static str, f64)> {
        let mut gauges = Vec::new();
        self.policy.gauges(&mut |name, value| gauges.push((name, value)));
        gauges
    }

    fn choice(&self) -> Option<Choice> {
        self.policy.choice()
    }

    fn verdict(&self, object: ObjectId) -> Option<&'static str> {
        self.policy.verdict(object)
    }

    fn lost_pages(&self) -> Vec<u64> {
        self.world.keeper.lost_pages()
    }

    fn retry_refused(&mut self) -> io::Result<Refused> {
        if self.off { Ok(Refused::default()) } else { self.world.keeper.retry_refused() }
    }

    fn drain_past_refused(&mut self) -> io::Result<Refused> {
        if self.off { Ok(Refused::default()) } else { self.world.keeper.drain_past_refused() }
    }

    fn held_pages(&self) -> Vec<(u64, bool)> {
        self.world.keeper.log.index().iter().map(|(page, entry)| (page, entry.dirty)).collect()
    }

    fn held_in(&self, pages: &Range<u64>) -> Vec<(u64, bool)> {
        let index = self.world.keeper.log.index();
        let is_dirty = |page: u64| index.get(page).is_some_and(|entry| entry.dirty);
        self.world.held_in(pages).into_iter().map(|page| (page, is_dirty(page))).collect()
    }
}
