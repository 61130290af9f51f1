//! Hands out handles: the small integers by which a policy knows pages.

use crate::store::PageMap;
use entresol_core::Page;

const NOBODY: u64 = u64::MAX;

/// A table of fixed size from handles to pages, and back. A handle whose page the policy has forgotten is given to
/// another page.
pub(super) struct Directory {
    pages: Vec<u64>,
    handles: PageMap<u32>,
    /// Where the search for a forgotten handle goes on.
    cursor: usize,
}

impl Directory {
    pub fn new(handles: usize) -> Self {
        Directory { pages: vec![NOBODY; handles], handles: PageMap::default(), cursor: 0 }
    }

    /// The handle of a page that has one.
    pub fn find(&self, page: u64) -> Option<Page> {
        self.handles.get(&page).map(|&handle| Page(handle))
    }

    /// The handle of a page; one that is given out anew is asked back first by `forgotten`. None when the policy still
    /// knows every page that has one.
    pub fn handle(&mut self, page: u64, forgotten: impl Fn(Page) -> bool) -> Option<Page> {
        if let Some(handle) = self.find(page) {
            return Some(handle);
        }
        let len = self.pages.len();
        let free = (0..len)
            .map(|step| (self.cursor + step) % len)
            .find(|&at| self.pages[at] == NOBODY || forgotten(Page(at as u32)))?;
        self.cursor = (free + 1) % len;
        let previous = std::mem::replace(&mut self.pages[free], page);
        if previous != NOBODY {
            self.handles.remove(&previous);
        }
        self.handles.insert(page, free as u32);
        Some(Page(free as u32))
    }

    /// The page of a handle in use.
    pub fn page(&self, handle: Page) -> u64 {
        let page = self.pages[handle.index()];
        assert_ne!(page, NOBODY, "{handle:?} was never handed out");
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
