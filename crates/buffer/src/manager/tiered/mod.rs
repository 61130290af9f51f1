//! The buffer over two tiers: DRAM, and byte-addressable NVM whose pages are read and written in place.

mod behind;
mod change;
mod executor;
mod reading;
mod serving;
mod tuning;

pub use change::{PageChange, PageInPlace};
pub use reading::{PageRead, Prepared};
pub use tuning::{Tuning, TuningError};

use super::stats::Decided;
use super::{BufferError, Clock, OpenError, PageIo, WalHook};
use crate::frame::Key;
use crate::sync::{Condvar, Mutex, MutexGuard};
use change::Change;
use entresol_core::{Address, Op, Outcome, Page, Request};
use entresol_device::emulated::{Clock as DeviceClock, Mapped};
use entresol_policy::catalogue::Visitor;
use entresol_policy::miniature::Miniatures;
use entresol_policy::{Config, Info, Options, Policy, catalogue};
use entresol_tune::EpochRow;
use executor::TieredExecutor;
use serving::Serving;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use tuning::{NEVER_DUE, Tuned};

/// Sizes and settings of a tiered buffer.
#[derive(Clone, Debug)]
pub struct TieredOptions {
    /// Pages of the DRAM tier. The NVM tier has as many whole pages as fit its region.
    pub dram_pages: usize,
    /// Page size in bytes: a power of two from 4096 to 65536.
    pub page_bytes: usize,
    /// Handles per page of both tiers for the policy's directory: resident pages, and others that the policy remembers.
    /// A page that finds no handle is served from storage without asking the policy.
    pub handles_per_page: usize,
    /// Objects. The policy sees further objects as the last one.
    pub objects: usize,
    /// Writes to storage that may be under way behind the requesters' backs, if the storage has a queue of writes
    /// ([`PageIo::write_queue`]). Each written page waits in memory of its own. At the limit, a requester that causes
    /// another write waits for one to end. With 0, a requester waits for each write that it causes.
    pub write_behind: usize,
    /// Time of a request, for policies that ask.
    pub clock: Clock,
    /// Seed of random choices.
    pub seed: u64,
}

impl TieredOptions {
    /// Options for this many pages of 4 KiB in DRAM, and defaults for the rest.
    pub fn new(dram_pages: usize) -> Self {
        TieredOptions {
            dram_pages,
            page_bytes: 4096,
            handles_per_page: 4,
            objects: 16,
            // As many as the simulator has.
            write_behind: 256,
            clock: Clock::Real,
            seed: 42,
        }
    }
}

/// Counts of one tier's traffic, as the simulator counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierStats {
    /// Reads whose page was found in this tier.
    pub read_hits: u64,
    /// Writes whose page was found in this tier.
    pub write_hits: u64,
    /// Pages read from storage into this tier.
    pub fetched: u64,
    /// Pages that a write put or changed in this tier.
    pub installed: u64,
    /// Pages copied in from the other tier.
    pub copied_in: u64,
    /// Pages that the policy wanted written to storage from this tier.
    pub written_back: u64,
}

/// Counts of a tiered buffer's work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TieredStats {
    /// Decisions of the policy.
    pub decided: Decided,
    /// By tier: DRAM, NVM.
    pub tiers: [TierStats; 2],
    /// Pages read from storage.
    pub page_reads: u64,
    /// Pages written to storage.
    pub page_writes: u64,
    /// Write-backs of pages that were written already, or whose write was under way.
    pub skipped_write_backs: u64,
    /// Times that the log had to be made durable before a page was written.
    pub wal_flushes: u64,
    /// Writes to storage under way behind the requesters' backs.
    pub writes_under_way: u64,
    /// Times that a caller waited for one of these writes to end.
    pub waits_for_writes: u64,
    /// Reads, writes and syncs that failed.
    pub errors: u64,
    /// Dirty pages that left the tiers unwritten. They wait in memory of their own; every flush tries again.
    pub evicted_dirty: u64,
    /// Requests for which there was no handle: served from storage.
    pub without_handle: u64,
}

