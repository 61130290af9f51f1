//! Doubly linked lists of pages in one array: 8 bytes a handle, whatever the number of lists.

use entresol_core::Page;

/// Index of no link. It is 0, so zeroed memory means pages in no list and stays untouched until a page is linked.
const NONE: u32 = 0;

/// Names one of the lists of a [`Lists`].
pub type ListId = usize;

/// Indices of two neighbours.
type Link = [u32; 2];
/// Towards the front (most recent); `NONE` when the page is in no list.
const PREV: usize = 0;
/// Towards the back (least recent).
const NEXT: usize = 1;

/// `K` lists over the same handles; a page is in at most one of them.
///
/// The most recent page goes to the front, victims are found at the back. Entries `1..=K` of the array are the
/// sentinels of the lists, followed by those of pages. The policy remembers which list a page is in.
#[derive(Clone, Debug)]
pub struct Lists<const K: usize> {
    links: Vec<Link>,
    lens: [usize; K],
}

impl<const K: usize> Lists<K> {
    /// `K` empty lists over handles below `pages`.
    pub fn new(pages: usize) -> Self {
        let mut links = vec![[NONE; 2]; 1 + K + pages];
        for (i, link) in links.iter_mut().enumerate().skip(1).take(K) {
            *link = [i as u32; 2];
        }
        Lists { links, lens: [0; K] }
    }

    #[inline(always)]
    fn sentinel(list: ListId) -> u32 {
        1 + list as u32
    }

    #[inline(always)]
    fn index(page: Page) -> u32 {
        page.0 + 1 + K as u32
    }

    #[inline(always)]
    fn page(index: u32) -> Option<Page> {
        (index > K as u32).then(|| Page(index - 1 - K as u32))
    }

    #[inline(always)]
    fn link(&self, page: Page) -> &Link {
        &self.links[Self::index(page) as usize]
    }

    /// True if the page is in some list.
    #[inline(always)]
    pub fn contains(&self, page: Page) -> bool {
        self.link(page)[PREV] != NONE
    }

    /// Length of a list.
    #[inline(always)]
    pub fn len(&self, list: ListId) -> usize {
        self.lens[list]
    }

    /// True when a list has no page.
    #[inline(always)]
    pub fn is_empty(&self, list: ListId) -> bool {
        self.lens[list] == 0
    }

    #[inline(always)]
    fn link_between(&mut self, prev: u32, page: u32, next: u32) {
        self.links[page as usize] = [prev, next];
        self.links[prev as usize][NEXT] = page;
        self.links[next as usize][PREV] = page;
    }

    #[inline(always)]
    fn unlink(&mut self, page: Page) {
        let [prev, next] = *self.link(page);
        debug_assert_ne!(prev, NONE, "page {} is in no list", page.0);
        self.links[prev as usize][NEXT] = next;
        self.links[next as usize][PREV] = prev;
    }

    /// Adds a page, which is in no list, at the front.
    #[inline(always)]
    pub fn push_front(&mut self, list: ListId, page: Page) {
        let head = Self::sentinel(list);
        let first = self.links[head as usize][NEXT];
        self.link_between(head, Self::index(page), first);
        self.lens[list] += 1;
    }

    /// Adds a page, which is in no list, at the back.
    #[inline(always)]
    pub fn push_back(&mut self, list: ListId, page: Page) {
        let head = Self::sentinel(list);
        let last = self.links[head as usize][PREV];
        self.link_between(last, Self::index(page), head);
        self.lens[list] += 1;
    }

    /// Removes a page from the list it is in, which the caller names.
    #[inline(always)]
    pub fn remove(&mut self, list: ListId, page: Page) {
        self.unlink(page);
        self.links[Self::index(page) as usize] = [NONE; 2];
        self.lens[list] -= 1;
    }

    /// Moves a page of a list to its front.
    #[inline(always)]
    pub fn move_to_front(&mut self, list: ListId, page: Page) {
        let head = Self::sentinel(list);
        let first = self.links[head as usize][NEXT];
        if first == Self::index(page) {
            return;
        }
        self.unlink(page);
        // The first page is unchanged by the unlinking, because it is not the page that moves.
        self.link_between(head, Self::index(page), first);
    }

    /// Moves a page from one list to the front of another (or of the same).
    #[inline(always)]
    pub fn transfer(&mut self, from: ListId, to: ListId, page: Page) {
        self.remove(from, page);
        self.push_front(to, page);
    }

    /// The page at the front.
    #[inline(always)]
    pub fn front(&self, list: ListId) -> Option<Page> {
        Self::page(self.links[Self::sentinel(list) as usize][NEXT])
    }

