//! Scenarios about rights: a user's operations on things of its own without read permission, and on things of others.
//! Root has made these before, outside the mount.

use super::record::{Record, done, ignore};
use super::scenario::{Scenario, anybody, scenarios, user};
use super::sys::{self, call};
use crate::common::mounted::NOBODY;
use std::os::fd::AsRawFd;
use std::path::Path;

fn nothing(_: &Path) {}

fn file(at: &Path, name: &str, mode: u32, owner: u32, group: u32) {
    drop(sys::make(&at.join(name), b"the bytes"));
    sys::chown(&at.join(name), owner, group).expect("an owner");
    sys::chmod(&at.join(name), mode).expect("a mode");
}

fn folder(at: &Path, name: &str, mode: u32, owner: u32, group: u32) {
    sys::mkdir(&at.join(name), 0o700).expect("a folder");
    drop(sys::make(&at.join(name).join("inside"), b"inside"));
    sys::chown(&at.join(name), owner, group).expect("an owner");
    sys::chmod(&at.join(name), mode).expect("a mode");
}

/// A file of the user, with an attribute that only an administrator may see.
fn trusted(at: &Path) {
    file(at, "f", 0o644, NOBODY, NOBODY);
    for name in ["trusted.of_root", "user.of_all"] {
        sys::set_attribute(&at.join("f"), name, b"v", 0).expect("an attribute");
    }
}

/// Tries every operation on a file.
fn try_file(seen: &mut Record, name: &str) {
    let at = seen.path(name);
    for (label, flags) in [
        ("read", libc::O_RDONLY),
        ("write", libc::O_WRONLY),
        ("both", libc::O_RDWR),
        ("cut", libc::O_WRONLY | libc::O_TRUNC),
        ("create", libc::O_RDWR | libc::O_CREAT),
        ("leave its time", libc::O_RDONLY | libc::O_NOATIME),
    ] {
        let opened = sys::open(&at, flags, 0o600);
        seen.note(&format!("open to {label}"), opened.as_ref().map_err(|errno| *errno));
        let Ok(opened) = opened else { continue };
        seen.note("pread", sys::pread(&opened, 20, 0));
        seen.note("pwrite", sys::pwrite(&opened, b"changed", 2));
    }
    for (label, how) in [("read", libc::R_OK), ("write", libc::W_OK), ("run", libc::X_OK)] {
        seen.note(&format!("access to {label}"), sys::access(&at, how));
    }
    seen.note("truncate", call!(truncate(sys::c(&at).as_ptr(), 4)));
    seen.note("utimensat", sys::set_times(&at, [(5, 5), (6, 6)], 0));
    seen.note("utimensat to now", sys::set_times(&at, [(0, libc::UTIME_NOW); 2], 0));
    seen.note("setxattr", sys::set_attribute(&at, "user.a", b"v", 0));
    seen.note("getxattr", sys::attribute(&at, "user.a", 10));
    seen.note("link", sys::link(&at, &seen.path("another name")));
    seen.look(name);
    seen.note("chown to another", sys::chown(&at, 1234, u32::MAX));
    seen.note("chown to another group", sys::chown(&at, u32::MAX, 1234));
    seen.note("chown to its own group", sys::chown(&at, u32::MAX, NOBODY));
    seen.note("chmod", sys::chmod(&at, 0o6755));
    seen.look(name);
    seen.note("rename", sys::rename(&at, &seen.path("renamed"), 0));
    seen.note("unlink", sys::unlink(&seen.path("renamed")));
}

