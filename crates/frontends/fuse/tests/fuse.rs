//! The FUSE front-end: the effect of each operation on the backing files, seen from both sides. No test here maps a
//! file: a process that serves a mount must not, because its page faults would wait for itself.
//! `crates/cli/tests/mount.rs` does.

mod support;

use entresol_cache::{Mode, PathError};
use entresol_device::profile::Profile;
use entresol_disk::{Disk, FileDisk};
use entresol_files::{
    AtOnce, DirectFile, DirectFiles, EmulatedFiles, FileData, FileId, FileLayer, HIDDEN, OpenDirectory, Sought,
};
use entresol_fuse::{Error, Mount, Options};
use rustix::fs::{AtFlags, FallocateFlags, RenameFlags};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use support::{Mounted, each};

const O_DIRECT: i32 = 0o40000;

fn direct() -> Option<Mounted> {
    Mounted::new(Arc::new(DirectFiles))
}

fn open(path: impl AsRef<std::path::Path>) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// Names in a directory, without the cache's own.
fn names(path: &std::path::Path) -> Vec<String> {
    let entries = fs::read_dir(path).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| name != HIDDEN);
    names.sort();
    names
}

#[test]
fn what_is_written_to_the_mount_is_in_the_backing_file_and_the_other_way_round() {
    each(|mut mounted| {
        fs::write(mounted.at("a"), b"from above").unwrap();
        mounted.complete();
        assert_eq!(fs::read(mounted.below("a")).unwrap(), b"from above");
        fs::write(mounted.below("b"), b"from below").unwrap();
        assert_eq!(fs::read(mounted.at("b")).unwrap(), b"from below");
        let large: Vec<u8> = (0..5_000_001_u32).map(|i| (i * 7 % 251) as u8).collect();
        fs::write(mounted.at("large"), &large).unwrap();
        assert!(fs::read(mounted.at("large")).unwrap() == large);
        mounted.complete();
        assert!(fs::read(mounted.below("large")).unwrap() == large);
        mounted.unmount();
        assert_eq!(fs::read_dir(mounted.path()).unwrap().count(), 0);
    });
}

#[test]
fn sizes_are_exact_after_every_operation() {
    each(|mounted| {
        let mut file = open(mounted.at("f"));
        let size = |file: &mut File| {
            let by_seek = file.seek(SeekFrom::End(0)).unwrap();
            let by_stat = fs::metadata(mounted.at("f")).unwrap().len();
            assert_eq!(by_seek, by_stat);
            assert_eq!(by_stat, fs::metadata(mounted.below("f")).unwrap().len());
            by_stat
        };
        file.write_all_at(&[1; 8192], 0).unwrap();
        assert_eq!(size(&mut file), 8192);
        file.write_all_at(&[1; 10], 100_000).unwrap();
        assert_eq!(size(&mut file), 100_010);
        file.set_len(5).unwrap();
        assert_eq!(size(&mut file), 5);
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 20_000).unwrap();
        assert_eq!(size(&mut file), 20_000);
        rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 50_000).unwrap();
        assert_eq!(size(&mut file), 20_000);
        let mut appending = OpenOptions::new().append(true).open(mounted.at("f")).unwrap();
        for end in 1..=20 {
            appending.write_all(&[2; 100]).unwrap();
            assert_eq!(size(&mut file), 20_000 + end * 100);
        }
        assert_eq!(file.read_at(&mut [0; 4096], 21_990).unwrap(), 10, "a read across the end is short");
        assert_eq!(file.read_at(&mut [0; 4096], 22_000).unwrap(), 0);
    });
}

