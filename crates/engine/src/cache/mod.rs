//! A block cache: any policy of the catalogue over a cache device, in front of a backing store.

mod aging;
#[cfg(test)]
mod aging_tests;
mod background;
mod change;
mod clean;
mod core;
mod counts;
mod directory;
mod dirty;
mod drain;
mod executor;
mod frames;
mod gaps;
mod generation;
mod grow;
mod grown;
mod locks;
mod maintenance;
mod neighbours;
mod objects;
mod opening;
mod pages;
mod peek;
mod placing;
mod queries;
mod ranges;
mod read_many;
mod read_now;
mod recorder;
mod refused;
mod search;
mod slot_reclaim;
mod unflushed;
mod unsynced;
mod watermarks;
mod write_back;
mod write_batch;

pub use crate::store::Clock;
pub use aging::DirtyAge;
pub use counts::Counts;
pub use directory::HANDLE_BYTES;
pub use objects::{ByTier, ObjectCounts, Objects, REST};
pub use opening::Opening;
pub use placing::{Filled, Filling};
#[cfg(test)]
pub(crate) use ranges::{LOOKED_AT, nothing_is_queued_of_what_is_made_void};
pub use recorder::{Batch, Noted, Recording};
pub use refused::Refused;
pub use unflushed::FlushProgress;
pub use write_back::WriteBackCounts;

use self::background::Background;
use crate::block::Block;
use crate::disk::{DeviceCounts, Disk, MeterReader};
use crate::store::{Generation, Geometry, Identity, Recovered, StoreCounts, StoreError, check_page};
use entresol_core::{ObjectId, Op};
use entresol_policy::{BuildError, Choice, Config, Info, Options, Streams};
use locks::{CoreGuard, Locks};
use maintenance::StoreAccess;
use recorder::Recorder;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use unflushed::Unflushed;
use write_back::Source;
use write_batch::read_page_below;

/// Frames that a flush hands over to the log in one turn.
const FRAMES_PER_HOLD: usize = 16;

/// Interval at which an idle cache device is asked if it still works, by a sync with nothing to write.
const WATCH: Duration = Duration::from_secs(30);

/// Handling of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Writes stay in the cache until the policy writes them back. A flush makes them durable in the cache.
    WriteBack,
    /// Writes go to the cache and below. A flush makes them durable below: the cache device can be lost.
    WriteThrough,
    /// Writes go below; a page that the cache holds already is updated there too.
    WriteAround,
    /// Writes are refused. Reads are cached.
    ReadOnly,
}

/// Choice of who makes room in the queue of pages on their way below and in the log, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Maintenance {
    /// Two threads of the cache's own, ahead of need: requests wait only where those cannot keep up.
    #[default]
    Threads,
    /// Requests that find none. All that the cache does then follows from the requests alone.
    Requests,
    /// The caller of the upkeep, as threads would.
    #[cfg(test)]
    Hand,
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
    /// Capacity of each of its tiers in pages; the last one is the cache device, one before it is memory.
    pub tiers: Vec<usize>,
    /// Pages that the policy can know at once: residents and ghosts.
    pub handles: usize,
    /// Handling of writes.
    pub mode: Mode,
    /// Seed of the policy's random choices.
    pub seed: u64,
    /// Choice of who keeps room for requests.
    pub maintenance: Maintenance,
    /// For how long a page may differ from the backing store, in whole seconds, if there is such a bound.
    pub dirty_age: Option<Duration>,
    /// Clock by which ages are measured.
    pub clock: Clock,
    /// Interval at which a cache with threads of its own asks its device if it still works, while nothing else asks the
    /// device anything. None: never.
    pub watch: Option<Duration>,
}

impl CacheConfig {
    /// Write-back with the policy's default options, and handles for as many pages as it knows with these.
    pub fn new(policy: &'static Info, tiers: &[usize]) -> Self {
        CacheConfig {
            policy,
            options: Options::defaults(policy),
            tiers: tiers.to_vec(),
            handles: known(policy, tiers),
            mode: Mode::WriteBack,
            seed: 42,
            maintenance: Maintenance::default(),
            dirty_age: None,
            clock: Clock::monotonic(),
            watch: Some(WATCH),
        }
    }

