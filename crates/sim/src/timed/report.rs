//! Report of a simulation with time.

use super::work::Station;
use crate::row::Row;
use entresol_device::Nanos;
use hdrhistogram::Histogram;
use serde::Serialize;

/// Results of the timing, beside the row of counts.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TimedRow {
    /// Virtual time from the end of the warm-up to the last completion, in seconds.
    pub elapsed_seconds: f64,
    /// Requests completed in that time.
    pub requests: u64,
    /// Requests per second of virtual time.
    pub requests_per_second: f64,
    /// Concurrent requesters; 0 if the trace's own times drove the run.
    pub clients: u32,
    /// Average read cache latency of 004, figure 4.8: over all tiers, the mean latency of a read of the tier's device
    /// times the share of all reads that hit there. Misses add nothing, so it compares hierarchies of one policy, not
    /// policies.
    pub read_cache_latency_us: f64,
    /// Latencies of all requests, then of the hits in each tier, then of requests served from below.
    pub latencies: Vec<LatencyRow>,
    /// The devices, tiers first, the level below last.
    pub devices: Vec<DeviceRow>,
}

/// Latencies in microseconds. A percentile is absent with fewer than 10 values beyond it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LatencyRow {
    /// Scope of the latencies: `all`, a tier, `below`.
    pub name: String,
    /// Number of requests.
    pub count: u64,
    /// Mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: Option<f64>,
    /// 95th percentile.
    pub p95_us: Option<f64>,
    /// 99th percentile.
    pub p99_us: Option<f64>,
    /// 99.9th percentile.
    pub p999_us: Option<f64>,
    /// Largest.
    pub max_us: f64,
}

impl TimedRow {
    /// 004's formula over the tiers of a row; the devices have the tiers' order.
    pub(super) fn read_cache_latency(&self, row: &Row) -> f64 {
        let tiers = row.tiers.iter().zip(&self.devices);
        tiers.map(|(tier, device)| device.mean_read_us * tier.read_hits as f64 / row.reads.max(1) as f64).sum()
    }
}

impl LatencyRow {
    pub(super) fn new(name: &str, histogram: &Histogram<u64>) -> Self {
        let us = |ns: u64| ns as f64 / 1000.0;
        let at = |quantile: f64| {
            let beyond = histogram.len() as f64 * (1.0 - quantile);
            (beyond >= 10.0).then(|| us(histogram.value_at_quantile(quantile)))
        };
        LatencyRow {
            name: name.to_owned(),
            count: histogram.len(),
            mean_us: if histogram.is_empty() { 0.0 } else { histogram.mean() / 1000.0 },
            p50_us: at(0.5),
            p95_us: at(0.95),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: us(histogram.max()),
        }
    }
}

/// Statistics of a device since the warm-up (001, table 6).
#[derive(Clone, Debug, Default, Serialize)]
pub struct DeviceRow {
    /// Tier and device.
    pub name: String,
    /// Capacity in bytes, used or not.
    pub capacity_bytes: u64,
    /// Read I/Os.
    pub reads: u64,
    /// Write I/Os.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Mean size of a read, in bytes; 0 without any.
    pub mean_read_bytes: f64,
    /// Mean size of a write, in bytes; 0 without any.
    pub mean_write_bytes: f64,
    /// Share of the reads that began at the end of the one before.
    pub sequential_reads: f64,
    /// Share of the writes that began at the end of the one before.
    pub sequential_writes: f64,
    /// Share of the time during which an I/O was under way.
    pub utilisation: f64,
    /// I/Os per second.
    pub ios_per_second: f64,
    /// Mean latency of reads, in microseconds.
    pub mean_read_us: f64,
    /// Mean latency of writes, in microseconds.
    pub mean_write_us: f64,
    /// Bytes programmed per byte written since the warm-up; a device that buffers writes may still hold some of them.
    pub write_amplification: f64,
    /// Model of the write amplification of a flash drive: `mech` or `curve`; absent for other devices.
    pub waf_mode: Option<&'static str>,
    /// Erase blocks erased since the warm-up.
    pub erases: u64,
    /// Years until the endurance is used up at this rate; absent if the device does not wear or nothing was written.
    pub lifetime_years: Option<f64>,
    /// Energy in joules since the warm-up; 0 if no source gives a figure.
    pub joules: f64,
}

impl DeviceRow {
    pub(super) fn new(station: &Station, started: Nanos, now: Nanos) -> Self {
        let totals = &station.totals;
        let ratio = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        let mean_us = |direction: usize| {
            let histogram = &totals.latency_ns[direction];
            if histogram.is_empty() { 0.0 } else { histogram.mean() / 1000.0 }
        };
        let elapsed = now - started;
        let wear = station.wear();
        let years = wear.lifetime_years(elapsed);
        DeviceRow {
            name: station.name.clone(),
            capacity_bytes: station.device.capacity_bytes(),
            reads: totals.ios[0],
            writes: totals.ios[1],
            read_bytes: totals.bytes[0],
            write_bytes: totals.bytes[1],
            mean_read_bytes: ratio(totals.bytes[0], totals.ios[0]),
            mean_write_bytes: ratio(totals.bytes[1], totals.ios[1]),
            sequential_reads: ratio(totals.sequential[0], totals.ios[0]),
            sequential_writes: ratio(totals.sequential[1], totals.ios[1]),
            utilisation: ratio(station.busy_ns(now).min(elapsed), elapsed),
            ios_per_second: (totals.ios[0] + totals.ios[1]) as f64 * 1e9 / elapsed.max(1) as f64,
            mean_read_us: mean_us(0),
            mean_write_us: mean_us(1),
            write_amplification: wear.write_amplification(),
            waf_mode: station.device.amplification(),
            erases: wear.erases,
            lifetime_years: years.is_finite().then_some(years),
            joules: wear.joules,
        }
    }
}