/// Pages in DRAM, and in byte-addressable NVM where they are read and written in place.
///
/// A policy with two tiers decides on every request and moves pages between the tiers and the storage. The buffer is
/// made for the four-probability policy of 003 (`multi-tier`, section 3). A request pays the NVM only for the bytes it
/// touches: a read of 64 bytes of a page in NVM reads 64 bytes of it.
///
/// One lock covers all decisions and copies. So a request sees exactly what the policy decided, and one thread's counts
/// are the simulator's. Almost no thread waits for storage with the lock:
/// - A requester reads its missing page before the policy is asked, without the lock.
/// - Where the storage has a queue of writes ([`PageIo::write_queue`]), a page is written back behind the requester's
///   back, as in the simulator. Its frame is free at once. Until the write has ended, the page is read from memory of
///   its own.
///
/// So the misses of several threads wait side by side, and hits come one by one. For many processors, use the buffer of
/// one tier, [`BufferManager`](super::BufferManager).
///
/// Policies are not told that a request is sequential, or that a query begins.
///
/// NVM serves as memory that is slower and cheaper than DRAM. Its contents are not found again after a restart: a
/// change is durable after [`flush`](TieredBuffer::flush), as with DRAM.
///
/// ```
/// use entresol_core::{Address, ObjectId};
/// use entresol_device::emulated::{Mapped, Slowdown};
/// use entresol_buffer::{MemoryIo, TieredBuffer, TieredOptions};
/// use entresol_policy::{Options, catalogue};
///
/// // Policy b of 003: few pages go up to DRAM, modified ones stay in NVM. 100 pages of DRAM over 1000 pages of
/// // NVM that is four times as slow.
/// let policy = catalogue::info("multi-tier")?;
/// let options = Options::parse(policy, ["preset=b"])?;
/// let nvm = Mapped::anonymous(1000 * 4096, Slowdown { read: 4.0, write: 4.0 })?;
/// let buffer = TieredBuffer::new(TieredOptions::new(100), policy, &options, nvm, MemoryIo::new(), None)?;
/// let at = Address { object: ObjectId(0), block: 7 };
/// buffer.write(at, 100, b"hello")?;
/// let mut word = [0; 5];
/// buffer.read(at, 100, &mut word)?;
/// assert_eq!(&word, b"hello");
/// buffer.flush()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TieredBuffer<I: PageIo, C: DeviceClock> {
    page_bytes: usize,
    io: Arc<I>,
    state: Mutex<State<I, C>>,
    /// Signalled when the read of a page that others wait for has ended or was given up.
    arrived: Condvar,
}

struct State<I, C> {
    info: &'static Info,
    policy: Box<dyn Decide<I, C>>,
    executor: TieredExecutor<I, C>,
    tuned: Option<Tuned>,
    shadows: Option<Miniatures>,
    /// Request count at which the tuner is asked. The field stands apart from the tuner because every request reads it.
    due: u64,
    /// Epochs that ended since they were last taken.
    epochs: VecDeque<EpochRow>,
}

/// A policy of two tiers, of any type.
trait Decide<I, C>: Send {
    fn access(&mut self, request: Request, serving: &mut Serving<I, C>) -> Outcome;

    /// True if the policy keeps anything under this handle.
    fn known(&self, page: Page) -> bool;

    fn tunable(&self, at: usize) -> f64;

    fn tune(&mut self, at: usize, value: f64);
}

impl<P: Policy, I: PageIo, C: DeviceClock> Decide<I, C> for P {
    fn access(&mut self, request: Request, serving: &mut Serving<I, C>) -> Outcome {
        Policy::access(self, request, serving)
    }

    fn known(&self, page: Page) -> bool {
        self.state(page).known
    }

