//! Identity of a file.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// Identity of a backing file: its inode and time of creation. Both stay when the file is renamed, and when the machine
/// restarts. A copy is another file, as it should be: the cache does not follow its changes.
///
/// # Errors
/// `InvalidInput` for a block device, whose number may be another's after a restart, and for anything else that
/// is not a file.
pub fn file_identity(path: &Path) -> io::Result<[u8; 16]> {
    let found = std::fs::metadata(path)?;
    let refused = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    if found.file_type().is_block_device() {
        return refused("is a block device, whose name may be another's after a restart; give a file");
    }
    if !found.is_file() {
        return refused("is not a file");
    }
    let made = found.created().ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    let made = made.map_or(0, |since| since.as_nanos() as u64);
    let mut identity = [0; 16];
    identity[..8].copy_from_slice(&found.ino().to_le_bytes());
    identity[8..].copy_from_slice(&made.to_le_bytes());
    Ok(identity)
}
