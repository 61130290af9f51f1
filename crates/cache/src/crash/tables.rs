//! Tables of a backing store, and queries over them. Queries begin and end, tables are placed and unplaced, and pages
//! are brought in steps.

use crate::{BlockCache, Filling, Objects};
use entresol_core::{ObjectId, Random};
use std::io;

/// Shares of the pages that half of each table has. The remaining pages belong to no table.
const SHARES: [u64; 3] = [1, 2, 3];
const SHARES_ALL: u64 = 14;
/// Most queries that run at once.
const RUNNING_MAX: usize = 3;

#[derive(Debug)]
pub(super) struct Tables {
    backing_pages: u64,
    running: Vec<u32>,
    next: u32,
    filling: Filling,
}

/// Number of a table.
fn number(table: usize) -> ObjectId {
    ObjectId(1 + table as u32)
}

impl Tables {
    /// Tables of a backing store of so many pages, at least eight.
    pub fn new(backing_pages: u64) -> Self {
        Tables { backing_pages, running: Vec::new(), next: 0, filling: Filling::default() }
    }

    /// The tables' pages. Every table lies in two pieces, the second before the first, with others in between.
    pub fn objects(&self) -> Objects {
        let mut objects = Objects::new(SHARES.len() + 1);
        let halves = SHARES.map(|share| (share * self.backing_pages / SHARES_ALL).max(1));
        let mut first = 0;
        for (table, half) in halves.into_iter().enumerate() {
            let object = objects.add();
            assert_eq!(object, number(table));
            objects.join(object, first, half, half);
            objects.join(object, first + halves.iter().sum::<u64>(), half, 0);
            objects.resize(object, 2 * half);
            first += half;
        }
        objects
    }

    fn some(random: &mut Random) -> ObjectId {
        number(random.below(SHARES.len() as u64) as usize)
    }

    /// Begins or ends a query, places or unplaces a table, or moves a few pages.
    pub fn step(&mut self, cache: &BlockCache, random: &mut Random) -> io::Result<()> {
        match random.below(10) {
            0 | 1 if self.running.len() < RUNNING_MAX => {
                let used = [Self::some(random), Self::some(random)];
                self.next += 1;
                self.running.push(self.next);
                cache.query_begins(self.next, &used[..1 + random.below(2) as usize])
            }
            2 | 3 if !self.running.is_empty() => {
                let query = self.running.swap_remove(random.below(self.running.len() as u64) as usize);
                cache.query_ends(query)
            }
            4 => cache.place(Self::some(random)).map(|_| ()),
            5 => cache.unplace(Self::some(random)),
            _ => cache.fill_some(&mut self.filling).map(|_| ()),
        }
    }

    /// Forgets the queries: the program has ended.
    pub fn forget(&mut self) {
        self.running.clear();
        self.filling = Filling::default();
    }
}
