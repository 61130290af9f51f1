//! A block cache: any policy of the catalogue over a cache device, in front of a backing store.

mod age_bound;
#[cfg(test)]
mod aging_tests;
mod background;
mod block;
mod change;
mod core;
mod counters;
mod counts;
#[cfg(test)]
mod crash;
mod decision;
mod directory;
mod dirty;
mod drain;
mod durability;
#[cfg(target_os = "linux")]
mod emulated;
mod engine;
mod executor;
mod frame_hits;
mod frames;
mod gaps;
mod generation;
mod grow;
mod grown;
mod hits;
#[cfg(test)]
mod hits_tests;
#[cfg(test)]
mod holds_tests;
mod learned;
mod loading;
#[cfg(test)]
mod loading_tests;
mod locks;
mod maintenance;
mod objects;
mod opening;
mod page_copy;
mod pages;
mod parts;
mod path_error;
mod peek;
mod placing;
mod plan;
mod queries;
mod ranges;
mod read;
mod read_hits;
mod read_now;
mod recorder;
mod search;
mod take_over;
mod transfers;
mod unflushed;
#[cfg(test)]
mod watermarks_tests;
mod write;

pub use block::{Block, FileBlock};
pub use counts::Counts;
pub use directory::HANDLE_BYTES;
pub use durability::{DirtyAge, WriteBackCounts};
pub use entresol_store::Clock;
pub use learned::{LEARNED_BYTES_MAX, LearnedError, LearnedState, Learning};
pub use maintenance::Refused;
pub use objects::{ByTier, ObjectCounts, Objects, REST};
pub use opening::Opening;
pub use path_error::PathError;
pub use placing::{Filled, Filling};
#[cfg(test)]
pub(crate) use ranges::nothing_is_queued_of_what_is_made_void;
pub use recorder::{Batch, Noted, Recording};
pub use unflushed::FlushProgress;

use self::background::Background;
use durability::SharedDisk;
use entresol_core::ObjectId;
use entresol_disk::{DeviceCounts, Disk, MeterReader};
use entresol_policy::{BuildError, Choice, Config, Info, Log, LogLayout, Options, Streams, Wear, Worn};
use entresol_store::arena::{Arena, ArenaError};
use entresol_store::{Generation, Geometry, Identity, Layout, Recovered, StoreCounts, StoreError};
use locks::Locks;
use maintenance::StoreAccess;
use recorder::Recorder;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use unflushed::Unflushed;

/// Frames handed to the store in one hold of the core's lock.
const FRAMES_PER_HOLD: usize = 16;

/// Interval at which an idle cache device is checked, by a sync with nothing to write.
const WATCH: Duration = Duration::from_secs(30);

/// Handling of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Writes stay in the cache until the policy writes them back. A flush makes them durable in the cache.
    WriteBack,
    /// Writes go to the cache and below. A flush makes them durable below: the cache device can be lost.
    WriteThrough,
    /// Writes go below; a page that the cache already holds is updated in the cache too.
    WriteAround,
    /// Writes are refused. Reads are cached.
    ReadOnly,
}

/// Choice of who writes the queue below and frees segments, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Maintenance {
    /// Two maintenance threads, ahead of need: requests wait only where the threads cannot keep up.
    #[default]
    Threads,
    /// Requests that find a hard limit reached. All work of the cache then follows from the requests alone.
    Requests,
    /// The test does the work of the maintenance threads.
    #[cfg(test)]
    Hand,
}

/// The layout in which a policy's evictions free space at no further cost. A log frees its oldest segment, and must first copy
/// the pages there that a policy with another order still holds.
pub fn layout_suiting(policy: &Info) -> Layout {
    if policy.log { Layout::Log } else { Layout::Slots }
}

/// Name of the policy of a cache for which none was given: `reuse` where pages leave the layout in any order (`lab/results/default.md`),
/// with memory above the cache too (`lab/results/memory.md`); `face-gsc` in a ring.
pub fn default_policy(layout: Layout) -> &'static str {
    if layout.has_slots() { "reuse" } else { "face-gsc" }
}

