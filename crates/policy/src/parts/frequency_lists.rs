//! Pages ordered by how often they were used, in constant time per use: the structure under every LFU here.
//!
//! Pages of one frequency form a list, the oldest at its back; the lists hang in a chain of buckets of ascending
//! frequency (Shah, Mitra, Matani, "An O(1) algorithm for implementing the LFU cache eviction scheme", 2010).
//! Two operations change all frequencies at once without a visit to every page: [`FrequencyLists::halve`] (aging)
//! and [`FrequencyLists::collapse`] (HeuristicDB's eviction and demotion). They join whole lists; the joined bucket
//! is left as an alias of the one that took its pages, until no page names it any more.
//!
//! Several such lists may share the nodes of their pages; a page is in one list at most. Then a use touches one array,
//! and the memory per page does not grow with the number of lists.

use super::lists::ListId;
use entresol_core::Page;

const NONE: u32 = u32::MAX;
/// Frequencies below this find their bucket by table; rarer ones walk from the top of the chain.
const TABLE: usize = 1024;
/// Buckets that there is memory for from the start. More distinct frequencies take many uses, so memory for as many as
/// there are pages would be lost: the array doubles when that is needed.
const BUCKETS: usize = 1024;

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

/// `K` lists of pages ordered by frequency of use, and by age within a frequency. A page is in at most one of them; the
/// policy remembers in which. 12 bytes a handle, 32 a distinct frequency of a list, 4 KiB a list.
#[derive(Clone, Debug)]
pub struct FrequencyLists<const K: usize> {
    nodes: Vec<Node>,
    buckets: Vec<Bucket>,
    free: u32,
    chains: [Chain; K],
}

/// The buckets of one list.
#[derive(Clone, Debug)]
struct Chain {
    lowest: u32,
    highest: u32,
    table: Vec<u32>,
    occupied: [u64; TABLE / 64],
    len: usize,
    total: u64,
}

impl<const K: usize> FrequencyLists<K> {
    /// `K` empty lists over handles below `pages`, of which at most `capacity` are held.
    pub fn new(pages: usize, capacity: usize) -> Self {
        let absent = Node { newer: NONE, older: NONE, bucket: NONE };
        let chain = || Chain {
            lowest: NONE,
            highest: NONE,
            table: vec![NONE; TABLE],
            occupied: [0; TABLE / 64],
            len: 0,
            total: 0,
        };
        FrequencyLists {
            nodes: vec![absent; pages],
            // Every live bucket and every alias is named by a page; one more exists while a page changes buckets.
            buckets: Vec::with_capacity(BUCKETS.min(capacity.min(pages) + 2)),
            free: NONE,
            chains: std::array::from_fn(|_| chain()),
        }
    }

    /// Number of pages held.
    pub fn len(&self, list: ListId) -> usize {
        self.chains[list].len
    }

    /// True when no page is held.
    pub fn is_empty(&self, list: ListId) -> bool {
        self.chains[list].len == 0
    }

    /// Sum of the frequencies of all pages held.
    pub fn total(&self, list: ListId) -> u64 {
        self.chains[list].total
    }

    /// True if the page is held.
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
    pub fn min_frequency(&self, list: ListId) -> Option<u32> {
        (self.chains[list].lowest != NONE).then(|| self.buckets[self.chains[list].lowest as usize].frequency)
    }

    /// The least frequent page; of equals the one that has had its frequency longest.
    #[inline]
    pub fn oldest(&self, list: ListId) -> Option<Page> {
        (self.chains[list].lowest != NONE).then(|| Page(self.buckets[self.chains[list].lowest as usize].oldest))
    }

    /// The least frequent page; of equals the one that came to its frequency last.
    #[inline]
    pub fn newest(&self, list: ListId) -> Option<Page> {
        (self.chains[list].lowest != NONE).then(|| Page(self.buckets[self.chains[list].lowest as usize].newest))
    }

    /// The first page that satisfies a condition, in the order of eviction: by frequency, then oldest first.
    #[inline]
    pub fn oldest_where(&self, list: ListId, wanted: impl FnMut(Page) -> bool) -> Option<Page> {
        self.first_where(list, wanted, |bucket| bucket.oldest, |node| node.newer)
    }

    /// The first page that satisfies a condition, by frequency, then newest first.
    #[inline]
    pub fn newest_where(&self, list: ListId, wanted: impl FnMut(Page) -> bool) -> Option<Page> {
        self.first_where(list, wanted, |bucket| bucket.newest, |node| node.older)
    }

