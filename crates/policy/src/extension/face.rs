//! FaCE: flash as cache extension. Multi-version FIFO (`face`) and the same with group second chance (`face-gsc`).
//!
//! Kang, Lee, Moon, "Flash as cache extension for online transactional workloads", VLDB Journal 2016 (001):
//! section 4.2 for the options, algorithm 1 for mvFIFO, section 4.3 "Group second chance" for GSC.
//!
//! A page leaves the DRAM pool (LRU) into the rear of a queue of flash frames, which is only ever written in
//! order. An older version of it in the queue is not removed but marked invalid, so one page may own several frames.
//! Of a frame that comes to the front only a version that is both valid and dirty is written to disk.
//!
//! Without a DRAM tier of its own (below a database whose clean evictions nobody sees) a page enters the queue on
//! entry: when it is written by the host, or fetched by it and `pages` allows clean ones.

use super::pool::DramPool;
use crate::info::{Config, Info, OptionInfo};
use crate::interface::{Driver, PageState, Policy, TierSet};
use crate::options::{BuildError, Options};
use entresol_core::{Movement, Op, Outcome, Page, Request, Tier, Verb};

const DRAM: Tier = Tier::TOP;
const FLASH: Tier = Tier::SECOND;
const NOWHERE: u32 = u32::MAX;

/// mvFIFO without second chance.
pub type Face = MvFifo<false>;
/// mvFIFO with group second chance.
pub type FaceGsc = MvFifo<true>;

/// Kind of pages that enter flash (001, section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Staged {
    Mixed,
    Clean,
    Dirty,
}

/// Treatment of the pool's tail pages that fill a batch: copied to flash alone, or evicted from the pool as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pull {
    Copy,
    Evict,
}

/// One flash frame of the queue.
#[derive(Clone, Copy, Debug, Default)]
struct Frame {
    page: u32,
    valid: bool,
    dirty: bool,
    referenced: bool,
}

/// FaCE, with or without group second chance.
#[derive(Clone, Debug)]
pub struct MvFifo<const GSC: bool> {
    staged: Staged,
    write_through: bool,
    pull: Pull,
    /// Frames dequeued at a time: 1 without GSC, the scan depth with it.
    batch: usize,

    /// The pool's dirty bit is the paper's `dirty`, its `ahead` the paper's `fdirty`.
    pool: DramPool,

    /// The ring of flash frames, as far as it was used; `front` is the oldest of `len`.
    ring: Vec<Frame>,
    capacity: usize,
    front: usize,
    len: usize,
    superseded: usize,
    /// Ring index of the valid version of each page.
    frame_of: Vec<u32>,
    /// Pages of the batch that get their second chance: scratch space, kept to allocate once.
    survivors: Vec<Frame>,
}

const OPTIONS: &[OptionInfo] = &[
    OptionInfo {
        name: "pages",
        default: "mixed",
        help: "which pages enter flash: mixed, clean or dirty (001, section 6.3, table 4)",
    },
    OptionInfo {
        name: "sync",
        default: "write-back",
        help: "write-back: a dirty page reaches disk when it leaves flash; write-through: when it enters (section 4.2.1)",
    },
    OptionInfo {
        name: "pull",
        default: "copy",
        help: "pages pulled from the tail of the pool to fill a batch of face-gsc: copy writes them and keeps them in \
               DRAM, evict frees their DRAM frames too; the paper says neither (section 4.3)",
    },
    OptionInfo {
        name: "scan",
        default: "64",
        help: "frames that face-gsc dequeues and writes at a time, at most the pages of a flash block (section 4.3); \
               a queue shorter than twice this uses half the queue",
    },
];

impl<const GSC: bool> Policy for MvFifo<GSC> {
    const INFO: Info = Info {
        name: if GSC { "face-gsc" } else { "face" },
        family: "extension",
        summary: if GSC {
            "FaCE: multi-version FIFO with group second chance under a DRAM pool"
        } else {
            "FaCE: multi-version FIFO under a DRAM pool"
        },
        paper: "Kang, Lee, Moon: Flash as cache extension for online transactional workloads, VLDB Journal 2016",
        options: if GSC { OPTIONS } else { OPTIONS.split_at(2).0 },
        tiers: &["dram", "flash"],
        min_pages: &[0, 1],
        write_aware: true,
        log: true,
        ..Info::PLAIN
    };

