//! Reports by users of similar programs, tried with the real command. `lab/results/public-reports.md` has the table,
//! with the repository and number of each report and the test here that goes with it.

mod common;

use common::image::Image;
use common::mounted::Mounted;
use common::served::client::Client;
use common::{Scratch, Signal, crash, says, signal};
use rustix::fs::{Timespec, Timestamps};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const WRITE_BACK: Option<[&str; 2]> = Some(["write-back", "face-gsc"]);
const BOTH: [&str; 4] = ["--cache", "cache", "--backing", "backing"];

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        entresol_skip::skipped!("root", "only root may mount something else");
    }
    root
}

/// Bytes that differ for each seed.
fn bytes(seed: u64, count: usize) -> Vec<u8> {
    let mut random = entresol_core::Random::new(seed);
    (0..count).map(|_| random.next_u64() as u8).collect()
}

/// Waits until a condition holds.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Time for which a busy mount is watched after its SIGTERM: it must not have ended by then.
const LINGERS: Duration = Duration::from_millis(3500);

/// True if a command ends by itself within this time.
fn ends_within(limit: Duration, process: u32) -> bool {
    std::thread::sleep(limit);
    let state = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = state.rsplit(") ").next().and_then(|rest| rest.chars().next());
    state.is_none_or(|state| state == 'Z')
}

/// seaweedfs 9363: a time that was set is replaced when earlier writes go to the backing store.
#[test]
fn times_that_were_set_stay_over_a_restart_and_a_drain() {
    let Some(mut mounted) = Mounted::with(WRITE_BACK) else { return };
    let then = Timespec { tv_sec: 1_579_091_696, tv_nsec: 123_456_789 };
    for name in ["short", "long"] {
        let path = mounted.above().join(name);
        fs::write(&path, bytes(1, if name == "short" { 6 } else { 50_000 })).expect("a file");
        let times = Timestamps { last_access: then, last_modification: then };
        rustix::fs::utimensat(rustix::fs::CWD, &path, &times, rustix::fs::AtFlags::empty()).expect("a time");
    }
    let check = |mounted: &Mounted, when: &str| {
        for name in ["short", "long"] {
            let found = fs::metadata(mounted.below().join(name)).expect("a file");
            assert_eq!((found.mtime(), found.mtime_nsec()), (then.tv_sec, then.tv_nsec), "{name}, {when}");
        }
    };
    check(&mounted, "at once");
    mounted.signal(Signal::TERM);
    assert_eq!(mounted.end(), (Some(0), String::new()));
    check(&mounted, "after a stop");
    // A start reserves blocks for pages to be written back.
    assert!(mounted.start());
    check(&mounted, "after a start");
    mounted.unmount();
    check(&mounted, "after a drain");
}

/// fscq 11, jacobsa/fuse 71: `sync` does not reach a server of files, and bytes that no process syncs by itself are in
/// danger for ever.
#[test]
fn what_nobody_syncs_is_durable_after_a_while() {
    let Some(mut mounted) = Mounted::with(WRITE_BACK) else { return };
    mounted.unmount();
    assert!(mounted.start_with(&["--sync-after", "1s"]));
    let written = bytes(2, 300_000);
    fs::write(mounted.above().join("f"), &written).expect("a file");
    std::thread::sleep(Duration::from_millis(3500));
    mounted.signal(Signal::KILL);
    mounted.end();
    assert!(mounted.start());
    assert!(fs::read(mounted.above().join("f")).expect("the file") == written);
    mounted.unmount();
}

