//! Groups of neighbouring pages: extents, erase blocks, cache blocks, whole objects.
//!
//! A group is found by its address through an open-addressing table of fixed size, so nothing grows. A policy keeps its
//! data of a group in arrays indexed by the group's slot.

use entresol_core::{Address, ObjectId, Page, Random};

const NONE: u32 = u32::MAX;

/// A group of pages: the `number`-th run of equal length of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group {
    /// The object.
    pub object: ObjectId,
    /// Number of the group within the object.
    pub number: u64,
}

impl Group {
    /// The group of `pages` pages that an address lies in.
    #[inline(always)]
    pub fn of(address: Address, pages: u64) -> Self {
        Group { object: address.object, number: address.block / pages }
    }

    #[inline(always)]
    fn hash(self) -> u64 {
        Random::mix(self.number ^ (u64::from(self.object.0) << 40).wrapping_add(u64::from(self.object.0)))
    }
}

/// Finds the slot of a group. Slots are `0..capacity`, the lowest free one is given first and one that was freed last
/// is given again first. 12 bytes a slot for the group and 10 for the table, which is at most two fifths full.
#[derive(Clone, Debug)]
pub struct GroupTable {
    /// Slot of each bucket; linear probing, and deletion moves the rest of a cluster up, so there are no tombstones.
    buckets: Vec<u32>,
    /// Group of each slot in use; a free slot has the next free one.
    groups: Vec<Packed>,
    /// The slot to be given next; `NONE` when all are in use.
    free: u32,
    len: usize,
}

/// A group without the padding of [`Group`]: the object, the number's lower half, its upper half.
type Packed = [u32; 3];

fn pack(group: Group) -> Packed {
    [group.object.0, group.number as u32, (group.number >> 32) as u32]
}

fn unpack([object, low, high]: Packed) -> Group {
    Group { object: ObjectId(object), number: u64::from(high) << 32 | u64::from(low) }
}

/// The group of a free slot after which `next` is to be given.
fn free_slot(next: u32) -> Packed {
    [next, 0, 0]
}

impl GroupTable {
    /// An empty table for at most `capacity` groups.
    pub fn new(capacity: usize) -> Self {
        let next = (1..capacity as u32).chain([NONE]).take(capacity);
        GroupTable {
            buckets: vec![NONE; 2 * capacity + capacity / 2 + 1],
            groups: next.map(free_slot).collect(),
            free: if capacity == 0 { NONE } else { 0 },
            len: 0,
        }
    }

    /// Number of groups held.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when no group is held.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// True when no further group fits.
    pub fn is_full(&self) -> bool {
        self.free == NONE
    }

    /// The most groups held.
    pub fn capacity(&self) -> usize {
        self.groups.len()
    }

    /// The group in a slot that is in use.
    #[inline(always)]
    pub fn group(&self, slot: u32) -> Group {
        unpack(self.groups[slot as usize])
    }

    /// The bucket where the search for a group begins.
    #[inline(always)]
    fn home(&self, group: Group) -> usize {
        ((u128::from(group.hash()) * self.buckets.len() as u128) >> 64) as usize
    }

    /// The bucket after this one, in a ring.
    #[inline(always)]
    fn after(&self, bucket: usize) -> usize {
        if bucket + 1 == self.buckets.len() { 0 } else { bucket + 1 }
    }

    /// Bucket of a group, or the free one where it belongs.
    #[inline(always)]
    fn bucket(&self, group: Group) -> usize {
        let packed = pack(group);
        let mut bucket = self.home(group);
        while self.buckets[bucket] != NONE && self.groups[self.buckets[bucket] as usize] != packed {
            bucket = self.after(bucket);
        }
        bucket
    }

    /// The slot of a group that is held.
    #[inline(always)]
    pub fn find(&self, group: Group) -> Option<u32> {
        let slot = self.buckets[self.bucket(group)];
        (slot != NONE).then_some(slot)
    }

    /// Adds a group, which is not held, and returns its slot.
    ///
    /// # Panics
    /// When the table is full.
    pub fn insert(&mut self, group: Group) -> u32 {
        let bucket = self.bucket(group);
        debug_assert_eq!(self.buckets[bucket], NONE, "{group:?} is held already");
        assert!(!self.is_full(), "no slot is free");
        let slot = self.free;
        [self.free, ..] = self.groups[slot as usize];
        self.buckets[bucket] = slot;
        self.groups[slot as usize] = pack(group);
        self.len += 1;
        slot
    }

    /// Removes the group in a slot that is in use.
    pub fn remove(&mut self, slot: u32) {
        let len = self.buckets.len();
        let steps = |from: usize, to: usize| if to >= from { to - from } else { to + len - from };
        let mut hole = self.bucket(self.group(slot));
        debug_assert_eq!(self.buckets[hole], slot, "slot {slot} is not in use");
        let mut next = hole;
        loop {
            next = self.after(next);
            if self.buckets[next] == NONE {
                break;
            }
            let home = self.home(self.group(self.buckets[next]));
            // An entry may move up to the hole unless its home lies behind it.
            if steps(home, next) >= steps(hole, next) {
                self.buckets[hole] = self.buckets[next];
                hole = next;
            }
        }
        self.buckets[hole] = NONE;
        self.groups[slot as usize] = free_slot(self.free);
        self.free = slot;
        self.len -= 1;
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        self.buckets.capacity() * 4 + self.groups.capacity() * size_of::<Packed>()
    }
}

#[derive(Clone, Copy, Debug)]
struct Link {
    /// Link towards the oldest page; for the oldest page the newest one, so that both ends are at hand.
    prev: u32,
    /// Link towards the newest page; `NONE` for the newest.
    next: u32,
}

