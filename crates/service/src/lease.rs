//! Leases, which tell whether a file is open for writing where `/proc` does not: in processes of other users or hidden
//! ones.
//!
//! A read lease is refused as long as any process has the file open for writing (fcntl(2), F_SETLEASE). The process
//! that asks for the lease need only own the file. The lease is given back at once. A process that opens the file
//! meanwhile waits for that, and notices nothing. Network file systems give leases by rules of their own, so that a
//! refusal means nothing there.

use rustix::fs::{Mode, OFlags};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Most files of a directory that are looked at: each takes some microseconds.
const FILES_MAX: usize = 100_000;

/// True if the file is open for writing in some process; none if leases do not tell.
pub fn is_written(file: &File) -> Option<bool> {
    if !entresol_files::gives_leases(file).ok()? {
        return None;
    }
    const F_SETSIG: i32 = 10;
    // SAFETY: calls of fcntl with numbers alone, of a descriptor that is open.
    let set = |command, to: i32| unsafe { libc::fcntl(file.as_raw_fd(), command, to) };
    // If another process opens the file during the lease, the kernel sends this process a signal. The default signal
    // would end this process; SIGURG is ignored by default.
    if set(F_SETSIG, libc::SIGURG) != 0 {
        return None;
    }
    if set(libc::F_SETLEASE, libc::F_RDLCK) == 0 {
        set(libc::F_SETLEASE, libc::F_UNLCK);
        return Some(false);
    }
    (io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock).then_some(true)
}

/// Files below a directory that some process has open for writing, by relative path. Only files of this user count,
/// because leases need that.
pub fn written_below(root: &Path, of: &Metadata) -> Vec<String> {
    let mut written = Vec::new();
    let (mut directories, mut looked_at) = (vec![root.to_owned()], 0);
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let Ok(found) = entry.metadata() else { continue };
            let path = entry.path();
            if found.dev() != of.dev() {
                continue;
            }
            if found.is_dir() {
                directories.push(path);
            } else if found.is_file() && looked_at < FILES_MAX {
                looked_at += 1;
                if opened(&path).and_then(|file| is_written(&file)) == Some(true) {
                    written.push(path.strip_prefix(root).unwrap_or(&path).display().to_string());
                }
            }
        }
    }
    written
}

/// Opens a file without waiting for the end of a lease.
fn opened(path: &Path) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).ok().map(File::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_as_long_as_it_is_open_for_that_and_readers_are_no_writers() {
        let scratch = tempfile::tempdir().expect("a directory");
        let deep = scratch.path().join("deep");
        fs::create_dir(&deep).expect("a directory");
        let writer = File::create(deep.join("one")).expect("a file");
        fs::write(deep.join("other"), "x").expect("a file");
        let reader = File::open(deep.join("other")).expect("a file");
        let Some(free) = is_written(&reader) else {
            entresol_skip::skipped!("leases", "this file system gives no leases");
            return;
        };
        assert!(!free);
        let of = fs::metadata(scratch.path()).expect("attributes");
        assert_eq!(written_below(scratch.path(), &of), ["deep/one"]);
        drop(writer);
        assert!(written_below(scratch.path(), &of).is_empty());
        // Nothing is left of the leases that were held.
        fs::write(deep.join("other"), "y").expect("a write that waits for nobody");
    }
}
