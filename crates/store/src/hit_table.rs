//! Versions that may be read without the index: pages, the bytes of the device where their newest versions lie, and the
//! CRCs of these.
//!
//! The index belongs to the holder of a lock. This table has a part of it for any thread. The holder of the lock enters a
//! version that was found in the index; the index removes it when it has another version of the page, or none, or when
//! the page no longer counts as cached. So a thread that finds a version here reads what the page had at that moment.
//!
//! The block of a version that has left the index may be written again while a thread still reads it. The thread
//! compares the CRC of what it has read, as any reader of the store does.
//!
//! A set of entries is a line of the processor's caches with a sequence number (a seqlock): odd while the set is
//! changed. A reader that finds an odd number, or another one after it has read, has found nothing. With half as many
//! sets as pages, nine of ten pages have an entry when all are read.

use crate::mutant::{self, Mutant};
use entresol_core::Random;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};
use zerocopy::FromZeros;

/// Entries of a set.
const WAYS: usize = 3;
/// Most sets: 16 MiB of memory. A larger cache has its last hits here.
const SETS_MAX: u64 = 1 << 18;
/// Versions lie at multiples of this byte.
const UNIT: u64 = 512;
/// Bits of a page number.
const PAGE_BITS: u32 = 48;

/// A version on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Its first byte on the device.
    pub at: u64,
    /// CRC of its bytes.
    pub crc: u32,
}

/// An entry: page plus one (48 bits) and the upper half of the position; the lower half and the CRC. Zeros are no entry.
#[derive(FromZeros)]
#[repr(C)]
struct Cell(AtomicU64, AtomicU64);

#[derive(FromZeros)]
#[repr(C, align(64))]
struct Set {
    sequence: AtomicU64,
    cells: [Cell; WAYS],
    unused: u64,
}

/// Table of versions by page.
pub struct HitTable {
    sets: Box<[Set]>,
    /// Nothing is found, and nothing entered.
    closed: AtomicBool,
}

const PAGE_MASK: u64 = (1 << PAGE_BITS) - 1;

impl Set {
    fn words(&self) -> [(u64, u64); WAYS] {
        self.cells.each_ref().map(|Cell(name, rest)| (name.load(Relaxed), rest.load(Relaxed)))
    }

    /// Changes the set. One thread at a time may do so.
    fn set(&self, words: [(u64, u64); WAYS]) {
        let sequence = self.sequence.load(Relaxed);
        self.sequence.store(sequence + 1, Relaxed);
        // The odd number is seen before any of the words.
        fence(Release);
        for (Cell(name, rest), words) in self.cells.iter().zip(words) {
            name.store(words.0, Relaxed);
            rest.store(words.1, Relaxed);
        }
        self.sequence.store(sequence + 2, Release);
    }
}

impl HitTable {
    /// An empty table for a cache of so many pages.
    ///
    /// # Panics
    /// Without memory for it.
    pub fn new(pages: u64) -> Self {
        let sets = Self::sets_of(pages) as usize;
        // Memory of the kernel is zeroed, and touched as the table fills.
        let sets = <[Set]>::new_box_zeroed_with_elems(sets).expect("a table takes no more than a usize of bytes");
        HitTable { sets, closed: AtomicBool::new(false) }
    }

    fn sets_of(pages: u64) -> u64 {
        pages.div_ceil(2).clamp(1, SETS_MAX)
    }

