//! Real mounts of a directory of checkpoints: programs write through several of them, nodes and the coordinator are lost,
//! and every byte is compared.

#[path = "../../../burst-live/tests/common/mod.rs"]
mod common;

use common::{JOB, MIB, Testbed};
use entresol_burst_fuse::{Ending, Mount};
use entresol_burst_live::client::{Client, ClientSettings, Files, PATIENCE, State};
use entresol_burst_live::pfs::Directory;
use entresol_core::Random;
use entresol_skip::skipped;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);
const EPERM: i32 = 1;
const EBUSY: i32 = 16;
const EEXIST: i32 = 17;
const EXDEV: i32 = 18;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;
const EOPNOTSUPP: i32 = 95;
const ESHUTDOWN: i32 = 108;
const ESTALE: i32 = 116;
const EDQUOT: i32 = 122;

/// Bytes of a seed, which a failed test prints.
fn contents(seed: u64, bytes: u64) -> Vec<u8> {
    println!("seed {seed}, {bytes} bytes");
    let mut random = Random::new(seed);
    (0..bytes.div_ceil(8)).flat_map(|_| random.next_u64().to_le_bytes()).take(bytes as usize).collect()
}

fn can_mount() -> bool {
    let can = Path::new("/dev/fuse").exists() && OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok();
    if !can {
        skipped!("/dev/fuse", "no FUSE device can be opened");
    }
    can
}

/// A mount of the job for one node.
struct Mounted {
    mount: Mount,
    path: PathBuf,
}

impl Mounted {
    fn new(testbed: &Testbed, name: &str, files: u32, settings: ClientSettings) -> Mounted {
        let path = testbed.path(name);
        fs::create_dir_all(&path).expect("a directory");
        let directory = Arc::new(Directory::open(&testbed.path("pfs")).expect("a directory"));
        let client = Client::new(settings, testbed.pfs.clone());
        let files = Files::new(client, directory, JOB, files).expect("a number of files");
        let mount = Mount::start(Arc::new(files), &path).expect("a mount");
        Mounted { mount, path }
    }

    fn on(testbed: &Testbed, node: usize, files: u32) -> Mounted {
        let settings = ClientSettings { patience: PATIENCE, ..testbed.settings(node) };
        Mounted::new(testbed, &format!("mount-{node}"), files, settings)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.path.join(path)
    }

    fn newest(&self) -> Option<PathBuf> {
        fs::read_link(self.at("newest")).ok()
    }
}

