//! Timed runs.

use crate::bounds;
use crate::peer::{HashPower, Peer};
use entresol_bench_common::{median, process_time};
use entresol_core::Size;
use entresol_policy::catalogue::{self, Visitor};
use entresol_policy::{Config, Policy};
use entresol_sim::{Addresses, Cell, CellOptions, LayerSpec, PolicySpec, Progress, Row, run_cell, sweep};
use entresol_trace::{LoadOptions, load};
use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

/// Sizes at which every policy is measured, in pages.
pub const SIZES: [usize; 2] = [10_000, 100_000];

/// libCacheSim's hash tables: the package's own, of 2^24 buckets, and one that suits these sizes and the processor's
/// cache better.
pub const HASH_POWERS: [HashPower; 2] = [HashPower(0), HashPower(17)];

/// Shows the current step in the last line of a terminal.
fn progress(what: std::fmt::Arguments) {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K{what}");
    }
}

/// Times of repeated runs, in seconds.
#[derive(Clone, Debug, Default)]
pub struct Times(Vec<f64>);

impl Times {
    /// Adds a run.
    pub fn push(&mut self, seconds: f64) {
        self.0.push(seconds);
    }

    /// The median; NaN without a run.
    pub fn median(&self) -> f64 {
        median(&self.0)
    }
}

/// libCacheSim's version of a policy at one size: misses, and times for each of [`HASH_POWERS`].
#[derive(Clone, Debug, Default)]
pub struct PeerRuns {
    pub misses: u64,
    pub times: [Times; HASH_POWERS.len()],
}

/// A policy at one size.
#[derive(Clone, Debug)]
pub struct Measured {
    pub layers: Vec<LayerSpec>,
    /// Name and options of the policy.
    pub label: String,
    pub pages: usize,
    pub times: Times,
    pub row: Row,
    pub peer: Option<PeerRuns>,
}

impl Measured {
    fn new(layers: Vec<LayerSpec>, label: String, pages: usize) -> Self {
        Measured { layers, label, pages, times: Times::default(), row: Row::default(), peer: None }
    }

    /// The name of a single policy.
    pub fn policy(&self) -> &'static str {
        self.layers[0].policy.info.name
    }

    /// Million requests per second of processor time.
    pub fn speed(&self) -> f64 {
        self.row.requests as f64 / self.times.median() / 1e6
    }

    /// Requests that no tier served.
    pub fn misses(&self) -> u64 {
        self.row.requests - self.row.read_hits - self.row.write_hits
    }

    fn run(&mut self, addresses: &Addresses) -> Result<(), String> {
        let row = run_cell(addresses, &self.layers, String::new(), &CellOptions { seed: 42, ..CellOptions::default() });
        self.row = row.map_err(|error| error.to_string())?;
        self.times.0.push(self.row.cpu_seconds);
        Ok(())
    }

    /// Runs libCacheSim's version, if there is one and it has not failed before.
    fn run_peer(&mut self, peer: &mut Peer) -> Result<(), String> {
        // libCacheSim's versions have no options, so they are compared with ours without options only.
        let Some(version) = bounds::peer(self.policy()).filter(|_| self.label == self.policy()) else { return Ok(()) };
        let runs = self.peer.get_or_insert_default();
        for (power, times) in HASH_POWERS.iter().zip(&mut runs.times) {
            let (misses, seconds) = peer.run(version.class, self.pages, *power)?;
            runs.misses = misses;
            times.0.push(seconds);
        }
        Ok(())
    }
}

/// Policies at all sizes.
pub fn cells(policies: &[PolicySpec]) -> Vec<Measured> {
    let at = |policy: &PolicySpec, pages: usize| {
        let options = policy.options.summary();
        let colon = if options.is_empty() { "" } else { ":" };
        let label = format!("{}{colon}{options}", policy.info.name);
        Measured::new(vec![LayerSpec { policy: policy.clone(), sizes: vec![Size::Pages(pages as u64)] }], label, pages)
    };
    SIZES.iter().flat_map(|&pages| policies.iter().map(move |policy| at(policy, pages))).collect()
}

