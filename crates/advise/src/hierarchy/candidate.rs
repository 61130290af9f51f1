//! Candidates: the combinations of devices within a budget.

use super::AdviceError;
use super::catalogue::{Catalogue, Class, Item, Piece};
use crate::money::Money;
use entresol_core::Size;
use entresol_policy::Info;
use entresol_sim::{Addresses, Cell, LayerSpec, PolicySpec, parse_policies};
use serde::Serialize;
use std::fmt;

/// Scale of a trace: the real data that it stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Pages that the trace touches.
    pub footprint_pages: u64,
    /// Pages of the lowest tier: all objects at the length that the trace shows.
    pub stored_pages: u64,
    /// Bytes of the real data for each byte of the trace; simulated tiers are smaller by this factor.
    pub factor: f64,
    /// True if the trace is what a database's buffer pool requests. Its memory is there already, so a hierarchy has
    /// none of its own: a cache is flash above a disk, or there is no cache.
    pub below_pool: bool,
}

impl Scale {
    /// The scale of a trace that stands for `footprint_bytes` touched bytes, or for itself.
    pub fn new(addresses: &Addresses, footprint_bytes: Option<f64>) -> Self {
        let trace = addresses.trace;
        let footprint_pages = trace.footprint() as u64;
        let own = footprint_pages as f64 * f64::from(trace.page_bytes);
        Scale {
            page_bytes: trace.page_bytes,
            footprint_pages,
            stored_pages: trace.objects.iter().map(|object| object.pages).sum(),
            factor: footprint_bytes.map_or(1.0, |bytes| bytes / own.max(1.0)),
            below_pool: false,
        }
    }

    /// Pages of the trace that a piece of a device holds.
    pub(super) fn pages(&self, piece: &Piece) -> u64 {
        (piece.bytes() / self.factor / f64::from(self.page_bytes)) as u64
    }

    /// Bytes of real data of this many pages, in units of 10^9.
    pub fn gb(&self, pages: u64) -> f64 {
        pages as f64 * f64::from(self.page_bytes) * self.factor / 1e9
    }
}

/// A device of a hierarchy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    /// Name in the catalogue.
    pub name: String,
    /// Level of the hierarchy that the device serves.
    pub class: Class,
    /// Size that was bought, with its price.
    #[serde(flatten)]
    pub piece: Piece,
    /// Pages in the simulation.
    pub pages: u64,
    /// Index in the catalogue.
    #[serde(skip)]
    pub item: usize,
}

/// A hierarchy that can be bought.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Candidate {
    /// Devices, fastest first; the last one holds all data.
    pub parts: Vec<Part>,
    /// Price of all parts together.
    pub dollars: Money,
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, part) in self.parts.iter().enumerate() {
            let joint = match at {
                0 => "",
                _ if at + 1 == self.parts.len() => " over ",
                _ => " + ",
            };
            write!(f, "{joint}{} GB {}", part.piece.gb, part.name)?;
        }
        Ok(())
    }
}

/// Name of a policy that holds no page unless a query is announced.
const NO_CACHE: &str = "table-placement";

/// Policies that manage the tiers.
#[derive(Clone, Debug)]
pub struct Policies {
    /// DRAM without NVM.
    pub dram: PolicySpec,
    /// NVM, with DRAM above it or without.
    pub nvm: PolicySpec,
    /// Flash above a disk, with DRAM above the flash if there is no NVM. Of a policy of one tier the DRAM is an LRU pool.
    pub flash: PolicySpec,
    /// Policy for a hierarchy without a cache: every request goes to the lowest tier. The policy places whole tables
    /// when a query is announced, and has no frames for any.
    none: PolicySpec,
}

impl Policies {
    /// True if a policy looks for neighbours, so that a sample has to consist of groups of them.
    pub(super) fn look_for_neighbours(&self) -> bool {
        // Without a cache the policy places nothing.
        [&self.dram, &self.nvm, &self.flash].iter().any(|policy| policy.info.neighbours)
    }

