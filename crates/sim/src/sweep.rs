//! Sweeps: many cells over all cores.

use crate::addresses::Addresses;
use crate::cell::{CellError, CellOptions, Stack, run_stack, thread_cpu_time};
use crate::curve::{CurvePoint, lru_curve};
use crate::row::{Row, TierRow};
use crate::spec::{LayerSpec, PolicySpec};
use entresol_core::Size;
use entresol_policy::extension::divided;
use entresol_policy::{BuildError, catalogue};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A cell to be run.
#[derive(Clone, Debug)]
pub struct Cell {
    pub(crate) stack: Stack,
}

/// A cell that cannot be run, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The policy.
    pub policy: String,
    /// Size as it was requested.
    pub size: String,
    /// The reason.
    pub error: CellError,
}

impl std::fmt::Display for Skipped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.error {
            // The error gives the capacity in pages; the requested size is added.
            CellError::Build(error @ (BuildError::TooSmall { .. } | BuildError::TooLarge { .. })) => {
                write!(f, "{error} (at size {})", self.size)
            }
            error => error.fmt(f),
        }
    }
}

impl std::error::Error for Skipped {}

impl Cell {
    /// A policy at a size. `dram` is the size of the DRAM above it: the top tier of a policy that manages two, or an
    /// LRU pool above any other.
    pub fn single(
        policy: &PolicySpec,
        size: Size,
        dram: Option<Size>,
        addresses: &Addresses,
    ) -> Result<Self, Box<Skipped>> {
        let label = match dram {
            Some(dram) => format!("{dram}+{size}"),
            None => size.to_string(),
        };
        let sizes = dram.into_iter().chain([size]).collect();
        Cell::stack(&[LayerSpec { policy: policy.clone(), sizes }], label, addresses)
    }

    /// A stack of layers.
    pub fn stack(layers: &[LayerSpec], label: String, addresses: &Addresses) -> Result<Self, Box<Skipped>> {
        let stack = Stack::new(layers, label.clone(), addresses).and_then(|stack| {
            check(&stack, addresses)?;
            Ok(stack)
        });
        let name = || layers.iter().map(|layer| layer.policy.info.name).collect::<Vec<_>>().join("+");
        stack.map(|stack| Cell { stack }).map_err(|error| Box::new(Skipped { policy: name(), size: label, error }))
    }

    /// Key that identifies the cell among those of one trace and one set of cell options.
    pub fn key(&self) -> String {
        let layer = |placed: &crate::cell::Placed| {
            format!("{}:{}:{:?}", placed.spec.info.name, placed.spec.options.summary(), placed.tiers)
        };
        let layers = self.stack.layers.iter().map(layer).collect::<Vec<_>>().join("+");
        format!("{layers}@{}", self.stack.size)
    }

    /// True for LRU without options: one pass serves all sizes of it.
    fn is_plain_lru(&self) -> bool {
        let [layer] = &self.stack.layers[..] else { return false };
        layer.tiers.len() == 1 && layer.spec.info.name == "lru" && layer.spec.options.summary().is_empty()
    }
}

/// Builds the layers once over no pages, so that a cell that cannot run is known before the sweep starts.
pub(crate) fn check(stack: &Stack, addresses: &Addresses) -> Result<(), CellError> {
    struct Nothing;
    impl catalogue::Visitor for Nothing {
        type Output = ();
        fn visit<P: entresol_policy::Policy>(self, _policy: P) {}
    }
    for placed in &stack.layers {
        let config = entresol_policy::Config {
            pages: 0,
            objects: addresses.trace.objects.len(),
            tiers: placed.tiers.clone(),
            page_bytes: addresses.trace.page_bytes,
            seed: 0,
            peak_temporal_distance: Some(1),
        };
        let (config, _) = divided(placed.spec.info, &config);
        catalogue::build(placed.spec.info, &config, &placed.spec.options, Nothing)?;
    }
    Ok(())
}

/// Progress of a sweep.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Cells done.
    pub done: usize,
    /// Cells in all.
    pub total: usize,
    /// The cell finished last.
    pub cell: &'a Cell,
    /// Result of that cell.
    pub row: &'a Row,
}

