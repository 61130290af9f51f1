//! Room for requests: how much there is, and how much there should be. Requests wait at some marks; at others threads
//! of the cache's own begin to make room.

use super::write_back::WriteBack;
use crate::store::{Geometry, Layout};

/// Free segments below which reclaim begins: two for what it appends itself, one for the request that asked.
pub(super) const FREE_MIN: u64 = 3;

/// Segments' worth of pages that may wait to be written below before requests have to wait too, where threads of the
/// cache's own write them; one where requests do.
const QUEUE_SEGMENTS: usize = 4;

/// Segments' worth of pages written below after which the backing store is synced without being asked.
const UNSYNCED_SEGMENTS: usize = 16;

/// Ranges changed below past the log after which it is synced without being asked.
const CHANGED_MAX: usize = 64;

/// Segments' worth in the log that no sync covers at which one is made without being asked: by requests, which wait for it; by a
/// thread of the cache's own; and by that when it has no batch to write, as long as little is written. After a crash what was not
/// synced is read and checked before anything is served, so this bounds how long that takes.
const SYNC_MUST: u64 = 8;
const SYNC_SOON: u64 = 6;
const SYNC_IDLE: u64 = 2;

/// Segments' worth of slots that are kept free, where so many are left and no more are needed.
const SLOTS_SEGMENTS: u64 = 16;

/// Complete batches that may be in memory, on their way to the log's device, where a thread of the cache's own writes them.
const BATCHES_MAX: usize = 4;

/// Writes below that threads of the cache's own have under way at a time: at least, and when the queue is full.
const DEPTH_MIN: usize = 4;
pub(super) const DEPTH_MAX: usize = 64;

/// Pages that may wait to be written below before requests do.
pub(super) fn queue_max(segment_pages: usize, background: bool) -> usize {
    if background { QUEUE_SEGMENTS * segment_pages } else { segment_pages }
}

/// Pages that one request may append to the log, by the number of tiers: a policy with memory above may move a group that is
/// kept and one that comes from memory (`face-gsc`), one without moves a few.
pub(super) fn moved_max(tiers: usize) -> u64 {
    if tiers > 1 { 128 } else { 8 }
}

impl WriteBack {
    /// A policy with tiers of these capacities in pages decides from now on.
    pub fn serve(&mut self, tiers: &[usize]) {
        self.moved_max = moved_max(tiers.len());
        self.held_max = tiers.last().map_or(0, |&pages| pages as u64);
    }

    /// Must the queue be written before a request may add to it?
    pub fn is_queue_full(&self) -> bool {
        self.queued() >= self.queue_max
    }

    /// Pages that wait to be written below.
    fn queued(&self) -> usize {
        self.dirty_queue.len() - self.writing
    }

    /// Number of writes that threads of the cache's own should have under way below; 0 below the soft mark of the
    /// queue. The less room is left in the queue, the more they are: reads of the same disk wait the longer for it.
    pub fn depth(&self) -> usize {
        let Some(excess) = self.queue_soft.and_then(|soft| self.queued().checked_sub(soft)) else { return 0 };
        let room = self.queue_max - self.queue_soft.unwrap_or(0);
        DEPTH_MIN + (DEPTH_MAX - DEPTH_MIN) * (excess * excess).min(room * room) / (room * room)
    }

    /// Has the cache threads of its own?
    pub fn has_help(&self) -> bool {
        self.queue_soft.is_some()
    }

    /// Is there less room than threads of the cache's own should keep?
    pub fn lacks_room(&self) -> bool {
        let segments = self.lacks_segments() || self.awaits_segments();
        self.has_help() && (self.depth() > 0 || segments || self.is_unsynced_half_full())
    }

    /// Segments that a request may need between two parts of somebody's upkeep, for it cannot make room itself then.
    fn needed_apart(&self) -> u64 {
        FREE_MIN + self.moved_max.div_ceil(u64::from(self.store.geometry().segment_pages))
    }

    /// Of these, as many as a request has to find. Slots that are not there even when all is given up that the policy does not
    /// hold would be waited for in vain: a request that needs more of them than that does without.
    fn free_apart(&self) -> u64 {
        match self.store.geometry().layout {
            Layout::Log => self.needed_apart(),
            Layout::Slots => self.needed_apart().min(FREE_MIN + (self.free_most() - FREE_MIN) / 2),
        }
    }

    /// Segments that are reclaimed together ahead of need: what is to be written below for them is written at once.
    fn together(&self) -> u64 {
        u64::from(self.store.geometry().segments / 32).clamp(1, 8)
    }

    /// Free segments that are kept at most: half of those that pages leave. The fewer are left to a log, the sooner it comes back
    /// to pages that are still needed; of slots the other half is what is made room of at once.
    fn free_most(&self) -> u64 {
        let segment_pages = u64::from(self.store.geometry().segment_pages);
        (self.store.spare_pages(self.held_max) / (2 * segment_pages)).max(FREE_MIN + 1)
    }

    /// Free segments below which threads of the cache's own reclaim.
    fn free_low(&self) -> u64 {
        (self.needed_apart() + self.together()).min(self.free_most())
    }

