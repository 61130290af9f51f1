//! Lines for people on standard error output, which keep no process from its work.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Longest wait for a reader that stands still: 0.1 s. A terminal takes a burst of lines in less.
const READER_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Lines that were left out since somebody read last.
static LEFT_OUT: AtomicU64 = AtomicU64::new(0);

/// Writes a line to standard error output, in one write, so that lines of several threads and processes stay whole.
///
/// There is nowhere to report a failure: a full disk and a reader that is gone are no errors. A reader that stands still is
/// waited for once, for 0.1 s. Lines are left out then until it reads again, which the next line says.
pub fn write_line(text: fmt::Arguments) {
    let wait = if LEFT_OUT.load(Relaxed) == 0 { READER_WAIT } else { Timespec::default() };
    if !takes_bytes(&wait) {
        LEFT_OUT.fetch_add(1, Relaxed);
        return;
    }
    let lines = match LEFT_OUT.swap(0, Relaxed) {
        0 => format!("{text}\n"),
        number => format!("entresol: nobody read this output: {number} lines were left out\n{text}\n"),
    };
    let _ = io::stderr().write_all(lines.as_bytes());
}

/// True if standard error output takes bytes, or fails, within a time.
fn takes_bytes(wait: &Timespec) -> bool {
    let error = io::stderr();
    loop {
        match poll(&mut [PollFd::new(&error, PollFlags::OUT)], Some(wait)) {
            Err(Errno::INTR) => {}
            ready => return ready != Ok(0),
        }
    }
}
