//! DRAM: a latency for a load that follows its predecessor, one for any other, and a bandwidth that all share.

use crate::check::{self, Parameters};
use crate::device::Calendar;
use crate::io::{Completion, Io, IoKind, Latency, Nanos, Wear};
use crate::rate::{Energy, Rate};
use serde::{Deserialize, Serialize};

/// The numbers of a DRAM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DramParameters {
    /// Latency of a load, in nanoseconds.
    pub read_ns: Nanos,
    /// Latency of a load that begins where the one before it ended, in nanoseconds.
    pub sequential_read_ns: Nanos,
    /// Latency of a store, in nanoseconds.
    pub write_ns: Nanos,
    /// Bandwidth in GB/s, loads and stores together.
    pub gb_per_s: f64,
    /// Energy of the bytes; none where no source gives a figure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy: Option<Energy>,
}

impl Parameters for DramParameters {
    fn check(&self) -> Result<(), String> {
        check::nanos("read_ns", self.read_ns)?;
        check::nanos("sequential_read_ns", self.sequential_read_ns)?;
        check::nanos("write_ns", self.write_ns)?;
        check::bandwidth("gb_per_s", self.gb_per_s)?;
        self.energy.map_or(Ok(()), Energy::check)
    }
}

/// A DRAM as a calendar: bytes pass one after the other, latencies overlap.
#[derive(Clone, Debug)]
pub struct Dram {
    parameters: DramParameters,
    rate: Rate,
    capacity_bytes: u64,
    free_at: Nanos,
    last_read_end: u64,
    last_write_done: Nanos,
    read_bytes: u64,
    written_bytes: u64,
}

impl Dram {
    /// A DRAM of this capacity.
    pub fn new(parameters: &DramParameters, capacity_bytes: u64) -> Self {
        Dram {
            rate: Rate::from_gb_per_s(parameters.gb_per_s),
            parameters: parameters.clone(),
            capacity_bytes,
            free_at: 0,
            last_read_end: u64::MAX,
            last_write_done: 0,
            read_bytes: 0,
            written_bytes: 0,
        }
    }

    /// Moves the bytes when the bus is free and adds the medium's latency.
    fn move_bytes(&mut self, now: Nanos, bytes: u32, media: Nanos) -> Latency {
        let start = now.max(self.free_at);
        let transfer = self.rate.time(u64::from(bytes));
        self.free_at = start + transfer;
        Latency { queue: start - now, transfer, media, ..Latency::default() }
    }
}

impl Calendar for Dram {
    fn serve(&mut self, now: Nanos, io: Io) -> Completion {
        let latency = match io.kind {
            IoKind::Read => {
                let sequential = io.offset == self.last_read_end;
                self.last_read_end = io.end();
                self.read_bytes += u64::from(io.bytes);
                let media = if sequential { self.parameters.sequential_read_ns } else { self.parameters.read_ns };
                self.move_bytes(now, io.bytes, media)
            }
            IoKind::Write => {
                self.written_bytes += u64::from(io.bytes);
                let latency = self.move_bytes(now, io.bytes, self.parameters.write_ns);
                self.last_write_done = now + latency.total();
                latency
            }
            // A fence: nothing but the stores before it.
            IoKind::Flush => Latency { queue: self.last_write_done.saturating_sub(now), ..Latency::default() },
            IoKind::Discard => Latency::default(),
        };
        Completion { tag: io.tag, submitted: now, finished: now + latency.total(), latency }
    }

    fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    fn wear(&self) -> Wear {
        Wear {
            host_read_bytes: self.read_bytes,
            host_written_bytes: self.written_bytes,
            media_written_bytes: self.written_bytes,
            joules: self.parameters.energy.map_or(0.0, |energy| energy.joules(self.read_bytes, self.written_bytes)),
            ..Wear::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dram() -> Dram {
        let parameters =
            DramParameters { read_ns: 100, sequential_read_ns: 80, write_ns: 90, gb_per_s: 1.0, energy: None };
        Dram::new(&parameters, 1 << 20)
    }

    #[test]
    fn a_load_that_continues_is_faster() {
        let mut dram = dram();
        assert_eq!(dram.serve(0, Io::read(0, 64)).latency.media, 100);
        assert_eq!(dram.serve(1000, Io::read(64, 64)).latency.media, 80);
        assert_eq!(dram.serve(2000, Io::read(64, 64)).latency.media, 100);
    }

    #[test]
    fn bytes_queue_and_latencies_overlap() {
        let mut dram = dram();
        let first = dram.serve(0, Io::write(0, 1000));
        let second = dram.serve(0, Io::read(5000, 1000));
        assert_eq!((first.finished, second.finished), (1090, 2100));
        assert_eq!(second.latency.queue, 1000);
        assert_eq!(dram.serve(500, Io { kind: IoKind::Flush, ..Io::read(0, 0) }).finished, 1090);
        assert_eq!(dram.serve(5000, Io { kind: IoKind::Flush, ..Io::read(0, 0) }).finished, 5000);
        assert_eq!((dram.wear().host_read_bytes, dram.wear().host_written_bytes), (1000, 1000));
    }
}
