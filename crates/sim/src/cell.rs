//! One cell: a policy, or a stack of them, at one size.

use crate::addresses::Addresses;
use crate::layer::{Layer, LayerBuilder, LayerMode, PageCounts};
use crate::row::{Interval, LayerRow, Row, TierRow};
use crate::spec::{LayerSpec, PolicySpec};
use entresol_core::{Hint, ObjectId, Page, Size, Tier};
use entresol_policy::extension::divided;
use entresol_policy::{BuildError, Config, Counts, LogLayout, Mode, catalogue};
use entresol_trace::EventKind;
use std::ops::Range;
use std::time::Duration;

/// Requests passed from layer to layer of a stack at a time: enough to amortise the virtual calls, few enough to stay
/// in the processor's cache.
const STACK_BATCH: usize = 1024;

/// Options of a cell: warm-up, series, further counts, and the seed.
#[derive(Clone, Debug, Default)]
pub struct CellOptions {
    /// Share of the requests, from the start, that are driven but not counted; 0 to 1.
    pub warmup: f64,
    /// Requests per interval of the series; `None` for no series.
    pub interval: Option<u64>,
    /// True to count per object and per query.
    pub parts: bool,
    /// True to count the I/Os of writing all dirty pages at the end.
    pub drain: bool,
    /// Seed of random choices.
    pub seed: u64,
    /// Bytes of a sequential stream after which the rest of it bypasses the lowest layer, the one above the backing
    /// store; 0 to leave all requests to the policy.
    pub sequential_cutoff: u64,
    /// Log in the last tier of the lowest layer; `None` for a tier that is written in place.
    pub log: Option<LogLayout>,
    /// Handling of writes by the lowest layer.
    pub mode: Mode,
}

/// Why a cell cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CellError {
    /// The policy cannot be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The policy needs to know the future, which only the trace's own requests have.
    #[error("policy '{policy}' needs the future and can only be the top layer of a stack")]
    FutureBelow {
        /// The policy.
        policy: &'static str,
    },
    /// The size is less than a page.
    #[error("policy '{policy}': size {size} is 0 pages of {page_bytes} B (footprint {footprint} pages)")]
    NoPages {
        /// The policy.
        policy: &'static str,
        /// The size as it was given.
        size: String,
        /// Page size in bytes.
        page_bytes: u32,
        /// Footprint of the trace.
        footprint: u64,
    },
}

/// A policy with a capacity in pages for each of its tiers.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub spec: PolicySpec,
    pub tiers: Vec<usize>,
}

impl Placed {
    /// Divides a size among the tiers of a layer. A single size for two tiers is divided as in the policy's paper. Of two sizes
    /// for a policy of one tier, the first is that of an LRU pool above it.
    fn new(layer: &LayerSpec, page_bytes: u32, footprint: u64) -> Result<Self, CellError> {
        let info = layer.policy.info;
        let mut tiers = Vec::new();
        for size in &layer.sizes {
            let pages = size.pages(page_bytes, footprint) as usize;
            // One tier of two may be given as 0 pages: the policy can work without it.
            let on_purpose = layer.sizes.len().max(info.tiers.len()) == 2 && *size == Size::Pages(0);
            if pages == 0 && !on_purpose {
                let size = size.to_string();
                return Err(CellError::NoPages { policy: info.name, size, page_bytes, footprint });
            }
            tiers.push(pages);
        }
        if tiers.len() == 1 && info.tiers.len() == 2 {
            let total = tiers[0];
            let top = ((total as f64 * info.top_share).round() as usize).max(info.min_pages[0]);
            tiers = vec![top, total.saturating_sub(top)];
        }
        Ok(Placed { spec: layer.policy.clone(), tiers })
    }

    /// Names of the tiers, fastest first.
    pub fn tier_names(&self) -> Vec<&'static str> {
        let pool = self.has_pool().then_some("dram");
        pool.into_iter().chain(self.spec.info.tiers.iter().copied()).collect()
    }

    /// Name of the policy, with that of the pool above it.
    fn name(&self) -> String {
        let pool = if self.has_pool() { "lru+" } else { "" };
        format!("{pool}{}", self.spec.info.name)
    }

    /// True for a policy of one tier below a pool.
    fn has_pool(&self) -> bool {
        self.tiers.len() > self.spec.info.tiers.len()
    }
}

