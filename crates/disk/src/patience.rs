//! The wait for a file that a killed process still holds.

use std::io;
use std::time::{Duration, Instant};

/// Longest wait for a lock of another process.
///
/// When a process is killed, the kernel reports its end first. An io_uring request that is under way keeps its file
/// open, and a file keeps its lock (flock) as long as it is open (Linux, `__fput` in fs/file_table.c). So the lock is
/// free only once no write of the killed process can come any more: none can overtake those of the next process. Writes
/// by other system calls end before the process does. Without this wait, a process that starts at once would be refused.
pub const PATIENCE: Duration = Duration::from_millis(500);

/// Opens a file, again for as long as that may take if another process holds it.
///
/// # Errors
/// The last error of `open`: `WouldBlock` if the file is held for longer.
pub fn patiently<T>(open: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let since = Instant::now();
    loop {
        match open() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && since.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(5));
            }
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Caching, FileDisk};

    #[test]
    fn a_file_that_becomes_free_is_waited_for_and_another_error_is_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        let held = FileDisk::create(&path, 4096, Caching::Buffered).expect("a file");
        let begun = Instant::now();
        let open = || FileDisk::open(&path, Caching::Buffered);
        let error = patiently(open).map(drop).expect_err("it is held");
        assert!(error.kind() == io::ErrorKind::WouldBlock && begun.elapsed() >= PATIENCE, "{error}");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(PATIENCE / 10);
                drop(held);
            });
            patiently(open).expect("it becomes free");
        });
        let begun = Instant::now();
        patiently(|| FileDisk::open(&directory.path().join("absent"), Caching::Buffered)).map(drop).expect_err("none");
        assert!(begun.elapsed() < PATIENCE);
    }
}
