//! Reclaim in a log: which segment is given up next, which of its pages are copied and which dropped, and how much wear
//! that may cost.
//!
//! A log of segments is filled one segment at a time. A version that is overwritten leaves a dead block behind, so room
//! is made by emptying a segment: pages worth their room are appended once more, the rest leave the cache. The design
//! and its constants are from a prototype (`lab/results/log-reclaim.md` has the measurements). Relatives: LFS
//! (Rosenblum, Ousterhout, SOSP 1991) for cleaning by cost and benefit; RIPQ (Tang et al., FAST 2015) for priorities
//! over large writes; Flashield (Eisenman et al., NSDI 2019) for a bound on writes.
//!
//! [`Reclaim`] does no I/O and keeps no page. The simulator's model of a log and the store drive the same object, and
//! each tells it of segments that fill up, and of the ranks of their pages when it asks.

use crate::wear::Wear;
use entresol_core::Random;

/// Sealed segments that are compared for one reclaim.
pub const COMPARED: usize = 16;

/// Copies for each block made free, before a budget lowers it.
const COPIES_PER_FREE: f64 = 4.0;

/// Share of the sums of copied and freed blocks that is left after each reclaim.
const KEPT_PER_RECLAIM: f64 = 0.98;

/// Largest step of the threshold, as a share, for a deviation by the factor e.
const THRESHOLD_STEP: f64 = 0.02;

/// Largest factor by which the threshold falls while nothing is reclaimed, and by which it stays above dropped pages.
const FALL_MAX: f32 = 16.0;

/// Weight of a dropped page at the threshold, against one of a copy.
const DROP_WEIGHT: f64 = 0.5;

/// Stands for a segment that is not sealed.
const NOWHERE: u32 = u32::MAX;

/// Pages written to a log since it was made, beside the bound on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worn {
    /// Pages written, copies of reclaim included.
    pub written_pages: u64,
    /// Pages that the bound allowed in that time. None without a bound.
    pub allowed_pages: Option<u64>,
    /// Writes that went past the log because nothing might be written.
    pub past_writes: u64,
}

/// A segment to be reclaimed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Victim {
    /// Number of the segment.
    pub segment: u32,
    /// Pages of a greater rank are copied, the others are dropped.
    pub cut: f32,
}

/// Choice of segments to reclaim, with the threshold that divides pages worth a copy from others.
#[derive(Clone, Debug)]
pub struct Reclaim {
    /// Segments that are full, in no order.
    sealed: Vec<u32>,
    /// Index in `sealed` of each segment; [`NOWHERE`] for one that is not there.
    at: Vec<u32>,
    segment_pages: u32,
    page_bytes: u32,
    /// The cheapest of the segments compared so far, with the cost of a free block in it.
    best: Option<(f64, u32)>,
    random: Random,
    /// Rank above which a page is worth its room. None before the first reclaim.
    threshold: Option<f64>,
    /// Decayed sums of blocks that were copied and made free.
    copied: f64,
    freed: f64,
    /// Requests since the last reclaim, or since the threshold was last lowered.
    idle: u64,
    /// Requests without a reclaim after which the threshold is lowered.
    idle_max: u64,
    /// Threshold below which it is not lowered before the next reclaim.
    floor: f64,
    budget: Budget,
    /// Ranks of the pages of one segment.
    ranks: Vec<f32>,
}

impl Reclaim {
    /// An object for a log of so many segments, none of them sealed, of pages of so many bytes.
    pub fn new(segments: u32, segment_pages: u32, page_bytes: u32, wear: Wear, seed: u64) -> Self {
        let pages = u64::from(segments) * u64::from(segment_pages);
        Reclaim {
            sealed: Vec::with_capacity(segments as usize),
            at: vec![NOWHERE; segments as usize],
            segment_pages,
            page_bytes,
            best: None,
            random: Random::new(seed),
            threshold: None,
            copied: 0.0,
            freed: 0.0,
            idle: 0,
            idle_max: (pages / 50).max(4 * u64::from(segment_pages)),
            floor: 0.0,
            budget: Budget::new(Allowed::by(wear, pages, page_bytes), pages, segment_pages),
            ranks: Vec::with_capacity(segment_pages as usize),
        }
    }