/// Layers with their capacities, and the size they were made from.
#[derive(Clone, Debug)]
pub(crate) struct Stack {
    pub layers: Vec<Placed>,
    pub size: String,
}

impl Stack {
    pub fn new(layers: &[LayerSpec], size: String, addresses: &Addresses) -> Result<Self, CellError> {
        Stack::over(layers, size, addresses.trace.page_bytes, addresses.trace.footprint() as u64)
    }

    /// Layers over a trace of `footprint` pages.
    pub fn over(layers: &[LayerSpec], size: String, page_bytes: u32, footprint: u64) -> Result<Self, CellError> {
        let placed = layers.iter().map(|layer| Placed::new(layer, page_bytes, footprint));
        let layers = placed.collect::<Result<Vec<_>, _>>()?;
        if let Some(below) = layers.iter().skip(1).find(|layer| layer.spec.info.future) {
            return Err(CellError::FutureBelow { policy: below.spec.info.name });
        }
        Ok(Stack { layers, size })
    }

    /// Returns the configuration of the policy of the layer at `depth`.
    pub fn config(&self, depth: usize, addresses: &Addresses, options: &CellOptions) -> Config {
        let placed = &self.layers[depth];
        Config {
            pages: addresses.trace.footprint(),
            objects: addresses.trace.objects.len(),
            tiers: placed.tiers.clone(),
            page_bytes: addresses.trace.page_bytes,
            seed: options.seed.wrapping_add(depth as u64),
            peak_temporal_distance: (placed.spec.info.name == "mq").then(|| addresses.peak_distance()),
        }
    }
}

/// Processor time of the calling thread.
pub(crate) fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Drives a stack of layers (most often one) over a trace. `size` is the label of the row.
pub fn run_cell(
    addresses: &Addresses,
    layers: &[LayerSpec],
    size: String,
    options: &CellOptions,
) -> Result<Row, CellError> {
    run_stack(addresses, &Stack::new(layers, size, addresses)?, options)
}

pub(crate) fn run_stack(addresses: &Addresses, stack: &Stack, options: &CellOptions) -> Result<Row, CellError> {
    run_counted(addresses, stack, options, false).map(|(row, _)| row)
}

/// Drives a stack, with counts per page of its top layer if `pages`.
pub(crate) fn run_counted(
    addresses: &Addresses,
    stack: &Stack,
    options: &CellOptions,
    pages: bool,
) -> Result<(Row, Vec<PageCounts>), CellError> {
    let started = thread_cpu_time();
    let mut run = Run::build(addresses, stack, options, Recording { pages, ..Recording::default() })?;
    let warm = (addresses.trace.len() as f64 * options.warmup) as usize;
    run.drive(0..warm);
    run.layers.iter_mut().for_each(|layer| layer.reset());
    let mut series = Vec::new();
    let step = options.interval.map_or(usize::MAX, |n| n.max(1) as usize);
    let mut at = warm;
    while at < addresses.trace.len() {
        let before = run.totals();
        let end = addresses.trace.len().min(at.saturating_add(step));
        run.drive(at..end);
        at = end;
        if options.interval.is_some() {
            series.push(run.interval(end, before));
        }
    }
    let mut row = run.row(stack, options);
    row.series = series;
    row.cpu_seconds = (thread_cpu_time() - started).as_secs_f64();
    Ok((row, run.layers[0].pages().to_vec()))
}

/// Records of a run beside its counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Recording {
    /// True to keep movements, for a simulation with time.
    pub log: bool,
    /// True to count per page of the top layer.
    pub pages: bool,
}

/// The layers of a stack during a run.
pub(crate) struct Run<'w> {
    addresses: &'w Addresses<'w>,
    pub layers: Vec<Box<dyn Layer + 'w>>,
    /// Index of the next event of the trace.
    event: usize,
}

/// Requests, hits, pages written back, and pages written below.
pub(crate) type Totals = [u64; 4];

