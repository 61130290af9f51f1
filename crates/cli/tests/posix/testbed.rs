//! File systems below mounts: that of temporary files, or one on a loop device.

use super::sys;
use crate::common::Scratch;
use crate::common::image::Image;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// The environment variable that names the file system of the long tests; unset, or `here`, that of temporary files.
const BELOW: &str = "ENTRESOL_POSIX_BELOW";

/// MiB of a file system on a loop device, most of them a hole. A small btrfs has so little space for names and
/// attributes that the scenarios fill it.
const MIB: u64 = 8192;

/// A kind of file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Ext4,
    Xfs,
    Btrfs,
    /// A file system of which no differences are known.
    Other,
}

/// A place for directories that are mounted.
pub struct Testbed {
    at: PathBuf,
    // The file system is dropped before the directory that it is mounted in.
    _image: Option<Image>,
    _scratch: Option<Scratch>,
}

impl Testbed {
    /// The file system of temporary files.
    pub fn here() -> Self {
        Testbed { at: std::env::temp_dir(), _image: None, _scratch: None }
    }

    /// The file system of this name on a loop device. None, printed and counted, where that is impossible.
    pub fn of(name: &str) -> Option<Self> {
        let scratch = Scratch::new();
        // The user nobody must be able to enter it too.
        let may_enter = std::fs::Permissions::from_mode(0o711);
        std::fs::set_permissions(scratch.path("."), may_enter).expect("a mode");
        let program = format!("mkfs.{name}");
        let image = Image::new(scratch.path("below"), MIB, &[&program, "-q"])?;
        Some(Testbed { at: image.at.clone(), _image: Some(image), _scratch: Some(scratch) })
    }

    /// The file system that the environment names.
    pub fn chosen() -> Option<Self> {
        match std::env::var(BELOW).unwrap_or_default().as_str() {
            "" | "here" => Some(Self::here()),
            name => Self::of(name),
        }
    }

    /// A new scratch directory.
    pub fn scratch(&self) -> Scratch {
        Scratch::within(&self.at)
    }

    /// Kind of the file system.
    pub fn kind(&self) -> Kind {
        // Numbers of linux/magic.h.
        match sys::statfs(&self.at).expect("a file system").f_type {
            0xEF53 => Kind::Ext4,
            0x5846_5342 => Kind::Xfs,
            0x9123_683E => Kind::Btrfs,
            _ => Kind::Other,
        }
    }
}
