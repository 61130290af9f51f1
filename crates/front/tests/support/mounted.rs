//! A backing directory and its mount, where this system lets us mount.

use entresol_front::files::FileLayer;
use entresol_front::fuse::{Mount, Options};
use std::path::PathBuf;
use std::sync::Arc;

pub struct Mounted {
    pub mount: Option<Mount>,
    directory: tempfile::TempDir,
}

impl Mounted {
    /// `None`, with a word about it, where nothing can be mounted.
    pub fn new(layer: Arc<dyn FileLayer>) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        for name in ["backing", "mount", "plain"] {
            std::fs::create_dir(directory.path().join(name)).unwrap();
        }
        if let Err(error) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse") {
            println!("skipped: /dev/fuse: {error}");
            return None;
        }
        let mut mounted = Self { mount: None, directory };
        match Mount::start(&mounted.backing(), &mounted.path(), layer, Options::default()) {
            Ok(mount) => mounted.mount = Some(mount),
            Err(error) if error.to_string().contains("ermitted") => {
                println!("skipped: {error}");
                return None;
            }
            Err(error) => panic!("{error}"),
        }
        Some(mounted)
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join("mount")
    }

    pub fn backing(&self) -> PathBuf {
        self.directory.path().join("backing")
    }

    /// Another directory, of the system itself.
    pub fn plain(&self) -> PathBuf {
        self.directory.path().join("plain")
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    pub fn below(&self, name: &str) -> PathBuf {
        self.backing().join(name)
    }

    /// Unmounts in order, which fails while something is open.
    pub fn unmount(&mut self) {
        self.mount.take().unwrap().unmount().unwrap();
    }
}
