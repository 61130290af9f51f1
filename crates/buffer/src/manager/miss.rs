//! Misses: the policy decides under the shard's lock, and the bytes move outside it.

use super::decide::Plan;
use super::{BufferError, BufferManager, PageIo, ShardState};
use crate::frame::{Hold, Key, NO_HANDLE};
use crate::ring::{SLOTS, slots_in_use};
use crate::sync::MutexGuard;
use crate::sync::atomic::Ordering;
use crate::table::{PageTable, TableKey};
use entresol_core::{Address, Op};
use std::io;

/// A page in state loading, which its thread has to read or to give up.
pub(super) struct Loading {
    key: TableKey,
    pub number: u32,
    /// True if the policy did not take the page: it leaves after use.
    pub passing: bool,
}

impl<T: PageTable, I: PageIo> BufferManager<T, I> {
    /// Reads a page: returns its frame, pinned or owned, and true if the page leaves after use. `None` when something
    /// changed and the caller should look again.
    #[cold]
    pub(super) fn miss(&self, key: TableKey, op: Op) -> Result<Option<(u32, bool)>, BufferError> {
        let Some(loading) = self.begin_miss(key, op)? else { return Ok(None) };
        let loaded = self.load(loading.number, key.0, op);
        self.end_miss(&loading, op, loaded)?;
        Ok(Some((loading.number, loading.passing)))
    }

    /// Lets the policy decide about a page, and owns a frame for it. `None` as in [`miss`](Self::miss).
    pub(super) fn begin_miss(&self, key: TableKey, op: Op) -> Result<Option<Loading>, BufferError> {
        let shard = self.table.shard(key);
        let mut state = self.lock(shard);
        // Under the lock the answer stays true: pages of the shard come and go only there.
        if self.lookup(key).is_some() {
            return Ok(None);
        }
        let mut plan = self.drain(shard, &mut state);
        if state.free.is_empty() {
            self.make_room(shard, state, plan)?;
            return Ok(None);
        }
        self.counts.misses.fetch_add(1, Ordering::Relaxed);
        let handle = self.decide(&mut state, &mut plan, |decider, _, desk| decider.miss(key.0, op, desk));
        let number = state.free.pop().expect("a free frame, as was just seen");
        let frame = &self.frames[number as usize];
        frame.set_key(key.0);
        frame.set_lsn(0);
        frame.set_handle(handle.unwrap_or(NO_HANDLE));
        match handle {
            Some(handle) => state.decider.install(handle, number),
            None => state.orphans.push(number),
        }
        frame.word.begin_load();
        self.table.insert(key, number);
        let loading = Loading { key, number, passing: handle.is_none() };
        match self.finish(shard, state, plan) {
            Ok(()) => Ok(Some(loading)),
            Err(error) => self.end_miss(&loading, op, Err(error)).map(|()| None),
        }
    }

    /// Ends a load: on `Ok` the page is present, pinned or owned by this thread; on an error it is taken out again.
    pub(super) fn end_miss(
        &self,
        loading: &Loading,
        op: Op,
        loaded: Result<(), BufferError>,
    ) -> Result<(), BufferError> {
        match loaded {
            Ok(()) => {
                let hold = if op.is_write() { Hold::Exclusive } else { Hold::Pin };
                let word = &self.frames[loading.number as usize].word;
                self.parking.wake(loading.number, word.end_load(hold));
            }
            Err(_) => self.unload(self.table.shard(loading.key), loading.key, loading.number),
        }
        loaded
    }

