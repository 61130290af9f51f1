//! The question that a store asks a policy to choose its own victims.

use entresol_core::Page;

/// A policy that gives each page a number by which a store compares what it could give up.
pub trait Ranked {
    /// Disk I/Os that a copy of the page is expected to save per request of the workload, at least 0; 0 for an unknown
    /// page. It falls while the page waits and may rise at its next request.
    fn rank(&self, page: Page) -> f32;
}
