//! `stats` of a mount whose backing store stalls: figures arrive all the same, and the server can be ended.

mod common;

use common::{Scratch, Signal, is_impossible, says, signal};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const TEST: &str = "stats_of_a_mount_over_a_stalled_store_show_figures";

fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).output().map_err(|error| format!("{program}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    Err(format!("{program}: {said}"))
}

/// A file system in a file that can be made to stall. All is undone at the end, the stall first.
struct FileSystem {
    at: PathBuf,
    device: String,
}

impl FileSystem {
    fn new(scratch: &Scratch) -> Result<Self, String> {
        let image = scratch.path("image");
        std::fs::File::create(&image).and_then(|file| file.set_len(64 << 20)).map_err(|error| error.to_string())?;
        let (image, at) = (image.display().to_string(), scratch.path("fs"));
        std::fs::create_dir(&at).map_err(|error| error.to_string())?;
        run("mkfs.ext4", &["-q", &image])?;
        let device = run("losetup", &["--find", "--show", &image])?;
        let made = FileSystem { at, device };
        run("mount", &[&made.device, &made.at.display().to_string()])?;
        made.freeze()?;
        made.thaw();
        Ok(made)
    }

    fn freeze(&self) -> Result<(), String> {
        run("fsfreeze", &["-f", &self.at.display().to_string()]).map(drop)
    }

    fn thaw(&self) {
        let _ = run("fsfreeze", &["-u", &self.at.display().to_string()]);
    }
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        self.thaw();
        let _ = rustix::mount::unmount(&self.at, rustix::mount::UnmountFlags::DETACH);
        let _ = run("losetup", &["-d", &self.device]);
    }
}

/// The requirements, for a message where such a file system cannot be made.
fn need() -> &'static str {
    match () {
        () if !rustix::process::geteuid().is_root() => "root",
        () if Command::new("mkfs.ext4").arg("-V").output().is_err() => "mkfs.ext4",
        () => "kernel",
    }
}

/// Runs a command that must end well by itself, whatever stalls; returns its output and messages.
fn ends(scratch: &Scratch, arguments: &[&str]) -> (String, String) {
    let mut command = scratch.command(arguments);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command runs");
    let since = Instant::now();
    while child.try_wait().expect("its state").is_none() {
        assert!(since.elapsed() < Duration::from_secs(30), "{arguments:?} has not ended");
        std::thread::sleep(Duration::from_millis(10));
    }
    let (mut printed, mut said) = (String::new(), String::new());
    child.stdout.take().expect("a pipe").read_to_string(&mut printed).expect("text");
    child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    assert_eq!(child.wait().expect("an end").code(), Some(0), "{said}");
    (printed, said)
}

fn stalled(mountpoint: &Path) -> std::thread::JoinHandle<()> {
    let file = mountpoint.join("new");
    std::thread::spawn(move || drop(std::fs::File::create(file)))
}

#[test]
fn stats_of_a_mount_over_a_stalled_store_show_figures() {
    let scratch = Scratch::new();
    let below = match FileSystem::new(&scratch) {
        Ok(below) => below,
        Err(why) => return entresol_skip::skipped!(need(), "{TEST}: {why}"),
    };
    for folder in ["fs/b", "mount"] {
        std::fs::create_dir(scratch.path(folder)).expect("a directory");
    }
    scratch.format(&["--cache", "cache", "--backing", "fs/b", "--size", "2MiB"]);
    let mut command = scratch.command(&["mount", "fs/b", "mount", "--cache", "cache"]);
    let mut server = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command runs");
    let mut line = String::new();
    BufReader::new(server.stdout.take().expect("a pipe")).read_line(&mut line).expect("text");
    if line.is_empty() {
        let mut said = String::new();
        server.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
        server.wait().expect("an end");
        return assert!(is_impossible(&said), "{said}");
    }
    std::fs::write(scratch.path("mount/one"), vec![1; 10_000]).expect("a file");
    std::fs::write(scratch.path("mount/two"), vec![2; 10_000]).expect("a file");
    below.freeze().expect("it could before");
    let maker = stalled(&scratch.path("mount"));
    std::thread::sleep(Duration::from_millis(500));
    assert!(!maker.is_finished(), "the store stalls");
    let (table, _) = ends(&scratch, &["stats", "cache"]);
    says(&table, &["served by"]);
    let (table, said) = ends(&scratch, &["stats", "cache", "--timeout", "6"]);
    says(&table, &["served by", "hit ratio", "backing store"]);
    says(&said, &["names of tables did not come in time", "files go by their paths"]);
    let (json, _) = ends(&scratch, &["stats", "cache", "--timeout", "6", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["mode"], "write-back");
    let (table, said) = ends(&scratch, &["stats", "cache", "--timeout", "6", "--paths"]);
    says(&table, &["served by", "hit ratio"]);
    assert_eq!(said, "", "paths are not read through the mount");
    below.thaw();
    maker.join().expect("no panic");
    let (table, said) = ends(&scratch, &["stats", "cache"]);
    says(&table, &["hit ratio", "one", "two"]);
    assert_eq!(said, "");
    signal(server.id(), Signal::TERM);
    let mut said = String::new();
    server.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    assert_eq!(server.wait().expect("an end").code(), Some(0), "{said}");
}
