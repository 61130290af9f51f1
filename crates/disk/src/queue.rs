//! Reads that follow one another without a gap: a queue that is refilled as soon as one of them has ended.

use super::{Disk, Transfer};
use std::io;

/// One read of a queue.
#[derive(Debug)]
pub struct QueuedRead<'a> {
    /// The source's own name for it.
    pub token: usize,
    /// Position in bytes.
    pub at: u64,
    /// Memory that is filled. It belongs to whoever performs the read until the source has it back.
    pub bytes: &'a mut [u8],
}

/// Source that names reads one after the other and has each of them back when it has ended, in any order
/// ([`Disk::read_queue`]).
pub trait ReadSource<'a> {
    /// The next read, if there is one now. After `None` it is asked again when a read that is under way has ended.
    fn next(&mut self) -> Option<QueuedRead<'a>>;

    /// A read has ended; its bytes are what the device has if the result is good.
    fn ended(&mut self, read: QueuedRead<'a>, result: io::Result<()>);
}

/// Performs a queue as a row of batches, for devices that know batches only.
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
            // After an error it is not known which were performed; each is asked for alone, and answers for itself.
            let result = if together.is_ok() { Ok(()) } else { disk.read_at(read.at, read.bytes) };
            source.ended(read, result);
        }
    }
}
