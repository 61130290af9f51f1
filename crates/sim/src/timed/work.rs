//! I/Os that wait for each other, and the devices that carry them out.

use entresol_device::{Completion, Device, Io, IoKind, Nanos, Wear};
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
}

/// For whom a chain is carried out.
#[derive(Clone, Copy, Debug)]
pub(super) enum Owner {
    /// A requester waits; `place` is where its page was found.
    Client { client: u32, since: Nanos, place: usize },
    /// Nobody.
    Background,
}

/// A chain of I/Os: each starts when the one before it is done.
#[derive(Debug)]
pub(super) struct Work {
    pub owner: Owner,
    pub ops: Vec<Op>,
    pub done: usize,
}

/// Chains under way, by slot. Slots and their vectors are used again.
#[derive(Default)]
pub(super) struct Works {
    slots: Vec<Work>,
    free: Vec<usize>,
}

impl Works {
    /// Takes a chain in and returns its slot.
    pub fn start(&mut self, owner: Owner, ops: &[Op]) -> usize {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Work { owner, ops: Vec::new(), done: 0 });
            self.slots.len() - 1
        });
        let work = &mut self.slots[slot];
        work.owner = owner;
        work.done = 0;
        work.ops.clear();
        work.ops.extend_from_slice(ops);
        slot
    }

    /// The next I/O of a chain, tagged with its slot; `None` when the chain is done.
    pub fn next(&mut self, slot: usize) -> Option<Op> {
        let work = &mut self.slots[slot];
        let op = *work.ops.get(work.done)?;
        work.done += 1;
        Some(Op { io: Io { tag: slot as u64, ..op.io }, ..op })
    }

    /// The I/O of a chain that was submitted last.
    pub fn last(&self, slot: usize) -> Op {
        let work = &self.slots[slot];
        work.ops[work.done - 1]
    }

    /// Frees a slot and says whose it was.
    pub fn finish(&mut self, slot: usize) -> Owner {
        self.free.push(slot);
        self.slots[slot].owner
    }
}

/// A device with its statistics.
pub(super) struct Station {
    pub name: String,
    pub device: Box<dyn Device>,
    /// When the device next does something: what it says itself after every call that may change it.
    pub next_event: Option<Nanos>,
    pub totals: Totals,
    outstanding: u64,
    busy_since: Nanos,
    worn_before: Wear,
}

/// What a device did since the last reset. Index 0 reads, 1 writes.
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

/// Adds a value. The histogram grows with it, which its own saturating way does not.
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
        let (worn_before, next_event) = (device.wear(), device.next_event());
        Station { name, device, next_event, totals: Totals::new(), outstanding: 0, busy_since: 0, worn_before }
    }

    /// # Errors
    /// When the I/O reaches beyond the device.
    pub fn submit(&mut self, now: Nanos, io: Io) -> Result<(), entresol_device::DeviceError> {
        self.device.submit(now, io)?;
        self.next_event = self.device.next_event();
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

    /// Lets time pass until `until` and appends what completes by then.
    pub fn advance(&mut self, until: Nanos, done: &mut Vec<Completion>) {
        self.device.advance(until, done);
        self.next_event = self.device.next_event();
    }

    pub fn complete(&mut self, completion: &Completion, direction: usize) {
        self.outstanding -= 1;
        if self.outstanding == 0 {
            self.totals.busy_ns += completion.finished - self.busy_since;
        }
        record(&mut self.totals.latency_ns[direction], completion.latency.total());
    }

    /// Starts the statistics anew at the end of the warm-up.
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