    /// Sets another bound on wear, for what is written after this time in microseconds.
    pub fn set_wear(&mut self, wear: Wear, now_us: u64) {
        let pages = self.at.len() as u64 * u64::from(self.segment_pages);
        self.budget.set_rate(Allowed::by(wear, pages, self.page_bytes), now_us);
    }

    /// Notes that a segment is full.
    pub fn seal(&mut self, segment: u32) {
        if self.at[segment as usize] == NOWHERE {
            self.at[segment as usize] = self.sealed.len() as u32;
            self.sealed.push(segment);
        }
    }

    /// Notes that a segment has no valid page left: it is free without a reclaim.
    pub fn unseal(&mut self, segment: u32) {
        let at = std::mem::replace(&mut self.at[segment as usize], NOWHERE);
        if at == NOWHERE {
            return;
        }
        self.sealed.swap_remove(at as usize);
        if let Some(&moved) = self.sealed.get(at as usize) {
            self.at[moved as usize] = at;
        }
        self.best = self.best.filter(|&(_, best)| best != segment);
    }

    /// Notes a request for a page at this time in microseconds; true if threshold or price have changed.
    #[inline]
    pub fn request(&mut self, writes: bool, now_us: u64) -> bool {
        let changed = self.budget.request(writes, now_us);
        self.idle += 1;
        if self.idle < self.idle_max {
            return changed;
        }
        self.idle = 0;
        self.threshold = self.threshold.map(|threshold| (threshold * (1.0 - THRESHOLD_STEP)).max(self.floor));
        true
    }

    /// Notes a page written to the log, by a request or by a copy.
    #[inline]
    pub fn wrote(&mut self) {
        self.budget.wrote();
    }

    /// Pages written, beside the bound on them.
    pub fn worn(&self) -> Worn {
        let Budget { written_pages, allowed_pages, .. } = self.budget;
        let is_bounded = !matches!(self.budget.rate, Allowed::Anything);
        Worn { written_pages, allowed_pages: is_bounded.then_some(allowed_pages as u64), past_writes: 0 }
    }

    /// Rank above which a page is worth its room; 0 before the first reclaim.
    pub fn threshold(&self) -> f32 {
        self.threshold.unwrap_or(0.0) as f32
    }

    /// Price of a page in the cache, from 0 to 1, as the budget demands it. None while the budget is overdrawn: nothing may
    /// be written.
    pub fn price(&self) -> Option<f64> {
        (!self.budget.is_overdrawn).then(|| self.budget.price())
    }

    /// Compares as many segments as a choice is made from, and takes the best.
    #[cfg(test)]
    fn choose(&mut self, mut ranks: impl FnMut(u32, &mut Vec<f32>)) -> Option<Victim> {
        self.compare(COMPARED, &mut ranks);
        self.take(ranks)
    }

    /// Compares so many sealed segments with the best one so far. A choice is made from [`COMPARED`] of them, which need
    /// not be looked at in one go.
    pub fn compare(&mut self, segments: usize, mut ranks: impl FnMut(u32, &mut Vec<f32>)) {
        for _ in 0..if self.sealed.is_empty() { 0 } else { segments } {
            let segment = self.sealed[self.random.below(self.sealed.len() as u64) as usize];
            self.ranks.clear();
            ranks(segment, &mut self.ranks);
            if self.threshold.is_none() {
                self.threshold = median(&mut self.ranks);
            }
            let cost = cost(&self.ranks, f64::from(self.segment_pages), self.threshold.unwrap_or(0.0));
            if self.best.is_none_or(|(least, _)| cost < least) {
                self.best = Some((cost, segment));
            }
        }
    }

    /// Takes the best of the compared segments, which counts as free from now on; none if there is none. `ranks` adds the
    /// rank of each page that is valid in a segment: infinity for a page that may not be dropped.
    pub fn take(&mut self, mut ranks: impl FnMut(u32, &mut Vec<f32>)) -> Option<Victim> {
        let (_, segment) = self.best.take()?;
        self.unseal(segment);
        self.ranks.clear();
        ranks(segment, &mut self.ranks);
        let cut = self.cut();
        let kept = self.ranks.iter().filter(|&&rank| rank > cut).count() as f64;
        // A threshold that is a little lower keeps more pages only where some were dropped near it.
        let near = self.threshold() / FALL_MAX;
        let may_fall = cut <= self.threshold() && self.ranks.iter().any(|&rank| rank <= cut && rank > near);
        self.steer(kept, may_fall);
        Some(Victim { segment, cut })
    }

