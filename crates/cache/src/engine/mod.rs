//! One policy and its executor: serves pages, one request at a time.

mod at_once;
mod showing;

use crate::core::Core;
use crate::counts::Counts;
use crate::decision::{Decision, request};
use crate::durability::{Source, WriteBack, WriteBackCounts};
use crate::executor::{Executor, Left};
use crate::frame_hits::FrameHits;
use crate::learned::{LearnedState, Tables};
use crate::maintenance::{self, Refused};
use crate::objects::Objects;
use crate::plan::{PageBytes, Plan, RequestBytes};
use crate::search::Search;
use crate::{CacheStats, Mode, Tag};
use entresol_core::{Hint, ObjectId, Op, Outcome, Page, Tier};
use entresol_policy::extension::Pooled;
use entresol_policy::{Choice, Policy, Streams, Wear};
use entresol_store::mutant::{self, Mutant};
use entresol_store::{Clock, Entry};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

pub(super) struct Engine<P> {
    pub(super) policy: Pooled<P>,
    pub(super) executor: Executor,
    /// Writes are sent below at once, in write-back mode too.
    through: bool,
    /// Position in the index from which on versions may be of recovered pages that the policy has not been shown.
    pub(super) unseen: Option<u64>,
    /// Frames of the previous policy that this policy has not been shown.
    left: Option<Left>,
    /// Copies that the previous policy did not hold and for which there is no space, of those still to come, oldest
    /// first. None when the policy was not changed.
    others_to_pass: Option<usize>,
    /// Learned state of an earlier policy, until this one has been shown all recovered pages.
    learned: Option<Arc<LearnedState>>,
    /// The cache device has failed and is out of use.
    off: bool,
}

impl<P: Policy> Engine<P> {
    pub fn new(policy: Pooled<P>, executor: Executor) -> Self {
        Engine {
            policy,
            executor,
            through: false,
            unseen: None,
            left: None,
            others_to_pass: None,
            learned: None,
            off: false,
        }
    }

    /// An engine that succeeds another; its policy has been shown none of the pages.
    pub fn succeeding(policy: Pooled<P>, executor: Executor, left: Left, others_to_pass: usize) -> Self {
        let others_to_pass = Some(others_to_pass);
        Engine { unseen: Some(0), left: Some(left), others_to_pass, ..Engine::new(policy, executor) }
    }

    /// Runs one page request through the policy, and has `after` add to the decision. None when the directory has no
    /// handle for the page.
    fn access(
        &mut self,
        page: u64,
        op: Op,
        contents: PageBytes,
        tag: Tag,
        after: impl FnOnce(&Pooled<P>, Page, &mut Decision),
    ) -> Option<io::Result<()>> {
        self.meet(page);
        let policy = &self.policy;
        let handle = self.executor.directory.handle(page, |handle| !policy.state(handle).known);
        let Some(handle) = handle else {
            self.executor.counts.directory_full += 1;
            return None;
        };
        let absorbed = op.is_write() && self.executor.mode == Mode::WriteBack && self.policy.state(handle).dirty;
        let mut decision = Decision::on_request(&mut self.executor, page, op, contents, tag.now_us);
        let outcome = self.policy.access(request(handle, op, tag.sequential), &mut decision);
        decision.count(outcome, absorbed);
        after(&self.policy, handle, &mut decision);
        decision.settle_log(Some(op.is_write()), self.policy.ranked());
        Some(decision.end())
    }

    /// Has the log below the policy hear of a request that bypassed the policy, at its time.
    fn settle_log(&mut self, writes: bool, now_us: u64) {
        if self.executor.policy_log.is_some() {
            self.executor.now_us = now_us;
            Decision::on_hint(&mut self.executor).settle_log(Some(writes), self.policy.ranked());
        }
    }

    /// Notes a request in its stream. True if the request is part of a long stream and bypasses the policy. Pages that
    /// the policy holds, and pages of objects that it holds whole, do not bypass it.
    fn passes(&mut self, page: u64) -> bool {
        let Some(streams) = &mut self.executor.streams else { return false };
        let at = self.executor.objects.address(page);
        streams.passes(at) && self.policy.placed(at.object) == 0 && !self.is_cached(page)
    }

