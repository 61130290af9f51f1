//! The last write to a backing file or device through its cache. A start compares it with what the system says of the
//! backing store: one that was written since has bytes that the cache does not know.
//!
//! `docs/backing-record.md` ("The mark of the last write") has the rules and the layout.

use super::{Mismatch, PairError, Record, RecordPlace};
use entresol_cache::Opening;
use entresol_disk::{Disk, ReadSource, Transfer};
use entresol_store::Generation;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

/// Age of the mark at which the next write sets it anew.
pub(crate) const AGAIN_MS: u64 = 1_000;

/// Greatest time from the mark to a write of ours, which a slow device may hold up.
pub(crate) const GRACE_NS: i64 = 4_000_000_000;

const MAGIC: [u8; 8] = *b"\x89ETMARK\x01";
/// Bytes of a mark.
pub const MARK_BYTES: usize = 48;

const IN_USE: u32 = 1;
const FILE_CLOSED: u32 = 2;
const DEVICE_CLOSED: u32 = 3;

/// Description of a backing store by the system, which a write changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A regular file.
    File {
        /// Size in bytes.
        bytes: u64,
        /// Time of the last modification, in nanoseconds since 1970.
        modified: i64,
    },
    /// A block device.
    Device {
        /// Sectors of 512 bytes that were written or discarded since the device appeared.
        sectors: u64,
        /// Number of that appearance: another one after the device has gone, and after the machine was started again.
        appearance: u64,
    },
}

/// Knowledge of the last write through the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The cache was in use, and its writes came no later than four seconds after this time, in nanoseconds since 1970.
    InUse(i64),
    /// The backing store as it was when the cache was closed, or opened with nothing written below since.
    Closed(Seen),
}

impl Mark {
    /// The mark as bytes, with the generation of the record at that time.
    pub fn encode(&self, generation: u64) -> [u8; MARK_BYTES] {
        let mut bytes = [0; MARK_BYTES];
        let (kind, size, time) = match *self {
            Mark::InUse(at) => (IN_USE, 0, at as u64),
            Mark::Closed(Seen::File { bytes, modified }) => (FILE_CLOSED, bytes, modified as u64),
            Mark::Closed(Seen::Device { sectors, appearance }) => (DEVICE_CLOSED, sectors, appearance),
        };
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&generation.to_le_bytes());
        bytes[16..20].copy_from_slice(&kind.to_le_bytes());
        bytes[24..32].copy_from_slice(&size.to_le_bytes());
        bytes[32..40].copy_from_slice(&time.to_le_bytes());
        let crc = super::crc(&bytes[..MARK_BYTES - 4]);
        bytes[MARK_BYTES - 4..].copy_from_slice(&crc);
        bytes
    }

    /// The mark and its generation; none if the bytes are damaged or of a kind that is not known.
    pub fn decode(bytes: &[u8]) -> Option<(Self, u64)> {
        let bytes: &[u8; MARK_BYTES] = bytes.try_into().ok()?;
        if bytes[..8] != MAGIC || bytes[MARK_BYTES - 4..] != super::crc(&bytes[..MARK_BYTES - 4]) {
            return None;
        }
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let mark = match u32::from_le_bytes(bytes[16..20].try_into().expect("four bytes")) {
            IN_USE => Mark::InUse(number(32) as i64),
            FILE_CLOSED => Mark::Closed(Seen::File { bytes: number(24), modified: number(32) as i64 }),
            DEVICE_CLOSED => Mark::Closed(Seen::Device { sectors: number(24), appearance: number(32) }),
            _ => return None,
        };
        Some((mark, number(8)))
    }

    /// True if a backing store that is seen like this was written by somebody else.
    pub fn is_foreign(&self, now: Seen) -> bool {
        match (*self, now) {
            (Mark::InUse(at), Seen::File { modified, .. }) => modified > at.saturating_add(GRACE_NS),
            (Mark::Closed(seen @ Seen::File { .. }), Seen::File { .. }) => now != seen,
            (Mark::Closed(Seen::Device { sectors, appearance }), Seen::Device { sectors: now, appearance: same }) => {
                same == appearance && now != sectors
            }
            _ => false,
        }
    }
}

/// Location of the mark of one backing store.
pub trait MarkPlace: Send + Sync {
    /// The backing store as the system shows it now.
    ///
    /// # Errors
    /// The error of the system.
    fn seen(&self) -> io::Result<Seen>;

    /// Bytes of the mark; none if there is none.
    ///
    /// # Errors
    /// The error of the system.
    fn mark_bytes(&self) -> io::Result<Option<Vec<u8>>>;

    /// Replaces the mark, which need not be durable when this returns. It becomes durable no later than any write that
    /// follows.
    ///
    /// # Errors
    /// The error of the system; `Unsupported` for a mark of a cache in use where each setting is slow.
    fn set_mark(&self, mark: &[u8; MARK_BYTES]) -> io::Result<()>;

    /// Removes the mark.
    ///
    /// # Errors
    /// The error of the system.
    fn remove_mark(&self) -> io::Result<()>;

