//! Faults of a device in the middle of a run that are no plain errors: misdirected and lost writes, and a device
//! that shrinks or stalls. Further tests: a backing store that vanishes, and requests larger than the cache.
//! `docs/OPERATING.md` lists all faults with their tests.

use entresol_cache::Block;
use entresol_cache::{BlockCache, CacheConfig, Mode};
use entresol_core::Random;
use entresol_crashtest::{Fault, Power, SimDisk};
use entresol_disk::{Caching, Disk, FileDisk};
use entresol_policy::catalogue;
use entresol_store::Geometry;
use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

const GEOMETRY: Geometry = Geometry { page_bytes: 4096, segment_pages: 16, segments: 16, layout: super::LAYOUT };
const ID: [u8; 16] = [3; 16];
const PAGE: u64 = 4096;
const PAGES: u64 = 300;

fn config(mode: Mode) -> CacheConfig {
    CacheConfig { mode, ..CacheConfig::new(catalogue::info("lru").expect("lru"), &[60]) }
}

fn disks() -> (SimDisk, SimDisk) {
    let power = Power::steady();
    let (cache, backing) = (SimDisk::new(GEOMETRY.size_bytes(), &power), SimDisk::new(PAGES * PAGE, &power));
    BlockCache::format(&cache, GEOMETRY, &backing, [1; 16], ID).expect("room");
    (cache, backing)
}

/// Reads and writes whole pages. A read is right, or an error of a page that is listed as lost. A write may
/// report a fault of a page that it displaces, and succeeds when repeated. Returns the number of errors.
fn work(cache: &BlockCache, truth: &mut [u8], random: &mut Random, requests: u64) -> u64 {
    let mut refused = 0;
    for _ in 0..requests {
        let page = random.below(PAGES / 3);
        if random.chance(0.5) {
            truth[page as usize] = random.next_u64() as u8;
            let bytes = [truth[page as usize]; PAGE as usize];
            let fua = random.chance(0.05);
            if let Err(error) = cache.write(page * PAGE, &bytes, fua) {
                println!("writing page {page}: {error}");
                refused += 1;
                cache.write(page * PAGE, &bytes, fua).expect("the same write again");
            }
        } else {
            refused += u64::from(!is_right(cache, page, truth[page as usize]));
        }
    }
    refused
}

/// True if a page reads as it was written. Otherwise the page must be listed as lost.
fn is_right(cache: &BlockCache, page: u64, truth: u8) -> bool {
    let mut bytes = [0; PAGE as usize];
    match cache.read(page * PAGE, &mut bytes) {
        Ok(()) => {
            assert!(bytes == [truth; PAGE as usize], "page {page} reads as {} and was {truth}", bytes[0]);
            true
        }
        Err(error) => {
            let lost = cache.lost_pages().expect("a list");
            assert!(lost.contains(&page), "page {page}: {error}; lost are {lost:?}");
            false
        }
    }
}

#[test]
fn a_write_that_lands_elsewhere_or_nowhere_is_never_read_as_something_else() {
    let mut lost = 0;
    for fault in [Fault::LostWrite, Fault::Misdirected(PAGE), Fault::Misdirected(40 * PAGE)] {
        for mode in [Mode::WriteThrough, Mode::WriteBack] {
            for seed in 0..12 {
                println!("{fault:?}, {mode:?}, seed {seed}");
                let (disks, mut random, mut truth) = (disks(), Random::new(seed), vec![0; PAGES as usize]);
                let cache = BlockCache::open(disks.0.clone(), disks.1.clone(), ID, &config(mode)).expect("a cache");
                assert_eq!(work(&cache, &mut truth, &mut random, 20 * seed), 0);
                disks.0.inject(fault);
                let mut refused = work(&cache, &mut truth, &mut random, 400);
                refused += (0..PAGES).filter(|&page| !is_right(&cache, page, truth[page as usize])).count() as u64;
                assert!(mode == Mode::WriteBack || refused == 0, "in write-through no request fails");
                lost += refused;
                if cache.close().is_err() {
                    continue;
                }
                drop(cache);
                // The store may be found damaged. If not, the bytes that it gives are right.
                if let Ok(cache) = BlockCache::open(disks.0.clone(), disks.1.clone(), ID, &config(mode)) {
                    lost += (0..PAGES).filter(|&page| !is_right(&cache, page, truth[page as usize])).count() as u64;
                }
            }
        }
    }
    assert!(lost > 0, "the faults struck");
}

