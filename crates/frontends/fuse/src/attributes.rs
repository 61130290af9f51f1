//! Conversions between the system's file attributes and FUSE's.

use fuser::{Errno, FileAttr, FileType, INodeNo, TimeOrNow};
use rustix::fs::{Stat, Timespec, UTIME_NOW, UTIME_OMIT};
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time for which the kernel may trust names and attributes: only this mount changes them.
pub(super) const TRUST: Duration = Duration::from_secs(1);

/// FUSE's number of an error; errors that are not the system's become EIO.
pub(super) fn errno(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_i32)
}

/// As [`errno`], for the error of a system call.
pub(super) fn system(error: rustix::io::Errno) -> Errno {
    Errno::from_i32(error.raw_os_error())
}

fn time(seconds: i64, nanoseconds: u64) -> SystemTime {
    // Always less than 10^9.
    let nanoseconds = Duration::from_nanos(nanoseconds);
    let whole = Duration::from_secs(seconds.unsigned_abs());
    if seconds < 0 { UNIX_EPOCH - whole + nanoseconds } else { UNIX_EPOCH + whole + nanoseconds }
}

/// A time to be set; `None` leaves it unchanged.
pub(super) fn timespec(time: Option<TimeOrNow>) -> Timespec {
    let special = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
    match time {
        None => special(UTIME_OMIT),
        Some(TimeOrNow::Now) => special(UTIME_NOW),
        Some(TimeOrNow::SpecificTime(time)) => match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Timespec { tv_sec: after.as_secs() as i64, tv_nsec: after.subsec_nanos().into() },
            // The kernel's nanoseconds count up from its negative seconds; fuser 0.18 subtracts both from 1970.
            Err(before) => {
                let before = before.duration();
                Timespec { tv_sec: -(before.as_secs() as i64), tv_nsec: before.subsec_nanos().into() }
            }
        },
    }
}

/// The kind of a file with this mode.
pub(super) fn kind(mode: u32) -> FileType {
    match rustix::fs::FileType::from_raw_mode(mode) {
        rustix::fs::FileType::Directory => FileType::Directory,
        rustix::fs::FileType::Symlink => FileType::Symlink,
        rustix::fs::FileType::Fifo => FileType::NamedPipe,
        rustix::fs::FileType::Socket => FileType::Socket,
        rustix::fs::FileType::CharacterDevice => FileType::CharDevice,
        rustix::fs::FileType::BlockDevice => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

/// The attributes of a file whose number in the mount is `number`.
pub(super) fn attributes(stat: &Stat, number: u64) -> FileAttr {
    FileAttr {
        ino: INodeNo(number),
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        crtime: UNIX_EPOCH,
        kind: kind(stat.st_mode),
        perm: (stat.st_mode & 0o7777) as u16,
        nlink: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: stat.st_rdev as u32,
        blksize: 4096,
        flags: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's time as fuser 0.18 hands it over.
    fn handed_over(seconds: i64, nanoseconds: u32) -> SystemTime {
        let since = Duration::new(seconds.unsigned_abs(), nanoseconds);
        if seconds < 0 { UNIX_EPOCH - since } else { UNIX_EPOCH + since }
    }

    #[test]
    fn times_before_and_after_1970_are_kept() {
        for (seconds, nanoseconds) in [(0, 0), (1, 999_999_999), (1_700_000_000, 5), (-1, 0), (-1, 5), (-100, 1)] {
            let spec = timespec(Some(TimeOrNow::SpecificTime(handed_over(seconds, nanoseconds))));
            assert_eq!((spec.tv_sec, spec.tv_nsec), (seconds, nanoseconds.into()));
            let exact = i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
            let told = time(seconds, nanoseconds.into());
            let told = match told.duration_since(UNIX_EPOCH) {
                Ok(after) => after.as_nanos() as i128,
                Err(before) => -(before.duration().as_nanos() as i128),
            };
            assert_eq!(told, exact);
        }
    }
}
