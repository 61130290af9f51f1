//! Devices and WALs that fail on demand, and the policies of two tiers: shared by the tests of the buffers.

#![allow(dead_code, reason = "each test binary uses a part")]

use entresol_buffer::{Clock, PageIo, TieredBuffer, TieredOptions, WalHook};
use entresol_core::Op;
use entresol_device::emulated::Clock as DeviceClock;
use entresol_policy::{Info, catalogue};
use entresol_trace::{Column, OpByte, Trace, generate};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// An error while the flag is set.
pub fn fail_if(flag: &AtomicBool) -> io::Result<()> {
    if flag.load(Ordering::SeqCst) { Err(io::Error::other("the device is on fire")) } else { Ok(()) }
}

/// A WAL that notes how far it was flushed, and can fail.
#[derive(Default)]
pub struct Log {
    pub flushed: AtomicU64,
    pub fail: AtomicBool,
}

pub struct Hook(pub Arc<Log>);

impl WalHook for Hook {
    fn flushed_lsn(&self) -> u64 {
        self.0.flushed.load(Ordering::SeqCst)
    }

    fn flush_until(&self, lsn: u64) -> io::Result<()> {
        fail_if(&self.0.fail)?;
        self.0.flushed.fetch_max(lsn, Ordering::SeqCst);
        Ok(())
    }
}

/// The policies that manage two tiers and know no future.
pub fn two_tiers() -> impl Iterator<Item = &'static Info> {
    catalogue::ALL.iter().copied().filter(|info| info.tiers.len() == 2 && !info.future)
}

/// So many requests that favour few of 600 pages, then half as many that favour few of 900. None is marked as
/// sequential, since a buffer does not know which are.
pub fn two_phases(requests: u64, seed: u64) -> Trace {
    let first = format!("zipf:n={requests}:pages=600:exponent=0.9:seed={seed}:write=30:update=60");
    let spec = format!("{first} | zipf:n={}:pages=900:seed={seed}:write=60", requests / 2);
    let mut trace = generate(&spec.parse().expect("a trace specification"));
    let plain = |&byte: &u8| OpByte::new(OpByte(byte).op(), false, OpByte(byte).first()).0;
    trace.ops = Column::Owned(trace.ops.iter().map(plain).collect());
    trace
}

/// Options of a buffer with so many pages of DRAM and of NVM, for a trace that a simulator runs, too.
pub fn simulated_options(trace: &Trace, pages: [usize; 2], seed: u64) -> TieredOptions {
    TieredOptions {
        handles_per_page: trace.footprint().div_ceil(pages[0] + pages[1]),
        objects: trace.objects.len(),
        clock: Clock::Requests,
        seed,
        ..TieredOptions::new(pages[0])
    }
}

/// Makes the requests of a trace to a buffer.
pub fn drive<I: PageIo + 'static, C: DeviceClock + 'static>(buffer: &TieredBuffer<I, C>, trace: &Trace) {
    let (mut word, whole) = ([0; 8], vec![0; trace.page_bytes as usize]);
    for at in 0..trace.len() {
        let request = trace.request(at);
        let address = trace.address(request.page);
        match request.op {
            Op::Read => buffer.read(address, 64, &mut word),
            Op::Update => buffer.write(address, 64, &[7; 8]),
            Op::Write => buffer.write(address, 0, &whole),
        }
        .expect("a page");
    }
}
