//! A device whose calls are counted and timed. A call costs two readings of the clock and a few additions.

use super::{Disk, Transfer};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

/// Buckets of a distribution of times. Bucket `i` counts calls of less than 2^i microseconds that do not fit the bucket
/// before; the last one counts calls of 67 seconds and more.
pub const TIME_BUCKETS: usize = 28;

/// Groups of threads for which counts are kept apart. Threads that count in one place slow one another down by more
/// than a call of a fast device takes.
pub const THREAD_GROUPS: usize = 8;

/// The group of this thread.
pub fn thread_group() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static GROUP: usize = NEXT.fetch_add(1, Relaxed) % THREAD_GROUPS;
    }
    GROUP.with(|group| *group)
}

/// Calls of one kind.
#[derive(Default)]
struct Meter {
    groups: [Group; THREAD_GROUPS],
}

/// Calls of one kind by a group of threads, in cache lines of their own.
#[derive(Default)]
#[repr(align(128))]
struct Group {
    calls: AtomicU64,
    errors: AtomicU64,
    bytes: AtomicU64,
    busy_ns: AtomicU64,
    under_way: AtomicU64,
    took: [AtomicU64; TIME_BUCKETS],
}

/// Counts of the calls of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallCounts {
    /// Calls that have returned. A batch is one call.
    pub calls: u64,
    /// Calls that returned an error.
    pub errors: u64,
    /// Bytes of all calls that have returned.
    pub bytes: u64,
    /// The sum of the times of calls, in nanoseconds. Its growth per second is the mean number of calls under way.
    pub busy_ns: u64,
    /// Calls under way.
    pub under_way: u64,
    /// Numbers of calls by their duration, see [`TIME_BUCKETS`].
    pub took: [u64; TIME_BUCKETS],
}

/// Counts of the calls of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounts {
    /// Reads.
    pub read: CallCounts,
    /// Writes.
    pub write: CallCounts,
    /// Syncs.
    pub sync: CallCounts,
}

#[derive(Default)]
struct Meters {
    read: Meter,
    write: Meter,
    sync: Meter,
}

/// A device with meters.
pub struct Metered<D> {
    disk: D,
    meters: Arc<Meters>,
}

/// Reader of the meters of a device.
pub struct MeterReader(Arc<Meters>);

fn bucket(ns: u64) -> usize {
    let us = ns / 1000;
    ((u64::BITS - us.leading_zeros()) as usize).min(TIME_BUCKETS - 1)
}

impl Meter {
    fn time<R>(&self, bytes: usize, call: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        let started = Instant::now();
        let group = &self.groups[thread_group()];
        group.under_way.fetch_add(1, Relaxed);
        let result = call();
        group.under_way.fetch_sub(1, Relaxed);
        group.note(bytes, started, result.is_err());
        result
    }

    /// Counts a call that has returned.
    fn note(&self, bytes: usize, started: Instant, failed: bool) {
        self.groups[thread_group()].note(bytes, started, failed);
    }

    fn counts(&self) -> CallCounts {
        let sum = |count: fn(&Group) -> &AtomicU64| self.groups.iter().map(|group| count(group).load(Relaxed)).sum();
        CallCounts {
            calls: sum(|group| &group.calls),
            errors: sum(|group| &group.errors),
            bytes: sum(|group| &group.bytes),
            busy_ns: sum(|group| &group.busy_ns),
            under_way: sum(|group| &group.under_way),
            took: std::array::from_fn(|at| self.groups.iter().map(|group| group.took[at].load(Relaxed)).sum()),
        }
    }
}

impl Group {
    fn note(&self, bytes: usize, started: Instant, failed: bool) {
        let ns = started.elapsed().as_nanos() as u64;
        self.calls.fetch_add(1, Relaxed);
        self.errors.fetch_add(u64::from(failed), Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
        self.busy_ns.fetch_add(ns, Relaxed);
        self.took[bucket(ns)].fetch_add(1, Relaxed);
    }
}

impl MeterReader {
    /// Counts so far.
    pub fn counts(&self) -> DeviceCounts {
        let Meters { read, write, sync } = &*self.0;
        DeviceCounts { read: read.counts(), write: write.counts(), sync: sync.counts() }
    }
}

impl<D: Disk> Metered<D> {
    /// A device with meters at zero.
    pub fn new(disk: D) -> Self {
        Metered { disk, meters: Arc::default() }
    }

    /// Returns a reader of the meters.
    pub fn meter(&self) -> MeterReader {
        MeterReader(self.meters.clone())
    }
}

impl<D: Disk> Disk for Metered<D> {
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.meters.read.time(bytes.len(), || self.disk.read_at(at, bytes))
    }

    fn read_now(&self, at: u64, bytes: &mut [u8]) -> bool {
        let started = Instant::now();
        let found = self.disk.read_now(at, bytes);
        if found {
            self.meters.read.note(bytes.len(), started, false);
        }
        found
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.meters.write.time(bytes.len(), || self.disk.write_at(at, bytes))
    }

    fn sync(&self) -> io::Result<()> {
        self.meters.sync.time(0, || self.disk.sync())
    }

    fn discard(&self, at: u64, bytes: u64) -> io::Result<()> {
        self.disk.discard(at, bytes)
    }

    fn grow(&self, size_bytes: u64) -> io::Result<()> {
        self.disk.grow(size_bytes)
    }

    fn submit(&self, transfers: &mut [Transfer]) -> io::Result<()> {
        // A batch is all reads or all writes.
        let writes = matches!(transfers.first(), Some(Transfer::Write { .. }));
        let meter = if writes { &self.meters.write } else { &self.meters.read };
        let bytes = transfers.iter().map(Transfer::len).sum();
        meter.time(bytes, || self.disk.submit(transfers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_the_sum_over_all_threads() {
        struct Nothing;
        impl Disk for Nothing {
            fn size_bytes(&self) -> u64 {
                0
            }
            fn read_at(&self, at: u64, _bytes: &mut [u8]) -> io::Result<()> {
                if at == 0 { Err(io::Error::other("the first byte")) } else { Ok(()) }
            }
            fn write_at(&self, _at: u64, _bytes: &[u8]) -> io::Result<()> {
                Ok(())
            }
            fn sync(&self) -> io::Result<()> {
                Ok(())
            }
            fn discard(&self, _at: u64, _bytes: u64) -> io::Result<()> {
                Ok(())
            }
        }
        let disk = Metered::new(Nothing);
        std::thread::scope(|scope| {
            for _ in 0..2 * THREAD_GROUPS {
                scope.spawn(|| (0..100).for_each(|at| drop(disk.read_at(at, &mut [0; 8]))));
            }
        });
        let CallCounts { calls, errors, bytes, under_way, took, .. } = disk.meter().counts().read;
        let threads = 2 * THREAD_GROUPS as u64;
        assert_eq!((calls, errors, bytes, under_way), (100 * threads, threads, 800 * threads, 0));
        assert_eq!(took.iter().sum::<u64>(), calls);
    }

    #[test]
    fn buckets_are_powers_of_two_of_microseconds() {
        for (us, at) in [(0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (1 << 26, 27), (u64::MAX / 1000, 27)] {
            assert_eq!(bucket(us * 1000), at, "{us} us");
        }
    }
}
