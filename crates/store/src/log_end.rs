//! The end of a log, or of the journal of the slots layout. The superblock, commit records, tables and blocks of the
//! journal state by such an end how far the store was durable.

/// The greatest log address or number that is taken for valid. No device is written so often.
pub(super) const PLACES_MAX: u64 = 1 << 56;

/// End of the log, with its tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogEnd {
    /// Log address of the next batch.
    pub address: u64,
    /// Slot of that batch's segment.
    pub slot: u32,
    /// First live log address: the start of a segment.
    pub tail: u64,
    /// CRC of the last table.
    pub chain: u32,
}

impl LogEnd {
    /// The end that is further on; `self` if both are equal.
    pub fn later(self, other: LogEnd) -> LogEnd {
        if other.address > self.address { other } else { self }
    }
}
