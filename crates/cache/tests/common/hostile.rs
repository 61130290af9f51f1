//! Stores with fields changed on purpose, and their checksums made right again.

#![allow(dead_code, reason = "each test binary uses a part")]

use entresol_cache::Block;
use entresol_cache::{BlockCache, CacheConfig, Maintenance};
use entresol_core::Random;
use entresol_crashtest::{Power, SimDisk};
use entresol_disk::Disk;
use entresol_policy::catalogue;
use entresol_store::{Geometry, Layout};
use std::collections::HashMap;

pub const ID: [u8; 16] = [5; 16];
pub const PAGE: usize = 512;
pub const BACKING_PAGES: u64 = 60;

fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// Stores in order: of both layouts, closed or killed, nearly empty, and filled more than once.
pub fn sound() -> Vec<Vec<u8>> {
    let mut images = Vec::new();
    for (seed, layout) in [Layout::Log, Layout::Slots, Layout::Log, Layout::Slots].into_iter().enumerate() {
        for requests in [5, 60, 700] {
            let geometry = Geometry { page_bytes: PAGE as u32, segment_pages: 8, segments: 34, layout };
            let power = Power::steady();
            let cache = SimDisk::new(geometry.size_bytes(), &power);
            let backing = SimDisk::new(BACKING_PAGES * PAGE as u64, &power);
            BlockCache::format(&cache, geometry, &backing, [1; 16], ID).expect("room");
            let opened = BlockCache::open(cache.clone(), backing, ID, &config()).expect("a cache in order");
            let mut random = Random::new(seed as u64);
            for request in 0..requests {
                let at = random.below(BACKING_PAGES) * PAGE as u64;
                opened.write(at, &[request as u8; PAGE], random.chance(0.1)).expect("a write");
            }
            opened.flush().expect("a flush");
            if seed < 2 {
                opened.close().expect("a close");
            }
            images.push(cache.copy());
        }
    }
    images
}

pub fn config() -> CacheConfig {
    let policy = catalogue::info("lru").expect("lru");
    CacheConfig { maintenance: Maintenance::Requests, ..CacheConfig::new(policy, &[12]) }
}

/// A source of choices: seeded, or the bytes of a fuzzer.
pub trait Chance {
    /// A number below a bound.
    fn below(&mut self, bound: u64) -> u64;
    /// True with this probability.
    fn chance(&mut self, share: f64) -> bool;
    /// Any number.
    fn any(&mut self) -> u64;
}

impl Chance for Random {
    fn below(&mut self, bound: u64) -> u64 {
        Random::below(self, bound)
    }

    fn chance(&mut self, share: f64) -> bool {
        Random::chance(self, share)
    }

    fn any(&mut self) -> u64 {
        self.next_u64()
    }
}

/// Another value for a field of one to eight bytes.
fn change(bytes: &mut [u8], random: &mut impl Chance) {
    let width = [1, 2, 4, 8][random.below(4) as usize];
    let at = random.below((bytes.len() / width) as u64) as usize * width;
    let mut value = [0; 8];
    value[..width].copy_from_slice(&bytes[at..at + width]);
    let before = u64::from_le_bytes(value);
    let after = match random.below(9) {
        0 => 0,
        1 => u64::MAX,
        2 => before.wrapping_add(1),
        3 => before.wrapping_sub(1),
        4 => 1 << random.below(64),
        5 => before ^ 1 << random.below(8 * width as u64),
        6 => random.below(1 << 16),
        7 => before.wrapping_mul(2),
        _ => random.any(),
    };
    bytes[at..at + width].copy_from_slice(&after.to_le_bytes()[..width]);
}

/// Makes the checksum of a table or a block of the journal right.
fn seal_table(block: &mut [u8]) {
    put(block, 80, 0);
    let crc = crc32c(block);
    put(block, 80, crc);
}

/// Makes the checksum of a superblock or a commit record right.
fn seal_small(block: &mut [u8]) {
    let crc = crc32c(&block[..508]);
    put(block, 508, crc);
}

/// Makes the checksum of a copy right, if its entries lie in these bytes.
fn seal_copy(bytes: &mut [u8], entry: usize) {
    let len = (u32_at(bytes, 32) as usize).saturating_mul(entry).saturating_add(48);
    if len <= bytes.len() {
        put(bytes, 44, 0);
        let crc = crc32c(&bytes[..len]);
        put(bytes, 44, crc);
    }
}