/// gcsfuse 2465: several dead mounts on one path, each of which has to be removed.
#[test]
fn dead_mounts_one_over_the_other_are_all_replaced() {
    let Some(mut mounted) = Mounted::new() else { return };
    let scratch = &mounted.scratch;
    fs::create_dir(scratch.path("other")).expect("a directory");
    let mut command = scratch.command(&["-q", "mount", "other", "mount"]);
    let mut over = command.stdout(Stdio::piped()).spawn().expect("the command runs");
    let mut line = String::new();
    BufReader::new(over.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    assert_eq!(line, "other at mount, no cache\n");
    over.kill().expect("a signal");
    over.wait().expect("an end");
    mounted.signal(Signal::KILL);
    mounted.end();
    assert!(fs::read_dir(mounted.above()).is_err(), "nobody serves it");
    assert!(mounted.start(), "both are replaced");
    fs::write(mounted.above().join("f"), "x").expect("a file");
    mounted.unmount();
    assert_eq!(fs::read_dir(mounted.above()).expect("the mount point").count(), 0, "nothing is mounted there any more");
}

/// Starts a mount with these arguments; none where nothing can be mounted.
fn served(scratch: &Scratch, arguments: &[&str]) -> Option<Child> {
    let mut command = scratch.command(&[&["-q", "mount"], arguments].concat());
    let mut server = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command runs");
    let mut line = String::new();
    BufReader::new(server.stdout.take().expect("a pipe")).read_line(&mut line).expect("text");
    if line.is_empty() {
        let output = server.wait_with_output().expect("an end");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(common::is_impossible(&said), "{said}");
        return None;
    }
    Some(server)
}

/// wake 663: a server that ends while files are open. Here the folder of its mount point was renamed.
#[test]
fn a_mount_whose_folder_was_renamed_ends_with_its_last_file() {
    let scratch = Scratch::new();
    ["backing", "up", "up/mount"].iter().for_each(|name| fs::create_dir(scratch.path(name)).expect("a directory"));
    scratch.format(&[&["--size", "2MiB"], &BOTH[..]].concat());
    let Some(server) = served(&scratch, &["backing", "up/mount", "--cache", "cache"]) else { return };
    let renamed = scratch.path("renamed/mount");
    fs::rename(scratch.path("up"), scratch.path("renamed")).expect("a folder with a mount in it may be renamed");
    let mut file = File::create(renamed.join("f")).expect("a file");
    signal(server.id(), Signal::TERM);
    assert!(!ends_within(LINGERS, server.id()), "a file is open");
    file.write_all(b"still served").expect("a write");
    drop(file);
    ended(server, 0);
    assert_eq!(fs::read_dir(&renamed).expect("the mount point").count(), 0, "nothing is mounted there any more");
    scratch.ok(&[&["-q", "drain"], &BOTH[..]].concat());
    assert_eq!(scratch.read("backing/f"), "still served");
}

/// wake 663, go-fuse 302: the same, and an unmount that does not end. Here another file system is mounted over it, or
/// in it.
#[test]
fn a_mount_under_or_around_another_one_ends_when_that_has_gone() {
    if !is_root() {
        return;
    }
    let Some(mut mounted) = Mounted::with(WRITE_BACK) else { return };
    for (inside, why) in [("", "another file system is mounted over it"), ("sub", "mount/sub is mounted in it")] {
        let sub = mounted.above().join("sub");
        fs::create_dir_all(&sub).expect("a directory");
        let mut file = (inside.is_empty()).then(|| File::create(mounted.above().join("f")).expect("a file"));
        let place = mounted.above().join(inside);
        mount("none", &place, "tmpfs", MountFlags::empty(), None).expect("a mount");
        mounted.signal(Signal::TERM);
        // The server prints the reason after a second.
        let limit = if inside.is_empty() { LINGERS } else { Duration::from_millis(1500) };
        assert!(!ends_within(limit, mounted.process()), "{why}");
        if let Some(file) = &mut file {
            file.write_all(b"still served").expect("a write");
        }
        drop(file);
        unmount(&place, UnmountFlags::DETACH).expect("the other one goes first");
        let (code, said) = mounted.end();
        assert_eq!(code, Some(0), "{said}");
        says(&said, &["busy", why, "; the mount ends as soon as the other is unmounted"]);
        assert!(mounted.start());
    }
    assert_eq!(fs::read(mounted.above().join("f")).expect("a file"), b"still served");
    mounted.unmount();
}

/// mergerfs 1021: `umount -f` of a part that was mounted elsewhere ends the connection of the whole.
#[test]
fn a_connection_that_is_broken_off_is_said_and_no_good_end() {
    if !is_root() {
        return;
    }
    let Some(mut mounted) = Mounted::with(WRITE_BACK) else { return };
    fs::create_dir(mounted.above().join("sub")).expect("a directory");
    let written = bytes(3, 10_000);
    File::create(mounted.above().join("sub/f"))
        .and_then(|mut file| {
            file.write_all(&written)?;
            file.sync_all()
        })
        .expect("a file");
    let elsewhere = mounted.plain();
    mount_bind(mounted.above().join("sub"), &elsewhere).expect("a part of it elsewhere");
    unmount(&elsewhere, UnmountFlags::FORCE).expect("it goes, and with it the connection");
    let (code, said) = mounted.end();
    assert_eq!(code, Some(2), "a service manager starts it again: {said}");
    says(&said, &["mount: its connection was broken off", "`umount -f`"]);
    mounted.scratch.ok(&[&["check"], &BOTH[..]].concat());
    assert!(mounted.start(), "the dead mount is replaced");
    assert!(fs::read(mounted.above().join("sub/f")).expect("the file") == written);
    mounted.unmount();
}

/// dwarfs 323, fuser 424, bindfs 47, libfuse 634: blanks, commas, backslashes and worse in the names of sources and
/// mount points.
#[test]
fn a_cache_of_any_name_is_served_and_found_by_its_mount() {
    let scratch = Scratch::new();
    let names: [&[u8]; 6] = [b"a b", b"a,rw,b", b"a\\b", b"a\nb", b"a\xffb", b"50%2Cb"];
    for name in names {
        let name = OsString::from_vec(name.to_vec());
        let with = |what: &str| {
            let mut name = name.clone();
            name.push(what);
            PathBuf::from(name)
        };
        let [cache, backing, place] = ["c", "b", "m"].map(with);
        [&backing, &place].iter().for_each(|path| fs::create_dir(scratch.path("").join(path)).expect("a directory"));
        let command = |arguments: &[&str], paths: &[&Path]| {
            let mut command = scratch.command(arguments);
            command.args(paths);
            command
        };
        let options = |command: &mut Command| {
            command.arg("--cache").arg(&cache).arg("--backing").arg(&backing);
        };
        let ok = |mut command: Command| {
            let output = command.output().expect("the command runs");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(0), "{name:?}: {said}");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let mut format = command(&["-q", "format", "--mode=write-back", "--size", "2MiB"], &[]);
        options(&mut format);
        ok(format);
        let mut server = command(&["mount", "--mode", "write-back"], &[&backing, &place]);
        let server = server.arg("--cache").arg(&cache).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut server = server.expect("the command runs");
        let mut first = [0];
        let mounted = server.stdout.as_mut().expect("a pipe").read(&mut first).expect("a line") > 0;
        if !mounted {
            let mut said = String::new();
            server.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
            server.wait().expect("an end");
            assert!(common::is_impossible(&said), "{name:?}: {said}");
            return;
        }
        fs::write(scratch.path("").join(&place).join(&name), "content").expect("a file of that name");
        let by_place = ok(command(&["stats"], &[&place]));
        signal(server.id(), Signal::TERM);
        let mut said = Vec::new();
        server.stderr.take().expect("a pipe").read_to_end(&mut said).expect("what it said");
        assert_eq!(server.wait().expect("an end").code(), Some(0));
        assert!(by_place.contains("served by"), "{name:?}: {by_place}");
        // An event is one line, and each begins with the name of the cache.
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(said.lines().count() >= 3 && said.lines().all(|line| line.contains(": ")), "{name:?}: {said}");
        let mut drain = command(&["-q", "drain"], &[]);
        options(&mut drain);
        ok(drain);
        assert_eq!(fs::read(scratch.path("").join(&backing).join(&name)).expect("a file"), b"content");
    }
}

/// Serves a cache over NBD at a socket of any path; returns its output.
fn nbd(scratch: &Scratch, socket: &Path) -> (Child, String) {
    let mut command = scratch.command(&["-q", "serve", "nbd", "--backing", "backing", "--cache", "cache", "--socket"]);
    let mut server =
        command.arg(socket).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command runs");
    let mut line = String::new();
    BufReader::new(server.stdout.take().expect("a pipe")).read_line(&mut line).expect("text");
    (server, line.trim_end().to_owned())
}

/// Ends a server that has not ended by itself, checks its exit code, and returns its output.
fn ended(mut server: Child, code: i32) -> String {
    signal(server.id(), Signal::TERM);
    let mut said = String::new();
    server.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    assert_eq!(server.wait().expect("an end").code(), Some(code), "{said}");
    said
}

/// jupyter_server 1694, bun 28342: a URI with the unescaped path of a socket, which leads elsewhere or nowhere.
#[test]
fn the_uri_of_a_socket_leads_to_it_whatever_its_path_is() {
    let scratch = Scratch::new();
    scratch.file("backing", vec![7; 1 << 16]);
    scratch.format(&["--size", "2MiB", "--cache", "cache", "--backing", "backing"]);
    let names: [&[u8]; 5] = [b"a b", b"a%20b", b"a&tls=1", b"a#b?", b"\xc3\xa9\xff"];
    for name in names {
        let folder = scratch.path("").join(OsString::from_vec(name.to_vec()));
        fs::create_dir(&folder).expect("a directory");
        let socket = folder.join("s");
        let (server, uri) = nbd(&scratch, &socket);
        let path = uri.strip_prefix("nbd+unix:///?socket=").unwrap_or_else(|| panic!("{uri}"));
        assert!(path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-._~%".contains(&byte)), "{uri}");
        let decoded = OsString::from_vec(entresol_nbd::percent::decoded(path.as_bytes()));
        assert_eq!(Path::new(&decoded), socket);
        assert_eq!(Client::connect(Path::new(&decoded), false).expect("a connection").size, 1 << 16);
        // Another program parses the URI, where it is installed.
        match Command::new("nbdinfo").args(["--size", &uri]).output() {
            Ok(output) => assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "65536", "{uri}: {output:?}"),
            Err(error) => entresol_skip::skipped!("nbdinfo", "nbdinfo: {error}"),
        }
        ended(server, 0);
    }
    let long = scratch.path(&"x".repeat(120));
    fs::create_dir(&long).expect("a directory");
    let (server, uri) = nbd(&scratch, &long.join("s"));
    assert_eq!(uri, "");
    says(&ended(server, 2), &["a path of ", "bytes; a Unix socket takes 107"]);
}

/// lxcfs 122, podman 17647, tigerbeetle 1995: no more threads, and no io_uring, as in a container.
#[test]
fn without_threads_to_be_had_no_device_is_taken_for_a_failing_one() {
    // A user without other processes: threads are counted by user.
    const USER: u32 = 61_234;
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    scratch.file("backing", vec![0; 32 << 20]);
    std::os::unix::fs::chown(scratch.path(""), Some(USER), Some(USER)).expect("another owner");
    let mine = |arguments: &[&str]| {
        let mut command = scratch.command(arguments);
        command.uid(USER).gid(USER);
        // Rings need locked memory, of which there is none.
        let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
        // SAFETY: between fork and exec one system call is made, and nothing is allocated.
        unsafe { command.pre_exec(move || Ok(rustix::process::setrlimit(rustix::process::Resource::Memlock, none)?)) };
        command
    };
    fs::set_permissions(scratch.path("backing"), fs::Permissions::from_mode(0o666)).expect("a mode");
    std::os::unix::fs::chown(scratch.path("backing"), Some(USER), Some(USER)).expect("another owner");
    let format = ["-q", "format", "--mode=write-back", "--size", "24MiB", "--cache", "cache", "--backing", "backing"];
    let made = mine(&format).output().expect("the command runs");
    assert!(made.status.success(), "{made:?}");
    let serve = ["serve", "nbd", "--backing", "backing", "--cache", "cache", "--socket", "s", "--mode", "write-back"];
    let mut server = mine(&serve);
    let mut server = server.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command runs");
    let mut client = common::served::reached(&scratch, &mut server);
    let written = bytes(5, 8 << 20);
    client.write(0, &written, common::served::client::FUA);
    let limit = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    let process = rustix::process::Pid::from_raw(i32::try_from(common::serving(server.id())).expect("a number"));
    let limited = std::thread::spawn(move || {
        // The change is for this thread alone: a process may be limited only by its own user.
        let (user, group) = (rustix::process::Uid::from_raw(USER), rustix::process::Gid::from_raw(USER));
        rustix::thread::set_thread_res_gid(group, group, group).expect("another group");
        rustix::thread::set_thread_res_uid(user, user, user).expect("another user");
        rustix::process::prlimit(process, rustix::process::Resource::Nproc, limit)
    });
    limited.join().expect("no panic").expect("a limit");
    for at in (0..8 << 20).step_by(1 << 20) {
        assert!(client.read(at as u64, 1 << 20) == written[at..][..1 << 20], "{at}");
        client.write((16 << 20) + at as u64, &written[at..][..1 << 20], 0);
    }
    client.write(0, &written[..4096], common::served::client::FUA);
    drop(client);
    let said = ended(server, 0);
    assert!(said.contains("I/O by threads"), "there are rings after all: {said}");
    assert!(!said.contains("failed"), "{said}");
    assert!(mine(&["-q", "drain", "--cache", "cache", "--backing", "backing"]).status().expect("an end").success());
    let below = scratch.bytes("backing");
    assert!(below[..8 << 20] == written && below[16 << 20..][..8 << 20] == written);
}

/// singularity 3694, csi-gcs 65: orphaned processes stay as zombies until the end.
#[test]
fn run_waits_for_what_its_command_leaves_behind_as_it_ends() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("backing")).expect("a directory");
    scratch.format(&[&["--size", "2MiB"], &BOTH[..]].concat());
    // Twenty grandchildren that end at once, whose parent has ended before them.
    let script = "for i in $(seq 20); do (sleep 0.05 &); done; sleep 1; \
        for stat in /proc/[0-9]*/stat; do read -r _ _ state parent _ <$stat 2>/dev/null; \
        [ \"$parent $state\" = \"$PPID Z\" ] && echo zombie; done; (sleep 0.3; echo late >left) & exit 7";
    let mut command = scratch.command(&[&["-q", "run"], &BOTH[..], &["--", "bash", "-c", script]].concat());
    let output = command.output().expect("the command runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if common::is_impossible(&said) {
        return;
    }
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    assert_eq!(scratch.read("left"), "late\n", "it waits for what is left");
}

