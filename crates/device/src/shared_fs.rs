//! A shared parallel file system: every I/O under way is a stream from a node of its own. All streams share the peak
//! bandwidth equally, none faster than a node's link (processor sharing).
//!
//! All streams have the same rate at any time. So one counter, the bytes that a stream would have moved since the
//! start, gives the end of each stream: the counter's value on arrival plus the stream's bytes. An event costs the
//! logarithm of the number of streams.

use crate::check::{self, Parameters};
use crate::device::Device;
use crate::io::{Completion, DeviceError, Io, IoKind, Latency, Nanos, Wear};
use crate::rate::Rate;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Binary places of the byte counter.
const PLACES: u32 = 32;

/// The numbers of a shared file system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedFsParameters {
    /// Bandwidth that one stream reaches alone, in GB/s.
    pub node_gb_per_s: f64,
    /// Bandwidth that all streams reach together, in GB/s.
    pub peak_gb_per_s: f64,
    /// I/Os that the file system takes up per second, from all nodes.
    pub peak_iops: f64,
    /// Further cost of an I/O before its bytes flow, in nanoseconds.
    pub fixed_ns: Nanos,
}

impl Parameters for SharedFsParameters {
    fn check(&self) -> Result<(), String> {
        check::bandwidth("node_gb_per_s", self.node_gb_per_s)?;
        check::bandwidth("peak_gb_per_s", self.peak_gb_per_s)?;
        check::number("peak_iops", self.peak_iops, 1.0, 1e9)?;
        check::nanos("fixed_ns", self.fixed_ns)
    }
}

/// An I/O on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Stream {
    /// The byte counter at which it ends; meaningless before it flows.
    ends_at: u128,
    /// Order of submission.
    number: u64,
    tag: u64,
    bytes: u32,
    is_write: bool,
    submitted: Nanos,
    /// Time at which the file system took the I/O up.
    taken_up: Nanos,
    /// Time at which its bytes begin to flow.
    flows_at: Nanos,
}

/// A shared file system as a device of its own: later streams slow earlier ones.
#[derive(Clone, Debug)]
pub struct SharedFs {
    node_rate: Rate,
    node_per_ns: u128,
    peak_per_ns: u128,
    intake_ns: Nanos,
    fixed_ns: Nanos,
    capacity_bytes: u64,
    now: Nanos,
    intake_free_at: Nanos,
    waiting: VecDeque<Stream>,
    flowing: BinaryHeap<Reverse<Stream>>,
    /// Streams flowing that have bytes; a flush has none and takes no share.
    sharers: u64,
    moved: u128,
    /// Value of the byte counter at which the last write ends, of those that have begun to flow.
    last_write_ends_at: u128,
    submitted: u64,
    wear: Wear,
}

impl SharedFs {
    /// A file system of this capacity.
    pub fn new(parameters: &SharedFsParameters, capacity_bytes: u64) -> Self {
        let per_ns = |gb_per_s: f64| (gb_per_s * (1u64 << PLACES) as f64).round() as u128;
        SharedFs {
            node_rate: Rate::from_gb_per_s(parameters.node_gb_per_s),
            node_per_ns: per_ns(parameters.node_gb_per_s),
            peak_per_ns: per_ns(parameters.peak_gb_per_s),
            intake_ns: (1e9 / parameters.peak_iops).round() as Nanos,
            fixed_ns: parameters.fixed_ns,
            capacity_bytes,
            now: 0,
            intake_free_at: 0,
            waiting: VecDeque::new(),
            flowing: BinaryHeap::new(),
            sharers: 0,
            moved: 0,
            last_write_ends_at: 0,
            submitted: 0,
            wear: Wear::default(),
        }
    }

    /// Bytes that each stream moves per nanosecond, in units of 2^-32 B; at least one unit so that time goes on.
    fn share(&self) -> u128 {
        self.node_per_ns.min(self.peak_per_ns / u128::from(self.sharers.max(1))).max(1)
    }

    fn next_end(&self) -> Option<Nanos> {
        self.flowing
            .peek()
            .map(|Reverse(stream)| self.now + stream.ends_at.saturating_sub(self.moved).div_ceil(self.share()) as Nanos)
    }

    /// Lets the streams flow until `at`; nothing begins or ends before `at`.
    fn flow_until(&mut self, at: Nanos) {
        if !self.flowing.is_empty() {
            self.moved += self.share() * u128::from(at - self.now);
        }
        self.now = at;
    }

    fn begin(&mut self, mut stream: Stream) {
        if stream.bytes > 0 {
            self.sharers += 1;
            stream.ends_at = self.moved + (u128::from(stream.bytes) << PLACES);
            if stream.is_write {
                self.last_write_ends_at = self.last_write_ends_at.max(stream.ends_at);
            }
        } else {
            // A flush ends with the last write before it, so it has the same value of the counter.
            stream.ends_at = self.last_write_ends_at;
        }
        self.flowing.push(Reverse(stream));
    }

    fn end(&mut self, stream: Stream) -> Completion {
        self.sharers -= u64::from(stream.bytes > 0);
        let fixed = stream.flows_at - stream.taken_up;
        let flow = self.now - stream.flows_at;
        let transfer = self.node_rate.time(u64::from(stream.bytes)).min(flow);
        let queue = stream.taken_up - stream.submitted + flow - transfer;
        Completion {
            tag: stream.tag,
            submitted: stream.submitted,
            finished: self.now,
            latency: Latency { queue, fixed, transfer, ..Latency::default() },
        }
    }
}

