//! A larger cache device while the cache is in use: what it holds stays where it is.

use super::maintenance::StoreAccess;
use super::write_back::{SharedDisk, WriteBack};
use super::{BlockCache, CacheError};
use crate::disk::Disk;
use crate::mutant::{self, Mutant};
use crate::store::{Geometry, StoreError};
use std::io;
use std::sync::atomic::Ordering;

impl WriteBack {
    /// The log's device, and how large it has to be for the cache to take up so many bytes of it.
    fn to_grow(&self, device_bytes: u64) -> Result<(SharedDisk, u64), StoreError> {
        let grown = self.store.geometry().grown_to(device_bytes)?;
        Ok((self.store.disk().clone(), grown.size_bytes()))
    }

    /// Goes on with as much of the log's device as so many bytes are.
    fn grow(&mut self, device_bytes: u64) -> Result<Geometry, StoreError> {
        let grown = self.store.geometry().grown_to(device_bytes)?;
        self.store.disk().grow(grown.size_bytes())?;
        // The superblock must not speak of what a crash would take away again.
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
    /// Takes up more of the cache device: as many segments as so many bytes of it have room for. A file is extended to that,
    /// with its blocks taken first; a block device must have been made larger before. What is cached stays cached; requests wait for four syncs, and
    /// while the index is made anew: a fifth of a second for two million pages.
    ///
    /// The tiers stay as they are: [`set_tiers`](BlockCache::set_tiers) gives the policy the new room, of which this returns
    /// the size in pages.
    ///
    /// A cache is not made smaller in use. Drained and closed it can be formatted anew.
    ///
    /// # Errors
    /// When that is no larger than the cache is, when the device cannot be made so large or its file system has no room for that: all
    /// stays as it was then. When the device fails.
    pub fn grow(&self, device_bytes: u64) -> Result<u64, CacheError> {
        // Requests go on while the file system looks for room.
        let (disk, bytes) = self.locks.exclusive().map_err(StoreError::Io)?.write_back().to_grow(device_bytes)?;
        disk.grow(bytes).map_err(StoreError::Io)?;
        let mut guard = self.locks.exclusive().map_err(StoreError::Io)?;
        if guard.core().is_off() {
            let error = io::Error::other("the cache device has failed; it cannot be made larger any more");
            return Err(StoreError::Io(error).into());
        }
        let result = guard.write_back().grow(device_bytes);
        guard.mend().map_err(StoreError::Io)?;
        let room = result?.capacity_pages();
        self.room_pages.store(room, Ordering::Release);
        Ok(room)
    }
}