/// docker/for-linux 321, podman 14402, restic-backup-docker 72: missing devices and rights of a container.
#[test]
fn what_a_container_lacks_to_mount_is_said() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    ["backing", "mount"].iter().for_each(|name| fs::create_dir(scratch.path(name)).expect("a directory"));
    scratch.format(&[&["--size", "2MiB"], &BOTH[..]].concat());
    let before = scratch.bytes("cache").len();
    let program = env!("CARGO_BIN_EXE_entresol");
    let mount = format!("exec '{program}' -q mount backing mount --cache cache");
    let said = |program: &str, arguments: &[&str], environment: &[(&str, &str)]| {
        let mut command = Command::new(program);
        command.args(arguments).arg("bash").arg("-c");
        let hidden = "mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && mknod -m 666 /dev/urandom c 1 9; ";
        let before = if program == "unshare" { hidden } else { "" };
        command.arg(format!("{before}{mount}")).current_dir(scratch.path("")).envs(environment.iter().copied());
        command.env("ENTRESOL_STATE_DIR", scratch.path("state"));
        let output = command.output().ok()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        scratch.ok(&[&["check"], &BOTH[..]].concat());
        Some(said)
    };
    let without = ["--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"];
    let Some(no_device) = said("unshare", &["-m"], &[]) else {
        entresol_skip::skipped!("unshare", "no mount namespace can be made here");
        return;
    };
    says(&no_device, &["/dev/fuse: ", "--device /dev/fuse"]);
    if File::open("/dev/fuse").is_err() {
        entresol_skip::skipped!("/dev/fuse", "there is none");
        return;
    }
    let Some(no_helper) = said("setpriv", &without, &[("FUSERMOUNT_PATH", "/nonexistent/fusermount3")]) else {
        entresol_skip::skipped!("setpriv", "no capability can be taken away");
        return;
    };
    says(&no_helper, &["mount: fusermount3 is not there (package fuse3)"]);
    let no_right = said("setpriv", &without, &[]).expect("it ran before");
    // Without the helper the error is as above.
    assert!(no_right.contains("CAP_SYS_ADMIN") || no_right.contains("fusermount3 is not there"), "{no_right}");
    assert_eq!(scratch.bytes("cache").len(), before);
}

