//! Scenarios about modes of new files and folders, times, and extended attributes.

use super::record::{Record, ignore};
use super::scenario::{Scenario, anybody, root, scenarios};
use super::sys::{self, Map, call};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

fn make(seen: &Record, name: &str, bytes: &[u8]) -> OwnedFd {
    sys::make(&seen.path(name), bytes)
}

fn modes() -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for mode in [0, 0o001, 0o200, 0o444, 0o666, 0o777, 0o1777, 0o2755, 0o4755, 0o7777] {
        scenarios.push(anybody(&format!("modes: of what is made with {mode:o}"), move |seen| {
            let file = sys::open(&seen.path("f"), libc::O_CREAT | libc::O_EXCL | libc::O_RDWR, mode);
            seen.note("open", file.as_ref().map_err(|errno| *errno));
            seen.note("write", file.as_ref().map_err(|errno| *errno).and_then(|file| sys::write(file, b"bytes")));
            seen.note("read", file.and_then(|file| sys::pread(&file, 10, 0)));
            sys::mkdir(&seen.path("d"), mode).expect("a folder");
            sys::mknod(&seen.path("p"), libc::S_IFIFO | mode, 0).expect("a fifo");
            ["f", "d", "p"].iter().for_each(|name| seen.look(name));
            seen.note(
                "again to write",
                sys::open(&seen.path("f"), libc::O_WRONLY, 0).and_then(|file| sys::pwrite(&file, b"B", 0)),
            );
            seen.note(
                "again to read",
                sys::open(&seen.path("f"), libc::O_RDONLY, 0).and_then(|file| sys::pread(&file, 10, 0)),
            );
            // Readable, so that its final state can be listed.
            sys::chmod(&seen.path("d"), 0o700).expect("a mode");
            sys::chmod(&seen.path("f"), 0o600).expect("a mode");
            seen.read("f");
        }));
        scenarios.push(anybody(&format!("modes: set to {mode:o} while the file is open"), move |seen| {
            let file = make(seen, "f", b"bytes of f");
            seen.note("chmod", sys::chmod(&seen.path("f"), mode));
            seen.look("f");
            seen.note("write", sys::pwrite(&file, b"BYTES", 0));
            seen.note("read", sys::pread(&file, 10, 0));
            seen.look("f");
            for (label, flags) in [
                ("read", libc::O_RDONLY),
                ("write", libc::O_WRONLY),
                ("both", libc::O_RDWR),
                ("cut", libc::O_WRONLY | libc::O_TRUNC),
            ] {
                seen.note(&format!("open to {label}"), sys::open(&seen.path("f"), flags, 0));
            }
            drop(file);
            for (label, flags) in [("read", libc::O_RDONLY), ("write", libc::O_WRONLY), ("both", libc::O_RDWR)] {
                seen.note(&format!("open to {label}, not open"), sys::open(&seen.path("f"), flags, 0));
            }
            seen.look("f");
            sys::chmod(&seen.path("f"), 0o600).expect("a mode");
        }));
    }
    scenarios.extend(scenarios!(anybody about "modes";
        "the rights of the owner are lost by a change of what is run" => |seen| {
            let file = make(seen, "f", b"bytes of f");
            let again = |seen: &mut Record, label: &str| {
                seen.look("f");
                seen.note(label, sys::chmod(&seen.path("f"), 0o6775));
            };
            again(seen, "begin");
            seen.note("write", sys::pwrite(&file, b"x", 0));
            again(seen, "after a write");
            seen.note("ftruncate", sys::set_size(&file, 3));
            again(seen, "after ftruncate");
            seen.note("truncate", call!(truncate(sys::c(&seen.path("f")).as_ptr(), 5)));
            again(seen, "after truncate");
            seen.note("fallocate", sys::allocate(&file, 0, 0, 6000));
            again(seen, "after fallocate");
            seen.note("chown", sys::chown(&seen.path("f"), u32::MAX, u32::MAX));
            again(seen, "after chown");
            let user = sys::lstat(&seen.path("f")).expect("attributes").st_uid;
            seen.note("chown to the owner", sys::chown(&seen.path("f"), user, u32::MAX));
            again(seen, "after a chown to the owner");
            seen.note("open cutting off", sys::open(&seen.path("f"), libc::O_WRONLY | libc::O_TRUNC, 0));
            seen.look("f");
            sys::chmod(&seen.path("f"), 0o2664).expect("a mode");
            seen.note("write to a file whose group locks", sys::pwrite(&file, b"x", 0));
            seen.look("f");
        };
        "what is made in a folder that gives its group has that" => |seen| {
            sys::mkdir(&seen.path("d"), 0o755).expect("a folder");
            seen.note("chmod", sys::chmod(&seen.path("d"), 0o2755));
            drop(make(seen, "d/f", b""));
            sys::mkdir(&seen.path("d/e"), 0o755).expect("a folder");
            sys::symlink(Path::new("x"), &seen.path("d/l")).expect("a link");
            seen.everything("then");
        };
    ));
    scenarios.extend(scenarios!(root about "modes";
        "the group of a folder that gives its group" => |seen| {
            sys::mkdir(&seen.path("d"), 0o755).expect("a folder");
            sys::chown(&seen.path("d"), u32::MAX, 1234).expect("a group");
            sys::chmod(&seen.path("d"), 0o2755).expect("a mode");
            drop(make(seen, "d/f", b""));
            sys::mkdir(&seen.path("d/e"), 0o755).expect("a folder");
            seen.everything("then");
        };
        "owners are set" => |seen| {
            let file = make(seen, "f", b"x");
            sys::symlink(Path::new("f"), &seen.path("l")).expect("a link");
            for (user, group) in [(1000, 1001), (u32::MAX, 7), (8, u32::MAX), (4_000_000_000, 3_000_000_000)] {
                seen.note("fchown", call!(fchown(file.as_raw_fd(), user, group)));
                seen.look("f");
            }
            seen.note("lchown", call!(lchown(sys::c(&seen.path("l")).as_ptr(), 5, 6)));
            seen.look("l");
            seen.note("chown through a link", sys::chown(&seen.path("l"), 9, 10));
            seen.everything("then");
        };
        "what root makes as another group is that group's" => |seen| {
            let at = seen.path("f");
            let made = std::thread::spawn(move || {
                sys::set_group_for_files(1234);
                sys::open(&at, libc::O_CREAT | libc::O_RDWR, 0o644).map(drop)
            });
            let made = made.join().expect("a thread");
            seen.note("open", made);
            seen.look("f");
        };
        "what root makes as another user is that user's" => |seen| {
            sys::chmod(&seen.path(""), 0o777).expect("a mode");
            let at = seen.path("f");
            let made = std::thread::spawn(move || {
                sys::set_user_for_files(1234);
                sys::open(&at, libc::O_CREAT | libc::O_RDWR, 0o644).map(drop)
            });
            let made = made.join().expect("a thread");
            seen.note("open", made);
            seen.look("f");
        };
        "another user looks" => |seen| {
            sys::chmod(&seen.path(""), 0o777).expect("a mode");
            drop(make(seen, "f", b"x"));
            let at = seen.path("f");
            let answers = std::thread::spawn(move || {
                sys::become_user(1234);
                [sys::stat(&at).map(drop), sys::open(&at, libc::O_RDONLY, 0).map(drop)]
            });
            let [stat, open] = answers.join().expect("a thread");
            seen.note("stat", stat);
            seen.note("open", open);
        };
    ));
    scenarios
}