    fn tunable(&self, at: usize) -> f64 {
        Policy::tunable(self, at)
    }

    fn tune(&mut self, at: usize, value: f64) {
        Policy::tune(self, at, value);
    }
}

struct Boxed<I, C>(std::marker::PhantomData<fn(I, C)>);

impl<I: PageIo + 'static, C: DeviceClock + 'static> Visitor for Boxed<I, C> {
    type Output = Box<dyn Decide<I, C>>;

    fn visit<P: Policy>(self, policy: P) -> Self::Output {
        Box::new(policy)
    }
}

impl<I: PageIo + 'static, C: DeviceClock + 'static> TieredBuffer<I, C> {
    /// Makes a buffer over DRAM, a region of NVM and storage. `wal` is the host's log, if it has one.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn new(
        options: TieredOptions,
        info: &'static Info,
        policy_options: &Options,
        nvm: Mapped<C>,
        io: I,
        wal: Option<Box<dyn WalHook>>,
    ) -> Result<Self, OpenError> {
        if info.future {
            return Err(OpenError::Future(info.name));
        }
        if info.tiers.len() != 2 {
            return Err(OpenError::NotTwoTiers { policy: info.name, tiers: info.tiers });
        }
        super::options::check_page_bytes(options.page_bytes)?;
        let page_bytes = options.page_bytes;
        let nvm_pages = (nvm.size_bytes() / page_bytes as u64) as usize;
        let pages = options.dram_pages + nvm_pages;
        let config = Config {
            pages: pages.saturating_mul(options.handles_per_page).saturating_add(64),
            objects: options.objects,
            tiers: vec![options.dram_pages, nvm_pages],
            page_bytes: page_bytes as u32,
            seed: options.seed,
            peak_temporal_distance: None,
        };
        let policy = catalogue::build(info, &config, policy_options, Boxed(std::marker::PhantomData))?;
        let io = Arc::new(io);
        let executor = TieredExecutor::new(&options, config.pages, nvm, io.clone(), wal).map_err(OpenError::Memory)?;
        let state =
            State { info, policy, executor, tuned: None, shadows: None, due: NEVER_DUE, epochs: VecDeque::new() };
        Ok(TieredBuffer { page_bytes, io, state: Mutex::new(state), arrived: Condvar::new() })
    }

    /// Fills `into` from byte `offset` of a page on. In NVM, only these bytes are read.
    ///
    /// # Errors
    /// [`BufferError::OutOfRange`] for a page that no table could hold, or beyond the end of the page. Otherwise an
    /// error of reading the page or of freeing a frame. The policy's decision stands then; the bytes are right the next
    /// time.
    pub fn read(&self, at: Address, offset: usize, into: &mut [u8]) -> Result<(), BufferError> {
        self.check(at, offset, into.len())?;
        self.request(at, Op::Read, Change::Nothing)?.executor.look(|page| page.copy_to(offset, into))
    }

    /// Looks at a page in place, in DRAM or NVM, and returns the result of `look`. No page changes or leaves meanwhile:
    /// the lock is held, so `look` must not use the buffer, and other requests wait.
    ///
    /// # Errors
    /// As [`read`](TieredBuffer::read).
    pub fn look<R>(&self, at: Address, look: impl FnOnce(&PageInPlace) -> R) -> Result<R, BufferError> {
        self.request(at, Op::Read, Change::Nothing)?.executor.look(look)
    }

    /// Writes `bytes` from byte `offset` of a page on. A page that is written whole is not read from storage first. For
    /// the log, see [`update`](TieredBuffer::update).
    ///
    /// # Errors
    /// As [`read`](TieredBuffer::read). The page then has its old or its new contents.
    pub fn write(&self, at: Address, offset: usize, bytes: &[u8]) -> Result<(), BufferError> {
        self.check(at, offset, bytes.len())?;
        let op = if bytes.len() == self.page_bytes { Op::Write } else { Op::Update };
        self.request(at, op, Change::Bytes(offset, bytes))?.executor.end()
    }

    /// Changes bytes of a page: `change` gets the current bytes, under the buffer's lock. It can name the log record of
    /// the change, without which the page is not written to storage ([`PageChange::set_lsn`]). In NVM only these bytes
    /// are read and written. `change` must not use the buffer. A panic in `change` leaves the buffer unusable.
    ///
    /// # Errors
    /// As [`write`](TieredBuffer::write); `change` may not have been called.
    pub fn update(
        &self,
        at: Address,
        bytes: Range<usize>,
        change: impl FnOnce(&mut PageChange),
    ) -> Result<(), BufferError> {
        let len = bytes.end.checked_sub(bytes.start).ok_or(BufferError::OutOfRange(at))?;
        self.check(at, bytes.start, len)?;
        self.change(at, Op::Update, bytes, change)
    }

    /// Replaces a page whose old contents do not matter: the page is not read from storage, and `change` gets zeroes.
    ///
    /// # Errors
    /// As [`update`](TieredBuffer::update).
    pub fn overwrite(&self, at: Address, change: impl FnOnce(&mut PageChange)) -> Result<(), BufferError> {
        self.change(at, Op::Write, 0..self.page_bytes, change)
    }

    fn change(
        &self,
        at: Address,
        op: Op,
        range: Range<usize>,
        change: impl FnOnce(&mut PageChange),
    ) -> Result<(), BufferError> {
        let mut change = Some(change);
        let mut with = |page: &mut PageChange| change.take().expect("a write lands once")(page);
        self.request(at, op, Change::With { range, zeroed: op == Op::Write, with: &mut with })?.executor.end()
    }

    /// Waits for the writes under way, writes every changed page to storage, and syncs it. Pages stay in their tiers. A
    /// write that failed behind the requesters' backs is reported here, even if the flush repeats it with success.
    ///
    /// # Errors
    /// The first page that could not be written, or the sync.
    pub fn flush(&self) -> Result<(), BufferError> {
        self.lock().executor.flush()
    }

    /// Counts of the work so far.
    pub fn stats(&self) -> TieredStats {
        self.lock().executor.stats()
    }

    /// Asks the policy about a page, and carries out its answer.
    fn request(&self, at: Address, op: Op, mut change: Change) -> Result<MutexGuard<'_, State<I, C>>, BufferError> {
        let key = Key::pack(at).ok_or(BufferError::OutOfRange(at))?;
        let mut state = self.lock();
        state.tune_if_due();
        state.shadow(op, at);
        state.executor.make_sure_of_room()?;
        let (mut state, handle) = self.make_ready(state, key, op);
        let State { policy, executor, .. } = &mut *state;
        let handle = handle.or_else(|| executor.give_handle(key, |page| policy.known(page)));
        let mut serving = Serving { executor, change: &mut change };
        match handle {
            Some(page) => {
                serving.executor.start(page, op);
                let request = Request { page, op, sequential: false };
                let outcome = policy.access(request, &mut serving);
                serving.executor.count(request, outcome);
            }
            None => serving.serve_below(key, op),
        }
        Ok(state)
    }

    fn check(&self, at: Address, offset: usize, len: usize) -> Result<(), BufferError> {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.page_bytes);
        if inside { Ok(()) } else { Err(BufferError::OutOfRange(at)) }
    }
}

impl<I: PageIo, C: DeviceClock> TieredBuffer<I, C> {
    fn lock(&self) -> MutexGuard<'_, State<I, C>> {
        self.state.lock().expect("no policy panicked")
    }
}

impl<I: PageIo, C: DeviceClock> Drop for TieredBuffer<I, C> {
    /// Waits for the writes under way. Changes that were not flushed are lost.
    fn drop(&mut self) {
        if let Ok(state) = self.state.get_mut()
            && !std::thread::panicking()
        {
            state.executor.end_all_writes();
        }
    }
}
