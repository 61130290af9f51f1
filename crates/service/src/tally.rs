//! Account of the dirty pages of a drain. Pages found and pages written are counted separately, each where it
//! happens, so that a difference shows.

use super::backing_store::Below;
use super::open_cache::{Dropped, OpenCache};
use super::words::counted;
use entresol_files::NotWritten;
use std::fmt;
use std::io;

/// Counts at one moment, to be subtracted from later ones.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    written: u64,
    not_written: NotWritten,
}

/// The dirty pages of one drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    /// Pages that were dirty when the drain began.
    pub found: u64,
    /// Pages that were written to the backing store.
    pub written: u64,
    pub dropped: Dropped,
    /// Pages written back when their file no longer took them.
    pub nowhere: u64,
    /// Pages withheld from files in conflict.
    pub aside: u64,
}

impl OpenCache {
    /// The counts until now.
    pub fn mark(&self) -> io::Result<Mark> {
        let not_written = match &self.below {
            Below::Store => NotWritten::default(),
            Below::Files(files) => files.not_written(),
        };
        Ok(Mark { written: self.cache.stats()?.write_back.below_pages, not_written })
    }

    /// Account since a mark. `found` is the number of dirty pages then, `dropped` those that the open dropped.
    pub fn tally(&self, found: u64, dropped: Dropped, since: Mark) -> io::Result<Tally> {
        let now = self.mark()?;
        let nowhere = now.not_written.nowhere - since.not_written.nowhere;
        let aside = now.not_written.aside - since.not_written.aside;
        let written = (now.written - since.written).saturating_sub(nowhere + aside);
        Ok(Tally { found, written, dropped, nowhere, aside })
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Tally { found, written, dropped, nowhere, aside } = *self;
        let pages = |number: u64, what: &str| counted(number as usize, what);
        write!(f, "{} found, {} written{}", pages(found, "dirty page"), pages(written, "page"), dropped.said())?;
        if nowhere > 0 {
            write!(f, ", {} of no file any more", pages(nowhere, "page"))?;
        }
        if aside > 0 {
            write!(f, ", {} kept aside", pages(aside, "page"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_and_what_was_written_are_two_numbers() {
        let all = Tally { found: 12, written: 12, dropped: Dropped::default(), nowhere: 0, aside: 0 };
        assert_eq!(all.to_string(), "12 dirty pages found, 12 pages written");
        let dropped = Dropped { removed: 1, gone: 2, beyond: 3, written: 0 };
        let some = Tally { found: 12, written: 3, dropped, nowhere: 1, aside: 2 };
        assert_eq!(
            some.to_string(),
            "12 dirty pages found, 3 pages written, 1 page dropped of files that were removed, 2 pages dropped of files that are gone, \
             as --drop-gone asked, 3 pages dropped beyond the ends of their files, 1 page of no file any more, 2 pages kept \
             aside"
        );
    }
}
