//! The epoch of the coordinator on its disk.

use crate::pfs::{FileSystem, Mounted, replace};
use entresol_burst::Epoch;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;

const FILE: &str = "epoch.json";
const LOCK: &str = "lock";

#[derive(Serialize, Deserialize)]
struct Stored {
    epoch: u32,
}

/// The state directory, locked by this process.
#[derive(Debug)]
pub struct StateDirectory {
    _lock: File,
}

/// Raises the epoch in a state directory. The new epoch is durable afterwards.
///
/// # Errors
/// When another coordinator uses the directory, its file is not an epoch, or a write or sync fails.
pub fn raise(folder: &Path) -> io::Result<(StateDirectory, Epoch)> {
    fs::create_dir_all(folder)?;
    let lock = OpenOptions::new().write(true).create(true).truncate(false).open(folder.join(LOCK))?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| {
        let error = io::Error::from(error);
        io::Error::new(error.kind(), format!("{}: another coordinator uses it: {error}", folder.display()))
    })?;
    let last = match fs::read(folder.join(FILE)) {
        Ok(bytes) => serde_json::from_slice::<Stored>(&bytes)?.epoch,
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(error),
    };
    let epoch = last.checked_add(1).ok_or_else(|| io::Error::other("no higher epoch"))?;
    replace(&Mounted, folder, "epoch.json.tmp", FILE, &mut &serde_json::to_vec(&Stored { epoch })?[..])?;
    if let Some(parent) = folder.canonicalize()?.parent() {
        Mounted.sync_directory(parent)?;
    }
    Ok((StateDirectory { _lock: lock }, Epoch(epoch)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_start_has_a_higher_epoch_and_the_directory_alone() {
        let scratch = tempfile::tempdir().expect("a directory");
        let folder = scratch.path().join("state");
        let (held, first) = raise(&folder).expect("a new directory");
        assert_eq!(first, Epoch(1));
        assert!(raise(&folder).expect_err("it is locked").to_string().contains("another coordinator"));
        drop(held);
        assert_eq!(raise(&folder).expect("it is free").1, Epoch(2));
        // A crash before the rename leaves a temporary file.
        fs::write(folder.join("epoch.json.tmp"), b"{").expect("a file");
        assert_eq!(raise(&folder).expect("it is ignored").1, Epoch(3));
        fs::write(folder.join(FILE), b"{\"epo").expect("a file");
        assert!(raise(&folder).is_err(), "a damaged epoch is not taken for none");
    }
}
