//! Scenarios about names: folders read while they change, renames, links, files without a name, long names and paths,
//! sockets and fifos.

use super::record::{Record, done};
use super::scenario::{Scenario, anybody, root, scenarios};
use super::sys::{self, call};
use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

fn make(seen: &Record, name: &str, bytes: &[u8]) -> OwnedFd {
    sys::make(&seen.path(name), bytes)
}

fn folder(seen: &Record, name: &str) {
    sys::mkdir(&seen.path(name), 0o755).expect("a folder");
}

/// An open folder whose names are read a few at a time.
struct Names(*mut libc::DIR);

impl Names {
    fn open(seen: &Record, name: &str) -> Self {
        // SAFETY: the path is valid until the call returns.
        let stream = unsafe { libc::opendir(sys::c(&seen.path(name)).as_ptr()) };
        assert!(!stream.is_null(), "{}", sys::name(sys::errno()));
        Names(stream)
    }

    /// The next name with its number and kind.
    fn next(&mut self) -> Option<(String, u64, u8)> {
        // SAFETY: the stream is open, and the entry is copied before the next call.
        let entry = unsafe { libc::readdir(self.0).as_ref() }?;
        // SAFETY: the system ends names by a zero.
        let name = unsafe { std::ffi::CStr::from_ptr(entry.d_name.as_ptr()) };
        Some((name.to_string_lossy().into_owned(), entry.d_ino, entry.d_type))
    }

    fn rest(&mut self) -> BTreeSet<String> {
        std::iter::from_fn(|| self.next()).map(|(name, ..)| name).collect()
    }

    fn again(&mut self) {
        // SAFETY: the stream is open.
        unsafe { libc::rewinddir(self.0) }
    }

    fn position(&self) -> i64 {
        // SAFETY: the stream is open.
        unsafe { libc::telldir(self.0) }
    }

    fn go(&mut self, position: i64) {
        // SAFETY: the stream is open, and the position is one of its own.
        unsafe { libc::seekdir(self.0, position) }
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        // SAFETY: opened by `open`, and closed once.
        unsafe { libc::closedir(self.0) };
    }
}

fn many(seen: &Record, count: usize) {
    folder(seen, "d");
    (0..count).for_each(|i| drop(make(seen, &format!("d/{i:04} with a name that is not short"), b"")));
}

fn folders() -> Vec<Scenario> {
    scenarios!(anybody about "folders";
        "many names are read" => |seen| {
            many(seen, 400);
            let names = Names::open(seen, "d").rest();
            seen.note("names", format!("{} {:?} {:?}", names.len(), names.first(), names.last()));
        };
        "names are read that were removed meanwhile" => |seen| {
            many(seen, 120);
            let mut names = Names::open(seen, "d");
            let mut found: BTreeSet<String> = (0..10).filter_map(|_| names.next()).map(|(name, ..)| name).collect();
            for i in (0..120).step_by(2) {
                sys::unlink(&seen.path(&format!("d/{i:04} with a name that is not short"))).expect("removed");
            }
            found.extend(names.rest());
            // Names that stayed must all be found once; of the removed ones any may be.
            let stayed = (1..120).step_by(2).filter(|i| found.contains(&format!("{i:04} with a name that is not short")));
            seen.note("stayed and found", stayed.count() as i64);
            names.again();
            seen.note("again", names.rest().len() as i64);
        };
        "names are read while a folder is emptied" => |seen| {
            many(seen, 120);
            let mut names = Names::open(seen, "d");
            while let Some((name, ..)) = names.next() {
                if name != "." && name != ".." {
                    done(sys::unlink(&seen.path("d").join(name))).expect("removed");
                }
            }
            seen.note("rmdir", sys::rmdir(&seen.path("d")));
        };
        "names that were made while others are read are there from the start" => |seen| {
            many(seen, 10);
            let mut names = Names::open(seen, "d");
            names.rest();
            drop(make(seen, "d/new", b""));
            names.again();
            seen.note("names", names.rest().len() as i64);
        };
        "a position in a folder is found again" => |seen| {
            many(seen, 150);
            let mut names = Names::open(seen, "d");
            (0..70).for_each(|_| drop(names.next()));
            let position = names.position();
            let rest = names.rest();
            names.go(position);
            seen.note("the same", rest == names.rest());
            seen.note("so many", rest.len() as i64);
        };
        "kinds and numbers are those of the files" => |seen| {
            drop(make(seen, "file", b""));
            folder(seen, "folder");
            sys::symlink(Path::new("file"), &seen.path("link")).expect("a link");
            sys::mknod(&seen.path("fifo"), libc::S_IFIFO | 0o600, 0).expect("a fifo");
            let mut names = Names::open(seen, "");
            let mut found: Vec<_> = std::iter::from_fn(|| names.next()).collect();
            found.sort();
            for (name, number, kind) in found {
                let same = sys::lstat(&seen.path(&name)).is_ok_and(|found| found.st_ino == number);
                seen.note(&name, format!("kind {kind}, {}", if same { "its number" } else { "another number" }));
            }
        };
        "a folder that was removed while it is open" => |seen| {
            folder(seen, "d");
            let open = sys::open(&seen.path("d"), libc::O_RDONLY | libc::O_DIRECTORY, 0).expect("open");
            sys::rmdir(&seen.path("d")).expect("removed");
            seen.look_open("attributes", &open);
            seen.note("make in it", sys::openat(&open, Path::new("x"), libc::O_CREAT | libc::O_RDWR, 0o600));
            seen.note("look in it", sys::openat(&open, Path::new("."), libc::O_RDONLY, 0).map(drop));
            seen.note("fsync", sys::fsync(&open));
        };
        "links of folders are counted" => |seen| {
            folder(seen, "d");
            for name in ["d/a", "d/b", "d/a/c"] {
                folder(seen, name);
            }
            seen.look("d");
            sys::rename(&seen.path("d/a/c"), &seen.path("d/c"), 0).expect("renamed");
            seen.look("d");
            seen.look("d/a");
            sys::rmdir(&seen.path("d/b")).expect("removed");
            seen.look("d");
        };
        "names of all bytes" => |seen| {
            for name in ["-", " ", "a\nb", "\u{e4}\u{20ac}", "...", "\\", "*", "con", "A", "a"] {
                seen.note(&format!("{name:?}"), sys::open(&seen.path(name), libc::O_CREAT | libc::O_EXCL | libc::O_RDWR, 0o600));
            }
            use std::os::unix::ffi::OsStrExt;
            let odd = std::ffi::OsStr::from_bytes(&[0xff, 0xfe, 1, 127]);
            seen.note("no text", sys::open(&seen.path("").join(odd), libc::O_CREAT | libc::O_EXCL | libc::O_RDWR, 0o600));
            seen.everything("then");
        };
    )
}

