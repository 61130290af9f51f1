//! Carries out on bytes the decisions of a policy of two tiers, at once and in the policy's order.
//!
//! Every copy of a page has a version. The versions tell which copy is newest and which one storage has; no policy is
//! trusted with that. So a version newer than storage never loses its last copy unwritten. If it cannot be written, it
//! is kept in memory.

use super::super::directory::Directory;
use super::super::{BufferError, PageIo, WalHook};
use super::behind::Behind;
use super::change::{InTier, PageInPlace, Passing};
use super::reading::Ahead;
use super::{TieredOptions, TieredStats};
use crate::frame::Key;
use crate::manager::Clock;
use entresol_core::{Address, Movement, Op, Outcome, Page, Request, Verb};
use entresol_device::emulated::{Clock as DeviceClock, Mapped};
use entresol_disk::AlignedBytes;
use entresol_tune::Reading;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Instant;

const DRAM: usize = 0;
const NVM: usize = 1;
/// Evicted dirty pages that may wait for storage which fails, besides those whose writes were under way when it failed.
/// At this many, requests are refused.
const EVICTED_DIRTY_MAX: usize = 64;

/// A frame and the version in it.
#[derive(Clone, Copy)]
pub(super) struct Copy {
    pub frame: u32,
    /// 0 if the page could not be read into the frame.
    pub version: u64,
}

/// State of a handle's page. A page that is met for the first time has version 1, which storage has.
#[derive(Clone, Copy)]
pub(super) struct Known {
    pub copies: [Option<Copy>; 2],
    pub newest: u64,
    pub below: u64,
    /// The newest log record that changed the page; 0 for none.
    pub lsn: u64,
}

const UNTOUCHED: Known = Known { copies: [None; 2], newest: 1, below: 1, lsn: 0 };

/// The memory of both tiers.
pub(super) struct Memory<C> {
    dram: AlignedBytes,
    nvm: Mapped<C>,
    page_bytes: usize,
}

impl<C: DeviceClock> Memory<C> {
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    pub fn read(&self, tier: usize, frame: u32, offset: usize, into: &mut [u8]) {
        let at = frame as usize * self.page_bytes + offset;
        match tier {
            DRAM => into.copy_from_slice(&self.dram[at..at + into.len()]),
            _ => self.nvm.read(at as u64, into).expect("a frame lies within the region"),
        }
    }

    pub fn write(&mut self, tier: usize, frame: u32, offset: usize, bytes: &[u8]) {
        let at = frame as usize * self.page_bytes + offset;
        match tier {
            DRAM => self.dram[at..at + bytes.len()].copy_from_slice(bytes),
            _ => self.nvm.write(at as u64, bytes).expect("a frame lies within the region"),
        }
    }
}

/// The current request: its page and its state.
pub(super) struct Current {
    key: Key,
    page: Option<Page>,
    pub op: Op,
    /// True once the write is in a tier or in storage, or the read is in `whole`.
    pub done: bool,
}

/// Tiers, directory and storage.
pub(super) struct TieredExecutor<I, C> {
    pub memory: Memory<C>,
    pub io: Arc<I>,
    wal: Option<Box<dyn WalHook>>,
    pub directory: Directory,
    pub known: Vec<Known>,
    free: [Vec<u32>; 2],
    /// Frames with older versions that the policy's log has not reclaimed yet, oldest first.
    superseded: HashMap<(usize, Page), VecDeque<u32>>,
    /// Newest versions that could not be written when they left.
    pub evicted_dirty: HashMap<Page, Arc<AlignedBytes>>,
    pub behind: Behind,
    pub ahead: Ahead,
    pub current: Current,
    /// Scratch page in DRAM for one page in transit.
    pub whole: AlignedBytes,
    /// Newest version of the current page, if its copy left in this request.
    held: Option<u64>,
    held_bytes: AlignedBytes,
    pub stats: TieredStats,
    pub objects: u32,
    opened: Option<Instant>,
    pub now_us: u64,
    error: Option<BufferError>,
}

