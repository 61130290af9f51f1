//! Runs of pages with consecutive addresses, the longest first: the *sequential list* of 004, sections 3.3.6, 4.4.5.
//!
//! A page that joins finds its neighbours by address ([`Driver::successor`], [`Driver::predecessor`]), never by handle.
//! From then on the pages of a run are linked, because neighbours by address may change while a run is held: a file may
//! be removed whose pages lay in two places. Each end of a run stores the other end and the length, so a page joins in
//! constant time. Runs of equal length are in one list, in the order in which they came to this length.
//!
//! **Ties.** Of equally long runs the one unchanged for the longest time is given. The thesis is silent on ties. A run
//! that has grown recently holds a page that was written recently, and section 3.4 tells the cost of flushing such
//! pages. A page that leaves from the middle of a run makes two; the one at the lower addresses counts as the older.

use crate::interface::Driver;
use entresol_core::Page;

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Node {
    /// At an end of a run: its other end.
    other: u32,
    /// At an end of a run: its length. Anything but 0 inside, 0 for a page that is not in the set.
    length: u32,
    /// At the lower end: the run of this length that is next newer.
    newer: u32,
    /// At the lower end: the run of this length that is next older.
    older: u32,
    /// The page of the run below this one.
    below: u32,
    /// The page of the run above this one.
    above: u32,
}

impl Node {
    const ABSENT: Node = Node { other: NONE, length: 0, newer: NONE, older: NONE, below: NONE, above: NONE };
}

/// The runs of one length.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    newest: u32,
    oldest: u32,
}

/// A run of consecutive pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Page of the run with the lowest address.
    pub first: Page,
    /// Length of the run in pages.
    pub length: u32,
}

/// A set of pages, grouped into runs of consecutive addresses. 24 bytes a handle and 8 a page of capacity.
#[derive(Clone, Debug)]
pub struct Runs {
    nodes: Vec<Node>,
    /// Index is the length.
    buckets: Vec<Bucket>,
    /// Length of the longest run.
    longest: u32,
    pages: usize,
}

impl Runs {
    /// An empty set over handles below `pages`, which never holds more than `capacity` of them.
    pub fn new(pages: usize, capacity: usize) -> Self {
        Runs {
            nodes: vec![Node::ABSENT; pages],
            buckets: vec![Bucket { newest: NONE, oldest: NONE }; capacity.min(pages) + 1],
            longest: 0,
            pages: 0,
        }
    }

    /// True if the page is in the set.
    #[inline(always)]
    pub fn contains(&self, page: Page) -> bool {
        self.nodes[page.index()].length != 0
    }

    /// Number of pages in the set.
    pub fn len(&self) -> usize {
        self.pages
    }

    /// True when the set has no page.
    pub fn is_empty(&self) -> bool {
        self.pages == 0
    }

    /// The longest run; of several the one unchanged for the longest time.
    #[inline(always)]
    pub fn longest(&self) -> Option<Run> {
        let first = self.buckets[self.longest as usize].oldest;
        (first != NONE).then_some(Run { first: Page(first), length: self.longest })
    }

    /// Adds a page, which is absent, and joins the runs on both sides of it.
    #[inline]
    pub fn insert<D: Driver>(&mut self, page: Page, driver: &D) {
        debug_assert!(!self.contains(page), "page {} is held already", page.0);
        let (mut first, mut last, mut length) = (page.0, page.0, 1);
        self.nodes[page.index()] = Node { length, ..Node::ABSENT };
        // A neighbour by address may be inside an older run, or both neighbours may be the ends of one run.
        let below = driver.predecessor(page).filter(|&below| self.contains(below) && self.above(below).is_none());
        if let Some(below) = below {
            self.link(below, page);
            first = self.nodes[below.index()].other;
            length += self.nodes[below.index()].length;
            self.unchain(first);
        }
        let is_lower_end = |above: Page| self.contains(above) && self.nodes[above.index()].below == NONE;
        if let Some(above) = driver.successor(page).filter(|&above| is_lower_end(above) && above.0 != first) {
            self.link(page, above);
            last = self.nodes[above.index()].other;
            length += self.nodes[above.index()].length;
            self.unchain(above.0);
        }
        self.chain(first, last, length);
        self.lower();
        self.pages += 1;
    }

    fn link(&mut self, below: Page, above: Page) {
        self.nodes[below.index()].above = above.0;
        self.nodes[above.index()].below = below.0;
    }

    /// The page of the same run above one that is held.
    #[inline(always)]
    pub fn above(&self, page: Page) -> Option<Page> {
        let above = self.nodes[page.index()].above;
        (above != NONE).then_some(Page(above))
    }

