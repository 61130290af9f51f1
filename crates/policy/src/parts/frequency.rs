//! Pages ordered by how often they were used, in constant time per use: the structure under every LFU here.
//!
//! Pages of one frequency form a list, the oldest at its back; the lists hang in a chain of buckets of ascending
//! frequency (Shah, Mitra, Matani, "An O(1) algorithm for implementing the LFU cache eviction scheme", 2010).
//! Two operations change all frequencies at once without a visit to every page: [`FrequencyList::halve`] (aging)
//! and [`FrequencyList::collapse`] (HeuristicDB's eviction and demotion). They join whole lists; the joined bucket
//! is left as an alias of the one that took its pages, until no page names it any more.

use entresol_core::Page;

const NONE: u32 = u32::MAX;
/// Frequencies below this find their bucket by table; rarer ones walk from the top of the chain.
const TABLE: usize = 1024;

#[derive(Clone, Copy, Debug)]
struct Node {
    /// Towards the most recent page of the bucket.
    newer: u32,
    /// Towards the oldest.
    older: u32,
    /// Bucket, possibly an alias; `NONE` when the page is not held.
    bucket: u32,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    frequency: u32,
    newest: u32,
    oldest: u32,
    /// Bucket with the next lower frequency.
    below: u32,
    /// Bucket with the next higher frequency; for a free bucket the next free one.
    above: u32,
    /// The bucket that took this one's pages, or itself.
    alias: u32,
    /// Pages and aliases that name this bucket.
    names: u32,
    /// Pages in its list.
    pages: u32,
}

/// Pages ordered by frequency of use, and by age within a frequency. 12 bytes a handle, 32 a distinct frequency, 4 KiB fixed.
#[derive(Clone, Debug)]
pub struct FrequencyList {
    nodes: Vec<Node>,
    buckets: Vec<Bucket>,
    free: u32,
    lowest: u32,
    highest: u32,
    table: Vec<u32>,
    occupied: [u64; TABLE / 64],
    len: usize,
    total: u64,
}

impl FrequencyList {
    /// An empty list over handles below `pages`, with room for `capacity` pages.
    pub fn new(pages: usize, capacity: usize) -> Self {
        let absent = Node { newer: NONE, older: NONE, bucket: NONE };
        FrequencyList {
            nodes: vec![absent; pages],
            // Every live bucket and every alias is named by a page; one more exists while a page changes buckets.
            buckets: Vec::with_capacity(capacity.min(pages) + 2),
            free: NONE,
            lowest: NONE,
            highest: NONE,
            table: vec![NONE; TABLE],
            occupied: [0; TABLE / 64],
            len: 0,
            total: 0,
        }
    }

    /// Number of pages held.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when no page is held.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Sum of the frequencies of all pages held.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Is the page held?
    #[inline(always)]
    pub fn contains(&self, page: Page) -> bool {
        self.nodes[page.index()].bucket != NONE
    }

    /// Frequency of a page that is held.
    #[inline]
    pub fn frequency(&self, page: Page) -> u32 {
        self.buckets[self.resolve(self.nodes[page.index()].bucket) as usize].frequency
    }

    /// The lowest frequency of any page held.
    #[inline]
    pub fn min_frequency(&self) -> Option<u32> {
        (self.lowest != NONE).then(|| self.buckets[self.lowest as usize].frequency)
    }

    /// Of the least frequent pages the one that has had this frequency longest.
    #[inline]
    pub fn oldest(&self) -> Option<Page> {
        (self.lowest != NONE).then(|| Page(self.buckets[self.lowest as usize].oldest))
    }

    /// Of the least frequent pages the one that came to this frequency last.
    #[inline]
    pub fn newest(&self) -> Option<Page> {
        (self.lowest != NONE).then(|| Page(self.buckets[self.lowest as usize].newest))
    }

    /// The first page that satisfies a condition, in the order of eviction: by frequency, then oldest first.
    #[inline]
    pub fn oldest_where(&self, wanted: impl FnMut(Page) -> bool) -> Option<Page> {
        self.first_where(wanted, |bucket| bucket.oldest, |node| node.newer)
    }