    /// Rank that a page of the chosen segment must exceed. An eighth of the segment leaves at least.
    fn cut(&mut self) -> f32 {
        let threshold = self.threshold();
        let full = self.ranks.len() == self.segment_pages as usize;
        if full && self.ranks.iter().all(|&rank| rank > threshold) {
            let eighth = (self.ranks.len() / 8).max(1) - 1;
            let coldest = *self.ranks.select_nth_unstable_by(eighth, f32::total_cmp).1;
            return if coldest.is_finite() { coldest } else { threshold };
        }
        threshold
    }

    /// Moves the threshold towards the copies that are asked for.
    fn steer(&mut self, kept: f64, may_fall: bool) {
        self.idle = 0;
        self.copied = self.copied * KEPT_PER_RECLAIM + kept;
        self.freed = self.freed * KEPT_PER_RECLAIM + f64::from(self.segment_pages) - kept;
        let asked = COPIES_PER_FREE * self.budget.share_of_copies() * self.freed;
        let deviation = (self.copied.max(f64::MIN_POSITIVE) / asked.max(f64::MIN_POSITIVE)).ln();
        let deviation = deviation.clamp(if may_fall { -2.0 } else { 0.0 }, 2.0);
        self.threshold = self.threshold.map(|threshold| threshold * (1.0 + THRESHOLD_STEP * deviation));
        self.floor = self.threshold.map_or(0.0, |threshold| threshold / f64::from(FALL_MAX));
    }

    /// Visits the figures worth plotting over time.
    pub fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("threshold", f64::from(self.threshold()));
        visit("price", self.budget.price());
        visit("overdrawn", f64::from(self.budget.is_overdrawn));
        visit("wear_pressure", self.budget.pressure);
    }

    /// Bytes of all state.
    pub fn memory_bytes(&self) -> usize {
        (self.sealed.capacity() + self.at.capacity()) * size_of::<u32>() + self.ranks.capacity() * size_of::<f32>()
    }
}

/// Cost of making one block free: copies, and pages dropped at a share of the threshold that their ranks are.
fn cost(ranks: &[f32], pages: f64, threshold: f64) -> f64 {
    let (mut copies, mut dropped) = (0.0, 0.0);
    for &rank in ranks {
        let rank = f64::from(rank);
        if rank > threshold {
            copies += 1.0;
        } else if threshold > 0.0 {
            dropped += DROP_WEIGHT * rank / threshold;
        }
    }
    let freed = pages - copies;
    if freed > 0.0 { (copies + dropped) / freed } else { f64::INFINITY }
}

fn median(ranks: &mut [f32]) -> Option<f64> {
    let middle = ranks.len() / 2;
    let median = (!ranks.is_empty()).then(|| *ranks.select_nth_unstable_by(middle, f32::total_cmp).1)?;
    (median.is_finite() && median > 0.0).then_some(f64::from(median))
}

/// Largest pressure: at 5 the copies are a 148th of what they are without a budget.
const PRESSURE_MAX: f64 = 5.0;

/// Share of the budget that pressure aims at once there is any, so that the budget is met from below.
const AIM: f64 = 0.985;

/// Most pages, as a share of the log's, that may be written later because fewer were written before.
const CREDIT_MAX: f64 = 0.4;

/// Credit that pressure, once there is any, restores, as a share of the log's pages, and the deviation that a lack of as
/// many pages as the log has counts as.
const CREDIT_KEPT: f64 = 0.15;
const CREDIT_WEIGHT: f64 = 0.4;

/// Share of the pressure that is left after each look at which no more can be saved for later.
const KEPT_WHEN_LOST: f64 = 0.9;

/// Segments by whose pages a budget may be overdrawn before nothing more is written.
const OVERDRAWN_SEGMENTS: f64 = 2.0;

