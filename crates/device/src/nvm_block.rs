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
    /// Page in bytes, a power of two: what is spread over the channels, aligned to, and counted for refresh.
    pub page_bytes: u32,
    /// What a write of whole half pages costs more than one of whole pages, as its size nears 0; nanoseconds.
    pub half_page_penalty_ns: Nanos,
    /// What any other unaligned write costs more, as its size nears 0; nanoseconds.
    pub odd_penalty_ns: Nanos,
    /// Size in bytes from which alignment no longer matters; the penalties fall linearly until there.
    pub layers_meet_bytes: u32,
    /// Reads of one page, without a write between, after which it is refreshed; 1 to 255.
    pub refresh_reads: u32,
    /// What the read waits that brings on a refresh, in nanoseconds; 0 for a device without refresh.
    pub refresh_ns: Nanos,
    /// Pages written between two times that writes hold reads off.
    pub hold_every_pages: u64,
    /// How long reads are held off, in nanoseconds; 0 for a device that never does.
    pub hold_ns: Nanos,
    /// What reads wait beyond their cost, by quantile; empty for a device without a tail.
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

/// When the channels are free. Nearly every I/O takes all of them, which costs no look at each.
#[derive(Clone, Debug, Default)]
struct Channels {
    all_free_at: Nanos,
    last_free_at: Nanos,
    free_at: [Nanos; CHANNELS_MAX],
}

impl Channels {
    /// Takes all channels for `busy`; returns when that began.
    #[inline]
    fn take_all(&mut self, now: Nanos, busy: Nanos) -> Nanos {
        let start = now.max(self.last_free_at);
        self.all_free_at = start + busy;
        self.last_free_at = self.all_free_at;
        start
    }

    /// Takes `count` of `channels` from `first` on, round the end, for `busy`; returns when that began.
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
    pages_until_hold: u64,
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
            pages_until_hold: parameters.hold_every_pages,
            reads_held_until: 0,
            last_write_done: 0,
            read_bytes: 0,
            written_bytes: 0,
            refreshed_pages: 0,
            parameters: parameters.clone(),
        }
    }

    /// Takes the channels that an I/O needs; returns when it began and its transfer time.
    #[inline]
    fn transfer(&mut self, now: Nanos, io: Io, rate: Rate, extra: Nanos) -> (Nanos, Nanos) {
        let page = u64::from(self.parameters.page_bytes);
        let bytes = u64::from(io.bytes);
        let transfer = rate.time(bytes.max(page));
        if bytes >= page {
            return (self.channels.take_all(now, transfer + extra), transfer);
        }
        let channels = u64::from(self.parameters.channels);
        let first = (io.offset & (page - 1)) * channels / page;
        let count = (bytes * channels).div_ceil(page);
        let start = self.channels.take_some(now, transfer + extra, first as usize, count as usize, channels as usize);
        (start, transfer)
    }

    /// The counters of the pages that an I/O touches; empty where there is no refresh.
    #[inline]
    fn counters(&mut self, io: Io) -> &mut [u8] {
        if self.reads.is_empty() || io.bytes == 0 {
            return &mut [];
        }
        let first = (io.offset >> self.page_shift) as usize;
        let last = ((io.end() - 1) >> self.page_shift) as usize;
        &mut self.reads[first..=last]
    }

    /// Counts a read on its pages; true when one of them is refreshed for it.
    #[inline]
    fn count_read(&mut self, io: Io) -> bool {
        let limit = self.parameters.refresh_reads as u8;
        let mut refreshed = 0;
        for reads in self.counters(io) {
            *reads += 1;
            if *reads == limit {
                *reads = 0;
                refreshed += 1;
            }
        }
        self.refreshed_pages += refreshed;
        refreshed > 0
    }

    #[inline]
    fn read(&mut self, now: Nanos, io: Io) -> Latency {
        self.read_bytes += u64::from(io.bytes);
        let (start, transfer) = self.transfer(now, io, self.read_rate, 0);
        let mut refresh = self.reads_held_until.saturating_sub(start) + self.tail.draw();
        if self.count_read(io) {
            refresh += self.parameters.refresh_ns;
        }
        Latency { queue: start - now, fixed: self.parameters.read_fixed_ns, transfer, refresh, ..Latency::default() }
    }

    fn write(&mut self, now: Nanos, io: Io) -> Latency {
        self.written_bytes += u64::from(io.bytes);
        let media = self.unaligned_penalty(io);
        let (start, transfer) = self.transfer(now, io, self.write_rate, media);
        self.counters(io).fill(0);
        self.hold_reads(start + transfer + media, u64::from(io.bytes.div_ceil(self.parameters.page_bytes)));
        let latency = Latency {
            queue: start - now,
            fixed: self.parameters.write_fixed_ns,
            transfer,
            media,
            ..Latency::default()
        };
        self.last_write_done = self.last_write_done.max(now + latency.total());
        latency
    }

    /// What a write pays for an unaligned offset or size: 0 for whole pages, more for whole half pages, most else.
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

    /// Counts written pages, and holds reads off when enough have come together by `end`.
    #[inline]
    fn hold_reads(&mut self, end: Nanos, pages: u64) {
        if pages < self.pages_until_hold {
            self.pages_until_hold -= pages;
        } else {
            self.pages_until_hold = self.parameters.hold_every_pages;
            self.reads_held_until = end + self.parameters.hold_ns;
        }
    }
}

impl Calendar for NvmBlock {
    #[inline]
    fn serve(&mut self, now: Nanos, io: Io) -> Completion {
        let latency = match io.kind {
            IoKind::Read => self.read(now, io),
            IoKind::Write => self.write(now, io),
            // There is no volatile buffer to empty: a command that waits for the writes before it.
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
