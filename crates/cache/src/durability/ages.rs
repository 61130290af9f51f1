//! The bound on ages: a page is durable in the backing store before it has differed from it for longer than the bound.
//!
//! Each dirty page has an age, from the write by which it first differed; overwriting the page changes nothing. The
//! measured rate of this write-back tells when to begin, so that the oldest pages, and those that became dirty after
//! them, are below in time. Write-back then goes on for a while, so that neighbouring pages go together. The policy is
//! not told, as in [cleaning ahead](super::clean). Where the rate cannot keep the bound, a write that would make
//! another page dirty first does one step of write-back.

use super::watermarks::DEPTH_MAX;
use super::write_back::WriteBack;
use entresol_store::Clock;
use entresol_store::mutant::{self, Mutant};
use std::time::Duration;

/// Pages of one step at most: eight times the writes that are under way together.
const STEP_PAGES: usize = 8 * DEPTH_MAX;
/// Pages that are written to measure the rate. Below this number of dirty pages the measuring can wait; from twice the
/// number on, writes may wait until the rate is known.
const PROBE_PAGES: u64 = DEPTH_MAX as u64;
/// Seconds that a page is assumed to take before anything was measured: more than on any disk.
const ASSUMED: f64 = 0.1;
/// Factor by which the measured rate is divided when writing is planned.
const CAUTION: f64 = 2.0;
/// Pages after which earlier measurements count half.
const RATE_PAGES: f64 = 8192.0;
/// Part of the bound: once begun, write-back goes on to the pages for which it would have to begin within that time.
const BURST: f64 = 1.0 / 16.0;
/// Looks at ages in one bound, at least; a look is also taken at least once a second.
const LOOKS: f64 = 8.0;
/// Shortest time between two looks, in seconds.
const LOOK_MIN: f64 = 0.02;
/// Stands for the second since which a page differs, where that is not known.
const UNKNOWN: u64 = 0;
/// Seconds by which a page may seem late though it is not, since ages are in whole seconds.
const GRAIN: u64 = 1;

/// The bound and its results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirtyAge {
    /// Time for which a page may differ from the backing store.
    pub bound: Duration,
    /// Longest time for which a page differs now, at most. None when no page differs. A page of unknown age counts as
    /// a second older than the bound.
    pub oldest: Option<Duration>,
    /// Pages written below because of their age.
    pub written: u64,
    /// Pages of known age that were durable below later than the bound.
    pub late: u64,
    /// Time by which the latest of them was late.
    pub late_by: Duration,
    /// Writes that had to do a step of write-back first because the bound could not be kept.
    pub waits: u64,
    /// Pages per second that are written below because of their age. None before the first.
    pub rate: Option<u64>,
}

/// Pages written below, and the seconds that they took.
#[derive(Clone, Copy, Default)]
struct Rate {
    pages: f64,
    seconds: f64,
}

impl Rate {
    fn add(&mut self, pages: u64, took: Duration) {
        self.pages += pages as f64;
        self.seconds += took.as_secs_f64();
        if self.pages > RATE_PAGES {
            self.pages /= 2.0;
            self.seconds /= 2.0;
        }
    }

    /// Seconds that so many pages take. None before the first measurement.
    fn seconds_for(&self, pages: u64) -> Option<f64> {
        (self.pages > 0.0).then(|| pages as f64 * self.seconds / self.pages)
    }
}

/// State of the bound.
pub(crate) struct Aging {
    /// In seconds.
    bound: Option<u64>,
    /// Latest cache time at which write-back has to begin for the pages that are dirty now.
    begin_at: f64,
    /// Write-back has begun and is not done yet.
    begun: bool,
    rate: Rate,
    written: u64,
    late: u64,
    late_by: u64,
    waits: u64,
}

impl Aging {
    /// State for a bound, at least a second, or for none.
    pub fn new(bound: Option<Duration>) -> Self {
        let bound = bound.map(|bound| bound.as_secs().max(1));
        let rate = Rate::default();
        Aging { bound, begin_at: f64::INFINITY, begun: false, rate, written: 0, late: 0, late_by: 0, waits: 0 }
    }

    /// Seconds between two looks at ages.
    fn look(bound: u64) -> f64 {
        (bound as f64 / LOOKS).min(1.0)
    }

    /// Pages to write in one step: the number that takes an eighth of the bound, but at most a second for a write that
    /// waits. Before the first measurement the step is small, to measure the rate.
    fn pages_of_a_step(&self, awaited: bool) -> usize {
        let bound = self.bound.unwrap_or(0);
        let time = if awaited { Aging::look(bound) } else { bound as f64 / LOOKS };
        let each = self.rate.seconds_for(1).unwrap_or(f64::INFINITY);
        ((time / each) as usize).clamp(PROBE_PAGES as usize, STEP_PAGES)
    }