impl<'w> Run<'w> {
    pub fn build(
        addresses: &'w Addresses<'w>,
        stack: &Stack,
        options: &CellOptions,
        Recording { log, pages }: Recording,
    ) -> Result<Self, CellError> {
        let mut layers = Vec::new();
        for (depth, placed) in stack.layers.iter().enumerate() {
            let mut config = stack.config(depth, addresses, options);
            let lowest = depth + 1 == stack.layers.len();
            let blocks = config.tiers.last().copied().unwrap_or(0);
            let ranked = placed.spec.info.ranked;
            let below = options.log.filter(|_| lowest).map(|layout| layout.below(blocks, &mut config, ranked));
            let forward = stack.layers.len() > 1 && !log;
            let cuts = options.sequential_cutoff > 0 && lowest;
            let cutoff_pages = cuts.then(|| options.sequential_cutoff.div_ceil(u64::from(addresses.trace.page_bytes)));
            let writes = if lowest { options.mode } else { Mode::WriteBack };
            let mode = LayerMode {
                forward,
                parts: options.parts && depth == 0,
                pages: pages && depth == 0,
                log,
                cutoff_pages,
                writes,
            };
            let (config, pool) = divided(placed.spec.info, &config);
            let builder = LayerBuilder { addresses, mode, pool, log: below };
            let given = &placed.spec.options;
            let own = if writes.is_clean() { given.for_through() } else { given.clone() };
            layers.push(catalogue::build(placed.spec.info, &config, &own, builder)?);
        }
        Ok(Run { addresses, layers, event: 0 })
    }

    /// Drives all layers over a range of the trace, its events included.
    fn drive(&mut self, range: Range<usize>) {
        let mut at = range.start;
        while at < range.end {
            self.pass_events(at);
            let events = &self.addresses.trace.events;
            let next_event = events.get(self.event).map_or(usize::MAX, |event| event.at as usize);
            let end = range.end.min(next_event);
            self.drive_quiet(at..end);
            at = end;
        }
    }

    fn pass_events(&mut self, at: usize) {
        let addresses = self.addresses;
        while let Some(event) = addresses.trace.events.get(self.event).filter(|event| event.at as usize <= at) {
            self.event += 1;
            let objects: Vec<ObjectId>;
            let hint = match &event.kind {
                EventKind::QueryBegin { query, objects: used, .. } => {
                    objects = used.iter().copied().map(ObjectId).collect();
                    Hint::QueryBegin { query: *query, objects: &objects }
                }
                EventKind::QueryEnd { query } => Hint::QueryEnd { query: *query },
            };
            for depth in 0..self.layers.len() {
                self.layers[depth].hint(hint, at);
                self.settle(depth);
            }
        }
    }

