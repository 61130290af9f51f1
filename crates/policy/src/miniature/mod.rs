//! Miniature simulations: a policy at the sampled share of its size, over a driver that only counts (Waldspurger,
//! Saemundsson, Ahmad, Park, "Cache modeling and optimization using miniature simulations", ATC 2017).
//!
//! [`auto`](crate::choice) compares several policies in this way. [`Miniatures`] compares several settings of one
//! policy: each is a clone of the policy itself with other values of its [tunables](crate::Tunable) and with its own
//! contents.

mod counter;

pub use counter::{Access, Awaits, Prices, Terms};

use crate::candidate::{AnyPolicy, Boxed};
use crate::catalogue;
use crate::extension::divided;
use crate::info::{Config, Info};
use crate::interface::Driver;
use crate::mode::Mode;
use crate::options::{BuildError, Options};
use crate::parts::Sampler;
use crate::parts::slots::{ByAddress, Slots};
use entresol_core::{Address, Demand, Movement, NEVER, ObjectId, Outcome, PARTS, Page, Request, Shadow, Tier};

/// Size of the miniatures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// Share of the pages that are sampled, above 0.
    pub share: f64,
    /// Fewest pages of a tier: the share rises where a tier would have fewer.
    pub pages_min: usize,
}

impl Default for Scale {
    /// One page in a hundred. Tiers of fewer than 128 pages are too small to stand for larger ones.
    fn default() -> Self {
        Scale { share: 0.01, pages_min: 128 }
    }
}

impl Scale {
    /// The share of the pages that are sampled for these tiers.
    pub fn rate(&self, tiers: &[usize]) -> f64 {
        let least = tiers.iter().copied().filter(|&pages| pages > 0).min().unwrap_or(1);
        self.share.max(self.pages_min as f64 / least as f64).min(1.0)
    }
}

/// A policy to be run in miniature, and the tunables that vary.
pub struct Subject<'a> {
    /// The policy.
    pub info: &'static Info,
    /// Options of the policy.
    pub options: &'a Options,
    /// Configuration of the policy at full size.
    pub config: &'a Config,
    /// Indices of the tunables that differ between miniatures.
    pub tunables: Vec<usize>,
    /// Handling of writes.
    pub mode: Mode,
}

#[derive(Clone)]
struct Miniature {
    id: u64,
    policy: Boxed,
    demands: [Demand; PARTS],
}

/// Miniatures of one policy with several settings, over the same requests for a sample of the pages.
///
/// ```
/// use entresol_core::{Address, ObjectId, Request, Shadow};
/// use entresol_policy::miniature::{Access, Miniatures, Prices, Scale, Subject, Terms};
/// use entresol_policy::{Config, Mode, Options, catalogue};
///
/// let info = catalogue::info("multi-tier")?;
/// let (options, config) = (Options::defaults(info), Config::two_tiers(1000, 10, 100));
/// let subject = Subject { info, options: &options, config: &config, tunables: vec![2], mode: Mode::WriteBack };
/// let (free, dear) = (Prices::default(), Prices::of(Access { waits: 1e-4, busy: 1e-5 }));
/// let terms = Terms { places: vec![free, free, dear], wears: 1, ..Terms::default() };
/// let mut small = Miniatures::new(&subject, Scale::default(), terms)?;
/// // N_r = 1, and a twin of it with N_r = 0.
/// small.arrange(&[Shadow { id: 7, values: vec![1.0], from: None }, Shadow { id: 8, values: vec![0.0], from: Some(7) }]);
/// for block in (0..50).chain(0..50) {
///     small.told(Request::read(block as u32), Address { object: ObjectId(0), block }, || 0);
/// }
/// let waited: Vec<f64> = [7, 8].map(|id| small.demands(id).expect("as arranged").iter().map(|part| part.waits).sum()).into();
/// // Pages held in NVM are not read from below again.
/// assert!(waited[0] < 0.7 * waited[1]);
/// # Ok::<(), entresol_policy::BuildError>(())
/// ```
#[derive(Clone)]
pub struct Miniatures {
    all: Vec<Miniature>,
    /// A miniature without contents.
    empty: Boxed,
    tunables: Vec<usize>,
    slots: Slots<ByAddress>,
    sampler: Sampler,
    rate: f64,
    objects: u32,
    terms: Terms,
    mode: Mode,
}

/// Most miniatures at a time, each of which takes memory for the pages that it knows.
const MINIATURES_MAX: usize = 32;

impl Miniatures {
    /// None yet.
    ///
    /// # Errors
    /// When the policy cannot be built in small.
    pub fn new(subject: &Subject, scale: Scale, terms: Terms) -> Result<Self, BuildError> {
        let Subject { info, options, config, ref tunables, mode } = *subject;
        let rate = scale.rate(&config.tiers);
        let scaled = |(&pages, &least): (&usize, &usize)| match pages {
            0 => 0,
            pages => ((pages as f64 * rate).round() as usize).max(least).max(1),
        };
        // A pool above a policy of one tier has at least a page.
        let least = [1].into_iter().take(config.tiers.len().saturating_sub(info.tiers.len()));
        let least: Vec<usize> = least.chain(info.min_pages.iter().copied()).collect();
        let tiers: Vec<usize> = config.tiers.iter().zip(&least).map(scaled).collect();
        let known = MINIATURES_MAX * info.known_per_page * tiers.iter().sum::<usize>() + 1;
        let slots_max = known.min(Sampler::slots(config.pages, rate)).min(config.pages.max(1));
        let small = Config { pages: slots_max, tiers, ..config.clone() };
        let (own, pool) = divided(info, &small);
        let options = if mode.is_clean() { &options.for_through() } else { options };
        let empty = catalogue::build(info, &own, options, AnyPolicy { pool, handles: slots_max })?;
        Ok(Miniatures {
            all: Vec::new(),
            empty,
            tunables: tunables.clone(),
            slots: Slots::new(ByAddress::default(), slots_max),
            sampler: Sampler::of_share(config.seed, info.neighbours, rate),
            rate,
            objects: config.objects.max(1) as u32,
            terms,
            mode,
        })
    }

