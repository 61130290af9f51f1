//! The generation of a cache in use: raised at times that whoever serves it chooses, so that an older copy of the cache or of
//! its backing store is told from the one that was left.

use super::BlockCache;
use super::upkeep::Lease;
use crate::mutant::{self, Mutant};
use crate::store::{Generation, Generations};
use std::io;

impl BlockCache {
    /// The generations of the cache: its backing store has one of them.
    ///
    /// # Errors
    /// When the cache has stopped after a fault of its own.
    pub fn generation(&self) -> io::Result<Generations> {
        Ok(self.locks.turn()?.keeper().log.generations())
    }

    /// Notes durably that the backing store is about to get this generation; afterwards it may have the settled one or this.
    /// Requests wait for two syncs of the cache device. A cache whose device is out of use has none to note it on.
    ///
    /// # Errors
    /// What the cache device answered.
    pub fn propose_generation(&self, generation: Generation) -> io::Result<()> {
        let mut turn = self.locks.exclusive()?;
        if turn.core().is_off() {
            return Ok(());
        }
        turn.keeper().log.propose_generation(generation);
        let unwritten = mutant::is(Mutant::GenerationUnwritten);
        let written = if unwritten { Ok(()) } else { turn.keeper().log.write_open() };
        let noted = turn.keeper().noted(written);
        turn.mend()?;
        noted
    }

    /// The backing store has the pending generation, durably. The next superblock says so: at the next proposal or at the close.
    ///
    /// # Errors
    /// When the cache has stopped after a fault of its own.
    pub fn settle_generation(&self) -> io::Result<()> {
        self.locks.turn()?.keeper().log.settle_generation();
        Ok(())
    }
}