/// Tries every operation on a folder.
fn try_folder(seen: &mut Record, name: &str) {
    let at = seen.path(name);
    let names = std::fs::read_dir(&at).map(|entries| entries.count() as i64);
    seen.note("names", names.map_err(|error| error.raw_os_error().expect("a number")));
    seen.note("look", sys::stat(&at.join("inside")).map(|found| found.st_size));
    seen.note("read", sys::open(&at.join("inside"), libc::O_RDONLY, 0).and_then(|file| sys::pread(&file, 20, 0)));
    let made = sys::open(&at.join("new"), libc::O_CREAT | libc::O_EXCL | libc::O_RDWR, 0o600);
    seen.note("make", made.as_ref().map_err(|errno| *errno));
    seen.note("write", made.and_then(|file| sys::write(&file, b"new").and_then(|_| sys::fsync(&file))));
    seen.note("look at what is not there", sys::stat(&at.join("none")).map(|found| found.st_size));
    seen.note("mkdir", sys::mkdir(&at.join("folder"), 0o700));
    seen.note("rmdir", sys::rmdir(&at.join("folder")));
    seen.note("symlink", sys::symlink(Path::new("x"), &at.join("link")));
    seen.note("link", sys::link(&at.join("new"), &at.join("second")));
    seen.note("rename within", sys::rename(&at.join("new"), &at.join("newer"), 0));
    drop(sys::make(&seen.path("outside"), b"outside"));
    seen.note("rename over what is in it", sys::rename(&seen.path("outside"), &at.join("newer"), 0));
    seen.note("rename out of it", sys::rename(&at.join("newer"), &seen.path("out"), 0));
    seen.note("unlink", sys::unlink(&at.join("second")));
    seen.note("unlink what was there", sys::unlink(&at.join("inside")));
    seen.note("fsync", sys::open(&at, libc::O_RDONLY, 0).and_then(|folder| sys::fsync(&folder)));
    seen.note("setxattr", sys::set_attribute(&at, "user.a", b"v", 0));
    seen.note("utimensat", sys::set_times(&at, [(5, 5), (6, 6)], 0));
    seen.note("chmod", sys::chmod(&at, 0o777));
    seen.look(name);
    seen.note("rename it", sys::rename(&at, &seen.path("moved"), 0));
}

fn own() -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for mode in [0o000, 0o100, 0o200, 0o300, 0o400, 0o500, 0o600, 0o077, 0o6755] {
        let prepare = move |at: &Path| file(at, "f", mode, NOBODY, NOBODY);
        scenarios
            .push(user(&format!("rights: a file of one's own with {mode:o}"), prepare, |seen| try_file(seen, "f")));
        let prepare = move |at: &Path| folder(at, "d", mode, NOBODY, NOBODY);
        scenarios
            .push(user(&format!("rights: a folder of one's own with {mode:o}"), prepare, |seen| try_folder(seen, "d")));
    }
    for mode in [0o600, 0o604, 0o602, 0o607, 0o640, 0o666, 0o4755, 0o2755] {
        let prepare = move |at: &Path| file(at, "f", mode, 0, 0);
        scenarios.push(user(&format!("rights: a file of root with {mode:o}"), prepare, |seen| try_file(seen, "f")));
        let prepare = move |at: &Path| file(at, "f", mode, 0, NOBODY);
        scenarios.push(user(&format!("rights: a file of root and one's group with {mode:o}"), prepare, |seen| {
            try_file(seen, "f")
        }));
    }
    for mode in [0o700, 0o701, 0o704, 0o705, 0o703, 0o777, 0o1777, 0o2777] {
        let prepare = move |at: &Path| folder(at, "d", mode, 0, 0);
        scenarios.push(user(&format!("rights: a folder of root with {mode:o}"), prepare, |seen| try_folder(seen, "d")));
    }
    for mode in [0o710, 0o730, 0o750, 0o770, 0o1770] {
        let prepare = move |at: &Path| folder(at, "d", mode, 0, NOBODY);
        scenarios.push(user(&format!("rights: a folder of root and one's group with {mode:o}"), prepare, |seen| {
            try_folder(seen, "d")
        }));
    }
    scenarios
}