/// Changes some fields of a store, and makes all checksums over them right. Returns a description of the change.
pub fn mutate(image: &mut [u8], random: &mut impl Chance) -> String {
    let is_table = |block: &[u8]| block.starts_with(b"\x89ETBATCH") || block.starts_with(b"\x89ETJOURN");
    let slots = image.chunks_exact(PAGE).any(|block| block.starts_with(b"\x89ETJOURN"));
    let (header, entry) = if slots { (96, 20) } else { (104, 12) };
    let place = |image: &[u8], at: usize| u64::from_le_bytes(image[at + 32..at + 40].try_into().expect("eight bytes"));
    let mut tables: Vec<usize> = (0..image.len()).step_by(PAGE).filter(|&at| is_table(&image[at..])).collect();
    tables.sort_unstable_by_key(|&at| place(image, at));
    let victim = |random: &mut dyn Chance| match random.below(3) {
        _ if tables.is_empty() => usize::MAX,
        0 => tables[random.below(tables.len() as u64) as usize],
        _ => tables[tables.len() - 1 - random.below(3.min(tables.len() as u64)) as usize],
    };
    let mut said = String::new();
    let mut changed = Vec::new();
    for _ in 0..1 + random.below(3) {
        let which = random.below(4);
        match which {
            0 => {
                // Both copies say the same, as after every open and close.
                let mut copy = image[8..508].to_vec();
                change(&mut copy, random);
                [0, 4096].into_iter().for_each(|at| image[at + 8..at + 508].copy_from_slice(&copy));
            }
            1 => {
                let at = 8192 + random.below(2) as usize * 4096;
                let end = if random.chance(0.5) { 64 } else { 512 + 48 + 4 * entry };
                change(&mut image[at + 24..at + end], random);
            }
            _ => {
                let at = victim(&mut *random);
                if at != usize::MAX {
                    let entries = u32_at(image, at + 72).min(8) as usize;
                    let end =
                        if random.chance(0.4) { header } else { (header + entries * entry + 48 + entry).min(PAGE) };
                    change(&mut image[at + 24..at + end], random);
                    changed.push(at);
                }
            }
        }
        said = format!("{said} {which}");
    }
    let mut crcs: HashMap<u32, u32> = HashMap::new();
    for &at in &tables {
        let block = &mut image[at..at + PAGE];
        let before = u32_at(block, 80);
        for chain in [64, 68] {
            let value = u32_at(block, chain);
            put(block, chain, crcs.get(&value).copied().unwrap_or(value));
        }
        let copy = header + u32_at(block, 72) as usize * entry;
        if copy + 48 <= PAGE {
            seal_copy(&mut block[copy..], entry);
        }
        seal_table(block);
        crcs.insert(before, u32_at(block, 80));
    }
    for (at, chain) in [(0, 88), (4096, 88), (8192, 48), (12288, 48), (8192, 540), (12288, 540)] {
        let value = u32_at(image, at + chain);
        put(image, at + chain, crcs.get(&value).copied().unwrap_or(value));
        if chain == 540 {
            seal_copy(&mut image[at + 512..at + 4096], entry);
        } else {
            seal_small(&mut image[at..at + 512]);
        }
    }
    format!("{said}, tables at {changed:?}")
}

/// A disk with this store on it, and one for its backing store.
pub fn disks(image: &[u8]) -> [SimDisk; 2] {
    let power = Power::steady();
    let disks = [SimDisk::new(image.len() as u64, &power), SimDisk::new(BACKING_PAGES * PAGE as u64, &power)];
    disks[0].write_at(0, image).expect("room");
    disks[0].sync().expect("a sync");
    disks
}

/// Uses a cache as its owner would. Returns whether it could be opened.
pub fn is_served(image: &[u8]) -> bool {
    let disks = disks(image);
    let Ok(cache) = BlockCache::open(disks[0].clone(), disks[1].clone(), ID, &config()) else { return false };
    let mut bytes = [0; PAGE];
    for page in 0..BACKING_PAGES {
        let at = page * PAGE as u64;
        // Reading a damaged page is an error, and so may be a request that moves it.
        let _damaged = cache.read(at, &mut bytes);
        if page % 3 == 0 {
            let _damaged = cache.write(at, &[page as u8; PAGE], page % 6 == 0);
        }
    }
    let _damaged = cache.flush();
    let _damaged = cache.drain();
    let _damaged = cache.close();
    true
}
