//! Plain models of the classic policies, straight from their definitions, compared event by event.

use entresol_core::{Movement, Op, Outcome, Page, Request, Tier, Verb};
use entresol_policy::check::{self, Layout};
use entresol_policy::{Config, Options, Policy, classic};

const LAYOUT: Layout = Layout::one_object(60);

fn single(page: Page, verb: Verb) -> Movement {
    Movement { page, verb, joined: false }
}

/// LRU over a vector, the most recent page last.
struct LruModel {
    capacity: usize,
    stack: Vec<(Page, bool)>,
}

impl LruModel {
    fn access(&mut self, request: Request) -> (Outcome, Vec<Movement>) {
        let (page, writes) = (request.page, request.op.is_write());
        let mut movements = Vec::new();
        let at = self.stack.iter().position(|&(held, _)| held == page);
        let (outcome, dirty) = match at {
            Some(at) => (Outcome::Hit(Tier::TOP), self.stack.remove(at).1),
            None => {
                if self.stack.len() == self.capacity {
                    let (victim, dirty) = self.stack.remove(0);
                    if dirty {
                        movements.push(single(victim, Verb::WriteBack { from: Tier::TOP }));
                    }
                    movements.push(single(victim, Verb::Drop { from: Tier::TOP }));
                }
                (Outcome::ADMITTED, false)
            }
        };
        match request.op {
            Op::Read if at.is_none() => movements.push(single(page, Verb::Fetch { to: Tier::TOP })),
            Op::Read => {}
            _ => movements.push(single(page, Verb::Install { to: Tier::TOP })),
        }
        self.stack.push((page, dirty || writes));
        (outcome, movements)
    }
}

#[test]
fn lru_does_what_its_model_does() {
    for seed in 0..20 {
        for capacity in [1, 2, 10, 59] {
            println!("seed {seed}, capacity {capacity}");
            let config = Config::single(60, capacity);
            let mut policy = classic::Lru::new(&config, &Options::defaults(&classic::Lru::INFO)).unwrap();
            let mut model = LruModel { capacity, stack: Vec::new() };
            let requests = check::workload(seed, LAYOUT, 1_000);
            check::run_beside(&mut policy, LAYOUT, &config, &requests, |request, _, _| model.access(request));
        }
    }
}
