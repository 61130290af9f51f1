//! The block cache by its interface: bytes of any alignment, modes, restarts, wrong devices and failing ones.

use entresol_cache::Block;
use entresol_cache::{BlockCache, CacheConfig, CacheError, Maintenance, Mode};
use entresol_core::Random;
use entresol_crashtest::{Fault, Power, SimDisk};
use entresol_disk::{Caching, Disk, FileDisk};
use entresol_policy::catalogue;
use entresol_store::{Geometry, Layout, StoreError};
use std::io::ErrorKind;

const GEOMETRY: Geometry = Geometry { page_bytes: 1024, segment_pages: 16, segments: 16, layout: super::LAYOUT };
const ID: [u8; 16] = [3; 16];
/// No multiple of the page size: the last page is short.
const BACKING_BYTES: u64 = 100 * 1024 + 512;

fn disks() -> (SimDisk, SimDisk) {
    let power = Power::steady();
    (SimDisk::new(GEOMETRY.size_bytes(), &power), SimDisk::new(BACKING_BYTES, &power))
}

fn config(policy: &str, mode: Mode) -> CacheConfig {
    let info = catalogue::info(policy).expect("a policy");
    let tiers: &[usize] = if info.tiers.len() == 1 { &[60] } else { &[10, 60] };
    // Without threads the writes below follow from the requests, and a cache that is left behind does nothing more.
    CacheConfig { mode, maintenance: Maintenance::Requests, ..CacheConfig::new(info, tiers) }
}

fn formatted() -> (SimDisk, SimDisk) {
    let (cache, backing) = disks();
    BlockCache::format(&cache, GEOMETRY, &backing, [1; 16], ID).expect("room");
    (cache, backing)
}

fn open(disks: &(SimDisk, SimDisk), config: &CacheConfig) -> BlockCache {
    BlockCache::open(disks.0.clone(), disks.1.clone(), ID, config).expect("a cache in order")
}

/// Random writes and reads of any alignment and length, checked against plain bytes.
fn work(cache: &BlockCache, truth: &mut [u8], random: &mut Random, requests: u64) {
    for _ in 0..requests {
        let offset = random.below(truth.len() as u64);
        let longest = [8, 600, 5000][random.below(3) as usize];
        let len = (1 + random.below(longest)).min(truth.len() as u64 - offset);
        let range = offset as usize..(offset + len) as usize;
        if random.chance(0.5) {
            let payload = random.next_u64() as u8;
            truth[range.clone()].iter_mut().enumerate().for_each(|(i, b)| *b = payload.wrapping_add(i as u8));
            cache.write(offset, &truth[range], random.chance(0.05)).expect("a write");
        } else {
            let mut bytes = vec![0; len as usize];
            cache.read(offset, &mut bytes).expect("a read");
            assert!(bytes == truth[range], "{len} bytes at {offset}");
        }
    }
}

fn whole(cache: &BlockCache) -> Vec<u8> {
    let mut bytes = vec![0; BACKING_BYTES as usize];
    cache.read(0, &mut bytes).expect("a read");
    bytes
}

#[test]
fn any_bytes_in_any_mode_are_read_back_across_restarts() {
    for policy in ["lru", "arc", "face-gsc", "lc", "tac", "hibachi", "multi-tier"] {
        for mode in [Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround] {
            println!("{policy} {mode:?}");
            let (disks, config) = (formatted(), config(policy, mode));
            let mut truth = vec![0; BACKING_BYTES as usize];
            let mut random = Random::new(11);
            for _ in 0..4 {
                let cache = open(&disks, &config);
                assert!(whole(&cache) == truth, "after a restart");
                work(&cache, &mut truth, &mut random, 300);
                cache.close().expect("a close");
            }
            let cache = open(&disks, &config);
            cache.drain().expect("a drain");
            let mut below = vec![0; BACKING_BYTES as usize];
            disks.1.read_at(0, &mut below).expect("the backing store");
            assert!(below == truth, "after a drain the backing store is complete");
        }
    }
}

