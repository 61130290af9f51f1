//! A change of policy, or of the tiers' sizes, while the cache is in use: cached pages stay.
//!
//! The store holds pages independently of the policy, so a change is much like an open: the new policy is shown the
//! cached pages, oldest first. The policy is built beforehand, with the core's lock free. Pages that only frames have
//! are appended to the store before the new policy takes over, so that durability needs no frames. The frames are
//! shown to the new policy behind the other pages.

use super::core::Core;
use super::directory::Directory;
use super::engine::Engine;
use super::executor::Executor;
use super::frames::Frames;
use super::locks::CoreGuard;
use super::maintenance::StoreAccess;
use super::search::LOOKED_AT;
use super::{BlockCache, CacheConfig, CacheError, FRAMES_PER_HOLD, check_live};
use entresol_policy::catalogue::{self, Visitor};
use entresol_policy::extension::{Pooled, divided};
use entresol_policy::{Info, Log, Options, Policy, Wear};
use entresol_store::StoreError;
use entresol_store::mutant::{self, Mutant};
use std::io;
use std::sync::{MutexGuard, PoisonError};

/// A policy that has been built and waits for the stores.
pub(super) trait Successor: Send {
    /// Takes the stores over from another policy. `found` counts the store's pages: those that count as cached, and
    /// others.
    fn take_over(self: Box<Self>, executor: Executor, found: (usize, usize)) -> Box<dyn Core>;
}

struct Built<P> {
    policy: Pooled<P>,
    directory: Directory,
    frames: Frames,
    tiers: Vec<usize>,
    log: Option<Box<Log>>,
}

impl<P: Policy> Successor for Built<P> {
    fn take_over(self: Box<Self>, executor: Executor, (cached, others): (usize, usize)) -> Box<dyn Core> {
        let space = self.tiers.iter().sum::<usize>().saturating_sub(cached);
        let (mut executor, left) = executor.passed_on(self.tiers.len(), self.directory, self.frames, self.log);
        executor.write_back.serve(&self.tiers);
        if mutant::is(Mutant::SupersededShown) {
            executor.write_back.store.index_mut().hold_newest(usize::MAX);
        }
        Box::new(Engine::succeeding(self.policy, executor, left, others.saturating_sub(space)))
    }
}

/// Builds a policy for stores that it is to take over.
struct Build<'a> {
    tiers: &'a [usize],
    /// Pages of a pool above the policy, if there is one.
    pool: Option<usize>,
    handles: usize,
    log: Option<Box<Log>>,
}

impl Visitor for Build<'_> {
    type Output = Box<dyn Successor>;

    fn visit<P: Policy>(self, policy: P) -> Self::Output {
        let (directory, frames) = (Directory::new(self.handles), Frames::new(self.handles));
        let policy = Pooled::over(policy, self.pool, self.handles);
        Box::new(Built { policy, directory, frames, tiers: self.tiers.to_vec(), log: self.log })
    }
}

fn failed() -> io::Error {
    io::Error::other("the cache device has failed; its policy cannot be changed any more")
}

