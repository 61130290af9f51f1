//! Reads that never wait. Each gives the bytes and counts of an ordinary read, or nothing at all, and is answered while
//! everything else stands still.

use crate::gate::Gate;
use entresol_cache::Block;
use entresol_cache::{BlockCache, CacheConfig, CacheStats, Maintenance, Mode, Tag, WriteBackCounts};
use entresol_core::Random;
use entresol_crashtest::{Power, SimDisk};
use entresol_disk::Disk;
use entresol_policy::catalogue;
use entresol_store::{Geometry, Layout};
use std::io;
use std::sync::Arc;

const PAGE: usize = 512;
const PAGES: u64 = 100;
/// A backing store that ends within a page.
const SIZE: u64 = PAGES * PAGE as u64 - 100;
const ID: [u8; 16] = [5; 16];

/// A disk whose transfers can be held up. Blocks "in memory" are read through a shut gate.
#[derive(Clone)]
struct Gated {
    disk: SimDisk,
    gate: Arc<Gate>,
    /// Blocks of a page that are in memory, as bits that repeat.
    in_memory: u64,
}

impl Disk for Gated {
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }
    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.gate.pass();
        self.disk.read_at(at, bytes)
    }
    fn read_now(&self, at: u64, bytes: &mut [u8]) -> bool {
        let mut blocks = at / PAGE as u64..(at + bytes.len() as u64).div_ceil(PAGE as u64);
        blocks.all(|block| self.in_memory >> (block % 64) & 1 != 0) && self.disk.read_at(at, bytes).is_ok()
    }
    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.gate.pass();
        self.disk.write_at(at, bytes)
    }
    fn sync(&self) -> io::Result<()> {
        self.gate.pass();
        self.disk.sync()
    }
    fn discard(&self, at: u64, bytes: u64) -> io::Result<()> {
        self.disk.discard(at, bytes)
    }
}

/// A cache, the gate of its device and the gate of its backing store.
fn cache(policy: &str, tiers: &[usize]) -> (BlockCache, Arc<Gate>, Arc<Gate>) {
    cache_over(policy, tiers, 0)
}

/// A cache over a backing store that has some of its pages in memory, and both gates.
fn cache_over(policy: &str, tiers: &[usize], in_memory: u64) -> (BlockCache, Arc<Gate>, Arc<Gate>) {
    let geometry = Geometry {
        page_bytes: PAGE as u32,
        segment_pages: 8,
        segments: if super::LAYOUT == Layout::Log { 24 } else { 48 },
        layout: super::LAYOUT,
    };
    let power = Power::steady();
    let gated = |size, in_memory| Gated { disk: SimDisk::new(size, &power), gate: Arc::default(), in_memory };
    let (device, backing) = (gated(geometry.size_bytes(), 0), gated(SIZE, in_memory));
    BlockCache::format(&device.disk, geometry, &backing.disk, [1; 16], ID).expect("room");
    let gates = (device.gate.clone(), backing.gate.clone());
    // All counts then follow from the requests.
    let maintenance = Maintenance::Requests;
    let config = CacheConfig { maintenance, ..CacheConfig::new(catalogue::info(policy).expect("a policy"), tiers) };
    (BlockCache::open(device, backing, ID, &config).expect("a cache"), gates.0, gates.1)
}

fn page(number: u64) -> u64 {
    number * PAGE as u64
}

#[test]
fn a_read_at_once_gives_and_counts_what_a_read_does() {
    for (policy, tiers) in [("lru", &[40][..]), ("arc", &[40]), ("face-gsc", &[12, 40]), ("multi-tier", &[12, 40])] {
        // The first cache gets a read without waiting before every read; the second does not.
        let (asked, ..) = cache(policy, tiers);
        let (plain, ..) = cache(policy, tiers);
        let mut random = Random::new(7);
        let mut model = vec![0; SIZE as usize];
        let mut at_once = 0;
        for step in 0..20_000_u64 {
            let near = random.chance(0.8);
            let offset = random.below(if near { 10 * PAGE as u64 } else { SIZE });
            let len = match random.below(3) {
                0 => 1 + random.below(3 * PAGE as u64),
                1 => PAGE as u64,
                _ => PAGE as u64 * (1 + random.below(3)),
            };
            let offset = if random.chance(0.7) { offset / PAGE as u64 * PAGE as u64 } else { offset };
            let (offset, len) = (offset, len.min(SIZE - offset) as usize);
            let range = offset as usize..offset as usize + len;
            if random.chance(0.2) {
                model[range.clone()].fill(step as u8);
                asked.write(offset, &model[range.clone()], false).expect("a write");
                plain.write(offset, &model[range], false).expect("a write");
                continue;
            }
            let mut bytes = vec![0xee; len];
            let found = asked.read_now(offset, &mut bytes);
            at_once += u64::from(found);
            if !found {
                asked.read(offset, &mut bytes).expect("a read");
            }
            assert!(bytes == model[range.clone()], "{policy}: step {step}: {range:?}");
            plain.read(offset, &mut bytes).expect("a read");
            assert!(bytes == model[range], "{policy}: step {step}");
        }
        let counts = |cache: &BlockCache| cache.stats().expect("counts");
        let (one, other): (CacheStats, CacheStats) = (counts(&asked), counts(&plain));
        assert_eq!((one.counts, one.write_back, one.store), (other.counts, other.write_back, other.store), "{policy}");
        println!("{policy}: {at_once} reads at once");
        assert!(at_once > if tiers.len() == 2 { 3000 } else { 20 }, "{policy}: {at_once} reads at once");
    }
}

