//! `auto`: runs the one of several policies that suits the requests best.
//!
//! Each candidate runs as a shadow over the requests for a sample of the pages, at a size scaled down by the same
//! share. The cost of a request to a candidate is
//!
//! > `read` x pages read from below + `write` x pages written below + `admission` x pages written into the cache
//!
//! in any unit. By default reading a page from below costs 1, writing one below 1 and writing one into the cache 0.1.
//! The [`Chooser`] compares these costs and decides when a change is worth making. Then the candidate is built at full
//! size and takes over the held pages, which stay. The new policy has learned nothing of the past; so a change is taken
//! to cost a tenth of the cache to be read again.
//!
//! `auto` is a policy itself, so the simulator and the engine drive the same object and choose the same on the same
//! requests. A change builds a policy and sorts the held pages; nothing else allocates. The state takes 4 bytes and a
//! bit per handle, beside the active policy and the shadows.

pub mod chooser;
mod handover;
mod recipe;
mod shadows;

use crate::candidate::Boxed;
use crate::info::{Config, Info, OptionInfo};
use crate::interface::{Choice, ChoiceCandidate, Driver, PageState, Policy, Switch};
use crate::options::{BuildError, Options};
use crate::parts::Sampler;
use chooser::{Change, Chooser, Limits};
use entresol_core::{ObjectId, Outcome, Page, Request, Tier};
use handover::Handover;
use recipe::Recipe;
use shadows::{Shadows, Weights};

const NAME: &str = "auto";
/// Pages of a shadow if the cache has the handles for it: below that the number of pages alone decides the outcome.
const SHADOW_MIN: usize = 128;
/// Fewest sampled requests of a window.
const WINDOW_MIN: u64 = 1000;
/// Share of the cache that a new policy has to read again, for lack of learned state.
const RELEARNED: f64 = 0.1;

/// Runs one of several policies, and changes to another when that one would cost less.
#[derive(Clone)]
pub struct Auto {
    recipes: Vec<Recipe>,
    config: Config,
    active: Boxed,
    handover: Option<Handover>,
    shadows: Shadows,
    /// Time of the last request for each page, by handle, counted in requests.
    used: Vec<u32>,
    requests: u64,
    switches: u64,
    last: Option<Switch>,
}

impl Auto {
    /// Makes another candidate decide from the next request on.
    #[cold]
    fn change(&mut self, change: Change) {
        let next = self.recipes[change.to].build(&self.config).expect("it was built once before");
        let old = std::mem::replace(&mut self.active, next);
        let held = (0..self.config.pages as u32).map(Page).filter(|&page| old.0.state(page).tiers.contains(Tier::TOP));
        let mut order: Vec<Page> = held.collect();
        let now = self.requests as u32;
        order.sort_unstable_by_key(|page| std::cmp::Reverse(now.wrapping_sub(self.used[page.index()])));
        self.handover = Some(Handover::new(old, order.into(), self.config.pages, self.capacity()));
        self.switches += 1;
        self.last = Some(Switch {
            from: self.recipes[change.from].info.name,
            to: self.recipes[change.to].info.name,
            cost_from: change.cost_from,
            cost_to: change.cost_to,
            error: change.error,
            sampled: change.sampled,
            requests: self.requests,
        });
    }

    fn capacity(&self) -> usize {
        self.config.tiers[Tier::TOP.index()]
    }
}

/// Parses the named candidates, of which the first begins.
fn recipes(options: &Options) -> Result<Vec<Recipe>, BuildError> {
    let given = options.text("of");
    let names = given.split('/').filter(|name| !name.is_empty());
    let recipes =
        names.map(|text| Recipe::parse(text, |why| options.bad("of", given, &format!("cannot be: '{text}' {why}"))));
    let recipes = recipes.collect::<Result<Vec<_>, _>>()?;
    let name = |at: usize| recipes[at].info.name;
    if let Some(twice) = (1..recipes.len()).find(|&at| (0..at).any(|before| name(before) == name(at))) {
        // Figures and events identify candidates by name.
        return Err(options.bad("of", given, &format!("names '{}' twice", name(twice))));
    }
    if recipes.len() < 2 {
        return Err(options.bad("of", given, "leaves nothing to choose: it must be two policies or more"));
    }
    Ok(recipes)
}

