//! Kinds of backing file systems, by the facts that their directories tell beside names.

use std::fs::File;
use std::path::Path;

// Their numbers in linux/magic.h; ext2 and ext3 have that of ext4.
const EXT4: i64 = 0xEF53;
const XFS: i64 = 0x5846_5342;
const TMPFS: i64 = 0x0102_1994;
const BTRFS: i64 = 0x9123_683E;
const F2FS: i64 = 0xF2F5_2010;

// The type's width differs from one system to another.
#[allow(clippy::unnecessary_cast)]
fn number_of(found: rustix::fs::StatFs) -> i64 {
    found.f_type as i64
}

fn number(path: &Path) -> rustix::io::Result<i64> {
    Ok(number_of(rustix::fs::statfs(path)?))
}

/// True if a directory has one link for each directory in it, and two of its own: with two links it has no directory in
/// it.
///
/// # Errors
/// The error of the system.
pub fn counts_directories(path: &Path) -> std::io::Result<bool> {
    Ok([EXT4, XFS, TMPFS].contains(&number(path)?))
}

/// True if the file system gives leases according to the files open on this machine.
///
/// # Errors
/// The error of the system.
pub fn gives_leases(file: &File) -> std::io::Result<bool> {
    Ok([EXT4, XFS, TMPFS, BTRFS, F2FS].contains(&number_of(rustix::fs::fstatfs(file)?)))
}

/// True if a directory entry states that its file is a regular file, and the inode number by which that file is known.
pub(crate) fn tells_numbers(path: &Path) -> std::io::Result<bool> {
    Ok([EXT4, XFS, TMPFS, BTRFS].contains(&number(path)?))
}