    fn drive_quiet(&mut self, range: Range<usize>) {
        if self.layers.len() == 1 {
            self.layers[0].run(range);
            return;
        }
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min(at + STACK_BATCH);
            self.layers[0].run(at..end);
            self.settle(0);
            at = end;
        }
    }

    /// Passes the requests that a layer has sent below to the next, and so on down.
    fn settle(&mut self, depth: usize) {
        for upper in depth..self.layers.len() {
            let sent = self.layers[upper].take_sent();
            if let Some(lower) = self.layers.get_mut(upper + 1) {
                lower.run_requests(&sent);
            }
        }
    }

    fn bottom(&self) -> &dyn Layer {
        self.layers.last().expect("a stack has a layer").as_ref()
    }

    fn hits(&self) -> u64 {
        self.layers[0].counts().write_hits() + self.layers.iter().map(|layer| layer.counts().read_hits()).sum::<u64>()
    }

    pub fn totals(&self) -> Totals {
        let below = self.bottom().counts();
        [self.layers[0].counts().requests, self.hits(), below.write_backs, below.written_below()]
    }

    fn gauges(&self) -> Vec<(String, f64)> {
        let mut gauges = Vec::new();
        for layer in &self.layers {
            let prefix = if self.layers.len() > 1 { format!("{}.", layer.info().name) } else { String::new() };
            layer.gauges(&mut |name, value| gauges.push((format!("{prefix}{name}"), value)));
        }
        gauges
    }

    pub fn interval(&self, end: usize, before: Totals) -> Interval {
        let now = self.totals();
        let tiers = self
            .layers
            .iter()
            .flat_map(|layer| (0..layer.tiers()).map(|tier| layer.occupancy(Tier(tier as u8)) as u64));
        Interval {
            at: end as u64,
            requests: now[0] - before[0],
            hits: now[1] - before[1],
            write_backs: now[2] - before[2],
            written_below: now[3] - before[3],
            held_pages: tiers.collect(),
            gauges: self.gauges(),
        }
    }

    pub fn row(&self, stack: &Stack, options: &CellOptions) -> Row {
        let top = self.layers[0].counts();
        let below = self.bottom().counts();
        let lower = &self.layers[1..];
        let for_write: u64 = lower.iter().map(|layer| layer.hits_for_write()).sum();
        let lower_hits: u64 = lower.iter().map(|layer| layer.counts().read_hits()).sum();
        let join = |text: &dyn Fn(&Placed) -> String| stack.layers.iter().map(text).collect::<Vec<_>>().join("+");
        let (objects, queries) = self.layers[0].parts().map(|parts| parts.rows()).unwrap_or_default();
        let dirty = self.dirty_pages();
        Row {
            policy: join(&Placed::name),
            options: join(&|placed| placed.spec.options.summary()),
            capacity_pages: stack.layers.iter().flat_map(|placed| &placed.tiers).sum::<usize>() as u64,
            requests: top.requests,
            reads: top.requests - top.writes,
            writes: top.writes,
            read_hits: top.read_hits() + lower_hits - for_write,
            write_hits: top.write_hits() + for_write,
            fetches: below.fetches,
            admissions: top.admissions,
            bypasses: below.read_bypasses + below.write_bypasses,
            write_backs: below.write_backs,
            write_back_ios: below.write_back_ios,
            dirty_at_end: dirty.len() as u64,
            tiers: self.tier_rows(stack),
            cpu_seconds: 0.0,
            size: stack.size.clone(),
            write_bypasses: below.write_bypasses,
            write_throughs: below.write_throughs,
            write_arounds: below.write_arounds,
            drain_ios: options.drain.then(|| contiguous_runs(self.addresses, &dirty)),
            memory_bytes: self.layers.iter().map(|layer| layer.memory_bytes() as u64).sum(),
            layers: if lower.is_empty() { Vec::new() } else { self.layer_rows(stack) },
            series: Vec::new(),
            objects,
            queries,
            gauges: self.gauges(),
        }
    }

    fn tier_rows(&self, stack: &Stack) -> Vec<TierRow> {
        let mut rows = Vec::new();
        for (layer, placed) in self.layers.iter().zip(&stack.layers) {
            let counts = layer.counts();
            for (t, (name, &capacity)) in placed.tier_names().into_iter().zip(&placed.tiers).enumerate() {
                let prefix = if self.layers.len() > 1 { format!("{}.", layer.info().name) } else { String::new() };
                let held = layer.occupancy(Tier(t as u8));
                rows.push(TierRow::new(format!("{prefix}{name}"), capacity, held, &counts.tiers[t]));
            }
        }
        rows
    }

    fn layer_rows(&self, stack: &Stack) -> Vec<LayerRow> {
        let rows = self.layers.iter().zip(&stack.layers).map(|(layer, placed)| {
            let counts: Counts = layer.counts();
            LayerRow {
                policy: placed.spec.info.name.to_owned(),
                options: placed.spec.options.summary(),
                requests: counts.requests,
                writes: counts.writes,
                read_hits: counts.read_hits(),
                write_hits: counts.write_hits(),
                fetches: counts.fetches,
                write_backs: counts.write_backs,
                write_back_ios: counts.write_back_ios,
                bypasses: counts.read_bypasses + counts.write_bypasses,
            }
        });
        rows.collect()
    }

    /// Pages that are dirty in any layer, each counted once.
    fn dirty_pages(&self) -> Vec<Page> {
        let mut pages: Vec<Page> = self.layers.iter().flat_map(|layer| layer.dirty_pages()).collect();
        pages.sort_unstable();
        pages.dedup();
        pages
    }
}

/// I/Os for writing these pages: the number of runs of neighbours.
fn contiguous_runs(addresses: &Addresses, pages: &[Page]) -> u64 {
    let mut addresses: Vec<_> = pages.iter().map(|&page| addresses.address(page)).collect();
    addresses.sort_unstable();
    let joined = addresses.windows(2).filter(|w| w[0].object == w[1].object && w[0].block + 1 == w[1].block).count();
    (addresses.len() - joined) as u64
}