/// Pages of each shadow, and the most pages of the sample that are known at once.
fn shadow_pages(config: &Config, options: &Options, recipes: &[Recipe]) -> Result<(usize, usize), BuildError> {
    let capacity = config.tiers[Tier::TOP.index()];
    let given = options.pages("sample", config, capacity)?;
    if given > capacity {
        return Err(options.bad("sample", options.text("sample"), "is more than the cache"));
    }
    // Every page known to a shadow needs a handle, and the cache has one spare handle per page for that.
    let known: usize = recipes.iter().map(|recipe| recipe.info.known_per_page).sum();
    let least = recipes.iter().map(|recipe| recipe.info.min_pages[0]).max().unwrap_or(1);
    let pages = given.max(SHADOW_MIN.min(capacity / known)).max(least).min(capacity.max(least));
    let mut slots_max = known * pages + 1;
    if !recipes.iter().any(|recipe| recipe.info.neighbours) {
        // What shadows know is mostly the same. A sample of groups of neighbours may be far larger than expected.
        slots_max = slots_max.min(Sampler::slots(config.pages, pages as f64 / capacity.max(1) as f64));
    }
    Ok((pages, slots_max.min(config.pages.max(1))))
}

fn limits(options: &Options, shadow_pages: usize, weights: Weights) -> Result<Limits, BuildError> {
    let window = match options.number("window", 0..)? {
        0 => WINDOW_MIN.max(2 * shadow_pages as u64),
        given => given,
    };
    let payback: f64 = options.number("payback", 1e-3..=1e9)?;
    Ok(Limits {
        window,
        first: options.number("first", 1..)?,
        stay: options.number("stay", 1..)?,
        gain: options.number("gain", 0.0..=1.0)?,
        payback: RELEARNED * weights.read / payback,
        errors: options.number("errors", 0.0..=100.0)?,
    })
}

impl Policy for Auto {
    const INFO: Info = Info {
        name: NAME,
        family: "choice",
        summary: "one of several policies, whichever costs least in small over a sample of the pages",
        paper: "candidates as miniature simulations: Waldspurger, Saemundsson, Ahmad, Park: Cache modeling and optimization \
                using miniature simulations, ATC 2017; when to change is Entresol's own",
        options: &[
            OptionInfo {
                name: "of",
                default: "reuse/lru/2q/arc/lirs/s3-fifo/w-tinylfu/mq/h-arc",
                help: "the candidates, NAME or NAME+OPTION=VALUE, the first of which begins: policies of one tier",
            },
            OptionInfo {
                name: "sample",
                default: "1%",
                help: "size of a shadow, of the cache's: the share of the pages that are sampled. A small cache has shadows of up \
                       to 128 pages",
            },
            OptionInfo {
                name: "window",
                default: "0",
                help: "sampled requests after which it decides, and the past counts for less; 0 takes two for each \
                       page of a shadow, at least 1000",
            },
            OptionInfo { name: "first", default: "8", help: "windows that the first policy decides for, at least" },
            OptionInfo { name: "stay", default: "4", help: "windows that a later policy decides for, at least" },
            OptionInfo { name: "gain", default: "0.1", help: "share of the cost of a request that a change must gain" },
            OptionInfo {
                name: "payback",
                default: "100",
                help: "requests, for each page of the cache, within which a change must have gained what it costs: a tenth of \
                       the cache read again",
            },
            OptionInfo {
                name: "errors",
                default: "3",
                help: "standard errors by which the predicted gain must exceed nothing",
            },
            OptionInfo { name: "read", default: "1", help: "what reading a page from below costs" },
            OptionInfo { name: "write", default: "1", help: "what writing a page below costs" },
            OptionInfo { name: "admission", default: "0.1", help: "what writing a page into the cache costs" },
        ],
        write_aware: true,
        addresses: true,
        clock: true,
        min_pages: &[2],
        known_per_page: 4,
        ..Info::PLAIN
    };

