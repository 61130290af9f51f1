//! File systems below mounts: the one of temporary files, or one of its own on a loop device.

use super::sys;
use crate::common::Scratch;
use crate::common::image::Image;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// The environment variable that names the file system of the long tests; unset, or `here`, that of temporary files.
const BELOW: &str = "ENTRESOL_POSIX_BELOW";

/// MiB of a file system on a loop device, most of them a hole. Btrfs gives a small one so little room for names and attributes that the
/// scenarios fill it.
const MIB: u64 = 8192;

/// A kind of file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Ext4,
    Xfs,
    Btrfs,
    /// One of which no differences are known.
    Other,
}

/// A place for directories that are mounted.
pub struct Testbed {
    at: PathBuf,
    // The file system goes before the directory that it is mounted in.
    _image: Option<Image>,
    _scratch: Option<Scratch>,
}

impl Testbed {
    /// The file system of temporary files.
    pub fn here() -> Self {
        Testbed { at: std::env::temp_dir(), _image: None, _scratch: None }
    }

    /// One of this name on a loop device. None, said and counted, where that cannot be.
    pub fn of(name: &str) -> Option<Self> {
        let scratch = Scratch::new();
        // Nobody must get there too.
        let may_enter = std::fs::Permissions::from_mode(0o711);
        std::fs::set_permissions(scratch.path("."), may_enter).expect("a mode");
        let program = format!("mkfs.{name}");
        let image = Image::new(scratch.path("below"), MIB, &[&program, "-q"])?;
        Some(Testbed { at: image.at.clone(), _image: Some(image), _scratch: Some(scratch) })
    }

    /// The one that the environment names.
    pub fn chosen() -> Option<Self> {
        match std::env::var(BELOW).unwrap_or_default().as_str() {
            "" | "here" => Some(Self::here()),
            name => Self::of(name),
        }
    }

    /// A directory of its own.
    pub fn scratch(&self) -> Scratch {
        Scratch::within(&self.at)
    }

    /// Its file system.
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
