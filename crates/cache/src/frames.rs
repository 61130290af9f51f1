//! Frames of the volatile tier, by handle. Memory grows with the number of frames, not of possible handles. A large
//! cache has a hundredth of its pages in memory, and three times as many handles as pages.

use super::directory::Directory;
use super::page_copy::PageCopy;
use entresol_core::Page;
use entresol_store::Numbers;

/// A page in the volatile tier.
pub(super) struct Frame {
    /// None until the page is first read, after a restart, a promotion or an invalidation.
    pub bytes: Option<PageCopy>,
    /// CRC of the bytes, if it is known.
    pub crc: Option<u32>,
    /// Newer than the version that was sent below.
    pub dirty: bool,
    /// Log address of this very version, if the store has it.
    pub stored: Option<u64>,
}

impl Frame {
    /// A frame of a page that has no bytes here, and whose newest version is wherever durability has it.
    pub const EMPTY: Frame = Frame { bytes: None, crc: None, dirty: false, stored: None };

    /// Gives the frame the bytes of its page.
    pub fn fill(&mut self, bytes: PageCopy, crc: Option<u32>) {
        (self.bytes, self.crc) = (Some(bytes), crc);
    }
}

/// Frames of the volatile tier.
pub(super) struct Frames {
    held: Vec<(Page, Frame)>,
    /// Position in `held` of each handle's frame.
    positions: Numbers,
}

impl Frames {
    /// No frames, for handles below `handles`.
    pub fn new(handles: usize) -> Self {
        Frames { held: Vec::new(), positions: Numbers::new(64.min(handles), handles as u32) }
    }

    /// Number of frames.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    fn position(&self, handle: Page) -> Option<usize> {
        self.positions.get(u64::from(handle.0), |at| u64::from(self.held[at as usize].0.0)).map(|at| at as usize)
    }

    pub fn get(&self, handle: Page) -> Option<&Frame> {
        self.position(handle).map(|at| &self.held[at].1)
    }

    pub fn get_mut(&mut self, handle: Page) -> Option<&mut Frame> {
        self.position(handle).map(|at| &mut self.held[at].1)
    }

    /// Gives a handle a frame, in place of any that it has.
    pub fn insert(&mut self, handle: Page, frame: Frame) {
        if let Some(there) = self.get_mut(handle) {
            *there = frame;
            return;
        }
        let held = &self.held;
        if self.positions.is_full() {
            self.positions.grow(2 * held.len() + 64, |at| u64::from(held[at as usize].0.0));
        }
        self.positions.insert(u64::from(handle.0), held.len() as u32, |at| u64::from(held[at as usize].0.0));
        self.held.push((handle, frame));
    }

    /// Takes any one frame away.
    pub fn pop(&mut self) -> Option<(Page, Frame)> {
        let handle = self.held.last()?.0;
        self.remove(handle).map(|frame| (handle, frame))
    }

    /// Takes a handle's frame away; the last frame moves to its position.
    pub fn remove(&mut self, handle: Page) -> Option<Frame> {
        let held = &self.held;
        let handle_of = |at: u32| u64::from(held[at as usize].0.0);
        let at = self.positions.remove(u64::from(handle.0), handle_of)?;
        let last = held.len() - 1;
        let moved = held[last].0;
        if at as usize != last {
            self.positions.remove(u64::from(moved.0), handle_of);
        }
        let (_, removed) = self.held.swap_remove(at as usize);
        if at as usize != last {
            let held = &self.held;
            self.positions.insert(u64::from(moved.0), at, |at| u64::from(held[at as usize].0.0));
        }
        Some(removed)
    }

    /// Pages of at most `most` frames before position `end`, and the position of the first of them. A removed frame's
    /// position goes to the last frame, so a walk from the end misses no frame that stays.
    pub fn pages_before(&self, directory: &Directory, end: usize, most: usize) -> (Vec<u64>, usize) {
        let end = end.min(self.held.len());
        let first = end.saturating_sub(most);
        (self.held[first..end].iter().map(|(handle, _)| directory.page(*handle)).collect(), first)
    }

    /// Handles that have a frame, ascending, so that work on all of them is done in an order that repeats.
    pub fn handles(&self) -> Vec<Page> {
        let mut handles: Vec<Page> = self.held.iter().map(|(handle, _)| *handle).collect();
        handles.sort_unstable_by_key(|handle| handle.0);
        handles
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_core::Random;
    use std::collections::BTreeMap;

    #[test]
    fn frames_are_a_map_of_handles() {
        let (mut frames, mut model) = (Frames::new(5000), BTreeMap::new());
        let mut random = Random::new(3);
        for round in 0..40_000u64 {
            // Grows, shrinks to nothing, and grows again.
            let handle = Page(random.below(5000) as u32);
            if random.chance(if round % 10_000 < 5000 { 0.7 } else { 0.1 }) {
                frames.insert(handle, Frame { stored: Some(round), ..Frame::EMPTY });
                model.insert(handle.0, round);
            } else {
                frames.remove(handle);
                model.remove(&handle.0);
            }
            let probe = Page(random.below(5000) as u32);
            assert_eq!(frames.get(probe).map(|frame| frame.stored), model.get(&probe.0).map(|&round| Some(round)));
            if round % 1000 == 0 {
                assert_eq!(frames.handles(), model.keys().map(|&handle| Page(handle)).collect::<Vec<_>>());
            }
        }
        while let Some((handle, frame)) = frames.pop() {
            assert_eq!(model.remove(&handle.0), frame.stored);
        }
        assert!(model.is_empty() && frames.handles().is_empty());
    }
}
