//! A directory of files over a cache: the layer between a front-end for files and the backing directory.

mod below;
mod cached;
mod descriptors;
mod direct;
#[cfg(target_os = "linux")]
mod emulated;
mod kind;
pub mod mounts;
mod mutant;
mod names;
#[cfg(target_os = "linux")]
pub mod paced;
mod permissions;
pub mod places;
pub mod record;
mod removing;

pub use below::{Directory, open_despite_mode};
pub use cached::{
    Backing, CachedFiles, Conflict, FileCounts, FilePage, FileStates, FilesDisk, FilesError, Found, HIDDEN, Keep, News,
    NotWritten, Nowhere, OBJECTS_MAX, Reserved, Standing, standing,
};
pub use descriptors::allow_many;
pub use direct::{DirectFile, DirectFiles};
#[cfg(target_os = "linux")]
pub use emulated::EmulatedFiles;
pub use kind::{counts_directories, gives_leases};
#[cfg(feature = "mutants")]
pub use mutant::leave_out;
pub use names::{LOGS, Pattern, not_cached};
pub use permissions::close_to_others;
pub use removing::{NamesBelow, remove, rename};

use places::Places;
use rustix::fs::FallocateFlags;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Identity of a file: unique in the backing file system while the file exists. The number may return with another file
/// after [`FileLayer::removed`].
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
    /// Takes an opened file until all its handles are closed; a file may be opened more than once. `file` may be
    /// written only if `writable`. A file that was opened for reading may be opened again for writing before the first
    /// is dropped.
    ///
    /// # Errors
    /// The error that `open` is to return.
    fn open(&self, id: FileId, file: File, writable: bool) -> io::Result<Arc<dyn FileData>>;

    /// A name of the file in `directory` is about to be removed, perhaps its last: by an unlink, or by a rename to that
    /// name.
    ///
    /// # Errors
    /// The error because of which a crash could undo the removal; the name must stay then.
    fn leaving(&self, id: FileId, directory: OpenDirectory<'_>) -> io::Result<()>;

    /// The file still has a name after [`leaving`](Self::leaving).
    fn stays(&self, id: FileId);

    /// The file is about to take another file's name. As on ext4, a program that renames without a sync finds the old
    /// bytes or the new ones after a crash, never a file without bytes.
    ///
    /// # Errors
    /// The error of the storage; the rename must not happen then.
    fn replacing(&self, id: FileId) -> io::Result<()>;

    /// Announces that the server of the files is about to change the backing file's mode, times or names, but not its
    /// bytes. Until the returned guard is dropped, the layer does not take that change for the work of another program.
    fn changing(&self, _id: FileId) -> Option<Box<dyn Send>> {
        None
    }

    /// Sets the listener that gets the number of each stale file: another program changed the backing file, so bytes
    /// that were read before may differ from those it has now. The listener must not wait for anything, nor call the
    /// layer.
    fn when_stale(&self, _tell: Box<dyn Fn(u64) + Send + Sync>) {}

    /// The file has neither a name nor a handle any more: its bytes will not be asked for again.
    fn removed(&self, id: FileId);

    /// Changes the file's mode or capabilities through `act`. A layer that writes to files later restores the state
    /// that `act` leaves: a file system takes set-user-ID, set-group-ID and capabilities from a file that is written.
    ///
    /// # Errors
    /// The error of `act`.
    fn changing_rights(&self, _id: FileId, act: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        act()
    }

    /// Runs `act`, which reads or changes the file's times, while the layer does not write to the file. A layer that
    /// writes later restores the times that the file had. So `act` must not see the times in between, and its change
    /// must not be undone.
    ///
    /// # Errors
    /// The error of `act`.
    fn while_still(&self, _id: FileId, act: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        act()
    }

    /// Names by which the layer finds files again whose descriptors it closed. Code that changes names must notify
    /// them.
    fn places(&self) -> Option<Arc<Places>> {
        None
    }
}

/// Listener that is notified of queries.
pub trait Advised: Send + Sync {
    /// A query begins that will use these files; returns how many of them are known.
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

    /// Passes on to the backing file the time of the last write, which is not passed on at every write.
    ///
    /// # Errors
    /// The error of the storage.
    fn settle(&self) -> io::Result<()> {
        Ok(())
    }

    /// True if another program has changed the backing file, so that bytes read before may differ from those it has
    /// now. To be called at each `open`.
    ///
    /// # Errors
    /// The error of the storage; nothing is known then.
    fn look(&self) -> io::Result<bool> {
        Ok(false)
    }

    /// The backing file, if its bytes are those of this file and its reads and writes need not be observed. A front-end
    /// may then have the system do them without calls of this layer.
    fn below(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Like [`read`](FileData::read), for the part that can be read without waiting for a device. If that is not all,
    /// the contents of the rest of `bytes` are undefined.
    ///
    /// # Errors
    /// The error of the storage.
    fn read_now(&self, offset: u64, bytes: &mut [u8]) -> io::Result<AtOnce>;

    /// Fills `bytes` from `offset` on, up to the file's end; returns the number of bytes read.
    ///
    /// # Errors
    /// The error of the storage.
    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize>;

    /// Like [`write`](FileData::write), for the first bytes that can be written without waiting; returns their number.
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
    /// The error of the storage; `EOPNOTSUPP` for operations that the storage cannot do.
    fn allocate(&self, how: FallocateFlags, offset: u64, bytes: u64) -> io::Result<()>;

    /// The next data or hole, as `sought` says, from `offset` on.
    ///
    /// # Errors
    /// `ENXIO` when there is none before the end.
    fn seek(&self, sought: Sought, offset: u64) -> io::Result<u64>;
}
