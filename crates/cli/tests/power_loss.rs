//! A power loss after a name was removed and before the file system below has made that durable: pages of the file
//! that the cache has forgotten must still be in it. Real file systems on loop devices, which only root may make.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
const PAGES: usize = 64;

/// A file system of its own on a loop device, unmounted when it is dropped.
struct Slow {
    device: String,
    at: PathBuf,
}

impl Slow {
    fn mount(image: &Path, at: &Path) -> Self {
        fs::create_dir_all(at).expect("a mount point");
        let device = output("losetup", &["-f", "--show", text(image)]);
        let slow = Slow { device: device.trim().to_owned(), at: at.to_owned() };
        output("mount", &[&slow.device, text(at)]);
        slow
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        for (program, argument) in [("umount", text(&self.at)), ("losetup", &self.device)] {
            let detach: &[&str] = if program == "losetup" { &["-d"] } else { &["-l"] };
            let _gone = Command::new(program).args(detach).arg(argument).output();
        }
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().expect(program);
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// True if everything that these tests need is present; else the reason is printed.
fn can_run(test: &str) -> bool {
    let need = if !rustix::process::geteuid().is_root() {
        "root"
    } else if !Path::new("/dev/fuse").exists() {
        "/dev/fuse"
    } else if !Path::new("/dev/loop-control").exists() {
        "/dev/loop-control"
    } else if Command::new("mkfs.ext4").arg("-V").output().is_err() {
        "mkfs.ext4"
    } else {
        return true;
    };
    entresol_skip::skipped!(need, "{test}: there is no {need}");
    false
}

/// A mount with a cache, killed when it is dropped.
struct Mounted(Child);

impl Mounted {
    fn start(backing: &Path, at: &Path, cache: &Path) -> Self {
        fs::create_dir_all(at).expect("a mount point");
        let mut command = Command::new(env!("CARGO_BIN_EXE_entresol"));
        command.args(["mount", text(backing), text(at), "--cache", text(cache), "--policy", "lru"]);
        // The kill of the command is that of its server.
        command.args(["--restart", "off"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("entresol");
        let since = Instant::now();
        while rustix::fs::stat(at).expect("a place").st_dev == rustix::fs::stat(backing).expect("a place").st_dev
            || !is_mount(at)
        {
            if child.try_wait().expect("a child").is_some() || since.elapsed() > Duration::from_secs(60) {
                let mut why = String::new();
                let _said = child.stderr.take().map(|mut said| said.read_to_string(&mut why));
                panic!("not mounted: {why}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Mounted(child)
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, signal).expect("a process");
    }

    fn end(mut self) {
        self.signal(rustix::process::Signal::TERM);
        self.0.wait().expect("an end");
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _ended = self.0.wait();
    }
}

fn is_mount(at: &Path) -> bool {
    let parent = at.parent().expect("a parent");
    rustix::fs::stat(at).expect("a place").st_dev != rustix::fs::stat(parent).expect("a place").st_dev
}

fn put(path: &Path, byte: u8, pages: usize) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    file.write_all_at(&vec![byte; PAGE * pages], 0)?;
    file.sync_all()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Unlink,
    Rename,
    Nothing,
}

/// Does `how` to A, cuts the power before the file system below has made that durable, and reads A after a start: its
/// bytes, if it exists.
fn after_the_power_went(how: How, layout: &str) -> Option<Vec<u8>> {
    let scratch = tempfile::tempdir().expect("a directory");
    let path = |name: &str| scratch.path().join(name);
    File::create(path("disk")).and_then(|file| file.set_len(200 << 20)).expect("an image");
    output("mkfs.ext4", &["-q", "-F", text(&path("disk"))]);
    {
        let _slow = Slow::mount(&path("disk"), &path("slow"));
        let (data, at) = (path("slow/data"), path("mnt"));
        fs::create_dir(&data).expect("a directory");
        output(
            env!("CARGO_BIN_EXE_entresol"),
            &[
                "format",
                "--mode=write-back",
                "--cache",
                text(&path("cache")),
                "--backing",
                text(&data),
                "--size",
                "32MiB",
                "--layout",
                layout,
            ],
        );
        let mounted = Mounted::start(&data, &at, &path("cache"));
        put(&at.join("A"), b'A', PAGES).expect("a file");
        put(&at.join("B"), b'B', PAGES).expect("a file");
        if how == How::Rename {
            put(&at.join("A.tmp"), b'N', PAGES).expect("a file");
        }
        File::open(&at).and_then(|directory| directory.sync_all()).expect("a sync");
        output("sync", &["-f", text(&data)]);
        match how {
            How::Unlink => fs::remove_file(at.join("A")).expect("an unlink"),
            How::Rename => fs::rename(at.join("A.tmp"), at.join("A")).expect("a rename"),
            How::Nothing => {}
        }
        // Flushes make durable in the cache whatever it has forgotten.
        let file = OpenOptions::new().write(true).open(at.join("B")).expect("a file");
        for round in 0..20_u8 {
            file.write_all_at(&[round; PAGE], u64::from(round) * PAGE as u64).expect("a write");
            file.sync_data().expect("a sync");
        }
        drop(file);
        // The bytes that both devices have by now. The image of the backing store is what a power loss leaves: its
        // file system's page cache has not been written to it.
        mounted.signal(rustix::process::Signal::STOP);
        fs::copy(path("disk"), path("disk.crashed")).expect("a copy");
        fs::copy(path("cache"), path("cache.crashed")).expect("a copy");
        mounted.signal(rustix::process::Signal::CONT);
        mounted.end();
    }
    let _slow = Slow::mount(&path("disk.crashed"), &path("slow"));
    let (data, at) = (path("slow/data"), path("mnt"));
    let mounted = Mounted::start(&data, &at, &path("cache.crashed"));
    let found = fs::read(at.join("A")).ok();
    let other = fs::read(at.join("B")).expect("B was synced");
    assert!((0..20).all(|page| other[page * PAGE..(page + 1) * PAGE].iter().all(|&byte| byte == page as u8)));
    mounted.end();
    found
}

fn is_all(bytes: &[u8], byte: u8) -> bool {
    bytes.len() == PAGE * PAGES && bytes.iter().all(|&one| one == byte)
}

#[test]
fn a_file_whose_removal_was_not_durable_has_its_bytes_after_a_power_loss() {
    if can_run("a_file_whose_removal_was_not_durable_has_its_bytes_after_a_power_loss") {
        for layout in ["log", "slots", "segments"] {
            let found = after_the_power_went(How::Unlink, layout);
            assert!(found.is_none_or(|bytes| is_all(&bytes, b'A')), "{layout}: neither gone nor what was synced");
        }
    }
}

#[test]
fn a_file_that_was_renamed_over_is_the_old_or_the_new_one_after_a_power_loss() {
    if can_run("a_file_that_was_renamed_over_is_the_old_or_the_new_one_after_a_power_loss") {
        for layout in ["log", "slots", "segments"] {
            let found = after_the_power_went(How::Rename, layout).expect("one of them has the name");
            assert!(is_all(&found, b'A') || is_all(&found, b'N'), "{layout}: neither the old file nor the new one");
        }
    }
}

#[test]
fn a_synced_file_has_its_bytes_after_a_power_loss() {
    if can_run("a_synced_file_has_its_bytes_after_a_power_loss") {
        let found = after_the_power_went(How::Nothing, "log").expect("it was synced");
        assert!(is_all(&found, b'A'));
    }
}

#[test]
fn dirty_pages_of_a_file_that_is_missing_refuse_a_start_a_drain_and_a_check() {
    if !can_run("dirty_pages_of_a_file_that_is_missing_refuse_a_start_a_drain_and_a_check") {
        return;
    }
    let scratch = tempfile::tempdir().expect("a directory");
    let path = |name: &str| scratch.path().join(name);
    let (data, at, cache) = (path("data"), path("mnt"), path("cache"));
    fs::create_dir_all(data.join("sub")).expect("a directory");
    let entresol = |command: &str, more: &[&str]| {
        let both = ["--cache", text(&cache), "--backing", text(&data)];
        let mut entresol = Command::new(env!("CARGO_BIN_EXE_entresol"));
        entresol.arg(command).args(both).args(more).output().expect("entresol")
    };
    assert!(entresol("format", &["--mode=write-back", "--size", "32MiB"]).status.success());
    let mounted = Mounted::start(&data, &at, &cache);
    put(&at.join("sub/x"), b'x', PAGES).expect("a file");
    mounted.end();
    for how in ["another file system over the folder", "the folder moved and linked"] {
        let over = how.starts_with("another");
        if over {
            output("mount", &["-t", "tmpfs", "none", text(&data.join("sub"))]);
        } else {
            fs::rename(data.join("sub"), path("elsewhere")).expect("a move");
            std::os::unix::fs::symlink(path("elsewhere"), data.join("sub")).expect("a link");
        }
        for command in ["check", "drain"] {
            let refused = entresol(command, &[]);
            let said = String::from_utf8_lossy(&refused.stderr).into_owned();
            assert!(!refused.status.success() && said.contains(&format!("{PAGES} pages of 1 file ")), "{how}: {said}");
            assert!(said.contains(text(&data.join("sub"))), "{how}: the folder is named: {said}");
        }
        let mut start = Command::new(env!("CARGO_BIN_EXE_entresol"));
        let start = start.args(["mount", text(&data), text(&at), "--cache", text(&cache)]).output().expect("entresol");
        assert!(!start.status.success() && String::from_utf8_lossy(&start.stderr).contains("--drop-gone"), "{how}");
        if over {
            output("umount", &["-l", text(&data.join("sub"))]);
        } else {
            fs::remove_file(data.join("sub")).expect("a link");
            fs::rename(path("elsewhere"), data.join("sub")).expect("a move");
        }
    }
    let drained = entresol("drain", &[]);
    assert!(drained.status.success(), "{}", String::from_utf8_lossy(&drained.stderr));
    assert!(is_all(&fs::read(data.join("sub/x")).expect("the file"), b'x'));
}

#[test]
fn who_knows_that_files_are_gone_may_drop_what_the_cache_has_of_them() {
    if !can_run("who_knows_that_files_are_gone_may_drop_what_the_cache_has_of_them") {
        return;
    }
    let scratch = tempfile::tempdir().expect("a directory");
    let path = |name: &str| scratch.path().join(name);
    let (data, at, cache) = (path("data"), path("mnt"), path("cache"));
    fs::create_dir(&data).expect("a directory");
    let both = ["--cache", text(&cache), "--backing", text(&data)];
    output(env!("CARGO_BIN_EXE_entresol"), &[&["format", "--mode=write-back", "--size", "32MiB"], &both[..]].concat());
    let mounted = Mounted::start(&data, &at, &cache);
    put(&at.join("removed below"), b'x', PAGES).expect("a file");
    put(&at.join("removed above"), b'x', PAGES).expect("a file");
    fs::remove_file(at.join("removed above")).expect("an unlink");
    mounted.end();
    fs::remove_file(data.join("removed below")).expect("an unlink");
    let drain = |more: &[&str]| {
        let mut drain = Command::new(env!("CARGO_BIN_EXE_entresol"));
        drain.arg("drain").args(both).args(more).output().expect("entresol")
    };
    assert!(!drain(&[]).status.success());
    let dropped = drain(&["--drop-gone"]);
    assert!(dropped.status.success(), "{}", String::from_utf8_lossy(&dropped.stderr));
    assert!(drain(&[]).status.success(), "nothing is missed any more");
}