fn renames() -> Vec<Scenario> {
    scenarios!(anybody about "renames";
        "a folder into itself" => |seen| {
            folder(seen, "d");
            folder(seen, "d/e");
            seen.note("below itself", sys::rename(&seen.path("d"), &seen.path("d/e/f"), 0));
            seen.note("over its own part", sys::rename(&seen.path("d"), &seen.path("d/e"), 0));
            seen.note("a part over the whole", sys::rename(&seen.path("d/e"), &seen.path("d"), 0));
        };
        "a folder over others" => |seen| {
            for name in ["d", "empty", "full", "full/x"] {
                folder(seen, name);
            }
            drop(make(seen, "d/inside", b"x"));
            drop(make(seen, "f", b"x"));
            seen.note("over a full one", sys::rename(&seen.path("d"), &seen.path("full"), 0));
            seen.note("over a file", sys::rename(&seen.path("d"), &seen.path("f"), 0));
            seen.note("a file over it", sys::rename(&seen.path("f"), &seen.path("d"), 0));
            seen.note("over an empty one", sys::rename(&seen.path("d"), &seen.path("empty"), 0));
            seen.everything("then");
        };
        "between two names of one file" => |seen| {
            let file = make(seen, "a", b"x");
            sys::link(&seen.path("a"), &seen.path("b")).expect("a link");
            seen.note("renameat2", sys::rename(&seen.path("a"), &seen.path("b"), 0));
            seen.look_open("the file", &file);
            seen.note("exchanged", sys::rename(&seen.path("a"), &seen.path("b"), libc::RENAME_EXCHANGE));
            seen.everything("then");
        };
        "over an open file" => |seen| {
            let (one, two) = (make(seen, "a", b"one"), make(seen, "b", b"two"));
            seen.note("renameat2", sys::rename(&seen.path("a"), &seen.path("b"), 0));
            seen.look_open("the one that was there", &two);
            seen.note("its bytes", sys::pread(&two, 10, 0));
            seen.note("write to it", sys::pwrite(&two, b"more", 2));
            seen.note("its bytes", sys::pread(&two, 10, 0));
            seen.note("write to the other", sys::pwrite(&one, b"1", 0));
            seen.everything("then");
        };
        "exchanges" => |seen| {
            drop((make(seen, "f", b"file"), folder(seen, "d"), make(seen, "d/inside", b"x")));
            seen.note("file and folder", sys::rename(&seen.path("f"), &seen.path("d"), libc::RENAME_EXCHANGE));
            seen.everything("then");
            seen.note("a folder and what is in it", sys::rename(&seen.path("f"), &seen.path("f/inside"), libc::RENAME_EXCHANGE));
        };
        "flags that exclude each other or are unknown" => |seen| {
            drop((make(seen, "a", b"a"), make(seen, "b", b"b")));
            for flags in [libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE, 8, 1 << 20] {
                seen.note(&format!("flags {flags}"), sys::rename(&seen.path("a"), &seen.path("b"), flags));
            }
        };
        "to another file system" => |seen| {
            drop(make(seen, "a", b"a"));
            let there = Path::new("/proc/self/x");
            seen.note("rename", sys::rename(&seen.path("a"), there, 0));
            seen.note("link", sys::link(&seen.path("a"), there));
            seen.note("link from there", sys::link(Path::new("/proc/version"), &seen.path("b")));
        };
        "names that are no names" => |seen| {
            folder(seen, "d");
            for name in ["d/.", "d/..", "."] {
                seen.note(&format!("from {name}"), sys::rename(&seen.path(name), &seen.path("x"), 0));
                seen.note(&format!("to {name}"), sys::rename(&seen.path("d"), &seen.path(name), 0));
                seen.note(&format!("rmdir {name}"), sys::rmdir(&seen.path(name)));
                seen.note(&format!("mkdir {name}"), sys::mkdir(&seen.path(name), 0o700));
                seen.note(&format!("unlink {name}"), sys::unlink(&seen.path(name)));
            }
        };
        "a file that is open keeps its bytes under many names" => |seen| {
            let file = make(seen, "n0", b"");
            for i in 0..20 {
                sys::pwrite(&file, &[i; 700], i64::from(i) * 700).expect("written");
                sys::rename(&seen.path(&format!("n{i}")), &seen.path(&format!("n{}", i + 1)), 0).expect("renamed");
            }
            seen.everything("then");
        };
    )
}

