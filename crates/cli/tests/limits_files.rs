//! Read-only files, file systems below that refuse writes, and blocks for writes into holes.

mod common;

use common::image::Image;
use common::mounted::{Mounted, UNBOUNDED};
use common::{Scratch, Signal, crash, ended_well, says, signal};
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::process::{Child, Command, Stdio};

const MIB: usize = 1 << 20;
const NOBODY: u32 = 65534;
const BOTH: [&str; 4] = ["--cache", "cache", "--backing", "backing"];

/// The command as a user other than root who may mount.
fn as_nobody(scratch: &Scratch, arguments: &[&str]) -> Command {
    // The program is run by its descriptor, because nobody may not be able to reach its path.
    let shell = "exec setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=+sys_admin --ambient-caps=+sys_admin \
                 /proc/self/fd/3 \"$@\" 3<\"$0\"";
    let mut command = Command::new("sh");
    command.args(["-c", shell, env!("CARGO_BIN_EXE_entresol")]).args(arguments).current_dir(scratch.path("."));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn ended(mut child: Child) -> (Option<i32>, String) {
    let mut said = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    (child.wait().expect("an end").code(), said)
}

/// A directory and a cache owned by nobody; none where this test cannot be another user.
fn of_nobody() -> Option<Scratch> {
    if !rustix::process::getuid().is_root() {
        entresol_skip::skipped!("root", "only root can be two users");
        return None;
    }
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("backing")).expect("a directory");
    fs::create_dir(scratch.path("mount")).expect("a directory");
    for name in [".", "backing", "mount"] {
        chown(scratch.path(name), Some(NOBODY), Some(NOBODY)).expect("another owner");
    }
    let format = ["-q", "format", "--mode=write-back", "--cache", "cache", "--backing", "backing", "--size", "2MiB"];
    let made = as_nobody(&scratch, &format).output().expect("a shell");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Some(scratch)
}

/// Mounts as nobody; none where nothing can be mounted.
fn mounted(scratch: &Scratch) -> Option<Child> {
    let mount = ["-q", "mount", "backing", "mount", "--cache", "cache", "--policy", "lru", "--allow-root"];
    let mut server = as_nobody(scratch, &mount).spawn().expect("a shell");
    let mut line = String::new();
    BufReader::new(server.stdout.take().expect("a pipe")).read_line(&mut line).expect("text");
    if line.is_empty() {
        let _skipped = ended_well(server);
        return None;
    }
    Some(server)
}

#[test]
fn a_dirty_file_without_write_bits_is_drained_by_its_owner() {
    let Some(scratch) = of_nobody() else { return };
    let Some(server) = mounted(&scratch) else { return };
    for name in ["f", "g"] {
        let mut file = File::create(scratch.path("mount").join(name)).expect("a file");
        file.write_all(b"synced data\n").expect("a write");
        file.set_permissions(Permissions::from_mode(0o444)).expect("another mode");
        file.sync_all().expect("a sync");
    }
    signal(server.id(), Signal::TERM);
    ended_well(server);
    assert_eq!(scratch.bytes("backing/f"), [0; 12], "it is in the cache alone");
    // Served again, its owner's server can write it back.
    let server = mounted(&scratch).expect("it could be mounted");
    assert_eq!(scratch.read("mount/f"), "synced data\n");
    scratch.ok(&["set", "--cache", "cache", "mode=write-through"]);
    assert_eq!(scratch.read("backing/f"), "synced data\n");
    signal(server.id(), Signal::TERM);
    ended_well(server);
    let drained = as_nobody(&scratch, &[&["drain"], &BOTH[..]].concat()).output().expect("a shell");
    assert!(drained.status.success(), "{}", String::from_utf8_lossy(&drained.stderr));
    for name in ["backing/f", "backing/g"] {
        assert_eq!(scratch.read(name), "synced data\n");
        assert_eq!(fs::metadata(scratch.path(name)).expect("attributes").mode() & 0o7777, 0o444, "{name}");
    }
    scratch.ok(&[&["check"], &BOTH[..]].concat());
}