    /// The options that the policy is built with: what it would remember of all pages is bounded by the handles that it has, and
    /// by less than that where it was told to; what takes no time in the simulator is done bit by bit.
    fn built_with(&self) -> Result<Options, BuildError> {
        let mut own: Vec<String> = self.policy.live.iter().map(|&option| option.to_owned()).collect();
        if let Some(bound) = self.policy.known_bound.filter(|bound| self.options.text(bound) == "0") {
            // One handle is the requested page's own.
            let room = self.handles.saturating_sub(self.tiers.iter().sum::<usize>() + 1).max(1);
            own.push(format!("{bound}={room}"));
        }
        let given = self.options.summary();
        let name = |option: &str| option.split('=').next().map(str::to_owned);
        let others = |part: &&str| !part.is_empty() && own.iter().all(|own| name(own) != name(part));
        Options::parse(self.policy, given.split(':').filter(others).chain(own.iter().map(String::as_str)))
    }

    fn built_for(&self, page_bytes: u64, objects: usize) -> Config {
        Config {
            pages: self.handles,
            objects,
            tiers: self.tiers.clone(),
            page_bytes: page_bytes as u32,
            seed: self.seed,
            peak_temporal_distance: None,
        }
    }
}

/// Pages that a policy knows with tiers of these sizes.
fn known(policy: &Info, tiers: &[usize]) -> usize {
    let pages = tiers.iter().fold(0, |sum: usize, &tier| sum.saturating_add(tier));
    policy.known_per_page.saturating_mul(pages).saturating_add(16)
}

/// Why a cache cannot be opened.
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
    /// The tier on the cache device is larger than the device allows.
    #[error("a cache tier of {given} pages does not fit: the store has room for {room}")]
    TierTooLarge {
        /// Pages asked for.
        given: usize,
        /// Pages that fit.
        room: u64,
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
    /// Pages whose newest version is durable nowhere but in the cache, or not yet known to be.
    pub dirty_pages: u64,
    /// The bound on the age of dirty pages and what came of it, if there is one.
    pub dirty_age: Option<DirtyAge>,
    /// Bytes of memory by which the log knows what it holds of each page.
    pub index_bytes: u64,
    /// Bytes of memory by which pages and the policy's handles find each other, ghosts included.
    pub directory_bytes: u64,
    /// Bytes of memory for the ages of dirty pages.
    pub ages_bytes: u64,
    /// The mode.
    pub mode: Mode,
    /// The cache device has failed, and how; requests go to the backing store.
    pub failed: Option<String>,
}

/// A cache device in front of a backing store, as one range of bytes.
///
/// ```
/// use entresol_crashtest::{Power, SimDisk};
/// use entresol_engine::{Block, cache::{BlockCache, CacheConfig}, store::Geometry};
/// let (cache, backing) = (SimDisk::new(1 << 20, &Power::steady()), SimDisk::new(1 << 22, &Power::steady()));
/// let geometry = Geometry::for_device(1 << 20, 4096)?;
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
    /// Held by a change that takes many turns.
    changing: Mutex<()>,
    read_only: AtomicBool,
    background: Mutex<Option<Background>>,
    room_pages: AtomicU64,
    size_bytes: u64,
    page_bytes: u64,
    objects_max: usize,
    recovered: Recovered,
    started: Instant,
    recorder: Arc<Recorder>,
    unflushed: Unflushed,
    /// Meters of the cache device and of the backing store.
    meters: [MeterReader; 2],
}

