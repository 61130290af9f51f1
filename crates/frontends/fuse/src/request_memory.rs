//! Memory into which the kernel copies requests.
//!
//! A process that is killed while the kernel copies a request into its memory costs that request an I/O error, if a page
//! has to be brought in for the copy: that is refused to a process that is about to die (`fuse_copy_fill` in
//! `fs/fuse/dev.c`, `__get_user_pages` in `mm/gup.c`), and `fuse_dev_do_read` ends the request with EIO. No other server
//! gets it again, so a program would see the error in place of a pause. Pages that are there need no such step. So all
//! pages of these buffers are there from the beginning, stay there, and are no other process's: a fork would make the
//! next copy bring a page in once more.
//!
//! fuser allocates a buffer of [`BUFFER_BYTES`] bytes for each thread that takes requests, and gives no access to it. The
//! program's allocator knows it by its size, and maps it apart from all other memory.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mlock, mmap_anonymous, munmap};
use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;

/// Bytes of fuser's buffers (fuser 0.18, `BUFFER_SIZE`).
const BUFFER_BYTES: usize = (16 << 20) + 4096;
/// Part of a buffer that the kernel uses: a write of the largest size, and what precedes its bytes.
const USED_BYTES: usize = super::server::REQUEST_BYTES_MAX as usize + 4096;
const PAGE_BYTES: usize = 4096;

/// The system's allocator, but for buffers of requests.
struct Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// True for a buffer. All memory of this size is mapped, whoever asks for it.
#[inline]
fn is_buffer(layout: Layout) -> bool {
    layout.size() == BUFFER_BYTES && layout.align() <= PAGE_BYTES
}

// SAFETY: memory is the system allocator's, or a mapping of its own, by its layout alone.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_buffer(layout) {
            return map();
        }
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises; a buffer was mapped by `map`.
        unsafe {
            if is_buffer(layout) {
                // It fails only for what is no mapping.
                let _ = munmap(memory.cast(), BUFFER_BYTES);
            } else {
                System.dealloc(memory, layout);
            }
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_buffer(layout) {
            return map();
        }
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: as the caller promises: the size is one that a layout may have.
        let wanted = unsafe { Layout::from_size_align_unchecked(bytes, layout.align()) };
        if !is_buffer(layout) && !is_buffer(wanted) {
            // SAFETY: as the caller promises.
            return unsafe { System.realloc(memory, layout, bytes) };
        }
        // SAFETY: both are as long as what is copied, and distinct.
        unsafe {
            let moved = self.alloc(wanted);
            if !moved.is_null() {
                ptr::copy_nonoverlapping(memory, moved, layout.size().min(bytes));
                self.dealloc(memory, layout);
            }
            moved
        }
    }
}

/// Maps a buffer, brings its pages in, and keeps them there. Where the limit of locked memory forbids that, they are
/// brought in alone. Null if there is no memory.
#[cold]
fn map() -> *mut u8 {
    // SAFETY: a new mapping touches no memory that is in use, and the advice concerns this mapping alone. A child has no
    // such memory, and executes another program without a use of it.
    unsafe {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let Ok(start) = mmap_anonymous(ptr::null_mut(), BUFFER_BYTES, protection, MapFlags::PRIVATE) else {
            return ptr::null_mut();
        };
        if mlock(start, USED_BYTES).is_err() {
            // Without that a request is at risk in the moment in which a page is first used.
            let _ = madvise(start, USED_BYTES, Advice::LinuxPopulateWrite);
        }
        let _ = madvise(start, BUFFER_BYTES, Advice::LinuxDontFork);
        start.cast()
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
    fn memory_of_that_size_is_like_any_other() {
        let mut grown = vec![1_u8; BUFFER_BYTES - 1];
        grown.reserve_exact(1);
        grown.push(2);
        assert_eq!((grown.capacity(), grown[BUFFER_BYTES - 2], grown[BUFFER_BYTES - 1]), (BUFFER_BYTES, 1, 2));
        let buffer = vec![0_u8; BUFFER_BYTES];
        assert!(buffer.iter().all(|&byte| byte == 0) && buffer.as_ptr().addr().is_multiple_of(PAGE_BYTES));
        grown.truncate(5);
        grown.shrink_to_fit();
        assert_eq!(grown, [1; 5]);
        let mut larger = buffer;
        larger.reserve_exact(PAGE_BYTES);
        larger.push(3);
        assert_eq!((larger[0], larger[BUFFER_BYTES]), (0, 3));
        // A child finds all other memory.
        let text = "x".repeat(10_000);
        let mut command = std::process::Command::new("sh");
        let command = command.args(["-c", "test ${#1} = 10000", "sh", &text]);
        // SAFETY: nothing is done between fork and exec. With a closure, the process is forked.
        let status = unsafe { std::os::unix::process::CommandExt::pre_exec(command, || Ok(())) }.status();
        assert!(status.expect("a shell").success());
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
        let there: usize = found.iter().map(|(_, there)| there).sum();
        assert!(there >= 3 * USED_BYTES, "{found:?}");
        drop(mount);
    }
}