    /// Reads begun pages with one call of the storage. Returns each page's frame, and true if it leaves after use.
    pub(super) fn end_reads(&self, begun: &[Loading]) -> impl Iterator<Item = Result<(u32, bool), BufferError>> {
        let page_of = |loading: &Loading| {
            // SAFETY: this thread began the load, and the list names it once.
            let bytes = unsafe { self.loading_bytes(loading) };
            (loading.key.0.address(), bytes)
        };
        let read = match begun {
            [] | [_] => Err(()),
            many => {
                let mut pages: Vec<(Address, &mut [u8])> = many.iter().map(page_of).collect();
                self.io.read_pages(&mut pages).map_err(drop)
            }
        };
        if read.is_ok() {
            self.counts.page_reads.fetch_add(begun.len() as u64, Ordering::Relaxed);
        }
        begun.iter().map(move |loading| {
            // After an error it is not known which pages came: each is read again alone.
            let loaded = read.or_else(|()| self.load(loading.number, loading.key.0, Op::Read));
            self.end_miss(loading, Op::Read, loaded)?;
            Ok((loading.number, loading.passing))
        })
    }

    /// The memory of a page in state loading.
    ///
    /// # Safety
    /// The caller began the load of the page, and asks once for each load.
    #[expect(
        clippy::mut_from_ref,
        reason = "frames are apart from one another, and a page in state loading has one owner"
    )]
    pub(super) unsafe fn loading_bytes(&self, loading: &Loading) -> &mut [u8] {
        // SAFETY: the frame is mapped as long as the manager lives, and its owner asks once.
        unsafe { std::slice::from_raw_parts_mut(self.pool.frame(loading.number), self.pool.page_bytes()) }
    }

    /// Ends the load of one page of a queue of reads.
    pub(super) fn end_queued(&self, loading: &Loading, at: Address, read: io::Result<()>) -> Result<(), BufferError> {
        self.counts.page_reads.fetch_add(1, Ordering::Relaxed);
        let read = read.map_err(|source| self.failed(BufferError::Read { at, source }));
        self.end_miss(loading, Op::Read, read)
    }

    /// Takes out a page whose load was begun and will not end.
    pub(super) fn give_up(&self, loading: &Loading) {
        self.unload(self.table.shard(loading.key), loading.key, loading.number);
    }

    /// Fills the frame of a page that is being loaded.
    fn load(&self, number: u32, key: Key, op: Op) -> Result<(), BufferError> {
        if op == Op::Write {
            return Ok(());
        }
        // SAFETY: the frame is mapped, and in state loading: this thread owns it.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.pool.frame(number), self.pool.page_bytes()) };
        self.counts.page_reads.fetch_add(1, Ordering::Relaxed);
        let at = key.address();
        self.io.read_page(at, bytes).map_err(|source| self.failed(BufferError::Read { at, source }))
    }

    /// Takes out a page that could not be loaded. If the policy holds the page, its next request loads it again.
    fn unload(&self, shard: usize, key: TableKey, number: u32) {
        let mut state = self.lock(shard);
        let frame = &self.frames[number as usize];
        // The handle as it is now: the policy may have given the page up meanwhile, or restarted with other handles.
        match frame.handle() {
            NO_HANDLE => state.orphans.retain(|&orphan| orphan != number),
            handle => state.decider.displace(handle),
        }
        self.table.remove(key, number);
        frame.set_handle(NO_HANDLE);
        self.parking.wake(number, frame.word.abort_load());
        state.free.push(number);
        self.wake_waiting(shard, state);
    }

    /// Releases the lock and wakes the threads that wait for a frame.
    fn wake_waiting(&self, shard: usize, state: MutexGuard<'_, ShardState>) {
        let waiting = state.waiting > 0;
        drop(state);
        if waiting {
            self.shards[shard].freed.notify_all();
        }
    }

    /// Evicts a page, or waits for an eviction under way, so that a frame becomes free.
    fn make_room(&self, shard: usize, mut state: MutexGuard<'_, ShardState>, plan: Plan) -> Result<(), BufferError> {
        if !plan.is_empty() {
            return self.finish(shard, state, plan);
        }
        if state.evicting > 0 {
            state.waiting += 1;
            state = self.shards[shard].freed.wait(state).expect("no policy panicked");
            state.waiting -= 1;
            return Ok(());
        }
        Err(BufferError::Exhausted { frames: self.options.frames_per_shard() })
    }

    /// Tells the policy of the hits of all threads, and plans the eviction of orphans no longer in use.
    pub(super) fn drain(&self, shard: usize, state: &mut ShardState) -> Plan {
        let mut plan = std::mem::take(&mut state.plan);
        state.batch.clear();
        let rings = &self.rings[shard * SLOTS..shard * SLOTS + slots_in_use()];
        rings.iter().for_each(|ring| ring.drain(&mut state.batch));
        if !state.batch.is_empty() {
            self.decide(state, &mut plan, |decider, batch, desk| decider.hits(batch, desk));
        }
        let frames = &self.frames;
        state.orphans.retain(|&number| {
            let word = &frames[number as usize].word;
            let unused = word.try_exclusive();
            if unused {
                plan.evictions.push((number, word.begin_evict()));
            }
            !unused
        });
        plan
    }

    /// Delivers hits unless another thread holds the shard's lock.
    #[cold]
    pub(super) fn try_deliver(&self, shard: usize) {
        if let Ok(mut state) = self.shards[shard].state.try_lock() {
            let plan = self.drain(shard, &mut state);
            let carried_out = self.finish(shard, state, plan);
            self.keep_error(carried_out);
        }
    }

    /// Carries a plan out. Clean victims are gone when the lock is released; dirty ones are written after that. The
    /// whole plan is carried out even if a step fails; the first error is returned.
    pub(super) fn finish(
        &self,
        shard: usize,
        mut state: MutexGuard<'_, ShardState>,
        mut plan: Plan,
    ) -> Result<(), BufferError> {
        let state_ref = &mut *state;
        state_ref.orphans.append(&mut plan.orphans);
        plan.evictions.retain(|&(number, dirty)| {
            if !dirty {
                self.leave(state_ref, number);
            }
            dirty
        });
        state_ref.evicting += plan.evictions.len();
        if plan.is_empty() {
            state_ref.plan = plan;
            plan = Plan::default();
        }
        self.wake_waiting(shard, state);
        let mut result = Ok(());
        for (number, _) in plan.evictions {
            result = result.and(self.evict_dirty(shard, number));
        }
        for number in plan.write_backs {
            result = result.and(self.write_back(number).map(|written| {
                self.counts.skipped_write_backs.fetch_add(u64::from(!written), Ordering::Relaxed);
            }));
        }
        result
    }

    /// Frees the frame of a page in state evicting whose newest bytes are in storage.
    fn leave(&self, state: &mut ShardState, number: u32) {
        let frame = &self.frames[number as usize];
        self.table.remove(TableKey(frame.key()), number);
        frame.set_key(Key::NONE);
        self.parking.wake(number, frame.word.end_evict());
        state.free.push(number);
    }

    /// Writes a page in state evicting, which then leaves. If the write fails, the page stays, without the policy.
    fn evict_dirty(&self, shard: usize, number: u32) -> Result<(), BufferError> {
        let written = self.write(number);
        let mut state = self.lock(shard);
        state.evicting -= 1;
        if written.is_ok() {
            self.uncount_dirty();
            self.leave(&mut state, number);
        } else {
            self.parking.wake(number, self.frames[number as usize].word.abort_evict(true));
            state.orphans.push(number);
        }
        self.wake_waiting(shard, state);
        written
    }

    /// Evicts a page that the policy did not take, now that its guard is gone.
    #[cold]
    pub(super) fn let_pass(&self, number: u32) {
        let shard = self.shard_of_frame(number);
        let mut state = self.lock(shard);
        let Some(at) = state.orphans.iter().position(|&orphan| orphan == number) else { return };
        let word = &self.frames[number as usize].word;
        // A thread that still uses the page leaves it to the next decision.
        if word.try_exclusive() {
            state.orphans.swap_remove(at);
            let mut plan = std::mem::take(&mut state.plan);
            plan.evictions.push((number, word.begin_evict()));
            let carried_out = self.finish(shard, state, plan);
            self.keep_error(carried_out);
        }
    }
}
