//! Plans that a test holds open, on one thread and by a seed: other requests go on, flushes and crashes happen, and the
//! copies are made later, step by step and in another order. So a crash suite without threads meets what threads would
//! do.
//!
//! A real plan is open while its pages' locks are held and its thread is at any point of the copies. The locks of pages
//! ask here, therefore. A thread that waits for a batch finds that the other threads go on, which is what
//! [`entresol_store::waiting`] tells.

use super::{Plan, RequestBytes, Step};
use entresol_core::Random;
use entresol_store::waiting;
use std::cell::RefCell;
use std::ops::Range;

/// Most plans that are open at once.
const OPEN_MAX: usize = 8;

/// A plan that is open, with its steps and the bytes of each.
struct OpenPlan {
    /// Pages of its request, which are locked.
    locked: Range<u64>,
    steps: Vec<(Step, Vec<u8>)>,
}

struct OpenPlans {
    open: Vec<OpenPlan>,
    random: Random,
    /// Plans that were held open, since they were last counted.
    held: u64,
    /// Those of them with several steps.
    long: u64,
}

impl OpenPlans {
    /// Carries out a step of a plan; the plan is closed after its last one.
    fn step(&mut self, at: usize) {
        let steps = &mut self.open[at].steps;
        let next = self.random.below(steps.len() as u64) as usize;
        let (step, bytes) = steps.swap_remove(next);
        if steps.is_empty() {
            self.open.swap_remove(at);
        }
        step.block.fill(&bytes);
    }

    fn step_of_any(&mut self) {
        let at = self.random.below(self.open.len() as u64) as usize;
        self.step(at);
    }
}

thread_local! {
    static OPEN_PLANS: RefCell<Option<OpenPlans>> = const { RefCell::new(None) };
}

/// Plans of this thread are held open as long as this lives.
pub(crate) struct Holding;

/// Begins to hold plans of this thread open.
pub(crate) fn begin(seed: u64) -> Holding {
    OPEN_PLANS.replace(Some(OpenPlans { open: Vec::new(), random: Random::new(seed), held: 0, long: 0 }));
    waiting::call_before(Some(settle));
    Holding
}

impl Holding {
    /// Plans that were held open, and those of them with several steps, since this was last asked.
    pub fn take_held(&self) -> (u64, u64) {
        OPEN_PLANS.with_borrow_mut(|held| {
            let Some(held) = held else { return (0, 0) };
            (std::mem::take(&mut held.held), std::mem::take(&mut held.long))
        })
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        waiting::call_before(None);
        settle();
        OPEN_PLANS.replace(None);
    }
}

/// Holds a plan open, or returns it to be carried out now. Then steps of other plans may be carried out too.
pub(super) fn hold(plan: Plan, request: RequestBytes) -> Option<Plan> {
    OPEN_PLANS.with_borrow_mut(|held| {
        let Some(held) = held.as_mut().filter(|_| plan.has_steps()) else { return Some(plan) };
        while held.open.len() == OPEN_MAX || (!held.open.is_empty() && held.random.chance(0.3)) {
            held.step_of_any();
        }
        if held.random.chance(0.3) {
            return Some(plan);
        }
        let Plan { own, more, copies, .. } = plan;
        let own = own.into_iter().chain(more).map(|step| {
            let bytes = request.of(step.page).to_vec();
            (step, bytes)
        });
        let steps: Vec<_> = own.chain(copies.into_iter().map(|(step, bytes)| (step, bytes.to_vec()))).collect();
        held.held += 1;
        held.long += u64::from(steps.len() > 1);
        held.open.push(OpenPlan { locked: request.pages(), steps });
        None
    })
}

/// Gives up all open plans, as a kill does.
pub(crate) fn give_up() {
    let open = OPEN_PLANS.with_borrow_mut(|held| held.as_mut().map(|held| std::mem::take(&mut held.open)));
    drop(open);
}

/// Carries out all steps of all open plans, in some order.
fn settle() {
    OPEN_PLANS.with_borrow_mut(|held| {
        let Some(held) = held else { return };
        while !held.open.is_empty() {
            held.step_of_any();
        }
    });
}

/// Carries out the open plans for these pages, as a thread that waits for their locks finds.
pub(crate) fn settle_pages(pages: &Range<u64>) {
    OPEN_PLANS.with_borrow_mut(|held| {
        let Some(held) = held else { return };
        while let Some(at) = held.open.iter().position(|plan| overlap(&plan.locked, pages)) {
            held.step(at);
        }
    });
}

/// True if a plan of a request for the page is open: its lock is held.
pub(crate) fn is_held(page: u64) -> bool {
    OPEN_PLANS
        .with_borrow(|held| held.as_ref().is_some_and(|held| held.open.iter().any(|plan| plan.locked.contains(&page))))
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}
