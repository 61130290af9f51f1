//! Any device of which a table gives a latency each way, a bandwidth and little else (003, table 1; 000, table 1.1).

use crate::check::{self, Parameters};
use crate::device::Calendar;
use crate::io::{Completion, Io, IoKind, Latency, Nanos, Wear};
use crate::rate::{Energy, Rate};
use serde::{Deserialize, Serialize};

/// The numbers of a device of fixed latency.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FixedParameters {
    /// Latency of a read, in nanoseconds.
    pub read_ns: Nanos,
    /// Latency of a write, in nanoseconds.
    pub write_ns: Nanos,
    /// Bandwidth in GB/s, reads and writes together; none where the source gives only latencies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gb_per_s: Option<f64>,
    /// Bandwidth of writes in GB/s where it is not that of reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_gb_per_s: Option<f64>,
    /// I/Os that the device works on at a time, 1 to 256.
    pub parallelism: u32,
    /// Writes of each byte until it fails; none where nothing wears. Wear is taken to be spread evenly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endurance_writes: Option<f64>,
    /// Energy of the bytes; none where no source gives a figure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy: Option<Energy>,
}

impl Parameters for FixedParameters {
    fn check(&self) -> Result<(), String> {
        check::nanos_above_zero("read_ns", self.read_ns)?;
        check::nanos_above_zero("write_ns", self.write_ns)?;
        self.gb_per_s.map_or(Ok(()), |gb_per_s| check::bandwidth("gb_per_s", gb_per_s))?;
        self.write_gb_per_s.map_or(Ok(()), |gb_per_s| check::bandwidth("write_gb_per_s", gb_per_s))?;
        check::within("parallelism", u64::from(self.parallelism), 1, 256)?;
        check::endurance("endurance_writes", self.endurance_writes)?;
        self.energy.map_or(Ok(()), Energy::check)
    }
}

/// A device of fixed latency as a calendar: an I/O takes the first free slot, its bytes pass one after the other, then
/// comes the latency.
#[derive(Clone, Debug)]
pub struct Fixed {
    parameters: FixedParameters,
    read_rate: Option<Rate>,
    write_rate: Option<Rate>,
    capacity_bytes: u64,
    slots: Vec<Nanos>,
    bus_free_at: Nanos,
    last_write_done: Nanos,
    read_bytes: u64,
    written_bytes: u64,
}

impl Fixed {
    /// A device of this capacity.
    pub fn new(parameters: &FixedParameters, capacity_bytes: u64) -> Self {
        Fixed {
            read_rate: parameters.gb_per_s.map(Rate::from_gb_per_s),
            write_rate: parameters.write_gb_per_s.or(parameters.gb_per_s).map(Rate::from_gb_per_s),
            slots: vec![0; parameters.parallelism as usize],
            parameters: parameters.clone(),
            capacity_bytes,
            bus_free_at: 0,
            last_write_done: 0,
            read_bytes: 0,
            written_bytes: 0,
        }
    }

    fn work(&mut self, now: Nanos, bytes: u32, rate: Option<Rate>, media: Nanos) -> Latency {
        let (mut slot, mut free_at) = (0, Nanos::MAX);
        for (i, &at) in self.slots.iter().enumerate() {
            (slot, free_at) = if at < free_at { (i, at) } else { (slot, free_at) };
        }
        let start = now.max(free_at).max(self.bus_free_at);
        let transfer = rate.map_or(0, |rate| rate.time(u64::from(bytes)));
        if rate.is_some() {
            self.bus_free_at = start + transfer;
        }
        self.slots[slot] = start + transfer + media;
        Latency { queue: start - now, transfer, media, ..Latency::default() }
    }
}

impl Calendar for Fixed {
    fn serve(&mut self, now: Nanos, io: Io) -> Completion {
        let latency = match io.kind {
            IoKind::Read => {
                self.read_bytes += u64::from(io.bytes);
                self.work(now, io.bytes, self.read_rate, self.parameters.read_ns)
            }
            IoKind::Write => {
                self.written_bytes += u64::from(io.bytes);
                let latency = self.work(now, io.bytes, self.write_rate, self.parameters.write_ns);
                self.last_write_done = self.last_write_done.max(now + latency.total());
                latency
            }
            // A write that has completed is on the medium, so a flush waits for those that have not.
            IoKind::Flush => Latency { queue: self.last_write_done.saturating_sub(now), ..Latency::default() },
            IoKind::Discard => Latency::default(),
        };
        Completion { tag: io.tag, submitted: now, finished: now + latency.total(), latency }
    }

    fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    fn wear(&self) -> Wear {
        let parameters = &self.parameters;
        let lifetime_bytes = parameters.endurance_writes.map(|writes| writes * self.capacity_bytes as f64);
        Wear {
            host_read_bytes: self.read_bytes,
            host_written_bytes: self.written_bytes,
            media_written_bytes: self.written_bytes,
            worn: lifetime_bytes.map_or(0.0, |bytes| self.written_bytes as f64 / bytes),
            joules: parameters.energy.map_or(0.0, |energy| energy.joules(self.read_bytes, self.written_bytes)),
            ..Wear::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixed(parallelism: u32) -> Fixed {
        let parameters = FixedParameters {
            read_ns: 100,
            write_ns: 300,
            gb_per_s: Some(1.0),
            write_gb_per_s: None,
            parallelism,
            endurance_writes: Some(10.0),
            energy: None,
        };
        Fixed::new(&parameters, 1000)
    }

    #[test]
    fn slots_work_side_by_side_and_share_the_bus() {
        let mut device = fixed(2);
        let finished: Vec<Nanos> = (0..4).map(|_| device.serve(0, Io::read(0, 10)).finished).collect();
        assert_eq!(finished, [110, 120, 220, 230]);
    }

    #[test]
    fn writes_may_have_a_bandwidth_of_their_own() {
        let parameters = FixedParameters { write_gb_per_s: Some(0.1), ..fixed(1).parameters };
        let mut device = Fixed::new(&parameters, 1000);
        assert_eq!(device.serve(0, Io::read(0, 10)).finished, 110);
        assert_eq!(device.serve(1000, Io::write(0, 10)).finished, 1400);
    }

    #[test]
    fn a_flush_waits_for_the_slowest_write() {
        let mut device = fixed(4);
        let write = device.serve(0, Io::write(0, 10));
        device.serve(0, Io::read(0, 10));
        let flush = device.serve(5, Io { kind: IoKind::Flush, ..Io::read(0, 0) });
        assert_eq!(flush.finished, write.finished);
    }

    #[test]
    fn endurance_is_used_up_by_bytes_over_capacity() {
        let mut device = fixed(1);
        device.serve(0, Io::write(0, 1000));
        assert!((device.wear().worn - 0.1).abs() < 1e-12);
        assert!((device.wear().lifetime_years(31_557_600_000_000_000) - 10.0).abs() < 1e-9);
    }
}
