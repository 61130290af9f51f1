//! The multi-tier buffer manager: a DRAM and an NVM buffer above an SSD, with four migration probabilities.
//!
//! Arulraj, Pavlo, Malladi, "Multi-tier buffer management and storage system design for non-volatile memory", 2019
//! (003): section 3 and figure 2 for the data paths, sections 3.1 to 3.4 for D_r, D_w, N_r and N_w, table 3 for the
//! presets. HyMem's admission queue: van Renen et al., "Managing non-volatile memory in database systems", SIGMOD
//! 2018. The annealing of section 4 sets [`MultiTier::probabilities`] from outside.
//!
//! Paths, with the coins drawn anew for every operation, in this order:
//! - read, in neither buffer: N_r takes SSD -> NVM and then D_r NVM -> DRAM; otherwise SSD -> DRAM, past NVM;
//! - read, in NVM only: D_r copies it to DRAM, otherwise it is read where it is;
//! - write: in DRAM if it is there; otherwise D_w takes it to DRAM and without it it is written on NVM;
//! - eviction from DRAM: an unmodified page is discarded (section 3.3), a modified one goes to NVM with N_w, else to
//!   the SSD. HyMem considers unmodified pages too, and overwrites in place what NVM holds.
//!
//! Readings. A page may be in both buffers. Once its DRAM copy is written the one in NVM is stale: it keeps its frame
//! and is overwritten when DRAM gives the page up, or dropped when that goes past NVM. A modified NVM page is written
//! to the SSD before it is dropped even when DRAM has an equal copy, which would not survive a failure. Replacement
//! within a buffer: LRU, the one that section 2.1 names, or CLOCK as in HyMem, a page entering with its bit clear.
//! The page being asked for is never the victim. When the buffer that a coin chose has no frame to give, the other
//! one is taken; without a DRAM buffer NVM takes every page.

use crate::info::{Config, Info, OptionInfo, Tunable};
use crate::interface::{Driver, PageState, Policy, TierSet};
use crate::options::{BuildError, Options};
use crate::parts::{Bits, Lists};
use entresol_core::{Op, Outcome, Page, Random, Request, Tier, Verb};

const DRAM: Tier = Tier::TOP;
const NVM: Tier = Tier::SECOND;
const ALL: usize = 0;

/// The migration probabilities of 003, each within 0 and 1, changeable at any time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probabilities {
    /// D_r: a read copies the page from NVM to DRAM.
    pub dram_on_read: f64,
    /// D_w: a write goes through DRAM.
    pub dram_on_write: f64,
    /// N_r: a page read from the SSD is placed in NVM.
    pub nvm_on_read: f64,
    /// N_w: a modified page that leaves DRAM goes to NVM.
    pub nvm_on_write: f64,
}

impl Probabilities {
    const fn new(dram_on_read: f64, dram_on_write: f64, nvm_on_read: f64, nvm_on_write: f64) -> Self {
        Probabilities { dram_on_read, dram_on_write, nvm_on_read, nvm_on_write }
    }
}

/// Table 3 of 003, and the eager policy that its annealing starts from (section 6.6).
const PRESETS: &[(&str, Probabilities)] = &[
    ("a", Probabilities::new(1.0, 1.0, 0.01, 0.5)),
    ("b", Probabilities::new(0.01, 0.01, 0.2, 1.0)),
    ("c", Probabilities::new(0.01, 0.01, 0.2, 0.5)),
    ("d", Probabilities::new(0.01, 0.01, 0.2, 0.3)),
    ("eager", Probabilities::new(1.0, 1.0, 1.0, 1.0)),
];

/// The levels of 003's figures 5 to 8 and table 3.
const DRAM_LEVELS: &[f64] = &[0.0, 0.001, 0.01, 0.1, 0.3, 1.0];
const NVM_LEVELS: &[f64] = &[0.0, 0.01, 0.1, 0.2, 0.5, 1.0];

/// Probabilities that 003 anneals (section 4).
const TUNABLES: &[Tunable] = &[
    Tunable { option: "dr", levels: DRAM_LEVELS },
    Tunable { option: "dw", levels: DRAM_LEVELS },
    Tunable { option: "nr", levels: NVM_LEVELS },
    Tunable { option: "nw", levels: NVM_LEVELS },
];

/// Replacement order by which a buffer chooses its victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Lru,
    Clock,
}

/// The pages of one buffer.
#[derive(Clone, Debug)]
struct Buffer {
    tier: Tier,
    capacity: usize,
    order: Order,
    list: Lists<1>,
    referenced: Bits,
}