impl BlockCache {
    /// A hold of the core's lock that owns maintenance, unless the work `ahead` of it failed. A failure of the cache
    /// device is not returned here: the thread that takes the device out of use meets it again.
    pub(super) fn exclusive_after(&self, ahead: io::Result<()>) -> io::Result<CoreGuard<'_>> {
        let mut guard = self.locks.exclusive()?;
        if guard.core().is_off() || guard.must_mend() { Ok(guard) } else { ahead.map(|()| guard) }
    }

    /// Replaces the policy, its options or its tiers. Pages stay cached as far as the new policy keeps them. Requests
    /// go on meanwhile. Pages not yet shown to the new policy count as cached, as after an open. Counts go on.
    ///
    /// # Errors
    /// When the policy cannot run live, cannot be built or does not fit, or when a store fails before the change:
    /// everything is then as before. A store that fails later leaves the new policy in place, without the pages not
    /// yet shown to it; the next request meets the failure itself.
    pub fn set_policy(&self, policy: &'static Info, options: &Options, tiers: &[usize]) -> Result<(), CacheError> {
        self.replace_policy(policy, options, tiers)?;
        self.show_the_rest();
        Ok(())
    }

    /// As [`set_policy`](BlockCache::set_policy), without showing the policy any page: see
    /// [`show_the_rest`](BlockCache::show_the_rest).
    pub(crate) fn replace_policy(
        &self,
        policy: &'static Info,
        options: &Options,
        tiers: &[usize],
    ) -> Result<(), CacheError> {
        self.replace_policy_within(&self.one_change(), policy, options, tiers)
    }

    /// As [`replace_policy`](BlockCache::replace_policy), as a part of a change.
    pub(crate) fn replace_policy_within(
        &self,
        _change: &MutexGuard<'_, ()>,
        policy: &'static Info,
        options: &Options,
        tiers: &[usize],
    ) -> Result<(), CacheError> {
        let config = self.config();
        let to = CacheConfig {
            options: options.clone(),
            mode: config.mode,
            seed: config.seed,
            maintenance: config.maintenance,
            wear: config.wear,
            dirty_age: config.dirty_age,
            clock: config.clock.clone(),
            watch: config.watch,
            ..CacheConfig::new(policy, tiers)
        };
        check_live(&to, self.objects_max)?;
        self.check_room(&to)?;
        let geometry = self.locks.guard().map_err(StoreError::Io)?.write_back().store.geometry();
        let (built_for, log) = to.built_for(self.page_bytes, self.objects_max, (&geometry, self.room_pages()));
        let (own, pool) = divided(to.policy, &built_for);
        let build = Build { tiers: &built_for.tiers, pool, handles: to.handles, log };
        let successor = catalogue::build(to.policy, &own, &to.built_with()?, build)?;
        self.put_in_place(successor).map_err(StoreError::Io)?;
        let mut config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        let shares = self.locks.guard().map_err(StoreError::Io)?.write_back().dirty_limits.shares;
        self.apply_dirty_limits(&to, shares).map_err(StoreError::Io)?;
        *config = CacheConfig { dirty_age: config.dirty_age, ..to };
        Ok(())
    }

    /// Sets the bound on what is written to a cache of the layout segments, from now on. What was written before counts as
    /// allowed.
    ///
    /// # Errors
    /// `Unsupported` for a bound in another layout, or when the cache has stopped after an internal fault.
    pub fn set_wear(&self, wear: Wear) -> io::Result<()> {
        let _change = self.one_change();
        let mut config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.locks.guard()?.core().set_wear(wear) && wear != Wear::Unbounded {
            let why = "only a cache of the layout segments can keep a bound";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        config.wear = wear;
        Ok(())
    }

    fn put_in_place(&self, successor: Box<dyn Successor>) -> io::Result<()> {
        if !mutant::is(Mutant::FramesDropped) {
            self.store_all_frames()?;
        }
        let (order, found) = self.look_through()?;
        let mut guard = self.locks.exclusive()?;
        loop {
            guard.mend()?;
            if guard.core().is_off() {
                return Err(failed());
            }
            // Requests have made a few more since.
            let frames = guard.core().unstored(0, FRAMES_PER_HOLD);
            if frames.is_empty() || mutant::is(Mutant::FramesDropped) {
                break;
            }
            guard.make_ready()?;
            let stored = guard.core().store_frames(&frames);
            guard.core().take_plan().carry_out_copies();
            stored?;
            guard.pass()?;
        }
        guard.write_back().store.index_mut().go_through(order);
        // The new policy has to be shown the pages before it hears of hits.
        self.locks.hits.close();
        let before = guard.replace(|core| {
            let (executor, before) = core.leave();
            (successor.take_over(executor, found), before)
        });
        drop(guard);
        drop(before);
        self.clear_hits()
    }

    /// As [`set_policy`](BlockCache::set_policy), with a policy that is not in the catalogue.
    #[cfg(test)]
    pub(crate) fn put_policy<P: Policy>(&self, policy: P, tiers: &[usize], handles: usize) -> io::Result<()> {
        self.put_in_place(Build { tiers, pool: None, handles, log: None }.visit(policy))?;
        self.show_the_rest();
        Ok(())
    }

    /// Slots by the age of their versions, oldest first (none in a log), and the numbers of cached pages and of others.
    fn look_through(&self) -> io::Result<(Vec<u32>, (usize, usize))> {
        const EACH: usize = LOOKED_AT as usize / 2;
        let mut guard = self.locks.guard()?;
        let (mut numbered, mut cached, mut others) = (Vec::new(), 0, 0);
        for first in (0..guard.write_back().store.index().blocks()).step_by(EACH) {
            let index = guard.write_back().store.index();
            numbered.extend(index.numbered(first..first + EACH));
            let found = index.counted(first..first + EACH);
            (cached, others) = (cached + found.0, others + found.1);
            guard.pass()?;
        }
        let next = guard.write_back().store.index().next_number();
        drop(guard);
        numbered.sort_unstable_by_key(|&(number, _)| number.wrapping_sub(next));
        Ok((numbered.into_iter().map(|(_, slot)| slot).collect(), (cached, others)))
    }

    /// Shows the policy all pages that it has not seen. After a failure, which the next request meets, requests go on
    /// with it.
    pub(crate) fn show_the_rest(&self) {
        while let Ok(mut guard) = self.locks.ready() {
            while guard.is_ready() {
                if !guard.core().show_more() || guard.pass().is_err() {
                    return;
                }
            }
            if guard.core().is_off() {
                return;
            }
        }
    }

    /// Sets the capacities of the policy's tiers, in pages. The policy evicts pages that no longer fit; dirty ones are
    /// written below first.
    ///
    /// # Errors
    /// As [`set_policy`](BlockCache::set_policy).
    pub fn set_tiers(&self, tiers: &[usize]) -> Result<(), CacheError> {
        let CacheConfig { policy, options, .. } = self.config();
        self.set_policy(policy, &options, tiers)
    }

    /// Configuration of the cache at present.
    pub fn config(&self) -> CacheConfig {
        self.config.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