/// Looks at the sums of the budget, for as many requests as the log has pages.
const LOOKS: u64 = 8;

/// Step of the pressure for a deviation by the factor e, at first and at least. The first steps find a pressure in a few looks: what is
/// refused until then is hot pages too, since a write that goes past drops the page's copy.
const GAIN_FIRST: f64 = 1.0;
const GAIN_MIN: f64 = 0.1;

/// Share of the gain that is left after a look: while less than a tenth is refused, and where the deviation has another sign than
/// before. Reclaim follows the pressure later than a look, so long steps that stayed would go up and down for ever.
const GAIN_KEPT: f64 = 0.95;
const GAIN_KEPT_AT_TURN: f64 = 0.5;
const REFUSED_MUCH: f64 = 0.1;

/// Share of the sums of the budget that is forgotten at a look, for a gain of 1: long steps go by the newest looks.
const FORGOTTEN: f64 = 0.3;

const DAY_US: f64 = 86_400e6;

/// Pages that may be written.
#[derive(Clone, Copy, Debug)]
enum Allowed {
    Anything,
    PerDay(f64),
    PerRequest { written: f64, read: f64 },
}

impl Allowed {
    /// For a log of so many pages of so many bytes.
    fn by(wear: Wear, pages: u64, page_bytes: u32) -> Self {
        match wear {
            Wear::Unbounded => Allowed::Anything,
            Wear::DeviceWritesPerDay(times) => Allowed::PerDay(times * pages as f64),
            Wear::BytesPerDay(bytes) => Allowed::PerDay(bytes as f64 / f64::from(page_bytes)),
            Wear::Amplification { written, read } => Allowed::PerRequest { written, read },
        }
    }
}

/// Budget of pages written, and the pressure that keeps to it.
#[derive(Clone, Debug)]
struct Budget {
    rate: Allowed,
    /// Decayed sums of pages written and allowed since the last looks.
    spent: f64,
    allowed: f64,
    /// All pages written, and all that were allowed.
    written_pages: u64,
    allowed_pages: f64,
    /// Pages that an empty log takes before it is full. They are allowed beside the rate: a cache is filled only once, and
    /// saves nothing before.
    unfilled: u64,
    /// Pressure, 0 to [`PRESSURE_MAX`].
    pressure: f64,
    /// Step of the pressure for a deviation by the factor e, [`GAIN_FIRST`] to [`GAIN_MIN`].
    gain: f64,
    /// Deviation at the last look at which there was pressure.
    deviation: f64,
    /// Pages that are allowed and not written yet, at most [`CREDIT_MAX`] of the log's.
    credit: f64,
    /// Pages of the log.
    pages: f64,
    /// Pages that may be written beyond the credit: a reclaim writes several at once.
    overdraft: f64,
    /// True while more were: nothing may be written.
    is_overdrawn: bool,
    /// Requests since the last look at which nothing might be written.
    refused: u64,
    /// Requests until the next look.
    left: u64,
    interval: u64,
    now_us: u64,
}

impl Budget {
    /// For an empty log of so many pages, in segments of so many.
    fn new(rate: Allowed, pages: u64, segment_pages: u32) -> Self {
        let interval = (pages / LOOKS).max(OVERDRAWN_SEGMENTS as u64 * u64::from(segment_pages)).max(1);
        Budget {
            rate,
            spent: 0.0,
            allowed: 0.0,
            written_pages: 0,
            allowed_pages: 0.0,
            unfilled: pages,
            pressure: 0.0,
            gain: GAIN_FIRST,
            deviation: 0.0,
            credit: 0.0,
            pages: pages as f64,
            overdraft: OVERDRAWN_SEGMENTS * f64::from(segment_pages),
            is_overdrawn: false,
            refused: 0,
            left: interval,
            interval,
            now_us: 0,
        }
    }

    /// Begins another rate. What was written before counts as allowed.
    fn set_rate(&mut self, rate: Allowed, now_us: u64) {
        let (allowed_pages, left) = (self.written_pages as f64, self.interval);
        *self = Budget {
            rate,
            spent: 0.0,
            allowed: 0.0,
            allowed_pages,
            pressure: 0.0,
            gain: GAIN_FIRST,
            deviation: 0.0,
            credit: 0.0,
            refused: 0,
            left,
            now_us,
            ..*self
        };
    }

