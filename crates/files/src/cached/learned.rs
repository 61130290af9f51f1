//! Learned state of the policy, in a file beside the map. It is no part of what the map says: without it the policy learns anew.

use super::map;
use crate::below::{Directory, For, OpenDirectory, OpenFile};
use entresol_cache::LEARNED_BYTES_MAX;
use rustix::io::Errno;
use std::io;

const NAME: &str = "learned";
const NEW: &str = "learned.new";

/// The bytes that were written last to a hidden directory; none if there are none.
pub(super) fn read(directory: &Directory) -> io::Result<Option<Vec<u8>>> {
    match directory.size_of(NAME) {
        Ok(size) if size > LEARNED_BYTES_MAX as u64 => return Ok(Some(Vec::new())),
        Err(Errno::NOENT) => return Ok(None),
        found => drop(found?),
    }
    map::read_whole(&directory.open_file(NAME, For::Reading)?).map(Some)
}

/// Writes the bytes to a hidden directory, durably. A crash leaves them or those before.
pub(super) fn write(directory: &Directory, bytes: &[u8]) -> io::Result<()> {
    let file = directory.open_file(NEW, For::Making)?;
    file.set_size(bytes.len() as u64)?;
    file.write_all_at(0, bytes)?;
    file.sync_all()?;
    directory.rename(NEW, NAME)?;
    Ok(directory.sync()?)
}
