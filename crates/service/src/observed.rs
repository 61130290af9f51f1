//! Calls of a front-end to its cache: their counts and their latency.

use super::opening::Opening;
use entresol_cache::Block;
use entresol_device::load::Histogram;
use entresol_files::{AtOnce, FileData, FileLayer, Sought};
use rustix::fs::FallocateFlags;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Counters of a front-end's calls. Each call costs two readings of the clock and one short lock.
#[derive(Default)]
pub(crate) struct Observed {
    read: Mutex<Calls>,
    write: Mutex<Calls>,
    flush: Mutex<Calls>,
    discard: Mutex<Calls>,
}

/// A block whose calls are counted and timed.
pub struct ObservedBlock {
    block: Arc<dyn Block>,
    calls: Arc<Observed>,
}

struct ObservedFile {
    data: Arc<dyn FileData>,
    calls: Arc<Observed>,
}

/// Calls of one kind.
#[derive(Default)]
struct Calls {
    bytes: u64,
    errors: u64,
    took: Histogram,
}

/// Calls of one kind, in figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallFigures {
    /// Calls that have returned.
    pub calls: u64,
    /// Calls that returned an error.
    pub errors: u64,
    /// Bytes that were asked for.
    pub bytes: u64,
    /// Median time from call to return in microseconds; at most 0.4 % too high.
    pub p50_us: f64,
    /// 99th percentile of that time, with the same error.
    pub p99_us: f64,
    /// The longest time.
    pub max_us: f64,
}

/// Figures of a front-end's calls since the open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FrontEndFigures {
    /// Reads.
    pub read: CallFigures,
    /// Writes.
    pub write: CallFigures,
    /// Flushes.
    pub flush: CallFigures,
    /// Discards.
    pub discard: CallFigures,
}

impl Calls {
    fn figures(&self) -> CallFigures {
        let us = |ns: u64| ns as f64 / 1e3;
        CallFigures {
            calls: self.took.count(),
            errors: self.errors,
            bytes: self.bytes,
            p50_us: us(self.took.quantile(0.5)),
            p99_us: us(self.took.quantile(0.99)),
            max_us: us(self.took.max()),
        }
    }
}

impl Observed {
    /// The figures of all calls so far.
    pub(crate) fn figures(&self) -> FrontEndFigures {
        let figures = |calls: &Mutex<Calls>| calls.lock().unwrap_or_else(PoisonError::into_inner).figures();
        FrontEndFigures {
            read: figures(&self.read),
            write: figures(&self.write),
            flush: figures(&self.flush),
            discard: figures(&self.discard),
        }
    }
}

fn timed<T>(calls: &Mutex<Calls>, bytes: u64, call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let started = Instant::now();
    let result = call();
    note(calls, bytes, started, result.is_err());
    result
}

fn note(calls: &Mutex<Calls>, bytes: u64, started: Instant, failed: bool) {
    let took = started.elapsed().as_nanos() as u64;
    let mut calls = calls.lock().unwrap_or_else(PoisonError::into_inner);
    calls.bytes += bytes;
    calls.errors += u64::from(failed);
    calls.took.record(took);
}

impl ObservedBlock {
    /// Counts into `calls` from now on.
    pub(crate) fn new(block: Arc<dyn Block>, calls: Arc<Observed>) -> Self {
        ObservedBlock { block, calls }
    }
}

impl Block for ObservedBlock {
    fn size_bytes(&self) -> u64 {
        self.block.size_bytes()
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        timed(&self.calls.read, bytes.len() as u64, || self.block.read(offset, bytes))
    }

    fn read_now(&self, offset: u64, bytes: &mut [u8]) -> bool {
        let started = Instant::now();
        let found = self.block.read_now(offset, bytes);
        if found {
            note(&self.calls.read, bytes.len() as u64, started, false);
        }
        found
    }

    fn write(&self, offset: u64, bytes: &[u8], fua: bool) -> io::Result<()> {
        timed(&self.calls.write, bytes.len() as u64, || self.block.write(offset, bytes, fua))
    }

    fn flush(&self) -> io::Result<()> {
        timed(&self.calls.flush, 0, || self.block.flush())
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        timed(&self.calls.discard, bytes, || self.block.discard(offset, bytes))
    }
}

/// Files whose calls are counted and timed: a sync counts as a flush, a punched hole as a discard. For files that
/// bypass the cache, reads and writes that the kernel does by itself are not counted.
pub(crate) fn files(layer: Arc<dyn FileLayer>, calls: Arc<Observed>) -> Arc<dyn FileLayer> {
    Opening::over(layer, move |layer, id, file, writable| {
        let data = layer.open(id, file, writable)?;
        Ok(Arc::new(ObservedFile { data, calls: Arc::clone(&calls) }))
    })
}

impl FileData for ObservedFile {
    fn size_bytes(&self) -> io::Result<u64> {
        self.data.size_bytes()
    }

    fn settle(&self) -> io::Result<()> {
        self.data.settle()
    }

    fn look(&self) -> io::Result<bool> {
        self.data.look()
    }

    fn below(&self) -> Option<BorrowedFd<'_>> {
        self.data.below()
    }

    fn read_now(&self, offset: u64, bytes: &mut [u8]) -> io::Result<AtOnce> {
        let started = Instant::now();
        let read = self.data.read_now(offset, bytes);
        // The rest, perhaps all of the read, is requested again and counted then.
        let asked = if let Ok(AtOnce::First(done)) = read { done } else { bytes.len() };
        if asked > 0 {
            note(&self.calls.read, asked as u64, started, read.is_err());
        }
        read
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        timed(&self.calls.read, bytes.len() as u64, || self.data.read(offset, bytes))
    }

    fn write_now(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        let started = Instant::now();
        let written = self.data.write_now(offset, bytes);
        if !matches!(written, Ok(0)) {
            note(&self.calls.write, written.as_ref().map_or(0, |&bytes| bytes as u64), started, written.is_err());
        }
        written
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        timed(&self.calls.write, bytes.len() as u64, || self.data.write(offset, bytes))
    }

    fn sync(&self, data_only: bool) -> io::Result<()> {
        timed(&self.calls.flush, 0, || self.data.sync(data_only))
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.data.truncate(bytes)
    }

    fn allocate(&self, how: FallocateFlags, offset: u64, bytes: u64) -> io::Result<()> {
        if !how.intersects(FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE) {
            return self.data.allocate(how, offset, bytes);
        }
        timed(&self.calls.discard, bytes, || self.data.allocate(how, offset, bytes))
    }

    fn seek(&self, sought: Sought, offset: u64) -> io::Result<u64> {
        self.data.seek(sought, offset)
    }
}
