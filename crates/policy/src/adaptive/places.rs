//! The list of each page and its dirty and reference marks: one byte a page beside the links. Every policy of this
//! family keeps its resident pages and its ghosts in such lists.

use crate::interface::{Driver, PageState, TierSet};
use crate::parts::{ListId, Lists};
use entresol_core::{Page, Request, Tier};

/// List number of a page that is in no list.
pub(super) const NOWHERE: ListId = 15;

const LIST: u8 = 15;
const DIRTY: u8 = 1 << 7;
const REFERENCED: u8 = 1 << 6;

/// `K` lists of which the first `RESIDENT` hold pages with a frame, the others ghosts. 9 bytes a handle.
#[derive(Clone, Debug)]
pub(super) struct Places<const K: usize, const RESIDENT: usize> {
    lists: Lists<K>,
    marks: Vec<u8>,
}

impl<const K: usize, const RESIDENT: usize> Places<K, RESIDENT> {
    pub(super) fn new(pages: usize) -> Self {
        const { assert!(K < NOWHERE && RESIDENT <= K) }
        Places { lists: Lists::new(pages), marks: vec![NOWHERE as u8; pages] }
    }

    /// The list a page is in, [`NOWHERE`] if in none.
    #[inline(always)]
    pub(super) fn home(&self, page: Page) -> ListId {
        (self.marks[page.index()] & LIST) as ListId
    }

    #[inline(always)]
    pub(super) fn len(&self, list: ListId) -> usize {
        self.lists.len(list)
    }

    /// Number of pages with a frame.
    #[inline(always)]
    pub(super) fn residents(&self) -> usize {
        (0..RESIDENT).map(|list| self.lists.len(list)).sum()
    }

    #[inline(always)]
    pub(super) fn oldest(&self, list: ListId) -> Option<Page> {
        self.lists.back(list)
    }

    /// Pages of a list, the oldest first.
    pub(super) fn oldest_first(&self, list: ListId) -> impl Iterator<Item = Page> + '_ {
        self.lists.iter_from_back(list)
    }

    /// The oldest page of a list that may be evicted.
    #[inline(always)]
    pub(super) fn victim<D: Driver>(&self, list: ListId, driver: &mut D) -> Option<Page> {
        self.lists.back_where(list, |page| driver.may_evict(page, Tier::TOP))
    }

    #[inline(always)]
    pub(super) fn move_to_front(&mut self, list: ListId, page: Page) {
        debug_assert_eq!(self.home(page), list);
        self.lists.move_to_front(list, page);
    }

    /// Takes a page from its list, if it is in one, to the front of another.
    #[inline(always)]
    pub(super) fn shift(&mut self, page: Page, to: ListId) {
        let from = self.home(page);
        if from != NOWHERE {
            self.lists.remove(from, page);
        }
        self.lists.push_front(to, page);
        let mark = &mut self.marks[page.index()];
        *mark = *mark & !LIST | to as u8;
    }

    /// Takes a page out of its list and forgets all marks.
    #[inline(always)]
    pub(super) fn forget(&mut self, page: Page) {
        self.lists.remove(self.home(page), page);
        self.marks[page.index()] = NOWHERE as u8;
    }

    /// Forgets the oldest page of a list of ghosts, if it has one.
    #[inline(always)]
    pub(super) fn forget_oldest(&mut self, list: ListId) {
        debug_assert!(list >= RESIDENT);
        if let Some(page) = self.lists.back(list) {
            self.forget(page);
        }
    }

    /// Serves a hit: a write overwrites the frame.
    #[inline(always)]
    pub(super) fn serve<D: Driver>(&mut self, request: Request, driver: &mut D) {
        driver.overwrite(request, Tier::TOP);
        self.marks[request.page.index()] |= DIRTY * u8::from(request.op.is_write());
    }

    /// Brings the page of a miss in, at the front of a list, whether it was a ghost or unknown.
    #[inline(always)]
    pub(super) fn enter<D: Driver>(&mut self, request: Request, list: ListId, driver: &mut D) {
        driver.admit(request, Tier::TOP);
        self.shift(request.page, list);
        self.marks[request.page.index()] |= DIRTY * u8::from(request.op.is_write());
    }

    /// Evicts a page; its ghost goes to the front of a list, or nowhere.
    #[inline(always)]
    pub(super) fn evict<D: Driver>(&mut self, page: Page, ghosts: ListId, driver: &mut D) {
        debug_assert!(self.home(page) < RESIDENT && ghosts >= RESIDENT);
        driver.evict(page, Tier::TOP, self.marks[page.index()] & DIRTY != 0);
        if ghosts == NOWHERE {
            self.forget(page);
        } else {
            self.marks[page.index()] &= LIST;
            self.shift(page, ghosts);
        }
    }

    /// Sets the reference mark.
    #[inline(always)]
    pub(super) fn reference(&mut self, page: Page) {
        self.marks[page.index()] |= REFERENCED;
    }

    /// Clears the reference mark; true if it was set.
    #[inline(always)]
    pub(super) fn unreference(&mut self, page: Page) -> bool {
        let mark = &mut self.marks[page.index()];
        let set = *mark & REFERENCED != 0;
        *mark &= !REFERENCED;
        set
    }

    pub(super) fn state(&self, page: Page) -> PageState {
        let home = self.home(page);
        let dirty = self.marks[page.index()] & DIRTY != 0;
        PageState { tiers: TierSet::only(Tier::TOP, home < RESIDENT), dirty, known: home != NOWHERE }
    }

    #[inline(always)]
    pub(super) fn prefetch(&self, page: Page) {
        entresol_core::prefetch(&self.marks, page.index());
        self.lists.prefetch(page);
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.lists.memory_bytes() + self.marks.capacity()
    }
}