#[test]
fn what_is_wrong_or_too_long_is_left_to_the_read() {
    let (cache, ..) = cache("face-gsc", &[40, 40]);
    let mut bytes = vec![0; 20 * PAGE];
    cache.read(0, &mut bytes).expect("a read");
    for (offset, len) in [(SIZE, 1), (SIZE - 1, 2), (u64::MAX, 2), (0, 17 * PAGE), (1, 16 * PAGE)] {
        let before = cache.stats().expect("counts");
        assert!(!cache.read_now(offset, &mut bytes[..len]), "{len} bytes at {offset}");
        assert_eq!(cache.stats().expect("counts"), before);
    }
    assert!(cache.read_now(0, &mut bytes[..16 * PAGE]));
    assert!(cache.read_now(3, &mut bytes[..15 * PAGE]));
}

#[test]
fn hits_are_answered_while_misses_and_upkeep_wait_for_a_device() {
    let (cache, device, backing) = cache("face-gsc", &[10, 60]);
    let mut bytes = [0; PAGE];
    // Twenty pages: the last few are in memory, and the others in the log.
    for number in 0..20 {
        cache.write(page(number), &[number as u8 + 1; PAGE], false).expect("a write");
    }
    cache.flush().expect("a flush");
    let in_memory = |number: &u64| cache.read_now(page(*number), &mut [0; PAGE]);
    let hot: Vec<u64> = (0..20).filter(in_memory).collect();
    assert!((3..=10).contains(&hot.len()), "{hot:?} are in memory");
    let in_log = (0..20).find(|number| !hot.contains(number)).expect("not all are in memory");
    // Another dirty page, so that a flush has something to do.
    cache.write(page(hot[0]), &[77; PAGE], false).expect("a write");
    device.set(true);
    backing.set(true);
    std::thread::scope(|scope| {
        scope.spawn(|| cache.read(page(in_log), &mut [0; PAGE]).expect("a read from the log"));
        scope.spawn(|| cache.read(page(60), &mut [0; PAGE]).expect("a read from below"));
        device.wait_for(1);
        backing.wait_for(1);
        let reads = cache.stats().expect("counts").counts.reads;
        for round in 0..1000 {
            for &number in &hot {
                let filled = if number == hot[0] { 77 } else { number as u8 + 1 };
                assert!(cache.read_now(page(number), &mut bytes), "round {round}: page {number}");
                assert!(bytes == [filled; PAGE], "round {round}: page {number}");
            }
            // A read that would have to wait returns at once, and leaves no trace.
            assert!(!cache.read_now(page(in_log), &mut bytes) && !cache.read_now(page(61), &mut bytes));
        }
        assert_eq!(cache.stats().expect("counts").counts.reads, reads + 1000 * hot.len() as u64);
        device.set(false);
        backing.set(false);
    });
    // A change of mode waits with the whole cache: then no read succeeds at once, but none waits either.
    backing.set(true);
    device.set(true);
    std::thread::scope(|scope| {
        scope.spawn(|| cache.set_mode(Mode::WriteThrough).expect("a change"));
        while backing.waiting() + device.waiting() == 0 {
            std::thread::yield_now();
        }
        for &number in &hot {
            let _had_or_not = cache.read_now(page(number), &mut bytes);
        }
        device.set(false);
        backing.set(false);
    });
}

