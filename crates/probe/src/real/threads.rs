//! I/O by threads that each wait for one I/O at a time: for hosts that refuse io_uring.

use super::buffer::Buffers;
use super::run::{Run, Tally, metered};
use super::source::{Next, Source};
use crate::target::{Pace, Stream, Until};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;

/// Threads of an open loop, and so its most outstanding I/Os. The latency of waiting ones counts from their due time.
const OPEN_THREADS: u32 = 32;

/// The number of threads that a stream takes.
pub(super) fn threads(stream: &Stream) -> u32 {
    match stream.pace {
        Pace::Closed { depth } => depth,
        Pace::Open { .. } => OPEN_THREADS,
    }
}

/// Runs one thread of a stream: takes I/Os from the shared source until there are no more.
pub(super) fn work(
    file: &File,
    stream: &Stream,
    source: &Mutex<Source>,
    run: &Run<'_>,
    buffers: &mut Buffers,
) -> Tally {
    metered(|| {
        run.begin();
        let mut tally = Tally::default();
        let background = stream.until == Until::First;
        while !run.must_stop(background) {
            let Some(next) = source.lock().expect("no thread panics with it").next(run.now()) else { break };
            if !wait(run, &next, background) {
                break;
            }
            if next.write {
                buffers.stamp(0);
            }
            let from = next.due.unwrap_or_else(|| run.now());
            match perform(file, &next, buffers.slice(0)) {
                Ok(()) => tally.count(&next, stream.bytes, from, run.now(), stream.keep_raw),
                Err((action, error)) => run.fail(action, error),
            }
        }
        if !background {
            run.foreground_ended();
        }
        tally
    })
}

/// Waits until an I/O is due; false when the run must stop before.
fn wait(run: &Run<'_>, next: &Next, background: bool) -> bool {
    let Some(due) = next.due else { return true };
    while run.now() < due {
        if run.must_stop(background) {
            return false;
        }
        match run.nap(due) {
            Some(nap) => std::thread::sleep(nap),
            None => std::hint::spin_loop(),
        }
    }
    true
}

fn perform(file: &File, next: &Next, buffer: &mut [u8]) -> Result<(), (&'static str, io::Error)> {
    if !next.write {
        return file.read_exact_at(buffer, next.offset).map_err(|error| ("reading", error));
    }
    file.write_all_at(buffer, next.offset).map_err(|error| ("writing", error))?;
    if next.flush { flush(file).map_err(|error| ("flushing", error)) } else { Ok(()) }
}

/// Makes earlier writes durable.
pub(super) fn flush(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open for as long as `file` is borrowed.
    match unsafe { libc::fdatasync(file.as_raw_fd()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
