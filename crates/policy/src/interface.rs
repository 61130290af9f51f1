//! The interface between a policy, which decides, and its driver, which acts. `docs/policy-interface.md` argues for
//! each part.

use crate::options::{BuildError, Options};
use entresol_core::{Address, Hint, Movement, ObjectId, Outcome, Page, Request, Tier, Verb};

/// Decides which pages to keep and which to move.
///
/// A clone is a snapshot: driven on, it repeats what the original does.
pub trait Policy: Clone + Send + 'static {
    /// Name, source, options.
    const INFO: Info;

    /// A policy in its initial, empty state.
    fn new(config: &Config, options: &Options) -> Result<Self, BuildError>;

    /// Decides on one request. Movements are emitted in the order in which they must be carried out, and a tier
    /// never holds more frames than its capacity, not even between two of them.
    ///
    /// A read that misses emits exactly one `Fetch` or `Bypass` of its page, a read that hits none. A write, hit or
    /// miss, emits exactly one `Install` (over the frame it hits, as a rule) or `Bypass`. Before a bypass, the copies
    /// that become obsolete are dropped or superseded. A policy that frees a frame first, and so loses the requested
    /// page itself, reports a miss.
    fn access<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome;

    /// Handles a hint: news that is no reference to a page. Most policies ignore all hints.
    fn hint<D: Driver>(&mut self, _hint: Hint, _driver: &mut D) {}

    /// State of a page: the tiers that hold it, and whether it is dirty or known.
    fn state(&self, page: Page) -> PageState;

    /// Pages now held per tier, superseded frames included.
    fn occupancy(&self, tier: Tier) -> usize;

    /// Visits the figures worth plotting over time: expert weights, desired sizes, queue lengths.
    fn gauges(&self, _visit: &mut dyn FnMut(&'static str, f64)) {}

    /// Verdict of the policy on an object, in a word: its access pattern, or its placement. `None` where the policy
    /// keeps none, or does not know yet.
    fn verdict(&self, _object: ObjectId) -> Option<&'static str> {
        None
    }

    /// Figures of the choice, for a policy that selects one of several to decide; `None` for any other policy.
    fn choice(&self) -> Option<Choice> {
        None
    }

    /// Pages of an object that the policy places whole and waits to be brought in; each is admitted when it is
    /// requested. 0 for an object that is not placed, as with most policies.
    fn placed(&self, _object: ObjectId) -> u64 {
        0
    }

    /// Carries out a small step of the work that a hint has left; true if more remains.
    fn go_on<D: Driver>(&mut self, _driver: &mut D) -> bool {
        false
    }

    /// The value of one of [`Info::tunables`], by its index there.
    fn tunable(&self, at: usize) -> f64 {
        unreachable!("policy '{}' has no tunable {at}", Self::INFO.name)
    }

    /// Sets one of [`Info::tunables`], by its index there, to a value between its levels. The contents stay; decisions
    /// from the next request on follow the new value.
    fn tune(&mut self, at: usize, _value: f64) {
        unreachable!("policy '{}' has no tunable {at}", Self::INFO.name)
    }

    /// Loads the state of a page that will soon be requested into the processor's cache. A hint for drivers that know
    /// the future or a batch; it changes nothing.
    #[inline(always)]
    fn prefetch(&self, _page: Page) {}

    /// Bytes of all state, the part per handle of the directory included.
    fn memory_bytes(&self) -> usize;
}

/// Figures of the choice of a policy that selects one of several to decide.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The candidates.
    pub candidates: Vec<ChoiceCandidate>,
    /// Index of the candidate that decides.
    pub active: usize,
    /// Sampled requests behind the figures, older ones counting less.
    pub sampled: f64,
    /// Number of changes to another candidate.
    pub switches: u64,
    /// The last change; `None` before the first.
    pub last: Option<Switch>,
}

/// A candidate as its shadow predicts it. A figure is NaN until it is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChoiceCandidate {
    /// Name of the candidate.
    pub name: &'static str,
    /// Predicted share of requests that hit.
    pub hit_ratio: f64,
    /// Predicted cost of a request, in the unit of the weights.
    pub cost: f64,
}