    #[inline]
    fn first_where(
        &self,
        list: ListId,
        mut wanted: impl FnMut(Page) -> bool,
        first: impl Fn(&Bucket) -> u32,
        next: impl Fn(&Node) -> u32,
    ) -> Option<Page> {
        let mut bucket = self.chains[list].lowest;
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
    pub fn insert(&mut self, list: ListId, page: Page, frequency: u32) {
        debug_assert!(!self.contains(page), "page {} is held already", page.0);
        let bucket = self.bucket_for(list, frequency);
        self.attach(bucket, page);
        self.chains[list].len += 1;
        self.chains[list].total += u64::from(frequency);
    }

    /// Adds a page, which is not held, as the newest of its frequency but for those at the new end that satisfy
    /// `stays_newer`. Costs a visit of each of these.
    pub fn insert_below(&mut self, list: ListId, page: Page, frequency: u32, stays_newer: impl Fn(Page) -> bool) {
        debug_assert!(!self.contains(page), "page {} is held already", page.0);
        let bucket = self.bucket_for(list, frequency);
        let (mut newer, mut older) = (NONE, self.buckets[bucket as usize].newest);
        while older != NONE && stays_newer(Page(older)) {
            (newer, older) = (older, self.nodes[older as usize].older);
        }
        self.nodes[page.index()] = Node { newer, older, bucket };
        let b = &mut self.buckets[bucket as usize];
        match newer {
            NONE => b.newest = page.0,
            newer => self.nodes[newer as usize].older = page.0,
        }
        match older {
            NONE => b.oldest = page.0,
            older => self.nodes[older as usize].newer = page.0,
        }
        b.names += 1;
        b.pages += 1;
        self.chains[list].len += 1;
        self.chains[list].total += u64::from(frequency);
    }

    /// Adds a page, which is not held, as the oldest of its frequency.
    pub fn insert_oldest(&mut self, list: ListId, page: Page, frequency: u32) {
        debug_assert!(!self.contains(page), "page {} is held already", page.0);
        let bucket = self.bucket_for(list, frequency);
        let b = &mut self.buckets[bucket as usize];
        self.nodes[page.index()] = Node { newer: b.oldest, older: NONE, bucket };
        match b.oldest {
            NONE => b.newest = page.0,
            oldest => self.nodes[oldest as usize].older = page.0,
        }
        b.oldest = page.0;
        b.names += 1;
        b.pages += 1;
        self.chains[list].len += 1;
        self.chains[list].total += u64::from(frequency);
    }

    /// Removes a page that is held; returns its frequency.
    pub fn remove(&mut self, list: ListId, page: Page) -> u32 {
        let frequency = self.frequency(page);
        self.detach(list, page);
        self.nodes[page.index()].bucket = NONE;
        self.chains[list].len -= 1;
        self.chains[list].total -= u64::from(frequency);
        frequency
    }

    /// Counts one use of a page that is held: it becomes the newest of the next higher frequency, which is
    /// returned. At `u32::MAX` the frequency stays and only the page's age changes.
    #[inline]
    pub fn bump(&mut self, list: ListId, page: Page) -> u32 {
        let bucket = self.resolve(self.nodes[page.index()].bucket);
        let frequency = self.buckets[bucket as usize].frequency;
        let next = frequency.saturating_add(1);
        let above = self.buckets[bucket as usize].above;
        if self.buckets[bucket as usize].pages == 1
            && next != frequency
            && (above == NONE || self.buckets[above as usize].frequency != next)
        {
            self.raise_alone(list, bucket, next);
            return next;
        }
        let target = if next == frequency {
            bucket
        } else if above != NONE && self.buckets[above as usize].frequency == next {
            above
        } else {
            self.new_bucket(list, next, bucket)
        };
        if target == bucket {
            self.insert_again(list, page, frequency);
        } else {
            self.detach(list, page);
            self.attach(target, page);
            self.chains[list].total += 1;
        }
        next
    }

    /// Raises the frequency of a bucket by one, to `next`, which no bucket has. A page that is alone with its frequency
    /// takes its bucket along, as the most used pages do at nearly every use.
    #[inline]
    fn raise_alone(&mut self, list: ListId, bucket: u32, next: u32) {
        let before = next as usize - 1;
        if before < TABLE {
            self.chains[list].table[before] = NONE;
            self.chains[list].occupied[before / 64] &= !(1 << (before % 64));
            self.enter_table(list, next, bucket);
        }
        self.buckets[bucket as usize].frequency = next;
        self.chains[list].total += 1;
    }

    /// Makes a page that is held the newest of its own frequency.
    pub fn refresh(&mut self, list: ListId, page: Page) {
        let frequency = self.frequency(page);
        self.insert_again(list, page, frequency);
    }

    fn insert_again(&mut self, list: ListId, page: Page, frequency: u32) {
        self.remove(list, page);
        self.insert(list, page, frequency);
    }

    /// Halves all frequencies, rounding down. Where two frequencies become one, the pages of the higher one count
    /// as the newer. Costs a visit of each distinct frequency.
    pub fn halve(&mut self, list: ListId) {
        self.clear_table(list);
        let mut bucket = self.chains[list].lowest;
        let mut kept = NONE;
        while bucket != NONE {
            let next = self.buckets[bucket as usize].above;
            let halved = self.buckets[bucket as usize].frequency / 2;
            if kept != NONE && self.buckets[kept as usize].frequency == halved {
                self.join(list, kept, bucket, End::Newest);
            } else {
                self.buckets[bucket as usize].frequency = halved;
                kept = bucket;
            }
            bucket = next;
        }
        self.rebuild_table(list);
        // The sum cannot be halved: each frequency was rounded on its own.
        self.chains[list].total = self.recount(list);
    }

    fn recount(&self, list: ListId) -> u64 {
        let mut total = 0;
        let mut bucket = self.chains[list].lowest;
        while bucket != NONE {
            let Bucket { frequency, pages, above, .. } = self.buckets[bucket as usize];
            total += u64::from(frequency) * u64::from(pages);
            bucket = above;
        }
        total
    }

    /// Gives every page the same frequency. Pages of higher frequency go to the old end, so that what was used
    /// most is evicted first (000, section 3.5.2). Costs a visit of each distinct frequency.
    pub fn collapse(&mut self, list: ListId, frequency: u32) {
        self.clear_table(list);
        if self.chains[list].lowest == NONE {
            return;
        }
        let kept = self.chains[list].lowest;
        let mut bucket = self.buckets[kept as usize].above;
        while bucket != NONE {
            let next = self.buckets[bucket as usize].above;
            self.join(list, kept, bucket, End::Oldest);
            bucket = next;
        }
        self.buckets[kept as usize].frequency = frequency;
        self.rebuild_table(list);
        self.chains[list].total = self.chains[list].len as u64 * u64::from(frequency);
    }

    /// Moves the pages of `from`, the bucket right above `into`, to an end of `into`, and makes it an alias.
    fn join(&mut self, list: ListId, into: u32, from: u32, end: End) {
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
            NONE => self.chains[list].highest = into,
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

    fn detach(&mut self, list: ListId, page: Page) {
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
        self.unname(list, named);
    }

    /// Drops one name of a bucket. A bucket without names is empty and is freed; the bucket that it was an alias of may
    /// follow.
    fn unname(&mut self, list: ListId, mut bucket: u32) {
        loop {
            let b = &mut self.buckets[bucket as usize];
            b.names -= 1;
            if b.names > 0 {
                return;
            }
            let alias = b.alias;
            if alias == bucket {
                self.unchain(list, bucket);
            }
            self.buckets[bucket as usize].above = self.free;
            self.free = bucket;
            if alias == bucket {
                return;
            }
            bucket = alias;
        }
    }

    fn unchain(&mut self, list: ListId, bucket: u32) {
        let Bucket { frequency, below, above, .. } = self.buckets[bucket as usize];
        match below {
            NONE => self.chains[list].lowest = above,
            below => self.buckets[below as usize].above = above,
        }
        match above {
            NONE => self.chains[list].highest = below,
            above => self.buckets[above as usize].below = below,
        }
        if (frequency as usize) < TABLE {
            self.chains[list].table[frequency as usize] = NONE;
            self.chains[list].occupied[frequency as usize / 64] &= !(1 << (frequency % 64));
        }
    }

    fn bucket_for(&mut self, list: ListId, frequency: u32) -> u32 {
        if (frequency as usize) < TABLE {
            let found = self.chains[list].table[frequency as usize];
            if found != NONE {
                return found;
            }
            let below = self.occupied_below(list, frequency);
            return self.new_bucket(list, frequency, below);
        }
        let mut below = self.chains[list].highest;
        while below != NONE && self.buckets[below as usize].frequency > frequency {
            below = self.buckets[below as usize].below;
        }
        if below != NONE && self.buckets[below as usize].frequency == frequency {
            return below;
        }
        self.new_bucket(list, frequency, below)
    }

    /// The bucket of the highest frequency below this one, which is below `TABLE`; `NONE` if there is none.
    fn occupied_below(&self, list: ListId, frequency: u32) -> u32 {
        let mut word = frequency as usize / 64;
        let mut bits = self.chains[list].occupied[word] & ((1u64 << (frequency % 64)) - 1);
        while bits == 0 {
            if word == 0 {
                return NONE;
            }
            word -= 1;
            bits = self.chains[list].occupied[word];
        }
        self.chains[list].table[word * 64 + 63 - bits.leading_zeros() as usize]
    }

    /// Chains a new bucket right above `below` (`NONE`: at the low end).
    fn new_bucket(&mut self, list: ListId, frequency: u32, below: u32) -> u32 {
        let above = if below == NONE { self.chains[list].lowest } else { self.buckets[below as usize].above };
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
            NONE => self.chains[list].lowest = bucket,
            below => self.buckets[below as usize].above = bucket,
        }
        match above {
            NONE => self.chains[list].highest = bucket,
            above => self.buckets[above as usize].below = bucket,
        }
        self.enter_table(list, frequency, bucket);
        bucket
    }

    #[inline(always)]
    fn enter_table(&mut self, list: ListId, frequency: u32, bucket: u32) {
        if (frequency as usize) < TABLE {
            self.chains[list].table[frequency as usize] = bucket;
            self.chains[list].occupied[frequency as usize / 64] |= 1 << (frequency % 64);
        }
    }

    fn clear_table(&mut self, list: ListId) {
        for word in 0..self.chains[list].occupied.len() {
            while self.chains[list].occupied[word] != 0 {
                self.chains[list].table[word * 64 + self.chains[list].occupied[word].trailing_zeros() as usize] = NONE;
                self.chains[list].occupied[word] &= self.chains[list].occupied[word] - 1;
            }
        }
    }

    fn rebuild_table(&mut self, list: ListId) {
        let mut bucket = self.chains[list].lowest;
        while bucket != NONE {
            let Bucket { frequency, above, .. } = self.buckets[bucket as usize];
            self.enter_table(list, frequency, bucket);
            bucket = above;
        }
    }

    /// Loads a page's node into the processor's cache.
    #[inline(always)]
    pub fn prefetch(&self, page: Page) {
        entresol_core::prefetch(&self.nodes, page.index());
    }

    /// Buckets that were ever in use at once, aliases included.
    #[cfg(test)]
    pub fn buckets_used(&self) -> usize {
        self.buckets.len()
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>() + self.buckets.capacity() * size_of::<Bucket>() + K * TABLE * 4
    }
}

enum End {
    Newest,
    Oldest,
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_core::Random;

