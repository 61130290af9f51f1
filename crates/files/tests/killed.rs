//! A server is killed, and the next process goes on. It has the backing directory and a removed file by descriptors
//! alone, and the memory that outlived the server.
#![cfg(target_os = "linux")]

use entresol_cache::CacheConfig;
use entresol_disk::{Caching, FileDisk};
use entresol_files::{Backing, CachedFiles, FileData, FileId, FileLayer, FileStates};
use entresol_policy::catalogue;
use entresol_store::arena::Arena;
use entresol_store::{Geometry, Layout};
use rustix::fs::{MemfdFlags, Mode, OFlags, memfd_create};
use std::env;
use std::fs::{self, File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Variable with the directory of a server's process.
const PLACE: &str = "ENTRESOL_KILLED_PLACE";
const PAGE_BYTES: usize = 4096;
const SEGMENT_PAGES: u32 = 256;

/// The number in a variable: measurements set others.
fn number(variable: &str, otherwise: usize) -> usize {
    env::var(variable).map_or(otherwise, |number| number.parse().expect("a number"))
}

fn files() -> usize {
    number("ENTRESOL_KILLED_FILES", 20)
}

/// Bytes of each file.
fn bytes() -> usize {
    (number("ENTRESOL_KILLED_MIB", 2) << 20) / files() / PAGE_BYTES * PAGE_BYTES
}

fn geometry() -> Geometry {
    let pages = (files() * bytes() / PAGE_BYTES) as u32;
    Geometry {
        page_bytes: PAGE_BYTES as u32,
        segment_pages: SEGMENT_PAGES,
        segments: 2 * pages / SEGMENT_PAGES + 16,
        layout: Layout::Log,
    }
}

fn device(place: &Path) -> FileDisk {
    FileDisk::create(&place.join("cache"), geometry().size_bytes(), Caching::Buffered).expect("a file")
}

fn config(arena: Arc<Arena>) -> CacheConfig {
    let pages = files() * bytes() / PAGE_BYTES + 100;
    CacheConfig { arena: Some(arena), ..CacheConfig::new(catalogue::info("lru").expect("a policy"), &[pages]) }
}

/// Time that this thread has had a processor.
fn on_cpu() -> Duration {
    let times = fs::read_to_string("/proc/thread-self/schedstat").expect("the kernel counts it");
    Duration::from_nanos(times.split(' ').next().and_then(|time| time.parse().ok()).expect("nanoseconds"))
}

fn open(files: &CachedFiles, path: &Path) -> (FileId, Arc<dyn FileData>) {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).expect("a file");
    let found = file.metadata().expect("attributes");
    let id = FileId { device: found.dev(), inode: found.ino() };
    (id, files.open(id, file, true).expect("a file"))
}

/// A server that writes files, removes an open one, and waits for its end.
fn serve(place: &Path) {
    let memory = |name: &str| {
        let path = fs::read_to_string(place.join(name)).expect("a path");
        OpenOptions::new().read(true).write(true).open(path).expect("memory of the test")
    };
    let arena = Arena::create(memory("arena"), PAGE_BYTES, SEGMENT_PAGES as usize).expect("an arena");
    let states = FileStates::create(memory("states")).expect("states");
    let backing = Backing::open(&place.join("backing")).expect("a map").keeping(states);
    let (served, _) = CachedFiles::open(backing, device(place), &config(arena), Vec::new()).expect("a cache");
    for at in 0..files() {
        let (_, file) = open(&served, &place.join(format!("backing/{at}")));
        file.write(0, &vec![at as u8; bytes()]).expect("a write");
        file.settle().expect("a time");
    }
    let removed = place.join("backing/removed");
    let (id, file) = open(&served, &removed);
    file.write(0, &[77; 3 * PAGE_BYTES]).expect("a write");
    served.leaving(id, &|| Ok(File::open(place.join("backing"))?.into())).expect("it may leave");
    fs::remove_file(&removed).expect("its name goes");
    fs::write(place.join("ready"), "").expect("a file");
    std::thread::sleep(Duration::from_secs(600));
}

