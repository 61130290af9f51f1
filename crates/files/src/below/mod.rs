//! The backing file system behind traits that name all the calls of this crate, so that a test can simulate it.
//!
//! [`System`] is the operating system's. Each handle is an enum, so a call branches on it. In a build without tests the
//! enum has one variant: a call costs no more than the system call.

#[cfg(test)]
pub(crate) mod simulated;
mod system;

pub(crate) use system::System;
pub use system::open_despite_mode;

use crate::{FileId, Sought};
use rustix::fs::FallocateFlags;
#[cfg(test)]
use simulated::{SimDirectory, SimFile, SimFileSystem};
use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Declares a trait and implements it for an enum that passes each call on to the implementation it holds.
macro_rules! passed_on {
    ($(#[$about:meta])* trait $name:ident by $any:ty;
     $($(#[$what:meta])* fn $call:ident(&self $(, $given:ident: $kind:ty)*) -> $answer:ty;)*) => {
        $(#[$about])*
        pub(crate) trait $name {
            $($(#[$what])* fn $call(&self $(, $given: $kind)*) -> $answer;)*
        }

        impl $name for $any {
            $(#[inline]
            fn $call(&self $(, $given: $kind)*) -> $answer {
                match self {
                    Self::System(one) => $name::$call(one $(, $given)*),
                    #[cfg(test)]
                    Self::Simulated(one) => $name::$call(one $(, $given)*),
                }
            })*
        }
    };
}

/// A file system, by paths.
pub(crate) enum FileSystem {
    /// The operating system's.
    System(System),
    /// In memory; a crash keeps a random part of the unsynced changes.
    #[cfg(test)]
    Simulated(SimFileSystem),
}

impl FileSystem {
    /// Names in a directory as paths, without files whose numbers are not in `numbers`. Only for a file system that
    /// [tells numbers](crate::kind::tells_numbers).
    pub fn entries_of(&self, path: &Path, numbers: &HashSet<u64>) -> io::Result<Entries> {
        match self {
            Self::System(system) => system.entries_of(path, numbers),
            #[cfg(test)]
            Self::Simulated(system) => system.entries(path),
        }
    }
}

/// An open file.
pub(crate) enum File {
    /// The operating system's.
    System(std::fs::File),
    /// In memory.
    #[cfg(test)]
    Simulated(SimFile),
}

/// An open backing directory.
#[non_exhaustive]
pub enum Directory {
    /// The operating system's.
    System(std::fs::File),
    /// In memory.
    #[cfg(test)]
    Simulated(SimDirectory),
}

/// Kind of file that a name leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
    Link,
    Other,
}

/// Attributes that `statx` returns, which tell a file from all others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub kind: Kind,
    pub id: FileId,
    /// Time of making in nanoseconds since 1970, if the file system keeps it.
    pub made: Option<u64>,
    /// Bytes.
    pub size: u64,
}

/// Attributes that `fstat` returns. Times are seconds since 1970 and nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub id: FileId,
    /// Bytes.
    pub size: u64,
    pub modified: (i64, i64),
    /// Time of the last change of any kind (ctime), which no program can set.
    pub changed: (i64, i64),
}

/// Rights that a program file grants (set-user-ID and the like); the file system removes them when the file is written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rights {
    /// The bits set-user-ID and set-group-ID of the mode, as they are there.
    pub bits: u32,
    /// The attribute that holds capabilities; empty if there is none.
    pub capabilities: Vec<u8>,
}

impl Rights {
    /// True if there are no such rights.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// Purpose for which a file of the hidden directory is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    Reading,
    Writing,
    /// For writing; made if missing, for its owner alone.
    Making,
}

/// A time of modification to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Modified {
    /// Seconds since 1970 and nanoseconds.
    At((i64, i64)),
    Now,
}

/// The names in a directory, as paths.
pub(crate) type Entries = Box<dyn Iterator<Item = io::Result<PathBuf>>>;

passed_on! {
    /// A file system, by paths.
    trait Paths by FileSystem;

    /// Opens a directory.
    fn open_directory(&self, path: &Path) -> io::Result<Directory>;

    /// Opens a file for reading, or for both reading and writing.
    fn open_file(&self, path: &Path, writable: bool) -> io::Result<File>;

    /// Opens a file for reading although its mode forbids that to its owner, who runs this process. Also returns its
    /// earlier attributes.
    fn open_despite_mode(&self, path: &Path) -> io::Result<(File, Attributes)>;

    /// The names in a directory.
    fn entries(&self, path: &Path) -> io::Result<Entries>;

    /// Kind, identity, time of making and size of the file at a path; a symbolic link is not followed.
    fn found(&self, path: &Path) -> io::Result<Found>;

    /// True if a path leads to a directory; links are followed.
    fn is_directory(&self, path: &Path) -> bool;
}

passed_on! {
    /// An open file.
    trait OpenFile by File;

    /// Reads from `offset` on. Fewer bytes than asked for do not mean the end of the file; no bytes do.
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize>;

    /// Like [`read_at`](Self::read_at), for the part that can be read without waiting for a device.
    fn read_now(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize>;

    /// Writes all of `bytes`; after an error any part of them may have been written.
    fn write_all_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Sets the size: adds zeroes or cuts bytes off.
    fn set_size(&self, bytes: u64) -> io::Result<()>;

    /// `fallocate`.
    fn allocate(&self, how: FallocateFlags, offset: u64, bytes: u64) -> rustix::io::Result<()>;

    /// The next data or hole; `ENXIO` without one.
    fn seek(&self, sought: Sought, offset: u64) -> rustix::io::Result<u64>;

    /// `fsync`.
    fn sync_all(&self) -> io::Result<()>;

    /// `fdatasync`: the bytes, and the metadata needed to read them.
    fn sync_data(&self) -> io::Result<()>;

    /// `syncfs`: all changes in the file system of this file.
    fn sync_file_system(&self) -> rustix::io::Result<()>;

    /// Size and identity, with the time of making.
    fn found(&self) -> io::Result<Found>;

    /// Size and times.
    fn attributes(&self) -> rustix::io::Result<Attributes>;

    /// Sets the time of modification.
    fn set_modified(&self, modified: Modified) -> rustix::io::Result<()>;

    /// Rights that a write would take from the file.
    fn rights(&self) -> io::Result<Rights>;

    /// Restores rights that the file has lost.
    fn restore(&self, rights: &Rights) -> io::Result<()>;

    /// Current path of the file, as the system gives it.
    fn path(&self) -> io::Result<PathBuf>;

    /// The same file, opened for writing too. A mode that forbids that to the owner is changed for the moment of the
    /// call.
    fn to_write(&self) -> io::Result<File>;
}

passed_on! {
    /// An open directory.
    trait OpenDirectory by Directory;

    /// Identity of the directory, with the time of making.
    fn found(&self) -> io::Result<Found>;

    /// Identity and times of the directory.
    fn attributes(&self) -> rustix::io::Result<Attributes>;

    /// Current path of the directory, as the system gives it.
    fn path(&self) -> io::Result<PathBuf>;

    /// Opens a directory in this one; a link is not followed.
    fn open_directory(&self, name: &str) -> rustix::io::Result<Directory>;

    /// Makes a directory in this one, for its owner alone.
    fn make_directory(&self, name: &str) -> rustix::io::Result<()>;

    /// Locks the directory for this handle alone; `EWOULDBLOCK` when another handle has it.
    fn lock(&self) -> rustix::io::Result<()>;

    /// Opens a file in this directory; a link is not followed.
    fn open_file(&self, name: &str, how: For) -> rustix::io::Result<File>;

    /// Size of a file in this directory.
    fn size_of(&self, name: &str) -> rustix::io::Result<u64>;

    /// Renames a file within this directory; a file that had the new name loses it.
    fn rename(&self, from: &str, to: &str) -> rustix::io::Result<()>;

    /// Removes the name of a file in this directory.
    fn remove(&self, name: &str) -> rustix::io::Result<()>;

    /// Exchanges two names in this directory.
    fn exchange(&self, one: &str, other: &str) -> rustix::io::Result<()>;

    /// `fsync`: the names in this directory.
    fn sync(&self) -> rustix::io::Result<()>;

    /// `syncfs`: all changes in the file system of this directory.
    fn sync_file_system(&self) -> rustix::io::Result<()>;
}

impl File {
    /// Opens the file of an `O_PATH` descriptor, whatever its mode allows its owner; also returns true if the mode was
    /// changed for a moment.
    pub fn at(place: &OwnedFd, writable: bool) -> io::Result<(Self, bool)> {
        let (file, had_another_mode) = open_despite_mode(place.as_fd(), writable)?;
        Ok((file.into(), had_another_mode))
    }

    /// The same file, opened once more, whatever its mode allows its owner. The descriptor may be of `O_PATH`.
    pub fn again(&self, writable: bool) -> io::Result<Self> {
        match self {
            File::System(file) => Ok(open_despite_mode(file.as_fd(), writable)?.0.into()),
            #[cfg(test)]
            File::Simulated(file) => Ok(File::Simulated(file.again())),
        }
    }

    /// The descriptor; none for a simulated file.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            File::System(file) => Some(file.as_fd()),
            #[cfg(test)]
            File::Simulated(_) => None,
        }
    }
}

impl Directory {
    /// The descriptor; none for a simulated directory.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Directory::System(directory) => Some(directory.as_fd()),
            #[cfg(test)]
            Directory::Simulated(_) => None,
        }
    }
}

impl From<std::fs::File> for File {
    fn from(file: std::fs::File) -> Self {
        File::System(file)
    }
}

impl From<std::fs::File> for Directory {
    fn from(directory: std::fs::File) -> Self {
        Directory::System(directory)
    }
}

impl From<OwnedFd> for Directory {
    fn from(directory: OwnedFd) -> Self {
        Directory::System(directory.into())
    }
}