#[test]
fn in_write_through_a_cache_file_that_shrinks_in_use_fails_no_request() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let [cache_path, backing_path] = ["cache", "backing"].map(|name| scratch.path().join(name));
    let disk = |path, size| FileDisk::create(path, size, Caching::Buffered).expect("a file");
    let (file, backing) = (disk(&cache_path, GEOMETRY.size_bytes()), disk(&backing_path, PAGES * PAGE));
    BlockCache::format(&file, GEOMETRY, &backing, [1; 16], ID).expect("room");
    let cache = BlockCache::open(file, backing, ID, &config(Mode::WriteThrough)).expect("a cache");
    let (mut random, mut truth) = (Random::new(1), vec![0; PAGES as usize]);
    work(&cache, &mut truth, &mut random, 300);
    cache.flush().expect("a flush");
    let shrunk = std::fs::OpenOptions::new().write(true).open(&cache_path).expect("the cache file");
    shrunk.set_len(3 * PAGE).expect("it shrinks");
    assert_eq!(work(&cache, &mut truth, &mut random, 300), 0);
    (0..PAGES).for_each(|page| assert!(is_right(&cache, page, truth[page as usize])));
    cache.drain().expect("the backing store has everything");
    drop(cache);
    shrunk.set_len(3 * PAGE).expect("it shrinks again");
    let (file, backing) =
        (FileDisk::open(&cache_path, Caching::Buffered), FileDisk::open(&backing_path, Caching::Buffered));
    let opened = BlockCache::open(file.expect("a file"), backing.expect("a file"), ID, &config(Mode::WriteThrough));
    let refused = opened.err().expect("it is too small for the store on it").to_string();
    assert!(refused.contains("shrunk"), "{refused}");
}

/// A disk whose writes fail while a flag is set.
struct Unwritable {
    disk: SimDisk,
    fails: Arc<std::sync::atomic::AtomicBool>,
}

impl Disk for Unwritable {
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.disk.read_at(at, bytes)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        if self.fails.load(std::sync::atomic::Ordering::SeqCst) {
            return Err(io::Error::other("injected write error"));
        }
        self.disk.write_at(at, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.sync()
    }

    fn discard(&self, at: u64, bytes: u64) -> io::Result<()> {
        self.disk.discard(at, bytes)
    }
}

/// No space can be freed for the policy's moves then. A read needs none.
#[test]
fn while_only_writes_below_fail_every_read_succeeds() {
    let (cache, backing) = disks();
    let fails = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let below = Unwritable { disk: backing, fails: Arc::clone(&fails) };
    let cache = BlockCache::open(cache, below, ID, &config(Mode::WriteBack)).expect("a cache");
    let mut truth = vec![0; PAGES as usize];
    fails.store(true, std::sync::atomic::Ordering::SeqCst);
    let mut refused = 0;
    for write in 0..2000u64 {
        let page = write * 7 % PAGES;
        let bytes = [write as u8; PAGE as usize];
        match cache.write(page * PAGE, &bytes, false) {
            Ok(()) => truth[page as usize] = write as u8,
            Err(_) => refused += 1,
        }
        let read = write * 13 % PAGES;
        assert!(is_right(&cache, read, truth[read as usize]), "after {write} writes, {refused} of them refused");
    }
    assert!(refused > 0, "the queue is full and cannot be written below");
    // Several pages at once, too.
    let mut bytes = vec![0; (PAGES * PAGE) as usize];
    cache.read(0, &mut bytes).expect("a read of all pages");
    assert!(bytes.chunks(PAGE as usize).zip(&truth).all(|(page, truth)| page.iter().all(|byte| byte == truth)));
    fails.store(false, std::sync::atomic::Ordering::SeqCst);
    cache.drain().expect("a drain");
    cache.close().expect("a close");
}

