//! A tape of what is asked of a cache, for whoever listens: page requests in the order in which the policy is told of them.
//!
//! While nobody listens a request costs one load. While somebody does it costs one short lock and an entry in memory that
//! was there before; nobody waits for the listener. When that falls behind, requests are left out and counted.

use super::{BlockCache, Tag};
use entresol_core::Op;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Requests that are handed over at once.
const BATCH: usize = 4096;
/// Batches that there are: the listener may be all but one of them behind. With entries of 24 bytes they take 1.5 MiB.
const BATCHES: usize = 16;

/// A request of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noted {
    /// Time in microseconds, as its [`Tag`] states it. Of requests at the same time a later one may have the lower time.
    pub time_us: u64,
    /// The page.
    pub page: u64,
    /// A write of part of a page is an update.
    pub op: Op,
    /// The policy was told that it continues a run.
    pub sequential: bool,
    /// It is the first page of what was asked for.
    pub first: bool,
}

#[derive(Default)]
pub(super) struct Recorder {
    on: AtomicBool,
    ring: Mutex<Option<Ring>>,
}

struct Ring {
    batch: Vec<Noted>,
    full: SyncSender<Vec<Noted>>,
    empty: Receiver<Vec<Noted>>,
    left_out: u64,
}

impl Ring {
    /// Hands the batch over for an empty one; false when there is none.
    fn rotate(&mut self) -> bool {
        let Ok(empty) = self.empty.try_recv() else { return false };
        // There is room for all batches that there are; without a listener nobody misses it.
        let _ = self.full.try_send(std::mem::replace(&mut self.batch, empty));
        true
    }
}

impl Recorder {
    fn ring(&self) -> MutexGuard<'_, Option<Ring>> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a request that the policy is told of next. `first` when it is the first page of what was asked for.
    #[inline]
    pub fn note(&self, page: u64, op: Op, tag: Tag, first: bool) {
        if self.on.load(Relaxed) {
            self.note_on(Noted { time_us: tag.now_us, page, op, sequential: tag.sequential, first });
        }
    }

    #[cold]
    fn note_on(&self, noted: Noted) {
        let mut ring = self.ring();
        let Some(ring) = ring.as_mut() else { return };
        if ring.batch.len() == BATCH && !ring.rotate() {
            ring.left_out += 1;
            return;
        }
        ring.batch.push(noted);
    }
}

/// Recording of the requests to a cache, from [`BlockCache::record`] until this is dropped.
pub struct Recording {
    recorder: Arc<Recorder>,
    full: Receiver<Vec<Noted>>,
    empty: SyncSender<Vec<Noted>>,
    last: Vec<Noted>,
}

/// Requests, and how many were left out so far.
#[derive(Debug, PartialEq, Eq)]
pub struct Batch<'a> {
    /// The requests, in order; none when there were none.
    pub requests: &'a [Noted],
    /// Requests that were left out since the recording began, because they came faster than they were taken.
    pub left_out: u64,
}

impl Recording {
    /// Notes nothing more: what there is remains to be taken.
    pub fn stop(&self) {
        self.recorder.on.store(false, Relaxed);
    }

    /// Next requests: a full batch, or after this time those that there are.
    pub fn next(&mut self, wait: Duration) -> Batch<'_> {
        let last = std::mem::take(&mut self.last);
        if last.capacity() > 0 {
            self.give_back(last);
        }
        let waited = self.full.recv_timeout(wait);
        let mut ring = self.recorder.ring();
        let ring = ring.as_mut().expect("it is there as long as this is");
        self.last = match waited {
            Ok(full) => full,
            Err(RecvTimeoutError::Disconnected) => unreachable!("the reel is there"),
            Err(RecvTimeoutError::Timeout) => {
                // One may have been handed over since. Else one is empty, for none is here or on the way.
                let full = self.full.try_recv();
                full.unwrap_or_else(
                    |_| if ring.rotate() { self.full.try_recv().expect("just sent") } else { Vec::new() },
                )
            }
        };
        Batch { requests: &self.last, left_out: ring.left_out }
    }

    fn give_back(&self, mut batch: Vec<Noted>) {
        batch.clear();
        // There is room for all that there are.
        let _ = self.empty.try_send(batch);
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.stop();
        *self.recorder.ring() = None;
    }
}

impl BlockCache {
    /// Listens to what is asked of the cache from now on; none while somebody else does.
    pub fn record(&self) -> Option<Recording> {
        let mut ring = self.recorder.ring();
        if ring.is_some() {
            return None;
        }
        let (full, fulls) = sync_channel(BATCHES);
        let (empty, empties) = sync_channel(BATCHES);
        let batch = || Vec::with_capacity(BATCH);
        let recording = Recording { recorder: self.recorder.clone(), full: fulls, empty, last: Vec::new() };
        (1..BATCHES).for_each(|_| recording.give_back(batch()));
        *ring = Some(Ring { batch: batch(), full, empty: empties, left_out: 0 });
        self.recorder.on.store(true, Relaxed);
        Some(recording)
    }
}
