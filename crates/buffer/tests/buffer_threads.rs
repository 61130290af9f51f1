//! Several threads at once: every byte right, the hit ratio that of the simulator, one load per page for all its
//! readers.

use entresol_buffer::table::{HashTable, PageTable};
use entresol_buffer::{BufferError, BufferManager, BufferOptions, Cleaner, MemoryIo, PageIo};
use entresol_core::{Address, ObjectId, Random, Size};
use entresol_policy::{Info, Options, catalogue};
use entresol_sim::{Addresses, CellOptions, LayerSpec, PolicySpec, run_cell};
use entresol_trace::{Column, Trace, generate};
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

const PAGE: usize = 4096;

fn at(block: u64) -> Address {
    Address { object: ObjectId(0), block }
}

fn manager<I: PageIo>(options: BufferOptions, policy: &str, io: I) -> BufferManager<HashTable, I> {
    let info = catalogue::info(policy).expect("a policy");
    BufferManager::hashed(options, info, &Options::defaults(info), io, None).expect("a manager")
}

fn words(page: &[u8]) -> impl Iterator<Item = u64> {
    page.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
}

/// A page of version `v` holds `id, v, id, v, ...`; page 0 of version 0 is the page of zeroes that was never written.
fn check(page: &[u8], id: u64) -> u64 {
    let version = words(page).nth(1).expect("two words");
    if version == 0 {
        assert!(page.iter().all(|&byte| byte == 0), "page {id} was never written, yet holds something");
        return 0;
    }
    for (i, word) in words(page).enumerate() {
        assert_eq!(word, if i % 2 == 0 { id } else { version }, "page {id} version {version}, word {i}");
    }
    version
}

fn write(page: &mut [u8], id: u64, version: u64) {
    for (i, word) in page.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&(if i % 2 == 0 { id } else { version }).to_le_bytes());
    }
}

/// Threads read, pin, update and overwrite pages at random. Versions never go back. At the end every page has its last
/// writer's bytes, above and below.
fn shaken<T: PageTable, I: PageIo>(manager: &BufferManager<T, I>, pages: u64, seed: u64, operations: u64) {
    println!("seed {seed}");
    let threads = 8;
    let newest: Vec<AtomicU64> = (0..pages).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let newest = &newest;
            scope.spawn(move || {
                let mut random = Random::new(seed * 1000 + thread);
                for _ in 0..operations {
                    // Squared: some pages are hot, and contended.
                    let id = (random.next_f64().powi(2) * pages as f64) as u64;
                    let known = newest[id as usize].load(Ordering::SeqCst);
                    let seen = match random.below(13) {
                        0..4 => {
                            let mut copy = vec![0; PAGE];
                            manager.read(at(id), |page| page.copy_to(0, &mut copy)).expect("a page");
                            check(&copy, id)
                        }
                        4..7 => check(&manager.pin(at(id)).expect("a page"), id),
                        7..9 => {
                            let ids = [id, random.below(pages), id, random.below(pages)];
                            let pins = manager.pin_many(&ids.map(at)).expect("pages");
                            ids.iter().zip(&pins).for_each(|(&id, pin)| _ = check(pin, id));
                            check(&pins[0], id)
                        }
                        9..11 => {
                            let mut owned = manager.update(at(id)).expect("a page");
                            let version = check(&owned, id) + 1;
                            write(&mut owned, id, version);
                            newest[id as usize].store(version, Ordering::SeqCst);
                            version
                        }
                        11 => {
                            let ids: Vec<u64> =
                                [id, id].into_iter().chain((0..20).map(|_| random.below(pages))).collect();
                            let (mut seen, mut newest) = (Vec::new(), 0);
                            let look = |at: Address, page: &[u8]| {
                                let version = check(page, at.block);
                                seen.push(at.block);
                                newest = if at.block == id { version } else { newest };
                            };
                            let depth = 1 + random.below(8) as usize;
                            manager.read_many(ids.iter().map(|&id| at(id)), depth, look).expect("pages");
                            seen.sort_unstable();
                            let mut ids = ids;
                            ids.sort_unstable();
                            assert_eq!(seen, ids, "each as often as it was named");
                            newest
                        }
                        _ => {
                            let mut owned = manager.overwrite(at(id)).expect("a page");
                            let version = newest[id as usize].load(Ordering::SeqCst) + 1;
                            write(&mut owned, id, version);
                            newest[id as usize].store(version, Ordering::SeqCst);
                            version
                        }
                    };
                    assert!(seen >= known, "page {id}: version {seen} after {known}");
                }
            });
        }
    });
    for (id, newest) in newest.iter().enumerate() {
        let id = id as u64;
        assert_eq!(check(&manager.pin(at(id)).expect("a page"), id), newest.load(Ordering::SeqCst), "page {id}");
    }
    manager.flush().expect("a flush");
    let mut below = vec![0; PAGE];
    for (id, newest) in newest.iter().enumerate() {
        manager.io().read_page(at(id as u64), &mut below).expect("a page below");
        assert_eq!(check(&below, id as u64), newest.load(Ordering::SeqCst), "page {id} below");
    }
    assert_eq!(manager.stats().dirty, 0);
}