    fn new(config: &Config, options: &Options) -> Result<Self, BuildError> {
        let recipes = recipes(options)?;
        let capacity = config.tiers[Tier::TOP.index()];
        let (pages, slots_max) = shadow_pages(config, options, &recipes)?;
        let weight = |name| options.number(name, 0.0..=1e9);
        let weights = Weights { read: weight("read")?, write: weight("write")?, admission: weight("admission")? };
        let limits = limits(options, pages, weights)?;
        // All candidates are built once, so that none fails when it is to become active.
        let mut built = recipes.iter().map(|recipe| recipe.build(config)).collect::<Result<Vec<_>, _>>()?;
        let small = Config { pages: slots_max, tiers: vec![pages], ..config.clone() };
        let shadows = recipes.iter().map(|recipe| recipe.build(&small));
        let shadows = shadows.collect::<Result<Vec<_>, BuildError>>()?;
        let rate = (pages as f64 / capacity.max(1) as f64).min(1.0);
        let neighbours = recipes.iter().any(|recipe| recipe.info.neighbours);
        let sampler = Sampler::of_share(config.seed, neighbours, rate);
        let chooser = Chooser::new(recipes.len(), limits);
        Ok(Auto {
            active: built.swap_remove(0),
            handover: None,
            shadows: Shadows::new(shadows, chooser, weights, (sampler, rate), (config.pages, slots_max)),
            used: vec![0; config.pages],
            requests: 0,
            switches: 0,
            last: None,
            recipes,
            config: config.clone(),
        })
    }

    fn access<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        self.requests += 1;
        self.used[request.page.index()] = self.requests as u32;
        let outcome = match &mut self.handover {
            None => self.active.0.access(request, driver),
            Some(handover) => handover.access(&mut *self.active.0, request, driver),
        };
        if self.handover.as_ref().is_some_and(|handover| handover.len() == 0) {
            self.handover = None;
        }
        if let Some(change) = self.shadows.told(request, driver, self.handover.is_none()) {
            self.change(change);
        }
        outcome
    }

    fn state(&self, page: Page) -> PageState {
        let pending = self.handover.as_ref().and_then(|handover| handover.state(page));
        let state = pending.unwrap_or_else(|| self.active.0.state(page));
        PageState { known: state.known || self.shadows.know(page), ..state }
    }

    fn occupancy(&self, _tier: Tier) -> usize {
        self.active.0.occupancy() + self.handover.as_ref().map_or(0, Handover::len)
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("switches", self.switches as f64);
        visit("candidate", self.shadows.chooser.active() as f64);
    }

    fn choice(&self) -> Option<Choice> {
        let chooser = &self.shadows.chooser;
        let candidates = self.recipes.iter().enumerate().map(|(at, recipe)| ChoiceCandidate {
            name: recipe.info.name,
            hit_ratio: chooser.hit_ratio(at),
            cost: chooser.cost(at),
        });
        Some(Choice {
            candidates: candidates.collect(),
            active: chooser.active(),
            sampled: chooser.sampled(),
            switches: self.switches,
            last: self.last,
        })
    }

    fn verdict(&self, object: ObjectId) -> Option<&'static str> {
        self.active.0.verdict(object)
    }

    #[inline(always)]
    fn prefetch(&self, page: Page) {
        self.active.0.prefetch(page);
        entresol_core::prefetch(&self.used, page.index());
    }

    fn memory_bytes(&self) -> usize {
        let handover = self.handover.as_ref().map_or(0, Handover::memory_bytes);
        self.active.0.memory_bytes() + self.shadows.memory_bytes() + self.used.capacity() * 4 + handover
    }
}
