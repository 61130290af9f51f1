//! Programs that do all kinds of operations on the bytes of files and compare every read with a model in memory, over a
//! mount whose server is killed again and again (`--restart on`): no operation fails, and no byte is older than the
//! last write of it. One program syncs at times, the other never does, and reads what it wrote over the same open
//! files.
//!
//! `ENTRESOL_POSIX_SEED`, `ENTRESOL_POSIX_OPS` and `ENTRESOL_POSIX_KILLS` give the seed, and the numbers of operations
//! and kills of each test.

mod common;

mod posix {
    #[allow(dead_code, reason = "another suite uses more of it")]
    pub mod model;
    pub mod sys;
}

use common::mounted::{How, Mounted};
use common::{Scratch, Signal, children, signal};
use posix::model::Run;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Options of `mount` for a cache with a tier of memory, which is full all the time.
const DRAM: &[&str] = &["--restart", "on", "--dram", "400KiB"];
const NO_DRAM: &[&str] = &["--restart", "on"];
const NAMES: u64 = 4;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}: {text} is no number")))
}

fn cached(mode: &'static str, policy: &'static str, page_cache: &'static str) -> How {
    How { cache: Some(([mode, policy], &[])), page_cache, passthrough: "on", nobody: false }
}

/// The server of a holder that is another process than the last one, once it is there.
fn another(holder: u32, last: u32) -> u32 {
    let begun = Instant::now();
    loop {
        if let Some(server) = children(holder).first().copied().filter(|&server| server != last) {
            return server;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "no other server is started");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Two programs, `ops` operations of both together, and `kills` kills in equal parts of these.
fn killed(how: &How, more: &[&str], seed: u64, ops: u64, kills: u64) {
    let seed = number("ENTRESOL_POSIX_SEED", seed);
    let (ops, kills) = (number("ENTRESOL_POSIX_OPS", ops), number("ENTRESOL_POSIX_KILLS", kills));
    println!("{how:?}, {more:?}: ENTRESOL_POSIX_SEED={seed} (when a kill comes is the clock's)");
    let mut mounted = Mounted::made(Scratch::new(), how);
    if !mounted.start_with(more) {
        return;
    }
    let (above, holder, began) = (mounted.above(), mounted.command_id(), Instant::now());
    let shapes = [("f", true), ("unsynced", false)];
    let mut runs = shapes.map(|(prefix, syncs)| Run::beside(&above, prefix, NAMES, seed + u64::from(syncs), syncs));
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let all: Vec<_> = runs.iter_mut().map(|run| scope.spawn(|| run.go(ops / 2, &done))).collect();
        let mut last = 0;
        for kill in 1..=kills {
            while done.load(Relaxed) < kill * ops / (kills + 1) {
                if all.iter().all(|run| run.is_finished()) {
                    // One of them has failed.
                    return;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            last = another(holder, last);
            std::thread::sleep(Duration::from_micros(kill * 7919 % 20_000));
            signal(last, Signal::KILL);
        }
        another(holder, last);
    });
    let took = began.elapsed();
    mounted.signal(Signal::TERM);
    let (code, said) = mounted.end();
    assert_eq!(code, Some(0), "{said}");
    let taken_over = said.matches("another one took over after").count() as u64;
    assert!(taken_over <= kills && taken_over + kills / 10 + 1 >= kills, "{taken_over} of {kills}: {said}");
    assert!(!said.contains("doubt"), "{said}");
    let both = ["--cache", "cache", "--backing", "backing"];
    for command in [&["check"][..], &["-q", "drain"], &["check"]] {
        mounted.scratch.ok(&[command, &both].concat());
    }
    for run in &runs {
        println!("{}", run.end(&mounted.below()));
    }
    println!("{ops} operations, {kills} kills, {taken_over} said by the server after; {:.0} s", took.as_secs_f64());
}

#[test]
fn what_was_written_is_read_over_some_kills() {
    killed(&cached("write-back", "lc", "off"), DRAM, 1, 1500, 6);
    killed(&cached("write-through", "face-gsc", "on"), NO_DRAM, 2, 1500, 6);
    killed(&cached("write-back", "reuse", "off"), DRAM, 3, 1500, 6);
}

#[test]
#[ignore = "a quarter of a million operations take minutes: `make survive-posix` and `make test-long` run it"]
fn write_back_without_memory() {
    killed(&cached("write-back", "face-gsc", "on"), NO_DRAM, 10, 250_000, 75);
}

#[test]
#[ignore = "a quarter of a million operations take minutes: `make survive-posix` and `make test-long` run it"]
fn write_back_with_memory() {
    killed(&cached("write-back", "lc", "off"), DRAM, 20, 250_000, 75);
}

#[test]
#[ignore = "a quarter of a million operations take minutes: `make survive-posix` and `make test-long` run it"]
fn write_through_without_memory() {
    killed(&cached("write-through", "lru", "off"), NO_DRAM, 30, 250_000, 75);
}

#[test]
#[ignore = "a quarter of a million operations take minutes: `make survive-posix` and `make test-long` run it"]
fn write_through_with_memory() {
    killed(&cached("write-through", "face-gsc", "on"), DRAM, 40, 250_000, 75);
}