impl<I: PageIo, C: DeviceClock> TieredExecutor<I, C> {
    pub fn new(
        options: &TieredOptions,
        handles: usize,
        nvm: Mapped<C>,
        io: Arc<I>,
        wal: Option<Box<dyn WalHook>>,
    ) -> io::Result<Self> {
        let nvm_pages = nvm.size_bytes() as usize / options.page_bytes;
        let page_bytes = options.page_bytes;
        let frames = |pages: usize| (0..pages as u32).rev().collect();
        Ok(TieredExecutor {
            memory: Memory { dram: AlignedBytes::zeroed(options.dram_pages * page_bytes), nvm, page_bytes },
            io,
            wal,
            directory: Directory::new(handles)?,
            known: vec![UNTOUCHED; handles],
            free: [frames(options.dram_pages), frames(nvm_pages)],
            superseded: HashMap::new(),
            evicted_dirty: HashMap::new(),
            behind: Behind::new(options.write_behind),
            ahead: Ahead::default(),
            current: Current { key: Key::NONE, page: None, op: Op::Read, done: false },
            whole: AlignedBytes::zeroed(page_bytes),
            held: None,
            held_bytes: AlignedBytes::zeroed(page_bytes),
            stats: TieredStats::default(),
            objects: options.objects.max(1) as u32,
            opened: (options.clock == Clock::Real).then(Instant::now),
            now_us: 0,
            error: None,
        })
    }

    /// Writes the evicted dirty pages if there are too many of them.
    pub fn make_sure_of_room(&mut self) -> Result<(), BufferError> {
        if self.evicted_dirty.len() < EVICTED_DIRTY_MAX { Ok(()) } else { self.write_evicted_dirty() }
    }

    /// A handle for a page that has none.
    pub fn give_handle(&mut self, key: Key, known: impl Fn(Page) -> bool) -> Option<Page> {
        let (table, evicted_dirty) = (&self.known, &self.evicted_dirty);
        let busy = |page: Page| {
            let of = &table[page.index()];
            known(page)
                || of.newest != of.below
                || of.copies.iter().any(Option::is_some)
                || evicted_dirty.contains_key(&page)
        };
        let page = self.directory.give(key, busy)?;
        self.known[page.index()] = UNTOUCHED;
        Some(page)
    }

    /// Begins a request about which the policy will be asked.
    pub fn start(&mut self, page: Page, op: Op) {
        self.current = Current { key: self.directory.key(page), page: Some(page), op, done: false };
        self.held = None;
        self.now_us = self.now_us();
    }

    /// Time of a request that comes now, for policies.
    pub fn now_us(&self) -> u64 {
        self.opened.map_or(self.stats.decided.requests, |opened| opened.elapsed().as_micros() as u64)
    }

    /// Begins a request for a page without a handle.
    pub fn start_without_handle(&mut self, key: Key, op: Op) {
        self.stats.without_handle += 1;
        self.current = Current { key, page: None, op, done: false };
    }

    pub fn count(&mut self, request: Request, outcome: Outcome) {
        self.stats.decided.outcome(request, outcome);
        if let Outcome::Hit(tier) = outcome {
            let write = u64::from(request.op.is_write());
            let tier = &mut self.stats.tiers[tier.index()];
            tier.write_hits += write;
            tier.read_hits += 1 - write;
        }
    }

    /// Ends a read with a look at the page in place.
    pub fn look<R>(&mut self, look: impl FnOnce(&PageInPlace) -> R) -> Result<R, BufferError> {
        let seen = self.find().map(|found| match found {
            Some((tier, frame)) => look(&PageInPlace { place: &InTier { memory: &self.memory, tier, frame } }),
            None => look(&PageInPlace { place: &Passing(&self.whole) }),
        });
        self.end()?;
        Ok(seen.expect("a page is somewhere, or there is an error"))
    }

