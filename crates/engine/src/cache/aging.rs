//! The bound on ages: a page that differs from the backing store is there, synced, before it has differed for longer than that.
//!
//! Each dirty page has an age from the write on by which it first differed; overwriting it changes nothing. By the
//! measured rate of this write-back the engine knows when it has to begin, so that the oldest are below in time, and
//! each that became dirty after them too. It then goes on for a while, so that pages that lie beside one another go
//! together. The policy is not told, as in [cleaning ahead](super::clean). Where the rate cannot keep the bound, a
//! write that would make another page dirty first does one step of this.

use super::locks::CoreGuard;
use super::maintenance::{self, StoreAccess};
use super::watermarks::DEPTH_MAX;
use super::write_back::WriteBack;
use super::{BlockCache, FRAMES_PER_HOLD};
use crate::mutant::{self, Mutant};
use crate::store::Clock;
use std::io;
use std::time::Duration;

/// Pages of one step at most: eight times the writes that are under way together.
const STEP_PAGES: usize = 8 * DEPTH_MAX;
/// Pages that are written to find out how long that takes; with fewer there is time, and with twice as many writes may wait until it is
/// known.
const PROBE_PAGES: u64 = DEPTH_MAX as u64;
/// Seconds that a page is taken to take where nothing was measured yet: more than on any disk.
const ASSUMED: f64 = 0.1;
/// Factor by which the measured rate is divided when writing is planned.
const CAUTION: f64 = 2.0;
/// Pages after which what was measured before them counts half.
const RATE_PAGES: f64 = 8192.0;
/// Once begun, what would have to begin within this part of the bound is written too.
const BURST: f64 = 1.0 / 16.0;
/// A look at ages is taken at least so often in a bound, and at least once a second.
const LOOKS: f64 = 8.0;
/// Seconds between two looks at least.
const LOOK_MIN: f64 = 0.02;
/// The second since which a page differs of which nobody knows it.
const UNKNOWN: u64 = 0;
/// Ages are in whole seconds: so much more than the bound is in time.
const GRAIN: u64 = 1;

/// The bound, and what came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirtyAge {
    /// Time for which a page may differ from the backing store.
    pub bound: Duration,
    /// Time for which the oldest does, at most; none when no page differs. A page whose age nobody knows counts as a second older
    /// than the bound.
    pub oldest: Option<Duration>,
    /// Pages that were written below because of their age.
    pub written: u64,
    /// Pages that came below later than the bound, of those whose age was known.
    pub late: u64,
    /// By how much the latest of them was late.
    pub late_by: Duration,
    /// Writes that had to do a step of write-back first, because the bound could not be kept.
    pub waits: u64,
    /// Pages a second that are written below because of their age; none before the first.
    pub rate: Option<u64>,
}

/// Pages that were written below, and the seconds that it took.
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

    /// Seconds that so many pages take.
    fn seconds_for(&self, pages: u64) -> Option<f64> {
        (self.pages > 0.0).then(|| pages as f64 * self.seconds / self.pages)
    }
}

/// The state of the bound.
pub(super) struct Aging {
    /// In seconds.
    bound: Option<u64>,
    /// Cache time at which write-back has to begin, at the latest, by what is dirty now.
    begin_at: f64,
    /// It has begun and is not done yet.
    begun: bool,
    rate: Rate,
    written: u64,
    late: u64,
    late_by: u64,
    waits: u64,
}

impl Aging {
    /// No bound, or one of so long.
    pub fn new(bound: Option<Duration>) -> Self {
        let bound = bound.map(|bound| bound.as_secs().max(1));
        let rate = Rate::default();
        Aging { bound, begin_at: f64::INFINITY, begun: false, rate, written: 0, late: 0, late_by: 0, waits: 0 }
    }

    /// Seconds between two looks at ages.
    fn look(bound: u64) -> f64 {
        (bound as f64 / LOOKS).min(1.0)
    }

    /// Pages to write in one step: what goes in a small part of the bound, and for a write that waits in a second
    /// besides. How long that takes is found out with a few.
    fn pages_of_a_step(&self, awaited: bool) -> usize {
        let bound = self.bound.unwrap_or(0);
        let time = if awaited { Aging::look(bound) } else { bound as f64 / LOOKS };
        let each = self.rate.seconds_for(1).unwrap_or(f64::INFINITY);
        ((time / each) as usize).clamp(PROBE_PAGES as usize, STEP_PAGES)
    }

