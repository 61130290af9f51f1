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
use super::background::Duty;
use super::core::Core;
use super::keeper::{Keeper, Store};
use super::pages::PageLocks;
use super::upkeep::{self, Lease};
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
    servants: Vec<Servant>,
    /// They are to end.
    dismissed: AtomicBool,
    /// Interval at which an idle cache device is asked if it still works; none: never.
    watch: Option<Duration>,
    /// Of the pages.
    pub pages: PageLocks,
}

/// Waiting state of a thread of the cache's own.
#[derive(Default)]
struct Servant {
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
            servants: Duty::ALL.iter().map(|_| Servant::default()).collect(),
            dismissed: AtomicBool::new(false),
            watch,
            pages: PageLocks::new(),
        }
    }

    /// A turn for a thread of the cache's own, when there is something to do and it has rested; none when it is to end.
    pub fn called(&self, duty: Duty, rest: Option<Duration>) -> io::Result<Option<Turn<'_>>> {
        let servant = &self.servants[duty as usize];
        let mut turn = self.turn()?;
        if let Some(rest) = rest.filter(|_| !self.dismissed.load(Relaxed)) {
            let guard = turn.guard.take().expect("only I/O is performed without the lock");
            holds::ended();
            turn.guard = Some(servant.called.wait_timeout(guard, rest).map_err(stopped)?.0);
            holds::began();
        }
        while !self.dismissed.load(Relaxed) {
            if turn.keeper().wanting > 0 && duty == Duty::Room {
                // They make room themselves, and have waited for it.
                turn.wait()?;
            } else if turn.must_mend() {
                // Nobody need come for a device that failed to be taken out of use. What else fails is told to who comes next.
                let _told = turn.mend();
                // Others wait for the upkeep.
                drop(turn);
                turn = self.turn()?;
            } else if !turn.core().is_off() && duty.calls(turn.keeper()) {
                return Ok(Some(turn));
            } else {
                servant.idle.store(true, Relaxed);
                let look = match duty {
                    Duty::Room => turn.keeper().next_look(),
                    Duty::Log => self.watch.filter(|_| !turn.core().is_off()),
                };
                servant.timed.store(look.is_some(), Relaxed);
                let guard = turn.guard.take().expect("only I/O is performed without the lock");
                let passed = match look {
                    Some(look) => {
                        let (guard, waited) = servant.called.wait_timeout(guard, look).map_err(stopped)?;
                        turn.guard = Some(guard);
                        waited.timed_out()
                    }
                    None => {
                        turn.guard = Some(servant.called.wait(guard).map_err(stopped)?);
                        false
                    }
                };
                servant.idle.store(false, Relaxed);
                if duty == Duty::Log && passed && !self.dismissed.load(Relaxed) {
                    // An error is noted with the device.
                    let _noted = upkeep::look_at_device(&mut turn);
                }
            }
        }
        Ok(None)
    }

    /// Tells the cache's own threads to end.
    pub fn dismiss(&self) {
        // Under the lock, for one of them may be about to wait.
        let _turn = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        self.dismissed.store(true, Relaxed);
        self.servants.iter().for_each(|servant| servant.called.notify_all());
        self.changed.notify_all();
    }

    /// Calls those of the cache's own threads that have something to do.
    fn call(&self, keeper: &Keeper) {
        for (servant, duty) in self.servants.iter().zip(Duty::ALL) {
            let unaware = duty == Duty::Room && !servant.timed.load(Relaxed) && keeper.ages_may_call();
            if servant.idle.load(Relaxed) && (unaware || duty.calls(keeper)) {
                servant.idle.store(false, Relaxed);
                servant.called.notify_one();
            }
        }
    }

    /// A turn at the core as it is.
    pub fn turn(&self) -> io::Result<Turn<'_>> {
        let guard = self.lock()?;
        holds::began();
        Ok(Turn { locks: self, guard: Some(guard), owns: false })
    }

    fn lock(&self) -> io::Result<MutexGuard<'_, Option<Box<dyn Core>>>> {
        if let Ok(guard) = self.core.try_lock() {
            return Ok(guard);
        }
        self.waiting.fetch_add(1, Relaxed);
        let guard = self.core.lock();
        self.waiting.fetch_sub(1, Relaxed);
        guard.map_err(stopped)
    }

    /// A turn with the upkeep, after which nobody has given the lock back half way through.
    pub fn exclusive(&self) -> io::Result<Turn<'_>> {
        let mut turn = self.turn()?;
        turn.own()?;
        Ok(turn)
    }

    /// As [`ready`](Self::ready), if the core's lock can be had within about a microsecond and there is nothing to do
    /// first.
    pub fn ready_now(&self) -> Option<Turn<'_>> {
        let mut tries = (0..TRIES).map(|_| self.core.try_lock().inspect_err(|_| std::hint::spin_loop()));
        let guard = tries.find_map(Result::ok)?;
        holds::began();
        let mut turn = Turn { locks: self, guard: Some(guard), owns: false };
        turn.is_ready().then_some(turn)
    }

    /// A turn when there is room for a request. Whoever finds none makes it, and others wait for that.
    pub fn ready(&self) -> io::Result<Turn<'_>> {
        loop {
            let mut turn = self.turn()?;
            turn.mend()?;
            let off = turn.core().is_off();
            let ready = |keeper: &Keeper| if off { !keeper.is_queue_full() } else { keeper.is_ready() };
            if ready(turn.keeper()) {
                return Ok(turn);
            }
            if !off && (turn.keeper().must_catch_up() || turn.keeper().awaits_segments()) {
                // That waits for the cache device and for nothing below.
                let caught_up = upkeep::catch_up(&mut turn);
                if !turn.must_mend() {
                    caught_up?;
                }
                continue;
            }
            // Whoever has the upkeep may have made room long before it is done.
            turn.own_unless(ready)?;
            if ready(turn.keeper()) || turn.must_mend() {
                continue;
            }
            let made = if off { upkeep::write_queue(&mut turn) } else { upkeep::make_ready(&mut turn) };
            if !turn.must_mend() {
                made?;
            }
        }
    }
}

