//! A temporary file to measure: of bounded size, without a name, removed with the process.

use super::{RealOptions, SIZE_MIN, WHOLE};
use crate::target::TargetError;
use entresol_core::Size;
use rustix::fs::{FallocateFlags, StatVfs};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Most bytes that the probe takes without a given size.
const SIZE_DEFAULT_MAX: u64 = 4 << 30;
/// Divisor of the free space: the probe takes at most this part without a given size, and leaves it free with one.
const SHARE: u64 = 10;

/// The types of file systems in memory, from linux/magic.h: tmpfs and ramfs.
const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];

/// A file that the probe made.
pub(super) struct Made {
    pub(super) file: File,
    pub(super) bytes: u64,
    /// True if the file was opened for direct I/O.
    pub(super) direct: bool,
    pub(super) shared_memory: bool,
    /// The type of its file system, as the kernel names it.
    pub(super) file_system: String,
}

/// Properties of a directory, found without touching it.
pub(super) struct Place {
    /// Bytes of the file to make.
    pub(super) bytes: u64,
    shared_memory: bool,
    file_system: String,
}

/// Examines a directory in which a file is to be made.
pub(super) fn place(directory: &Path, asked: Option<u64>) -> Result<Place, TargetError> {
    let named = directory.display().to_string();
    let failed = |action| {
        let target = named.clone();
        move |error: io::Error| TargetError::System { target, action, error }
    };
    let refuse = |what: String| TargetError::Refused { target: named.clone(), what };
    let metadata = fs::metadata(directory).map_err(failed("looking at it"))?;
    if !metadata.is_dir() {
        return Err(refuse("is no directory; the probe makes its own file in one".to_owned()));
    }
    let kind = rustix::fs::statfs(directory).map_err(|error| failed("asking for its file system")(error.into()))?;
    let shared_memory = IN_MEMORY.contains(&(kind.f_type as i64));
    let space = rustix::fs::statvfs(directory).map_err(|error| failed("asking for its space")(error.into()))?;
    let bytes = size(asked, free(&space, shared_memory)).map_err(refuse)?;
    let other = || format!("a file system of type {:#x}", kind.f_type);
    Ok(Place { bytes, shared_memory, file_system: file_system(metadata.dev()).unwrap_or_else(other) })
}

/// Makes the file and reserves its space.
pub(super) fn make(directory: &Path, options: &RealOptions) -> Result<Made, TargetError> {
    let Place { bytes, shared_memory, file_system } = place(directory, options.size)?;
    let named = directory.display().to_string();
    let failed = |action| {
        let target = named.clone();
        move |error: io::Error| TargetError::System { target, action, error }
    };
    let refuse = |what: String| TargetError::Refused { target: named.clone(), what };
    let (file, direct) = match (shared_memory, open(directory, libc::O_DIRECT)) {
        (true, _) => (open(directory, 0).map_err(failed("making a file"))?, false),
        (false, Ok(file)) => (file, true),
        (false, Err(error)) if !refuses_direct(&error) => return Err(failed("making a file")(error)),
        (false, Err(_)) if options.buffered => (open(directory, 0).map_err(failed("making a file"))?, false),
        (false, Err(error)) => {
            return Err(refuse(format!(
                "its file system has no direct I/O ({error}); --buffered measures through the page cache"
            )));
        }
    };
    reserve(&file, bytes).map_err(failed("reserving space"))?;
    Ok(Made { file, bytes, direct, shared_memory, file_system })
}

/// Bytes that may be written: free space of the file system, or of memory for a file system in memory.
fn free(space: &StatVfs, shared_memory: bool) -> u64 {
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    let memory = fs::read_to_string("/proc/meminfo").ok().filter(|_| shared_memory);
    memory.as_deref().and_then(available).map_or(free, |memory| free.min(memory))
}

/// Bytes of memory that are available without swapping.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// The size of the file. Without a given size the probe takes a power of two. The next run, after an interruption,
/// then takes the same size although the free space differs by a few bytes.
fn size(asked: Option<u64>, free: u64) -> Result<u64, String> {
    let share = free / SHARE;
    let power = share.checked_ilog2().map_or(0, |log| 1 << log);
    let bytes = asked.unwrap_or(SIZE_DEFAULT_MAX.min(power)) / WHOLE * WHOLE;
    let shown = |bytes: u64| Size::Bytes(bytes >> 20 << 20).to_string();
    if bytes < SIZE_MIN {
        return Err(match asked {
            Some(asked) => {
                format!("a file of {} is too small, at least {} are needed", Size::Bytes(asked), shown(SIZE_MIN))
            }
            None => format!("has {} free, and a tenth of it is less than the {} needed", shown(free), shown(SIZE_MIN)),
        });
    }
    match bytes > free - free / SHARE {
        true => {
            Err(format!("a file of {} does not fit: {} are free, and a tenth must stay so", shown(bytes), shown(free)))
        }
        false => Ok(bytes),
    }
}

/// A file without a name in this directory.
fn open(directory: &Path, flags: i32) -> io::Result<File> {
    let options = |flags: i32| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600).custom_flags(flags | libc::O_CLOEXEC);
        options
    };
    match options(flags | libc::O_TMPFILE | libc::O_EXCL).open(directory) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR | libc::ENOENT)) => {}
        made => return made,
    }
    // The file system has no unnamed files: a named one is made and unlinked at once.
    let path = directory.join(format!(".entresol-probe-{}", std::process::id()));
    let file = options(flags).create_new(true).open(&path);
    match file {
        Ok(file) => fs::remove_file(&path).map(|()| file),
        // Some file systems create the file and then refuse the flag.
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            let _ = fs::remove_file(&path);
            Err(error)
        }
        Err(error) => Err(error),
    }
}

fn refuses_direct(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP))
}

fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(bytes),
        result => Ok(result?),
    }
}

/// The type of the file system with this device number.
fn file_system(device: u64) -> Option<String> {
    let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let line = mounts.lines().find(|line| line.split(' ').nth(2) == Some(&number))?;
    line.split_once(" - ")?.1.split(' ').next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn a_file_takes_a_tenth_of_the_space_up_to_4_gib_and_leaves_a_tenth_free() {
        assert_eq!(size(None, 19 * GIB), Ok(GIB));
        assert_eq!(size(None, 1000 * GIB), Ok(4 * GIB));
        assert_eq!(size(Some(9 * GIB), 10 * GIB), Ok(9 * GIB));
        assert_eq!(size(Some(GIB + 5), 10 * GIB), Ok(GIB));
        for (asked, free, part) in [
            (None, GIB / 10, "a tenth of it is less than the 16MiB"),
            (None, 0, "has 0B free"),
            (Some(9 * GIB + (1 << 20)), 10 * GIB, "10GiB are free, and a tenth must stay so"),
            (Some(1 << 20), 10 * GIB, "a file of 1MiB is too small"),
            (Some(u64::MAX), 0, "does not fit"),
        ] {
            let error = size(asked, free).expect_err(part);
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn available_memory_is_read() {
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:   1024 kB\n"), Some(1 << 20));
        assert_eq!(available("MemTotal: 9 kB\n"), None);
    }
}
