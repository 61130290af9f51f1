//! Objects: the files, tables or disks that the pages of a backing store belong to, and an account of each.
//!
//! A policy may ask for a page's object ([`Driver::address`](entresol_policy::Driver::address)). A plain range of bytes
//! is one object. A server of several objects over one cache names the pages of each before the first of them is
//! requested.

use entresol_core::{Address, Movement, ObjectId, Op, Outcome, Page, Tier, Verb};
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};

/// Object of the pages that belong to no named one: all of a plain range of bytes, and pages left by removed objects.
pub const REST: ObjectId = ObjectId(0);

/// Pages, or requests for them, in memory and on the cache device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByTier {
    /// In the upper tier of a policy that has two.
    pub memory: u64,
    /// On the cache device.
    pub device: u64,
}

impl ByTier {
    fn of(&mut self, is_device: bool) -> &mut u64 {
        if is_device { &mut self.device } else { &mut self.memory }
    }

    fn add(&mut self, other: ByTier) {
        self.memory += other.memory;
        self.device += other.device;
    }
}

/// Account of one object in pages, since it was named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectCounts {
    /// Reads.
    pub reads: u64,
    /// Reads found in a tier.
    pub read_hits: ByTier,
    /// Writes, whole or partial.
    pub writes: u64,
    /// Writes whose page was in a tier.
    pub write_hits: ByTier,
    /// Writes, in write-back mode, to a page that was dirty in the cache: the replaced version never goes below.
    pub absorbed: u64,
    /// Pages that the policy wrote back; none but in write-back mode.
    pub write_backs: u64,
    /// Pages that the policy holds now.
    pub resident: ByTier,
}

impl ObjectCounts {
    fn add(&mut self, other: ObjectCounts) {
        let ObjectCounts { reads, read_hits, writes, write_hits, absorbed, write_backs, resident } = other;
        self.reads += reads;
        self.writes += writes;
        self.absorbed += absorbed;
        self.write_backs += write_backs;
        self.read_hits.add(read_hits);
        self.write_hits.add(write_hits);
        self.resident.add(resident);
    }
}

/// Consecutive pages of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    first: u64,
    pages: u64,
    object: ObjectId,
    /// Number of the first page within the object.
    block: u64,
}

impl Extent {
    fn has(&self, page: u64) -> bool {
        (self.first..self.first + self.pages).contains(&page)
    }
}

/// A set of handles: a bit for each that ever was in it.
#[derive(Debug, Default)]
struct Handles(Vec<u64>);

impl Handles {
    /// Puts a handle in, or takes it out. True if that changed anything.
    fn set(&mut self, handle: Page, within: bool) -> bool {
        let (word, bit) = (handle.index() / 64, 1 << (handle.index() % 64));
        if word >= self.0.len() {
            if !within {
                return false;
            }
            self.0.resize(word + 1, 0);
        }
        let before = self.0[word] & bit != 0;
        if before != within {
            self.0[word] ^= bit;
        }
        before != within
    }
}

/// The pages of each object, and its account. Memory: objects, their extents, and two bits for each handle.
#[derive(Debug)]
pub struct Objects {
    objects_max: usize,
    /// Pages of the whole range: the size of [`REST`].
    all_pages: u64,
    extents: BTreeMap<u64, Extent>,
    /// First pages of extents, by object and block.
    blocks: BTreeMap<(u32, u64), u64>,
    /// Size in pages, by object.
    sizes: Vec<u64>,
    counts: Vec<ObjectCounts>,
    /// Numbers of removed objects. The number that was free longest is given first, since a policy may still remember
    /// the last object of that number.
    free: VecDeque<ObjectId>,
    /// Extent of the last request: requests come in runs.
    last: Cell<Option<Extent>>,
    memory: Handles,
    device: Handles,
}

impl Objects {
    /// No objects except [`REST`] yet. At most `objects_max` exist at once, [`REST`] included.
    pub fn new(objects_max: usize) -> Self {
        Objects {
            objects_max: objects_max.max(1),
            all_pages: 0,
            extents: BTreeMap::new(),
            blocks: BTreeMap::new(),
            sizes: vec![0],
            counts: vec![ObjectCounts::default()],
            free: VecDeque::new(),
            last: Cell::new(None),
            memory: Handles::default(),
            device: Handles::default(),
        }
    }

    /// Names an object; [`REST`] when the number of objects is at its limit.
    pub fn add(&mut self) -> ObjectId {
        if self.sizes.len() < self.objects_max {
            self.sizes.push(0);
            self.counts.push(ObjectCounts::default());
            return ObjectId(self.sizes.len() as u32 - 1);
        }
        self.free.pop_front().unwrap_or(REST)
    }

    /// Gives an object the pages from `first` on, as its pages from `block` on. The pages must belong to no object, and
    /// an open cache must hold nothing of them.
    pub fn join(&mut self, object: ObjectId, first: u64, pages: u64, block: u64) {
        if object == REST || pages == 0 {
            return;
        }
        self.last.set(None);
        self.extents.insert(first, Extent { first, pages, object, block });
        self.blocks.insert((object.0, block), first);
    }