#[test]
fn a_file_that_cannot_be_written_is_named_at_the_stop_and_by_a_drain() {
    let Some(scratch) = of_nobody() else { return };
    let Some(mut server) = mounted(&scratch) else { return };
    let mut file = File::create(scratch.path("mount/f")).expect("a file");
    file.write_all(b"synced data\n").and_then(|()| file.sync_all()).expect("a write");
    drop(file);
    // After a kill the file has no stamp: the owner is all that the server sees.
    crash(server.id());
    server.wait().expect("an end");
    let _gone = rustix::mount::unmount(scratch.path("mount"), rustix::mount::UnmountFlags::DETACH);
    chown(scratch.path("backing/f"), Some(0), Some(0)).expect("another owner");
    let server = mounted(&scratch).expect("it could be mounted");
    assert_eq!(scratch.read("mount/f"), "synced data\n");
    signal(server.id(), Signal::TERM);
    let (code, said) = ended(server);
    assert_eq!(code, Some(2), "{said}");
    says(&said, &["the cache alone has bytes of 1 file that cannot be written, first: f: Permission denied"]);
    let drained = as_nobody(&scratch, &[&["drain"], &BOTH[..]].concat()).output().expect("a shell");
    assert_eq!(drained.status.code(), Some(2));
    says(
        &String::from_utf8_lossy(&drained.stderr),
        &["1 page could not be written below (Permission denied", ": 1 page of f; "],
    );
    // Root, or the owner once more, can.
    scratch.ok(&[&["-q", "drain"], &BOTH[..]].concat());
    assert_eq!(scratch.read("backing/f"), "synced data\n");
}

#[test]
fn a_read_only_file_system_below_is_read_and_checked() {
    let scratch = Scratch::new();
    let Some(image) = Image::new(scratch.path("fs"), 64, &["mkfs.ext4", "-q"]) else { return };
    fs::create_dir_all(scratch.path("fs/b/pg_wal")).expect("a directory");
    fs::create_dir(scratch.path("mount")).expect("a directory");
    std::os::unix::fs::symlink("fs/b", scratch.path("backing")).expect("a link");
    let bytes: Vec<u8> = (0..MIB).map(|at| (at / 4096 + 1) as u8).collect();
    for name in ["read", "never", "pg_wal/1"] {
        fs::write(scratch.path("backing").join(name), &bytes).expect("a file");
    }
    scratch.format(&["--cache", "cache", "--backing", "backing", "--size", "8MiB"]);
    // Writes that are not durable when the file system fails would be lost without a cache too.
    File::open(&image.at).and_then(|root| Ok(rustix::fs::syncfs(root)?)).expect("a sync");
    let mut mounted = Mounted::over(scratch, ["write-back", "lru"]);
    if !mounted.start() {
        return;
    }
    let above = |name: &str| fs::read(mounted.above().join(name));
    assert!(above("read").expect("a read") == bytes);
    File::create(mounted.above().join("written"))
        .and_then(|mut file| file.write_all(&bytes).and(file.sync_all()))
        .unwrap();
    image.break_off();
    assert!(fs::write(mounted.below().join("new"), "").is_err(), "it is read-only now");
    for name in ["read", "written", "never", "pg_wal/1"] {
        assert!(above(name).unwrap_or_else(|error| panic!("{name}: {error}")) == bytes, "{name}");
        fs::metadata(mounted.above().join(name)).expect("attributes");
    }
    assert!(fs::write(mounted.above().join("never"), "x").is_err());
    mounted.signal(Signal::TERM);
    let (code, said) = mounted.end();
    assert_eq!(code, Some(2), "what is left is said: {said}");
    image.mend("ro");
    let both = [&["check"], &BOTH[..]].concat();
    says(&mounted.scratch.ok(&both), &["256 dirty"]);
    mounted.change("read-only", "lru");
    assert!(mounted.start());
    let above = |name: &str| fs::read(mounted.above().join(name));
    for name in ["read", "written", "never", "pg_wal/1"] {
        assert!(above(name).unwrap_or_else(|error| panic!("{name}: {error}")) == bytes, "{name}");
    }
    let opened = OpenOptions::new().write(true).open(mounted.above().join("written"));
    assert!(opened.and_then(|file| file.write_all_at(b"x", 0)).is_err());
    mounted.signal(Signal::TERM);
    assert_eq!(mounted.end(), (Some(0), String::new()));
    mounted.scratch.ok(&both);
    image.remount("rw");
    mounted.scratch.ok(&[&["-q", "drain"], &BOTH[..]].concat());
    assert!(fs::read(mounted.below().join("written")).expect("a read") == bytes);
    image.remount("ro");
    mounted.scratch.ok(&both);
    assert!(mounted.start());
    assert!(fs::read(mounted.above().join("written")).expect("a read") == bytes);
    mounted.signal(Signal::TERM);
    assert_eq!(mounted.end(), (Some(0), String::new()));
}

