//! Lines for people on standard error output, which keep no process from its work.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::fmt;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Longest wait for a reader that stands still: 0.1 s. A terminal takes a burst of lines in less.
const READER_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Lines of this process that were left out since somebody read last.
static LEFT_OUT: AtomicU64 = AtomicU64::new(0);

/// Writes a line to standard error output, in one write, so that lines of several threads and processes stay whole.
///
/// There is nowhere to report a failure: a full disk and a reader that is gone are no errors. A reader that stands still is
/// waited for once, for 0.1 s. Lines are left out then until it reads again, which the next line of the same process says.
pub fn write_line(text: fmt::Arguments) {
    write_to(io::stderr(), &LEFT_OUT, text);
}

fn write_to(mut output: impl Write + AsFd, left_out: &AtomicU64, text: fmt::Arguments) {
    let wait = if left_out.load(Relaxed) == 0 { READER_WAIT } else { Timespec::default() };
    if !takes_bytes(&output, &wait) {
        left_out.fetch_add(1, Relaxed);
        return;
    }
    let lines = match left_out.swap(0, Relaxed) {
        0 => format!("{text}\n"),
        number => format!("entresol: nobody read this output: {number} lines were left out\n{text}\n"),
    };
    let _ = output.write_all(lines.as_bytes());
}

/// True if an output takes bytes, or fails, within a time.
fn takes_bytes(output: &impl AsFd, wait: &Timespec) -> bool {
    loop {
        match poll(&mut [PollFd::new(output, PollFlags::OUT)], Some(wait)) {
            Err(Errno::INTR) => {}
            ready => return ready != Ok(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::write_to;
    use std::io::{Read, Write};
    use std::sync::atomic::AtomicU64;

    #[test]
    fn lines_that_nobody_reads_are_left_out_and_counted_in_the_next_one_that_is_read() {
        let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
        rustix::io::ioctl_fionbio(&writer, true).expect("a pipe");
        let bytes = std::iter::from_fn(|| writer.write(&[b'.'; 4096]).ok()).sum();
        rustix::io::ioctl_fionbio(&writer, false).expect("a pipe");
        let left_out = AtomicU64::new(0);
        write_to(&writer, &left_out, format_args!("first"));
        write_to(&writer, &left_out, format_args!("second"));
        reader.read_exact(&mut vec![0; bytes]).expect("the dots");
        write_to(&writer, &left_out, format_args!("third"));
        write_to(&writer, &left_out, format_args!("fourth"));
        drop(writer);
        let mut read = String::new();
        reader.read_to_string(&mut read).expect("text");
        assert_eq!(read, "entresol: nobody read this output: 2 lines were left out\nthird\nfourth\n");
        let full = std::fs::File::options().write(true).open("/dev/full").expect("a device");
        write_to(full, &left_out, format_args!("fifth"));
    }
}