#[test]
fn every_byte_is_right_under_eight_threads() {
    for (policy, shards, pages) in [("lru", 1, 40), ("arc", 4, 64), ("s3-fifo", 2, 30), ("fab", 1, 64), ("clock", 1, 1)]
    {
        println!("{policy} {shards} shards {pages} pages");
        let options = BufferOptions { shards, ..BufferOptions::new(pages) };
        shaken(&manager(options, policy, MemoryIo::new()), 200, 1 + pages as u64, 6000);
    }
}

#[test]
fn every_byte_is_right_with_a_cleaner_and_changes_of_policy() {
    let options = BufferOptions { dirty_high: 0.2, shards: 2, ..BufferOptions::new(100) };
    let manager = Arc::new(manager(options, "lru", MemoryIo::new()));
    let cleaner = Cleaner::start(&manager).expect("a thread");
    let changer = {
        let manager = manager.clone();
        std::thread::spawn(move || {
            for policy in ["arc", "sieve", "lirs", "2q", "cflru"].iter().cycle().take(60) {
                let info = catalogue::info(policy).expect("a policy");
                manager.change_policy(info, &Options::defaults(info)).expect("a change");
                std::thread::yield_now();
            }
        })
    };
    shaken(&manager, 250, 77, 10_000);
    changer.join().expect("the changes end");
    drop(cleaner);
    assert!(manager.stats().page_writes > 0);
}

#[test]
fn the_cleaner_keeps_dirty_pages_few() {
    let options = BufferOptions { dirty_high: 0.25, ..BufferOptions::new(1000) };
    let manager = Arc::new(manager(options, "lru", MemoryIo::new()));
    let _cleaner = Cleaner::start(&manager).expect("a thread");
    for id in 0..1000 {
        write(&mut manager.update(at(id)).expect("a page"), id, 1);
    }
    let begun = std::time::Instant::now();
    while manager.stats().dirty > 250 {
        assert!(begun.elapsed().as_secs() < 20, "{} pages are dirty still", manager.stats().dirty);
        std::thread::yield_now();
    }
    assert_eq!(manager.stats().misses, 1000, "nothing was evicted for it");
}

/// Policies whose hit ratio with threads is more than half a point from the simulator's, and the greatest
/// difference allowed.
/// - MRU evicts the page that came last, which is another page when requests change places.
/// - The hands of CLOCK-Pro and LB-CLOCK adapt to chance.
/// - A page that bypasses table placement is a hit for other threads while one thread uses it.
/// - The longest run must be evicted as a whole, so one page pinned by a waiting thread changes the victim.
/// - The policy that chooses another one may do so a window earlier or later, and its choices differ until then.
const APART: [(&str, f64); 6] = [
    ("mru", 0.05),
    ("clock-pro", 0.015),
    ("lb-clock", 0.015),
    ("table-placement", 0.05),
    ("longest", 0.08),
    ("auto", 0.03),
];

