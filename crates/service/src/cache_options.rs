//! Options of a running cache.

use super::chosen::{Chosen, Kept};
use super::log::LogFormat;
use super::lost::IfLost;
use super::settings::Settings;
use anyhow::{Context, Result};
use entresol_cache::{BlockCache, Mode};
use entresol_core::Size;
use entresol_policy::Wear;
use std::time::Duration;

/// Default lower limit of dirty pages as a fraction of the upper limit. Early write-back begins at the upper limit and
/// ends at the lower.
pub(crate) const LOW_BY_HIGH: f64 = 0.9;

/// Default bound on what is written to a cache of the layout segments: more copies bring no more requests
/// (lab/results/layouts-live.md).
pub(crate) const WEAR: Wear = Wear::Amplification { written: 1.8, read: 0.04 };

/// Options of a running cache.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheOptions {
    /// The policy, NAME or NAME:OPTION=VALUE:...; none: the one given to `format`, else that of
    /// the layout.
    pub policy: Option<String>,
    /// Treatment of writes; none: the one used last or given to `format`, else write-through.
    pub mode: Option<Mode>,
    /// Pages that the policy may keep in the cache.
    pub cache_size: Size,
    /// Fraction of those pages that may be dirty; none: no limit.
    pub dirty_high: Option<f64>,
    /// Fraction of dirty pages at which the early write-back ends; none: nine tenths of `dirty_high`.
    pub dirty_low: Option<f64>,
    /// Bound on the age of dirty pages; none: no bound.
    pub dirty_age: Option<Duration>,
    /// Age at which an unsynced write is flushed; none: never.
    pub sync_after: Option<Duration>,
    /// Bytes of a sequential stream after which its rest bypasses the cache; 0: never.
    pub sequential_cutoff: u64,
    /// Bound on what is written to a cache of the layout segments; none: 1.8 bytes for
    /// each byte that users write, and 0.04 for each that they read.
    pub wear: Option<Wear>,
    /// Memory for the upper tier of a policy that manages two; none: the policy's own share.
    pub dram: Option<Size>,
    /// Format of events on standard error.
    pub log: LogFormat,
    /// True if other processes may write to the backing store without the cache.
    pub writers_ok: bool,
    /// Action for a cache that is lost; none: by the record at the backing store.
    pub if_lost: Option<IfLost>,
}

impl Default for CacheOptions {
    /// The defaults of the command line; lab/results/dirty-age.md has the cost of the bound on the age.
    fn default() -> Self {
        CacheOptions {
            policy: None,
            mode: None,
            cache_size: Size::Percent(100.0),
            dirty_high: None,
            dirty_low: None,
            dirty_age: Some(Duration::from_secs(3600)),
            sync_after: Some(Duration::from_secs(30)),
            sequential_cutoff: 0,
            wear: None,
            dram: None,
            log: LogFormat::Text,
            writers_ok: false,
            if_lost: None,
        }
    }
}

impl CacheOptions {
    /// The options for emptying a cache, for which any policy will do.
    pub(crate) fn any_policy() -> Self {
        CacheOptions {
            policy: Some("lru".to_owned()),
            mode: Some(Mode::WriteBack),
            dirty_age: None,
            sync_after: None,
            if_lost: Some(IfLost::Refuse),
            ..CacheOptions::default()
        }
    }

    /// Policy, mode and bound on wear of a start with these options; `kept` are those given to `entresol format`. Settings that were
    /// changed while a former server ran come before both.
    ///
    /// # Errors
    /// If this program does not know such a setting.
    pub(crate) fn chosen(&self, kept: &Kept, settings: Option<&Settings>) -> Result<Chosen> {
        let new = || Chosen::new(self.policy.as_deref(), self.mode, self.wear, kept);
        settings.map_or_else(|| Ok(new()), |settings| settings.chosen(self.wear))
    }

    /// Applies the options that are not part of the cache's configuration, or those settings.
    pub(crate) fn adjust(&self, cache: &BlockCache, settings: Option<&Settings>) -> Result<()> {
        if let Some(Settings { dirty_limits: (high, low), sequential_cutoff, .. }) = settings {
            cache.set_dirty_limits(*high, *low)?;
            return Ok(cache.set_sequential_cutoff(*sequential_cutoff)?);
        }
        if let Some(high) = self.dirty_high {
            let low = self.dirty_low.unwrap_or(high * LOW_BY_HIGH);
            cache.set_dirty_limits(high, low).context("--dirty-high, --dirty-low")?;
        }
        Ok(cache.set_sequential_cutoff(self.sequential_cutoff)?)
    }
}