    /// Cache time at which to begin with so many pages, the youngest of which differs since `since`.
    fn begin(&self, bound: u64, since: u64, pages: u64) -> f64 {
        let measured = self.rate.seconds_for(pages);
        if since == UNKNOWN {
            return 0.0;
        }
        let since = since as f64;
        if mutant::is(Mutant::AgeBegunLate) {
            return since + bound as f64;
        }
        // Before the first measurement some time is left for it: half the bound for a few pages.
        let assumed = if pages < PROBE_PAGES { bound as f64 / 2.0 } else { CAUTION * ASSUMED * pages as f64 };
        let takes = measured.map_or(assumed, |takes| CAUTION * takes);
        since + bound as f64 - takes - 2.0 * Aging::look(bound)
    }
}

impl WriteBack {
    /// Notes that a page differs from the backing store from now on, unless it did before.
    pub(crate) fn differs(&mut self, page: u64) {
        let Some(bound) = self.aging.bound else { return };
        let now = self.store.now();
        let Some(ages) = self.store.ages_mut() else { return };
        if ages.since(page).is_some() {
            if mutant::is(Mutant::AgeRefreshed) {
                ages.rejuvenate(page, now.as_secs());
            }
            return;
        }
        ages.insert(page, now.as_secs());
        let begin = self.aging.begin(bound, now.as_secs(), ages.len() as u64);
        self.aging.begin_at = self.aging.begin_at.min(begin);
    }

    /// Notes whether memory alone has the newest version of a page, which then differs.
    pub(crate) fn set_in_memory(&mut self, page: u64, in_memory: bool) {
        if in_memory && !mutant::is(Mutant::AgeNotOfFrames) {
            self.differs(page);
        }
        if let Some(ages) = self.store.ages_mut() {
            ages.set_in_memory(page, in_memory);
        }
    }

    /// Forgets the age of a page: nothing here is newer than the backing store's version.
    pub(crate) fn is_void(&mut self, page: u64) {
        if let Some(ages) = self.store.ages_mut() {
            ages.remove(page);
        }
    }

    /// True if the page differs from the backing store, as far as is known.
    fn still_differs(&self, page: u64) -> bool {
        self.store.index().get(page).is_some_and(|entry| entry.dirty && !entry.lost)
            || self.dirty_queue.contains_key(&page)
            || self.unsynced.contains(page)
            || self.store.ages().is_some_and(|ages| ages.is_in_memory(page))
    }

    /// Notes that the newest version that a page had at second `taken` is durable below.
    pub(crate) fn agreed(&mut self, page: u64, taken: u64) {
        let Some((bound, since)) = self.aging.bound.zip(self.store.ages().and_then(|ages| ages.since(page))) else {
            return;
        };
        let late = self.store.now().as_secs().saturating_sub(since.saturating_add(bound));
        // A page of unknown age is not counted as late.
        if late > GRAIN && since != UNKNOWN {
            self.aging.late += 1;
            self.aging.late_by = self.aging.late_by.max(late);
        }
        let differs = self.still_differs(page);
        let Some(ages) = self.store.ages_mut() else { return };
        // A page that still differs was written after the durable version was taken.
        if differs { ages.rejuvenate(page, taken) } else { ages.remove(page) }
    }

    /// The present second of cache time; 0 without a bound.
    pub(crate) fn second(&self) -> u64 {
        if self.aging.bound.is_some() { self.store.now().as_secs() } else { 0 }
    }

    /// Sets the bound, or none. Pages that are dirty when a first bound is set count as old as can be.
    pub(crate) fn set_dirty_age(&mut self, bound: Option<Duration>, clock: &Clock) {
        let fresh = Aging::new(bound);
        match (self.store.ages().is_some(), fresh.bound) {
            (false, Some(_)) => {
                self.store.keep_ages(clock.clone());
                let on_their_way: Vec<u64> = self.dirty_queue.keys().copied().chain(self.unsynced.pages()).collect();
                let ages = self.store.ages_mut().expect("they are kept now");
                on_their_way.into_iter().for_each(|page| ages.insert(page, UNKNOWN));
            }
            (true, None) => self.store.drop_ages(),
            _ => {}
        }
        self.aging.bound = fresh.bound;
        self.plan_ages();
    }

    /// Plans when write-back has to begin.
    pub(crate) fn plan_ages(&mut self) {
        self.aging.begin_at = f64::INFINITY;
        let Some((bound, ages)) = self.aging.bound.zip(self.store.ages()) else { return };
        let mut pages = 0;
        let begins = ages.moments().map(|(since, of_them)| {
            pages += of_them;
            self.aging.begin(bound, since, pages)
        });
        self.aging.begin_at = begins.fold(f64::INFINITY, f64::min);
    }

