//! Handover of the held pages from one policy to another, a few pages after each request.
//!
//! The new policy is shown the held pages, least recently requested first, as the requests that would have brought
//! them: a dirty page as a write, any other as a read. The bytes stay where they are. A requested page is shown at
//! once. If a new page needs a frame before all are shown, the page that would be shown next is evicted.

use crate::candidate::{Boxed, Candidate};
use crate::interface::{Driver, PageState, TierSet, pass_questions_on};
use crate::parts::Bits;
use entresol_core::{Movement, Op, Outcome, Page, Request, Tier, Verb};
use std::collections::VecDeque;

/// Pages shown after each request: few enough that in a live cache no requester waits long for the write-backs of the
/// pages that they displace.
const SHOWN_PER_REQUEST: usize = 8;

/// The pages that still have to be shown to the new policy.
#[derive(Clone)]
pub(super) struct Handover {
    old: Boxed,
    /// Held pages that were not shown yet.
    pending: Bits,
    /// The pending pages in the order in which they are to be shown, among others that were shown out of turn.
    order: VecDeque<Page>,
    capacity: usize,
}

impl Handover {
    /// Begins a handover from `old`, which decides no more; `order` has all pages it holds, oldest first.
    pub fn new(old: Boxed, order: VecDeque<Page>, pages: usize, capacity: usize) -> Self {
        let mut pending = Bits::new(pages);
        order.iter().for_each(|&page| {
            pending.insert(page);
        });
        Handover { old, pending, order, capacity }
    }

    /// Pages that were not shown yet.
    pub fn len(&self) -> usize {
        self.pending.len()
    }

    /// State of a page that is held and was not shown yet; `None` for any other page.
    pub fn state(&self, page: Page) -> Option<PageState> {
        let state = || PageState { tiers: TierSet::only(Tier::TOP, true), dirty: self.dirty(page), known: true };
        self.pending.contains(page).then(state)
    }

    /// Bytes of state.
    pub fn memory_bytes(&self) -> usize {
        self.old.0.memory_bytes() + self.pending.memory_bytes() + self.order.capacity() * size_of::<Page>()
    }

    fn dirty(&self, page: Page) -> bool {
        self.old.0.state(page).dirty
    }

    /// Decides on a request while pages remain to be shown, and shows some of them.
    pub fn access(&mut self, new: &mut dyn Candidate, request: Request, driver: &mut dyn Driver) -> Outcome {
        let page = request.page;
        let outcome = if self.pending.contains(page) {
            let dirty = self.dirty(page);
            self.pending.remove(page);
            if show(new, page, dirty, driver) { new.access(request, driver) } else { leave(request, dirty, driver) }
        } else if new.state(page).tiers.is_empty() && !self.make_room(new, driver) {
            bypass(request, driver)
        } else {
            new.access(request, driver)
        };
        (0..SHOWN_PER_REQUEST).for_each(|_| self.show_next(new, driver));
        outcome
    }

    /// Frees a frame for one more page; false when no page may be evicted.
    fn make_room(&mut self, new: &dyn Candidate, driver: &mut dyn Driver) -> bool {
        let mut asked = 0;
        while !self.pending.is_empty() && self.pending.len() + new.occupancy() >= self.capacity {
            if asked == self.order.len() {
                return false;
            }
            let Some(page) = self.order.pop_front() else { return false };
            if self.pending.contains(page) && !self.evict(page, driver) {
                self.order.push_back(page);
                asked += 1;
            }
        }
        true
    }

    /// Evicts a page that was not shown, if the driver allows it.
    fn evict(&mut self, page: Page, driver: &mut dyn Driver) -> bool {
        let allowed = driver.may_evict(page, Tier::TOP);
        if allowed {
            let dirty = self.dirty(page);
            self.pending.remove(page);
            evict(page, dirty, driver);
        }
        allowed
    }

    fn show_next(&mut self, new: &mut dyn Candidate, driver: &mut dyn Driver) {
        while let Some(page) = self.order.pop_front() {
            if !self.pending.contains(page) {
                continue;
            }
            if show(new, page, self.dirty(page), driver) {
                self.pending.remove(page);
            } else if !self.evict(page, driver) {
                // The page is pinned: it is tried again later.
                self.order.push_back(page);
            }
            return;
        }
    }
}

/// Shows a held page to the new policy; true if the new policy holds the page then.
fn show(new: &mut dyn Candidate, page: Page, dirty: bool, driver: &mut dyn Driver) -> bool {
    let op = if dirty { Op::Write } else { Op::Read };
    new.access(Request { page, op, sequential: false }, &mut Showing { page, driver });
    new.state(page).tiers.contains(Tier::TOP)
}

/// Serves a request for a held page that the new policy does not want, and evicts the page.
fn leave(request: Request, dirty: bool, driver: &mut dyn Driver) -> Outcome {
    if request.op.is_write() {
        evict(request.page, dirty && request.op == Op::Update, driver);
        bypass(request, driver);
    } else {
        evict(request.page, dirty, driver);
    }
    Outcome::Hit(Tier::TOP)
}

fn emit(page: Page, verb: Verb, driver: &mut dyn Driver) {
    driver.emit(Movement { page, verb, joined: false });
}

fn evict(page: Page, dirty: bool, driver: &mut dyn Driver) {
    if dirty {
        emit(page, Verb::WriteBack { from: Tier::TOP }, driver);
    }
    emit(page, Verb::Drop { from: Tier::TOP }, driver);
}

fn bypass(request: Request, driver: &mut dyn Driver) -> Outcome {
    emit(request.page, Verb::Bypass, driver);
    Outcome::BYPASSED
}

/// The driver of a policy that is shown a page, whose fetch has happened already.
struct Showing<'a> {
    page: Page,
    driver: &'a mut dyn Driver,
}

impl Driver for Showing<'_> {
    fn may_evict(&mut self, page: Page, tier: Tier) -> bool {
        self.driver.may_evict(page, tier)
    }

    fn emit(&mut self, movement: Movement) {
        // If the policy does not want the page, the caller of [`show`] evicts it.
        let held =
            matches!(movement.verb, Verb::Fetch { .. } | Verb::Install { .. } | Verb::Bypass | Verb::Drop { .. });
        if movement.page != self.page || !held {
            self.driver.emit(movement);
        }
    }

    pass_questions_on!(driver);
}
