//! BPAC, block-page adaptive cache: hot pages in a list of pages, the others by block.
//!
//! Wu, Eckart, He, "BPAC: an adaptive write buffer management scheme for flash-based solid state drives", MSST 2010;
//! Wu, He, Eckart, "An adaptive write buffer management scheme for flash-based SSDs", ACM Transactions on Storage 2012.
//!
//! We had the abstracts and 004, sections 2.3 and 3.2, but not the full text. What these state is kept: hot pages
//! reside in otherwise cold blocks, so a page list keeps pages of high temporal locality and a block list keeps
//! clusters of the others; the partition adapts to the workload; the spatial locality of a cluster is used up within a
//! limited time, which is found dynamically; from the block list the largest cluster goes, as in CLC. The rest is our
//! construction, and figures made with it should say so:
//!
//! - A written page goes to the front of the page list, whether it comes from outside, from that list or from a
//!   cluster. The page list is in LRU order; what exceeds its share joins the cluster of its block.
//! - Partition: after every as many writes as the buffer has pages, the hits per page in the least recent region of the
//!   page list (`region`) are compared with those in the block list, where a page that finds a cluster to join counts as
//!   a hit too: it saves an I/O. (Hits of pages alone would favour the page list always, as the block list lies behind
//!   it.) The share of the page list moves by `step` towards the denser one.
//! - Used-up clusters: time is counted in pages that joined a cluster. A cluster is used up when it did not grow for
//!   longer than `patience` times the mean time between two growths of a cluster, as measured over the last period;
//!   before the first measurement none is.
//! - Victim: the largest used-up cluster, among equals the one that was used up first; without any the cluster whose
//!   last growth is longest ago; without any cluster the least recent page of the page list.

use super::blocks::{BLOCK, Blocks};
use super::buckets::Buckets;
use crate::info::{Config, Info, OptionInfo};
use crate::interface::{Driver, PageState, Policy, TierSet};
use crate::options::{BuildError, Options};
use crate::parts::Lists;
use entresol_core::{Outcome, Page, Request, Tier};

/// Block-page adaptive cache.
#[derive(Clone, Debug)]
pub struct Bpac {
    blocks: Blocks,
    capacity: usize,
    patience: u64,
    /// Most pages of the least recent region of the page list.
    region: usize,
    step: usize,

    /// Pages that the page list is allowed.
    page_target: usize,
    /// List numbers of the two parts of the page list and their lengths.
    recent: u32,
    older: u32,
    recent_len: usize,
    older_len: usize,

    /// Clusters that may still grow, the last grown at the front.
    growing: Lists<1>,
    /// Clusters that are used up.
    used_up: Buckets,
    /// Pages that joined a cluster so far.
    joins: u64,
    /// `joins` at the last growth of each cluster.
    grown_at: Vec<u64>,
    /// A cluster is used up when it did not grow for longer than this.
    idle_max: u64,
    period: Period,
}

/// Counts between two adaptations.
#[derive(Clone, Copy, Debug, Default)]
struct Period {
    writes: usize,
    /// Hits in the older part of the page list and in clusters.
    older_hits: usize,
    cluster_hits: usize,
    /// Pages that joined a cluster that was there.
    growths: u64,
    /// Sum of the times between two growths of a cluster.
    gaps: u64,
}

const GROWING: usize = 0;

impl Policy for Bpac {
    const INFO: Info = Info {
        name: "bpac",
        family: "writebuffer",
        summary: "write buffer of an SSD: hot pages in an LRU list, the others by block, adaptive shares",
        paper: "Wu, Eckart, He: BPAC, an adaptive write buffer management scheme for flash-based solid state drives, \
                MSST 2010",
        options: &[
            BLOCK,
            OptionInfo {
                name: "pages",
                default: "50%",
                help: "initial size of the page list; per cents are of the buffer",
            },
            OptionInfo {
                name: "region",
                default: "10%",
                help: "pages at the end of the page list whose hits are compared with those of the block list, at \
                       least one; per cents are of the buffer",
            },
            OptionInfo {
                name: "step",
                default: "2%",
                help: "pages by which the page list grows or shrinks at a time, at least one; per cents are of the \
                       buffer",
            },
            OptionInfo {
                name: "patience",
                default: "8",
                help: "a cluster is used up when it did not grow for this many mean times between two growths",
            },
        ],
        tiers: &["buffer"],
        write_aware: true,
        addresses: true,
        neighbours: true,
        ..Info::PLAIN
    };