#[test]
fn a_file_may_be_renamed_replaced_and_removed_while_it_is_open() {
    each(|mounted| {
        let file = open(mounted.at("a"));
        file.write_all_at(b"first", 0).unwrap();
        fs::rename(mounted.at("a"), mounted.at("b")).unwrap();
        file.write_all_at(b"F", 0).unwrap();
        mounted.complete();
        assert_eq!(fs::read(mounted.below("b")).unwrap(), b"First");
        fs::write(mounted.at("c"), b"second").unwrap();
        fs::rename(mounted.at("c"), mounted.at("b")).unwrap();
        assert_eq!(fs::read(mounted.at("b")).unwrap(), b"second");
        let mut bytes = [0; 5];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"First", "the open file is the one that was replaced");
        let second = open(mounted.at("b"));
        fs::remove_file(mounted.at("b")).unwrap();
        second.write_all_at(b"still written", 0).unwrap();
        second.read_exact_at(&mut bytes, 6).unwrap();
        assert_eq!(&bytes, b"writt");
        second.sync_all().unwrap();
        assert_eq!(second.metadata().unwrap().len(), 13);
        assert_eq!(second.metadata().unwrap().nlink(), 0);
        assert_eq!(names(&mounted.below("")), [""; 0]);
    });
}

#[test]
fn renames_follow_their_flags() {
    each(|mounted| {
        fs::write(mounted.at("a"), b"a").unwrap();
        fs::write(mounted.at("b"), b"b").unwrap();
        let rename = |flags| {
            rustix::fs::renameat_with(rustix::fs::CWD, mounted.at("a"), rustix::fs::CWD, mounted.at("b"), flags)
        };
        assert_eq!(rename(RenameFlags::NOREPLACE), Err(rustix::io::Errno::EXIST));
        rename(RenameFlags::EXCHANGE).unwrap();
        assert_eq!(fs::read(mounted.at("a")).unwrap(), b"b");
        mounted.complete();
        assert_eq!(fs::read(mounted.below("b")).unwrap(), b"a");
    });
}

#[test]
fn sparse_files_stay_sparse() {
    each(|mounted| {
        let file = open(mounted.at("f"));
        file.set_len(1 << 30).unwrap();
        file.write_all_at(&[7; 4096], 512 << 20).unwrap();
        let blocks = |path| fs::metadata(path).unwrap().blocks();
        assert!(blocks(mounted.at("f")) <= 64, "{}", blocks(mounted.at("f")));
        assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)).unwrap(), 512 << 20);
        assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(512 << 20)).unwrap(), (512 << 20) + 4096);
        let beyond = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(600 << 20));
        assert_eq!(beyond, Err(rustix::io::Errno::NXIO));
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, punch, 512 << 20, 4096).unwrap();
        file.sync_all().unwrap();
        assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)), Err(rustix::io::Errno::NXIO));
        let mut bytes = [1; 4096];
        file.read_exact_at(&mut bytes, 512 << 20).unwrap();
        assert_eq!(bytes, [0; 4096]);
        let collapse = rustix::fs::fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096);
        assert_eq!(collapse, Err(rustix::io::Errno::OPNOTSUPP));
    });
}

