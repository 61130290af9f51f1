//! `make bench-cache`: what a hit and a write of the block cache cost over devices of memory, and what two threads on
//! one cache cost each other beside two threads on caches of their own.

use clap::Parser;
use entresol_bench_common::{deliver, end, heading, median, thread_time};
use entresol_cache::{Block, BlockCache, CacheConfig};
use entresol_core::Random;
use entresol_disk::Disk;
use entresol_policy::catalogue;
use entresol_store::arena::Arena;
use entresol_store::{Geometry, Layout};
use std::collections::HashMap;
use std::fmt::Write;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// Measures hits and writes of the block cache; prints Markdown.
#[derive(Parser)]
struct Arguments {
    /// Write the report to this file too.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Rounds; every contender runs once in each, and the median counts.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Requests per round and contender.
    #[arg(long, default_value_t = 300_000, value_parser = clap::value_parser!(u64).range(1000..))]
    requests: u64,
    /// Pages of a request, in a row; costs are given by page.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=256))]
    pages: u64,
    /// Policy of the caches.
    #[arg(long, default_value = "lru")]
    policy: String,
}

const PAGE: usize = 4096;
/// Pages of the working set: all are held, and all fit into the processor's caches together with the devices' copies.
const PAGES: u64 = 1024;
const DEVICE_BYTES: u64 = 64 << 20;

/// A device of memory without locks: threads that read it share no line of the processor's caches that any of them writes.
struct Memory(Box<[AtomicU64]>);

impl Memory {
    fn new(bytes: u64) -> Self {
        Memory((0..bytes / 8).map(|_| AtomicU64::new(0)).collect())
    }

    /// The words of a transfer.
    fn words(&self, at: u64, bytes: usize) -> &[AtomicU64] {
        assert!((at as usize | bytes).is_multiple_of(8), "transfers of whole words");
        &self.0[at as usize / 8..][..bytes / 8]
    }
}

impl Disk for Memory {
    fn size_bytes(&self) -> u64 {
        (self.0.len() * 8) as u64
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        for (word, bytes) in self.words(at, bytes.len()).iter().zip(bytes.as_chunks_mut().0) {
            *bytes = word.load(Relaxed).to_ne_bytes();
        }
        Ok(())
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        for (word, bytes) in self.words(at, bytes.len()).iter().zip(bytes.as_chunks().0) {
            word.store(u64::from_ne_bytes(*bytes), Relaxed);
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, _at: u64, _bytes: u64) -> io::Result<()> {
        Ok(())
    }
}

/// A cache whose working set is held; `kept` with memory that outlives the process.
fn cache(policy: &str, layout: Layout, kept: bool) -> Result<BlockCache, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let geometry = Geometry::for_device(DEVICE_BYTES, PAGE as u32, layout).map_err(|error| text(&error))?;
    let (device, backing) = (Memory::new(DEVICE_BYTES), Memory::new(2 * PAGES * PAGE as u64));
    BlockCache::format(&device, geometry, &backing, [1; 16], [2; 16]).map_err(|error| text(&error))?;
    let policy = catalogue::info(policy).map_err(|error| text(&error))?;
    let mut tiers = vec![2 * PAGES as usize];
    if policy.tiers.len() == 2 {
        tiers.insert(0, PAGES as usize / 2);
    }
    let blocks = geometry.segment_pages as usize + usize::from(layout == Layout::Slots);
    let arena = kept.then(|| Arena::anonymous(PAGE, blocks)).transpose().map_err(|error| text(&error))?;
    let config = CacheConfig { arena, ..CacheConfig::new(policy, &tiers) };
    let cache = BlockCache::open(device, backing, [2; 16], &config);
    let cache = cache.map_err(|error| text(&error))?;
    let bytes = [3; PAGE];
    for page in 0..PAGES {
        cache.write(page * PAGE as u64, &bytes, false).map_err(|error| text(&error))?;
    }
    cache.flush().map_err(|error| text(&error))?;
    Ok(cache)
}

/// First pages of requests, of so many pages each.
struct Requests(Vec<u64>, u64);

impl Requests {
    fn new(seed: u64, requests: u64, pages: u64) -> Self {
        let mut random = Random::new(seed);
        Requests((0..requests).map(|_| random.below(PAGES + 1 - pages)).collect(), pages)
    }
}

fn reads(cache: &BlockCache, Requests(firsts, pages): &Requests) {
    let mut bytes = vec![0; *pages as usize * PAGE];
    for &first in firsts {
        cache.read(first * PAGE as u64, &mut bytes).expect("devices of memory");
        std::hint::black_box(&bytes);
    }
}

