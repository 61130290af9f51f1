//! The tables and indexes to keep on the fast device for good: 000, section 2.7.1, as one choice for a whole trace.
//!
//! A placed object is read from below once, from end to end, and written to the fast device. Every access to it is
//! served there, and its written pages are written below once at the end; in another mode than write-back each write
//! goes below at once instead. The saving, in accesses or in the time of two
//! devices, is the object's value, and its length is its size: a knapsack. A table that is scanned once is worth
//! nothing by that account. One that is read at random once is worth the difference between the two kinds of reading
//! (000, section 2.7.2: Q10 and Q16 against Q3).

use crate::cost::PageCosts;
use crate::knapsack::{Chosen, Thing, choose};
use entresol_core::Op;
use entresol_sim::{Mode, Row};
use entresol_trace::{ObjectKind, Trace};

/// Uses of an object in a trace.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct ObjectUse {
    /// Name in the trace.
    pub name: String,
    /// Length in pages, as far as the trace shows it.
    pub pages: u64,
    /// Page requests.
    pub requests: u64,
    /// Distinct pages accessed.
    pub accessed_pages: u64,
    /// Distinct pages written.
    pub written_pages: u64,
    /// Reads that continue no run, partial writes included, because they read first.
    pub random_reads: u64,
    /// Reads that continue a run.
    pub sequential_reads: u64,
    /// Writes.
    pub writes: u64,
    /// True if the object cannot be placed: a log, or a file that exists as long as a query.
    pub passing: bool,
}

impl ObjectUse {
    /// Pages read and written in place: a partial write is one of each.
    pub fn accesses(&self) -> u64 {
        self.random_reads + self.sequential_reads + self.writes
    }

    /// Cost of all accesses to the object on a device.
    fn cost(&self, costs: &PageCosts) -> f64 {
        self.random_reads as f64 * costs.random_read
            + self.sequential_reads as f64 * costs.sequential_read
            + self.writes as f64 * costs.write
    }

    /// Saving from placing the object: its accesses go to the fast device instead of the backing store, less the copies
    /// there and back. In another mode than write-back its writes go to both, and no copy goes back.
    pub fn saved(&self, below: &PageCosts, fast: &PageCosts, mode: Mode) -> f64 {
        let there = self.pages as f64 * (below.sequential_read + fast.write);
        let writes_below = match mode {
            Mode::WriteBack => self.written_pages as f64 * (fast.sequential_read + below.write),
            Mode::WriteThrough | Mode::WriteAround => self.writes as f64 * below.write,
        };
        self.cost(below) - self.cost(fast) - there - writes_below
    }

    /// Pages written below if the object is placed.
    fn written_below(&self, mode: Mode) -> u64 {
        if mode.is_clean() { self.writes } else { self.written_pages }
    }
}

/// Counts the uses of each object of a trace, in the order of the trace's objects.
pub fn object_uses(trace: &Trace) -> Vec<ObjectUse> {
    let objects = trace.objects.iter();
    let mut uses: Vec<ObjectUse> = objects
        .map(|object| ObjectUse {
            name: object.name.clone(),
            pages: object.pages,
            passing: object.kind != ObjectKind::Data,
            ..ObjectUse::default()
        })
        .collect();
    let mut written = vec![false; trace.footprint()];
    for at in 0..trace.len() {
        let request = trace.request(at);
        let entry = &mut uses[trace.page_object[request.page.index()] as usize];
        entry.requests += 1;
        let fetched = u64::from(request.op != Op::Write);
        if request.sequential {
            entry.sequential_reads += fetched;
        } else {
            entry.random_reads += fetched;
        }
        if request.op.is_write() {
            entry.writes += 1;
            entry.written_pages += u64::from(!std::mem::replace(&mut written[request.page.index()], true));
        }
    }
    for &object in trace.page_object.iter() {
        uses[object as usize].accessed_pages += 1;
    }
    uses
}

