//! Threads of a cache's own: they keep room ahead of need, so that requests find it and do not wait for slow writes below.
//!
//! Their work is that of a request that finds no room, done in small steps and earlier. One thread makes the log
//! durable, which waits for nothing but the cache device. The other sees to all that has to do with the backing store.

use super::aging;
use super::clean;
use super::keeper::Keeper;
use super::room::DEPTH_MAX;
use super::turn::{Locks, Turn};
use super::upkeep::{self, Lease};
use crate::mutant::{self, Mutant};
use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Shortest and longest time to rest after a failure of a store: requests that need what failed are told of it, or try again.
const REST_MIN: Duration = Duration::from_millis(10);
const REST_MAX: Duration = Duration::from_secs(2);

/// Duty of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Duty {
    /// To write complete batches, and to make the log durable before it has to be.
    Log,
    /// To write the queue below, to reclaim segments, to clean pages ahead and to keep them young.
    Room,
}

impl Duty {
    pub const ALL: [Duty; 2] = [Duty::Log, Duty::Room];

    /// Is there something to do?
    pub fn calls(self, keeper: &Keeper) -> bool {
        match self {
            Duty::Log => keeper.lacks_sync() || (keeper.log.sealed_len() > 0 && keeper.has_help()),
            Duty::Room => {
                let old = keeper.ages_call() && !mutant::is(Mutant::AgeOnlyOnAccess);
                keeper.lacks_room() || keeper.lacks_clean_pages() || old
            }
        }
    }

    /// Does one step of it.
    pub fn step(self, turn: &mut Turn) -> io::Result<()> {
        match self {
            Duty::Log if turn.keeper().lacks_sync() => upkeep::sync_ahead(turn),
            Duty::Log => upkeep::write_batches(turn),
            Duty::Room => {
                turn.own()?;
                make_some_room(turn)?;
                aging::write_old(turn)
            }
        }
    }
}

/// One step towards the room that should be there.
pub(super) fn make_some_room(lease: &mut impl Lease) -> io::Result<()> {
    let depth = lease.keeper().depth().min(DEPTH_MAX);
    if depth > 0 {
        upkeep::write_some(lease, depth)?;
    }
    if lease.keeper().is_account_half_full() {
        upkeep::settle(lease)?;
    }
    if lease.keeper().lacks_segments() {
        let free = lease.keeper().log.free_segments_once_durable();
        upkeep::reclaim_ahead(lease)?;
        lease.keeper().reclaimed_ahead(free);
    }
    if lease.keeper().awaits_segments() {
        upkeep::sync_log(lease)?;
    }
    if lease.keeper().lacks_clean_pages() { clean::clean_some(lease) } else { Ok(()) }
}

/// The threads, while they run.
pub(super) struct Background {
    locks: Arc<Locks>,
    threads: Vec<JoinHandle<()>>,
}

impl Background {
    /// Threads for all that there is to do.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn start(locks: &Arc<Locks>) -> io::Result<Self> {
        let mut background = Background { locks: Arc::clone(locks), threads: Vec::new() };
        for duty in Duty::ALL {
            let locks = Arc::clone(locks);
            let name = format!("cache {duty:?}").to_lowercase();
            background.threads.push(Builder::new().name(name).spawn(move || serve(&locks, duty))?);
        }
        Ok(background)
    }
}

impl Drop for Background {
    /// Waits until they have ended.
    fn drop(&mut self) {
        self.locks.dismiss();
        for thread in self.threads.drain(..) {
            // A panic of one was told where it happened, and has stopped the cache.
            let _told = thread.join();
        }
    }
}

fn serve(locks: &Locks, duty: Duty) {
    let mut rest = None;
    // Without the lock the cache has stopped.
    while let Ok(Some(mut turn)) = locks.called(duty, rest) {
        let failed = duty.step(&mut turn).is_err();
        rest = failed.then(|| rest.map_or(REST_MIN, |rest: Duration| (2 * rest).min(REST_MAX)));
    }
}
