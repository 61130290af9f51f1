//! A network link: a message's cost, its travel time, and the rate of its bytes.

use crate::check::{self, Parameters};
use crate::device::Calendar;
use crate::io::{Completion, Io, IoKind, Latency, Nanos, Wear};
use crate::rate::Rate;
use serde::{Deserialize, Serialize};

/// The numbers of a link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkParameters {
    /// Bandwidth in GB/s, each way where the link is duplex.
    pub gb_per_s: f64,
    /// Round-trip time in nanoseconds.
    pub round_trip_ns: Nanos,
    /// Time that a message occupies the link besides its bytes, in nanoseconds.
    pub per_message_ns: Nanos,
    /// True if reads and writes, which travel in opposite directions, have a bandwidth each.
    pub duplex: bool,
}

impl Parameters for LinkParameters {
    fn check(&self) -> Result<(), String> {
        check::bandwidth("gb_per_s", self.gb_per_s)?;
        check::nanos("round_trip_ns", self.round_trip_ns)?;
        check::nanos("per_message_ns", self.per_message_ns)
    }
}

/// A link as a calendar, with memory of no cost at its far end. A discard or flush is a message without bytes.
#[derive(Clone, Debug)]
pub struct Link {
    parameters: LinkParameters,
    rate: Rate,
    capacity_bytes: u64,
    free_at: [Nanos; 2],
    read_bytes: u64,
    written_bytes: u64,
}

impl Link {
    /// A link to this many bytes.
    pub fn new(parameters: &LinkParameters, capacity_bytes: u64) -> Self {
        Link {
            rate: Rate::from_gb_per_s(parameters.gb_per_s),
            parameters: parameters.clone(),
            capacity_bytes,
            free_at: [0; 2],
            read_bytes: 0,
            written_bytes: 0,
        }
    }
}

impl Calendar for Link {
    fn serve(&mut self, now: Nanos, io: Io) -> Completion {
        let bytes = match io.kind {
            IoKind::Read | IoKind::Write => u64::from(io.bytes),
            IoKind::Flush | IoKind::Discard => 0,
        };
        let reads = io.kind == IoKind::Read;
        *(if reads { &mut self.read_bytes } else { &mut self.written_bytes }) += bytes;

        let direction = usize::from(self.parameters.duplex && reads);
        let LinkParameters { round_trip_ns, per_message_ns, .. } = self.parameters;
        let start = now.max(self.free_at[direction]);
        let transfer = self.rate.time(bytes);
        self.free_at[direction] = start + per_message_ns + transfer;
        let latency =
            Latency { queue: start - now, fixed: round_trip_ns + per_message_ns, transfer, ..Latency::default() };
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
            ..Wear::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions_queue_apart_only_where_the_link_is_duplex() {
        for (duplex, read_finished) in [(true, 1150), (false, 2200)] {
            let parameters = LinkParameters { gb_per_s: 1.0, round_trip_ns: 100, per_message_ns: 50, duplex };
            let mut link = Link::new(&parameters, 1 << 20);
            assert_eq!(link.serve(0, Io::write(0, 1000)).finished, 1150);
            assert_eq!(link.serve(0, Io::read(0, 1000)).finished, read_finished);
        }
    }
}
