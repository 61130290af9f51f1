//! The operating system's files and directories: each call is one system call, or those of the standard library.

use super::{Attributes, Directory, Entries, File, For, Found, Kind, Modified, OpenDirectory, OpenFile, Paths, Rights};
use crate::direct::read_now;
use crate::{FileId, Sought};
use rustix::fs::{
    AtFlags, FallocateFlags, FlockOperation, Mode, OFlags, RenameFlags, SeekFrom, Stat, Timespec, Timestamps,
    UTIME_NOW, UTIME_OMIT,
};
use std::collections::HashSet;
use std::fs::{DirEntry, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirEntryExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// The operating system's file system.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct System;

impl System {
    /// Names in a directory as paths, without files whose inode numbers are not in `numbers`.
    pub fn entries_of(self, path: &Path, numbers: &HashSet<u64>) -> io::Result<Entries> {
        let (_held, near) = near(path)?;
        let is_other = |entry: &DirEntry| {
            let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
            is_file && !numbers.contains(&entry.ino())
        };
        let entries = std::fs::read_dir(near)?.filter(|entry| !entry.as_ref().is_ok_and(is_other));
        let paths: Vec<_> = entries.map(|entry| Ok(path.join(entry?.file_name()))).collect();
        Ok(Box::new(paths.into_iter()))
    }
}

fn found(metadata: &Metadata) -> Found {
    let kind = match metadata.file_type() {
        kind if kind.is_file() => Kind::File,
        kind if kind.is_dir() => Kind::Directory,
        kind if kind.is_symlink() => Kind::Link,
        _ => Kind::Other,
    };
    let made = metadata.created().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    Found {
        kind,
        id: FileId { device: metadata.dev(), inode: metadata.ino() },
        made: made.map(|since| since.as_nanos() as u64),
        size: metadata.len(),
    }
}

fn attributes(stat: &Stat) -> Attributes {
    Attributes {
        id: FileId { device: stat.st_dev, inode: stat.st_ino },
        size: stat.st_size as u64,
        modified: (stat.st_mtime, stat.st_mtime_nsec as i64),
        changed: (stat.st_ctime, stat.st_ctime_nsec as i64),
    }
}

/// Current path of an open file or directory, as the system gives it.
fn path_of(open: &impl AsRawFd) -> io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", open.as_raw_fd()))
}

/// Bits of a mode that run a program with the rights of its file's owner or group.
const PRIVILEGED: u32 = 0o6000;

/// Extended attribute with a file's capabilities.
const CAPABILITIES: &str = "security.capability";

/// Opens the file of an `O_PATH` descriptor again, for reading and perhaps writing. Where the mode forbids that to its
/// owner, who runs this process, the mode allows it for the moment of the call. The server above decides who may have
/// the file open, and a cache must read what it writes. Also returns true if the mode was changed for that moment.
///
/// # Errors The error of the system; `EACCES` where the file belongs to another user.
pub fn open_despite_mode(place: BorrowedFd<'_>, writable: bool) -> io::Result<(std::fs::File, bool)> {
    let path = format!("/proc/self/fd/{}", place.as_raw_fd());
    let open = || OpenOptions::new().read(true).write(writable).open(&path);
    let refused = match open() {
        Ok(file) => return Ok((file, false)),
        Err(error) => error,
    };
    let wanted = if writable { Mode::RUSR | Mode::WUSR } else { Mode::RUSR };
    let mode = Mode::from_raw_mode(rustix::fs::fstat(place)?.st_mode);
    if refused.kind() != io::ErrorKind::PermissionDenied || mode.contains(wanted) {
        return Err(refused);
    }
    // By its path, for an `O_PATH` descriptor cannot change a mode. A crash between the two changes leaves the owner a
    // bit that the owner can remove: no byte, and no other user's access, depends on it.
    rustix::fs::chmod(&path, mode | wanted).map_err(|_| refused)?;
    let opened = open();
    rustix::fs::chmod(&path, mode)?;
    Ok((opened?, true))
}

