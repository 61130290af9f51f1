//! Kills of the process alone, at any moment: what was answered is read by the next one, synced or not.

use super::{History, Outcome, Stop, wrong};
use crate::plan::open_plans;
use crate::{Block, BlockCache};
use entresol_crashtest::{Fault, SimDisk};
use entresol_disk::Disk;
use entresol_store::arena::{Arena, moments};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

/// State that a killed process leaves.
struct Left {
    cache: SimDisk,
    backing: SimDisk,
    arena: Arc<Arena>,
}

impl Left {
    fn of(cache: &SimDisk, backing: &SimDisk, arena: &Arena) -> Self {
        Left { cache: cache.fork(), backing: backing.fork(), arena: arena.killed().expect("memory for an arena") }
    }

    /// Pages that the next process repeats something of.
    fn repeated(&self) -> Result<Vec<u64>, String> {
        let survivors = self.arena.survivors().map_err(|error| error.to_string())?;
        let pages = survivors.pages().into_iter().map(|(page, _)| page);
        Ok(pages.chain(survivors.voids()).collect())
    }
}

/// Takes what a kill would leave at a moment of this thread.
struct Watch(Rc<RefCell<Option<Left>>>);

impl Watch {
    fn begin(history: &History, arena: &Arc<Arena>, moment: u64) -> Self {
        let left = Rc::<RefCell<Option<Left>>>::default();
        let (cache, backing) = (history.cache.clone(), history.backing.clone());
        let (arena, into, mut passed) = (Arc::clone(arena), Rc::clone(&left), 0);
        moments::call(Some(Box::new(move || {
            passed += 1;
            if passed == moment {
                *into.borrow_mut() = Some(Left::of(&cache, &backing, &arena));
            }
        })));
        Watch(left)
    }

    fn end(self) -> Option<Left> {
        moments::call(None);
        self.0.take()
    }
}

impl History {
    /// Runs for at most so many requests, kills the process at a moment of one of them or of the open, and checks that
    /// the next process reads every page as it was answered.
    pub fn kill(&mut self, requests: u64) -> Result<(), String> {
        let arena = match &self.arena {
            Some(arena) => Arc::clone(arena),
            None => {
                let geometry = self.setup.geometry;
                let arena = Arena::anonymous(geometry.page_bytes as usize, geometry.batch_blocks());
                let arena = arena.expect("memory for an arena");
                self.arena = Some(Arc::clone(&arena));
                arena
            }
        };
        // Now and then there is no memory for what the arena is to keep.
        arena.stop_growing(self.random.chance(0.1));
        let moments = if self.random.chance(0.5) { 12 } else { 200 };
        let moment = 1 + self.random.below(moments);
        let last = self.random.below(requests + 1);
        let mut before = (self.oracle.clone(), self.discarded.clone());
        let mut unanswered = BTreeSet::new();
        let fails = last > 0 && self.random.chance(0.1);
        let watch = (last == 0).then(|| Watch::begin(self, &arena, moment));
        let opened = self.open();
        let mut left = watch.and_then(Watch::end);
        let cache = opened.map_err(wrong)?;
        let in_recovery = left.is_some();
        for request in 1..=last {
            let fails = fails && request == last;
            if fails {
                // A failed sync below leaves there what was durable before.
                cache.drain().map_err(|error| format!("draining: {error}"))?;
                self.flushed();
            }
            let watch = (request == last).then(|| {
                before = (self.oracle.clone(), self.discarded.clone());
                unanswered = (0..self.oracle.pages()).filter(|&page| open_plans::is_held(page)).collect();
                Watch::begin(self, &arena, moment)
            });
            let stepped = if fails { self.fail_changes(&cache) } else { self.step(&cache) };
            left = watch.and_then(Watch::end);
            match stepped {
                Ok(()) => {}
                Err(Stop::Wrong(why)) => return Err(why),
                Err(Stop::PowerOff) => unreachable!("the power is on"),
            }
        }
        if left.is_none() {
            // After the last request, or after the open.
            before = (self.oracle.clone(), self.discarded.clone());
            unanswered = (0..self.oracle.pages()).filter(|&page| open_plans::is_held(page)).collect();
        }
        let left = left.unwrap_or_else(|| Left::of(&self.cache, &self.backing, &arena));
        open_plans::give_up();
        drop(cache);
        self.tables.forget();
        self.tally.kills += 1;
        self.count_plans();
        self.tally.kills_in_recovery += u64::from(in_recovery);
        let repeated: Vec<u64> = left.repeated()?;
        self.tally.repeated += repeated.len() as u64;
        let has_failed = fails && !left.backing.has_faults();
        left.backing.heal();
        let is_incomplete = left.arena.was_incomplete();
        self.tally.kills_incomplete += u64::from(is_incomplete);
        self.tally.kills_unreported += u64::from(has_failed);
        (self.cache, self.backing, self.arena) = (left.cache, left.backing, Some(left.arena));
        self.is_as_answered(before, &unanswered, &repeated, is_incomplete, has_failed)
    }

