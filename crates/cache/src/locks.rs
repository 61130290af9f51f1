//! The core of a cache and its locks: their order, and the device calls made with the core's lock held.
//!
//! The core's lock is the *decision lock* of the pages about the code. A [`CoreGuard`] holds it; requests, the two
//! maintenance threads and calls of control take one. [`Locks::dismiss`], which ends these threads, alone takes the lock
//! without one.
//!
//! Locks are taken in this order:
//! - `background` (lib.rs) is held at the close until the maintenance threads have ended.
//! - A change of policy, mode or tiers, or a drain, holds `changing` (lib.rs), one at a time.
//! - The configuration in force, `config` (lib.rs), is held for a look at it, or at the end of a change, with the core's lock in it.
//! - A page's lock is held for a whole request, so that requests for one page follow one another. The bytes that a
//!   request reads stay the newest until it has decided on them.
//! - A thread that writes the queue or reclaims segments *owns* maintenance. Ownership is a flag under the core's lock,
//!   and stays set while that lock is given back for I/O.
//! - The core's lock is held for a decision. What the decision leaves to be done ([`plan`](super::plan)) follows without
//!   it: copies of pages into the open batch, and reads of pages besides the requested one. A frame gets the request's
//!   bytes under the lock.
//! - A hit that needs none of these takes the lock of a list of hits, or of a set of frames ([`read_hits`](super::read_hits)).
//!
//! Devices are called with the core's lock given back, except for:
//! - growing and closing the store, writing its superblocks, and giving up a failed cache device;
//! - the last tries of refused pages, and reads of pages and journal blocks that reclaim's first read did not bring;
//! - reclaim for a decision that moves more pages than a segment has.

use super::core::Core;
use super::durability::WriteBack;
use super::hits::{HOLDS_MAX, Hits, Noted};
use super::maintenance::{self, Role, StoreAccess};
use super::pages::PageLocks;
use entresol_store::holds;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Tries to take the core's lock without waiting: a hold mostly lasts less than a microsecond.
const TRIES: usize = 32;

/// Time for which a thread lets others go first. On busy processors a thread that yields returns much later than that.
const PASS: Duration = Duration::from_micros(100);

/// The core of a cache and its locks.
pub(super) struct Locks {
    /// Some only while a core is in place: none for the moment in which another replaces it.
    core: Mutex<Option<Box<dyn Core>>>,
    /// Threads that wait for the core's lock.
    waiting: AtomicUsize,
    /// Notified when maintenance is no longer owned, when a sync has ended, and after other I/O.
    changed: Condvar,
    /// Maintenance threads.
    workers: Vec<Worker>,
    /// The maintenance threads are to end.
    dismissed: AtomicBool,
    /// Interval at which an idle cache device is checked. None: never.
    watch: Option<Duration>,
    /// Locks of the pages.
    pub pages: PageLocks,
    /// Hits that were read without the core's lock.
    pub hits: Hits,
}

/// Waiting state of a maintenance thread.
#[derive(Default)]
struct Worker {
    called: Condvar,
    /// The thread waits for a call only. Changed under the core's lock.
    idle: AtomicBool,
    /// The thread waits for a limited time.
    timed: AtomicBool,
}

/// Error after a panic of another thread inside the core, which may have left a decision half made.
fn stopped<T>(_: PoisonError<T>) -> io::Error {
    io::Error::other("the cache stopped after a fault of its own")
}

impl Locks {
    /// The locks of a core whose policy has tiers of so many pages.
    pub fn new(mut core: Box<dyn Core>, watch: Option<Duration>, tiers: &[usize]) -> Self {
        let hits = Hits::sharing_with(&mut *core, tiers);
        Locks {
            core: Mutex::new(Some(core)),
            waiting: AtomicUsize::new(0),
            changed: Condvar::new(),
            workers: Role::ALL.iter().map(|_| Worker::default()).collect(),
            dismissed: AtomicBool::new(false),
            watch,
            pages: PageLocks::new(),
            hits,
        }
    }

