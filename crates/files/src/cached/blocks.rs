//! Blocks in the backing store for writes into holes of a file. They are taken when the cache takes the write, so that
//! they are not missing at write-back.

use crate::Sought;
use crate::below::{File, OpenFile};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most bytes taken ahead of a sequential writer.
const AHEAD_MAX: u64 = 1 << 20;
/// Runs remembered per file; beyond that all are forgotten and found again.
const RUNS_MAX: usize = 1024;

/// Calls on the backing file that find its holes and take blocks for it.
pub(super) trait Extents {
    /// The next hole from an offset on, or the end. A file system may report blocks without bytes as a hole.
    fn hole_from(&self, offset: u64) -> rustix::io::Result<u64>;

    /// The next data from an offset on; `ENXIO` when there is none.
    fn data_from(&self, offset: u64) -> rustix::io::Result<u64>;

    /// Takes blocks for a range; size and contents stay.
    fn take(&self, range: Range<u64>) -> rustix::io::Result<()>;
}

impl Extents for File {
    fn hole_from(&self, offset: u64) -> rustix::io::Result<u64> {
        self.seek(Sought::Hole, offset)
    }

    fn data_from(&self, offset: u64) -> rustix::io::Result<u64> {
        self.seek(Sought::Data, offset)
    }

    fn take(&self, range: Range<u64>) -> rustix::io::Result<()> {
        self.allocate(FallocateFlags::KEEP_SIZE, range.start, range.end - range.start)
    }
}

/// Byte ranges of a file that are known to have blocks in the backing store.
#[derive(Default)]
pub(super) struct Blocks {
    known: Mutex<Known>,
    /// The backing file system cannot take blocks ahead.
    unsupported: AtomicBool,
}

#[derive(Default)]
struct Known {
    /// End by start; the runs neither overlap nor touch.
    runs: BTreeMap<u64, u64>,
    /// End of the last range that was taken, and its length, in bytes.
    next: u64,
    length: u64,
}

impl Known {
    /// The end of the run that contains an offset.
    fn end_at(&self, offset: u64) -> Option<u64> {
        self.runs.range(..=offset).next_back().map(|(_, &end)| end).filter(|&end| end > offset)
    }

    fn add(&mut self, range: Range<u64>) {
        if self.runs.len() >= RUNS_MAX {
            self.runs.clear();
        }
        let (mut start, mut end) = (range.start, range.end);
        while let Some((&first, &last)) = self.runs.range(..=end).next_back().filter(|&(_, &last)| last >= start) {
            (start, end) = (start.min(first), end.max(last));
            self.runs.remove(&first);
        }
        self.runs.insert(start, end);
    }

    fn remove(&mut self, range: Range<u64>) {
        while let Some((&first, &last)) = self.runs.range(..range.end).next_back().filter(|&(_, &l)| l > range.start) {
            self.runs.remove(&first);
            if first < range.start {
                self.runs.insert(first, range.start);
            }
            if last > range.end {
                self.runs.insert(range.end, last);
            }
        }
    }
}

impl Blocks {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a range has blocks.
    pub fn note(&self, range: Range<u64>) {
        if range.start < range.end {
            self.known().add(range);
        }
    }

    /// Notes that a range may have lost its blocks.
    pub fn forget(&self, range: Range<u64>) {
        self.known().remove(range);
    }

    /// Takes the missing blocks of a range in a file of `size` bytes; true if any were taken. A sequential writer has
    /// more taken with each call, up to 1 MiB, so that it costs one call per MiB.
    ///
    /// # Errors
    /// `ENOSPC`, `EDQUOT` and the like: a write there could not be written back.
    pub fn take(&self, file: &impl Extents, range: Range<u64>, size: u64) -> rustix::io::Result<bool> {
        if self.unsupported.load(Relaxed) {
            return Ok(false);
        }
        let (mut known, mut at, mut taken) = (self.known(), range.start, false);
        let end = range.end.min(size);
        while at < end {
            if let Some(run_end) = known.end_at(at) {
                at = run_end;
                continue;
            }
            // An error may hide a hole.
            let hole = file.hole_from(at).unwrap_or(at);
            if hole > at {
                known.add(at..hole);
                continue;
            }
            let hole_end = file.data_from(at).unwrap_or(size).max(at + 1);
            let ahead = if at == known.next { (2 * known.length).min(AHEAD_MAX) } else { 0 };
            let need = at..end.min(hole_end);
            let wish = at..need.end.max(at.saturating_add(ahead)).min(hole_end).min(size);
            let Some(got) = Self::take_one(file, need, wish)? else {
                self.unsupported.store(true, Relaxed);
                return Ok(taken);
            };
            taken = true;
            (known.next, known.length, at) = (got.end, got.end - got.start, got.end);
            known.add(got);
        }
        Ok(taken)
    }