/// Hit ratio of eight threads that share out one stream.
fn hit_ratio_of_eight(trace: &Trace, info: &'static Info, options: BufferOptions) -> f64 {
    let manager = manager(options, info.name, MemoryIo::new());
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                // Small shares keep the threads near each other in the stream.
                loop {
                    let from = next.fetch_add(16, Ordering::Relaxed);
                    if from >= trace.len() {
                        break;
                    }
                    for i in from..(from + 16).min(trace.len()) {
                        let page = trace.address(entresol_core::Page(trace.pages[i]));
                        if trace.request(i).op.is_write() {
                            manager.update(page).expect("a page")[0] = 1;
                        } else {
                            manager.read(page, |page| page.u8_at(0)).expect("a page");
                        }
                    }
                }
            });
        }
    });
    let stats = manager.stats();
    assert_eq!(stats.hits + stats.misses, trace.len() as u64, "every request was counted once");
    stats.hit_ratio()
}

/// Eight threads share out one stream. The hit ratio is within half a point of the simulator's, for every live
/// policy but a few. On a busy machine a thread may wait long in the middle of its share. So a policy that is off
/// is run again: the median of up to five runs counts.
#[test]
fn the_hit_ratio_of_eight_threads_is_the_simulators() {
    let seed = 21;
    println!("seed {seed}");
    let spec = format!("zipf:n=400000:pages=20000:seed={seed}:write=5:update=80");
    let trace = generate(&spec.parse().expect("a trace specification"));
    let addresses = Addresses::new(&trace);
    let all = catalogue::ALL.iter().copied().filter(|info| info.tiers.len() == 1 && !info.future);
    let mut apart = Vec::new();
    let sharded = ["clock", "s3-fifo"].map(|policy| (catalogue::info(policy).expect("a policy"), 4));
    for (info, shards) in all.map(|info| (info, 1)).chain(sharded) {
        let policy = info.name;
        let layer =
            LayerSpec { policy: PolicySpec { info, options: Options::defaults(info) }, sizes: vec![Size::Pages(2000)] };
        let row = run_cell(&addresses, &[layer], String::new(), &CellOptions::default()).expect("a cell that runs");
        let simulated = (row.read_hits + row.write_hits) as f64 / row.requests as f64;
        let peak_temporal_distance = Some(entresol_trace::peak_temporal_distance(&trace));
        // Handles for all pages that a policy may remember: without them some policies start anew at times.
        let handles_per_page = trace.footprint().div_ceil(2000);
        let options = BufferOptions { shards, peak_temporal_distance, handles_per_page, ..BufferOptions::new(2000) };
        let bound = APART.iter().find(|apart| apart.0 == policy).map_or(0.005, |apart| apart.1);
        let mut runs: Vec<f64> = Vec::new();
        let median = loop {
            runs.push(hit_ratio_of_eight(&trace, info, options.clone()));
            runs.sort_by(f64::total_cmp);
            let median = runs[runs.len() / 2];
            if runs.len() == 5 || (runs.len() % 2 == 1 && (median - simulated).abs() < bound) {
                break median;
            }
        };
        println!("{policy}, {shards} shards: simulated {simulated:.4}, live {median:.4} of {runs:.4?}");
        if (median - simulated).abs() >= bound {
            apart.push(format!("{policy}: simulated {simulated:.4}, live {runs:.4?}"));
        }
    }
    assert!(apart.is_empty(), "{apart:#?}");
}