#[test]
fn as_much_as_is_there_is_read_and_counted_as_a_read_does() {
    // None, most or all of the pages below are in memory.
    for in_memory in [0, 0x7fff_fffe_ffff_ffff, u64::MAX] {
        for (policy, tiers) in [("lru", &[40][..]), ("arc", &[40]), ("face-gsc", &[12, 40]), ("multi-tier", &[12, 40])]
        {
            let (asked, ..) = cache_over(policy, tiers, in_memory);
            let (plain, ..) = cache(policy, tiers);
            for cache in [&asked, &plain] {
                cache.set_sequential_cutoff(24 * PAGE as u64).expect("a change");
            }
            let mut random = Random::new(11);
            let mut model = vec![0; SIZE as usize];
            let (mut whole, mut part) = (0, 0);
            for step in 0..20_000_u64 {
                if step % 50 == 0 {
                    // A page sent below is not read there before it is durable.
                    asked.drain().expect("room below");
                    plain.drain().expect("room below");
                }
                let near = random.chance(0.5);
                let offset = random.below(if near { 10 * PAGE as u64 } else { SIZE });
                let offset = if random.chance(0.7) { offset / PAGE as u64 * PAGE as u64 } else { offset };
                let len = if random.chance(0.1) { random.below(SIZE) } else { random.below(4 * PAGE as u64) } + 1;
                let len = len.min(SIZE - offset) as usize;
                let range = offset as usize..offset as usize + len;
                if random.chance(0.1) {
                    model[range.clone()].fill(step as u8);
                    asked.write(offset, &model[range.clone()], false).expect("a write");
                    plain.write(offset, &model[range], false).expect("a write");
                    continue;
                }
                let (mut bytes, tag) = (vec![0xee; len], asked.tag(false));
                let done = asked.read_some_now_tagged(offset, &mut bytes, tag);
                assert!(bytes[..done] == model[range.clone()][..done], "{policy}: step {step}: {done} of {range:?}");
                assert!(done == len || (offset + done as u64).is_multiple_of(PAGE as u64) || done == 0);
                whole += u64::from(done == len);
                part += u64::from(0 < done && done < len);
                let rest = Tag { sequential: done > 0, ..tag };
                asked.read_tagged(offset + done as u64, &mut bytes[done..], rest).expect("a read");
                assert!(bytes == model[range.clone()], "{policy}: step {step}: {done} of {range:?}");
                plain.read_tagged(offset, &mut bytes, tag).expect("a read");
                assert!(bytes == model[range], "{policy}: step {step}");
            }
            let counts = |cache: &BlockCache| cache.stats().expect("counts");
            let (one, other): (CacheStats, CacheStats) = (counts(&asked), counts(&plain));
            assert_eq!(one.counts, other.counts, "{policy}, {in_memory:x}");
            // The source of a page is looked up before the pages before it in its row are decided on. These may evict
            // the page, and the rows are not the same. A page of a gap may be in the cache's memory.
            let read = |stats: &CacheStats| stats.write_back.below_reads + stats.store.reads;
            let differ = read(&one).abs_diff(read(&other)).saturating_sub(one.write_back.below_gap_reads);
            assert!(differ * 1000 < read(&other), "{policy}, {in_memory:x}");
            let written = |stats: &CacheStats| {
                let write_back =
                    WriteBackCounts { below_reads: 0, below_gap_reads: 0, below_bridge_reads: 0, ..stats.write_back };
                (write_back, stats.store.pages, stats.store.batches, stats.store.rewritten, stats.dirty_pages)
            };
            assert_eq!(written(&one), written(&other), "{policy}, {in_memory:x}");
            println!("{policy}, {in_memory:x}: {whole} reads at once and parts of {part}");
            if in_memory == u64::MAX {
                assert!(whole > 3000 && part > 100, "{policy}: {whole} reads at once and parts of {part}");
            }
        }
    }
}

#[test]
fn what_is_in_memory_below_is_answered_while_devices_are_busy() {
    let (cache, device, backing) = cache_over("lru", &[60], 0b0111_1111);
    let mut bytes = [0xee; 16 * PAGE];
    // Behind the first request the policy is shown the recovered pages, of which there are none.
    cache.read(page(50), &mut bytes[..PAGE]).expect("a read");
    device.set(true);
    backing.set(true);
    // Pages 0 to 6 of every 64 are in memory, and a segment takes 8: no read waits for work of the log.
    let tag = cache.tag(false);
    assert_eq!(cache.read_some_now_tagged(0, &mut bytes[..3 * PAGE], tag), 3 * PAGE);
    assert!(bytes[..3 * PAGE].iter().all(|&byte| byte == 0));
    let before = cache.stats().expect("counts");
    assert_eq!(cache.read_some_now_tagged(page(3), &mut bytes[..5 * PAGE], tag), 0, "page 7 is not in memory");
    assert_eq!(cache.read_some_now_tagged(page(2), &mut bytes[..2 * PAGE], tag), 0, "page 2 is cached, page 3 is not");
    assert_eq!(cache.read_some_now_tagged(SIZE - 1, &mut bytes[..2], tag), 0, "beyond the end");
    assert_eq!(cache.stats().expect("counts"), before);
    device.set(false);
    backing.set(false);
}
