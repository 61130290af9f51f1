//! What the log holds of each page: the newest version of it, in memory.

use entresol_core::Random;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// The newest version that the log holds of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Where it is; no other version ever has the same place.
    pub place: u64,
    /// CRC of its bytes.
    pub crc: u32,
    /// The backing store is not known to have it, durably.
    pub dirty: bool,
    /// The policy counts it as cached.
    pub resident: bool,
    /// Its bytes cannot be read.
    pub lost: bool,
}

/// A hash of page numbers: a bijection, so that different pages never share one.
#[derive(Default)]
pub(crate) struct PageHasher(u64);

impl Hasher for PageHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("page numbers are u64");
    }

    fn write_u64(&mut self, page: u64) {
        self.0 = Random::mix(page);
    }
}

/// A map from pages.
pub(crate) type PageMap<T> = HashMap<u64, T, BuildHasherDefault<PageHasher>>;

/// Entries by page.
#[derive(Default)]
pub(crate) struct Index {
    entries: PageMap<Entry>,
}

impl Index {
    /// The newest version of a page.
    pub fn get(&self, page: u64) -> Option<Entry> {
        self.entries.get(&page).copied()
    }

    /// The newest version of a page if it is one that the policy counts as cached.
    pub fn resident(&self, page: u64) -> Option<Entry> {
        self.get(page).filter(|entry| entry.resident)
    }

    pub(super) fn insert(&mut self, page: u64, entry: Entry) {
        self.entries.insert(page, entry);
    }

    /// Forgets a page, whose versions on the device are all dead or declared so.
    pub fn remove(&mut self, page: u64) {
        self.entries.remove(&page);
    }

    /// Changes an entry if it is there.
    pub fn update(&mut self, page: u64, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.entries.get_mut(&page) {
            change(entry);
        }
    }

    /// Pages of which there is a version.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// All entries, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, Entry)> {
        self.entries.iter().map(|(&page, &entry)| (page, entry))
    }

    /// Forgets every page but those whose only copy was lost.
    pub fn retain_lost(&mut self) {
        self.entries.retain(|_, entry| entry.lost);
    }
}
