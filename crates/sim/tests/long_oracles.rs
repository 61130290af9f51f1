//! Misses on the Zipf oracle trace of ten million requests beside those of an independent simulator
//! (`data/oracles/policies/libcachesim_zipf10m.csv`). Its LeCaR, CACHEUS and CLOCK-Pro are known not to be those of
//! their papers and are left out.

use entresol_sim::{Addresses, Cell, CellOptions, parse_policies, sweep};
use entresol_trace::generate;
use std::collections::BTreeMap;
use std::path::Path;

/// Name in the file, our policy, largest deviation in per cent.
///
/// Options follow the file's readings: a fixed life time in MQ, and the main queue of S3-FIFO filled first. The file's
/// W-TinyLFU has another sketch, so ours can only be near.
const EXPECTED: &[(&str, &str, f64)] = &[
    ("lru", "lru", 0.0),
    ("fifo", "fifo", 0.0),
    ("clock", "clock", 0.0),
    ("sieve", "sieve", 0.0),
    ("lfu", "lfu", 0.0),
    ("belady", "min", 0.0),
    ("arc", "arc", 0.0),
    ("mq", "mq:lifetime=10000", 0.0),
    ("2q", "2q", 0.001),
    ("lirs", "lirs", 0.05),
    ("s3fifo", "s3-fifo:warm-up=main", 0.05),
    ("wtinylfu", "w-tinylfu:doorkeeper=no", 2.0),
];

/// Misses by name and size. `None`, with a printed reason, when the file is not there.
fn oracle() -> Option<BTreeMap<(String, u64), u64>> {
    let file = "../../../shared/data/oracles/policies/libcachesim_zipf10m.csv";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let Ok(text) = std::fs::read_to_string(&path) else {
        entresol_skip::skipped!("data", "there is no {}", path.display());
        return None;
    };
    // algorithm,size,repetition,requests,misses,...
    let line = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let number = |at: usize| fields[at].parse().expect("a number");
        ((fields[0].to_owned(), number(1)), number(4))
    };
    Some(text.lines().filter(|text| !text.starts_with('#')).map(line).collect())
}

#[test]
#[ignore = "240 million requests: half a minute of one core when optimised, so `make test-long` runs it"]
fn misses_of_ten_million_requests_are_those_of_an_independent_simulator() {
    let Some(oracle) = oracle() else { return };
    let trace = generate(&"zipf:n=10M:pages=1M:seed=42:ids=hashed".parse().expect("a trace specification"));
    let addresses = Addresses::new(&trace);
    let (mut cells, mut expected) = (Vec::new(), Vec::new());
    for &(name, policy, bound) in EXPECTED {
        let spec = &parse_policies(policy).expect("a policy")[0];
        for ((_, pages), &misses) in oracle.iter().filter(|((known, _), _)| known == name) {
            cells.push(Cell::single(spec, entresol_core::Size::Pages(*pages), None, &addresses).expect("a cell"));
            expected.push((policy, *pages, misses, bound));
        }
    }
    assert_eq!(cells.len(), 2 * EXPECTED.len(), "the file has two sizes of each");
    let swept = sweep(&addresses, &cells, &CellOptions { seed: 42, ..CellOptions::default() }, 2, &mut |_| {});
    let mut wrong = Vec::new();
    for (row, (policy, pages, expected, bound)) in swept.expect("a sweep that runs").rows.iter().zip(expected) {
        let misses = row.requests - row.read_hits - row.write_hits;
        let deviation = 100.0 * (misses as f64 / expected as f64 - 1.0);
        let line = format!("{policy} {pages}: {misses}, expected {expected} ({deviation:+.4} %)");
        println!("{line}");
        if deviation.abs() > bound {
            wrong.push(line);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
