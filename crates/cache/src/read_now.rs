//! Reads that succeed at once or not at all, for threads that must not wait: those that take a front-end's requests.
//!
//! The bytes of such a read come from the policy's uppermost tier: from memory, or from a cache device whose pages the
//! kernel has in memory. The policy is told of the read as of any other hit, in the same order. For a read of the cache
//! device no lock is taken (`read_hits.rs`). Otherwise the locks are those of any other read, but no read waits for them. A
//! page that another thread has locked is left to a thread that may wait. The core's lock, which is held for a decision,
//! is tried a few times in a loop. A read that fails leaves no trace: no count and no decision.

use super::locks::CoreGuard;
use super::maintenance::StoreAccess;
use super::pages::LockedPages;
use super::plan::{PageBytes, RequestBytes};
use super::{BlockCache, Tag};
use entresol_core::Op;
use std::ops::Range;

/// Pages of one such read. A longer one delays the others by more than the time in which a thread wakes up.
const PAGES_MAX: usize = 16;
/// Bytes of a read that goes on from one row of [`PAGES_MAX`] pages to the next.
const BYTES_MAX: usize = 256 << 10;

impl BlockCache {
    /// As [`read_tagged`](BlockCache::read_tagged), if the pages are in the policy's uppermost tier and in memory, or in the
    /// kernel's memory for the cache device, and no other thread has locked them. True if they were read. Otherwise nothing has happened, but `bytes` may hold
    /// anything.
    pub fn read_now_tagged(&self, offset: u64, bytes: &mut [u8], tag: Tag) -> bool {
        if bytes.is_empty() || self.check_range(offset, bytes.len() as u64).is_err() {
            return false;
        }
        // Checked before memory is taken for the pages.
        if bytes.len() as u64 > PAGES_MAX as u64 * self.page_bytes {
            return false;
        }
        self.with_whole_pages(offset, bytes, |pages, bytes| self.read_pages_now(pages, bytes, tag))
    }

    fn read_pages_now(&self, pages: Range<u64>, bytes: &mut [u8], tag: Tag) -> bool {
        if self.read_hits(pages.clone(), bytes, (tag, true), |disk, at, bytes| disk.read_now(at, bytes)) {
            return true;
        }
        let mut held = [const { None }; PAGES_MAX];
        self.hold_now(&pages, &mut held).is_some_and(|mut guard| self.read_above(&mut guard, pages, bytes, tag, true))
    }

    /// As [`read_tagged`](BlockCache::read_tagged) for the first bytes, as many as can be had at once. Returns their
    /// number.
    ///
    /// Besides the pages of [`read_now_tagged`](BlockCache::read_now_tagged), these are pages that the cache does not
    /// hold and the backing store has in memory ([`Disk::read_now`](entresol_disk::Disk::read_now)). The policy decides
    /// on each as on any other miss, and may admit it. A [long sequential stream](BlockCache::set_sequential_cutoff)
    /// also gets pages from there that the cache holds clean, at most as many as have bypassed it. On these the policy
    /// decides as on a hit.
    ///
    /// For the later bytes nothing has happened. Reading them is a request of its own to a recording.
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

    /// Reads pages, if all can be had at once from above or all from below. Returns the number of those decided on.
    fn read_some_pages_now(&self, pages: Range<u64>, bytes: &mut [u8], tag: Tag, first: bool) -> u64 {
        if self.read_hits(pages.clone(), bytes, (tag, first), |disk, at, bytes| disk.read_now(at, bytes)) {
            return pages.end - pages.start;
        }
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
        drop(guard);
        if !self.disks[1].read_now(at, bytes) {
            if held_above != 0
                && let Some(mut guard) = self.locks.ready_now()
            {
                guard.core().skip_gaps();
            }
            return 0;
        }
        let contents: Vec<PageBytes> = bytes.chunks_exact(self.page_bytes as usize).map(PageBytes::checked).collect();
        let Some(mut guard) = self.locks.ready_now() else { return 0 };
        let mut done = 0;
        let first_page = pages.start;
        for (page, contents) in pages.zip(contents) {
            // Where a decision needs maintenance first, its page and later ones are left to a thread that may wait.
            if done > 0 && !guard.is_ready() {
                break;
            }
            let tag = Tag { sequential: tag.sequential || done > 0, ..tag };
            self.recorder.note(page, Op::Read, tag, first && done == 0);
            guard.core().read(page, contents, tag);
            done += 1;
        }
        let plan = guard.core().take_plan();
        let counts = &mut guard.write_back().counts;
        counts.below_reads += done;
        counts.below_gap_reads += u64::from((held_above & ((1 << done) - 1)).count_ones());
        drop(guard);
        let _requested_later =
            plan.carry_out(RequestBytes { first: first_page, bytes, page_bytes: self.page_bytes as usize });
        done
    }

    /// Takes the locks of pages and the core's, if all are free.
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
            guard.only_hits();
            for page in pages.clone() {
                let tag = Tag { sequential: tag.sequential || page > pages.start, ..tag };
                self.recorder.note(page, Op::Read, tag, first && page == pages.start);
                guard.core().enter_hit(page);
            }
            // Hits of the uppermost tier move nothing, or pages that a policy moves at any request.
            let request = RequestBytes { first: pages.start, bytes, page_bytes: self.page_bytes as usize };
            let _requested_later = guard.core().take_plan().carry_out_now(request);
        }
        found
    }
}