    /// Notes a page written.
    #[inline]
    fn wrote(&mut self) {
        self.spent += 1.0;
        self.written_pages += 1;
        if self.unfilled > 0 {
            self.unfilled -= 1;
            self.allowed += 1.0;
            self.allowed_pages += 1.0;
        } else {
            self.credit -= 1.0;
        }
    }

    /// Notes a request; true if the pressure has changed.
    #[inline]
    fn request(&mut self, writes: bool, now_us: u64) -> bool {
        let allowed = match self.rate {
            // A bound that was overdrawn is gone.
            Allowed::Anything => return std::mem::take(&mut self.is_overdrawn),
            Allowed::PerRequest { written, read } => {
                if writes {
                    written
                } else {
                    read
                }
            }
            Allowed::PerDay(pages) => pages * now_us.saturating_sub(self.now_us) as f64 / DAY_US,
        };
        self.allowed += allowed;
        self.allowed_pages += allowed;
        self.now_us = now_us;
        self.refused += u64::from(self.is_overdrawn);
        self.left -= 1;
        if self.left == 0 {
            self.look();
        }
        self.credit = (self.credit + allowed).min(CREDIT_MAX * self.pages);
        let was_overdrawn = std::mem::replace(&mut self.is_overdrawn, self.credit < -self.overdraft);
        self.left == self.interval || self.is_overdrawn != was_overdrawn
    }

    fn look(&mut self) {
        self.left = self.interval;
        let spent = self.spent.max(f64::MIN_POSITIVE) / self.allowed.max(f64::MIN_POSITIVE);
        let mut deviation = spent.ln();
        if self.pressure > 0.0 {
            deviation += CREDIT_WEIGHT * (CREDIT_KEPT - self.credit / self.pages).max(0.0) - AIM.ln();
        }
        // What was refused would have been written.
        let refused = self.refused as f64 / self.interval as f64;
        let deviation = (deviation.clamp(-0.5, 0.5) + refused).min(0.5);
        let was_pressed = self.pressure > 0.0;
        self.pressure = (self.pressure + self.gain * deviation).clamp(0.0, PRESSURE_MAX);
        let kept = 1.0 - FORGOTTEN * self.gain;
        if self.unfilled == 0 && (was_pressed || self.pressure > 0.0) {
            let turned = deviation * self.deviation < 0.0;
            let gain = if refused > REFUSED_MUCH {
                self.gain
            } else if turned {
                self.gain * GAIN_KEPT_AT_TURN
            } else {
                self.gain * GAIN_KEPT
            };
            self.gain = gain.max(GAIN_MIN);
            self.deviation = deviation;
        }
        if self.credit >= CREDIT_MAX * self.pages {
            self.pressure *= KEPT_WHEN_LOST;
        }
        self.refused = 0;
        self.spent *= kept;
        self.allowed *= kept;
    }

    fn share_of_copies(&self) -> f64 {
        (-self.pressure).exp()
    }

    /// The price rises from nothing to a third at a pressure of 1.4, and slower from there.
    fn price(&self) -> f64 {
        let steep = self.pressure.min(1.4) * (0.33 / 1.4);
        (steep + 0.16 * (self.pressure - 1.4).max(0.0)).min(0.95)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES: u32 = 16;

    fn sealed(segments: u32, wear: Wear) -> Reclaim {
        let mut reclaim = Reclaim::new(segments, PAGES, 4096, wear, 7);
        (0..segments).for_each(|segment| reclaim.seal(segment));
        reclaim
    }

    #[test]
    fn of_the_compared_segments_the_one_with_the_cheapest_free_block_is_chosen() {
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let ranks: Vec<Vec<f32>> = (0..40)
                .map(|_| (0..random.below(u64::from(PAGES) + 1)).map(|_| random.next_f64() as f32).collect())
                .collect();
            let mut reclaim = sealed(40, Wear::Unbounded);
            reclaim.threshold = Some(0.5);
            let mut compared = Vec::new();
            let victim = reclaim.choose(|segment, into| {
                compared.push(segment);
                into.extend(&ranks[segment as usize]);
            });
            let victim = victim.expect("there are sealed segments");
            // The last look is at the chosen segment itself.
            assert_eq!(compared.pop(), Some(victim.segment), "seed {seed}");
            let price = |segment: u32| {
                let hot = ranks[segment as usize].iter().filter(|&&rank| rank > 0.5).count() as f64;
                let cold: f64 =
                    ranks[segment as usize].iter().filter(|&&rank| rank <= 0.5).map(|&r| f64::from(r)).sum();
                (hot + cold) / (f64::from(PAGES) - hot)
            };
            let least = compared.iter().map(|&segment| price(segment)).fold(f64::INFINITY, f64::min);
            assert!((price(victim.segment) - least).abs() < 1e-9, "seed {seed}: {victim:?}");
            assert!(!reclaim.sealed.contains(&victim.segment) && reclaim.sealed.len() == 39, "seed {seed}");
        }
    }

