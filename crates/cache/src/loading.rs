//! Loading of pages that a decision left without bytes in their tier: see [`plan`](super::plan).

use super::BlockCache;
use super::plan::PageBytes;
use entresol_disk::AlignedBytes;
use entresol_store::mutant::{self, Mutant};
use std::io;

#[cfg(test)]
thread_local! {
    static LOADED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Pages that this thread loaded since the last call.
#[cfg(test)]
pub(crate) fn take_loaded() -> u64 {
    LOADED.replace(0)
}

impl BlockCache {
    /// Loads pages whose locks are free. A page that cannot be read stays without bytes: a request for it gets the
    /// error.
    pub(super) fn load(&self, pages: Vec<u64>) {
        for page in pages {
            let _met_again = self.load_page(page);
        }
    }

    fn load_page(&self, page: u64) -> io::Result<()> {
        // Who holds the lock requests the page, and fills its tier as well.
        let Some(locked) = self.locks.pages.page_now(page) else { return Ok(()) };
        let _locked = (!mutant::is(Mutant::LoadedUnlocked)).then_some(locked);
        let mut guard = self.locks.ready()?;
        if !guard.core().awaits_bytes(page) {
            return Ok(());
        }
        drop(guard);
        let mut bytes = AlignedBytes::zeroed(self.page_bytes as usize);
        let (guard, crc) = match self.newest_with_crc(page, &mut bytes) {
            Err(_) if mutant::is(Mutant::LoadErrorSwallowed) => (self.locks.ready()?, None),
            newest => newest?,
        };
        #[cfg(test)]
        LOADED.set(LOADED.get() + 1);
        self.decide(guard, page, PageBytes::with(&bytes, crc), |guard, contents| guard.core().fill(page, contents))
    }
}
