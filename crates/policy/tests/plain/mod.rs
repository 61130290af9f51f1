//! Common part of the plain models: frames with dirty pages, and the comparison of a model with its policy.

use entresol_core::{Movement, Op, Outcome, Page, Request, Tier, Verb};
use entresol_policy::check::{self, Layout};
use entresol_policy::{Config, Options, Policy};
use std::collections::BTreeSet;

/// Pages with a frame and what was moved, in order.
#[derive(Default)]
pub struct Frames {
    dirty: BTreeSet<u32>,
    pub moves: Vec<Movement>,
}

impl Frames {
    fn push(&mut self, page: u32, verb: Verb) {
        self.moves.push(Movement { page: Page(page), verb, joined: false });
    }

    fn note(&mut self, request: Request) {
        if request.op != Op::Read {
            self.dirty.insert(request.page.0);
        }
    }

    pub fn hit(&mut self, request: Request) -> Outcome {
        if request.op != Op::Read {
            self.push(request.page.0, Verb::Install { to: Tier::TOP });
        }
        self.note(request);
        Outcome::Hit(Tier::TOP)
    }

    pub fn load(&mut self, request: Request) -> Outcome {
        let read = request.op == Op::Read;
        self.push(request.page.0, if read { Verb::Fetch { to: Tier::TOP } } else { Verb::Install { to: Tier::TOP } });
        self.note(request);
        Outcome::Miss { admitted: true }
    }

    pub fn evict(&mut self, page: u32) {
        if self.dirty.remove(&page) {
            self.push(page, Verb::WriteBack { from: Tier::TOP });
        }
        self.push(page, Verb::Drop { from: Tier::TOP });
    }
}

/// A slow, obvious policy.
pub trait Model {
    fn access(&mut self, request: Request) -> Outcome;
    fn frames(&mut self) -> &mut Frames;
}

/// Removes a page from a list; true if it was there.
pub fn take(list: &mut Vec<u32>, page: u32) -> bool {
    let at = list.iter().position(|&held| held == page);
    at.map(|at| list.remove(at)).is_some()
}

/// Compares a policy with a model, event by event, over seeds and capacities.
pub fn compare<P: Policy, M: Model>(options: &[&str], make: impl Fn(usize) -> M) {
    const LAYOUT: Layout = Layout::one_object(60);
    for seed in 0..12 {
        for capacity in [1, 2, 3, 5, 10, 25, 59] {
            println!("{} {options:?}, seed {seed}, capacity {capacity}", P::INFO.name);
            let config = Config::single(60, capacity);
            let parsed = Options::parse(&P::INFO, options.iter().copied()).expect("known options");
            let mut policy = P::new(&config, &parsed).expect("a buildable policy");
            let mut model = make(capacity);
            let requests = check::workload(seed, LAYOUT, 3_000);
            check::run_beside(&mut policy, LAYOUT, &config, &requests, |request, _, _| {
                let outcome = model.access(request);
                (outcome, std::mem::take(&mut model.frames().moves))
            });
        }
    }
}