    /// Parses policies with options, as `simulate --policy` takes them.
    ///
    /// # Errors
    /// When a name or option is unknown, or the policy manages other tiers.
    pub fn parse(dram: &str, nvm: &str, flash: &str) -> Result<Self, String> {
        let is_of = |info: &Info, family: &str| info.tiers.len() == 2 && info.family == family;
        let one = |text: &str, fits: &dyn Fn(&Info) -> bool, wanted: &str| -> Result<PolicySpec, String> {
            let policies = parse_policies(text).map_err(|error| error.to_string())?;
            let [policy] = <[PolicySpec; 1]>::try_from(policies).map_err(|_| format!("'{text}' is not one policy"))?;
            let info = policy.info;
            if !fits(info) {
                return Err(format!(
                    "policy '{}' manages {}: {wanted} is expected",
                    info.name,
                    info.tiers.join(" and ")
                ));
            }
            // The bound does not cover pages fetched unasked, and a device in use cannot know the future.
            if info.future || info.name == NO_CACHE {
                return Err(format!("policy '{}' is none that runs by itself", info.name));
            }
            Ok(policy)
        };
        Ok(Policies {
            dram: one(dram, &|info| info.tiers.len() == 1, "one of a single tier")?,
            nvm: one(nvm, &|info| is_of(info, "migration"), "one of DRAM and NVM, as multi-tier is,")?,
            flash: one(
                flash,
                &|info| info.tiers.len() == 1 || is_of(info, "extension"),
                "one of a single tier, or of DRAM and flash, as face-gsc is,",
            )?,
            none: parse_policies(NO_CACHE).map_err(|error| error.to_string())?.remove(0),
        })
    }
}

impl Candidate {
    fn of(catalogue: &Catalogue, scale: &Scale, chosen: &[(usize, Piece)]) -> Self {
        let part = |&(item, piece): &(usize, Piece)| {
            let Item { name, class, .. } = &catalogue.items[item];
            Part { name: name.clone(), class: *class, piece, pages: scale.pages(&piece), item }
        };
        Candidate {
            parts: chosen.iter().map(part).collect(),
            dollars: chosen.iter().map(|(_, piece)| piece.dollars).sum(),
        }
    }

    /// The candidate for a sample of the pages: tiers above the lowest are smaller by `rate`.
    pub(super) fn sampled(&self, rate: f64) -> Candidate {
        let mut smaller = self.clone();
        let caches = self.parts.len() - 1;
        for part in &mut smaller.parts[..caches] {
            part.pages = ((part.pages as f64 * rate).round() as u64).max(1);
        }
        smaller
    }

    /// Tiers that hold a part of the data.
    pub fn caches(&self) -> &[Part] {
        &self.parts[..self.parts.len() - 1]
    }

    /// Flash with neither DRAM nor NVM above it: a cache below a database's own pool.
    pub fn bare_flash(&self) -> Option<&Part> {
        self.caches().first().filter(|part| part.class == Class::Ssd)
    }

    /// Tier that holds all data.
    pub fn lowest(&self) -> &Part {
        self.parts.last().expect("a hierarchy has a lowest tier")
    }

