//! Reads that are answered at once or not at all, for threads that must not wait: those that take requests from a door.
//!
//! Bytes that such a read finds come from the uppermost tier of the policy. The policy is told of the read as of any
//! other hit, in the same order. The locks are those of any other read, but nobody waits for them. A page that somebody
//! else is at work on is left to a thread that may wait. For the core's lock, which is held for a decision, a few turns
//! of a loop are spent at most. Where a read finds nothing, nothing has happened: no count and no decision.

use super::core::{Core, Engine};
use super::locks::CoreGuard;
use super::maintenance::StoreAccess;
use super::pages::LockedPages;
use super::write_back::Source;
use super::{BlockCache, Tag};
use entresol_core::{Op, Tier};
use entresol_policy::Policy;
use std::ops::Range;

/// Pages of one such read. A longer one keeps the others waiting longer than a thread takes to wake up.
const PAGES_MAX: usize = 16;
/// Bytes of one that may go on from one row of so many pages to the next.
const BYTES_MAX: usize = 256 << 10;

impl BlockCache {
    /// As [`read_tagged`](BlockCache::read_tagged), if the pages are in the policy's uppermost tier and in memory and
    /// nobody is at work on them. True if it did. If not, nothing has happened but that `bytes` may hold anything.
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
        let mut held = [const { None }; PAGES_MAX];
        self.hold_now(&pages, &mut held).is_some_and(|mut guard| self.read_above(&mut guard, pages, bytes, tag, true))
    }

    /// As [`read_tagged`](BlockCache::read_tagged) for as many of the first bytes as can be had at once; their number.
    /// Besides what [`read_now_tagged`](BlockCache::read_now_tagged) gives these are pages that the cache does not hold and
    /// the backing store has in memory ([`Disk::read_now`](crate::disk::Disk::read_now)): on each a decision is made as on
    /// any other miss, which may copy it. In a [long sequential stream](BlockCache::set_sequential_cutoff) they are also
    /// pages that the cache holds clean, as many as have passed it: the decision is that on a hit.
    ///
    /// Of the bytes after those nothing has happened: they are to be read from there on, which is a request of its own to a
    /// tape.
    pub fn read_some_now_tagged(&self, offset: u64, bytes: &mut [u8], tag: Tag) -> usize {
        if self.check_range(offset, bytes.len() as u64).is_err() {
            return 0;
        }
        let mut done = 0;
        while done < bytes.len().min(BYTES_MAX) {
            let at = offset + done as u64;
            let end = ((at / self.page_bytes + PAGES_MAX as u64) * self.page_bytes).min(offset + bytes.len() as u64);
            let row = &mut bytes[done..(end - offset) as usize];
            let tag = Tag { sequential: tag.sequential || done > 0, ..tag };
            let read = |pages, bytes: &mut [u8]| self.read_some_pages_now(pages, bytes, tag, done == 0);
            let pages = self.with_whole_pages(at, row, read);
            let read = (pages * self.page_bytes).saturating_sub(at % self.page_bytes).min(row.len() as u64) as usize;
            done += read;
            if read < row.len() {
                break;
            }
        }
        done
    }

    /// Reads pages, if all can be had at once from above or all from below; on how many of the first it has decided.
    fn read_some_pages_now(&self, pages: Range<u64>, bytes: &mut [u8], tag: Tag, first: bool) -> u64 {
        let mut held = [const { None }; PAGES_MAX];
        let Some(mut guard) = self.hold_now(&pages, &mut held) else { return 0 };
        if self.read_above(&mut guard, pages.clone(), bytes, tag, first) {
            return pages.end - pages.start;
        }
        let at = pages.start * self.page_bytes;
        if pages.end * self.page_bytes > self.size_bytes {
            return 0;
        }
        let Some(held_above) = guard.core().find_below(pages.start, bytes) else { return 0 };
        let (_, backing) = guard.stores();
        drop(guard);
        if !backing.read_now(at, bytes) {
            if held_above != 0
                && let Some(mut guard) = self.locks.ready_now()
            {
                guard.core().skip_gaps();
            }
            return 0;
        }
        let Some(mut guard) = self.locks.ready_now() else { return 0 };
        let mut done = 0;
        for (page, bytes) in pages.zip(bytes.chunks_exact(self.page_bytes as usize)) {
            // What a decision leaves to be done first is left to who may wait, with the pages after it.
            if done > 0 && !guard.is_ready() {
                break;
            }
            let tag = Tag { sequential: tag.sequential || done > 0, ..tag };
            self.recorder.note(page, Op::Read, tag, first && done == 0);
            guard.core().read(page, bytes, tag);
            done += 1;
        }
        let counts = &mut guard.write_back().counts;
        counts.below_reads += done;
        counts.below_gap_reads += u64::from((held_above & ((1 << done) - 1)).count_ones());
        done
    }

    /// Takes the locks of pages and the core's, if nobody is at work on any of them.
    fn hold_now<'a>(
        &'a self,
        pages: &Range<u64>,
        held: &mut [Option<LockedPages<'a>>; PAGES_MAX],
    ) -> Option<CoreGuard<'a>> {
        if pages.end - pages.start > PAGES_MAX as u64 {
            return None;
        }
        for (page, held) in pages.clone().zip(held) {
            *held = Some(self.locks.pages.page_now(page)?);
        }
        self.locks.ready_now()
    }

    /// Reads pages, if the policy has them all in its uppermost tier and memory has them.
    fn read_above(&self, guard: &mut CoreGuard, pages: Range<u64>, bytes: &mut [u8], tag: Tag, first: bool) -> bool {
        let found = guard.core().read_now(pages.start, bytes, tag);
        if found {
            for page in pages.clone() {
                let tag = Tag { sequential: tag.sequential || page > pages.start, ..tag };
                self.recorder.note(page, Op::Read, tag, first && page == pages.start);
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
        let page_bytes = self.executor.page_bytes();
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
        let Some(handle) = self.executor.directory.find(page) else { return false };
        let there = self.policy.state(handle).tiers.contains(Tier::TOP);
        there && matches!(self.executor.locate(page, Some(handle), bytes), Ok(Source::Memory))
    }
}
