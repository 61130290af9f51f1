//! Helpers of the front-end's tests: a block that can be watched, held up and broken, and an NBD client.
#![allow(dead_code, reason = "each test binary uses its part")]

pub mod client;
#[path = "../../../../cache/tests/common/memory.rs"]
pub mod memory;

use entresol_cache::Block;
use memory::MemoryBlock;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex};

/// A call that a front-end made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    Read(u64, usize),
    Write(u64, usize, bool),
    Flush,
    Discard(u64, u64),
}

/// Memory that records every call, and can hold calls up or fail them.
pub struct Watched {
    pub memory: MemoryBlock,
    pub calls: Mutex<Vec<Call>>,
    /// Reads at this offset wait until it is removed.
    held: Mutex<Option<u64>>,
    released: Condvar,
    /// Reads below this offset are answered at once, and not recorded.
    pub hot: AtomicU64,
    /// Every call fails with this error while it is set.
    pub fault: Mutex<Option<io::ErrorKind>>,
}

impl Watched {
    pub fn new(size: usize) -> Self {
        Self {
            memory: MemoryBlock::new(size),
            calls: Mutex::default(),
            held: Mutex::default(),
            released: Condvar::new(),
            hot: AtomicU64::default(),
            fault: Mutex::default(),
        }
    }

    pub fn hold(&self, offset: u64) {
        *self.held.lock().unwrap() = Some(offset);
    }

    pub fn release(&self) {
        *self.held.lock().unwrap() = None;
        self.released.notify_all();
    }

    pub fn taken(&self) -> Vec<Call> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    fn note(&self, call: Call) -> io::Result<()> {
        let at = if let Call::Read(offset, _) = call { Some(offset) } else { None };
        self.calls.lock().unwrap().push(call);
        let held = self.held.lock().unwrap();
        drop(self.released.wait_while(held, |held| held.is_some() && *held == at).unwrap());
        self.fault.lock().unwrap().map_or(Ok(()), |kind| Err(kind.into()))
    }
}

impl Block for Watched {
    fn size_bytes(&self) -> u64 {
        self.memory.size_bytes()
    }
    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.note(Call::Read(offset, bytes.len()))?;
        self.memory.read(offset, bytes)
    }
    fn read_now(&self, offset: u64, bytes: &mut [u8]) -> bool {
        let hot = offset + bytes.len() as u64 <= self.hot.load(Relaxed);
        hot && self.memory.read_now(offset, bytes)
    }
    fn write(&self, offset: u64, bytes: &[u8], fua: bool) -> io::Result<()> {
        self.note(Call::Write(offset, bytes.len(), fua))?;
        self.memory.write(offset, bytes, fua)
    }
    fn flush(&self) -> io::Result<()> {
        self.note(Call::Flush)
    }
    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.note(Call::Discard(offset, bytes))?;
        self.memory.discard(offset, bytes)
    }
}

/// A small generator, so that a seed gives the same run everywhere (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count + 8);
        while bytes.len() < count {
            bytes.extend(self.next().to_le_bytes());
        }
        bytes.truncate(count);
        bytes
    }
}
