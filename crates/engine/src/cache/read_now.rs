//! Reads that are answered at once or not at all, for threads that must not wait: those that take requests from a door.
//!
//! What such a read finds it has from the uppermost tier of the policy, and the policy is told of it as of any other hit, in
//! the same order. The locks are those of any other read, but nobody waits for them: a page that somebody else is at work
//! on is left to a thread that may wait, and for the core's lock, which is held for a decision, a few turns of a loop are
//! spent at most. Where a read finds nothing, nothing has happened: no count and no decision.

use super::core::{Core, Engine};
use super::keeper::Source;
use super::pages::Held;
use super::{BlockCache, Tag};
use entresol_core::{Op, Tier};
use entresol_policy::Policy;
use std::ops::Range;

/// Pages of one such read. A longer one keeps the others waiting longer than a thread takes to wake up.
const PAGES_MAX: usize = 16;

impl BlockCache {
    /// As [`read_tagged`](BlockCache::read_tagged), if the pages are in the policy's uppermost tier and in memory and
    /// nobody is at work on them; whether it did. If not, nothing has happened but that `bytes` may hold anything.
    pub fn read_now_tagged(&self, offset: u64, bytes: &mut [u8], tag: Tag) -> bool {
        if bytes.is_empty() || self.check_range(offset, bytes.len() as u64).is_err() {
            return false;
        }
        // Before room is made for them.
        if bytes.len() as u64 > PAGES_MAX as u64 * self.page_bytes {
            return false;
        }
        self.with_whole_pages(offset, bytes, |pages, bytes| self.read_pages_now(pages, bytes, tag))
    }

    fn read_pages_now(&self, pages: Range<u64>, bytes: &mut [u8], tag: Tag) -> bool {
        if pages.end - pages.start > PAGES_MAX as u64 {
            return false;
        }
        let mut held: [Option<Held>; PAGES_MAX] = [const { None }; PAGES_MAX];
        for (page, held) in pages.clone().zip(&mut held) {
            *held = self.locks.pages.page_now(page);
            if held.is_none() {
                return false;
            }
        }
        let Some(mut turn) = self.locks.ready_now() else { return false };
        let found = turn.core().read_now(pages.start, bytes, tag);
        if found {
            for page in pages.clone() {
                let first = page == pages.start;
                let tag = Tag { sequential: tag.sequential || !first, ..tag };
                self.tape.note(page, Op::Read, tag, first);
            }
        }
        found
    }
}

impl<P: Policy> Engine<P> {
    /// Reads pages from `first` on, if the policy's uppermost tier has them all in memory, and decides on each.
    pub(super) fn read_uppermost(&mut self, first: u64, bytes: &mut [u8], tag: Tag) -> bool {
        // What was recovered is shown to the policy behind requests, which may fill a batch of the log.
        if Core::is_off(self) || self.unseen.is_some() {
            return false;
        }
        // All are found before the first is decided on: a decision may move the others.
        let page_bytes = self.world.page_bytes();
        let mut pages = (first..).zip(bytes.chunks_exact_mut(page_bytes));
        if !pages.all(|(page, bytes)| self.copy_uppermost(page, bytes)) {
            return false;
        }
        for (at, bytes) in bytes.chunks_exact(page_bytes).enumerate() {
            let tag = Tag { sequential: tag.sequential || at > 0, ..tag };
            Core::read(self, first + at as u64, bytes, tag);
        }
        true
    }

    /// Copies a page that the policy has in its uppermost tier and memory has the bytes of. From there a hit moves nothing,
    /// but for what a policy moves at any request.
    fn copy_uppermost(&mut self, page: u64, bytes: &mut [u8]) -> bool {
        let Some(handle) = self.world.directory.find(page) else { return false };
        let there = self.policy.state(handle).tiers.contains(Tier::TOP);
        there && matches!(self.world.locate(page, Some(handle), bytes), Ok(Source::Memory))
    }
}