fn when(seen: &mut Record, label: &str, name: &str) {
    let found = sys::lstat(&seen.path(name));
    let times = found.map(|found| {
        let [a, m] = [(found.st_atime, found.st_atime_nsec), (found.st_mtime, found.st_mtime_nsec)];
        // Set times are long ago or far ahead.
        let told = |(seconds, nanoseconds): (i64, i64)| match seconds {
            1_600_000_000..2_200_000_000 => "now".to_owned(),
            _ => format!("{seconds}.{nanoseconds:09}"),
        };
        format!("read {}, written {}", told(a), told(m))
    });
    seen.note(label, times);
}

fn set_times() -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    let at = [
        (0, 0),
        (1, 999_999_999),
        (-1, 0),
        (-1, 500_000_000),
        (-1_000_000, 1),
        (-2_147_483_648, 0),
        (-2_147_483_649, 0),
        (i64::MIN + 1, 0),
        (2_147_483_647, 0),
        (2_147_483_648, 3),
        (4_294_967_296, 0),
        (15_032_385_535, 999_999_999),
        (15_032_385_536, 0),
        (253_402_300_799, 0),
        (i64::MAX, 0),
        (5, 1_000_000_000),
        (5, -1),
    ];
    for (seconds, nanoseconds) in at {
        scenarios.push(anybody(&format!("times: set to {seconds} s and {nanoseconds} ns"), move |seen| {
            let file = make(seen, "f", b"x");
            sys::symlink(Path::new("f"), &seen.path("l")).expect("a link");
            let both = [(seconds, nanoseconds), (seconds, nanoseconds)];
            seen.note("of a file", sys::set_times(&seen.path("f"), both, 0));
            when(seen, "times", "f");
            drop(file);
            when(seen, "times when it is closed", "f");
            seen.note("of a link", sys::set_times(&seen.path("l"), both, libc::AT_SYMLINK_NOFOLLOW));
            when(seen, "times of the link", "l");
            sys::mkdir(&seen.path("d"), 0o700).expect("a folder");
            seen.note("of a folder", sys::set_times(&seen.path("d"), both, 0));
            when(seen, "times of the folder", "d");
        }));
    }
    let special = [
        ("now and now", [(0, libc::UTIME_NOW), (0, libc::UTIME_NOW)]),
        ("now and none", [(0, libc::UTIME_NOW), (0, libc::UTIME_OMIT)]),
        ("none and now", [(0, libc::UTIME_OMIT), (0, libc::UTIME_NOW)]),
        ("none and none", [(0, libc::UTIME_OMIT), (0, libc::UTIME_OMIT)]),
        ("now and one", [(0, libc::UTIME_NOW), (77, 8)]),
        ("one and none", [(77, 8), (0, libc::UTIME_OMIT)]),
        ("none and one", [(0, libc::UTIME_OMIT), (77, 8)]),
    ];
    for (name, times) in special {
        scenarios.push(anybody(&format!("times: {name}"), move |seen| {
            drop(make(seen, "f", b"x"));
            sys::set_times(&seen.path("f"), [(10, 1), (20, 2)], 0).expect("times");
            seen.note("utimensat", sys::set_times(&seen.path("f"), times, 0));
            when(seen, "times", "f");
        }));
    }
    scenarios.extend(scenarios!(anybody about "times";
        "those set on an open file that was written stay" => |seen| {
            let file = make(seen, "f", b"x");
            sys::pwrite(&file, &[1; 5000], 0).expect("written");
            sys::set_times(&seen.path("f"), [(10, 1), (20, 2)], 0).expect("times");
            when(seen, "open", "f");
            drop(file);
            when(seen, "closed", "f");
        };
        "the moment of making is told" => |seen| {
            drop(make(seen, "f", b"x"));
            // SAFETY: a structure of numbers alone.
            let mut found: libc::statx = unsafe { std::mem::zeroed() };
            let path = sys::c(&seen.path("f"));
            seen.note("statx", call!(statx(libc::AT_FDCWD, path.as_ptr(), 0, libc::STATX_ALL, &mut found)));
            let basic = libc::STATX_BASIC_STATS;
            seen.note("what it tells of all files", i64::from(found.stx_mask & basic));
            seen.note("it tells when the file was made", found.stx_mask & libc::STATX_BTIME != 0);
        };
    ));
    scenarios
}