    fn new(config: &Config, options: &Options) -> Result<Self, BuildError> {
        let &[dram_capacity, flash_capacity] = config.tiers.as_slice() else { unreachable!("two tiers are checked") };
        let batch = if GSC { options.number::<usize>("scan", 1..=1 << 20)?.min(flash_capacity.div_ceil(2)) } else { 1 };
        Ok(MvFifo {
            staged: options
                .choice("pages", &[("mixed", Staged::Mixed), ("clean", Staged::Clean), ("dirty", Staged::Dirty)])?,
            write_through: options.choice("sync", &[("write-back", false), ("write-through", true)])?,
            pull: if GSC {
                options.choice("pull", &[("copy", Pull::Copy), ("evict", Pull::Evict)])?
            } else {
                Pull::Copy
            },
            batch,
            pool: DramPool::new(config.pages, dram_capacity),
            // Flash that is larger than all pages may never be full, so its ring is not allocated at full length at
            // once.
            ring: Vec::with_capacity(flash_capacity.min(2 * config.pages)),
            capacity: flash_capacity,
            front: 0,
            len: 0,
            superseded: 0,
            frame_of: vec![NOWHERE; config.pages],
            survivors: Vec::with_capacity(batch),
        })
    }

    #[inline]
    fn access<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        if !self.pool.exists() {
            return self.access_flash_only(request, driver);
        }
        let page = request.page;
        if self.pool.hit(request, driver) {
            return Outcome::Hit(DRAM);
        }
        // A database first finds a free buffer, then looks for the page below; so does this policy.
        if self.pool.is_full() && !self.evict_from_pool(driver) {
            return self.past_the_pool(request, driver);
        }
        let Some(frame) = self.valid_frame(page) else {
            if !request.op.is_write() {
                driver.start(page, Verb::Fetch { to: DRAM });
            }
            self.pool.enter(request, false, driver);
            return Outcome::ADMITTED;
        };
        self.ring[frame].referenced = true;
        if request.op != Op::Write {
            driver.start(page, Verb::Copy { from: FLASH, to: DRAM });
        }
        self.pool.enter(request, self.ring[frame].dirty, driver);
        Outcome::Hit(FLASH)
    }

    fn state(&self, page: Page) -> PageState {
        let in_dram = self.pool.contains(page);
        let frame = self.valid_frame(page);
        let in_sync = frame.is_some() && !self.pool.is_ahead(page);
        let dirty = if in_dram { self.pool.is_dirty(page) } else { frame.is_some_and(|f| self.ring[f].dirty) };
        let tiers = TierSet::only(DRAM, in_dram).and(FLASH, in_sync);
        PageState { tiers, dirty, known: !tiers.is_empty() }
    }

    fn occupancy(&self, tier: Tier) -> usize {
        if tier == DRAM { self.pool.len() } else { self.len }
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("old_versions", self.superseded as f64 / self.capacity as f64);
    }

    #[inline(always)]
    fn prefetch(&self, page: Page) {
        self.pool.prefetch(page);
        entresol_core::prefetch(&self.frame_of, page.index());
    }

    fn memory_bytes(&self) -> usize {
        self.pool.memory_bytes() + self.frame_of.capacity() * 4 + self.ring.capacity() * size_of::<Frame>()
    }
}

impl<const GSC: bool> MvFifo<GSC> {
    #[inline(always)]
    fn valid_frame(&self, page: Page) -> Option<usize> {
        let frame = self.frame_of[page.index()];
        (frame != NOWHERE).then_some(frame as usize)
    }

