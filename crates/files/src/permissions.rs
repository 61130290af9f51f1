//! Permissions of a cache's file.

use rustix::fs::FileType;
use std::fs::Permissions;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::PermissionsExt;

/// Restricts a cache's file to its owner, where an earlier release or a copy left it open: others could read cached
/// bytes and hold its lock. Returns the permissions that the file had if they were changed. A device stays as it is.
pub fn close_to_others(file: impl AsFd) -> Option<u32> {
    let found = rustix::fs::fstat(&file).ok()?;
    let mode = found.st_mode & 0o7777;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile || mode & 0o077 == 0 {
        return None;
    }
    // By the descriptor, which may be `O_PATH`: the path may lead to another file by now.
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    std::fs::set_permissions(path, Permissions::from_mode(0o600)).is_ok().then_some(mode)
}
