//! Placement of a drive's pages: by the mechanical translation layer, or evenly where amplification is a curve.

use super::ftl::{Ftl, Work};
use super::geometry::{Geometry, UNIT_BYTES};
use super::parameters::{Amplification, NandParameters, WafCurve};
use entresol_core::Random;
use std::ops::Range;

/// Translation of logical pages in one of the two modes of [`Amplification`].
#[derive(Clone, Debug)]
pub(super) enum Translation {
    Mech(Box<Ftl>),
    Curve(Curve),
}

/// The curve's stand-in for a map: a page stays where its number says, and every page counts as written. Each run of
/// neighbouring pages adds to a debt of cleaning by the run's length, whether it came in one write or in many. All dies
/// pay the debt in equal parts, in whole moves and erasures.
#[derive(Clone, Debug)]
pub(super) struct Curve {
    measured: WafCurve,
    geometry: Geometry,
    per_program: u32,
    /// The pages written last, each the neighbour of the one before it.
    run: Range<u32>,
    /// Pages of the run that are not in the debt yet: all of them while the run is shorter than the larger write of
    /// the curve, since a page's share depends on how long the run becomes.
    pending: u32,
    /// Moves and erasures owed by each die since the beginning.
    owed: (f64, f64),
    /// Those of them that each die was charged.
    charged: Vec<(u64, u64)>,
    erases: u64,
}

impl Curve {
    fn new(measured: WafCurve, geometry: Geometry, per_program: u32) -> Self {
        let charged = vec![(0, 0); geometry.dies as usize];
        Curve { measured, geometry, per_program, run: 0..0, pending: 0, owed: (0.0, 0.0), charged, erases: 0 }
    }

    /// Adds a page to the run, or ends the run and begins another.
    fn expect_write(&mut self, page: u32) {
        if page != self.run.end {
            self.settle();
            self.run = page..page;
        }
        self.run.end += 1;
        self.pending += 1;
        if self.run_bytes() >= u64::from(self.measured.large_bytes) {
            self.settle();
        }
    }

    fn run_bytes(&self) -> u64 {
        self.run.len() as u64 * UNIT_BYTES
    }

    /// Adds the run's pending pages to the debt.
    fn settle(&mut self) {
        let factor = self.measured.of_size(self.run_bytes());
        let each = f64::from(std::mem::take(&mut self.pending)) / f64::from(self.geometry.dies);
        self.owed.0 += (factor - 1.0) * each;
        self.owed.1 += factor * each / f64::from(self.geometry.pages_per_block);
    }

    /// Work of a die that writes: what it owes.
    fn work(&mut self, die: u32) -> Work {
        let owed = (self.owed.0 as u64, self.owed.1 as u64);
        let (moves, erases) = std::mem::replace(&mut self.charged[die as usize], owed);
        let work = Work { moves: (owed.0 - moves) as u32, erases: (owed.1 - erases) as u32 };
        self.erases += u64::from(work.erases);
        work
    }
}

impl Translation {
    pub(super) fn new(p: &NandParameters, seed: u64) -> Self {
        let geometry = p.geometry();
        match p.amplification {
            Amplification::Mech => Translation::Mech(Box::new(Ftl::new(geometry, p.cleaning, p.pace(), seed))),
            Amplification::Curve => {
                let measured = p.curve.expect("checked parameters of mode `curve` have one");
                Translation::Curve(Curve::new(measured, geometry, p.units_per_program()))
            }
        }
    }

    /// The die and the number of the physical page of a logical page, or `None` if it was never written.
    pub(super) fn locate(&self, page: u32) -> Option<(u32, u32)> {
        match self {
            Translation::Mech(ftl) => ftl.locate(page).map(|physical| (ftl.die_of(physical), physical)),
            Translation::Curve(curve) => Some((page / curve.per_program % curve.geometry.dies, page)),
        }
    }

    pub(super) fn has_room(&self, die: u32) -> bool {
        match self {
            Translation::Mech(ftl) => ftl.has_room(die),
            Translation::Curve(_) => true,
        }
    }

    /// Writes a page to a die.
    pub(super) fn write(&mut self, page: u32, die: u32) -> Work {
        match self {
            Translation::Mech(ftl) => ftl.write(page, die),
            Translation::Curve(curve) => curve.work(die),
        }
    }

    /// Notes a page that will be written soon, in the order in which the host wrote.
    pub(super) fn expect_write(&mut self, page: u32) {
        match self {
            Translation::Mech(ftl) => ftl.expect_write(page),
            Translation::Curve(curve) => curve.expect_write(page),
        }
    }

    pub(super) fn discard(&mut self, page: u32) {
        if let Translation::Mech(ftl) = self {
            ftl.discard(page);
        }
    }

    pub(super) fn erases(&self) -> u64 {
        match self {
            Translation::Mech(ftl) => ftl.erases(),
            Translation::Curve(curve) => curve.erases,
        }
    }

    /// Writes every page in order, then `overwrites` times as many at random, outside time.
    pub(super) fn precondition(&mut self, overwrites: f64, layout: Layout, seed: u64) {
        let Translation::Mech(ftl) = self else { return };
        let Geometry { logical_pages, dies, .. } = *ftl.geometry();
        let mut random = Random::new(seed);
        let count = u64::from(logical_pages) + (f64::from(logical_pages) * overwrites) as u64;
        let mut die = 0;
        let mut group = Vec::with_capacity(layout.group());
        for n in 0..count {
            group.push(if n < u64::from(logical_pages) { n as u32 } else { random.below(logical_pages.into()) as u32 });
            if group.len() == layout.group() || n + 1 == count {
                for program in layout.programs(&group) {
                    die = next_die(die, dies, |die| ftl.has_room(die));
                    program.for_each(|&page| {
                        ftl.write(page, die);
                    });
                }
                group.clear();
            }
        }
    }
}

/// Distribution of consecutive writes over programs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) per_program: usize,
    /// Consecutive pages that go to one program; divides `per_program`.
    pub(super) stripe: usize,
}

impl Layout {
    /// Programs filled side by side.
    fn width(self) -> usize {
        self.per_program / self.stripe
    }

    /// Pages that fill them.
    pub(super) fn group(self) -> usize {
        self.per_program * self.width()
    }

    /// The pages of each program that a group, full or not, makes.
    pub(super) fn programs<T>(self, group: &[T]) -> impl Iterator<Item = impl Iterator<Item = &T>> {
        let width = self.width().min(group.len().div_ceil(self.stripe));
        (0..width).map(move |lane| group.chunks(self.stripe).skip(lane).step_by(self.width()).flatten())
    }
}

/// The next die in turn that may take a page.
///
/// # Panics
/// When no die can take a page.
pub(super) fn next_die(die: u32, dies: u32, has_room: impl Fn(u32) -> bool) -> u32 {
    (1..=dies).map(|step| (die + step) % dies).find(|&die| has_room(die)).expect("physical pages exceed logical ones")
}
