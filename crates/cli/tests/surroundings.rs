//! Surroundings of a mount that it does not control: folders without access, a shell's limit on the size of files,
//! programs that replace files and sync nothing, long paths, attributes that change.

mod common;

use common::mounted::{How, Mounted};
use common::served::{reached, terminate};
use common::{Scratch, Signal, says};
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::{Command, Stdio};
use std::time::Duration;

const PAGE: usize = 4096;

/// A mount by nobody; none where this test cannot be another user, or nothing can be mounted.
fn by_nobody(cache: bool) -> Option<Mounted> {
    if !rustix::process::geteuid().is_root() {
        entresol_skip::skipped!("root", "only root can act as another user");
        return None;
    }
    let cache = cache.then_some((["write-back", "lru"], &[][..]));
    let how = How { cache, page_cache: "off", passthrough: "off", nobody: true };
    let mut mounted = Mounted::made(Scratch::new(), &how);
    mounted.start().then_some(mounted)
}

/// lost+found is root's, and no user can inspect the mount of a killed server. No file with pages lies there.
#[test]
fn folders_that_cannot_be_looked_into_stop_no_start_drain_or_check() {
    let Some(mut mounted) = by_nobody(true) else { return };
    for name in ["lost+found", "dead"] {
        fs::create_dir(mounted.below().join(name)).expect("a directory");
    }
    fs::set_permissions(mounted.below().join("lost+found"), Permissions::from_mode(0o700)).expect("another mode");
    let put = |mounted: &Mounted, folder: &str| {
        fs::create_dir(mounted.above().join(folder)).expect("a directory");
        let file = File::create(mounted.above().join(folder).join("f")).expect("a file");
        file.write_all_at(folder.as_bytes(), 0).and_then(|()| file.sync_all()).expect("a write");
    };
    let folders = ["a", "b", "c", "d", "e"];
    folders.iter().for_each(|folder| put(&mounted, folder));
    let mut other = by_nobody(false).expect("the first could be mounted");
    mount_bind(other.above(), mounted.below().join("dead")).expect("a mount");
    other.signal(Signal::KILL);
    assert_eq!(other.end().0, None, "it was killed");
    mounted.signal(Signal::TERM);
    assert_eq!(mounted.end(), (Some(0), String::new()));
    let started = mounted.start();
    let found: Vec<_> = folders
        .iter()
        .map(|folder| fs::read(mounted.above().join(folder).join("f")).map_err(|error| error.to_string()))
        .collect();
    // Checks and drains, with both still there.
    if started {
        mounted.unmount();
    }
    unmount(mounted.below().join("dead"), UnmountFlags::DETACH).expect("it was there");
    assert!(started);
    for (folder, found) in folders.iter().zip(found) {
        assert_eq!(found, Ok(folder.as_bytes().to_vec()), "{folder}, above");
        assert_eq!(
            fs::read(mounted.below().join(folder).join("f")).expect("a file"),
            folder.as_bytes(),
            "{folder}, below"
        );
    }
}

/// A write beyond the limit fails. The signal that comes with it, SIGXFSZ, ends no server.
#[test]
fn a_limit_on_the_size_of_files_refuses_a_write_and_ends_no_mount() {
    let Some(mut mounted) = Mounted::with(Some(["write-back", "lru"])) else { return };
    let set =
        Command::new("prlimit").args(["--pid", &mounted.process().to_string(), "--fsize=4194304:4194304"]).status();
    assert!(set.expect("prlimit runs").success());
    let large = File::create(mounted.above().join("large")).expect("a file");
    let write = |at: u64| large.write_all_at(&[7; 65536], at << 16);
    let written = (0..128).try_for_each(write).and_then(|()| large.sync_all());
    assert!(written.is_err(), "8 MiB are more than 4");
    drop(large);
    fs::write(mounted.above().join("small"), "bytes").expect("others are served");
    assert_eq!(fs::read(mounted.above().join("small")).expect("a read"), b"bytes");
    mounted.unmount();
    assert_eq!(fs::read(mounted.below().join("small")).expect("a read"), b"bytes");
}