/// Capacities in pages of a policy's tiers over a cache of `space` pages, fastest first. Memory that is asked for is the upper
/// tier of a policy of two, and an LRU pool above any other; none is the policy's own share. 0 pages are no pool.
pub fn tiers(policy: &Info, space: u64, memory: Option<u64>) -> Vec<usize> {
    let upper = match (policy.tiers.len(), memory) {
        (1, memory) => memory.filter(|&pages| pages > 0).map(|pages| pages as usize),
        (_, Some(pages)) => Some(pages as usize),
        (_, None) => Some(((space as f64 * policy.top_share) as usize).max(policy.min_pages[0])),
    };
    upper.into_iter().chain([space as usize]).collect()
}

/// Facts about a request that a front-end may know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag {
    /// The request continues a sequential run.
    pub sequential: bool,
    /// Time in microseconds from some start.
    pub now_us: u64,
}

/// Configuration of a cache.
#[derive(Clone, Debug)]
pub struct CacheConfig {
    /// The policy.
    pub policy: &'static Info,
    /// Its options.
    pub options: Options,
    /// Capacity of each of the policy's tiers in pages. The last tier is the cache device; one before it is memory.
    pub tiers: Vec<usize>,
    /// Pages that the policy can know at once: residents and ghosts.
    pub handles: usize,
    /// Handling of writes.
    pub mode: Mode,
    /// Seed of the policy's random choices.
    pub seed: u64,
    /// Choice of the threads that do maintenance.
    pub maintenance: Maintenance,
    /// Bound on the pages that the policy has written to the cache device, where slots are given by segments.
    pub wear: Wear,
    /// Time for which a page may differ from the backing store, in whole seconds. None: no bound.
    pub dirty_age: Option<Duration>,
    /// Clock by which ages are measured.
    pub clock: Clock,
    /// Memory that outlives the process, for what is answered and only in memory. None: such writes are lost with the
    /// process.
    pub arena: Option<Arc<Arena>>,
    /// Interval at which a cache with threads checks its device while no other call reaches the device. None: never.
    pub watch: Option<Duration>,
}

impl CacheConfig {
    /// Write-back with the policy's default options, and handles for as many pages as the policy knows with these.
    pub fn new(policy: &'static Info, tiers: &[usize]) -> Self {
        CacheConfig {
            policy,
            options: Options::defaults(policy),
            tiers: tiers.to_vec(),
            handles: known(policy, tiers),
            mode: Mode::WriteBack,
            seed: 42,
            maintenance: Maintenance::default(),
            wear: Wear::Unbounded,
            dirty_age: None,
            clock: Clock::monotonic(),
            arena: None,
            watch: Some(WATCH),
        }
    }

    /// Capacities of the tiers under another policy. Memory that was asked for stays, and a policy's own share goes with it.
    pub fn tiers_under(&self, policy: &Info) -> Vec<usize> {
        let space = *self.tiers.last().expect("a policy has a tier") as u64;
        let is_asked_for = self.tiers != tiers(self.policy, space, None);
        let memory = (is_asked_for && self.tiers.len() == 2).then(|| self.tiers[0] as u64);
        tiers(policy, space, memory)
    }

    /// Options that the policy is built with. Its per-page history is capped at the handles left beside the tiers,
    /// unless the options set a bound. Incremental versions replace steps that take no time in the simulator.
    fn built_with(&self) -> Result<Options, BuildError> {
        let given = match self.mode {
            Mode::WriteBack => self.options.summary(),
            _ => self.options.for_through().summary(),
        };
        let name = |option: &str| option.split('=').next().map(str::to_owned);
        let mut own: Vec<String> = self.policy.live.iter().map(|&option| option.to_owned()).collect();
        if let Some(bound) = self.policy.known_bound.filter(|bound| self.options.text(bound) == "0") {
            // One handle is the requested page's own.
            let space = self.handles.saturating_sub(self.tiers.iter().sum::<usize>() + 1).max(1);
            own.push(format!("{bound}={space}"));
        }
        let others = |part: &&str| !part.is_empty() && own.iter().all(|own| name(own) != name(part));
        Options::parse(self.policy, given.split(':').filter(others).chain(own.iter().map(String::as_str)))
    }