    /// The first page that satisfies a condition, by frequency, then newest first.
    #[inline]
    pub fn newest_where(&self, wanted: impl FnMut(Page) -> bool) -> Option<Page> {
        self.first_where(wanted, |bucket| bucket.newest, |node| node.older)
    }

    #[inline]
    fn first_where(
        &self,
        mut wanted: impl FnMut(Page) -> bool,
        first: impl Fn(&Bucket) -> u32,
        next: impl Fn(&Node) -> u32,
    ) -> Option<Page> {
        let mut bucket = self.lowest;
        while bucket != NONE {
            let mut page = first(&self.buckets[bucket as usize]);
            while page != NONE {
                if wanted(Page(page)) {
                    return Some(Page(page));
                }
                page = next(&self.nodes[page as usize]);
            }
            bucket = self.buckets[bucket as usize].above;
        }
        None
    }

    /// Adds a page, which is not held, as the newest of its frequency.
    pub fn insert(&mut self, page: Page, frequency: u32) {
        debug_assert!(!self.contains(page), "page {} is held already", page.0);
        let bucket = self.bucket_for(frequency);
        self.attach(bucket, page);
        self.len += 1;
        self.total += u64::from(frequency);
    }

    /// Adds a page, which is not held, as the oldest of its frequency.
    pub fn insert_oldest(&mut self, page: Page, frequency: u32) {
        debug_assert!(!self.contains(page), "page {} is held already", page.0);
        let bucket = self.bucket_for(frequency);
        let b = &mut self.buckets[bucket as usize];
        self.nodes[page.index()] = Node { newer: b.oldest, older: NONE, bucket };
        match b.oldest {
            NONE => b.newest = page.0,
            oldest => self.nodes[oldest as usize].older = page.0,
        }
        b.oldest = page.0;
        b.names += 1;
        b.pages += 1;
        self.len += 1;
        self.total += u64::from(frequency);
    }

    /// Removes a page that is held; returns its frequency.
    pub fn remove(&mut self, page: Page) -> u32 {
        let frequency = self.frequency(page);
        self.detach(page);
        self.nodes[page.index()].bucket = NONE;
        self.len -= 1;
        self.total -= u64::from(frequency);
        frequency
    }

    /// Counts one use of a page that is held: it becomes the newest of the next higher frequency, which is
    /// returned. At `u32::MAX` the frequency stays and only the page's age changes.
    #[inline]
    pub fn bump(&mut self, page: Page) -> u32 {
        let bucket = self.resolve(self.nodes[page.index()].bucket);
        let frequency = self.buckets[bucket as usize].frequency;
        let next = frequency.saturating_add(1);
        let above = self.buckets[bucket as usize].above;
        if self.buckets[bucket as usize].pages == 1
            && next != frequency
            && (above == NONE || self.buckets[above as usize].frequency != next)
        {
            self.raise_alone(bucket, next);
            return next;
        }
        let target = if next == frequency {
            bucket
        } else if above != NONE && self.buckets[above as usize].frequency == next {
            above
        } else {
            self.new_bucket(next, bucket)
        };
        if target == bucket {
            self.insert_again(page, frequency);
        } else {
            self.detach(page);
            self.attach(target, page);
            self.total += 1;
        }
        next
    }

    /// Raises the frequency of a bucket by one, to `next`, which no bucket has: a page that is alone with its frequency
    /// takes its bucket along. The most used pages do so at nearly every use.
    #[inline]
    fn raise_alone(&mut self, bucket: u32, next: u32) {
        let before = next as usize - 1;
        if before < TABLE {
            self.table[before] = NONE;
            self.occupied[before / 64] &= !(1 << (before % 64));
            self.enter_table(next, bucket);
        }
        self.buckets[bucket as usize].frequency = next;
        self.total += 1;
    }

    /// Makes a page that is held the newest of its own frequency.
    pub fn refresh(&mut self, page: Page) {
        let frequency = self.frequency(page);
        self.insert_again(page, frequency);
    }

