//! Reads of pages from devices, neighbours in one transfer.

use entresol_disk::{Disk, Transfer};
use std::io;
use std::ops::Range;

/// Reads pages at these byte offsets of a device together; false when any of the reads failed.
pub(super) fn read_pages(disk: &dyn Disk, at: &[u64], bytes: &mut [u8], page_bytes: usize) -> bool {
    let mut reads = Vec::new();
    let mut rest = bytes;
    for run in runs(at.len(), |n| at[n] == at[n - 1] + page_bytes as u64) {
        let (these, others) = rest.split_at_mut(run.len() * page_bytes);
        reads.push(Transfer::Read { at: at[run.start], bytes: these });
        rest = others;
    }
    reads.is_empty() || disk.submit(&mut reads).is_ok()
}

/// Runs, as ranges of positions: every item after the first of a run `follows` the one before it.
pub(super) fn runs(len: usize, follows: impl Fn(usize) -> bool) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for at in 0..len {
        match runs.last_mut() {
            Some(run) if follows(at) => run.end = at + 1,
            _ => runs.push(at..at + 1),
        }
    }
    runs
}

/// Reads a page of a backing store of `backing_bytes` bytes; bytes beyond its end are zeros.
pub(super) fn read_page_below(backing: &dyn Disk, backing_bytes: u64, page: u64, bytes: &mut [u8]) -> io::Result<()> {
    let at = page * bytes.len() as u64;
    let inside = (backing_bytes - at).min(bytes.len() as u64) as usize;
    let (inside, beyond) = bytes.split_at_mut(inside);
    beyond.fill(0);
    backing.read_at(at, inside)
}