    /// Sets the size of an object in pages.
    pub fn resize(&mut self, object: ObjectId, pages: u64) {
        if object != REST {
            self.sizes[object.index()] = pages;
        }
    }

    /// Removes an object. Its counts, and its pages that are still held, go to the account of the rest.
    pub fn remove(&mut self, object: ObjectId) {
        if object == REST {
            return;
        }
        self.last.set(None);
        let of = |block| (object.0, block);
        let firsts: Vec<((u32, u64), u64)> = self.blocks.range(of(0)..=of(u64::MAX)).map(|(&k, &v)| (k, v)).collect();
        for (block, first) in firsts {
            self.blocks.remove(&block);
            self.extents.remove(&first);
        }
        self.sizes[object.index()] = 0;
        let counted = std::mem::take(&mut self.counts[object.index()]);
        self.counts[REST.index()].add(counted);
        self.free.push_back(object);
    }

    /// Account of each object that has pages or counts, and of the rest if it has counts.
    pub fn counts(&self) -> Vec<(ObjectId, ObjectCounts)> {
        let all = self.counts.iter().enumerate().map(|(object, &counts)| (ObjectId(object as u32), counts));
        let named = |object: ObjectId| self.sizes[object.index()] > 0;
        all.filter(|&(object, counts)| named(object) || counts != ObjectCounts::default()).collect()
    }

    /// Objects for which a policy needs memory.
    pub(super) fn objects_max(&self) -> usize {
        self.objects_max
    }

    pub(super) fn set_all_pages(&mut self, pages: u64) {
        self.all_pages = pages;
    }

    fn extent(&self, page: u64) -> Option<Extent> {
        if let Some(last) = self.last.get().filter(|last| last.has(page)) {
            return Some(last);
        }
        let (_, &extent) = self.extents.range(..=page).next_back()?;
        let found = extent.has(page).then_some(extent);
        if found.is_some() {
            self.last.set(found);
        }
        found
    }

    /// Address of a page in its object.
    pub(super) fn address(&self, page: u64) -> Address {
        match self.extent(page) {
            Some(extent) => Address { object: extent.object, block: extent.block + (page - extent.first) },
            None => Address { object: REST, block: page },
        }
    }

    /// The page after this one in its object for a `step` of 1; the page before it for -1.
    pub(super) fn neighbour(&self, page: u64, step: i64) -> Option<u64> {
        // No page lies before the first of all, but its object may have earlier ones elsewhere.
        let beside = page.checked_add_signed(step);
        let Some(extent) = self.extent(page) else {
            return beside.filter(|&beside| self.extent(beside).is_none());
        };
        if let Some(beside) = beside.filter(|&beside| extent.has(beside)) {
            return Some(beside);
        }
        let block = (extent.block + (page - extent.first)).checked_add_signed(step)?;
        let (_, first) = self.blocks.range((extent.object.0, 0)..=(extent.object.0, block)).next_back()?;
        let other = self.extents.get(first)?;
        Some(other.first + (block - other.block)).filter(|&page| other.has(page))
    }

    /// Size of an object in pages.
    pub fn pages(&self, object: ObjectId) -> u64 {
        if object == REST { self.all_pages } else { self.sizes[object.index()] }
    }

    /// Adjacent pages of an object, from `block` on or else from the first later block. Returns that block, the page
    /// where it lies, and the number of pages.
    pub(super) fn run_from(&self, object: ObjectId, block: u64) -> Option<(u64, u64, u64)> {
        let of = |block| (object.0, block);
        let before = self.blocks.range(of(0)..=of(block)).next_back().and_then(|(_, first)| self.extents.get(first));
        if let Some(extent) = before.filter(|extent| block - extent.block < extent.pages) {
            let within = block - extent.block;
            return Some((block, extent.first + within, extent.pages - within));
        }
        let (_, first) = self.blocks.range(of(block)..=of(u64::MAX)).next()?;
        let extent = self.extents.get(first)?;
        Some((extent.block, extent.first, extent.pages))
    }

    fn account(&mut self, page: u64) -> &mut ObjectCounts {
        let object = self.extent(page).map_or(REST, |extent| extent.object);
        &mut self.counts[object.index()]
    }

    /// Counts a decided request. `absorbed` when it replaced a dirty version.
    pub(super) fn outcome(&mut self, page: u64, op: Op, outcome: Outcome, absorbed: bool, store_tier: Tier) {
        let account = self.account(page);
        let (all, hits) = match op.is_write() {
            true => (&mut account.writes, &mut account.write_hits),
            false => (&mut account.reads, &mut account.read_hits),
        };
        *all += 1;
        if let Outcome::Hit(tier) = outcome {
            *hits.of(tier == store_tier) += 1;
        }
        account.absorbed += u64::from(absorbed);
    }

    /// Counts a write that bypassed the policy.
    pub(super) fn went_around(&mut self, page: u64) {
        self.account(page).writes += 1;
    }

