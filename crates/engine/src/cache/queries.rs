//! Hints of a database about its queries, passed on to the policy.

use super::BlockCache;
use entresol_core::{Hint, ObjectId};
use std::io;

impl BlockCache {
    /// A query begins that will use these objects; its number is unique among those that run. Policies that heed no queries
    /// go on as before.
    ///
    /// # Errors
    /// When the cache has stopped after a fault of its own.
    pub fn query_begins(&self, query: u32, objects: &[ObjectId]) -> io::Result<()> {
        self.locks.guard()?.core().hint(Hint::QueryBegin { query, objects });
        Ok(())
    }

    /// A query has ended.
    ///
    /// # Errors
    /// When the cache has stopped after a fault of its own.
    pub fn query_ends(&self, query: u32) -> io::Result<()> {
        self.locks.guard()?.core().hint(Hint::QueryEnd { query });
        Ok(())
    }
}
