//! A directory of files over a cache: the layer between a front-end for files and the backing directory.

mod below;
mod cached;
mod descriptors;
mod direct;
#[cfg(target_os = "linux")]
mod emulated;
mod kind;
mod mutant;
mod names;
mod permissions;
pub mod places;
pub mod record;
mod removing;
#[cfg(test)]
mod simulated;

pub use below::{Directory, open_despite_mode};
pub use cached::{
    Backing, CachedFiles, Conflict, FileCounts, FilePage, FilesDisk, FilesError, Found, HIDDEN, Keep, News, NotWritten,
    Nowhere, OBJECTS_MAX, Reserved, Standing, standing,
};
pub use descriptors::allow_many;
pub use direct::{DirectFile, DirectFiles};
#[cfg(target_os = "linux")]
pub use emulated::EmulatedFiles;
pub use kind::{counts_directories, gives_leases};
#[cfg(feature = "mutants")]
pub use mutant::leave_out;
pub use names::{NOT_CACHED, Pattern};
pub use permissions::close_to_others;
pub use removing::{NamesBelow, remove, rename};

use places::Places;
use rustix::fs::FallocateFlags;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Identity that tells a file from all others of the backing file system while it exists. The number may return with
/// another file after [`FileLayer::removed`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    /// Number of the file system.
    pub device: u64,
    /// Number of the file in it.
    pub inode: u64,
}

/// Opens a directory so that it can be synced.
pub type OpenDirectory<'a> = &'a dyn Fn() -> io::Result<Directory>;

/// Gives open files their bytes.
pub trait FileLayer: Send + Sync + 'static {
    /// Takes a file that is opened, however often, until all its handles are closed. `file` may be written only if
    /// `writable`; a file that was opened for reading may be opened again for writing before the first is dropped.
    ///
    /// # Errors
    /// Whatever is to be the answer to `open`.
    fn open(&self, id: FileId, file: File, writable: bool) -> io::Result<Arc<dyn FileData>>;

    /// A name of the file in `directory` is about to be removed, perhaps its last: by an unlink, or by a rename to that
    /// name.
    ///
    /// # Errors
    /// The error that keeps the removal from being survived by a crash; the name must stay then.
    fn leaving(&self, id: FileId, directory: OpenDirectory<'_>) -> io::Result<()>;

    /// After [`leaving`](Self::leaving), the file has a name still.
    fn stays(&self, id: FileId);

    /// The file is about to take another's name. As on ext4, a program that renames without a sync finds the old bytes or
    /// the new ones after a crash, never a file without bytes.
    ///
    /// # Errors
    /// The error of the storage; the rename must not happen then.
    fn replacing(&self, id: FileId) -> io::Result<()>;

    /// Announces that the server of the files is about to change the file below, but not its bytes: its mode, times or
    /// names. Until the returned guard is dropped the layer does not take that for the work of somebody else.
    fn changing(&self, _id: FileId) -> Option<Box<dyn Send>> {
        None
    }

    /// Sets the listener that is told the number of each stale file: somebody else changed it below. Bytes that were
    /// given before are not those that it has. The listener must not wait for anything, nor call the layer.
    fn when_stale(&self, _tell: Box<dyn Fn(u64) + Send + Sync>) {}

    /// The file has no name and no handle any more: nothing will ask for its bytes.
    fn removed(&self, id: FileId);

    /// A change of the file's mode or capabilities, made by `act`. A layer that writes to files later keeps what `act` leaves: the
    /// file system takes set-user-ID, set-group-ID and capabilities from a file that is written.
    ///
    /// # Errors
    /// The error of `act`.
    fn changing_rights(&self, _id: FileId, act: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        act()
    }

    /// Does `act`, a look at the file's times or a change of them, while the layer is not about to write to the file. One that writes
    /// later gives the file the times back that it had, and `act` shall neither see those in between nor have its own undone.
    ///
    /// # Errors
    /// The error of `act`.
    fn while_still(&self, _id: FileId, act: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        act()
    }

    /// Names in the directory by which the layer finds files again whose descriptors it closed. Whoever changes names tells them.
    fn places(&self) -> Option<Arc<Places>> {
        None
    }
}

/// Listener that wants to know of queries.
pub trait Advised: Send + Sync {
    /// A query begins that will use these files; how many of them are known.
    fn query_begins(&self, query: u32, files: &[FileId]) -> usize;

    /// A query has ended.
    fn query_ends(&self, query: u32);
}

/// Kind of place that `lseek` looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sought {
    /// The next byte that is stored.
    Data,
    /// The next hole, or the end.
    Hole,
}

/// Part of a read that was done without waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtOnce {
    /// So many bytes: all, or up to the end of the file.
    All(usize),
    /// So many of the first; those after them are to be read from there on.
    First(usize),
}

/// The bytes of one open file. Calls may come from several threads at once, also for overlapping ranges.
///
/// A write that returned is seen by every later read, and is durable after a [`sync`](FileData::sync) that began later.
pub trait FileData: Send + Sync {
    /// Size in bytes, exact at any time.
    ///
    /// # Errors
    /// The error of the storage.
    fn size_bytes(&self) -> io::Result<u64>;

    /// Tells the backing file what it is not told at every write: the time of the last one.
    ///
    /// # Errors
    /// The error of the storage.
    fn settle(&self) -> io::Result<()> {
        Ok(())
    }

    /// Looks whether somebody else has changed the backing file, and whether bytes that were given before are therefore not those
    /// that it has now. To be called at each `open`.
    ///
    /// # Errors
    /// The error of the storage; nothing is known then.
    fn look(&self) -> io::Result<bool> {
        Ok(false)
    }

    /// The backing file, if its bytes are these and nobody needs to see who reads and writes them: a door may then have the
    /// system do that without a call of what is below.
    fn below(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// As [`read`](FileData::read) for as much as can be read without waiting for a device. If that is not all, the rest of
    /// `bytes` may hold anything.
    ///
    /// # Errors
    /// The error of the storage.
    fn read_now(&self, offset: u64, bytes: &mut [u8]) -> io::Result<AtOnce>;

    /// Fills `bytes` from `offset` on, up to the file's end; the number of bytes read.
    ///
    /// # Errors
    /// The error of the storage.
    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize>;

    /// As [`write`](FileData::write) for as many of the first bytes as can be written without waiting; their number.
    ///
    /// # Errors
    /// The error of the storage.
    fn write_now(&self, offset: u64, bytes: &[u8]) -> io::Result<usize>;

    /// Writes `bytes` from `offset` on; a file that ends before grows.
    ///
    /// # Errors
    /// The error of the storage; some of the bytes may be written.
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes durable every write that returned before, with the file's times unless `data_only`.
    ///
    /// # Errors
    /// The error of the storage; the writes may then be lost.
    fn sync(&self, data_only: bool) -> io::Result<()>;

    /// Cuts the file off, or lengthens it with zeroes.
    ///
    /// # Errors
    /// The error of the storage.
    fn truncate(&self, bytes: u64) -> io::Result<()>;

    /// `fallocate`: reserves space, punches holes, writes zeroes.
    ///
    /// # Errors
    /// The error of the storage; `EOPNOTSUPP` for operations that it cannot do.
    fn allocate(&self, how: FallocateFlags, offset: u64, bytes: u64) -> io::Result<()>;

    /// The next place of the kind from `offset` on.
    ///
    /// # Errors
    /// `ENXIO` when there is none before the end.
    fn seek(&self, sought: Sought, offset: u64) -> io::Result<u64>;
}
