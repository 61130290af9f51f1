//! Folders inside of a directory that is cached, and around one: two caches, or a cache and none, over the same files are two
//! truths.

use super::files::refusal;
use anyhow::{Context, Result, bail};
use entresol_files::{HIDDEN, Standing};
use rustix::fs::FlockOperation;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Refuses a directory that lies in one of which a cache is in use or dirty, or around such a one.
pub fn check(directory: &Path) -> Result<()> {
    let name = || directory.display().to_string();
    let directory = directory.canonicalize().with_context(name)?;
    let device = fs::metadata(&directory).with_context(name)?.dev();
    let is_same = |path: &&Path| fs::metadata(path).is_ok_and(|found| found.dev() == device);
    check_parents(&directory)?;
    let mut folders = vec![directory.clone()];
    while let Some(folder) = folders.pop() {
        // What may not be looked into is passed by, as at every start.
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|found| found.is_dir())) {
            let path = entry.path();
            if entry.file_name() != HIDDEN {
                if is_same(&path.as_path()) {
                    folders.push(path);
                }
            } else if folder != directory
                && let Some(why) = taken(&folder)?
            {
                bail!("{}: {} lies in it, {why}", directory.display(), folder.display());
            }
        }
    }
    Ok(())
}

/// Refuses a file or directory that lies in a directory of which a cache is in use or dirty, or that is mounted elsewhere.
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

/// Why the files of a directory are not to be had without its cache, if that is so.
fn taken(directory: &Path) -> Result<Option<&'static str>> {
    match entresol_files::standing(directory).map_err(|error| refusal(directory, error))? {
        Standing::Free => Ok(None),
        Standing::InUse => Ok(Some("whose cache is in use: end that first")),
        Standing::Incomplete => Ok(Some("whose cache has what its files have not: drain that first")),
    }
}

/// Does a mount hold the directory?
fn is_served(directory: &Path) -> bool {
    let Ok(directory) = File::open(directory) else { return false };
    let locked = rustix::fs::flock(&directory, FlockOperation::NonBlockingLockShared);
    matches!(locked, Err(rustix::io::Errno::WOULDBLOCK))
}
