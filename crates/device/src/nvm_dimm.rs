//! NVM on the memory bus: latencies that are multiples of DRAM's, a granule, a bandwidth that falls with the number of
//! writers, and an endurance per frame.
//!
//! The multiples are how emulated NVM is stated (003, section 6.1: 2x to 8x of DRAM; PCM in 004: 5x to 10x). Four
//! writers saturate an Optane DIMM and more of them lower its bandwidth: Yang et al., "An empirical guide to the
//! behavior and use of scalable persistent memory" (FAST 2020), which 000 cites as \[55\].

use crate::check::{self, Parameters};
use crate::device::Calendar;
use crate::io::{Completion, Io, IoKind, Latency, Nanos, Wear};
use crate::rate::{Energy, Rate};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The numbers of an NVM DIMM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NvmDimmParameters {
    /// Latency of a DRAM load that the factors multiply, in nanoseconds.
    pub dram_read_ns: Nanos,
    /// Latency of a DRAM store that the factor multiplies, in nanoseconds.
    pub dram_write_ns: Nanos,
    /// A load takes this many times the DRAM's.
    pub read_factor: f64,
    /// A load that begins where the one before it ended takes this many times the DRAM's.
    pub sequential_read_factor: f64,
    /// A store takes this many times the DRAM's.
    pub write_factor: f64,
    /// The medium moves whole granules of this many bytes, a power of two.
    pub granule_bytes: u32,
    /// Read bandwidth in GB/s.
    pub read_gb_per_s: f64,
    /// Write bandwidth in GB/s, of as many writers as do not hinder each other.
    pub write_gb_per_s: f64,
    /// Concurrent stores that do not slow each other.
    pub free_writers: u32,
    /// Share of a store's transfer time that each further writer adds to it.
    pub writer_slowdown: f64,
    /// Bytes of the frames whose writes are counted, a power of two.
    pub frame_bytes: u32,
    /// Writes of one frame until it fails; none where nothing wears. Nothing spreads the wear.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endurance_writes: Option<f64>,
    /// Energy of the bytes that the medium moves; none where no source gives a figure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy: Option<Energy>,
}

impl Parameters for NvmDimmParameters {
    fn check(&self) -> Result<(), String> {
        check::nanos_above_zero("dram_read_ns", self.dram_read_ns)?;
        check::nanos_above_zero("dram_write_ns", self.dram_write_ns)?;
        check::number("read_factor", self.read_factor, 0.01, 1e4)?;
        check::number("sequential_read_factor", self.sequential_read_factor, 0.01, 1e4)?;
        check::number("write_factor", self.write_factor, 0.01, 1e4)?;
        check::power_of_two("granule_bytes", self.granule_bytes)?;
        check::bandwidth("read_gb_per_s", self.read_gb_per_s)?;
        check::bandwidth("write_gb_per_s", self.write_gb_per_s)?;
        check::within("free_writers", u64::from(self.free_writers), 1, 1 << 20)?;
        check::number("writer_slowdown", self.writer_slowdown, 0.0, 1.0)?;
        check::power_of_two("frame_bytes", self.frame_bytes)?;
        check::endurance("endurance_writes", self.endurance_writes)?;
        self.energy.map_or(Ok(()), Energy::check)
    }
}

/// Writes noted before they are counted in a batch. Counts of a large device miss every cache; the independent
/// accesses of a batch overlap their misses. One by one they cost 80 ns each.
const NOTED: usize = 4096;

/// Writes of each frame. The low eight bits stand apart from the multiples of 256, to keep the array that every write
/// touches small.
#[derive(Clone, Debug)]
struct FrameWear {
    low: Vec<u8>,
    high: Vec<u32>,
    /// Frames written since the last batch.
    noted: Vec<u32>,
    shift: u32,
}

impl FrameWear {
    fn new(frames: u64, frame_bytes: u32) -> Self {
        FrameWear {
            low: vec![0; frames as usize],
            high: vec![0; frames as usize],
            noted: Vec::with_capacity(if frames > 0 { NOTED } else { 0 }),
            shift: frame_bytes.trailing_zeros(),
        }
    }

    #[inline]
    fn count(&mut self, io: Io) {
        if self.low.is_empty() || io.bytes == 0 {
            return;
        }
        for frame in io.offset >> self.shift..=(io.end() - 1) >> self.shift {
            self.noted.push(frame as u32);
            if self.noted.len() == NOTED {
                self.settle();
            }
        }
    }

    /// Counts the noted writes.
    fn settle(&mut self) {
        for frame in self.noted.drain(..) {
            let low = &mut self.low[frame as usize];
            *low = low.wrapping_add(1);
            if *low == 0 {
                self.high[frame as usize] += 1;
            }
        }
    }

    /// Writes of the most written frame, noted ones included.
    fn most(&self) -> u64 {
        let mut all = self.clone();
        all.settle();
        let writes = all.low.iter().zip(&all.high).map(|(&low, &high)| u64::from(high) << 8 | u64::from(low));
        writes.max().unwrap_or(0)
    }
}