/// dm-writeboost 132: a page that the cache held before a write-around is believed by the next start.
#[test]
fn a_page_that_was_written_around_the_cache_is_new_after_a_restart() {
    for crash in [false, true] {
        let Some(mut mounted) = Mounted::with(Some(["write-around", "lru"])) else { return };
        let path = mounted.above().join("f");
        fs::write(&path, [1; 100_000]).expect("a file");
        (0..3).for_each(|_| assert_eq!(fs::read(&path).expect("the file"), [1; 100_000]));
        let file = File::options().write(true).open(&path).expect("the file");
        file.write_all_at(&[2; 60_000], 5000).and_then(|()| file.sync_all()).expect("a write");
        drop(file);
        mounted.signal(if crash { Signal::KILL } else { Signal::TERM });
        mounted.end();
        assert!(mounted.start());
        let found = fs::read(&path).expect("the file");
        let is = |at: usize| if (5000..65_000).contains(&at) { 2 } else { 1 };
        assert!(found.iter().enumerate().all(|(at, &byte)| byte == is(at)), "crash: {crash}");
        mounted.unmount();
    }
}

/// pyfuse3 31, mergerfs 468, seaweedfs 1514: files are skipped when others are removed while a folder is read.
#[test]
fn a_folder_that_is_emptied_while_it_is_read_is_empty() {
    let Some(mut mounted) = Mounted::new() else { return };
    let folder = mounted.above().join("many");
    fs::create_dir(&folder).expect("a directory");
    for number in 0..3000 {
        File::create(folder.join(format!("{}{number}", "n".repeat(number % 60)))).expect("a file");
    }
    let removed =
        fs::read_dir(&folder).expect("the directory").map(|entry| fs::remove_file(entry.expect("an entry").path()));
    assert_eq!(removed.map(|done| done.expect("it was there")).count(), 3000);
    fs::remove_dir(&folder).expect("it is empty");
    mounted.unmount();
}

