//! Checks for other caches inside and around a cached directory.
//!
//! Two caches over the same files would hold two versions of them, and so would a cache and a process without one.

use super::directory::refusal;
use anyhow::{Context, Result, bail};
use entresol_files::{HIDDEN, Standing, counts_directories};
use rustix::fs::FlockOperation;
use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Refuses a directory that is inside or around another one whose cache is in use or dirty.
pub fn check(directory: &Path) -> Result<()> {
    let directory = directory.canonicalize().with_context(|| directory.display().to_string())?;
    check_parents(&directory)?;
    check_inside(&directory).map(drop)
}

/// Refuses a directory around another one whose cache is in use or dirty. Returns the number of folders read.
///
/// A start must not take long over a tree of a million files. A folder whose link count says that it has no
/// subfolder is therefore not read; most folders of a tree are of that kind.
fn check_inside(directory: &Path) -> Result<usize> {
    let name = || directory.display().to_string();
    let device = fs::metadata(directory).with_context(name)?.dev();
    let counting = counts_directories(directory).with_context(name)?;
    let has_folders = |found: &Metadata| !counting || found.nlink() != 2;
    let (mut folders, mut read) = (vec![directory.to_owned()], 0);
    while let Some(folder) = folders.pop() {
        // A folder that may not be read is skipped, as at every start.
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        read += 1;
        for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|found| found.is_dir())) {
            if entry.file_name() != HIDDEN {
                if entry.metadata().is_ok_and(|found| found.dev() == device && has_folders(&found)) {
                    folders.push(entry.path());
                }
            } else if folder != directory
                && let Some(why) = taken(&folder)?
            {
                bail!("{}: {} lies in it, {why}", directory.display(), folder.display());
            }
        }
    }
    Ok(read)
}

/// Refuses a path inside a directory whose cache is in use or dirty, or that another process serves.
pub fn check_parents(path: &Path) -> Result<()> {
    let name = || path.display().to_string();
    let path = path.canonicalize().with_context(name)?;
    let device = fs::metadata(&path).with_context(name)?.dev();
    let is_same = |path: &&Path| fs::metadata(path).is_ok_and(|found| found.dev() == device);
    for parent in path.ancestors().skip(1).take_while(is_same) {
        if let Some(why) = taken(parent)? {
            bail!("{}: lies in {}, {why}", path.display(), parent.display());
        }
        if is_served(parent) {
            let (name, parent) = (path.display(), parent.display());
            bail!("{name}: lies in {parent}, which another process serves: end that first");
        }
    }
    Ok(())
}

/// Why the files of a directory cannot be used without its cache; none if they can.
fn taken(directory: &Path) -> Result<Option<&'static str>> {
    match entresol_files::standing(directory).map_err(|error| refusal(directory, error))? {
        Standing::Free => Ok(None),
        Standing::InUse => Ok(Some("whose cache is in use: end that first")),
        Standing::Incomplete => Ok(Some("whose cache may have dirty pages of its files: drain it first")),
    }
}

/// True if a mount holds the directory's lock.
fn is_served(directory: &Path) -> bool {
    let Ok(directory) = File::open(directory) else { return false };
    let locked = rustix::fs::flock(&directory, FlockOperation::NonBlockingLockShared);
    matches!(locked, Err(rustix::io::Errno::WOULDBLOCK))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_without_folders_are_not_read_where_their_links_say_so() {
        let scratch = tempfile::tempdir().expect("a directory");
        for at in 0..200 {
            let folder = scratch.path().join(format!("{}/{at}", at % 10));
            fs::create_dir_all(&folder).expect("a folder");
            fs::write(folder.join("f"), "").expect("a file");
        }
        let read = check_inside(scratch.path()).expect("no cache is there");
        let counting = counts_directories(scratch.path()).expect("a file system");
        assert_eq!(read, if counting { 11 } else { 211 });
        // One of the deepest folders now has a subfolder: that of a cache.
        fs::create_dir(scratch.path().join("3/13").join(HIDDEN)).expect("a folder");
        assert_eq!(check_inside(scratch.path()).expect("it has no map"), read + usize::from(counting));
    }
}
