//! The host's share of an I/O: software on the way, and threads of limited issue rate.
//!
//! 002 finds 2 us of software in each latency (section 4.1). Neither of its two very different devices exceeds 1.2
//! GB/s with 4-KiB I/Os (section 4.2): 3.41 us of the issuing thread per I/O, whatever the device.

use crate::check::{self, Parameters};
use crate::device::Device;
use crate::io::{Completion, DeviceError, Io, Nanos, Wear};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The numbers of a host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostParameters {
    /// Threads that issue I/Os, 1 to 1024.
    pub threads: u32,
    /// Latency that software adds to an I/O, in nanoseconds.
    pub software_ns: Nanos,
    /// Time that an I/O keeps its thread busy, in nanoseconds. The part beyond `software_ns` runs beside the device.
    pub busy_ns: Nanos,
}

impl Parameters for HostParameters {
    fn check(&self) -> Result<(), String> {
        check::within("threads", u64::from(self.threads), 1, 1024)?;
        check::nanos("software_ns", self.software_ns)?;
        check::nanos("busy_ns", self.busy_ns)
    }
}

/// An I/O that the device has.
#[derive(Clone, Copy, Debug)]
struct Issued {
    tag: u64,
    submitted: Nanos,
    waited: Nanos,
}

/// A device behind a host: I/Os wait for a thread, pass the software, reach the device.
#[derive(Clone, Debug)]
pub struct Hosted<D> {
    device: D,
    parameters: HostParameters,
    threads_free_at: Vec<Nanos>,
    /// I/Os on their way, in the order of the times at which they reach the device.
    coming: VecDeque<(Nanos, Io)>,
    issued: Vec<Issued>,
    unused: Vec<usize>,
    /// Completions of the device whose tags are still the host's.
    done: Vec<Completion>,
}

impl<D: Device> Hosted<D> {
    /// A host in front of a device.
    pub fn new(device: D, parameters: &HostParameters) -> Self {
        Hosted {
            device,
            parameters: parameters.clone(),
            threads_free_at: vec![0; parameters.threads as usize],
            coming: VecDeque::new(),
            issued: Vec::new(),
            unused: Vec::new(),
            done: Vec::new(),
        }
    }

    /// The device itself.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Remembers an I/O. Its position in the list becomes its tag at the device.
    fn remember(&mut self, issued: Issued) -> u64 {
        let place = self.unused.pop().unwrap_or(self.issued.len());
        if place == self.issued.len() {
            self.issued.push(issued);
        } else {
            self.issued[place] = issued;
        }
        place as u64
    }

    fn give_back(&mut self, done: &mut Vec<Completion>) {
        for mut completion in self.done.drain(..) {
            let place = completion.tag as usize;
            let Issued { tag, submitted, waited } = self.issued[place];
            self.unused.push(place);
            completion.tag = tag;
            completion.submitted = submitted;
            completion.latency.queue += waited;
            completion.latency.host += self.parameters.software_ns;
            done.push(completion);
        }
    }
}

impl<D: Device> Device for Hosted<D> {
    fn submit(&mut self, now: Nanos, io: Io) -> Result<(), DeviceError> {
        let capacity = self.device.capacity_bytes();
        if io.offset.checked_add(u64::from(io.bytes)).is_none_or(|end| end > capacity) {
            return Err(DeviceError::BeyondEnd { offset: io.offset, bytes: io.bytes, capacity });
        }
        let thread = self.threads_free_at.iter_mut().min().expect("a host has a thread");
        let start = now.max(*thread);
        *thread = start + self.parameters.busy_ns;
        let tag = self.remember(Issued { tag: io.tag, submitted: now, waited: start - now });
        // A thread's start is never before the previous start, so these times ascend.
        self.coming.push_back((start + self.parameters.software_ns, Io { tag, ..io }));
        Ok(())
    }

    /// I/Os reach the device in the order in which they are handed over, so the device can be asked ahead of their
    /// time.
    fn foresee(&mut self, now: Nanos, io: Io) -> Option<Result<Completion, DeviceError>> {
        let thread = self.threads_free_at.iter_mut().min().expect("a host has a thread");
        let start = now.max(*thread);
        Some(self.device.foresee(start + self.parameters.software_ns, io)?.map(|mut completion| {
            *thread = start + self.parameters.busy_ns;
            completion.submitted = now;
            completion.latency.queue += start - now;
            completion.latency.host += self.parameters.software_ns;
            completion
        }))
    }