/// moby 31587, docker/docs 3709: a file of an overlay that was read before it was written is another one afterwards.
#[test]
fn a_backing_directory_on_an_overlay_has_the_newest_bytes() {
    if !is_root() {
        return;
    }
    let Some(mut mounted) = Mounted::with(WRITE_BACK) else { return };
    mounted.unmount();
    fs::remove_file(mounted.scratch.path("cache")).expect("the cache");
    let [lower, upper, work] = ["lower", "upper", "work"].map(|name| mounted.scratch.path(name));
    [&lower, &upper, &work].iter().for_each(|path| fs::create_dir(path).expect("a directory"));
    let mut expected = bytes(6, 100_000);
    fs::write(lower.join("f"), &expected).expect("a file");
    let below = mounted.below();
    let options = format!("lowerdir={},upperdir={},workdir={}", lower.display(), upper.display(), work.display());
    let options = std::ffi::CString::new(options).expect("a text");
    if let Err(error) = mount("overlay", &below, "overlay", MountFlags::empty(), Some(options.as_c_str())) {
        entresol_skip::skipped!("place", "no overlay here: {error}");
        return;
    }
    mounted.scratch.format(&[&["--size", "2MiB"], &BOTH[..]].concat());
    assert!(mounted.start());
    let path = mounted.above().join("f");
    let reader = File::open(&path).expect("a file below the overlay's upper layer");
    let mut found = vec![0; expected.len()];
    reader.read_exact_at(&mut found, 0).expect("a read");
    assert!(found == expected);
    expected[5000..5100].fill(9);
    let writer = File::options().write(true).open(&path).expect("the file");
    writer.write_all_at(&[9; 100], 5000).and_then(|()| writer.sync_all()).expect("a write, which copies it up");
    reader.read_exact_at(&mut found, 0).expect("a read");
    assert!(found == expected, "who had it open sees the write");
    drop((reader, writer));
    mounted.signal(Signal::KILL);
    mounted.end();
    assert!(mounted.start());
    assert!(fs::read(&path).expect("the file") == expected);
    mounted.unmount();
    assert!(fs::read(upper.join("f")).expect("a copy") == expected);
    unmount(&below, UnmountFlags::DETACH).expect("it was there");
}

