//! Options of the commands that serve a cache.

use super::keyword::keyword;
use clap::Args;
use entresol_cache::Mode;
use entresol_core::Size;
use entresol_policy::Wear;
use entresol_service::cache_options::CacheOptions;
use entresol_service::log::LogFormat;
use entresol_service::lost::IfLost;
use entresol_service::values::{Limit, bytes_or_none, percent, seconds_or_none};

/// Default bound on the age of dirty pages; lab/results/dirty-age.md has its cost.
pub const DIRTY_AGE: &str = "1h";

/// Options of a running cache
#[derive(Args, Clone)]
pub struct CacheArgs {
    /// With --cache: the policy, NAME or NAME:OPTION=VALUE:... (`entresol policies` lists them) [default: the one given
    /// to `format`, else reuse; face-gsc over the layout log]
    #[arg(long, value_name = "POLICY", requires = "cache")]
    policy: Option<String>,
    /// With --cache: treatment of writes [default: the one used last or given to `format`, else write-through]
    #[arg(long, requires = "cache", value_parser = keyword::<Mode>())]
    mode: Option<Mode>,
    /// With --cache: pages that the policy may keep in the cache: a share of its capacity (85%), bytes (10GiB) or pages
    /// (2000p). Over the layouts log and segments fewer pages leave more space to dead versions, so that fewer pages are
    /// copied to free segments; over slots no page is copied
    #[arg(long, value_name = "SIZE", default_value = "100%", requires = "cache")]
    cache_size: Size,
    /// With --cache: share of those pages that may be dirty; above it the coldest dirty pages are written back early
    /// [default: no limit]
    #[arg(long, value_name = "PERCENT", requires = "cache", value_parser = percent)]
    dirty_high: Option<f64>,
    /// With --dirty-high: share of dirty pages at which the early write-back ends [default: nine tenths of
    /// --dirty-high]
    #[arg(long, value_name = "PERCENT", requires = "dirty_high", value_parser = percent)]
    dirty_low: Option<f64>,
    /// With --cache: time for which a page may differ from the backing store, such as 1h: the most that losing the
    /// cache device can cost. Older pages are written back and synced unasked, and writes wait if that cannot be kept;
    /// none: no such bound
    #[arg(long, value_name = "DURATION", default_value = DIRTY_AGE, requires = "cache", value_parser = seconds_or_none)]
    dirty_age: Limit,
    /// With --cache: time after which a write that no program syncs is made durable, as file systems do; none: at the
    /// next sync, or when the cache needs the space
    #[arg(long, value_name = "DURATION", default_value = "30s", requires = "cache", value_parser = seconds_or_none)]
    sync_after: Limit,
    /// With --cache: length of a sequential stream after which its pages bypass the cache, unless the policy holds them
    /// (bcache's sequential_cutoff, 4MiB there); 0: the policy decides on all pages
    #[arg(long, value_name = "BYTES", default_value = "0", requires = "cache", value_parser = bytes_or_none)]
    sequential_cutoff: u64,
    /// With --cache: bound on what is written to a cache of the layout segments: 1DWPD (times its size a day), 200GB (a
    /// day), amplification=1.8 (bytes for each byte that users write), or unbounded [default: the one given to `format`, else
    /// amplification=1.8+0.04, with 0.04 bytes for each byte that users read]
    #[arg(long, value_name = "BOUND", requires = "cache")]
    wear: Option<Wear>,
    /// With --cache: memory above the cache: the upper tier of a policy that manages two, an LRU pool above any other
    /// [default: the share that a policy of two tiers has for it, else none]
    #[arg(long, value_name = "SIZE", requires = "cache")]
    dram: Option<Size>,
    /// With --cache: format of events on standard error
    #[arg(long, default_value = "text", requires = "cache", value_parser = keyword::<LogFormat>())]
    log: LogFormat,
    /// With --cache: go on although another process seems to write to the backing store without the cache. Only if you
    /// know that it does not: writes that bypass a cache are lost
    #[arg(long, requires = "cache")]
    writers_ok: bool,
    /// With --cache: what to do if the cache is missing, blank, damaged, or not the one that was used last. The backing
    /// store's record says whether the store is complete without it. [default: recreate if it is, else refuse]
    #[arg(long, value_name = "WHAT", requires = "cache", value_parser = keyword::<IfLost>())]
    if_lost: Option<IfLost>,
}

impl CacheArgs {
    /// The options that were given.
    pub fn options(&self) -> CacheOptions {
        let CacheArgs { policy, cache_size, dirty_age, sync_after, dram, .. } = self.clone();
        let CacheArgs { mode, dirty_high, dirty_low, sequential_cutoff, wear, log, writers_ok, if_lost, .. } = *self;
        let (Limit(dirty_age), Limit(sync_after)) = (dirty_age, sync_after);
        CacheOptions {
            policy,
            mode,
            cache_size,
            dirty_high,
            dirty_low,
            dirty_age,
            sync_after,
            sequential_cutoff,
            wear,
            dram,
            log,
            writers_ok,
            if_lost,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[arg(long)]
        cache: Option<String>,
        #[command(flatten)]
        cached: CacheArgs,
    }

    #[test]
    fn an_embedder_has_the_defaults_of_the_command_line() {
        let Line { cache, cached } = Line::parse_from(["line"]);
        assert_eq!((cache, cached.options()), (None, CacheOptions::default()));
    }
}