    /// Accounts for a movement of a page. `counted` unless the page is only shown to the policy again,
    /// or a write-back has nothing to write.
    pub(super) fn movement(&mut self, page: u64, movement: Movement, store_tier: Tier, counted: bool) {
        let handle = movement.page;
        match movement.verb {
            Verb::Fetch { to } | Verb::Install { to } | Verb::Copy { to, .. } => {
                self.hold(page, handle, to == store_tier, true)
            }
            Verb::Drop { from } | Verb::Supersede { tier: from } => self.hold(page, handle, from == store_tier, false),
            Verb::WriteBack { .. } if counted => self.account(page).write_backs += 1,
            _ => {}
        }
    }

    fn hold(&mut self, page: u64, handle: Page, is_device: bool, held: bool) {
        let handles = if is_device { &mut self.device } else { &mut self.memory };
        if handles.set(handle, held) {
            let resident = self.account(page).resident.of(is_device);
            *resident = if held { *resident + 1 } else { resident.saturating_sub(1) };
        }
    }

    /// Empties the tiers in all accounts: another policy takes over, and holds nothing yet.
    pub(super) fn emptied(mut self) -> Self {
        self.counts.iter_mut().for_each(|counts| counts.resident = ByTier::default());
        self.memory = Handles::default();
        self.device = Handles::default();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_core::Random;

    #[test]
    fn pages_are_found_in_their_objects_and_beside_each_other() {
        let mut objects = Objects::new(4);
        let (a, b) = (objects.add(), objects.add());
        objects.join(a, 100, 10, 0);
        objects.join(b, 110, 10, 0);
        objects.join(a, 120, 10, 10);
        let address = |page| {
            let Address { object, block } = objects.address(page);
            (object, block)
        };
        assert_eq!((address(105), address(110), address(121)), ((a, 5), (b, 0), (a, 11)));
        assert_eq!((address(99), address(130)), ((REST, 99), (REST, 130)));
        assert_eq!((objects.neighbour(105, 1), objects.neighbour(109, 1)), (Some(106), Some(120)));
        assert_eq!((objects.neighbour(120, -1), objects.neighbour(119, 1)), (Some(109), None));
        assert_eq!(
            (objects.neighbour(110, -1), objects.neighbour(99, 1)),
            (None, None),
            "another's page is no neighbour"
        );
        assert_eq!((objects.neighbour(0, -1), objects.neighbour(50, 1)), (None, Some(51)));
        // A later piece of an object may be the first page of all.
        objects.join(b, 0, 1, 10);
        assert_eq!((objects.neighbour(119, 1), objects.neighbour(0, -1)), (Some(0), Some(119)));
        assert_eq!((objects.run_from(a, 3), objects.run_from(a, 10)), (Some((3, 103, 7)), Some((10, 120, 10))));
        assert_eq!((objects.run_from(a, 20), objects.run_from(b, 9)), (None, Some((9, 119, 1))));
    }

    #[test]
    fn numbers_are_given_again_as_late_as_can_be_and_accounts_go_to_the_rest() {
        let mut objects = Objects::new(4);
        let [a, b, c] = [(); 3].map(|()| objects.add());
        assert_eq!([a, b, c, objects.add()], [ObjectId(1), ObjectId(2), ObjectId(3), REST]);
        objects.join(b, 10, 10, 0);
        objects.resize(b, 10);
        let read =
            |objects: &mut Objects, page| objects.outcome(page, Op::Read, Outcome::Hit(Tier::TOP), false, Tier::TOP);
        read(&mut objects, 12);
        read(&mut objects, 22);
        objects.movement(
            12,
            Movement { page: Page(7), verb: Verb::Fetch { to: Tier::TOP }, joined: false },
            Tier::TOP,
            true,
        );
        let reads = |objects: &Objects| -> Vec<_> {
            objects.counts().into_iter().map(|(id, counts)| (id.0, counts.reads, counts.resident.device)).collect()
        };
        assert_eq!(reads(&objects), [(0, 1, 0), (2, 1, 1)]);
        objects.remove(c);
        objects.remove(b);
        assert_eq!(reads(&objects), [(0, 2, 1)]);
        assert_eq!((objects.add(), objects.add()), (c, b));
        objects.movement(
            12,
            Movement { page: Page(7), verb: Verb::Drop { from: Tier::TOP }, joined: false },
            Tier::TOP,
            true,
        );
        assert_eq!(reads(&objects), [(0, 2, 0)]);
    }

    #[test]
    fn handles_agree_with_a_set() {
        let mut random = Random::new(5);
        let (mut handles, mut model) = (Handles::default(), std::collections::HashSet::new());
        for step in 0..10_000 {
            let handle = Page(random.below(300) as u32);
            let within = random.chance(0.5);
            let changed = if within { model.insert(handle) } else { model.remove(&handle) };
            assert_eq!(handles.set(handle, within), changed, "step {step}");
        }
    }
}
