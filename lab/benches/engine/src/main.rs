//! `make bench-engine`: the cost of a hit and a miss of the buffer manager in processor time, beside quick_cache and
//! a vmcache-like floor in the same run; the cost of two threads to each other; misses at depth beside fio.

mod contenders;
mod depth;
mod report;
mod threads;
mod vmcache;

use clap::Parser;
use contenders::{Contender, Mode, all, misses};
use entresol_bench_common::{deliver, end, heading, thread_time};
use entresol_core::Random;
use report::Group;
use std::path::PathBuf;
use std::process::ExitCode;

/// Measures hits and misses of the buffer manager; prints Markdown.
#[derive(Parser)]
struct Arguments {
    /// Write the report to this file too.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Rounds; every contender runs once in each, and the median counts.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Reads per round and contender.
    #[arg(long, default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(1000..))]
    reads: u64,
    /// Directory for a file of 512 MiB from which misses at depth are read.
    #[arg(long, value_name = "DIRECTORY", default_value = "target")]
    scratch: PathBuf,
}

/// Pools in pages of 4 KiB, and the words read of each page. In the small pool one word a page is read, so that all
/// touched memory stays in the processor's caches and the figure measures instructions. In the large pool any word is
/// read, so that nearly every read goes to memory.
const POOLS: [(usize, u64); 2] = [(1024, 1), (131_072, 512)];

fn main() -> ExitCode {
    end("entresol-bench-engine", run(&Arguments::parse()))
}

const READING: &str = "Processor time of one thread per read, in nanoseconds: the median of the rounds, with the \
     fastest and the slowest. In a round every contender reads one word each of the same random resident pages; rounds \
     are interleaved. On a machine that others use, only ratios within one run mean much.";

fn run(arguments: &Arguments) -> Result<(), String> {
    let mut out = heading("What a hit costs", "bench-engine", READING);
    for (pages, words) in POOLS {
        eprintln!("{pages} pages ...");
        let contenders = all(pages)?;
        for mode in [Mode::Chained, Mode::Independent] {
            report::hits(&mut out, pages, mode, &measure(&contenders, (pages, words), mode, arguments));
        }
    }
    let pages = (contenders::MISS_PAGES, 1);
    report::misses(&mut out, &measure(&misses()?, pages, Mode::Independent, arguments));
    eprintln!("two threads ...");
    threads::report(&mut out, arguments.reads)?;
    eprintln!("misses at depth ...");
    depth::report(&mut out, &arguments.scratch);
    deliver(&out, arguments.out.as_deref())
}

/// Every contender reads the same words of the same pages; rounds are interleaved.
fn measure(contenders: &[Contender], pages: (usize, u64), mode: Mode, arguments: &Arguments) -> Vec<Group> {
    let mut random = Random::new(7);
    let mut read = || {
        let page = random.below(pages.0 as u64) as u32;
        // One word of a page, but at varying offsets: equal offsets would share a few sets of the caches.
        (page, if pages.1 == 1 { page * 8 % 512 } else { random.below(pages.1) as u32 })
    };
    let reads: Vec<(u32, u32)> = (0..arguments.reads).map(|_| read()).collect();
    let mut groups: Vec<Group> = contenders.iter().map(|contender| Group::new(contender.name)).collect();
    for _ in 0..arguments.rounds {
        for (contender, group) in contenders.iter().zip(&mut groups) {
            let begun = thread_time();
            let sum = (contender.run)(&reads, mode);
            let taken = thread_time() - begun;
            // The words read must be those written, or the figure means nothing.
            let expected = reads.iter().fold(0u64, |sum, &(page, _)| sum.wrapping_add(contenders::content(page)));
            assert_eq!(sum, expected, "{} read wrong bytes", contender.name);
            group.push(taken.as_secs_f64() * 1e9 / reads.len() as f64);
        }
    }
    groups
}