    /// When to begin with so many pages, of which the youngest differs since then.
    fn begin(&self, bound: u64, since: u64, pages: u64) -> f64 {
        let measured = self.rate.seconds_for(pages);
        if since == UNKNOWN {
            return 0.0;
        }
        let since = since as f64;
        if mutant::is(Mutant::AgeBegunLate) {
            return since + bound as f64;
        }
        // Where nothing was measured yet some time is left to find out: half of it for a few pages.
        let assumed = if pages < PROBE_PAGES { bound as f64 / 2.0 } else { CAUTION * ASSUMED * pages as f64 };
        let takes = measured.map_or(assumed, |takes| CAUTION * takes);
        since + bound as f64 - takes - 2.0 * Aging::look(bound)
    }
}

impl WriteBack {
    /// A page differs from the backing store from now on, unless it did before.
    pub(super) fn differs(&mut self, page: u64) {
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

    /// Memory alone has the newest version of a page, which differs, or does not any more.
    pub(super) fn set_in_memory(&mut self, page: u64, in_memory: bool) {
        if in_memory && !mutant::is(Mutant::AgeNotOfFrames) {
            self.differs(page);
        }
        if let Some(ages) = self.store.ages_mut() {
            ages.set_in_memory(page, in_memory);
        }
    }

    /// Nothing of a page is newer than what is below.
    pub(super) fn is_void(&mut self, page: u64) {
        if let Some(ages) = self.store.ages_mut() {
            ages.remove(page);
        }
    }

    /// Does the page differ from the backing store, as far as is known?
    fn still_differs(&self, page: u64) -> bool {
        self.store.index().get(page).is_some_and(|entry| entry.dirty && !entry.lost)
            || self.dirty_queue.contains_key(&page)
            || self.unsynced.contains(page)
            || self.store.ages().is_some_and(|ages| ages.is_in_memory(page))
    }

    /// The newest version that a page had at this second is durable below.
    pub(super) fn agreed(&mut self, page: u64, taken: u64) {
        let Some((bound, since)) = self.aging.bound.zip(self.store.ages().and_then(|ages| ages.since(page))) else {
            return;
        };
        let late = self.store.now().as_secs().saturating_sub(since.saturating_add(bound));
        // An age that nobody knows is no age that is known to be too high.
        if late > GRAIN && since != UNKNOWN {
            self.aging.late += 1;
            self.aging.late_by = self.aging.late_by.max(late);
        }
        let differs = self.still_differs(page);
        let Some(ages) = self.store.ages_mut() else { return };
        // What differs now was written after the other was taken.
        if differs { ages.rejuvenate(page, taken) } else { ages.remove(page) }
    }

    /// The second that it is.
    pub(super) fn second(&self) -> u64 {
        if self.aging.bound.is_some() { self.store.now().as_secs() } else { 0 }
    }

    /// Sets the bound, or none. What is dirty where there was none counts as old as can be.
    pub(super) fn set_dirty_age(&mut self, bound: Option<Duration>, clock: &Clock) {
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

    /// Finds out when write-back has to begin.
    pub(super) fn plan_ages(&mut self) {
        self.aging.begin_at = f64::INFINITY;
        let Some((bound, ages)) = self.aging.bound.zip(self.store.ages()) else { return };
        let mut pages = 0;
        let begins = ages.moments().map(|(since, of_them)| {
            pages += of_them;
            self.aging.begin(bound, since, pages)
        });
        self.aging.begin_at = begins.fold(f64::INFINITY, f64::min);
    }

    /// Is any page so old that write-back has to go on?
    pub(super) fn has_old_pages(&self) -> bool {
        let Some(bound) = self.aging.bound.filter(|_| self.aging.begin_at < f64::INFINITY) else { return false };
        let ahead = if self.aging.begun { bound as f64 * BURST } else { 0.0 };
        self.store.now().as_secs_f64() + ahead >= self.aging.begin_at
    }

    /// Should the device be told of the time, so that ages outlive the process?
    fn is_clock_old(&self) -> bool {
        let dirty = self.store.ages().is_some_and(|ages| ages.len() > 0);
        dirty && self.store.is_clock_old() && !mutant::is(Mutant::ClockUnwritten)
    }

    /// Is there something to do because of ages?
    pub(super) fn ages_call(&self) -> bool {
        self.aging.bound.is_some() && self.has_help() && (self.has_old_pages() || self.is_clock_old())
    }

    /// Has time to pass for there to be?
    pub(super) fn ages_may_call(&self) -> bool {
        self.has_help() && self.store.ages().is_some_and(|ages| ages.len() > 0)
    }

    /// Time to wait for that until another look at ages is taken; none where there is nothing to wait for.
    pub(super) fn next_look(&self) -> Option<Duration> {
        let bound = self.aging.bound.filter(|_| self.ages_may_call())?;
        let until = self.aging.begin_at - self.store.now().as_secs_f64();
        Some(Duration::from_secs_f64(until.clamp(LOOK_MIN, Aging::look(bound))))
    }

    /// Must a write of this page wait, because the bound cannot be kept? One that makes no other page dirty need not,
    /// where there are threads that do it. Pages that are over the bound already are no reason: they are written as
    /// fast as can be.
    pub(super) fn must_hold_back(&self, page: u64) -> bool {
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

    /// The oldest pages, so many of them, the oldest first. What is found not to differ any more is forgotten.
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

    /// The bound, and what came of it.
    pub(super) fn dirty_age(&self) -> Option<DirtyAge> {
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

/// One step towards younger pages, and what ages need besides. The turn has the upkeep.
pub(super) fn write_old(guard: &mut CoreGuard) -> io::Result<()> {
    if guard.write_back().is_clock_old() {
        maintenance::store_clock(guard)?;
    }
    // By what was dirty some time ago it has to begin.
    if guard.write_back().has_old_pages() {
        guard.write_back().plan_ages();
    }
    let begun = guard.write_back().has_old_pages();
    guard.write_back().aging.begun = begun;
    if begun {
        write_oldest(guard, false)?;
        guard.write_back().plan_ages();
        let more = guard.write_back().has_old_pages();
        guard.write_back().aging.begun = more;
    }
    Ok(())
}

/// Writes the oldest pages below, and syncs. `awaited` when a write waits for it.
fn write_oldest(guard: &mut CoreGuard, awaited: bool) -> io::Result<()> {
    let write_back = guard.write_back();
    let (began, before) = (write_back.store.now(), write_back.counts.below_pages);
    let mut pages = write_back.oldest_pages(write_back.aging.pages_of_a_step(awaited));
    let Some(&oldest) = pages.first() else { return Ok(()) };
    pages.sort_unstable();
    let in_memory: Vec<u64> = match write_back.store.ages() {
        Some(ages) => pages.iter().copied().filter(|&page| ages.is_in_memory(page)).collect(),
        None => Vec::new(),
    };
    for some in in_memory.chunks(FRAMES_PER_HOLD) {
        maintenance::make_ready(guard)?;
        guard.core().hand_down(some)?;
    }
    // Those beside the oldest come first: it is below even if the others have to wait.
    let (others, first) = pages.split_at(pages.partition_point(|&page| page < oldest));
    for some in first.chunks(DEPTH_MAX).chain(others.chunks(DEPTH_MAX)) {
        guard.write_back().queue_owed(some);
        maintenance::write_these(guard, some)?;
        // Who wants room has waited for it.
        if guard.write_back().wanting > 0 {
            break;
        }
    }
    if mutant::is(Mutant::AgeNotSynced) {
        pages.iter().for_each(|&page| guard.write_back().is_void(page));
    } else {
        maintenance::settle(guard)?;
    }
    let write_back = guard.write_back();
    let (written, took) = (write_back.counts.below_pages - before, write_back.store.now().saturating_sub(began));
    write_back.aging.rate.add(written, took);
    write_back.aging.written += written;
    Ok(())
}

/// Does one step for a write that must wait. Whatever comes of it, the write goes on. A page that cannot be written
/// below is told to the requests that wait for room there.
pub(super) fn hold_back(guard: &mut CoreGuard) -> io::Result<()> {
    guard.write_back().aging.waits += 1;
    guard.own()?;
    guard.write_back().plan_ages();
    let _told_elsewhere = write_oldest(guard, true);
    guard.write_back().plan_ages();
    Ok(())
}

impl BlockCache {
    /// Sets for how long a page may differ from the backing store, in whole seconds; none, as after an open unless its
    /// configuration says so, is no bound. The cache's own threads write what is about to be older below and sync it,
    /// and writes wait where they cannot; a cache without threads of its own does so only when something is written.
    /// Time counts in which the cache is open under a bound. What is dirty when a first bound is set counts as old as
    /// can be.
    ///
    /// # Errors
    /// `InvalidInput` when it is less than a second.
    pub fn set_dirty_age(&self, bound: Option<Duration>) -> io::Result<()> {
        if bound.is_some_and(|bound| bound < Duration::from_secs(1)) {
            let why = "dirty pages cannot be kept younger than a second";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let mut config = self.config.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut guard = self.locks.guard()?;
        if !guard.core().is_off() {
            guard.core().set_dirty_age(bound, &config.clock);
        }
        config.dirty_age = bound;
        Ok(())
    }
}