    /// A hold of the core's lock for a maintenance thread, once it has work and has rested. None when the thread must
    /// end.
    pub fn called(&self, role: Role, rest: Option<Duration>) -> io::Result<Option<CoreGuard<'_>>> {
        let worker = &self.workers[role as usize];
        let mut guard = self.guard()?;
        if let Some(rest) = rest.filter(|_| !self.dismissed.load(Relaxed)) {
            let held = guard.held.take().expect("only I/O is performed without the lock");
            holds::ended();
            guard.held = Some(worker.called.wait_timeout(held, rest).map_err(stopped)?.0);
            holds::began();
        }
        while !self.dismissed.load(Relaxed) {
            if guard.write_back().wanting > 0 && role == Role::Backing {
                // Requests want ownership and free what they need themselves.
                guard.wait()?;
            } else if guard.must_mend() {
                // A failed device is taken out of use without a request. Other failures are reported to the next one.
                let _told = guard.mend();
                // Others wait for ownership of maintenance.
                drop(guard);
                guard = self.guard()?;
            } else if !guard.core().is_off() && role.calls(guard.write_back()) {
                return Ok(Some(guard));
            } else {
                worker.idle.store(true, Relaxed);
                let look = match role {
                    Role::Backing => guard.write_back().next_look(),
                    Role::Store => self.watch.filter(|_| !guard.core().is_off()),
                };
                worker.timed.store(look.is_some(), Relaxed);
                let held = guard.held.take().expect("only I/O is performed without the lock");
                let passed = match look {
                    Some(look) => {
                        let (held, waited) = worker.called.wait_timeout(held, look).map_err(stopped)?;
                        guard.held = Some(held);
                        waited.timed_out()
                    }
                    None => {
                        guard.held = Some(worker.called.wait(held).map_err(stopped)?);
                        false
                    }
                };
                worker.idle.store(false, Relaxed);
                if role == Role::Store && passed && !self.dismissed.load(Relaxed) {
                    // An error is noted with the device.
                    let _noted = maintenance::look_at_device(&mut guard);
                }
            }
        }
        Ok(None)
    }

    /// Tells the maintenance threads to end.
    pub fn dismiss(&self) {
        // Under the lock, since a maintenance thread may be about to wait.
        let _guard = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        self.dismissed.store(true, Relaxed);
        self.workers.iter().for_each(|worker| worker.called.notify_all());
        self.changed.notify_all();
    }

    /// Calls the maintenance threads that have work.
    fn call(&self, write_back: &WriteBack) {
        for (worker, role) in self.workers.iter().zip(Role::ALL) {
            let unaware = role == Role::Backing && !worker.timed.load(Relaxed) && write_back.ages_may_call();
            if worker.idle.load(Relaxed) && (unaware || role.calls(write_back)) {
                worker.idle.store(false, Relaxed);
                worker.called.notify_one();
            }
        }
    }

    /// A hold of the core's lock, whatever the state of the core.
    pub fn guard(&self) -> io::Result<CoreGuard<'_>> {
        Ok(self.begin(self.lock_core()?))
    }

    /// A hold of the core's lock, if no thread has it.
    fn try_guard(&self) -> Option<CoreGuard<'_>> {
        self.core.try_lock().ok().map(|held| self.begin(held))
    }

    /// Has the policy hear of the hits that were noted, if the core's lock is free.
    pub fn hand_over(&self) {
        if let Some(mut guard) = self.try_guard() {
            guard.only_hits();
        }
    }

    /// Begins a hold. The policy hears of the hits first that were read without one.
    fn begin<'a>(&'a self, held: MutexGuard<'a, Option<Box<dyn Core>>>) -> CoreGuard<'a> {
        holds::began();
        let mut guard = CoreGuard { locks: self, held: Some(held), owns: false, only_hits: false, hits_left: false };
        guard.hits_left =
            self.hits.hear(|Noted { page, tag }| guard.may_read_another().then(|| guard.core().hear_of_hit(page, tag)));
        guard
    }

    fn lock_core(&self) -> io::Result<MutexGuard<'_, Option<Box<dyn Core>>>> {
        if let Ok(held) = self.core.try_lock() {
            return Ok(held);
        }
        self.waiting.fetch_add(1, Relaxed);
        let held = self.core.lock();
        self.waiting.fetch_sub(1, Relaxed);
        held.map_err(stopped)
    }

    /// A hold of the core's lock that owns maintenance: no other thread is in the middle of maintenance.
    pub fn exclusive(&self) -> io::Result<CoreGuard<'_>> {
        let mut guard = self.guard()?;
        guard.own()?;
        Ok(guard)
    }

    /// As [`ready`](Self::ready), if the core's lock can be had within about a microsecond and no maintenance is due.
    pub fn ready_now(&self) -> Option<CoreGuard<'_>> {
        let mut tries = (0..TRIES).map(|_| self.core.try_lock().inspect_err(|_| std::hint::spin_loop()));
        let mut guard = self.begin(tries.find_map(Result::ok)?);
        (guard.is_ready() && !guard.hits_left).then_some(guard)
    }

    /// A hold of the core's lock within the hard limits. A request that finds a limit reached does maintenance itself,
    /// and others wait for that.
    pub fn ready(&self) -> io::Result<CoreGuard<'_>> {
        // Others may read more than one hold decides on, again and again.
        let mut holds_left = HOLDS_MAX;
        loop {
            let mut guard = self.guard()?;
            guard.mend()?;
            let off = guard.core().is_off();
            let ready = |write_back: &WriteBack| if off { !write_back.is_queue_full() } else { write_back.is_ready() };
            if ready(guard.write_back()) {
                if holds_left == 0 || !guard.hits_left {
                    return Ok(guard);
                }
                holds_left -= 1;
                continue;
            }
            if !off && (guard.write_back().must_catch_up() || guard.write_back().awaits_segments()) {
                // Catching up waits for the cache device only, never for the backing store.
                let caught_up = maintenance::catch_up(&mut guard);
                if !guard.must_mend() {
                    caught_up?;
                }
                continue;
            }
            // The owner of maintenance may be within the limits long before its work ends.
            guard.own_unless(ready)?;
            if ready(guard.write_back()) || guard.must_mend() {
                continue;
            }
            let made = if off { maintenance::write_queue(&mut guard) } else { maintenance::make_ready(&mut guard) };
            if !guard.must_mend() {
                made?;
            }
        }
    }
}

