//! Threads of a cache's own: they keep room ahead of need, so that requests find it and do not wait for slow writes below.
//!
//! Their work is that of a request that finds no room, done in small steps and earlier. One thread makes the log
//! durable, which waits for nothing but the cache device. The other sees to all that has to do with the backing store.

use super::aging;
use super::clean;
use super::locks::{CoreGuard, Locks};
use super::maintenance::{self, StoreAccess};
use super::watermarks::DEPTH_MAX;
use super::write_back::WriteBack;
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
pub(super) enum Role {
    /// To write complete batches, and to make the log durable before it has to be.
    Store,
    /// To write the queue below, to reclaim segments, to clean pages ahead and to keep them young.
    Backing,
}

impl Role {
    pub const ALL: [Role; 2] = [Role::Store, Role::Backing];

    /// Is there something to do?
    pub fn calls(self, write_back: &WriteBack) -> bool {
        match self {
            Role::Store => write_back.lacks_sync() || (write_back.store.sealed_len() > 0 && write_back.has_help()),
            Role::Backing => {
                let old = write_back.ages_call() && !mutant::is(Mutant::AgeOnlyOnAccess);
                write_back.lacks_room() || write_back.lacks_clean_pages() || old
            }
        }
    }

    /// Does one step of it.
    pub fn step(self, guard: &mut CoreGuard) -> io::Result<()> {
        match self {
            Role::Store if guard.write_back().lacks_sync() => maintenance::sync_ahead(guard),
            Role::Store => maintenance::write_batches(guard),
            Role::Backing => {
                guard.own()?;
                make_some_room(guard)?;
                aging::write_old(guard)
            }
        }
    }
}

/// One step towards the room that should be there.
pub(super) fn make_some_room(access: &mut impl StoreAccess) -> io::Result<()> {
    let depth = access.write_back().depth().min(DEPTH_MAX);
    if depth > 0 {
        maintenance::write_some(access, depth)?;
    }
    if access.write_back().is_unsynced_half_full() {
        maintenance::settle(access)?;
    }
    if access.write_back().lacks_segments() {
        let free = access.write_back().store.free_segments_once_durable();
        maintenance::reclaim_ahead(access)?;
        access.write_back().reclaimed_ahead(free);
    }
    if access.write_back().awaits_segments() {
        maintenance::sync_store(access)?;
    }
    if access.write_back().lacks_clean_pages() { clean::clean_some(access) } else { Ok(()) }
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
        for role in Role::ALL {
            let locks = Arc::clone(locks);
            let name = format!("cache {role:?}").to_lowercase();
            background.threads.push(Builder::new().name(name).spawn(move || serve(&locks, role))?);
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

fn serve(locks: &Locks, role: Role) {
    let mut rest = None;
    // Without the lock the cache has stopped.
    while let Ok(Some(mut guard)) = locks.called(role, rest) {
        let failed = role.step(&mut guard).is_err();
        rest = failed.then(|| rest.map_or(REST_MIN, |rest: Duration| (2 * rest).min(REST_MAX)));
    }
}