/// Runs a program, and returns its output.
#[track_caller]
fn run(program: &str, arguments: &[&dyn AsRef<std::ffi::OsStr>]) -> String {
    let output = Command::new(program).args(arguments.iter().map(|it| it.as_ref())).output().expect(program);
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[track_caller]
fn fails<T>(errno: i32, result: std::io::Result<T>) {
    assert_eq!(result.err().and_then(|error| error.raw_os_error()), Some(errno));
}

#[track_caller]
fn has(path: &Path, expected: &[u8]) {
    let read = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let differs = (0..read.len().max(expected.len())).find(|&at| read.get(at) != expected.get(at));
    let lengths = (read.len(), expected.len());
    assert!(differs.is_none(), "{} differs at {differs:?}, of lengths {lengths:?}", path.display());
}

#[track_caller]
fn wait_until(is_so: impl Fn() -> bool) {
    let until = Instant::now() + MINUTE;
    while !is_so() {
        assert!(Instant::now() < until, "it never is");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn is_missing(path: &Path) -> bool {
    fs::metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

/// Waits until all of the job is durable.
fn drain(testbed: &Testbed) {
    let left = testbed.client(0).drain(JOB, None, MINUTE).expect("an answer");
    assert!(left.is_empty(), "{left:?}");
}

/// Python, if it is there.
fn python(script: &str, arguments: &[&Path]) -> Option<std::process::ExitStatus> {
    match Command::new("python3").arg("-c").arg(script).args(arguments).status() {
        Ok(status) => Some(status),
        Err(_) => {
            skipped!("python3", "no python3");
            None
        }
    }
}

#[test]
fn programs_write_through_one_mount_and_read_through_another() {
    if !can_mount() {
        return;
    }
    let mut testbed = Testbed::new("chunked:chunk=4MiB", 3, 128 * MIB);
    let (a, b) = (Mounted::on(&testbed, 0, 4), Mounted::on(&testbed, 1, 4));
    let bytes = contents(1, 35 * MIB + 12345);
    let source = testbed.path("source");
    fs::write(&source, &bytes).expect("a file");
    run("mkdir", &[&a.at("5")]);
    run("cp", &[&source, &a.at("5/copied")]);
    run(
        "dd",
        &[&"conv=fsync", &"bs=300k", &format!("if={}", source.display()), &format!("of={}", a.at("5/dd").display())],
    );
    for name in ["5/copied", "5/dd"] {
        has(&b.at(name), &bytes);
    }
    let sum = |path: &Path| run("sha256sum", &[&path])[..64].to_owned();
    assert_eq!(sum(&b.at("5/dd")), sum(&source));
    assert_eq!(b.newest(), None, "2 of 4 files");
    let script = "import sys\nwith open(sys.argv[1], 'wb') as f:\n f.seek(20000000); f.write(b'end')\n f.seek(1000); f.write(b'middle'*1000)\n f.seek(0); f.write(b'head')\n f.seek(1002); f.write(b'X')";
    if let Some(status) = python(script, &[&b.at("5/sought")]) {
        assert!(status.success());
        let mut expected = vec![0; 20_000_003];
        expected[20_000_000..].copy_from_slice(b"end");
        (0..6000).for_each(|at| expected[1000 + at] = b"middle"[at % 6]);
        expected[..4].copy_from_slice(b"head");
        expected[1002] = b'X';
        has(&a.at("5/sought"), &expected);
    } else {
        fs::write(b.at("5/sought"), b"x").expect("a file");
    }
    // The last of the four files makes the checkpoint complete.
    assert_eq!(a.newest(), None);
    File::create(a.at("5/empty")).expect("a file");
    // A file without a byte is committed when the kernel releases it.
    wait_until(|| b.newest().is_some());
    assert_eq!((a.newest(), b.newest()), (Some("5".into()), Some("5".into())));
    has(&b.at("newest/empty"), b"");
    fails(EDQUOT, File::create(b.at("5/one too many")));
    // A directory is copied out as an archive, and in again. The coordinator starts again in between.
    testbed.coordinator = None;
    testbed.start_coordinator();
    run("tar", &[&"-cf", &testbed.path("tar"), &"-C", &b.at("5"), &"."]);
    fs::create_dir(b.at("6")).expect("a checkpoint");
    run(
        "tar",
        &[
            &"-xf",
            &testbed.path("tar"),
            &"-C",
            &b.at("6"),
            &"--no-overwrite-dir",
            &"./copied",
            &"./dd",
            &"./empty",
            &"./sought",
        ],
    );
    run("diff", &[&"-r", &a.at("5"), &a.at("6")]);
    assert_eq!(a.newest(), Some("6".into()));
    let mut listed: Vec<_> =
        fs::read_dir(&a.path).expect("a directory").map(|it| it.expect("an entry").file_name()).collect();
    listed.sort();
    assert_eq!(listed, ["5", "6"]);
    // All of it is on the PFS when the nodes are gone.
    drain(&testbed);
    let (states, _) = testbed.client(0).list(JOB).expect("a list");
    assert!(
        states.iter().all(|it| it.whole == 4 && matches!(it.state, State::Complete(_)) && it.undrained == 0),
        "{states:?}"
    );
    drop((a, b));
    let alone = ClientSettings { coordinator: None, ..testbed.settings(0) };
    let c = Mounted::new(&testbed, "mount-pfs", 4, alone);
    has(&c.at("5/copied"), &bytes);
    has(&c.at("newest/dd"), &bytes);
}

#[test]
fn a_file_is_read_when_it_is_committed_and_not_changed_afterwards() {
    if !can_mount() {
        return;
    }
    let testbed = Testbed::new("cdbb:redundancy=partner", 2, 64 * MIB);
    let (a, b) = (Mounted::on(&testbed, 0, 3), Mounted::on(&testbed, 1, 3));
    fs::create_dir(a.at("1")).expect("a checkpoint");
    let mut file = File::create(a.at("1/state")).expect("a file");
    file.write_all(b"first").expect("written");
    // A child that executes another program closes its copy of the descriptor; that is no commit.
    run("true", &[]);
    assert!(is_missing(&b.at("1/state")));
    assert_eq!(fs::metadata(a.at("1/state")).expect("it is there").len(), 5);
    fails(EBUSY, File::open(a.at("1/state")));
    fails(
        EOPNOTSUPP,
        OpenOptions::new().read(true).write(true).open(a.at("1/state")).and_then(|mut it| it.read(&mut [0])),
    );
    file.sync_all().expect("committed");
    has(&b.at("1/state"), b"first");
    file.write_all(b" and second").expect("written");
    file.set_len(8).expect("cut");
    has(&b.at("1/state"), b"first");
    drop(file);
    has(&a.at("1/state"), b"first an");
    // Another mount may see the former version for a second.
    std::thread::sleep(Duration::from_millis(1100));
    has(&b.at("1/state"), b"first an");
    fails(EPERM, OpenOptions::new().append(true).open(b.at("1/state")));
    fails(EPERM, OpenOptions::new().write(true).open(a.at("1/state")).and_then(|file| file.set_len(0)));
    fails(EPERM, fs::remove_file(a.at("1/state")));
    fails(EPERM, fs::remove_dir(a.at("1")));
    fails(EPERM, fs::rename(a.at("1/state"), a.at("1/other")));
    fails(EPERM, fs::rename(a.at("1"), a.at("2")));
    fails(EPERM, fs::create_dir(a.at("1/folder")));
    fails(EPERM, File::create(a.at("file")));
    fails(EINVAL, fs::create_dir(a.at("1.tmp")));
    // A whole new version replaces it when that is committed.
    let mut reader = File::open(b.at("1/state")).expect("a file");
    let mut again = File::create(b.at("1/state")).expect("a file");
    again.write_all(b"anew").expect("written");
    has(&a.at("1/state"), b"first an");
    drop(again);
    has(&b.at("1/state"), b"anew");
    let mut read = Vec::new();
    reader.seek(SeekFrom::Start(0)).expect("a seek");
    reader.read_to_end(&mut read).expect("the version that was opened");
    assert_eq!(read, b"first an");
}

#[test]
fn a_file_of_a_killed_program_is_not_committed() {
    if !can_mount() {
        return;
    }
    let testbed = Testbed::new("cdbb", 2, 64 * MIB);
    let (a, b) = (Mounted::on(&testbed, 0, 1), Mounted::on(&testbed, 1, 1));
    fs::create_dir(a.at("1")).expect("a checkpoint");
    for end in ["os.kill(os.getpid(), 9)", "os._exit(3)", "sys.exit(3)"] {
        let script =
            format!("import os, sys\nf = os.open(sys.argv[1], os.O_WRONLY|os.O_CREAT)\nos.write(f, b'part')\n{end}");
        let Some(status) = python(&script, &[&a.at("1/state")]) else { return };
        assert!(!status.success());
        assert!(is_missing(&a.at("1/state")) && is_missing(&b.at("1/state")) && a.newest().is_none(), "{end}");
    }
    // A copy of the descriptor that is closed commits nothing, of a shell's as of a program's.
    let state = a.at("1/state").display().to_string();
    let script = format!("exec 3> {state}; echo half >&3; echo of it >&3; kill -9 $$");
    assert!(!Command::new("sh").args(["-c", &script]).status().expect("a shell").success());
    let script = "import os, sys\nf = os.open(sys.argv[1], os.O_WRONLY|os.O_CREAT)\nos.write(f, b'half')\n\
                  os.close(os.dup(f))\nos._exit(3)";
    assert!(!python(script, &[&a.at("1/state")]).expect("python").success());
    assert!(is_missing(&a.at("1/state")) && is_missing(&b.at("1/state")) && a.newest().is_none());
    let script = "import os, sys\nf = os.open(sys.argv[1], os.O_WRONLY|os.O_CREAT)\nos.write(f, b'whole')";
    assert!(python(script, &[&b.at("1/state")]).expect("python").success());
    has(&a.at("1/state"), b"whole");
    assert_eq!(a.newest(), Some("1".into()));
}

#[test]
fn ranks_of_one_mount_write_one_file_and_a_second_mount_is_refused() {
    if !can_mount() {
        return;
    }
    let testbed = Testbed::new("cdbb:redundancy=partner", 2, 128 * MIB);
    let (a, b) = (Mounted::on(&testbed, 0, 1), Mounted::on(&testbed, 1, 1));
    fs::create_dir(a.at("1")).expect("a checkpoint");
    let seed = 4;
    let (ranks, part) = (4, 5 * MIB + 77);
    let bytes = contents(seed, ranks * part);
    let write = |rank: u64| {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(a.at("1/shared")).expect("a file");
        let own = &bytes[(rank * part) as usize..((rank + 1) * part) as usize];
        let mut random = Random::new(seed + rank);
        let mut at = 0;
        while at < own.len() {
            let length = (1 + random.below(3 * MIB) as usize).min(own.len() - at);
            file.write_all_at(&own[at..at + length], rank * part + at as u64).expect("written");
            at += length;
        }
        file
    };
    let files: Vec<File> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..ranks).map(|rank| scope.spawn(move || write(rank))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a rank")).collect()
    });
    assert!(is_missing(&b.at("1/shared")));
    drop(files);
    has(&b.at("1/shared"), &bytes);

    // Through two mounts: the one that opened first is told that its bytes do not count.
    fs::create_dir(a.at("2")).expect("a checkpoint");
    let open = |mounted: &Mounted| {
        OpenOptions::new().write(true).create(true).truncate(false).open(mounted.at("2/shared")).expect("a file")
    };
    let (first, second) = (open(&a), open(&b));
    first.write_all_at(b"one", 0).expect("buffered");
    second.write_all_at(b"two", 3).expect("buffered");
    fails(ESTALE, first.sync_all());
    second.sync_all().expect("committed");
    drop((first, second));
    has(&b.at("2/shared"), b"\0\0\0two");
}

#[test]
fn what_a_shell_puts_together_is_committed_when_it_is_whole() {
    if !can_mount() {
        return;
    }
    let testbed = Testbed::new("chunked:chunk=2MiB", 2, 16 * MIB);
    let (a, b) = (Mounted::on(&testbed, 0, 1), Mounted::on(&testbed, 1, 1));
    fs::create_dir(a.at("1")).expect("a checkpoint");
    let (to, elsewhere) = (a.at("1/state"), b.at("1/state"));
    let (to, elsewhere) = (to.display(), elsewhere.display());
    run("sh", &[&"-ec", &format!("{{ /bin/echo one; test ! -e {elsewhere}; /bin/echo two; }} > {to}")]);
    has(&b.at("1/state"), b"one\ntwo\n");
    fs::create_dir(a.at("2")).expect("a checkpoint");
    run("sh", &[&"-ec", &format!(": > {}", a.at("2/empty").display())]);
    // A shell writes through copies of a descriptor, and closes the last one at its end.
    fs::create_dir(a.at("3")).expect("a checkpoint");
    let (to, elsewhere) = (a.at("3/state"), b.at("3/state"));
    let (to, elsewhere) = (to.display(), elsewhere.display());
    run("sh", &[&"-ec", &format!("exec 3> {to}; echo one >&3; test ! -e {elsewhere}; echo two >&3")]);
    has(&b.at("3/state"), b"one\ntwo\n");
    wait_until(|| !is_missing(&b.at("2/empty")));
    has(&b.at("2/empty"), b"");
}

#[test]
fn a_file_is_committed_again_while_the_pfs_is_full() {
    if !can_mount() {
        return;
    }
    let testbed = Testbed::new("chunked:chunk=2MiB", 2, 16 * MIB);
    let (a, b) = (Mounted::on(&testbed, 0, 1), Mounted::on(&testbed, 1, 1));
    fs::create_dir(a.at("1")).expect("a checkpoint");
    let mut file = File::create(a.at("1/state")).expect("a file");
    testbed.pfs.set_full(true);
    let mut written = Vec::new();
    for part in [b"one", b"two", b"six"] {
        file.write_all(part).expect("written");
        file.sync_all().expect("committed");
        written.extend_from_slice(part);
        has(&b.at("1/state"), &written);
    }
    // An older commit that is durable does not make the newest one durable.
    testbed.pfs.set_full(false);
    assert_eq!(testbed.client(0).drain(JOB, None, MINUTE).expect("drained"), [""; 0]);
    testbed.pfs.set_full(true);
    file.write_all(b"ten").expect("written");
    drop(file);
    has(&b.at("1/state"), b"onetwosixten");
    let left = testbed.client(0).drain(JOB, None, Duration::from_millis(200)).expect("an answer");
    assert!(left.iter().any(|why| why.starts_with("checkpoint 1: replicated")), "{left:?}");
}

#[test]
fn a_node_that_is_lost_while_a_file_is_written_or_before_it_is_read_loses_nothing() {
    if !can_mount() {
        return;
    }
    let mut testbed = Testbed::new("chunked:chunk=2MiB", 3, 96 * MIB);
    let a = Mounted::on(&testbed, 0, 1);
    testbed.pfs.set_full(true);
    fs::create_dir(a.at("1")).expect("a checkpoint");
    let bytes = contents(5, 40 * MIB + 3);
    let mut file = File::create(a.at("1/state")).expect("a file");
    let half = bytes.len() / 2;
    file.write_all(&bytes[..half]).expect("written");
    testbed.nodes[2] = None;
    let begin = Instant::now();
    file.write_all(&bytes[half..]).expect("another grant");
    file.sync_all().expect("committed");
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    drop(file);
    has(&a.at("1/state"), &bytes);
    testbed.start_node(2);
    testbed.wait_for_nodes();
    // A node is lost between the close and the read.
    let b = Mounted::on(&testbed, 2, 1);
    fs::create_dir(b.at("2")).expect("a checkpoint");
    fs::write(b.at("2/state"), &bytes).expect("written");
    testbed.nodes[1] = None;
    has(&b.at("2/state"), &bytes);
    assert_eq!(b.newest(), Some("2".into()));
    testbed.pfs.set_full(false);
    testbed.start_node(1);
    testbed.wait_for_nodes();
    // The coordinator still knows the addresses of the lost starts; only what is left of the checkpoint counts.
    let durable = |state: &entresol_burst_live::client::CheckpointState| state.undrained == 0;
    let are_durable = |testbed: &Testbed| testbed.client(0).list(JOB).expect("a list").0.iter().all(durable);
    wait_until(|| are_durable(&testbed));
    // Another one, between the close and the rename.
    testbed.pfs.set_full(true);
    fs::create_dir(b.at("3")).expect("a checkpoint");
    fs::write(b.at("3/state.tmp"), &bytes).expect("written");
    testbed.nodes[0] = None;
    fs::rename(b.at("3/state.tmp"), b.at("3/state")).expect("renamed");
    has(&b.at("3/state"), &bytes);
    assert_eq!(b.newest(), Some("3".into()));
    testbed.pfs.set_full(false);
    testbed.start_node(0);
    testbed.wait_for_nodes();
    wait_until(|| are_durable(&testbed));
    testbed.nodes.iter_mut().for_each(|node| *node = None);
    has(&a.at("1/state"), &bytes);
    has(&a.at("2/state"), &bytes);
    has(&a.at("3/state"), &bytes);
}

#[test]
fn a_file_is_cut_while_its_first_piece_is_stored_behind() {
    if !can_mount() {
        return;
    }
    let testbed = Testbed::new("cdbb", 1, 128 * MIB);
    let mount = Mounted::on(&testbed, 0, 1);
    fs::create_dir(mount.at("1")).expect("a checkpoint");
    let bytes = contents(7, 20 * MIB);
    let (kept, at) = (10 * MIB as usize + 3, 30 * MIB);
    let file = File::create(mount.at("1/state")).expect("a file");
    file.write_all_at(&bytes, 0).expect("written");
    assert_eq!(fs::metadata(mount.at("1/state")).expect("its length").len(), 20 * MIB);
    file.set_len(kept as u64).expect("cut");
    assert_eq!(fs::metadata(mount.at("1/state")).expect("its length").len(), kept as u64);
    file.write_all_at(&bytes[..1000], at).expect("written");
    drop(file);
    let expected = [&bytes[..kept], &vec![0; at as usize - kept], &bytes[..1000]].concat();
    has(&mount.at("1/state"), &expected);
}

#[test]
fn without_space_in_buffers_or_a_coordinator_files_go_to_the_pfs() {
    if !can_mount() {
        return;
    }
    let mut testbed = Testbed::new("cdbb", 2, 6 * MIB);
    // Buffers without progress are given up after a second here.
    let settings = ClientSettings { patience: Duration::from_secs(1), ..testbed.settings(0) };
    let a = Mounted::new(&testbed, "mount", 2, settings);
    testbed.pfs.set_full(true);
    fs::create_dir(a.at("1")).expect("a checkpoint");
    let bytes = contents(6, 36 * MIB + 1);
    // The buffers are full, and so is the PFS. The first piece of 16 MiB fails while the second is filled, and the write behind it says so.
    let mut file = File::create(a.at("1/state")).expect("a file");
    fails(ENOSPC, file.write_all(&bytes));
    fails(ENOSPC, file.sync_all());
    testbed.pfs.set_full(false);
    file.rewind().expect("a seek");
    file.write_all(&bytes).expect("space again");
    drop(file);
    has(&a.at("1/state"), &bytes);
    // No coordinator: its absence is waited for once, and not for every piece.
    testbed.coordinator = None;
    let begin = Instant::now();
    fs::write(a.at("1/other"), &bytes).expect("the PFS");
    assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
    testbed.nodes.iter_mut().for_each(|node| *node = None);
    has(&a.at("1/other"), &bytes);
    fails(5, fs::read_link(a.at("newest")));
    testbed.start_coordinator();
    assert_eq!(a.newest(), Some("1".into()));
}

#[test]
fn a_mount_that_ends_lets_open_files_be_finished_and_names_them() {
    if !can_mount() {
        return;
    }
    let testbed = Testbed::new("cdbb", 1, 64 * MIB);
    let a = Mounted::on(&testbed, 0, 1);
    assert_eq!(a.mount.ending(), Ending::None);
    fs::create_dir(a.at("1")).expect("a checkpoint");
    let folder = File::open(a.at("1")).expect("a directory");
    let mut file = File::create(a.at("1/state")).expect("a file");
    file.write_all(b"whole").expect("written");
    a.mount.retire().expect("detached");
    assert_eq!(a.mount.ending(), Ending::Unfinished(vec!["1/state".to_owned()]));
    let through = PathBuf::from(format!("/proc/self/fd/{}/more", std::os::fd::AsRawFd::as_raw_fd(&folder)));
    fails(ESHUTDOWN, File::create(through));
    drop((file, folder));
    let until = Instant::now() + MINUTE;
    while a.mount.ending() != Ending::Over {
        assert!(Instant::now() < until, "{:?}", a.mount.ending());
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(a);
    has(&Mounted::on(&testbed, 0, 1).at("1/state"), b"whole");
}

/// A program that saves a file as numpy's and PyTorch's users do: under a temporary name, synced, renamed, and the
/// directory synced. `end` runs between two of these steps, or after them.
fn saves(begin: &str, end: &str) -> String {
    format!(
        "import os, sys, tempfile\n\
         def save(path, bytes, tmp, before='', after=''):\n \
          with open(tmp, 'wb') as f:\n  \
           f.write(bytes); f.flush(); os.fsync(f.fileno())\n \
          exec(before)\n \
          os.replace(tmp, path)\n \
          exec(after)\n \
          d = os.open(os.path.dirname(path), os.O_RDONLY); os.fsync(d); os.close(d)\n\
         os.chdir(sys.argv[1])\n\
         source = open(sys.argv[2], 'rb').read()\n\
         {begin}\n{end}"
    )
}

#[test]
fn a_file_that_is_renamed_completes_its_checkpoint_under_its_name() {
    if !can_mount() {
        return;
    }
    let mut testbed = Testbed::new("chunked:chunk=4MiB", 3, 128 * MIB);
    let (a, b) = (Mounted::on(&testbed, 0, 3), Mounted::on(&testbed, 1, 3));
    let bytes = contents(8, 37 * MIB + 5);
    let source = testbed.path("source");
    fs::write(&source, &bytes).expect("a file");
    fs::create_dir(a.at("1")).expect("a checkpoint");
    let arguments = [&*a.path, &source];
    // Of three files one is still under its temporary name: nothing is complete, and other mounts have the other two.
    let script = saves(
        "save(os.path.abspath('1/state.npz'), source, '1/state.tmp.npz')",
        "f = tempfile.NamedTemporaryFile(dir='1', delete=False); f.write(b'step 1'); f.close()\n\
         os.rename(f.name, '1/step')\n\
         with open('1/.metadata.tmp', 'wb') as f:\n f.write(source)\n\
         assert sorted(os.listdir('1')) == ['.metadata.tmp', 'state.npz', 'step'], os.listdir('1')\n\
         assert open('1/.metadata.tmp', 'rb').read() == source and os.stat('1/.metadata.tmp').st_size == len(source)",
    );
    let Some(status) = python(&script, &arguments) else { return };
    assert!(status.success());
    has(&b.at("1/state.npz"), &bytes);
    has(&b.at("1/step"), b"step 1");
    assert!(is_missing(&b.at("1/.metadata.tmp")) && is_missing(&a.at("1/.metadata")));
    assert_eq!((a.newest(), b.newest()), (None, None));
    let mut third = File::create(a.at("1/third")).expect("a file");
    third.write_all(b"third").expect("collected");
    fails(EDQUOT, File::create(a.at("1/fourth")));
    fs::create_dir(a.at("2")).expect("a checkpoint");
    fails(EXDEV, fs::rename(a.at("1/.metadata.tmp"), a.at("2/.metadata")));
    fails(EDQUOT, fs::rename(a.at("1/.metadata.tmp"), a.at("1/.metadata")));
    fails(EPERM, fs::remove_file(a.at("1/step")));
    fs::remove_file(a.at("1/.metadata.tmp")).expect("removed");
    assert!(is_missing(&a.at("1/.metadata.tmp")) && a.newest().is_none());
    drop(third);
    assert_eq!(b.newest(), Some("1".into()));
    // The files of another checkpoint: all of them pass from one name to another, and then it is complete.
    let script = saves(
        "save(os.path.abspath('2/a'), b'first', '2/a.tmp')\n\
         save(os.path.abspath('2/b'), source, '2/b.tmp', \"assert os.readlink('newest') == '1'\")\n\
         save(os.path.abspath('2/c'), b'', '2/c.part', \"assert os.readlink('newest') == '1'\")",
        "assert os.readlink('newest') == '2' and sorted(os.listdir('2')) == ['a', 'b', 'c']",
    );
    assert!(python(&script, &arguments).expect("python").success());
    assert_eq!(b.newest(), Some("2".into()));
    // A new version over an old one, which an open reader keeps.
    let mut reader = File::open(b.at("2/a")).expect("a file");
    let script =
        saves("save(os.path.abspath('2/a'), source[:9000001], '2/a.tmp')", "assert os.stat('2/a').st_size == 9000001");
    assert!(python(&script, &arguments).expect("python").success());
    has(&a.at("2/a"), &bytes[..9_000_001]);
    let mut read = Vec::new();
    reader.read_to_end(&mut read).expect("the version that was opened");
    assert_eq!(read, b"first");
    // `mv` within a checkpoint renames, and to another one it copies.
    fs::write(a.at("2/c.tmp"), b"moved").expect("a file");
    fails(EEXIST, rename_no_replace(&a.at("2/c.tmp"), &a.at("2/c")));
    run("mv", &[&a.at("2/c.tmp"), &a.at("2/c")]);
    fs::create_dir(a.at("3")).expect("a checkpoint");
    fs::write(a.at("2/d.tmp"), b"copied").expect("a file");
    run("mv", &[&a.at("2/d.tmp"), &a.at("3/d")]);
    assert!(is_missing(&a.at("2/d.tmp")));
    // Another mount may see the former version for a second.
    std::thread::sleep(Duration::from_millis(1100));
    has(&b.at("2/c"), b"moved");
    has(&b.at("3/d"), b"copied");
    // All of it is on the PFS when the nodes are gone.
    testbed.wait_for_empty_buffers();
    assert_eq!(testbed.client(0).drain(JOB, Some(entresol_burst::CheckpointId(2)), MINUTE).expect("drained"), [""; 0]);
    drop((a, b));
    testbed.nodes.iter_mut().for_each(|node| *node = None);
    let alone = ClientSettings { coordinator: None, ..testbed.settings(0) };
    let c = Mounted::new(&testbed, "mount-pfs", 3, alone);
    assert_eq!(c.newest(), Some("2".into()));
    has(&c.at("newest/a"), &bytes[..9_000_001]);
    has(&c.at("newest/b"), &bytes);
    has(&c.at("newest/c"), b"moved");
}

fn rename_no_replace(from: &Path, to: &Path) -> std::io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    Ok(renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)?)
}

#[test]
fn a_program_that_is_killed_before_the_rename_completes_nothing_and_its_space_is_given_back() {
    if !can_mount() {
        return;
    }
    let testbed = Testbed::new("chunked:chunk=4MiB", 2, 64 * MIB);
    let (a, b) = (Mounted::on(&testbed, 0, 1), Mounted::on(&testbed, 1, 1));
    fs::create_dir(a.at("1")).expect("a checkpoint");
    let bytes = contents(9, 18 * MIB + 9);
    let source = testbed.path("source");
    fs::write(&source, &bytes).expect("a file");
    let arguments = [&*a.path, &source];
    let kill = "os.kill(os.getpid(), 9)";
    let save =
        |before: &str| saves(&format!("save(os.path.abspath('1/state'), source, '1/state.tmp', '{before}')"), "");
    let is_nothing = || is_missing(&a.at("1/state")) && a.newest().is_none() && b.newest().is_none();
    // Between the close and the rename the file waits under its temporary name.
    let Some(status) = python(&save(kill), &arguments) else { return };
    assert!(!status.success() && is_nothing());
    has(&a.at("1/state.tmp"), &bytes);
    testbed.wait_for_empty_buffers();
    has(&a.at("1/state.tmp"), &bytes);
    // In the middle of the file, and after the rename of a file that is open.
    for script in [
        format!("f = open('1/half.tmp', 'wb'); f.write(source); {kill}"),
        format!("f = open('1/half.tmp', 'wb', 0); f.write(source[:99]); os.rename('1/half.tmp', '1/half'); {kill}"),
    ] {
        assert!(!python(&saves("", &script), &arguments).expect("python").success());
        assert!(is_missing(&a.at("1/half.tmp")) && is_missing(&a.at("1/half")) && is_nothing());
    }
    // The name that was claimed is the checkpoint's only one. A new checkpoint has the same names again.
    fs::create_dir(a.at("2")).expect("a checkpoint");
    let again = save("0").replace("1/", "2/");
    fs::write(a.at("2/state.tmp"), b"older bytes").expect("a file");
    assert!(python(&again, &arguments).expect("python").success());
    assert_eq!(b.newest(), Some("2".into()));
    has(&b.at("2/state"), &bytes);
    // A file that nobody renames is lost with its mount.
    drop(a);
    let a = Mounted::on(&testbed, 0, 1);
    assert!(is_missing(&a.at("1/state.tmp")));
    testbed.wait_for_empty_buffers();
}

#[test]
fn ranks_of_several_mounts_rename_files_of_one_temporary_name() {
    if !can_mount() {
        return;
    }
    let testbed = Testbed::new("chunked:chunk=2MiB", 3, 64 * MIB);
    let mounts: Vec<Mounted> = (0..3).map(|node| Mounted::on(&testbed, node, 3)).collect();
    fs::create_dir(mounts[0].at("1")).expect("a checkpoint");
    let bytes = contents(10, 6 * MIB);
    let part = bytes.len() / 3;
    std::thread::scope(|scope| {
        for (rank, mount) in mounts.iter().enumerate() {
            let own = &bytes[rank * part..][..part];
            scope.spawn(move || {
                // A part is written several times; the last version counts.
                for version in (0..3).rev() {
                    let mut file = File::create(mount.at("1/state.tmp")).expect("a file");
                    file.write_all(&own[version..]).expect("written");
                    file.sync_all().expect("stored");
                    drop(file);
                    fs::rename(mount.at("1/state.tmp"), mount.at(&format!("1/rank-{rank}"))).expect("renamed");
                    File::open(mount.at("1")).and_then(|folder| folder.sync_all()).expect("synced");
                }
            });
        }
    });
    std::thread::sleep(Duration::from_millis(1100));
    for mount in &mounts {
        assert_eq!(mount.newest(), Some("1".into()));
        (0..3).for_each(|rank| has(&mount.at(&format!("1/rank-{rank}")), &bytes[rank * part..][..part]));
    }
    // One name from two mounts: the last rename counts.
    for (mount, word) in [(&mounts[0], "zero"), (&mounts[1], "one")] {
        fs::write(mount.at("1/next.tmp"), word).expect("written");
    }
    for mount in [1, 0] {
        fs::rename(mounts[mount].at("1/next.tmp"), mounts[mount].at("1/rank-2")).expect("renamed");
    }
    std::thread::sleep(Duration::from_millis(1100));
    has(&mounts[2].at("1/rank-2"), b"zero");
}
