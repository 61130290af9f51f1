//! Counts of each object's dirty pages, made when they are asked for and not with every request.

use super::BlockCache;
use super::maintenance::StoreAccess;
use entresol_core::ObjectId;
use std::collections::HashMap;
use std::io;

/// Blocks looked at in one hold of the core's lock: about as long as a few requests take, so no request waits long.
const BLOCKS_PER_HOLD: usize = 1 << 13;

impl BlockCache {
    /// Dirty pages by object, without lost pages. Objects without dirty pages are left out. Requests go on meanwhile,
    /// so a page that becomes dirty again may be counted twice or not at all.
    ///
    /// # Errors
    /// When the cache has stopped after a fault of its own.
    pub fn dirty_by_object(&self) -> io::Result<HashMap<ObjectId, u64>> {
        let (mut dirty, mut from) = (HashMap::new(), 0);
        loop {
            let mut guard = self.locks.guard()?;
            let index = guard.write_back().store.index();
            if from >= index.blocks() {
                return Ok(dirty);
            }
            let pages: Vec<u64> = index.dirty_in(from..from + BLOCKS_PER_HOLD).collect();
            let objects = guard.core().objects();
            for page in pages {
                *dirty.entry(objects.address(page).object).or_default() += 1;
            }
            from += BLOCKS_PER_HOLD;
        }
    }
}
