//! Work that a decision leaves to be done once the core's lock has been given back.

#[cfg(test)]
pub(super) mod open_plans;

use entresol_store::{Unfilled, page_crc};

/// Bytes of the page of a request, with their CRC where it was computed before the core's lock was taken.
#[derive(Clone, Copy)]
pub(crate) struct PageBytes<'a> {
    pub bytes: &'a [u8],
    crc: Option<u32>,
}

impl<'a> PageBytes<'a> {
    /// Stands for bytes that have not been read yet.
    pub const UNKNOWN: PageBytes<'static> = PageBytes { bytes: &[], crc: None };

    /// Bytes whose CRC is computed if it is needed.
    pub fn new(bytes: &'a [u8]) -> Self {
        PageBytes { bytes, crc: None }
    }

    /// Bytes with this CRC, if it is known.
    pub fn with(bytes: &'a [u8], crc: Option<u32>) -> Self {
        PageBytes { bytes, crc }
    }

    /// Bytes whose CRC is computed now.
    pub fn checked(bytes: &'a [u8]) -> Self {
        PageBytes { bytes, crc: Some(page_crc(bytes)) }
    }

    pub fn crc(&self) -> u32 {
        self.crc.unwrap_or_else(|| page_crc(self.bytes))
    }
}

/// Plan of a decision: a block of the store is reserved for the request's page, and named in the index. Until it is
/// filled, readers of the block and the write of its batch wait for it.
#[must_use = "a plan is carried out before its page is unlocked"]
#[derive(Default)]
pub(crate) struct Plan {
    block: Option<(u64, Unfilled)>,
}

impl Plan {
    /// A plan to fill this block with the bytes of a page.
    pub fn of(page: u64, block: Option<Unfilled>) -> Self {
        Plan { block: block.map(|block| (page, block)) }
    }

    /// Copies the bytes of the request's page. The page's lock is held, and the core's lock is not.
    pub fn carry_out(self, bytes: &[u8]) {
        #[cfg(test)]
        let Some(plan) = open_plans::hold(self, bytes) else { return };
        #[cfg(not(test))]
        let plan = self;
        plan.carry_out_now(bytes);
    }

    /// As [`carry_out`](Plan::carry_out), under the core's lock: what follows in the same hold may read the block.
    pub fn carry_out_now(self, bytes: &[u8]) {
        if let Some((_, block)) = self.block {
            block.fill(bytes);
        }
    }

    /// The page whose block is to be filled.
    #[cfg(test)]
    pub fn page(&self) -> Option<u64> {
        self.block.as_ref().map(|(page, _)| *page)
    }
}