    /// Returns the cell that the simulator runs, and for each of its tiers the index of the hierarchy's part. The index
    /// is none for a tier that no part provides. The policies of NVM and of flash have a tier for DRAM, even where the
    /// hierarchy has no DRAM for it.
    pub(super) fn cell(
        &self,
        policies: &Policies,
        addresses: &Addresses,
    ) -> Result<(Cell, Vec<Option<usize>>), String> {
        let place = |class| self.caches().iter().position(|part| part.class == class);
        let size = |place: Option<usize>| Size::Pages(place.map_or(0, |at| self.parts[at].pages));
        let (dram, nvm, flash) = (place(Class::Dram), place(Class::Nvm), place(Class::Ssd));
        if self.caches().is_empty() {
            let layer = LayerSpec { policy: policies.none.clone(), sizes: vec![Size::Pages(1)] };
            let cell = Cell::stack(&[layer], self.to_string(), addresses);
            return Ok((cell.map_err(|error| error.to_string())?, vec![None]));
        }
        let layers: Vec<(&PolicySpec, Vec<Option<usize>>)> = match (nvm, flash) {
            (None, None) => vec![(&policies.dram, vec![dram])],
            (None, Some(_)) => vec![(&policies.flash, vec![dram, flash])],
            (Some(_), None) => vec![(&policies.nvm, vec![dram, nvm])],
            (Some(_), Some(_)) => vec![(&policies.nvm, vec![dram, nvm]), (&policies.flash, vec![None, flash])],
        };
        let layer = |(policy, places): &(&PolicySpec, Vec<Option<usize>>)| LayerSpec {
            policy: (*policy).clone(),
            sizes: places.iter().map(|&place| size(place)).collect(),
        };
        let cell = Cell::stack(&layers.iter().map(layer).collect::<Vec<_>>(), self.to_string(), addresses);
        let places = layers.into_iter().flat_map(|(_, places)| places).collect();
        Ok((cell.map_err(|error| error.to_string())?, places))
    }
}

/// Combinations within the budget, and the number of others.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidates {
    /// Sorted by price, then by name.
    pub list: Vec<Candidate>,
    /// Combinations beyond the budget.
    pub beyond_budget: usize,
}

/// Tiers above the lowest, below a database's own memory.
const SHAPES_BELOW_POOL: [&[Class]; 2] = [&[], &[Class::Ssd]];

/// Tiers above the lowest.
const SHAPES: [&[Class]; 6] = [
    &[Class::Dram],
    &[Class::Nvm],
    &[Class::Dram, Class::Nvm],
    &[Class::Dram, Class::Ssd],
    &[Class::Nvm, Class::Ssd],
    &[Class::Dram, Class::Nvm, Class::Ssd],
];

/// All combinations within a budget: DRAM, NVM or both, flash above a disk where there is one, and a lowest
/// tier of NVM, SSD or disk that holds all data. A block device needs memory above it to work on pages (003, section
/// 2.1), unless there is a database's own ([`Scale::below_pool`]).
///
/// Combinations that only cost more are left out. These are a tier larger than another of its kind that holds all data
/// already, a cache below one that holds all data, and a lowest tier larger than needed. With `spare` larger lowest
/// tiers stay, because they last longer.
///
/// # Errors
/// When no hierarchy can hold the data, none fits the budget, or the smallest memory holds everything.
pub fn candidates(catalogue: &Catalogue, scale: &Scale, budget: Money, spare: bool) -> Result<Candidates, AdviceError> {
    let lowest = lowest(catalogue, scale, spare)?;
    let mut all: Vec<Candidate> = Vec::new();
    let shapes: &[&[Class]] = if scale.below_pool { &SHAPES_BELOW_POOL } else { &SHAPES };
    for &shape in shapes {
        let mut above = vec![Vec::new()];
        for &class in shape {
            let tiers = caches(catalogue, scale, class);
            let add =
                |chosen: Vec<(usize, Piece)>| tiers.iter().map(move |&tier| [chosen.as_slice(), &[tier]].concat());
            above = above.into_iter().flat_map(add).collect();
        }
        for chosen in above {
            let slower = |item: usize| shape.last().is_none_or(|&above| catalogue.items[item].class > above);
            for &bottom in lowest.iter().filter(|(item, _)| slower(*item)) {
                all.push(Candidate::of(catalogue, scale, &[chosen.as_slice(), &[bottom]].concat()));
            }
        }
    }
    let needless = |candidate: &Candidate| {
        let above = candidate.caches().split_last().map_or(&[][..], |(_, above)| above);
        above.iter().any(|part| part.pages >= scale.footprint_pages)
    };
    all.retain(|candidate| !needless(candidate));
    all.sort_by(|a, b| a.dollars.cmp(&b.dollars).then_with(|| a.to_string().cmp(&b.to_string())));
    let Some(cheapest) = all.first() else {
        let what = "the catalogue has no DRAM and no NVM above a slower device, and nothing works on pages of a block device directly";
        return Err(AdviceError::NoHierarchy(format!("catalogue '{}': {what}", catalogue.name)));
    };
    let (cheapest, dollars) = (cheapest.to_string(), cheapest.dollars);
    let before = all.len();
    all.retain(|candidate| candidate.dollars <= budget);
    if all.is_empty() {
        return Err(AdviceError::Budget { budget, cheapest, dollars });
    }
    let beyond_budget = before - all.len();
    distinguishable(&all, scale)?;
    Ok(Candidates { list: all, beyond_budget })
}

