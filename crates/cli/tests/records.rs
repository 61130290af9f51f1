//! Locations of the record of a backing store: in the state directory for devices and for files without extended
//! attributes, and in the subvolume for btrfs. Loop devices and file systems on them, which only root may make.

mod common;

use common::{Scratch, Signal, says, signal};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const UUID: &str = "0b5e1f5e-7a53-4f0e-9a0a-0d4f2c3b5a10";
const PAGE: usize = 4096;

/// A file as a block device until it goes out of scope.
struct Loop(String);

impl Loop {
    fn new(file: &Path) -> Result<Self, String> {
        Ok(Loop(output(Command::new("losetup").args(["--find", "--show"]).arg(file))?.trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _detached = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

/// A file system that is unmounted when it goes out of scope.
struct FileSystem(PathBuf, #[allow(dead_code, reason = "detached behind it")] Option<Loop>);

impl FileSystem {
    fn mount(kind: &str, what: &str, at: &Path, device: Option<Loop>) -> Result<Self, String> {
        fs::create_dir_all(at).expect("a mount point");
        output(Command::new("mount").args(["-t", kind, what]).arg(at))?;
        Ok(FileSystem(at.to_owned(), device))
    }
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        let _left = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{:?}: {error}", command.get_program()))?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8(output.stdout).expect("text"))
}

/// A serving command, killed and unmounted when it is dropped.
struct Serving(Child, Option<PathBuf>);

impl Serving {
    /// Starts the command and waits until it serves; an error with its output if it was refused.
    fn start(scratch: &Scratch, arguments: &[&str], mountpoint: Option<PathBuf>) -> Result<Self, String> {
        let mut child =
            scratch.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("text");
        if !line.is_empty() {
            return Ok(Serving(child, mountpoint));
        }
        let mut said = String::new();
        child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
        child.wait().expect("an end");
        Err(said)
    }

    fn end(mut self) {
        signal(self.0.id(), Signal::TERM);
        assert_eq!(self.0.wait().expect("an end").code(), Some(0));
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _ended = self.0.wait();
        if let Some(at) = &self.1 {
            let _left = rustix::mount::unmount(at, rustix::mount::UnmountFlags::DETACH);
        }
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("attributes").permissions().mode() & 0o777
}

/// A run of a cache of a device or file: writes one page, durably.
fn life(scratch: &Scratch, both: &[&str], byte: u8) {
    let serve = ["serve", "nbd", "--socket", "s", "--policy", "lru"];
    let serving = Serving::start(scratch, &[&serve, both].concat(), None).unwrap_or_else(|why| panic!("{why}"));
    let mut client = common::served::client::Client::connect(&scratch.path("s"), false).expect("a connection");
    client.write(0, &[byte; PAGE], common::served::client::FUA);
    drop(client);
    serving.end();
}

#[test]
fn the_record_of_a_device_lies_in_the_state_directory() {
    let scratch = Scratch::new();
    scratch.file("b", vec![0; 4 << 20]);
    let device = match Loop::new(&scratch.path("b")) {
        Ok(device) => device,
        Err(why) => return entresol_skip::skipped!("root", "no loop devices here: {why}"),
    };
    let both = ["--cache", "cache", "--backing", &device.0, "--identity", UUID];
    let with = |first: &[&'static str]| -> Vec<&str> { first.iter().copied().chain(both).collect() };
    scratch.ok(&with(&["-q", "format", "--mode=write-back", "--size", "2MiB"]));
    let record = scratch.path("state").join(UUID.replace('-', ""));
    assert_eq!([mode(&scratch.path("state")), mode(&record)], [0o700, 0o600]);
    life(&scratch, &both, 1);
    let old = scratch.bytes("cache");
    life(&scratch, &both, 2);
    let newest = scratch.bytes("cache");
    scratch.file("cache", old);
    says(&scratch.refused(&with(&["check"])), &["older copy"]);
    says(&scratch.refused(&with(&["drain"])), &["older copy"]);
    scratch.file("cache", newest);
    let second = ["format", "--cache", "second", "--backing", &device.0, "--identity", UUID, "--size", "2MiB"];
    says(&scratch.refused(&second), &["another cache (", "--force"]);
    // As on another machine, or on this one installed anew.
    let kept = fs::read(&record).expect("a record");
    fs::remove_file(&record).expect("a record");
    says(&scratch.refused(&with(&["drain"])), &["has no record of its cache"]);
    let mut damaged = kept.clone();
    damaged[30] ^= 4;
    fs::write(&record, damaged).expect("a write");
    says(&scratch.refused(&with(&["drain"])), &[record.to_str().expect("text"), "it is damaged", "--generation-ok"]);
    fs::write(&record, kept).expect("a write");
    scratch.ok(&with(&["-q", "drain"]));
    assert_eq!(scratch.bytes("b")[0], 2);
    assert_eq!([mode(&scratch.path("state")), mode(&record)], [0o700, 0o600]);
    assert_eq!(in_state(&scratch), [record.clone(), record.with_extension("last_write")], "nothing else is beside it");
}

/// Files of the state directory, by name.
fn in_state(scratch: &Scratch) -> Vec<PathBuf> {
    let entries = fs::read_dir(scratch.path("state")).expect("a directory");
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    found.sort();
    found
}

#[test]
fn a_file_without_extended_attributes_has_its_record_in_the_state_directory() {
    let scratch = Scratch::new();
    let held = match FileSystem::mount("ramfs", "none", &scratch.path("ram"), None) {
        Ok(held) => held,
        Err(why) => return entresol_skip::skipped!("root", "no ramfs can be mounted here: {why}"),
    };
    scratch.file("ram/disk", vec![0; 1 << 20]);
    assert!(rustix::fs::setxattr(scratch.path("ram/disk"), "user.any", b"1", rustix::fs::XattrFlags::empty()).is_err());
    let both = ["--cache", "cache", "--backing", "ram/disk"];
    scratch.format(&[&["--size", "2MiB"][..], &both].concat());
    life(&scratch, &both, 1);
    let old = scratch.bytes("cache");
    life(&scratch, &both, 2);
    scratch.file("cache", old);
    says(&scratch.refused(&[&["drain"][..], &both].concat()), &["older copy"]);
    let found = in_state(&scratch);
    assert_eq!(found, [found[0].clone(), found[0].with_extension("last_write")]);
    drop(held);
}

/// The requirements, for a message where such a file system cannot be made.
fn need() -> &'static str {
    match () {
        () if !rustix::process::geteuid().is_root() => "root",
        () if Command::new("mkfs.btrfs").arg("-V").output().is_err() => "mkfs.btrfs",
        () => "kernel",
    }
}

/// A new btrfs, with a subvolume `b`.
fn btrfs(scratch: &Scratch) -> Result<FileSystem, String> {
    scratch.file("image", "");
    let image = fs::File::options().write(true).open(scratch.path("image")).expect("a file");
    image.set_len(300 << 20).expect("room");
    output(Command::new("mkfs.btrfs").arg("-q").arg(scratch.path("image")))?;
    let device = Loop::new(&scratch.path("image"))?;
    let name = device.0.clone();
    let mounted = FileSystem::mount("btrfs", &name, &scratch.path("fs"), Some(device))?;
    output(Command::new("btrfs").args(["subvolume", "create"]).arg(scratch.path("fs/b")))?;
    Ok(mounted)
}

fn snapshot(scratch: &Scratch, name: &str) {
    let made = output(
        Command::new("btrfs")
            .args(["subvolume", "snapshot"])
            .args([scratch.path("fs/b"), scratch.path("fs").join(name)]),
    );
    made.unwrap_or_else(|why| panic!("{why}"));
}

/// `snapshot_two_copies.sh`: a snapshot keeps inodes and creation times.
#[test]
fn a_snapshot_of_the_backing_directory_is_not_the_backing_directory() {
    let scratch = Scratch::new();
    let held = match btrfs(&scratch) {
        Ok(held) => held,
        Err(why) => return entresol_skip::skipped!(need(), "no btrfs here: {why}"),
    };
    fs::create_dir(scratch.path("m")).expect("a mount point");
    scratch.format(&["--cache", "c", "--backing", "fs/b", "--size", "8MiB"]);
    let mount = |byte: u8| {
        let arguments = ["mount", "fs/b", "m", "--cache", "c", "--policy", "lru"];
        let serving =
            Serving::start(&scratch, &arguments, Some(scratch.path("m"))).unwrap_or_else(|why| panic!("{why}"));
        let file =
            fs::File::options().write(true).create(true).truncate(false).open(scratch.path("m/x")).expect("a file");
        file.write_all_at(&[byte; 16 * PAGE], 0).expect("a write");
        file.sync_all().expect("a sync");
        drop(file);
        serving
    };
    let drain = |backing: &'static str| ["-q", "drain", "--cache", "c", "--backing", backing];
    mount(b'A').end();
    scratch.ok(&drain("fs/b"));
    snapshot(&scratch, "of_before");
    let serving = mount(b'B');
    // Made while the cache is in use: of the present generation.
    snapshot(&scratch, "of_now");
    serving.end();
    for snapshot in ["fs/of_before", "fs/of_now"] {
        let line = scratch.refused(&["drain", "--cache", "c", "--backing", snapshot]);
        says(&line, &["is in another btrfs subvolume than when its cache was used last", "snapshot"]);
        says(&scratch.refused(&["check", "--cache", "c", "--backing", snapshot]), &["another btrfs subvolume"]);
        assert_eq!(scratch.bytes(&format!("{snapshot}/x"))[0], b'A');
    }
    scratch.ok(&drain("fs/b"));
    assert_eq!(scratch.bytes("fs/b/x")[..16 * PAGE], [b'B'; 16 * PAGE]);
    scratch.ok(&["check", "--cache", "c", "--backing", "fs/b"]);
    drop(held);
}

#[test]
fn a_snapshot_of_a_backing_file_is_not_the_backing_file() {
    let scratch = Scratch::new();
    let held = match btrfs(&scratch) {
        Ok(held) => held,
        Err(why) => return entresol_skip::skipped!(need(), "no btrfs here: {why}"),
    };
    scratch.file("fs/b/disk", vec![0; 1 << 20]);
    let both = ["--cache", "c", "--backing", "fs/b/disk"];
    scratch.format(&[&["--size", "2MiB"][..], &both].concat());
    life(&scratch, &both, 1);
    snapshot(&scratch, "s");
    let of_snapshot = ["--cache", "c", "--backing", "fs/s/disk"];
    says(&scratch.refused(&[&["drain"][..], &of_snapshot].concat()), &["another btrfs subvolume"]);
    scratch.ok(&[&["-q", "drain"][..], &both].concat());
    assert_eq!(scratch.bytes("fs/b/disk")[0], 1);
    drop(held);
}