    /// Finds the current page after the policy's decision: in a tier, or else in `whole`.
    fn find(&mut self) -> Option<Option<(usize, u32)>> {
        if self.error.is_some() || self.current.done {
            return self.error.is_none().then_some(None);
        }
        let page = self.current.page?;
        if let Some(found) = self.newest_copy(page).or_else(|| self.fill_invalid(page)) {
            return Some(Some(found));
        }
        // The copy that the policy found has left in the same request, or could not be filled.
        (self.error.is_none() && self.newest_into_whole(page)).then_some(None)
    }

    /// Ends a request; returns its first error.
    pub fn end(&mut self) -> Result<(), BufferError> {
        self.forget_read(self.current.key);
        let unfinished = self.current.op.is_write() && !self.current.done;
        if let Some(page) = self.current.page.take() {
            // A write that failed leaves the old contents.
            let known = self.known[page.index()];
            let held = self.held == Some(known.newest) && !self.behind.has(page, known.newest);
            if unfinished && held && known.newest != known.below {
                let mut bytes = AlignedBytes::zeroed(self.memory.page_bytes);
                bytes.copy_from_slice(&self.held_bytes);
                self.evicted_dirty.insert(page, Arc::new(bytes));
            }
        }
        match self.error.take() {
            Some(error) => Err(error),
            None => {
                assert!(!unfinished, "a policy answered a write without an install or a bypass");
                Ok(())
            }
        }
    }

    pub fn flush(&mut self) -> Result<(), BufferError> {
        self.end_all_writes();
        let mut result = self.behind.take_error().and(self.write_evicted_dirty());
        for page in (0..self.known.len() as u32).map(Page) {
            let known = self.known[page.index()];
            if known.newest != known.below
                && let Some((tier, _)) = self.newest_copy(page)
            {
                self.write_copy_below(page, tier);
                result = result.and(self.error.take().map_or(Ok(()), Err));
            }
        }
        result.and(self.io.sync().map_err(|source| {
            self.stats.errors += 1;
            BufferError::Sync(source)
        }))
    }

    /// Requests so far, those without a handle included.
    #[inline(always)]
    pub fn requests(&self) -> u64 {
        self.stats.decided.requests + self.stats.without_handle
    }

    /// Progress of the buffer: its requests, the NVM's clock, and the pages written to NVM. Pages are counted as in the
    /// simulator: a partial write in place is one.
    pub fn reading(&self) -> Reading {
        let nvm = &self.stats.tiers[NVM];
        Reading {
            requests: self.requests(),
            now_ns: self.memory.nvm.clock().now(),
            pages_written: nvm.fetched + nvm.installed + nvm.copied_in,
        }
    }

    pub fn stats(&self) -> TieredStats {
        TieredStats {
            evicted_dirty: self.evicted_dirty.len() as u64,
            writes_under_way: self.behind.under_way() as u64,
            waits_for_writes: self.behind.waits,
            ..self.stats
        }
    }

    fn write_evicted_dirty(&mut self) -> Result<(), BufferError> {
        let mut pages: Vec<Page> = self.evicted_dirty.keys().copied().collect();
        pages.sort_unstable_by_key(|page| page.0);
        let mut result = Ok(());
        for page in pages {
            self.end_write_of(page);
            let Some(bytes) = self.evicted_dirty.get(&page) else { continue };
            self.whole.copy_from_slice(bytes);
            if self.write_whole_below(self.address_of(page), self.known[page.index()].lsn) {
                self.known[page.index()].below = self.known[page.index()].newest;
                self.evicted_dirty.remove(&page);
            }
            result = result.and(self.error.take().map_or(Ok(()), Err));
        }
        result
    }

    pub(super) fn address_of(&self, page: Page) -> Address {
        self.directory.key(page).address()
    }

