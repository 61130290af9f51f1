//! A recorder of the requests to a cache: page requests in the order in which the policy is told of them.
//!
//! Without a recording a request costs one load. With one it costs a short lock and an entry in memory that is already
//! allocated; no request waits for the listener. When the listener falls behind, requests are left out and counted.

use super::{BlockCache, Tag};
use entresol_core::Op;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Requests handed over at once.
const BATCH: usize = 4096;
/// Number of batches: the listener may be all except one of them behind. With entries of 24 bytes they take 1.5 MiB.
const BATCHES: usize = 16;

/// A request of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noted {
    /// Time in microseconds, as the [`Tag`] states it. Of concurrent requests a later one may have the earlier time.
    pub time_us: u64,
    /// The page.
    pub page: u64,
    /// Kind of request; a write of part of a page is an update.
    pub op: Op,
    /// The policy was told that the request continues a run.
    pub sequential: bool,
    /// The page is the first of its call.
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
    /// Hands the batch over in exchange for an empty one; false when there is none.
    fn rotate(&mut self) -> bool {
        let Ok(empty) = self.empty.try_recv() else { return false };
        // The channel has space for all batches. An error means that the listener is gone.
        let _ = self.full.try_send(std::mem::replace(&mut self.batch, empty));
        true
    }
}

impl Recorder {
    fn ring(&self) -> MutexGuard<'_, Option<Ring>> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a request that the policy is told of next. `first` when the page is the first of its call.
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

/// Requests, and the number left out so far.
#[derive(Debug, PartialEq, Eq)]
pub struct Batch<'a> {
    /// The requests, in order; empty when there were none.
    pub requests: &'a [Noted],
    /// Requests left out since the recording began, because they came faster than they were taken.
    pub left_out: u64,
}

impl Recording {
    /// Stops noting requests; those noted remain to be taken.
    pub fn stop(&self) {
        self.recorder.on.store(false, Relaxed);
    }

    /// The next requests: a full batch, or after the time `wait` those noted so far.
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
            Err(RecvTimeoutError::Disconnected) => unreachable!("the ring is there"),
            Err(RecvTimeoutError::Timeout) => {
                // A batch may have been handed over since. Otherwise an empty one exists: none is here or on the way.
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
        // The channel has space for all batches.
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
    /// Records the requests to the cache from now on. None while another recording runs.
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