    /// Two lists over the same pages against vectors of (frequency, stamp, page) in the order of eviction.
    #[test]
    fn lists_that_share_nodes_do_not_meet() {
        let seed = 5;
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let mut lists = FrequencyLists::<2>::new(24, 24);
        let mut model: [Vec<(u32, u64, u32)>; 2] = Default::default();
        let mut stamps = [0; 24];
        for stamp in 1..20_000u64 {
            let page = random.below(24) as u32;
            let home = (0..2).find(|&list| model[list].iter().any(|&(.., held)| held == page));
            match (home, random.below(3)) {
                (None, draw) => {
                    // Half of the pages come with an old stamp, and belong below those of their frequency since then.
                    let (list, frequency) = (draw as usize % 2, random.below(4) as u32);
                    let stamp = if random.chance(0.5) { stamp } else { random.below(stamp) };
                    stamps[page as usize] = stamp;
                    lists.insert_below(list, Page(page), frequency, |other| stamps[other.index()] > stamp);
                    let before = |&(f, s, _): &(u32, u64, u32)| (f, s) <= (frequency, stamp);
                    let at = model[list].iter().filter(|entry| before(entry)).count();
                    model[list].insert(at, (frequency, stamp, page));
                }
                (Some(list), 0) => {
                    let at = model[list].iter().position(|&(.., held)| held == page).expect("it is held");
                    assert_eq!(lists.remove(list, Page(page)), model[list].remove(at).0);
                }
                (Some(list), _) => {
                    let at = model[list].iter().position(|&(.., held)| held == page).expect("it is held");
                    let (frequency, ..) = model[list].remove(at);
                    stamps[page as usize] = stamp;
                    model[list].push((frequency + 1, stamp, page));
                    model[list].sort_unstable();
                    assert_eq!(lists.bump(list, Page(page)), frequency + 1);
                }
            }
            for (list, model) in model.iter().enumerate() {
                let mut seen = Vec::new();
                lists.oldest_where(list, |page| {
                    seen.push((lists.frequency(page), stamps[page.index()], page.0));
                    false
                });
                assert_eq!(&seen, model, "list {list} after {stamp} steps");
                assert_eq!(lists.len(list), model.len());
                assert_eq!(lists.total(list), model.iter().map(|&(f, ..)| u64::from(f)).sum::<u64>());
            }
            assert!(lists.buckets_used() <= 26);
        }
    }
}
