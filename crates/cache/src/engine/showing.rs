//! Pages that the policy is shown without a request for them: recovered ones, and those of the policy before it.

use super::Engine;
use crate::core::Core;
use crate::counts::Counts;
use crate::decision::{Decision, request};
use crate::executor::Left;
use crate::plan::PageBytes;
use crate::search::LOOKED_AT;
use crate::{FRAMES_PER_HOLD, Tag};
use entresol_core::{Op, Outcome, Page};
use entresol_policy::Policy;
use entresol_store::Step;
use entresol_store::mutant::{self, Mutant};

/// Recovered pages shown to the policy behind each request: few enough that the next request does not notice. A large
/// cache has its policy back after about as many requests as it serves in a second.
const SHOWN_PER_REQUEST: usize = 64;

impl<P: Policy> Engine<P> {
    /// Begins to show the policy the recovered pages: a few behind each request, oldest first, and each at the latest
    /// when it is requested. Until then the newest `pages` of them count as cached.
    pub fn replay(&mut self, pages: usize) {
        let space = self.executor.write_back.store.geometry().capacity_pages() as usize;
        self.executor.write_back.store.index_mut().hold_newest(pages.min(space));
        self.unseen = Some(0);
    }

    /// Shows the policy some of the pages that it has not seen.
    pub(super) fn show_some(&mut self) {
        let Some(mut cursor) = self.unseen else { return };
        let mut some = [0; SHOWN_PER_REQUEST];
        let mut found = 0;
        // The pages found are looked up as well.
        let mut looks = LOOKED_AT as usize - 2 * SHOWN_PER_REQUEST;
        // Pages that reclaim appends again before they were seen come later.
        self.unseen = loop {
            if found == some.len() {
                break Some(cursor);
            }
            let rear = self.executor.write_back.store.rear();
            match self.executor.write_back.store.index_mut().step(cursor, &mut looks, rear) {
                Step::Page { page, next, is_first } => {
                    if is_first {
                        self.take_back(page);
                    }
                    (some[found], cursor) = (page, next);
                    self.executor.directory.prefetch(page);
                    found += 1;
                }
                Step::Later(after) => break Some(after),
                Step::Done => {
                    self.others_to_pass = None;
                    break None;
                }
            }
        };
        some[..found].iter().for_each(|&page| self.show(page));
        if self.unseen.is_none() {
            self.learned = None;
        }
    }

    /// After a change of policy: counts a copy that the previous policy did not hold as cached again. There must be
    /// space for it, and nothing newer on its way below.
    pub(super) fn take_back(&mut self, page: u64) {
        if self.executor.write_back.store.index().get(page).is_none_or(|entry| entry.resident || entry.lost) {
            return;
        }
        match self.others_to_pass {
            Some(0) if !self.executor.write_back.is_overtaken(page) && !self.is_held(page) => {
                self.executor.write_back.store.index_mut().update(page, |entry| entry.resident = true);
            }
            Some(others) => self.others_to_pass = Some(others.saturating_sub(1)),
            None => {}
        }
    }

    /// Shows the policy some of the pages that it has not seen. True if more may be left.
    pub(super) fn show_next(&mut self) -> bool {
        if Core::is_off(self) {
            return false;
        }
        if self.unseen.is_some() {
            self.show_some();
            return true;
        }
        self.show_left()
    }

    /// Shows the policy a few of the previous policy's frames. True if more are left.
    pub(super) fn show_left(&mut self) -> bool {
        for _ in 0..FRAMES_PER_HOLD {
            let Some((page, frame)) = self.left.as_mut().and_then(Left::pop) else {
                self.left = None;
                return false;
            };
            // The page was requested since, and the policy has decided where it is.
            if self.is_cached(page) && !mutant::is(Mutant::LeftShownTwice) {
                continue;
            }
            let entry = self.executor.write_back.store.index().get(page).filter(|entry| !entry.lost);
            if entry.is_some_and(|entry| frame.stored == Some(entry.address)) {
                self.executor.write_back.store.index_mut().update(page, |entry| entry.resident = true);
                self.show(page);
            } else if let Some(bytes) = frame.bytes.filter(|_| !self.is_cached(page)) {
                self.access_unasked(page, &bytes, Tag { sequential: false, now_us: self.executor.now_us });
            }
        }
        true
    }

    /// Drops the previous policy's frame of a page that is written, discarded or invalidated.
    pub(super) fn void_left(&mut self, page: u64) {
        if let Some(left) = self.left.as_mut().filter(|_| !mutant::is(Mutant::LeftNotVoided)) {
            left.void(page);
        }
    }

    /// Asks the policy about a page without a request; `bytes` are those of its newest version. Of the movements, only
    /// write-backs and failed admissions are counted.
    pub(super) fn access_unasked(&mut self, page: u64, bytes: &[u8], tag: Tag) -> Option<Outcome> {
        let policy = &self.policy;
        let handle = self.executor.directory.handle(page, |handle| !policy.state(handle).known)?;
        let before = self.executor.counts;
        let mut decision = Decision::on_request(&mut self.executor, page, Op::Read, PageBytes::new(bytes), tag.now_us);
        let outcome = self.policy.access(request(handle, Op::Read, tag.sequential), &mut decision);
        decision.settle_log(None, self.policy.ranked());
        // Errors concern other pages, which stay queued or are listed.
        drop(decision);
        let Counts { write_backs, write_back_ios, admissions_failed, .. } = self.executor.counts;
        self.executor.counts = Counts { write_backs, write_back_ios, admissions_failed, ..before };
        Some(outcome)
    }

    /// After a request: shows the policy more unless a hard limit is reached.
    pub(super) fn go_on_showing(&mut self) {
        if (self.unseen.is_some() || self.left.is_some()) && self.executor.write_back.is_ready() {
            self.show_next();
        }
    }

    /// Shows the policy a page if it was recovered and not seen yet.
    pub(super) fn show(&mut self, page: u64) {
        let Some(entry) = self.executor.write_back.store.index().get(page).filter(|entry| !entry.lost) else { return };
        if self.is_held(page) {
            return;
        }
        if !entry.resident {
            // The cache has no space for the page: it leaves as it would if it had been shown.
            if self.executor.write_back.is_owed(page, entry) {
                self.executor.write_back.write_back_stored(page, entry);
            }
            return;
        }
        let policy = &self.policy;
        let handle = self.executor.directory.handle(page, |handle| !policy.state(handle).known);
        if let Some(handle) = handle {
            let op = if entry.dirty { Op::Write } else { Op::Read };
            // Errors concern other pages, which stay queued or are listed.
            let mut decision = Decision::on_recovered(&mut self.executor, page, op);
            self.policy.show(request(handle, op, false), &mut decision);
            decision.settle_log(None, self.policy.ranked());
            drop(decision);
            self.recall(page, handle);
        }
        if !handle.is_some_and(|handle| self.policy.state(handle).tiers.contains(self.executor.store_tier())) {
            self.executor.write_back.release(page);
        }
    }

    /// Gives the policy the history of a page that it was shown, if one was kept.
    fn recall(&mut self, page: u64, handle: Page) {
        let history = self.learned.as_ref().and_then(|state| state.history(page));
        if let Some((history, learned)) = history.zip(self.policy.learned()) {
            learned.recall(handle, history);
        }
    }

    /// Before a request for a page: shows the policy that the page is held.
    pub(super) fn meet(&mut self, page: u64) {
        if self.unseen.is_some() && self.executor.write_back.store.index().resident(page).is_some() {
            self.show(page);
        }
    }
}