    /// Configuration of the policy over a store of this geometry for so many pages; with the log of its lowest tier,
    /// where the store gives its slots by segments.
    fn built_for(&self, page_bytes: u64, objects: usize, store: (&Geometry, u64)) -> (Config, Option<Box<Log>>) {
        let mut config = Config {
            pages: self.handles,
            objects,
            tiers: self.tiers.clone(),
            page_bytes: page_bytes as u32,
            seed: self.seed,
            peak_temporal_distance: None,
        };
        let (geometry, room_pages) = store;
        let log = (geometry.layout == Layout::Segments).then(|| {
            let layout = LogLayout { segment_bytes: Some(geometry.segment_bytes()), wear: self.wear };
            Box::new(layout.below(room_pages as usize, &mut config, self.policy.ranked))
        });
        (config, log)
    }
}

/// Pages that a policy knows with tiers of these sizes.
fn known(policy: &Info, tiers: &[usize]) -> usize {
    let pages = tiers.iter().fold(0, |sum: usize, &tier| sum.saturating_add(tier));
    policy.known_per_page.saturating_mul(pages).saturating_add(16)
}

/// Reason for which a cache cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The store on the cache device.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The policy.
    #[error(transparent)]
    Policy(#[from] BuildError),
    /// The policy needs what a live cache cannot give.
    #[error("policy '{policy}' cannot run live: {why}")]
    NotLive {
        /// The policy.
        policy: &'static str,
        /// Need of the policy.
        why: &'static str,
    },
    /// The memory that a former process left.
    #[error(transparent)]
    Arena(#[from] ArenaError),
    /// The tier on the cache device is larger than the device allows.
    #[error("a cache tier of {given} pages does not fit: the store has room for {space}")]
    TierTooLarge {
        /// Pages asked for.
        given: usize,
        /// Pages that fit.
        space: u64,
    },
    /// The tiers have more pages than policies have numbers for.
    #[error(
        "tiers of {pages} pages in all are too many: the policy would know {known} pages, and there are numbers for 2^32"
    )]
    TooManyPages {
        /// Pages asked for.
        pages: usize,
        /// Pages that the policy would know.
        known: usize,
    },
}

/// Counts and state of a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheStats {
    /// Requests and movements.
    pub counts: Counts,
    /// Counts of the work for durability.
    pub write_back: WriteBackCounts,
    /// Counts of the work on the cache device.
    pub store: StoreCounts,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Pages whose newest version is not known to be durable outside the cache.
    pub dirty_pages: u64,
    /// The bound on the age of dirty pages and its results, if there is a bound.
    pub dirty_age: Option<DirtyAge>,
    /// Pages that the policy may keep in the store, and what was written there, where slots are given by segments.
    pub log: Option<(u64, Worn)>,
    /// Bytes of memory of the store's index.
    pub index_bytes: u64,
    /// Bytes of memory by which pages and the policy's handles find each other, ghosts included.
    pub directory_bytes: u64,
    /// Bytes of memory for the ages of dirty pages.
    pub ages_bytes: u64,
    /// Bytes of memory for the tables of hits that are read without the decision lock.
    pub hits_bytes: u64,
    /// Hits that were read without the decision lock and of which the policy never heard. They are counted as reads.
    pub hits_dropped: u64,
    /// The mode.
    pub mode: Mode,
    /// Description of the cache device's failure, if it failed; requests then go to the backing store.
    pub failed: Option<String>,
}

