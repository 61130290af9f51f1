//! Hints of a database about its queries, passed on to the policy.

use super::BlockCache;
use entresol_core::{Hint, ObjectId};
use std::io;

impl BlockCache {
    /// Notes that a query begins which will use these objects. Its number is unique among the running queries.
    /// Policies that ignore queries go on as before.
    ///
    /// # Errors
    /// When the cache has stopped after a fault of its own.
    pub fn query_begins(&self, query: u32, objects: &[ObjectId]) -> io::Result<()> {
        self.locks.guard()?.core().hint(Hint::QueryBegin { query, objects });
        Ok(())
    }

    /// Notes that a query has ended.
    ///
    /// # Errors
    /// When the cache has stopped after a fault of its own.
    pub fn query_ends(&self, query: u32) -> io::Result<()> {
        self.locks.guard()?.core().hint(Hint::QueryEnd { query });
        Ok(())
    }
}