/// The stream as eight threads take it in shares of 16. A random thread goes on by up to `burst` requests at a time.
fn in_another_order(trace: &Trace, seed: u64, burst: u64) -> Trace {
    let mut random = Random::new(seed);
    let (mut next, mut shares) = (0, vec![0..0; 8]);
    let (mut pages, mut ops) = (Vec::new(), Vec::new());
    while pages.len() < trace.len() {
        let share: &mut std::ops::Range<usize> = &mut shares[random.below(8) as usize];
        for _ in 0..=random.below(burst) {
            if share.start == share.end && next < trace.len() {
                *share = next..(next + 16).min(trace.len());
                next += 16;
            }
            if let Some(i) = share.next() {
                pages.push(trace.pages[i]);
                ops.push(trace.ops[i]);
            }
        }
    }
    Trace {
        page_bytes: trace.page_bytes,
        pages: Column::Owned(pages),
        ops: Column::Owned(ops),
        times_us: None,
        next_use: None,
        page_object: Column::Owned(trace.page_object.to_vec()),
        page_block: Column::Owned(trace.page_block.to_vec()),
        objects: trace.objects.clone(),
        events: Vec::new(),
        provenance: String::new(),
    }
}

/// The part of the threads' effect due to the order of arrival, without threads, pins or batches. The part is
/// near zero, except for some of the policies in [`APART`]. lab/results/live-replay.md has the output.
#[test]
fn what_another_order_changes() {
    let trace =
        generate(&"zipf:n=400000:pages=20000:seed=21:write=5:update=80".parse().expect("a trace specification"));
    let orders: Vec<Trace> =
        (0..10).map(|seed| in_another_order(&trace, seed % 5, if seed < 5 { 1 } else { 16 })).collect();
    for policy in ["lru", "arc", "clock-pro", "mru", "lb-clock", "longest"] {
        let info = catalogue::info(policy).expect("a policy");
        let ratio = |trace: &Trace| {
            let policy = PolicySpec { info, options: Options::defaults(info) };
            let layer = LayerSpec { policy, sizes: vec![Size::Pages(2000)] };
            let row =
                run_cell(&Addresses::new(trace), &[layer], String::new(), &CellOptions::default()).expect("a cell");
            (row.read_hits + row.write_hits) as f64 / row.requests as f64
        };
        let (in_order, others) = (ratio(&trace), orders.iter().map(ratio).collect::<Vec<f64>>());
        println!("{policy}: in order {in_order:.4}, in others {others:.4?}");
        let moved = others.iter().map(|other| (other - in_order).abs()).fold(0.0, f64::max);
        assert_eq!(moved >= 0.0005, ["mru", "lb-clock", "longest"].contains(&policy), "{policy}: {moved:.4}");
    }
}

/// Storage that notes the number of pages of each request.
#[derive(Default)]
struct Noting {
    below: MemoryIo,
    batches: std::sync::Mutex<Vec<usize>>,
}

impl PageIo for Noting {
    fn read_page(&self, at: Address, into: &mut [u8]) -> io::Result<()> {
        self.batches.lock().expect("no panic").push(1);
        self.below.read_page(at, into)
    }

    fn read_pages(&self, pages: &mut [(Address, &mut [u8])]) -> io::Result<()> {
        self.batches.lock().expect("no panic").push(pages.len());
        pages.iter_mut().try_for_each(|(at, into)| self.below.read_page(*at, into))
    }