    /// Bytes of the table of a cache of so many pages, once it is full.
    pub fn bytes_of(pages: u64) -> u64 {
        Self::sets_of(pages) * size_of::<Set>() as u64
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.sets)
    }

    fn set_of(&self, page: u64) -> &Set {
        &self.sets[((u128::from(Random::mix(page)) * self.sets.len() as u128) >> 64) as usize]
    }

    /// The newest version of a page, if the table has it.
    #[inline]
    pub fn find(&self, page: u64) -> Option<Hit> {
        if self.closed.load(Relaxed) {
            return None;
        }
        let set = self.set_of(page);
        let before = set.sequence.load(Acquire);
        let words = set.words();
        // The words are read before the number is read again.
        fence(Acquire);
        if before & 1 != 0 || set.sequence.load(Relaxed) != before {
            return None;
        }
        let (name, rest) = words.into_iter().find(|&(name, _)| name & PAGE_MASK == page + 1)?;
        let unit = (name >> PAGE_BITS) << u32::BITS | rest >> u32::BITS;
        Some(Hit { at: unit * UNIT, crc: rest as u32 })
    }

    /// Enters the newest version of a page, in place of the oldest entry of its set. The caller holds the lock of the
    /// index.
    pub(super) fn enter(&self, page: u64, Hit { at, crc }: Hit) {
        let unit = at / UNIT;
        if self.closed.load(Relaxed) || page >= PAGE_MASK || at % UNIT != 0 || unit >> PAGE_BITS != 0 {
            return;
        }
        let entry = ((page + 1) | (unit >> u32::BITS) << PAGE_BITS, unit << u32::BITS | u64::from(crc));
        let set = self.set_of(page);
        let mut words = set.words();
        // The newest comes first.
        let from = words.iter().position(|&(name, _)| name & PAGE_MASK == page + 1).unwrap_or(WAYS - 1);
        words.copy_within(..from, 1);
        words[0] = entry;
        set.set(words);
    }

    /// Removes a page. The caller holds the lock of the index.
    pub(super) fn remove(&self, page: u64) {
        let set = self.set_of(page);
        let mut words = set.words();
        let Some(at) = words.iter().position(|&(name, _)| name & PAGE_MASK == page + 1) else { return };
        if mutant::is(Mutant::HitOutlivesVersion) {
            return;
        }
        words[at] = (0, 0);
        set.set(words);
    }

    /// Has nothing be found from now on, until the table is cleared to its end. The caller holds the lock of the index.
    pub fn close(&self) {
        self.closed.store(true, Relaxed);
    }

    /// Clears so many sets of a closed table from one on, and opens it after the last. Returns the next set. The caller
    /// holds the lock of the index.
    pub fn clear(&self, from: usize, sets: usize) -> Option<usize> {
        let to = (from + sets).min(self.sets.len());
        self.sets[from..to].iter().for_each(|set| set.set([(0, 0); WAYS]));
        if to == self.sets.len() {
            self.closed.store(false, Relaxed);
            return None;
        }
        Some(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn hit(page: u64, version: u64) -> Hit {
        Hit { at: (page * 1000 + version) * UNIT, crc: (page * 7 + version) as u32 }
    }

    #[test]
    fn a_version_is_found_until_another_takes_its_place_or_it_is_removed() {
        let table = HitTable::new(64);
        let (mut random, mut model) = (Random::new(5), BTreeMap::new());
        let mut found = 0;
        for version in 0..20_000 {
            let page = random.below(80) << random.below(40);
            match random.below(4) {
                0 => {
                    table.remove(page);
                    model.remove(&page);
                }
                _ if version % 5000 == 4999 => {
                    table.close();
                    assert_eq!(table.find(page), None, "closed");
                    let mut next = Some(0);
                    while let Some(from) = next {
                        table.enter(page, hit(page & 0xff_ffff, version));
                        next = table.clear(from, 10);
                    }
                    model.clear();
                }
                _ => {
                    table.enter(page, hit(page & 0xff_ffff, version));
                    model.insert(page, hit(page & 0xff_ffff, version));
                    assert_eq!(table.find(page), model.get(&page).copied(), "just entered");
                }
            }
            let probe = random.below(80) << random.below(40);
            if let Some(there) = table.find(probe) {
                assert_eq!(model.get(&probe), Some(&there), "page {probe}");
                found += 1;
            }
        }
        assert!(found > 1000, "{found}");
        assert_eq!(HitTable::new(0).find(0), None);
        let far = Hit { at: (1 << 40) + 512, crc: u32::MAX };
        table.enter(PAGE_MASK - 1, far);
        assert_eq!(table.find(PAGE_MASK - 1), Some(far));
    }

    #[test]
    fn nine_of_ten_pages_have_an_entry_when_all_are_read() {
        const PAGES: u64 = 10_000;
        let table = HitTable::new(PAGES);
        (0..PAGES).for_each(|page| table.enter(page, hit(page, 0)));
        let found = (0..PAGES).filter(|&page| table.find(page).is_some()).count();
        assert!((8700..9500).contains(&found), "{found}");
        assert!(table.memory_bytes() as u64 <= 32 * PAGES, "{}", table.memory_bytes());
        assert_eq!(HitTable::new(1 << 40).memory_bytes(), 16 << 20);
    }

    /// One thread changes entries, others look them up: what is found was entered for that page, and never goes back
    /// to an older version.
    #[test]
    fn readers_find_whole_entries_of_their_page_and_none_older_than_before() {
        const PAGES: u64 = 12;
        let (table, done) = (HitTable::new(8), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..3)
                .map(|seed| {
                    let (table, done) = (&table, &done);
                    scope.spawn(move || {
                        let (mut random, mut newest, mut found) = (Random::new(seed), [0; PAGES as usize], 0);
                        while !done.load(Relaxed) {
                            let page = random.below(PAGES);
                            let Some(there) = table.find(page) else { continue };
                            let version = there.at / UNIT - page * 1_000_000;
                            assert_eq!(there.crc as u64, page * 7 + version, "page {page}");
                            assert!(version >= newest[page as usize], "page {page}: {version} after {newest:?}");
                            newest[page as usize] = version;
                            found += 1;
                        }
                        found
                    })
                })
                .collect();
            let mut random = Random::new(9);
            for version in 0..400_000 {
                let page = random.below(PAGES);
                if random.chance(0.3) {
                    table.remove(page);
                } else {
                    let crc = (page * 7 + version) as u32;
                    table.enter(page, Hit { at: (page * 1_000_000 + version) * UNIT, crc });
                }
            }
            done.store(true, Relaxed);
            let found: u64 = readers.into_iter().map(|reader| reader.join().expect("a reader")).sum();
            println!("{found} found");
        });
    }
}