/// A choice of objects.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Placement {
    /// Saving from placing each object.
    pub saved: Vec<f64>,
    /// Placed objects, by index.
    pub placed: Vec<bool>,
    /// Pages of the placed objects.
    pub pages: u64,
    /// Saving of all placed objects together.
    pub saved_together: f64,
    /// Upper bound on the saving of any choice.
    pub bound: f64,
    /// True if no choice saves more.
    pub exact: bool,
    /// Page requests to placed objects.
    pub requests_fast: u64,
    /// All page requests.
    pub requests: u64,
    /// Pages read from or written below: to and from placed objects, and for the accesses to all others.
    pub pages_below: u64,
    /// Pages of these for accesses to objects that are not placed.
    pub accesses_below: u64,
    /// Pages of these for writes to placed objects that go to both devices; absent where there are none.
    #[serde(skip_serializing_if = "is_zero")]
    pub written_through: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Chooses the objects to place on a fast device of `budget_pages` pages, in a mode of writing.
pub fn place(uses: &[ObjectUse], budget_pages: u64, below: &PageCosts, fast: &PageCosts, mode: Mode) -> Placement {
    let saved: Vec<f64> = uses.iter().map(|object| object.saved(below, fast, mode)).collect();
    let thing = |(object, &saved): (&ObjectUse, &f64)| {
        let value = if object.passing || object.pages == 0 { 0.0 } else { saved };
        Thing { size: object.pages, value }
    };
    let things: Vec<Thing> = uses.iter().zip(&saved).map(thing).collect();
    let Chosen { things: chosen, size, value, bound, exact } = choose(&things, budget_pages);
    let mut placed = vec![false; uses.len()];
    chosen.iter().for_each(|&object| placed[object] = true);
    let both = || uses.iter().zip(&placed);
    let not_placed = both().filter(|(_, placed)| !**placed).map(|(object, _)| object.accesses()).sum();
    let moved = |(object, &placed): (&ObjectUse, &bool)| {
        if placed { object.pages + object.written_below(mode) } else { object.accesses() }
    };
    let of_placed = |count: fn(&ObjectUse) -> u64| -> u64 {
        both().filter(|(_, placed)| **placed).map(|(object, _)| count(object)).sum()
    };
    Placement {
        pages_below: both().map(moved).sum(),
        accesses_below: not_placed,
        written_through: if mode.is_clean() { of_placed(|object| object.writes) } else { 0 },
        requests_fast: of_placed(|object| object.requests),
        requests: uses.iter().map(|object| object.requests).sum(),
        saved,
        placed,
        pages: size,
        saved_together: value,
        bound,
        exact,
    }
}