    /// Free slots up to which such are given up as the policy does not hold: all that it leaves, but no more than can be
    /// carried below together; and up to which that is done at the price of a write below.
    pub fn enough_slots(&self) -> (u64, u64) {
        let (segment_pages, spare) =
            (u64::from(self.store.geometry().segment_pages), self.store.spare_pages(self.held_max));
        let least = (self.free_low() + self.together()) * segment_pages;
        (spare.min(least.max(SLOTS_SEGMENTS * segment_pages)), spare.min(least))
    }

    /// Are there fewer free segments than threads of the cache's own should keep? Those count that are free at the next
    /// sync, for which requests ask often enough as a rule.
    pub fn lacks_segments(&self) -> bool {
        let free = self.store.free_segments_once_durable();
        self.has_help() && free < self.free_low() && self.store.rear() >= self.reclaim_from
    }

    /// Segments to reclaim ahead of need, now that some are lacking.
    pub fn lacking_segments(&self) -> u64 {
        self.free_low().saturating_sub(self.store.free_segments_once_durable()) + self.together()
    }

    /// Would a sync of the log help requests that need free segments?
    pub fn awaits_segments(&self) -> bool {
        let free = self.store.free_segments();
        self.has_help() && free < self.free_apart() && free < self.store.free_segments_once_durable()
    }

    /// A reclaim ahead of need has ended. One that gained nothing is not repeated until the log has gone on.
    pub fn reclaimed_ahead(&mut self, free_before: u64) {
        if self.store.free_segments_once_durable() <= free_before {
            let Geometry { layout, segment_pages, .. } = self.store.geometry();
            // The journal of slots goes on by a block for every sync, and pages leave the policy all the time.
            let step = if layout == Layout::Slots { 1 } else { segment_pages };
            self.reclaim_from = self.store.rear() + u64::from(step);
        }
    }

    /// Should threads of the cache's own sync the log?
    pub fn lacks_sync(&self) -> bool {
        let unsynced = self.store.unsynced_segments();
        let idle = unsynced >= SYNC_IDLE && self.store.sealed_len() == 0;
        self.has_help() && (unsynced >= SYNC_SOON || idle)
    }

    /// Is so much of the log not synced that requests have to wait for it?
    pub fn must_sync(&self) -> bool {
        self.store.unsynced_segments() >= SYNC_MUST
    }

    /// Are there as many batches in memory, on their way to the log's device, as there may be?
    pub fn has_many_batches(&self) -> bool {
        self.store.sealed_len() >= if self.has_help() { BATCHES_MAX } else { 1 }
    }

    /// Must the log's device catch up before a request may add to the log?
    pub fn must_catch_up(&self) -> bool {
        self.must_sync() || self.has_many_batches()
    }

    /// Is half of what may be written below without a sync of the backing store used up?
    pub fn is_unsynced_half_full(&self) -> bool {
        self.unsynced.len() >= self.unsynced_max() / 2
    }

    fn unsynced_max(&self) -> usize {
        UNSYNCED_SEGMENTS * self.store.geometry().segment_pages as usize
    }

    /// Must the backing store be synced before more is written there?
    pub fn is_unsynced_full(&self) -> bool {
        self.unsynced.len() >= self.unsynced_max() || self.changed.len() >= CHANGED_MAX
    }

    /// Is there room for a request?
    pub fn is_ready(&self) -> bool {
        let free = if self.apart { self.free_apart() } else { FREE_MIN };
        let room = !self.is_queue_full() && !self.is_unsynced_full() && self.store.free_segments() >= free;
        room && !self.must_catch_up()
    }
}

#[cfg(test)]
mod tests {
    use super::super::background::Role;
    use super::super::maintenance::StoreAccess;
    use super::super::{BlockCache, CacheConfig, CacheStats, Maintenance};
    use super::{SYNC_IDLE, SYNC_MUST};
    use crate::Block;
    use crate::store::{Geometry, Layout, Recovered};
    use entresol_core::Random;
    use entresol_crashtest::{Power, SimDisk};
    use entresol_policy::catalogue;

    const PAGE: u64 = 4096;
    const ID: [u8; 16] = [5; 16];
    /// Steps of upkeep after one request that no honest work takes.
    const STEPS_MAX: usize = 50;

    /// Workload of a cache whose upkeep comes between requests, until the upkeep has nothing more to do.
    struct Work {
        policy: &'static str,
        tiers: &'static [usize],
        geometry: Geometry,
        requests: u64,
        /// Requests for each flush; none without.
        flush_every: Option<u64>,
    }

    /// Result of a workload.
    struct Done {
        stats: CacheStats,
        /// Syncs of the cache device.
        syncs: u64,
        flushes: u64,
        /// Requests before which there was less room than they have to find while somebody makes some.
        short: u64,
        /// Findings of the open after the process was killed, and the number of calls in which they were read.
        recovered: Recovered,
        reads: u64,
    }

    impl Work {
        fn open(&self, device: &SimDisk, backing: &SimDisk) -> BlockCache {
            let policy = catalogue::info(self.policy).expect("a policy");
            let config = CacheConfig { maintenance: Maintenance::Hand, ..CacheConfig::new(policy, self.tiers) };
            BlockCache::open(device.clone(), backing.clone(), ID, &config).expect("a cache in order")
        }

