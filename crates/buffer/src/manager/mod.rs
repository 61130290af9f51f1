//! The buffer managers and what they share: the crate's head says how they work.

mod clean;
mod decide;
mod directory;
#[cfg(target_os = "linux")]
mod emulated;
mod error;
mod guard;
mod io;
mod many;
mod miss;
mod options;
mod stats;
mod tiered;
mod write_threads;

pub use clean::Cleaner;
#[cfg(target_os = "linux")]
pub use emulated::EmulatedIo;
pub use error::{BufferError, OpenError};
pub use guard::{PageView, PinGuard, WriteGuard};
pub use io::{DiskIo, FileIo, MemoryIo, PageIo, PageSource, QueuedPage, WalHook, WriteQueue};
pub use options::{BufferOptions, Clock};
pub use stats::{BufferStats, Decided, ObjectStats};
pub use tiered::{
    PageChange, PageInPlace, PageRead, Prepared, TierStats, TieredBuffer, TieredOptions, TieredStats, Tuning,
    TuningError,
};
pub use write_threads::WriteThreads;

use crate::frame::{Frame, Key, Need, Parking};
use crate::pool::{Array, Pool};
use crate::ring::{Hit, Ring, SLOTS, Slot};
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Condvar, Mutex, MutexGuard};
use crate::table::{ArrayTable, HashTable, PageTable, Sharding, TableKey};
use decide::{Build, Decider, Desk, Plan};
use entresol_core::{Address, ObjectId, Op};
use entresol_policy::{Config, Info, Options, catalogue};
use std::time::Instant;

/// Attempts at an optimistic read before the page is pinned instead. Without the limit, a page that is written all
/// the time would starve its readers.
const OPTIMISTIC_ATTEMPTS: usize = 8;

/// Pages in DRAM; see [the crate](crate). Over DRAM and NVM, use a [`TieredBuffer`].
///
/// ```
/// use entresol_core::{Address, ObjectId};
/// use entresol_buffer::{BufferManager, BufferOptions, MemoryIo};
/// use entresol_policy::{Options, catalogue};
///
/// let policy = catalogue::info("arc")?;
/// let manager =
///     BufferManager::hashed(BufferOptions::new(1000), policy, &Options::defaults(policy), MemoryIo::new(), None)?;
/// let at = Address { object: ObjectId(3), block: 7 };
/// manager.update(at)?[..5].copy_from_slice(b"hello");
/// assert_eq!(&manager.pin(at)?[..5], b"hello");
/// assert_eq!(manager.read(at, |page| page.u8_at(1))?, b'e');
/// manager.flush()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct BufferManager<T: PageTable, I: PageIo> {
    options: BufferOptions,
    table: T,
    pool: Pool,
    frames: Array<Frame>,
    parking: Parking,
    shards: Vec<Shard>,
    /// Index: shard times `SLOTS` plus the thread's slot.
    rings: Vec<Ring>,
    io: I,
    wal: Option<Box<dyn WalHook>>,
    opened: Instant,
    counts: Counts,
    /// First error that had no caller to return it to; the next flush reports it.
    unreported: Mutex<Option<BufferError>>,
    /// Held to sync the storage.
    syncing: Mutex<()>,
    /// Syncs of the storage that failed.
    syncs_failed: AtomicU64,
    cleaning: clean::Cleaning,
}

/// A share of the pages, with the policy that decides about them.
struct Shard {
    state: Mutex<ShardState>,
    /// Signalled when a frame becomes free, or an eviction fails.
    freed: Condvar,
    /// Hits of threads without a slot.
    slotless_hits: AtomicU64,
}

struct ShardState {
    decider: Box<dyn Decider>,
    free: Vec<u32>,
    /// Frames of pages that the policy does not hold: in use, or on their way out.
    orphans: Vec<u32>,
    /// Dirty evictions whose write has not ended.
    evicting: usize,
    /// Threads that wait for a frame. At 0 no wake-up is sent, which saves a system call.
    waiting: usize,
    batch: Vec<Hit>,
    /// An empty plan with its capacity, so that most decisions allocate nothing.
    plan: Plan,
}

#[derive(Default)]
struct Counts {
    misses: AtomicU64,
    page_reads: AtomicU64,
    page_writes: AtomicU64,
    skipped_write_backs: AtomicU64,
    syncs: AtomicU64,
    wal_flushes: AtomicU64,
    errors: AtomicU64,
    dirty: AtomicUsize,
}