    fn new(config: &Config, options: &Options) -> Result<Self, BuildError> {
        let blocks = Blocks::new(config, options, 2, false)?;
        let slots = blocks.slots();
        let capacity = config.tiers[0];
        let pages = |name| options.pages(name, config, capacity);
        Ok(Bpac {
            blocks,
            capacity,
            patience: options.number("patience", 0..=1_000_000)?,
            region: pages("region")?.max(1),
            step: pages("step")?.max(1),
            page_target: within(pages("pages")?, capacity),
            recent: slots as u32,
            older: slots as u32 + 1,
            recent_len: 0,
            older_len: 0,
            growing: Lists::new(slots),
            used_up: Buckets::new(slots),
            joins: 0,
            grown_at: vec![0; slots],
            idle_max: u64::MAX,
            period: Period::default(),
        })
    }

    #[inline]
    fn access<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        let page = request.page;
        let held = self.blocks.slot_of(page);
        if !request.op.is_write() {
            return if held.is_some() { Outcome::Hit(Tier::TOP) } else { driver.bypass(request) };
        }
        let outcome = match held {
            Some(slot) => {
                self.leave_on_hit(page, slot);
                Outcome::Hit(Tier::TOP)
            }
            None if self.blocks.is_full() && !self.make_room(driver) => return driver.bypass(request),
            None => Outcome::ADMITTED,
        };
        driver.admit(request, Tier::TOP);
        self.blocks.insert_single(page, self.recent);
        self.recent_len += 1;
        self.settle(driver);
        self.period.writes += 1;
        if self.period.writes == self.capacity {
            self.adapt();
        }
        outcome
    }

    fn state(&self, page: Page) -> PageState {
        let held = self.blocks.slot_of(page).is_some();
        PageState { tiers: TierSet::only(Tier::TOP, held), dirty: held, known: held }
    }

    fn occupancy(&self, _tier: Tier) -> usize {
        self.blocks.len()
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("blocks", self.blocks.len_blocks() as f64);
        visit("flushed_blocks", self.blocks.flushed() as f64);
        visit("page_list", self.page_len() as f64);
        visit("page_target", self.page_target as f64);
        if self.idle_max < u64::MAX {
            visit("idle_max", self.idle_max as f64);
        }
    }

    #[inline(always)]
    fn prefetch(&self, page: Page) {
        self.blocks.prefetch(page);
    }

    fn memory_bytes(&self) -> usize {
        self.blocks.memory_bytes()
            + self.growing.memory_bytes()
            + self.used_up.memory_bytes()
            + self.grown_at.capacity() * 8
    }
}

/// A share of the buffer that leaves the page list and the block list at least one page each, if it can.
fn within(pages: usize, capacity: usize) -> usize {
    pages.clamp(1, capacity.saturating_sub(1).max(1))
}

impl Bpac {
    #[inline(always)]
    fn page_len(&self) -> usize {
        self.recent_len + self.older_len
    }

    /// Takes a page that was hit out of its list, and counts the hit.
    #[inline]
    fn leave_on_hit(&mut self, page: Page, slot: u32) {
        if slot == self.recent {
            self.recent_len -= 1;
        } else if slot == self.older {
            self.older_len -= 1;
            self.period.older_hits += 1;
        } else {
            self.period.cluster_hits += 1;
            let before = self.blocks.count(slot);
            self.shrank(slot, before, before - 1);
        }
        self.blocks.remove(page);
    }

    /// Records that a cluster lost pages; the cluster is gone when `after` is 0.
    fn shrank(&mut self, slot: u32, before: u8, after: u8) {
        if !self.growing.contains(Page(slot)) {
            self.used_up.remove(slot, before);
            if after > 0 {
                self.used_up.insert(slot, after);
            }
        } else if after == 0 {
            self.growing.remove(GROWING, Page(slot));
        }
    }

