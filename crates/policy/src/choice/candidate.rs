//! A policy of any kind behind one pointer: for policies that have others decide, chosen at run time.

use crate::catalogue::{self, Visitor};
use crate::interface::{Config, Driver, Info, PageState, Policy};
use crate::options::{BuildError, Options};
use entresol_core::{Address, Movement, ObjectId, Outcome, Page, Request, Tier};

/// A [`Policy`] whose kind is known at run time only. Each call is a virtual one, and so is each movement. It is told of no
/// hints: those that take some remember whole objects, and are refused as candidates.
pub(super) trait Candidate: Send {
    fn access(&mut self, request: Request, driver: &mut dyn Driver) -> Outcome;
    fn state(&self, page: Page) -> PageState;
    fn occupancy(&self) -> usize;
    fn verdict(&self, object: ObjectId) -> Option<&'static str>;
    fn prefetch(&self, page: Page);
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

    fn memory_bytes(&self) -> usize {
        Policy::memory_bytes(self)
    }

    fn cloned(&self) -> Box<dyn Candidate> {
        Box::new(self.clone())
    }
}

/// A driver of any kind, as a policy takes it.
struct Behind<'a>(&'a mut dyn Driver);

impl Driver for Behind<'_> {
    fn may_evict(&mut self, page: Page, tier: Tier) -> bool {
        self.0.may_evict(page, tier)
    }

    fn emit(&mut self, movement: Movement) {
        self.0.emit(movement);
    }

    fn now_us(&self) -> u64 {
        self.0.now_us()
    }

    fn next_use(&self) -> u32 {
        self.0.next_use()
    }

    fn address(&self, page: Page) -> Address {
        self.0.address(page)
    }

    fn successor(&self, page: Page) -> Option<Page> {
        self.0.successor(page)
    }

    fn predecessor(&self, page: Page) -> Option<Page> {
        self.0.predecessor(page)
    }

    fn object_pages(&self, object: ObjectId) -> u64 {
        self.0.object_pages(object)
    }
}

/// A policy with its options, to be built at several sizes.
#[derive(Clone, Debug)]
pub(super) struct Recipe {
    pub info: &'static Info,
    options: Options,
}

impl Recipe {
    /// Understands `name` or `name+option=value+...`.
    ///
    /// # Errors
    /// When there is no such policy or option, or with the reason why it cannot be one of several.
    pub fn parse(text: &str, refuse: impl Fn(&str) -> BuildError) -> Result<Self, BuildError> {
        let mut parts = text.split('+');
        let info = catalogue::info(parts.next().unwrap_or_default())?;
        let why = if info.tiers.len() != 1 {
            "manages two tiers: what it holds cannot be handed over to one that manages one"
        } else if info.future {
            "knows the future, which no cache does"
        } else if info.name == super::NAME {
            "has candidates of its own"
        } else if info.name == "table-placement" || info.known_bound.is_some() {
            "remembers all pages there are, not a sample of them"
        } else {
            return Ok(Recipe { info, options: Options::parse(info, parts)? });
        };
        Err(refuse(why))
    }

    /// Builds the policy.
    ///
    /// # Errors
    /// What is wrong with its options, or a tier that is too small for it.
    pub fn build(&self, config: &Config) -> Result<Box<dyn Candidate>, BuildError> {
        struct Boxed;
        impl Visitor for Boxed {
            type Output = Box<dyn Candidate>;
            fn visit<P: Policy>(self, policy: P) -> Self::Output {
                Box::new(policy)
            }
        }
        catalogue::build(self.info, config, &self.options, Boxed)
    }
}

/// A candidate that can be cloned with whoever has it.
pub(super) struct Boxed(pub Box<dyn Candidate>);

impl Clone for Boxed {
    fn clone(&self) -> Self {
        Boxed(self.0.cloned())
    }
}
