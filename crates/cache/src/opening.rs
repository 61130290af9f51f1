//! From a formatted device to a cache that serves: every refusal comes before anything is changed anywhere.

use super::background::Background;
use super::core::Core;
use super::durability::{SharedDisk, WriteBack};
use super::engine::Engine;
use super::executor::Executor;
use super::grown::Grown;
use super::learned::{LearnedError, LearnedState, Learning};
use super::locks::Locks;
use super::recorder::Recorder;
use super::take_over::TakenOver;
use super::unflushed::Unflushed;
use super::{BlockCache, CacheConfig, CacheError, Maintenance, Mode, Objects, check_live, check_room};
use entresol_disk::{Disk, MeterReader, Metered};
use entresol_policy::catalogue::{self, Visitor};
use entresol_policy::extension::{Pooled, divided};
use entresol_policy::{Log, Policy};
use entresol_store::{AnyStore, Generation, Generations, Identity, Recovered, StoreError};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// A cache found in order, with the policy that is to run it. The cache has only been read so far; dropping this
/// leaves everything as it was.
pub struct Opening {
    core: Box<dyn Core>,
    config: CacheConfig,
    /// Most pages that the policy holds.
    held_max: usize,
    size_bytes: u64,
    page_bytes: u64,
    room_pages: u64,
    objects_max: usize,
    recovered: Recovered,
    uuid: [u8; 16],
    generations: Generations,
    keeps_generations: bool,
    disks: [SharedDisk; 2],
    meters: [MeterReader; 2],
    grown: Grown,
    taken_over: Option<TakenOver>,
    leave_dirty: bool,
    /// Pages that the start forgets.
    forgotten: Vec<u64>,
    learning: Learning,
}

struct Build {
    write_back: WriteBack,
    config: CacheConfig,
    /// Pages of a pool above the policy, if there is one.
    pool: Option<usize>,
    objects: Objects,
    log: Option<Box<Log>>,
}

impl Visitor for Build {
    type Output = Box<dyn Core>;

    fn visit<P: Policy>(self, policy: P) -> Self::Output {
        let CacheConfig { tiers, handles, mode, .. } = self.config;
        let executor = Executor::new(self.write_back, tiers.len(), handles, self.objects, self.log, mode);
        Box::new(Engine::new(Pooled::over(policy, self.pool, handles), executor))
    }
}

impl BlockCache {
    /// Finds the pages that a formatted cache holds and builds its policy, without changing anything. For a caller
    /// with work of its own to do before the cache is in use. [`Opening::start`] does the rest.
    ///
    /// # Errors
    /// As [`open`](BlockCache::open).
    pub fn find<C: Disk + 'static, B: Disk + 'static>(
        cache: C,
        backing: B,
        identity: [u8; 16],
        config: &CacheConfig,
        objects: Objects,
    ) -> Result<Opening, CacheError> {
        check_live(config, objects.objects_max())?;
        let page_bytes = entresol_store::geometry(&cache)?.page_bytes;
        let room_pages = entresol_store::room_pages(&cache)?;
        check_room(config, room_pages)?;
        let (cache, backing) = (Metered::new(cache), Metered::new(backing));
        let meters = [cache.meter(), backing.meter()];
        Opening::find([Arc::new(cache), Arc::new(backing)], meters, page_bytes, room_pages, identity, config, objects)
    }
}

impl Opening {
    /// As [`BlockCache::find`], of any disks. The engine of every policy is a part of this function, so it is not generic:
    /// it is compiled once, and not with each program that opens a cache.
    fn find(
        disks: [SharedDisk; 2],
        meters: [MeterReader; 2],
        page_bytes: u32,
        room_pages: u64,
        identity: [u8; 16],
        config: &CacheConfig,
        mut objects: Objects,
    ) -> Result<Opening, CacheError> {
        let [cache, backing] = disks.clone();
        let (size_bytes, page_bytes) = (backing.size_bytes(), u64::from(page_bytes));
        let backing_pages = size_bytes.div_ceil(page_bytes);
        let clock = config.dirty_age.map(|_| &config.clock);
        let (mut store, recovered) = AnyStore::find(cache, identity, backing_pages, clock)?;
        let taken_over = config.arena.as_ref().map(|arena| TakenOver::find(arena, &mut store)).transpose()?;
        let grown = Grown::found(&mut store, &backing, config.mode)?;
        let uuid = store.identity().uuid;
        let (generations, keeps_generations) = (store.generations(), store.keeps_generations());
        let objects_max = objects.objects_max();
        objects.set_all_pages(backing_pages);
        let (built_for, log) = config.built_for(page_bytes, objects_max, (&store.geometry(), room_pages));
        let mut write_back = WriteBack::new(store, backing, config.maintenance != Maintenance::Requests);
        write_back.keep_in(config.arena.as_ref());
        write_back.serve(&built_for.tiers);
        write_back.set_dirty_age(config.dirty_age, &config.clock);
        let (own, pool) = divided(config.policy, &built_for);
        let build = Build { write_back, config: config.clone(), pool, objects, log };
        let core = catalogue::build(config.policy, &own, &config.built_with()?, build)?;
        let config = config.clone();
        Ok(Opening {
            core,
            config,
            held_max: built_for.tiers.iter().sum(),
            size_bytes,
            page_bytes,
            room_pages,
            objects_max,
            recovered,
            uuid,
            generations,
            keeps_generations,
            disks,
            meters,
            grown,
            taken_over,
            leave_dirty: false,
            forgotten: Vec::new(),
            learning: Learning::Anew,
        })
    }

    pub(super) fn write_back(&mut self) -> &mut WriteBack {
        self.core.write_back()
    }

