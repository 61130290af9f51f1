//! Objects that the policy holds whole are brought into the cache behind the requests, a few pages at a time, so that none waits
//! for a table: 000, section 2.7.
//!
//! Pages that are brought are no requests: they are counted apart, and no page is brought that is held already.
//! Bringing waits like a request where there is no room, and for a page that a request is at.

use super::{BlockCache, REST};
use entresol_core::{Hint, ObjectId};
use std::io;

/// Pages that are read together; their locks are held meanwhile.
const TOGETHER: u64 = 32;
/// Pages looked at in one turn for one that is not held.
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
    /// So many pages were brought, perhaps none; there may be more.
    Some(u64),
    /// All objects have been gone through, and nothing is left to leave.
    All,
}

impl BlockCache {
    /// Does the policy place objects, which [`fill_some`](BlockCache::fill_some) fills?
    pub fn places_objects(&self) -> bool {
        !self.config().policy.live.is_empty()
    }

    /// Has the policy hold an object whole until it is told otherwise; whether it does. The pages come by
    /// [`fill_some`](BlockCache::fill_some), or when they are asked for. It does not where there is no room for all of them, or if it
    /// places no objects.
    ///
    /// # Errors
    /// When the cache has stopped after a fault of its own.
    pub fn place(&self, object: ObjectId) -> io::Result<bool> {
        let mut guard = self.locks.guard()?;
        guard.core().hint(Hint::Place { object });
        Ok(guard.core().placed(object) > 0)
    }

    /// Has the policy hold an object no longer. Its pages leave by [`fill_some`](BlockCache::fill_some) and behind requests; what is
    /// dirty of them is written below.
    ///
    /// # Errors
    /// When the cache has stopped after a fault of its own.
    pub fn unplace(&self, object: ObjectId) -> io::Result<()> {
        self.locks.guard()?.core().hint(Hint::Unplace { object });
        Ok(())
    }

    /// Brings a few pages of objects that the policy holds whole, and has a few leave of those that it holds no longer. A page
    /// that cannot be read is passed over, for whoever asks for it is told why.
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
            wanted.zip(bytes.chunks_exact(self.page_bytes as usize)).zip(there).filter(|(_, there)| *there)
        {
            let mut guard = self.locks.ready()?;
            brought += u64::from(guard.core().prefetch_object(page, bytes, self.tag(true)));
            guard.mend()?;
        }
        Ok(Filled::Some(brought))
    }
}
