//! Chains of dependent I/Os, and the devices that carry them out.

use entresol_device::{Completion, Device, Due, Io, IoKind, Nanos, Wear};
use hdrhistogram::Histogram;

/// One I/O of a chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Op {
    /// Index of the device: a tier, or the level below after the last of them.
    pub device: usize,
    pub io: Io,
}

impl Op {
    pub fn read(device: usize, offset: u64, bytes: u32) -> Self {
        Op { device, io: Io::read(offset, bytes) }
    }

    pub fn write(device: usize, offset: u64, bytes: u32) -> Self {
        Op { device, io: Io::write(offset, bytes) }
    }

    /// True if the I/O is a read of this device.
    pub fn reads_from(&self, device: usize) -> bool {
        self.device == device && self.io.kind == IoKind::Read
    }

    /// True if the I/O is a write to this device.
    pub fn writes_to(&self, device: usize) -> bool {
        self.device == device && self.io.kind == IoKind::Write
    }

    /// 0 for reads, 1 for writes.
    fn direction(&self) -> usize {
        usize::from(self.io.kind == IoKind::Write)
    }

    fn tagged(self, slot: usize) -> Self {
        Op { io: Io { tag: slot as u64, ..self.io }, ..self }
    }
}

/// Owner of a chain.
#[derive(Clone, Copy, Debug)]
pub(super) enum Owner {
    /// A requester waits; `place` is the tier of its hit, or the level below.
    Client { client: u32, since: Nanos, place: usize },
    /// Background I/O: no requester waits.
    Background,
    /// A write-back of the write-back thread: no requester waits.
    Behind,
}

/// A chain of I/Os: each starts when the one before it is complete.
#[derive(Debug)]
struct Work {
    owner: Owner,
    /// Direction of the I/O under way: 1 for a write, else 0.
    direction: usize,
    /// The I/Os after the first: most chains have none.
    rest: Vec<Op>,
    /// Number of I/Os in `rest` that were started.
    started: usize,
}

/// Chains under way, by slot. Slots and their vectors are reused.
#[derive(Default)]
pub(super) struct Works {
    slots: Vec<Work>,
    free: Vec<usize>,
}

impl Works {
    /// Adds a chain and returns its first I/O, tagged with its slot.
    #[inline]
    pub fn start(&mut self, owner: Owner, first: Op, rest: &[Op]) -> Op {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Work { owner, direction: 0, rest: Vec::new(), started: 0 });
            self.slots.len() - 1
        });
        let work = &mut self.slots[slot];
        work.owner = owner;
        work.direction = first.direction();
        work.started = 0;
        work.rest.clear();
        work.rest.extend_from_slice(rest);
        first.tagged(slot)
    }

    /// The next I/O of a chain, tagged with its slot; `None` when the chain is done.
    #[inline]
    pub fn next(&mut self, slot: usize) -> Option<Op> {
        let work = &mut self.slots[slot];
        let op = *work.rest.get(work.started)?;
        work.started += 1;
        work.direction = op.direction();
        Some(op.tagged(slot))
    }

    /// Direction of the chain's last submitted I/O: 0 for a read, 1 for a write.
    #[inline]
    pub fn direction(&self, slot: usize) -> usize {
        self.slots[slot].direction
    }

    /// Frees a slot and returns the owner of its chain.
    pub fn finish(&mut self, slot: usize) -> Owner {
        self.free.push(slot);
        self.slots[slot].owner
    }
}

/// A completed or foreseen I/O.
#[derive(Clone, Copy, Debug)]
pub(super) struct Done {
    /// The slot of its chain.
    pub slot: usize,
    pub latency_ns: Nanos,
}

impl From<Completion> for Done {
    fn from(completion: Completion) -> Self {
        Done { slot: completion.tag as usize, latency_ns: completion.latency.total() }
    }
}

/// A device with its statistics.
pub(super) struct Station {
    pub name: String,
    pub device: Box<dyn Device>,
    /// Time of the next completion or other event of the device; [`Nanos::MAX`] when it is idle.
    pub next_event: Nanos,
    /// Completions that the device foresaw; empty for a device that foresees none.
    foreseen: Due<Done>,
    pub totals: Totals,
    outstanding: u64,
    busy_since: Nanos,
    worn_before: Wear,
}