/// When and why the active candidate was replaced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Switch {
    /// The candidate that decided before.
    pub from: &'static str,
    /// The candidate that decides since.
    pub to: &'static str,
    /// Predicted cost of a request under `from`.
    pub cost_from: f64,
    /// Predicted cost of a request under `to`.
    pub cost_to: f64,
    /// Standard error of the difference of the costs.
    pub error: f64,
    /// Sampled requests behind the decision.
    pub sampled: u64,
    /// Requests before the change.
    pub requests: u64,
}

/// The policy's counterpart: carries out movements and answers questions about pages.
pub trait Driver {
    /// True if the frame of this page in this tier may be dropped. A policy asks before every `Drop`, except for the
    /// page of the current request and for frames already superseded. Only `BufferManager` refuses: a frame that is
    /// pinned, owned for a write, or being written. `TieredBuffer` and the block cache, whose requests hold no frame
    /// during a decision, and the simulator always agree. After a refusal the policy looks for another victim; if it
    /// finds none it bypasses the request.
    fn may_evict(&mut self, page: Page, tier: Tier) -> bool;

    /// Carries out one movement.
    fn emit(&mut self, movement: Movement);

    /// Time of the current request in microseconds from the start, as the request states it, never read from a clock.
    fn now_us(&self) -> u64;

    /// Index of the next request to the page of the current request, [`NEVER`](entresol_core::NEVER) if there is
    /// none. Only for policies whose [`Info::future`] is set; a live engine cannot drive those.
    fn next_use(&self) -> u32;

    /// Address of a page in the backing store.
    fn address(&self, page: Page) -> Address;

    /// The page that follows this one in its object, if the directory knows it.
    fn successor(&self, page: Page) -> Option<Page>;

    /// The page that precedes this one in its object, if the directory knows it.
    fn predecessor(&self, page: Page) -> Option<Page>;

    /// Size of an object in pages, as far as the driver knows it.
    fn object_pages(&self, object: ObjectId) -> u64;

    /// Emits a movement that starts a new I/O.
    #[inline(always)]
    fn start(&mut self, page: Page, verb: Verb) {
        self.emit(Movement { page, verb, joined: false });
    }

    /// Overwrites the copy in this tier with the bytes of a write; does nothing for a read.
    #[inline(always)]
    fn overwrite(&mut self, request: Request, tier: Tier) {
        if request.op.is_write() {
            self.start(request.page, Verb::Install { to: tier });
        }
    }

    /// Sends the request past the layer.
    #[inline(always)]
    fn bypass(&mut self, request: Request) -> Outcome {
        self.start(request.page, Verb::Bypass);
        Outcome::BYPASSED
    }

    /// Brings the page of a missed request into a tier: fetches it for a read, installs it for a write.
    #[inline(always)]
    fn admit(&mut self, request: Request, to: Tier) {
        let verb = if request.op.is_write() { Verb::Install { to } } else { Verb::Fetch { to } };
        self.start(request.page, verb);
    }

    /// Frees a frame, writing it back first when it is dirty.
    #[inline(always)]
    fn evict(&mut self, page: Page, from: Tier, dirty: bool) {
        if dirty {
            self.start(page, Verb::WriteBack { from });
        }
        self.start(page, Verb::Drop { from });
    }
}

/// A set of tiers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierSet(u8);

impl TierSet {
    /// No tier.
    pub const EMPTY: TierSet = TierSet(0);

    /// The set of this tier alone if `present`, else the empty set.
    #[inline(always)]
    pub const fn only(tier: Tier, present: bool) -> Self {
        TierSet((present as u8) << tier.0)
    }

    /// The set with a tier added if `present`.
    #[inline(always)]
    #[must_use]
    pub const fn and(self, tier: Tier, present: bool) -> Self {
        TierSet(self.0 | (present as u8) << tier.0)
    }

    /// True if the tier is in the set.
    #[inline(always)]
    pub const fn contains(self, tier: Tier) -> bool {
        self.0 >> tier.0 & 1 == 1
    }

    /// True if no tier is in the set.
    #[inline(always)]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// State of a page in a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageState {
    /// Tiers with a valid copy: one that a request could be served from.
    pub tiers: TierSet,
    /// True if the newest copy is newer than the level below.
    pub dirty: bool,
    /// True if the policy keeps something under this handle: a copy, a ghost, a count. When false the engine may give
    /// the handle to another page.
    pub known: bool,
}

