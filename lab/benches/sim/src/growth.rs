//! Growth: processor time of a request and memory of every policy, as streams get longer.

use crate::report::{Table, judged};
use entresol_core::Size;
use entresol_sim::{Addresses, CellOptions, LayerSpec, PolicySpec, Row, run_cell};
use entresol_trace::Trace;

/// The sentence above the tables.
pub const READING: &str = "Nanoseconds are processor time of one request in one thread, the fastest of the rounds; bytes are \
     those of the policy for each page of the stream, or of the cache where that has more. The cache has 10,000 pages.";

/// Requests of each run.
const LENGTHS: [u64; 4] = [1_000_000, 2_000_000, 4_000_000, 8_000_000];

/// Pages of the caches.
const PAGES: u64 = 10_000;

/// Most processor time of a request at any length, in multiples of that at the shortest.
const TIMES_MAX: f64 = 2.1;

/// Most bytes of state for each page that the policy has heard of.
const BYTES_MAX: f64 = 64.0;

/// Specification of a stream of so many requests.
type Stream = fn(u64) -> String;

/// Streams by name: pages that never come back, a loop twice as long as the cache, and a Zipf distribution.
const STREAMS: [(&str, Stream); 3] = [
    ("sequential", |n| format!("scan:n={n}:write=30")),
    ("loop", |n| format!("loop:n={n}:pages={}:write=30", 2 * PAGES)),
    ("zipf", |n| format!("zipf:n={n}:pages=1000000:seed=42:ids=scattered:write=30")),
];

/// A table for each stream: nanoseconds of each policy's requests at each length, and its bytes a page.
pub fn tables(
    policies: &[PolicySpec],
    rounds: u32,
    traced: impl Fn(&str) -> Result<Trace, String>,
) -> Result<String, String> {
    let mut out = String::new();
    for (name, spec) in STREAMS {
        let mut costs = vec![Vec::new(); policies.len()];
        let mut bytes = vec![0f64; policies.len()];
        for n in LENGTHS {
            let trace = traced(&spec(n))?;
            let addresses = Addresses::new(&trace);
            for (at, policy) in policies.iter().enumerate() {
                // The fastest of the rounds: other work on the machine can only add to it.
                let runs = (0..rounds).map(|_| run(policy, &addresses)).collect::<Result<Vec<Row>, String>>()?;
                let seconds = runs.iter().map(|row| row.cpu_seconds).fold(f64::INFINITY, f64::min);
                costs[at].push(seconds * 1e9 / n as f64);
                let known = (trace.footprint() as u64).max(PAGES) as f64;
                bytes[at] = runs.iter().map(|row| row.memory_bytes as f64 / known).fold(bytes[at], f64::max);
            }
        }
        let lengths = LENGTHS.map(|n| format!("ns at {} M", n / 1_000_000));
        let mut heads = vec!["policy"];
        heads.extend(lengths.iter().map(String::as_str));
        heads.extend(["most over the first", "bound", "bytes a page", "bound"]);
        let mut table = Table::new(&heads);
        for ((policy, costs), bytes) in policies.iter().zip(&costs).zip(&bytes) {
            let most = costs.iter().copied().fold(0.0, f64::max) / costs[0];
            let mut row = vec![policy.info.name.to_owned()];
            row.extend(costs.iter().map(|ns| format!("{ns:.1}")));
            row.extend([format!("{most:.2}"), judged(most, Some(TIMES_MAX), false)]);
            row.extend([format!("{bytes:.1}"), judged(*bytes, Some(BYTES_MAX), false)]);
            table.push(row);
        }
        out += &format!("## {name}: `{}`\n\n{}", spec(LENGTHS[LENGTHS.len() - 1]), table.render());
    }
    Ok(out)
}

fn run(policy: &PolicySpec, addresses: &Addresses) -> Result<Row, String> {
    let layer = LayerSpec { policy: policy.clone(), sizes: vec![Size::Pages(PAGES)] };
    let options = CellOptions { seed: 42, ..CellOptions::default() };
    run_cell(addresses, &[layer], String::new(), &options).map_err(|error| error.to_string())
}