/// KiB that a file occupies in the backing file system.
fn taken_kib(file: &File) -> u64 {
    file.metadata().expect("attributes").blocks() / 2
}

/// Free space in the file system of the test about holes, in MiB.
const ROOM: u64 = 48;

#[test]
fn what_is_written_into_holes_has_its_blocks_below_or_is_refused() {
    for (layout, mkfs, mib) in [
        ("log", "mkfs.ext4", 64),
        ("slots", "mkfs.ext4", 64),
        ("segments", "mkfs.ext4", 64),
        ("log", "mkfs.xfs", 300),
        ("slots", "mkfs.xfs", 300),
        ("log", "mkfs.btrfs", 300),
        ("slots", "mkfs.btrfs", 300),
    ] {
        println!("{layout} over what {mkfs} makes");
        let scratch = Scratch::new();
        let Some(image) = Image::new(scratch.path("fs"), mib, &[mkfs, "-q"]) else { continue };
        // Some mkfs make no small file system. Btrfs gives a file less than it reports free, and breaks its promises
        // when full.
        let promises = mkfs != "mkfs.btrfs";
        let filler = File::create(scratch.path("fs/filler")).expect("a file");
        let spare = if promises { image.free_bytes().saturating_sub(ROOM << 20) } else { ROOM << 20 };
        if spare > 0 {
            fallocate(&filler, FallocateFlags::empty(), 0, spare).expect("room");
        }
        fs::create_dir(scratch.path("fs/d")).expect("a directory");
        fs::create_dir(scratch.path("mount")).expect("a directory");
        std::os::unix::fs::symlink("fs/d", scratch.path("backing")).expect("a link");
        let format = ["--cache", "cache", "--backing", "backing", "--size", "64MiB", "--layout", layout];
        scratch.format(&[&format[..], if layout == "segments" { UNBOUNDED } else { &[] }].concat());
        let mut mounted = Mounted::over(scratch, ["write-back", "lru"]);
        if !mounted.start() {
            return;
        }
        let open = |name: &str| {
            let path = mounted.above().join(name);
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).expect("a file")
        };
        let fill = |file: &File, bytes: usize, with: u8| -> std::io::Result<u64> {
            let mut done = 0;
            for at in (0..bytes as u64).step_by(65536) {
                done += file.write_at(&[with; 65536], at)? as u64;
            }
            Ok(done)
        };
        let sparse = open("sparse");
        sparse.set_len(12 * MIB as u64).expect("a hole");
        fill(&sparse, 8 * MIB, b's').and_then(|_| sparse.sync_all()).expect("room");
        assert!(
            (8192..=9300).contains(&taken_kib(&sparse)),
            "{} KiB, and no more than a MiB ahead",
            taken_kib(&sparse)
        );
        let punched = open("punched");
        fill(&punched, 4 * MIB, b'o').expect("room");
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&punched, punch, 0, 4 * MIB as u64).expect("a hole");
        assert!(taken_kib(&punched) < 64);
        fill(&punched, 4 * MIB, b'p').and_then(|_| punched.sync_all()).expect("room");
        assert!(taken_kib(&punched) >= 4096);
        // One page in a large hole takes no more than it needs.
        let far = open("far");
        far.set_len(1 << 30).and_then(|()| far.write_all_at(&[b'f'; 4096], 1 << 29)).expect("room");
        assert!(taken_kib(&far) <= 16, "{} KiB", taken_kib(&far));
        // Writes until the file system is full: a hole in a full one refuses what it would not take without a cache.
        let hole = open("hole");
        hole.set_len(8 * MIB as u64).expect("a hole");
        let rest = open("rest");
        let mut full = 0;
        while rest.write_all_at(&[b'r'; 65536], full).is_ok() {
            full += 65536;
        }
        let refused = fill(&hole, 8 * MIB, b'x').expect_err("no room for it");
        assert_eq!(refused.raw_os_error(), Some(28), "{refused}");
        hole.sync_all().expect("what was taken is durable");
        drop((sparse, punched, far, rest, hole));
        mounted.signal(Signal::TERM);
        let (code, said) = mounted.end();
        println!("it ends with {code:?}: {said}");
        assert!(!promises || (code, said.as_str()) == (Some(0), ""), "{code:?}: {said}");
        if code != Some(0) {
            // The page stays in the cache until there is space.
            says(&said, &["No space left on device"]);
            drop(filler);
            fs::remove_file(mounted.scratch.path("fs/filler")).expect("a file");
        }
        mounted.scratch.ok(&[&["-q", "drain"], &BOTH[..]].concat());
        mounted.scratch.ok(&[&["check"], &BOTH[..]].concat());
        let below = |name: &str| fs::read(mounted.below().join(name)).expect("a file");
        assert!(below("sparse")[..8 * MIB].iter().all(|&byte| byte == b's'));
        assert!(below("punched").iter().all(|&byte| byte == b'p'));
        assert!(below("rest")[..full as usize].iter().all(|&byte| byte == b'r'));
    }
}