/// A call on the file `f`, open, in the folder `d` beside the folder `e`.
type Act = fn(&Record, &OwnedFd);

const CHANGES: &[(&str, Act)] = &[
    ("write", |_, file| ignore(sys::pwrite(file, b"y", 0))),
    ("write that appends", |_, file| ignore(sys::pwrite(file, b"y", 10_000))),
    ("write of nothing", |_, file| ignore(sys::pwrite(file, b"", 0))),
    ("write through a mapping", |_, file| {
        let both = libc::PROT_READ | libc::PROT_WRITE;
        let mut map = Map::new(file, 10, both, libc::MAP_SHARED, 0).expect("a mapping");
        map.bytes()[0] = b'z';
        map.sync(libc::MS_SYNC).expect("a sync");
    }),
    ("read", |_, file| ignore(sys::pread(file, 10, 0))),
    ("ftruncate to less", |_, file| ignore(sys::set_size(file, 5))),
    ("ftruncate to more", |_, file| ignore(sys::set_size(file, 50_000))),
    ("ftruncate to as much", |_, file| ignore(sys::set_size(file, 9000))),
    ("truncate to as much", |seen, _| ignore(call!(truncate(sys::c(&seen.path("d/f")).as_ptr(), 9000)))),
    ("open cutting off", |seen, _| ignore(sys::open(&seen.path("d/f"), libc::O_WRONLY | libc::O_TRUNC, 0))),
    ("open creating what is there", |seen, _| {
        ignore(sys::open(&seen.path("d/f"), libc::O_RDWR | libc::O_CREAT, 0o600))
    }),
    ("fallocate", |_, file| ignore(sys::allocate(file, 0, 0, 20_000))),
    ("fallocate keeping the size", |_, file| ignore(sys::allocate(file, libc::FALLOC_FL_KEEP_SIZE, 0, 20_000))),
    ("fallocate punching", |_, file| {
        ignore(sys::allocate(file, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, 0, 4096));
    }),
    ("chmod", |seen, _| ignore(sys::chmod(&seen.path("d/f"), 0o600))),
    ("chmod to the same", |seen, _| ignore(sys::chmod(&seen.path("d/f"), 0o644))),
    ("chown to nobody else", |seen, _| ignore(sys::chown(&seen.path("d/f"), u32::MAX, u32::MAX))),
    ("link", |seen, _| ignore(sys::link(&seen.path("d/f"), &seen.path("e/g")))),
    ("unlink", |seen, _| ignore(sys::unlink(&seen.path("d/f")))),
    ("rename", |seen, _| ignore(sys::rename(&seen.path("d/f"), &seen.path("e/g"), 0))),
    ("rename within", |seen, _| ignore(sys::rename(&seen.path("d/f"), &seen.path("d/g"), 0))),
    ("rename to itself", |seen, _| ignore(sys::rename(&seen.path("d/f"), &seen.path("d/f"), 0))),
    ("rename over it", |seen, _| ignore(sys::rename(&seen.path("e/h"), &seen.path("d/f"), 0))),
    ("exchange", |seen, _| ignore(sys::rename(&seen.path("e/h"), &seen.path("d/f"), libc::RENAME_EXCHANGE))),
    ("rename that is refused", |seen, _| {
        ignore(sys::rename(&seen.path("e/h"), &seen.path("d/f"), libc::RENAME_NOREPLACE));
    }),
    ("make", |seen, _| ignore(sys::open(&seen.path("d/new"), libc::O_CREAT | libc::O_RDWR, 0o600))),
    ("mkdir", |seen, _| ignore(sys::mkdir(&seen.path("d/new"), 0o700))),
    ("rmdir", |seen, _| ignore(sys::rmdir(&seen.path("d/empty")))),
    ("rmdir that is refused", |seen, _| ignore(sys::rmdir(&seen.path("d/full")))),
    ("symlink", |seen, _| ignore(sys::symlink(Path::new("f"), &seen.path("d/l")))),
    ("mkfifo", |seen, _| ignore(sys::mknod(&seen.path("d/p"), libc::S_IFIFO | 0o600, 0))),
    ("setxattr", |seen, _| ignore(sys::set_attribute(&seen.path("d/f"), "user.a", b"v", 0))),
    ("removexattr of none", |seen, _| ignore(sys::remove_attribute(&seen.path("d/f"), "user.a"))),
    ("read names", |seen, _| ignore(std::fs::read_dir(seen.path("d")).expect("names").count())),
    ("set times", |seen, _| ignore(sys::set_times(&seen.path("d/f"), [(5, 5), (6, 6)], 0))),
    ("fsync", |_, file| ignore(sys::fsync(file))),
];

