//! I/O by io_uring: one thread and one ring for each stream, whatever its depth.

use super::buffer::Buffers;
use super::run::{Run, Tally, metered};
use super::source::{Next, Source};
use crate::target::{Pace, Stream, Until};
use entresol_device::Nanos;
use io_uring::types::{Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

/// Most outstanding I/Os of an open loop; the latency of waiting ones counts from their due time.
const OPEN_OUTSTANDING_MAX: u32 = 256;
/// Memory for the buffers of an open loop, in bytes.
const OPEN_BYTES_MAX: u32 = 64 << 20;
/// Longest wait without a check for an interruption by the user.
const WAIT_MAX: Duration = Duration::from_millis(50);

/// Checks that the kernel lets this process use io_uring; returns the error when it does not.
pub(super) fn available() -> io::Result<()> {
    let mut ring = IoUring::new(2)?;
    if !ring.params().is_feature_ext_arg() {
        return Err(io::Error::other("the kernel's io_uring cannot wait with a limit (before Linux 5.11)"));
    }
    // SAFETY: a no-op refers to no memory.
    unsafe { ring.submission().push(&opcode::Nop::new().build()) }.expect("room for one");
    ring.submit_and_wait(1)?;
    match ring.completion().next() {
        Some(entry) if entry.result() >= 0 => Ok(()),
        Some(entry) => Err(io::Error::from_raw_os_error(-entry.result())),
        None => Err(io::Error::other("io_uring lost a request")),
    }
}

/// I/Os that a stream may have outstanding.
pub(super) fn slots(stream: &Stream) -> u32 {
    match stream.pace {
        Pace::Closed { depth } => depth,
        Pace::Open { .. } => (OPEN_BYTES_MAX / stream.bytes).clamp(8, OPEN_OUTSTANDING_MAX),
    }
}

/// An I/O under way.
#[derive(Clone, Copy)]
struct InFlight {
    next: Next,
    from: Nanos,
    flushing: bool,
}

/// A stream on its ring.
pub(super) struct Lane<'a> {
    file: Fd,
    stream: &'a Stream,
    source: Source,
    ring: IoUring,
    buffers: Buffers,
    under_way: Vec<Option<InFlight>>,
    free: Vec<usize>,
    /// An I/O taken from the source and not yet due.
    waiting: Option<Next>,
    ended: bool,
    tally: Tally,
}

impl<'a> Lane<'a> {
    /// A stream over an open file, with all that it needs while it runs.
    pub(super) fn new(file: RawFd, stream: &'a Stream, source: Source, seed: u64) -> io::Result<Self> {
        let slots = slots(stream);
        let ring = IoUring::new(slots.next_power_of_two())?;
        Ok(Lane {
            file: Fd(file),
            stream,
            source,
            ring,
            buffers: Buffers::new(slots as usize, stream.bytes, seed),
            under_way: vec![None; slots as usize],
            free: (0..slots as usize).rev().collect(),
            waiting: None,
            ended: false,
            tally: Tally::default(),
        })
    }

    /// Runs the stream to its end. No I/O is outstanding when the call returns.
    pub(super) fn work(mut self, run: &Run<'_>) -> Tally {
        metered(|| {
            run.begin();
            let background = self.stream.until == Until::First;
            loop {
                self.ended |= run.must_stop(background);
                self.send(run);
                if self.ended && self.free.len() == self.under_way.len() {
                    break;
                }
                if let Err(error) = self.wait(run) {
                    run.fail("waiting for I/O", error);
                    // The kernel may still write into the buffers.
                    std::mem::forget(self.buffers);
                    return self.tally;
                }
                self.reap(run);
            }
            if !background {
                run.foreground_ended();
            }
            self.tally
        })
    }