/// A stack of layers.
pub fn stack(text: &str) -> Result<Measured, String> {
    let layers = entresol_sim::parse_stack(text).map_err(|error| error.to_string())?;
    Ok(Measured::new(layers, text.to_owned(), 0))
}

/// Runs every cell once per round, libCacheSim's version right after ours, so that other load on the machine affects
/// both alike.
pub fn rounds(
    addresses: &Addresses,
    cells: &mut [Measured],
    mut peer: Option<&mut Peer>,
    rounds: usize,
) -> Result<(), String> {
    for round in 1..=rounds {
        for cell in &mut *cells {
            progress(format_args!("round {round} of {rounds}: {}", cell.label));
            cell.run(addresses)?;
            if let Some(peer) = &mut peer {
                cell.run_peer(peer).map_err(|error| format!("libCacheSim, {}: {error}", cell.label))?;
            }
        }
    }
    progress(format_args!(""));
    Ok(())
}

/// Times of loading a trace file.
pub fn loads(path: &Path, runs: usize) -> Result<Times, String> {
    let mut times = Times::default();
    for _ in 0..runs {
        let started = process_time();
        load(path, &LoadOptions::default()).map_err(|error| error.to_string())?;
        times.0.push((process_time() - started).as_secs_f64());
    }
    Ok(times)
}

/// Bytes of state that grow with the handles, per handle, and all others, per page of capacity.
pub fn memory(measured: &Measured, footprint: usize) -> Result<[f64; 2], String> {
    struct Bytes;
    impl Visitor for Bytes {
        type Output = usize;
        fn visit<P: Policy>(self, policy: P) -> usize {
            policy.memory_bytes()
        }
    }
    let spec = &measured.layers[0].policy;
    let empty = |pages: usize| {
        let config = Config {
            pages,
            objects: 1,
            tiers: measured.row.tiers.iter().map(|tier| tier.capacity_pages as usize).collect(),
            page_bytes: 4096,
            seed: 42,
            peak_temporal_distance: Some(1),
        };
        catalogue::build(spec.info, &config, &spec.options, Bytes).map_err(|error| error.to_string())
    };
    let per_handle = (empty(2 * footprint)? as f64 - empty(footprint)? as f64) / footprint as f64;
    let rest = measured.row.memory_bytes as f64 - per_handle * footprint as f64;
    Ok([per_handle, rest / measured.row.capacity_pages as f64])
}

/// Cost of a sweep.
pub struct SweepCost {
    pub cells: usize,
    pub threads: usize,
    pub cpu: Duration,
    pub wall: Duration,
}

/// Twenty policies at twenty sizes, from 0.1 % to half of the footprint, equally far apart on a logarithmic axis.
pub fn sweep_cost(addresses: &Addresses) -> Result<SweepCost, String> {
    const SIZES: i32 = 20;
    let (least, most) = (addresses.trace.footprint() as f64 * 0.001, addresses.trace.footprint() as f64 * 0.5);
    let step = (most / least).powf(1.0 / f64::from(SIZES - 1));
    let mut cells = Vec::new();
    for name in bounds::sweep_policies() {
        let policy = &entresol_sim::parse_policies(name).map_err(|error| error.to_string())?[0];
        for i in 0..SIZES {
            let size = Size::Pages((least * step.powi(i)).round() as u64);
            cells.push(Cell::single(policy, size, None, addresses).map_err(|skipped| skipped.error.to_string())?);
        }
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (cpu, wall) = (process_time(), Instant::now());
    let mut report = |done: Progress| progress(format_args!("sweep: {} of {}", done.done, done.total));
    sweep(addresses, &cells, &CellOptions::default(), threads, &mut report).map_err(|error| error.to_string())?;
    progress(format_args!(""));
    Ok(SweepCost { cells: cells.len(), threads, cpu: process_time() - cpu, wall: wall.elapsed() })
}