    fn insert_again(&mut self, page: Page, frequency: u32) {
        self.remove(page);
        self.insert(page, frequency);
    }

    /// Halves all frequencies, rounding down. Where two frequencies become one, the pages of the higher one count
    /// as the newer. Costs a visit of each distinct frequency.
    pub fn halve(&mut self) {
        self.clear_table();
        let mut bucket = self.lowest;
        let mut kept = NONE;
        while bucket != NONE {
            let next = self.buckets[bucket as usize].above;
            let halved = self.buckets[bucket as usize].frequency / 2;
            if kept != NONE && self.buckets[kept as usize].frequency == halved {
                self.join(kept, bucket, End::Newest);
            } else {
                self.buckets[bucket as usize].frequency = halved;
                kept = bucket;
            }
            bucket = next;
        }
        self.rebuild_table();
        // The sum cannot be halved: each frequency was rounded on its own.
        self.total = self.recount();
    }

    fn recount(&self) -> u64 {
        let mut total = 0;
        let mut bucket = self.lowest;
        while bucket != NONE {
            let Bucket { frequency, pages, above, .. } = self.buckets[bucket as usize];
            total += u64::from(frequency) * u64::from(pages);
            bucket = above;
        }
        total
    }

    /// Gives every page the same frequency. Pages of higher frequency go to the old end, so that what was used
    /// most is evicted first (000, section 3.5.2). Costs a visit of each distinct frequency.
    pub fn collapse(&mut self, frequency: u32) {
        self.clear_table();
        if self.lowest == NONE {
            return;
        }
        let kept = self.lowest;
        let mut bucket = self.buckets[kept as usize].above;
        while bucket != NONE {
            let next = self.buckets[bucket as usize].above;
            self.join(kept, bucket, End::Oldest);
            bucket = next;
        }
        self.buckets[kept as usize].frequency = frequency;
        self.rebuild_table();
        self.total = self.len as u64 * u64::from(frequency);
    }

    /// Moves the pages of `from`, the bucket right above `into`, to an end of `into`, and makes it an alias.
    fn join(&mut self, into: u32, from: u32, end: End) {
        let taken = self.buckets[from as usize];
        let kept = self.buckets[into as usize];
        match end {
            End::Newest => {
                self.nodes[kept.newest as usize].newer = taken.oldest;
                self.nodes[taken.oldest as usize].older = kept.newest;
                self.buckets[into as usize].newest = taken.newest;
            }
            End::Oldest => {
                self.nodes[kept.oldest as usize].older = taken.newest;
                self.nodes[taken.newest as usize].newer = kept.oldest;
                self.buckets[into as usize].oldest = taken.oldest;
            }
        }
        self.buckets[into as usize].above = taken.above;
        self.buckets[into as usize].pages += taken.pages;
        match taken.above {
            NONE => self.highest = into,
            above => self.buckets[above as usize].below = into,
        }
        self.buckets[from as usize].alias = into;
        self.buckets[into as usize].names += 1;
    }

    #[inline(always)]
    fn resolve(&self, mut bucket: u32) -> u32 {
        while self.buckets[bucket as usize].alias != bucket {
            bucket = self.buckets[bucket as usize].alias;
        }
        bucket
    }

    fn attach(&mut self, bucket: u32, page: Page) {
        let b = &mut self.buckets[bucket as usize];
        self.nodes[page.index()] = Node { newer: NONE, older: b.newest, bucket };
        match b.newest {
            NONE => b.oldest = page.0,
            newest => self.nodes[newest as usize].newer = page.0,
        }
        b.newest = page.0;
        b.names += 1;
        b.pages += 1;
    }

    fn detach(&mut self, page: Page) {
        let Node { newer, older, bucket: named } = self.nodes[page.index()];
        let bucket = self.resolve(named);
        match newer {
            NONE => self.buckets[bucket as usize].newest = older,
            newer => self.nodes[newer as usize].older = older,
        }
        match older {
            NONE => self.buckets[bucket as usize].oldest = newer,
            older => self.nodes[older as usize].newer = newer,
        }
        self.buckets[bucket as usize].pages -= 1;
        self.unname(named);
    }