/// Pages that a simulated cache reads and writes below, dirty ones at the end included; to be compared with
/// [`Placement::pages_below`].
pub fn pages_below(row: &Row) -> u64 {
    row.fetches + row.written_below() + row.dirty_at_end
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_core::{Random, Size};
    use entresol_policy::{Options, catalogue};
    use entresol_sim::{Addresses, CellOptions, LayerSpec, PolicySpec, run_cell};
    use entresol_trace::{GenerateSpec, generate};
    use std::collections::BTreeSet;

    fn trace(spec: &str) -> Trace {
        generate(&GenerateSpec::parse(spec, 4096).expect("a specification"))
    }

    /// Replays a trace on two devices: pages read and written below with these objects placed.
    fn replayed(trace: &Trace, placed: &[bool], mode: Mode) -> u64 {
        let mut below = 0;
        let mut dirty = BTreeSet::new();
        for (object, _) in placed.iter().enumerate().filter(|(_, placed)| **placed) {
            below += trace.objects[object].pages;
        }
        for at in 0..trace.len() {
            let request = trace.request(at);
            if !placed[trace.address(request.page).object.index()] {
                below += match request.op {
                    Op::Read | Op::Write => 1,
                    Op::Update => 2,
                };
            } else if request.op.is_write() && mode == Mode::WriteBack {
                dirty.insert(request.page);
            } else if request.op.is_write() {
                below += 1;
            }
        }
        below + dirty.len() as u64
    }

    const TRACES: [&str; 3] =
        ["olap:n=20k:pages=4k:seed=5", "tpcc:n=20k:warehouses=1:seed=3", "olap:n=9k:pages=2k:seed=9"];

    #[test]
    fn no_choice_reads_and_writes_less_below() {
        let mut random = Random::new(7);
        for (spec, mode) in TRACES.into_iter().flat_map(|spec| [(spec, Mode::WriteBack), (spec, Mode::WriteThrough)]) {
            let trace = trace(spec);
            let uses = object_uses(&trace);
            assert_eq!(uses.iter().map(|object| object.requests).sum::<u64>(), trace.len() as u64);
            for percent in [0, 5, 20, 50, 100] {
                let budget = trace.objects.iter().map(|object| object.pages).sum::<u64>() * percent / 100;
                let placement = place(&uses, budget, &PageCosts::ONE, &PageCosts::NOTHING, mode);
                let mine = replayed(&trace, &placement.placed, mode);
                assert_eq!((mine, placement.exact), (placement.pages_below, true), "{spec} {mode:?} {percent} %");
                let none = replayed(&trace, &vec![false; uses.len()], mode);
                assert_eq!(none - mine, placement.saved_together as u64, "{spec} {mode:?} {percent} %");
                // Every choice if there are few objects, else many random ones.
                let every = uses.len() <= 12;
                let tries = if every { 1 << uses.len() } else { 4000 };
                for choice in 0..tries {
                    let set = if every { choice } else { random.below(1 << uses.len().min(60)) };
                    let placed: Vec<bool> = (0..uses.len()).map(|object| set >> object & 1 == 1).collect();
                    let takes: u64 =
                        uses.iter().zip(&placed).filter(|(_, p)| **p).map(|(object, _)| object.pages).sum();
                    if takes <= budget {
                        let theirs = place_these(&uses, &placed, mode);
                        assert!(theirs >= mine, "{spec} {mode:?} {percent} %: {placed:?} {theirs}, chosen {mine}");
                    }
                }
            }
        }
    }

    /// As [`replayed`], from the sums of each object.
    fn place_these(uses: &[ObjectUse], placed: &[bool], mode: Mode) -> u64 {
        let written = |object: &ObjectUse| if mode == Mode::WriteBack { object.written_pages } else { object.writes };
        let pages = |(object, &placed): (&ObjectUse, &bool)| {
            if placed { object.pages + written(object) } else { object.accesses() }
        };
        uses.iter().zip(placed).map(pages).sum()
    }

    #[test]
    fn what_passes_by_is_not_placed_and_a_scan_is_not_worth_its_way() {
        let object = |name: &str, random_reads, sequential_reads, passing| ObjectUse {
            name: name.into(),
            pages: 100,
            requests: random_reads + sequential_reads,
            accessed_pages: 100,
            random_reads,
            sequential_reads,
            passing,
            ..ObjectUse::default()
        };
        let uses =
            [object("looked up", 100, 0, false), object("scanned", 0, 100, false), object("spilled", 900, 0, true)];
        let by_accesses = place(&uses, 1000, &PageCosts::ONE, &PageCosts::NOTHING, Mode::WriteBack);
        assert_eq!(by_accesses.placed, [false; 3], "each page is read once in any case");
        let disk = PageCosts { random_read: 5000.0, sequential_read: 80.0, write: 5000.0 };
        let flash = PageCosts { random_read: 90.0, sequential_read: 20.0, write: 30.0 };
        let by_time = place(&uses, 1000, &disk, &flash, Mode::WriteBack);
        assert_eq!(by_time.placed, [true, false, false]);
        assert_eq!(by_time.saved_together, 100.0 * (5000.0 - 90.0) - 100.0 * (80.0 + 30.0));
    }

    #[test]
    fn a_simulated_cache_without_room_reads_and_writes_what_no_placement_does() {
        for spec in TRACES {
            let trace = trace(spec);
            let addresses = Addresses::new(&trace);
            let run = |name: &str, pages: u64| {
                let info = catalogue::info(name).expect("a policy");
                let policy = PolicySpec { info, options: Options::defaults(info) };
                let layer = LayerSpec { policy, sizes: vec![Size::Pages(pages)] };
                run_cell(&addresses, &[layer], String::new(), &CellOptions::default()).expect("a row")
            };
            let none = place(&object_uses(&trace), 0, &PageCosts::ONE, &PageCosts::NOTHING, Mode::WriteBack);
            // The smallest object is larger than a page, so nothing is ever placed.
            let row = run("table-placement", 1);
            let placed: u64 = row.tiers.iter().map(|tier| tier.fetched).sum();
            assert_eq!((pages_below(&row), placed), (none.pages_below, 0), "{spec}");
            // With room for everything each page goes up once and, if it was written, down once.
            let all = run("lru", trace.footprint() as u64);
            let uses = object_uses(&trace);
            let (reads, writes): (u64, u64) = (all.fetches, uses.iter().map(|object| object.written_pages).sum());
            assert_eq!(pages_below(&all), reads + writes, "{spec}");
        }
    }
}
