//! The interface between a policy, which decides, and its driver, which acts. `docs/policy-interface.md` argues for
//! each part.

use crate::info::{Config, Info};
use crate::options::{BuildError, Options};
use crate::ranked::Ranked;
use crate::state::Learned;
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

    /// The policy as one whose pages can be compared; none for most policies.
    fn ranked(&mut self) -> Option<&mut dyn Ranked> {
        None
    }

    /// The policy as one that learns and can go on with what another has learned; none for most policies.
    fn learned(&mut self) -> Option<&mut dyn Learned> {
        None
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

/// The questions of a [`Driver`] about the request and about pages, for one that passes them on to another.
macro_rules! pass_questions_on {
    ($to:tt) => {
        fn now_us(&self) -> u64 {
            self.$to.now_us()
        }

        fn next_use(&self) -> u32 {
            self.$to.next_use()
        }

        fn address(&self, page: ::entresol_core::Page) -> ::entresol_core::Address {
            self.$to.address(page)
        }

        fn successor(&self, page: ::entresol_core::Page) -> Option<::entresol_core::Page> {
            self.$to.successor(page)
        }

        fn predecessor(&self, page: ::entresol_core::Page) -> Option<::entresol_core::Page> {
            self.$to.predecessor(page)
        }

        fn object_pages(&self, object: ::entresol_core::ObjectId) -> u64 {
            self.$to.object_pages(object)
        }
    };
}
pub(crate) use pass_questions_on;

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