/// A disk that answers nothing while it is stalled.
struct Stalling {
    disk: SimDisk,
    stalled: Arc<(Mutex<bool>, Condvar)>,
}

impl Stalling {
    fn wait(&self) {
        let (stalled, changed) = &*self.stalled;
        drop(changed.wait_while(stalled.lock().expect("a lock"), |stalled| *stalled).expect("a lock"));
    }
}

impl Disk for Stalling {
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.wait();
        self.disk.read_at(at, bytes)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.wait();
        self.disk.write_at(at, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.wait();
        self.disk.sync()
    }

    fn discard(&self, at: u64, bytes: u64) -> io::Result<()> {
        self.wait();
        self.disk.discard(at, bytes)
    }
}

/// Ends the stall of a device when dropped, so that a failing test ends.
struct GoesOn<'a>(&'a (Mutex<bool>, Condvar));

impl Drop for GoesOn<'_> {
    fn drop(&mut self) {
        *self.0.0.lock().expect("a lock") = false;
        self.0.1.notify_all();
    }
}

/// A cache whose backing store stalls on demand.
fn over_a_stalling_store() -> (BlockCache, Arc<(Mutex<bool>, Condvar)>) {
    let disks = disks();
    let stalled = Arc::new((Mutex::new(false), Condvar::new()));
    let below = Stalling { disk: disks.1, stalled: Arc::clone(&stalled) };
    (BlockCache::open(disks.0, below, ID, &config(Mode::WriteBack)).expect("a cache"), stalled)
}

#[test]
fn a_read_that_waits_for_a_slow_store_holds_up_no_other_page() {
    let (cache, stalled) = over_a_stalling_store();
    *stalled.0.lock().expect("a lock") = true;
    std::thread::scope(|scope| {
        let goes_on = GoesOn(&stalled);
        let missing = scope.spawn(|| is_right(&cache, 0, 0));
        std::thread::sleep(Duration::from_millis(20));
        let others = scope.spawn(|| {
            let write = |page: u64| cache.write(page * PAGE, &[page as u8; PAGE as usize], false).expect("a write");
            (1..PAGES).step_by(6).for_each(write);
            (1..PAGES).step_by(6).for_each(|page| assert!(is_right(&cache, page, page as u8)));
        });
        wait_for(|| others.is_finished());
        assert!(!missing.is_finished(), "the store stalls");
        drop(goes_on);
    });
}

fn wait_for(done: impl Fn() -> bool) {
    for _ in 0..2000 {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("that has taken ten seconds");
}

#[test]
fn a_drain_and_a_change_of_the_mode_hold_up_no_request() {
    let modes: [fn(&BlockCache) -> io::Result<()>; 2] = [BlockCache::drain, |cache| cache.set_mode(Mode::WriteThrough)];
    for change in modes {
        let disks = disks();
        let stalled = Arc::new((Mutex::new(false), Condvar::new()));
        let below = Stalling { disk: disks.1.clone(), stalled: Arc::clone(&stalled) };
        let cache = BlockCache::open(disks.0, below, ID, &config(Mode::WriteBack)).expect("a cache");
        let write = |page: u64, byte: u8| cache.write(page * PAGE, &[byte; PAGE as usize], false).expect("a write");
        (0..40).for_each(|page| write(page, 1));
        *stalled.0.lock().expect("a lock") = true;
        std::thread::scope(|scope| {
            let goes_on = GoesOn(&stalled);
            let changing = scope.spawn(|| change(&cache).expect("it ends well"));
            std::thread::sleep(Duration::from_millis(20));
            let requests = scope.spawn(|| {
                (30..50).for_each(|page| write(page, 2));
                (0..50).for_each(|page| assert!(is_right(&cache, page, 1 + u8::from(page >= 30))));
            });
            wait_for(|| requests.is_finished());
            assert!(!changing.is_finished(), "the store stalls");
            drop(goes_on);
        });
        for page in 0..50 {
            let mut byte = [0];
            disks.1.read_at(page * PAGE, &mut byte).expect("a read");
            assert_eq!(byte[0], 1 + u8::from(page >= 30), "page {page} below");
        }
    }
}

#[test]
fn writes_do_not_wait_for_a_slow_store_while_there_is_room_in_the_queue() {
    let (cache, stalled) = over_a_stalling_store();
    let write = |page: u64, byte: u8| cache.write(page * PAGE, &[byte; PAGE as usize], false).expect("a write");
    (0..60).for_each(|page| write(page, 1));
    *stalled.0.lock().expect("a lock") = true;
    std::thread::scope(|scope| {
        let goes_on = GoesOn(&stalled);
        // Each evicts a dirty page: as many as four segments hold may wait.
        let space = scope.spawn(|| (60..120).for_each(|page| write(page, 2)));
        wait_for(|| space.is_finished());
        // The pages being written make space in the queue for as many again.
        let beyond = scope.spawn(|| (120..270).for_each(|page| write(page, 3)));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!beyond.is_finished(), "there is a limit to what waits");
        drop(goes_on);
    });
    for page in 0..270 {
        assert!(is_right(&cache, page, 1 + (page / 60).min(2) as u8));
    }
}

