//! A backing directory and its mount, where this system lets us mount.

use entresol_front::fuse::{FileLayer, Mount, Options};
use std::path::{Path, PathBuf};
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

/// Everything in a directory: names, kinds, modes, links, sizes and bytes, in order.
pub fn contents(directory: &Path) -> Vec<String> {
    use std::os::unix::fs::MetadataExt;
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let data = std::fs::symlink_metadata(&path).unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let mut line = format!("{name} {:o}", data.mode());
        if data.is_dir() {
            found.extend(contents(&path).into_iter().map(|line| format!("{name}/{line}")));
        } else if data.is_symlink() {
            line += &format!(" -> {}", std::fs::read_link(&path).unwrap().display());
        } else {
            let bytes = std::fs::read(&path).unwrap();
            assert_eq!(bytes.len() as u64, data.len());
            // FNV-1a, so that a difference of bytes is seen in a short line.
            let hash = bytes
                .iter()
                .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
            line += &format!(" {} links, {} bytes {hash:x}", data.nlink(), data.len());
        }
        found.push(line);
    }
    found.sort();
    found
}
