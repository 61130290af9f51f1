//! Maintenance threads: they work ahead of need, so that requests do not wait for slow writes below.
//!
//! Their work is the same that a request does at a hard limit, in small steps and earlier. One thread makes the store
//! durable, and waits for the cache device only. The other does all work that involves the backing store.

use super::age_bound;
use super::locks::{CoreGuard, Locks};
use super::maintenance::{self, Role, StoreAccess};
use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Shortest and longest rest after a failure of a store: requests that need the failed work get the error or retry.
const REST_MIN: Duration = Duration::from_millis(10);
const REST_MAX: Duration = Duration::from_secs(2);

/// Does one step of a role's work.
pub(super) fn step(role: Role, guard: &mut CoreGuard) -> io::Result<()> {
    match role {
        Role::Store if guard.write_back().lacks_sync() => maintenance::sync_ahead(guard),
        Role::Store => maintenance::write_batches(guard),
        Role::Backing => {
            guard.own()?;
            maintenance::make_some_room(guard)?;
            age_bound::write_old(guard)
        }
    }
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
        let failed = step(role, &mut guard).is_err();
        rest = failed.then(|| rest.map_or(REST_MIN, |rest: Duration| (2 * rest).min(REST_MAX)));
    }
}
