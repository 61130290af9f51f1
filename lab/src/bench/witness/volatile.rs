//! A volatile write cache: writes stay in memory until a sync of their file, and a kill loses them, as a loss of power
//! does on a disk.

use entresol_files::{AtOnce, FileData, Sought};
use rustix::fs::FallocateFlags;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes of a block, the unit in which writes are kept and sent below: InnoDB's page, so that a kill tears none.
const BLOCK: usize = 16 << 10;

/// Writes to a file that no sync has covered.
#[derive(Default)]
pub(super) struct Unsynced(Mutex<Blocks>);

#[derive(Default)]
struct Blocks {
    /// By number; a block before the end of the file below has all of its bytes.
    blocks: BTreeMap<u64, Box<[u8; BLOCK]>>,
    /// End of the last write.
    end: u64,
}

impl Unsynced {
    fn blocks(&self) -> MutexGuard<'_, Blocks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A file whose writes are volatile.
pub(super) struct Volatile {
    pub data: Arc<dyn FileData>,
    pub unsynced: Arc<Unsynced>,
    /// Time of a write, and of a sync.
    pub takes: Duration,
}

/// Parts of a range of `bytes` bytes by block: the block's number, the part's beginning in the block, and in the range.
fn parts(offset: u64, bytes: usize) -> impl Iterator<Item = (u64, std::ops::Range<usize>, usize)> {
    let (block, end) = (BLOCK as u64, offset + bytes as u64);
    (offset / block..end.div_ceil(block)).map(move |number| {
        let (from, to) = (offset.max(number * block), end.min((number + 1) * block));
        (number, (from - number * block) as usize..(to - number * block) as usize, (from - offset) as usize)
    })
}

impl Volatile {
    /// Writes all below.
    fn empty(&self, blocks: &mut Blocks) -> io::Result<()> {
        let size = self.data.size_bytes()?.max(blocks.end);
        for (&number, block) in &blocks.blocks {
            let from = number * BLOCK as u64;
            let bytes = size.saturating_sub(from).min(BLOCK as u64) as usize;
            self.data.write(from, &block[..bytes])?;
        }
        *blocks = Blocks::default();
        Ok(())
    }
}

impl FileData for Volatile {
    fn size_bytes(&self) -> io::Result<u64> {
        let blocks = self.unsynced.blocks();
        Ok(self.data.size_bytes()?.max(blocks.end))
    }

    /// Nothing, so that each read is one call.
    fn read_now(&self, _offset: u64, _bytes: &mut [u8]) -> io::Result<AtOnce> {
        Ok(AtOnce::First(0))
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let blocks = self.unsynced.blocks();
        let below = self.data.read(offset, bytes)?;
        let count = blocks.end.saturating_sub(offset).min(bytes.len() as u64) as usize;
        let count = count.max(below);
        bytes[below..count].fill(0);
        for (number, part, at) in parts(offset, count) {
            if let Some(block) = blocks.blocks.get(&number) {
                bytes[at..at + part.len()].copy_from_slice(&block[part]);
            }
        }
        Ok(count)
    }

    fn write_now(&self, _offset: u64, _bytes: &[u8]) -> io::Result<usize> {
        Ok(0)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        std::thread::sleep(self.takes);
        let mut blocks = self.unsynced.blocks();
        for (number, part, at) in parts(offset, bytes.len()) {
            let block = match blocks.blocks.entry(number) {
                Entry::Occupied(block) => block.into_mut(),
                Entry::Vacant(space) => {
                    let mut block = Box::new([0; BLOCK]);
                    if part.len() < BLOCK {
                        self.data.read(number * BLOCK as u64, &mut block[..])?;
                    }
                    space.insert(block)
                }
            };
            block[part.clone()].copy_from_slice(&bytes[at..at + part.len()]);
        }
        blocks.end = blocks.end.max(offset + bytes.len() as u64);
        Ok(())
    }