    /// Share of the pages that are sampled.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// Replaces the miniatures by `wanted`. One that exists already stays as it is, contents included.
    pub fn arrange(&mut self, wanted: &[Shadow]) {
        let find = |all: &[Miniature], id| all.iter().find(|one: &&Miniature| one.id == id).cloned();
        let next = wanted.iter().take(MINIATURES_MAX).map(|Shadow { id, values, from }| {
            find(&self.all, *id).unwrap_or_else(|| {
                let origin = from.and_then(|from| find(&self.all, from));
                let mut policy = origin.map_or_else(|| self.empty.clone(), |origin| origin.policy);
                self.tunables.iter().zip(values).for_each(|(&at, &value)| policy.0.tune(at, value));
                Miniature { id: *id, policy, demands: Default::default() }
            })
        });
        self.all = next.collect();
    }

    /// Records a request for a page if it is in the sample. The clock is read only then: a reading costs as much as the
    /// rest of a cheap request.
    #[inline(always)]
    pub fn told(&mut self, request: Request, at: Address, now_us: impl FnOnce() -> u64) {
        if let Some(hash) = self.sampler.find(at) {
            self.met(request, at, now_us(), (hash % PARTS as u64) as usize);
        }
    }

    #[cold]
    fn met(&mut self, request: Request, at: Address, now_us: u64, part: usize) {
        let all = &self.all;
        let forgotten = |slot| !all.iter().any(|one| one.policy.0.state(slot).known);
        // Without a free slot the page belongs to no sample for now.
        let Some(slot) = self.slots.claim(at, forgotten) else { return };
        let request = Request { page: slot, ..request };
        let around = self.mode == Mode::WriteAround && request.op.is_write();
        for one in &mut self.all {
            let mut small = Small {
                slots: &self.slots,
                objects: self.objects,
                now_us,
                counter: counter::Counter::new(request, &self.terms, self.mode),
            };
            let passes = around && one.policy.0.state(slot).tiers.is_empty();
            let outcome = if passes { Outcome::BYPASSED } else { one.policy.0.access(request, &mut small) };
            small.counter.end(outcome, &mut one.demands[part]);
        }
    }

    /// Demands of the sampled requests on a miniature, part by part, since the last [`clear`](Miniatures::clear);
    /// `None` for an unknown `id`.
    pub fn demands(&self, id: u64) -> Option<&[Demand; PARTS]> {
        self.all.iter().find(|one| one.id == id).map(|one| &one.demands)
    }

    /// Visits the id and demands of every miniature.
    pub fn each(&self, mut say: impl FnMut(u64, &[Demand; PARTS])) {
        self.all.iter().for_each(|one| say(one.id, &one.demands));
    }

    /// Resets all demands.
    pub fn clear(&mut self) {
        self.all.iter_mut().for_each(|one| one.demands = Default::default());
    }

    /// Bytes of state.
    pub fn memory_bytes(&self) -> usize {
        let policies = self.all.iter().map(|one| one.policy.0.memory_bytes() + size_of::<Miniature>());
        policies.sum::<usize>() + self.empty.0.memory_bytes() + self.slots.memory_bytes()
    }
}

/// The driver of a miniature: prices its movements and maps slots to the sampled pages.
struct Small<'a> {
    slots: &'a Slots<ByAddress>,
    objects: u32,
    now_us: u64,
    counter: counter::Counter<'a>,
}

impl Small<'_> {
    fn beside(&self, slot: Page, block: impl Fn(u64) -> Option<u64>) -> Option<Page> {
        let at = self.slots.key(slot);
        self.slots.find(Address { block: block(at.block)?, ..at })
    }
}

impl Driver for Small<'_> {
    fn may_evict(&mut self, _page: Page, _tier: Tier) -> bool {
        true
    }

    fn emit(&mut self, movement: Movement) {
        self.counter.movement(movement);
    }

    fn now_us(&self) -> u64 {
        self.now_us
    }

    fn next_use(&self) -> u32 {
        NEVER
    }

    fn address(&self, slot: Page) -> Address {
        let at = self.slots.key(slot);
        Address { object: ObjectId(at.object.0.min(self.objects - 1)), ..at }
    }

    fn successor(&self, slot: Page) -> Option<Page> {
        self.beside(slot, |block| block.checked_add(1))
    }

    fn predecessor(&self, slot: Page) -> Option<Page> {
        self.beside(slot, |block| block.checked_sub(1))
    }

    /// No policy with tunables asks for the size of an object.
    fn object_pages(&self, _object: ObjectId) -> u64 {
        0
    }
}