fn without_names() -> Vec<Scenario> {
    scenarios!(anybody about "files without a name";
        "are read, written and changed" => |seen| {
            let file = make(seen, "f", b"begin");
            sys::unlink(&seen.path("f")).expect("removed");
            seen.look_open("attributes", &file);
            seen.note("write", sys::pwrite(&file, &[1; 9000], 5));
            seen.note("read", sys::pread(&file, 10_000, 0));
            seen.note("ftruncate", sys::set_size(&file, 100));
            seen.note("fallocate", sys::allocate(&file, 0, 0, 5000));
            seen.note("fchmod", call!(fchmod(file.as_raw_fd(), 0o4755)));
            seen.note("fchown", call!(fchown(file.as_raw_fd(), u32::MAX, u32::MAX)));
            let now: *const libc::timespec = std::ptr::null();
            seen.note("futimens", call!(futimens(file.as_raw_fd(), now)));
            seen.note("fsetxattr", call!(fsetxattr(file.as_raw_fd(), c"user.a".as_ptr(), c"v".as_ptr().cast(), 1, 0)));
            seen.note("fsync", sys::fsync(&file));
            seen.look_open("attributes", &file);
            seen.note("read", sys::pread(&file, 10_000, 0));
        };
        "get no new one" => |seen| {
            let file = make(seen, "f", b"x");
            sys::unlink(&seen.path("f")).expect("removed");
            let from = format!("/proc/self/fd/{}", file.as_raw_fd());
            let (from, to) = (sys::c(Path::new(&from)), sys::c(&seen.path("g")));
            let follow = libc::AT_SYMLINK_FOLLOW;
            seen.note("linkat", call!(linkat(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), follow)));
        };
        "are opened once more" => |seen| {
            let file = make(seen, "f", b"bytes");
            sys::unlink(&seen.path("f")).expect("removed");
            let again = sys::open(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd())), libc::O_RDWR, 0);
            seen.note("open", again.as_ref().map_err(|errno| *errno));
            if let Ok(again) = again {
                seen.note("write", sys::pwrite(&again, b"B", 0));
                seen.note("read by the first", sys::pread(&file, 10, 0));
            }
        };
        "are others than what is made under their name" => |seen| {
            let old = make(seen, "f", b"old");
            sys::unlink(&seen.path("f")).expect("removed");
            let new = make(seen, "f", b"new");
            sys::pwrite(&old, b"OLD!", 0).expect("written");
            seen.note("old", sys::pread(&old, 10, 0));
            seen.note("new", sys::pread(&new, 10, 0));
            seen.everything("then");
        };
        "with links left" => |seen| {
            let file = make(seen, "a", b"x");
            for name in ["b", "c"] {
                seen.note("link", sys::link(&seen.path("a"), &seen.path(name)));
            }
            seen.look_open("attributes", &file);
            sys::unlink(&seen.path("a")).expect("removed");
            seen.look_open("attributes", &file);
            seen.look("c");
            sys::pwrite(&file, b"through one", 0).expect("written");
            seen.read("b");
            sys::unlink(&seen.path("b")).expect("removed");
            sys::unlink(&seen.path("c")).expect("removed");
            seen.look_open("attributes", &file);
        };
        "from the start" => |seen| {
            let file = sys::open(&seen.path(""), libc::O_TMPFILE | libc::O_RDWR, 0o640);
            seen.note("open with O_TMPFILE", file.as_ref().map_err(|errno| *errno));
            let Ok(file) = file else { return };
            seen.note("write", sys::write(&file, b"bytes"));
            seen.look_open("attributes", &file);
            let (from, to) = (format!("/proc/self/fd/{}", file.as_raw_fd()), sys::c(&seen.path("g")));
            let from = sys::c(Path::new(&from));
            let follow = libc::AT_SYMLINK_FOLLOW;
            seen.note("linkat", call!(linkat(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), follow)));
            seen.everything("then");
        };
    )
}

