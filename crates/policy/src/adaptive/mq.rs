//! MQ: LRU queues for pages used once, twice, four times and so on; a page unused for its lifetime goes down one.
//!
//! Zhou, Philbin, Li, "The multi-queue replacement algorithm for second level buffer caches", USENIX ATC 2001,
//! figure 5 and section 4 (QueueNum = log2 of the reference count, 8 queues, Qout of 4 times the cache).
//!
//! Readings. Qout is asked, and the page taken out of it, before a victim's identifier goes in; the printed order
//! can push out the very page that is being read. The life time is the most frequent distance between two
//! references to a page (section 4.2); where the driver does not know it, it is the length of Qout, as a page that
//! returns later than that is not recognised anyway. A page may descend one queue a request.

use super::places::{NOWHERE, Places};
use crate::info::{Config, Info, OptionInfo};
use crate::interface::{Driver, PageState, Policy};
use crate::options::{BuildError, Options};
use entresol_core::{Outcome, Page, Request, Tier};

const QUEUES: usize = 8;
const QOUT: usize = QUEUES;

/// Reference count of a page, and the time at which it is demoted by one queue.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    count: u32,
    /// Time of demotion in requests, modulo 2^32: life times are below 2^31, so order is never in doubt.
    expires: u32,
}

/// Multi-queue.
#[derive(Clone, Debug)]
pub struct Mq {
    capacity: usize,
    queues: usize,
    life: u32,
    history: usize,
    now: u32,
    residents: usize,
    places: Places<{ QUEUES + 1 }, QUEUES>,
    uses: Vec<Use>,
}

impl Policy for Mq {
    const INFO: Info = Info {
        name: "mq",
        family: "adaptive",
        summary: "multi-queue: LRU queues by logarithm of use, with expiry",
        paper: "Zhou, Philbin, Li: The multi-queue replacement algorithm for second level buffer caches, USENIX ATC 2001",
        options: &[
            OptionInfo {
                name: "lifetime",
                default: "auto",
                help: "requests until an unused page descends a queue; auto: the trace's peak temporal distance if known, else the length of Qout",
            },
            OptionInfo { name: "queues", default: "8", help: "number of queues, 1 to 8" },
            OptionInfo { name: "history", default: "400%", help: "identifiers Qout remembers, of the capacity" },
        ],
        known_per_page: 5,
        ..Info::PLAIN
    };

    fn new(config: &Config, options: &Options) -> Result<Self, BuildError> {
        const LONGEST: u32 = 1 << 30;
        let capacity = config.tiers[0];
        let history = options.pages("history", config, capacity)?;
        let life = match options.text("lifetime") {
            "auto" => config.peak_temporal_distance.unwrap_or(history.try_into().unwrap_or(LONGEST)).min(LONGEST),
            _ => options.number("lifetime", 0..=LONGEST)?,
        };
        Ok(Mq {
            capacity,
            queues: options.number("queues", 1..=QUEUES)?,
            life,
            history,
            now: 0,
            residents: 0,
            places: Places::new(config.pages),
            uses: vec![Use::default(); config.pages],
        })
    }

    #[inline]
    fn access<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        let page = request.page;
        let home = self.places.home(page);
        if home < QOUT {
            let queue = self.count_use(page);
            if queue == home {
                self.places.move_to_front(home, page)
            } else {
                self.places.shift(page, queue)
            }
            self.places.serve(request, driver);
            self.adjust();
            return Outcome::Hit(Tier::TOP);
        }
        let outcome = self.miss(request, home == QOUT, driver);
        self.adjust();
        outcome
    }

    fn state(&self, page: Page) -> PageState {
        self.places.state(page)
    }

    fn occupancy(&self, _tier: Tier) -> usize {
        self.residents
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        const NAMES: [&str; QUEUES + 1] = ["Q0", "Q1", "Q2", "Q3", "Q4", "Q5", "Q6", "Q7", "Qout"];
        NAMES.iter().enumerate().for_each(|(queue, name)| visit(name, self.places.len(queue) as f64));
    }

    #[inline(always)]
    fn prefetch(&self, page: Page) {
        self.places.prefetch(page);
        entresol_core::prefetch(&self.uses, page.index());
    }

    fn memory_bytes(&self) -> usize {
        self.places.memory_bytes() + self.uses.capacity() * size_of::<Use>()
    }
}

impl Mq {
    /// Counts a use, renews the life of the page and returns the queue it now belongs to.
    #[inline(always)]
    fn count_use(&mut self, page: Page) -> usize {
        let count = self.uses[page.index()].count.saturating_add(1);
        self.uses[page.index()] = Use { count, expires: self.now.wrapping_add(self.life) };
        (count.ilog2() as usize).min(self.queues - 1)
    }

    fn miss<D: Driver>(&mut self, request: Request, remembered: bool, driver: &mut D) -> Outcome {
        let page = request.page;
        if self.residents == self.capacity {
            let victim = (0..self.queues).find_map(|queue| self.places.victim(queue, driver));
            let Some(victim) = victim else { return driver.bypass(request) };
            if remembered {
                self.places.forget(page);
            }
            if self.history == 0 {
                self.places.evict(victim, NOWHERE, driver);
            } else {
                self.places.evict(victim, QOUT, driver);
                if self.places.len(QOUT) > self.history {
                    self.places.forget_oldest(QOUT);
                }
            }
            self.residents -= 1;
        }
        if !remembered {
            self.uses[page.index()].count = 0;
        }
        let queue = self.count_use(page);
        self.places.enter(request, queue, driver);
        self.residents += 1;
        Outcome::ADMITTED
    }

    /// `Adjust`: the oldest page of each queue descends when its life is over.
    #[inline(always)]
    fn adjust(&mut self) {
        self.now = self.now.wrapping_add(1);
        for queue in 1..self.queues {
            let Some(head) = self.places.oldest(queue) else { continue };
            let overdue = self.now.wrapping_sub(self.uses[head.index()].expires) as i32;
            if overdue > 0 {
                self.places.shift(head, queue - 1);
                self.uses[head.index()].expires = self.now.wrapping_add(self.life);
            }
        }
    }
}
