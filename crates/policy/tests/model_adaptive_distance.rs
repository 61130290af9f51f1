//! Plain models of LIRS and CLOCK-Pro, which rank pages by reuse distance: vectors searched from end to end.

use crate::plain::{Frames, Model, compare, take};
use entresol_core::{Outcome, Request};
use entresol_policy::adaptive;
use std::collections::BTreeMap;

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

/// State of a page on CLOCK-Pro's clock.
#[derive(Clone, Copy)]
struct Status {
    hot: bool,
    resident: bool,
    test: bool,
    bit: bool,
}

/// CLOCK-Pro as a fixed circle with HAND_hot moving along it. The other hands are searched from there: each points to
/// the last page of its kind, the first one met from HAND_hot on.
struct ClockPro {
    m: usize,
    mc: usize,
    adaptive: bool,
    retest: bool,
    /// Clockwise.
    circle: Vec<u32>,
    status: BTreeMap<u32, Status>,
    hand_hot: Option<u32>,
    frames: Frames,
}

impl ClockPro {
    fn with(m: usize, fixed: Option<usize>, retest: bool) -> Self {
        ClockPro {
            m,
            mc: fixed.unwrap_or(m / 100).clamp(1, m),
            adaptive: fixed.is_none(),
            retest,
            circle: vec![],
            status: BTreeMap::new(),
            hand_hot: None,
            frames: Frames::default(),
        }
    }

    fn count(&self, wanted: impl Fn(&Status) -> bool) -> usize {
        self.status.values().filter(|status| wanted(status)).count()
    }

    fn place(&self, page: u32) -> usize {
        self.circle.iter().position(|&other| other == page).unwrap()
    }

    fn after(&self, page: u32) -> u32 {
        self.circle[(self.place(page) + 1) % self.circle.len()]
    }

    fn first_from_hand_hot(&self, wanted: impl Fn(&Status) -> bool) -> u32 {
        let mut page = self.hand_hot.unwrap();
        while !wanted(&self.status[&page]) {
            page = self.after(page);
        }
        page
    }

    fn leave_circle(&mut self, page: u32) {
        let next = Some(self.after(page)).filter(|&next| next != page);
        if self.hand_hot == Some(page) {
            self.hand_hot = next;
        }
        take(&mut self.circle, page);
    }

    /// The list head is the place right behind HAND_hot.
    fn join_at_head(&mut self, page: u32) {
        let hand = *self.hand_hot.get_or_insert(page);
        let at = if hand == page { 0 } else { self.place(hand) };
        self.circle.insert(at, page);
    }

    fn change_mc(&mut self, by: i64) {
        if self.adaptive {
            self.mc = (self.mc as i64 + by).clamp(1, self.m as i64) as usize;
        }
    }

    fn end_test(&mut self, page: u32) {
        let status = self.status.get_mut(&page).unwrap();
        if !status.test {
            return;
        }
        status.test = false;
        let Status { resident, bit, .. } = *status;
        if !bit {
            self.change_mc(-1);
        }
        if !resident {
            self.status.remove(&page);
            self.leave_circle(page);
        }
    }

    fn free_frame(&mut self) {
        loop {
            let page = self.first_from_hand_hot(|status| !status.hot && status.resident);
            let status = self.status[&page];
            if !status.bit {
                self.frames.evict(page);
                if status.test {
                    self.status.get_mut(&page).unwrap().resident = false;
                    self.bound_ghosts();
                } else {
                    self.status.remove(&page);
                    self.leave_circle(page);
                }
                return;
            }
            self.leave_circle(page);
            self.join_at_head(page);
            if status.test {
                self.status.insert(page, Status { hot: true, resident: true, test: false, bit: false });
                self.change_mc(1);
                self.move_hand_hot();
            } else {
                self.status.insert(page, Status { bit: false, test: self.retest, ..status });
            }
        }
    }

    fn bound_ghosts(&mut self) {
        while self.count(|status| !status.resident) > self.m {
            let page = self.first_from_hand_hot(|status| status.test);
            self.end_test(page);
        }
    }

    fn move_hand_hot(&mut self) {
        let too_many = |model: &Self| model.count(|status| status.hot) > model.m - model.mc;
        if !too_many(self) {
            return;
        }
        while too_many(self) || (!self.status[&self.hand_hot.unwrap()].hot && self.count(|status| status.hot) > 0) {
            let page = self.hand_hot.unwrap();
            let status = self.status[&page];
            if !status.hot {
                self.end_test(page);
            } else {
                let hot = status.bit;
                self.status.insert(page, Status { hot, bit: false, ..status });
            }
            if self.status.contains_key(&page) {
                self.hand_hot = Some(self.after(page));
            }
        }
    }
}

impl Model for ClockPro {
    fn access(&mut self, request: Request) -> Outcome {
        let x = request.page.0;
        let tested = match self.status.get_mut(&x) {
            Some(status) if status.resident => {
                status.bit = true;
                return self.frames.hit(request);
            }
            known => known.is_some(),
        };
        if tested {
            self.status.remove(&x);
            self.leave_circle(x);
            self.change_mc(1);
        }
        if self.count(|status| status.resident) == self.m {
            self.free_frame();
        }
        self.join_at_head(x);
        self.status.insert(x, Status { hot: tested, resident: true, test: !tested, bit: false });
        if tested {
            self.move_hand_hot();
        }
        self.frames.load(request)
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

#[test]
fn clock_pro_does_what_its_model_does() {
    compare::<adaptive::ClockPro, _>(&[], |c| ClockPro::with(c, None, true));
    compare::<adaptive::ClockPro, _>(&["retest=no"], |c| ClockPro::with(c, None, false));
    compare::<adaptive::ClockPro, _>(&["cold=2p"], |c| ClockPro::with(c, Some(2), true));
    compare::<adaptive::ClockPro, _>(&["cold=50%", "retest=no"], |c| ClockPro::with(c, Some(c / 2), false));
    compare::<adaptive::ClockPro, _>(&["cold=100%"], |c| ClockPro::with(c, Some(c), true));
}