    /// Pages of which the cache holds a version that counts, in no order, and whether each is dirty: those on its device,
    /// and those that a former process left in the arena.
    pub fn held_pages(&self) -> Vec<(u64, bool)> {
        let stored = self.core.held_pages();
        match &self.taken_over {
            Some(taken_over) => taken_over.held(stored),
            None => stored,
        }
    }

    /// True if the cache goes on with what a former process left in memory.
    pub fn takes_over(&self) -> bool {
        self.taken_over.as_ref().is_some_and(TakenOver::is_left)
    }

    /// True if the backing store is larger than it was when the cache was in use last.
    pub fn has_grown(&self) -> bool {
        self.grown.is_so()
    }

    /// Has the start forget what the cache holds of these pages, durably, before anything is served or written below: somebody
    /// else has changed the backing store.
    pub fn forget(&mut self, pages: Vec<u64>) {
        self.forgotten = pages;
    }

    /// Leaves dirty pages in the cache in modes other than write-back too, because nothing can be written below.
    pub fn leave_dirty(&mut self) {
        self.leave_dirty = true;
    }

    /// Has the policy go on with what it had learned before, as [`BlockCache::learned`] returned it. Without effect if the
    /// bytes are damaged, or of another cache, policy or capacity: the policy learns anew. [`BlockCache::learning`] says which.
    pub fn learn(&mut self, bytes: &[u8]) {
        self.learning = match LearnedState::decode(bytes) {
            Ok(state) => {
                let goes_on = state.cache() == self.uuid && self.core.learn(state);
                if goes_on { Learning::GoesOn } else { Learning::Anew }
            }
            Err(LearnedError::Version(_)) => Learning::Anew,
            Err(LearnedError::Damaged) => Learning::Damaged,
        };
    }

    /// Sets the backing store's identity; the superblock that marks the cache as in use states it. For a grown backing
    /// store whose identity depends on its size.
    pub fn rename_backing(&mut self, identity: [u8; 16]) {
        let store = &mut self.core.write_back().store;
        store.set_identity(Identity { backing: identity, ..store.identity() });
    }

    /// UUID of the cache, new with every format.
    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// Mode in which the cache will begin.
    pub fn mode(&self) -> Mode {
        self.config.mode
    }

    /// Generations of the cache, one of which its backing store must have.
    pub fn generation(&self) -> Generations {
        self.generations
    }

    /// True if the cache keeps generations, so that one may be raised below. A cache that a program before version 3 of
    /// the store left without closing it keeps none until it is opened after a good end.
    pub fn keeps_generations(&self) -> bool {
        self.keeps_generations
    }

    /// Proposes a generation that the backing store is about to get. The superblock that marks the cache as in use
    /// states it.
    pub fn propose_generation(&mut self, generation: Generation) {
        self.generations.pending = Some(generation);
        self.core.write_back().store.propose_generation(generation);
    }

    /// Settles the pending generation, which the backing store has. The superblock that marks the cache as in use
    /// states so.
    pub fn settle_generation(&mut self) {
        self.generations.settle();
        self.core.write_back().store.settle_generation();
    }

    /// Marks the cache as in use, has `begin` do the same with other records of it, and serves. Returns the cache and
    /// the result of `begin`. Until then nothing is written below, and a crash leaves everything as it was.
    ///
    /// # Errors
    /// The error of `begin`, or else of a store: the cache is then as after a crash.
    pub fn start<T, E: From<CacheError>>(mut self, begin: impl FnOnce() -> Result<T, E>) -> Result<(BlockCache, T), E> {
        let failed = |error: io::Error| E::from(CacheError::from(StoreError::Io(error)));
        let started = Instant::now();
        self.taken_over.iter().for_each(TakenOver::begin);
        self.core.write_back().store.begin().map_err(failed)?;
        self.recovered.took += started.elapsed();
        let begun = begin()?;
        let drain = self.config.mode != Mode::WriteBack && !self.leave_dirty;
        self.core.start(self.held_max);
        let locks = Arc::new(Locks::new(self.core, self.config.watch, &self.config.tiers));
        let threads = self.config.maintenance == Maintenance::Threads;
        let cache = BlockCache {
            locks,
            read_only: AtomicBool::new(self.config.mode == Mode::ReadOnly),
            config: Mutex::new(self.config),
            changing: Mutex::default(),
            background: Mutex::default(),
            room_pages: AtomicU64::new(self.room_pages),
            size_bytes: self.size_bytes,
            page_bytes: self.page_bytes,
            objects_max: self.objects_max,
            recovered: self.recovered,
            learning: self.learning,
            started: Instant::now(),
            recorder: Arc::<Recorder>::default(),
            unflushed: Unflushed::default(),
            disks: self.disks,
            meters: self.meters,
        };
        if let Some(taken_over) = self.taken_over {
            taken_over.repeat(&cache).map_err(failed)?;
        }
        if !self.forgotten.is_empty() {
            cache.forget_pages(self.forgotten).map_err(failed)?;
        }
        if threads {
            let background = Background::start(&cache.locks).map_err(failed)?;
            *cache.background.lock().unwrap_or_else(PoisonError::into_inner) = Some(background);
        }
        if drain {
            // Pages that a crash left dirty must no longer depend on the cache device. A page whose only copy is bad
            // is listed, and the others go below without it.
            loop {
                let lost = cache.lost_pages().map_err(failed)?.len();
                match cache.write_all_below() {
                    Err(_) if cache.lost_pages().map_err(failed)?.len() > lost => {}
                    drained => break drained.map_err(failed)?,
                }
            }
        }
        self.grown.settle(&cache).map_err(failed)?;
        Ok((cache, begun))
    }
}
