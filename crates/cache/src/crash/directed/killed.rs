//! Scenes with a kill of the process alone at each moment: between two stores to the arena, before and after each write
//! and sync of a disk.

use super::{ID, PAGE, config, formatted, page, text, write};
use crate::Block;
use crate::{BlockCache, CacheConfig, Mode, Objects};
use entresol_crashtest::{Fault, SimDisk};
use entresol_disk::Disk;
use entresol_store::Layout;
use entresol_store::arena::{Arena, moments};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

/// A disk whose writes and syncs begin and end with a moment at which the process may be killed.
struct Watched(SimDisk);

impl Watched {
    fn at_both_ends<T>(&self, act: impl FnOnce(&SimDisk) -> T) -> T {
        moments::passed();
        let done = act(&self.0);
        moments::passed();
        done
    }
}

impl Disk for Watched {
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.0.read_at(at, bytes)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.at_both_ends(|disk| disk.write_at(at, bytes))
    }

    fn sync(&self) -> io::Result<()> {
        self.at_both_ends(SimDisk::sync)
    }

    fn discard(&self, at: u64, bytes: u64) -> io::Result<()> {
        self.at_both_ends(|disk| disk.discard(at, bytes))
    }
}

/// State that a kill leaves to the next process.
struct Left {
    disks: [SimDisk; 2],
    arena: Arc<Arena>,
}

impl Left {
    fn of(disks: &[SimDisk; 2], arena: &Arena) -> Self {
        Left { disks: disks.each_ref().map(SimDisk::fork), arena: arena.killed().expect("memory for an arena") }
    }

    /// First bytes of the pages that the arena has; none of a page whose copies in the store do not count.
    fn kept(&self) -> Result<BTreeMap<u64, Option<u8>>, String> {
        let survivors = self.arena.survivors().map_err(|error| error.to_string())?;
        let voids = survivors.voids().into_iter().map(|page| (page, None));
        Ok(survivors.pages().into_iter().map(|(page, bytes)| (page, Some(bytes[0]))).chain(voids).collect())
    }

    fn open(&self) -> Result<BlockCache, String> {
        open(self.disks.clone(), &self.arena)
    }
}

fn open<D: Disk + 'static>([cache, backing]: [D; 2], arena: &Arc<Arena>) -> Result<BlockCache, String> {
    let config = CacheConfig { arena: Some(Arc::clone(arena)), ..config("lru", Mode::WriteBack, &[8]) };
    let opening = BlockCache::find(cache, backing, ID, &config, Objects::new(1));
    let started = opening.and_then(|opening| opening.start(|| Ok(())));
    started.map(|(cache, ())| cache).map_err(|error| format!("opening: {error}"))
}

/// States that a kill at each moment of an act would leave, in the order of the moments, and the one after it.
fn kills(disks: &[SimDisk; 2], arena: &Arc<Arena>, act: impl FnOnce() -> io::Result<()>) -> io::Result<Vec<Left>> {
    let states = Rc::<RefCell<Vec<Left>>>::default();
    let (of, memory, into) = (disks.clone(), Arc::clone(arena), Rc::clone(&states));
    moments::call(Some(Box::new(move || into.borrow_mut().push(Left::of(&of, &memory)))));
    let done = act();
    moments::call(None);
    let mut states = states.take();
    states.push(Left::of(disks, arena));
    done.map(|()| states)
}

/// Pages whose newest versions wait in the queue are changed below, all at once. Until they are invalid one after the
/// other, the arena has these versions: no kill brings back the copies in the store that they have replaced.
pub(in crate::crash) fn what_was_queued_counts_until_it_is_invalid(layout: Layout) -> Result<(), String> {
    // The pages from the fifth of each stream on bypass the cache. Between the two the core's lock is given up.
    let (streams, past) = ([36..43, 556..563], [40..43, 560..563]);
    let changed = 40..563;
    for flushed in [false, true] {
        let disks = formatted(layout, 600);
        let geometry = entresol_store::geometry(&disks[0]).map_err(|error| error.to_string())?;
        let arena = Arena::anonymous(PAGE as usize, geometry.batch_blocks()).map_err(|error| error.to_string())?;
        let cache = open(disks.clone().map(Watched), &arena)?;
        past.clone().into_iter().flatten().try_for_each(|at| write(&cache, at, 1))?;
        if flushed {
            cache.flush().map_err(text("a flush"))?;
        }
        (0..8).try_for_each(|at| page(&cache, at).map(drop))?;
        cache.set_sequential_cutoff(4 * PAGE).map_err(text("a cutoff"))?;
        streams.clone().into_iter().flatten().try_for_each(|at| write(&cache, at, 2))?;
        let past: Vec<u64> = past.clone().into_iter().flatten().collect();
        let mut guard = cache.locks.exclusive().map_err(text("the lock"))?;
        let write_back = guard.core().write_back();
        let stored = |&page: &u64| write_back.store.index().get(page).is_some_and(|entry| entry.dirty);
        if !past.iter().all(|page| write_back.dirty_queue.contains_key(page) && stored(page)) {
            return Err("the newest versions are not queued over dirty copies".to_owned());
        }
        drop(guard);
        let bytes = (changed.end - changed.start) * PAGE;
        let change = || disks[1].write_at(changed.start * PAGE, &vec![3; bytes as usize]);
        let states = kills(&disks, &arena, || cache.change_below(changed.start * PAGE, bytes, change));
        let mut before: BTreeMap<u64, u8> = streams.clone().into_iter().flatten().map(|page| (page, 2)).collect();
        for (moment, state) in states.map_err(text("the change"))?.into_iter().enumerate() {
            let wrong = |why: String| format!("flushed: {flushed}, moment {moment}: {why}");
            let kept = state.kept().map_err(wrong)?;
            let next = state.open().map_err(wrong)?;
            for (&at, before) in &mut before {
                let found = page(&next, at).map_err(wrong)?;
                let expected = match kept.get(&at) {
                    Some(&kept) => kept.unwrap_or(3),
                    None if past.contains(&at) => return Err(wrong(format!("the arena has nothing of page {at}"))),
                    None => found,
                };
                if found != expected || found < *before {
                    return Err(wrong(format!("page {at} is version {found}, of {expected}; it was {before}")));
                }
                *before = found;
            }
            next.drain().map_err(text("a drain")).map_err(wrong)?;
            for (&at, &expected) in &before {
                let mut backing = [0; PAGE as usize];
                state.disks[1].read_at(at * PAGE, &mut backing).map_err(text("a read")).map_err(wrong)?;
                if backing != [expected; PAGE as usize] {
                    return Err(wrong(format!("page {at} is version {} below, not {expected}", backing[0])));
                }
            }
        }
        if let Some((page, version)) = before.iter().find(|&(page, &version)| changed.contains(page) && version != 3) {
            return Err(format!("flushed: {flushed}: page {page} is version {version} after its change"));
        }
    }
    Ok(())
}

