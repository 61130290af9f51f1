//! A queue of pages in a circle: 4 bytes a place, no links to follow.

use entresol_core::Page;

/// A first-in-first-out queue of bounded length. Position 0 is the oldest page.
#[derive(Clone, Debug)]
pub struct Ring {
    places: Vec<u32>,
    oldest: usize,
    len: usize,
}

impl Ring {
    /// An empty queue with room for `capacity` pages.
    pub fn new(capacity: usize) -> Self {
        Ring { places: vec![0; capacity], oldest: 0, len: 0 }
    }

    /// Number of pages held.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when no page is held.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline(always)]
    fn place(&self, position: usize) -> usize {
        let place = self.oldest + position;
        if place >= self.places.len() { place - self.places.len() } else { place }
    }

    /// Adds a page as the newest.
    ///
    /// # Panics
    /// When the queue is full (in debug builds; otherwise the oldest page is overwritten).
    #[inline(always)]
    pub fn push(&mut self, page: Page) {
        debug_assert!(self.len < self.places.len(), "a push to a full ring");
        let place = self.place(self.len);
        self.places[place] = page.0;
        self.len += 1;
    }

    /// The page at a position from the oldest, if there are that many.
    #[inline(always)]
    pub fn get(&self, position: usize) -> Option<Page> {
        (position < self.len).then(|| Page(self.places[self.place(position)]))
    }

    /// Removes the page at a position; the order of the others stays. Costs a move of every older page, so it is cheap
    /// near the oldest page.
    ///
    /// # Panics
    /// When there are not that many pages.
    #[inline(always)]
    pub fn remove(&mut self, position: usize) -> Page {
        assert!(position < self.len, "no page at position {position} of {}", self.len);
        let removed = Page(self.places[self.place(position)]);
        for older in (0..position).rev() {
            let (from, to) = (self.place(older), self.place(older + 1));
            self.places[to] = self.places[from];
        }
        self.oldest = self.place(1);
        self.len -= 1;
        removed
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        self.places.capacity() * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn behaves_like_a_deque(capacity in 1..9usize, steps in proptest::collection::vec((0..3u8, 0..9usize), 0..200)) {
            let mut ring = Ring::new(capacity);
            let mut model = VecDeque::new();
            for (i, (kind, at)) in steps.into_iter().enumerate() {
                if kind > 0 && model.len() < capacity {
                    ring.push(Page(i as u32));
                    model.push_back(Page(i as u32));
                } else if at < model.len() {
                    prop_assert_eq!(Some(ring.remove(at)), model.remove(at));
                }
                prop_assert_eq!((ring.len(), ring.is_empty()), (model.len(), model.is_empty()));
                for at in 0..=capacity {
                    prop_assert_eq!(ring.get(at), model.get(at).copied());
                }
            }
        }
    }
}