    /// True if recovered pages, or those of a former policy, are shown to the policy behind requests.
    fn shows(&self) -> bool {
        self.unseen.is_some() || self.left.is_some()
    }

    fn is_cached(&mut self, page: u64) -> bool {
        self.meet(page);
        self.is_held(page)
    }

    fn is_held(&self, page: u64) -> bool {
        self.executor.directory.find(page).is_some_and(|handle| !self.policy.state(handle).tiers.is_empty())
    }

    fn write_page(&mut self, page: u64, op: Op, contents: PageBytes, tag: Tag) -> io::Result<()> {
        let past = |engine: &mut Self| engine.executor.write_back.write_past(page, contents.bytes);
        let passes = self.passes(page);
        if self.executor.mode == Mode::WriteAround && !self.is_cached(page) {
            self.settle_log(true, tag.now_us);
            self.executor.count_around(page, op);
            return past(self);
        }
        if passes {
            self.executor.count_passed(page, op);
            self.settle_log(true, tag.now_us);
            return past(self);
        }
        let through = self.through || self.executor.mode != Mode::WriteBack;
        let decided = self.access(page, op, contents, tag, |_, handle, decision| {
            if through && !decision.has_failed() && !decision.went_past() {
                let sent = decision.write_through(handle);
                decision.attempt(sent);
            }
        });
        decided.unwrap_or_else(|| past(self))
    }

    /// Ends an operation. A failure of the cache device is an error only where it cost data or an acknowledgement.
    fn after(&mut self, result: io::Result<()>, again: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        if self.off || !self.executor.write_back.is_broken() {
            return result;
        }
        self.give_up_cache()?;
        if result.is_err() { again(self) } else { Ok(()) }
    }
}

impl<P: Policy> Core for Engine<P> {
    fn write_back(&mut self) -> &mut WriteBack {
        &mut self.executor.write_back
    }

    fn start(&mut self, pages: usize) {
        self.replay(pages);
    }

    fn learn(&mut self, state: LearnedState) -> bool {
        let goes_on = state.policy() == P::INFO.name
            && self.policy.learned().is_some_and(|learned| learned.go_on_from(state.tables()));
        self.learned = goes_on.then(|| Arc::new(state));
        goes_on
    }

    fn learned(&mut self) -> Option<Tables> {
        let tables = self.policy.learned().filter(|_| !self.off)?.tables();
        let cache = self.executor.write_back.store.identity().uuid;
        Some(Tables { cache, policy: P::INFO.name, tables, unseen: self.learned.clone() })
    }

    fn histories(&mut self, policy: &str, handles: Range<usize>) -> Option<Vec<(u64, u32)>> {
        let directory = &self.executor.directory;
        let handles = handles.start..handles.end.min(directory.handles());
        let learned = self.policy.learned().filter(|_| P::INFO.name == policy && !handles.is_empty())?;
        let mut found = Vec::with_capacity(handles.len());
        for handle in handles.map(|handle| Page(handle as u32)) {
            entresol_store::holds::looked();
            found.extend(learned.history(handle).map(|history| (directory.page(handle), history)));
        }
        Some(found)
    }

    fn objects(&mut self) -> &mut Objects {
        &mut self.executor.objects
    }

    fn hint(&mut self, hint: Hint) {
        if !self.off {
            let mut decision = Decision::on_hint(&mut self.executor);
            self.policy.hint(hint, &mut decision);
            decision.settle_log(None, self.policy.ranked());
            drop(decision);
            self.executor.plan.settle_copies();
        }
    }

    fn placed(&self, object: ObjectId) -> u64 {
        if self.off { 0 } else { self.policy.placed(object) }
    }

    fn go_on(&mut self) -> bool {
        if self.off {
            return false;
        }
        // Pages that could not be written below stay queued or are listed.
        let mut decision = Decision::on_hint(&mut self.executor);
        let more = self.policy.go_on(&mut decision);
        decision.settle_log(None, self.policy.ranked());
        drop(decision);
        self.executor.plan.settle_copies();
        more
    }

    fn take_plan(&mut self) -> Plan {
        std::mem::take(&mut self.executor.plan)
    }

    fn has_steps(&self) -> bool {
        self.executor.plan.has_steps()
    }

    fn holds(&mut self, page: u64) -> bool {
        self.is_cached(page)
    }

