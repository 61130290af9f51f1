//! Parts of a long range of pages, one for each hold of the core's lock.

use super::locks::CoreGuard;
use super::maintenance::StoreAccess;
use super::search::{LOOKED_AT, Search};
use std::io;
use std::ops::Range;

/// Pages of a range, ascending, in one part for each hold of the core's lock. All held pages are among them.
pub(super) struct Parts {
    /// Pages that were found held. None where a look at every page takes less than the search.
    found: Option<std::vec::IntoIter<u64>>,
    pages: Range<u64>,
}

impl Parts {
    /// Parts of a range whose pages are locked, for a hold that owns maintenance.
    pub fn of(guard: &mut CoreGuard, pages: &Range<u64>) -> io::Result<Self> {
        let mut search = Search::new(pages.clone());
        let found = guard.core().should_search(&search).then(|| {
            let mut found = Vec::new();
            while guard.core().search(&mut search, &mut found) {
                guard.pass()?;
            }
            found.sort_unstable();
            found.dedup();
            Ok::<_, io::Error>(found.into_iter())
        });
        Ok(Parts { found: found.transpose()?, pages: pages.clone() })
    }
}

impl Iterator for Parts {
    type Item = Vec<u64>;

    fn next(&mut self) -> Option<Vec<u64>> {
        let each = LOOKED_AT as usize;
        let part: Vec<u64> = match &mut self.found {
            // Nearly every page that was found needs work.
            Some(found) => found.take(each / 2).collect(),
            None => self.pages.by_ref().take(each).collect(),
        };
        Some(part).filter(|part| !part.is_empty())
    }
}