    /// Changes pages below without the cache, and has the sync fail that was to make that durable.
    fn fail_changes(&mut self, cache: &BlockCache) -> Outcome<()> {
        let pages = self.some_range();
        let page_bytes = u64::from(self.setup.geometry.page_bytes);
        let (at, bytes) = (pages.start * page_bytes, (pages.end - pages.start) * page_bytes);
        self.oracle.may_tear();
        self.backing.inject(Fault::SyncError);
        pages.clone().for_each(|page| self.oracle.zeroed(page));
        self.discarded.extend(pages.clone());
        self.loose.extend(pages);
        self.try_io("changing what is below", self.backing.write_at(at, &vec![0; bytes as usize]))?;
        self.try_io("forgetting", cache.forget(at, bytes))?;
        match cache.flush() {
            Err(_) => Ok(()),
            Ok(()) => Err(Stop::Wrong("a flush succeeded although its sync below failed".to_owned())),
        }
    }

    /// Kills the next process too, at a moment of its open or after it.
    fn kill_open(&mut self) -> Result<(), String> {
        let arena = self.arena.take().expect("a run with kills has one");
        self.arena = Some(Arc::clone(&arena));
        let moment = 1 + self.random.below(12);
        let watch = Watch::begin(self, &arena, moment);
        let opened = self.open();
        let left = watch.end().unwrap_or_else(|| Left::of(&self.cache, &self.backing, &arena));
        let cache = opened.map_err(wrong)?;
        open_plans::give_up();
        drop(cache);
        (self.cache, self.backing, self.arena) = (left.cache, left.backing, Some(left.arena));
        Ok(())
    }

    fn is_as_answered(
        &mut self,
        before: (entresol_crashtest::pages::Oracle, BTreeSet<u64>),
        unanswered: &BTreeSet<u64>,
        repeated: &[u64],
        is_incomplete: bool,
        has_failed: bool,
    ) -> Result<(), String> {
        while self.random.chance(0.3) {
            self.kill_open()?;
        }
        let after = std::mem::replace(&mut self.oracle, before.0);
        self.discarded.extend(before.1);
        self.setup.geometry = entresol_store::geometry(&self.cache).map_err(|error| error.to_string())?;
        let cache = self.open().map_err(wrong)?;
        let mut below = vec![0; self.setup.geometry.page_bytes as usize];
        let held = cache.held_pages().expect("no thread panicked");
        let clean: BTreeSet<u64> = held.into_iter().filter(|(_, dirty)| !dirty).map(|(page, _)| page).collect();
        for page in 0..self.oracle.pages() {
            let bytes = self.read(&cache, page).map_err(wrong)?;
            // What a flush has covered is there in any case.
            let discarded = is_incomplete || self.discarded.contains(&page);
            self.oracle.check_after_kill(page, &bytes, &after, unanswered.contains(&page), discarded)?;
            // A newer version of a page may be in memory.
            if !clean.contains(&page) || self.loose.contains(&page) || repeated.contains(&page) {
                continue;
            }
            self.backing.read_at(page * below.len() as u64, &mut below).expect("the backing store works");
            if bytes != below {
                return Err(format!("after a kill page {page} is held as clean and is not what is below"));
            }
        }
        let arena = self.arena.as_ref().expect("a run with kills has one");
        if arena.is_incomplete() {
            return Err(
                "what is missing is repeated and durable, and the arena says that it is still missing".to_owned()
            );
        }
        if has_failed || arena.failures() > 0 {
            match cache.flush() {
                Err(_) => cache.flush().map_err(|error| format!("flushing again: {error}"))?,
                Ok(()) => return Err("a sync below had failed, and no flush reported it".to_owned()),
            }
        }
        self.tighten(&cache)?;
        // This process is killed too, between two requests.
        let arena = self.arena.take().expect("a run with kills has one");
        let left = Left::of(&self.cache, &self.backing, &arena);
        open_plans::give_up();
        drop(cache);
        (self.cache, self.backing, self.arena) = (left.cache, left.backing, Some(left.arena));
        Ok(())
    }
}