    /// Makes the mark durable.
    ///
    /// # Errors
    /// The error of the system.
    fn sync_mark(&self) -> io::Result<()>;

    /// The time by the clock of the file's times, right after the mark was set, in nanoseconds since 1970.
    ///
    /// # Errors
    /// The error of the system.
    fn marked_at(&self) -> io::Result<i64>;
}

/// A backing store that was written without its cache, and what was done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Cached pages that were dropped.
    pub dropped: usize,
    /// Pages that were newer in the cache, among them: a write before its flush leaves those.
    pub dropped_dirty: usize,
    /// Pages that are newer in the cache and stay: a user has asked for that, or the backing store was made larger.
    pub kept_dirty: usize,
}

/// The mark of a backing store that has a cache.
pub struct LastWrite {
    place: Arc<dyn RecordPlace>,
    /// Milliseconds since some time.
    clock: Clock,
    /// Time of the clock at which the mark was last set; [`NEVER`] before the first write.
    set_ms: AtomicU64,
    now: Mutex<Now>,
}

type Clock = Box<dyn Fn() -> u64 + Send + Sync>;

const NEVER: u64 = u64::MAX;

/// The mark as it is set at present.
#[derive(Default)]
struct Now {
    /// None before the start is over, unless something was written, and where the mark could not be set.
    mark: Option<Mark>,
    generation: u64,
    /// True if the start has written below.
    is_written: bool,
    /// The mark that a start found, and the generation of the record then.
    found: Option<(Mark, u64)>,
    /// True if a start found that somebody else had written.
    is_foreign: bool,
}

impl LastWrite {
    /// The mark beside the record at this place, if that place has one.
    pub fn of(place: Arc<dyn RecordPlace>) -> Arc<Self> {
        let opened = Instant::now();
        Self::by_clock(place, Box::new(move || opened.elapsed().as_millis() as u64))
    }

    fn by_clock(place: Arc<dyn RecordPlace>, clock: Clock) -> Arc<Self> {
        Arc::new(LastWrite { place, clock, set_ms: AtomicU64::new(NEVER), now: Mutex::default() })
    }