/// A folder whose path is this much longer than the scenario's, opened step by step.
fn deep(seen: &Record, steps: usize, step: &str) -> OwnedFd {
    let mut at = sys::open(&seen.path(""), libc::O_RDONLY | libc::O_DIRECTORY, 0).expect("a folder");
    for _ in 0..steps {
        call!(mkdirat(at.as_raw_fd(), sys::c(Path::new(step)).as_ptr(), 0o755)).expect("a folder");
        at = sys::openat(&at, Path::new(step), libc::O_RDONLY | libc::O_DIRECTORY, 0).expect("the folder");
    }
    at
}

fn lengths() -> Vec<Scenario> {
    scenarios!(anybody about "lengths";
        "a path longer than the system takes, step by step" => |seen| {
            let at = deep(seen, 30, &"d".repeat(200));
            let file = sys::openat(&at, Path::new("f"), libc::O_RDWR | libc::O_CREAT, 0o644);
            seen.note("open", file.as_ref().map_err(|errno| *errno));
            let Ok(file) = file else { return };
            seen.note("write", sys::pwrite(&file, &[1; 10_000], 100));
            seen.note("read", sys::pread(&file, 20_000, 0));
            seen.note("fsync", sys::fsync(&file));
            seen.note("fsync of the folder", sys::fsync(&at));
            seen.look_open("attributes", &file);
            let (from, to) = (c"f".as_ptr(), c"g".as_ptr());
            seen.note("renameat", call!(renameat(at.as_raw_fd(), from, at.as_raw_fd(), to)));
            seen.note("linkat", call!(linkat(at.as_raw_fd(), to, at.as_raw_fd(), from, 0)));
            seen.note("fchmodat", call!(fchmodat(at.as_raw_fd(), to, 0o600, 0)));
            drop(file);
            let again = sys::openat(&at, Path::new("g"), libc::O_RDONLY, 0);
            seen.note("read again", again.and_then(|file| sys::pread(&file, 20_000, 0)));
            seen.note("unlinkat", call!(unlinkat(at.as_raw_fd(), to, 0)));
        };
        "a path of as many bytes as the system takes, and one more" => |seen| {
            // 40 folders of 99 bytes and a slash are 4000.
            drop(deep(seen, 40, &"d".repeat(99)));
            let start = sys::open(&seen.path(""), libc::O_RDONLY | libc::O_DIRECTORY, 0).expect("a folder");
            for length in [4094, 4095, 4096] {
                let path = vec!["d".repeat(99); 40].join("/") + "/" + &"f".repeat(length - 4000);
                let made = sys::openat(&start, Path::new(&path), libc::O_RDWR | libc::O_CREAT, 0o644);
                seen.note(&format!("open with {length} bytes"), made.as_ref().map_err(|errno| *errno));
                seen.note("write", made.and_then(|file| sys::pwrite(&file, b"x", 5000)));
            }
        };
        "targets of links" => |seen| {
            for length in [1, 59, 60, 255, 4094, 4095, 4096] {
                let target = "t".repeat(length);
                seen.note(&format!("symlink of {length} bytes"), sys::symlink(Path::new(&target), &seen.path(&format!("l{length}"))));
                seen.note("readlink", sys::readlink(&seen.path(&format!("l{length}"))));
            }
        };
        "links to links" => |seen| {
            drop(make(seen, "l0", b"end"));
            for i in 1..=41 {
                sys::symlink(Path::new(&format!("l{}", i - 1)), &seen.path(&format!("l{i}"))).expect("a link");
            }
            for i in [39, 40, 41] {
                seen.note(&format!("{i} links"), sys::open(&seen.path(&format!("l{i}")), libc::O_RDONLY, 0));
            }
        };
        "names of 255 bytes are made, renamed and removed" => |seen| {
            let (one, two) = ("1".repeat(255), "\u{e4}".repeat(127));
            drop(make(seen, &one, b"x"));
            seen.note("rename", sys::rename(&seen.path(&one), &seen.path(&two), 0));
            seen.note("rename to one more", sys::rename(&seen.path(&two), &seen.path(&"1".repeat(256)), 0));
            seen.note("link", sys::link(&seen.path(&two), &seen.path(&one)));
            seen.everything("then");
            seen.note("unlink", sys::unlink(&seen.path(&two)));
        };
    )
}

