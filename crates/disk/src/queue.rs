//! Reads in a queue that is refilled as soon as one of them has ended.

use super::{Disk, Transfer};
use std::io;

/// One read of a queue.
#[derive(Debug)]
pub struct QueuedRead<'a> {
    /// The source's own name for the read.
    pub token: usize,
    /// Position in bytes.
    pub at: u64,
    /// Memory that is filled. The performer of the read owns it until the source gets it back.
    pub bytes: &'a mut [u8],
}

/// Source of reads for [`Disk::read_queue`]. The source names reads one after the other, and gets each back when the
/// read has ended, in any order.
pub trait ReadSource<'a> {
    /// The next read, if there is one now. After `None` the source is asked again when a read under way has ended.
    fn next(&mut self) -> Option<QueuedRead<'a>>;

    /// A read has ended. If the result is good, its bytes are those of the device.
    fn ended(&mut self, read: QueuedRead<'a>, result: io::Result<()>);
}

/// Performs a queue as a series of batches, for devices without a queue.
pub(super) fn by_batches<'a>(disk: &(impl Disk + ?Sized), depth: usize, source: &mut dyn ReadSource<'a>) {
    loop {
        let mut reads: Vec<QueuedRead<'a>> = std::iter::from_fn(|| source.next()).take(depth.max(1)).collect();
        if reads.is_empty() {
            return;
        }
        let transfer = |read| {
            let QueuedRead { at, bytes, .. }: &mut QueuedRead<'a> = read;
            Transfer::Read { at: *at, bytes }
        };
        let together = disk.submit(&mut reads.iter_mut().map(transfer).collect::<Vec<_>>());
        for read in reads {
            // An error does not tell which reads were performed. Each is repeated alone, with its own result.
            let result = if together.is_ok() { Ok(()) } else { disk.read_at(read.at, read.bytes) };
            source.ended(read, result);
        }
    }
}
