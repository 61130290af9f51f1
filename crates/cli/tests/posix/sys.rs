//! System calls with any argument, also those that a library would refuse to pass on.

#![allow(dead_code, reason = "each suite uses a part")]

use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A number, or an error's number.
pub type Answer = Result<i64, i32>;

/// An open file, or an error's number.
pub type Opened = Result<OwnedFd, i32>;

/// Number of the last error of this thread.
pub fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().expect("a system call failed")
}

/// One function of the C library, with its answer.
macro_rules! call {
    ($call:ident($($given:expr),* $(,)?)) => {{
        // SAFETY: paths and buffers are valid until the call returns, and lengths are theirs.
        let answer = unsafe { libc::$call($($given),*) } as i64;
        if answer == -1 { Err($crate::posix::sys::errno()) } else { Ok(answer) }
    }};
}
pub(crate) use call;

/// A path as the system takes it.
pub fn c(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("no zero in a path")
}

fn owned(answer: Answer) -> Opened {
    // SAFETY: the call has just opened it, and no other owner has its number.
    answer.map(|number| unsafe { OwnedFd::from_raw_fd(number as RawFd) })
}

pub fn open(path: &Path, flags: i32, mode: u32) -> Opened {
    owned(call!(open(c(path).as_ptr(), flags | libc::O_CLOEXEC, mode)))
}

pub fn openat(at: &OwnedFd, path: &Path, flags: i32, mode: u32) -> Opened {
    owned(call!(openat(at.as_raw_fd(), c(path).as_ptr(), flags | libc::O_CLOEXEC, mode)))
}

/// A new file of this name with these bytes.
pub fn make(path: &Path, bytes: &[u8]) -> OwnedFd {
    let file = open(path, libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC, 0o644).expect("a new file");
    assert_eq!(pwrite(&file, bytes, 0), Ok(bytes.len() as i64));
    file
}

pub fn pwrite(file: &OwnedFd, bytes: &[u8], offset: i64) -> Answer {
    call!(pwrite(file.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), offset))
}

pub fn write(file: &OwnedFd, bytes: &[u8]) -> Answer {
    call!(write(file.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()))
}

/// The bytes read, at most `count`.
pub fn pread(file: &OwnedFd, count: usize, offset: i64) -> Result<Vec<u8>, i32> {
    let mut bytes = vec![0xEE; count];
    let read = call!(pread(file.as_raw_fd(), bytes.as_mut_ptr().cast(), count, offset))?;
    bytes.truncate(read as usize);
    Ok(bytes)
}

pub fn read(file: &OwnedFd, count: usize) -> Result<Vec<u8>, i32> {
    let mut bytes = vec![0xEE; count];
    let read = call!(read(file.as_raw_fd(), bytes.as_mut_ptr().cast(), count))?;
    bytes.truncate(read as usize);
    Ok(bytes)
}

pub fn seek(file: &OwnedFd, offset: i64, whence: i32) -> Answer {
    call!(lseek(file.as_raw_fd(), offset, whence))
}

pub fn allocate(file: &OwnedFd, mode: i32, offset: i64, bytes: i64) -> Answer {
    call!(fallocate(file.as_raw_fd(), mode, offset, bytes))
}

pub fn set_size(file: &OwnedFd, bytes: i64) -> Answer {
    call!(ftruncate(file.as_raw_fd(), bytes))
}

pub fn fsync(file: &OwnedFd) -> Answer {
    call!(fsync(file.as_raw_fd()))
}

pub fn fdatasync(file: &OwnedFd) -> Answer {
    call!(fdatasync(file.as_raw_fd()))
}

pub fn chmod(path: &Path, mode: u32) -> Answer {
    call!(chmod(c(path).as_ptr(), mode))
}

pub fn chown(path: &Path, user: u32, group: u32) -> Answer {
    call!(chown(c(path).as_ptr(), user, group))
}

pub fn mkdir(path: &Path, mode: u32) -> Answer {
    call!(mkdir(c(path).as_ptr(), mode))
}

pub fn rmdir(path: &Path) -> Answer {
    call!(rmdir(c(path).as_ptr()))
}

pub fn unlink(path: &Path) -> Answer {
    call!(unlink(c(path).as_ptr()))
}

pub fn link(from: &Path, to: &Path) -> Answer {
    call!(link(c(from).as_ptr(), c(to).as_ptr()))
}

pub fn symlink(target: &Path, at: &Path) -> Answer {
    call!(symlink(c(target).as_ptr(), c(at).as_ptr()))
}

pub fn rename(from: &Path, to: &Path, flags: u32) -> Answer {
    call!(renameat2(libc::AT_FDCWD, c(from).as_ptr(), libc::AT_FDCWD, c(to).as_ptr(), flags))
}

pub fn mknod(path: &Path, mode: u32, device: u64) -> Answer {
    call!(mknod(c(path).as_ptr(), mode, device))
}

pub fn access(path: &Path, how: i32) -> Answer {
    call!(faccessat(libc::AT_FDCWD, c(path).as_ptr(), how, libc::AT_EACCESS))
}

fn stat_of(act: impl FnOnce(*mut libc::stat) -> Answer) -> Result<libc::stat, i32> {
    // SAFETY: a structure of numbers alone.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    act(&mut found).map(|_| found)
}

pub fn stat(path: &Path) -> Result<libc::stat, i32> {
    stat_of(|found| call!(stat(c(path).as_ptr(), found)))
}

