//! Hands out handles: the small integers by which a policy knows pages.

use entresol_core::Page;
use entresol_store::Numbers;
use std::cell::Cell;

/// Handles checked for a forgotten page before a new handle is made.
const ASKED: usize = 8;
/// The page of a handle, in the 48 bits that the store has for a page number.
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Name {
    low: u32,
    high: u16,
}

/// Bytes of memory for a page that the policy knows, without the policy's own: its name, and five for finding it.
pub const HANDLE_BYTES: u64 = size_of::<Name>() as u64 + 5;

impl Name {
    fn new(page: u64) -> Self {
        Name { low: page as u32, high: (page >> 32) as u16 }
    }

    fn page(self) -> u64 {
        u64::from(self.high) << 32 | u64::from(self.low)
    }
}

/// A table from handles to pages, and back. A handle whose page the policy has forgotten is given to another page. The
/// table takes memory for the most handles needed at once so far, not for all possible ones.
pub(super) struct Directory {
    names: Vec<Name>,
    handles: Numbers,
    handles_max: usize,
    /// Handle that was found last: one request asks several times for its page.
    found: Cell<u32>,
    /// Position at which the search for a forgotten handle goes on.
    cursor: usize,
}

impl Directory {
    pub fn new(handles: usize) -> Self {
        // A policy without ghosts needs a third of the usual number: the table, slow to grow, never grows for it.
        let numbers = Numbers::new((handles / 8 * 3 + 64).min(handles), handles as u32);
        Directory { names: Vec::new(), handles: numbers, handles_max: handles, found: Cell::new(0), cursor: 0 }
    }

    /// Bytes of memory that the directory takes.
    pub fn memory_bytes(&self) -> usize {
        self.names.capacity() * size_of::<Name>() + self.handles.memory_bytes()
    }

    /// Prefetches into the processor's caches the memory where a search for the page begins.
    #[inline]
    pub fn prefetch(&self, page: u64) {
        self.handles.prefetch(page);
    }

    /// The handle of a page, if it has one.
    pub fn find(&self, page: u64) -> Option<Page> {
        // A handle has its name as long as the table leads to it.
        let found = self.found.get();
        if self.names.get(found as usize).is_some_and(|name| name.page() == page) {
            return Some(Page(found));
        }
        let handle = self.handles.get(page, |handle| self.names[handle as usize].page())?;
        self.found.set(handle);
        Some(Page(handle))
    }

    /// The handle of a page. A page without one gets a new handle, or one whose page is `forgotten`. None when the
    /// policy still knows every page that has a handle.
    pub fn handle(&mut self, page: u64, forgotten: impl Fn(Page) -> bool) -> Option<Page> {
        if let Some(handle) = self.find(page) {
            return Some(handle);
        }
        let len = self.names.len();
        let asked = if len < self.handles_max { ASKED.min(len) } else { len };
        let free = (0..asked).map(|step| (self.cursor + step) % len).find(|&at| forgotten(Page(at as u32)));
        if len > 0 {
            self.cursor = free.map_or(self.cursor + asked, |at| at + 1) % len;
        }
        let handle = match free {
            Some(at) => {
                let names = &self.names;
                self.handles.remove(names[at].page(), |handle| names[handle as usize].page());
                self.names[at] = Name::new(page);
                at
            }
            None if len < self.handles_max => {
                self.grow();
                self.names.push(Name::new(page));
                len
            }
            None => return None,
        };
        let names = &self.names;
        self.handles.insert(page, handle as u32, |handle| names[handle as usize].page());
        Some(Page(handle as u32))
    }

    /// Grows the tables for one more handle.
    fn grow(&mut self) {
        let len = self.names.len();
        if len == self.names.capacity() {
            // A small step: little memory is left unused.
            self.names.reserve_exact((len / 8 + 64).min(self.handles_max - len));
        }
        if self.handles.is_full() {
            let (names, space) = (&self.names, (len + self.handles_max / 3 + 64).min(self.handles_max));
            self.handles.grow(space, |handle| names[handle as usize].page());
        }
    }

    /// Number of handles in use so far; all are below it.
    pub fn handles(&self) -> usize {
        self.names.len()
    }

    /// The page of a handle in use.
    pub fn page(&self, handle: Page) -> u64 {
        self.names[handle.index()].page()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_core::Random;
    use std::collections::{BTreeMap, HashSet};

    #[test]
    fn a_handle_is_kept_while_it_is_known_and_recycled_after() {
        let mut directory = Directory::new(2);
        let a = directory.handle(10, |_| false).expect("room");
        let b = directory.handle(20, |_| false).expect("room");
        assert_eq!(directory.handle(10, |_| false), Some(a));
        assert_eq!(directory.handle(30, |_| false), None, "both are known");
        assert_eq!(directory.handle(30, |handle| handle == b), Some(b));
        assert_eq!((directory.find(20), directory.find(30), directory.page(b)), (None, Some(b), 30));
    }

    #[test]
    fn it_agrees_with_a_map_while_it_grows() {
        const HANDLES: usize = 5000;
        let mut random = Random::new(3);
        let mut directory = Directory::new(HANDLES);
        let (mut known, mut in_use) = (BTreeMap::new(), HashSet::new());
        for step in 0..60_000 {
            // The policy forgets a page now and then, and may be shown it again before its handle is given away.
            while known.len() >= HANDLES.min(1 + step / 10) || random.chance(0.1) {
                let Some((_, handle)) = known.pop_first() else { break };
                in_use.remove(&handle);
            }
            let page = random.below(2 * HANDLES as u64) << 33;
            let handle = directory.handle(page, |handle| !in_use.contains(&handle));
            let handle = handle.unwrap_or_else(|| panic!("step {step}: {} of {HANDLES} are known", known.len()));
            assert!(known.get(&page).is_none_or(|&before| before == handle), "step {step}");
            assert!(known.contains_key(&page) || !in_use.contains(&handle), "step {step}");
            known.insert(page, handle);
            in_use.insert(handle);
            if step % 1000 == 0 {
                for (&page, &handle) in &known {
                    assert_eq!((directory.find(page), directory.page(handle)), (Some(handle), page), "step {step}");
                }
            }
        }
    }

    #[test]
    fn a_handle_costs_twelve_bytes() {
        const PAGES: u64 = 100_000;
        let mut directory = Directory::new(3 * PAGES as usize + 16);
        (0..PAGES).for_each(|page| assert!(directory.handle(page, |_| false).is_some()));
        assert!(directory.memory_bytes() as u64 <= 13 * PAGES, "{}", directory.memory_bytes());
        (PAGES..3 * PAGES).for_each(|page| assert!(directory.handle(page, |_| false).is_some()));
        assert!(directory.memory_bytes() as u64 <= 13 * 3 * PAGES, "{}", directory.memory_bytes());
    }
}
