//! Pages on an emulated device.

use super::{PageIo, WriteQueue};
use entresol_core::{Address, ObjectId};
use entresol_device::emulated::{Clock, Done, EmulatedDevice, Storage};
use entresol_device::{Device, Io};
use entresol_disk::AlignedBytes;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};

/// Marks the tags of reads. A buffer's tags of writes are page handles of 32 bits, so the bit is free there.
const READ: u64 = 1 << 63;

/// Objects one after the other on an emulated device. The device's queue takes writes, and reads of a host that does
/// not wait for them ([`TieredBuffer::prepare`](super::TieredBuffer::prepare)).
pub struct EmulatedIo<S, M: Device, C> {
    device: EmulatedDevice<S, M, C>,
    /// Ended transfers that were reaped by a caller looking for the other kind: reads, writes.
    ended: Mutex<[VecDeque<Done>; 2]>,
    page_bytes: u64,
    /// Pages of each object, and its first byte.
    objects: Vec<(u64, u64)>,
}

impl<S: Storage, M: Device + Send, C: Clock> EmulatedIo<S, M, C> {
    /// Storage of pages of `page_bytes`, with `pages` of them per object. The device has room for all.
    pub fn new(device: EmulatedDevice<S, M, C>, page_bytes: u64, pages: impl IntoIterator<Item = u64>) -> Self {
        let base = |next: &mut u64, pages: u64| Some((pages, std::mem::replace(next, *next + pages * page_bytes)));
        EmulatedIo { device, ended: Mutex::default(), page_bytes, objects: pages.into_iter().scan(0, base).collect() }
    }

    /// The device.
    pub fn device(&self) -> &EmulatedDevice<S, M, C> {
        &self.device
    }

    /// Starts a read of a page under the caller's tag, which is below 2^63.
    ///
    /// # Errors
    /// The read was not started.
    pub fn start_read(&self, tag: u64, at: Address) -> io::Result<()> {
        let io = Io { tag: tag | READ, ..Io::read(self.offset(at), self.page_bytes as u32) };
        self.device.submit(io, vec![0; self.page_bytes as usize])
    }

    /// Tag and page of the next read that has ended; `None` if there is none. With `wait`, waits for a read under way.
    pub fn read_ended(&self, wait: bool) -> Option<(u64, io::Result<Vec<u8>>)> {
        let Done { io, buffer, result, .. } = self.next_ended(true, wait)?;
        Some((io.tag & !READ, result.map(|()| buffer)))
    }

    /// The next read or write that has ended.
    fn next_ended(&self, read: bool, wait: bool) -> Option<Done> {
        let ended = || self.ended.lock().expect("nobody panics there");
        loop {
            if let Some(done) = ended()[usize::from(!read)].pop_front() {
                return Some(done);
            }
            let done = if wait { self.device.reap() } else { self.device.reap_due() }?;
            let is_read = done.io.tag & READ != 0;
            ended()[usize::from(!is_read)].push_back(done);
        }
    }

    fn offset(&self, at: Address) -> u64 {
        self.objects[at.object.index()].1 + at.block * self.page_bytes
    }
}

impl<S: Storage, M: Device + Send, C: Clock> PageIo for EmulatedIo<S, M, C> {
    fn read_page(&self, at: Address, into: &mut [u8]) -> io::Result<()> {
        self.device.read(self.offset(at), into)
    }

    fn write_page(&self, at: Address, bytes: &[u8]) -> io::Result<()> {
        self.device.write(self.offset(at), bytes, false)
    }

    fn write_queue(&self) -> Option<&dyn WriteQueue> {
        Some(self)
    }

    fn sync(&self) -> io::Result<()> {
        self.device.flush()
    }

    fn object_pages(&self, object: ObjectId) -> u64 {
        self.objects.get(object.index()).map_or(0, |&(pages, _)| pages)
    }
}

impl<S: Storage, M: Device + Send, C: Clock> WriteQueue for EmulatedIo<S, M, C> {
    fn start(&self, tag: u64, at: Address, bytes: &Arc<AlignedBytes>) -> io::Result<()> {
        let io = Io { tag, ..Io::write(self.offset(at), bytes.len() as u32) };
        self.device.submit(io, bytes.to_vec())
    }

    fn ended(&self, wait: bool) -> Option<(u64, io::Result<()>)> {
        self.next_ended(false, wait).map(|done| (done.io.tag, done.result))
    }
}
