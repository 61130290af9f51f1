//! Cost of two threads to each other on one manager.

use crate::contenders::{MISS_PAGES, manager_of};
use entresol_bench_common::{median, thread_time};
use entresol_buffer::table::PageTable;
use entresol_buffer::{BufferManager, PageIo};
use entresol_core::{Address, ObjectId, Random};
use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::Barrier;

const ROUNDS: usize = 5;

/// Measures hits and misses of one thread and of two, and reports.
pub fn report(out: &mut String, reads: u64) -> Result<(), String> {
    out.push_str(
        "## Two threads\n\nProcessor time of a thread per read, in nanoseconds, alone and with a second thread that reads \
         random pages of the same manager: hash table, LRU. What they cost each other is the cache lines that both write \
         and, on misses, the lock of a shard; waiting is not processor time.\n\n\
         | | alone | with another | |\n|:--|--:|--:|--:|\n",
    );
    for shards in [1, 4] {
        let hits = manager_of(1024, shards, false)?;
        row(out, &format!("hits, {shards} shards"), &hits, 1024, reads);
        let misses = manager_of(MISS_PAGES / 16, shards, true)?;
        row(out, &format!("misses (15 of 16), {shards} shards"), &misses, MISS_PAGES as u64, reads / 4);
    }
    out.push('\n');
    Ok(())
}

fn row<T: PageTable, I: PageIo>(out: &mut String, name: &str, manager: &BufferManager<T, I>, pages: u64, reads: u64) {
    let mut figures = [1, 2].map(|_| Vec::new());
    for round in 0..ROUNDS as u64 {
        for (threads, figures) in [1, 2].into_iter().zip(&mut figures) {
            figures.push(together(manager, pages, reads, threads, round));
        }
    }
    let [alone, both] = figures.map(|figures: Vec<f64>| median(&figures));
    writeln!(out, "| {name} | {alone:.1} | {both:.1} | {:.2}x |", both / alone).expect("writing to a string");
}

/// Nanoseconds of processor time per read, the mean over the threads.
fn together<T: PageTable, I: PageIo>(
    manager: &BufferManager<T, I>,
    pages: u64,
    reads: u64,
    threads: usize,
    seed: u64,
) -> f64 {
    let start = Barrier::new(threads);
    let run = |thread: usize| {
        let mut random = Random::new(seed * 2 + thread as u64);
        start.wait();
        let begun = thread_time();
        for _ in 0..reads {
            let at = Address { object: ObjectId(0), block: random.below(pages) };
            black_box(manager.read(at, |page| page.u64_at(0)).expect("a page"));
        }
        (thread_time() - begun).as_secs_f64()
    };
    let run = &run;
    let seconds: f64 = std::thread::scope(|scope| {
        let started: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
        started.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    seconds * 1e9 / (reads * threads as u64) as f64
}
