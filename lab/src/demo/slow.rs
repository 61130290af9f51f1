//! A database file with a device's timing: the real bytes, the time of a model.

use entresol_device::Device;
use entresol_device::emulated::{EmulatedDevice, Storage, WallClock};
use entresol_device::profile::Profile;
use entresol_disk::Disk;
use entresol_sqlite::{Below, GrowingFile};
use std::io;
use std::sync::Arc;

/// The database file as an emulated device keeps it.
struct Bytes(Arc<GrowingFile>);

impl Storage for Bytes {
    fn size_bytes(&self) -> io::Result<u64> {
        Ok(Disk::size_bytes(&self.0))
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        Disk::read_at(&self.0, offset, bytes)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        Disk::write_at(&self.0, offset, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        Disk::sync(&self.0)
    }

    fn punch(&self, offset: u64, bytes: u64) -> io::Result<()> {
        Disk::discard(&self.0, offset, bytes)
    }
}

/// The emulated device as the backing store of a cache.
struct Slow(EmulatedDevice<Bytes, Box<dyn Device + Send>, WallClock>);

impl Disk for Slow {
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.0.read(at, bytes)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write(at, bytes, false)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.flush()
    }

    fn discard(&self, at: u64, bytes: u64) -> io::Result<()> {
        self.0.discard(at, bytes)
    }
}

/// Puts a device of this profile between a cache and its database file.
pub fn below(profile: Profile, seed: u64) -> Below {
    Arc::new(move |file: Arc<GrowingFile>| {
        let capacity = Disk::size_bytes(&file);
        let model = profile.build(capacity, seed).map_err(io::Error::other)?;
        Ok(Arc::new(Slow(EmulatedDevice::new(Bytes(file), model, WallClock::new())?)) as Arc<dyn Disk>)
    })
}
