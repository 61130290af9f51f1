//! A policy of any kind behind one pointer, for running several side by side that are chosen at run time.

use crate::extension::Pooled;
use crate::interface::{Driver, PageState, Policy, pass_questions_on};
use crate::list::Visitor;
use entresol_core::{Movement, ObjectId, Outcome, Page, Request, Tier};

/// A [`Policy`] whose kind is known at run time only. Each call is virtual, and so is each movement. A candidate
/// receives no hints: policies that use hints remember whole objects, and are refused as candidates.
pub(crate) trait Candidate: Send {
    fn access(&mut self, request: Request, driver: &mut dyn Driver) -> Outcome;
    fn state(&self, page: Page) -> PageState;
    fn occupancy(&self) -> usize;
    fn verdict(&self, object: ObjectId) -> Option<&'static str>;
    fn prefetch(&self, page: Page);
    fn tune(&mut self, at: usize, value: f64);
    fn memory_bytes(&self) -> usize;
    fn cloned(&self) -> Box<dyn Candidate>;
}

impl<P: Policy> Candidate for P {
    fn access(&mut self, request: Request, driver: &mut dyn Driver) -> Outcome {
        Policy::access(self, request, &mut Behind(driver))
    }

    fn state(&self, page: Page) -> PageState {
        Policy::state(self, page)
    }

    fn occupancy(&self) -> usize {
        Policy::occupancy(self, Tier::TOP)
    }

    fn verdict(&self, object: ObjectId) -> Option<&'static str> {
        Policy::verdict(self, object)
    }

    fn prefetch(&self, page: Page) {
        Policy::prefetch(self, page);
    }

    fn tune(&mut self, at: usize, value: f64) {
        Policy::tune(self, at, value);
    }

    fn memory_bytes(&self) -> usize {
        Policy::memory_bytes(self)
    }

    fn cloned(&self) -> Box<dyn Candidate> {
        Box::new(self.clone())
    }
}

/// Adapter from `dyn Driver` to the generic [`Driver`] that a policy takes.
struct Behind<'a>(&'a mut dyn Driver);

impl Driver for Behind<'_> {
    fn may_evict(&mut self, page: Page, tier: Tier) -> bool {
        self.0.may_evict(page, tier)
    }

    fn emit(&mut self, movement: Movement) {
        self.0.emit(movement);
    }

    pass_questions_on!(0);
}

/// A candidate that is cloned with its owner.
pub(crate) struct Boxed(pub Box<dyn Candidate>);

impl Clone for Boxed {
    fn clone(&self) -> Self {
        Boxed(self.0.cloned())
    }
}

/// Puts a policy behind a pointer, below a pool of so many pages, or alone.
pub(crate) struct AnyPolicy {
    pub pool: Option<usize>,
    /// Number of handles.
    pub handles: usize,
}

impl Visitor for AnyPolicy {
    type Output = Boxed;

    fn visit<P: Policy>(self, policy: P) -> Self::Output {
        Boxed(Box::new(Pooled::over(policy, self.pool, self.handles)))
    }
}
