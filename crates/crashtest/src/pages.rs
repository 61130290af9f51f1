//! The oracle of pages: the allowed contents of a cached block store, from a plain map of versions, sector by sector.

use entresol_core::Random;
use std::collections::VecDeque;

/// Bytes of a disk that are never torn.
pub const SECTOR: usize = 512;

/// Flushes of which the earlier states are kept.
const FLUSHES_KEPT: u64 = 64;

/// The versions of a page's sectors.
type Versions = Vec<u64>;

/// The states of every page that a crash may leave: the last durable one and all later ones.
#[derive(Clone)]
pub struct Oracle {
    pages: Vec<VecDeque<Versions>>,
    /// States that a crash might have left before a flush returned, each with the number of that flush.
    earlier: Vec<VecDeque<(u64, Versions)>>,
    /// Number of the last flush that is known to have synced the cache.
    flushes: u64,
    page_bytes: usize,
    next: u64,
    /// True if a page is never torn, not even between two allowed states.
    atomic: bool,
}

/// Contents of a sector at a version; version 0 is a new backing store's zeros.
fn fill(page: u64, sector: usize, version: u64, bytes: &mut [u8]) {
    if version == 0 {
        bytes.fill(0);
        return;
    }
    let mut random = Random::new(page << 32 ^ (sector as u64) << 24 ^ version << 3);
    bytes[..8].copy_from_slice(&version.to_le_bytes());
    let pattern = random.next_u64().to_le_bytes();
    bytes[8..].chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&pattern[..chunk.len()]));
}

impl Oracle {
    /// A store of zeros. Its pages are never torn between two states if `atomic`.
    pub fn new(pages: u64, page_bytes: usize, atomic: bool) -> Self {
        let zeros = VecDeque::from([vec![0; page_bytes / SECTOR]]);
        let pages = vec![zeros; pages as usize];
        Oracle { earlier: vec![VecDeque::new(); pages.len()], flushes: 0, pages, page_bytes, next: 1, atomic }
    }

    /// Number of pages of the store.
    pub fn pages(&self) -> u64 {
        self.pages.len() as u64
    }

    fn latest(&self, page: u64) -> &Versions {
        self.pages[page as usize].back().expect("never empty")
    }

    /// Notes a write of sectors of one page, whether or not it will be acknowledged, and returns its bytes.
    pub fn write(&mut self, page: u64, sectors: std::ops::Range<usize>) -> Vec<u8> {
        let version = self.next;
        self.next += 1;
        let mut versions = self.latest(page).clone();
        versions[sectors.clone()].fill(version);
        self.pages[page as usize].push_back(versions);
        let mut bytes = vec![0; sectors.len() * SECTOR];
        for (sector, chunk) in sectors.zip(bytes.chunks_mut(SECTOR)) {
            fill(page, sector, version, chunk);
        }
        bytes
    }

    /// Notes that a page became zeros, or will.
    pub fn zeroed(&mut self, page: u64) {
        let zeros = vec![0; self.page_bytes / SECTOR];
        self.pages[page as usize].push_back(zeros);
    }

    /// Lets a crash tear pages between allowed states from now on.
    pub fn may_tear(&mut self) {
        self.atomic = false;
    }

    /// Notes that a flush returned: all writes are durable. The flush before is known to a start if this one, or
    /// anything since, has `synced` the cache.
    pub fn flushed(&mut self, synced: bool) {
        self.flushes += u64::from(synced);
        let flush = self.flushes;
        for (states, earlier) in self.pages.iter_mut().zip(&mut self.earlier) {
            while earlier.front().is_some_and(|(other, _)| other + FLUSHES_KEPT <= flush) {
                earlier.pop_front();
            }
            earlier.extend(states.drain(..states.len() - 1).map(|state| (flush, state)));
        }
    }

    /// Notes that the last flush may be unknown: a crash may leave the states that the flush before allowed. Returns
    /// the pages with several allowed states.
    pub fn may_lack_the_last_flush(&mut self) -> Vec<u64> {
        self.may_lack_flushes(1)
    }

    /// As [`may_lack_the_last_flush`](Oracle::may_lack_the_last_flush), of so many flushes.
    ///
    /// # Panics
    /// If it is more flushes than are kept.
    pub fn may_lack_flushes(&mut self, flushes: u64) -> Vec<u64> {
        assert!(flushes <= FLUSHES_KEPT, "{flushes} flushes, and {FLUSHES_KEPT} are kept");
        let mut pages = Vec::new();
        for (page, (states, earlier)) in (0..).zip(self.pages.iter_mut().zip(&mut self.earlier)) {
            let lacked = earlier.drain(..).rev().filter(|(flush, _)| flush + flushes > self.flushes);
            lacked.for_each(|(_, state)| states.push_front(state));
            pages.extend((states.len() > 1).then_some(page));
        }
        pages
    }