    /// One name less: a bucket without any is empty and is freed, and so may be the one it is an alias of.
    fn unname(&mut self, mut bucket: u32) {
        loop {
            let b = &mut self.buckets[bucket as usize];
            b.names -= 1;
            if b.names > 0 {
                return;
            }
            let alias = b.alias;
            if alias == bucket {
                self.unchain(bucket);
            }
            self.buckets[bucket as usize].above = self.free;
            self.free = bucket;
            if alias == bucket {
                return;
            }
            bucket = alias;
        }
    }

    fn unchain(&mut self, bucket: u32) {
        let Bucket { frequency, below, above, .. } = self.buckets[bucket as usize];
        match below {
            NONE => self.lowest = above,
            below => self.buckets[below as usize].above = above,
        }
        match above {
            NONE => self.highest = below,
            above => self.buckets[above as usize].below = below,
        }
        if (frequency as usize) < TABLE {
            self.table[frequency as usize] = NONE;
            self.occupied[frequency as usize / 64] &= !(1 << (frequency % 64));
        }
    }

    fn bucket_for(&mut self, frequency: u32) -> u32 {
        if (frequency as usize) < TABLE {
            let found = self.table[frequency as usize];
            if found != NONE {
                return found;
            }
            let below = self.occupied_below(frequency);
            return self.new_bucket(frequency, below);
        }
        let mut below = self.highest;
        while below != NONE && self.buckets[below as usize].frequency > frequency {
            below = self.buckets[below as usize].below;
        }
        if below != NONE && self.buckets[below as usize].frequency == frequency {
            return below;
        }
        self.new_bucket(frequency, below)
    }

    /// The bucket of the highest frequency below this one, which is below `TABLE`; `NONE` if there is none.
    fn occupied_below(&self, frequency: u32) -> u32 {
        let mut word = frequency as usize / 64;
        let mut bits = self.occupied[word] & ((1u64 << (frequency % 64)) - 1);
        while bits == 0 {
            if word == 0 {
                return NONE;
            }
            word -= 1;
            bits = self.occupied[word];
        }
        self.table[word * 64 + 63 - bits.leading_zeros() as usize]
    }

    /// Chains a new bucket right above `below` (`NONE`: at the low end).
    fn new_bucket(&mut self, frequency: u32, below: u32) -> u32 {
        let above = if below == NONE { self.lowest } else { self.buckets[below as usize].above };
        let fresh = |alias| Bucket { frequency, newest: NONE, oldest: NONE, below, above, alias, names: 0, pages: 0 };
        let bucket = if self.free == NONE {
            self.buckets.push(fresh(self.buckets.len() as u32));
            self.buckets.len() as u32 - 1
        } else {
            let reused = self.free;
            self.free = self.buckets[reused as usize].above;
            self.buckets[reused as usize] = fresh(reused);
            reused
        };
        match below {
            NONE => self.lowest = bucket,
            below => self.buckets[below as usize].above = bucket,
        }
        match above {
            NONE => self.highest = bucket,
            above => self.buckets[above as usize].below = bucket,
        }
        self.enter_table(frequency, bucket);
        bucket
    }

    #[inline(always)]
    fn enter_table(&mut self, frequency: u32, bucket: u32) {
        if (frequency as usize) < TABLE {
            self.table[frequency as usize] = bucket;
            self.occupied[frequency as usize / 64] |= 1 << (frequency % 64);
        }
    }

    fn clear_table(&mut self) {
        for word in 0..self.occupied.len() {
            while self.occupied[word] != 0 {
                self.table[word * 64 + self.occupied[word].trailing_zeros() as usize] = NONE;
                self.occupied[word] &= self.occupied[word] - 1;
            }
        }
    }

    fn rebuild_table(&mut self) {
        let mut bucket = self.lowest;
        while bucket != NONE {
            let Bucket { frequency, above, .. } = self.buckets[bucket as usize];
            self.enter_table(frequency, bucket);
            bucket = above;
        }
    }