/// A hold of the core's lock.
pub(super) struct CoreGuard<'a> {
    locks: &'a Locks,
    /// None only during I/O and waits.
    held: Option<MutexGuard<'a, Option<Box<dyn Core>>>>,
    owns: bool,
    /// Only reads of pages that are held were decided on.
    only_hits: bool,
    /// The policy has not heard of all hits that were read without the lock.
    hits_left: bool,
}

impl CoreGuard<'_> {
    /// The core.
    pub fn core(&mut self) -> &mut dyn Core {
        let held = self.held.as_mut().expect("only I/O is performed without the lock");
        held.as_deref_mut().expect("a change puts one back")
    }

    /// Brings the core within the hard limits, as [`Locks::ready`] does, for a hold that owns maintenance.
    pub fn make_ready(&mut self) -> io::Result<()> {
        self.mend()?;
        if self.core().is_off() {
            return if self.write_back().is_queue_full() { maintenance::write_queue(self) } else { Ok(()) };
        }
        let made = maintenance::make_ready(self);
        if !self.must_mend() {
            return made;
        }
        // A failure of the cache device is an error only where it costs data or an acknowledgement.
        self.mend()
    }

    /// Notes that this hold only decided on reads of pages that are held. Where no page was moved, the maintenance
    /// threads have no more work than before.
    pub fn only_hits(&mut self) {
        self.only_hits = true;
    }

    /// Replaces the core by another.
    pub fn replace<R>(&mut self, change: impl FnOnce(Box<dyn Core>) -> (Box<dyn Core>, R)) -> R {
        let held = self.held.as_mut().expect("only I/O is performed without the lock");
        let (core, result) = change(held.take().expect("a change puts one back"));
        **held = Some(core);
        result
    }

    /// True if the core is within the hard limits and the cache device needs no mending.
    pub fn is_ready(&mut self) -> bool {
        !self.must_mend() && self.write_back().is_ready()
    }

    /// True if the same hold may decide on another read: within the hard limits.
    pub fn may_read_another(&mut self) -> bool {
        if self.core().is_off() { !self.write_back().is_queue_full() } else { self.is_ready() }
    }

    /// True if the same hold may decide on another write, of this page: within the hard limits, and with the bound on ages
    /// kept.
    pub fn may_write_another(&mut self, page: u64) -> bool {
        self.may_read_another() && (self.core().is_off() || !self.write_back().must_hold_back(page))
    }

    /// Takes ownership of maintenance; waits for the present owner.
    pub fn own(&mut self) -> io::Result<()> {
        self.own_unless(|_| false)
    }

    /// As [`own`](Self::own), but stops waiting when `enough` holds.
    fn own_unless(&mut self, enough: impl Fn(&WriteBack) -> bool) -> io::Result<()> {
        while !self.owns {
            if self.write_back().owned {
                self.write_back().wanting += 1;
                self.wait()?;
                self.write_back().wanting -= 1;
                if enough(self.write_back()) {
                    // A maintenance thread may wait until no request wants ownership.
                    self.locks.changed.notify_all();
                    break;
                }
            } else {
                self.write_back().owned = true;
                self.owns = true;
            }
        }
        Ok(())
    }

    fn wait(&mut self) -> io::Result<()> {
        let held = self.held.take().expect("only I/O is performed without the lock");
        holds::ended();
        self.held = Some(self.locks.changed.wait(held).map_err(stopped)?);
        holds::began();
        Ok(())
    }

    /// True if the cache device has failed and is still in use.
    pub fn must_mend(&mut self) -> bool {
        self.write_back().is_broken() && !self.core().is_off()
    }

    /// Takes the cache device out of use if it has failed.
    pub fn mend(&mut self) -> io::Result<()> {
        if self.must_mend() {
            self.own()?;
            // Another thread may have done it during the wait.
            if self.must_mend() {
                return self.core().give_up_cache();
            }
        }
        Ok(())
    }
}

