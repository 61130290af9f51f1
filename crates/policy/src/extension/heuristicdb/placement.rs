//! The page placement controller (000, section 3.5.4): chooses between NVM and storage.

use super::detector::Status;
use super::eviction::EvictionProgram;
use crate::interface::Driver;
use crate::parts::Bits;
use entresol_core::{Outcome, Page, Request, Tier};

const NVM: Tier = Tier::TOP;

/// Sends every request to NVM or past NVM.
#[derive(Clone, Debug)]
pub(super) struct PlacementController {
    capacity: usize,
    /// Pages in NVM newer than storage.
    dirty: Bits,
}

impl PlacementController {
    pub(super) fn new(pages: usize, capacity: usize) -> Self {
        PlacementController { capacity, dirty: Bits::new(pages) }
    }

    pub(super) fn is_dirty(&self, page: Page) -> bool {
        self.dirty.contains(page)
    }

    /// Serves a counted request: `frequency` is that of its page, `status` that of its object.
    #[inline]
    pub(super) fn serve<D: Driver>(
        &mut self,
        request: Request,
        frequency: u32,
        status: Status,
        pages: &mut EvictionProgram,
        driver: &mut D,
    ) -> Outcome {
        let page = request.page;
        let hit = pages.is_cached(page);
        if hit {
            driver.overwrite(request, NVM);
        } else {
            let wanted = request.op.is_write() || status != Status::Sequential;
            if !wanted || !self.make_room(request, frequency, pages, driver) {
                return driver.bypass(request);
            }
            driver.admit(request, NVM);
            pages.admit(page, frequency);
        }
        if request.op.is_write() {
            self.dirty.insert(page);
        }
        if hit { Outcome::Hit(NVM) } else { Outcome::ADMITTED }
    }

    /// True if NVM has a frame for the page. A write takes that of the coldest page (rule 5), a read only when it is
    /// hotter than that page (rule 4).
    #[inline]
    fn make_room<D: Driver>(
        &mut self,
        request: Request,
        frequency: u32,
        pages: &mut EvictionProgram,
        driver: &mut D,
    ) -> bool {
        if pages.len() < self.capacity {
            return true;
        }
        let hotter = |coldest: u32| request.op.is_write() || frequency > coldest;
        if !pages.min_frequency().is_some_and(hotter) {
            return false;
        }
        let coldest = pages.coldest_where(|page| driver.may_evict(page, NVM));
        let Some((victim, _)) = coldest.filter(|&(_, coldest)| hotter(coldest)) else { return false };
        pages.evict(victim);
        driver.evict(victim, NVM, self.dirty.remove(victim));
        true
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.dirty.memory_bytes()
    }
}
