//! The configuration of a cache: its policy, and the sizes of its tiers.

use super::cache_options::{CacheOptions, WEAR};
use super::chosen::Chosen;
use super::memory;
use super::settings::Settings;
use anyhow::{Result, bail};
use entresol_cache::CacheConfig;
use entresol_policy::Wear;
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
    let memory = options.dram.map(|size| size.pages(geometry.page_bytes, held));
    let tiers = entresol_cache::tiers(spec.info, held, memory);
    memory::check(&geometry, above_bytes(&tiers, geometry.page_bytes))?;
    let (mode, dirty_age) = (chosen.mode, options.dirty_age);
    Ok(CacheConfig { options: spec.options, mode, dirty_age, wear, ..CacheConfig::new(spec.info, &tiers) })
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
