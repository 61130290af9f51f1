//! Flows that share links: max-min fair rates, in two classes.
//!
//! Between two events every flow has a constant rate, given by progressive filling. All flows grow together until a
//! resource is full or a flow reaches its own limit, which fixes the flows concerned; then the others continue. Flows
//! of the low class are filled last, with the remaining capacity.

/// A flow uses at most this many resources.
const USES: usize = 3;
/// Completions within this time, in seconds, are one event.
const SAME_INSTANT_S: f64 = 1e-6;

/// Resources of a flow; those beyond the first `None` are unused.
pub(super) type Uses = [Option<u16>; USES];

/// An event of a flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Passed<T> {
    /// All of its bytes have flowed.
    End(T),
    /// The bytes between two marks have flowed.
    Mark(T),
}

#[derive(Clone, Debug)]
struct Flow<T> {
    tag: T,
    left: f64,
    /// Bytes between marks, and bytes to the next one; infinite without marks.
    mark: f64,
    to_mark: f64,
    rate: f64,
    limit: f64,
    uses: Uses,
    low: bool,
}

/// Resources and the flows over them.
#[derive(Clone, Debug)]
pub(super) struct Fluid<T> {
    capacity: Vec<f64>,
    flows: Vec<Flow<T>>,
    changed: bool,
    // Scratch of `share`, kept between calls.
    free: Vec<f64>,
    count: Vec<u32>,
    of_resource: Vec<Vec<u32>>,
}

impl<T: Copy> Fluid<T> {
    pub fn new(capacity: Vec<f64>) -> Self {
        let resources = capacity.len();
        Fluid {
            capacity,
            flows: Vec::new(),
            changed: false,
            free: Vec::new(),
            count: vec![0; resources],
            of_resource: vec![Vec::new(); resources],
        }
    }

    /// Begins a flow of `bytes`, no faster than `limit`.
    pub fn add(&mut self, tag: T, bytes: u64, uses: Uses, limit: f64, low: bool) {
        self.add_marked(tag, bytes, f64::INFINITY, uses, limit, low);
    }

    /// Like [`add`](Self::add), with a mark after every `mark` bytes. A mark changes no rate.
    pub fn add_marked(&mut self, tag: T, bytes: u64, mark: f64, uses: Uses, limit: f64, low: bool) {
        self.flows.push(Flow { tag, left: bytes as f64, mark, to_mark: mark, rate: 0.0, limit, uses, low });
        self.changed = true;
    }

    /// Seconds until the first flow ends or passes a mark.
    pub fn next_end_s(&mut self) -> Option<f64> {
        if std::mem::take(&mut self.changed) {
            self.free.clone_from(&self.capacity);
            self.share(false);
            self.share(true);
        }
        let ends = self.flows.iter().filter(|flow| flow.rate > 0.0).map(|flow| flow.left.min(flow.to_mark) / flow.rate);
        ends.min_by(f64::total_cmp)
    }

    /// Advances time and returns the flows that have ended or passed a mark, in the order in which they began.
    pub fn advance(&mut self, seconds: f64) -> Vec<Passed<T>> {
        let mut passed = Vec::new();
        let mut changed = false;
        self.flows.retain_mut(|flow| {
            let instant = flow.rate * SAME_INSTANT_S;
            flow.left -= flow.rate * seconds;
            flow.to_mark -= flow.rate * seconds;
            if flow.left <= instant {
                passed.push(Passed::End(flow.tag));
                changed = true;
                return false;
            }
            if flow.to_mark <= instant {
                passed.push(Passed::Mark(flow.tag));
                flow.to_mark += flow.mark;
            }
            true
        });
        self.changed |= changed;
        passed
    }

    /// Computes the rates of the flows of one class.
    fn share(&mut self, low: bool) {
        self.of_resource.iter_mut().for_each(Vec::clear);
        self.count.fill(0);
        let mut limits: Vec<(f64, u32)> = Vec::new();
        for (at, flow) in self.flows.iter_mut().enumerate().filter(|(_, flow)| flow.low == low) {
            flow.rate = -1.0;
            for resource in flow.uses.iter().flatten() {
                self.of_resource[usize::from(*resource)].push(at as u32);
                self.count[usize::from(*resource)] += 1;
            }
            limits.push((flow.limit, at as u32));
        }
        limits.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut busy: Vec<u16> = (0..self.count.len() as u16).filter(|&r| self.count[usize::from(r)] > 0).collect();
        loop {
            busy.retain(|&resource| self.count[usize::from(resource)] > 0);
            let level = |r: u16| self.free[usize::from(r)].max(0.0) / f64::from(self.count[usize::from(r)]);
            let fullest = busy.iter().map(|&r| (level(r), r)).min_by(|a, b| a.0.total_cmp(&b.0));
            while limits.last().is_some_and(|&(_, at)| self.flows[at as usize].rate >= 0.0) {
                limits.pop();
            }
            match (fullest, limits.last()) {
                (_, None) => return,
                (Some((level, resource)), Some(&(limit, _))) if level < limit => {
                    let flows = std::mem::take(&mut self.of_resource[usize::from(resource)]);
                    flows.into_iter().for_each(|at| self.fix(at, level));
                }
                (_, Some(&(limit, at))) => self.fix(at, limit),
            }
        }
    }

