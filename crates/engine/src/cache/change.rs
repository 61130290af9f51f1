//! Another policy, or tiers of another size, while the cache is in use: what it holds stays.
//!
//! The log holds pages whoever decides about them, so a change is what an open is: the new policy is shown what is held,
//! oldest first. Before that whatever is only on its way is made durable where it goes, for a copy in the log that the
//! queue has overtaken must not be shown as one that counts; and what only frames have goes to the log.

use super::core::{Core, Engine};
use super::turn::Turn;
use super::upkeep::{self, Lease};
use super::world::World;
use super::{BlockCache, CacheConfig, CacheError, Mode, check_live};
use crate::mutant::{self, Mutant};
use crate::store::StoreError;
use entresol_policy::catalogue::{self, Visitor};
use entresol_policy::{Config, Info, Options, Policy};
use std::io;
use std::sync::PoisonError;

/// Builds the engine of another policy over the stores of one that was taken apart.
struct Rebuild<'a> {
    world: &'a mut Option<World>,
    /// Their capacities.
    tiers: &'a [usize],
    handles: usize,
    mode: Mode,
}

impl Visitor for Rebuild<'_> {
    type Output = Box<dyn Core>;

    fn visit<P: Policy>(self, policy: P) -> Self::Output {
        let mut world = self.world.take().expect("it was put there").emptied(self.tiers.len(), self.handles);
        world.keeper.serve(self.tiers);
        let mut engine = Engine::new(policy, world, self.mode);
        engine.replay(self.tiers.iter().sum());
        Box::new(engine)
    }
}

/// Puts the engine of another policy in the place of one that has settled; the old one again, with the reason, when the
/// policy cannot be built so.
pub(super) fn rebuild<P: Policy>(
    engine: Engine<P>,
    to: &CacheConfig,
    built_for: &Config,
) -> (Box<dyn Core>, Result<(), CacheError>) {
    let (policy, world, mode) = engine.into_parts();
    let mut world = Some(world);
    let rebuild = Rebuild { world: &mut world, tiers: &to.tiers, handles: to.handles, mode };
    let built = to.built_with().and_then(|options| catalogue::build(to.policy, built_for, &options, rebuild));
    match built {
        Ok(core) => (core, Ok(())),
        Err(error) => {
            let world = world.expect("a policy that was not built took nothing");
            (Box::new(Engine::new(policy, world, mode)), Err(error.into()))
        }
    }
}

impl<P: Policy> Engine<P> {
    /// Before a change: nothing is only on its way, and nothing is in frames alone.
    pub(super) fn settle_for_change(&mut self) -> io::Result<()> {
        let failed = || io::Error::other("the cache device has failed; its policy cannot be changed any more");
        if Core::is_off(self) {
            return Err(failed());
        }
        self.hand_over()?;
        if Core::is_off(self) { Err(failed()) } else { Ok(()) }
    }
}

impl World {
    /// Makes durable what is on its way, and puts into the log what only frames have.
    pub(super) fn hand_over_frames(&mut self) -> io::Result<()> {
        if mutant::is(Mutant::FramesDropped) {
            return Ok(());
        }
        let unlogged = self.unlogged(0, usize::MAX);
        self.log_frames(&unlogged)?;
        self.log_clean_frames()
    }
}

impl BlockCache {
    /// A turn with the upkeep after what was done ahead of it, unless a failure of that is to be told. That of the cache
    /// device is met again, by whoever then takes it out of use.
    pub(super) fn exclusive_after(&self, ahead: io::Result<()>) -> io::Result<Turn<'_>> {
        let mut turn = self.locks.exclusive()?;
        if turn.core().is_off() || turn.must_mend() { Ok(turn) } else { ahead.map(|()| turn) }
    }

    /// Makes durable where it goes what is on its way, while requests go on.
    fn flush_through(&self) -> io::Result<()> {
        let mut turn = self.locks.exclusive()?;
        let skipped = turn.core().is_off() || mutant::is(Mutant::NotSettledForChange);
        if skipped { Ok(()) } else { upkeep::flush(&mut turn, true) }
    }

    /// Puts another policy in the place of the one that decides, or the same with other options or tiers; what is cached
    /// stays cached as far as the new one keeps it. Requests go on while the new one is shown what is held, as after an open; they
    /// wait for what came to be on its way below while the rest of that was written. Counts go on.
    ///
    /// # Errors
    /// When the policy cannot run live, cannot be built or does not fit, when a store fails before the change: all is as
    /// it was. A store that fails later leaves the new policy in place, without what could not be shown to it any more;
    /// the next request meets the failure itself.
    pub fn set_policy(&self, policy: &'static Info, options: &Options, tiers: &[usize]) -> Result<(), CacheError> {
        let mut config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = CacheConfig::new(policy, tiers);
        let to = CacheConfig {
            options: options.clone(),
            mode: config.mode,
            seed: config.seed,
            upkeep: config.upkeep,
            dirty_age: config.dirty_age,
            clock: config.clock.clone(),
            watch: config.watch,
            ..fresh
        };
        check_live(&to, self.objects_max)?;
        self.check_room(&to)?;
        let built_for = to.built_for(self.page_bytes, self.objects_max);
        let mut turn = self.exclusive_after(self.flush_through()).map_err(StoreError::Io)?;
        turn.core().settle_for_change().map_err(StoreError::Io)?;
        let dirty_limits = turn.keeper().dirty_limits.shares;
        turn.replace(|core| core.change(&to, &built_for))?;
        // What fails now fails again for the next request, and the rest is shown behind that.
        while turn.make_ready().is_ok() && turn.core().show_more() {
            turn.pass().map_err(StoreError::Io)?;
        }
        drop(turn);
        self.apply_dirty_limits(&to, dirty_limits).map_err(StoreError::Io)?;
        *config = to;
        Ok(())
    }

    /// Gives the tiers of the policy other capacities, in pages; what no longer fits is evicted as the policy sees fit,
    /// dirty pages being written below first.
    ///
    /// # Errors
    /// As [`set_policy`](BlockCache::set_policy).
    pub fn set_tiers(&self, tiers: &[usize]) -> Result<(), CacheError> {
        let CacheConfig { policy, options, .. } = self.config();
        self.set_policy(policy, &options, tiers)
    }

    /// How the cache is run now.
    pub fn config(&self) -> CacheConfig {
        self.config.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
