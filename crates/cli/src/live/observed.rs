//! What a door asks of a cache, and how long that takes.

use entresol_device::load::Histogram;
use entresol_engine::Block;
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// A block whose calls are counted and timed: two readings of the clock and one short lock each.
pub struct Observed<B> {
    block: B,
    read: Mutex<Calls>,
    write: Mutex<Calls>,
    flush: Mutex<Calls>,
    discard: Mutex<Calls>,
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
    /// Of them those that returned an error.
    pub errors: u64,
    /// Bytes that were asked for.
    pub bytes: u64,
    /// Time from call to return that half of them did not exceed, in microseconds; at most 0.4 % too high.
    pub p50_us: f64,
    /// The same for 99 of 100.
    pub p99_us: f64,
    /// The longest.
    pub max_us: f64,
}

/// What a door has asked for since it was opened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DoorFigures {
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

impl<B: Block> Observed<B> {
    /// Nothing counted yet.
    pub fn new(block: B) -> Self {
        Observed {
            block,
            read: Mutex::default(),
            write: Mutex::default(),
            flush: Mutex::default(),
            discard: Mutex::default(),
        }
    }

    /// The block itself.
    pub fn block(&self) -> &B {
        &self.block
    }

    /// What was asked so far.
    pub fn figures(&self) -> DoorFigures {
        let figures = |calls: &Mutex<Calls>| calls.lock().unwrap_or_else(PoisonError::into_inner).figures();
        DoorFigures {
            read: figures(&self.read),
            write: figures(&self.write),
            flush: figures(&self.flush),
            discard: figures(&self.discard),
        }
    }
}

fn timed(calls: &Mutex<Calls>, bytes: u64, call: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
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

impl<B: Block> Block for Observed<B> {
    fn size_bytes(&self) -> u64 {
        self.block.size_bytes()
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        timed(&self.read, bytes.len() as u64, || self.block.read(offset, bytes))
    }

    fn read_now(&self, offset: u64, bytes: &mut [u8]) -> bool {
        let started = Instant::now();
        let found = self.block.read_now(offset, bytes);
        if found {
            note(&self.read, bytes.len() as u64, started, false);
        }
        found
    }

    fn write(&self, offset: u64, bytes: &[u8], fua: bool) -> io::Result<()> {
        timed(&self.write, bytes.len() as u64, || self.block.write(offset, bytes, fua))
    }

    fn flush(&self) -> io::Result<()> {
        timed(&self.flush, 0, || self.block.flush())
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        timed(&self.discard, bytes, || self.block.discard(offset, bytes))
    }
}