/// A cache device in front of a backing store, as one range of bytes.
///
/// ```
/// use entresol_crashtest::{Power, SimDisk};
/// use entresol_cache::{Block, BlockCache, CacheConfig};
/// use entresol_store::{Geometry, Layout};
/// let (cache, backing) = (SimDisk::new(1 << 20, &Power::steady()), SimDisk::new(1 << 22, &Power::steady()));
/// let geometry = Geometry::for_device(1 << 20, 4096, Layout::Log)?;
/// BlockCache::format(&cache, geometry, &backing, [7; 16], [1; 16])?;
/// let config = CacheConfig::new(entresol_policy::catalogue::info("lru")?, &[100]);
/// let cache = BlockCache::open(cache, backing, [1; 16], &config)?;
/// cache.write(5000, b"hello", false)?;
/// cache.flush()?;
/// let mut bytes = [0; 5];
/// cache.read(5000, &mut bytes)?;
/// assert_eq!(&bytes, b"hello");
/// cache.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct BlockCache {
    locks: Arc<Locks>,
    config: Mutex<CacheConfig>,
    /// Held by a change that takes many holds of the core's lock.
    changing: Mutex<()>,
    read_only: AtomicBool,
    background: Mutex<Option<Background>>,
    room_pages: AtomicU64,
    size_bytes: u64,
    page_bytes: u64,
    objects_max: usize,
    recovered: Recovered,
    learning: Learning,
    started: Instant,
    recorder: Arc<Recorder>,
    unflushed: Unflushed,
    /// The cache device and the backing store.
    disks: [SharedDisk; 2],
    /// Their meters.
    meters: [MeterReader; 2],
}

impl BlockCache {
    /// Makes an empty cache on a device for the backing store that `identity` names. `uuid` must be new.
    ///
    /// # Errors
    /// When the device is too small, or fails.
    pub fn format<C: Disk, B: Disk>(
        cache: &C,
        geometry: Geometry,
        backing: &B,
        uuid: [u8; 16],
        identity: [u8; 16],
    ) -> Result<(), StoreError> {
        BlockCache::format_of(cache, geometry, backing, uuid, identity, Generation::default())
    }

    /// As [`format`](BlockCache::format), for a backing store of this generation.
    ///
    /// # Errors
    /// As [`format`](BlockCache::format).
    pub fn format_of<C: Disk, B: Disk>(
        cache: &C,
        geometry: Geometry,
        backing: &B,
        uuid: [u8; 16],
        identity: [u8; 16],
        generation: Generation,
    ) -> Result<(), StoreError> {
        let backing_bytes = backing.size_bytes();
        let backing_pages = backing_bytes.div_ceil(u64::from(geometry.page_bytes));
        entresol_store::format(
            cache,
            geometry,
            Identity { uuid, backing: identity, backing_pages, backing_bytes },
            generation,
        )
    }

    /// Opens a formatted cache with the pages that it held, after a crash too.
    ///
    /// # Errors
    /// When the store is damaged or of another backing store, or when the policy cannot be built or does not fit.
    pub fn open<C: Disk + 'static, B: Disk + 'static>(
        cache: C,
        backing: B,
        identity: [u8; 16],
        config: &CacheConfig,
    ) -> Result<Self, CacheError> {
        Self::open_objects(cache, backing, identity, config, Objects::new(1))
    }

    /// As [`open`](BlockCache::open), over several objects: the policy is shown the recovered pages as pages of these.
    ///
    /// # Errors
    /// As [`open`](BlockCache::open).
    pub fn open_objects<C: Disk + 'static, B: Disk + 'static>(
        cache: C,
        backing: B,
        identity: [u8; 16],
        config: &CacheConfig,
        objects: Objects,
    ) -> Result<Self, CacheError> {
        BlockCache::find(cache, backing, identity, config, objects)?.start(|| Ok(())).map(|(cache, ())| cache)
    }

