//! Placement of a drive's pages: by the mechanical translation layer, or evenly where amplification is a curve.

use super::ftl::{Ftl, Work};
use super::geometry::Geometry;
use super::parameters::{Amplification, NandParameters, WafCurve};
use entresol_core::Random;

/// Translation of logical pages in one of the two modes of [`Amplification`].
#[derive(Clone, Debug)]
pub(super) enum Translation {
    Mech(Box<Ftl>),
    Curve(Curve),
}

/// The curve's stand-in for a map: a page stays where its number says, and every page counts as written. Each write
/// adds to a debt of cleaning, which is charged in whole moves and erasures.
#[derive(Clone, Debug)]
pub(super) struct Curve {
    measured: WafCurve,
    geometry: Geometry,
    per_program: u32,
    /// Moves and erasures still to be charged to each die.
    owed: Vec<(f64, f64)>,
    erases: u64,
}

impl Translation {
    pub(super) fn new(p: &NandParameters, seed: u64) -> Self {
        let geometry = p.geometry();
        match p.amplification {
            Amplification::Mech => Translation::Mech(Box::new(Ftl::new(geometry, p.cleaning, p.pace(), seed))),
            Amplification::Curve => Translation::Curve(Curve {
                measured: p.curve.expect("checked parameters of mode `curve` have one"),
                geometry,
                per_program: p.units_per_program(),
                owed: vec![(0.0, 0.0); geometry.dies as usize],
                erases: 0,
            }),
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

    /// Writes a page that came in an I/O of `bytes` to a die.
    pub(super) fn write(&mut self, page: u32, die: u32, bytes: u32) -> Work {
        match self {
            Translation::Mech(ftl) => ftl.write(page, die),
            Translation::Curve(curve) => {
                let factor = curve.measured.of_size(bytes);
                let (moves, erases) = &mut curve.owed[die as usize];
                *moves += factor - 1.0;
                *erases += factor / f64::from(curve.geometry.pages_per_block);
                let work = Work { moves: *moves as u32, erases: *erases as u32 };
                *moves -= f64::from(work.moves);
                *erases -= f64::from(work.erases);
                curve.erases += u64::from(work.erases);
                work
            }
        }
    }

    /// Prefetches for a page that will be written soon.
    pub(super) fn expect_write(&self, page: u32) {
        if let Translation::Mech(ftl) = self {
            ftl.expect_write(page);
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
