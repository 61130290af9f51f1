//! The configuration of a cache: its policy, and the sizes of its tiers.

use super::cache_options::{CacheOptions, WEAR};
use super::chosen::Chosen;
use super::memory;
use super::settings::Settings;
use anyhow::{Result, bail};
use entresol_cache::CacheConfig;
use entresol_core::Size;
use entresol_policy::{Info, Wear};
use entresol_sim::PolicySpec;
use entresol_store::{Geometry, Layout};

/// Returns the configuration for running a store of this geometry. Settings that were changed while a former server
/// ran come before the options.
pub(crate) fn config(
    options: &CacheOptions,
    chosen: &Chosen,
    geometry: Geometry,
    settings: Option<&Settings>,
) -> Result<CacheConfig> {
    let spec = one_policy(&chosen.policy)?;
    let keeps_bound = geometry.layout == Layout::Segments;
    let wear = chosen.wear.unwrap_or(if keeps_bound { WEAR } else { Wear::Unbounded });
    if wear != Wear::Unbounded && !keeps_bound {
        let layout = geometry.layout.name();
        bail!("--wear: this cache has the layout {layout}; only one of the layout segments can keep a bound");
    }
    let space = geometry.capacity_pages();
    if let Some(Settings { tiers, dirty_age, .. }) = settings {
        memory::check(&geometry, above_bytes(tiers, geometry.page_bytes))?;
        let (mode, dirty_age) = (chosen.mode, *dirty_age);
        return Ok(CacheConfig { options: spec.options, mode, dirty_age, wear, ..CacheConfig::new(spec.info, tiers) });
    }
    let held = options.cache_size.pages(geometry.page_bytes, space);
    if held == 0 || held > space {
        bail!("--cache-size: {held} pages; the store has room for {space}");
    }
    let tiers = tiers(spec.info, held, options.dram, geometry.page_bytes)?;
    memory::check(&geometry, above_bytes(&tiers, geometry.page_bytes))?;
    let (mode, dirty_age) = (chosen.mode, options.dirty_age);
    Ok(CacheConfig { options: spec.options, mode, dirty_age, wear, ..CacheConfig::new(spec.info, &tiers) })
}

/// Pages of each tier: the lower tier has the whole capacity given.
fn tiers(info: &Info, space: u64, dram: Option<Size>, page_bytes: u32) -> Result<Vec<usize>> {
    if info.tiers.len() == 1 {
        if dram.is_some() {
            bail!("--dram: policy '{}' manages one tier, the cache", info.name);
        }
        return Ok(vec![space as usize]);
    }
    Ok(vec![top_tier(info, space, dram, page_bytes), space as usize])
}

/// Pages of the memory tier above a cache of `space` pages: the size asked for, else the policy's own share.
pub fn top_tier(info: &Info, space: u64, dram: Option<Size>, page_bytes: u32) -> usize {
    match dram {
        Some(size) => size.pages(page_bytes, space) as usize,
        None => ((space as f64 * info.top_share) as usize).max(info.min_pages[0]),
    }
}

/// Bytes of the memory tier above a cache with these tiers.
pub(crate) fn above_bytes(tiers: &[usize], page_bytes: u32) -> u64 {
    let above = if let [above, _] = tiers { *above as u64 } else { 0 };
    above.saturating_mul(page_bytes.into())
}

/// Parses exactly one policy with its options.
pub fn one_policy(text: &str) -> Result<PolicySpec> {
    let mut specs = entresol_sim::parse_policies(text)?;
    match specs.len() {
        1 => Ok(specs.remove(0)),
        number => bail!("{text}: names {number} policies; a cache has one"),
    }
}
