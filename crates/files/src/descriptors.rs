//! Limit of the number of files that this process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises this process's limit of open files to the maximum. Each file with cached pages takes a descriptor, and so
/// does each file that the kernel remembers of a mount; a shell allows 1024 by default.
pub fn allow_many() {
    let files = getrlimit(Resource::Nofile);
    // If the limit cannot be raised it stays as it was, and opening one file too many reports that.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files });
    crate::places::measure();
}