    /// Removes a page that is held; from inside a run it leaves two. Costs a walk to the nearer end.
    pub fn remove(&mut self, page: Page) {
        let (first, pages_below) = self.locate(page);
        let Node { other: last, length, .. } = self.nodes[first as usize];
        let Node { below, above, .. } = self.nodes[page.index()];
        let pages_above = length - pages_below - 1;
        self.unchain(first);
        if below != NONE {
            self.nodes[below as usize].above = NONE;
            self.chain(first, below, pages_below);
        }
        if above != NONE {
            self.nodes[above as usize].below = NONE;
            self.chain(above, last, pages_above);
        }
        self.lower();
        self.nodes[page.index()] = Node::ABSENT;
        self.pages -= 1;
    }

    /// Removes the whole run that starts at `first` and visits its pages in ascending order of address.
    pub fn take<D: Driver>(&mut self, first: Page, driver: &mut D, mut visit: impl FnMut(Page, &mut D)) {
        self.unchain(first.0);
        self.lower();
        let mut next = Some(first);
        while let Some(page) = next {
            next = self.above(page);
            self.nodes[page.index()] = Node::ABSENT;
            self.pages -= 1;
            visit(page, driver);
        }
    }

    /// The pages of a run in ascending order of address.
    pub fn pages(&self, run: Run) -> impl Iterator<Item = Page> {
        std::iter::successors(Some(run.first), |&page| self.above(page))
    }

    /// The lower end of the run of a held page, and the number of its pages below this one; found from the nearer end.
    fn locate(&self, page: Page) -> (u32, u32) {
        let (mut down, mut up) = (page.0, page.0);
        let mut steps = 0;
        loop {
            match self.nodes[down as usize].below {
                NONE => return (down, steps),
                below => down = below,
            }
            match self.nodes[up as usize] {
                Node { above: NONE, other, length, .. } => return (other, length - 1 - steps),
                Node { above, .. } => up = above,
            }
            steps += 1;
        }
    }

    fn chain(&mut self, first: u32, last: u32, length: u32) {
        let bucket = &mut self.buckets[length as usize];
        let older = std::mem::replace(&mut bucket.newest, first);
        match older {
            NONE => bucket.oldest = first,
            older => self.nodes[older as usize].newer = first,
        }
        let node = &mut self.nodes[last as usize];
        (node.other, node.length) = (first, length);
        let node = &mut self.nodes[first as usize];
        (node.other, node.length, node.newer, node.older) = (last, length, NONE, older);
        self.longest = self.longest.max(length);
    }

    /// Takes a run out of its bucket; its pages stay in the set. [`lower`](Self::lower) is called once all runs of an
    /// operation are chained again, so that a page that joins the longest run does not cost a walk of its length.
    fn unchain(&mut self, first: u32) {
        let Node { length, newer, older, .. } = self.nodes[first as usize];
        match newer {
            NONE => self.buckets[length as usize].newest = older,
            newer => self.nodes[newer as usize].older = older,
        }
        match older {
            NONE => self.buckets[length as usize].oldest = newer,
            older => self.nodes[older as usize].newer = newer,
        }
    }

    /// Lowers `longest` to the length of the longest run. The steps are amortised over the pages that came before.
    #[inline]
    fn lower(&mut self) {
        while self.longest > 0 && self.buckets[self.longest as usize].oldest == NONE {
            self.longest -= 1;
        }
    }

