//! The generation of a cache in use. The server of a cache raises it at times of its choice. Thereby an older copy of
//! the cache or of its backing store is told from the current one.

use super::BlockCache;
use super::maintenance::StoreAccess;
use entresol_store::mutant::{self, Mutant};
use entresol_store::{Generation, Generations};
use std::io;

impl BlockCache {
    /// Generations of the cache, one of which its backing store has.
    ///
    /// # Errors
    /// When the cache has stopped after a fault of its own.
    pub fn generation(&self) -> io::Result<Generations> {
        Ok(self.locks.guard()?.write_back().store.generations())
    }

    /// As [`Opening::keeps_generations`](super::Opening::keeps_generations).
    ///
    /// # Errors
    /// When the cache has stopped after a fault of its own.
    pub fn keeps_generations(&self) -> io::Result<bool> {
        Ok(self.locks.guard()?.write_back().store.keeps_generations())
    }

    /// Notes durably that the backing store is about to get this generation: afterwards it may have the settled one or
    /// this. Requests wait for two syncs of the cache device. If that device is out of use, nothing is noted.
    ///
    /// # Errors
    /// The error that the cache device returned; `Unsupported` if the cache keeps no generation.
    pub fn propose_generation(&self, generation: Generation) -> io::Result<()> {
        let mut guard = self.locks.exclusive()?;
        if guard.core().is_off() {
            return Ok(());
        }
        if !guard.write_back().store.keeps_generations() {
            let why =
                "the store of this cache is of version 2: it keeps a generation once it was opened after a clean close";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        guard.write_back().store.propose_generation(generation);
        let unwritten = mutant::is(Mutant::GenerationUnwritten);
        let written = if unwritten { Ok(()) } else { guard.write_back().store.write_open() };
        let noted = guard.write_back().noted(written);
        guard.mend()?;
        noted
    }

    /// Notes that the backing store has the pending generation durably. The next superblock states so, at the next
    /// proposal or at the close.
    ///
    /// # Errors
    /// When the cache has stopped after a fault of its own.
    pub fn settle_generation(&self) -> io::Result<()> {
        self.locks.guard()?.write_back().store.settle_generation();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CacheConfig, CacheError, Objects, Opening};
    use entresol_crashtest::{Power, SimDisk};
    use entresol_policy::catalogue;
    use entresol_store::{Geometry, Identity, Layout, format_before, leave_open};

    const BACKING: [u8; 16] = [9; 16];

    fn found(disks: &[SimDisk; 2]) -> Opening {
        let config = CacheConfig::new(catalogue::info("lru").expect("lru"), &[10]);
        let [cache, backing] = disks.clone();
        BlockCache::find(cache, backing, BACKING, &config, Objects::new(1)).expect("a cache in order")
    }

    fn started(opening: Opening) -> BlockCache {
        opening.start(|| Ok::<_, CacheError>(())).expect("a start").0
    }

    #[test]
    fn a_cache_of_version_2_keeps_generations_once_it_was_opened_after_a_good_end() {
        let next = Generation { number: 1, nonce: 2 };
        for layout in [Layout::Log, Layout::Slots] {
            let geometry = Geometry { page_bytes: 1024, segment_pages: 8, segments: 40, layout };
            let power = Power::steady();
            let disks = [SimDisk::new(geometry.size_bytes(), &power), SimDisk::new(64 << 10, &power)];
            let identity = Identity { uuid: [1; 16], backing: BACKING, backing_pages: 64, backing_bytes: 0 };
            format_before(&disks[0], geometry, identity).expect("room");
            leave_open(&disks[0]).expect("a superblock");
            let opening = found(&disks);
            assert!(!opening.keeps_generations(), "{layout:?}");
            let cache = started(opening);
            let refused = cache.propose_generation(next).expect_err("it keeps none");
            assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
            crate::Block::flush(&cache).and_then(|()| cache.close()).expect("a close");
            drop(cache);
            let opening = found(&disks);
            assert!(opening.keeps_generations(), "{layout:?}");
            let cache = started(opening);
            cache.propose_generation(next).expect("it keeps one");
            drop(cache);
            assert_eq!(found(&disks).generation().pending, Some(next), "{layout:?}");
        }
    }
}
