//! Scenarios of every call on every kind of path: the answer, and the state afterwards.

use super::record::{Record, done, ignore};
use super::scenario::{Scenario, anybody};
use super::sys::{self, call};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// A kind of path: its name, a function that makes it in a folder, and the path.
type Target = (&'static str, fn(&Path), fn(&Path) -> PathBuf);

/// A call on a path. A file `other` and an empty folder `dir` are there for it.
type Call = (&'static str, fn(&mut Record, &Path));

fn nothing(_: &Path) {}

fn file(at: &Path) {
    ignore(sys::make(&at.join("f"), b"the bytes of f"));
}

fn directory(at: &Path) {
    sys::mkdir(&at.join("d"), 0o755).expect("a folder");
}

fn full(at: &Path) {
    directory(at);
    ignore(sys::make(&at.join("d/inside"), b"x"));
}

fn link(at: &Path, target: &str) {
    sys::symlink(Path::new(target), &at.join("l")).expect("a link");
}

fn link_to(at: &Path, make: fn(&Path), target: &str) {
    make(at);
    link(at, target);
}

fn long(name: usize) -> String {
    "n".repeat(name)
}

const TARGETS: &[Target] = &[
    ("nothing", nothing, |at| at.join("x")),
    ("nothing with a slash", nothing, |at| at.join("x/")),
    ("below nothing", nothing, |at| at.join("no/x")),
    ("below a file", file, |at| at.join("f/x")),
    ("a file", file, |at| at.join("f")),
    ("a file with a slash", file, |at| at.join("f/")),
    ("a folder", directory, |at| at.join("d")),
    ("a folder with a slash", directory, |at| at.join("d/")),
    ("a folder's dot", directory, |at| at.join("d/.")),
    ("a folder's dots", directory, |at| at.join("d/..")),
    ("a folder with a file", full, |at| at.join("d")),
    ("a link to a file", |at| link_to(at, file, "f"), |at| at.join("l")),
    ("a link to a folder", |at| link_to(at, directory, "d"), |at| at.join("l")),
    ("a link to a folder with a slash", |at| link_to(at, directory, "d"), |at| at.join("l/")),
    ("below a link to a folder", |at| link_to(at, directory, "d"), |at| at.join("l/x")),
    ("a link to nothing", |at| link(at, "gone"), |at| at.join("l")),
    ("a link to nothing with a slash", |at| link(at, "gone"), |at| at.join("l/")),
    ("a link to itself", |at| link(at, "l"), |at| at.join("l")),
    ("below a link to itself", |at| link(at, "l"), |at| at.join("l/x")),
    ("a fifo", |at| ignore(sys::mknod(&at.join("p"), libc::S_IFIFO | 0o644, 0)), |at| at.join("p")),
    ("a socket", |at| ignore(sys::mknod(&at.join("s"), libc::S_IFSOCK | 0o644, 0)), |at| at.join("s")),
    ("a name of 255 bytes", nothing, |at| at.join(long(255))),
    ("a name of 256 bytes", nothing, |at| at.join(long(256))),
    ("a path of 5000 bytes", nothing, |at| at.join(vec![long(99); 50].join("/"))),
    ("no path", nothing, |_| PathBuf::new()),
];

/// Opens, and tries I/O on a regular file.
fn open(seen: &mut Record, path: &Path, flags: i32) {
    let opened = sys::open(path, flags | libc::O_NONBLOCK, 0o640);
    seen.note("open", opened.as_ref().map_err(|errno| *errno));
    let Ok(opened) = opened else { return };
    seen.look_open("attributes of what is open", &opened);
    let regular = sys::fstat(&opened).is_ok_and(|found| found.st_mode & libc::S_IFMT == libc::S_IFREG);
    if regular {
        seen.note("write", sys::write(&opened, b"new"));
        seen.note("read at 0", sys::pread(&opened, 100, 0));
    }
}

fn rename(seen: &mut Record, from: &Path, to: &Path, flags: u32) {
    seen.note("renameat2", sys::rename(from, to, flags));
}

fn with_file(at: &Path, act: impl FnOnce(&OwnedFd) -> Result<i64, i32>) -> Result<i64, i32> {
    act(&sys::open(at, libc::O_PATH, 0)?)
}

const CALLS: &[Call] = &[
    ("open to read", |seen, at| open(seen, at, libc::O_RDONLY)),
    ("open to write", |seen, at| open(seen, at, libc::O_WRONLY)),
    ("open to read and write", |seen, at| open(seen, at, libc::O_RDWR)),
    ("open creating", |seen, at| open(seen, at, libc::O_RDWR | libc::O_CREAT)),
    ("open creating to read", |seen, at| open(seen, at, libc::O_RDONLY | libc::O_CREAT)),
    ("open creating a new one", |seen, at| open(seen, at, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL)),
    ("open cutting off", |seen, at| open(seen, at, libc::O_RDWR | libc::O_TRUNC)),
    ("open creating and cutting off", |seen, at| open(seen, at, libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC)),
    ("open to read, cutting off", |seen, at| open(seen, at, libc::O_RDONLY | libc::O_TRUNC)),
    ("open to append", |seen, at| open(seen, at, libc::O_RDWR | libc::O_APPEND)),
    ("open not following", |seen, at| open(seen, at, libc::O_RDWR | libc::O_NOFOLLOW)),
    ("open creating, not following", |seen, at| open(seen, at, libc::O_RDWR | libc::O_CREAT | libc::O_NOFOLLOW)),
    ("open a folder", |seen, at| open(seen, at, libc::O_RDONLY | libc::O_DIRECTORY)),
    ("open a folder to write", |seen, at| open(seen, at, libc::O_RDWR | libc::O_DIRECTORY)),
    ("open the place alone", |seen, at| {
        let opened = sys::open(at, libc::O_PATH | libc::O_NOFOLLOW, 0);
        seen.note("open", opened.as_ref().map_err(|errno| *errno));
        if let Ok(opened) = opened {
            seen.look_open("attributes of the place", &opened);
            seen.note("read", sys::read(&opened, 1));
        }
    }),
    ("mkdir", |seen, at| seen.note("mkdir", sys::mkdir(at, 0o2751))),
    ("rmdir", |seen, at| seen.note("rmdir", sys::rmdir(at))),
    ("unlink", |seen, at| seen.note("unlink", sys::unlink(at))),
    ("mkfifo", |seen, at| seen.note("mknod", sys::mknod(at, libc::S_IFIFO | 0o620, 0))),
    ("mknod of a file", |seen, at| seen.note("mknod", sys::mknod(at, libc::S_IFREG | 0o604, 0))),
    ("mknod of a socket", |seen, at| seen.note("mknod", sys::mknod(at, libc::S_IFSOCK | 0o604, 0))),
    ("link from it", |seen, at| seen.note("link", sys::link(at, &seen.path("new")))),
    ("link from it, following", |seen, at| {
        let (from, to, flags) = (sys::c(at), sys::c(&seen.path("new")), libc::AT_SYMLINK_FOLLOW);
        seen.note("linkat", call!(linkat(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), flags)));
    }),
    ("link to it", |seen, at| seen.note("link", sys::link(&seen.path("other"), at))),
    ("symlink at it", |seen, at| seen.note("symlink", sys::symlink(Path::new("somewhere/else"), at))),
    ("readlink", |seen, at| seen.note("readlink", sys::readlink(at))),
    ("rename it", |seen, at| rename(seen, at, &seen.path("new"), 0)),
    ("rename it to itself", |seen, at| rename(seen, at, at, 0)),
    ("rename a file over it", |seen, at| rename(seen, &seen.path("other"), at, 0)),
    ("rename a folder over it", |seen, at| rename(seen, &seen.path("dir"), at, 0)),
    ("rename it over a file", |seen, at| rename(seen, at, &seen.path("other"), 0)),
    ("rename it over a folder", |seen, at| rename(seen, at, &seen.path("dir"), 0)),
    ("rename a file to it if it is free", |seen, at| rename(seen, &seen.path("other"), at, libc::RENAME_NOREPLACE)),
    ("exchange it with a file", |seen, at| rename(seen, at, &seen.path("other"), libc::RENAME_EXCHANGE)),
    ("exchange a folder with it", |seen, at| rename(seen, &seen.path("dir"), at, libc::RENAME_EXCHANGE)),
    ("chmod", |seen, at| seen.note("chmod", sys::chmod(at, 0o4711))),
    ("chown", |seen, at| seen.note("chown", sys::chown(at, u32::MAX, 65534))),
    ("lchown", |seen, at| seen.note("lchown", call!(lchown(sys::c(at).as_ptr(), u32::MAX, 65534)))),
    ("fchown of its place", |seen, at| {
        let empty = sys::c(Path::new(""));
        let owner =
            |file: &OwnedFd| call!(fchownat(file.as_raw_fd(), empty.as_ptr(), u32::MAX, 65534, libc::AT_EMPTY_PATH));
        seen.note("fchownat", with_file(at, owner));
    }),
    ("truncate to nothing", |seen, at| seen.note("truncate", call!(truncate(sys::c(at).as_ptr(), 0)))),
    ("truncate to more", |seen, at| seen.note("truncate", call!(truncate(sys::c(at).as_ptr(), 10_000)))),
    ("set times", |seen, at| {
        seen.note("utimensat", sys::set_times(at, [(5, 6), (7, 8)], 0));
        let times = sys::stat(at).map(|found| format!("{} {}", found.st_atime, found.st_mtime));
        seen.note("times", times);
    }),
    ("set times, not following", |seen, at| {
        seen.note("utimensat", sys::set_times(at, [(5, 6), (7, 8)], libc::AT_SYMLINK_NOFOLLOW));
        seen.note("time", sys::lstat(at).map(|found| format!("{}.{}", found.st_mtime, found.st_mtime_nsec)));
    }),
    ("stat", |seen, at| {
        // A folder's dots lead to where the file system shows through.
        seen.note("stat", sys::stat(at).map(|found| super::record::shown(&found)));
        seen.note("lstat", sys::lstat(at).map(|found| super::record::shown(&found)));
    }),
    ("access", |seen, at| {
        for (label, how) in [("there", libc::F_OK), ("read", libc::R_OK), ("write", libc::W_OK), ("run", libc::X_OK)] {
            seen.note(label, sys::access(at, how));
        }
    }),
    ("statfs", |seen, at| {
        let found = sys::statfs(at).map(|found| format!("names of {} bytes", found.f_namelen));
        seen.note("statfs", found);
    }),
    ("set an attribute", |seen, at| {
        seen.note("lsetxattr", sys::set_attribute(at, "user.a", b"value", 0));
        seen.note("lgetxattr", sys::attribute(at, "user.a", 100));
        seen.note("llistxattr", sys::attributes(at));
        seen.note("lremovexattr", sys::remove_attribute(at, "user.a"));
    }),
    ("read names", |seen, at| {
        let names = std::fs::read_dir(at).map(|entries| {
            let mut names: Vec<_> = entries.map(|entry| entry.expect("an entry").file_name()).collect();
            names.sort();
            format!("{names:?}")
        });
        seen.note("names", names.map_err(|error| error.raw_os_error().expect("a number")));
    }),
    ("sync", |seen, at| {
        let opened = sys::open(at, libc::O_RDONLY | libc::O_NONBLOCK, 0);
        seen.note("fsync", opened.and_then(|file| sys::fsync(&file)));
    }),
];

/// Pairs of a call and a path: one of `one_in`, so that each call and each path occurs; all pairs for 1.
pub fn scenarios(one_in: usize) -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for (i, &(call, act)) in CALLS.iter().enumerate() {
        for (j, &(target, prepare, path)) in TARGETS.iter().enumerate() {
            if (i + 3 * j) % one_in != 0 {
                continue;
            }
            let run = move |seen: &mut Record| {
                let at = seen.path("");
                prepare(&at);
                ignore(sys::make(&at.join("other"), b"other"));
                done(sys::mkdir(&at.join("dir"), 0o700)).expect("a folder");
                act(seen, &path(&at));
                seen.everything("then");
            };
            scenarios.push(anybody(&format!("{call}: {target}"), run));
        }
    }
    scenarios
}
