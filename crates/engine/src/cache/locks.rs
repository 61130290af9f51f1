//! Turns at the core of a cache: who may use it, and what others may do meanwhile.
//!
//! Locks are taken in this order. One change of policy, mode or tiers at a time holds `changing` (mod.rs). A page's lock is
//! held for a whole request, so that requests of one page follow one another and the bytes that one of them reads stay the
//! newest until it has decided on them. Whoever writes the queue or reclaims segments *owns* the upkeep, which is a flag under
//! the core's lock and stays when that is given back for I/O. The core's lock is held for a decision, and while a page is
//! copied into the open batch. Devices are called with the lock given back, but for these: growing the log, giving up a failed
//! cache device, a frame without bytes of its own that moves down (its bytes are read from the log), a page that a policy fetches
//! besides the one that was asked for, and room made for a decision that moves more pages than were expected.

use super::aging;
use super::background::Role;
use super::core::Core;
use super::maintenance::{self, StoreAccess};
use super::pages::PageLocks;
use super::write_back::{SharedDisk, WriteBack};
use crate::holds;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Number of tries to take the core's lock without waiting: it is mostly held for less than a microsecond.
const TRIES: usize = 32;

/// For how long somebody lets others go first. Where processors are busy, one that gives its own away gets it back much later than that.
const PASS: Duration = Duration::from_micros(100);

/// The core of a cache and its locks.
pub(super) struct Locks {
    /// There always is one, except while another takes its place.
    core: Mutex<Option<Box<dyn Core>>>,
    /// Threads that wait for the core's lock.
    waiting: AtomicUsize,
    /// The upkeep is owned by nobody any more, or a sync has ended.
    changed: Condvar,
    /// The cache's own threads.
    workers: Vec<Worker>,
    /// They are to end.
    dismissed: AtomicBool,
    /// Interval at which an idle cache device is asked if it still works; none: never.
    watch: Option<Duration>,
    /// Of the pages.
    pub pages: PageLocks,
}

/// Waiting state of a thread of the cache's own.
#[derive(Default)]
struct Worker {
    called: Condvar,
    /// It waits for nothing but to be called. Changed under the core's lock.
    idle: AtomicBool,
    /// It waits for a certain time only.
    timed: AtomicBool,
}

/// A panic of another thread inside the core may have left it half way through a decision.
fn stopped<T>(_: PoisonError<T>) -> io::Error {
    io::Error::other("the cache stopped after a fault of its own")
}

impl Locks {
    pub fn new(core: Box<dyn Core>, watch: Option<Duration>) -> Self {
        Locks {
            core: Mutex::new(Some(core)),
            waiting: AtomicUsize::new(0),
            changed: Condvar::new(),
            workers: Role::ALL.iter().map(|_| Worker::default()).collect(),
            dismissed: AtomicBool::new(false),
            watch,
            pages: PageLocks::new(),
        }
    }