    fn check_room(&self, config: &CacheConfig) -> Result<(), CacheError> {
        check_room(config, self.room_pages())
    }

    /// Pages that the tier on the cache device can have at most.
    pub fn room_pages(&self) -> u64 {
        self.room_pages.load(Ordering::Acquire)
    }

    fn check_range(&self, offset: u64, len: u64) -> io::Result<()> {
        match offset.checked_add(len) {
            Some(end) if end <= self.size_bytes => Ok(()),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{len} bytes at {offset} of a device of {} bytes", self.size_bytes),
            )),
        }
    }

    /// Tag of a request that arrives now.
    pub fn tag(&self, sequential: bool) -> Tag {
        Tag { sequential, now_us: self.started.elapsed().as_micros() as u64 }
    }

    fn flush_once(&self) -> io::Result<()> {
        self.store_all_frames()?;
        let mut guard = self.locks.guard()?;
        if guard.core().is_off() {
            guard.own()?;
            return maintenance::flush_without_store(&mut guard);
        }
        let through = guard.core().mode() != Mode::WriteBack;
        if through || guard.write_back().went_past() {
            guard.own()?;
            maintenance::flush(&mut guard, through)
        } else {
            maintenance::sync_store(&mut guard)
        }
    }

    /// Invalidates all that the cache holds of the whole pages in a range of bytes, newer or not, after somebody else
    /// changed the backing store. Reads then find the backing store's bytes, and no held version is written below.
    /// After a following [`flush`](Block::flush), which syncs the backing store, no crash brings the old versions back.
    ///
    /// A crash before the flush leaves each page as the cache had it or as it is below; until `forget` is repeated,
    /// either may be read. A caller that cannot repeat it after a crash also drains, forgets and flushes *before* the
    /// change.
    ///
    /// Between the change and this call a page written earlier may still be written back over the change. Where that
    /// can happen, make the change by [`change_below`](BlockCache::change_below).
    ///
    /// # Errors
    /// `InvalidInput` beyond the end; else a store's error. The held pages are invalidated even then.
    pub fn forget(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.change_below(offset, bytes, || Ok(()))
    }

    /// Changes the backing store, bypassing the cache, and [forgets](BlockCache::forget) the whole pages in the range.
    /// No other request touches these pages meanwhile, and none is written below. `change` must not use the cache.
    ///
    /// # Errors
    /// `InvalidInput` beyond the end; the error of `change`; else a store's error. In the last two cases the held
    /// pages are invalidated all the same.
    pub fn change_below(&self, offset: u64, bytes: u64, change: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.check_range(offset, bytes)?;
        let pages = self.whole_pages(offset, bytes);
        if pages.is_empty() {
            return change();
        }
        self.change_pages(&pages, change)
    }

    /// Forgets pages of the backing store, durably.
    fn forget_pages(&self, mut pages: Vec<u64>) -> io::Result<()> {
        pages.sort_unstable();
        for run in pages.chunk_by(|page, next| page + 1 == *next) {
            self.change_pages(&(run[0]..run[0] + run.len() as u64), || Ok(()))?;
        }
        Block::flush(self)
    }

    /// The pages that lie wholly in a range.
    fn whole_pages(&self, offset: u64, bytes: u64) -> Range<u64> {
        let end = offset + bytes;
        // The last page of the device may be shorter than the others.
        let last = if end == self.size_bytes { end.div_ceil(self.page_bytes) } else { end / self.page_bytes };
        offset.div_ceil(self.page_bytes)..last
    }

    /// Lets a sequential stream bypass the cache after so many bytes, except pages that the policy holds. The policy
    /// is not asked about bypassed pages. With 0, as after an open, no stream bypasses. See [`Streams`].
    ///
    /// # Errors
    /// When the cache has stopped after a fault of its own.
    pub fn set_sequential_cutoff(&self, bytes: u64) -> io::Result<()> {
        let streams = (bytes > 0).then(|| Box::new(Streams::new(bytes.div_ceil(self.page_bytes))));
        self.locks.guard()?.core().follow(streams);
        Ok(())
    }

    /// True if writes are refused at present: for a front-end that has work to do before it writes.
    pub fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Relaxed)
    }

    /// Flushes, ends the maintenance threads and marks the cache as closed in good order.
    ///
    /// # Errors
    /// The error that a store returned.
    pub fn close(&self) -> io::Result<()> {
        // Once the end of the store is noted, nothing may be appended.
        drop(self.background.lock().unwrap_or_else(PoisonError::into_inner).take());
        let guard = self.locks.guard()?;
        self.locks.hits.end();
        drop(guard);
        Block::flush(self)?;
        self.settle_all()?;
        self.locks.exclusive()?.core().close()
    }

    /// Pages that count as cached though the policy does not hold them: their blocks or slots would never be freed.
    #[cfg(test)]
    pub(crate) fn unknown_residents(&self) -> io::Result<Vec<u64>> {
        Ok(self.locks.guard()?.core().unknown_residents())
    }

    /// True if a maintenance thread has work.
    #[cfg(test)]
    pub(crate) fn has_work(&self) -> io::Result<bool> {
        let mut guard = self.locks.guard()?;
        Ok(maintenance::Role::ALL.iter().any(|role| role.calls(guard.write_back())))
    }

    /// Does the next step of each maintenance thread.
    #[cfg(test)]
    pub(crate) fn step(&self) -> io::Result<()> {
        for role in maintenance::Role::ALL {
            let mut guard = self.locks.guard()?;
            if !guard.core().is_off() && !guard.must_mend() && role.calls(guard.write_back()) {
                background::step(role, &mut guard)?;
            }
        }
        Ok(())
    }

    /// Findings of the open.
    pub fn recovered(&self) -> Recovered {
        self.recovered
    }

    /// Counts and state.
    ///
    /// # Errors
    /// When the cache has stopped after a fault of its own.
    pub fn stats(&self) -> io::Result<CacheStats> {
        let mut guard = self.locks.guard()?;
        let (mut stats, hits) = (guard.core().stats(), &self.locks.hits);
        (stats.hits_bytes, stats.hits_dropped) = (hits.memory_bytes() as u64, hits.dropped());
        stats.counts.hits_unheard(stats.hits_dropped + hits.left());
        Ok(stats)
    }

    /// Figures that the policy reports, by name: expert weights, desired sizes, lengths of its queues.
    ///
    /// # Errors
    /// When the cache has stopped after a fault of its own.
    pub fn policy_gauges(&self) -> io::Result<Vec<(&'static str, f64)>> {
        Ok(self.locks.guard()?.core().gauges())
    }

    /// Candidates of a policy that lets one of several decide, with its figures on each. None for any other policy.
    ///
    /// # Errors
    /// When the cache has stopped after a fault of its own.
    pub fn policy_choice(&self) -> io::Result<Option<Choice>> {
        Ok(self.locks.guard()?.core().choice())
    }

    /// Use of each of these objects as the policy has found it, in a word. None where the policy does not classify
    /// objects, or has not classified this one yet.
    ///
    /// # Errors
    /// When the cache has stopped after a fault of its own.
    pub fn verdicts(&self, objects: &[ObjectId]) -> io::Result<Vec<Option<&'static str>>> {
        let mut guard = self.locks.guard()?;
        Ok(objects.iter().map(|&object| guard.core().verdict(object)).collect())
    }

    /// Calls of the cache device and of the backing store, and the time that they took.
    pub fn devices(&self) -> [DeviceCounts; 2] {
        [self.meters[0].counts(), self.meters[1].counts()]
    }

    /// Calls `use_them` with the objects: the pages of each, which may be changed, and its account. The core's lock is
    /// held meanwhile, so the call must be short.
    ///
    /// # Errors
    /// When the cache has stopped after a fault of its own.
    pub fn with_objects<R>(&self, use_them: impl FnOnce(&mut Objects) -> R) -> io::Result<R> {
        Ok(use_them(self.locks.guard()?.core().objects()))
    }

    /// Pages whose only copy could not be read: reading such a page is an error until it is written again.
    ///
    /// # Errors
    /// When the cache has stopped after a fault of its own.
    pub fn lost_pages(&self) -> io::Result<Vec<u64>> {
        Ok(self.locks.guard()?.core().lost_pages())
    }

    /// Retries each dirty page that the backing store has refused since the open, and returns those that it refuses
    /// again. To be used at the end of a cache: after a successful close these pages are dirty at the next open. Once
    /// the cache device has failed, nothing is retried.
    ///
    /// # Errors
    /// The error that the cache device returned.
    pub fn retry_refused(&self) -> io::Result<Refused> {
        self.locks.exclusive()?.core().retry_refused()
    }

    /// To be used after a failed [`drain`](BlockCache::drain): writes below every dirty page of the cache device that
    /// the backing store takes, and syncs. Otherwise as [`retry_refused`](BlockCache::retry_refused).
    ///
    /// # Errors
    /// The error that the cache device returned.
    pub fn drain_past_refused(&self) -> io::Result<Refused> {
        self.locks.exclusive()?.core().drain_past_refused()
    }

    /// Pages of which the cache device holds a version, in no order, and whether each is dirty. For a caller that
    /// reconciles the recovered pages with its own backing store.
    ///
    /// # Errors
    /// When the cache has stopped after a fault of its own.
    pub fn held_pages(&self) -> io::Result<Vec<(u64, bool)>> {
        Ok(self.locks.guard()?.core().held_pages())
    }
}