impl<I: PageIo> BufferManager<ArrayTable, I> {
    /// A manager for the blocks `0..database_pages` of object 0, with an array for a page table.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn dense(
        options: BufferOptions,
        database_pages: usize,
        policy: &'static Info,
        policy_options: &Options,
        io: I,
        wal: Option<Box<dyn WalHook>>,
    ) -> Result<Self, OpenError> {
        options.check()?;
        let table = ArrayTable::new(database_pages, sharding(&options, policy)).map_err(OpenError::Memory)?;
        BufferManager::open(options, table, policy, policy_options, io, wal)
    }
}

impl<I: PageIo> BufferManager<HashTable, I> {
    /// A manager for pages of many objects, with a hash table.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn hashed(
        options: BufferOptions,
        policy: &'static Info,
        policy_options: &Options,
        io: I,
        wal: Option<Box<dyn WalHook>>,
    ) -> Result<Self, OpenError> {
        options.check()?;
        let table =
            HashTable::new(options.frames_per_shard(), sharding(&options, policy)).map_err(OpenError::Memory)?;
        BufferManager::open(options, table, policy, policy_options, io, wal)
    }
}

impl<T: PageTable, I: PageIo> BufferManager<T, I> {
    fn open(
        options: BufferOptions,
        table: T,
        policy: &'static Info,
        policy_options: &Options,
        io: I,
        wal: Option<Box<dyn WalHook>>,
    ) -> Result<Self, OpenError> {
        let frames = options.frames_per_shard() * options.shards;
        let shard = |number: usize| {
            let state = ShardState {
                decider: decider(&options, number, policy, policy_options)?,
                // The first frame is taken first.
                free: (0..options.frames_per_shard()).rev().map(|f| (f * options.shards + number) as u32).collect(),
                orphans: Vec::new(),
                evicting: 0,
                waiting: 0,
                batch: Vec::with_capacity(2 * crate::ring::RING),
                plan: Plan::default(),
            };
            let slotless_hits = AtomicU64::new(0);
            Ok(Shard { state: Mutex::new(state), freed: Condvar::new(), slotless_hits })
        };
        let shards: Vec<Shard> = (0..options.shards).map(shard).collect::<Result<_, OpenError>>()?;
        Ok(BufferManager {
            table,
            pool: Pool::new(frames, options.page_bytes)?,
            frames: Array::of_frames(frames).map_err(OpenError::Memory)?,
            parking: Parking::new(),
            shards,
            rings: (0..options.shards * SLOTS).map(|_| Ring::new()).collect(),
            io,
            wal,
            opened: Instant::now(),
            counts: Counts::default(),
            unreported: Mutex::new(None),
            syncing: Mutex::new(()),
            syncs_failed: AtomicU64::new(0),
            cleaning: clean::Cleaning::default(),
            options,
        })
    }

    /// Looks at a page without pinning it, and returns the result of `look`. `look` may run several times, and on bytes
    /// that are being changed; only the result of an undisturbed run is returned.
    ///
    /// # Errors
    /// [`BufferError::OutOfRange`]. On a miss, also any error of reading the page or of freeing a frame for it.
    #[inline]
    pub fn read<R>(&self, at: Address, mut look: impl FnMut(&PageView) -> R) -> Result<R, BufferError> {
        let key = self.key(at)?;
        for _ in 0..OPTIMISTIC_ATTEMPTS {
            let Some(number) = self.lookup(key) else { break };
            let frame = &self.frames[number as usize];
            let Some(stamp) = frame.word.begin_read() else { break };
            if frame.key() != key.0 {
                continue;
            }
            let handle = frame.handle();
            let seen = look(&self.view(number));
            if frame.word.validate(stamp) {
                frame.word.touch(stamp);
                self.hit(number, handle, Op::Read);
                return Ok(seen);
            }
        }
        let pinned = self.pin(at)?;
        Ok(look(&self.view(pinned.frame)))
    }

