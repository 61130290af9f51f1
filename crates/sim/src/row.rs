//! Results as written to files. The names of the first fields of [`Row`] are a published format.

use entresol_core::{Hint, Outcome, Request};
use entresol_policy::TierCounts;
use entresol_trace::{EventKind, Trace};
use serde::{Deserialize, Serialize};

/// The result of one cell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Name of the policy, of several joined by `+` for a stack.
    pub policy: String,
    /// The options that were given, `key=value` joined by `:`.
    pub options: String,
    /// Sum of the capacities of all tiers, in pages.
    pub capacity_pages: u64,
    /// Page requests after the warm-up.
    pub requests: u64,
    /// Reads among the requests.
    pub reads: u64,
    /// Writes among the requests, whole or partial.
    pub writes: u64,
    /// Read hits in any tier.
    pub read_hits: u64,
    /// Write hits in any tier.
    pub write_hits: u64,
    /// Pages read from the level below.
    pub fetches: u64,
    /// Misses whose page was admitted, into the top layer of a stack.
    pub admissions: u64,
    /// Misses and writes that bypassed all tiers.
    pub bypasses: u64,
    /// Pages written to the level below by evictions, cleaning and flush rules.
    pub write_backs: u64,
    /// I/Os of those write-backs.
    pub write_back_ios: u64,
    /// Pages still newer than the level below at the end.
    pub dirty_at_end: u64,
    /// The tiers, fastest first.
    pub tiers: Vec<TierRow>,
    /// Processor time of the cell, in seconds.
    pub cpu_seconds: f64,

    /// Size as it was requested.
    pub size: String,
    /// Bypasses by writes: pages written below at once.
    pub write_bypasses: u64,
    /// Writes that the mode sent to the level below at once, beside what the policy decided on them; absent where there
    /// are none.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub write_throughs: u64,
    /// Writes of pages that the cache did not hold, which the mode sent past the policy; absent where there are none.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub write_arounds: u64,
    /// I/Os for writing the pages dirty at the end, if draining was requested.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub drain_ios: Option<u64>,
    /// Bytes of state of the policies.
    pub memory_bytes: u64,
    /// The layers of a stack, top first; absent for a single policy.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub layers: Vec<LayerRow>,
    /// Figures over time.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub series: Vec<Interval>,
    /// Counts per object.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub objects: Vec<PartRow>,
    /// Counts per query.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub queries: Vec<PartRow>,
    /// The last value of each gauge of the policy.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub gauges: Vec<(String, f64)>,
}

impl Row {
    /// Hits of both kinds per request; 0 without requests.
    pub fn hit_ratio(&self) -> f64 {
        ratio(self.read_hits + self.write_hits, self.requests)
    }

    /// Read hits per read.
    pub fn read_hit_ratio(&self) -> f64 {
        ratio(self.read_hits, self.reads)
    }

    /// Pages written to the level below, whatever the reason.
    pub fn written_below(&self) -> u64 {
        self.write_backs + self.written_at_once()
    }

    /// Pages written to the level below by the requests themselves.
    pub fn written_at_once(&self) -> u64 {
        self.write_bypasses + self.write_throughs + self.write_arounds
    }

    /// Pages moved between the level below and the tiers, both ways: the migration size of 000, section 3.6.
    pub fn migrated(&self) -> u64 {
        self.tiers.iter().map(|tier| tier.fetched).sum::<u64>() + self.write_backs
    }
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// The result of one tier.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TierRow {
    /// Name of the tier, with the policy's in a stack.
    pub name: String,
    /// Capacity in pages.
    pub capacity_pages: u64,
    /// Frames in use at the end, superseded ones included.
    pub held_pages: u64,
    /// Reads found here.
    pub read_hits: u64,
    /// Writes whose page was found here.
    pub write_hits: u64,
    /// Pages read from the level below into this tier.
    pub fetched: u64,
    /// Pages that the host, or the layer above, wrote into this tier.
    pub installed: u64,
    /// Pages copied in from the other tier.
    pub copied_in: u64,
    /// Pages copied out to the other tier.
    pub copied_out: u64,
    /// Pages appended to a log again.
    pub requeued: u64,
    /// Pages read from this tier to be written below.
    pub written_back: u64,
    /// I/Os by which pages came in.
    pub write_ios: u64,
}