impl Block for BlockCache {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.read_tagged(offset, bytes, self.tag(false))
    }

    fn read_now(&self, offset: u64, bytes: &mut [u8]) -> bool {
        self.read_now_tagged(offset, bytes, self.tag(false))
    }

    fn write(&self, offset: u64, bytes: &[u8], fua: bool) -> io::Result<()> {
        self.write_tagged(offset, bytes, self.tag(false))?;
        if fua { Block::flush(self) } else { Ok(()) }
    }

    fn flush(&self) -> io::Result<()> {
        let told = self.locks.guard()?.write_back().changes_told;
        let result = self.flush_ahead();
        // A change is reported if the sync that covered it failed, whichever thread made that sync or has reported it.
        self.locks.guard()?.write_back().end_flush(told, result)
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.check_range(offset, bytes)?;
        let pages = self.whole_pages(offset, bytes);
        if pages.is_empty() { Ok(()) } else { self.discard_pages(pages) }
    }
}

fn check_room(config: &CacheConfig, space: u64) -> Result<(), CacheError> {
    let given = config.tiers.last().copied().unwrap_or(0);
    if given as u64 > space {
        return Err(CacheError::TierTooLarge { given, space });
    }
    let (pages, known) = (config.tiers.iter().fold(0, |sum: usize, &tier| sum.saturating_add(tier)), config.handles);
    if known >= u32::MAX as usize { Err(CacheError::TooManyPages { pages, known }) } else { Ok(()) }
}

/// `objects_max` is 1 where objects are not told apart.
fn check_live(config: &CacheConfig, objects_max: usize) -> Result<(), CacheError> {
    let info = config.policy;
    let default = |name: &str| info.options.iter().find(|option| option.name == name).map(|option| option.default);
    let why = if info.simulated.iter().any(|&option| Some(config.options.text(option)) != default(option)) {
        "its timer is for the simulator; the bound on the age of dirty pages (--dirty-age) holds for every policy"
    } else if info.future {
        "it needs to know the future"
    } else if !info.live.is_empty() && objects_max <= 1 {
        "it needs to be told of the queries of a database, whose tables are files"
    } else {
        return Ok(());
    };
    Err(CacheError::NotLive { policy: info.name, why })
}