        fn run(&self) -> Done {
            let (power, footprint) = (Power::steady(), 3 * self.tiers.iter().sum::<usize>() as u64);
            let device = SimDisk::new(self.geometry.size_bytes(), &power);
            let backing = SimDisk::new(footprint * PAGE, &power);
            BlockCache::format(&device, self.geometry, &backing, [1; 16], ID).expect("room");
            let cache = self.open(&device, &backing);
            let mut random = Random::new(7);
            let (mut flushes, mut short, before) = (0, 0, cache.devices()[0].sync.calls);
            let mut page = vec![0; PAGE as usize];
            for request in 1..=self.requests {
                let at = (random.next_f64().powi(3) * footprint as f64) as u64 * PAGE;
                if random.chance(0.5) {
                    page.fill(request as u8);
                    cache.write(at, &page, false).expect("a write");
                } else {
                    cache.read(at, &mut page).expect("a read");
                }
                if self.flush_every.is_some_and(|every| request.is_multiple_of(every)) {
                    cache.flush().expect("a flush");
                    flushes += 1;
                }
                short += u64::from(work(&cache, request));
            }
            let (stats, syncs) = (cache.stats().expect("counts"), cache.devices()[0].sync.calls - before);
            drop(cache);
            let again = self.open(&device, &backing);
            let reads = again.devices()[0].read.calls;
            Done { stats, syncs, flushes, short, recovered: again.recovered(), reads }
        }
    }

    /// Does the work of the cache's own threads. True if requests would find less room than they have to even so.
    fn work(cache: &BlockCache, request: u64) -> bool {
        let calls = || {
            let mut guard = cache.locks.guard().expect("a cache that goes on");
            Role::ALL.iter().any(|role| role.calls(guard.write_back()))
        };
        let mut steps = 0;
        while calls() {
            steps += 1;
            assert!(steps < STEPS_MAX, "request {request}: it makes room and has none");
            cache.step().expect("upkeep");
        }
        let mut guard = cache.locks.guard().expect("a cache that goes on");
        let write_back = guard.write_back();
        write_back.store.free_segments() < write_back.free_apart()
    }

    fn geometry(layout: Layout, segment_pages: u32, segments: u32) -> Geometry {
        Geometry { page_bytes: PAGE as u32, segment_pages, segments, layout }
    }

    /// Slots under policies with memory above and without: room is there when a request comes, however much its policy may move
    /// at once, and nothing is done for it in vain.
    #[test]
    fn over_slots_room_is_made_for_what_a_policy_may_move() {
        let small = geometry(Layout::Slots, 8, 64);
        let large = geometry(Layout::Slots, 32, 80);
        let works = [
            ("lru", &[380][..], small),
            ("face", &[40, 200], small),
            ("face-gsc", &[40, 400], small),
            ("lru", &[1900], large),
            ("face", &[190, 1900], large),
            ("face-gsc", &[190, 1900], large),
            ("h-arc", &[2250], large),
        ];
        for (policy, tiers, geometry) in works {
            let done = Work { policy, tiers, geometry, requests: 20_000, flush_every: Some(16) }.run();
            let Done { stats, syncs, flushes, short, .. } = done;
            let (freed, evicted_dirty) = (stats.write_back.slots_freed, stats.write_back.evicted_dirty);
            println!(
                "{policy} {tiers:?}: {syncs} syncs for {flushes} flushes, {freed} slots freed, {evicted_dirty} rescued, {short} short"
            );
            assert!(freed > 1000 && stats.counts.admissions_failed == 0, "{policy} {tiers:?}: {stats:?}");
            assert_eq!(short, 0, "{policy} {tiers:?}");
            assert!(syncs < 3 * flushes, "{policy} {tiers:?}: {syncs} syncs for {flushes} flushes");
        }
    }

    /// Bytes that a start has to check are bounded where no client ever flushes. Syncs of the cache's own bound them,
    /// and cost little as long as little is written.
    #[test]
    fn a_cache_that_nobody_flushes_is_opened_after_reading_little() {
        for layout in [Layout::Log, Layout::Slots] {
            let geometry = geometry(layout, 64, 40);
            let work = Work { policy: "h-arc", tiers: &[1500], geometry, requests: 20_000, flush_every: None };
            let Done { stats, syncs, recovered, reads, .. } = work.run();
            let segments = recovered.read_bytes as f64 / geometry.segment_bytes() as f64;
            println!(
                "{layout:?}: {recovered:?}, {segments:.1} segments read in {reads} calls; {syncs} syncs, {stats:?}"
            );
            assert!(recovered.unsynced_batches <= 2 * SYNC_IDLE + 1, "{layout:?}: {recovered:?}");
            assert!(segments < SYNC_MUST as f64, "{layout:?}: {segments} segments read");
            let most = stats.store.pages / u64::from(geometry.segment_pages);
            assert!(syncs < most, "{layout:?}: {syncs} syncs, more than one for a segment");
        }
    }
}
