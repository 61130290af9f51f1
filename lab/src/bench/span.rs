//! Figures of a run between two moments, and the recording of the run.

use super::daemon::Figures;
use super::testbed::Testbed;
use super::variant::Variant;
use anyhow::{Context, Result};
use entresol_bench::server::{PoolCounts, Waits, processor_time, processor_time_but};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Figures of a run at one moment.
pub struct Look {
    figures: Figures,
    /// Counts of the server's own pool, where the requests that pass it are recorded and the server counts them.
    pool: Option<PoolCounts>,
    /// Waits of the server's sessions, where its requests are recorded and the server keeps that time.
    waits: Option<Waits>,
    /// Processor time of all processes but the one that mounts.
    processor: Duration,
    /// Processor time of the process that mounts.
    mounting: Duration,
    at: Instant,
}

impl Look {
    /// Takes a look while the process `mounting` mounts; `ask` asks that process for its figures.
    pub fn take(
        testbed: &Testbed,
        variant: &Variant,
        mounting: u32,
        ask: impl FnOnce() -> Result<Figures>,
    ) -> Result<Self> {
        let figures = ask()?;
        // Asking the server costs a little, so it is asked only where a recording needs its counts.
        let (pool, waits) = match testbed.records(variant) {
            true => (testbed.server.pool()?, testbed.server.waits()?),
            false => (None, None),
        };
        Ok(Look {
            figures,
            pool,
            waits,
            processor: processor_time_but(mounting),
            mounting: processor_time(mounting),
            at: Instant::now(),
        })
    }

    /// A look with zero for every figure, for a time without measurements.
    pub fn nothing(at: Instant) -> Self {
        let (figures, pool, waits) = (Figures::default(), None, None);
        Look { figures, pool, waits, processor: Duration::ZERO, mounting: Duration::ZERO, at }
    }

    /// Time since the look.
    pub fn elapsed(&self) -> Duration {
        self.at.elapsed()
    }

    /// Span from this look to a later one.
    pub fn until(&self, later: &Look) -> Span {
        Span {
            figures: later.figures.since(&self.figures),
            pool: later.pool.zip(self.pool).map(|(later, first)| later.since(&first)),
            waits: later.waits.zip(self.waits).map(|(later, first)| later.since(&first)),
            processor: later.processor.saturating_sub(self.processor),
            mounting: later.mounting.saturating_sub(self.mounting),
            seconds: (later.at - self.at).as_secs_f64(),
        }
    }
}

/// Figures between two looks.
#[derive(Clone, Debug, Default)]
pub struct Span {
    pub figures: Figures,
    /// Counts of the server's own pool, where the requests that passed it were recorded and the server counts them.
    pub pool: Option<PoolCounts>,
    /// Waits of the server's sessions, where its requests were recorded and the server keeps that time.
    pub waits: Option<Waits>,
    /// Processor time of the clients and the server.
    pub processor: Duration,
    /// Processor time of the process that mounts.
    pub mounting: Duration,
    pub seconds: f64,
}

impl Span {
    /// Number of requests that sessions waited for at a time; of all requesters, where the server does not keep the time
    /// of its sessions.
    fn waiting(&self) -> Option<f64> {
        let asked = self.figures.asked?;
        let sessions = self.waits.map(|waits| (waits.reads + waits.writes).as_secs_f64());
        Some(sessions.unwrap_or(asked.waited_s) / self.seconds)
    }

    /// Microseconds by which a read took a session longer than the device and the mount's own work: the way to the mount
    /// and back. None where the server does not keep the time of its sessions.
    fn path_us(&self) -> Option<f64> {
        let (asked, waits) = (self.figures.asked?, self.waits?);
        let device_s = asked.waited_s - asked.writes_waited_s;
        Some(1e6 * (waits.reads.as_secs_f64() - device_s).max(0.0) / (asked.requests - asked.writes).max(1) as f64)
    }

    /// Hit ratio of the cache, for the line of a run; empty without a cache.
    pub fn hits(&self) -> String {
        let hits = self.figures.cache.map(|cache| format!(", hit ratio {:.1} %", 100.0 * cache.hit_ratio()));
        hits.unwrap_or_default()
    }

    /// All figures, by their names in JSON.
    pub fn json(&self) -> Value {
        let Figures { cache, cache_device, backing_device, asked, .. } = &self.figures;
        json!({
            "looked_s": self.seconds, "processor_s": self.processor.as_secs_f64(), "mounting_s": self.mounting.as_secs_f64(),
            "asked": asked, "waiting": self.waiting(), "path_us": self.path_us(),
            "pool": self.pool.map(|pool| json!({"asked": pool.asked, "read": pool.read})),
            "pages": cache, "cache_device": cache_device, "backing_device": backing_device,
        })
    }
}

/// A JSON object with the names of `more` added.
pub fn joined(mut all: Value, more: Value) -> Value {
    if let (Value::Object(all), Value::Object(more)) = (&mut all, more) {
        all.extend(more);
    }
    all
}

impl Testbed {
    /// True if a recording of this variant's run was asked for.
    pub fn records(&self, variant: &Variant) -> bool {
        self.devices.record.is_some() && *variant == Variant::None
    }

    /// Puts the recording of a finished run under its name.
    pub fn keep_recording(&self, variant: &Variant) -> Result<()> {
        if let Some(path) = self.devices.record.as_ref().filter(|_| self.records(variant)) {
            std::fs::copy(self.place.recording(), path).with_context(|| path.display().to_string())?;
        }
        Ok(())
    }

    /// Description of the last recording of these runs, with the options by which it is simulated; none if nothing was
    /// recorded. Each run comes with its number of `what` in a second.
    pub fn recorded<'a>(
        &self,
        runs: impl DoubleEndedIterator<Item = (&'a Span, f64)>,
        what: &str,
    ) -> Option<(&'static str, String)> {
        let path = self.devices.record.as_ref()?;
        let (span, asked, each_second) =
            runs.rev().find_map(|(span, each_second)| Some((span, span.figures.asked?, each_second)))?;
        let (rate, waiting) = (asked.requests as f64 / span.seconds, span.waiting().unwrap_or_default());
        let processor = span.processor.as_secs_f64();
        let computing = processor / span.seconds;
        let pool = span.pool.map_or(String::new(), |pool| {
            let had = pool.asked.saturating_sub(pool.read) as f64 / pool.asked.max(1) as f64;
            format!(", behind a pool that had {:.1} % of {} pages asked for", 100.0 * had, pool.asked)
        });
        let said = format!(
            "{}: while it was measured {rate:.0} pages a second, {:.1} for a {what}{pool}; at a time sessions waited for {waiting:.1} requests \
             and {computing:.2} processors were busy: --below-pool --clients {:.0} --think {:.0} --work {:.1} --processors {}",
            path.display(),
            rate / each_second.max(1.0 / 60.0),
            (waiting + computing).max(1.0),
            span.path_us().unwrap_or_default(),
            1e6 * processor / asked.requests.max(1) as f64,
            std::thread::available_parallelism().map_or(1, |count| count.get()),
        );
        Some(("recorded", said))
    }
}
