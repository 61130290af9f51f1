//! Reads of pages that the policy's uppermost tier holds: without the core's lock and without the lock of the page. The
//! policy is told later.
//!
//! 1. The table of hits ([`HitTable`](entresol_store::HitTable)) says where the newest version lies. A read that needed the
//!    core's lock entered it. The index removes it with the version, so the read returns what the page had when the table
//!    was asked. A write of the page that has been answered is in the index. Pages in memory have a table of their own
//!    ([`FrameHits`](super::frame_hits::FrameHits)).
//! 2. The device is read, and the CRC compared. A copy that disagrees is read again in the ordinary way: the block may
//!    have been written again meanwhile, or the copy is bad.
//! 3. The hit is noted, and the policy hears of it before its next decision ([`hits`](super::hits)).
//!
//! A policy with a tier of memory moves a page up at a hit on the device: then only pages in memory are read so.

use super::hits::{Hits, Noted};
use super::{BlockCache, Tag};
use entresol_core::Op;
use entresol_disk::Disk;
use entresol_store::{Hit, page_crc};
use std::io;
use std::ops::Range;

/// Most pages of a read. A longer one is read in the ordinary way.
const PAGES_MAX: usize = 16;
/// Sets of the tables of hits that are cleared in one hold of the core's lock.
const SETS_PER_HOLD: usize = 256;

impl BlockCache {
    /// Reads pages that can all be read without the core's lock. True if it did; otherwise nothing has happened, but
    /// `bytes` may hold anything. `read` reads the cache device.
    pub(super) fn read_hits(
        &self,
        pages: Range<u64>,
        bytes: &mut [u8],
        (tag, first): (Tag, bool),
        read: impl Fn(&dyn Disk, u64, &mut [u8]) -> bool,
    ) -> bool {
        let (hits, disk) = (&self.locks.hits, &*self.disks[0]);
        let page_bytes = self.page_bytes as usize;
        if pages.end - pages.start > PAGES_MAX as u64 {
            return false;
        }
        let frame_of = |(page, bytes): (u64, &mut [u8])| hits.frames.read(page, bytes);
        if frame_of((pages.start, &mut bytes[..page_bytes])) {
            let mut others = (pages.start + 1..).zip(bytes.chunks_exact_mut(page_bytes).skip(1));
            return others.all(frame_of) && self.note_hits(pages, tag, first);
        }
        let mut found = [Hit { at: 0, crc: 0 }; PAGES_MAX];
        for (page, found) in pages.clone().zip(&mut found) {
            let Some(hit) = hits.table.find(page) else { return false };
            *found = hit;
        }
        let found = &found[..bytes.len() / page_bytes];
        // Neighbours on the device are read together.
        let mut rest = &mut bytes[..];
        for run in found.chunk_by(|one, next| one.at + self.page_bytes == next.at) {
            let (these, others) = rest.split_at_mut(run.len() * page_bytes);
            if !read(disk, run[0].at, these) {
                return false;
            }
            rest = others;
        }
        if found.iter().zip(bytes.chunks_exact(page_bytes)).any(|(hit, bytes)| page_crc(bytes) != hit.crc) {
            return false;
        }
        self.note_hits(pages, tag, first)
    }

    /// Notes hits of a request. True.
    fn note_hits(&self, pages: Range<u64>, tag: Tag, first: bool) -> bool {
        for page in pages.clone() {
            let tag = Tag { sequential: tag.sequential || page > pages.start, ..tag };
            self.recorder.note(page, Op::Read, tag, first && page == pages.start);
            if self.locks.hits.note(Noted { page, tag }) {
                self.locks.hand_over();
            }
        }
        true
    }

    /// Empties the closed tables of hits, whose pages another policy holds.
    pub(super) fn clear_hits(&self) -> io::Result<()> {
        let Hits { table, frames, .. } = &self.locks.hits;
        let mut next = (Some(0), Some(0));
        while next != (None, None) {
            let _guard = self.locks.guard()?;
            next.0 = next.0.and_then(|from| table.clear(from, SETS_PER_HOLD));
            next.1 = next.1.and_then(|from| frames.clear(from, SETS_PER_HOLD));
        }
        Ok(())
    }
}