    fn fix(&mut self, at: u32, rate: f64) {
        let flow = &mut self.flows[at as usize];
        if flow.rate >= 0.0 {
            return;
        }
        flow.rate = rate;
        for resource in flow.uses.iter().flatten() {
            self.free[usize::from(*resource)] -= rate;
            self.count[usize::from(*resource)] -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_core::Random;

    fn rates(fluid: &mut Fluid<u32>) -> Vec<f64> {
        fluid.next_end_s();
        fluid.flows.iter().map(|flow| flow.rate).collect()
    }

    #[test]
    fn shares_are_max_min_fair() {
        let mut fluid = Fluid::new(vec![10.0, 4.0]);
        fluid.add(0, 100, [Some(0), None, None], f64::INFINITY, false);
        fluid.add(1, 100, [Some(0), Some(1), None], f64::INFINITY, false);
        fluid.add(2, 100, [Some(1), None, None], 1.0, false);
        assert_eq!(rates(&mut fluid), [7.0, 3.0, 1.0]);
        fluid.add(3, 100, [Some(0), None, None], f64::INFINITY, true);
        assert_eq!(rates(&mut fluid)[3], 0.0, "nothing is left for the low class");
        assert_eq!(fluid.advance(100.0 / 7.0), [Passed::End(0)]);
        assert_eq!(rates(&mut fluid), [3.0, 1.0, 7.0]);
    }

    /// A hundred bytes with a mark at every forty pass two marks and end; a flow's last mark is its end.
    #[test]
    fn a_flow_passes_its_marks_and_ends_once() {
        for (bytes, expected) in [(100, vec![(4.0, true), (4.0, true), (2.0, false)]), (40, vec![(4.0, false)])] {
            let mut fluid = Fluid::new(vec![10.0]);
            fluid.add_marked(0, bytes, 40.0, [Some(0), None, None], f64::INFINITY, false);
            for (seconds, is_mark) in expected {
                assert_eq!(fluid.next_end_s(), Some(seconds));
                let passed = if is_mark { Passed::Mark(0) } else { Passed::End(0) };
                assert_eq!(fluid.advance(seconds), [passed]);
            }
            assert_eq!(fluid.next_end_s(), None);
        }
    }

    /// Max-min: a flow is at its limit, or one of its resources is full and no flow there is faster.
    #[test]
    fn every_flow_has_a_bottleneck() {
        let seed = 26;
        let mut random = Random::new(seed);
        for case in 0..500 {
            let capacity: Vec<f64> = (0..6).map(|_| 1.0 + random.next_f64() * 9.0).collect();
            let mut fluid = Fluid::new(capacity.clone());
            for tag in 0..1 + random.below(12) as u32 {
                let first = random.below(6) as u16;
                let second = (first + 1 + random.below(5) as u16) % 6;
                let limit = if random.chance(0.3) { 0.2 + random.next_f64() } else { f64::INFINITY };
                fluid.add(tag, 100, [Some(first), Some(second), None], limit, false);
            }
            let rates = rates(&mut fluid);
            let load = |r: u16| -> f64 {
                let on = fluid.flows.iter().zip(&rates).filter(|(flow, _)| flow.uses.contains(&Some(r)));
                on.map(|(_, rate)| rate).sum()
            };
            for (flow, &rate) in fluid.flows.iter().zip(&rates) {
                let is_bottleneck = |&r: &u16| {
                    let on = fluid.flows.iter().filter(|other| other.uses.contains(&Some(r)));
                    load(r) > capacity[usize::from(r)] - 1e-9 && on.map(|f| f.rate).all(|other| other <= rate + 1e-9)
                };
                let held = rate >= flow.limit - 1e-9 || flow.uses.iter().flatten().any(is_bottleneck);
                assert!(held, "seed {seed}, case {case}: flow {} at {rate}", flow.tag);
            }
            for (r, &capacity) in capacity.iter().enumerate() {
                assert!(load(r as u16) <= capacity + 1e-9, "seed {seed}, case {case}: resource {r}");
            }
        }
    }
}
