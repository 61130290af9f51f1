//! Readings of a cache in use, second by second, and rates between two of them.

use super::figures::Figures;
use super::stats::live;
use super::tables::Tables;
use anyhow::Result;
use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

/// Longest time that the process that serves the cache may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// A reading: the figures, none if no process serves the cache, or why there is no reading.
pub type Reading = Result<Option<Figures>, String>;

/// The last two readings of a cache.
#[derive(Default)]
pub struct Readings {
    /// An earlier reading of the same process.
    pub before: Option<Figures>,
    /// The last reading.
    pub now: Option<Figures>,
    /// Why there is no newer reading.
    pub silent: Option<String>,
}

impl Readings {
    /// Adds a reading.
    pub fn take(&mut self, reading: Reading) {
        match reading {
            Ok(Some(figures)) => {
                let before = self.now.replace(figures);
                let now = self.now.as_ref().expect("just put there");
                // Another process counts from zero.
                self.before = before.filter(|before| before.process == now.process && before.open_s < now.open_s);
                self.silent = None;
            }
            Ok(None) => self.silent = Some("no process serves this cache; waiting for one".to_owned()),
            Err(why) => self.silent = Some(format!("{why}; trying again")),
        }
    }
}

/// Seconds between two readings of one process; without an earlier one, since the open.
pub fn elapsed(now: &Figures, before: Option<&Figures>) -> f64 {
    (now.open_s - before.map_or(0.0, |before| before.open_s)).max(1e-6)
}

/// Returns the increase of a counter between two readings of one process.
pub fn since(now: &Figures, before: Option<&Figures>, of: impl Fn(&Figures) -> u64) -> u64 {
    of(now).saturating_sub(before.map_or(0, &of))
}

/// Reads repeatedly on a thread of its own, because a server that is busy with a change answers late.
pub fn readings(cache: &Path, mut tables: Tables, every: Duration) -> Result<Receiver<Reading>> {
    let (readings, taken) = sync_channel(1);
    let cache = cache.to_owned();
    std::thread::Builder::new().name("readings".into()).spawn(move || {
        while readings.send(live(&cache, &mut tables, Some(ANSWER_MAX)).map_err(|error| format!("{error:#}"))).is_ok() {
            std::thread::sleep(every);
        }
    })?;
    Ok(taken)
}