/// An arena, and whether there is a failure that the witness has not heard of.
type Settling = (Arc<Arena>, bool);

/// States that a kill at each moment of settling leaves, and the one after it. The witness stands for a descriptor from
/// before the first write: its sync fails once after each loss.
fn settled(arena: &Arc<Arena>, is_unheard: bool) -> Vec<Settling> {
    let (left, unheard) = (Rc::<RefCell<Vec<Settling>>>::default(), Rc::new(Cell::new(is_unheard)));
    let state = |arena: &Arena, unheard: &Cell<bool>| (arena.killed().expect("memory for an arena"), unheard.get());
    let (memory, into, shared) = (Arc::clone(arena), Rc::clone(&left), Rc::clone(&unheard));
    moments::call(Some(Box::new(move || into.borrow_mut().push(state(&memory, &shared)))));
    arena.settle_syncs(|| {
        moments::passed();
        let is_lost = unheard.replace(false);
        moments::passed();
        if is_lost { Err(io::Error::other("lost")) } else { Ok(()) }
    });
    moments::call(None);
    let mut left = left.take();
    left.push(state(arena, &unheard));
    left
}

/// A sync fails that was to make a change below durable which cannot be repeated. The process is killed at each moment
/// of that, and the next one while it settles the sync. A loss that no flush has reported is reported by one flush; a
/// start that was not killed has none fail where nothing was lost.
pub(in crate::crash) fn a_failed_sync_is_settled_or_a_flush_reports_it(layout: Layout) -> Result<(), String> {
    for fails in [false, true] {
        let disks = formatted(layout, 100);
        let geometry = entresol_store::geometry(&disks[0]).map_err(|error| error.to_string())?;
        let arena = Arena::anonymous(PAGE as usize, geometry.batch_blocks()).map_err(|error| error.to_string())?;
        let cache = open(disks.clone().map(Watched), &arena)?;
        write(&cache, 0, 1)?;
        cache.flush().map_err(text("a flush"))?;
        cache
            .change_below(10 * PAGE, PAGE, || disks[1].write_at(10 * PAGE, &[3; PAGE as usize]))
            .map_err(text("a change"))?;
        if fails {
            disks[1].inject(Fault::SyncError);
        }
        let during = kills(&disks, &arena, || {
            let _failed = cache.flush();
            Ok(())
        });
        let during = during.map_err(text("a flush"))?;
        // The state after the flush is that of a report which the killed process may have given to nobody.
        let after = kills(&disks, &arena, || cache.flush()).map_err(text("the next flush"))?;
        let reported = after.last().is_some_and(|state| state.arena.failures() == 0);
        if !reported {
            return Err("a flush has succeeded, and the failure is still to be reported".to_owned());
        }
        let (begun, ended) = (during.len(), during.len() + after.len() - 1);
        for (moment, state) in during.into_iter().chain(after).enumerate() {
            let is_lost = fails && !state.disks[1].has_faults();
            state.disks[1].heal();
            // The descriptor of the killed process has heard of the failure; the witness has not.
            let settled = settled(&state.arena, is_lost);
            let last = settled.len() - 1;
            for (at, (arena, is_unheard)) in settled.into_iter().enumerate() {
                let wrong = |why: &str| Err(format!("fails: {fails}, moment {moment}, then {at} of {last}: {why}"));
                arena.settle_syncs(|| if is_unheard { Err(io::Error::other("lost")) } else { Ok(()) });
                let next = open(state.disks.each_ref().map(SimDisk::fork), &arena)?;
                let flushes = [(); 2].map(|()| next.flush().is_ok());
                match flushes {
                    [_, false] => return wrong("two flushes fail"),
                    [true, _] if is_lost && moment < begun => return wrong("no flush reports the loss"),
                    [false, _] if !is_lost && at == last => return wrong("a flush fails, and nothing was lost"),
                    [false, _] if moment == ended && at == last => return wrong("a report is repeated"),
                    _ => {}
                }
            }
        }
    }
    Ok(())
}

/// All scenes with kills.
pub(in crate::crash) fn all(layout: Layout) -> Result<(), String> {
    what_was_queued_counts_until_it_is_invalid(layout)?;
    a_failed_sync_is_settled_or_a_flush_reports_it(layout)
}