#[test]
fn a_file_serves_as_well_as_the_simulated_disk() {
    let dir = std::env::temp_dir().join(format!("entresol-block-cache-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let (cache_path, backing_path) = (dir.join("cache"), dir.join("backing"));
    let mut truth = vec![0; 1 << 20];
    for round in 0..3 {
        let cache = FileDisk::create(&cache_path, 2 << 20, Caching::Buffered).expect("a file");
        let backing = FileDisk::create(&backing_path, 1 << 20, Caching::Buffered).expect("a file");
        if round == 0 {
            let geometry = Geometry::for_device(2 << 20, 4096, Layout::Log).expect("a geometry");
            BlockCache::format(&cache, geometry, &backing, [1; 16], ID).expect("room");
        }
        let lru = catalogue::info("lru").expect("lru");
        let cache = BlockCache::open(cache, backing, ID, &CacheConfig::new(lru, &[100])).expect("a cache");
        let mut bytes = vec![0; truth.len()];
        cache.read(0, &mut bytes).expect("a read");
        assert!(bytes == truth, "round {round}");
        work(&cache, &mut truth, &mut Random::new(round), 200);
        cache.flush().expect("a flush");
    }
    std::fs::remove_dir_all(&dir).expect("the directory just made");
}

#[test]
fn what_was_cached_is_warm_after_a_restart() {
    let (disks, config) = (formatted(), config("lru", Mode::WriteBack));
    let cache = open(&disks, &config);
    for page in 0..40u64 {
        cache.write(page * 1024, &[page as u8 + 1; 1024], false).expect("a write");
    }
    cache.flush().expect("a flush");
    drop(cache);
    let cache = open(&disks, &config);
    assert!(!cache.recovered().clean_shutdown);
    for page in 0..40u64 {
        let mut bytes = [0; 1024];
        cache.read(page * 1024, &mut bytes).expect("a read");
        assert_eq!(bytes, [page as u8 + 1; 1024]);
    }
    let stats = cache.stats().expect("counts");
    assert_eq!((stats.counts.read_hits, stats.dirty_pages), (40, 40));
    cache.drain().expect("a drain");
    cache.close().expect("a close");
    let cache = open(&disks, &config);
    assert!(cache.recovered().clean_shutdown);
    assert_eq!(cache.stats().expect("counts").dirty_pages, 0, "a drain is remembered");
}

#[test]
fn pages_that_the_policy_has_not_been_shown_yet_hit_and_stay() {
    const PAGES: u64 = 540;
    let geometry = Geometry { page_bytes: 1024, segment_pages: 16, segments: 64, layout: super::LAYOUT };
    for (policy, tiers) in [("lru", &[620][..]), ("h-arc", &[620]), ("face-gsc", &[10, 620])] {
        let power = Power::steady();
        let disks = (SimDisk::new(geometry.size_bytes(), &power), SimDisk::new(3 * PAGES * 1024, &power));
        BlockCache::format(&disks.0, geometry, &disks.1, [1; 16], ID).expect("room");
        let config = CacheConfig::new(catalogue::info(policy).expect("a policy"), tiers);
        let cache = open(&disks, &config);
        for page in 0..PAGES {
            cache.write(page * 1024, &[page as u8; 1024], false).expect("a write");
        }
        cache.close().expect("a close");
        let cache = open(&disks, &config);
        // Sixty-four are shown behind each request: after the fifth most are still to come, and the newest hit already.
        // Some requests are for a page that was not there, so that the log is appended to meanwhile.
        for page in (0..PAGES).rev() {
            let mut bytes = [0; 1024];
            cache.read(page * 1024, &mut bytes).expect("a read");
            assert_eq!(bytes, [page as u8; 1024], "{policy}, page {page}");
            if page % 10 == 0 {
                cache.read((PAGES + page) * 1024, &mut bytes).expect("a read");
            }
        }
        let counts = cache.stats().expect("stats").counts;
        assert_eq!((counts.reads, counts.read_hits), (PAGES + PAGES / 10, PAGES), "{policy}");
    }
}

#[test]
fn a_device_that_is_no_cache_of_this_store_is_refused_with_the_reason() {
    let config = config("lru", Mode::WriteBack);
    let why = |cache: &SimDisk, backing: &SimDisk, id: [u8; 16]| {
        BlockCache::open(cache.clone(), backing.clone(), id, &config).err().expect("an error").to_string()
    };
    let (blank, backing) = disks();
    assert!(why(&blank, &backing, ID).contains("not an Entresol cache"));
    let (cache, backing) = formatted();
    assert!(why(&cache, &backing, [4; 16]).contains("another backing store"));
    let shorter = SimDisk::new(BACKING_BYTES - 4096, &Power::steady());
    assert!(why(&cache, &shorter, ID).contains("fewer than the 101"));

    let copy_onto = |bytes: u64| {
        let onto = SimDisk::new(bytes, &Power::steady());
        let mut superblocks = vec![0; 8192];
        cache.read_at(0, &mut superblocks).expect("a read");
        onto.write_at(0, &superblocks).expect("a write");
        onto
    };
    assert!(why(&copy_onto(GEOMETRY.size_bytes() - 1024), &backing, ID).contains("shrunk"));
    let newer = copy_onto(GEOMETRY.size_bytes());
    [8, 4096 + 8].into_iter().for_each(|byte| newer.flip(byte, 2));
    assert!(why(&newer, &backing, ID).contains("version 7"));
    let damaged = copy_onto(GEOMETRY.size_bytes());
    [70, 4096 + 70].into_iter().for_each(|byte| damaged.flip(byte, 1));
    assert!(why(&damaged, &backing, ID).contains("both superblocks"));
    let one_left = copy_onto(GEOMETRY.size_bytes());
    one_left.flip(70, 1);
    BlockCache::open(one_left, backing.clone(), ID, &config).expect("one good superblock is enough");

    let small = SimDisk::new(GEOMETRY.size_bytes() - 1, &Power::steady());
    let too_small = BlockCache::format(&small, GEOMETRY, &backing, [1; 16], ID).expect_err("too small");
    assert!(matches!(too_small, StoreError::TooSmall { .. }), "{too_small}");
    let min = catalogue::info("min").expect("min");
    let offline = BlockCache::open(cache.clone(), backing.clone(), ID, &CacheConfig::new(min, &[10]));
    assert!(matches!(offline, Err(CacheError::NotLive { .. })));
    let lru = catalogue::info("lru").expect("lru");
    let large = BlockCache::open(cache, backing, ID, &CacheConfig::new(lru, &[1000]));
    assert!(matches!(large, Err(CacheError::TierTooLarge { .. })));
}

#[test]
fn ranges_beyond_the_end_and_writes_in_read_only_mode_are_refused() {
    let disks = formatted();
    let cache = open(&disks, &config("lru", Mode::ReadOnly));
    assert_eq!(cache.read(BACKING_BYTES - 1, &mut [0; 2]).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(cache.write(u64::MAX, &[0; 2], false).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(cache.discard(0, BACKING_BYTES + 1).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(cache.write(0, &[1], false).unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    assert_eq!(cache.discard(0, 4096).unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    cache.read(0, &mut [0; 100]).expect("reads are served");
    cache.set_mode(Mode::WriteBack).expect("a change of mode");
    cache.write(0, &[1], true).expect("writes are served now");
}

#[test]
fn a_discard_gives_zeros_or_what_was_there() {
    let disks = formatted();
    let cache = open(&disks, &config("lru", Mode::WriteBack));
    let mut truth = vec![0; BACKING_BYTES as usize];
    work(&cache, &mut truth, &mut Random::new(5), 300);
    cache.discard(1000, 50_000).expect("a discard");
    cache.discard(BACKING_BYTES - 700, 700).expect("a discard of the end");
    let after = whole(&cache);
    let discarded = |at: usize| (1024..50 * 1024 - 200).contains(&at);
    let mut zeroed = 0;
    for (at, (&now, &before)) in after.iter().zip(&truth).enumerate() {
        let last = at >= 100 * 1024;
        assert!(now == before || ((discarded(at) || last) && now == 0), "byte {at}");
        zeroed += usize::from(now != before);
    }
    println!("{zeroed} bytes became zeros");
}

#[test]
fn in_write_through_losing_the_cache_device_fails_no_request() {
    for (policy, at) in [("lru", 0), ("lru", 40), ("face-gsc", 25), ("tac", 77), ("lc", 133), ("arc", 400)] {
        println!("{policy}, the device vanishes after {at} requests");
        let disks = formatted();
        let cache = open(&disks, &config(policy, Mode::WriteThrough));
        let mut truth = vec![0; BACKING_BYTES as usize];
        let mut random = Random::new(at);
        work(&cache, &mut truth, &mut random, at);
        disks.0.vanish();
        work(&cache, &mut truth, &mut random, 600);
        cache.flush().expect("a flush");
        assert!(cache.stats().expect("counts").failed.is_some());
        assert!(cache.lost_pages().expect("a list").is_empty());
        drop(cache);
        let mut below = vec![0; BACKING_BYTES as usize];
        disks.1.read_at(0, &mut below).expect("the backing store");
        assert!(below == truth, "the backing store is complete");
    }
}

#[test]
fn in_write_back_a_lost_device_costs_what_only_it_had_and_says_so() {
    let disks = formatted();
    let cache = open(&disks, &config("lru", Mode::WriteBack));
    for page in 0..30u64 {
        cache.write(page * 1024, &[page as u8 + 1; 1024], false).expect("a write");
    }
    cache.flush().expect("a flush");
    for page in 20..40u64 {
        cache.write(page * 1024, &[page as u8 + 101; 1024], false).expect("a write");
    }
    disks.0.vanish();
    // A flush needs the device: from here on the device is known to be gone.
    let _noticed = cache.flush();
    assert!(cache.stats().expect("counts").failed.is_some());
    let lost = cache.lost_pages().expect("a list");
    let mut bytes = [0; 1024];
    for page in 0..40u64 {
        let read = cache.read(page * 1024, &mut bytes);
        let newest = if page < 20 { page as u8 + 1 } else { page as u8 + 101 };
        match read {
            Ok(()) => assert_eq!(bytes, [newest; 1024], "page {page}"),
            Err(error) => assert!(lost.contains(&page), "page {page}: {error}"),
        }
        assert_eq!(lost.contains(&page), cache.read(page * 1024, &mut bytes).is_err());
    }
    assert!((0..20).all(|page| lost.contains(&page)), "durable in the cache alone: {lost:?}");
    cache.write(0, &[9; 1024], false).expect("a lost page can be written again");
    cache.read(0, &mut bytes).expect("and read");
    assert_eq!(bytes, [9; 1024]);
    cache.write(1024, &[9; 10], false).expect_err("but not in part");
    cache.flush().expect("what is left is durable");
}

/// The device fails in the sync of a flush, and memory no longer has the writes that it was to make durable.
#[test]
fn a_flush_that_has_lost_what_it_was_to_cover_with_the_cache_device_fails() {
    let disks = formatted();
    let cache = open(&disks, &config("lru", Mode::WriteBack));
    for page in 0..30u64 {
        cache.write(page * 1024, &[7; 1024], false).expect("a write");
    }
    disks.0.inject(Fault::SyncError);
    let flushed = cache.flush();
    let lost = cache.lost_pages().expect("a list");
    println!("{flushed:?}, {} pages are lost", lost.len());
    assert!(cache.stats().expect("counts").failed.is_some() && !lost.is_empty());
    flushed.expect_err("it was not made durable");
    cache.flush().expect("what is left is durable");
}

#[test]
fn a_retired_cache_is_not_opened_again() {
    let disks = formatted();
    let config = config("lru", Mode::WriteThrough);
    let cache = open(&disks, &config);
    cache.write(0, &[1; 4096], false).expect("a write");
    disks.0.inject(Fault::SyncError);
    cache.flush().expect("the backing store has it");
    assert!(cache.stats().expect("counts").failed.is_some());
    drop(cache);
    let error = BlockCache::open(disks.0.clone(), disks.1.clone(), ID, &config).err().expect("an error");
    assert!(matches!(error, CacheError::Store(StoreError::Retired)), "{error}");
}

#[test]
fn every_single_fault_of_the_cache_device_is_survived_in_write_through() {
    let faults = [
        Fault::WriteError,
        Fault::ShortWrite(700),
        Fault::NoSpace,
        Fault::SyncError,
        Fault::ReadError,
        Fault::ReadFlip,
    ];
    for fault in faults {
        for at in [0, 10, 50, 200] {
            println!("{fault:?} after {at} requests");
            let disks = formatted();
            let cache = open(&disks, &config("lru", Mode::WriteThrough));
            let mut truth = vec![0; BACKING_BYTES as usize];
            let mut random = Random::new(at);
            work(&cache, &mut truth, &mut random, at);
            disks.0.inject(fault);
            work(&cache, &mut truth, &mut random, 400);
            cache.flush().expect("a flush");
            assert!(whole(&cache) == truth);
        }
    }
}

#[test]
fn a_failing_backing_store_is_an_error_to_the_caller_and_costs_nothing_once_it_works_again() {
    for fault in [Fault::WriteError, Fault::ShortWrite(512), Fault::NoSpace, Fault::SyncError] {
        for mode in [Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround] {
            println!("{fault:?} {mode:?}");
            let disks = formatted();
            let cache = open(&disks, &config("lru", mode));
            for page in 0..100u64 {
                cache.write(page * 1024, &[page as u8 + 1; 1024], false).expect("a write");
            }
            disks.1.inject(fault);
            let first = cache.drain();
            assert!(first.is_err(), "the caller hears of it");
            cache.drain().expect("it works again");
            let mut bytes = [0; 1024];
            for page in 0..100u64 {
                cache.read(page * 1024, &mut bytes).expect("a read");
                assert_eq!(bytes, [page as u8 + 1; 1024], "page {page}");
                disks.1.read_at(page * 1024, &mut bytes).expect("a read");
                assert_eq!(bytes, [page as u8 + 1; 1024], "page {page} below");
            }
        }
    }
}

/// A sync reports a failure once, to its caller: here to a drain. The next flush syncs earlier writes only if
/// they are written again.
#[test]
fn a_flush_after_a_sync_of_somebody_else_that_failed_makes_all_of_it_durable() {
    for policy in ["lru", "tac", "face-gsc"] {
        for mode in [Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround] {
            for cutoff_bytes in [0, 4096] {
                println!("{policy} {mode:?}, a cutoff of {cutoff_bytes} bytes");
                let disks = formatted();
                let cache = open(&disks, &config(policy, mode));
                cache.set_sequential_cutoff(cutoff_bytes).expect("a cutoff");
                for page in 0..100u64 {
                    cache.write(page * 1024, &[page as u8 + 1; 1024], false).expect("a write");
                }
                disks.1.inject(Fault::SyncError);
                cache.drain().expect_err("a failed sync");
                cache.flush().expect("a flush");
                drop(cache);
                disks.0.crash(1);
                disks.1.crash(2);
                let cache = open(&disks, &config(policy, mode));
                let mut bytes = [0; 1024];
                for page in 0..100u64 {
                    cache.read(page * 1024, &mut bytes).expect("a read");
                    assert_eq!(bytes, [page as u8 + 1; 1024], "page {page}");
                }
            }
        }
    }
}

/// Changes below by somebody else cannot be written again from here. After a failed sync every flush fails that began
/// before another flush had reported the loss.
#[test]
fn a_flush_after_a_failed_sync_says_that_a_change_below_may_be_lost() {
    for mode in [Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround] {
        for discarded in [true, false] {
            println!("{mode:?}, discarded: {discarded}");
            let disks = formatted();
            let cache = open(&disks, &config("lru", mode));
            let (at, len) = (5 * 1024, 3 * 1024);
            let changed = if discarded { cache.discard(at, len) } else { cache.forget(at, len) };
            changed.expect("a change");
            disks.1.inject(Fault::SyncError);
            cache.drain().expect_err("a failed sync");
            // A flush without a caller leaves the report to a flush with one.
            cache.flush_ahead().expect("all that is here is durable");
            cache.flush().expect_err("the change may be lost");
            cache.flush().expect("it has been said");
            cache.write(0, &[1; 1024], false).expect("a write");
            disks.1.inject(Fault::SyncError);
            cache.drain().expect_err("the sync of a write");
            cache.flush().expect("a write is written again");
        }
    }
}

/// Changes before a flush are told apart from later ones, in every mode, so that a server knows when to flush unasked.
#[test]
fn changes_that_no_flush_has_covered_are_counted() {
    for mode in [Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround] {
        let disks = formatted();
        let cache = open(&disks, &config("lru", mode));
        let is_flushed = || {
            let progress = cache.flush_progress();
            progress.changes == progress.flushed
        };
        assert!(is_flushed(), "{mode:?}: nothing was changed");
        let changes: [&dyn Fn() -> std::io::Result<()>; 3] =
            [&|| cache.write(0, &[1; 3 * 1024], false), &|| cache.discard(5 * 1024, 1024), &|| {
                cache.forget(7 * 1024, 1024)
            }];
        for change in changes {
            change().expect("a change");
            assert!(!is_flushed(), "{mode:?}");
            disks.1.inject(Fault::SyncError);
            // The first flush that must sync below fails. The changes that it did not cover are reported as not
            // flushed.
            let tries = (0..5).take_while(|_| {
                let flushed = cache.flush_ahead().is_ok();
                assert_eq!(is_flushed(), flushed, "{mode:?}");
                !flushed
            });
            assert!(tries.count() < 5, "{mode:?}");
        }
        cache.read(0, &mut [0; 1024]).expect("a read");
        assert!(is_flushed(), "{mode:?}: a read changes nothing");
    }
}

#[test]
fn a_passing_read_error_of_the_cache_device_costs_nothing() {
    for fault in [Fault::ReadError, Fault::ReadFlip] {
        let disks = formatted();
        let cache = open(&disks, &config("lru", Mode::WriteBack));
        cache.write(0, &[7; 1024], true).expect("a write");
        disks.0.inject(fault);
        let mut bytes = [0; 1024];
        cache.read(0, &mut bytes).expect("it is read again");
        assert_eq!(bytes, [7; 1024]);
        assert_eq!(cache.stats().expect("counts").write_back.pages_lost, 0);
    }
}

#[test]
fn a_cache_opened_for_write_through_owes_nothing_of_its_past() {
    let disks = formatted();
    let cache = open(&disks, &config("lru", Mode::WriteBack));
    cache.write(0, &[7; 4096], true).expect("a write");
    drop(cache);
    let cache = open(&disks, &config("lru", Mode::WriteThrough));
    disks.0.vanish();
    let mut bytes = [0; 4096];
    cache.read(0, &mut bytes).expect("the backing store has it");
    assert_eq!(bytes, [7; 4096]);
}

/// The slots layout's journal then gets few new entries, and must repeat those of all pages that are no longer
/// written. These are more than it has free blocks for at once.
#[test]
fn a_full_cache_keeps_going_when_one_page_is_written_and_flushed_again_and_again() {
    for (page_bytes, segment_pages, segments) in [(512, 16, 160), (512, 4, 400), (4096, 64, 256)] {
        let geometry = Geometry { page_bytes, segment_pages, segments, layout: super::LAYOUT };
        let (capacity, page_bytes) = (geometry.capacity_pages(), u64::from(page_bytes));
        let power = Power::steady();
        let size = capacity * page_bytes;
        let (cache, backing) = (SimDisk::new(geometry.size_bytes(), &power), SimDisk::new(size, &power));
        BlockCache::format(&cache, geometry, &backing, [1; 16], ID).expect("room");
        let config = CacheConfig::new(catalogue::info("lru").expect("a policy"), &[capacity as usize]);
        let cache = BlockCache::open(cache, backing, ID, &config).expect("a cache");
        let mut bytes = vec![0; page_bytes as usize];
        for page in 0..capacity {
            bytes.fill(page as u8);
            cache.write(page * page_bytes, &bytes, false).expect("a write");
        }
        for again in 0..3 * geometry.segments * segment_pages {
            bytes.fill(again as u8);
            cache.write(0, &bytes, true).expect("a write");
        }
        let stats = cache.stats().expect("counts");
        assert_eq!(stats.failed, None, "{geometry:?}");
        for page in 1..capacity {
            cache.read(page * page_bytes, &mut bytes).expect("a read");
            assert!(bytes.iter().all(|&byte| byte == page as u8), "page {page} of {geometry:?}");
        }
        assert_eq!(cache.stats().expect("counts").counts.read_hits, capacity - 1, "all of them are held");
    }
}

#[test]
fn a_cache_filled_to_its_capacity_keeps_going_when_every_write_is_flushed() {
    let sizes = if super::LAYOUT == Layout::Log { [(4, 12), (16, 9), (16, 64)] } else { [(4, 40), (16, 28), (16, 64)] };
    for (segment_pages, segments) in sizes {
        let geometry = Geometry { page_bytes: 512, segment_pages, segments, layout: super::LAYOUT };
        let capacity = geometry.capacity_pages();
        let power = Power::steady();
        let (cache, backing) = (SimDisk::new(geometry.size_bytes(), &power), SimDisk::new(2 * capacity * 512, &power));
        BlockCache::format(&cache, geometry, &backing, [1; 16], ID).expect("room");
        for policy in ["lru", "random", "lfu"] {
            let info = catalogue::info(policy).expect("a policy");
            let config = CacheConfig::new(info, &[capacity as usize]);
            let cache = BlockCache::open(cache.clone(), backing.clone(), ID, &config).expect("a cache");
            let mut random = Random::new(1);
            for i in 0..20 * capacity {
                let page = random.below(if i % 3 == 0 { 2 * capacity } else { capacity });
                cache.write(page * 512, &[i as u8; 512], true).expect("a write");
            }
            let stats = cache.stats().expect("counts");
            assert!(stats.failed.is_none() && stats.write_back.segments_reclaimed + stats.write_back.slots_freed > 0);
            println!(
                "{geometry:?} {policy}: {} copied per page written",
                stats.write_back.copied as f64 / (20 * capacity) as f64
            );
        }
    }
}

#[test]
fn the_store_costs_what_its_format_says() {
    let geometry = Geometry { page_bytes: 4096, segment_pages: 256, segments: 16, layout: super::LAYOUT };
    let power = Power::steady();
    let (cache, backing) = (SimDisk::new(geometry.size_bytes(), &power), SimDisk::new(32 << 20, &power));
    BlockCache::format(&cache, geometry, &backing, [1; 16], ID).expect("room");
    let info = catalogue::info("face").expect("face");
    // Without maintenance threads, whose syncs differ from run to run.
    let config = CacheConfig { maintenance: Maintenance::Requests, ..CacheConfig::new(info, &[0, 2000]) };
    let cache = BlockCache::open(cache, backing, ID, &config).expect("a cache");
    for i in 0..20_000u64 {
        let page = Random::mix(i) % 8000;
        cache.write(page * 4096, &[i as u8; 4096], false).expect("a write");
    }
    let stats = cache.stats().expect("counts");
    let (log, written) = (stats.store, 20_000.0);
    let amplification = log.blocks as f64 / log.pages as f64;
    let copied = stats.write_back.copied as f64 / written;
    let syncs = log.syncs as f64 / written;
    let mean_kib = log.blocks as f64 * 4.0 / log.batches as f64;
    println!(
        "{amplification:.4} blocks per page, {copied:.3} copied, 1/{:.0} syncs, writes of {mean_kib:.0} KiB",
        1.0 / syncs
    );
    // Every block of a journal has space for a copy of the one before.
    let blocks_max = if super::LAYOUT == Layout::Log { 1.02 } else { 1.03 };
    assert!(amplification <= blocks_max, "{amplification} blocks per page");
    assert!(copied < 0.05, "FaCE's order is the log's: {copied} copied per page");
    // Slots are freed by two syncs: one of the entry that frees them, and one of the block that states its durability.
    let syncs_max = if super::LAYOUT == Layout::Log { 1.0 / 200.0 } else { 1.0 / 150.0 };
    assert!(syncs <= syncs_max, "{syncs} syncs per page");
    assert!(super::LAYOUT == Layout::Slots || mean_kib >= 256.0, "{mean_kib} KiB per write");
}

#[test]
fn what_was_forgotten_is_read_from_below_and_never_written_there() {
    for policy in ["lru", "face-gsc", "tac", "multi-tier"] {
        for mode in [Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround] {
            println!("{policy} {mode:?}");
            let (disks, config) = (formatted(), config(policy, mode));
            let mut cache = open(&disks, &config);
            let mut truth = vec![0; BACKING_BYTES as usize];
            let mut random = Random::new(23);
            for round in 0..30u8 {
                work(&cache, &mut truth, &mut random, 100);
                let from = random.below(BACKING_BYTES);
                let to = from + random.below(BACKING_BYTES - from + 1);
                // The short page at the end counts as whole.
                let (first, mut last) = (from.div_ceil(1024) * 1024, to / 1024 * 1024);
                last = if to == BACKING_BYTES { to } else { last };
                if first < last {
                    truth[first as usize..last as usize].fill(round);
                    disks.1.write_at(first, &truth[first as usize..last as usize]).expect("the backing store");
                }
                cache.forget(from, to - from).expect("a page can be forgotten at any time");
                assert!(whole(&cache) == truth, "round {round}, bytes {from} to {to}");
                if round % 7 == 0 {
                    cache.flush().expect("a flush");
                    cache = open(&disks, &config);
                    assert!(whole(&cache) == truth, "round {round}, after a restart");
                }
            }
            cache.drain().expect("a drain");
            let mut below = vec![0; BACKING_BYTES as usize];
            disks.1.read_at(0, &mut below).expect("the backing store");
            assert!(below == truth, "after a drain the backing store is complete");
        }
    }
    let cache = open(&formatted(), &config("lru", Mode::WriteBack));
    assert_eq!(cache.forget(BACKING_BYTES, 1).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn what_is_discarded_in_the_cache_is_not_written_back() {
    let disks = formatted();
    let cache = open(&disks, &config("lru", Mode::WriteBack));
    cache.write(0, &[7; 40 * 1024], false).expect("a write");
    cache.discard(0, 40 * 1024).expect("a discard");
    cache.drain().expect("a drain");
    let stats = cache.stats().expect("counts");
    assert_eq!((stats.write_back.below_pages, stats.dirty_pages), (0, 0));
    let mut bytes = vec![1; 40 * 1024];
    cache.read(0, &mut bytes).expect("a read");
    assert!(bytes.iter().all(|&byte| byte == 0));
}

#[test]
fn zeroes_are_written_from_any_byte_to_any_byte() {
    let cache = open(&formatted(), &config("lru", Mode::WriteBack));
    let mut truth = vec![9; BACKING_BYTES as usize];
    cache.write(0, &truth, false).expect("a write");
    cache.write_zeroes(700, 50_001).expect("zeroes");
    truth[700..50_701].fill(0);
    assert!(whole(&cache) == truth);
    assert_eq!(cache.write_zeroes(BACKING_BYTES - 1, 2).unwrap_err().kind(), ErrorKind::InvalidInput);
}