/// Counts and times of a device since the last reset. Index 0 reads, 1 writes.
pub(super) struct Totals {
    pub ios: [u64; 2],
    pub bytes: [u64; 2],
    pub sequential: [u64; 2],
    pub busy_ns: Nanos,
    pub latency_ns: [Histogram<u64>; 2],
    next_offset: [u64; 2],
}

/// Two significant digits: an error of at most 1 % of a latency, in 30 KiB.
pub(super) fn histogram() -> Histogram<u64> {
    Histogram::new(2).expect("two digits are a valid precision")
}

/// Adds a value. The histogram grows with it; its own saturating method would clamp.
pub(super) fn record(histogram: &mut Histogram<u64>, ns: Nanos) {
    histogram.record(ns).expect("a histogram that grows takes any value");
}

impl Totals {
    fn new() -> Self {
        Totals {
            ios: [0; 2],
            bytes: [0; 2],
            sequential: [0; 2],
            busy_ns: 0,
            latency_ns: [histogram(), histogram()],
            next_offset: [u64::MAX; 2],
        }
    }
}

impl Station {
    pub fn new(name: String, device: Box<dyn Device>) -> Self {
        Station {
            worn_before: device.wear(),
            name,
            next_event: device.next_event().unwrap_or(Nanos::MAX),
            device,
            foreseen: Due::default(),
            totals: Totals::new(),
            outstanding: 0,
            busy_since: 0,
        }
    }

    /// # Errors
    /// When the I/O reaches beyond the device.
    pub fn submit(&mut self, now: Nanos, io: Io) -> Result<(), entresol_device::DeviceError> {
        match self.device.foresee(now, io) {
            Some(completion) => {
                let completion = completion?;
                self.next_event = self.next_event.min(completion.finished);
                self.foreseen.push(completion.finished, Done::from(completion));
            }
            None => {
                self.device.submit(now, io)?;
                self.next_event = self.device.next_event().unwrap_or(Nanos::MAX);
            }
        }
        if self.outstanding == 0 {
            self.busy_since = now;
        }
        self.outstanding += 1;
        let direction = usize::from(io.kind == IoKind::Write);
        self.totals.ios[direction] += 1;
        self.totals.bytes[direction] += u64::from(io.bytes);
        self.totals.sequential[direction] += u64::from(self.totals.next_offset[direction] == io.offset);
        self.totals.next_offset[direction] = io.end();
        Ok(())
    }

    /// Lets time pass until `until` and appends what a device that foresees nothing completes by then.
    pub fn advance(&mut self, until: Nanos, done: &mut Vec<Completion>) {
        self.device.advance(until, done);
        self.next_event = self.device.next_event().unwrap_or(Nanos::MAX);
    }

    /// Number of I/Os whose completion the device has foreseen so far; 0 when it foresees none.
    pub fn foreseen(&self) -> u64 {
        self.foreseen.pushed()
    }

    /// Takes the next I/O with its completion time, if that is not after `until` and the I/O is among the first
    /// `foreseen`.
    #[inline]
    pub fn pop(&mut self, until: Nanos, foreseen: u64) -> Option<(Nanos, Done)> {
        let popped = self.foreseen.pop(until, foreseen);
        self.next_event = self.foreseen.next().unwrap_or(Nanos::MAX);
        popped
    }

    #[inline]
    pub fn complete(&mut self, finished: Nanos, latency_ns: Nanos, direction: usize) {
        self.outstanding -= 1;
        if self.outstanding == 0 {
            self.totals.busy_ns += finished - self.busy_since;
        }
        record(&mut self.totals.latency_ns[direction], latency_ns);
    }

    /// Resets the statistics at the end of the warm-up.
    pub fn reset(&mut self, now: Nanos) {
        let next_offset = self.totals.next_offset;
        self.totals = Totals { next_offset, ..Totals::new() };
        self.busy_since = now;
        self.worn_before = self.device.wear();
    }

    /// Wear since the last reset.
    pub fn wear(&self) -> Wear {
        self.device.wear().since(&self.worn_before)
    }

    /// Time during which at least one I/O was under way, until `now`.
    pub fn busy_ns(&self, now: Nanos) -> Nanos {
        self.totals.busy_ns + if self.outstanding > 0 { now - self.busy_since } else { 0 }
    }
}
