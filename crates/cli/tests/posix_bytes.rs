//! Random operations on the bytes of files, compared byte by byte with a model in memory: reads and writes with and
//! without mappings and direct I/O, changes of size, holes, copies and syncs. Now and then another server is started,
//! after an orderly end or a kill. The cache is small beside the files, so that it evicts all the time.
//!
//! `ENTRESOL_POSIX_SEED` and `ENTRESOL_POSIX_OPS` give the seed and the number of operations in each setup.

mod common;

mod posix {
    #[allow(dead_code, reason = "another suite uses more of it")]
    pub mod model;
    pub mod sys;
    #[allow(dead_code, reason = "the other suite uses more of it")]
    pub mod testbed;
}

use common::mounted::{How, Mounted};
use posix::model::Run;
use posix::testbed::Testbed;

/// A setup: its name, and its first mount. A new server may have another mode.
type Setup = (&'static str, How);

const fn cached(
    mode: &'static str,
    policy: &'static str,
    format: &'static [&'static str],
    page_cache: &'static str,
) -> How {
    How { cache: Some(([mode, policy], format)), page_cache, passthrough: "on", nobody: false }
}

const SETUPS: [Setup; 8] = [
    ("write-back, log", cached("write-back", "face-gsc", &["--layout", "log"], "on")),
    ("write-back, slots, no page cache", cached("write-back", "lru", &["--layout", "slots"], "off")),
    (
        "write-through, segments, no page cache",
        cached("write-through", "lru", &["--layout", "segments", "--wear", "unbounded"], "off"),
    ),
    ("write-around, slots", cached("write-around", "lru", &["--layout", "slots"], "on")),
    (
        "write-back, slots, pages of 16 KiB",
        cached("write-back", "h-arc", &["--layout", "slots", "--page-size", "16384", "--size", "4MiB"], "on"),
    ),
    (
        "write-back, log, pages of 512 bytes, no page cache",
        cached("write-back", "lru", &["--layout", "log", "--page-size", "512"], "off"),
    ),
    ("no cache", How { cache: None, page_cache: "on", passthrough: "on", nobody: false }),
    ("no cache, served, no page cache", How { cache: None, page_cache: "off", passthrough: "off", nobody: false }),
];

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}: {text} is no number")))
}

/// Runs `ops` operations in these setups. The number of files in each setup is drawn with the rest.
fn run(setups: &[Setup], testbed: &Testbed, ops: u64) {
    let (seed, ops) = (number("ENTRESOL_POSIX_SEED", 0x0d00_0040), number("ENTRESOL_POSIX_OPS", ops));
    for (i, (name, how)) in setups.iter().enumerate() {
        how.is_named(name);
        for files in [1, 4] {
            let seed = seed + 2 * i as u64 + u64::from(files > 1);
            println!("{name}, {files} files: ENTRESOL_POSIX_SEED={seed} (of this world), {ops} operations");
            let mut mounted = Mounted::made(testbed.scratch(), how);
            if !mounted.start() {
                return;
            }
            let began = std::time::Instant::now();
            let done = Run::new(mounted, files, seed).run(ops);
            println!("{done}; {:.1} s", began.elapsed().as_secs_f64());
        }
    }
}

#[test]
fn bytes_are_those_that_were_written_last() {
    run(&SETUPS[..2], &Testbed::here(), 300);
}

#[test]
#[ignore = "takes ten minutes: `make test-posix` and `make test-long` run it"]
fn bytes_are_those_that_were_written_last_in_every_world() {
    let Some(testbed) = Testbed::chosen() else { return };
    run(&SETUPS, &testbed, 8000);
}