/// Result of a sweep.
#[derive(Debug, Default)]
pub struct SweepOutcome {
    /// A row per cell, in the order of the cells.
    pub rows: Vec<Row>,
}

/// Runs cells on `threads` threads. `report` is called after each cell, from any thread, one call at a time.
///
/// Four or more cells of plain LRU share one pass over the trace, if they write back and no warm-up, cutoff, series or parts are requested.
/// Their rows share its processor time evenly.
pub fn sweep(
    addresses: &Addresses,
    cells: &[Cell],
    options: &CellOptions,
    threads: usize,
    report: &mut (dyn FnMut(Progress) + Send),
) -> Result<SweepOutcome, CellError> {
    let whole = options.warmup == 0.0 && options.sequential_cutoff == 0 && !options.mode.is_clean();
    let simple = whole && options.interval.is_none() && !options.parts && !options.drain;
    let lru: Vec<usize> = (0..cells.len()).filter(|&i| simple && cells[i].is_plain_lru()).collect();
    let one_pass = if lru.len() >= 4 { lru } else { Vec::new() };
    // The pass is one job. It comes first, because it takes longest.
    let mut jobs: Vec<Vec<usize>> = (0..cells.len()).filter(|i| !one_pass.contains(i)).map(|i| vec![i]).collect();
    if !one_pass.is_empty() {
        jobs.insert(0, one_pass);
    }
    let next = AtomicUsize::new(0);
    let shared = Mutex::new((vec![None; cells.len()], 0, report));
    let work = || -> Result<(), CellError> {
        while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let rows = if job.len() > 1 {
                lru_rows(addresses, job.iter().map(|&i| &cells[i]).collect::<Vec<_>>().as_slice())
            } else {
                vec![run_stack(addresses, &cells[job[0]].stack, options)?]
            };
            let mut guard = shared.lock().expect("no thread panics while it reports");
            let (results, done, report) = &mut *guard;
            for (&i, row) in job.iter().zip(rows) {
                *done += 1;
                report(Progress { done: *done, total: cells.len(), cell: &cells[i], row: &row });
                results[i] = Some(row);
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic"))
    })?;
    let (results, ..) = shared.into_inner().expect("no thread panics while it reports");
    Ok(SweepOutcome { rows: results.into_iter().map(|row| row.expect("every cell was run")).collect() })
}

fn lru_rows(addresses: &Addresses, cells: &[&Cell]) -> Vec<Row> {
    let started = thread_cpu_time();
    let capacities: Vec<usize> = cells.iter().map(|cell| cell.stack.layers[0].tiers[0]).collect();
    let points = lru_curve(addresses, &capacities);
    let share = (thread_cpu_time() - started).as_secs_f64() / cells.len() as f64;
    let requests = addresses.trace.len() as u64;
    let writes = (0..addresses.trace.len()).filter(|&at| addresses.trace.request(at).op.is_write()).count() as u64;
    let whole = |cell: &&Cell, point: &CurvePoint| lru_row(cell, point, requests, writes, share);
    cells.iter().zip(&points).map(|(cell, point)| whole(cell, point)).collect()
}

fn lru_row(cell: &Cell, point: &CurvePoint, requests: u64, writes: u64, cpu_seconds: f64) -> Row {
    let reads = requests - writes;
    let read_misses = reads - point.read_hits;
    let write_misses = writes - point.write_hits;
    let tier = TierRow {
        name: "cache".to_owned(),
        capacity_pages: point.capacity as u64,
        held_pages: point.held as u64,
        read_hits: point.read_hits,
        write_hits: point.write_hits,
        fetched: read_misses,
        installed: writes,
        written_back: point.write_backs,
        write_ios: read_misses + writes,
        ..TierRow::default()
    };
    Row {
        policy: "lru".to_owned(),
        capacity_pages: point.capacity as u64,
        requests,
        reads,
        writes,
        read_hits: point.read_hits,
        write_hits: point.write_hits,
        fetches: read_misses + point.update_misses,
        admissions: read_misses + write_misses,
        write_backs: point.write_backs,
        write_back_ios: point.write_backs,
        dirty_at_end: point.dirty_at_end,
        tiers: vec![tier],
        cpu_seconds,
        size: cell.stack.size.clone(),
        ..Row::default()
    }
}