    fn next_event(&self) -> Option<Nanos> {
        let reach = self.coming.front().map(|(at, _)| *at);
        [reach, self.device.next_event()].into_iter().flatten().min()
    }

    fn advance(&mut self, until: Nanos, done: &mut Vec<Completion>) {
        while self.coming.front().is_some_and(|(at, _)| *at <= until) {
            let (at, io) = self.coming.pop_front().expect("an I/O was seen");
            self.device.advance(at, &mut self.done);
            self.device.submit(at, io).expect("the range was checked on arrival");
        }
        self.device.advance(until, &mut self.done);
        self.give_back(done);
    }

    fn capacity_bytes(&self) -> u64 {
        self.device.capacity_bytes()
    }

    fn wear(&self) -> Wear {
        self.device.wear()
    }

    fn amplification(&self) -> Option<&'static str> {
        self.device.amplification()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dram::{Dram, DramParameters};
    use crate::io::Latency;
    use crate::load::closed_loop;
    use crate::queued::Queued;

    fn hosted(threads: u32) -> Hosted<Queued<Dram>> {
        let memory =
            DramParameters { read_ns: 100, sequential_read_ns: 100, write_ns: 100, gb_per_s: 60.0, energy: None };
        let host = HostParameters { threads, software_ns: 2_000, busy_ns: 3_410 };
        Hosted::new(Queued::new(Dram::new(&memory, 1 << 30)), &host)
    }

    #[test]
    fn a_thread_moves_1200_mb_per_second_of_4_kib_whatever_the_device() {
        for (threads, megabytes) in [(1, 1_201.0), (2, 2_402.0), (8, 9_609.0)] {
            let load = closed_loop(&mut hosted(threads), 64, 10_000, |_| Io::read(0, 4096));
            let found = load.megabytes_per_second();
            assert!((found / megabytes - 1.0).abs() < 0.01, "{threads} threads: {found} MB/s");
        }
    }

    #[test]
    fn latency_is_the_devices_and_the_software_and_the_wait_for_a_thread() {
        let mut host = hosted(1);
        let mut done = Vec::new();
        for tag in [70, 71] {
            host.submit(10, Io { tag, ..Io::read(0, 60) }).expect("within");
        }
        assert!(host.submit(10, Io::read(1 << 30, 1)).is_err());
        host.advance(Nanos::MAX, &mut done);
        let alone = Latency { host: 2_000, transfer: 1, media: 100, ..Latency::default() };
        assert_eq!(done[0], Completion { tag: 70, submitted: 10, finished: 2_111, latency: alone });
        let behind = Latency { queue: 3_410, ..alone };
        assert_eq!(done[1], Completion { tag: 71, submitted: 10, finished: 5_521, latency: behind });
        assert_eq!(host.next_event(), None);
    }

    #[test]
    fn what_is_foreseen_is_what_comes() {
        let seed = 17;
        println!("seed {seed}");
        let mut random = entresol_core::Random::new(seed);
        for threads in [1, 3] {
            let (mut foreseeing, mut waiting) = (hosted(threads), hosted(threads));
            let (mut foreseen, mut come, mut now) = (Vec::new(), Vec::new(), 0);
            for tag in 0..500 {
                now += random.below(4_000);
                let io = Io { tag, ..Io::read(random.below(1 << 20), 1 + random.below(200_000) as u32) };
                foreseen.push(foreseeing.foresee(now, io).expect("DRAM foresees").expect("within"));
                waiting.advance(now, &mut come);
                waiting.submit(now, io).expect("within");
            }
            waiting.advance(Nanos::MAX, &mut come);
            foreseen.sort_by_key(|completion| completion.finished);
            assert_eq!(foreseen, come);
            assert!(foreseeing.foresee(now, Io::read(1 << 30, 1)).expect("DRAM foresees").is_err());
            assert_eq!(foreseeing.next_event(), None, "what is foreseen is the caller's to keep");
        }
    }
}