/// A mount with a limit of `descriptors` descriptors.
fn mounted_with(scratch: &Scratch, descriptors: u64) -> Option<Child> {
    let shell = format!("ulimit -n {descriptors}; exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &shell, env!("CARGO_BIN_EXE_entresol"), "mount", "backing", "mount"]);
    command.args(["--cache", "cache", "--policy", "lru"]).current_dir(scratch.path("."));
    let mut server = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a shell");
    let mut line = String::new();
    BufReader::new(server.stdout.take().expect("a pipe")).read_line(&mut line).expect("text");
    if line.is_empty() {
        let _skipped = ended_well(server);
        return None;
    }
    Some(server)
}

/// Many files in a few folders with few descriptors, from making them to a drain: no open is refused, and each file
/// has its bytes.
fn many_files(files: usize, descriptors: u64, size: &str) {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("backing")).expect("a directory");
    fs::create_dir(scratch.path("mount")).expect("a directory");
    scratch.format(&["--cache", "cache", "--backing", "backing", "--size", size]);
    let Some(server) = mounted_with(&scratch, descriptors) else { return };
    let open = || fs::read_dir(format!("/proc/{}/fd", common::serving(server.id()))).expect("its files").count() as u64;
    let above = |name: String| scratch.path("mount").join(name);
    let per_folder = files / 10;
    // One file is open all the while, as a database is.
    fs::write(above("table".into()), "rows").expect("a file");
    let table = OpenOptions::new().read(true).write(true).open(above("table".into())).expect("a file");
    for at in 0..files {
        if at % per_folder == 0 {
            fs::create_dir(above(format!("d{}", at / per_folder))).expect("a directory");
        }
        let made = fs::write(above(format!("d{}/f{at}", at / per_folder)), format!("bytes of {at}"));
        made.unwrap_or_else(|error| panic!("file {at}: {error}"));
    }
    assert!(open() <= descriptors, "{} files are open", open());
    // A folder, files in it and two names change while nearly all files are closed. Names are removed, also one of two
    // links.
    fs::rename(above("d1".into()), above("moved".into())).expect("another name");
    fs::create_dir(above("d1".into())).expect("a directory");
    fs::write(above(format!("d1/f{per_folder}")), "another").expect("a file of that name");
    fs::rename(above("d2".into()), above("moved/d2".into())).expect("another folder");
    fs::rename(above("d3/f".to_owned() + &(3 * per_folder).to_string()), above("three".into())).expect("another name");
    fs::rename(above(format!("d4/f{}", 4 * per_folder)), above(format!("d4/f{}", 4 * per_folder + 1)))
        .expect("over another");
    fs::hard_link(above(format!("d5/f{}", 5 * per_folder)), above("link".into())).expect("a link");
    fs::remove_file(above(format!("d5/f{}", 5 * per_folder))).expect("one of two names");
    fs::remove_dir_all(above("d6".into())).expect("all of a folder");
    table.write_all_at(b"more", 4).and_then(|()| table.sync_all()).expect("the database goes on");
    let now = |at: usize| match at / per_folder {
        1 => Some(format!("moved/f{at}")),
        2 => Some(format!("moved/d2/f{at}")),
        3 if at == 3 * per_folder => Some("three".to_owned()),
        4 if at == 4 * per_folder => Some(format!("d4/f{}", at + 1)),
        4 if at == 4 * per_folder + 1 => None,
        5 if at == 5 * per_folder => Some("link".to_owned()),
        6 => None,
        folder => Some(format!("d{folder}/f{at}")),
    };
    let is_right = |root: &str| {
        for at in 0..files {
            let Some(name) = now(at) else { continue };
            let found = fs::read_to_string(scratch.path(root).join(&name));
            assert_eq!(found.unwrap_or_else(|error| panic!("{name}: {error}")), format!("bytes of {at}"), "{name}");
        }
        let other = fs::read_to_string(scratch.path(root).join(format!("d1/f{per_folder}")));
        assert_eq!(other.expect("a file"), "another");
    };
    is_right("mount");
    assert!(open() <= descriptors, "{} files are open", open());
    scratch.ok(&["stats", "--cache", "cache"]);
    drop(table);
    signal(server.id(), Signal::TERM);
    let said = ended_well(server).expect("it was mounted");
    says(&said, &["remembered files need more than half of the descriptors"]);
    // The next server finds all files at its start, and so do others with no more descriptors.
    let server = mounted_with(&scratch, descriptors).expect("it could be mounted");
    is_right("mount");
    signal(server.id(), Signal::TERM);
    ended_well(server);
    for command in [&["check"][..], &["-q", "drain"], &["check"]] {
        let shell = format!("ulimit -n {descriptors}; exec \"$0\" \"$@\"");
        let mut limited = Command::new("sh");
        limited.args(["-c", &shell, env!("CARGO_BIN_EXE_entresol")]).args(command).args(BOTH);
        let output = limited.current_dir(scratch.path(".")).output().expect("a shell");
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    is_right("backing");
}

#[test]
fn more_files_than_descriptors_are_no_error_to_anyone() {
    many_files(1000, 200, "16MiB");
}

/// Files without names, removed faster than their directories can be synced, keep at most a share of the descriptors.
#[test]
fn folders_of_many_more_files_than_descriptors_are_removed_at_once() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("backing")).expect("a directory");
    fs::create_dir(scratch.path("mount")).expect("a directory");
    scratch.format(&["--cache", "cache", "--backing", "backing", "--size", "32MiB"]);
    let Some(server) = mounted_with(&scratch, 200) else { return };
    let folders: Vec<_> = (0..8).map(|folder| scratch.path("mount").join(folder.to_string())).collect();
    for folder in &folders {
        fs::create_dir(folder).expect("a directory");
        for at in 0..500 {
            fs::write(folder.join(at.to_string()), "bytes").unwrap_or_else(|error| panic!("file {at}: {error}"));
        }
    }
    std::thread::scope(|scope| {
        for folder in &folders {
            scope.spawn(move || fs::remove_dir_all(folder).expect("all of a folder"));
        }
    });
    fs::write(scratch.path("mount/another"), "bytes").expect("a file");
    signal(server.id(), Signal::TERM);
    ended_well(server);
    let names = fs::read_dir(scratch.path("backing")).expect("a directory").count();
    assert_eq!(names, 2, "the file, and the folder of the map");
}