#[test]
fn names_and_attributes_are_the_backing_directorys() {
    each(|mounted| {
        fs::create_dir_all(mounted.at("d/e")).unwrap();
        fs::write(mounted.at("d/e/f"), b"x").unwrap();
        fs::hard_link(mounted.at("d/e/f"), mounted.at("d/g")).unwrap();
        std::os::unix::fs::symlink("e/f", mounted.at("d/s")).unwrap();
        assert_eq!(fs::read(mounted.at("d/s")).unwrap(), b"x");
        fs::set_permissions(mounted.at("d/g"), fs::Permissions::from_mode(0o640)).unwrap();
        let below = fs::metadata(mounted.below("d/e/f")).unwrap();
        let above = fs::metadata(mounted.at("d/e/f")).unwrap();
        assert_eq!((below.mode() & 0o7777, below.nlink()), (0o640, 2));
        assert_eq!((above.mode(), above.ino(), above.uid()), (below.mode(), below.ino(), below.uid()));
        let time = std::time::SystemTime::UNIX_EPOCH + Duration::from_nanos(1_234_567_890_123_456_789);
        File::open(mounted.at("d/g")).unwrap().set_modified(time).unwrap();
        assert_eq!(fs::metadata(mounted.below("d/g")).unwrap().modified().unwrap(), time);
        assert_eq!(fs::metadata(mounted.at("d/g")).unwrap().modified().unwrap(), time);
        assert_eq!(names(&mounted.at("d")), ["e", "g", "s"]);
        assert_eq!(fs::remove_dir(mounted.at("d")).unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
        for i in 0..3000 {
            fs::write(mounted.at(&format!("d/e/many-{i}")), b"").unwrap();
        }
        assert_eq!(names(&mounted.at("d/e")), names(&mounted.below("d/e")));
        assert_eq!(names(&mounted.at("d/e")).len(), 3001);
        let total = rustix::fs::statvfs(mounted.path()).unwrap().f_blocks;
        assert_eq!(total, rustix::fs::statvfs(mounted.backing()).unwrap().f_blocks);
    });
}

#[test]
fn extended_attributes_are_the_backing_files() {
    each(|mounted| {
        fs::write(mounted.at("f"), b"").unwrap();
        let flags = rustix::fs::XattrFlags::empty();
        if let Err(error) = rustix::fs::setxattr(mounted.below("f"), "user.probe", b"x", flags) {
            entresol_skip::skipped!("place", "the backing file system has none: {error}");
            return;
        }
        rustix::fs::setxattr(mounted.at("f"), "user.colour", b"green", flags).unwrap();
        let mut value = [0; 16];
        assert_eq!(rustix::fs::getxattr(mounted.below("f"), "user.colour", &mut value).unwrap(), 5);
        assert_eq!(rustix::fs::getxattr(mounted.at("f"), "user.colour", &mut value).unwrap(), 5);
        assert_eq!(&value[..5], b"green");
        // Programs ask for the length before they allocate a buffer.
        assert_eq!(rustix::fs::getxattr_query(mounted.at("f"), "user.colour"), Ok(5));
        let names = rustix::fs::listxattr_query(mounted.below("f")).unwrap();
        assert!(names > "user.colour".len());
        assert_eq!(rustix::fs::listxattr_query(mounted.at("f")), Ok(names));
        let none = rustix::fs::getxattr(mounted.at("f"), "user.none", &mut value);
        assert_eq!(none, Err(rustix::io::Errno::NODATA));
        let mut names = [0; 64];
        let length = rustix::fs::listxattr(mounted.at("f"), &mut names).unwrap();
        let names = String::from_utf8_lossy(&names[..length]).into_owned();
        assert!(names.contains("user.colour\0") && names.contains("user.probe\0"), "{names:?}");
        rustix::fs::removexattr(mounted.at("f"), "user.colour").unwrap();
        let gone = rustix::fs::getxattr(mounted.below("f"), "user.colour", &mut value);
        assert_eq!(gone, Err(rustix::io::Errno::NODATA));
    });
}

#[test]
fn directories_can_be_synced() {
    each(|mounted| {
        fs::create_dir(mounted.at("d")).unwrap();
        fs::write(mounted.at("d/f"), b"x").unwrap();
        File::open(mounted.at("d")).unwrap().sync_all().unwrap();
        File::open(mounted.path()).unwrap().sync_data().unwrap();
    });
}

#[test]
fn a_file_may_be_opened_with_o_direct_and_at_any_offset() {
    each(|mounted| {
        let file =
            OpenOptions::new().read(true).write(true).create_new(true).custom_flags(O_DIRECT).open(mounted.at("f"));
        let file = file.unwrap();
        file.write_all_at(&[5; 12288], 4096).unwrap();
        file.write_all_at(b"odd", 4099).unwrap();
        let mut bytes = [0; 7];
        file.read_exact_at(&mut bytes, 4097).unwrap();
        assert_eq!(&bytes, b"\x05\x05odd\x05\x05");
    });
}

#[test]
fn locks_are_kept_by_the_kernel() {
    each(|mounted| {
        let (first, second) = (open(mounted.at("f")), open(mounted.at("f")));
        first.lock().unwrap();
        assert!(second.try_lock().is_err());
        first.unlock().unwrap();
        second.try_lock().unwrap();
    });
}

/// Files that record the requests to them, and whose reads can be held up.
#[derive(Default)]
struct Noting {
    calls: Mutex<Vec<String>>,
    held: Mutex<bool>,
    /// Closes are held up with the reads.
    holds_closes: AtomicBool,
    released: Condvar,
    open: Mutex<Vec<FileId>>,
    /// Requests to read that were answered at once.
    reads: AtomicUsize,
}

struct Layer(Arc<Noting>);

struct Noted(DirectFile, FileId, Arc<Noting>);

impl Noting {
    fn note(&self, call: impl Into<String>) {
        self.calls.lock().unwrap().push(call.into());
    }

    fn taken(&self) -> Vec<String> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }
}