    /// Tier and frame of the newest version, in the faster tier if both have it.
    pub(super) fn newest_copy(&self, page: Page) -> Option<(usize, u32)> {
        let known = &self.known[page.index()];
        let held = |tier: usize| known.copies[tier].filter(|copy| copy.version == known.newest);
        [DRAM, NVM].into_iter().find_map(|tier| held(tier).map(|copy| (tier, copy.frame)))
    }

    /// True if this tier has the newest version.
    pub(super) fn is_newest_in(&self, page: Page, tier: usize) -> bool {
        let known = &self.known[page.index()];
        known.copies[tier].is_some_and(|copy| copy.version == known.newest)
    }

    /// Fills a frame into which the page could not be read before.
    fn fill_invalid(&mut self, page: Page) -> Option<(usize, u32)> {
        let known = self.known[page.index()];
        let tier = [DRAM, NVM].into_iter().find(|&tier| known.copies[tier].is_some_and(|copy| copy.version == 0))?;
        self.newest_into_whole(page).then(|| {
            let copy = self.known[page.index()].copies[tier].as_mut().expect("as was just seen");
            copy.version = known.newest;
            let frame = copy.frame;
            self.memory.write(tier, frame, 0, &self.whole);
            (tier, frame)
        })
    }

    /// Reads the newest version of a page into `whole`. On failure returns false and notes the error.
    pub(super) fn newest_into_whole(&mut self, page: Page) -> bool {
        if let Some((tier, frame)) = self.newest_copy(page) {
            self.memory.read(tier, frame, 0, &mut self.whole);
            return true;
        }
        let newest = self.known[page.index()].newest;
        if self.current.page == Some(page) && self.held == Some(newest) {
            self.whole.copy_from_slice(&self.held_bytes);
            return true;
        }
        if self.behind.has(page, newest) {
            // A write that has ended counts as storage, as in the simulator.
            self.end_writes();
        }
        if let Some(bytes) = self.behind.bytes(page, newest) {
            self.whole.copy_from_slice(bytes);
            return true;
        }
        if let Some(bytes) = self.evicted_dirty.get(&page) {
            self.whole.copy_from_slice(bytes);
            return true;
        }
        debug_assert_eq!(newest, self.known[page.index()].below, "the newest version of a page is nowhere");
        self.read_below_into_whole(self.address_of(page))
    }

    pub(super) fn read_below_into_whole(&mut self, at: Address) -> bool {
        let read = Key::pack(at).and_then(|key| self.take_read(key)).unwrap_or_else(|| {
            // The page's write ended since the request began, or the read at its fetch failed.
            self.stats.page_reads += 1;
            self.io.read_page(at, &mut self.whole)
        });
        self.attempt(read.map_err(|source| BufferError::Read { at, source }))
    }

    /// Writes `whole` to storage, after its newest log record is durable.
    pub(super) fn write_whole_below(&mut self, at: Address, lsn: u64) -> bool {
        let logged = self.log_first(at, lsn);
        if !self.attempt(logged) {
            return false;
        }
        let written = self.io.write_page(at, &self.whole);
        self.stats.page_writes += u64::from(written.is_ok());
        self.attempt(written.map_err(|source| BufferError::Write { at, source }))
    }

    pub(super) fn log_first(&mut self, at: Address, lsn: u64) -> Result<(), BufferError> {
        let Some(wal) = self.wal.as_deref().filter(|wal| wal.flushed_lsn() < lsn) else { return Ok(()) };
        self.stats.wal_flushes += 1;
        wal.flush_until(lsn).map_err(|source| BufferError::Wal { at, lsn, source })
    }

    pub(super) fn attempt(&mut self, result: Result<(), BufferError>) -> bool {
        let ok = result.is_ok();
        if let Err(error) = result {
            self.stats.errors += 1;
            self.error.get_or_insert(error);
        }
        ok
    }

    /// The frame of a page in a tier, a new one if it has none.
    pub(super) fn frame_for(&mut self, page: Page, tier: usize) -> u32 {
        if let Some(copy) = self.known[page.index()].copies[tier] {
            return copy.frame;
        }
        let frame = self.free[tier].pop().expect("a policy keeps to the capacity of a tier");
        self.known[page.index()].copies[tier] = Some(Copy { frame, version: 0 });
        frame
    }

