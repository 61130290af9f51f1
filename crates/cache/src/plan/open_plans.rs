//! Plans that a test holds open, on one thread and by a seed: other requests go on, flushes and crashes happen, and the
//! copies are made later and in another order. So a crash suite without threads meets what threads would do.
//!
//! A real plan is open while its page's lock is held and its thread is at any point of the copy. The locks of pages ask
//! here, therefore. A thread that waits for a batch finds that the other threads go on, which is what
//! [`entresol_store::waiting`] tells.

use super::Plan;
use entresol_core::Random;
use entresol_store::waiting;
use std::cell::RefCell;
use std::ops::Range;

/// Most plans that are open at once.
const OPEN_MAX: usize = 8;

struct OpenPlans {
    open: Vec<(Plan, Vec<u8>)>,
    random: Random,
    /// Plans that were held open, since they were last counted.
    held: u64,
}

thread_local! {
    static OPEN_PLANS: RefCell<Option<OpenPlans>> = const { RefCell::new(None) };
}

/// Plans of this thread are held open as long as this lives.
pub(crate) struct Holding;

/// Begins to hold plans of this thread open.
pub(crate) fn begin(seed: u64) -> Holding {
    OPEN_PLANS.replace(Some(OpenPlans { open: Vec::new(), random: Random::new(seed), held: 0 }));
    waiting::call_before(Some(settle));
    Holding
}

impl Holding {
    /// Plans that were held open, since this was last asked.
    pub fn take_held(&self) -> u64 {
        OPEN_PLANS.with_borrow_mut(|held| held.as_mut().map_or(0, |held| std::mem::take(&mut held.held)))
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        waiting::call_before(None);
        settle();
        OPEN_PLANS.replace(None);
    }
}

/// Holds a plan open, or returns it to be carried out now. Then other plans may be carried out too.
pub(crate) fn hold(plan: Plan, bytes: &[u8]) -> Option<Plan> {
    OPEN_PLANS.with_borrow_mut(|held| {
        let Some(held) = held.as_mut().filter(|_| plan.page().is_some()) else { return Some(plan) };
        while !held.open.is_empty() && (held.open.len() == OPEN_MAX || held.random.chance(0.2)) {
            let next = held.random.below(held.open.len() as u64) as usize;
            carry_out(held.open.swap_remove(next));
        }
        if held.random.chance(0.3) {
            return Some(plan);
        }
        held.open.push((plan, bytes.to_vec()));
        held.held += 1;
        None
    })
}

/// Gives up all open plans, as a kill does.
pub(crate) fn give_up() {
    let open = OPEN_PLANS.with_borrow_mut(|held| held.as_mut().map(|held| std::mem::take(&mut held.open)));
    drop(open);
}

fn carry_out((plan, bytes): (Plan, Vec<u8>)) {
    plan.carry_out_now(&bytes);
}

/// Carries out all open plans, in some order.
fn settle() {
    settle_pages(&(0..u64::MAX));
}

/// Carries out the open plans for these pages, as a thread that waits for their locks finds.
pub(crate) fn settle_pages(pages: &Range<u64>) {
    OPEN_PLANS.with_borrow_mut(|held| {
        let Some(held) = held else { return };
        let (mut these, others) =
            std::mem::take(&mut held.open).into_iter().partition::<Vec<_>, _>(|(plan, _)| is_of(plan, pages));
        held.open = others;
        while !these.is_empty() {
            carry_out(these.swap_remove(held.random.below(these.len() as u64) as usize));
        }
    });
}

/// True if a plan for the page is open: its lock is held.
pub(crate) fn is_held(page: u64) -> bool {
    OPEN_PLANS.with_borrow(|held| {
        held.as_ref().is_some_and(|held| held.open.iter().any(|(plan, _)| plan.page() == Some(page)))
    })
}

fn is_of(plan: &Plan, pages: &Range<u64>) -> bool {
    plan.page().is_some_and(|page| pages.contains(&page))
}