    /// Moves the excess of the page list into clusters, and restores the length of its older part.
    #[inline]
    fn settle<D: Driver>(&mut self, driver: &D) {
        while self.page_len() > self.page_target
            && let Some(page) = self.take_oldest()
        {
            let (group, offset) = self.blocks.locate(page, driver);
            let slot = self.blocks.insert(page, group, offset);
            self.grew(slot);
        }
        while self.older_len < self.region.min(self.page_len())
            && let Some(page) = self.blocks.oldest(self.recent)
        {
            self.blocks.remove(page);
            self.blocks.insert_single(page, self.older);
            self.recent_len -= 1;
            self.older_len += 1;
        }
    }

    /// Takes the least recent page out of the page list.
    fn take_oldest(&mut self) -> Option<Page> {
        let page = self.blocks.oldest(self.older).or_else(|| self.blocks.oldest(self.recent))?;
        self.take(page);
        Some(page)
    }

    /// Takes a page out of the page list.
    fn take(&mut self, page: Page) {
        if self.blocks.slot_of(page) == Some(self.older) {
            self.older_len -= 1;
        } else {
            self.recent_len -= 1;
        }
        self.blocks.remove(page);
    }

    /// Records that a page joined a cluster, which is new if this is its only page.
    fn grew(&mut self, slot: u32) {
        self.joins += 1;
        let grown_at = std::mem::replace(&mut self.grown_at[slot as usize], self.joins);
        let count = self.blocks.count(slot);
        if count > 1 {
            self.period.growths += 1;
            self.period.gaps += self.joins - grown_at;
            if self.growing.contains(Page(slot)) {
                self.growing.move_to_front(GROWING, Page(slot));
                return;
            }
            self.used_up.remove(slot, count - 1);
        }
        self.growing.push_front(GROWING, Page(slot));
    }

    /// Frees at least one page; false when no page may be evicted.
    fn make_room<D: Driver>(&mut self, driver: &mut D) -> bool {
        self.retire();
        let mut candidate = self.used_up.largest().or_else(|| self.growing.back(GROWING).map(|slot| slot.0));
        while let Some(slot) = candidate {
            let before = self.blocks.count(slot);
            let freed = self.blocks.flush(slot, driver);
            if freed > 0 {
                self.shrank(slot, before, before - freed);
                return true;
            }
            candidate = self.cluster_after(slot, before);
        }
        let oldest = self.blocks.iter(self.older).chain(self.blocks.iter(self.recent));
        let page = { oldest }.find(|&page| driver.may_evict(page, Tier::TOP));
        if let Some(page) = page {
            self.take(page);
            driver.evict(page, Tier::TOP, true);
        }
        page.is_some()
    }

    /// Finds the clusters that are used up by now.
    fn retire(&mut self) {
        while let Some(slot) = self.growing.back(GROWING)
            && self.joins - self.grown_at[slot.index()] > self.idle_max
        {
            self.growing.remove(GROWING, slot);
            self.used_up.insert(slot.0, self.blocks.count(slot.0));
        }
    }

    /// The cluster to try after this one proved to be pinned.
    fn cluster_after(&self, slot: u32, count: u8) -> Option<u32> {
        let growing = if self.growing.contains(Page(slot)) {
            self.growing.towards_front(Page(slot))
        } else if let Some(next) = self.used_up.after(slot, count) {
            return Some(next);
        } else {
            self.growing.back(GROWING)
        };
        growing.map(|slot| slot.0)
    }

    /// Ends a period: moves the border between the lists and measures how long clusters take to grow.
    fn adapt(&mut self) {
        let Period { older_hits, cluster_hits, growths, gaps, .. } = std::mem::take(&mut self.period);
        let cluster_pages = self.blocks.len() - self.page_len();
        // Hits per page on either side, without the division.
        let page_density = older_hits * cluster_pages.max(1);
        let cluster_density = (cluster_hits + growths as usize) * self.older_len.max(1);
        let moved = match page_density.cmp(&cluster_density) {
            std::cmp::Ordering::Greater => self.page_target + self.step,
            std::cmp::Ordering::Equal => self.page_target,
            std::cmp::Ordering::Less => self.page_target.saturating_sub(self.step),
        };
        self.page_target = within(moved, self.capacity);
        if let Some(mean) = (self.patience * gaps).checked_div(growths) {
            self.idle_max = mean;
        }
    }
}
