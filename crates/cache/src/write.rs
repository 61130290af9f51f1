//! The write path: a page's lock, the policy's decision, and the copy that its plan leaves to be done. Whole pages in a
//! row are decided on in one hold of the core's lock, as long as no maintenance is due in between.

use super::locks::CoreGuard;
use super::plan::{PageBytes, Plan, RequestBytes};
use super::{BlockCache, Mode, Tag};
use entresol_core::Op;
use std::io;

/// Most pages that one hold of the core's lock decides on.
pub(super) const DECIDED_PER_HOLD: usize = 256;

impl BlockCache {
    /// Writes, with the facts that the tag states. After a crash a write of several pages counts as several writes.
    ///
    /// # Errors
    /// As [`Block::write`](crate::Block::write); pages before the failed one are written.
    pub fn write_tagged(&self, offset: u64, bytes: &[u8], tag: Tag) -> io::Result<()> {
        self.check_range(offset, bytes.len() as u64)?;
        let page_bytes = self.page_bytes as usize;
        // Of a page that is written in part.
        let mut page = Vec::new();
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let within = (at % self.page_bytes) as usize;
            let run = (bytes.len() - done) / page_bytes;
            if within == 0 && run > 1 {
                let len = run.min(DECIDED_PER_HOLD) * page_bytes;
                let tag = Tag { sequential: tag.sequential || done > 0, ..tag };
                self.write_run(at / self.page_bytes, &bytes[done..done + len], tag, done == 0)?;
                done += len;
                continue;
            }
            let len = (page_bytes - within).min(bytes.len() - done);
            let whole = within == 0 && (len == page_bytes || at + len as u64 == self.size_bytes);
            let first = done == 0;
            let tag = Tag { sequential: tag.sequential || !first, ..tag };
            let number = at / self.page_bytes;
            let written = &bytes[done..done + len];
            if len < page_bytes {
                // The last page of the device may be shorter than the others, and ends with zeros.
                page.clear();
                page.extend_from_slice(written);
                page.resize(page_bytes, 0);
            }
            let mut contents = PageBytes::new(if len < page_bytes { &page } else { written });
            if whole {
                contents = PageBytes::checked(contents.bytes);
            }
            let _page = self.locks.pages.page(number);
            let mut guard = self.locks.ready_to_write(number)?;
            check_writable(guard.core().mode())?;
            if !whole {
                drop(guard);
                guard = self.newest(number, &mut page)?;
                page[within..within + len].copy_from_slice(written);
                contents = PageBytes::new(&page);
            }
            self.recorder.note(number, if whole { Op::Write } else { Op::Update }, tag, first);
            self.write_page(guard, number, contents, whole, tag)?;
            done += len;
        }
        Ok(())
    }

    /// Writes whole pages from `first` on. `begins` when they are the first pages of a call.
    fn write_run(&self, first: u64, bytes: &[u8], tag: Tag, begins: bool) -> io::Result<()> {
        let page_bytes = self.page_bytes as usize;
        let contents: Vec<PageBytes> = bytes.chunks_exact(page_bytes).map(PageBytes::checked).collect();
        let _pages = self.locks.pages.range(&(first..first + contents.len() as u64));
        let request = RequestBytes { first, bytes, page_bytes };
        let tag_of = |at: usize| Tag { sequential: tag.sequential || at > 0, ..tag };
        let mut at = 0;
        while at < contents.len() {
            let began = at;
            let mut guard = self.locks.ready_to_write(first + at as u64)?;
            check_writable(guard.core().mode())?;
            let mut decided = Ok(());
            while at < contents.len() && decided.is_ok() && (at == began || guard.may_write_another(first + at as u64))
            {
                self.recorder.note(first + at as u64, Op::Write, tag_of(at), begins && at == 0);
                decided = guard.core().write(first + at as u64, contents[at], true, tag_of(at));
                self.unflushed.note();
                at += 1;
            }
            let plan = guard.core().take_plan();
            if guard.must_mend() {
                // What is in memory of the store is read when its device is given up.
                plan.carry_out_now(request);
                guard.mend()?;
                // A failure of the cache device is an error only where it cost data or an acknowledgement.
                decided = decided
                    .or_else(|_| guard.core().write(first + at as u64 - 1, contents[at - 1], true, tag_of(at - 1)));
                drop(guard);
            } else {
                drop(guard);
                self.load(plan.carry_out(request));
            }
            decided?;
        }
        Ok(())
    }

    /// Has the policy decide on a write of a page whose lock is held, and carries the plan out.
    fn write_page(&self, guard: CoreGuard, page: u64, contents: PageBytes, whole: bool, tag: Tag) -> io::Result<()> {
        let plan = self.decide_on_write(guard, page, contents, whole, tag)?;
        self.load(plan.carry_out(RequestBytes::one(page, contents.bytes)));
        Ok(())
    }

    /// Has the policy decide on a write of a page whose lock is held. The core's lock is given back.
    pub(super) fn decide_on_write(
        &self,
        mut guard: CoreGuard,
        page: u64,
        contents: PageBytes,
        whole: bool,
        tag: Tag,
    ) -> io::Result<Plan> {
        let mut decided = guard.core().write(page, contents, whole, tag);
        let mut plan = guard.core().take_plan();
        if guard.must_mend() {
            // What is in memory of the store is read when its device is given up.
            std::mem::take(&mut plan).carry_out_now(RequestBytes::one(page, contents.bytes));
            // A failure of the cache device is an error only where it cost data or an acknowledgement.
            guard.mend()?;
            decided = decided.or_else(|_| guard.core().write(page, contents, whole, tag));
        } else if decided.is_err() {
            // Movements before the failed one.
            std::mem::take(&mut plan).carry_out_now(RequestBytes::one(page, contents.bytes));
        }
        self.unflushed.note();
        decided.map(|()| plan)
    }
}

/// Refuses writes in read-only mode.
pub(super) fn check_writable(mode: Mode) -> io::Result<()> {
    if mode == Mode::ReadOnly {
        return Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "the cache is in read-only mode"));
    }
    Ok(())
}
