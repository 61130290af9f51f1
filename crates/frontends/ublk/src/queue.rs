//! The requests of a device: one thread exchanges them with the kernel, others carry them out.

use crate::abi::{IoCommand, IoDescriptor, data_at, io, operation};
use crate::control::SECTOR;
use crate::driver::Ring;
use entresol_cache::Block;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::collections::VecDeque;
use std::fs::File;
use std::io::Result;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Threads that carry requests out.
const WORKERS: usize = 16;
/// Result of a tag when the device goes away: -ENODEV.
const ABORTED: i32 = -19;
const EIO: i32 = 5;

/// The requests that the driver shows, one entry for each tag.
struct Descriptors {
    start: *mut std::ffi::c_void,
    bytes: usize,
}

// SAFETY: memory that this process only reads, through volatile reads.
unsafe impl Send for Descriptors {}

impl Descriptors {
    fn map(device: &File, depth: u16) -> Result<Self> {
        let bytes = (usize::from(depth) * size_of::<IoDescriptor>()).next_multiple_of(rustix::param::page_size());
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of this process.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, device, 0)? };
        Ok(Descriptors { start, bytes })
    }

    fn get(&self, tag: u16) -> IoDescriptor {
        let at = usize::from(tag) * size_of::<IoDescriptor>();
        assert!(at + size_of::<IoDescriptor>() <= self.bytes, "the kernel names a tag that it was not given");
        // SAFETY: inside the mapping and aligned like it; the driver wrote the entry before it completed the fetch.
        unsafe { self.start.byte_add(at).cast::<IoDescriptor>().read_volatile() }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: the mapping that `map` made; no reference into it outlives a call of `get`.
        let _unmapped = unsafe { munmap(self.start, self.bytes) };
    }
}

struct Job {
    tag: u16,
    request: IoDescriptor,
}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    closing: bool,
}

/// State that the threads share.
struct Shared {
    device: File,
    block: Arc<dyn Block>,
    jobs: Mutex<Jobs>,
    work: Condvar,
    /// Tags with their results; the event notifies the exchanging thread of them.
    done: Mutex<Vec<(u16, i32)>>,
    event: OwnedFd,
}

/// No lock here is held over code that can leave its data half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers requests until the kernel takes the device away; returns the number answered. Sends `ready` once all tags
/// are awaited.
pub fn serve<R: Ring>(
    device: File,
    ring: R,
    depth: u16,
    block: Arc<dyn Block>,
    ready: &Sender<Result<()>>,
) -> Result<u64> {
    let made = Exchange::new(device, ring, depth, block);
    let mut exchange = match made {
        Ok(exchange) => exchange,
        Err(error) => {
            let again = std::io::Error::new(error.kind(), error.to_string());
            // The receiver is gone only when the process ends.
            let _ = ready.send(Err(error));
            return Err(again);
        }
    };
    let shared = Arc::clone(&exchange.shared);
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            let shared = &shared;
            let spawned = std::thread::Builder::new().name("ublk worker".into()).spawn_scoped(scope, || work(shared));
            spawned?;
        }
        let _ = ready.send(Ok(()));
        let answered = exchange.run();
        lock(&shared.jobs).closing = true;
        shared.work.notify_all();
        answered
    })
    .inspect_err(|_| lock(&shared.jobs).closing = true)
}

/// State of the exchanging thread.
struct Exchange<R> {
    ring: R,
    descriptors: Descriptors,
    shared: Arc<Shared>,
    /// Tags whose commands have ended, with the results, that were not looked at yet.
    ended: Vec<(u16, i32)>,
    /// Tags that the kernel may still use.
    alive: usize,
    answered: u64,
}