    fn write_page(&self, at: Address, bytes: &[u8]) -> io::Result<()> {
        self.below.write_page(at, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn object_pages(&self, object: ObjectId) -> u64 {
        self.below.object_pages(object)
    }
}

#[test]
fn pages_that_are_absent_are_read_together_and_once() {
    let manager = manager(BufferOptions::new(100), "lru", Noting::default());
    for id in 0..40 {
        write(&mut manager.update(at(id)).expect("a page"), id, id + 1);
    }
    // Evicts all but the last ten.
    (100..190).for_each(|id| drop(manager.pin(at(id)).expect("a page")));
    manager.flush().expect("a flush");
    manager.io().batches.lock().expect("no panic").clear();
    let before = manager.stats();
    let ids: Vec<u64> = (0..40).chain([3, 39]).collect();
    let pins = manager.pin_many(&ids.iter().map(|&id| at(id)).collect::<Vec<_>>()).expect("pages");
    ids.iter().zip(&pins).for_each(|(&id, pin)| assert_eq!(check(pin, id), id + 1));
    let after = manager.stats();
    assert_eq!(*manager.io().batches.lock().expect("no panic"), [30], "one call for all that are absent");
    assert_eq!((after.misses - before.misses, after.hits - before.hits), (30, 12));
    drop(pins);
    // More pages than frames: an error, and nothing stays pinned.
    let many: Vec<Address> = (200..400).map(at).collect();
    assert!(matches!(manager.pin_many(&many), Err(BufferError::Exhausted { .. })));
    assert_eq!(manager.pin_many(&many[..100]).expect("as many as the pool holds").len(), 100);
}

#[test]
fn a_row_of_any_length_is_read_with_the_frames_there_are() {
    for (policy, frames) in [("lru", 4), ("s3-fifo", 8), ("bplru", 4)] {
        let manager = manager(BufferOptions::new(frames), policy, Noting::default());
        for id in 0..500 {
            write(&mut manager.update(at(id)).expect("a page"), id, id + 1);
        }
        for depth in [1, 3, 100] {
            let before = manager.stats().misses;
            let mut seen = vec![0; 500];
            let look = |at: Address, page: &[u8]| {
                assert_eq!(check(page, at.block), at.block + 1);
                seen[at.block as usize] += 1;
            };
            manager.read_many((0..500).chain(0..500).map(at), depth, look).expect("all of them");
            assert!(seen.iter().all(|&times| times == 2), "{policy}, {depth}: {seen:?}");
            assert!(manager.stats().misses - before >= 900, "{policy}: a pool of {frames} holds next to none of it");
        }
    }
}

#[test]
fn a_look_that_panics_leaves_no_page_on_its_way() {
    let manager = manager(BufferOptions::new(20), "lru", Noting::default());
    let looked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        manager.read_many((0..100).map(at), 10, |at, _| assert!(at.block < 5, "as the test wants it"))
    }));
    assert!(looked.is_err());
    // A request for a page whose load never ended would wait for ever.
    (0..100).for_each(|id| assert_eq!(manager.pin(at(id)).expect("a page").len(), PAGE));
}

/// Storage whose reads wait for each other, and are counted.
struct Meeting {
    barrier: Option<Barrier>,
    reads: AtomicU64,
}

impl PageIo for Meeting {
    fn read_page(&self, at: Address, into: &mut [u8]) -> io::Result<()> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        match &self.barrier {
            Some(barrier) => drop(barrier.wait()),
            None => std::thread::sleep(std::time::Duration::from_millis(20)),
        }
        into.fill(at.block as u8);
        Ok(())
    }

    fn write_page(&self, _at: Address, _bytes: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn object_pages(&self, _object: ObjectId) -> u64 {
        0
    }
}

#[test]
fn misses_of_distinct_pages_run_in_parallel() {
    // If two loads could not be under way at once, the first would wait for the others for ever.
    let io = Meeting { barrier: Some(Barrier::new(6)), reads: AtomicU64::new(0) };
    let manager = manager(BufferOptions::new(10), "lru", io);
    std::thread::scope(|scope| {
        for id in 0..6 {
            let manager = &manager;
            scope.spawn(move || assert_eq!(manager.pin(at(id)).expect("a page")[0], id as u8));
        }
    });
}

#[test]
fn a_page_that_many_want_is_loaded_once() {
    let manager = manager(BufferOptions::new(10), "lru", Meeting { barrier: None, reads: AtomicU64::new(0) });
    let start = Barrier::new(8);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                start.wait();
                assert_eq!(manager.read(at(5), |page| page.u8_at(9)).expect("a page"), 5);
            });
        }
    });
    let stats = manager.stats();
    assert_eq!((manager.io().reads.load(Ordering::SeqCst), stats.misses, stats.hits), (1, 1, 7));
}