    /// Serves a request from flash or disk, because every DRAM frame is pinned.
    fn past_the_pool<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        match self.valid_frame(request.page) {
            Some(frame) if !request.op.is_write() => {
                self.ring[frame].referenced = true;
                Outcome::Hit(FLASH)
            }
            held => {
                if held.is_some() {
                    self.invalidate(request.page, driver);
                }
                let outcome = driver.bypass(request);
                if held.is_some() { Outcome::Hit(FLASH) } else { outcome }
            }
        }
    }

    /// Evicts the least recently used page that may be evicted; false if there is none.
    fn evict_from_pool<D: Driver>(&mut self, driver: &mut D) -> bool {
        let Some(page) = self.pool.victim(driver) else { return false };
        self.stage(page, driver);
        // Pulling may have evicted this page with others.
        if self.pool.contains(page) {
            self.pool.leave(page, driver);
        }
        true
    }

    /// True if a page that leaves the pool needs a new frame in flash: "If p.fdirty or p not in flash cache."
    fn needs_frame(&self, page: Page) -> bool {
        let wanted = match self.staged {
            Staged::Mixed => true,
            Staged::Clean => !self.pool.is_dirty(page),
            Staged::Dirty => self.pool.is_dirty(page),
        };
        wanted && (self.pool.is_ahead(page) || self.valid_frame(page).is_none())
    }

    /// Algorithm 1, "on eviction of page p from the DRAM buffer", up to the freeing of its DRAM frame.
    fn stage<D: Driver>(&mut self, page: Page, driver: &mut D) {
        if self.needs_frame(page) && self.make_room(Some(page), driver) {
            if self.needs_frame(page) {
                self.enqueue_from_pool(page, driver);
            }
        } else if self.pool.is_ahead(page) {
            // The page is not for flash, or no frame can be freed: its newest version goes to disk and flash's is out
            // of date.
            self.invalidate(page, driver);
            self.pool.write_back(page, driver);
            self.pool.in_step(page);
        }
    }

    fn enqueue_from_pool<D: Driver>(&mut self, page: Page, driver: &mut D) {
        if self.write_through {
            self.pool.write_back(page, driver);
        }
        self.enqueue(page, self.pool.is_dirty(page), Verb::Copy { from: DRAM, to: FLASH }, driver);
        self.pool.in_step(page);
    }

    /// Appends a version to the queue, which has a free frame. The new version is the valid one; an earlier one is not
    /// any more.
    fn enqueue<D: Driver>(&mut self, page: Page, dirty: bool, verb: Verb, driver: &mut D) {
        self.invalidate(page, driver);
        let joined = self.append(Frame { page: page.0, valid: true, dirty, referenced: false });
        driver.emit(Movement { page, verb, joined });
    }

    /// Puts a frame at the rear; true when it is written together with the frame before it, which is the case
    /// within a batch-sized segment of the ring.
    fn append(&mut self, frame: Frame) -> bool {
        let rear = (self.front + self.len) % self.capacity;
        // Frames are used in order, so the first round creates them.
        match self.ring.get_mut(rear) {
            Some(used) => *used = frame,
            None => self.ring.push(frame),
        }
        self.frame_of[frame.page as usize] = rear as u32;
        self.len += 1;
        !rear.is_multiple_of(self.batch)
    }

    fn invalidate<D: Driver>(&mut self, page: Page, driver: &mut D) {
        if let Some(frame) = self.valid_frame(page) {
            self.ring[frame].valid = false;
            self.frame_of[page.index()] = NOWHERE;
            self.superseded += 1;
            driver.start(page, Verb::Supersede { tier: FLASH });
        }
    }

    /// Makes sure that a frame is free. If that takes a batch, GSC fills the rest of the batch from the tail of the
    /// pool; `entering` is the page that needs the frame. False when every frame is pinned.
    fn make_room<D: Driver>(&mut self, entering: Option<Page>, driver: &mut D) -> bool {
        if self.len < self.capacity {
            return true;
        }
        // A whole round of the ring without a freed frame means that all are pinned.
        let turns = self.capacity.div_ceil(self.batch);
        let made = (0..turns).any(|_| {
            self.dequeue_batch(driver);
            self.len < self.capacity
        });
        if GSC
            && made
            && let Some(page) = entering
        {
            self.fill_batch(page, driver);
        }
        made
    }

    fn dequeue_batch<D: Driver>(&mut self, driver: &mut D) {
        self.survivors.clear();
        let depth = self.batch.min(self.len);
        for _ in 0..depth {
            let frame = self.ring[self.front];
            self.front = (self.front + 1) % self.capacity;
            self.len -= 1;
            let page = Page(frame.page);
            if !frame.valid {
                self.superseded -= 1;
                driver.start(page, Verb::Reclaim { tier: FLASH });
            } else if (GSC && frame.referenced) || !driver.may_evict(page, FLASH) {
                self.survivors.push(frame);
            } else {
                self.discard(frame, driver);
            }
        }
        if self.survivors.len() == depth {
            self.discard_oldest_survivor(driver);
        }
        for i in 0..self.survivors.len() {
            let frame = self.survivors[i];
            let joined = self.append(Frame { referenced: false, ..frame });
            driver.emit(Movement { page: Page(frame.page), verb: Verb::Requeue { tier: FLASH }, joined });
        }
    }

    /// "In a rare case where all the pages in the batch are referenced, the page at the very front end will be
    /// discarded or flushed to disk"; one that may not be evicted is passed over.
    fn discard_oldest_survivor<D: Driver>(&mut self, driver: &mut D) {
        let free =
            self.survivors.iter().position(|frame| frame.referenced && driver.may_evict(Page(frame.page), FLASH));
        if let Some(oldest) = free {
            let frame = self.survivors.remove(oldest);
            self.discard(frame, driver);
        }
    }

    /// Algorithm 1, "on eviction of page p from the flash cache", for a valid frame that has left the ring.
    fn discard<D: Driver>(&mut self, frame: Frame, driver: &mut D) {
        let page = Page(frame.page);
        self.frame_of[page.index()] = NOWHERE;
        if frame.dirty {
            driver.start(page, Verb::WriteBack { from: FLASH });
            self.pool.cleaned_below(page);
        }
        driver.start(page, Verb::Drop { from: FLASH });
    }

    /// Pulls pages from the tail of the pool into the frames that the batch has freed, leaving one for `entering`. At
    /// most a batch of pages is examined, so the cost of one replacement stays bounded.
    fn fill_batch<D: Driver>(&mut self, entering: Page, driver: &mut D) {
        let mut candidate = self.pool.back();
        for _ in 0..self.batch {
            let Some(page) = candidate else { return };
            if self.capacity - self.len <= 1 {
                return;
            }
            candidate = self.pool.towards_front(page);
            if page == entering {
                continue;
            }
            let evict = self.pull == Pull::Evict && driver.may_evict(page, DRAM);
            if self.needs_frame(page) && (evict || self.pull == Pull::Copy) {
                self.enqueue_from_pool(page, driver);
                if evict {
                    self.pool.leave(page, driver);
                }
            }
        }
    }

    /// The queue alone, without a pool: pages are staged on entry.
    fn access_flash_only<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        let page = request.page;
        if !request.op.is_write() {
            if let Some(frame) = self.valid_frame(page) {
                self.ring[frame].referenced = true;
                return Outcome::Hit(FLASH);
            }
            if self.staged == Staged::Dirty || !self.make_room(None, driver) {
                return driver.bypass(request);
            }
            self.enqueue(page, false, Verb::Fetch { to: FLASH }, driver);
            return Outcome::ADMITTED;
        }
        let staged = self.staged != Staged::Clean && self.make_room(None, driver);
        let held = self.valid_frame(page).is_some();
        if !staged {
            self.invalidate(page, driver);
            let outcome = driver.bypass(request);
            return if held { Outcome::Hit(FLASH) } else { outcome };
        }
        self.enqueue(page, !self.write_through, Verb::Install { to: FLASH }, driver);
        if self.write_through {
            driver.start(page, Verb::WriteBack { from: FLASH });
        }
        if held { Outcome::Hit(FLASH) } else { Outcome::ADMITTED }
    }
}