    fn prefetch_object(&mut self, page: u64, bytes: &[u8], tag: Tag) -> bool {
        let object = self.executor.objects.address(page).object;
        if self.placed(object) == 0 || self.is_cached(page) {
            return false;
        }
        let Some(outcome) = self.access_unasked(page, bytes, tag) else { return false };
        let brought = outcome == Outcome::ADMITTED;
        self.executor.counts.placed += u64::from(brought);
        // Recovered pages not yet shown count as cached: beside as many prefetched pages there is no space for them.
        self.go_on_showing();
        self.executor.plan.settle_copies();
        brought
    }

    fn is_off(&self) -> bool {
        self.off
    }

    fn mode(&self) -> Mode {
        self.executor.mode
    }

    fn follow(&mut self, streams: Option<Box<Streams>>) {
        self.executor.streams = streams;
    }

    fn locate(&mut self, page: u64, bytes: &mut [u8]) -> io::Result<Source> {
        if self.off {
            return self.executor.write_back.locate_below(page, bytes);
        }
        let handle = self.executor.directory.find(page);
        self.executor.locate(page, handle, bytes)
    }

    fn copy_is_bad(&mut self, page: u64, entry: Entry, error: io::Error) -> io::Result<()> {
        self.executor.copy_is_bad(page, entry, error)
    }

    fn read(&mut self, page: u64, contents: PageBytes, tag: Tag) {
        if self.off {
            return;
        }
        if self.passes(page) {
            self.executor.count_passed(page, Op::Read);
            self.settle_log(false, tag.now_us);
        } else {
            let store_tier = self.executor.store_tier();
            // The read has succeeded. Errors concern other pages, which stay queued or are listed.
            let _decided = self.access(page, Op::Read, contents, tag, |policy, handle, decision| {
                decision.fill(handle, policy.state(handle).tiers.contains(store_tier));
            });
        }
        self.go_on_showing();
    }

    fn read_stored(&mut self, page: u64, tag: Tag) -> bool {
        // A policy with a tier above moves a page up at a hit. Behind a request, pages are shown that need time.
        let is_simple = !self.off && self.executor.store_tier() == Tier::TOP && !self.shows();
        if !is_simple || !self.is_held(page) {
            return false;
        }
        let passes = self.passes(page);
        debug_assert!(!passes, "the policy holds the page");
        let decided = self.access(page, Op::Read, PageBytes::UNKNOWN, tag, |_, _, _| {});
        decided.is_some()
    }

    fn share_frames(&mut self, hits: Arc<FrameHits>) {
        self.executor.share_frames(hits);
    }

    fn enter_hit(&mut self, page: u64) {
        if self.off || self.shows() {
            return;
        }
        if self.executor.store_tier() == Tier::TOP {
            self.executor.write_back.store.enter_hit(page);
        } else if let Some(handle) = self.executor.directory.find(page)
            && self.policy.state(handle).tiers.contains(Tier::TOP)
        {
            self.executor.enter_frame(handle);
        }
    }

    fn hear_of_hit(&mut self, page: u64, tag: Tag) -> bool {
        if self.off || self.shows() {
            return false;
        }
        if self.executor.store_tier() == Tier::TOP {
            self.executor.write_back.store.count_reads(1);
            return self.read_stored(page, tag);
        }
        let handle = self.executor.directory.find(page);
        let handle = handle.filter(|&handle| self.policy.state(handle).tiers.contains(Tier::TOP));
        let Some(frame) = handle.and_then(|handle| self.executor.frame(handle)) else { return false };
        let (Some(bytes), crc) = (frame.bytes.clone(), frame.crc) else { return false };
        Core::read(self, page, PageBytes::with(&bytes, crc), tag);
        // As of any read of memory alone: pages that are to be loaded are requested later.
        let _requested_later = self.take_plan().carry_out_now(RequestBytes::one(page, &bytes));
        true
    }

    fn fill(&mut self, page: u64, contents: PageBytes) {
        let handle = self.executor.directory.find(page).filter(|_| !self.off);
        let Some(handle) = handle else { return };
        let in_store = self.policy.state(handle).tiers.contains(self.executor.store_tier());
        let now_us = self.executor.now_us;
        let mut decision = Decision::on_request(&mut self.executor, page, Op::Read, contents, now_us);
        decision.fill(handle, in_store);
        let _cannot_fail = decision.end();
    }

