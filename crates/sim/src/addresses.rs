//! A trace with indices of its pages, computed once and shared by all cells.

use entresol_core::{Address, NEVER, ObjectId, Page};
use entresol_trace::Trace;
use std::sync::OnceLock;

/// A trace and the indices that some policies need. Each index is computed when the first policy needs it.
pub struct Addresses<'t> {
    /// The trace.
    pub trace: &'t Trace,
    next_use: OnceLock<Vec<u32>>,
    neighbours: OnceLock<Vec<[u32; 2]>>,
    peak_distance: OnceLock<u32>,
}

const NO_PAGE: u32 = u32::MAX;

impl<'t> Addresses<'t> {
    /// The addresses of a trace, without any index yet.
    pub fn new(trace: &'t Trace) -> Self {
        Addresses { trace, next_use: OnceLock::new(), neighbours: OnceLock::new(), peak_distance: OnceLock::new() }
    }

    /// Index of the next request to the same page for every request, `NEVER` where there is none.
    pub fn next_use(&self) -> &[u32] {
        match &self.trace.next_use {
            Some(column) => column,
            None => self.next_use.get_or_init(|| {
                let mut upcoming = vec![NEVER; self.trace.footprint()];
                let mut next = vec![NEVER; self.trace.len()];
                for (i, &page) in self.trace.pages.iter().enumerate().rev() {
                    next[i] = std::mem::replace(&mut upcoming[page as usize], i as u32);
                }
                next
            }),
        }
    }

    /// Predecessor and successor of every page among the pages of the trace. They cost a sort of all pages, which only policies
    /// that ask for a neighbour pay for.
    fn neighbours(&self) -> &[[u32; 2]] {
        self.neighbours.get_or_init(|| {
            let address = |page: u32| self.trace.address(Page(page));
            let mut order: Vec<u32> = (0..self.trace.footprint() as u32).collect();
            order.sort_unstable_by_key(|&page| address(page));
            let mut neighbours = vec![[NO_PAGE; 2]; order.len()];
            for pair in order.windows(2) {
                let (a, b) = (address(pair[0]), address(pair[1]));
                if a.object == b.object && a.block + 1 == b.block {
                    neighbours[pair[0] as usize][1] = pair[1];
                    neighbours[pair[1] as usize][0] = pair[0];
                }
            }
            neighbours
        })
    }

    /// The page before one (0) or after it (1).
    #[inline]
    pub(crate) fn neighbour(&self, page: Page, side: usize) -> Option<Page> {
        let other = self.neighbours()[page.index()][side];
        (other != NO_PAGE).then_some(Page(other))
    }

    /// The most frequent distance between two references to one page, in requests (for MQ).
    pub(crate) fn peak_distance(&self) -> u32 {
        *self.peak_distance.get_or_init(|| entresol_trace::peak_temporal_distance(self.trace))
    }

    /// Address of a page in the backing store.
    #[inline]
    pub(crate) fn address(&self, page: Page) -> Address {
        self.trace.address(page)
    }

    /// Time of a request in microseconds; its position in a trace without times.
    #[inline]
    pub(crate) fn now_us(&self, at: usize) -> u64 {
        self.trace.times_us.as_ref().map_or(at as u64, |times| times[at])
    }

    /// Size of an object in pages, as far as the trace shows it.
    #[inline]
    pub(crate) fn object_pages(&self, object: ObjectId) -> u64 {
        self.trace.objects[object.index()].pages
    }
}