fn writes(cache: &BlockCache, Requests(firsts, pages): &Requests) {
    let bytes = vec![5; *pages as usize * PAGE];
    for &first in firsts {
        cache.write(first * PAGE as u64, std::hint::black_box(&bytes), false).expect("devices of memory");
    }
}

/// Nanoseconds of processor time per page.
fn cost(requests: &Requests, run: impl FnOnce(&Requests)) -> f64 {
    let begun = thread_time();
    run(requests);
    (thread_time() - begun).as_nanos() as f64 / (requests.0.len() as u64 * requests.1) as f64
}

/// Requests per second of two threads, each on its cache.
fn two(caches: [&BlockCache; 2], requests: [&Requests; 2], run: fn(&BlockCache, &Requests)) -> f64 {
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for (cache, requests) in caches.into_iter().zip(requests) {
            scope.spawn(move || run(cache, requests));
        }
    });
    (requests[0].0.len() + requests[1].0.len()) as f64 / begun.elapsed().as_secs_f64()
}

/// Median, least and greatest.
fn spread(values: &[f64]) -> String {
    let (least, most) = values.iter().fold((f64::MAX, f64::MIN), |(l, m), &value| (l.min(value), m.max(value)));
    format!("{:.2} ({least:.2} to {most:.2})", median(values))
}

fn main() -> ExitCode {
    end("entresol-bench-cache", run(&Arguments::parse()))
}

const READING: &str = "Requests of one page of 4 KiB, or of as many as `--pages` says, for random pages of a working set that the cache holds on its device; devices are memory. \
     Costs are nanoseconds of processor time of one thread per page; the throughput of two threads on one cache is \
     given as a part of two threads on caches of their own. \
     With an arena, what is answered outlives the process; its cost is given as a multiple of that without. Each figure is the median of the rounds, with the least \
     and the greatest; rounds are interleaved.";

fn run(arguments: &Arguments) -> Result<(), String> {
    let mut out = heading("What the block cache costs", "bench-cache", READING);
    let [one, other] = [1, 2].map(|seed| Requests::new(seed, arguments.requests / arguments.pages, arguments.pages));
    let table: HashMap<u64, Box<[u8]>> = (0..PAGES).map(|page| (page, vec![1; PAGE].into())).collect();
    let floor = |Requests(firsts, pages): &Requests| {
        let mut bytes = [0; PAGE];
        for page in firsts.iter().flat_map(|&first| first..first + pages) {
            bytes.copy_from_slice(&table[&page]);
            std::hint::black_box(&bytes);
        }
    };
    writeln!(
        out,
        "| layout | hash table and copy | read | write | reads of two threads | writes of two threads \
         | read with an arena | write with an arena |"
    )
    .expect("text");
    writeln!(out, "|:--|--:|--:|--:|--:|--:|--:|--:|").expect("text");
    for layout in [Layout::Log, Layout::Slots] {
        let made = |kept| cache(&arguments.policy, layout, kept);
        let (caches, kept) = ([made(false)?, made(false)?, made(false)?], made(true)?);
        let mut figures: [Vec<f64>; 7] = Default::default();
        for _ in 0..arguments.rounds {
            // Pages that only memory has after writes are read with the lock, and maintenance goes on behind them.
            caches.iter().chain([&kept]).try_for_each(BlockCache::drain).map_err(|error| error.to_string())?;
            figures[0].push(cost(&one, floor));
            figures[1].push(cost(&one, |requests| reads(&caches[0], requests)));
            figures[2].push(cost(&one, |requests| writes(&caches[0], requests)));
            for (at, run) in [(3, reads as fn(&BlockCache, &Requests)), (4, writes)] {
                let together = two([&caches[0], &caches[0]], [&one, &other], run);
                let apart = two([&caches[1], &caches[2]], [&one, &other], run);
                figures[at].push(together / apart);
            }
            for (at, run) in [(1, reads as fn(&BlockCache, &Requests)), (2, writes)] {
                let with = cost(&one, |requests| run(&kept, requests));
                let without = *figures[at].last().expect("just measured");
                figures[at + 4].push(with / without);
            }
        }
        let cells: Vec<String> = figures.iter().map(|values| spread(values)).collect();
        writeln!(out, "| {layout:?} | {} |", cells.join(" | ")).expect("text");
    }
    deliver(&out, arguments.out.as_deref())
}