fn sticky() -> Vec<Scenario> {
    scenarios!(anybody about "rights";
        "a file is made, its right to be read is taken, and it is written" => |seen| {
            let file = sys::make(&seen.path("f"), &[1; 9000]);
            done(sys::chmod(&seen.path("f"), 0)).expect("a mode");
            seen.note("write", sys::pwrite(&file, b"x", 4000));
            seen.note("read", sys::pread(&file, 10, 3995));
            seen.note("fsync", sys::fsync(&file));
            seen.note("ftruncate", sys::set_size(&file, 5000));
            seen.note("fchmod", call!(fchmod(file.as_raw_fd(), 0o400)));
            seen.note("write", sys::pwrite(&file, b"y", 0));
            drop(file);
            seen.read("f");
        };
        "a folder's rights are taken while it is open" => |seen| {
            sys::mkdir(&seen.path("d"), 0o700).expect("a folder");
            let inside = sys::make(&seen.path("d/f"), b"inside");
            let folder = sys::open(&seen.path("d"), libc::O_RDONLY, 0).expect("open");
            done(sys::chmod(&seen.path("d"), 0)).expect("a mode");
            seen.note("look in it", sys::stat(&seen.path("d/f")).map(drop));
            seen.note("read what is open", sys::pread(&inside, 10, 0));
            seen.note("write what is open", sys::pwrite(&inside, b"I", 0));
            seen.note("fsync of what is open", sys::fsync(&inside));
            seen.note("fsync of the folder", sys::fsync(&folder));
            done(sys::chmod(&seen.path("d"), 0o700)).expect("a mode");
            seen.everything("then");
        };
    )
}

fn sticky_of_others() -> Vec<Scenario> {
    vec![user(
        "rights: a folder of root in which all may write, each his own",
        |at| {
            folder(at, "d", 0o1777, 0, 0);
            file(&at.join("d"), "mine", 0o600, NOBODY, NOBODY);
            file(&at.join("d"), "open to all", 0o666, 0, 0);
            folder(&at.join("d"), "empty", 0o777, 0, 0);
            ignore(sys::unlink(&at.join("d/empty/inside")));
        },
        |seen| {
            seen.note("unlink another's", sys::unlink(&seen.path("d/open to all")));
            seen.note("rename another's", sys::rename(&seen.path("d/open to all"), &seen.path("d/x"), 0));
            seen.note("rename mine over another's", sys::rename(&seen.path("d/mine"), &seen.path("d/open to all"), 0));
            seen.note(
                "exchange them",
                sys::rename(&seen.path("d/mine"), &seen.path("d/open to all"), libc::RENAME_EXCHANGE),
            );
            seen.note("rmdir another's", sys::rmdir(&seen.path("d/empty")));
            seen.note("rename mine", sys::rename(&seen.path("d/mine"), &seen.path("d/still mine"), 0));
            seen.note("unlink mine", sys::unlink(&seen.path("d/still mine")));
            seen.everything("then");
        },
    )]
}

fn forbidden() -> Vec<Scenario> {
    vec![user("rights: what only root may do", nothing, |seen| {
        drop(sys::make(&seen.path("f"), b"x"));
        seen.note("a device", sys::mknod(&seen.path("c"), libc::S_IFCHR | 0o600, libc::makedev(1, 3)));
        seen.note("a trusted attribute", sys::set_attribute(&seen.path("f"), "trusted.a", b"v", 0));
        seen.note("a capability", sys::set_attribute(&seen.path("f"), "security.capability", b"v", 0));
        seen.note("another owner", sys::chown(&seen.path("f"), 0, u32::MAX));
        seen.note("a group of others", sys::chown(&seen.path("f"), u32::MAX, 0));
        seen.everything("then");
    })]
}

fn unseen() -> Vec<Scenario> {
    vec![user("rights: names of attributes that only root may see", trusted, |seen| {
        seen.note("names", sys::attributes(&seen.path("f")));
        seen.note("how long they are", sys::attributes_length(&seen.path("f")));
        seen.note("value", sys::attribute(&seen.path("f"), "trusted.of_root", 10));
        seen.note("value of one's own", sys::attribute(&seen.path("f"), "user.of_all", 10));
    })]
}

pub fn scenarios() -> Vec<Scenario> {
    [own(), sticky(), sticky_of_others(), forbidden(), unseen()].into_iter().flatten().collect()
}
