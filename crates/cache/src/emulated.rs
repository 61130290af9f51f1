//! An emulated device as a [`Block`]: for a cache, its backing store or a front-end.

use crate::block::Block;
use entresol_device::Device;
use entresol_device::emulated::{Clock, EmulatedDevice, Storage};
use std::io;

impl<S: Storage, M: Device + Send, C: Clock> Block for EmulatedDevice<S, M, C> {
    fn size_bytes(&self) -> u64 {
        EmulatedDevice::size_bytes(self)
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        EmulatedDevice::read(self, offset, bytes)
    }

    fn write(&self, offset: u64, bytes: &[u8], fua: bool) -> io::Result<()> {
        EmulatedDevice::write(self, offset, bytes, fua)
    }

    fn flush(&self) -> io::Result<()> {
        EmulatedDevice::flush(self)
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        EmulatedDevice::discard(self, offset, bytes)
    }
}
