//! Plain models of LIRS and CLOCK-Pro, which rank pages by reuse distance: vectors searched from end to end.

mod plain;

use entresol_core::{Outcome, Request};
use entresol_policy::adaptive;
use plain::{Frames, Model, compare, take};

/// LIRS with explicit sets: a page is LIR, resident HIR (in Q) or, if only in S, a HIR page without a frame.
struct Lirs {
    capacity: usize,
    lir_frames: usize,
    bound: usize,
    /// Bottom first.
    s: Vec<u32>,
    /// Front (next victim) first.
    q: Vec<u32>,
    lir: Vec<u32>,
    frames: Frames,
}

impl Lirs {
    fn with(capacity: usize, hir: usize, bound: usize) -> Self {
        let lir_frames = capacity - hir.min(capacity);
        Lirs { capacity, lir_frames, bound, s: vec![], q: vec![], lir: vec![], frames: Frames::default() }
    }

    fn prune(&mut self) {
        while self.s.first().is_some_and(|bottom| !self.lir.contains(bottom)) {
            self.s.remove(0);
        }
    }

    /// The page at the top of S is LIR from now on.
    fn promote(&mut self, x: u32) {
        self.lir.push(x);
        if self.lir.len() > self.lir_frames {
            let bottom = self.s.remove(0);
            assert!(take(&mut self.lir, bottom));
            self.q.push(bottom);
        }
    }

    fn reference(&mut self, x: u32) {
        let was_in_s = take(&mut self.s, x);
        self.s.push(x);
        if self.lir.contains(&x) {
            return;
        }
        take(&mut self.q, x);
        if was_in_s || self.lir.len() < self.lir_frames {
            self.promote(x);
        } else {
            self.q.push(x);
        }
    }
}

impl Model for Lirs {
    fn access(&mut self, request: Request) -> Outcome {
        let x = request.page.0;
        let hit = self.lir.contains(&x) || self.q.contains(&x);
        if !hit && self.lir.len() + self.q.len() == self.capacity {
            let victim = self.q.remove(0);
            self.frames.evict(victim);
        }
        self.reference(x);
        while self.s.len() > self.bound {
            let gone = self.s.iter().copied().find(|page| !self.lir.contains(page) && !self.q.contains(page));
            take(&mut self.s, gone.unwrap());
        }
        self.prune();
        if hit { self.frames.hit(request) } else { self.frames.load(request) }
    }

    fn frames(&mut self) -> &mut Frames {
        &mut self.frames
    }
}

#[test]
fn lirs_does_what_its_model_does() {
    compare::<adaptive::Lirs, _>(&[], |c| Lirs::with(c, 2, 2 * c));
    compare::<adaptive::Lirs, _>(&["hir=30%"], |c| Lirs::with(c, (c * 3 / 10).max(2), 2 * c));
    compare::<adaptive::Lirs, _>(&["hir=3p", "stack=120%"], |c| Lirs::with(c, 3, c * 6 / 5));
    compare::<adaptive::Lirs, _>(&["stack=1000%"], |c| Lirs::with(c, 2, 10 * c));
}
