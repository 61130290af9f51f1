//! Reads that need no wait for a device: from memory, or from the backing store's memory.

use super::Engine;
use crate::Tag;
use crate::core::Core;
use crate::durability::Source;
use crate::plan::PageBytes;
use entresol_core::Tier;
use entresol_policy::Policy;

impl<P: Policy> Engine<P> {
    /// Reads pages from `first` on, if the policy's uppermost tier has them all in memory, and decides on each.
    pub(super) fn read_uppermost(&mut self, first: u64, bytes: &mut [u8], tag: Tag) -> bool {
        // Recovered pages are shown to the policy behind requests, which may fill a batch of the store.
        if Core::is_off(self) || self.unseen.is_some() {
            return false;
        }
        // All are found before the first decision, since a decision may move the others.
        let page_bytes = self.executor.page_bytes();
        let mut pages = (first..).zip(bytes.chunks_exact_mut(page_bytes));
        if !pages.all(|(page, bytes)| self.copy_uppermost(page, bytes)) {
            return false;
        }
        for (at, bytes) in bytes.chunks_exact(page_bytes).enumerate() {
            let tag = Tag { sequential: tag.sequential || at > 0, ..tag };
            Core::read(self, first + at as u64, PageBytes::new(bytes), tag);
        }
        true
    }

    /// Copies a page that the policy has in its uppermost tier and whose bytes memory has. A hit there moves nothing,
    /// apart from the pages that a policy moves at any request.
    fn copy_uppermost(&mut self, page: u64, bytes: &mut [u8]) -> bool {
        let Some(handle) = self.executor.directory.find(page) else { return false };
        let there = self.policy.state(handle).tiers.contains(Tier::TOP);
        there && matches!(self.executor.locate(page, Some(handle), bytes), Ok(Source::Memory))
    }

    /// Checks whether whole pages from `first` on can be read from the backing store in one piece. If so, spends
    /// credit for the pages that the cache holds as well, and returns a bit for each, the lowest for the first page.
    /// `bytes` may then hold anything.
    pub(super) fn find_below(&mut self, first: u64, bytes: &mut [u8]) -> Option<u64> {
        if Core::is_off(self) || self.unseen.is_some() {
            return None;
        }
        let page_bytes = self.executor.page_bytes();
        let mut held = 0_u64;
        for (at, bytes) in bytes.chunks_exact_mut(page_bytes).enumerate() {
            let page = first + at as u64;
            if !matches!(self.locate(page, bytes), Ok(Source::Below)) {
                if !self.executor.is_same_below(page) {
                    return None;
                }
                held |= 1 << at;
            }
        }
        let row = first..first + (bytes.len() / page_bytes) as u64;
        (held == 0 || self.executor.gaps.spend(row, u64::from(held.count_ones()))).then_some(held)
    }
}
