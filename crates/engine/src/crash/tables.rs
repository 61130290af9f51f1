//! Tables of a backing store, and the queries that begin and end over them: what places them whole, brings them bit by bit and
//! has them leave.

use crate::cache::{BlockCache, Filling, Objects};
use entresol_core::{ObjectId, Random};
use std::io;

/// Shares of the pages that half a table has; what remains belongs to none.
const SHARES: [u64; 3] = [1, 2, 3];
const SHARES_ALL: u64 = 14;
/// Queries that run at a time.
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
    /// Over a backing store of so many pages, eight at least.
    pub fn new(backing_pages: u64) -> Self {
        Tables { backing_pages, running: Vec::new(), next: 0, filling: Filling::default() }
    }

    /// Whose the pages are: every table lies in two pieces, the second one before the first, others in between.
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

    /// A query begins or ends, a person places a table or has one leave, or a few pages are brought and leave.
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

    /// The program is gone, and with it what it knew of queries.
    pub fn forget(&mut self) {
        self.running.clear();
        self.filling = Filling::default();
    }
}
