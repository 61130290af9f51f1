//! The report: times, ratios and their targets.

use crate::contenders::Mode;
use entresol_bench_common::median;
use std::fmt::Write as _;

/// One contender's nanoseconds per read, by round.
pub struct Group {
    pub name: &'static str,
    rounds: Vec<f64>,
}

impl Group {
    pub fn new(name: &'static str) -> Self {
        Group { name, rounds: Vec::new() }
    }

    pub fn push(&mut self, nanoseconds: f64) {
        self.rounds.push(nanoseconds);
        self.rounds.sort_by(f64::total_cmp);
    }

    fn median(&self) -> f64 {
        median(&self.rounds)
    }

    fn range(&self) -> (f64, f64) {
        (self.rounds[0], self.rounds[self.rounds.len() - 1])
    }
}

/// Targets for pairs: ours, theirs, and the largest allowed ratio.
const TARGETS: [(&str, &str, f64); 3] = [
    ("array, optimistic (lru)", "vmcache, optimistic", 1.2),
    ("hash, optimistic (lru)", "vmcache, optimistic", 1.6),
    ("array, pinned (lru)", "vmcache, optimistic", 1.6),
];

/// Ratios that explain the result, without a bound.
const ASIDES: [(&str, &str); 5] = [
    ("array, optimistic (lru)", "vmcache on huge pages, optimistic"),
    ("array, pinned (lru)", "vmcache, shared lock"),
    ("hash, pinned (lru)", "vmcache, optimistic"),
    ("hash, optimistic (lru)", "quick_cache"),
    ("hash, pinned (lru)", "quick_cache"),
];

pub fn hits(out: &mut String, pages: usize, mode: Mode, groups: &[Group]) {
    let text = "writing to a string";
    let median = |name: &str| groups.iter().find(|group| group.name == name).expect("a contender").median();
    let how = match mode {
        Mode::Chained => "each page named by the one before",
        Mode::Independent => "all pages known beforehand",
    };
    writeln!(out, "## {pages} pages of 4 KiB ({} MiB), all resident; {how}\n", pages * 4 / 1024).expect(text);
    table(out, groups);
    writeln!(out, "| ours | theirs | ratio | target |\n|:--|:--|--:|:--|").expect(text);
    for (ours, theirs, bound) in TARGETS {
        let ratio = median(ours) / median(theirs);
        let verdict = if ratio <= bound { "met" } else { "MISSED" };
        writeln!(out, "| {ours} | {theirs} | {ratio:.2}x | <= {bound}x: {verdict} |").expect(text);
    }
    for (ours, theirs) in ASIDES {
        writeln!(out, "| {ours} | {theirs} | {:.2}x | |", median(ours) / median(theirs)).expect(text);
    }
    out.push('\n');
}

pub fn misses(out: &mut String, groups: &[Group]) {
    out.push_str(
        "## Misses\n\n15 of 16 reads miss; victims are clean, and the storage makes up one word of the page and takes no \
         time: what is left is the policy, the directory, the table and the frames. Hash table, one shard.\n\n",
    );
    table(out, groups);
}

fn table(out: &mut String, groups: &[Group]) {
    let text = "writing to a string";
    writeln!(out, "| | ns | fastest | slowest |\n|:--|--:|--:|--:|").expect(text);
    for group in groups {
        let (fastest, slowest) = group.range();
        writeln!(out, "| {} | {:.1} | {fastest:.1} | {slowest:.1} |", group.name, group.median()).expect(text);
    }
    out.push('\n');
}