    #[test]
    fn a_full_segment_of_hot_pages_gives_up_an_eighth_of_them() {
        let mut reclaim = sealed(1, Wear::Unbounded);
        reclaim.threshold = Some(0.5);
        let victim =
            reclaim.choose(|_, into| into.extend((0..PAGES).map(|at| 1.0 + at as f32))).expect("one is sealed");
        assert_eq!((0..PAGES).filter(|&at| 1.0 + at as f32 <= victim.cut).count(), 2);
    }

    #[test]
    fn pages_that_may_not_be_dropped_stay() {
        let mut reclaim = sealed(1, Wear::Unbounded);
        let victim = reclaim.choose(|_, into| into.extend([f32::INFINITY; PAGES as usize])).expect("one is sealed");
        assert!(f32::INFINITY > victim.cut);
        assert_eq!(reclaim.choose(|_, _| {}), None, "no segment is left");
    }

    /// Ranks are drawn anew for each reclaim; what is copied and freed follows from the cut alone.
    fn copies_per_free(reclaim: &mut Reclaim, random: &mut Random, rounds: u32) -> f64 {
        let (mut copied, mut freed) = (0.0, 0.0);
        for _ in 0..rounds {
            let ranks: Vec<f32> = (0..PAGES).map(|_| random.next_f64() as f32).collect();
            let victim = reclaim.choose(|_, into| into.extend(&ranks)).expect("one is sealed");
            let kept = ranks.iter().filter(|&&rank| rank > victim.cut).count();
            (0..PAGES).for_each(|_| reclaim.wrote());
            for _ in kept..PAGES as usize {
                reclaim.request(true, 0);
            }
            while reclaim.price().is_none() {
                reclaim.request(true, 0);
            }
            (copied, freed) = (copied + kept as f64, freed + f64::from(PAGES) - kept as f64);
            reclaim.seal(victim.segment);
        }
        copied / freed
    }

    #[test]
    fn the_threshold_makes_four_copies_for_each_free_block() {
        let mut random = Random::new(3);
        let mut reclaim = sealed(8, Wear::Unbounded);
        copies_per_free(&mut reclaim, &mut random, 2000);
        let ratio = copies_per_free(&mut reclaim, &mut random, 2000);
        assert!((3.6..4.4).contains(&ratio), "{ratio}");
        assert_eq!(reclaim.price(), Some(0.0));
    }

    #[test]
    fn a_budget_is_kept_by_fewer_copies_and_a_price() {
        let mut random = Random::new(4);
        // A page written takes 1 + copies pages of the device.
        let mut reclaim = sealed(8, "amplification=1.5".parse().expect("valid"));
        copies_per_free(&mut reclaim, &mut random, 20_000);
        let ratio = copies_per_free(&mut reclaim, &mut random, 5_000);
        assert!((0.45..0.55).contains(&ratio), "{ratio}");
        assert!(reclaim.price().is_some_and(|price| price > 0.0));
    }

