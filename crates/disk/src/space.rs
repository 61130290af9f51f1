//! Space for a cache in a file: all of it at once, or none.

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, fstatvfs};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;

/// Makes a file at least `size_bytes` long and allocates all its blocks, so that none can be missing later. Where
/// the file system cannot allocate (EOPNOTSUPP), the file only gets the length. The contents stay.
///
/// # Errors
/// `StorageFull` if the file system lacks the space; otherwise its error. The file then has its former length and
/// holes.
pub fn take_room(file: &File, size_bytes: u64) -> io::Result<Taken> {
    let before = file.metadata()?;
    check_free(file, size_bytes.saturating_sub(before.blocks() * 512))?;
    let taken = Taken { length: before.len(), holes: holes(file, before.len().min(size_bytes))? };
    match fallocate(file, FallocateFlags::empty(), 0, size_bytes) {
        Ok(()) => {}
        Err(Errno::OPNOTSUPP | Errno::NOSYS) if before.len() >= size_bytes => {}
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => file.set_len(size_bytes)?,
        Err(error) => {
            taken.give_back(file);
            return Err(error.into());
        }
    }
    Ok(taken)
}

/// Former state of a file that was given space.
#[derive(Debug)]
pub struct Taken {
    length: u64,
    holes: Vec<Range<u64>>,
}

impl Taken {
    /// Gives the space back. On an error less space becomes free, and the file is still sound.
    pub fn give_back(&self, file: &File) {
        let _shorter = file.set_len(self.length);
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        for hole in &self.holes {
            let _empty = fallocate(file, punch, hole.start, hole.end - hole.start);
        }
    }
}

/// Refuses a request that cannot succeed. Trying it would take the file system's last space from others for a moment.
fn check_free(file: &File, needed: u64) -> io::Result<()> {
    let found = fstatvfs(file)?;
    let free = found.f_bfree.saturating_mul(found.f_frsize);
    // File systems that count no blocks say 0.
    if found.f_blocks == 0 || needed <= free {
        return Ok(());
    }
    let why = format!("it would take {needed} bytes more, and its file system has {free}");
    Err(io::Error::new(io::ErrorKind::StorageFull, why))
}

/// Holes of a file before `end`; none if every block is allocated, written or not.
fn holes(file: &File, end: u64) -> io::Result<Vec<Range<u64>>> {
    let (mut holes, mut at) = (Vec::new(), 0);
    if file.metadata()?.blocks() * 512 >= end {
        return Ok(holes);
    }
    while at < end {
        let from = match rustix::fs::seek(file, SeekFrom::Hole(at)) {
            Ok(from) => from,
            // A file system without knowledge of holes has none to give back.
            Err(Errno::INVAL | Errno::NXIO | Errno::OPNOTSUPP) => break,
            Err(error) => return Err(error.into()),
        };
        let to = match rustix::fs::seek(file, SeekFrom::Data(from)) {
            Ok(to) => to.min(end),
            Err(Errno::NXIO) => end,
            Err(error) => return Err(error.into()),
        };
        if from < to {
            holes.push(from..to);
        }
        at = to.max(from + 1);
    }
    Ok(holes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    const MIB: u64 = 1 << 20;

    #[test]
    fn room_is_taken_for_holes_too_and_bytes_stay() {
        let file = tempfile::tempfile().expect("a file");
        file.write_all_at(&[7; 8192], 3 * MIB).and_then(|()| file.set_len(8 * MIB)).expect("a sparse file");
        take_room(&file, 5 * MIB).expect("there is room");
        let found = file.metadata().expect("metadata");
        assert_eq!(found.len(), 8 * MIB, "it is never cut off");
        assert!(found.blocks() * 512 >= 5 * MIB, "{} blocks", found.blocks());
        let mut bytes = [0; 8192];
        file.read_exact_at(&mut bytes, 3 * MIB).expect("a read");
        assert_eq!(bytes, [7; 8192]);
        take_room(&file, 9 * MIB).expect("there is room");
        assert_eq!(file.metadata().expect("metadata").len(), 9 * MIB);
    }

    #[test]
    fn what_was_taken_in_vain_is_given_back() {
        let file = tempfile::tempfile().expect("a file");
        file.write_all_at(&[7; 8192], 3 * MIB).and_then(|()| file.set_len(8 * MIB)).expect("a sparse file");
        let (before, empty) = (file.metadata().expect("metadata"), holes(&file, 8 * MIB).expect("holes"));
        assert_eq!(empty, [0..3 * MIB, 3 * MIB + 8192..8 * MIB]);
        take_room(&file, 16 * MIB).expect("there is room").give_back(&file);
        let after = file.metadata().expect("metadata");
        assert_eq!((after.len(), after.blocks()), (before.len(), before.blocks()));
        let mut bytes = [0; 8192];
        file.read_exact_at(&mut bytes, 3 * MIB).expect("a read");
        assert_eq!(bytes, [7; 8192]);
    }
}
