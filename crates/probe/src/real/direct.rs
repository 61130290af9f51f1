//! Checks that direct I/O on a file bypasses the page cache. The flag alone proves nothing: some file systems accept
//! it and use the page cache all the same. So the probe writes and reads some pages with it and asks the kernel which
//! of them are now in memory.

use super::buffer::Buffers;
use crate::target::TargetError;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::time::Instant;

/// Pages that are tried.
const PAGES: u64 = 64;
const PAGE: u32 = 4096;

/// Result of the examination of a file's direct I/O.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Finding {
    /// Pages of [`PAGES`] that direct I/O left in memory.
    pub(super) resident: u64,
    /// Median time of a direct read of a page.
    pub(super) direct_ns: u64,
    /// Median time of a read of a page that is in memory.
    pub(super) cached_ns: u64,
}

impl Finding {
    pub(super) fn bypasses(&self) -> bool {
        self.resident == 0
    }

    pub(super) fn sentence(&self) -> String {
        let Finding { resident, direct_ns, cached_ns } = self;
        let micro = |ns: &u64| *ns as f64 / 1e3;
        format!(
            "after direct I/O {resident} of {PAGES} pages were in memory; a direct read took {:.1} us, one from memory {:.1} us",
            micro(direct_ns),
            micro(cached_ns)
        )
    }
}

/// Tries direct I/O on the beginning of a file that was opened for it and is large enough.
pub(super) fn examine(file: &File, named: &str) -> Result<Finding, TargetError> {
    let failed = |action| move |error| TargetError::System { target: named.to_owned(), action, error };
    let mut buffers = Buffers::new(1, PAGE, 1);
    for page in 0..PAGES {
        buffers.stamp(0);
        file.write_all_at(buffers.slice(0), page * u64::from(PAGE)).map_err(failed("writing with direct I/O"))?;
    }
    let direct_ns = median_read(file, &mut buffers).map_err(failed("reading with direct I/O"))?;
    let resident = resident_pages(file).map_err(failed("asking which pages are in memory"))?;

    // The same file is opened once more, through the page cache; the second round finds all pages in it.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let buffered = OpenOptions::new().read(true).open(path).map_err(failed("opening it without direct I/O"))?;
    let cached_ns = median_read(&buffered, &mut buffers)
        .and_then(|_| median_read(&buffered, &mut buffers))
        .map_err(failed("reading through the page cache"))?;
    forget(&buffered);
    Ok(Finding { resident, direct_ns, cached_ns })
}

/// Median time to read one of the pages, in nanoseconds.
fn median_read(file: &File, buffers: &mut Buffers) -> io::Result<u64> {
    let mut times = Vec::with_capacity(PAGES as usize);
    for page in 0..PAGES {
        let started = Instant::now();
        file.read_exact_at(buffers.slice(0), page * u64::from(PAGE))?;
        times.push(started.elapsed().as_nanos() as u64);
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}

/// Number of 4-KiB pages in the page cache, of the first [`PAGES`] of a file.
fn resident_pages(file: &File) -> io::Result<u64> {
    let length = PAGES as usize * PAGE as usize;
    let page = rustix::param::page_size();
    let mut found = vec![0_u8; length.div_ceil(page)];
    // SAFETY: a new mapping, at an address that the kernel chooses, which is neither read nor written.
    let start = unsafe {
        rustix::mm::mmap(
            std::ptr::null_mut(),
            length,
            rustix::mm::ProtFlags::READ,
            rustix::mm::MapFlags::SHARED,
            file,
            0,
        )
    }?;
    // SAFETY: the range is the mapping, and there is a byte for each of its pages.
    let asked = match unsafe { libc::mincore(start, length, found.as_mut_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    };
    // SAFETY: the mapping was made above and is used nowhere else.
    unsafe { rustix::mm::munmap(start, length) }?;
    asked
        .map(|()| found.iter().filter(|state| **state & 1 == 1).count() as u64 * (page as u64 / u64::from(PAGE)).max(1))
}

/// Asks the kernel to drop a file's pages from memory. The call is a hint, so a refusal does not matter.
fn forget(file: &File) {
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::OpenOptionsExt;

    #[test]
    fn buffered_io_is_found_out() {
        let scratch = tempfile::tempfile().expect("a temporary file");
        let finding = examine(&scratch, "a file").expect("a file that can be written");
        assert_eq!(finding.resident, PAGES);
        assert!(!finding.bypasses() && finding.sentence().contains("64 of 64 pages"));
    }

    #[test]
    fn direct_io_on_a_disk_leaves_nothing_in_memory() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let options =
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_TMPFILE | libc::O_DIRECT).open(path);
        match options {
            Ok(file) => {
                let finding = examine(&file, "a file").expect("a file that can be written");
                println!("{}", finding.sentence());
                let shared_memory = rustix::fs::fstatfs(&file).is_ok_and(|fs| fs.f_type == 0x0102_1994);
                assert!(finding.bypasses() || shared_memory, "{}", finding.sentence());
            }
            Err(error) => entresol_skip::skipped!("place", "no direct I/O in {}: {error}", path.display()),
        }
    }
}
