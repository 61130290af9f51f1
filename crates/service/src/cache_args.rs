//! Options of the commands that serve a cache.

use super::chosen::{Chosen, Kept};
use super::log::LogArg;
use super::lost::IfLost;
use super::mode::ModeArg;
use super::settings::Settings;
use crate::values::{Limit, bytes_or_none, percent, seconds_or_none};
use anyhow::{Context, Result};
use clap::Args;
use entresol_cache::BlockCache;
use entresol_core::Size;

/// Default bound on the age of dirty pages; lab/results/dirty-age.md has its cost.
pub const DIRTY_AGE: &str = "1h";

/// Default lower limit of dirty pages as a fraction of the upper limit. Early write-back begins at the upper limit and
/// ends at the lower.
pub(crate) const LOW_BY_HIGH: f64 = 0.9;

/// Options of a running cache
#[derive(Args, Clone)]
pub struct CacheArgs {
    /// With --cache: the policy, NAME or NAME:OPTION=VALUE:... (`entresol policies` lists them) [default: the one given
    /// to `format`, else face-gsc]
    #[arg(long, value_name = "POLICY", requires = "cache")]
    pub policy: Option<String>,
    /// With --cache: treatment of writes [default: the one given to `format`, else write-back]
    #[arg(long, value_enum, requires = "cache")]
    pub mode: Option<ModeArg>,
    /// With --cache: pages that the policy may keep in the cache, as a share of its capacity. A smaller share leaves
    /// more space to dead versions, so that fewer pages are copied to free segments
    #[arg(long, value_name = "SIZE", default_value = "100%", requires = "cache")]
    pub cache_size: Size,
    /// With --cache: share of those pages that may be dirty; above it the coldest dirty pages are written back early
    /// [default: no limit]
    #[arg(long, value_name = "PERCENT", requires = "cache", value_parser = percent)]
    pub dirty_high: Option<f64>,
    /// With --dirty-high: share of dirty pages at which the early write-back ends [default: nine tenths of
    /// --dirty-high]
    #[arg(long, value_name = "PERCENT", requires = "dirty_high", value_parser = percent)]
    pub dirty_low: Option<f64>,
    /// With --cache: time for which a page may differ from the backing store, such as 1h: the most that losing the
    /// cache device can cost. Older pages are written back and synced unasked, and writes wait if that cannot be kept;
    /// none: no such bound
    #[arg(long, value_name = "DURATION", default_value = DIRTY_AGE, requires = "cache", value_parser = seconds_or_none)]
    pub dirty_age: Limit,
    /// With --cache: time after which a write that no program syncs is made durable, as file systems do; none: at the
    /// next sync, or when the cache needs the space
    #[arg(long, value_name = "DURATION", default_value = "30s", requires = "cache", value_parser = seconds_or_none)]
    pub sync_after: Limit,
    /// With --cache: length of a sequential stream after which its pages bypass the cache, unless the policy holds them
    /// (bcache's sequential_cutoff, 4MiB there); 0: the policy decides on all pages
    #[arg(long, value_name = "BYTES", default_value = "0", requires = "cache", value_parser = bytes_or_none)]
    pub sequential_cutoff: u64,
    /// With --cache: memory for the upper tier of a policy that manages two [default: the policy's own share]
    #[arg(long, value_name = "SIZE", requires = "cache")]
    pub dram: Option<Size>,
    /// With --cache: format of events on standard error
    #[arg(long, value_enum, default_value = "text", requires = "cache")]
    pub log: LogArg,
    /// With --cache: go on although another process seems to write to the backing store without the cache. Only if you
    /// know that it does not: writes that bypass a cache are lost
    #[arg(long, requires = "cache")]
    pub writers_ok: bool,
    /// With --cache: what to do if the cache is missing, blank, damaged, or not the one that was used last. The backing
    /// store's record says whether the store is complete without it. [default: recreate if it is, else refuse]
    #[arg(long, value_enum, value_name = "WHAT", requires = "cache")]
    pub if_lost: Option<IfLost>,
}

impl CacheArgs {
    /// The options for emptying a cache, for which any policy will do.
    pub(crate) fn any_policy() -> Self {
        let cache_size = Size::Percent(100.0);
        CacheArgs {
            policy: Some("lru".to_owned()),
            mode: Some(ModeArg::WriteBack),
            cache_size,
            dirty_high: None,
            dirty_low: None,
            dirty_age: Limit(None),
            sync_after: Limit(None),
            sequential_cutoff: 0,
            dram: None,
            log: LogArg::Text,
            writers_ok: false,
            if_lost: Some(IfLost::Refuse),
        }
    }

    /// Policy and mode of a start with these options; `kept` are those given to `entresol format`. Settings that were
    /// changed while a former server ran come before both.
    ///
    /// # Errors
    /// If this program does not know such a setting.
    pub(crate) fn chosen(&self, kept: &Kept, settings: Option<&Settings>) -> Result<Chosen> {
        settings.map_or_else(|| Ok(Chosen::new(self.policy.as_deref(), self.mode, kept)), Settings::chosen)
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
