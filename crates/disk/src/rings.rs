//! Batches of transfers of one file by io_uring. Every caller has a ring of its own for the time of its transfers. Idle
//! rings are kept for later callers and closed with the file.

use super::queue::QueuedRead;
use io_uring::types::Fd;
use io_uring::{IoUring, opcode, squeue};
use rustix::io::Errno;
use std::io;
use std::marker::PhantomData;
use std::os::fd::RawFd;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Most transfers of one caller that are under way.
pub(super) const DEPTH: usize = 128;
/// Idle rings kept. If more callers than that work at once, they make new ones.
const IDLE_MAX: usize = 16;

/// One transfer of a batch. Its memory must stay valid and unshared while [`Rings::perform`] runs.
pub(super) struct Job {
    pub write: bool,
    pub at: u64,
    pub pointer: *mut u8,
    pub len: u32,
    /// Bytes moved, or an error number below zero, once performed.
    pub result: i32,
}

/// The rings of one file.
pub(super) struct Rings {
    idle: Mutex<Vec<IoUring>>,
}

/// Work for a ring.
trait Work {
    /// Most transfers under way.
    fn depth(&self) -> usize;

    /// Number of completions to wait for in one system call, with so many transfers under way.
    fn worth(&self, under_way: usize) -> usize;

    /// The next transfer, if there is one now, with its own `user_data`. Its memory stays valid and unshared until
    /// [`ended`](Work::ended) is called for it or nothing is under way.
    fn next(&mut self) -> Option<squeue::Entry>;

    /// A transfer has ended. `result` is the number of bytes moved, or an error number below zero.
    fn ended(&mut self, user_data: u64, result: i32);
}

/// A ring in use. On drop it waits until nothing is under way, so that no panic leaves memory to the kernel.
struct InFlight<'r> {
    ring: &'r mut IoUring,
    under_way: usize,
}

impl InFlight<'_> {
    /// Submits the transfers pushed so far, waits for `want` completions, and ends no more. Others wait until the
    /// device has its next transfers: a device that completes its whole queue together would else run idle.
    fn turn(&mut self, want: usize, mut ended: impl FnMut(u64, i32)) -> io::Result<()> {
        let submitted = self.ring.submit_and_wait(want);
        let under_way = &mut self.under_way;
        for entry in self.ring.completion().take(want) {
            *under_way -= 1;
            ended(entry.user_data(), entry.result());
        }
        match submitted.map_err(|error| (error.raw_os_error().map(Errno::from_raw_os_error), error)) {
            Ok(_) | Err((Some(Errno::INTR), _)) => Ok(()),
            Err((Some(Errno::AGAIN | Errno::BUSY), _)) => {
                std::thread::yield_now();
                Ok(())
            }
            Err((_, error)) => Err(error),
        }
    }

    /// Waits for all transfers that the kernel took. The kernel never takes the others: the ring is not used again.
    fn settle(&mut self, mut ended: impl FnMut(u64, i32)) {
        let mut taken = self.under_way.saturating_sub(self.ring.submission().len());
        self.under_way = 0;
        while taken > 0 {
            for entry in self.ring.completion() {
                taken -= 1;
                ended(entry.user_data(), entry.result());
            }
            if taken > 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.settle(|_, _| ());
    }
}

impl Rings {
    /// Rings, if the kernel lets this process use them.
    ///
    /// # Errors
    /// The kernel's reason for a refusal: containers often refuse io_uring.
    pub fn new() -> io::Result<Self> {
        let mut ring = IoUring::new(DEPTH as u32)?;
        // SAFETY: a no-op refers to no memory.
        unsafe { ring.submission().push(&opcode::Nop::new().build()) }.expect("room for one");
        ring.submit_and_wait(1)?;
        let result = ring.completion().next().map(|entry| entry.result());
        match result {
            Some(0..) => Ok(Rings { idle: Mutex::new(vec![ring]) }),
            Some(error) => Err(io::Error::from_raw_os_error(-error)),
            None => Err(io::Error::other("io_uring lost a request")),
        }
    }

    /// Performs all jobs and notes the result of each.
    ///
    /// # Errors
    /// If no ring can be made, or the ring failed. Nothing is under way then, and any of the jobs may have been
    /// performed.
    pub fn perform(&self, file: RawFd, jobs: &mut [Job]) -> io::Result<()> {
        self.run(&mut Batch { file: Fd(file), jobs, sent: 0 })
    }

