//! I/Os and their results: completions, latencies, wear and errors.

use std::ops::{Add, AddAssign};

/// Nanoseconds of virtual time from the start of a simulation, or a duration in them.
pub type Nanos = u64;

/// Operation of an I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoKind {
    /// Bytes are read.
    Read,
    /// Bytes are written.
    Write,
    /// Earlier writes are made durable.
    Flush,
    /// The contents of a range are no longer needed.
    Discard,
}

/// One I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// Operation of the I/O.
    pub kind: IoKind,
    /// First byte.
    pub offset: u64,
    /// Length in bytes; 0 for a flush.
    pub bytes: u32,
    /// Identifier that the completion carries; any number.
    pub tag: u64,
}

impl Io {
    /// A read.
    pub const fn read(offset: u64, bytes: u32) -> Self {
        Io { kind: IoKind::Read, offset, bytes, tag: 0 }
    }

    /// A write.
    pub const fn write(offset: u64, bytes: u32) -> Self {
        Io { kind: IoKind::Write, offset, bytes, tag: 0 }
    }

    /// The byte after the last.
    pub const fn end(&self) -> u64 {
        self.offset + self.bytes as u64
    }
}

/// Itemised latency of an I/O, in nanoseconds. The parts add up to the time from submission to completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Software of the host: system call, driver, interrupt.
    pub host: Nanos,
    /// Waiting for other I/Os.
    pub queue: Nanos,
    /// Fixed cost of a command in the device: controller, protocol.
    pub fixed: Nanos,
    /// Moving the bytes over buses and links.
    pub transfer: Nanos,
    /// The medium itself: sensing, programming, seek and rotation.
    pub media: Nanos,
    /// Waiting for garbage collection or erasure.
    pub gc: Nanos,
    /// Waiting for the device's own refresh or retry of a disturbed page.
    pub refresh: Nanos,
}

impl Latency {
    /// The sum of the parts.
    pub const fn total(&self) -> Nanos {
        self.host + self.queue + self.fixed + self.transfer + self.media + self.gc + self.refresh
    }
}

impl Add for Latency {
    type Output = Latency;

    fn add(self, other: Latency) -> Latency {
        Latency {
            host: self.host + other.host,
            queue: self.queue + other.queue,
            fixed: self.fixed + other.fixed,
            transfer: self.transfer + other.transfer,
            media: self.media + other.media,
            gc: self.gc + other.gc,
            refresh: self.refresh + other.refresh,
        }
    }
}

impl AddAssign for Latency {
    fn add_assign(&mut self, other: Latency) {
        *self = *self + other;
    }
}

/// A completed I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The tag of the I/O.
    pub tag: u64,
    /// Time of submission.
    pub submitted: Nanos,
    /// Time of completion: `submitted + latency.total()`.
    pub finished: Nanos,
    /// Parts of the time from submission to completion.
    pub latency: Latency,
}

/// Bytes that a device moved, and its erasures, wear and energy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Wear {
    /// Bytes that the host read.
    pub host_read_bytes: u64,
    /// Bytes that the host wrote.
    pub host_written_bytes: u64,
    /// Bytes programmed into the medium, garbage collection included.
    pub media_written_bytes: u64,
    /// Erase blocks erased.
    pub erases: u64,
    /// Share of the medium's endurance that is used up, 0 to 1; 0 where it has no known limit.
    pub worn: f64,
    /// Energy in joules; 0 where no source gives a figure.
    pub joules: f64,
}

impl Wear {
    /// Write amplification: bytes programmed per byte that the host wrote; 1 before the first write.
    pub fn write_amplification(&self) -> f64 {
        if self.host_written_bytes == 0 {
            1.0
        } else {
            self.media_written_bytes as f64 / self.host_written_bytes as f64
        }
    }

    /// Wear since an earlier state of the same device.
    #[must_use]
    pub fn since(&self, earlier: &Wear) -> Wear {
        Wear {
            host_read_bytes: self.host_read_bytes - earlier.host_read_bytes,
            host_written_bytes: self.host_written_bytes - earlier.host_written_bytes,
            media_written_bytes: self.media_written_bytes - earlier.media_written_bytes,
            erases: self.erases - earlier.erases,
            worn: self.worn - earlier.worn,
            joules: self.joules - earlier.joules,
        }
    }

    /// Years that a new device lasts at the rate of this wear, which came in `elapsed` nanoseconds; infinite where
    /// nothing wears.
    pub fn lifetime_years(&self, elapsed: Nanos) -> f64 {
        const YEAR_NS: f64 = 365.25 * 86_400.0 * 1e9;
        if self.worn == 0.0 { f64::INFINITY } else { elapsed as f64 / self.worn / YEAR_NS }
    }
}

/// Reason for which a device refuses an I/O or a profile.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DeviceError {
    /// The I/O reaches beyond the end.
    #[error("an I/O of {bytes} B at {offset} reaches beyond the device's {capacity} B")]
    BeyondEnd {
        /// First byte.
        offset: u64,
        /// Length.
        bytes: u32,
        /// Capacity of the device in bytes.
        capacity: u64,
    },
    /// A parameter is missing or impossible.
    #[error("device '{device}': {what}")]
    Profile {
        /// The device.
        device: String,
        /// Description of the problem.
        what: String,
    },
}
