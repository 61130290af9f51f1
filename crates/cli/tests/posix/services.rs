//! Scenarios that are about neither the bytes of files nor names: locks, leases, notices, execution of programs,
//! requests to the file system itself.

use super::record::{Record, done, ignore};
use super::scenario::{Scenario, anybody, scenarios};
use super::sys::{self, call};
use rustix::fs::inotify::{CreateFlags, WatchFlags};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

fn make(seen: &Record, name: &str, bytes: &[u8]) -> OwnedFd {
    sys::make(&seen.path(name), bytes)
}

fn again(seen: &Record, flags: i32) -> OwnedFd {
    sys::open(&seen.path("f"), flags, 0).expect("an open file")
}

fn flock(file: &OwnedFd, how: i32) -> Result<i64, i32> {
    call!(flock(file.as_raw_fd(), how | libc::LOCK_NB))
}

/// A lock of an open file on a range.
fn range(kind: i32, start: i64, length: i64) -> libc::flock {
    libc::flock { l_type: kind as i16, l_whence: libc::SEEK_SET as i16, l_start: start, l_len: length, l_pid: 0 }
}

fn lock(file: &OwnedFd, kind: i32, start: i64, length: i64) -> Result<i64, i32> {
    call!(fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &range(kind, start, length)))
}

/// Kind and range of the lock that would conflict.
fn hindered(file: &OwnedFd, kind: i32, start: i64, length: i64) -> Result<String, i32> {
    let mut found = range(kind, start, length);
    call!(fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &mut found))?;
    Ok(format!("kind {} from {} for {}", found.l_type, found.l_start, found.l_len))
}

fn locks() -> Vec<Scenario> {
    scenarios!(anybody about "locks";
        "of whole files" => |seen| {
            let (one, two, three) = (make(seen, "f", b"x"), again(seen, libc::O_RDONLY), again(seen, libc::O_RDWR));
            seen.note("shared by one", flock(&one, libc::LOCK_SH));
            seen.note("shared by two", flock(&two, libc::LOCK_SH));
            seen.note("exclusive by three", flock(&three, libc::LOCK_EX));
            seen.note("unlocked by one", flock(&one, libc::LOCK_UN));
            drop(two);
            seen.note("exclusive by three", flock(&three, libc::LOCK_EX));
            seen.note("shared by one", flock(&one, libc::LOCK_SH));
            seen.note("an unknown one", flock(&one, 77));
            ignore(sys::rename(&seen.path("f"), &seen.path("g"), 0));
            let renamed = sys::open(&seen.path("g"), libc::O_RDONLY, 0).expect("open");
            seen.note("by another name", flock(&renamed, libc::LOCK_SH));
            let folder = sys::open(&seen.path(""), libc::O_RDONLY, 0).expect("open");
            seen.note("of a folder", flock(&folder, libc::LOCK_EX));
        };
        "of ranges, by open file" => |seen| {
            let (one, two) = (make(seen, "f", &[0; 100]), again(seen, libc::O_RDWR));
            let (write, read, none) = (libc::F_WRLCK, libc::F_RDLCK, libc::F_UNLCK);
            seen.note("write by one", lock(&one, write, 10, 10));
            seen.note("write by two over it", lock(&two, write, 15, 10));
            seen.note("in the way of two", hindered(&two, read, 0, 0));
            seen.note("write by two beside it", lock(&two, write, 20, 10));
            seen.note("read by two before it", lock(&two, read, 0, 10));
            seen.note("read by one before it", lock(&one, read, 0, 10));
            seen.note("one lets a part go", lock(&one, none, 12, 2));
            seen.note("write by two there", lock(&two, write, 12, 2));
            seen.note("beyond the end", lock(&one, write, 1 << 40, 0));
            seen.note("before 0", lock(&one, write, -1, 1));
            drop(one);
            seen.note("all by two", lock(&two, write, 0, 0));
        };
        "of ranges need the right to it" => |seen| {
            drop(make(seen, "f", b"x"));
            let (reader, writer) = (again(seen, libc::O_RDONLY), again(seen, libc::O_WRONLY));
            seen.note("write by a reader", lock(&reader, libc::F_WRLCK, 0, 1));
            seen.note("read by a writer", lock(&writer, libc::F_RDLCK, 0, 1));
            seen.note("an unknown kind", lock(&writer, 9, 0, 1));
        };
        "leases" => |seen| {
            let file = make(seen, "f", b"x");
            seen.note("to write, of one open to write", call!(fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK)));
            seen.note("which", call!(fcntl(file.as_raw_fd(), libc::F_GETLEASE)));
            seen.note("none", call!(fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK)));
            drop(file);
            let reader = again(seen, libc::O_RDONLY);
            seen.note("to read", call!(fcntl(reader.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK)));
            seen.note("none", call!(fcntl(reader.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK)));
        };
    )
}

/// The pending notices, in words.
fn notices(watch: &OwnedFd) -> String {
    let mut space = [MaybeUninit::<u8>::uninit(); 8192];
    let mut reader = rustix::fs::inotify::Reader::new(watch, &mut space);
    let mut found = Vec::new();
    while let Ok(event) = reader.next() {
        let name = event.file_name().map(|name| name.to_string_lossy().into_owned());
        found.push(format!("{:x} {}", event.events().bits(), name.unwrap_or_default()));
    }
    found.join(", ")
}