impl Buffer {
    fn new(tier: Tier, capacity: usize, order: Order, pages: usize) -> Self {
        let referenced = Bits::new(if order == Order::Clock { pages } else { 0 });
        Buffer { tier, capacity, order, list: Lists::new(pages), referenced }
    }

    #[inline(always)]
    fn contains(&self, page: Page) -> bool {
        self.list.contains(page)
    }

    #[inline(always)]
    fn is_full(&self) -> bool {
        self.list.len(ALL) == self.capacity
    }

    #[inline(always)]
    fn touch(&mut self, page: Page) {
        match self.order {
            Order::Lru => self.list.move_to_front(ALL, page),
            Order::Clock => _ = self.referenced.insert(page),
        }
    }

    #[inline(always)]
    fn insert(&mut self, page: Page) {
        self.list.push_front(ALL, page);
    }

    #[inline(always)]
    fn remove(&mut self, page: Page) {
        self.list.remove(ALL, page);
        if self.order == Order::Clock {
            self.referenced.remove(page);
        }
    }

    /// The next page to go, other than `keep`, that may be evicted.
    #[inline]
    fn victim<D: Driver>(&mut self, keep: Page, driver: &mut D) -> Option<Page> {
        let tier = self.tier;
        let mut free = |page| page != keep && driver.may_evict(page, tier);
        match self.order {
            Order::Lru => self.list.back_where(ALL, free),
            Order::Clock => {
                // The hand passes every page twice at most: once to clear its bit, once to be refused.
                for _ in 0..2 * self.list.len(ALL) {
                    let page = self.list.back(ALL)?;
                    if !self.referenced.remove(page) && free(page) {
                        return Some(page);
                    }
                    self.list.move_to_front(ALL, page);
                }
                None
            }
        }
    }

    fn memory_bytes(&self) -> usize {
        self.list.memory_bytes() + self.referenced.memory_bytes()
    }
}

/// The DRAM copy is newer than every other one.
const DRAM_NEWEST: u8 = 1;
/// The NVM copy is newer than the SSD's.
const NVM_DIRTY: u8 = 2;

/// The multi-tier buffer manager.
#[derive(Clone, Debug)]
pub struct MultiTier {
    /// The migration probabilities, free to be changed between two requests.
    pub probabilities: Probabilities,
    dram: Buffer,
    nvm: Buffer,
    flags: Vec<u8>,
    /// HyMem's queue of pages that were denied admission; without it N_w decides.
    denied: Option<Lists<1>>,
    denied_max: usize,
    random: Random,
}

const OPTIONS: &[OptionInfo] = &[
    OptionInfo {
        name: "preset",
        default: "b",
        help: "the probabilities of table 3: a (that of HyMem), b, c, d; or eager, all four 1 (003, sections 6.6, 6.8)",
    },
    OptionInfo { name: "dr", default: "preset", help: "D_r, 0 to 1: a read copies the page to DRAM (section 3.1)" },
    OptionInfo { name: "dw", default: "preset", help: "D_w, 0 to 1: a write goes through DRAM (section 3.2)" },
    OptionInfo { name: "nr", default: "preset", help: "N_r, 0 to 1: a page read from SSD enters NVM (section 3.3)" },
    OptionInfo {
        name: "nw",
        default: "preset",
        help: "N_w, 0 to 1: a modified page that leaves DRAM enters NVM (section 3.4)",
    },
    OptionInfo {
        name: "nvm-admission",
        default: "probability",
        help: "what admits a page that leaves DRAM to NVM: probability (N_w), or hymem: it does if it was denied \
               lately, which a queue remembers (van Renen et al. 2018)",
    },
    OptionInfo {
        name: "queue",
        default: "50%",
        help: "length of HyMem's admission queue, a size; per cents are of the NVM buffer",
    },
    OptionInfo {
        name: "replacement",
        default: "lru",
        help: "victim within a buffer: lru (003, section 2.1) or clock (as in HyMem)",
    },
];

impl Policy for MultiTier {
    const INFO: Info = Info {
        name: "multi-tier",
        family: "migration",
        summary: "DRAM above NVM above SSD with migration probabilities D_r, D_w, N_r, N_w",
        paper: "Arulraj, Pavlo, Malladi: Multi-tier buffer management and storage system design for non-volatile \
                memory, 2019",
        options: OPTIONS,
        tunables: TUNABLES,
        tiers: &["dram", "nvm"],
        min_pages: &[0, 1],
        // 2 GB of DRAM and 128 GB of NVM (section 6.2).
        top_share: 1.0 / 65.0,
        write_aware: true,
        ..Info::PLAIN
    };