    fn awaits_bytes(&self, page: u64) -> bool {
        let handle = self.executor.directory.find(page).filter(|_| !self.off);
        handle.is_some_and(|handle| match self.executor.frame(handle) {
            Some(frame) => frame.bytes.is_none(),
            None => {
                let in_store = self.policy.state(handle).tiers.contains(self.executor.store_tier());
                in_store && self.executor.write_back.store.index().resident(page).is_none()
            }
        })
    }

    fn read_now(&mut self, first: u64, bytes: &mut [u8], tag: Tag) -> bool {
        self.read_uppermost(first, bytes, tag)
    }

    fn find_below(&mut self, first: u64, bytes: &mut [u8]) -> Option<u64> {
        Engine::find_below(self, first, bytes)
    }

    fn skip_gaps(&mut self) {
        self.executor.gaps.leave();
    }

    fn write(&mut self, page: u64, contents: PageBytes, whole: bool, tag: Tag) -> io::Result<()> {
        if self.off {
            self.executor.write_back.write_without_store(page, contents.bytes);
            return Ok(());
        }
        self.void_left(page);
        let written = self.write_page(page, if whole { Op::Write } else { Op::Update }, contents, tag);
        self.go_on_showing();
        written
    }

    fn unstored(&self, from: u32, most: usize) -> Vec<Page> {
        self.executor.unstored(from, most)
    }

    fn store_frames(&mut self, handles: &[Page]) -> io::Result<usize> {
        if self.off { Ok(handles.len()) } else { self.executor.store_frames(handles) }
    }

    fn queue_owed(&mut self, pages: &[u64]) -> io::Result<()> {
        pages.iter().try_for_each(|&page| self.executor.queue_owed(page))
    }

    fn hand_down(&mut self, pages: &[u64]) -> io::Result<()> {
        pages.iter().try_for_each(|&page| self.executor.hand_down(page))
    }

    fn set_dirty_age(&mut self, bound: Option<Duration>, clock: &Clock) {
        self.executor.write_back.set_dirty_age(bound, clock);
        self.executor.age_frames();
    }

    fn set_wear(&mut self, wear: Wear) -> bool {
        let now_us = self.executor.now_us;
        self.executor.policy_log.as_mut().map(|log| log.set_wear(wear, now_us)).is_some()
    }

    fn give_up_cache(&mut self) -> io::Result<()> {
        self.off = true;
        self.executor.close_frames();
        self.unseen = None;
        self.left = None;
        let late = mutant::is(Mutant::FramesAfterLog);
        if late {
            self.executor.write_back.abandon_store();
        }
        // Memory first: the store's copies of those pages are older, and no loss where they cannot be read.
        self.executor.write_frames_below_without_store();
        if !late {
            self.executor.write_back.abandon_store();
        }
        maintenance::flush_without_store(&mut self.executor.write_back)
    }

    fn should_search(&self, search: &Search) -> bool {
        search.is_shorter(self.left.as_ref(), &self.executor)
    }

    fn search(&self, search: &mut Search, found: &mut Vec<u64>) -> bool {
        search.go_on(self.left.as_ref(), &self.executor, found)
    }

    fn begin_to_void(&mut self, pages: &[u64]) -> Vec<u64> {
        pages.iter().for_each(|&page| self.void_left(page));
        pages.iter().copied().filter(|&page| self.executor.holds(page)).collect()
    }

    fn discard_held(&mut self, page: u64) -> io::Result<()> {
        self.executor.invalidate(page);
        if self.off {
            self.executor.write_back.discard_without_store(page);
            return Ok(());
        }
        let result = self.executor.write_back.discard_past(page);
        self.after(result, |engine| {
            engine.executor.write_back.discard_without_store(page);
            Ok(())
        })
    }

    fn make_void(&mut self, pages: &[u64]) -> Vec<u64> {
        let held = self.begin_to_void(pages);
        for &page in &held {
            if self.off {
                self.executor.write_back.forget_without_store(page);
            } else {
                self.executor.write_back.make_void(page);
            }
            self.executor.invalidate(page);
        }
        held
    }

