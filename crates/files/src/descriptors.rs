//! Limit of the number of files that this process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Has this process open as many files as it may: each that a cache has pages of takes one, and so does each that the kernel
/// remembers of a mount, while a shell allows 1024 unless it is asked for more.
pub fn allow_many() {
    let files = getrlimit(Resource::Nofile);
    // If it may not be raised then it is as it was, and opening a file too many says so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files });
    crate::places::measure();
}
