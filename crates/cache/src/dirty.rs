//! Dirty pages: the limits on their number, and counts by object, made when they are asked for.

use super::durability::DirtyLimits;
use super::maintenance::StoreAccess;
use super::search::LOOKED_AT;
use super::{BlockCache, CacheConfig};
use entresol_core::ObjectId;
use std::collections::HashMap;
use std::io;
use std::sync::PoisonError;

impl BlockCache {
    /// Dirty pages by object, without lost pages. Objects without dirty pages are left out. Requests go on meanwhile,
    /// so a page that becomes dirty again may be counted twice or not at all.
    ///
    /// # Errors
    /// When the cache has stopped after a fault of its own.
    pub fn dirty_by_object(&self) -> io::Result<HashMap<ObjectId, u64>> {
        let mut dirty = HashMap::new();
        let (mut guard, each) = (self.locks.guard()?, LOOKED_AT as usize);
        for from in (0..).step_by(each) {
            let index = guard.write_back().store.index();
            if from >= index.blocks() {
                break;
            }
            let pages: Vec<u64> = index.dirty_in(from..from + each).collect();
            let objects = guard.core().objects();
            for page in pages {
                *dirty.entry(objects.address(page).object).or_default() += 1;
            }
            guard.pass()?;
        }
        Ok(dirty)
    }

    /// Sets how many pages may be dirty, as shares of the tier on the cache device. Above `high` the maintenance
    /// threads write the coldest pages below, until at most `low` are dirty. A `high` of 1, as after an open, is no
    /// limit. Up to a segment of pages may be dirty in any case. A cache without threads cleans nothing ahead.
    ///
    /// # Errors
    /// `InvalidInput` unless `0 <= low <= high <= 1`.
    pub fn set_dirty_limits(&self, high: f64, low: f64) -> io::Result<()> {
        if !(0.0 <= low && low <= high && high <= 1.0) {
            let why = format!("dirty limits {high} and {low} are not 0 <= low <= high <= 1");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        self.apply_dirty_limits(&config, (high, low))
    }

    /// The shares of the tier on the cache device that [`set_dirty_limits`](BlockCache::set_dirty_limits) set.
    ///
    /// # Errors
    /// When the cache has stopped after a fault of its own.
    pub fn dirty_limits(&self) -> io::Result<(f64, f64)> {
        Ok(self.locks.guard()?.core().write_back().dirty_limits.shares)
    }

    pub(super) fn apply_dirty_limits(&self, config: &CacheConfig, shares: (f64, f64)) -> io::Result<()> {
        let mut guard = self.locks.guard()?;
        let write_back = guard.write_back();
        let segment_pages = write_back.store.geometry().segment_pages as usize;
        write_back.dirty_limits = DirtyLimits::new(shares, config.tiers.last().copied().unwrap_or(0), segment_pages);
        Ok(())
    }
}