    fn new(config: &Config, options: &Options) -> Result<Self, BuildError> {
        let &[dram, nvm] = config.tiers.as_slice() else { unreachable!("two tiers are checked") };
        let preset = options.choice("preset", PRESETS)?;
        let probability = |name, preset| match options.text(name) {
            "preset" => Ok(preset),
            _ => options.number(name, 0.0..=1.0),
        };
        let order = options.choice("replacement", &[("lru", Order::Lru), ("clock", Order::Clock)])?;
        let hymem = options.choice("nvm-admission", &[("probability", false), ("hymem", true)])?;
        Ok(MultiTier {
            probabilities: Probabilities {
                dram_on_read: probability("dr", preset.dram_on_read)?,
                dram_on_write: probability("dw", preset.dram_on_write)?,
                nvm_on_read: probability("nr", preset.nvm_on_read)?,
                nvm_on_write: probability("nw", preset.nvm_on_write)?,
            },
            dram: Buffer::new(DRAM, dram, order, config.pages),
            nvm: Buffer::new(NVM, nvm, order, config.pages),
            flags: vec![0; config.pages],
            denied: hymem.then(|| Lists::new(config.pages)),
            denied_max: options.pages("queue", config, nvm)?,
            random: Random::new(config.seed),
        })
    }

    #[inline]
    fn access<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        let page = request.page;
        if self.dram.contains(page) {
            self.dram.touch(page);
            if request.op.is_write() {
                self.write_to_dram(request, driver);
            }
            return Outcome::Hit(DRAM);
        }
        match (request.op.is_write(), self.nvm.contains(page)) {
            (false, true) => {
                self.nvm.touch(page);
                if self.random.chance(self.probabilities.dram_on_read) && self.make_room_in_dram(page, driver) {
                    self.copy_up(page, driver);
                }
                Outcome::Hit(NVM)
            }
            (false, false) => self.read_miss(request, driver),
            (true, held) => self.write(request, held, driver),
        }
    }

    fn state(&self, page: Page) -> PageState {
        let flags = self.flags[page.index()];
        let newest_in_dram = flags & DRAM_NEWEST != 0;
        let tiers = TierSet::only(DRAM, self.dram.contains(page)).and(NVM, self.nvm.contains(page) && !newest_in_dram);
        let denied = self.denied.as_ref().is_some_and(|queue| queue.contains(page));
        PageState { tiers, dirty: flags != 0, known: !tiers.is_empty() || denied }
    }

    fn occupancy(&self, tier: Tier) -> usize {
        if tier == DRAM { self.dram.list.len(ALL) } else { self.nvm.list.len(ALL) }
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("d_r", self.probabilities.dram_on_read);
        visit("d_w", self.probabilities.dram_on_write);
        visit("n_r", self.probabilities.nvm_on_read);
        visit("n_w", self.probabilities.nvm_on_write);
        if let Some(queue) = &self.denied {
            visit("admission_queue", queue.len(ALL) as f64);
        }
    }

    fn tunable(&self, at: usize) -> f64 {
        let p = &self.probabilities;
        [p.dram_on_read, p.dram_on_write, p.nvm_on_read, p.nvm_on_write][at]
    }

    fn tune(&mut self, at: usize, value: f64) {
        let p = &mut self.probabilities;
        *[&mut p.dram_on_read, &mut p.dram_on_write, &mut p.nvm_on_read, &mut p.nvm_on_write][at] = value;
    }

    #[inline(always)]
    fn prefetch(&self, page: Page) {
        self.dram.list.prefetch(page);
        self.nvm.list.prefetch(page);
    }

    fn memory_bytes(&self) -> usize {
        let queue = self.denied.as_ref().map_or(0, Lists::memory_bytes);
        self.dram.memory_bytes() + self.nvm.memory_bytes() + self.flags.capacity() + queue
    }
}

impl MultiTier {
    #[inline(always)]
    fn write_to_dram<D: Driver>(&mut self, request: Request, driver: &mut D) {
        driver.start(request.page, Verb::Install { to: DRAM });
        self.flags[request.page.index()] |= DRAM_NEWEST;
    }

    fn copy_up<D: Driver>(&mut self, page: Page, driver: &mut D) {
        driver.start(page, Verb::Copy { from: NVM, to: DRAM });
        self.dram.insert(page);
    }