/// An NVM DIMM as a calendar.
#[derive(Clone, Debug)]
pub struct NvmDimm {
    parameters: NvmDimmParameters,
    read_ns: Nanos,
    sequential_read_ns: Nanos,
    write_ns: Nanos,
    read_rate: Rate,
    write_rate: Rate,
    capacity_bytes: u64,
    free_at: Nanos,
    /// Completion times of the stores under way, in order.
    writers: VecDeque<Nanos>,
    last_read_end: u64,
    wear: FrameWear,
    host_read_bytes: u64,
    host_written_bytes: u64,
    media_read_bytes: u64,
    media_written_bytes: u64,
}

impl NvmDimm {
    /// A DIMM of this capacity.
    pub fn new(parameters: &NvmDimmParameters, capacity_bytes: u64) -> Self {
        let times = |ns: Nanos, factor: f64| (ns as f64 * factor).round() as Nanos;
        let frames = capacity_bytes.div_ceil(u64::from(parameters.frame_bytes));
        let counted = if parameters.endurance_writes.is_some() { frames } else { 0 };
        NvmDimm {
            read_ns: times(parameters.dram_read_ns, parameters.read_factor),
            sequential_read_ns: times(parameters.dram_read_ns, parameters.sequential_read_factor),
            write_ns: times(parameters.dram_write_ns, parameters.write_factor),
            read_rate: Rate::from_gb_per_s(parameters.read_gb_per_s),
            write_rate: Rate::from_gb_per_s(parameters.write_gb_per_s),
            capacity_bytes,
            free_at: 0,
            writers: VecDeque::new(),
            last_read_end: u64::MAX,
            wear: FrameWear::new(counted, parameters.frame_bytes),
            host_read_bytes: 0,
            host_written_bytes: 0,
            media_read_bytes: 0,
            media_written_bytes: 0,
            parameters: parameters.clone(),
        }
    }

    /// Bytes of the granules that an I/O touches.
    fn touched(&self, io: Io) -> u64 {
        let granule = u64::from(self.parameters.granule_bytes);
        if io.bytes == 0 { 0 } else { ((io.end() + granule - 1) & !(granule - 1)) - (io.offset & !(granule - 1)) }
    }

    fn occupy(&mut self, now: Nanos, transfer: Nanos, media: Nanos) -> Latency {
        let start = now.max(self.free_at);
        self.free_at = start + transfer;
        Latency { queue: start - now, transfer, media, ..Latency::default() }
    }

    fn read(&mut self, now: Nanos, io: Io) -> Latency {
        let media = if io.offset == self.last_read_end { self.sequential_read_ns } else { self.read_ns };
        self.last_read_end = io.end();
        let touched = self.touched(io);
        self.host_read_bytes += u64::from(io.bytes);
        self.media_read_bytes += touched;
        self.occupy(now, self.read_rate.time(touched), media)
    }

    fn write(&mut self, now: Nanos, io: Io) -> Latency {
        while self.writers.front().is_some_and(|&done| done <= now) {
            self.writers.pop_front();
        }
        let touched = self.touched(io);
        self.host_written_bytes += u64::from(io.bytes);
        self.media_written_bytes += touched;
        self.wear.count(io);
        let hindering = (self.writers.len() + 1).saturating_sub(self.parameters.free_writers as usize);
        let alone = self.write_rate.time(touched);
        let hindrance =
            if hindering == 0 { 0.0 } else { alone as f64 * self.parameters.writer_slowdown * hindering as f64 };
        let latency = self.occupy(now, alone + hindrance as Nanos, self.write_ns);
        self.writers.push_back(now + latency.total());
        latency
    }
}

impl Calendar for NvmDimm {
    fn serve(&mut self, now: Nanos, io: Io) -> Completion {
        let latency = match io.kind {
            IoKind::Read => self.read(now, io),
            IoKind::Write => self.write(now, io),
            // A fence waits for the stores before it.
            IoKind::Flush => {
                let last = self.writers.back().copied().unwrap_or(0);
                Latency { queue: last.saturating_sub(now), ..Latency::default() }
            }
            IoKind::Discard => Latency::default(),
        };
        Completion { tag: io.tag, submitted: now, finished: now + latency.total(), latency }
    }

    fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    /// The DIMM is worn out when its most written frame is.
    fn wear(&self) -> Wear {
        let NvmDimmParameters { endurance_writes, energy, .. } = self.parameters;
        Wear {
            host_read_bytes: self.host_read_bytes,
            host_written_bytes: self.host_written_bytes,
            media_written_bytes: self.media_written_bytes,
            worn: endurance_writes.map_or(0.0, |writes| self.wear.most() as f64 / writes),
            joules: energy.map_or(0.0, |energy| energy.joules(self.media_read_bytes, self.media_written_bytes)),
            ..Wear::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::closed_loop;
    use crate::queued::Queued;

    fn parameters() -> NvmDimmParameters {
        NvmDimmParameters {
            dram_read_ns: 50,
            dram_write_ns: 40,
            read_factor: 2.0,
            sequential_read_factor: 1.5,
            write_factor: 8.0,
            granule_bytes: 256,
            read_gb_per_s: 2.0,
            write_gb_per_s: 1.0,
            free_writers: 4,
            writer_slowdown: 0.1,
            frame_bytes: 4096,
            endurance_writes: Some(1000.0),
            energy: Some(Energy { read_pj_per_byte: 1.0, write_pj_per_byte: 10.0 }),
        }
    }

    #[test]
    fn latencies_are_multiples_of_the_drams_and_reads_and_writes_are_apart() {
        let mut dimm = NvmDimm::new(&parameters(), 1 << 20);
        assert_eq!(dimm.serve(0, Io::read(0, 256)).latency.media, 100);
        assert_eq!(dimm.serve(1000, Io::read(256, 256)).latency.media, 75);
        assert_eq!(dimm.serve(2000, Io::write(512, 256)).latency.media, 320);
    }

    #[test]
    fn a_store_of_64_bytes_moves_a_granule_and_one_across_a_border_two() {
        let mut dimm = NvmDimm::new(&parameters(), 1 << 20);
        assert_eq!(dimm.serve(0, Io::write(0, 64)).latency.transfer, 256);
        assert_eq!(dimm.serve(9000, Io::write(250, 64)).latency.transfer, 512);
        let wear = dimm.wear();
        assert_eq!((wear.host_written_bytes, wear.media_written_bytes), (128, 768));
        assert!((wear.joules - 7680e-12).abs() < 1e-18);
    }

    #[test]
    fn write_bandwidth_rises_to_four_writers_and_falls_beyond() {
        let megabytes = |writers| {
            let mut device = Queued::new(NvmDimm::new(&parameters(), 1 << 20));
            closed_loop(&mut device, writers, 10_000, |i| Io::write(i % 1024 * 256, 256)).megabytes_per_second()
        };
        let (one, four, sixteen) = (megabytes(1), megabytes(4), megabytes(16));
        assert!((one / (256e3 / 576.0) - 1.0).abs() < 0.01, "{one}");
        assert!((four / 1000.0 - 1.0).abs() < 0.01, "{four}");
        assert!((sixteen / (1000.0 / 2.2) - 1.0).abs() < 0.01, "twelve more take 0.1 each: {sixteen}");
    }

    #[test]
    fn the_most_written_frame_is_the_life_of_the_dimm() {
        let mut dimm = NvmDimm::new(&parameters(), 1 << 20);
        for i in 0..100 {
            dimm.serve(i * 10_000, Io::write(i % 10 * 4096, 4096));
            dimm.serve(i * 10_000, Io::write(77 * 4096, 64));
        }
        assert!((dimm.wear().worn - 0.1).abs() < 1e-12, "100 of 1,000 writes of frame 77");
    }

    /// Batches are invisible from outside: at any time the count is that of all writes so far.
    #[test]
    fn wear_is_exact_at_any_time() {
        let p = NvmDimmParameters { endurance_writes: Some(1e6), ..parameters() };
        let mut dimm = NvmDimm::new(&p, 1 << 20);
        let mut random = entresol_core::Random::new(6);
        let mut writes = [0u32; 256];
        for n in 0..40_000u64 {
            // A store across a border wears two frames; half of the stores go to one frame, beyond 256 of them.
            let offset = random.below(if n % 2 == 0 { 4096 } else { (1 << 20) - 300 });
            dimm.serve(n * 10_000, Io::write(offset, 300));
            (offset / 4096..=(offset + 299) / 4096).for_each(|frame| writes[frame as usize] += 1);
            if random.below(500) == 0 {
                let most = f64::from(*writes.iter().max().expect("frames"));
                assert!((dimm.wear().worn - most / 1e6).abs() < 1e-12, "after {n} writes (seed 6)");
            }
        }
    }

    /// The module that was measured: FAST 2020, figures 2 and 4.
    #[test]
    fn the_optane_dimm_has_the_latencies_and_bandwidths_that_were_measured() {
        let optane = &crate::house::parameters("optane-dimm", "device").expect("a profile of the house");
        let mut dimm = NvmDimm::new(optane, 1 << 20);
        let mut media = |now, io| dimm.serve(now, io).latency.media;
        assert_eq!(media(0, Io::read(0, 64)), 305);
        assert_eq!(media(1_000_000, Io::read(64, 64)), 169);
        assert_eq!(media(2_000_000, Io::write(0, 64)), 90);
        let gigabytes = |writers, io: fn(u64) -> Io| {
            let mut device = Queued::new(NvmDimm::new(optane, 1 << 20));
            closed_loop(&mut device, writers, 20_000, io).megabytes_per_second() / 1e3
        };
        let read = gigabytes(16, |i| Io::read(i * 37 % 4096 * 256, 256));
        let write = gigabytes(4, |i| Io::write(i * 37 % 4096 * 256, 256));
        let crowded = gigabytes(24, |i| Io::write(i * 37 % 4096 * 256, 256));
        assert!((read / 6.5 - 1.0).abs() < 0.03 && (write / 2.2 - 1.0).abs() < 0.03, "{read} {write}");
        assert!(crowded < 0.8 * write, "{crowded} GB/s of 24 writers, {write} of 4");
    }
}