    /// Takes blocks for `wish`, else for `need`; none where no blocks can be taken ahead.
    fn take_one(file: &impl Extents, need: Range<u64>, wish: Range<u64>) -> rustix::io::Result<Option<Range<u64>>> {
        let tries = if wish == need { vec![need] } else { vec![wish, need] };
        let mut refused = Errno::NOSPC;
        for range in tries {
            loop {
                match file.take(range.clone()) {
                    Ok(()) => return Ok(Some(range)),
                    Err(Errno::INTR) => {}
                    Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(None),
                    Err(error) => {
                        refused = error;
                        break;
                    }
                }
            }
        }
        Err(refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_core::Random;
    use std::cell::{Cell, RefCell};

    const BLOCK: u64 = 4096;

    /// A file whose blocks are present or absent, on a file system with `free` blocks left.
    struct Model {
        blocks: RefCell<Vec<bool>>,
        free: Cell<u64>,
        calls: Cell<u64>,
        supported: bool,
    }

    impl Model {
        fn new(blocks: Vec<bool>, free: u64) -> Self {
            Model { blocks: RefCell::new(blocks), free: Cell::new(free), calls: Cell::new(0), supported: true }
        }

        fn next(&self, offset: u64, wanted: bool) -> Option<u64> {
            self.calls.set(self.calls.get() + 1);
            let blocks = self.blocks.borrow();
            let found = (offset / BLOCK..blocks.len() as u64).find(|&at| blocks[at as usize] == wanted);
            found.map(|at| (at * BLOCK).max(offset))
        }
    }

    impl Extents for Model {
        fn hole_from(&self, offset: u64) -> rustix::io::Result<u64> {
            Ok(self.next(offset, false).unwrap_or(self.blocks.borrow().len() as u64 * BLOCK))
        }

        fn data_from(&self, offset: u64) -> rustix::io::Result<u64> {
            self.next(offset, true).ok_or(Errno::NXIO)
        }

        fn take(&self, range: Range<u64>) -> rustix::io::Result<()> {
            self.calls.set(self.calls.get() + 1);
            if !self.supported {
                return Err(Errno::OPNOTSUPP);
            }
            for at in range.start / BLOCK..range.end.div_ceil(BLOCK) {
                if !self.blocks.borrow()[at as usize] {
                    self.free.set(self.free.get().checked_sub(1).ok_or(Errno::NOSPC)?);
                    self.blocks.borrow_mut()[at as usize] = true;
                }
            }
            Ok(())
        }
    }

    #[test]
    fn every_write_that_is_taken_has_its_blocks_and_none_is_refused_that_could_have_them() {
        for seed in 0..400 {
            let mut random = Random::new(seed);
            let (blocks, free) = (256, random.below(300));
            let model = Model::new((0..blocks).map(|_| random.chance(0.5)).collect(), free);
            let (known, size) = (Blocks::default(), blocks * BLOCK);
            let mut next = 0;
            for step in 0..300 {
                let from = if random.chance(0.6) { next % size } else { random.below(size) };
                let range = from..(from + 1 + random.below(5 * BLOCK)).min(size);
                next = range.end;
                let within = range.start / BLOCK..range.end.div_ceil(BLOCK);
                if random.chance(0.1) {
                    // Punch a hole.
                    let whole = range.start.next_multiple_of(BLOCK)..range.end / BLOCK * BLOCK;
                    for at in whole.start / BLOCK..(whole.end / BLOCK).max(whole.start / BLOCK) {
                        if std::mem::replace(&mut model.blocks.borrow_mut()[at as usize], false) {
                            model.free.set(model.free.get() + 1);
                        }
                    }
                    known.forget(range);
                    continue;
                }
                let missing = within.clone().filter(|&at| !model.blocks.borrow()[at as usize]).count() as u64;
                let before = model.free.get();
                match known.take(&model, range, size) {
                    Ok(_) => {
                        let all = within.clone().all(|at| model.blocks.borrow()[at as usize]);
                        assert!(all, "seed {seed}, step {step}");
                    }
                    Err(error) => assert!(error == Errno::NOSPC && missing > before, "seed {seed}, step {step}"),
                }
            }
        }
    }

    #[test]
    fn a_sequential_writer_costs_a_few_calls_for_each_mebibyte_and_a_file_without_holes_one() {
        let blocks = 64 << 20 >> 12;
        let write_all = |model: &Model| {
            let known = Blocks::default();
            for at in 0..blocks {
                known.take(model, at * BLOCK..(at + 1) * BLOCK, blocks * BLOCK).expect("room");
            }
            model.calls.get()
        };
        let sparse = write_all(&Model::new(vec![false; blocks as usize], blocks));
        println!("{sparse} calls for {blocks} writes into a hole");
        assert!(sparse <= 3 * (64 + 10), "{sparse} calls");
        assert_eq!(write_all(&Model::new(vec![true; blocks as usize], 0)), 1);
        let unsupported = Model { supported: false, ..Model::new(vec![false; blocks as usize], 0) };
        assert_eq!(write_all(&unsupported), 3, "it is asked once");
    }

    #[test]
    fn runs_agree_with_a_set() {
        let mut random = Random::new(9);
        let (mut known, mut model) = (Known::default(), vec![false; 500]);
        for step in 0..3000 {
            let from = random.below(490);
            let to = from + 1 + random.below(10);
            let add = random.chance(0.5);
            if add {
                known.add(from..to)
            } else {
                known.remove(from..to)
            }
            model[from as usize..to as usize].fill(add);
            for (at, &within) in model.iter().enumerate() {
                assert_eq!(known.end_at(at as u64).is_some(), within, "step {step}, {at}");
            }
        }
    }
}