/// A list of pages for every group, oldest first: as many lists as there are slots, a page in at most one of them.
/// 8 bytes a handle and 4 a slot.
#[derive(Clone, Debug)]
pub struct GroupLists {
    links: Vec<Link>,
    oldest: Vec<u32>,
}

impl GroupLists {
    /// Empty lists for slots below `groups` over handles below `pages`.
    pub fn new(pages: usize, groups: usize) -> Self {
        GroupLists { links: vec![Link { prev: NONE, next: NONE }; pages], oldest: vec![NONE; groups] }
    }

    /// True if the page is in some list.
    #[inline(always)]
    pub fn contains(&self, page: Page) -> bool {
        self.links[page.index()].prev != NONE
    }

    /// True when a group has no page in its list.
    #[inline(always)]
    pub fn is_empty(&self, slot: u32) -> bool {
        self.oldest[slot as usize] == NONE
    }

    /// Adds a page, which is in no list, as the newest of a group.
    pub fn push(&mut self, slot: u32, page: Page) {
        debug_assert!(!self.contains(page), "page {} is in a list", page.0);
        let oldest = self.oldest[slot as usize];
        if oldest == NONE {
            self.oldest[slot as usize] = page.0;
            self.links[page.index()] = Link { prev: page.0, next: NONE };
        } else {
            let newest = std::mem::replace(&mut self.links[oldest as usize].prev, page.0);
            self.links[newest as usize].next = page.0;
            self.links[page.index()] = Link { prev: newest, next: NONE };
        }
    }

    /// Removes a page from the list of its group, which the caller names.
    pub fn remove(&mut self, slot: u32, page: Page) {
        let Link { prev, next } = self.links[page.index()];
        debug_assert_ne!(prev, NONE, "page {} is in no list", page.0);
        let oldest = self.oldest[slot as usize];
        if oldest == page.0 {
            self.oldest[slot as usize] = next;
        } else {
            self.links[prev as usize].next = next;
        }
        match next {
            // The page was the newest; when it was the oldest too, its own link is cleared below.
            NONE => self.links[oldest as usize].prev = prev,
            next => self.links[next as usize].prev = prev,
        }
        self.links[page.index()] = Link { prev: NONE, next: NONE };
    }

    /// The oldest page of a group.
    #[inline(always)]
    pub fn oldest(&self, slot: u32) -> Option<Page> {
        let oldest = self.oldest[slot as usize];
        (oldest != NONE).then_some(Page(oldest))
    }

    /// Pages of a group, oldest first.
    pub fn iter(&self, slot: u32) -> impl Iterator<Item = Page> + '_ {
        std::iter::successors(self.oldest(slot), |page| {
            let next = self.links[page.index()].next;
            (next != NONE).then_some(Page(next))
        })
    }

    /// Loads a page's links into the processor's cache.
    #[inline(always)]
    pub fn prefetch(&self, page: Page) {
        entresol_core::prefetch(&self.links, page.index());
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        self.links.capacity() * size_of::<Link>() + self.oldest.capacity() * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn the_table_behaves_like_a_map(steps in proptest::collection::vec((0..3u32, 0..12u64, any::<bool>()), 0..300)) {
            let mut table = GroupTable::new(9);
            let mut model: BTreeMap<Group, u32> = BTreeMap::new();
            for (object, number, add) in steps {
                let group = Group { object: ObjectId(object), number };
                match (add, model.get(&group).copied()) {
                    (true, None) if !table.is_full() => {
                        let slot = table.insert(group);
                        prop_assert!(slot < 9 && model.values().all(|&other| other != slot));
                        model.insert(group, slot);
                    }
                    (false, Some(slot)) => {
                        table.remove(slot);
                        model.remove(&group);
                    }
                    _ => {}
                }
                prop_assert_eq!(table.len(), model.len());
                prop_assert_eq!(table.is_full(), model.len() == table.capacity());
                for object in 0..3 {
                    for number in 0..12 {
                        let group = Group { object: ObjectId(object), number };
                        prop_assert_eq!(table.find(group), model.get(&group).copied());
                    }
                }
                for (group, slot) in &model {
                    prop_assert_eq!(table.group(*slot), *group);
                }
            }
        }

        #[test]
        fn the_lists_behave_like_vectors(steps in proptest::collection::vec((0..4u32, 0..16u32), 0..300)) {
            let mut lists = GroupLists::new(16, 4);
            let mut model: [Vec<u32>; 4] = Default::default();
            for (slot, page) in steps {
                match model.iter().position(|list| list.contains(&page)) {
                    Some(home) => {
                        lists.remove(home as u32, Page(page));
                        model[home].retain(|&other| other != page);
                    }
                    None => {
                        lists.push(slot, Page(page));
                        model[slot as usize].push(page);
                    }
                }
                for (slot, list) in model.iter().enumerate() {
                    let got: Vec<u32> = lists.iter(slot as u32).map(|page| page.0).collect();
                    prop_assert_eq!(&got, list);
                    prop_assert_eq!(lists.is_empty(slot as u32), list.is_empty());
                }
                prop_assert!((0..16).all(|p| lists.contains(Page(p)) == model.iter().any(|list| list.contains(&p))));
            }
        }
    }

    #[test]
    fn an_address_lies_in_its_group() {
        let address = |block| Address { object: ObjectId(2), block };
        assert_eq!(Group::of(address(63), 32), Group { object: ObjectId(2), number: 1 });
        assert_eq!(Group::of(address(64), 32), Group { object: ObjectId(2), number: 2 });
    }
}