impl Device for SharedFs {
    fn submit(&mut self, now: Nanos, io: Io) -> Result<(), DeviceError> {
        let capacity = self.capacity_bytes;
        if io.offset.checked_add(u64::from(io.bytes)).is_none_or(|end| end > capacity) {
            return Err(DeviceError::BeyondEnd { offset: io.offset, bytes: io.bytes, capacity });
        }
        let bytes = match io.kind {
            IoKind::Read => {
                self.wear.host_read_bytes += u64::from(io.bytes);
                io.bytes
            }
            IoKind::Write => {
                self.wear.host_written_bytes += u64::from(io.bytes);
                self.wear.media_written_bytes += u64::from(io.bytes);
                io.bytes
            }
            IoKind::Flush | IoKind::Discard => 0,
        };
        let taken_up = now.max(self.intake_free_at);
        self.intake_free_at = taken_up + self.intake_ns;
        self.waiting.push_back(Stream {
            ends_at: 0,
            number: self.submitted,
            tag: io.tag,
            bytes,
            is_write: io.kind == IoKind::Write,
            submitted: now,
            taken_up,
            flows_at: self.intake_free_at + self.fixed_ns,
        });
        self.submitted += 1;
        Ok(())
    }

    fn next_event(&self) -> Option<Nanos> {
        let begin = self.waiting.front().map(|stream| stream.flows_at);
        [begin, self.next_end()].into_iter().flatten().min()
    }

    fn advance(&mut self, until: Nanos, done: &mut Vec<Completion>) {
        while let Some(at) = self.next_event().filter(|&at| at <= until) {
            self.flow_until(at);
            while self.flowing.peek().is_some_and(|Reverse(stream)| stream.ends_at <= self.moved) {
                let Reverse(stream) = self.flowing.pop().expect("a stream was seen");
                done.push(self.end(stream));
            }
            while self.waiting.front().is_some_and(|stream| stream.flows_at <= at) {
                let stream = self.waiting.pop_front().expect("a stream was seen");
                self.begin(stream);
            }
        }
    }

    fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    fn wear(&self) -> Wear {
        self.wear
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::closed_loop;

    const MB: u32 = 1_000_000;

    fn fs() -> SharedFs {
        let parameters =
            SharedFsParameters { node_gb_per_s: 3.0, peak_gb_per_s: 30.0, peak_iops: 1e6, fixed_ns: 4_000 };
        SharedFs::new(&parameters, 1 << 40)
    }

    #[test]
    fn bandwidth_grows_by_the_nodes_up_to_the_peak() {
        for (nodes, gigabytes) in [(1, 3.0), (4, 12.0), (10, 30.0), (40, 30.0)] {
            let load = closed_loop(&mut fs(), nodes, 400, |_| Io::write(0, 100 * MB));
            let found = load.megabytes_per_second() / 1e3;
            assert!((found / gigabytes - 1.0).abs() < 0.02, "{nodes} nodes reach {found} GB/s");
        }
    }

    #[test]
    fn a_stream_that_joins_slows_the_others_from_then_on() {
        // Two streams of a file system that one node saturates. The first is alone for half its bytes.
        let parameters = SharedFsParameters { node_gb_per_s: 1.0, peak_gb_per_s: 1.0, peak_iops: 1e9, fixed_ns: 0 };
        let mut fs = SharedFs::new(&parameters, 1 << 30);
        let mut done = Vec::new();
        fs.submit(0, Io { tag: 1, ..Io::read(0, MB) }).expect("within");
        fs.advance(500_001, &mut done);
        fs.submit(500_000, Io { tag: 2, ..Io::read(0, MB) }).expect("within");
        fs.advance(Nanos::MAX, &mut done);
        let found: Vec<_> = done.iter().map(|c| (c.tag, c.finished)).collect();
        assert_eq!(found, [(1, 1_500_001), (2, 2_000_001)], "the first nanosecond is the intake's");
        assert_eq!((done[0].latency.transfer, done[0].latency.queue), (1_000_000, 500_000));
    }

    #[test]
    fn a_flush_ends_with_the_writes_before_it() {
        let mut fs = fs();
        let mut done = Vec::new();
        fs.submit(0, Io { tag: 1, ..Io::write(0, 30 * MB) }).expect("within");
        fs.submit(0, Io { tag: 2, kind: IoKind::Flush, ..Io::read(0, 0) }).expect("within");
        fs.submit(0, Io { tag: 3, ..Io::write(0, MB) }).expect("within");
        fs.advance(Nanos::MAX, &mut done);
        assert_eq!(done.iter().map(|c| c.tag).collect::<Vec<_>>(), [3, 1, 2]);
        assert_eq!(done[1].finished, done[2].finished);
    }

    #[test]
    fn small_ios_are_limited_by_the_intake() {
        let load = closed_loop(&mut fs(), 64, 10_000, |_| Io::read(0, 512));
        assert!((load.iops() / 1e6 - 1.0).abs() < 0.02, "{} IOPS", load.iops());
    }
}