/// rclone 4442: with a full disk no start is possible.
#[test]
fn full_file_systems_on_both_sides_are_started_on_and_drained() {
    let Some(mut mounted) = Mounted::with(WRITE_BACK) else { return };
    mounted.unmount();
    let scratch = &mounted.scratch;
    let full = |name: &str| Image::new(scratch.path(name), 24, &["mkfs.ext4", "-q", "-m", "0"]);
    let (Some(slow), Some(fast)) = (full("slow"), full("fast")) else { return };
    let mut expected = bytes(7, 2_000_000);
    fs::create_dir(slow.at.join("data")).expect("a directory");
    fs::write(slow.at.join("data/f"), &expected).expect("a file");
    let both = ["--cache", "fast/cache", "--backing", "slow/data"];
    scratch.format(&[&["--size", "8MiB"], &both[..]].concat());
    let start = || {
        served(scratch, &["slow/data", "mount", "--cache", "fast/cache", "--mode", "write-back"])
            .expect("it could before")
    };
    for image in [&slow, &fast] {
        let mut rest = File::create(image.at.join("rest")).expect("a file");
        while rest.write(&[1; 4096]).is_ok() {}
    }
    let path = scratch.path("mount/f");
    for round in 0..2 {
        let server = start();
        let at = 100_000 * (round + 1);
        let file = File::options().write(true).open(&path).expect("the file");
        file.write_all_at(&[round as u8; 70_000], at as u64).and_then(|()| file.sync_all()).expect("no room is needed");
        drop(file);
        expected[at..at + 70_000].fill(round as u8);
        if round == 0 {
            crash(server.id())
        } else {
            signal(server.id(), Signal::TERM)
        }
        let output = server.wait_with_output().expect("an end");
        assert!(round == 0 || output.status.success(), "{output:?}");
    }
    scratch.ok(&[&["-q", "drain"], &both[..]].concat());
    assert!(fs::read(slow.at.join("data/f")).expect("the file") == expected);
}