    /// Pins a page: its bytes neither move nor change while the guard lives.
    ///
    /// # Errors
    /// As [`read`](BufferManager::read).
    #[inline]
    pub fn pin(&self, at: Address) -> Result<PinGuard<'_, T, I>, BufferError> {
        let (frame, passing) = self.acquire(at, Op::Read)?;
        Ok(PinGuard { manager: self, frame, passing })
    }

    /// Owns a page, to change part of it.
    ///
    /// # Errors
    /// As [`read`](BufferManager::read).
    pub fn update(&self, at: Address) -> Result<WriteGuard<'_, T, I>, BufferError> {
        let (frame, passing) = self.acquire(at, Op::Update)?;
        Ok(WriteGuard { manager: self, frame, passing })
    }

    /// Owns a page whose old contents do not matter: the page is not read from storage, and begins as zeroes.
    ///
    /// # Errors
    /// As [`read`](BufferManager::read).
    pub fn overwrite(&self, at: Address) -> Result<WriteGuard<'_, T, I>, BufferError> {
        let (frame, passing) = self.acquire(at, Op::Write)?;
        let mut guard = WriteGuard { manager: self, frame, passing };
        guard.fill(0);
        Ok(guard)
    }

    /// The frame of a page, pinned for a read or owned for a write; and true if the page leaves after use.
    #[inline]
    fn acquire(&self, at: Address, op: Op) -> Result<(u32, bool), BufferError> {
        let key = self.key(at)?;
        loop {
            let Some(number) = self.lookup(key) else {
                match self.miss(key, op)? {
                    Some(found) => return Ok(found),
                    None => continue,
                }
            };
            let word = &self.frames[number as usize].word;
            let taken = if op.is_write() { word.try_exclusive() } else { word.try_pin() };
            let frame = &self.frames[number as usize];
            if taken && frame.key() == key.0 {
                self.hit(number, frame.handle(), op);
                return Ok((number, false));
            }
            if taken {
                // The frame took another page between the lookup and the pin.
                self.parking.wake(number, if op.is_write() { word.release_unchanged() } else { word.unpin() });
            } else {
                self.parking.wait(number, word, if op.is_write() { Need::Exclusive } else { Need::Shared });
            }
        }
    }

    #[inline(always)]
    fn key(&self, at: Address) -> Result<TableKey, BufferError> {
        let key = Key::pack(at).map(TableKey).filter(|&key| self.table.covers(key));
        key.ok_or(BufferError::OutOfRange(at))
    }

    #[inline(always)]
    fn lookup(&self, key: TableKey) -> Option<u32> {
        self.table.get(key, |frame| self.frames[frame as usize].key() == key.0)
    }

    #[inline(always)]
    fn view(&self, frame: u32) -> PageView<'_> {
        // SAFETY: the frame is mapped as long as the manager lives, and aligned to a page.
        unsafe { PageView::new(self.pool.frame(frame), self.pool.page_bytes()) }
    }

    /// The shard of a frame: frames are dealt out to the shards in turn.
    #[inline(always)]
    fn shard_of_frame(&self, frame: u32) -> usize {
        frame as usize & (self.shards.len() - 1)
    }

    /// Records a hit for the policy.
    #[inline(always)]
    fn hit(&self, frame: u32, handle: u32, op: Op) {
        let shard = self.shard_of_frame(frame);
        let Some(slot) = Slot::mine() else { return self.hit_without_slot(shard) };
        let hit = Hit::new(frame, handle, op);
        let ring = &self.rings[shard * SLOTS + slot.0];
        match ring.push(hit) {
            Some(held) if held < self.options.hit_batch => {}
            Some(held) => self.hit_many(shard, held),
            None => self.hit_full_ring(shard, ring, hit),
        }
    }

    /// Delivers a full batch, or, if another thread holds the shard's lock, leaves that to the next batch.
    #[cold]
    fn hit_many(&self, shard: usize, held: usize) {
        if held.is_multiple_of(self.options.hit_batch) {
            self.try_deliver(shard);
        }
    }

    #[cold]
    fn hit_full_ring(&self, shard: usize, ring: &Ring, hit: Hit) {
        self.try_deliver(shard);
        if ring.push(hit).is_none() {
            ring.lose();
        }
    }

    #[cold]
    fn hit_without_slot(&self, shard: usize) {
        self.shards[shard].slotless_hits.fetch_add(1, Ordering::Relaxed);
    }

    fn lock(&self, shard: usize) -> MutexGuard<'_, ShardState> {
        self.shards[shard].state.lock().expect("no policy panicked")
    }

    /// Runs a decision with everything that the policy may ask for.
    fn decide<R>(
        &self,
        state: &mut ShardState,
        plan: &mut Plan,
        run: impl FnOnce(&mut dyn Decider, &[Hit], &mut Desk) -> R,
    ) -> R {
        // Looking at the clock is not free.
        let asks = state.decider.clock() && self.options.clock == Clock::Real;
        let now_us = asks.then(|| self.opened.elapsed().as_micros() as u64);
        let object_pages = |object: ObjectId| self.io.object_pages(object);
        let (frames, parking) = (&*self.frames, &self.parking);
        let mut desk = Desk { frames, parking, object_pages: &object_pages, now_us, plan };
        run(&mut *state.decider, &state.batch, &mut desk)
    }

    /// Replaces the policy and keeps the contents: the new policy is notified of the pages that the old one held.
    ///
    /// # Errors
    /// See [`OpenError`]; the old policy stays.
    pub fn change_policy(&self, policy: &'static Info, options: &Options) -> Result<(), OpenError> {
        let build = |shard| decider(&self.options, shard, policy, options);
        let deciders: Vec<_> = (0..self.shards.len()).map(build).collect::<Result<_, _>>()?;
        for (shard, mut decider) in deciders.into_iter().enumerate() {
            let mut state = self.lock(shard);
            let mut plan = self.drain(shard, &mut state);
            let residents = state.decider.residents();
            decider.set_counts(state.decider.decided(), state.decider.objects().to_vec());
            state.decider = decider;
            self.decide(&mut state, &mut plan, |decider, _, desk| decider.adopt(&residents, desk));
            let carried_out = self.finish(shard, state, plan);
            self.keep_error(carried_out);
        }
        Ok(())
    }

    /// Counts of the work so far.
    pub fn stats(&self) -> BufferStats {
        let mut decided = Decided::default();
        (0..self.shards.len()).for_each(|shard| decided.add(&self.lock(shard).decider.decided()));
        let rings = self.rings.iter().map(Ring::counts).fold((0, 0), |sum, ring| (sum.0 + ring.0, sum.1 + ring.1));
        let slotless: u64 = self.shards.iter().map(|shard| shard.slotless_hits.load(Ordering::Relaxed)).sum();
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        BufferStats {
            decided,
            hits: rings.0 + slotless,
            lost_hits: rings.1 + slotless,
            misses: get(&self.counts.misses),
            page_reads: get(&self.counts.page_reads),
            page_writes: get(&self.counts.page_writes),
            skipped_write_backs: get(&self.counts.skipped_write_backs),
            syncs: get(&self.counts.syncs),
            wal_flushes: get(&self.counts.wal_flushes),
            errors: get(&self.counts.errors),
            dirty: self.counts.dirty.load(Ordering::Relaxed) as u64,
        }
    }

    /// Requests by object that reached the policies: all misses, and the hits delivered so far.
    pub fn object_stats(&self) -> Vec<ObjectStats> {
        let mut sum = vec![ObjectStats::default(); self.options.objects];
        for shard in 0..self.shards.len() {
            let state = self.lock(shard);
            sum.iter_mut().zip(state.decider.objects()).for_each(|(sum, object)| sum.add(object));
        }
        sum
    }

    /// Bytes of memory beside the frames: table, descriptors, rings, policies and their directories.
    pub fn metadata_bytes(&self) -> usize {
        let deciders: usize = (0..self.shards.len()).map(|shard| self.lock(shard).decider.memory_bytes()).sum();
        let rings = self.rings.len() * size_of::<Ring>();
        deciders + rings + self.table.memory_bytes() + self.frames.len() * size_of::<Frame>()
    }

    /// The reason why the frames are not on huge pages, if they are known not to be.
    pub fn without_huge_pages(&self) -> Option<&str> {
        self.pool.without_huge_pages()
    }

    /// The storage.
    pub fn io(&self) -> &I {
        &self.io
    }
}

/// Division of the pages for a policy. Policies that ask for addresses get runs: they see neighbours only in one shard.
fn sharding(options: &BufferOptions, policy: &Info) -> Sharding {
    if policy.addresses { Sharding::runs(options.shards) } else { Sharding::pages(options.shards) }
}

/// The policy of one shard, with its directory.
fn decider(
    options: &BufferOptions,
    shard: usize,
    policy: &'static Info,
    policy_options: &Options,
) -> Result<Box<dyn Decider>, OpenError> {
    if policy.future {
        return Err(OpenError::Future(policy.name));
    }
    if policy.tiers.len() != 1 {
        return Err(OpenError::Tiers { policy: policy.name, tiers: policy.tiers });
    }
    let config = Config {
        pages: options.handles_per_shard(),
        objects: options.objects,
        tiers: vec![options.pages_of_shard(shard)],
        page_bytes: options.page_bytes as u32,
        seed: options.seed.wrapping_add(shard as u64),
        peak_temporal_distance: options.peak_temporal_distance,
    };
    let build = Build { config: &config, options: policy_options };
    catalogue::build(policy, &config, policy_options, build)?.map_err(OpenError::Memory)
}