    /// Performs reads as they are named, at most `depth` at once. Gives each back with the bytes moved or an error
    /// number below zero.
    ///
    /// # Errors
    /// If no ring can be made, or the ring failed. Nothing is under way then, and `left` has the reads that were
    /// begun and not given back.
    pub fn read<'a>(
        &self,
        file: RawFd,
        depth: usize,
        reads: &mut dyn Reads<'a>,
        left: &mut Vec<QueuedRead<'a>>,
    ) -> io::Result<()> {
        let depth = depth.clamp(1, DEPTH);
        let places = (0..depth).map(|_| None).collect();
        let mut queue = Queue { file: Fd(file), reads, free: (0..depth).collect(), places };
        let done = self.run(&mut queue);
        left.extend(queue.places.into_iter().flatten().map(Place::back));
        done
    }

    fn run(&self, work: &mut impl Work) -> io::Result<()> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut ring = idle.map_or_else(|| IoUring::new(DEPTH as u32), Ok)?;
        let mut in_flight = InFlight { ring: &mut ring, under_way: 0 };
        loop {
            while in_flight.under_way < work.depth()
                && let Some(entry) = work.next()
            {
                // SAFETY: the work guarantees the memory until the transfer has ended or nothing is under way. This
                // function returns, or unwinds, only then.
                unsafe { in_flight.ring.submission().push(&entry) }.expect("an entry for every transfer under way");
                in_flight.under_way += 1;
            }
            if in_flight.under_way == 0 {
                break;
            }
            let worth = work.worth(in_flight.under_way);
            if let Err(error) = in_flight.turn(worth, |id, result| work.ended(id, result)) {
                in_flight.settle(|id, result| work.ended(id, result));
                return Err(error);
            }
        }
        drop(in_flight);
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX {
            idle.push(ring);
        }
        Ok(())
    }
}

/// Jobs in the order of a slice.
struct Batch<'j> {
    file: Fd,
    jobs: &'j mut [Job],
    sent: usize,
}

impl Work for Batch<'_> {
    fn depth(&self) -> usize {
        DEPTH
    }

    /// Half of the depth stays under way while completions are handled.
    fn worth(&self, under_way: usize) -> usize {
        under_way.div_ceil(2)
    }

    fn next(&mut self) -> Option<squeue::Entry> {
        let job = self.jobs.get(self.sent)?;
        let entry = match job.write {
            true => opcode::Write::new(self.file, job.pointer, job.len).offset(job.at).build(),
            false => opcode::Read::new(self.file, job.pointer, job.len).offset(job.at).build(),
        };
        self.sent += 1;
        Some(entry.user_data(self.sent as u64 - 1))
    }

    fn ended(&mut self, user_data: u64, result: i32) {
        self.jobs[user_data as usize].result = result;
    }
}

/// Source that names reads for [`Rings::read`] and gets them back.
pub(super) trait Reads<'a> {
    /// The next read, if there is one now.
    fn next(&mut self) -> Option<QueuedRead<'a>>;

    /// A read has ended. `result` is the number of bytes moved, or an error number below zero.
    fn moved(&mut self, read: QueuedRead<'a>, result: i32);
}

/// Reads under way, by position in `places`.
struct Queue<'r, 'a> {
    file: Fd,
    reads: &'r mut dyn Reads<'a>,
    free: Vec<usize>,
    places: Vec<Option<Place<'a>>>,
}

/// A read that the kernel has. No reference to its memory exists meanwhile.
struct Place<'a> {
    token: usize,
    at: u64,
    bytes: *mut [u8],
    memory: PhantomData<&'a mut [u8]>,
}

impl<'a> Place<'a> {
    fn back(self) -> QueuedRead<'a> {
        // SAFETY: the pointer comes from this reference, which was given up meanwhile, and the kernel is done with it.
        let bytes = unsafe { &mut *self.bytes };
        QueuedRead { token: self.token, at: self.at, bytes }
    }
}

impl Work for Queue<'_, '_> {
    fn depth(&self) -> usize {
        self.places.len()
    }

    /// Most of the depth stays under way, so that the device does not run idle.
    fn worth(&self, under_way: usize) -> usize {
        under_way.div_ceil(8)
    }

    fn next(&mut self) -> Option<squeue::Entry> {
        let QueuedRead { token, at, bytes } = self.reads.next()?;
        let place = self.free.pop().expect("fewer under way than places");
        let bytes = std::ptr::from_mut(bytes);
        let entry = opcode::Read::new(self.file, bytes.cast(), bytes.len() as u32).offset(at).build();
        self.places[place] = Some(Place { token, at, bytes, memory: PhantomData });
        Some(entry.user_data(place as u64))
    }

    fn ended(&mut self, user_data: u64, result: i32) {
        let place = user_data as usize;
        let read = self.places[place].take().expect("what ends was under way");
        self.free.push(place);
        self.reads.moved(read.back(), result);
    }
}