    /// The page at the back.
    #[inline(always)]
    pub fn back(&self, list: ListId) -> Option<Page> {
        Self::page(self.links[Self::sentinel(list) as usize][PREV])
    }

    /// The page before this one: one step towards the front.
    #[inline(always)]
    pub fn towards_front(&self, page: Page) -> Option<Page> {
        Self::page(self.link(page)[PREV])
    }

    /// The page after this one: one step towards the back.
    #[inline(always)]
    pub fn towards_back(&self, page: Page) -> Option<Page> {
        Self::page(self.link(page)[NEXT])
    }

    /// The page nearest the back that satisfies a condition: how a policy finds a victim that may be evicted.
    #[inline(always)]
    pub fn back_where(&self, list: ListId, mut wanted: impl FnMut(Page) -> bool) -> Option<Page> {
        let mut candidate = self.back(list)?;
        while !wanted(candidate) {
            candidate = self.towards_front(candidate)?;
        }
        Some(candidate)
    }

    /// The page nearest the front that satisfies a condition.
    #[inline(always)]
    pub fn front_where(&self, list: ListId, mut wanted: impl FnMut(Page) -> bool) -> Option<Page> {
        let mut candidate = self.front(list)?;
        while !wanted(candidate) {
            candidate = self.towards_back(candidate)?;
        }
        Some(candidate)
    }

    /// Pages from back to front.
    pub fn iter_from_back(&self, list: ListId) -> impl Iterator<Item = Page> + '_ {
        std::iter::successors(self.back(list), |page| self.towards_front(*page))
    }

    /// Loads a page's links into the processor's cache.
    #[inline(always)]
    pub fn prefetch(&self, page: Page) {
        entresol_core::prefetch(&self.links, Self::index(page) as usize);
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        self.links.capacity() * size_of::<Link>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[derive(Clone, Debug)]
    enum Step {
        Front(usize, u32),
        Back(usize, u32),
        Remove(u32),
        ToFront(u32),
        Transfer(usize, u32),
    }

    fn step() -> impl Strategy<Value = Step> {
        let (l, p) = (0..3usize, 0..20u32);
        prop_oneof![
            (l.clone(), p.clone()).prop_map(|(l, p)| Step::Front(l, p)),
            (l.clone(), p.clone()).prop_map(|(l, p)| Step::Back(l, p)),
            p.clone().prop_map(Step::Remove),
            p.clone().prop_map(Step::ToFront),
            (l, p).prop_map(|(l, p)| Step::Transfer(l, p)),
        ]
    }

    proptest! {
        #[test]
        fn behaves_like_three_deques(steps in proptest::collection::vec(step(), 0..200)) {
            let mut lists = Lists::<3>::new(20);
            let mut model: [VecDeque<u32>; 3] = Default::default();
            for step in steps {
                let home = |model: &[VecDeque<u32>; 3], p| (0..3).find(|&l| model[l].contains(&p));
                match step {
                    Step::Front(l, p) if home(&model, p).is_none() => {
                        lists.push_front(l, Page(p));
                        model[l].push_front(p);
                    }
                    Step::Back(l, p) if home(&model, p).is_none() => {
                        lists.push_back(l, Page(p));
                        model[l].push_back(p);
                    }
                    Step::Remove(p) => if let Some(l) = home(&model, p) {
                        lists.remove(l, Page(p));
                        model[l].retain(|&q| q != p);
                    },
                    Step::ToFront(p) => if let Some(l) = home(&model, p) {
                        lists.move_to_front(l, Page(p));
                        model[l].retain(|&q| q != p);
                        model[l].push_front(p);
                    },
                    Step::Transfer(to, p) => if let Some(l) = home(&model, p) {
                        lists.transfer(l, to, Page(p));
                        model[l].retain(|&q| q != p);
                        model[to].push_front(p);
                    },
                    _ => {}
                }
                for (l, deque) in model.iter().enumerate() {
                    let got: Vec<u32> = lists.iter_from_back(l).map(|p| p.0).collect();
                    let expected: Vec<u32> = deque.iter().rev().copied().collect();
                    prop_assert_eq!(got, expected);
                    prop_assert_eq!(lists.len(l), deque.len());
                    prop_assert_eq!(lists.front(l).map(|p| p.0), deque.front().copied());
                    let odd = |p: &&u32| **p % 2 == 1;
                    prop_assert_eq!(lists.front_where(l, |p| p.0 % 2 == 1).map(|p| p.0), deque.iter().find(odd).copied());
                    let last_odd = deque.iter().rev().find(odd).copied();
                    prop_assert_eq!(lists.back_where(l, |p| p.0 % 2 == 1).map(|p| p.0), last_odd);
                }
            }
        }
    }
}