/// Longest path in bytes that is given to the system in one call.
const AT_ONCE: usize = 3500;

/// A path short enough for the system that leads to the same file while the returned directory is held open.
fn near(path: &Path) -> io::Result<(Option<OwnedFd>, PathBuf)> {
    let mut held: Option<OwnedFd> = None;
    let mut rest = path.to_owned();
    while rest.as_os_str().len() > AT_ONCE {
        let (mut part, mut left) = (PathBuf::new(), PathBuf::new());
        for name in rest.components() {
            let fits = left.as_os_str().is_empty() && part.as_os_str().len() + name.as_os_str().len() < AT_ONCE;
            if fits { part.push(name) } else { left.push(name) }
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        held = Some(match &held {
            Some(from) => rustix::fs::openat(from, &part, flags, Mode::empty())?,
            None => rustix::fs::open(&part, flags, Mode::empty())?,
        });
        rest = left;
    }
    let near = held.as_ref().map(|held| PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd())).join(&rest));
    Ok((held, near.unwrap_or(rest)))
}

impl Paths for System {
    fn open_directory(&self, path: &Path) -> io::Result<Directory> {
        let (_held, path) = near(path)?;
        Ok(std::fs::File::open(path)?.into())
    }

    fn open_file(&self, path: &Path, writable: bool) -> io::Result<File> {
        let (_held, path) = near(path)?;
        Ok(OpenOptions::new().read(true).write(writable).open(path)?.into())
    }

    fn open_despite_mode(&self, path: &Path) -> io::Result<(File, Attributes)> {
        let (_held, path) = near(path)?;
        let place = rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let before = attributes(&rustix::fs::fstat(&place)?);
        Ok((open_despite_mode(place.as_fd(), false)?.0.into(), before))
    }

    fn entries(&self, path: &Path) -> io::Result<Entries> {
        let (_held, near) = near(path)?;
        let path = path.to_owned();
        Ok(Box::new(std::fs::read_dir(near)?.map(move |entry| Ok(path.join(entry?.file_name())))))
    }

    fn found(&self, path: &Path) -> io::Result<Found> {
        let (_held, path) = near(path)?;
        Ok(found(&std::fs::symlink_metadata(path)?))
    }

    fn is_directory(&self, path: &Path) -> bool {
        near(path).is_ok_and(|(_held, path)| path.is_dir())
    }
}