    fn read_miss<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        let page = request.page;
        let to_nvm = self.random.chance(self.probabilities.nvm_on_read) || self.dram.capacity == 0;
        if to_nvm && self.make_room_in_nvm(page, driver) {
            driver.start(page, Verb::Fetch { to: NVM });
            self.nvm.insert(page);
            if self.random.chance(self.probabilities.dram_on_read) && self.make_room_in_dram(page, driver) {
                self.copy_up(page, driver);
            }
        } else if self.make_room_in_dram(page, driver) {
            driver.start(page, Verb::Fetch { to: DRAM });
            self.dram.insert(page);
        } else if !to_nvm && self.make_room_in_nvm(page, driver) {
            driver.start(page, Verb::Fetch { to: NVM });
            self.nvm.insert(page);
        } else {
            return driver.bypass(request);
        }
        Outcome::ADMITTED
    }

    /// A write to a page that DRAM does not hold; `held` when NVM does.
    fn write<D: Driver>(&mut self, request: Request, held: bool, driver: &mut D) -> Outcome {
        let page = request.page;
        if held {
            self.nvm.touch(page);
        }
        let outcome = if held { Outcome::Hit(NVM) } else { Outcome::ADMITTED };
        let by_dram = self.random.chance(self.probabilities.dram_on_write);
        if by_dram && self.make_room_in_dram(page, driver) {
            self.write_through_dram(request, held, driver);
        } else if held || self.make_room_in_nvm(page, driver) {
            driver.start(page, Verb::Install { to: NVM });
            self.flags[page.index()] |= NVM_DIRTY;
            if !held {
                self.nvm.insert(page);
            }
        } else if !by_dram && self.make_room_in_dram(page, driver) {
            self.write_through_dram(request, held, driver);
        } else {
            return driver.bypass(request);
        }
        outcome
    }

    fn write_through_dram<D: Driver>(&mut self, request: Request, held: bool, driver: &mut D) {
        if held && request.op == Op::Update {
            self.copy_up(request.page, driver);
        } else {
            self.dram.insert(request.page);
        }
        self.write_to_dram(request, driver);
    }

    /// Frees a frame of DRAM if there is none; false when every page is pinned.
    fn make_room_in_dram<D: Driver>(&mut self, asked_for: Page, driver: &mut D) -> bool {
        if !self.dram.is_full() {
            return true;
        }
        let Some(page) = self.dram.victim(asked_for, driver) else { return false };
        let modified = self.flags[page.index()] & DRAM_NEWEST != 0;
        if self.enters_nvm(page, modified) && (self.nvm.contains(page) || self.make_room_in_nvm(asked_for, driver)) {
            self.move_down(page, modified, driver);
        } else if modified {
            self.write_past_nvm(page, driver);
        }
        self.dram.remove(page);
        driver.start(page, Verb::Drop { from: DRAM });
        true
    }

    /// True if a page that leaves DRAM is to be copied to NVM.
    fn enters_nvm(&mut self, page: Page, modified: bool) -> bool {
        let held = self.nvm.contains(page);
        let Some(queue) = &mut self.denied else {
            return modified && self.random.chance(self.probabilities.nvm_on_write);
        };
        if held {
            return modified;
        }
        if queue.contains(page) {
            queue.remove(ALL, page);
            return true;
        }
        if self.denied_max > 0 {
            if queue.len(ALL) == self.denied_max {
                let oldest = queue.back(ALL).expect("a full queue");
                queue.remove(ALL, oldest);
            }
            queue.push_front(ALL, page);
        }
        false
    }

    fn move_down<D: Driver>(&mut self, page: Page, modified: bool, driver: &mut D) {
        driver.start(page, Verb::Copy { from: DRAM, to: NVM });
        if self.nvm.contains(page) {
            self.nvm.touch(page);
        } else {
            self.nvm.insert(page);
        }
        if modified {
            self.flags[page.index()] = NVM_DIRTY;
        }
    }

    /// Writes a modified page from DRAM to the SSD; NVM's copy is out of date.
    fn write_past_nvm<D: Driver>(&mut self, page: Page, driver: &mut D) {
        driver.start(page, Verb::WriteBack { from: DRAM });
        self.flags[page.index()] = 0;
        // A frame that may not be dropped is brought up to date instead.
        if self.nvm.contains(page) {
            if driver.may_evict(page, NVM) {
                self.nvm.remove(page);
                driver.start(page, Verb::Drop { from: NVM });
            } else {
                driver.start(page, Verb::Copy { from: DRAM, to: NVM });
            }
        }
    }

    /// Frees a frame of NVM if there is none; false when every page is pinned.
    fn make_room_in_nvm<D: Driver>(&mut self, asked_for: Page, driver: &mut D) -> bool {
        if !self.nvm.is_full() {
            return true;
        }
        let Some(page) = self.nvm.victim(asked_for, driver) else { return false };
        let stale = self.flags[page.index()] & DRAM_NEWEST != 0;
        let dirty = self.flags[page.index()] & NVM_DIRTY != 0;
        self.flags[page.index()] &= !NVM_DIRTY;
        self.nvm.remove(page);
        driver.evict(page, NVM, dirty && !stale);
        true
    }
}