    /// A turn for a thread of the cache's own, when there is something to do and it has rested; none when it is to end.
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
                // They make room themselves, and have waited for it.
                guard.wait()?;
            } else if guard.must_mend() {
                // Nobody need come for a device that failed to be taken out of use. What else fails is told to who comes next.
                let _told = guard.mend();
                // Others wait for the upkeep.
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

    /// Tells the cache's own threads to end.
    pub fn dismiss(&self) {
        // Under the lock, for one of them may be about to wait.
        let _guard = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        self.dismissed.store(true, Relaxed);
        self.workers.iter().for_each(|worker| worker.called.notify_all());
        self.changed.notify_all();
    }

    /// Calls those of the cache's own threads that have something to do.
    fn call(&self, write_back: &WriteBack) {
        for (worker, role) in self.workers.iter().zip(Role::ALL) {
            let unaware = role == Role::Backing && !worker.timed.load(Relaxed) && write_back.ages_may_call();
            if worker.idle.load(Relaxed) && (unaware || role.calls(write_back)) {
                worker.idle.store(false, Relaxed);
                worker.called.notify_one();
            }
        }
    }

    /// A turn at the core as it is.
    pub fn guard(&self) -> io::Result<CoreGuard<'_>> {
        let held = self.lock_core()?;
        holds::began();
        Ok(CoreGuard { locks: self, held: Some(held), owns: false })
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

    /// A turn with the upkeep, after which nobody has given the lock back half way through.
    pub fn exclusive(&self) -> io::Result<CoreGuard<'_>> {
        let mut guard = self.guard()?;
        guard.own()?;
        Ok(guard)
    }

    /// As [`ready`](Self::ready), if the core's lock can be had within about a microsecond and there is nothing to do
    /// first.
    pub fn ready_now(&self) -> Option<CoreGuard<'_>> {
        let mut tries = (0..TRIES).map(|_| self.core.try_lock().inspect_err(|_| std::hint::spin_loop()));
        let held = tries.find_map(Result::ok)?;
        holds::began();
        let mut guard = CoreGuard { locks: self, held: Some(held), owns: false };
        guard.is_ready().then_some(guard)
    }

    /// A turn when there is room for a request. Whoever finds none makes it, and others wait for that.
    pub fn ready(&self) -> io::Result<CoreGuard<'_>> {
        loop {
            let mut guard = self.guard()?;
            guard.mend()?;
            let off = guard.core().is_off();
            let ready = |write_back: &WriteBack| if off { !write_back.is_queue_full() } else { write_back.is_ready() };
            if ready(guard.write_back()) {
                return Ok(guard);
            }
            if !off && (guard.write_back().must_catch_up() || guard.write_back().awaits_segments()) {
                // That waits for the cache device and for nothing below.
                let caught_up = maintenance::catch_up(&mut guard);
                if !guard.must_mend() {
                    caught_up?;
                }
                continue;
            }
            // Whoever has the upkeep may have made room long before it is done.
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

impl Locks {
    /// A turn when there is room for a write of a page. Where dirty pages would become older than they may, one that makes another
    /// dirty first does a step of their write-back; whatever comes of that, it goes on.
    pub fn ready_to_write(&self, page: u64) -> io::Result<CoreGuard<'_>> {
        let mut guard = self.ready()?;
        if guard.core().is_off() || !guard.write_back().must_hold_back(page) {
            return Ok(guard);
        }
        aging::hold_back(&mut guard)?;
        drop(guard);
        self.ready()
    }
}

/// The core while this is held.
pub(super) struct CoreGuard<'a> {
    locks: &'a Locks,
    /// None only while I/O is performed.
    held: Option<MutexGuard<'a, Option<Box<dyn Core>>>>,
    owns: bool,
}

impl CoreGuard<'_> {
    /// The core.
    pub fn core(&mut self) -> &mut dyn Core {
        let held = self.held.as_mut().expect("only I/O is performed without the lock");
        held.as_deref_mut().expect("a change puts one back")
    }

    /// Sees to it that there is room for a request, as [`Locks::ready`] does, for who owns the upkeep.
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

    /// Puts another core in the place of this one.
    pub fn replace<R>(&mut self, change: impl FnOnce(Box<dyn Core>) -> (Box<dyn Core>, R)) -> R {
        let held = self.held.as_mut().expect("only I/O is performed without the lock");
        let (core, result) = change(held.take().expect("a change puts one back"));
        **held = Some(core);
        result
    }

    /// Is there room for a request, and nothing to do first?
    pub fn is_ready(&mut self) -> bool {
        !self.must_mend() && self.write_back().is_ready()
    }

    /// The devices: of the log, and the backing store.
    pub fn stores(&mut self) -> (SharedDisk, SharedDisk) {
        let write_back = self.write_back();
        (write_back.store.disk().clone(), write_back.backing().clone())
    }

    /// Takes the upkeep; waits for whoever owns it.
    pub fn own(&mut self) -> io::Result<()> {
        self.own_unless(|_| false)
    }

    /// As [`own`](Self::own), but waits no longer than until it is not needed any more.
    fn own_unless(&mut self, enough: impl Fn(&WriteBack) -> bool) -> io::Result<()> {
        while !self.owns {
            if self.write_back().owned {
                self.write_back().wanting += 1;
                self.wait()?;
                self.write_back().wanting -= 1;
                if enough(self.write_back()) {
                    // A thread of the cache's own may wait for nobody to want it.
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

    /// Has the cache device failed, and is it still in use?
    pub fn must_mend(&mut self) -> bool {
        self.write_back().is_broken() && !self.core().is_off()
    }

    /// Takes the cache device out of use if it has failed.
    pub fn mend(&mut self) -> io::Result<()> {
        if self.must_mend() {
            self.own()?;
            // Waiting, another may have done it.
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
            // Whoever comes now waits until the next time.
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
        // Waiting gives the lock back as I/O does.
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
        // Without the lock the cache has stopped, and nobody waits for anything.
        if let Some(core) = self.held.as_mut().and_then(|held| held.as_mut()) {
            if self.owns {
                core.write_back().owned = false;
            }
            if !core.is_off() {
                self.locks.call(core.write_back());
            }
        }
        if self.owns {
            self.locks.changed.notify_all();
        }
    }
}