impl OpenFile for std::fs::File {
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        FileExt::read_at(self, bytes, offset)
    }

    fn read_now(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        read_now(self, offset, bytes)
    }

    fn write_all_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        FileExt::write_all_at(self, bytes, offset)
    }

    fn set_size(&self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }

    fn allocate(&self, how: FallocateFlags, offset: u64, bytes: u64) -> rustix::io::Result<()> {
        rustix::fs::fallocate(self, how, offset, bytes)
    }

    fn seek(&self, sought: Sought, offset: u64) -> rustix::io::Result<u64> {
        // The position that `seek` leaves is never used: all other calls state their offset.
        rustix::fs::seek(
            self,
            match sought {
                Sought::Data => SeekFrom::Data(offset),
                Sought::Hole => SeekFrom::Hole(offset),
            },
        )
    }

    fn sync_all(&self) -> io::Result<()> {
        std::fs::File::sync_all(self)
    }

    fn sync_data(&self) -> io::Result<()> {
        std::fs::File::sync_data(self)
    }

    fn sync_file_system(&self) -> rustix::io::Result<()> {
        rustix::fs::syncfs(self)
    }

    fn found(&self) -> io::Result<Found> {
        Ok(found(&self.metadata()?))
    }

    fn attributes(&self) -> rustix::io::Result<Attributes> {
        Ok(attributes(&rustix::fs::fstat(self)?))
    }

    fn set_modified(&self, modified: Modified) -> rustix::io::Result<()> {
        let last_access = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let last_modification = match modified {
            Modified::At((tv_sec, tv_nsec)) => Timespec { tv_sec, tv_nsec },
            Modified::Now => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        };
        rustix::fs::futimens(self, &Timestamps { last_access, last_modification })
    }

    fn path(&self) -> io::Result<PathBuf> {
        path_of(self)
    }

    fn rights(&self) -> io::Result<Rights> {
        let bits = rustix::fs::fstat(self)?.st_mode & PRIVILEGED;
        let mut capabilities = vec![0; 64];
        // Without support for such attributes a file has no capabilities.
        let length = rustix::fs::fgetxattr(self, CAPABILITIES, &mut capabilities[..]).unwrap_or(0);
        capabilities.truncate(length);
        Ok(Rights { bits, capabilities })
    }

    fn restore(&self, rights: &Rights) -> io::Result<()> {
        let now = OpenFile::rights(self)?;
        // The mode first: unlike a change of owner, a change of mode takes no capabilities away.
        if rights.bits & !now.bits != 0 {
            let mode = rustix::fs::fstat(self)?.st_mode | rights.bits;
            rustix::fs::fchmod(self, Mode::from_raw_mode(mode))?;
        }
        if rights.capabilities != now.capabilities {
            rustix::fs::fsetxattr(self, CAPABILITIES, &rights.capabilities, rustix::fs::XattrFlags::empty())?;
        }
        Ok(())
    }

    fn to_write(&self) -> io::Result<File> {
        Ok(open_despite_mode(self.as_fd(), true)?.0.into())
    }
}

impl OpenDirectory for std::fs::File {
    fn found(&self) -> io::Result<Found> {
        Ok(found(&self.metadata()?))
    }

    fn attributes(&self) -> rustix::io::Result<Attributes> {
        Ok(attributes(&rustix::fs::fstat(self)?))
    }

    fn path(&self) -> io::Result<PathBuf> {
        path_of(self)
    }

    fn open_directory(&self, name: &str) -> rustix::io::Result<Directory> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Directory::from(rustix::fs::openat(self, name, flags, Mode::empty())?))
    }

    fn make_directory(&self, name: &str) -> rustix::io::Result<()> {
        rustix::fs::mkdirat(self, name, Mode::RWXU)
    }

    fn lock(&self) -> rustix::io::Result<()> {
        rustix::fs::flock(self, FlockOperation::NonBlockingLockExclusive)
    }

    fn open_file(&self, name: &str, how: For) -> rustix::io::Result<File> {
        let (flags, mode) = match how {
            For::Reading => (OFlags::RDONLY, Mode::empty()),
            For::Writing => (OFlags::RDWR, Mode::RUSR | Mode::WUSR),
            For::Making => (OFlags::RDWR | OFlags::CREATE, Mode::RUSR | Mode::WUSR),
        };
        let file = rustix::fs::openat(self, name, flags | OFlags::CLOEXEC | OFlags::NOFOLLOW, mode)?;
        Ok(std::fs::File::from(file).into())
    }

    fn size_of(&self, name: &str) -> rustix::io::Result<u64> {
        Ok(rustix::fs::statat(self, name, AtFlags::SYMLINK_NOFOLLOW)?.st_size as u64)
    }

    fn rename(&self, from: &str, to: &str) -> rustix::io::Result<()> {
        rustix::fs::renameat(self, from, self, to)
    }

    fn remove(&self, name: &str) -> rustix::io::Result<()> {
        rustix::fs::unlinkat(self, name, AtFlags::empty())
    }

    fn exchange(&self, one: &str, other: &str) -> rustix::io::Result<()> {
        rustix::fs::renameat_with(self, one, self, other, RenameFlags::EXCHANGE)
    }

    fn sync(&self) -> rustix::io::Result<()> {
        rustix::fs::fsync(self)
    }

    fn sync_file_system(&self) -> rustix::io::Result<()> {
        rustix::fs::syncfs(self)
    }
}
