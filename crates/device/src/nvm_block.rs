//! An NVM block device: 3D XPoint behind NVMe, as measured in 002 (and again in 000, chapter 2).
//!
//! - A fixed cost per command, and bytes at the bandwidth of all channels together: one page is spread over every
//!   channel (002, section 4.2), so a smaller I/O uses fewer channels but is no faster.
//! - No buffer and no garbage collection (sections 4.5, 4.6): any pattern costs the same.
//! - Writes whose size is no multiple of a page form two slower layers that close at 50 KiB (section 4.4).
//! - A page is refreshed after 30 reads; that read waits 20 us (section 4.6).
//! - A tail of reads that 002 measured and did not explain (table 1, baseline), drawn from its quantiles.
//! - Writes now and then hold reads off (table 1, garbage collection; section 4.3: reads suffer most from writes).

use crate::check::{self, Parameters};
use crate::device::Calendar;
use crate::io::{Completion, Io, IoKind, Latency, Nanos, Wear};
use crate::rate::Rate;
use crate::tail::{Tail, TailPoint};
use serde::{Deserialize, Serialize};

/// The most channels that a device may have.
const CHANNELS_MAX: usize = 16;

/// The numbers of an NVM block device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NvmBlockParameters {
    /// Cost of a read command without its bytes, in nanoseconds.
    pub read_fixed_ns: Nanos,
    /// Cost of a write command without its bytes, in nanoseconds.
    pub write_fixed_ns: Nanos,
    /// Read bandwidth of all channels, in GB/s.
    pub read_gb_per_s: f64,
    /// Write bandwidth of all channels, in GB/s.
    pub write_gb_per_s: f64,
    /// Channels that one page is spread over, 1 to 16.
    pub channels: u32,
    /// Page size in bytes, a power of two: the unit of spreading over channels, of alignment and of counts for refresh.
    pub page_bytes: u32,
    /// Extra time of a write of whole half pages over one of whole pages, in the limit of size 0; nanoseconds.
    pub half_page_penalty_ns: Nanos,
    /// Extra time of any other unaligned write, in the limit of size 0; nanoseconds.
    pub odd_penalty_ns: Nanos,
    /// Size in bytes from which alignment no longer matters; the penalties fall linearly until there.
    pub layers_meet_bytes: u32,
    /// Reads of one page, without a write between, after which it is refreshed; 1 to 255.
    pub refresh_reads: u32,
    /// Wait of the read that triggers a refresh, in nanoseconds; 0 for a device without refresh.
    pub refresh_ns: Nanos,
    /// Pages written between two holds of reads.
    pub hold_every_pages: u64,
    /// Duration of a hold of reads, in nanoseconds; 0 for a device without holds.
    pub hold_ns: Nanos,
    /// Wait of reads beyond their cost, by quantile; empty for a device without a tail.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read_tail: Vec<TailPoint>,
    /// Writes of each byte until it fails; none where nothing wears. Wear is taken to be spread evenly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endurance_writes: Option<f64>,
}

impl Parameters for NvmBlockParameters {
    fn check(&self) -> Result<(), String> {
        check::nanos_above_zero("read_fixed_ns", self.read_fixed_ns)?;
        check::nanos_above_zero("write_fixed_ns", self.write_fixed_ns)?;
        check::bandwidth("read_gb_per_s", self.read_gb_per_s)?;
        check::bandwidth("write_gb_per_s", self.write_gb_per_s)?;
        check::within("channels", u64::from(self.channels), 1, CHANNELS_MAX as u64)?;
        check::power_of_two("page_bytes", self.page_bytes)?;
        check::nanos("half_page_penalty_ns", self.half_page_penalty_ns)?;
        check::nanos("odd_penalty_ns", self.odd_penalty_ns)?;
        check::within("layers_meet_bytes", u64::from(self.layers_meet_bytes), 1, 1 << 30)?;
        check::within("refresh_reads", u64::from(self.refresh_reads), 1, 255)?;
        check::nanos("refresh_ns", self.refresh_ns)?;
        check::within("hold_every_pages", self.hold_every_pages, 1, 1 << 40)?;
        check::nanos("hold_ns", self.hold_ns)?;
        Tail::check("read_tail", &self.read_tail)?;
        check::endurance("endurance_writes", self.endurance_writes)
    }
}