    /// True if a page is so old that write-back has to begin or go on.
    pub(crate) fn has_old_pages(&self) -> bool {
        let Some(bound) = self.aging.bound.filter(|_| self.aging.begin_at < f64::INFINITY) else { return false };
        let ahead = if self.aging.begun { bound as f64 * BURST } else { 0.0 };
        self.store.now().as_secs_f64() + ahead >= self.aging.begin_at
    }

    /// True if the time should be written to the device, so that ages outlive the process.
    pub(crate) fn is_clock_old(&self) -> bool {
        let dirty = self.store.ages().is_some_and(|ages| !ages.is_empty());
        dirty && self.store.is_clock_old() && !mutant::is(Mutant::ClockUnwritten)
    }

    /// True if ages give the maintenance thread work now.
    pub(crate) fn ages_call(&self) -> bool {
        self.aging.bound.is_some() && self.has_help() && (self.has_old_pages() || self.is_clock_old())
    }

    /// True if ages will give the maintenance thread work once time has passed.
    pub(crate) fn ages_may_call(&self) -> bool {
        self.has_help() && self.store.ages().is_some_and(|ages| !ages.is_empty())
    }

    /// Time until the next look at ages. None where no work will come.
    pub(crate) fn next_look(&self) -> Option<Duration> {
        let bound = self.aging.bound.filter(|_| self.ages_may_call())?;
        let until = self.aging.begin_at - self.store.now().as_secs_f64();
        Some(Duration::from_secs_f64(until.clamp(LOOK_MIN, Aging::look(bound))))
    }

    /// True if a write of this page must wait because the bound cannot be kept. With maintenance threads, a write to a
    /// dirty page need not wait. Pages already over the bound are no reason: they are written as fast as possible.
    pub(crate) fn must_hold_back(&self, page: u64) -> bool {
        let Some((bound, ages)) = self.aging.bound.zip(self.store.ages()) else { return false };
        if mutant::is(Mutant::AgeNobodyWaits) {
            return false;
        }
        if !self.has_help() {
            return self.has_old_pages();
        }
        let pages = ages.len() as u64;
        let too_many = match self.aging.rate.seconds_for(pages) {
            Some(takes) => takes + 2.0 * Aging::look(bound) > bound as f64,
            None => pages >= 2 * PROBE_PAGES && ASSUMED * pages as f64 > bound as f64,
        };
        too_many && ages.since(page).is_none()
    }

    /// Notes whether write-back by age has to begin or go on now, and returns it.
    pub(crate) fn goes_on_with_old_pages(&mut self) -> bool {
        self.aging.begun = self.has_old_pages();
        self.aging.begun
    }

    /// Notes pages that were written below because of their age, and the time that they took.
    pub(crate) fn wrote_old_pages(&mut self, pages: u64, took: Duration) {
        self.aging.rate.add(pages, took);
        self.aging.written += pages;
    }

    /// Counts a write that has to do a step of write-back first.
    pub(crate) fn waited_for_age(&mut self) {
        self.aging.waits += 1;
    }

    /// The pages of one step, oldest first. `awaited` when a write waits for the step.
    pub(crate) fn oldest_of_a_step(&mut self, awaited: bool) -> Vec<u64> {
        self.oldest_pages(self.aging.pages_of_a_step(awaited))
    }

    /// The oldest pages, at most `most`, oldest first. Pages that turn out not to differ any more are forgotten.
    fn oldest_pages(&mut self, most: usize) -> Vec<u64> {
        let Some(ages) = self.store.ages() else { return Vec::new() };
        let (mut oldest, mut void) = (Vec::new(), Vec::new());
        for (page, _) in ages.oldest_first() {
            if oldest.len() == most {
                break;
            }
            if self.still_differs(page) { oldest.push(page) } else { void.push(page) }
        }
        void.into_iter().for_each(|page| self.is_void(page));
        oldest
    }

    /// The bound and its results.
    pub(crate) fn dirty_age(&self) -> Option<DirtyAge> {
        let (bound, ages) = self.aging.bound.zip(self.store.ages())?;
        let Aging { written, late, late_by, waits, rate, .. } = self.aging;
        let oldest = ages.oldest_first().find(|&(page, _)| self.still_differs(page));
        let age = |since| match since {
            UNKNOWN => Duration::from_secs(bound + GRAIN),
            since => self.store.now().saturating_sub(Duration::from_secs(since)),
        };
        let rate = rate.seconds_for(1).map(|each| (1.0 / each.max(1e-9)) as u64);
        Some(DirtyAge {
            bound: Duration::from_secs(bound),
            oldest: oldest.map(|(_, since)| age(since)),
            written,
            late,
            late_by: Duration::from_secs(late_by),
            waits,
            rate,
        })
    }
}