    /// Submits due I/Os while slots are free.
    fn send(&mut self, run: &Run<'_>) {
        while !self.ended && !self.free.is_empty() {
            let now = run.now();
            let next = match self.waiting.take() {
                Some(next) => next,
                None => match self.source.next(now) {
                    Some(next) => next,
                    None => {
                        self.ended = true;
                        break;
                    }
                },
            };
            if next.due.is_some_and(|due| due > now) {
                self.waiting = Some(next);
                break;
            }
            let slot = self.free.pop().expect("there is room");
            if next.write {
                self.buffers.stamp(slot);
            }
            // The time before stamping is the stream's; the time after it is the I/O's.
            let from = next.due.unwrap_or_else(|| run.now());
            self.under_way[slot] = Some(InFlight { next, from, flushing: false });
            let (pointer, bytes) = (self.buffers.pointer(slot), self.stream.bytes);
            let entry = match next.write {
                true => opcode::Write::new(self.file, pointer, bytes).offset(next.offset).build(),
                false => opcode::Read::new(self.file, pointer, bytes).offset(next.offset).build(),
            };
            self.push(entry, slot);
        }
    }

    fn push(&mut self, entry: squeue::Entry, slot: usize) {
        // SAFETY: the buffer belongs to this slot until its completion is reaped, and outlives the ring's work: `work`
        // returns only when nothing is outstanding, or leaks the buffers.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(slot as u64)) };
        pushed.expect("a ring has an entry for every slot");
    }

    /// Submits, and waits until something has completed or an I/O is due.
    fn wait(&mut self, run: &Run<'_>) -> io::Result<()> {
        let outstanding = self.free.len() < self.under_way.len();
        let nap = match self.waiting {
            // No slot is free, so no I/O can be sent before one completes.
            _ if self.free.is_empty() || self.ended => Some(WAIT_MAX),
            Some(next) => run.nap(next.due.unwrap_or(0)),
            None => Some(WAIT_MAX),
        };
        let done = match nap {
            None => self.ring.submit(),
            Some(nap) if outstanding => {
                let limit = Timespec::new().nsec(nap.as_nanos() as u32);
                self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&limit))
            }
            Some(nap) => {
                std::thread::sleep(nap);
                Ok(0)
            }
        };
        let harmless = [libc::EINTR, libc::ETIME, libc::EAGAIN, libc::EBUSY];
        match done {
            Err(error) if !error.raw_os_error().is_some_and(|code| harmless.contains(&code)) => Err(error),
            _ => Ok(()),
        }
    }

    fn reap(&mut self, run: &Run<'_>) {
        loop {
            // Bound to a name so that the queue is not borrowed while the completion is handled.
            let completed = self.ring.completion().next();
            let Some(entry) = completed else { break };
            let now = run.now();
            let slot = entry.user_data() as usize;
            let in_flight = self.under_way[slot].take().expect("a completion of what was sent");
            let expected = if in_flight.flushing { 0 } else { self.stream.bytes as i32 };
            if entry.result() != expected {
                self.free.push(slot);
                let (action, error) = failure(&in_flight, entry.result());
                run.fail(action, error);
            } else if in_flight.next.flush && !in_flight.flushing {
                self.under_way[slot] = Some(InFlight { flushing: true, ..in_flight });
                self.push(opcode::Fsync::new(self.file).flags(FsyncFlags::DATASYNC).build(), slot);
            } else {
                self.free.push(slot);
                self.tally.count(&in_flight.next, self.stream.bytes, in_flight.from, now, self.stream.keep_raw);
            }
        }
    }
}

/// The action that failed, and its error.
fn failure(in_flight: &InFlight, result: i32) -> (&'static str, io::Error) {
    let action = match in_flight {
        InFlight { flushing: true, .. } => "flushing",
        InFlight { next: Next { write: true, .. }, .. } => "writing",
        _ => "reading",
    };
    let error = match result {
        ..0 => io::Error::from_raw_os_error(-result),
        _ => io::Error::other(format!("only {result} B were moved at {}", in_flight.next.offset)),
    };
    (action, error)
}