    /// Loads a page's node into the processor's cache.
    #[inline(always)]
    pub fn prefetch(&self, page: Page) {
        entresol_core::prefetch(&self.nodes, page.index());
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>() + self.buckets.capacity() * size_of::<Bucket>() + TABLE * 4
    }
}

enum End {
    Newest,
    Oldest,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Use(u32),
        Insert(u32, u32),
        InsertOldest(u32, u32),
        Remove(u32),
        Refresh(u32),
        Halve,
        Collapse(u32),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => (0..16u32).prop_map(Step::Use),
            2 => (0..16u32, prop_oneof![0..8u32, 1020..1030u32]).prop_map(|(p, f)| Step::Insert(p, f)),
            1 => (0..16u32, prop_oneof![0..8u32, 1020..1030u32]).prop_map(|(p, f)| Step::InsertOldest(p, f)),
            2 => (0..16u32).prop_map(Step::Remove),
            1 => (0..16u32).prop_map(Step::Refresh),
            1 => Just(Step::Halve),
            1 => (0..2u32).prop_map(Step::Collapse),
        ]
    }

    /// The obvious form: (frequency, page) pairs in the order of eviction.
    fn insert(model: &mut Vec<(u32, u32)>, frequency: u32, page: u32) {
        let at = model.iter().position(|&(f, _)| f > frequency).unwrap_or(model.len());
        model.insert(at, (frequency, page));
    }

    fn take(model: &mut Vec<(u32, u32)>, page: u32) -> Option<u32> {
        let at = model.iter().position(|&(_, p)| p == page)?;
        Some(model.remove(at).0)
    }

    proptest! {
        #[test]
        fn behaves_like_a_sorted_vector(steps in proptest::collection::vec(step(), 0..300)) {
            let mut list = FrequencyList::new(16, 16);
            let mut model: Vec<(u32, u32)> = Vec::new();
            for step in steps {
                match step {
                    Step::Use(p) => match take(&mut model, p) {
                        Some(f) => {
                            insert(&mut model, f + 1, p);
                            prop_assert_eq!(list.bump(Page(p)), f + 1);
                        }
                        None => {
                            insert(&mut model, 1, p);
                            list.insert(Page(p), 1);
                        }
                    },
                    Step::Insert(p, f) => if !list.contains(Page(p)) {
                        insert(&mut model, f, p);
                        list.insert(Page(p), f);
                    },
                    Step::InsertOldest(p, f) => if !list.contains(Page(p)) {
                        let at = model.iter().position(|&(other, _)| other >= f).unwrap_or(model.len());
                        model.insert(at, (f, p));
                        list.insert_oldest(Page(p), f);
                    },
                    Step::Remove(p) => if let Some(f) = take(&mut model, p) {
                        prop_assert_eq!(list.remove(Page(p)), f);
                    },
                    Step::Refresh(p) => if let Some(f) = take(&mut model, p) {
                        insert(&mut model, f, p);
                        list.refresh(Page(p));
                    },
                    Step::Halve => {
                        list.halve();
                        model.iter_mut().for_each(|(f, _)| *f /= 2);
                    }
                    Step::Collapse(f) => {
                        list.collapse(f);
                        // Each list, the lowest frequency first, is put at the old end of what is there.
                        let mut joined: Vec<(u32, u32)> = Vec::new();
                        let mut frequencies: Vec<u32> = model.iter().map(|&(f, _)| f).collect();
                        frequencies.dedup();
                        for old in frequencies {
                            let mut group: Vec<_> = model.iter().filter(|e| e.0 == old).map(|e| (f, e.1)).collect();
                            group.append(&mut joined);
                            joined = group;
                        }
                        model = joined;
                    }
                }
                let mut seen = Vec::new();
                list.oldest_where(|p| { seen.push((list.frequency(p), p.0)); false });
                prop_assert_eq!(&seen, &model);
                prop_assert_eq!(list.len(), model.len());
                prop_assert_eq!(list.total(), model.iter().map(|&(f, _)| u64::from(f)).sum::<u64>());
                prop_assert!(list.buckets.len() <= 18);
            }
        }
    }
}