pub fn lstat(path: &Path) -> Result<libc::stat, i32> {
    stat_of(|found| call!(lstat(c(path).as_ptr(), found)))
}

pub fn fstat(file: &OwnedFd) -> Result<libc::stat, i32> {
    stat_of(|found| call!(fstat(file.as_raw_fd(), found)))
}

pub fn statfs(path: &Path) -> Result<libc::statfs, i32> {
    // SAFETY: a structure of numbers alone.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    call!(statfs(c(path).as_ptr(), &mut found)).map(|_| found)
}

pub fn readlink(path: &Path) -> Result<Vec<u8>, i32> {
    let mut target = vec![0; 8192];
    let length = call!(readlink(c(path).as_ptr(), target.as_mut_ptr().cast(), target.len()))?;
    target.truncate(length as usize);
    Ok(target)
}

/// Times of access and modification: seconds since 1970 and nanoseconds, or one of the special nanoseconds.
pub fn set_times(path: &Path, times: [(i64, i64); 2], flags: i32) -> Answer {
    let times = times.map(|(tv_sec, tv_nsec)| libc::timespec { tv_sec, tv_nsec });
    call!(utimensat(libc::AT_FDCWD, c(path).as_ptr(), times.as_ptr(), flags))
}

pub fn set_attribute(path: &Path, name: &str, value: &[u8], flags: i32) -> Answer {
    let name = CString::new(name).expect("no zero in a name");
    call!(lsetxattr(c(path).as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), flags))
}

/// The value of an extended attribute, read into a buffer of `space` bytes.
pub fn attribute(path: &Path, name: &str, space: usize) -> Result<Vec<u8>, i32> {
    let name = CString::new(name).expect("no zero in a name");
    let mut value = vec![0; space];
    let length = call!(lgetxattr(c(path).as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), space))?;
    value.truncate(length as usize);
    Ok(value)
}

/// Returns the length of an extended attribute's value.
pub fn attribute_length(path: &Path, name: &str) -> Answer {
    let name = CString::new(name).expect("no zero in a name");
    call!(lgetxattr(c(path).as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0))
}

/// Returns the length of the list of extended attributes.
pub fn attributes_length(path: &Path) -> Answer {
    call!(llistxattr(c(path).as_ptr(), std::ptr::null_mut(), 0))
}

/// Names of extended attributes in order, without those that the system adds by itself.
pub fn attributes(path: &Path) -> Result<String, i32> {
    let mut names = vec![0_u8; 65536];
    let length = call!(llistxattr(c(path).as_ptr(), names.as_mut_ptr().cast(), names.len()))?;
    let names = names[..length as usize].split(|&byte| byte == 0).filter(|name| !name.is_empty());
    let mut names: Vec<String> = names.map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    names.retain(|name| name != "security.selinux");
    names.sort();
    Ok(names.join(" "))
}

pub fn remove_attribute(path: &Path, name: &str) -> Answer {
    let name = CString::new(name).expect("no zero in a name");
    call!(lremovexattr(c(path).as_ptr(), name.as_ptr()))
}

/// A mapping, removed when it is dropped.
pub struct Map {
    at: *mut u8,
    length: usize,
}

impl Map {
    pub fn new(file: &OwnedFd, length: usize, protection: i32, flags: i32, offset: i64) -> Result<Self, i32> {
        let none = std::ptr::null_mut();
        let at = call!(mmap(none, length, protection, flags, file.as_raw_fd(), offset))?;
        Ok(Map { at: at as *mut u8, length })
    }

    /// The mapped bytes. The file must not end before them.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: mapped with this length by `new`, and nothing else in this process refers to it.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.length) }
    }

    pub fn sync(&self, flags: i32) -> Answer {
        call!(msync(self.at.cast(), self.length, flags))
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        let _unmapped = call!(munmap(self.at.cast(), self.length));
    }
}

/// Changes the user of this thread alone, with one group and no other.
pub fn become_user(user: u32) {
    let none: *const libc::gid_t = std::ptr::null();
    call!(syscall(libc::SYS_setgroups, 0, none)).expect("root has no groups if it likes");
    call!(syscall(libc::SYS_setresgid, user, user, user)).expect("root may be of any group");
    call!(syscall(libc::SYS_setresuid, user, user, user)).expect("root may be anybody");
}

/// Changes this thread's user for file systems alone.
pub fn set_user_for_files(user: u32) {
    let _before = call!(syscall(libc::SYS_setfsuid, user));
}

/// Changes this thread's group for file systems alone.
pub fn set_group_for_files(group: u32) {
    let _before = call!(syscall(libc::SYS_setfsgid, group));
}

/// The name of an error.
pub fn name(errno: i32) -> String {
    macro_rules! names {
        ($($name:ident)*) => { match errno { $(libc::$name => stringify!($name).to_owned(),)* other => format!("E{other}") } };
    }
    names!(E2BIG EACCES EADDRINUSE EAGAIN EBADF EBUSY EDQUOT EEXIST EFAULT EFBIG EINTR EINVAL EIO EISDIR ELOOP EMLINK EMFILE
        ENAMETOOLONG ENFILE ENODATA ENODEV ENOENT ENOEXEC ENOSPC ENOSYS ENOTCONN ENOTDIR ENOTEMPTY ENOTTY ENXIO EOPNOTSUPP
        EOVERFLOW EPERM EPIPE ERANGE EROFS ESPIPE ESTALE ETXTBSY EXDEV ECONNREFUSED ENOMEM ENOLCK EDEADLK ECONNABORTED)
}