/// The times of the file and of both folders that a call moves.
fn moved() -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for &(call, act) in CHANGES {
        scenarios.push(anybody(&format!("times that move: {call}"), move |seen| {
            for name in ["d", "e", "d/empty", "d/full", "d/full/x"] {
                sys::mkdir(&seen.path(name), 0o755).expect("a folder");
            }
            let file = make(seen, "d/f", &[b'x'; 9000]);
            drop(make(seen, "e/h", b"other"));
            // In write-through the bytes go to the backing store now. That changes the file, and must not happen while
            // times are compared.
            sys::fsync(&file).expect("a sync");
            // The file was read already, so that the file system's own rule decides whether a later read moves the
            // time.
            sys::pread(&file, 10, 0).expect("read");
            let old = [(100, 0), (200, 0)];
            for name in ["d", "e"] {
                sys::set_times(&seen.path(name), old, 0).expect("times");
            }
            sys::set_times(&seen.path("d/f"), old, 0).expect("times");
            let folders = ["d", "e"].map(|name| {
                sys::open(&seen.path(name), libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOATIME, 0).expect("open")
            });
            let times = || {
                let found = [&file, &folders[0], &folders[1]].map(|open| sys::fstat(open).expect("attributes"));
                found.map(|found| {
                    [
                        (found.st_atime, found.st_atime_nsec),
                        (found.st_mtime, found.st_mtime_nsec),
                        (found.st_ctime, found.st_ctime_nsec),
                    ]
                })
            };
            let before = times();
            // Longer than the step of the file system's clock.
            std::thread::sleep(Duration::from_millis(11));
            act(seen, &file);
            let after = times();
            for (i, name) in ["file", "its folder", "the other folder"].into_iter().enumerate() {
                let moved = ["read", "written", "changed"].into_iter().enumerate();
                let moved: Vec<&str> =
                    moved.filter(|&(j, _)| before[i][j] != after[i][j]).map(|(_, what)| what).collect();
                seen.note(name, moved.join(" "));
            }
        }));
    }
    scenarios
}