/// Open-CAS 1169, backy2 33: sectors of 4096 bytes on one side and requests of 512 on the other.
#[test]
fn devices_with_sectors_of_4096_bytes_are_served_to_who_asks_for_512() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    let device = |name: &str, sector: &str| {
        File::create(scratch.path(name)).and_then(|file| file.set_len(16 << 20)).expect("a file");
        let image = scratch.path(name);
        let made = Command::new("losetup").args(["--find", "--show", "-b", sector]).arg(&image).output().ok()?;
        made.status.success().then(|| Loop(String::from_utf8_lossy(&made.stdout).trim().to_owned()))
    };
    let devices = (device("a", "4096"), device("b", "512"), device("c", "4096"));
    let (Some(large), Some(small), Some(other)) = devices else {
        entresol_skip::skipped!("losetup", "no loop devices with sectors of this size here");
        return;
    };
    for (cache, backing) in [(&large, &small), (&small, &large), (&large, &other)] {
        let both = ["--cache", &cache.0, "--backing", &backing.0, "--identity", "6d0f5c1e-58f2-4bb5-8fd0-4c1c6e0b6c11"];
        let mut before = vec![0; 16_384];
        File::open(&backing.0).and_then(|file| file.read_exact_at(&mut before, 0)).expect("a read");
        let forced = ["-q", "format", "--mode=write-back", "--force"];
        let made = scratch.run(&[&forced[..], &both].concat());
        assert!(made.status.success(), "{made:?}");
        let serve = ["serve", "nbd", "--socket", "s", "--direct", "--mode", "write-back"];
        let mut command = scratch.command(&[&serve[..], &both].concat());
        let server = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut server = server.expect("the command runs");
        let mut client = common::served::reached(&scratch, &mut server);
        client.write(512, &[5; 512], 0);
        client.write(10_240, &[6; 1536], common::served::client::FUA);
        assert_eq!(client.read(512, 512), [5; 512]);
        drop(client);
        ended(server, 0);
        scratch.ok(&[&["-q", "drain"], &both[..]].concat());
        let mut found = vec![0; 16_384];
        File::open(&backing.0).and_then(|file| file.read_exact_at(&mut found, 0)).expect("a read");
        assert!(found[512..1024] == [5; 512] && found[10_240..11_776] == [6; 1536], "{both:?}");
        assert!(found[1024..10_240] == before[1024..10_240] && found[..512] == before[..512], "{both:?}");
    }
}

