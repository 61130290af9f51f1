//! Growth of the cache device while the cache is in use: held pages stay where they are.

use super::durability::{SharedDisk, WriteBack};
use super::maintenance::StoreAccess;
use super::{BlockCache, CacheError};
use entresol_disk::Disk;
use entresol_store::mutant::{self, Mutant};
use entresol_store::{Geometry, StoreError};
use std::io;
use std::sync::atomic::Ordering;

impl WriteBack {
    /// The cache device, and the size in bytes that it needs for the cache to take up `device_bytes` of it.
    fn to_grow(&self, device_bytes: u64) -> Result<(SharedDisk, u64), StoreError> {
        let grown = self.store.geometry().grown_to(device_bytes)?;
        Ok((self.store.disk().clone(), grown.size_bytes()))
    }

    /// Takes up `device_bytes` of the cache device.
    fn grow(&mut self, device_bytes: u64) -> Result<Geometry, StoreError> {
        let grown = self.store.geometry().grown_to(device_bytes)?;
        self.store.disk().grow(grown.size_bytes())?;
        // The superblock must not name segments that a crash would take away again.
        let durable = if mutant::is(Mutant::GrownTooEarly) { Ok(()) } else { self.store.disk().sync() };
        self.noted(durable)?;
        let result = self.store.grow(grown.segments);
        if let Err(StoreError::Io(error)) = &result {
            self.fail(error);
        }
        result.map(|()| grown)
    }
}

impl BlockCache {
    /// Takes up more of the cache device: as many segments as fit into `device_bytes`. A file is extended to that size,
    /// and its blocks are allocated first. A block device must have been made larger before. Cached pages stay cached.
    /// Requests wait for four syncs and while the index is rebuilt: a fifth of a second for two million pages.
    ///
    /// The tiers stay as they are: [`set_tiers`](BlockCache::set_tiers) gives the policy the new capacity, which this
    /// call returns in pages.
    ///
    /// A cache does not become smaller in use. Drained and closed, it can be formatted anew.
    ///
    /// # Errors
    /// When `device_bytes` is no more than the cache has, the device cannot be made so large, or its file system has no
    /// space: the cache then stays as it was. When the device fails.
    pub fn grow(&self, device_bytes: u64) -> Result<u64, CacheError> {
        // Requests go on while the file system allocates.
        let (disk, bytes) = self.locks.exclusive().map_err(StoreError::Io)?.write_back().to_grow(device_bytes)?;
        disk.grow(bytes).map_err(StoreError::Io)?;
        let mut guard = self.locks.exclusive().map_err(StoreError::Io)?;
        if guard.core().is_off() {
            let error = io::Error::other("the cache device has failed; it cannot be made larger any more");
            return Err(StoreError::Io(error).into());
        }
        let result = guard.write_back().grow(device_bytes);
        guard.mend().map_err(StoreError::Io)?;
        let space = result?.capacity_pages();
        self.room_pages.store(space, Ordering::Release);
        Ok(space)
    }
}