/// Items and sizes that can hold all data.
fn lowest(catalogue: &Catalogue, scale: &Scale, spare: bool) -> Result<Vec<(usize, Piece)>, AdviceError> {
    let mut found = Vec::new();
    for (at, item) in catalogue.items.iter().enumerate().filter(|(_, item)| item.class != Class::Dram) {
        let large = item.pieces.iter().filter(|piece| scale.pages(piece) >= scale.stored_pages);
        found.extend(large.take(if spare { usize::MAX } else { 1 }).map(|&piece| (at, piece)));
    }
    if !found.is_empty() {
        return Ok(found);
    }
    let persistent = catalogue.items.iter().filter(|item| item.class != Class::Dram);
    let largest = persistent.flat_map(|item| item.pieces.iter().map(move |piece| (item, piece)));
    let largest = largest.max_by(|a, b| a.1.gb.total_cmp(&b.1.gb));
    let need = scale.gb(scale.stored_pages);
    Err(AdviceError::NoHierarchy(match largest {
        Some((item, piece)) => format!(
            "catalogue '{}': nothing holds the {need:.1} GB of the data; the largest is '{}' with {} GB, enough for a --footprint of {:.1} GB",
            catalogue.name,
            item.name,
            piece.gb,
            (scale.gb(scale.footprint_pages) * piece.gb / need * 1e3).floor() / 1e3,
        ),
        None => format!("catalogue '{}': has only DRAM, and the data must outlast a failure of power", catalogue.name),
    }))
}

/// Items and sizes of a class above the lowest tier.
fn caches(catalogue: &Catalogue, scale: &Scale, class: Class) -> Vec<(usize, Piece)> {
    let mut found = Vec::new();
    for (at, item) in catalogue.items.iter().enumerate().filter(|(_, item)| item.class == class) {
        let holds_all = item.pieces.iter().position(|piece| scale.pages(piece) >= scale.footprint_pages);
        let useful = holds_all.map_or(item.pieces.len(), |at| at + 1);
        found.extend(item.pieces[..useful].iter().map(|&piece| (at, piece)));
    }
    found
}

/// Fails unless some hierarchy has no cache that holds all data.
fn distinguishable(all: &[Candidate], scale: &Scale) -> Result<(), AdviceError> {
    let holds_all = |candidate: &Candidate| candidate.caches().iter().any(|part| part.pages >= scale.footprint_pages);
    if !all.iter().all(holds_all) {
        return Ok(());
    }
    let gb = scale.gb(scale.footprint_pages);
    let smallest = all.iter().flat_map(Candidate::caches).min_by(|a, b| a.piece.gb.total_cmp(&b.piece.gb));
    let smallest = smallest.expect("every hierarchy has a cache");
    Err(AdviceError::Trace(format!(
        "all memory in the catalogue holds all {gb:.3} GB that the trace touches, so the trace tells no hierarchy from another; the \
         cheapest is {} for ${}. If it stands for more data, --footprint says how much: above {} GB the smallest, '{}', no longer \
         holds all",
        all[0], all[0].dollars, smallest.piece.gb, smallest.name,
    )))
}
