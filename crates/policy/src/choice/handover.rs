//! Handover of the held pages from one policy to another, a few pages behind each request.
//!
//! The new policy is shown the pages that are held, those first that were not asked for the longest, as the requests by which
//! it would have got them: a dirty page as a write, any other as a read. Bytes stay where they are. A page that is asked
//! for is shown at once. Where a new page needs room before all are shown, the one goes that would be shown next.

use crate::interface::{Driver, PageState, TierSet};
use crate::miniature::candidate::{Boxed, Candidate};
use crate::parts::Bits;
use entresol_core::{Address, Movement, ObjectId, Op, Outcome, Page, Request, Tier, Verb};
use std::collections::VecDeque;

/// Pages that are shown behind a request: few enough that a live cache does not make whoever asks wait for what they
/// displace.
const SHOWN_PER_REQUEST: usize = 8;

/// Pages on their way from one policy to another.
#[derive(Clone)]
pub(super) struct Handover {
    old: Boxed,
    /// Pages that are held and were not shown yet.
    pending: Bits,
    /// Those, in the order in which they are to be shown, and others that were shown out of turn.
    order: VecDeque<Page>,
    capacity: usize,
}

impl Handover {
    /// From a policy that will not be asked any more; `order` has all that it holds, oldest first.
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

    /// Decides on a request while pages remain to be shown, and shows some.
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

    /// Makes room for one more page; false when no page may go.
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

    /// Gives up a page that was not shown, if that is allowed.
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
                // It is pinned: another time.
                self.order.push_back(page);
            }
            return;
        }
    }
}

/// Shows a policy a page that is held; whether it holds it too now.
fn show(new: &mut dyn Candidate, page: Page, dirty: bool, driver: &mut dyn Driver) -> bool {
    let op = if dirty { Op::Write } else { Op::Read };
    new.access(Request { page, op, sequential: false }, &mut Showing { page, driver });
    new.state(page).tiers.contains(Tier::TOP)
}

/// A page that was asked for and is not wanted any more serves this request and goes.
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

/// The driver of a policy that is shown a page: what brings that page in has happened already.
struct Showing<'a> {
    page: Page,
    driver: &'a mut dyn Driver,
}

impl Driver for Showing<'_> {
    fn may_evict(&mut self, page: Page, tier: Tier) -> bool {
        self.driver.may_evict(page, tier)
    }

    fn emit(&mut self, movement: Movement) {
        // One that is not wanted leaves by the hand of whoever shows it.
        let held =
            matches!(movement.verb, Verb::Fetch { .. } | Verb::Install { .. } | Verb::Bypass | Verb::Drop { .. });
        if movement.page != self.page || !held {
            self.driver.emit(movement);
        }
    }

    fn now_us(&self) -> u64 {
        self.driver.now_us()
    }

    fn next_use(&self) -> u32 {
        self.driver.next_use()
    }

    fn address(&self, page: Page) -> Address {
        self.driver.address(page)
    }

    fn successor(&self, page: Page) -> Option<Page> {
        self.driver.successor(page)
    }

    fn predecessor(&self, page: Page) -> Option<Page> {
        self.driver.predecessor(page)
    }

    fn object_pages(&self, object: ObjectId) -> u64 {
        self.driver.object_pages(object)
    }
}