impl FileLayer for Layer {
    fn open(&self, id: FileId, file: File, writable: bool) -> io::Result<Arc<dyn FileData>> {
        self.0.note(format!("open {writable}"));
        self.0.open.lock().unwrap().push(id);
        Ok(Arc::new(Noted(DirectFile(file), id, self.0.clone())))
    }
    fn leaving(&self, _: FileId, _: OpenDirectory<'_>) -> io::Result<()> {
        self.0.note("leaving");
        Ok(())
    }
    fn stays(&self, _: FileId) {
        self.0.note("stays");
    }
    fn replacing(&self, _: FileId) -> io::Result<()> {
        self.0.note("replacing");
        Ok(())
    }
    fn removed(&self, id: FileId) {
        assert!(!self.0.open.lock().unwrap().contains(&id), "removed while open");
        self.0.note("removed");
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        self.2.open.lock().unwrap().retain(|id| *id != self.1);
        self.2.note("close");
        if self.2.holds_closes.load(Relaxed) {
            drop(self.2.released.wait_while(self.2.held.lock().unwrap(), |held| *held).unwrap());
        }
    }
}

impl FileData for Noted {
    fn size_bytes(&self) -> io::Result<u64> {
        self.0.size_bytes()
    }
    fn read_now(&self, offset: u64, bytes: &mut [u8]) -> io::Result<AtOnce> {
        if *self.2.held.lock().unwrap() {
            return Ok(AtOnce::First(0));
        }
        self.2.reads.fetch_add(1, Relaxed);
        self.0.read_now(offset, bytes)
    }
    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.2.note("miss");
        drop(self.2.released.wait_while(self.2.held.lock().unwrap(), |held| *held).unwrap());
        self.0.read(offset, bytes)
    }
    fn write_now(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        // An odd part at once, the rest later.
        self.0.write_now(offset, &bytes[..bytes.len() / 3])
    }
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write(offset, bytes)
    }
    fn sync(&self, data_only: bool) -> io::Result<()> {
        self.2.note(format!("sync {data_only}"));
        self.0.sync(data_only)
    }
    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.0.truncate(bytes)
    }
    fn allocate(&self, _: FallocateFlags, _: u64, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::StorageFull.into())
    }
    fn seek(&self, sought: Sought, offset: u64) -> io::Result<u64> {
        self.0.seek(sought, offset)
    }
}

fn noting() -> Option<(Mounted, Arc<Noting>)> {
    noting_below(false)
}

fn noting_below(page_cache: bool) -> Option<(Mounted, Arc<Noting>)> {
    let noting = Arc::new(Noting::default());
    let options = Options { page_cache, ..Options::default() };
    Mounted::with(Arc::new(Layer(noting.clone())), options).map(|mounted| (mounted, noting))
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..10_000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("never came: {what}");
}

#[test]
fn all_handles_of_a_file_share_its_bytes_until_the_last_is_closed() {
    let Some((mounted, noting)) = noting() else { return };
    let writer = open(mounted.at("f"));
    fs::hard_link(mounted.at("f"), mounted.at("g")).unwrap();
    let reader = File::open(mounted.at("g")).unwrap();
    writer.write_all_at(&[8; 9000], 0).unwrap();
    let mut bytes = vec![0; 9000];
    reader.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, [8; 9000]);
    assert_eq!(noting.taken(), ["open true"]);
    drop(writer);
    fs::remove_file(mounted.at("f")).unwrap();
    fs::remove_file(mounted.at("g")).unwrap();
    assert_eq!(reader.metadata().unwrap().len(), 9000);
    assert_eq!(noting.taken(), ["leaving", "stays", "leaving"], "one handle is left");
    drop(reader);
    eventually("the end of the file", || noting.calls.lock().unwrap().len() == 2);
    assert_eq!(noting.taken(), ["close", "removed"]);
}

