//! Processes, as far as they decide about a commit. The kernel closes the files of a process that is killed, and such a
//! file is not whole. It also tells of each close of a descriptor that a child has inherited.

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// `PF_EXITING` in the flags of `/proc/PID/stat`.
const EXITING: u64 = 4;
/// Positions of the flags and of the exit code in `/proc/PID/stat`, counted after the name of the program.
const FLAGS: usize = 6;
const EXIT_CODE: usize = 49;
/// Permission of a link in `/proc/PID/fd` whose descriptor can be written to.
const WRITABLE: u32 = 0o200;

/// The process of a thread; 0 if it cannot be seen from here.
pub(super) fn process_of(thread: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let process = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    process.and_then(|process| process.trim().parse().ok()).unwrap_or(0)
}

/// True if a thread is of a process, or the process is unknown. No file is read: a child that is in an `execve` waits for
/// the answer to a close.
pub(super) fn is_of(thread: u32, process: u32) -> bool {
    process == 0 || fs::exists(format!("/proc/{process}/task/{thread}")).unwrap_or(true)
}

/// A file of a mount, as the system tells it from all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId {
    device: (u32, u32),
    number: u64,
}

impl FileId {
    /// The file at a path. Nothing is asked of the file system, which may be the mount of this process itself.
    fn at(path: &Path) -> io::Result<FileId> {
        let known = statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::INO)?;
        Ok(FileId { device: (known.stx_dev_major, known.stx_dev_minor), number: known.stx_ino })
    }

    /// The file of this number in the same mount.
    pub fn of(self, number: u64) -> FileId {
        FileId { number, ..self }
    }

    /// The root of a mount.
    pub fn of_mount(mountpoint: &Path) -> io::Result<FileId> {
        FileId::at(mountpoint)
    }
}

/// True if a process has a descriptor to write to a file whose name ends so. Of a process that cannot be looked into from here
/// nothing is known, and it has none.
pub(super) fn has_descriptor(process: u32, file: FileId, end: &str) -> bool {
    let is_of_file = |descriptor: &PathBuf| {
        // The name alone first: other descriptors may be of file systems that do not answer.
        let path = fs::read_link(descriptor);
        path.is_ok_and(|path| path.as_os_str().as_encoded_bytes().ends_with(end.as_bytes()))
            && fs::symlink_metadata(descriptor).is_ok_and(|link| link.mode() & WRITABLE != 0)
            && FileId::at(descriptor).is_ok_and(|found| found == file)
    };
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    descriptors.map(|descriptor| descriptor.path()).any(|descriptor| is_of_file(&descriptor))
}

/// True if a thread is ending because of a signal or with an exit code other than 0. Of a thread that cannot be seen
/// from here, such as one of another PID namespace, nothing is known, and it counts as one that goes on.
pub(super) fn is_failing(thread: u32) -> bool {
    let of = |file: &str| fs::read_to_string(format!("/proc/{thread}/{file}")).unwrap_or_default();
    // A thread that ends has no memory any more. This is asked first, because `stat` waits for the end of an `execve`,
    // and that waits for the files that it closes.
    has_no_memory(&of("statm")) && says_failing(&of("stat"))
}

/// True if `/proc/PID/statm` is of a thread without memory.
fn has_no_memory(statm: &str) -> bool {
    !statm.is_empty() && statm.split_ascii_whitespace().all(|pages| pages == "0")
}

fn says_failing(stat: &str) -> bool {
    // The name may have any characters.
    let Some((_, rest)) = stat.rsplit_once(')') else { return false };
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    number(FLAGS) & EXITING != 0 && number(EXIT_CODE) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_of_one_process() {
        let own = std::process::id();
        let thread =
            std::thread::spawn(|| fs::read_link("/proc/thread-self").expect("a link")).join().expect("it ends");
        let thread = thread.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
        assert!(is_of(own, own) && !is_of(thread.expect("a number"), 1) && is_of(u32::MAX, 0) && !is_of(1, own));
        assert_eq!((process_of(own), process_of(u32::MAX)), (own, 0));
    }

    #[test]
    fn a_descriptor_is_found_by_its_file_and_name() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let (own, id) = (std::process::id(), FileId::at(file.path()).expect("a file"));
        let end = file.path().display().to_string();
        assert!(has_descriptor(own, id, &end) && has_descriptor(own, id, &end[1..]));
        assert!(!has_descriptor(own, id.of(id.number + 1), &end) && !has_descriptor(own, id, "/another"));
        assert!(!has_descriptor(own, FileId { device: (0, 0), ..id }, &end));
        assert!(!has_descriptor(0, id, &end) && !has_descriptor(u32::MAX, id, &end));
        let path = file.into_temp_path();
        let reader = fs::File::open(&path).expect("a file");
        assert!(!has_descriptor(own, id, &end), "it is open to be read alone");
        drop(reader);
    }

    #[test]
    fn a_process_that_goes_on_and_one_that_is_unknown_do_not_fail() {
        assert!(has_no_memory("0 0 0\n") && !has_no_memory("0 1 0\n") && !has_no_memory(""));
        assert!(!is_failing(std::process::id()) && !is_failing(0) && !is_failing(u32::MAX));
        let line = |flags: u32, code: u32| {
            let zeros = |count: usize| "0 ".repeat(count);
            format!("7 (a ) name) R {}{flags} {}{code}\n", zeros(5), zeros(42))
        };
        assert!(says_failing(&line(4, 9)) && says_failing(&line(4, 256)));
        assert!(!says_failing(&line(4, 0)) && !says_failing(&line(0, 9)) && !says_failing("7"));
    }
}
