//! Questions of a store that chooses by itself which pages it gives up.

use entresol_core::Page;

/// A policy that gives each page a number by which a store compares what it could give up.
pub trait Ranked {
    /// Disk I/Os that a copy of the page is expected to save per request of the workload, at least 0; 0 for an unknown
    /// page. It falls while the page waits and may rise at its next request.
    fn rank(&self, page: Page) -> f32;

    /// Gives up a held page, which the store drops. True if the page is dirty: the store writes it below first.
    fn release(&mut self, page: Page) -> bool;

    /// Sets the rank that a page must exceed to be admitted from now on, and the disk I/Os that an admission must save
    /// beyond what its room saves with other pages. Without a price nothing may be written to the store until the next
    /// call: misses are refused, and a write of a held page gives the page up and goes past.
    fn set_bar(&mut self, rank: f32, price: Option<f64>);
}