#[test]
#[ignore = "makes 200,000 files, half an hour: `make test-long` runs it"]
fn two_hundred_thousand_files_at_1024_descriptors_are_no_error_to_anyone() {
    many_files(200_000, 1024, "1GiB");
}

#[test]
fn an_image_with_holes_is_served_only_as_far_as_there_are_blocks_for_it() {
    use common::served::client::{Client, FUA, WRITE};
    let scratch = Scratch::new();
    let Some(_image) = Image::new(scratch.path("fs"), 32, &["mkfs.ext4", "-q"]) else { return };
    let disk = File::create(scratch.path("fs/disk")).expect("a file");
    disk.set_len(64 * MIB as u64).expect("a hole");
    // No process may have it open for writing.
    drop(disk);
    let disk = File::open(scratch.path("fs/disk")).expect("a file");
    scratch.format(&["--cache", "cache", "--backing", "fs/disk", "--size", "64MiB"]);
    let serve = ["-q", "serve", "nbd", "--socket", "s", "--cache", "cache", "--backing", "fs/disk", "--policy", "lru"];
    let mut server = scratch.command(&serve);
    let mut server = server.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command runs");
    let mut line = String::new();
    BufReader::new(server.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    let mut client = Client::connect(&scratch.path("s"), false).expect("a connection");
    let chunk = vec![7; MIB];
    let mut written = 0;
    let refused = loop {
        let answer = client.call(WRITE, FUA, (written * MIB) as u64, MIB as u32, &chunk).expect("an answer");
        if answer.errno != 0 {
            break answer.errno;
        }
        written += 1;
        assert!(written < 64, "more was taken than there is room for");
    };
    assert_eq!(refused, 28, "after {written} MiB");
    assert!(written > 8 && taken_kib(&disk) >= 1024 * written as u64, "{written} MiB, {} KiB", taken_kib(&disk));
    drop((client, disk));
    signal(server.id(), Signal::TERM);
    ended_well(server);
    scratch.ok(&["-q", "drain", "--cache", "cache", "--backing", "fs/disk"]);
    assert!(scratch.bytes("fs/disk")[..written * MIB].iter().all(|&byte| byte == 7));
}

#[test]
fn a_file_below_more_than_4096_bytes_of_path_is_as_any_other() {
    use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("backing")).expect("a directory");
    fs::create_dir(scratch.path("mount")).expect("a directory");
    scratch.format(&["--cache", "cache", "--backing", "backing", "--size", "2MiB"]);
    let mut mounted = Mounted::over(scratch, ["write-back", "lru"]);
    if !mounted.start() {
        return;
    }
    let name = "n".repeat(250);
    let down = |make: bool, root: &std::path::Path| {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut at = openat(CWD, root, flags, Mode::empty()).expect("a directory");
        for _ in 0..20 {
            if make {
                mkdirat(&at, &name, Mode::RWXU).expect("a directory in it");
            }
            at = openat(&at, &name, flags, Mode::empty()).expect("that directory");
        }
        at
    };
    let open = |make: bool, root: &std::path::Path| {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | if make { OFlags::CREATE } else { OFlags::empty() };
        File::from(openat(down(make, root), "f", flags, Mode::RUSR | Mode::WUSR).expect("a file"))
    };
    let is_right = |root: &std::path::Path| {
        let mut bytes = [0; 4];
        open(false, root).read_exact_at(&mut bytes, 0).expect("a read");
        assert_eq!(&bytes, b"deep");
    };
    let made = open(true, &mounted.above());
    made.write_all_at(b"deep", 0).and_then(|()| made.sync_all()).expect("a write");
    drop(made);
    is_right(&mounted.above());
    mounted.signal(Signal::TERM);
    assert_eq!(mounted.end(), (Some(0), String::new()));
    assert!(mounted.start(), "its dirty page is found again");
    is_right(&mounted.above());
    mounted.unmount();
    is_right(&mounted.below());
}