#[test]
fn the_next_process_serves_what_a_killed_one_had_answered() {
    if let Some(place) = env::var_os(PLACE) {
        return serve(&PathBuf::from(place));
    }
    let place = tempfile::tempdir().expect("a directory");
    let place = place.path();
    let backing = place.join("backing");
    fs::create_dir(&backing).expect("a directory");
    let made = device(place);
    Backing::format(&backing, &made, geometry(), [1; 16], [2; 16]).expect("room");
    drop(made);
    fs::write(backing.join("removed"), "").expect("a file");
    let held =
        |path: &Path| rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).expect("it is there");
    let (directory, removed) = (held(&backing), held(&backing.join("removed")));
    let memory = ["arena", "states"].map(|name| {
        let memory = File::from(memfd_create(name, MemfdFlags::CLOEXEC).expect("memory"));
        let path = format!("/proc/{}/fd/{}", std::process::id(), memory.as_raw_fd());
        fs::write(place.join(name), path).expect("a file");
        memory
    });
    let name = "the_next_process_serves_what_a_killed_one_had_answered";
    let mut server = Command::new(env::current_exe().expect("this program"));
    let server = server.args(["--exact", name]).env(PLACE, place).stdout(Stdio::null());
    let mut server = server.spawn().expect("another process");
    let until = Instant::now() + Duration::from_secs(300);
    while !place.join("ready").exists() {
        assert!(Instant::now() < until && server.try_wait().expect("its state").is_none(), "it ends early");
        std::thread::sleep(Duration::from_millis(5));
    }
    // The path leads elsewhere from now on, as it does below a mount.
    fs::rename(&backing, place.join("elsewhere")).and_then(|()| fs::create_dir(&backing)).expect("another directory");
    server.kill().expect("it ends");
    let (started, on_cpu_before) = (Instant::now(), on_cpu());
    let [arena, states] = memory;
    let states = FileStates::open(states).expect("states");
    let id = {
        let found = File::from(removed.try_clone().expect("a descriptor")).metadata().expect("attributes");
        FileId { device: found.dev(), inode: found.ino() }
    };
    let again = removed.try_clone().expect("a descriptor");
    // The lock goes with the last thread of the killed process.
    let next = Backing::open_held(directory.as_fd(), &backing, Duration::from_secs(20)).expect("a map");
    let next = next.keeping(states).with_open(vec![again]);
    let arena = Arena::open(arena).expect("an arena");
    let opened = CachedFiles::open(next, device(place), &config(arena), Vec::new());
    let (served, found) = opened.expect("a cache in good order");
    let (took, on_cpu) = (started.elapsed(), on_cpu() - on_cpu_before);
    println!("{} files of {} KiB: served after {took:?}, {on_cpu:?} of it on a processor", files(), bytes() >> 10);
    server.wait().expect("its end");
    assert_eq!((found.files, found.gone, found.changed, found.conflicts), (files() + 1, 0, 0, 0), "{found:?}");
    for at in 0..files() {
        let (_, file) = open(&served, &place.join(format!("elsewhere/{at}")));
        let mut read = vec![0; bytes()];
        assert_eq!(file.read(0, &mut read).expect("a read"), bytes());
        assert!(read.iter().all(|&byte| byte == at as u8), "file {at}");
    }
    let file = OpenOptions::new().read(true).write(true).open(format!("/proc/self/fd/{}", removed.as_raw_fd()));
    let file = served.open(id, file.expect("the file"), true).expect("a handle");
    let mut read = [0; 3 * PAGE_BYTES];
    assert_eq!(file.read(0, &mut read).expect("a read"), read.len());
    assert_eq!(read, [77; 3 * PAGE_BYTES]);
    drop(file);
    served.removed(id);
    served.close().expect("a close in good order");
    assert_eq!(fs::read_dir(&backing).expect("a directory").count(), 0, "nothing is written elsewhere");
}