    /// Loads a page's node into the processor's cache.
    #[inline(always)]
    pub fn prefetch(&self, page: Page) {
        entresol_core::prefetch(&self.nodes, page.index());
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>() + self.buckets.capacity() * size_of::<Bucket>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_core::{Address, Movement, ObjectId, Tier};
    use proptest::prelude::*;

    const PAGES: u32 = 30;
    const OBJECT: u64 = 20;

    /// A driver that only knows which page lies `step` pages after another.
    struct Beside<F>(F);

    impl<F: Fn(Page, i64) -> Option<Page>> Driver for Beside<F> {
        fn may_evict(&mut self, _page: Page, _tier: Tier) -> bool {
            true
        }
        fn emit(&mut self, _movement: Movement) {}
        fn now_us(&self) -> u64 {
            0
        }
        fn next_use(&self) -> u32 {
            0
        }
        fn address(&self, page: Page) -> Address {
            Address { object: ObjectId(0), block: u64::from(page.0) }
        }
        fn successor(&self, page: Page) -> Option<Page> {
            (self.0)(page, 1)
        }
        fn predecessor(&self, page: Page) -> Option<Page> {
            (self.0)(page, -1)
        }
        fn object_pages(&self, _object: ObjectId) -> u64 {
            u64::from(PAGES)
        }
    }

    /// Handle `h` is block `7 h mod 30` of the whole: neighbours by handle are none by address. The first object
    /// has 20 pages, the second 10.
    fn scattered(page: Page, step: i64) -> Option<Page> {
        let beside = place(page).checked_add_signed(step)?;
        let other_object = beside.max(place(page)) == OBJECT;
        (!other_object && beside < u64::from(PAGES)).then(|| handle(beside))
    }

    fn place(page: Page) -> u64 {
        u64::from(page.0) * 7 % u64::from(PAGES)
    }

    fn handle(place: u64) -> Page {
        Page((place * 13 % u64::from(PAGES)) as u32)
    }

    /// Runs as (first place, length), in the order in which they came to their length.
    #[derive(Default)]
    struct Model {
        held: [bool; PAGES as usize],
        runs: Vec<(u64, u32)>,
    }

    impl Model {
        fn set(&mut self, place: u64, held: bool) {
            self.held[place as usize] = held;
            let mut now: Vec<(u64, u32)> = Vec::new();
            for place in (0..u64::from(PAGES)).filter(|&place| self.held[place as usize]) {
                match now.last_mut() {
                    Some((first, length)) if *first + u64::from(*length) == place && place != OBJECT => *length += 1,
                    _ => now.push((place, 1)),
                }
            }
            self.runs.retain(|run| now.contains(run));
            now.retain(|run| !self.runs.contains(run));
            self.runs.extend(now);
        }

        fn longest(&self) -> Option<Run> {
            let length = self.runs.iter().map(|run| run.1).max()?;
            let first = self.runs.iter().find(|run| run.1 == length)?.0;
            Some(Run { first: handle(first), length })
        }
    }

    proptest! {
        #[test]
        fn behaves_like_a_scan_of_a_bitmap(steps in proptest::collection::vec((0..40u64, any::<bool>()), 0..400)) {
            let mut runs = Runs::new(PAGES as usize, PAGES as usize);
            let mut model = Model::default();
            for (step, add) in steps {
                if step < u64::from(PAGES) {
                    let page = handle(step);
                    prop_assert_eq!(runs.contains(page), model.held[step as usize]);
                    if add && !runs.contains(page) {
                        runs.insert(page, &Beside(scattered));
                        model.set(step, true);
                    } else if !add && runs.contains(page) {
                        runs.remove(page);
                        model.set(step, false);
                    }
                } else if let Some(run) = runs.longest() {
                    let expected: Vec<Page> =
                        (0..u64::from(run.length)).map(|i| handle(place(run.first) + i)).collect();
                    let listed: Vec<Page> = runs.pages(run).collect();
                    prop_assert_eq!(&listed, &expected);
                    let mut taken = Vec::new();
                    runs.take(run.first, &mut Beside(scattered), |page, _| taken.push(page));
                    prop_assert_eq!(&taken, &expected);
                    taken.iter().for_each(|&page| model.set(place(page), false));
                }
                prop_assert_eq!(runs.longest(), model.longest());
                prop_assert_eq!(runs.len(), model.held.iter().filter(|&&held| held).count());
                prop_assert_eq!(runs.is_empty(), model.runs.is_empty());
            }
        }
    }

    /// Lengths of all runs, by their pages.
    fn lengths(runs: &Runs) -> Vec<u32> {
        let held = (0..PAGES).map(Page).filter(|&page| runs.contains(page));
        let firsts = held.filter(|page| runs.nodes[page.index()].below == NONE);
        let length = |first: Page| {
            let length = runs.pages(Run { first, length: 0 }).count() as u32;
            assert_eq!(runs.nodes[first.index()].length, length);
            length
        };
        firsts.map(length).collect()
    }

    proptest! {
        #[test]
        fn runs_stay_whole_while_neighbours_change(
            steps in proptest::collection::vec((0..40u32, any::<bool>(), 0..PAGES as usize), 0..400)
        ) {
            let mut runs = Runs::new(PAGES as usize, PAGES as usize);
            let mut order: Vec<Page> = (0..PAGES).map(Page).collect();
            for (step, add, at) in steps {
                let page = Page(step % PAGES);
                if step >= PAGES {
                    order.swap(at, page.index());
                    if let Some(run) = runs.longest().filter(|_| add) {
                        let mut taken = 0;
                        runs.take(run.first, &mut Beside(scattered), |_, _| taken += 1);
                        prop_assert_eq!(taken, run.length);
                    }
                } else if add && !runs.contains(page) {
                    // Neighbours follow a table that changes.
                    let at = |page| order.iter().position(|&other| other == page).expect("each has a place");
                    let beside = |page, step| order.get(at(page).checked_add_signed(step as isize)?).copied();
                    runs.insert(page, &Beside(beside));
                } else if !add && runs.contains(page) {
                    runs.remove(page);
                }
                let lengths = lengths(&runs);
                prop_assert_eq!(lengths.iter().sum::<u32>() as usize, runs.len());
                prop_assert_eq!(lengths.into_iter().max(), runs.longest().map(|run| run.length));
            }
        }
    }

    #[test]
    fn a_page_that_joins_the_longest_run_costs_no_walk_of_it() {
        const MANY: u32 = 1 << 20;
        let in_order = |page: Page, step| page.0.checked_add_signed(step as i32).filter(|&page| page < MANY).map(Page);
        // With a walk for each page this would be half of 10^12 steps.
        let mut runs = Runs::new(MANY as usize, MANY as usize);
        (0..MANY).for_each(|page| runs.insert(Page(page), &Beside(in_order)));
        assert_eq!(runs.longest(), Some(Run { first: Page(0), length: MANY }));
    }
}
