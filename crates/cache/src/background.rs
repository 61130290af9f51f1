//! Maintenance threads: they work ahead of need, so that requests do not wait for slow writes below.
//!
//! Their work is the same that a request does at a hard limit, in small steps and earlier. One thread makes the store
//! durable, and waits for the cache device only. The other does all work that involves the backing store.

use super::aging;
use super::clean;
use super::locks::{CoreGuard, Locks};
use super::maintenance::{self, StoreAccess};
use super::watermarks::DEPTH_MAX;
use super::write_back::WriteBack;
use entresol_store::mutant::{self, Mutant};
use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Shortest and longest rest after a failure of a store: requests that need the failed work get the error or retry.
const REST_MIN: Duration = Duration::from_millis(10);
const REST_MAX: Duration = Duration::from_secs(2);

/// Role of a maintenance thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Writes complete batches, and makes the store durable before requests must.
    Store,
    /// Writes the queue below, reclaims segments, cleans pages ahead and keeps the bound on ages.
    Backing,
}

impl Role {
    pub const ALL: [Role; 2] = [Role::Store, Role::Backing];

    /// True if the role has work.
    pub fn calls(self, write_back: &WriteBack) -> bool {
        match self {
            Role::Store => write_back.lacks_sync() || (write_back.store.sealed_len() > 0 && write_back.has_help()),
            Role::Backing => {
                let old = write_back.ages_call() && !mutant::is(Mutant::AgeOnlyOnAccess);
                write_back.lacks_room() || write_back.lacks_clean_pages() || old
            }
        }
    }

    /// Does one step of the role's work.
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

/// One step towards the soft watermarks.
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

/// The maintenance threads, while they run.
pub(super) struct Background {
    locks: Arc<Locks>,
    threads: Vec<JoinHandle<()>>,
}

impl Background {
    /// Starts a thread for each role.
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
    /// Waits until the threads have ended.
    fn drop(&mut self) {
        self.locks.dismiss();
        for thread in self.threads.drain(..) {
            // A panic of a thread was reported where it happened, and has stopped the cache.
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
