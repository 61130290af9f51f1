//! A backing directory and its mount, where this system allows mounts.

use entresol_cache::{CacheConfig, Mode};
use entresol_disk::{Caching, Disk, FileDisk};
use entresol_files::{Backing, CachedFiles, DirectFiles, FileLayer};
use entresol_fuse::{Keep, Mount, Options};
use entresol_store::{Geometry, Layout};
use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;

pub struct Mounted {
    pub mount: Option<Mount>,
    cached: Option<Arc<CachedFiles>>,
    directory: tempfile::TempDir,
}

/// Pages of the cache of a mounted directory: so few that most are evicted.
const CACHED_PAGES: usize = 100;

/// A holder that holds nothing.
#[derive(Debug)]
struct Nobody;

impl Keep for Nobody {
    fn keep(&self, _: &str, _: BorrowedFd<'_>) -> io::Result<()> {
        Ok(())
    }

    fn forget(&self, _: &str) {}
}

/// Runs a test on the backing files without a cache, and through a small cache in two of its modes; each with the
/// kernel's page cache and without. Without a cache also with passthrough, where the kernel grants it, and with a table
/// of what outlives the server.
pub fn each(test: impl Fn(Mounted)) {
    Mounted::with(Arc::new(DirectFiles), Options::default()).into_iter().for_each(&test);
    let held = Options { keep: Some(Arc::new(Nobody)), ..Options::default() };
    Mounted::with(Arc::new(DirectFiles), held).into_iter().for_each(&test);
    for page_cache in [false, true] {
        let options = || Options { page_cache, passthrough: false, ..Options::default() };
        let direct = Mounted::with(Arc::new(DirectFiles), options());
        direct.into_iter().for_each(&test);
        let cached = |mode| Mounted::cached_by(mode, options(), |cache| cache);
        [Mode::WriteBack, Mode::WriteThrough].into_iter().filter_map(cached).for_each(&test);
    }
}

impl Mounted {
    /// Mounts a directory whose layer sees every request. `None`, with a note, where no mount is possible.
    pub fn new(layer: Arc<dyn FileLayer>) -> Option<Self> {
        Self::with(layer, Options { page_cache: false, ..Options::default() })
    }

    /// As [`new`](Self::new), with other options.
    pub fn with(layer: Arc<dyn FileLayer>, options: Options) -> Option<Self> {
        let mut mounted = Self::prepared();
        mounted.start(layer, options).then_some(mounted)
    }

    /// Mounts with these options, through a cache on the device that `device` makes.
    pub fn cached_by<C: Disk + 'static>(
        mode: Mode,
        options: Options,
        device: impl FnOnce(FileDisk) -> C,
    ) -> Option<Self> {
        let mut mounted = Self::prepared();
        let cache = FileDisk::create(&mounted.directory.path().join("cache"), 1 << 20, Caching::Buffered).unwrap();
        let cache = device(cache);
        let geometry = Geometry { page_bytes: 4096, segment_pages: 8, segments: 30, layout: Layout::Log };
        Backing::format(&mounted.backing(), &cache, geometry, [1; 16], [2; 16]).unwrap();
        let policy = entresol_policy::catalogue::info("face-gsc").unwrap();
        let config = CacheConfig { mode, ..CacheConfig::new(policy, &[CACHED_PAGES / 10, CACHED_PAGES]) };
        let backing = Backing::open(&mounted.backing()).unwrap();
        let (files, _) = CachedFiles::open(backing, cache, &config, Vec::new()).unwrap();
        let files = Arc::new(files);
        mounted.cached = Some(files.clone());
        mounted.start(files, options).then_some(mounted)
    }

    /// Writes everything to the backing files.
    pub fn complete(&self) {
        self.cached.iter().for_each(|files| files.cache().drain().unwrap());
    }

    fn prepared() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["backing", "mount", "plain"] {
            std::fs::create_dir(directory.path().join(name)).unwrap();
        }
        Self { mount: None, cached: None, directory }
    }

    /// Mounts the directory. False, with a note that the test is skipped, where no mount is possible.
    fn start(&mut self, layer: Arc<dyn FileLayer>, options: Options) -> bool {
        if let Err(error) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse") {
            entresol_skip::skipped!("/dev/fuse", "/dev/fuse: {error}");
            return false;
        }
        match Mount::start(&self.backing(), &self.path(), layer, options) {
            Ok(mount) => self.mount = Some(mount),
            Err(error) if error.to_string().contains("ermitted") => {
                entresol_skip::skipped!("/dev/fuse", "{error}");
                return false;
            }
            Err(error) => panic!("{error}"),
        }
        true
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join("mount")
    }

    pub fn backing(&self) -> PathBuf {
        self.directory.path().join("backing")
    }

    /// Another directory, not mounted.
    pub fn plain(&self) -> PathBuf {
        self.directory.path().join("plain")
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    pub fn below(&self, name: &str) -> PathBuf {
        self.backing().join(name)
    }

    /// Unmounts in order, which fails while a file is open.
    pub fn unmount(&mut self) {
        self.mount.take().unwrap().unmount().unwrap();
    }
}