    /// Checks a read without a crash in between.
    pub fn check_latest(&self, page: u64, bytes: &[u8]) -> Result<(), String> {
        let mut expected = vec![0; self.page_bytes];
        for (sector, chunk) in expected.chunks_mut(SECTOR).enumerate() {
            fill(page, sector, self.latest(page)[sector], chunk);
        }
        if expected == bytes {
            return Ok(());
        }
        let found = self.versions_of(page, bytes);
        Err(format!("page {page} reads as {found:?}, its last version is {:?}", self.latest(page)))
    }

    /// Versions that the sectors of a page hold; none for a sector that was never written so.
    fn versions_of(&self, page: u64, bytes: &[u8]) -> Vec<Option<u64>> {
        let version = |(sector, chunk): (usize, &[u8])| {
            let version = u64::from_le_bytes(chunk[..8].try_into().expect("eight bytes"));
            let mut expected = vec![0; SECTOR];
            fill(page, sector, version, &mut expected);
            (expected == chunk).then_some(version)
        };
        bytes.chunks(SECTOR).enumerate().map(version).collect()
    }

    /// Checks the contents of a page after a crash, and makes them its durable state.
    pub fn check_after_crash(&mut self, page: u64, bytes: &[u8]) -> Result<(), String> {
        let found = self.allowed(page, bytes, self.atomic)?;
        self.settle(page, found);
        Ok(())
    }

    /// As [`check_after_crash`](Oracle::check_after_crash), of a page that may be torn although others may not.
    pub fn check_torn_after_crash(&mut self, page: u64, bytes: &[u8]) -> Result<(), String> {
        let found = self.allowed(page, bytes, false)?;
        self.settle(page, found);
        Ok(())
    }

    /// Checks the contents of a page after a kill of the process alone: its last version, or that of an oracle to which
    /// the request under way was told; the one before if the last is `unanswered`; any that a crash may leave if the
    /// page was `discarded`. What was found is the last version from then on.
    ///
    /// # Errors
    /// The versions found, and those allowed.
    pub fn check_after_kill(
        &mut self,
        page: u64,
        bytes: &[u8],
        after: &Oracle,
        unanswered: bool,
        discarded: bool,
    ) -> Result<(), String> {
        let found = self.versions_of(page, bytes);
        let states = &self.pages[page as usize];
        let before = if discarded { states.len() } else { 1 + usize::from(unanswered) };
        let before = states.iter().rev().take(before);
        let allowed: Vec<&Versions> = before.chain([after.latest(page)]).collect();
        let is_found = |state: &&&Versions| state.iter().zip(&found).all(|(version, found)| Some(*version) == *found);
        let Some(state) = allowed.iter().find(is_found) else {
            return Err(format!("after a kill page {page} reads as {found:?}, allowed was {allowed:?}"));
        };
        let state = (**state).clone();
        if state != *self.latest(page) {
            self.pages[page as usize].push_back(state);
        }
        self.next = self.next.max(after.next);
        Ok(())
    }

    /// Checks the contents of a page after a crash, without settling its state.
    pub fn is_allowed_after_crash(&self, page: u64, bytes: &[u8]) -> Result<(), String> {
        self.allowed(page, bytes, self.atomic).map(drop)
    }

    /// The versions of a page's sectors after a crash, which must be those of one state if `atomic`.
    fn allowed(&self, page: u64, bytes: &[u8], atomic: bool) -> Result<Versions, String> {
        let found = self.versions_of(page, bytes);
        let states = &self.pages[page as usize];
        let allowed = if atomic {
            states.iter().any(|state| state.iter().zip(&found).all(|(version, found)| Some(*version) == *found))
        } else {
            (0..found.len()).all(|s| states.iter().any(|state| Some(state[s]) == found[s]))
        };
        if !allowed {
            return Err(format!("after a crash page {page} reads as {found:?}, allowed was {states:?}"));
        }
        Ok(found.into_iter().map(|version| version.expect("just checked")).collect())
    }

    fn settle(&mut self, page: u64, state: Versions) {
        self.pages[page as usize] = VecDeque::from([state]);
        self.earlier[page as usize].clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_takes_back_as_many_flushes_as_are_said_and_no_more() {
        for lacking in 0..3 {
            let mut oracle = Oracle::new(1, SECTOR, true);
            let mut versions = vec![vec![0; SECTOR]];
            for _ in 0..3 {
                versions.push(oracle.write(0, 0..1));
                oracle.flushed(true);
            }
            let last = oracle.may_lack_flushes(lacking);
            assert_eq!(last.is_empty(), lacking == 0);
            for (flush, version) in (0..).zip(&versions) {
                let allowed = oracle.is_allowed_after_crash(0, version).is_ok();
                assert_eq!(allowed, flush + lacking >= 3, "after flush {flush}, {lacking} lacking");
            }
        }
    }

    #[test]
    fn a_flush_that_synced_nothing_takes_the_one_before_along() {
        let mut oracle = Oracle::new(1, SECTOR, true);
        let first = oracle.write(0, 0..1);
        oracle.flushed(true);
        oracle.write(0, 0..1);
        oracle.flushed(false);
        oracle.may_lack_the_last_flush();
        oracle.is_allowed_after_crash(0, &first).expect("allowed");
        oracle.is_allowed_after_crash(0, &[0; SECTOR]).expect("allowed");
    }
}
