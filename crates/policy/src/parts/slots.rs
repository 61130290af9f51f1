//! Handles of the sampled pages: slots, which are fewer than the handles of all pages.

use super::Bits;
use entresol_core::{Address, Page};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};

/// Map from the key by which a sampled page is known to the slot of the page.
pub(crate) trait Keys {
    type Key: Copy;

    fn find(&self, key: Self::Key) -> Option<Page>;
    fn set(&mut self, key: Self::Key, slot: Option<Page>);
    fn memory_bytes(&self) -> usize;
}

/// Map by the page's own handle, for users that keep the handle as long as the slot. A bit for each handle answers for
/// the pages outside of the sample, which are most.
#[derive(Clone)]
pub(crate) struct ByHandle {
    sampled: Bits,
    slots: HashMap<u32, u32, BuildHasherDefault<DefaultHasher>>,
}

impl ByHandle {
    /// A map for `pages` handles and at most `slots_max` slots.
    pub fn new(pages: usize, slots_max: usize) -> Self {
        // A map that is at most half full clears deleted entries away in its own memory.
        let slots = HashMap::with_capacity_and_hasher(2 * slots_max, BuildHasherDefault::default());
        ByHandle { sampled: Bits::new(pages), slots }
    }
}

impl Keys for ByHandle {
    type Key = Page;

    #[inline]
    fn find(&self, page: Page) -> Option<Page> {
        if self.sampled.contains(page) { self.slots.get(&page.0).copied().map(Page) } else { None }
    }

    fn set(&mut self, page: Page, slot: Option<Page>) {
        match slot {
            Some(slot) => {
                self.sampled.insert(page);
                self.slots.insert(page.0, slot.0);
            }
            None => {
                self.sampled.remove(page);
                self.slots.remove(&page.0);
            }
        }
    }

    fn memory_bytes(&self) -> usize {
        self.sampled.memory_bytes() + self.slots.capacity() * (size_of::<(u32, u32)>() + 1)
    }
}

/// Map by the page's address, for users that outlive the page's handle.
#[derive(Clone, Default)]
pub(crate) struct ByAddress(HashMap<Address, u32, BuildHasherDefault<DefaultHasher>>);

impl Keys for ByAddress {
    type Key = Address;

    fn find(&self, at: Address) -> Option<Page> {
        self.0.get(&at).copied().map(Page)
    }

    fn set(&mut self, at: Address, slot: Option<Page>) {
        match slot {
            Some(slot) => _ = self.0.insert(at, slot.0),
            None => _ = self.0.remove(&at),
        }
    }

    fn memory_bytes(&self) -> usize {
        self.0.capacity() * (size_of::<(Address, u32)>() + 1)
    }
}

/// Table of slots. The slot of a page that is not known any more is given to another page.
#[derive(Clone)]
pub(crate) struct Slots<K: Keys> {
    keys: K,
    /// Key of each slot's page.
    pages: Vec<K::Key>,
    slots_max: usize,
    /// Slot at which the search for a forgotten page's slot resumes.
    cursor: usize,
}

/// Slots checked for reuse before an unused slot is given out.
const ASKED: usize = 8;

impl<K: Keys> Slots<K> {
    /// A table of at most `slots_max` slots.
    pub fn new(keys: K, slots_max: usize) -> Self {
        Slots { keys, pages: Vec::with_capacity(slots_max), slots_max, cursor: 0 }
    }

    #[inline]
    pub fn find(&self, key: K::Key) -> Option<Page> {
        self.keys.find(key)
    }

    /// Key of the page in a slot.
    pub fn key(&self, slot: Page) -> K::Key {
        self.pages[slot.index()]
    }

    /// The slot of a page; `None` if every slot has a known page.
    pub fn claim(&mut self, key: K::Key, forgotten: impl Fn(Page) -> bool) -> Option<Page> {
        if let Some(slot) = self.find(key) {
            return Some(slot);
        }
        let len = self.pages.len();
        let asked = if len < self.slots_max { ASKED.min(len) } else { len };
        let free = (0..asked).map(|step| (self.cursor + step) % len).find(|&at| forgotten(Page(at as u32)));
        let at = match free {
            Some(at) => {
                self.keys.set(self.pages[at], None);
                self.pages[at] = key;
                self.cursor = (at + 1) % len;
                at
            }
            None if len < self.slots_max => {
                self.pages.push(key);
                len
            }
            None => return None,
        };
        let slot = Page(at as u32);
        self.keys.set(key, Some(slot));
        Some(slot)
    }

    /// Bytes of state.
    pub fn memory_bytes(&self) -> usize {
        self.keys.memory_bytes() + self.pages.capacity() * size_of::<K::Key>()
    }
}
