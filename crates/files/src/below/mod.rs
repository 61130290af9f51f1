//! The file system below: all that this crate asks of one, behind traits, so that a test can put a simulated one in its place.
//!
//! [`System`] is the operating system's. Which one a handle belongs to is a branch of an enum, and in a build without tests
//! there is but one: a call costs what the system call costs.

mod system;

pub(crate) use system::System;
pub use system::open_despite_mode;

#[cfg(test)]
use crate::simulated::{SimDirectory, SimFile, SimFileSystem};
use crate::{FileId, Sought};
use rustix::fs::FallocateFlags;
use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Declares a trait, and an enum's way of passing each of its calls on to whichever implementation it holds.
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
    /// One in memory, of which a crash keeps what it may.
    #[cfg(test)]
    Simulated(SimFileSystem),
}

impl FileSystem {
    /// Names in a directory as paths, without those of files which it says to have none of these numbers. Only a file system may be
    /// asked that [tells numbers](crate::kind::tells_numbers).
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
    /// One in memory.
    #[cfg(test)]
    Simulated(SimFile),
}

/// An open directory of the file system below.
#[non_exhaustive]
pub enum Directory {
    /// The operating system's.
    System(std::fs::File),
    /// One in memory.
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

/// Attributes that `statx` returns: those that tell a file from all others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub kind: Kind,
    pub id: FileId,
    /// When it was made, in nanoseconds since 1970, if the file system keeps that.
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
    /// When anything about the file was changed, which nobody can set.
    pub changed: (i64, i64),
}

/// Rights of a program in a file, which the file system takes away when the file is written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rights {
    /// The bits set-user-ID and set-group-ID of the mode, as they are there.
    pub bits: u32,
    /// The attribute that holds capabilities; empty if there is none.
    pub capabilities: Vec<u8>,
}

impl Rights {
    /// Has it none?
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// Purpose for which a file of the hidden directory is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    Reading,
    Writing,
    /// For writing, and made if it is not there, for its owner alone.
    Making,
}

/// A time of modification that is set.
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

    /// Opens a file, to be written too or not.
    fn open_file(&self, path: &Path, writable: bool) -> io::Result<File>;

    /// Opens a file to be read that its mode keeps from its owner, who we are; with its attributes as they were before.
    fn open_despite_mode(&self, path: &Path) -> io::Result<(File, Attributes)>;

    /// The names in a directory.
    fn entries(&self, path: &Path) -> io::Result<Entries>;

    /// Kind, identity, time of making and size of the file at a path; a symbolic link is not followed.
    fn found(&self, path: &Path) -> io::Result<Found>;

    /// True if a path leads to a directory, over links too.
    fn is_directory(&self, path: &Path) -> bool;
}

passed_on! {
    /// An open file.
    trait OpenFile by File;

    /// Reads from `offset` on; fewer bytes mean nothing but that they are fewer, and none the end.
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize>;

    /// As [`read_at`](Self::read_at), of what needs no waiting for a device.
    fn read_now(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize>;

    /// Writes all of `bytes`; after an error any part of them may have been written.
    fn write_all_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Sets the size: zeroes are added, or bytes are cut off.
    fn set_size(&self, bytes: u64) -> io::Result<()>;

    /// `fallocate`.
    fn allocate(&self, how: FallocateFlags, offset: u64, bytes: u64) -> rustix::io::Result<()>;

    /// The next place of the kind; `ENXIO` without one.
    fn seek(&self, sought: Sought, offset: u64) -> rustix::io::Result<u64>;

    /// `fsync`.
    fn sync_all(&self) -> io::Result<()>;

    /// `fdatasync`: bytes, and what is needed to read them.
    fn sync_data(&self) -> io::Result<()>;

    /// `syncfs`: all that was done in its file system.
    fn sync_file_system(&self) -> rustix::io::Result<()>;

    /// Size and identity, with the moment of making.
    fn found(&self) -> io::Result<Found>;

    /// Size and times.
    fn attributes(&self) -> rustix::io::Result<Attributes>;

    /// Sets the time of modification.
    fn set_modified(&self, modified: Modified) -> rustix::io::Result<()>;

    /// Rights that a write would take from the file.
    fn rights(&self) -> io::Result<Rights>;

    /// Gives it these rights back, where it has them no more.
    fn restore(&self, rights: &Rights) -> io::Result<()>;

    /// Path of the file now, as the system tells it.
    fn path(&self) -> io::Result<PathBuf>;

    /// The same file, opened to be written too. Where its mode forbids that to its owner, its mode allows it for the moment of the call.
    fn to_write(&self) -> io::Result<File>;
}

passed_on! {
    /// An open directory.
    trait OpenDirectory by Directory;

    /// Its identity, with the moment of making.
    fn found(&self) -> io::Result<Found>;

    /// Its identity.
    fn attributes(&self) -> rustix::io::Result<Attributes>;

    /// Path of the directory now, as the system tells it.
    fn path(&self) -> io::Result<PathBuf>;

    /// Opens a directory in it, not over a link.
    fn open_directory(&self, name: &str) -> rustix::io::Result<Directory>;

    /// Makes a directory in it, for its owner alone.
    fn make_directory(&self, name: &str) -> rustix::io::Result<()>;

    /// Takes it for this handle alone; `EWOULDBLOCK` when another has it.
    fn lock(&self) -> rustix::io::Result<()>;

    /// Opens a file in it, not over a link.
    fn open_file(&self, name: &str, how: For) -> rustix::io::Result<File>;

    /// The size of a file in it.
    fn size_of(&self, name: &str) -> rustix::io::Result<u64>;

    /// Gives a file in it another name in it, which another file loses.
    fn rename(&self, from: &str, to: &str) -> rustix::io::Result<()>;

    /// Takes the name of a file in it away.
    fn remove(&self, name: &str) -> rustix::io::Result<()>;

    /// Has two names in it change places.
    fn exchange(&self, one: &str, other: &str) -> rustix::io::Result<()>;

    /// `fsync`: the names in it.
    fn sync(&self) -> rustix::io::Result<()>;

    /// `syncfs`: all that was done in its file system.
    fn sync_file_system(&self) -> rustix::io::Result<()>;
}

impl File {
    /// The file whose place is open here, whatever its mode allows its owner; and whether its mode was another one for a moment.
    pub fn at(place: &OwnedFd, writable: bool) -> io::Result<(Self, bool)> {
        let (file, had_another_mode) = open_despite_mode(place.as_fd(), writable)?;
        Ok((file.into(), had_another_mode))
    }

    /// Its descriptor, where it has one.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            File::System(file) => Some(file.as_fd()),
            #[cfg(test)]
            File::Simulated(_) => None,
        }
    }
}

impl Directory {
    /// Its descriptor, where it has one.
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