/// Processor seconds of a process, by fields 14 and 15 of proc(5), in ticks of 10 ms.
fn processor_seconds(process: u32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).expect("its state");
    let fields = text.rsplit_once(')').expect("its name").1.split_whitespace().skip(11).take(2);
    fields.map(|field| field.parse::<f64>().expect("a number")).sum::<f64>() / 100.0
}

/// A start reads names until it has found every file of its cache, and looks for other caches in all folders.
#[test]
#[ignore = "makes a million files, two minutes: `make test-long` runs it"]
fn a_start_in_a_tree_of_a_million_files_takes_little_time() {
    let scratch = Scratch::new();
    for folder in 0..100_000 {
        let folder = scratch.path(&format!("backing/{}/{folder}", folder % 100));
        fs::create_dir_all(&folder).expect("a directory");
        (0..10).for_each(|at| fs::write(folder.join(at.to_string()), "").expect("a file"));
    }
    fs::create_dir(scratch.path("mount")).expect("a directory");
    scratch.format(&["--cache", "cache", "--backing", "backing", "--size", "64MiB"]);
    let mut mounted = Mounted::over(scratch, ["write-back", "lru"]);
    // Processor time is compared, because other tests may keep the disk busy.
    let mut started = |what: &str, write: &[&str]| {
        let began = std::time::Instant::now();
        if !mounted.start() {
            return None;
        }
        let (took, processor) = (began.elapsed().as_secs_f64(), processor_seconds(mounted.process()));
        println!("{what}: {took:.2} s, {processor:.2} s of a processor");
        for name in write {
            let file = OpenOptions::new().write(true).open(mounted.above().join(name)).expect("a file");
            file.write_all_at(&[1; 4096], 0).and_then(|()| file.sync_all()).expect("a write");
        }
        mounted.signal(Signal::TERM);
        assert_eq!(mounted.end(), (Some(0), String::new()));
        Some(processor)
    };
    if started("the first", &[]).is_none() {
        return;
    }
    let warm = started("no file cached", &["0/0/0", "50/50/5", "99/99/9"]).expect("it was mounted");
    let cached = started("three files cached", &[]).expect("it was mounted");
    if rustix::process::geteuid().is_root() {
        rustix::fs::sync();
        fs::write("/proc/sys/vm/drop_caches", "3").expect("root may");
        started("three files cached, nothing in the kernel's memory", &[]);
    }
    assert!(warm < 10.0 && cached < 20.0, "{warm:.2} s, {cached:.2} s");
}
