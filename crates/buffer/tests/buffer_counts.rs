//! Decide once, drive twice. For every policy of one tier, the buffer manager under one thread has the
//! simulator's counts, and all of its bytes are right.

use entresol_buffer::table::PageTable;
use entresol_buffer::{BufferManager, BufferOptions, Clock, Decided, MemoryIo, OpenError, PageIo};
use entresol_core::{Address, Op, Page, Size};
use entresol_policy::{Info, Options, catalogue};
use entresol_sim::{Addresses, CellOptions, LayerSpec, PolicySpec, run_cell};
use entresol_trace::{Trace, generate};

const SEED: u64 = 9;

/// Reuse, scans, writes of runs and partial writes over two objects.
fn trace(seed: u64) -> Trace {
    let spec = format!(
        "zipf:n=3000:pages=300:seed={seed}:write=30:update=80 | scan:n=400:base=300:write=30:update=50 \
         + loop:n=900:pages=90:base=40:write=50 | zipf:n=900:pages=90:object=index:write=30"
    );
    generate(&spec.parse().expect("a trace specification"))
}

/// Counts of the simulator's own loop.
fn simulated(addresses: &Addresses, info: &'static Info, pages: usize) -> Decided {
    let policy = PolicySpec { info, options: Options::defaults(info) };
    let layer = LayerSpec { policy, sizes: vec![Size::Pages(pages as u64)] };
    let options = CellOptions { seed: SEED, ..CellOptions::default() };
    let row = run_cell(addresses, &[layer], String::new(), &options).expect("a cell that runs");
    Decided {
        requests: row.requests,
        read_hits: row.read_hits,
        write_hits: row.write_hits,
        admissions: row.admissions,
        fetches: row.fetches,
        bypasses: row.bypasses,
        write_backs: row.write_backs,
        write_back_ios: row.write_back_ios,
        stale_hits: 0,
        restarts: 0,
    }
}

fn options(addresses: &Addresses, pages: usize, hit_batch: usize) -> BufferOptions {
    BufferOptions {
        hit_batch,
        handles_per_page: addresses.trace.footprint().div_ceil(pages),
        objects: addresses.trace.objects.len(),
        clock: Clock::Requests,
        seed: SEED,
        peak_temporal_distance: Some(entresol_trace::peak_temporal_distance(addresses.trace)),
        ..BufferOptions::new(pages)
    }
}

/// Drives a trace and checks the bytes. Every write leaves its number in the page, an update in one of two words.
fn drive<T: PageTable, I: PageIo>(manager: &BufferManager<T, I>, trace: &Trace) {
    let mut truth = vec![[0u64; 2]; trace.footprint()];
    let word = |page: &[u8], i: usize| u64::from_le_bytes(page[i * 8..][..8].try_into().expect("eight bytes"));
    for at in 0..trace.len() {
        let (op, page, number) = (trace.request(at).op, trace.pages[at] as usize, at as u64 + 1);
        let address: Address = trace.address(Page(page as u32));
        match op {
            Op::Read if at % 2 == 0 => {
                let seen = manager.read(address, |page| [page.u64_at(0), page.u64_at(8)]).expect("a page");
                assert_eq!(seen, truth[page], "request {at}: page {page}");
            }
            Op::Read => {
                let pinned = manager.pin(address).expect("a page");
                assert_eq!([word(&pinned, 0), word(&pinned, 1)], truth[page], "request {at}: page {page}");
            }
            Op::Update => {
                let mut owned = manager.update(address).expect("a page");
                assert_eq!([word(&owned, 0), word(&owned, 1)], truth[page], "request {at}: page {page}");
                owned[8..16].copy_from_slice(&number.to_le_bytes());
                truth[page][1] = number;
            }
            Op::Write => {
                let mut owned = manager.overwrite(address).expect("a page");
                assert_eq!([word(&owned, 0), word(&owned, 1)], [0, 0], "request {at}: an old page shows");
                owned[..8].copy_from_slice(&number.to_le_bytes());
                truth[page] = [number, 0];
            }
        }
    }
    manager.flush().expect("a flush");
    let mut below = vec![0; 4096];
    for (page, truth) in truth.iter().enumerate() {
        manager.io().read_page(trace.address(Page(page as u32)), &mut below).expect("a page below");
        assert_eq!([word(&below, 0), word(&below, 1)], *truth, "page {page} below, after the flush");
    }
}

/// The policies for a buffer pool.
fn live() -> impl Iterator<Item = &'static Info> {
    catalogue::ALL.iter().copied().filter(|info| info.tiers.len() == 1 && !info.future)
}

#[test]
fn one_thread_counts_what_the_simulator_counts() {
    let mut compared = 0;
    for info in live() {
        for (seed, pages) in [(1, 20), (2, 100)] {
            let trace = trace(seed);
            let addresses = Addresses::new(&trace);
            let pages = pages.max(info.min_pages[0]);
            println!("{} {pages} pages, seed {seed}", info.name);
            let manager = BufferManager::hashed(
                options(&addresses, pages, 1),
                info,
                &Options::defaults(info),
                MemoryIo::new(),
                None,
            )
            .expect("a manager");
            drive(&manager, &trace);
            let (live, simulated) = (manager.stats(), simulated(&addresses, info, pages));
            assert_eq!(live.decided, simulated, "{} {pages} pages seed {seed}: (live, simulated)", info.name);
            assert_eq!(live.hits, live.decided.read_hits + live.decided.write_hits, "{}", info.name);
            assert_eq!(live.lost_hits, 0);
            let objects = manager.object_stats();
            let sum: u64 = objects.iter().map(|object| object.reads + object.writes).sum();
            assert_eq!((objects.len(), sum), (trace.objects.len(), simulated.requests));
            assert!(objects.iter().all(|object| object.hits > 0 || simulated.read_hits + simulated.write_hits == 0));
            compared += 1;
        }
    }
    assert!(compared >= 50, "{compared} cells");
}