/// Time at which the channels are free. Nearly every I/O takes all of them, and then one time serves for all.
#[derive(Clone, Debug, Default)]
struct Channels {
    all_free_at: Nanos,
    last_free_at: Nanos,
    free_at: [Nanos; CHANNELS_MAX],
}

impl Channels {
    /// Takes all channels for `busy`; returns the start time.
    #[inline]
    fn take_all(&mut self, now: Nanos, busy: Nanos) -> Nanos {
        let start = now.max(self.last_free_at);
        self.all_free_at = start + busy;
        self.last_free_at = self.all_free_at;
        start
    }

    /// Takes `count` of `channels` from `first` on, round the end, for `busy`; returns the start time.
    fn take_some(&mut self, now: Nanos, busy: Nanos, first: usize, count: usize, channels: usize) -> Nanos {
        let which = move |i| (first + i) % channels;
        let start = (0..count).map(|i| self.free_at[which(i)]).fold(now.max(self.all_free_at), Nanos::max);
        (0..count).for_each(|i| self.free_at[which(i)] = start + busy);
        self.last_free_at = self.last_free_at.max(start + busy);
        start
    }
}

/// An NVM block device as a calendar.
#[derive(Clone, Debug)]
pub struct NvmBlock {
    parameters: NvmBlockParameters,
    read_rate: Rate,
    write_rate: Rate,
    page_shift: u32,
    capacity_bytes: u64,
    channels: Channels,
    /// Reads of each page since its last write or refresh.
    reads: Vec<u8>,
    tail: Tail,
    bytes_until_hold: u64,
    reads_held_until: Nanos,
    last_write_done: Nanos,
    read_bytes: u64,
    written_bytes: u64,
    refreshed_pages: u64,
}

impl NvmBlock {
    /// A device of this capacity, whose tail is drawn from this seed.
    pub fn new(parameters: &NvmBlockParameters, capacity_bytes: u64, seed: u64) -> Self {
        let counted_pages =
            if parameters.refresh_ns == 0 { 0 } else { capacity_bytes.div_ceil(u64::from(parameters.page_bytes)) };
        NvmBlock {
            read_rate: Rate::from_gb_per_s(parameters.read_gb_per_s),
            write_rate: Rate::from_gb_per_s(parameters.write_gb_per_s),
            page_shift: parameters.page_bytes.trailing_zeros(),
            capacity_bytes,
            channels: Channels::default(),
            reads: vec![0; counted_pages as usize],
            tail: Tail::new(&parameters.read_tail, seed),
            bytes_until_hold: parameters.hold_every_pages * u64::from(parameters.page_bytes),
            reads_held_until: 0,
            last_write_done: 0,
            read_bytes: 0,
            written_bytes: 0,
            refreshed_pages: 0,
            parameters: parameters.clone(),
        }
    }

    /// Takes the channels that an I/O needs; returns its start and its transfer time.
    #[inline]
    fn transfer(&mut self, now: Nanos, io: Io, rate: Rate, media: Nanos) -> (Nanos, Nanos) {
        let page = u64::from(self.parameters.page_bytes);
        let bytes = u64::from(io.bytes);
        let transfer = rate.time(bytes.max(page));
        if bytes >= page {
            return (self.channels.take_all(now, transfer + media), transfer);
        }
        let channels = u64::from(self.parameters.channels);
        let first = (io.offset & (page - 1)) * channels / page;
        let count = (bytes * channels).div_ceil(page);
        let start = self.channels.take_some(now, transfer + media, first as usize, count as usize, channels as usize);
        (start, transfer)
    }

    /// Counts a read on its pages, or resets the counts of written pages. True when a page is refreshed.
    #[inline]
    fn count_reads(&mut self, io: Io, is_write: bool) -> bool {
        if self.reads.is_empty() || io.bytes == 0 {
            return false;
        }
        let first = (io.offset >> self.page_shift) as usize;
        let last = ((io.end() - 1) >> self.page_shift) as usize;
        let limit = self.parameters.refresh_reads as u8;
        let mut refreshed = 0;
        for reads in &mut self.reads[first..=last] {
            let counted = if is_write { 0 } else { *reads + 1 };
            let full = counted == limit;
            *reads = if full { 0 } else { counted };
            refreshed += u64::from(full);
        }
        self.refreshed_pages += refreshed;
        refreshed > 0
    }