fn extended() -> Vec<Scenario> {
    let mut scenarios = scenarios!(anybody about "extended attributes";
        "are set, read, listed and removed" => |seen| {
            drop(make(seen, "f", b"x"));
            sys::mkdir(&seen.path("d"), 0o700).expect("a folder");
            for name in ["f", "d"] {
                let at = seen.path(name);
                seen.note("none", sys::attribute(&at, "user.a", 10));
                seen.note("how long none are", sys::attributes_length(&at));
                seen.note("how long one is that is not there", sys::attribute_length(&at, "user.a"));
                seen.note("set", sys::set_attribute(&at, "user.a", b"value", 0));
                seen.note("read", sys::attribute(&at, "user.a", 10));
                seen.note("no room", sys::attribute(&at, "user.a", 4));
                seen.note("how long", sys::attribute_length(&at, "user.a"));
                seen.note("how long all names are", sys::attributes_length(&at));
                seen.note("a new one that is there", sys::set_attribute(&at, "user.a", b"v", libc::XATTR_CREATE));
                seen.note("another that is not there", sys::set_attribute(&at, "user.b", b"v", libc::XATTR_REPLACE));
                seen.note("another", sys::set_attribute(&at, "user.a", b"v", libc::XATTR_REPLACE));
                seen.note("both flags", sys::set_attribute(&at, "user.a", b"v", libc::XATTR_REPLACE | libc::XATTR_CREATE));
                seen.note("empty", sys::set_attribute(&at, "user.empty", b"", 0));
                seen.note("read", sys::attribute(&at, "user.empty", 10));
                seen.note("names", sys::attributes(&at));
                seen.note("remove", sys::remove_attribute(&at, "user.a"));
                seen.note("remove again", sys::remove_attribute(&at, "user.a"));
                seen.note("names", sys::attributes(&at));
            }
        };
        "their limits" => |seen| {
            drop(make(seen, "f", b"x"));
            let at = seen.path("f");
            let name = |length: usize| format!("user.{}", "n".repeat(length - 5));
            for length in [6, 255, 256] {
                seen.note(&format!("a name of {length} bytes"), sys::set_attribute(&at, &name(length), b"v", 0));
                seen.note("read", sys::attribute(&at, &name(length), 10));
            }
            for length in [1000, 3000, 65_535, 65_536, 65_537] {
                seen.note(&format!("{length} bytes"), sys::set_attribute(&at, "user.large", &vec![b'v'; length], 0));
                seen.note("read", sys::attribute(&at, "user.large", 65_536));
            }
            for (label, name) in [("no name", ""), ("no kind", "name"), ("an unknown kind", "other.name"), ("a kind alone", "user.")] {
                seen.note(label, sys::set_attribute(&at, name, b"v", 0));
            }
        };
        "of other kinds" => |seen| {
            drop(make(seen, "f", b"x"));
            sys::symlink(Path::new("f"), &seen.path("l")).expect("a link");
            sys::mknod(&seen.path("p"), libc::S_IFIFO | 0o600, 0).expect("a fifo");
            for (file, name) in [("f", "trusted.a"), ("l", "user.a"), ("l", "trusted.a"), ("p", "user.a"), ("f", "security.a")] {
                seen.note(&format!("{name} of {file}"), sys::set_attribute(&seen.path(file), name, b"v", 0));
                seen.note("read", sys::attribute(&seen.path(file), name, 10));
                seen.note("names", sys::attributes(&seen.path(file)));
            }
        };
        "access lists" => |seen| {
            let file = make(seen, "f", b"x");
            sys::mkdir(&seen.path("d"), 0o755).expect("a folder");
            // Version 2; the owner may do all, user 1234 may read, the group may read, the mask is to read and write,
            // others nothing.
            let entry = |tag: u16, rights: u16, id: u32| [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat();
            let entries = [entry(1, 7, u32::MAX), entry(2, 4, 1234), entry(4, 4, u32::MAX), entry(16, 6, u32::MAX), entry(32, 0, u32::MAX)];
            let list = [&2_u32.to_le_bytes()[..], &entries.concat()].concat();
            seen.note("of a file", sys::set_attribute(&seen.path("f"), "system.posix_acl_access", &list, 0));
            seen.look("f");
            seen.note("read", sys::attribute(&seen.path("f"), "system.posix_acl_access", 100));
            seen.note("chmod", call!(fchmod(file.as_raw_fd(), 0o640)));
            seen.note("read", sys::attribute(&seen.path("f"), "system.posix_acl_access", 100));
            seen.note("of what is made in a folder", sys::set_attribute(&seen.path("d"), "system.posix_acl_default", &list, 0));
            drop(make(seen, "d/f", b"x"));
            sys::mkdir(&seen.path("d/e"), 0o777).expect("a folder");
            seen.look("d/f");
            seen.look("d/e");
            seen.note("read", sys::attribute(&seen.path("d/f"), "system.posix_acl_access", 100));
            seen.note("names", sys::attributes(&seen.path("d/e")));
        };
    );
    scenarios.extend(scenarios!(root about "extended attributes";
        "capabilities that a file gets after it was written stay" => |seen| {
            let held: Vec<u8> = [0x0200_0001_u32, 1, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
            // Its end is within a page.
            let file = make(seen, "f", &[b'x'; 9000]);
            seen.note("set", sys::set_attribute(&seen.path("f"), "security.capability", &held, 0));
            seen.note("chmod", sys::chmod(&seen.path("f"), 0o6711));
            seen.note("fsync", sys::fsync(&file));
            drop(file);
            seen.everything("then");
        };
        "capabilities are lost when the file is written" => |seen| {
            // Version 2, effective, no capability but to change owners.
            let held: Vec<u8> = [0x0200_0001_u32, 1, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
            let file = make(seen, "f", &[b'x'; 5000]);
            let at = seen.path("f");
            type Change = fn(&OwnedFd) -> Result<i64, i32>;
            let changes: [(&str, Change); 4] = [
                ("write", |file| sys::pwrite(file, b"y", 0)),
                ("ftruncate", |file| sys::set_size(file, 100)),
                ("fallocate", |file| sys::allocate(file, 0, 0, 9000)),
                ("chown", |file| call!(fchown(file.as_raw_fd(), 0, 0))),
            ];
            for (label, change) in changes {
                seen.note("set", sys::set_attribute(&at, "security.capability", &held, 0));
                seen.note("read", sys::attribute(&at, "security.capability", 100));
                seen.note(label, change(&file));
                seen.note("read after", sys::attribute(&at, "security.capability", 100));
            }
        };
    ));
    scenarios
}

pub fn scenarios() -> Vec<Scenario> {
    [modes(), set_times(), moved(), extended()].into_iter().flatten().collect()
}