/// A loop device, until it goes out of scope.
struct Loop(String);

impl Drop for Loop {
    fn drop(&mut self) {
        let _gone = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

/// nbd 116, nbd 44: exports whose size is no multiple of a block, or more than a TiB.
#[test]
fn an_export_of_any_size_has_that_size() {
    let scratch = Scratch::new();
    for size in [1, 512, 4097, 241_059, 3 << 40] {
        let _before = fs::remove_file(scratch.path("backing"));
        let file = File::create(scratch.path("backing")).expect("a file");
        file.set_len(size).expect("a size");
        let end = bytes(8, 300);
        let (from, end) = (size.saturating_sub(300), &end[..size.min(300) as usize]);
        file.write_all_at(end, from).expect("a write");
        // A process that has it open for writing keeps a cache from being served.
        drop(file);
        scratch.format(&["--force", "--size", "2MiB", "--cache", "cache", "--backing", "backing"]);
        let (server, uri) = nbd(&scratch, Path::new("s"));
        assert_eq!(
            uri,
            "nbd+unix:///?socket=s",
            "{size}: {}",
            if uri.is_empty() { ended(server, 0) } else { uri.clone() }
        );
        let mut client = Client::connect(&scratch.path("s"), true).expect("a connection");
        assert_eq!(client.size, size);
        assert_eq!(client.read(from, end.len() as u32), end);
        drop(client);
        ended(server, 0);
    }
}

/// A daemon that is started without standard input, output and error must not use their numbers for its files.
#[test]
fn a_mount_without_standard_streams_keeps_its_files_whole() {
    let Some(mut mounted) = Mounted::with(WRITE_BACK) else { return };
    mounted.unmount();
    let program = env!("CARGO_BIN_EXE_entresol");
    let script = format!("exec '{program}' mount backing mount --cache cache --mode write-back <&- >&- 2>&-");
    let mut command = Command::new("bash");
    command.args(["-c", &script]).current_dir(mounted.scratch.path(""));
    let mut server = command.env("ENTRESOL_STATE_DIR", mounted.scratch.path("state")).spawn().expect("bash");
    let device = |path: &Path| fs::metadata(path).map(|found| found.dev()).unwrap_or(0);
    let outside = device(&mounted.scratch.path(""));
    until("it is mounted", || device(&mounted.above()) != outside);
    let written = bytes(9, 50_000);
    fs::write(mounted.above().join("f"), &written).expect("a file");
    signal(server.id(), Signal::TERM);
    assert_eq!(server.wait().expect("an end").code(), Some(0));
    mounted.scratch.ok(&[&["check"], &BOTH[..]].concat());
    mounted.scratch.ok(&[&["-q", "drain"], &BOTH[..]].concat());
    assert!(fs::read(mounted.below().join("f")).expect("a file") == written);
}
