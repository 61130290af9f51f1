//! The calls of a server of files that change names, on a directory of the simulated file system.

use crate::below::Directory;
use crate::below::simulated::{SimDirectory, SimFile, id, moment};
use crate::{FileId, NamesBelow};
use rustix::fs::RenameFlags;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;

fn text(name: &OsStr) -> &str {
    name.to_str().expect("names of tests")
}

impl NamesBelow for SimDirectory {
    type Place = SimFile;

    fn find(&self, name: &OsStr) -> io::Result<Option<(SimFile, FileId)>> {
        match self.open(text(name)) {
            Ok(file) => {
                let inode = file.inode();
                Ok(Some((file, id(inode))))
            }
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn has_name(place: &SimFile) -> bool {
        place.has_name()
    }

    fn open_to_sync(&self) -> io::Result<Directory> {
        Ok(Directory::Simulated(self.again()?))
    }

    fn unlink(&self, name: &OsStr) -> io::Result<()> {
        Ok(moment(self.remove(text(name)))?)
    }

    fn rename_to(&self, name: &OsStr, to: &Self, new_name: &OsStr, flags: RenameFlags) -> io::Result<()> {
        assert!(flags.is_empty(), "a plain rename");
        Ok(moment(self.rename(text(name), to, text(new_name)))?)
    }
}