    /// Makes durable what was written when it began.
    fn sync(&self, data_only: bool) -> io::Result<()> {
        self.empty(&mut self.unsynced.blocks())?;
        std::thread::sleep(self.takes);
        self.data.sync(data_only)
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        let mut blocks = self.unsynced.blocks();
        self.empty(&mut blocks)?;
        self.data.truncate(bytes)
    }

    fn allocate(&self, how: FallocateFlags, offset: u64, bytes: u64) -> io::Result<()> {
        let mut blocks = self.unsynced.blocks();
        self.empty(&mut blocks)?;
        self.data.allocate(how, offset, bytes)
    }

    fn seek(&self, sought: Sought, offset: u64) -> io::Result<u64> {
        let mut blocks = self.unsynced.blocks();
        self.empty(&mut blocks)?;
        self.data.seek(sought, offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_core::Random;

    /// A file in memory.
    #[derive(Default)]
    struct Plain(Mutex<Vec<u8>>);

    impl Plain {
        fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
            self.0.lock().expect("no test panics under it")
        }
    }

    impl FileData for Plain {
        fn size_bytes(&self) -> io::Result<u64> {
            Ok(self.bytes().len() as u64)
        }

        fn read_now(&self, offset: u64, bytes: &mut [u8]) -> io::Result<AtOnce> {
            self.read(offset, bytes).map(AtOnce::All)
        }

        fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
            let all = self.bytes();
            let from = all.get(offset as usize..).unwrap_or_default();
            let count = from.len().min(bytes.len());
            bytes[..count].copy_from_slice(&from[..count]);
            Ok(count)
        }

        fn write_now(&self, _offset: u64, _bytes: &[u8]) -> io::Result<usize> {
            Ok(0)
        }

        fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
            let (mut all, end) = (self.bytes(), offset as usize + bytes.len());
            let size = all.len().max(end);
            all.resize(size, 0);
            all[offset as usize..end].copy_from_slice(bytes);
            Ok(())
        }

        fn sync(&self, _data_only: bool) -> io::Result<()> {
            Ok(())
        }

        fn truncate(&self, bytes: u64) -> io::Result<()> {
            self.bytes().resize(bytes as usize, 0);
            Ok(())
        }

        fn allocate(&self, _how: FallocateFlags, _offset: u64, _bytes: u64) -> io::Result<()> {
            Ok(())
        }

        fn seek(&self, _sought: Sought, offset: u64) -> io::Result<u64> {
            Ok(offset)
        }
    }

    #[test]
    fn reads_see_every_write_and_the_file_below_only_what_was_synced() {
        let seed = 11;
        let mut random = Random::new(seed);
        let (below, model) = (Arc::new(Plain::default()), Plain::default());
        let data: Arc<dyn FileData> = below.clone();
        let file = Volatile { data, unsynced: Arc::default(), takes: Duration::ZERO };
        let mut synced = Vec::new();
        for step in 0..3000 {
            let (offset, count) = (random.below(40_000), random.below(9000) as usize + 1);
            match random.below(12) {
                0 => {
                    file.sync(true).expect("memory");
                    synced.clone_from(&model.bytes());
                }
                1 => {
                    file.truncate(offset).and_then(|()| model.truncate(offset)).expect("memory");
                    synced.clone_from(&model.bytes());
                }
                2..7 => {
                    let bytes: Vec<u8> = (0..count).map(|_| random.below(256) as u8).collect();
                    file.write(offset, &bytes).and_then(|()| model.write(offset, &bytes)).expect("memory");
                }
                _ => {
                    let read = |its: &dyn FileData| {
                        let mut bytes = vec![7; count];
                        let count = its.read(offset, &mut bytes).expect("memory");
                        (bytes[..count].to_vec(), its.size_bytes().expect("memory"))
                    };
                    assert!(read(&file) == read(&model), "seed {seed}, step {step}");
                }
            }
            assert!(*below.bytes() == synced, "seed {seed}, step {step}");
        }
    }
}