impl Locks {
    /// A turn when there is room for a write of a page. Where dirty pages would become older than they may, one that makes another
    /// dirty first does a step of their write-back; whatever comes of that, it goes on.
    pub fn ready_to_write(&self, page: u64) -> io::Result<Turn<'_>> {
        let mut turn = self.ready()?;
        if turn.core().is_off() || !turn.keeper().must_hold_back(page) {
            return Ok(turn);
        }
        aging::hold_back(&mut turn)?;
        drop(turn);
        self.ready()
    }
}

/// The core while this is held.
pub(super) struct Turn<'a> {
    locks: &'a Locks,
    /// None only while I/O is performed.
    guard: Option<MutexGuard<'a, Option<Box<dyn Core>>>>,
    owns: bool,
}

impl Turn<'_> {
    /// The core.
    pub fn core(&mut self) -> &mut dyn Core {
        let guard = self.guard.as_mut().expect("only I/O is performed without the lock");
        guard.as_deref_mut().expect("a change puts one back")
    }

    /// Sees to it that there is room for a request, as [`Locks::ready`] does, for who owns the upkeep.
    pub fn make_ready(&mut self) -> io::Result<()> {
        self.mend()?;
        if self.core().is_off() {
            return if self.keeper().is_queue_full() { upkeep::write_queue(self) } else { Ok(()) };
        }
        let made = upkeep::make_ready(self);
        if !self.must_mend() {
            return made;
        }
        // A failure of the cache device is an error only where it costs data or an acknowledgement.
        self.mend()
    }

    /// Puts another core in the place of this one.
    pub fn replace<R>(&mut self, change: impl FnOnce(Box<dyn Core>) -> (Box<dyn Core>, R)) -> R {
        let guard = self.guard.as_mut().expect("only I/O is performed without the lock");
        let (core, result) = change(guard.take().expect("a change puts one back"));
        **guard = Some(core);
        result
    }

    /// Is there room for a request, and nothing to do first?
    pub fn is_ready(&mut self) -> bool {
        !self.must_mend() && self.keeper().is_ready()
    }

    /// The devices: of the log, and the backing store.
    pub fn stores(&mut self) -> (Store, Store) {
        let keeper = self.keeper();
        (keeper.log.disk().clone(), keeper.backing().clone())
    }

    /// Takes the upkeep; waits for whoever owns it.
    pub fn own(&mut self) -> io::Result<()> {
        self.own_unless(|_| false)
    }

    /// As [`own`](Self::own), but waits no longer than until it is not needed any more.
    fn own_unless(&mut self, enough: impl Fn(&Keeper) -> bool) -> io::Result<()> {
        while !self.owns {
            if self.keeper().owned {
                self.keeper().wanting += 1;
                self.wait()?;
                self.keeper().wanting -= 1;
                if enough(self.keeper()) {
                    // A thread of the cache's own may wait for nobody to want it.
                    self.locks.changed.notify_all();
                    break;
                }
            } else {
                self.keeper().owned = true;
                self.owns = true;
            }
        }
        Ok(())
    }

    fn wait(&mut self) -> io::Result<()> {
        let guard = self.guard.take().expect("only I/O is performed without the lock");
        holds::ended();
        self.guard = Some(self.locks.changed.wait(guard).map_err(stopped)?);
        holds::began();
        Ok(())
    }

    /// Has the cache device failed, and is it still in use?
    pub fn must_mend(&mut self) -> bool {
        self.keeper().is_broken() && !self.core().is_off()
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

impl Lease for Turn<'_> {
    fn keeper(&mut self) -> &mut Keeper {
        self.core().keeper()
    }

    fn unlocked<R>(&mut self, io: impl FnOnce() -> R) -> io::Result<R> {
        if self.owns {
            self.keeper().apart = true;
        }
        self.guard = None;
        holds::ended();
        let done = io();
        self.guard = Some(self.locks.lock()?);
        holds::began();
        if self.owns {
            self.keeper().apart = false;
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
            self.keeper().apart = true;
        }
        self.wait()?;
        if self.owns {
            self.keeper().apart = false;
        }
        Ok(true)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        holds::ended();
        // Without the lock the cache has stopped, and nobody waits for anything.
        if let Some(core) = self.guard.as_mut().and_then(|guard| guard.as_mut()) {
            if self.owns {
                core.keeper().owned = false;
            }
            if !core.is_off() {
                self.locks.call(core.keeper());
            }
        }
        if self.owns {
            self.locks.changed.notify_all();
        }
    }
}
