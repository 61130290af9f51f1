//! Servers that are killed, and servers that take their mounts over: no client sees an error, and nothing is done twice
//! or forgotten.

#[path = "support/held.rs"]
mod held;

use held::{Client, Holder, Tended, part as run_part, until_asked_to_end};
use rustix::fs::{CWD, Dir, FlockOperation, Mode, OFlags, RenameFlags, XattrFlags, fcntl_lock};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const O_DIRECT: i32 = 0o40000;

/// A random stream (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// The other processes of the tests below begin here; in the test program itself this does nothing.
#[test]
fn part() {
    run_part(|client, directory, seed| match client {
        "script" => script(&directory.join("mount")),
        "everything" => everything(directory, seed),
        other => panic!("{other}"),
    });
}

fn names(path: &Path) -> BTreeSet<String> {
    fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn kind<T>(result: io::Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

const LARGE: usize = 400;

/// Each operation of a mount that must not be repeated, and the state that must not be lost.
fn script(mount: &Path) {
    let at = |name: &str| mount.join(name);
    let new = |name: &str| OpenOptions::new().read(true).write(true).create_new(true).open(at(name));
    let first = new("a").unwrap();
    first.write_all_at(b"first", 0).unwrap();
    assert_eq!(kind(new("a")), Some(ErrorKind::AlreadyExists));
    fs::create_dir(at("d")).unwrap();
    assert_eq!(kind(fs::create_dir(at("d"))), Some(ErrorKind::AlreadyExists));
    let mut listing = Dir::read_from(File::open(at("large")).unwrap()).unwrap();
    let mut seen: Vec<String> = Vec::new();
    let mut list = |count: usize, seen: &mut Vec<String>| {
        for entry in listing.by_ref().take(count) {
            seen.push(entry.unwrap().file_name().to_string_lossy().into_owned());
        }
    };
    list(100, &mut seen);
    fs::rename(at("a"), at("d/b")).unwrap();
    assert_eq!(kind(fs::rename(at("a"), at("d/b"))), Some(ErrorKind::NotFound));
    fs::hard_link(at("d/b"), at("c")).unwrap();
    symlink("d/b", at("s")).unwrap();
    assert_eq!(fs::read(at("s")).unwrap(), b"first");
    list(100, &mut seen);
    // A file that loses its name while it is open.
    let nameless = new("g").unwrap();
    nameless.write_all_at(&[7; 10_000], 0).unwrap();
    fs::remove_file(at("g")).unwrap();
    assert_eq!(kind(fs::remove_file(at("g"))), Some(ErrorKind::NotFound));
    nameless.write_all_at(b"on", 5000).unwrap();
    // A directory that is removed while it is open.
    fs::create_dir(at("gone")).unwrap();
    let gone = File::open(at("gone")).unwrap();
    fs::remove_dir(at("gone")).unwrap();
    assert_eq!(kind(fs::remove_dir(at("d"))), Some(ErrorKind::DirectoryNotEmpty));
    // A file that is replaced while it is open.
    let replaced = new("e").unwrap();
    replaced.write_all_at(b"replaced", 0).unwrap();
    fs::write(at("f"), b"instead").unwrap();
    fs::rename(at("f"), at("e")).unwrap();
    fs::create_dir_all(at("x/y/z")).unwrap();
    fs::write(at("x/y/z/deep"), b"deep").unwrap();
    let deep = File::open(at("x/y/z/deep")).unwrap();
    fs::rename(at("x/y"), at("y")).unwrap();
    fs::rename(at("y/z"), at("d/z")).unwrap();
    let rename = |from: &str, to: &str, flags| rustix::fs::renameat_with(CWD, at(from), CWD, at(to), flags);
    rename("x", "e", RenameFlags::EXCHANGE).unwrap();
    assert_eq!(rename("x", "e", RenameFlags::NOREPLACE), Err(Errno::EXIST));
    assert!(at("e").is_dir());
    rustix::fs::mknodat(CWD, at("fifo"), rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
    let attribute = |flags| rustix::fs::setxattr(at("c"), "user.colour", b"green", flags);
    match attribute(XattrFlags::CREATE) {
        Err(Errno::OPNOTSUPP) => {}
        made => {
            made.unwrap();
            assert_eq!(attribute(XattrFlags::CREATE), Err(Errno::EXIST));
            rustix::fs::removexattr(at("c"), "user.colour").unwrap();
            assert_eq!(rustix::fs::removexattr(at("c"), "user.colour"), Err(Errno::NODATA));
        }
    }
    let mut log = OpenOptions::new().append(true).create(true).open(at("log")).unwrap();
    (0..5).for_each(|line| log.write_all(format!("line {line}\n").as_bytes()).unwrap());
    list(usize::MAX, &mut seen);

    assert_eq!(fs::read(at("log")).unwrap(), b"line 0\nline 1\nline 2\nline 3\nline 4\n");
    let bytes = |file: &File, at: u64, length: usize| {
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, at).unwrap();
        bytes
    };
    assert_eq!(bytes(&first, 0, 5), b"first");
    assert_eq!(bytes(&nameless, 4999, 4), b"\x07on\x07");
    assert_eq!(nameless.metadata().unwrap().nlink(), 0);
    nameless.set_len(3).unwrap();
    assert_eq!(nameless.metadata().unwrap().len(), 3);
    assert_eq!(bytes(&replaced, 0, 8), b"replaced");
    assert_eq!(bytes(&deep, 0, 4), b"deep");
    assert_eq!(gone.metadata().unwrap().mode() & 0o170_000, 0o040_000);
    assert_eq!(first.metadata().unwrap().nlink(), 2);
    assert_eq!(fs::read(at("x")).unwrap(), b"instead");
    let distinct: BTreeSet<_> = seen.iter().filter(|name| !name.starts_with('.')).collect();
    assert_eq!((seen.len(), distinct.len()), (LARGE + 2, LARGE), "each name of the large directory once");
    assert_eq!(names(mount), ["c", "d", "e", "fifo", "large", "log", "s", "x", "y"].map(str::to_owned).into());
    assert_eq!(names(&at("d")), ["b", "z"].map(str::to_owned).into());
    assert_eq!(names(&at("d/z")), ["deep".to_owned()].into());
    assert!(names(&at("y")).is_empty() && names(&at("e")).is_empty());
}

fn large(directory: &Path) {
    let large = directory.join("backing/large");
    fs::create_dir(&large).unwrap();
    (0..LARGE).for_each(|number| drop(File::create(large.join(format!("name-{number}"))).unwrap()));
}

/// Time after which a client that does not end is given up.
const PATIENCE: Duration = Duration::from_secs(60);

/// Serves until the client has ended. A server that ends is replaced by one that is killed after the next number of
/// steps, or by one that is not killed. True if all kills came.
fn serve(holder: &mut Holder, client: &mut Client, mut kills: impl Iterator<Item = u64>) -> Result<bool, String> {
    let (start, mut all) = (Instant::now(), false);
    loop {
        if client.has_ended() {
            return if client.succeeded() { Ok(all) } else { Err("the client saw an error".to_owned()) };
        }
        if start.elapsed() > PATIENCE {
            return Err("the client hangs".to_owned());
        }
        while holder.tend() == Tended::Ended {
            if let Some(refused) = holder.refused.take() {
                return Err(refused);
            }
            if all {
                return Err("the last server ended".to_owned());
            }
            holder.kill();
            let kill = kills.next();
            all = kill.is_none();
            holder.start(kill);
        }
    }
}

/// Runs the script; the servers are killed after so many steps each, the first from its take-over on. True if all kills
/// came before the script ended.
fn scripted(mutant: Option<&str>, kills: &[u64]) -> Option<Result<bool, String>> {
    let mut holder = Holder::new(mutant)?;
    large(holder.directory.path());
    if !holder.start(None) {
        return Some(Err(holder.refused.clone().unwrap_or_default()));
    }
    holder.kill();
    let mut kills = kills.iter().copied();
    holder.start(kills.next());
    let mut client = holder.client("script", 0);
    client.stop();
    let result = serve(&mut holder, &mut client, kills);
    if result.is_ok() {
        holder.unmount();
        assert_eq!(holder.kept(), [""; 0], "nothing is held for a mount that is over");
    }
    Some(result)
}

/// Runs the script with servers killed after each of these steps, until it ends before. Returns the last.
fn at_steps(mutant: Option<&str>, steps: impl Iterator<Item = u64>) -> Option<Result<u64, String>> {
    for step in steps {
        // The second server is killed while it takes over, or soon after.
        let kills = [step, step * 7 % 23];
        match scripted(mutant, &kills)? {
            Ok(true) => {}
            Ok(false) => return Some(Ok(step)),
            Err(error) => return Some(Err(format!("servers killed after {kills:?} steps: {error}"))),
        }
    }
    None
}

#[test]
fn a_script_ends_as_ever_when_servers_are_killed_at_some_steps() {
    let last = at_steps(None, (1..).step_by(17)).map(Result::unwrap);
    last.iter().for_each(|&last| assert!(last > 200, "{last} steps"));
}

#[test]
#[ignore = "takes minutes"]
fn a_script_ends_as_ever_at_whatever_step_servers_are_killed() {
    let last = at_steps(None, 0..).map(Result::unwrap);
    last.iter().for_each(|last| println!("killed at each of {last} steps"));
}

/// Everything that clients do, until this client is asked to end.
fn everything(directory: &Path, seed: u64) {
    let _ = (directory, seed);
    until_asked_to_end();
}