    /// Serves a read or a write. Loads mix the two at random, so differences are selected without branches.
    #[inline]
    fn move_bytes(&mut self, now: Nanos, io: Io, is_write: bool) -> Latency {
        let p = &self.parameters;
        let (fixed, rate) =
            if is_write { (p.write_fixed_ns, self.write_rate) } else { (p.read_fixed_ns, self.read_rate) };
        let refresh_ns = p.refresh_ns;
        let media = if is_write { self.unaligned_penalty(io) } else { 0 };
        let (start, transfer) = self.transfer(now, io, rate, media);

        let refreshed = if self.count_reads(io, is_write) { refresh_ns } else { 0 };
        let waits = self.reads_held_until.saturating_sub(start) + self.tail.draw() + refreshed;
        let refresh = if is_write { 0 } else { waits };
        let latency = Latency { queue: start - now, fixed, transfer, media, refresh, ..Latency::default() };

        let (read_bytes, written_bytes) = if is_write { (0, io.bytes) } else { (io.bytes, 0) };
        self.read_bytes += u64::from(read_bytes);
        self.written_bytes += u64::from(written_bytes);
        self.hold_reads(start + transfer + media, u64::from(written_bytes));
        self.last_write_done = self.last_write_done.max(if is_write { now + latency.total() } else { 0 });
        latency
    }

    /// Time that a write pays for an unaligned offset or size, in nanoseconds. The penalty is 0 for whole pages and
    /// from `layers_meet_bytes` on, more for whole half pages, and most for anything else.
    #[inline]
    fn unaligned_penalty(&self, io: Io) -> Nanos {
        let NvmBlockParameters { page_bytes, layers_meet_bytes: meet, .. } = self.parameters;
        let unaligned = (io.offset | u64::from(io.bytes)) & u64::from(page_bytes - 1);
        if unaligned == 0 || io.bytes >= meet {
            return 0;
        }
        let half = unaligned == u64::from(page_bytes / 2);
        let most = if half { self.parameters.half_page_penalty_ns } else { self.parameters.odd_penalty_ns };
        most * u64::from(meet - io.bytes) / u64::from(meet)
    }

    /// Counts written bytes, and holds reads off when enough have accumulated by `end`.
    #[inline]
    fn hold_reads(&mut self, end: Nanos, written_bytes: u64) {
        if written_bytes < self.bytes_until_hold {
            self.bytes_until_hold -= written_bytes;
        } else {
            self.bytes_until_hold = self.parameters.hold_every_pages << self.page_shift;
            self.reads_held_until = end + self.parameters.hold_ns;
        }
    }
}

impl Calendar for NvmBlock {
    #[inline]
    fn serve(&mut self, now: Nanos, io: Io) -> Completion {
        let latency = match io.kind {
            IoKind::Read | IoKind::Write => self.move_bytes(now, io, io.kind == IoKind::Write),
            // The device has no volatile buffer to empty: a flush is a command that waits for the writes before it.
            IoKind::Flush => {
                let fixed = self.parameters.read_fixed_ns;
                let queue = self.last_write_done.saturating_sub(now + fixed);
                Latency { fixed, queue, ..Latency::default() }
            }
            // Updates are in place, so a discard has nothing to prepare.
            IoKind::Discard => Latency { fixed: self.parameters.read_fixed_ns, ..Latency::default() },
        };
        Completion { tag: io.tag, submitted: now, finished: now + latency.total(), latency }
    }

    fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    fn wear(&self) -> Wear {
        // A refresh writes its page anew.
        let media_written_bytes = self.written_bytes + (self.refreshed_pages << self.page_shift);
        let lifetime_bytes = self.parameters.endurance_writes.map(|writes| writes * self.capacity_bytes as f64);
        Wear {
            host_read_bytes: self.read_bytes,
            host_written_bytes: self.written_bytes,
            media_written_bytes,
            worn: lifetime_bytes.map_or(0.0, |bytes| media_written_bytes as f64 / bytes),
            ..Wear::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four channels, 1 GB/s, pages of 4,096 ns, no tail.
    fn device() -> NvmBlock {
        let parameters = NvmBlockParameters {
            read_fixed_ns: 1_000,
            write_fixed_ns: 2_000,
            read_gb_per_s: 1.0,
            write_gb_per_s: 1.0,
            channels: 4,
            page_bytes: 4096,
            half_page_penalty_ns: 1_000,
            odd_penalty_ns: 2_000,
            layers_meet_bytes: 51_200,
            refresh_reads: 3,
            refresh_ns: 20_000,
            hold_every_pages: 10,
            hold_ns: 5_000,
            read_tail: Vec::new(),
            endurance_writes: Some(100.0),
        };
        assert_eq!(parameters.check(), Ok(()));
        NvmBlock::new(&parameters, 1 << 20, 1)
    }

    #[test]
    fn pages_queue_for_all_channels_and_smaller_ios_share_them() {
        let mut device = device();
        // A quarter of a page each, on a channel each; the fifth meets the first.
        let queue: Vec<Nanos> = [0, 1024, 2048, 3072, 4096]
            .map(|offset| device.serve(0, Io::read(offset, 1024)))
            .map(|completion| completion.latency.queue)
            .to_vec();
        assert_eq!(queue, [0, 0, 0, 0, 4096]);
        // A page waits for the last channel, and what follows for the page.
        assert_eq!(device.serve(0, Io::read(8192, 4096)).latency.queue, 2 * 4096);
        assert_eq!(device.serve(0, Io::read(3072, 1024)).latency.queue, 3 * 4096);
        // Half a page from the last channel on goes round to the first.
        assert_eq!(device.serve(0, Io::read(3072, 2048)).latency.queue, 4 * 4096);
        assert_eq!(device.serve(0, Io::read(1024, 1024)).latency.queue, 3 * 4096);
    }

    #[test]
    fn the_third_read_of_a_page_waits_for_its_refresh_unless_it_was_written() {
        let mut device = device();
        let refresh = |device: &mut NvmBlock, now, offset| device.serve(now, Io::read(offset, 4096)).latency.refresh;
        let waits: Vec<Nanos> = (0..7).map(|i| refresh(&mut device, i * 100_000, 0)).collect();
        assert_eq!(waits, [0, 0, 20_000, 0, 0, 20_000, 0]);
        device.serve(1_000_000, Io::write(0, 4096));
        assert_eq!((0..3).map(|i| refresh(&mut device, 2_000_000 + i * 100_000, 0)).sum::<Nanos>(), 20_000);
        assert_eq!(refresh(&mut device, 3_000_000, 4096), 0, "another page has a count of its own");
        let wear = device.wear();
        assert_eq!((wear.host_written_bytes, wear.media_written_bytes), (4096, 4 * 4096));
        assert!((wear.worn - 4.0 * 4096.0 / (1 << 20) as f64 / 100.0).abs() < 1e-12);
    }

    #[test]
    fn every_tenth_page_written_holds_reads_off() {
        let mut device = device();
        device.serve(0, Io::write(0, 9 * 4096));
        assert_eq!(device.serve(50_000, Io::read(0, 4096)).latency.refresh, 0);
        let tenth = device.serve(100_000, Io::write(0, 4096));
        let read = device.serve(104_096, Io::read(8192, 4096));
        assert_eq!((read.latency.refresh, read.latency.queue), (5_000, 0), "the write ended at {}", tenth.finished);
        assert_eq!(device.serve(110_000, Io::read(8192, 4096)).latency.refresh, 0);
    }

    #[test]
    fn a_write_pays_for_half_pages_and_more_for_less() {
        let mut device = device();
        let mut media = |offset, bytes| device.serve(1 << 40, Io::write(offset, bytes)).latency.media;
        assert_eq!((media(0, 4096), media(0, 8192)), (0, 0));
        assert_eq!((media(0, 2048), media(2048, 4096)), (960, 920));
        assert_eq!((media(0, 1024), media(512, 4096)), (1960, 1840));
        assert_eq!((media(0, 51_200), media(0, 51_713)), (0, 0));
    }
}
