//! What tests of the buffers share: devices and logs that fail when they are told, and the policies of two tiers.

#![allow(dead_code, reason = "each test binary uses a part")]

use entresol_engine::buffer::WalHook;
use entresol_policy::{Info, catalogue};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// An error while the flag is up.
pub fn fail_if(flag: &AtomicBool) -> io::Result<()> {
    if flag.load(Ordering::SeqCst) { Err(io::Error::other("the device is on fire")) } else { Ok(()) }
}

/// A log that notes how far it was asked for, and can fail.
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