#[test]
fn a_device_that_stalls_delays_and_costs_nothing() {
    let disks = disks();
    let stalled = Arc::new((Mutex::new(false), Condvar::new()));
    let device = Stalling { disk: disks.0.clone(), stalled: Arc::clone(&stalled) };
    let cache = BlockCache::open(device, disks.1.clone(), ID, &config(Mode::WriteBack)).expect("a cache");
    let mut truth = vec![0; PAGES as usize];
    work(&cache, &mut truth, &mut Random::new(1), 200);
    *stalled.0.lock().expect("a lock") = true;
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            cache.write(0, &[77; PAGE as usize], false).expect("a write");
            cache.flush().expect("a flush");
        });
        std::thread::sleep(Duration::from_millis(50));
        assert!(!waiting.is_finished(), "a flush promises nothing that the device has not done");
        *stalled.0.lock().expect("a lock") = false;
        stalled.1.notify_all();
    });
    truth[0] = 77;
    (0..PAGES).for_each(|page| assert!(is_right(&cache, page, truth[page as usize])));
    let stats = cache.stats().expect("counts");
    assert!(stats.failed.is_none() && stats.write_back.pages_lost == 0);
}

#[test]
fn when_the_backing_store_vanishes_what_is_cached_is_served_and_kept() {
    let disks = disks();
    let cache = BlockCache::open(disks.0.clone(), disks.1.clone(), ID, &config(Mode::WriteBack)).expect("a cache");
    let write = |page: u64, byte: u8| cache.write(page * PAGE, &[byte; PAGE as usize], false);
    (0..12).for_each(|page| write(page, 1).expect("a write"));
    disks.1.vanish();
    (0..12).for_each(|page| assert!(is_right(&cache, page, 1)));
    (0..6).for_each(|page| write(page, 2).expect("a write"));
    cache.flush().expect("they are durable in the cache");
    let missed = cache.read(200 * PAGE, &mut [0; PAGE as usize]).expect_err("only the backing store has it");
    assert!(missed.to_string().contains("gone"), "{missed}");
    cache.drain().expect_err("there is nowhere to go");
    (0..12).for_each(|page| assert!(is_right(&cache, page, if page < 6 { 2 } else { 1 })));
    assert!(cache.stats().expect("counts").failed.is_none(), "the cache device is in order");
}

#[test]
fn a_request_larger_than_the_cache_is_carried_out_in_pieces() {
    for mode in [Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround] {
        let disks = disks();
        let cache = BlockCache::open(disks.0.clone(), disks.1.clone(), ID, &config(mode)).expect("a cache");
        let bytes: Vec<u8> = (0..(PAGES * PAGE - 1000) as u32).map(|i| (i % 253) as u8).collect();
        cache.write(7, &bytes, true).expect("a write of the whole backing store at once, from an odd byte on");
        let mut back = vec![0; bytes.len()];
        cache.read(7, &mut back).expect("a read of all of it");
        assert!(back == bytes);
        cache.read(PAGES * PAGE, &mut []).expect("nothing, at the end");
        cache.write(3, &[], true).expect("nothing");
        cache.discard(0, PAGES * PAGE).expect("a discard of everything");
        cache.drain().expect("a drain");
    }
}