    #[test]
    fn an_empty_log_is_filled_beside_the_bound() {
        let rate = Allowed::PerRequest { written: 1.0, read: 0.0 };
        let mut budget = Budget::new(rate, 100, 8);
        for at in 0..400 {
            budget.wrote();
            budget.request(at >= 100, 0);
            assert_eq!(budget.pressure, 0.0, "after {at}");
        }
        assert_eq!((budget.written_pages, budget.allowed_pages), (400, 400.0));
        budget.set_rate(rate, 0);
        for _ in 0..400 {
            budget.wrote();
            budget.wrote();
            budget.request(true, 0);
        }
        assert!(budget.pressure > 0.1, "another bound does not empty the log: {}", budget.pressure);
    }

    #[test]
    fn a_budget_that_is_overdrawn_allows_nothing_until_it_is_made_up_for() {
        let rate = Allowed::PerRequest { written: 0.5, read: 0.0 };
        let mut budget = Budget::new(rate, 64, 0);
        budget.unfilled = 0;
        (0..4).for_each(|_| _ = budget.request(true, 0));
        (0..2).for_each(|_| budget.wrote());
        assert!(!budget.request(false, 0) && !budget.is_overdrawn, "as much as was allowed");
        (0..11).for_each(|_| budget.wrote());
        assert!(budget.request(false, 0) && budget.is_overdrawn);
        let requests = (1..).find(|_| budget.request(true, 0) && !budget.is_overdrawn);
        assert_eq!(requests, Some(22), "11 pages, at two writes each");
        assert!(budget.pressure > 0.0, "what is refused counts");
        budget.wrote();
        assert!(budget.request(false, 0) && budget.is_overdrawn);
        budget.set_rate(Allowed::Anything, 0);
        assert!(budget.request(false, 0) && !budget.is_overdrawn && !budget.request(false, 0), "another bound");
    }

    #[test]
    fn little_of_what_was_not_written_may_be_written_later() {
        let mut budget = Budget::new(Allowed::PerRequest { written: 1.0, read: 1.0 }, 100, 0);
        budget.unfilled = 0;
        (0..10_000).for_each(|_| _ = budget.request(false, 0));
        let burst = (0..).find(|_| {
            budget.wrote();
            budget.wrote();
            budget.request(false, 0) && budget.is_overdrawn
        });
        assert_eq!(burst, Some(40), "two fifths of the log, and the page after them");
    }

    /// A load of writes to pages of which half would not be read again: the price keeps those out, and copies follow the pressure.
    #[test]
    fn a_bound_that_is_far_from_met_is_met_after_a_few_looks() {
        for amplification in [1.1, 1.5, 2.0, 3.0] {
            let mut budget = Budget::new(Allowed::PerRequest { written: amplification, read: 0.0 }, 1600, 64);
            budget.unfilled = 0;
            let mut looks = Vec::new();
            let (mut refused, mut pages, mut written) = (0, 0.0, 0_u64);
            while looks.len() < 200 {
                if budget.is_overdrawn {
                    refused += 1;
                } else {
                    pages += (1.0 - budget.price() / 2.0) * (1.0 + COPIES_PER_FREE * budget.share_of_copies());
                }
                while written < pages as u64 {
                    budget.wrote();
                    written += 1;
                }
                budget.request(true, 0);
                if budget.left == budget.interval {
                    looks.push(std::mem::take(&mut refused));
                }
            }
            let first = looks.iter().position(|&refused| refused > 0).expect("more is written than is allowed");
            let last = looks.iter().rposition(|&refused| refused > 20).expect("a tenth is refused at some look");
            println!(
                "bound {amplification}: a tenth is refused at looks {first} to {last}, pressure {}",
                budget.pressure
            );
            assert!(last - first < 12, "{amplification}: {looks:?}");
            let share = written as f64 / budget.allowed_pages;
            assert!((0.95..1.01).contains(&share), "{amplification}: {share}");
        }
    }

    #[test]
    fn days_pass_by_the_time_of_requests() {
        let mut budget = Budget::new(Allowed::PerDay(1000.0), 80, 4);
        budget.gain = GAIN_MIN;
        let looks = (0..100).filter(|at| budget.request(true, at * 86_400_000)).count();
        assert_eq!(looks, 10);
        // 99 steps of a thousandth of a day, of which ten looks keep a share each.
        let kept = (1.0 - FORGOTTEN * GAIN_MIN).powi(10);
        assert!(budget.allowed > 99.0 * kept && budget.allowed < 99.0, "{}", budget.allowed);
    }
}