/// Hits reach the policy in batches, in order and before the next decision. So the counts are the same while hits
/// move no other page. For policies that move pages on a hit, they may differ by the hits under way.
#[test]
fn batches_of_hits_change_nothing_for_policies_that_move_pages_on_misses_only() {
    for name in ["lru", "clock", "arc", "car", "2q", "lirs", "clock-pro", "s3-fifo", "sieve", "w-tinylfu", "cflru"] {
        let info = catalogue::info(name).expect("a policy");
        let trace = trace(3);
        let addresses = Addresses::new(&trace);
        let manager =
            BufferManager::hashed(options(&addresses, 80, 32), info, &Options::defaults(info), MemoryIo::new(), None)
                .expect("a manager");
        drive(&manager, &trace);
        let (mut live, mut simulated) = (manager.stats().decided, simulated(&addresses, info, 80));
        // The last hits may still lie in the ring.
        let undelivered = simulated.requests - live.requests;
        assert!(undelivered < 32, "{undelivered} hits undelivered");
        let hits = |d: &Decided| d.read_hits + d.write_hits;
        assert_eq!(hits(&live) + undelivered, hits(&simulated), "{name}");
        for decided in [&mut live, &mut simulated] {
            (decided.requests, decided.read_hits, decided.write_hits) = (0, 0, 0);
        }
        assert_eq!(live, simulated, "{name}: (live, simulated)");
    }
}

#[test]
fn policies_that_are_no_buffer_pool_are_refused_with_the_reason() {
    for info in catalogue::ALL.iter().copied().filter(|info| info.tiers.len() != 1 || info.future) {
        let manager =
            BufferManager::hashed(BufferOptions::new(100), info, &Options::defaults(info), MemoryIo::new(), None);
        match manager.err().expect("no manager") {
            OpenError::Future(name) => assert!(info.future && name == info.name),
            OpenError::Tiers { tiers, .. } => assert_eq!(tiers, info.tiers),
            other => panic!("{}: {other}", info.name),
        }
    }
}

/// A directory too small for all ghosts makes the policy start anew at times; the bytes stay right.
#[test]
fn a_full_directory_costs_history_and_no_bytes() {
    let mut restarts = 0;
    for info in live() {
        let trace = trace(4);
        let addresses = Addresses::new(&trace);
        let pages = 60.max(info.min_pages[0]);
        let options = BufferOptions { handles_per_page: 1, ..options(&addresses, pages, 32) };
        println!("{}", info.name);
        let manager =
            BufferManager::hashed(options, info, &Options::defaults(info), MemoryIo::new(), None).expect("a manager");
        drive(&manager, &trace);
        restarts += manager.stats().decided.restarts;
    }
    assert!(restarts > 0, "no policy filled its directory");
}

#[test]
fn the_policy_changes_and_the_contents_stay() {
    let info = catalogue::info("lru").expect("lru");
    let trace = trace(5);
    let addresses = Addresses::new(&trace);
    let manager =
        BufferManager::hashed(options(&addresses, 100, 1), info, &Options::defaults(info), MemoryIo::new(), None)
            .expect("a manager");
    drive(&manager, &trace);
    for next in live() {
        // Refill with reads, so that every policy takes over a full pool.
        let lru = catalogue::info("lru").expect("lru");
        manager.change_policy(lru, &Options::defaults(lru)).expect("lru again");
        for block in 0..100 {
            manager.read(trace.address(Page(block)), |page| page.u8_at(0)).expect("a page");
        }
        let before = manager.stats();
        if next.min_pages[0] > 100 {
            continue;
        }
        manager.change_policy(next, &Options::defaults(next)).expect("another policy");
        assert_eq!(manager.stats().decided, before.decided, "{}: taking over is no request", next.name);
        if next.family == "classic" {
            for block in 0..100 {
                manager.read(trace.address(Page(block)), |page| page.u8_at(0)).expect("a page");
            }
            assert_eq!(manager.stats().page_reads, before.page_reads, "{}: pages were lost", next.name);
        }
    }
}

#[test]
fn an_array_table_drives_as_a_hash_table_does() {
    let info = catalogue::info("arc").expect("arc");
    let trace = generate(&"zipf:n=5000:pages=400:seed=6:write=30:update=50".parse().expect("a trace specification"));
    let addresses = Addresses::new(&trace);
    let last = (0..trace.footprint() as u32).map(|page| trace.address(Page(page)).block).max().expect("pages");
    let options = options(&addresses, 70, 1);
    let manager =
        BufferManager::dense(options, last as usize + 1, info, &Options::defaults(info), MemoryIo::new(), None)
            .expect("a manager");
    drive(&manager, &trace);
    assert_eq!(manager.stats().decided, simulated(&addresses, info, 70));
}