fn special() -> Vec<Scenario> {
    let mut scenarios = scenarios!(anybody about "special files";
        "bytes go through a fifo" => |seen| {
            sys::mknod(&seen.path("p"), libc::S_IFIFO | 0o600, 0).expect("a fifo");
            seen.note("a writer without reader", sys::open(&seen.path("p"), libc::O_WRONLY | libc::O_NONBLOCK, 0));
            let reader = sys::open(&seen.path("p"), libc::O_RDONLY | libc::O_NONBLOCK, 0).expect("a reader");
            let writer = sys::open(&seen.path("p"), libc::O_WRONLY, 0).expect("a writer");
            seen.note("nothing yet", sys::read(&reader, 10));
            seen.note("write", sys::write(&writer, b"through"));
            seen.note("read", sys::read(&reader, 10));
            seen.note("lseek", sys::seek(&reader, 0, libc::SEEK_SET));
            seen.note("ftruncate", sys::set_size(&writer, 0));
            drop(writer);
            seen.note("the end", sys::read(&reader, 10));
            seen.look("p");
        };
        "bytes go through a socket" => |seen| {
            // A path of a socket has at most 107 bytes.
            let here = std::fs::File::open(seen.path("")).expect("a folder");
            let path = format!("/proc/self/fd/{}/s", here.as_raw_fd());
            let code = |error: std::io::Error| error.raw_os_error().expect("a number");
            seen.note("connect to nothing", UnixStream::connect(&path).map(drop).map_err(code));
            let listener = UnixListener::bind(&path).expect("a socket");
            seen.note("bind again", UnixListener::bind(&path).map(drop).map_err(code));
            let mut one = UnixStream::connect(&path).expect("a connection");
            let (mut two, _) = listener.accept().expect("a connection");
            one.write_all(b"hello").expect("written");
            let mut bytes = vec![0; 5];
            two.read_exact(&mut bytes).expect("read");
            seen.note("bytes", bytes);
            seen.note("open", sys::open(&seen.path("s"), libc::O_RDWR, 0));
            seen.look("s");
            sys::rename(&seen.path("s"), &seen.path("t"), 0).expect("renamed");
            drop(listener);
            let gone = format!("/proc/self/fd/{}/t", here.as_raw_fd());
            seen.note("connect when nobody listens", UnixStream::connect(gone).map(drop).map_err(code));
            seen.note("unlink", sys::unlink(&seen.path("t")));
        };
        "devices are root's to make" => |seen| {
            seen.note("a character device", sys::mknod(&seen.path("c"), libc::S_IFCHR | 0o600, libc::makedev(1, 3)));
            seen.note("a block device", sys::mknod(&seen.path("b"), libc::S_IFBLK | 0o600, libc::makedev(259, 70_000)));
            seen.note("no kind", sys::mknod(&seen.path("f"), 0o600, 0));
            seen.note("a folder", sys::mknod(&seen.path("d"), libc::S_IFDIR | 0o700, 0));
            seen.everything("then");
        };
    );
    scenarios.extend(scenarios!(root about "special files";
        "a device is opened" => |seen| {
            sys::mknod(&seen.path("null"), libc::S_IFCHR | 0o666, libc::makedev(1, 3)).expect("a device");
            seen.note("open", sys::open(&seen.path("null"), libc::O_RDWR, 0));
        };
    ));
    scenarios
}

pub fn scenarios() -> Vec<Scenario> {
    [folders(), renames(), without_names(), lengths(), special()].into_iter().flatten().collect()
}
