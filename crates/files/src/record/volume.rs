//! The btrfs subvolume in which a file or directory lies. A snapshot keeps inodes and their times of making, but has a
//! UUID of its own.

use rustix::ioctl::{Getter, Opcode, opcode};
use std::io;
use std::os::fd::AsFd;

/// `BTRFS_SUPER_MAGIC` of linux/magic.h.
const BTRFS: i64 = 0x9123_683e;

/// `struct btrfs_ioctl_get_subvol_info_args` of linux/btrfs.h, Linux 4.18; only the fields up to `uuid` are named.
#[repr(C)]
struct SubvolumeInfo {
    tree: u64,
    name: [u8; 256],
    parent: u64,
    directory: u64,
    generation: u64,
    flags: u64,
    uuid: [u8; 16],
    rest: [u64; 24],
}

/// `BTRFS_IOC_GET_SUBVOL_INFO`.
const GET_SUBVOLUME_INFO: Opcode = opcode::read::<SubvolumeInfo>(0x94, 60);

/// UUID of the subvolume; none on another file system, or if the subvolume has none.
pub(crate) fn of(file: impl AsFd) -> io::Result<Option<[u8; 16]>> {
    let file = file.as_fd();
    // The type's width differs from one system to another.
    #[allow(clippy::unnecessary_cast)]
    if rustix::fs::fstatfs(file)?.f_type as i64 != BTRFS {
        return Ok(None);
    }
    // SAFETY: the opcode is the kernel's for this structure, which it fills whole.
    let info = unsafe { rustix::ioctl::ioctl(file, Getter::<GET_SUBVOLUME_INFO, SubvolumeInfo>::new()) };
    match info {
        Ok(info) => Ok(Some(info.uuid).filter(|uuid| *uuid != [0; 16])),
        // Before Linux 4.18.
        Err(rustix::io::Errno::NOTTY | rustix::io::Errno::INVAL) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structure_is_as_long_as_the_kernels() {
        assert_eq!(size_of::<SubvolumeInfo>(), 504);
        assert_eq!(std::mem::offset_of!(SubvolumeInfo, uuid), 296);
    }
}