/// Requests to read that reach the layer when 64 pages are read one after the other, twice.
fn asked_twice(file: &File, noting: &Noting) -> [usize; 2] {
    [(); 2].map(|()| {
        let before = noting.reads.load(Relaxed);
        for page in 0..64 {
            let mut bytes = [0; 4096];
            file.read_exact_at(&mut bytes, page * 4096).unwrap();
            assert_eq!(bytes, [page as u8 + 1; 4096]);
        }
        noting.reads.load(Relaxed) - before
    })
}

#[test]
fn a_page_cache_above_reads_ahead_and_answers_what_it_holds_and_o_direct_goes_past_it() {
    let bytes: Vec<u8> = (0..64).flat_map(|page| [page + 1; 4096]).collect();
    for page_cache in [true, false] {
        let Some((mounted, noting)) = noting_below(page_cache) else { return };
        fs::write(mounted.below("f"), &bytes).unwrap();
        let [first, second] = asked_twice(&File::open(mounted.at("f")).unwrap(), &noting);
        if page_cache {
            assert!(first < 64, "{first} requests to read for 64 pages");
            assert_eq!(second, 0, "all is there");
            assert_eq!(
                asked_twice(&File::open(mounted.at("f")).unwrap(), &noting),
                [0, 0],
                "it stays when it is closed"
            );
        } else {
            assert_eq!([first, second], [64, 64]);
        }
        let direct = OpenOptions::new().read(true).custom_flags(O_DIRECT).open(mounted.at("f")).unwrap();
        assert_eq!(asked_twice(&direct, &noting), [64, 64]);
    }
}

#[test]
fn a_write_to_a_file_opened_with_o_dsync_is_durable_when_it_returns() {
    const O_DSYNC: i32 = 0o10000;
    const O_SYNC: i32 = 0o4010000;
    let Some((mounted, noting)) = noting() else { return };
    for (flag, expected) in [(O_DSYNC, "sync true"), (O_SYNC, "sync false")] {
        let file = OpenOptions::new().write(true).create(true).truncate(false).custom_flags(flag).open(mounted.at("f"));
        let file = file.unwrap();
        noting.taken();
        file.write_all_at(b"durable", 0).unwrap();
        assert!(noting.taken().contains(&expected.to_owned()), "{expected}");
    }
    let file = open(mounted.at("f"));
    noting.taken();
    file.sync_data().unwrap();
    file.sync_all().unwrap();
    assert_eq!(noting.taken(), ["sync true", "sync false"]);
}

#[test]
fn misses_do_not_hold_up_what_is_behind_them() {
    let Some((mounted, noting)) = noting() else { return };
    fs::write(mounted.at("f"), [4; 4096]).unwrap();
    *noting.held.lock().unwrap() = true;
    let path = mounted.at("f");
    // More readers than session threads.
    let readers: Vec<_> = (0..8)
        .map(|_| {
            let path = path.clone();
            std::thread::spawn(move || {
                let mut bytes = [0; 16];
                File::open(path).unwrap().read_exact(&mut bytes).unwrap();
                bytes
            })
        })
        .collect();
    eventually("the misses", || noting.calls.lock().unwrap().iter().filter(|call| *call == "miss").count() == 8);
    fs::write(mounted.at("g"), b"not held up").unwrap();
    assert_eq!(fs::metadata(mounted.at("g")).unwrap().len(), 11);
    *noting.held.lock().unwrap() = false;
    noting.released.notify_all();
    for reader in readers {
        assert_eq!(reader.join().unwrap(), [4; 16]);
    }
}

/// A cache device whose reads can be held up.
struct SlowDevice {
    device: FileDisk,
    noting: Arc<Noting>,
}

impl Disk for SlowDevice {
    fn size_bytes(&self) -> u64 {
        self.device.size_bytes()
    }
    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        let held = self.noting.held.lock().unwrap();
        if *held {
            self.noting.note("miss");
        }
        drop(self.noting.released.wait_while(held, |held| *held).unwrap());
        self.device.read_at(at, bytes)
    }
    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.device.write_at(at, bytes)
    }
    fn sync(&self) -> io::Result<()> {
        self.device.sync()
    }
    fn discard(&self, at: u64, bytes: u64) -> io::Result<()> {
        self.device.discard(at, bytes)
    }
}