impl<R: Ring> Exchange<R> {
    fn new(device: File, ring: R, depth: u16, block: Arc<dyn Block>) -> Result<Self> {
        let descriptors = Descriptors::map(&device, depth)?;
        let (jobs, work, done, event) = (Mutex::default(), Condvar::new(), Mutex::default(), ring.event()?);
        let shared = Arc::new(Shared { device, block, jobs, work, done, event });
        let (ended, alive) = (Vec::new(), usize::from(depth));
        let mut exchange = Exchange { ring, descriptors, shared, ended, alive, answered: 0 };
        for tag in 0..depth {
            exchange.push_command(io::FETCH, tag, 0);
        }
        exchange.ring.submit(&mut exchange.ended)?;
        // The kernel refuses a command at once or not at all. A device that is recovered may have requests already.
        let refused = exchange.ended.iter().find(|(_, result)| *result < 0);
        match refused {
            Some((_, result)) => Err(std::io::Error::from_raw_os_error(-result)),
            None => Ok(exchange),
        }
    }

    fn push_command(&mut self, operation: u32, tag: u16, result: i32) {
        self.ring.push(operation, IoCommand { queue: 0, tag, result, address: 0 });
    }

    fn run(&mut self) -> Result<u64> {
        while self.alive > 0 {
            for (tag, result) in std::mem::take(&mut self.ended) {
                match result {
                    0 => self.hand_over(tag),
                    ABORTED => self.alive -= 1,
                    error => return Err(std::io::Error::from_raw_os_error(-error)),
                }
            }
            let done = std::mem::take(&mut *lock(&self.shared.done));
            for (tag, result) in done {
                self.answered += 1;
                self.push_command(io::COMMIT_AND_FETCH, tag, result);
            }
            if self.alive > 0 {
                self.ring.wait(&mut self.ended)?;
            }
        }
        Ok(self.answered)
    }

    fn hand_over(&self, tag: u16) {
        let job = Job { tag, request: self.descriptors.get(tag) };
        lock(&self.shared.jobs).waiting.push_back(job);
        self.shared.work.notify_one();
    }
}

/// A worker: carries out jobs until the device is gone.
fn work(shared: &Shared) {
    let mut buffer = Vec::new();
    loop {
        let idle = |jobs: &mut Jobs| jobs.waiting.is_empty() && !jobs.closing;
        let waited = shared.work.wait_while(lock(&shared.jobs), idle);
        let Some(job) = waited.unwrap_or_else(PoisonError::into_inner).waiting.pop_front() else { return };
        // Without this, a request whose worker panicked would keep its requester waiting for ever.
        let carried_out = catch_unwind(AssertUnwindSafe(|| carry_out(shared, &job, &mut buffer)));
        let result = match carried_out {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(error)) => -error.raw_os_error().unwrap_or(EIO),
            Err(_panic) => -EIO,
        };
        let mut done = lock(&shared.done);
        done.push((job.tag, result));
        if done.len() == 1 {
            // The counter of an event overflows only after 2^64 of these.
            let _ = rustix::io::write(&shared.event, &1_u64.to_ne_bytes());
        }
    }
}

/// Carries out a request; returns the bytes moved.
fn carry_out(shared: &Shared, job: &Job, buffer: &mut Vec<u8>) -> Result<i32> {
    let Job { tag, request: IoDescriptor { operation_flags, sectors, start_sector, .. } } = *job;
    let (at, bytes) = (start_sector * SECTOR, u64::from(sectors) * SECTOR);
    let durable = operation_flags & operation::FUA != 0;
    let block = &*shared.block;
    match operation_flags & 0xff {
        operation::READ => {
            buffer.resize(bytes as usize, 0);
            block.read(at, buffer)?;
            shared.device.write_all_at(buffer, data_at(tag))?;
            Ok(bytes as i32)
        }
        operation::WRITE => {
            buffer.resize(bytes as usize, 0);
            shared.device.read_exact_at(buffer, data_at(tag))?;
            block.write(at, buffer, durable)?;
            Ok(bytes as i32)
        }
        operation::FLUSH => block.flush().map(|()| 0),
        operation::DISCARD => block.discard(at, bytes).map(|()| 0),
        operation::WRITE_ZEROES => {
            buffer.clear();
            buffer.resize(bytes as usize, 0);
            block.write(at, buffer, durable).map(|()| 0)
        }
        _ => Err(std::io::Error::from(rustix::io::Errno::OPNOTSUPP)),
    }
}
