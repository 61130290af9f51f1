//! Many transfers of one file at once by io_uring. Every caller has a ring of its own for as long as its batch takes; idle
//! rings are kept for the next one and closed with the file.

use io_uring::types::Fd;
use io_uring::{IoUring, opcode};
use rustix::io::Errno;
use std::io;
use std::os::fd::RawFd;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Transfers of one batch that are under way at most.
const DEPTH: u32 = 128;
/// Rings kept: more threads than that at once make new ones.
const IDLE_MAX: usize = 16;

/// One transfer. The memory must stay valid, and nobody else's, while [`Rings::perform`] runs.
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

impl Rings {
    /// Rings, if the kernel lets this process use them.
    ///
    /// # Errors
    /// Why it does not: containers often refuse io_uring.
    pub fn new() -> io::Result<Self> {
        let mut ring = IoUring::new(DEPTH)?;
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

    /// Performs all jobs and notes what came of each.
    ///
    /// # Errors
    /// When there is no ring to be had, or it failed: nothing is under way then, and any of the jobs may have been
    /// performed.
    pub fn perform(&self, file: RawFd, jobs: &mut [Job]) -> io::Result<()> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut ring = idle.map_or_else(|| IoUring::new(DEPTH), Ok)?;
        let (mut sent, mut done) = (0, 0);
        while done < jobs.len() {
            while sent < jobs.len() && sent - done < DEPTH as usize {
                let entry = entry(Fd(file), &jobs[sent]).user_data(sent as u64);
                // SAFETY: the caller vouches for the memory until this returns, and it returns when nothing is under way.
                unsafe { ring.submission().push(&entry) }.expect("a ring has an entry for every transfer under way");
                sent += 1;
            }
            // Half of the depth stays under way while completions are handled.
            let submitted = ring.submit_and_wait((sent - done).div_ceil(2));
            done += reap(&mut ring, jobs);
            match submitted.map_err(|error| (error.raw_os_error().map(Errno::from_raw_os_error), error)) {
                Ok(_) | Err((Some(Errno::INTR), _)) => {}
                Err((Some(Errno::AGAIN | Errno::BUSY), _)) => std::thread::yield_now(),
                Err((_, error)) => {
                    // What the kernel did not take it never will: the ring is not used again.
                    let taken = sent - ring.submission().len();
                    while done < taken {
                        std::thread::sleep(Duration::from_millis(1));
                        done += reap(&mut ring, jobs);
                    }
                    return Err(error);
                }
            }
        }
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX {
            idle.push(ring);
        }
        Ok(())
    }
}

fn entry(file: Fd, job: &Job) -> io_uring::squeue::Entry {
    match job.write {
        true => opcode::Write::new(file, job.pointer, job.len).offset(job.at).build(),
        false => opcode::Read::new(file, job.pointer, job.len).offset(job.at).build(),
    }
}

fn reap(ring: &mut IoUring, jobs: &mut [Job]) -> usize {
    ring.completion().map(|entry| jobs[entry.user_data() as usize].result = entry.result()).count()
}