impl BlockCache {
    /// Makes an empty cache on a device for a backing store, which `identity` tells from all others. `uuid` must be new.
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
        crate::store::format(
            cache,
            geometry,
            Identity { uuid, backing: identity, backing_pages, backing_bytes },
            generation,
        )
    }

    /// Opens a formatted cache; what it held is held again, after a crash too.
    ///
    /// # Errors
    /// When the store is not in order or not of this backing store, when the policy cannot be built or does not fit.
    pub fn open<C: Disk + 'static, B: Disk + 'static>(
        cache: C,
        backing: B,
        identity: [u8; 16],
        config: &CacheConfig,
    ) -> Result<Self, CacheError> {
        Self::open_objects(cache, backing, identity, config, Objects::new(1))
    }

    /// As [`open`](BlockCache::open), over several objects; what the cache holds of them is shown to the policy as theirs.
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

    /// Tag of a request that comes now.
    pub fn tag(&self, sequential: bool) -> Tag {
        Tag { sequential, now_us: self.started.elapsed().as_micros() as u64 }
    }

    /// Reads the newest version of a page whose lock is held, and takes a turn at the core.
    fn newest(&self, page: u64, bytes: &mut [u8]) -> io::Result<CoreGuard<'_>> {
        self.newest_by(page, bytes, || self.locks.ready())
    }

    /// As [`newest`](BlockCache::newest), by turns of this kind.
    fn newest_by<'a>(
        &'a self,
        page: u64,
        bytes: &mut [u8],
        take: impl Fn() -> io::Result<CoreGuard<'a>>,
    ) -> io::Result<CoreGuard<'a>> {
        let mut guard = take()?;
        let mut bad_at = None;
        loop {
            let (store, backing) = guard.stores();
            match guard.core().locate(page, bytes)? {
                // Nothing better has been found than what was bad already.
                Source::Store(entry) if bad_at == Some(entry.address) => {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "the newest copy of this page is bad"));
                }
                Source::Memory => return Ok(guard),
                Source::Below => {
                    guard.write_back().counts.below_reads += 1;
                    drop(guard);
                    read_page_below(&*backing, self.size_bytes, page, bytes)?;
                    return take();
                }
                Source::Store(entry) => {
                    let at = guard.write_back().store.byte_of(entry.address);
                    drop(guard);
                    let mut read = || store.read_at(at, bytes).and_then(|()| check_page(entry, bytes));
                    // What is wrong on the way may be right on the device: a copy is bad when it is bad twice.
                    let first = read();
                    let reads = 1 + u64::from(first.is_err());
                    let result = first.or_else(|_| read());
                    guard = take()?;
                    guard.write_back().store.count_reads(reads);
                    match result {
                        Ok(()) => return Ok(guard),
                        // Reclaim may have given its place away: then it is found where it is now.
                        Err(error) => guard.core().copy_is_bad(page, entry, error)?,
                    }
                    // While it is written below from that very copy, the end of that says what has become of the page.
                    bad_at = (!guard.write_back().is_being_written(page)).then_some(entry.address);
                }
            }
        }
    }

    /// Writes with what is known of the request. A write of several pages is several writes to a crash.
    ///
    /// # Errors
    /// As [`Block::write`]; pages before the one that failed are written.
    pub fn write_tagged(&self, offset: u64, bytes: &[u8], tag: Tag) -> io::Result<()> {
        self.check_range(offset, bytes.len() as u64)?;
        let page_bytes = self.page_bytes as usize;
        let mut page = vec![0; page_bytes];
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let within = (at % self.page_bytes) as usize;
            let len = (page_bytes - within).min(bytes.len() - done);
            let whole = within == 0 && (len == page_bytes || at + len as u64 == self.size_bytes);
            let first = done == 0;
            let tag = Tag { sequential: tag.sequential || !first, ..tag };
            let number = at / self.page_bytes;
            let _page = self.locks.pages.page(number);
            let mut guard = self.locks.ready_to_write(number)?;
            check_writable(guard.core().mode())?;
            if !whole {
                drop(guard);
                guard = self.newest(number, &mut page)?;
            }
            page[within..within + len].copy_from_slice(&bytes[done..done + len]);
            if whole {
                page[len..].fill(0);
            }
            self.recorder.note(number, if whole { Op::Write } else { Op::Update }, tag, first);
            self.write_page(guard, number, &page, whole, tag)?;
            done += len;
        }
        Ok(())
    }

    fn write_page(&self, mut guard: CoreGuard, page: u64, bytes: &[u8], whole: bool, tag: Tag) -> io::Result<()> {
        let mut result = guard.core().write(page, bytes, whole, tag);
        if guard.must_mend() {
            // A failure of the cache device turns into an error only where it cost data or an acknowledgement.
            guard.mend()?;
            result = result.or_else(|_| guard.core().write(page, bytes, whole, tag));
        }
        self.unflushed.note();
        result
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

    /// Tells that somebody else has changed the backing store: what the cache holds of the whole pages in a range of
    /// bytes is void, newer or not. Reads of them find what is below; nothing of them is written below any more; after
    /// a [`flush`](Block::flush) that follows no crash brings them back. The flush syncs the backing store.
    ///
    /// A crash before that flush leaves them as they were or as they are below now, and while that is not told again,
    /// either may be read. Whoever cannot tell it again after a crash drains the cache, forgets and flushes *before* the
    /// change as well.
    ///
    /// Between the change and this call a page that was written before may still be written back over it. Where that can
    /// be, the change is made by [`change_below`](BlockCache::change_below).
    ///
    /// # Errors
    /// `InvalidInput` beyond the end; else what a store answered. What is held is void all the same.
    pub fn forget(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.change_below(offset, bytes, || Ok(()))
    }

    /// Changes the backing store past the cache, and [forgets](BlockCache::forget) the whole pages in the range. No other
    /// request touches them meanwhile, and nothing of them is written below. `change` must not use the cache.
    ///
    /// # Errors
    /// `InvalidInput` beyond the end; what `change` answered; else what a store answered. But for the first, what is held
    /// is void all the same.
    pub fn change_below(&self, offset: u64, bytes: u64, change: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.check_range(offset, bytes)?;
        let pages = self.whole_pages(offset, bytes);
        if pages.is_empty() {
            return change();
        }
        self.change_pages(&pages, change)
    }

    /// The pages that lie in a range as a whole.
    fn whole_pages(&self, offset: u64, bytes: u64) -> Range<u64> {
        let end = offset + bytes;
        // The last page of the device may be shorter than others.
        let last = if end == self.size_bytes { end.div_ceil(self.page_bytes) } else { end / self.page_bytes };
        offset.div_ceil(self.page_bytes)..last
    }

    /// Has what comes after so many bytes of a sequential stream pass by without the policy being asked, unless the policy holds
    /// it: 0, as after an open, lets nothing pass. See [`Streams`].
    ///
    /// # Errors
    /// When the cache has stopped after a fault of its own.
    pub fn set_sequential_cutoff(&self, bytes: u64) -> io::Result<()> {
        let streams = (bytes > 0).then(|| Box::new(Streams::new(bytes.div_ceil(self.page_bytes))));
        self.locks.guard()?.core().follow(streams);
        Ok(())
    }

    /// True if writes are refused at present: for a front-end that has to do something before it writes.
    pub fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Relaxed)
    }

    /// Flushes, ends the cache's own threads and notes that the cache was left in good order.
    ///
    /// # Errors
    /// The error that a store returned.
    pub fn close(&self) -> io::Result<()> {
        // Nothing may be appended to the log any more once it is noted where it ends.
        drop(self.background.lock().unwrap_or_else(PoisonError::into_inner).take());
        Block::flush(self)?;
        self.locks.exclusive()?.core().close()
    }

    /// Pages that count as cached though the policy does not hold them: their room in the log or their slots are never free again.
    #[cfg(test)]
    pub(crate) fn unknown_residents(&self) -> io::Result<Vec<u64>> {
        Ok(self.locks.guard()?.core().unknown_residents())
    }

    /// Does what the cache's own threads would do next.
    #[cfg(test)]
    pub(crate) fn step(&self) -> io::Result<()> {
        for role in background::Role::ALL {
            let mut guard = self.locks.guard()?;
            if !guard.core().is_off() && !guard.must_mend() && role.calls(guard.write_back()) {
                role.step(&mut guard)?;
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
        Ok(self.locks.guard()?.core().stats())
    }

    /// Figures that the policy tells of itself, by name: expert weights, desired sizes, lengths of its queues.
    ///
    /// # Errors
    /// When the cache has stopped after a fault of its own.
    pub fn policy_gauges(&self) -> io::Result<Vec<(&'static str, f64)>> {
        Ok(self.locks.guard()?.core().gauges())
    }

    /// Candidates of a policy that has one of several decide, with what it knows of them; none for any other policy.
    ///
    /// # Errors
    /// When the cache has stopped after a fault of its own.
    pub fn policy_choice(&self) -> io::Result<Option<Choice>> {
        Ok(self.locks.guard()?.core().choice())
    }

    /// Use of each of these objects as the policy has found it, in a word. None where the policy does not ask, or does
    /// not know yet.
    ///
    /// # Errors
    /// When the cache has stopped after a fault of its own.
    pub fn verdicts(&self, objects: &[ObjectId]) -> io::Result<Vec<Option<&'static str>>> {
        let mut guard = self.locks.guard()?;
        Ok(objects.iter().map(|&object| guard.core().verdict(object)).collect())
    }

    /// Calls of the cache device and of the backing store, and how long they took.
    pub fn devices(&self) -> [DeviceCounts; 2] {
        [self.meters[0].counts(), self.meters[1].counts()]
    }

    /// Calls `use_them` with the objects: the pages of each, to be changed, and its account. The decision lock is held
    /// meanwhile, so not for long.
    ///
    /// # Errors
    /// When the cache has stopped after a fault of its own.
    pub fn with_objects<R>(&self, use_them: impl FnOnce(&mut Objects) -> R) -> io::Result<R> {
        Ok(use_them(self.locks.guard()?.core().objects()))
    }

    /// Pages whose only copy could not be read: reading them is an error until they are written again.
    ///
    /// # Errors
    /// When the cache has stopped after a fault of its own.
    pub fn lost_pages(&self) -> io::Result<Vec<u64>> {
        Ok(self.locks.guard()?.core().lost_pages())
    }

    /// Dirty pages that the backing store refused since the open, and refuses again now, each by itself. For the end of a
    /// cache: after a close that succeeds they are dirty at the next open. None once the cache device has failed.
    ///
    /// # Errors
    /// The error that the cache device returned.
    pub fn retry_refused(&self) -> io::Result<Refused> {
        self.locks.exclusive()?.core().retry_refused()
    }

    /// After a [`drain`](BlockCache::drain) that failed: writes every dirty page of the cache device below that the backing store
    /// takes, and syncs. The rest as [`retry_refused`](BlockCache::retry_refused).
    ///
    /// # Errors
    /// The error that the cache device returned.
    pub fn drain_past_refused(&self) -> io::Result<Refused> {
        self.locks.exclusive()?.core().drain_past_refused()
    }

    /// Pages that the cache device holds a version of, in no order, and whether each is dirty: for who has to bring what
    /// was recovered together with a backing store of his own making.
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
        // Whose sync failed does not matter to the change that it was to cover, nor does another flush that has said so.
        self.locks.guard()?.write_back().tell_failed_changes(told).and(result)
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.check_range(offset, bytes)?;
        let pages = self.whole_pages(offset, bytes);
        if pages.is_empty() { Ok(()) } else { self.discard_pages(pages) }
    }
}

fn check_room(config: &CacheConfig, room: u64) -> Result<(), CacheError> {
    let given = config.tiers.last().copied().unwrap_or(0);
    if given as u64 > room {
        return Err(CacheError::TierTooLarge { given, room });
    }
    let (pages, known) = (config.tiers.iter().fold(0, |sum: usize, &tier| sum.saturating_add(tier)), config.handles);
    if known >= u32::MAX as usize { Err(CacheError::TooManyPages { pages, known }) } else { Ok(()) }
}

fn check_writable(mode: Mode) -> io::Result<()> {
    if mode == Mode::ReadOnly {
        return Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "the cache is in read-only mode"));
    }
    Ok(())
}

/// `objects_max` is 1 where nobody tells objects apart.
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