fn others() -> Vec<Scenario> {
    scenarios!(anybody about "services";
        "notices of changes" => |seen| {
            let watch = rustix::fs::inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).expect("a watch");
            rustix::fs::inotify::add_watch(&watch, seen.path(""), WatchFlags::ALL_EVENTS).expect("a watch");
            let file = make(seen, "f", b"x");
            seen.note("make and write", notices(&watch));
            ignore(sys::set_size(&file, 0));
            ignore(sys::pread(&file, 1, 0));
            drop(file);
            seen.note("cut, read, close", notices(&watch));
            ignore(sys::chmod(&seen.path("f"), 0o600));
            ignore(sys::rename(&seen.path("f"), &seen.path("g"), 0));
            ignore(sys::mkdir(&seen.path("d"), 0o700));
            ignore(sys::link(&seen.path("g"), &seen.path("h")));
            seen.note("chmod, rename, mkdir, link", notices(&watch));
            ignore(sys::unlink(&seen.path("g")));
            ignore(sys::rmdir(&seen.path("d")));
            seen.note("unlink, rmdir", notices(&watch));
        };
        "a program is run, and not written while it runs" => |seen| {
            let program = seen.path("program");
            std::fs::copy("/bin/sleep", &program).expect("a copy");
            seen.note("the mode of a copy", i64::from(sys::stat(&program).expect("attributes").st_mode & 0o7777));
            let code = |error: std::io::Error| error.raw_os_error().expect("a number");
            let writer = sys::open(&program, libc::O_WRONLY, 0).expect("open");
            seen.note("run while it is written", Command::new(&program).arg("0").status().map(|_| ()).map_err(code));
            drop(writer);
            seen.note("run", Command::new(&program).arg("0").status().map(|ended| i64::from(ended.into_raw())).map_err(code));
            let mut running = Command::new(&program).arg("60").stdout(Stdio::null()).spawn().expect("it runs");
            seen.note("written while it runs", sys::open(&program, libc::O_WRONLY, 0));
            seen.note("cut while it runs", call!(truncate(sys::c(&program).as_ptr(), 0)));
            seen.note("unlinked while it runs", sys::unlink(&program));
            running.kill().expect("a child");
            running.wait().expect("its end");
        };
        "a script is run" => |seen| {
            drop(make(seen, "script", b"#!/bin/sh\nexit 7\n"));
            let run = |seen: &mut Record, label: &str| {
                let ended = Command::new(seen.path("script")).status();
                let ended = ended.map(|ended| i64::from(ended.code().unwrap_or(-1)));
                seen.note(label, ended.map_err(|error| error.raw_os_error().expect("a number")));
            };
            run(seen, "that may not be run");
            done(sys::chmod(&seen.path("script"), 0o755)).expect("a mode");
            run(seen, "that may be run");
        };
        "the file system's own requests" => |seen| {
            let file = make(seen, "f", b"x");
            let mut flags = 0_i64;
            seen.note("FS_IOC_GETFLAGS", call!(ioctl(file.as_raw_fd(), libc::FS_IOC_GETFLAGS, &mut flags)).map(|_| ()));
            let mut count = 0_i32;
            seen.note("FIONREAD", call!(ioctl(file.as_raw_fd(), libc::FIONREAD, &mut count)).map(|_| i64::from(count)));
            seen.note("a terminal's", call!(ioctl(file.as_raw_fd(), libc::TIOCGWINSZ, &mut [0_u16; 4])));
        };
        "the kind of the file system" => |seen| {
            let found = sys::statfs(&seen.path("")).expect("a file system");
            seen.note("its number", format!("{:x}", found.f_type));
        };
        "the room in the file system" => |seen| {
            let found = sys::statfs(&seen.path("")).expect("a file system");
            seen.note("in blocks of", found.f_bsize);
            seen.note("in parts of", found.f_frsize);
            seen.note("blocks", found.f_blocks as i64);
            seen.note("files", found.f_files as i64);
            seen.note("names of", found.f_namelen);
        };
        "a handle of a file is opened" => |seen| {
            drop(make(seen, "f", b"bytes"));
            // A handle of up to 128 bytes, its length and kind before it.
            let mut handle = [0_u32; 34];
            handle[0] = 128;
            let (mut mount, path) = (0_i32, sys::c(&seen.path("f")));
            let found = call!(syscall(libc::SYS_name_to_handle_at, libc::AT_FDCWD, path.as_ptr(), handle.as_mut_ptr(), &mut mount, 0));
            seen.note("name_to_handle_at", found.map(drop));
            let at = sys::open(&seen.path(""), libc::O_RDONLY, 0).expect("a folder");
            let opened = call!(syscall(libc::SYS_open_by_handle_at, at.as_raw_fd(), handle.as_mut_ptr(), libc::O_RDONLY));
            seen.note("open_by_handle_at", opened.map(drop));
            if let Ok(opened) = opened {
                call!(close(opened as i32)).expect("an open file");
            }
        };
    )
}

pub fn scenarios() -> Vec<Scenario> {
    [locks(), others()].into_iter().flatten().collect()
}
