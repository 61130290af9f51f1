//! The read-ahead detector for one sequential stream, which any other request disturbs.
//!
//! Paper 002 (figures 3e, 4e, 5a): sequential reads of 4 KiB take 10 us one at a time. At queue depth 2 to 16 they are
//! as slow as random ones, and a background of 50 MB/s of random reads suffices to spoil them. So a request counts as
//! sequential only if it begins where the last one ended and was alone in the drive; any other resets the count.

use crate::io::{Io, IoKind};
use std::ops::Range;

/// Detects one sequential stream of reads.
#[derive(Clone, Debug)]
pub struct ReadAhead {
    /// Pages kept read ahead.
    window: u32,
    /// Sequential requests before read-ahead starts.
    after: u32,
    expected: u64,
    streak: u32,
    /// The first page not yet asked for.
    fetched: u32,
}

impl ReadAhead {
    /// Reads `window` pages ahead after `after` sequential requests; a window of 0 turns it off.
    pub fn new(window: u32, after: u32) -> Self {
        ReadAhead { window, after, expected: u64::MAX, streak: 0, fetched: 0 }
    }

    /// Observes a request for `pages`, alone in the drive or not. Returns the pages to read ahead, on a device of
    /// `end` pages.
    pub fn observe(&mut self, io: &Io, pages: &Range<u32>, alone: bool, end: u32) -> Range<u32> {
        let sequential = io.kind == IoKind::Read && io.offset == self.expected && alone;
        self.expected = if io.kind == IoKind::Read { io.end() } else { u64::MAX };
        self.streak = if sequential { self.streak.saturating_add(1) } else { 0 };
        if self.window == 0 || self.streak < self.after || !sequential {
            self.fetched = 0;
            return 0..0;
        }
        // Half a window is requested at a time: the other half covers the time of a page.
        let from = self.fetched.max(pages.end);
        let until = pages.end.saturating_add(self.window).min(end);
        if until.saturating_sub(from) < self.window.div_ceil(2) && until < end {
            return 0..0;
        }
        self.fetched = until.max(from);
        from..self.fetched
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(ahead: &mut ReadAhead, page: u32, alone: bool) -> Range<u32> {
        ahead.observe(&Io::read(u64::from(page) * 4096, 4096), &(page..page + 1), alone, 100)
    }

    #[test]
    fn every_page_of_a_stream_is_asked_for_once() {
        let mut ahead = ReadAhead::new(8, 2);
        assert_eq!(read(&mut ahead, 0, true), 0..0);
        assert_eq!(read(&mut ahead, 1, true), 0..0);
        let mut next = 3;
        for page in 2..100 {
            let range = read(&mut ahead, page, true);
            if !range.is_empty() {
                assert_eq!(range.start, next);
                next = range.end;
            }
            assert!(next > page && next <= page + 9, "page {page}, read up to {next}");
        }
        assert_eq!(next, 100);
    }

    #[test]
    fn company_a_jump_or_a_write_resets_the_detector() {
        for disturbance in 0..3 {
            let mut ahead = ReadAhead::new(8, 2);
            assert_eq!((0..3).map(|page| read(&mut ahead, page, true)).last(), Some(3..11));
            match disturbance {
                0 => assert!(read(&mut ahead, 3, false).is_empty()),
                1 => assert!(read(&mut ahead, 50, true).is_empty()),
                _ => assert!(ahead.observe(&Io::write(3 * 4096, 4096), &(3..4), true, 100).is_empty()),
            }
            let start = if disturbance == 1 { 51 } else { 4 };
            let again = (start..start + 4).map(|page| read(&mut ahead, page, true)).position(|range| !range.is_empty());
            assert_eq!(again, Some(if disturbance == 2 { 2 } else { 1 }), "disturbance {disturbance}");
        }
    }
}