#[test]
fn hits_are_answered_while_every_worker_waits_for_the_cache_device() {
    let noting = Arc::new(Noting::default());
    // One session thread, and no worker that could answer a hit.
    let options = Options { session_threads: 1, workers: 2, page_cache: false, ..Options::default() };
    let slow = |device| SlowDevice { device, noting: noting.clone() };
    let Some(mounted) = Mounted::cached_by(Mode::WriteBack, options, slow) else { return };
    let file = open(mounted.at("f"));
    // More pages than fit memory; the pages read last are there.
    for page in 0..40_u8 {
        file.write_all_at(&[page; 4096], u64::from(page) * 4096).unwrap();
    }
    file.sync_all().unwrap();
    let mut bytes = [0; 4096];
    file.read_exact_at(&mut bytes, 39 * 4096).unwrap();
    *noting.held.lock().unwrap() = true;
    std::thread::scope(|scope| {
        for page in [3, 4, 5] {
            let path = mounted.at("f");
            scope.spawn(move || {
                let mut bytes = [0; 4096];
                open(path).read_exact_at(&mut bytes, u64::from(page) * 4096).unwrap();
                assert_eq!(bytes, [page; 4096]);
            });
        }
        eventually("the misses", || noting.calls.lock().unwrap().iter().filter(|call| *call == "miss").count() == 2);
        for _ in 0..1000 {
            file.read_exact_at(&mut bytes, 39 * 4096).unwrap();
            assert_eq!(bytes, [39; 4096]);
        }
        *noting.held.lock().unwrap() = false;
        noting.released.notify_all();
    });
}

#[test]
fn an_error_of_the_layer_reaches_the_program() {
    let Some((mounted, _)) = noting() else { return };
    let file = open(mounted.at("f"));
    let full = rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 4096);
    assert_eq!(full, Err(rustix::io::Errno::IO), "an error without a number of the system is one of I/O");
}

#[test]
fn a_directory_is_served_once_and_only_directories_are() {
    let Some(mounted) = direct() else { return };
    let again = tempfile::tempdir().unwrap();
    let layer = || Arc::new(DirectFiles) as Arc<dyn FileLayer>;
    let start =
        |backing: &std::path::Path, at: &std::path::Path| Mount::start(backing, at, layer(), Options::default());
    assert!(matches!(start(&mounted.backing(), again.path()), Err(Error::Path(PathError::InUse(_)))));
    let file = again.path().join("file");
    fs::write(&file, b"").unwrap();
    assert!(matches!(start(&file, again.path()), Err(Error::Path(PathError::System { .. }))));
    assert!(matches!(start(again.path(), &file), Err(Error::Path(PathError::System { .. }))));
    assert!(matches!(start(again.path(), &again.path().join("absent")), Err(Error::Path(PathError::System { .. }))));
}

#[test]
fn it_stays_mounted_while_files_are_open_unless_it_is_dropped() {
    each(|mut mounted| {
        let file = open(mounted.at("f"));
        let unmounter = mounted.mount.as_ref().unwrap().unmounter();
        let busy = unmounter.unmount().unwrap_err().to_string();
        assert!(busy.contains("busy"), "{busy}");
        file.write_all_at(b"still served", 0).unwrap();
        drop(file);
        mounted.unmount();
        unmounter.unmount().unwrap();
        mounted.complete();
        assert_eq!(fs::read(mounted.below("f")).unwrap(), b"still served");
    });
}

/// The kernel may give the number of a mount to the next one while the server of the first is still busy.
#[test]
fn a_server_that_ends_late_does_not_end_the_next_mount() {
    for _ in 0..20 {
        let Some((mut first, noting)) = noting() else { return };
        noting.holds_closes.store(true, Relaxed);
        *noting.held.lock().unwrap() = true;
        // The kernel waits for no answer to a close.
        drop(open(first.at("f")));
        eventually("the close", || noting.calls.lock().unwrap().contains(&"close".to_owned()));
        let mount = first.mount.take().unwrap();
        let device = fs::metadata(first.path()).unwrap().dev();
        mount.unmounter().unmount().unwrap();
        let Some(second) = direct() else { return };
        // Another test may have been given the number.
        let is_next = fs::metadata(second.path()).unwrap().dev() == device;
        std::thread::scope(|scope| {
            let ended = scope.spawn(|| mount.wait());
            // Longer than the end of a mount may take.
            std::thread::sleep(Duration::from_secs(if is_next { 4 } else { 0 }));
            *noting.held.lock().unwrap() = false;
            noting.released.notify_all();
            ended.join().unwrap().unwrap();
        });
        if is_next {
            fs::write(second.at("f"), "served").unwrap();
            assert_eq!(fs::read_to_string(second.below("f")).unwrap(), "served", "it went to a mount");
            return;
        }
    }
    panic!("the number was never given again");
}