impl TierRow {
    pub(crate) fn new(name: String, capacity: usize, held: usize, counts: &TierCounts) -> Self {
        TierRow {
            name,
            capacity_pages: capacity as u64,
            held_pages: held as u64,
            read_hits: counts.read_hits,
            write_hits: counts.write_hits,
            fetched: counts.fetched,
            installed: counts.installed,
            copied_in: counts.copied_in,
            copied_out: counts.copied_out,
            requeued: counts.requeued,
            written_back: counts.written_back,
            write_ios: counts.write_ios,
        }
    }

    /// Pages written to the tier's device.
    pub fn pages_in(&self) -> u64 {
        self.fetched + self.installed + self.copied_in + self.requeued
    }
}

/// Counts of the requests that one layer of a stack saw, and of those that it sent below.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LayerRow {
    /// The policy.
    pub policy: String,
    /// Options of the policy.
    pub options: String,
    /// Requests that reached the layer.
    pub requests: u64,
    /// Writes among the requests.
    pub writes: u64,
    /// Read hits.
    pub read_hits: u64,
    /// Write hits.
    pub write_hits: u64,
    /// Pages read from the next level.
    pub fetches: u64,
    /// Pages written to the next level.
    pub write_backs: u64,
    /// I/Os of those write-backs.
    pub write_back_ios: u64,
    /// Requests that bypassed the layer.
    pub bypasses: u64,
}

/// Figures of an interval of requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Requests of the trace before the end of the interval.
    pub at: u64,
    /// Requests in the interval.
    pub requests: u64,
    /// Hits in the interval.
    pub hits: u64,
    /// Pages written to the level below by evictions, cleaning and flush rules in the interval, as in [`Row`].
    pub write_backs: u64,
    /// Pages written to the level below in the interval, whatever the reason.
    #[serde(default)]
    pub written_below: u64,
    /// Frames in use at the end of the interval, per tier.
    pub held_pages: Vec<u64>,
    /// The policy's gauges at the end of the interval.
    pub gauges: Vec<(String, f64)>,
}

/// Counts of the requests that belong to one object or one query.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartRow {
    /// Name of the object or query.
    pub name: String,
    /// Number of requests.
    pub requests: u64,
    /// Writes among the requests.
    pub writes: u64,
    /// Read hits in any tier.
    pub read_hits: u64,
    /// Write hits in any tier.
    pub write_hits: u64,
}

/// Counts per object and per query.
pub struct PartCounts {
    objects: Vec<PartRow>,
    queries: Vec<PartRow>,
    /// Running queries, the last to start at the end; requests count for the last.
    running: Vec<usize>,
}

impl PartCounts {
    pub(crate) fn new(trace: &Trace) -> Self {
        let named = |name: &String| PartRow { name: name.clone(), ..PartRow::default() };
        let labels = trace.events.iter().filter_map(|event| match &event.kind {
            EventKind::QueryBegin { label, .. } => Some(named(label)),
            EventKind::QueryEnd { .. } => None,
        });
        PartCounts {
            objects: trace.objects.iter().map(|object| named(&object.name)).collect(),
            queries: labels.collect(),
            running: Vec::new(),
        }
    }

    pub(crate) fn outcome(&mut self, trace: &Trace, _at: usize, request: Request, outcome: Outcome) {
        let write = u64::from(request.op.is_write());
        let hit = u64::from(outcome.is_hit());
        let query = self.running.last().map(|&query| &mut self.queries[query]);
        let object = &mut self.objects[trace.address(request.page).object.index()];
        for part in query.into_iter().chain([object]) {
            part.requests += 1;
            part.writes += write;
            part.write_hits += hit * write;
            part.read_hits += hit * (1 - write);
        }
    }

    pub(crate) fn hint(&mut self, hint: Hint) {
        match hint {
            Hint::QueryBegin { query, .. } => self.running.push(query as usize),
            Hint::QueryEnd { query } => self.running.retain(|&running| running != query as usize),
            Hint::Place { .. } | Hint::Unplace { .. } => {}
        }
    }

    pub(crate) fn reset(&mut self) {
        for part in self.objects.iter_mut().chain(&mut self.queries) {
            *part = PartRow { name: std::mem::take(&mut part.name), ..PartRow::default() };
        }
    }

    /// Rows of the objects that were requested and of the queries that ran.
    pub(crate) fn rows(&self) -> (Vec<PartRow>, Vec<PartRow>) {
        let requested = |parts: &[PartRow]| parts.iter().filter(|part| part.requests > 0).cloned().collect();
        (requested(&self.objects), requested(&self.queries))
    }
}