    fn declare_void(&mut self, page: u64) -> io::Result<()> {
        if self.off {
            self.executor.write_back.forget_without_store(page);
            return Ok(());
        }
        let result = self.executor.write_back.declare_void(page);
        self.after(result, |engine| {
            engine.executor.write_back.forget_without_store(page);
            Ok(())
        })
    }

    fn set_mode(&mut self, mode: Mode) {
        self.executor.mode = mode;
    }

    fn send_through(&mut self, through: bool) {
        self.through = through;
    }

    fn close(&mut self) -> io::Result<()> {
        if self.off {
            return Ok(());
        }
        let result = maintenance::close_store(&mut self.executor.write_back);
        self.after(result, |_| Ok(()))
    }

    fn show_more(&mut self) -> bool {
        let more = self.show_next();
        self.executor.plan.settle_copies();
        more
    }

    fn leave(self: Box<Self>) -> (Executor, Box<dyn Send>) {
        (self.executor, Box::new((self.policy, self.left)))
    }

    fn stats(&self) -> CacheStats {
        let counts: Counts = self.executor.counts;
        let write_back: WriteBackCounts = self.executor.write_back.counts;
        CacheStats {
            counts,
            write_back,
            store: self.executor.write_back.store.counts(),
            page_bytes: self.executor.write_back.page_bytes as u32,
            dirty_pages: self.executor.write_back.store.index().dirty_len() as u64,
            dirty_age: self.executor.write_back.dirty_age(),
            log: self.executor.policy_log.as_ref().map(|log| (log.capacity_pages() as u64, log.worn())),
            index_bytes: self.executor.write_back.store.index().memory_bytes() as u64,
            directory_bytes: self.executor.directory.memory_bytes() as u64,
            ages_bytes: self.executor.write_back.store.ages().map_or(0, |ages| ages.memory_bytes() as u64),
            hits_bytes: 0,
            hits_dropped: 0,
            mode: self.executor.mode,
            failed: self.off.then(|| self.executor.write_back.failure.clone().unwrap_or_default()),
        }
    }

    fn gauges(&self) -> Vec<(&'static str, f64)> {
        let mut gauges = Vec::new();
        self.policy.gauges(&mut |name, value| gauges.push((name, value)));
        if let Some(log) = &self.executor.policy_log {
            log.gauges(&mut |name, value| gauges.push((name, value)));
        }
        gauges
    }

    fn choice(&self) -> Option<Choice> {
        self.policy.choice()
    }

    fn verdict(&self, object: ObjectId) -> Option<&'static str> {
        self.policy.verdict(object)
    }

    fn lost_pages(&self) -> Vec<u64> {
        self.executor.write_back.lost_pages()
    }

    fn retry_refused(&mut self) -> io::Result<Refused> {
        if self.off { Ok(Refused::default()) } else { self.executor.write_back.retry_refused() }
    }

    fn drain_past_refused(&mut self) -> io::Result<Refused> {
        if self.off { Ok(Refused::default()) } else { self.executor.write_back.drain_past_refused() }
    }

    fn held_pages(&self) -> Vec<(u64, bool)> {
        self.executor.write_back.store.index().iter().map(|(page, entry)| (page, entry.dirty)).collect()
    }

    #[cfg(test)]
    fn unknown_residents(&self) -> Vec<u64> {
        if self.off || self.unseen.is_some() {
            return Vec::new();
        }
        let is_known = |page: u64| {
            let handle = self.executor.directory.find(page);
            handle.is_some_and(|handle| self.policy.state(handle).tiers.contains(self.executor.store_tier()))
        };
        let residents =
            self.executor.write_back.store.index().iter().filter(|(_, entry)| entry.resident && !entry.lost);
        residents.map(|(page, _)| page).filter(|&page| !is_known(page)).collect()
    }

    fn held_of(&self, pages: &[u64]) -> Vec<(u64, bool)> {
        let index = self.executor.write_back.store.index();
        let is_dirty = |page: u64| index.get(page).is_some_and(|entry| entry.dirty);
        pages.iter().filter(|&&page| self.executor.holds(page)).map(|&page| (page, is_dirty(page))).collect()
    }

    #[cfg(test)]
    fn held_in(&self, pages: &std::ops::Range<u64>) -> Vec<u64> {
        self.executor.held_in(pages)
    }
}