#[test]
fn another_file_system_below_the_backing_directory_is_not_entered() {
    let Some(mounted) = direct() else { return };
    fs::create_dir(mounted.below("inner")).unwrap();
    let Some(inner) = Mounted::new(Arc::new(DirectFiles)) else { return };
    let other =
        Mount::start(&inner.plain(), &mounted.below("inner"), Arc::new(DirectFiles), Options::default()).unwrap();
    let error = fs::read_dir(mounted.at("inner")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CrossesDevices);
    other.unmount().unwrap();
    let empty = rustix::fs::statat(rustix::fs::CWD, mounted.at("inner"), AtFlags::empty());
    assert!(empty.is_ok());
}

#[test]
fn an_emulated_file_keeps_its_bytes_and_takes_the_time_of_its_own_device() {
    const READ: Duration = Duration::from_millis(20);
    const WRITE: Duration = Duration::from_millis(10);
    const CAPACITY: u64 = 1 << 20;
    let text = "name = \"slow\"\nabout = \"slow\"\nsource = \"made up\"\n[device]\nkind = \"fixed\"\nread_ns = 20000000\nwrite_ns = 10000000\nparallelism = 1\n";
    let profile = Profile::from_toml("slow", text).unwrap();
    let layer = Arc::new(EmulatedFiles::new(move || profile.build(CAPACITY, 1).map_err(io::Error::other)));
    let Some(mut mounted) = Mounted::new(layer.clone()) else { return };
    let file = open(mounted.at("a"));
    let timed = |least: Duration, act: &dyn Fn()| {
        let began = Instant::now();
        act();
        assert!(began.elapsed() >= least, "{:?} of {least:?}", began.elapsed());
    };
    let page = |byte| [byte; 4096];
    timed(4 * WRITE, &|| (0..4).for_each(|i| file.write_all_at(&page(i as u8), i * 4096).unwrap()));
    // The device does one I/O at a time.
    let read = |i: u64| {
        let mut bytes = page(99);
        file.read_exact_at(&mut bytes, i * 4096).unwrap();
        assert_eq!(bytes, page(i as u8));
    };
    timed(4 * READ, &|| std::thread::scope(|scope| (0..4).for_each(|i| drop(scope.spawn(move || read(i))))));
    assert_eq!(file.read_at(&mut page(0), 4 * 4096).unwrap(), 0, "the end needs no device");
    let beyond = file.write_all_at(&page(1), CAPACITY - 4095).unwrap_err();
    assert_eq!(beyond.kind(), ErrorKind::StorageFull);
    assert_eq!(file.set_len(CAPACITY + 1).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(layer.accuracy().late.count(), 8);

    // The counts of a file's device stay after the file is closed, and after it is removed.
    drop(file);
    timed(READ, &|| assert_eq!(fs::read(mounted.at("a")).unwrap().len(), 4 * 4096));
    assert!(fs::read(mounted.below("a")).unwrap().chunks(4096).zip(0..).all(|(bytes, i)| bytes == page(i)));
    let after_reading = layer.accuracy().late.count();
    assert!(after_reading > 8);
    fs::remove_file(mounted.at("a")).unwrap();
    let large = File::create(mounted.below("large")).unwrap();
    large.set_len(CAPACITY + 1).unwrap();
    assert_eq!(File::open(mounted.at("large")).unwrap_err().kind(), ErrorKind::FileTooLarge);
    mounted.unmount();
    assert_eq!(layer.accuracy().late.count(), after_reading);
}
