//! Plain models of 2Q, ARC and CAR: the papers' figures over vectors, compared event by event.

use crate::plain::{Frames, Model, compare, take};
use entresol_core::{Outcome, Request};
use entresol_policy::adaptive;

/// 2Q; oldest entry first in every queue.
struct TwoQ {
    capacity: usize,
    kin: usize,
    kout: usize,
    a1in: Vec<u32>,
    am: Vec<u32>,
    a1out: Vec<u32>,
    frames: Frames,
}

impl TwoQ {
    fn with(capacity: usize, kin: usize, kout: usize) -> Self {
        TwoQ { capacity, kin, kout, a1in: vec![], am: vec![], a1out: vec![], frames: Frames::default() }
    }

    fn reclaim_for(&mut self) {
        if self.a1in.len() + self.am.len() < self.capacity {
            return;
        }
        if self.a1in.len() > self.kin || self.am.is_empty() {
            let y = self.a1in.remove(0);
            self.frames.evict(y);
            self.a1out.push(y);
            if self.a1out.len() > self.kout {
                self.a1out.remove(0);
            }
        } else {
            let y = self.am.remove(0);
            self.frames.evict(y);
        }
    }
}

impl Model for TwoQ {
    fn access(&mut self, request: Request) -> Outcome {
        let x = request.page.0;
        if take(&mut self.am, x) {
            self.am.push(x);
            return self.frames.hit(request);
        }
        if self.a1in.contains(&x) {
            return self.frames.hit(request);
        }
        let remembered = self.a1out.contains(&x);
        self.reclaim_for();
        take(&mut self.a1out, x);
        if remembered {
            self.am.push(x)
        } else {
            self.a1in.push(x)
        }
        self.frames.load(request)
    }

    fn frames(&mut self) -> &mut Frames {
        &mut self.frames
    }
}

/// ARC; least recent first in every list.
struct Arc {
    c: usize,
    p: f64,
    whole: bool,
    t1: Vec<u32>,
    t2: Vec<u32>,
    b1: Vec<u32>,
    b2: Vec<u32>,
    frames: Frames,
}

impl Arc {
    fn new(c: usize) -> Self {
        let frames = Frames::default();
        Arc { c, p: 0.0, whole: false, t1: vec![], t2: vec![], b1: vec![], b2: vec![], frames }
    }

    fn quotient(&self, a: usize, b: usize) -> f64 {
        if self.whole { a.div_euclid(b) as f64 } else { a as f64 / b as f64 }
    }

    fn replace(&mut self, in_b2: bool) {
        let t1 = self.t1.len() as f64;
        if !self.t1.is_empty() && (t1 > self.p || (in_b2 && t1 == self.p)) || self.t2.is_empty() {
            let page = self.t1.remove(0);
            self.frames.evict(page);
            self.b1.push(page);
        } else {
            let page = self.t2.remove(0);
            self.frames.evict(page);
            self.b2.push(page);
        }
    }

    fn case_four(&mut self) {
        let l1 = self.t1.len() + self.b1.len();
        let all = l1 + self.t2.len() + self.b2.len();
        if l1 == self.c {
            if self.t1.len() < self.c {
                self.b1.remove(0);
                self.replace(false);
            } else {
                let page = self.t1.remove(0);
                self.frames.evict(page);
            }
        } else if all >= self.c {
            if all == 2 * self.c {
                self.b2.remove(0);
            }
            self.replace(false);
        }
    }
}

impl Model for Arc {
    fn access(&mut self, request: Request) -> Outcome {
        let x = request.page.0;
        if take(&mut self.t1, x) || take(&mut self.t2, x) {
            self.t2.push(x);
            return self.frames.hit(request);
        }
        let (b1, b2) = (self.b1.len(), self.b2.len());
        if self.b1.contains(&x) {
            let delta = if b1 >= b2 { 1.0 } else { self.quotient(b2, b1) };
            self.p = f64::min(self.c as f64, self.p + delta);
            self.replace(false);
            take(&mut self.b1, x);
            self.t2.push(x);
        } else if self.b2.contains(&x) {
            let delta = if b2 >= b1 { 1.0 } else { self.quotient(b1, b2) };
            self.p = f64::max(0.0, self.p - delta);
            self.replace(true);
            take(&mut self.b2, x);
            self.t2.push(x);
        } else {
            self.case_four();
            self.t1.push(x);
        }
        self.frames.load(request)
    }

    fn frames(&mut self) -> &mut Frames {
        &mut self.frames
    }
}

/// CAR; the head of each clock first.
struct Car {
    c: usize,
    p: f64,
    t1: Vec<(u32, bool)>,
    t2: Vec<(u32, bool)>,
    b1: Vec<u32>,
    b2: Vec<u32>,
    frames: Frames,
}

impl Car {
    fn new(c: usize) -> Self {
        Car { c, p: 0.0, t1: vec![], t2: vec![], b1: vec![], b2: vec![], frames: Frames::default() }
    }

    fn replace(&mut self) {
        loop {
            let from_t1 = self.t1.len() as f64 >= f64::max(1.0, self.p);
            let (page, referenced) = if from_t1 { self.t1.remove(0) } else { self.t2.remove(0) };
            if referenced {
                self.t2.push((page, false));
                continue;
            }
            self.frames.evict(page);
            if from_t1 {
                self.b1.push(page)
            } else {
                self.b2.push(page)
            }
            return;
        }
    }
}

impl Model for Car {
    fn access(&mut self, request: Request) -> Outcome {
        let x = request.page.0;
        if let Some(entry) = self.t1.iter_mut().chain(&mut self.t2).find(|entry| entry.0 == x) {
            entry.1 = true;
            return self.frames.hit(request);
        }
        let (in_b1, in_b2) = (self.b1.contains(&x), self.b2.contains(&x));
        if self.t1.len() + self.t2.len() == self.c {
            self.replace();
            if !in_b1 && !in_b2 {
                if self.t1.len() + self.b1.len() == self.c {
                    self.b1.remove(0);
                } else if self.t1.len() + self.t2.len() + self.b1.len() + self.b2.len() == 2 * self.c {
                    self.b2.remove(0);
                }
            }
        }
        let (b1, b2) = (self.b1.len() as f64, self.b2.len() as f64);
        if in_b1 {
            self.p = f64::min(self.p + f64::max(1.0, b2 / b1), self.c as f64);
            take(&mut self.b1, x);
            self.t2.push((x, false));
        } else if in_b2 {
            self.p = f64::max(self.p - f64::max(1.0, b1 / b2), 0.0);
            take(&mut self.b2, x);
            self.t2.push((x, false));
        } else {
            self.t1.push((x, false));
        }
        self.frames.load(request)
    }

    fn frames(&mut self) -> &mut Frames {
        &mut self.frames
    }
}

#[test]
fn two_q_does_what_its_model_does() {
    compare::<adaptive::TwoQ, _>(&[], |c| TwoQ::with(c, c / 4, c / 2));
    compare::<adaptive::TwoQ, _>(&["kin=50%", "kout=200%"], |c| TwoQ::with(c, c / 2, 2 * c));
    compare::<adaptive::TwoQ, _>(&["kin=3p", "kout=0p"], |c| TwoQ::with(c, 3, 0));
}

#[test]
fn arc_does_what_its_model_does() {
    compare::<adaptive::Arc, _>(&[], Arc::new);
    compare::<adaptive::Arc, _>(&["step=whole"], |c| Arc { whole: true, ..Arc::new(c) });
}

#[test]
fn car_does_what_its_model_does() {
    compare::<adaptive::Car, _>(&[], Car::new);
}
