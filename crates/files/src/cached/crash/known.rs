//! Faults of the files' layer that random runs have found, each as the shortest sequence that shows it.

use crate::below::simulated::{Call, SimDirectory, SimFile, SimFileSystem};
use crate::below::{File, FileSystem, OpenFile};
use crate::cached::disk::Below;
use crate::cached::map::{Extent, FileKey};
use crate::cached::{Backing, CachedFiles, FilesDisk};
use crate::places::Holder;
use crate::{FileData, FileId};
use entresol_cache::Block as _;
use entresol_cache::{CacheConfig, Maintenance, Mode};
use entresol_crashtest::{Power, SimDisk};
use entresol_disk::Disk as _;
use entresol_policy::catalogue;
use entresol_store::{Geometry, Layout};
use rustix::fs::{FallocateFlags, RenameFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// A change of the size of a file.
type SizeChange<'a> = &'a dyn Fn(&dyn FileData) -> io::Result<()>;

const PAGE_BYTES: u64 = 512;
const SEED: u64 = 7;

/// A directory behind a cache, all simulated.
struct Scene {
    power: Power,
    cache: SimDisk,
    below: SimFileSystem,
    config: CacheConfig,
    files: Option<CachedFiles>,
}

impl Scene {
    fn new(policy: &str, pages: usize, mode: Mode) -> Self {
        println!("seed {SEED}");
        let geometry = Geometry { page_bytes: PAGE_BYTES as u32, segment_pages: 8, segments: 16, layout: Layout::Log };
        let power = Power::steady();
        let cache = SimDisk::new(geometry.size_bytes(), &power);
        let below = SimFileSystem::new(SEED, true, &power);
        let system = FileSystem::Simulated(below.clone());
        Backing::format_in(&system, Path::new("/"), &cache, geometry, [1; 16], [9; 16], None).expect("room");
        let info = catalogue::info(policy).expect("a policy");
        let config = CacheConfig { mode, maintenance: Maintenance::Requests, ..CacheConfig::new(info, &[pages]) };
        let mut scene = Scene { power, cache, below, config, files: None };
        scene.open();
        scene
    }

    fn open(&mut self) {
        let backing = Backing::open_in(FileSystem::Simulated(self.below.clone()), Path::new("/")).expect("a map");
        let opened = CachedFiles::open(backing, self.cache.clone(), &self.config, Vec::new());
        let (files, found) = opened.expect("a cache in good order");
        assert_eq!(found.changed, 0, "nobody else changed a file");
        self.files = Some(files);
    }

    fn files(&self) -> &CachedFiles {
        self.files.as_ref().expect("open")
    }

    fn root(&self) -> SimDirectory {
        self.below.directory(Path::new("/"))
    }

    /// A file through the cache.
    fn opened(&self, file: SimFile) -> (FileId, Arc<dyn FileData>) {
        let id = OpenFile::found(&file).expect("attributes").id;
        (id, self.files().open_file(id, File::Simulated(file), true).expect("a file"))
    }

    fn create(&self, name: &str) -> Arc<dyn FileData> {
        self.opened(self.root().create(name).expect("a new file")).1
    }

    /// Power failure and restart.
    fn cut(&mut self, seed: u64) {
        self.power.fail_after(0);
        self.files = None;
        self.cache.crash(seed);
        self.below.crash(seed);
        self.power.restore();
        self.open();
    }
}

fn page(version: u8) -> Vec<u8> {
    vec![version; PAGE_BYTES as usize]
}

/// A failed sync drops the bytes that it was to write, as in file systems, and is reported once.
fn failed_sync() {
    for (policy, mode) in [("h-arc", Mode::WriteAround), ("lru", Mode::WriteThrough)] {
        let scene = Scene::new(policy, 4, mode);
        let file = scene.create("a");
        const PAGES: u8 = 40;
        let write = |version: u8| {
            (0..PAGES).for_each(|at| {
                file.write(u64::from(at) * PAGE_BYTES, &page(version)).expect("room");
            });
        };
        write(1);
        file.sync(false).expect("a sync");
        write(2);
        // The allocation is synced first: the cache has not been notified of the failure at the next read.
        file.allocate(FallocateFlags::KEEP_SIZE, 0, 2 * u64::from(PAGES) * PAGE_BYTES).expect("blocks");
        scene.below.fail(Call::Sync, 0, Errno::IO);
        assert!(file.sync(false).is_err(), "{mode:?}");
        for at in 0..PAGES {
            let mut bytes = page(0);
            file.read(u64::from(at) * PAGE_BYTES, &mut bytes).expect("a read");
            assert_eq!(bytes, page(2), "{mode:?}, page {at}");
        }
    }
}

/// Bytes that were cut off are dirty in the cache device's last durable state. So they have to be forgotten there
/// before the file gets its new name.
fn cut_and_renamed() {
    for seed in 0..40 {
        let mut scene = Scene::new("lru", 16, Mode::WriteBack);
        let (a, b) = (scene.create("a"), scene.create("b"));
        b.write(0, &page(1)).expect("room");
        b.sync(false).expect("a sync");
        a.write(0, &page(2)).expect("room");
        a.sync(false).expect("a sync");
        crate::below::OpenDirectory::sync(&scene.root()).expect("a sync");
        a.truncate(0).expect("a cut");
        a.allocate(FallocateFlags::empty(), 0, PAGE_BYTES).expect("zeroes");
        let root = scene.root();
        let names = ((&root, OsStr::new("a")), (&root, OsStr::new("b")));
        crate::rename(scene.files(), names.0, names.1, RenameFlags::empty()).expect("a new name");
        drop((a, b));
        scene.cut(seed);
        let (_, file) = scene.opened(scene.root().open("b").expect("one of the two"));
        let mut bytes = page(9);
        let read = file.read(0, &mut bytes).expect("a read");
        let is_old = bytes == page(1);
        let is_new = read == 0 || bytes == page(0);
        assert!(is_old || is_new, "seed {seed}: {read} bytes, {:?}", &bytes[..4]);
    }
}

/// A change of size fails half way, when the backing file is longer already.
fn half_way() {
    let zero = FallocateFlags::ZERO_RANGE;
    let changes: [(&str, SizeChange<'_>); 3] = [
        ("zeroes", &|file| file.allocate(zero, PAGE_BYTES / 2, 8 * PAGE_BYTES)),
        ("blocks", &|file| file.allocate(FallocateFlags::empty(), PAGE_BYTES / 2, 8 * PAGE_BYTES)),
        ("a write", &|file| file.write(PAGE_BYTES / 2, &[3; 8 * PAGE_BYTES as usize])),
    ];
    for (what, change) in changes {
        let mut failed = 0;
        for call in [Call::Read, Call::Write, Call::Sync] {
            for after in 0..3 {
                let scene = Scene::new("lru", 4, Mode::WriteAround);
                let file = scene.create("a");
                file.write(0, &[1; 700]).expect("room");
                scene.files().cache().drain().expect("room below");
                scene.below.fail(call, after, Errno::NOSPC);
                failed += u64::from(change(&*file).is_err());
                scene.below.heal();
                let below = OpenFile::found(&scene.root().open("a").expect("it is there")).expect("attributes").size;
                assert_eq!(file.size_bytes().expect("a size"), below, "{what}, {call:?} after {after}");
            }
        }
        assert!(failed > 0, "{what}");
    }
}

/// The system reports a failure once, to the descriptor that asked: here to the pool, which closes surplus descriptors.
fn let_go() {
    let below = SimFileSystem::new(SEED, true, &Power::steady());
    let file = below.directory(Path::new("/")).create("a").expect("a new file");
    file.again().allocate(FallocateFlags::empty(), 0, PAGE_BYTES).expect("room");
    let key = FileKey { inode: 1, made: 1 };
    let disk = FilesDisk::new(PAGE_BYTES);
    let file = Below::new(key, File::Simulated(file), true, (None, 0), None);
    disk.join(0, file.clone(), Extent { file: key, part: 0 });
    disk.write_at(0, &page(1)).expect("a write");
    below.fail(Call::Sync, 0, Errno::IO);
    assert!(!file.let_go(), "what is not durable stays open");
    assert!(disk.sync().is_err(), "the cache writes again what it sent");
    disk.write_at(0, &page(1)).expect("a write");
    disk.sync().expect("a sync");
}

/// A start compares files with the stamps that a close wrote. In the simulated file system one journal has the metadata
/// of all files, so a sync of the map makes it durable. Others, such as btrfs, have a log for each file: so the test
/// requires the sync itself.
fn closed() {
    for seed in 0..40 {
        let mut scene = Scene::new("lru", 16, Mode::WriteBack);
        let file = scene.create("a");
        file.write(0, &[1; 3 * PAGE_BYTES as usize]).expect("room");
        file.sync(false).expect("a sync");
        crate::below::OpenDirectory::sync(&scene.root()).expect("a sync");
        file.truncate(700).expect("a cut");
        drop(file);
        let inode = OpenFile::found(&scene.root().open("a").expect("a file")).expect("attributes").id.inode;
        let before = scene.below.whole_syncs(inode);
        scene.files().close().expect("a close");
        assert_eq!(scene.below.whole_syncs(inode), before + 1, "a close syncs what it has cached");
        scene.cut(seed);
        let (_, file) = scene.opened(scene.root().open("a").expect("a file"));
        let mut bytes = page(9);
        file.read(PAGE_BYTES, &mut bytes).expect("a read");
        assert_eq!((file.size_bytes().expect("a size"), &bytes[..188]), (700, &[1; 188][..]), "seed {seed}");
    }
}

/// Pages read from a file that was cut count as dirty until the cut is durable, though no program wrote them.
fn read_after_cut() {
    for seed in 0..40 {
        let mut scene = Scene::new("lru", 16, Mode::WriteBack);
        let file = scene.create("a");
        file.write(0, &[1; 3 * PAGE_BYTES as usize]).expect("room");
        file.sync(false).expect("a sync");
        crate::below::OpenDirectory::sync(&scene.root()).expect("a sync");
        drop(file);
        scene.files().cache().drain().expect("a drain");
        scene.files().close().expect("a close");
        scene.open();
        let (_, file) = scene.opened(scene.root().open("a").expect("a file"));
        file.truncate(0).expect("a cut");
        file.truncate(PAGE_BYTES).expect("zeroes");
        file.read(0, &mut page(9)).expect("a read");
        scene.files().cache().flush().expect("a flush");
        drop(file);
        crate::remove(scene.files(), &scene.root(), OsStr::new("a")).expect("a removal");
        // A start is not refused, whatever is left of the file.
        scene.cut(seed);
    }
}

/// A crash may keep a cut but undo the zeroes at the end of the last page. Bytes from beyond the end are not seen when
/// the file grows again. That holds even if the file was cut to nothing in between and the power fails once more.
fn regrown() {
    for seed in 0..400 {
        let mut scene = Scene::new("lru", 16, Mode::WriteBack);
        let file = scene.create("a");
        file.write(0, &[1; 1000]).expect("room");
        file.sync(false).expect("a sync");
        crate::below::OpenDirectory::sync(&scene.root()).expect("a sync");
        file.truncate(600).expect("a cut");
        drop(file);
        scene.cut(seed);
        let (_, file) = scene.opened(scene.root().open("a").expect("a file"));
        if file.size_bytes().expect("a size") != 600 {
            continue;
        }
        file.truncate(0).expect("a cut");
        file.truncate(2 * PAGE_BYTES).expect("zeroes");
        drop(file);
        scene.cut(!seed);
        let (_, file) = scene.opened(scene.root().open("a").expect("a file"));
        let mut bytes = [0; 2 * PAGE_BYTES as usize];
        let read = file.read(0, &mut bytes).expect("a read");
        assert!(bytes[600.min(read)..read].iter().all(|&byte| byte == 0), "seed {seed}: {read} bytes");
    }
}

/// A write that failed to lengthen a file has put pages into the cache. Beyond the end they become clean, for there is nothing to write
/// back. No crash brings them back once the file has grown by zeroes.
fn failed_growth() {
    const BYTES: usize = 30 * PAGE_BYTES as usize;
    let mut failed = 0;
    for seed in 0..60 {
        let mut scene = Scene::new("lru", 16, Mode::WriteThrough);
        let file = scene.create("a");
        // The map has the file's region, so that the write below which fails is one of the file.
        file.write(0, &page(1)).expect("room");
        file.sync(false).expect("a sync");
        crate::below::OpenDirectory::sync(&scene.root()).expect("a sync");
        scene.below.fail(Call::Write, seed % 3, Errno::NOSPC);
        failed += u64::from(file.write(PAGE_BYTES, &[3; BYTES]).is_err());
        scene.below.heal();
        assert!((0..4).any(|_| scene.files().cache().drain().is_ok()), "seed {seed}: a drain");
        if file.size_bytes().expect("a size") > PAGE_BYTES {
            continue;
        }
        file.truncate(BYTES as u64).expect("zeroes");
        scene.below.sync_all();
        drop(file);
        scene.cut(seed);
        let (_, file) = scene.opened(scene.root().open("a").expect("a file"));
        let mut bytes = vec![9; BYTES];
        let read = file.read(0, &mut bytes).expect("a read");
        let (first, rest) = bytes.split_at(PAGE_BYTES as usize);
        let is_right = read == BYTES && first == page(1) && rest.iter().all(|&byte| byte == 0);
        assert!(is_right, "seed {seed}: bytes of a write that failed");
    }
    assert!(failed > 0);
}

/// All scenarios: one of them finds each mutant that random runs miss.
pub(super) const SCENARIOS: [fn(); 8] =
    [failed_sync, cut_and_renamed, half_way, let_go, closed, read_after_cut, regrown, failed_growth];

#[test]
fn a_sync_below_that_fails_makes_no_read_older() {
    failed_sync();
}

#[test]
fn a_file_that_was_cut_and_renamed_over_another_has_none_of_its_old_bytes_after_a_loss_of_power() {
    cut_and_renamed();
}

#[test]
fn a_change_of_size_that_fails_half_way_is_seen_as_it_is_below() {
    half_way();
}

#[test]
fn a_sync_that_fails_where_a_descriptor_is_let_go_is_told_to_the_cache() {
    let_go();
}

#[test]
fn after_a_close_and_a_loss_of_power_files_are_as_the_close_left_them() {
    closed();
}

#[test]
fn a_file_that_was_read_after_a_cut_and_removed_is_missed_by_no_start() {
    read_after_cut();
}

#[test]
fn a_file_that_grows_after_a_crash_kept_a_cut_shows_nothing_of_before() {
    regrown();
}

#[test]
fn a_file_that_grows_after_a_write_that_failed_to_lengthen_it_shows_nothing_of_that() {
    failed_growth();
}