    pub(super) fn set_version(&mut self, page: Page, tier: usize, version: u64) {
        self.known[page.index()].copies[tier].as_mut().expect("a frame was just found for it").version = version;
    }

    pub(super) fn fetch(&mut self, page: Page, to: usize) {
        let frame = self.frame_for(page, to);
        if self.newest_into_whole(page) {
            self.memory.write(to, frame, 0, &self.whole);
            self.set_version(page, to, self.known[page.index()].newest);
        }
    }

    /// Gives the page a new version; older copies need not be kept.
    pub(super) fn new_version(&mut self, page: Page, lsn: u64) {
        let known = &mut self.known[page.index()];
        known.newest += 1;
        known.lsn = known.lsn.max(lsn);
        self.evicted_dirty.remove(&page);
        self.current.done = true;
    }

    pub(super) fn copy(&mut self, page: Page, from: usize, to: usize) {
        let source = self.known[page.index()].copies[from].expect("a policy copies what it has");
        let frame = self.frame_for(page, to);
        if source.version > 0 {
            self.memory.read(from, source.frame, 0, &mut self.whole);
            self.memory.write(to, frame, 0, &self.whole);
        }
        self.set_version(page, to, source.version);
    }

    pub(super) fn write_copy_below(&mut self, page: Page, from: usize) {
        let copy = self.known[page.index()].copies[from].expect("as the caller has seen");
        self.memory.read(from, copy.frame, 0, &mut self.whole);
        if self.write_whole_below(self.address_of(page), self.known[page.index()].lsn) {
            self.known[page.index()].below = copy.version;
        }
    }

    /// Removes a copy from its tier. Its frame is free, or, if superseded, the log's until it is reclaimed.
    pub(super) fn leave(&mut self, page: Page, from: usize, superseded: bool) {
        let Some(copy) = self.known[page.index()].copies[from] else { return };
        self.known[page.index()].copies[from] = None;
        let known = self.known[page.index()];
        if copy.version == known.newest && self.newest_copy(page).is_none() {
            let current = self.current.page == Some(page);
            if current {
                self.memory.read(from, copy.frame, 0, &mut self.held_bytes);
                self.held = Some(known.newest);
            }
            // The current write may complete the version, or make it obsolete.
            let awaited = current && self.current.op.is_write() && !self.current.done;
            if known.newest != known.below && !awaited && !self.behind.has(page, known.newest) {
                let mut bytes = AlignedBytes::zeroed(self.memory.page_bytes);
                self.memory.read(from, copy.frame, 0, &mut bytes);
                self.evicted_dirty.insert(page, Arc::new(bytes));
            }
        }
        match superseded {
            true => self.superseded.entry((from, page)).or_default().push_back(copy.frame),
            false => self.free[from].push(copy.frame),
        }
    }

    pub(super) fn reclaim(&mut self, page: Page, tier: usize) {
        let frames = self.superseded.get_mut(&(tier, page)).expect("a policy reclaims what it superseded");
        let frame = frames.pop_front().expect("a policy reclaims what it superseded");
        if frames.is_empty() {
            self.superseded.remove(&(tier, page));
        }
        self.free[tier].push(frame);
    }

    pub(super) fn count_movement(&mut self, movement: Movement) {
        self.stats.decided.movement(movement, self.current.op.is_write());
        match movement.verb {
            Verb::Fetch { to } => self.stats.tiers[to.index()].fetched += 1,
            Verb::Install { to } => self.stats.tiers[to.index()].installed += 1,
            Verb::Copy { to, .. } => self.stats.tiers[to.index()].copied_in += 1,
            Verb::WriteBack { from } => self.stats.tiers[from.index()].written_back += 1,
            _ => {}
        }
    }
}