/// Sizes and seed that a policy is built for.
#[derive(Clone, Debug)]
pub struct Config {
    /// Number of handles: every [`Page`] is below it.
    pub pages: usize,
    /// Number of objects: every [`ObjectId`] is below it.
    pub objects: usize,
    /// Capacity of each tier in pages, as many as [`Info::tiers`] names.
    pub tiers: Vec<usize>,
    /// Page size in bytes.
    pub page_bytes: u32,
    /// Seed of random choices.
    pub seed: u64,
    /// The most frequent distance between two references to one page, in requests, where the driver knows it.
    /// Only MQ asks for it.
    pub peak_temporal_distance: Option<u32>,
}

impl Config {
    /// A configuration of one tier, for tests and examples.
    pub fn single(pages: usize, capacity: usize) -> Self {
        Config { pages, objects: 1, tiers: vec![capacity], page_bytes: 4096, seed: 42, peak_temporal_distance: None }
    }

    /// A configuration of two tiers, for tests and examples.
    pub fn two_tiers(pages: usize, top: usize, second: usize) -> Self {
        Config { tiers: vec![top, second], ..Config::single(pages, 0) }
    }
}

/// An option of a policy.
#[derive(Clone, Copy, Debug)]
pub struct OptionInfo {
    /// The option's name on the command line.
    pub name: &'static str,
    /// Value of the option when it is not given.
    pub default: &'static str,
    /// Effect of the option, its unit and range, its source.
    pub help: &'static str,
}

/// A numeric option that may be changed between two requests.
#[derive(Clone, Copy, Debug)]
pub struct Tunable {
    /// Name of the option.
    pub option: &'static str,
    /// Values worth trying, in the option's unit, ascending and spaced by effect. The first and the last are the
    /// option's range.
    pub levels: &'static [f64],
}

/// Description of a policy: its name, source, options, tiers and needs.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// Name of the policy on the command line.
    pub name: &'static str,
    /// Family: the folder of the policy's file.
    pub family: &'static str,
    /// One line for a list.
    pub summary: &'static str,
    /// The paper: authors, title, venue, year.
    pub paper: &'static str,
    /// Options of the policy.
    pub options: &'static [OptionInfo],
    /// Options that may be changed while the policy runs.
    pub tunables: &'static [Tunable],
    /// Names of the tiers, fastest first: one for a plain cache.
    pub tiers: &'static [&'static str],
    /// Smallest capacity of each tier, in pages.
    pub min_pages: &'static [usize],
    /// Share of a total size that goes to the top tier when only a total is given. 0 for one tier.
    pub top_share: f64,
    /// True if the policy treats clean and dirty pages differently.
    pub write_aware: bool,
    /// True if the policy uses [`Driver::next_use`].
    pub future: bool,
    /// True if the policy uses addresses or neighbours.
    pub addresses: bool,
    /// True if the policy uses [`Driver::now_us`].
    pub clock: bool,
    /// True if the last tier is written as a log: frames are taken in order, round the ring.
    pub log: bool,
    /// True if the LRU stack property holds: a larger cache contains a smaller one, so one pass serves all sizes.
    pub stack: bool,
    /// Pages known at once with the default options, residents and others, per page of the tiers. A live cache provides
    /// that many handles.
    pub known_per_page: usize,
    /// Option that bounds the pages known outside the tiers, where the default (`0`) means all of them. A live cache
    /// sets it.
    pub known_bound: Option<&'static str>,
    /// Options, `NAME=VALUE`, that a live cache forces: incremental versions of steps that take no time in the
    /// simulator.
    pub live: &'static [&'static str],
    /// Options for the simulator only: a live cache, which does better, accepts no value but their defaults.
    pub simulated: &'static [&'static str],
}

impl Info {
    /// A plain cache that needs nothing special: the base that policies override fields of.
    pub const PLAIN: Info = Info {
        name: "",
        family: "",
        summary: "",
        paper: "",
        options: &[],
        tunables: &[],
        tiers: &["cache"],
        min_pages: &[1],
        top_share: 0.0,
        write_aware: false,
        future: false,
        addresses: false,
        clock: false,
        log: false,
        stack: false,
        known_per_page: 3,
        known_bound: None,
        live: &[],
        simulated: &[],
    };
}