/// Programs replace a file by a rename, or truncate it and write it anew, and sync nothing. The file systems that
/// entresol caches write such bytes before the new name can be durable. For a file truncated to 0 they begin when it
/// is closed.
#[test]
fn a_file_that_was_replaced_without_a_sync_is_whole_after_a_kill() {
    for (layout, renamed) in
        [("log", true), ("slots", true), ("segments", true), ("log", false), ("slots", false), ("segments", false)]
    {
        let Some(mut mounted) = Mounted::with_layout(["write-back", "lru"], "off", layout) else { return };
        let path = mounted.above().join("file");
        let (old, new) = (vec![b'o'; 5 * PAGE], vec![b'n'; 5 * PAGE]);
        let file = File::create(&path).expect("a file");
        file.write_all_at(&old, 0).and_then(|()| file.sync_all()).expect("a write");
        drop(file);
        if renamed {
            fs::write(path.with_extension("new"), &new).expect("a file");
            fs::rename(path.with_extension("new"), &path).expect("a rename");
        } else {
            fs::write(&path, &new).expect("it is cut to nothing, written and closed");
            // A close starts the write-back, and no call waits for it.
            std::thread::sleep(Duration::from_secs(1));
        }
        mounted.signal(Signal::KILL);
        assert_eq!(mounted.end().0, None, "it was killed");
        assert!(mounted.start());
        let found = fs::read(&path).expect("a file");
        let what = format!("{layout}, renamed: {renamed}, {} bytes, the first is {:?}", found.len(), found.first());
        assert!(found == new, "{what}");
        mounted.unmount();
    }
}

/// The address of a socket takes 108 bytes of path; caches lie deeper.
#[test]
fn a_server_whose_cache_has_a_long_path_is_asked_and_set() {
    let scratch = Scratch::new();
    let folder = "d".repeat(150);
    fs::create_dir(scratch.path(&folder)).expect("a folder");
    scratch.file("disk", vec![0; 1 << 20]);
    let cache = format!("{folder}/cache");
    scratch.format(&["--cache", &cache, "--backing", "disk", "--size", "2MiB"]);
    let mut command = scratch.command(&["serve", "nbd", "--backing", "disk", "--cache", &cache, "--socket", "s"]);
    let mut server = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command runs");
    drop(reached(&scratch, &mut server));
    says(&scratch.ok(&["stats", &cache]), &["served by"]);
    says(&scratch.ok(&["set", "--cache", &cache, "dirty-high=50"]), &["45.0 %"]);
    terminate(server);
}

/// A backup by hard links, a relabelling or a `chmod` at each start of a container changes no bytes that a cache has.
#[test]
fn attributes_that_change_while_nobody_serves_refuse_no_drain_and_no_start() {
    let Some(mut mounted) = Mounted::with(Some(["write-back", "lru"])) else { return };
    let below = mounted.below().join("file");
    let other = mounted.scratch.path("link");
    let link = || fs::hard_link(&below, &other).expect("a link");
    let chmod = || fs::set_permissions(&below, Permissions::from_mode(0o640)).expect("a mode");
    let changes: [(u8, bool, &dyn Fn()); 4] =
        [(1, true, &link), (2, true, &chmod), (3, false, &link), (4, false, &chmod)];
    let (above, both) = (mounted.above().join("file"), ["--cache", "cache", "--backing", "backing"]);
    for (byte, drained, change) in changes {
        let file = File::options().write(true).create(true).truncate(false).open(&above).expect("a file");
        file.write_all_at(&[byte; PAGE], 0).and_then(|()| file.sync_all()).expect("a write");
        drop(file);
        mounted.signal(Signal::TERM);
        let (code, said) = mounted.end();
        assert_eq!(code, Some(0), "{said}");
        let _none_yet = fs::remove_file(&other);
        change();
        mounted.scratch.ok(&[&["check"], &both[..]].concat());
        if drained {
            mounted.scratch.ok(&[&["-q", "drain"], &both[..]].concat());
            assert_eq!(fs::read(&below).expect("a file"), [byte; PAGE]);
        }
        assert!(mounted.start());
        assert_eq!(fs::read(&above).expect("a file"), [byte; PAGE]);
    }
}

/// In a bare root nothing is mounted at /proc, by which files are reached: the message says so, not that some file is
/// missing.
#[test]
fn without_proc_that_is_the_reason() {
    if !rustix::process::geteuid().is_root() {
        entresol_skip::skipped!("root", "only root can cover /proc for a process");
        return;
    }
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("backing")).expect("a directory");
    let shell = "mount -t tmpfs none /proc && exec \"$0\" format --cache cache --backing backing --size 4MiB";
    let mut command = Command::new("unshare");
    command.args(["-m", "--propagation", "private", "sh", "-c", shell, common::PROGRAM]);
    let output = command.current_dir(scratch.path(".")).output().expect("unshare is in util-linux");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    says(&said, &["/proc is not mounted"]);
    assert!(!scratch.path("cache").exists());
}
