//! Memory into which the kernel copies requests.
//!
//! A process that is killed while the kernel copies a request into its memory costs that request an I/O error, if a page
//! has to be brought in for the copy: that is refused to a process that is about to die (`fuse_copy_fill` in
//! `fs/fuse/dev.c`, `__get_user_pages` in `mm/gup.c`), and `fuse_dev_do_read` ends the request with EIO. No other server
//! gets it again, so a program would see the error in place of a pause. Pages that are there need no such step. So all
//! pages of these buffers are there from the beginning, stay there, and are no other process's: a fork would make the
//! next copy bring a page in once more.
//!
//! fuser allocates a buffer of [`BUFFER_BYTES`] zeroed bytes for each thread that takes requests, and gives no access to
//! it. The program's allocator knows it by its size.

use rustix::mm::{Advice, madvise, mlock};
use std::alloc::{GlobalAlloc, Layout, System};

/// Bytes of fuser's buffers (fuser 0.18, `BUFFER_SIZE`).
const BUFFER_BYTES: usize = (16 << 20) + 4096;
/// Part of a buffer that the kernel uses: a write of the largest size, and what precedes its bytes.
const USED_BYTES: usize = super::server::REQUEST_BYTES_MAX as usize + 4096;
const PAGE_BYTES: usize = 4096;

/// The system's allocator, which prepares buffers for requests.
struct Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

// SAFETY: every call is the system allocator's. Its answers are returned as they are.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: as the caller promises.
        unsafe { System.realloc(memory, layout, bytes) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        let memory = unsafe { System.alloc_zeroed(layout) };
        if layout.size() == BUFFER_BYTES && !memory.is_null() {
            prepare(memory);
        }
        memory
    }
}

/// Brings the pages of a buffer in, and keeps them there. Where the limit of locked memory forbids that, they are
/// brought in alone.
#[cold]
fn prepare(memory: *mut u8) {
    let within = memory.addr() % PAGE_BYTES;
    let (start, bytes) = (memory.wrapping_sub(within).cast(), (within + USED_BYTES).next_multiple_of(PAGE_BYTES));
    // SAFETY: the range begins in the page of the first byte and ends within the buffer. Its contents stay as they are in
    // this process. A child has no such memory, and executes another program without a use of it.
    unsafe {
        if mlock(start, bytes).is_err() {
            // Without that a request is at risk in the moment in which a page is first used.
            let _ = madvise(start, bytes, Advice::LinuxPopulateWrite);
        }
        let _ = madvise(start, bytes, Advice::LinuxDontFork);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mount, Options};
    use entresol_files::DirectFiles;
    use std::fs;
    use std::sync::Arc;

    /// Mappings of this process that no child gets, each with its bytes and those of them that are there.
    fn kept_from_children() -> Vec<(usize, usize)> {
        let maps = fs::read_to_string("/proc/self/smaps").expect("a list of mappings");
        let (mut found, mut last) = (Vec::new(), (0, 0));
        for line in maps.lines() {
            let kib = |line: &str| line.split_whitespace().nth(1).and_then(|number| number.parse::<usize>().ok());
            if line.starts_with("Size:") {
                last.0 = kib(line).expect("a number") << 10;
            } else if line.starts_with("Rss:") {
                last.1 = kib(line).expect("a number") << 10;
            } else if line.starts_with("VmFlags:") && line.split_whitespace().any(|flag| flag == "dc") {
                found.push(last);
            }
        }
        found
    }

    #[test]
    fn every_buffer_for_requests_is_there_before_it_is_used() {
        if !std::path::Path::new("/dev/fuse").exists() {
            entresol_skip::skipped!("/dev/fuse", "no buffer for requests is made");
            return;
        }
        let [backing, at] = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
        let options = Options { session_threads: 3, ..Options::default() };
        let before = kept_from_children().len();
        let mount = match Mount::start(backing.path(), at.path(), Arc::new(DirectFiles), options) {
            Ok(mount) => mount,
            Err(error) => return entresol_skip::skipped!("/dev/fuse", "nothing can be mounted: {error}"),
        };
        // Each thread makes its own buffer when it begins.
        let begun = std::time::Instant::now();
        let found = loop {
            let found = kept_from_children();
            if found.len() >= before + 3 {
                break found;
            }
            assert!(begun.elapsed().as_secs() < 20, "fuser's buffers are not of the known size: {found:?}");
            std::thread::sleep(std::time::Duration::from_millis(10));
        };
        println!("{found:?}");
        assert!(found.iter().all(|&(bytes, there)| bytes >= USED_BYTES && there == bytes), "{found:?}");
        drop(mount);
    }
}
