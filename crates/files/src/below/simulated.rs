//! The simulated file system of the crash tests ([`entresol_crashtest::file_system`]) in place of the backing one.

use super::{Attributes, Directory, Entries, File, For, Found, Kind, Modified, OpenDirectory, OpenFile, Paths, Rights};
use crate::{FileId, Sought};
use entresol_crashtest::file_system;
pub(crate) use entresol_crashtest::file_system::{Call, SimDirectory, SimFile, SimFileSystem};
use entresol_store::arena::moments;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::cell::Cell;
use std::io;
use std::path::{Path, PathBuf};

const DEVICE: u64 = 1;
/// Bytes that a write makes as a whole, though the process be killed.
const WHOLE: usize = 512;

thread_local! {
    static TEARS: Cell<bool> = const { Cell::new(false) };
}

/// Has each write of this thread made in two parts from now on, or not any more: a kill may come in between.
pub(crate) fn tear_writes(tear: bool) {
    TEARS.set(tear);
}

/// A moment at which a kill would leave another state than before.
pub(crate) fn moment<T>(done: T) -> T {
    moments::passed();
    done
}

/// Identity of the file with this number.
pub(crate) fn id(inode: u64) -> FileId {
    FileId { device: DEVICE, inode }
}

impl From<file_system::Found> for Found {
    fn from(found: file_system::Found) -> Self {
        let kind = if found.is_directory { Kind::Directory } else { Kind::File };
        Found { kind, id: id(found.inode), made: Some(found.made), size: found.size }
    }
}

impl From<file_system::Found> for Attributes {
    fn from(found: file_system::Found) -> Self {
        let file_system::Found { inode, size, modified, changed, .. } = found;
        Attributes { id: id(inode), size, modified, changed }
    }
}

impl Paths for SimFileSystem {
    fn open_directory(&self, path: &Path) -> io::Result<Directory> {
        self.open_directory(path).map(Directory::Simulated)
    }

    fn open_file(&self, path: &Path, _writable: bool) -> io::Result<File> {
        self.open_file(path).map(File::Simulated)
    }

    fn open_despite_mode(&self, path: &Path) -> io::Result<(File, Attributes)> {
        let file = self.open_file(path)?;
        let attributes = file.found()?.into();
        Ok((File::Simulated(file), attributes))
    }

    fn entries(&self, path: &Path) -> io::Result<Entries> {
        let (names, path) = (self.names(path)?, path.to_owned());
        Ok(Box::new(names.into_iter().map(move |name| Ok(path.join(name)))))
    }

    fn found(&self, path: &Path) -> io::Result<Found> {
        self.found(path).map(Found::from)
    }

    fn is_directory(&self, path: &Path) -> bool {
        self.found(path).is_ok_and(|found| found.is_directory)
    }
}

impl OpenFile for SimFile {
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.read_at(offset, bytes)
    }

    fn read_now(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.read_now(offset, bytes)
    }

    fn write_all_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let half = if TEARS.get() { bytes.len() / 2 / WHOLE * WHOLE } else { 0 };
        if half > 0 {
            moment(self.write_all_at(offset, &bytes[..half]))?;
        }
        moment(self.write_all_at(offset + half as u64, &bytes[half..]))
    }

    fn rights(&self) -> io::Result<Rights> {
        Ok(Rights::default())
    }

    fn restore(&self, _rights: &Rights) -> io::Result<()> {
        Ok(())
    }

    fn to_write(&self) -> io::Result<File> {
        Ok(File::Simulated(self.again()))
    }

    fn set_size(&self, bytes: u64) -> io::Result<()> {
        moment(self.set_size(bytes))
    }

    fn allocate(&self, how: FallocateFlags, offset: u64, bytes: u64) -> rustix::io::Result<()> {
        moment(self.allocate(how, offset, bytes))
    }

    fn seek(&self, sought: Sought, offset: u64) -> rustix::io::Result<u64> {
        self.seek(sought == Sought::Data, offset)
    }

    fn sync_all(&self) -> io::Result<()> {
        moment(self.sync_all())
    }

    fn sync_data(&self) -> io::Result<()> {
        moment(self.sync_data())
    }

    fn sync_file_system(&self) -> rustix::io::Result<()> {
        moment(self.sync_file_system())
    }

    fn found(&self) -> io::Result<Found> {
        Ok(self.found()?.into())
    }

    fn attributes(&self) -> rustix::io::Result<Attributes> {
        Ok(self.found()?.into())
    }

    fn set_modified(&self, modified: Modified) -> rustix::io::Result<()> {
        moment(self.set_modified(match modified {
            Modified::At(time) => Some(time),
            Modified::Now => None,
        }))
    }

    fn path(&self) -> io::Result<PathBuf> {
        Ok(self.path())
    }
}

impl OpenDirectory for SimDirectory {
    fn found(&self) -> io::Result<Found> {
        Ok(self.found()?.into())
    }

    fn attributes(&self) -> rustix::io::Result<Attributes> {
        Ok(self.found()?.into())
    }

    fn path(&self) -> io::Result<PathBuf> {
        Ok(self.path())
    }

    fn open_directory(&self, name: &str) -> rustix::io::Result<Directory> {
        self.open_directory(name).map(Directory::Simulated)
    }

    fn make_directory(&self, name: &str) -> rustix::io::Result<()> {
        self.make_directory(name)
    }

    /// Never refused: the simulation has one process.
    fn lock(&self) -> rustix::io::Result<()> {
        Ok(())
    }

    fn open_file(&self, name: &str, how: For) -> rustix::io::Result<File> {
        let opened = self.open(name);
        let opened =
            if how == For::Making && matches!(opened, Err(Errno::NOENT)) { moment(self.create(name)) } else { opened };
        Ok(File::Simulated(opened?))
    }

    fn size_of(&self, name: &str) -> rustix::io::Result<u64> {
        self.size_of(name)
    }

    fn rename(&self, from: &str, to: &str) -> rustix::io::Result<()> {
        moment(self.rename(from, self, to))
    }

    fn remove(&self, name: &str) -> rustix::io::Result<()> {
        moment(self.remove(name))
    }

    fn exchange(&self, one: &str, other: &str) -> rustix::io::Result<()> {
        moment(self.exchange(one, other))
    }

    fn sync(&self) -> rustix::io::Result<()> {
        moment(self.sync())
    }

    fn sync_file_system(&self) -> rustix::io::Result<()> {
        moment(self.sync_file_system())
    }
}