impl StoreAccess for CoreGuard<'_> {
    fn write_back(&mut self) -> &mut WriteBack {
        self.core().write_back()
    }

    fn unlocked<R>(&mut self, io: impl FnOnce() -> R) -> io::Result<R> {
        if self.owns {
            self.write_back().apart = true;
        }
        self.held = None;
        holds::ended();
        let done = io();
        self.held = Some(self.locks.lock_core()?);
        holds::began();
        if self.owns {
            self.write_back().apart = false;
        }
        self.locks.changed.notify_all();
        Ok(done)
    }

    fn pass(&mut self) -> io::Result<()> {
        let locks = self.locks;
        let before = locks.waiting.load(Relaxed);
        if before == 0 {
            // A thread that arrives now waits until the next pass.
            holds::ended();
            holds::began();
            return Ok(());
        }
        self.unlocked(|| {
            let began = Instant::now();
            while locks.waiting.load(Relaxed) >= before && began.elapsed() < PASS {
                std::thread::yield_now();
            }
        })
    }

    fn wait_for_sync(&mut self) -> io::Result<bool> {
        // Waiting gives the lock back, as I/O does.
        if self.owns {
            self.write_back().apart = true;
        }
        self.wait()?;
        if self.owns {
            self.write_back().apart = false;
        }
        Ok(true)
    }
}

impl Drop for CoreGuard<'_> {
    fn drop(&mut self) {
        holds::ended();
        debug_assert!(std::thread::panicking() || self.held.is_none() || !self.core().has_steps(), "steps are taken");
        // Without the lock the cache has stopped, and no thread waits.
        if let Some(core) = self.held.as_mut().and_then(|held| held.as_mut()) {
            if self.owns {
                core.write_back().owned = false;
            }
            let nothing_moved = self.only_hits && !core.write_back().stirred;
            if !core.is_off() && !nothing_moved {
                core.write_back().stirred = false;
                self.locks.call(core.write_back());
            }
        }
        if self.owns {
            self.locks.changed.notify_all();
        }
    }
}