    /// Location of the record.
    pub(super) fn place(&self) -> &dyn RecordPlace {
        &*self.place
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if the backing store was written without its cache since this record's generation. Without a mark nothing is known.
    fn is_foreign(&self, record: Option<&Record>) -> io::Result<bool> {
        let (Some(place), Some(record)) = (self.place.mark(), record) else { return Ok(false) };
        let Some((mark, generation)) = place.mark_bytes()?.and_then(|bytes| Mark::decode(&bytes)) else {
            return Ok(false);
        };
        let number = record.generation.number;
        // An earlier release raises the generation and leaves the mark. A crash may come between the two here.
        if !(generation..=generation.saturating_add(1)).contains(&number) {
            return Ok(false);
        }
        let mut now = self.now();
        now.found = Some((mark, number));
        now.is_foreign = mark.is_foreign(place.seen()?);
        Ok(now.is_foreign)
    }

    /// Looks whether the backing store was written without its cache, and has the start forget what is cached of it then. Nothing
    /// is changed before the start.
    ///
    /// # Errors
    /// [`Mismatch::Written`] for a backing store that is not complete without the cache's dirty pages, unless it was made larger or
    /// `overruled`: they stay then. Or the error of the system.
    pub fn compare(
        &self,
        opening: &mut Opening,
        record: Option<&Record>,
        overruled: bool,
    ) -> Result<Option<Changed>, PairError> {
        let failed = |error| PairError::Record { place: self.place.name(), error };
        // What outlives a process is proof that it was in use until now, by whoever reads and writes through it.
        if opening.takes_over() || !self.is_foreign(record).map_err(failed)? {
            return Ok(None);
        }
        let held = opening.held_pages();
        let dirty = held.iter().filter(|(_, dirty)| *dirty).count();
        // A complete backing store lacks nothing that was flushed.
        let keeps_dirty = dirty > 0 && !record.is_some_and(|record| record.complete);
        // A disk's image is made larger while its cache is away, and that is no other use of it. A database grows as it is written: its
        // cache knows no size.
        if keeps_dirty && !overruled && !opening.has_grown() {
            return Err(Mismatch::Written(dirty).into());
        }
        let pages: Vec<u64> =
            held.iter().filter(|(_, dirty)| !(*dirty && keeps_dirty)).map(|(page, _)| *page).collect();
        let (dropped_dirty, kept_dirty) = if keeps_dirty { (0, dirty) } else { (dirty, 0) };
        let changed = Changed { dropped: pages.len(), dropped_dirty, kept_dirty };
        opening.forget(pages);
        Ok((changed.dropped > 0 || kept_dirty > 0).then_some(changed))
    }

    /// Called before the record gets this generation and before a start may write below. The mark that was found still holds.
    pub(super) fn begin(&self, generation: Option<Generation>) {
        let mut now = self.now();
        now.generation = generation.map_or(0, |generation| generation.number);
        if let (Some(place), Some((found, number))) = (self.place.mark(), now.found) {
            // The mark may be one generation behind already. A crash of this start must not leave it two behind.
            let _as_it_was = place.set_mark(&found.encode(number));
        }
    }

    /// Called at the end of a start, which has forgotten what it doubted, durably. A backing store that it has not written is
    /// noted as it is.
    pub(super) fn begun(&self) {
        let Some(place) = self.place.mark() else { return };
        let mut now = self.now();
        if !now.is_written {
            now.set(place, || Ok(Mark::Closed(place.seen()?)));
        }
        if now.is_foreign {
            // A crash that brought back the mark of before would have what is cached from now on doubted again. Where this
            // fails it may.
            let _tried = place.sync_mark();
        }
    }

    /// Called before a write below: sets the mark if it is old.
    pub fn precede(&self) {
        let Some(place) = self.place.mark() else { return };
        let now_ms = (self.clock)();
        let is_new = |set_ms: u64| set_ms != NEVER && now_ms < set_ms + AGAIN_MS;
        if is_new(self.set_ms.load(Relaxed)) {
            return;
        }
        let mut now = self.now();
        // Another thread may have set it meanwhile.
        if !is_new(self.set_ms.load(Relaxed)) {
            now.is_written = true;
            now.set_in_use(place);
            self.set_ms.store(now_ms, Relaxed);
        }
    }

    /// Called after the record has got this generation: the mark is set anew with it.
    pub(super) fn renew(&self, generation: Option<Generation>) {
        let Some(place) = self.place.mark() else { return };
        let mut now = self.now();
        now.generation = generation.map_or(0, |generation| generation.number);
        match now.mark {
            // Whoever wrote since would be covered up by what is seen now.
            Some(closed @ Mark::Closed(_)) => now.set(place, || Ok(closed)),
            _ => {
                let now_ms = (self.clock)();
                now.set_in_use(place);
                self.set_ms.store(now_ms, Relaxed);
            }
        }
    }

    /// Called after the cache was closed, whose writes are all below or in it: notes the backing store as it is. A crash may bring
    /// back the mark of before, which still holds.
    pub(super) fn close(&self) {
        if let Some(place) = self.place.mark() {
            let mut now = self.now();
            now.set(place, || Ok(Mark::Closed(place.seen()?)));
            // The next write of anybody is to be told from ours.
            self.set_ms.store(NEVER, Relaxed);
        }
    }

    /// A backing store whose writes are preceded by the mark.
    pub fn over<D: Disk>(self: &Arc<Self>, disk: D) -> Marked<D> {
        Marked { disk, last_write: Arc::clone(self) }
    }
}

impl Now {
    /// Sets the mark. Where that fails nothing is known any more.
    fn set(&mut self, place: &dyn MarkPlace, mark: impl FnOnce() -> io::Result<Mark>) {
        let set = mark().and_then(|mark| place.set_mark(&mark.encode(self.generation)).map(|()| mark));
        if set.is_err() {
            // A mark of before would make a write of ours look like somebody else's.
            let _gone = place.remove_mark();
        }
        self.mark = set.ok();
    }

    /// Sets the mark to the present time of the file system, which it says when an attribute is changed.
    fn set_in_use(&mut self, place: &dyn MarkPlace) {
        // The mark of before still holds, for nothing is written until this returns. Where there is none, none is foreign.
        let before = self.mark.unwrap_or(Mark::InUse(i64::MAX));
        let bytes = before.encode(self.generation);
        self.set(place, || place.set_mark(&bytes).and_then(|()| place.marked_at()).map(Mark::InUse));
    }
}

/// The time by this machine's clock in nanoseconds since 1970.
pub(super) fn clock_ns() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// A backing store whose [mark](LastWrite) precedes each write.
pub struct Marked<D> {
    disk: D,
    last_write: Arc<LastWrite>,
}

impl<D: Disk> Disk for Marked<D> {
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.disk.read_at(at, bytes)
    }

    fn read_now(&self, at: u64, bytes: &mut [u8]) -> bool {
        self.disk.read_now(at, bytes)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.last_write.precede();
        self.disk.write_at(at, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.sync()
    }

    fn discard(&self, at: u64, bytes: u64) -> io::Result<()> {
        self.last_write.precede();
        self.disk.discard(at, bytes)
    }

    fn grow(&self, size_bytes: u64) -> io::Result<()> {
        self.last_write.precede();
        self.disk.grow(size_bytes)
    }

    fn submit(&self, transfers: &mut [Transfer]) -> io::Result<()> {
        if transfers.iter().any(|transfer| matches!(transfer, Transfer::Write { .. })) {
            self.last_write.precede();
        }
        self.disk.submit(transfers)
    }

    fn read_queue<'a>(&self, depth: usize, source: &mut dyn ReadSource<'a>) {
        self.disk.read_queue(depth, source);
    }
}

#[cfg(test)]
#[path = "last_write_tests.rs"]
mod tests;
