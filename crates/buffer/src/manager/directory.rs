//! The directory of a shard: the page that a policy's handle stands for, and the frame that holds it.
//!
//! The directory is bounded: a fixed number of handles for resident pages and ghosts together, 28 bytes each. A hand
//! takes back a handle that the policy no longer knows; it asks, for policies do not report
//! (`docs/policy-interface.md`).

use crate::frame::{Key, NO_HANDLE};
use crate::table::{HashTable, PageTable, Sharding, TableKey};
use entresol_core::Page;
use std::io;

/// Marks a page that no frame holds.
pub(super) const NO_FRAME: u32 = u32::MAX;

pub(super) struct Directory {
    /// The page of each handle.
    keys: Vec<Key>,
    /// The frame of each handle's page.
    frames: Vec<u32>,
    handles: HashTable,
    /// Position at which the search for a free handle continues.
    hand: usize,
}

impl Directory {
    pub fn new(handles: usize) -> io::Result<Self> {
        assert!(handles <= NO_HANDLE as usize, "{handles} handles");
        let table = HashTable::new(handles, Sharding::pages(1))?;
        Ok(Directory { keys: vec![Key::NONE; handles], frames: vec![NO_FRAME; handles], handles: table, hand: 0 })
    }

    pub fn find(&self, key: Key) -> Option<Page> {
        self.handles.get(TableKey(key), |handle| self.keys[handle as usize] == key).map(Page)
    }

    /// A handle for a page that has none, taken from a page that is no longer `known`. `None` when all are known.
    pub fn give(&mut self, key: Key, known: impl Fn(Page) -> bool) -> Option<Page> {
        let handles = self.keys.len();
        for _ in 0..handles {
            let handle = self.hand;
            self.hand = if handle + 1 == handles { 0 } else { handle + 1 };
            if self.frames[handle] == NO_FRAME && (self.keys[handle] == Key::NONE || !known(Page(handle as u32))) {
                let before = std::mem::replace(&mut self.keys[handle], key);
                if before != Key::NONE {
                    self.handles.remove(TableKey(before), handle as u32);
                }
                self.handles.insert(TableKey(key), handle as u32);
                return Some(Page(handle as u32));
            }
        }
        None
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        for handle in 0..self.keys.len() {
            let before = std::mem::replace(&mut self.keys[handle], Key::NONE);
            if before != Key::NONE {
                self.handles.remove(TableKey(before), handle as u32);
            }
        }
        self.frames.fill(NO_FRAME);
        self.hand = 0;
    }

    pub fn key(&self, page: Page) -> Key {
        self.keys[page.index()]
    }

    pub fn frame(&self, page: Page) -> Option<u32> {
        self.frames.get(page.index()).copied().filter(|&frame| frame != NO_FRAME)
    }

    pub fn set_frame(&mut self, page: Page, frame: u32) {
        self.frames[page.index()] = frame;
    }

    /// Frames whose pages the policy holds, with their pages.
    pub fn residents(&self) -> Vec<(Key, u32)> {
        let pairs = self.keys.iter().copied().zip(self.frames.iter().copied());
        pairs.filter(|&(_, frame)| frame != NO_FRAME).collect()
    }

    pub fn memory_bytes(&self) -> usize {
        self.keys.len() * (size_of::<Key>() + size_of::<u32>()) + self.handles.memory_bytes()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn handles_are_taken_back_from_pages_that_are_not_known() {
        let mut directory = Directory::new(3).expect("a directory");
        let given: Vec<Page> = (10..13).map(|key| directory.give(Key(key), |_| true).expect("a handle")).collect();
        assert_eq!(directory.give(Key(13), |_| true), None, "all are known");
        directory.set_frame(given[0], 5);
        let taken = directory.give(Key(13), |page| page == given[2]).expect("one that is not known");
        assert_eq!(taken, given[1], "not the one with a frame, not the one that is known");
        assert_eq!((directory.find(Key(11)), directory.find(Key(13))), (None, Some(taken)));
        assert_eq!(directory.residents(), [(Key(10), 5)]);
        directory.clear();
        assert_eq!((directory.find(Key(10)), directory.residents()), (None, Vec::new()));
    }

    #[test]
    fn a_handle_takes_28_bytes() {
        let handles = 10_000;
        let per_handle = Directory::new(handles).expect("a directory").memory_bytes() as f64 / handles as f64;
        assert!((28.0..28.1).contains(&per_handle), "{per_handle}");
    }
}
