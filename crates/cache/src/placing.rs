//! Prefetch of objects that the policy holds whole: behind the requests, a few pages at a time, so that no request
//! waits for a table (000, section 2.7).
//!
//! Prefetched pages are no requests and are counted apart; held pages are not prefetched. Like a request, a prefetch
//! waits at the hard limits and for a page that a request has locked.

use super::{BlockCache, REST};
use entresol_core::{Hint, ObjectId};
use std::io;

/// Pages read together; their locks are held meanwhile.
const TOGETHER: u64 = 32;
/// Pages looked at in one hold of the core's lock in search of one that is not held.
const LOOKED_AT: u64 = 512;

/// Progress through the objects that the policy wants.
#[derive(Debug, Default)]
pub struct Filling {
    object: u32,
    block: u64,
}

/// Result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    /// Pages that were prefetched, perhaps none; more may be left.
    Some(u64),
    /// All objects have been gone through, and no page is left that has to leave.
    All,
}

impl BlockCache {
    /// True if the policy places objects, which [`fill_some`](BlockCache::fill_some) fills.
    pub fn places_objects(&self) -> bool {
        !self.config().policy.live.is_empty()
    }

    /// Has the policy hold an object whole until [`unplace`](BlockCache::unplace). True if it does. The pages come by
    /// [`fill_some`](BlockCache::fill_some), or when they are requested. False where the tier is too small for all of
    /// them, or if the policy places no objects.
    ///
    /// # Errors
    /// When the cache has stopped after a fault of its own.
    pub fn place(&self, object: ObjectId) -> io::Result<bool> {
        let mut guard = self.locks.guard()?;
        guard.core().hint(Hint::Place { object });
        Ok(guard.core().placed(object) > 0)
    }

    /// Has the policy hold an object no longer. Its pages leave by [`fill_some`](BlockCache::fill_some) and behind
    /// requests; dirty ones are written below.
    ///
    /// # Errors
    /// When the cache has stopped after a fault of its own.
    pub fn unplace(&self, object: ObjectId) -> io::Result<()> {
        self.locks.guard()?.core().hint(Hint::Unplace { object });
        Ok(())
    }

    /// Prefetches a few pages of objects that the policy holds whole, and evicts a few of those that it holds no
    /// longer. A page that cannot be read is skipped: a request for it gets the error.
    ///
    /// # Errors
    /// The error that the cache device returned, or an error when the cache has stopped after a fault of its own.
    pub fn fill_some(&self, filling: &mut Filling) -> io::Result<Filled> {
        let mut guard = self.locks.ready()?;
        if guard.core().is_off() {
            return Ok(Filled::All);
        }
        let leaving = guard.core().go_on();
        let next = (filling.object..self.objects_max as u32).map(ObjectId).filter(|&object| object != REST);
        let placed = next.map(|object| (object, guard.core().placed(object))).find(|&(_, pages)| pages > 0);
        let Some((object, pages)) = placed else {
            *filling = Filling::default();
            return Ok(if leaving { Filled::Some(0) } else { Filled::All });
        };
        if object.0 != filling.object {
            *filling = Filling { object: object.0, block: 0 };
        }
        let run = guard.core().objects().run_from(object, filling.block).filter(|&(block, ..)| block < pages);
        let Some((block, first, len)) = run else {
            *filling = Filling { object: object.0 + 1, block: 0 };
            return Ok(Filled::Some(0));
        };
        let end = first + len.min(pages - block).min(LOOKED_AT);
        let missing = (first..end).find(|&page| !guard.core().holds(page)).unwrap_or(end);
        let wanted = missing..end.min(missing + TOGETHER);
        filling.block = block + (wanted.end - first);
        drop(guard);
        if wanted.is_empty() {
            return Ok(Filled::Some(0));
        }
        let _pages = self.locks.pages.range(&wanted);
        let mut bytes = vec![0; (wanted.end - wanted.start) as usize * self.page_bytes as usize];
        let there = self.read_together(wanted.start, &mut bytes)?;
        let mut brought = 0;
        for ((page, bytes), _) in
            wanted.zip(bytes.chunks_exact(self.page_bytes as usize)).zip(there).filter(|(_, there)| there.is_some())
        {
            let mut guard = self.locks.ready()?;
            brought += u64::from(guard.core().prefetch_object(page, bytes, self.tag(true)));
            guard.mend()?;
        }
        Ok(Filled::Some(brought))
    }
}
