//! `entresol mount`: a database on it, mappings, and its end.

mod common;

use common::mounted::{Mounted, each};
use common::{Scratch, Signal, ended_well, says, signal};
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt, chown};
use std::process::{Command, Stdio};

/// Programs that copy set a time right after the last write (`tar`, `rsync -t`, `cp -p`), while pages are being
/// written back.
#[test]
fn times_that_are_set_while_pages_are_written_below_stay() {
    use rustix::fs::{Timespec, Timestamps, futimens};
    let Some(mut mounted) = Mounted::with(Some(["write-through", "lru"])) else { return };
    let then = Timespec { tv_sec: 20, tv_nsec: 2 };
    let is_right = |file: &File, when: &str| {
        let found = file.metadata().unwrap();
        assert_eq!((found.mtime(), found.mtime_nsec()), (then.tv_sec, then.tv_nsec), "{when}");
    };
    for round in 0..3000 {
        let file = File::create(mounted.above().join(format!("f{}", round % 50))).unwrap();
        file.write_all_at(&[1; 65536], 0).unwrap();
        futimens(&file, &Timestamps { last_access: then, last_modification: then }).unwrap();
        is_right(&file, &format!("round {round}"));
    }
    mounted.unmount();
    for name in 0..50 {
        is_right(&File::open(mounted.below().join(format!("f{name}"))).unwrap(), "below");
    }
}

#[test]
fn mappings_and_calls_see_each_other() {
    each(|mounted| {
        let path = mounted.above().join("f");
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path).unwrap();
        file.write_all_at(&[1; 16384], 0).unwrap();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place that the kernel chooses, used within its length and unmapped once.
        let mapped = unsafe { rustix::mm::mmap(std::ptr::null_mut(), 16384, protection, MapFlags::SHARED, &file, 0) };
        let Ok(mapped) = mapped else {
            entresol_skip::skipped!("kernel", "this kernel maps no file that is opened for direct I/O");
            return;
        };
        // SAFETY: as above; nothing else refers to the mapping.
        let bytes = unsafe { std::slice::from_raw_parts_mut(mapped.cast::<u8>(), 16384) };
        assert!(bytes.iter().all(|&byte| byte == 1));
        bytes[5000..5010].fill(2);
        let mut read = [0; 12];
        file.read_exact_at(&mut read, 4999).unwrap();
        assert_eq!(read, [1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1], "a read sees what the mapping holds");
        file.write_all_at(&[3; 100], 9000).unwrap();
        assert_eq!(bytes[8999..9101], [&[1][..], &[3; 100], &[1]].concat(), "the mapping sees what was written");
        bytes[0] = 9;
        // SAFETY: the mapping is still there.
        unsafe { rustix::mm::msync(mapped, 16384, MsyncFlags::SYNC) }.unwrap();
        if mounted.is_direct() {
            assert_eq!(fs::read(mounted.below().join("f")).unwrap()[..2], [9, 1]);
        }
        // SAFETY: mapped above with this length, not used any more.
        unsafe { rustix::mm::munmap(mapped, 16384) }.unwrap();
    });
}

/// Two connections, so that the WAL's index is shared through a mapping.
#[test]
fn sqlite_works_with_a_wal_and_with_a_journal() {
    each(|mut mounted| {
        for mode in ["wal", "delete"] {
            let path = mounted.above().join(format!("{mode}.db"));
            let writer = rusqlite::Connection::open(&path).unwrap();
            let now: String = writer.query_row(&format!("PRAGMA journal_mode = {mode}"), [], |row| row.get(0)).unwrap();
            assert_eq!(now, mode);
            writer.execute_batch("CREATE TABLE t (i INTEGER PRIMARY KEY, s TEXT)").unwrap();
            let reader = rusqlite::Connection::open(&path).unwrap();
            for batch in 0..20_i64 {
                writer.execute_batch("BEGIN").unwrap();
                for i in 0..100 {
                    let text = format!("{batch} {i} ").repeat(40);
                    writer.execute("INSERT INTO t VALUES (?, ?)", (batch * 100 + i, text)).unwrap();
                }
                writer.execute_batch(if batch % 5 == 4 { "ROLLBACK" } else { "COMMIT" }).unwrap();
                let count: i64 = reader.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap();
                assert_eq!(count, (batch + 1 - (batch + 1) / 5) * 100);
            }
            let checked: String = reader.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
            assert_eq!(checked, "ok");
        }
        mounted.unmount();
        for mode in ["wal", "delete"] {
            let below = rusqlite::Connection::open(mounted.below().join(format!("{mode}.db"))).unwrap();
            let count: i64 = below.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap();
            assert_eq!(count, 1600);
        }
    });
}

#[test]
fn a_killed_server_leaves_a_mount_that_the_next_one_replaces() {
    each(|mut mounted| {
        for round in 0..3 {
            let path = mounted.above().join("f");
            fs::write(&path, format!("round {round}")).unwrap();
            File::open(&path).unwrap().sync_all().unwrap();
            mounted.signal(Signal::KILL);
            assert_eq!(mounted.end().0, None);
            assert!(fs::read(&path).is_err(), "nobody serves it");
            assert!(mounted.start());
            assert_eq!(fs::read(&path).unwrap(), format!("round {round}").as_bytes());
        }
        mounted.unmount();
    });
}

#[test]
fn it_stays_while_files_are_open_says_so_and_ends_with_the_last() {
    each(|mut mounted| {
        fs::write(mounted.above().join("f"), b"x").unwrap();
        let open = File::open(mounted.above().join("f")).unwrap();
        mounted.signal(Signal::TERM);
        // Longer than the delay of the message.
        std::thread::sleep(std::time::Duration::from_millis(1500));
        let mut byte = [0];
        open.read_exact_at(&mut byte, 0).unwrap();
        drop(open);
        let (code, said) = mounted.end();
        assert_eq!(code, Some(0));
        says(&said, &["busy", "the mount ends as soon as nothing in it is open"]);
    });
}

/// A child has a file for a moment that its parent has closed.
#[test]
fn what_is_closed_a_moment_later_does_not_keep_it() {
    let Some(mut mounted) = Mounted::new() else { return };
    fs::write(mounted.above().join("f"), b"x").unwrap();
    let open = File::open(mounted.above().join("f")).unwrap();
    mounted.signal(Signal::TERM);
    std::thread::sleep(std::time::Duration::from_millis(200));
    drop(open);
    assert_eq!(mounted.end(), (Some(0), String::new()));
}

#[test]
fn what_cannot_be_mounted_is_refused() {
    let Some(mounted) = Mounted::new() else { return };
    let scratch = &mounted.scratch;
    let other = common::Scratch::new();
    other.file("file", "");
    let backing = mounted.below();
    let backing = backing.to_str().unwrap();
    says(&other.refused(&["mount", backing, "."]), &[backing, "in use"]);
    says(&other.refused(&["mount", "absent", "."]), &["absent: No such file"]);
    says(&other.refused(&["mount", "file", "."]), &["file: Not a directory"]);
    says(&other.refused(&["mount", ".", "file"]), &["file: "]);
    assert!(scratch.path("mount").exists());
    other.refused(&["mount", ".", "absent"]);
    fs::create_dir(other.path("cached")).unwrap();
    other.format(&["--cache", "cache", "--backing", "cached", "--size", "2MiB"]);
    let cached = ["-q", "mount", "cached", "file", "--cache", "cache"];
    says(&other.refused(&["-q", "mount", "cached", "absent", "--cache", "cache"]), &["absent: "]);
    // A cache that was opened for a refused start is closed again: its directory is complete without it.
    let limits = [&cached[..], &["--dirty-high", "10%", "--dirty-low", "90%"]].concat();
    for (arguments, why) in [(&cached[..], "file: Not a directory"), (&limits[..], "--dirty-high")] {
        let refused = other.run(arguments);
        assert_eq!(refused.status.code(), Some(2));
        says(&String::from_utf8_lossy(&refused.stderr), &[why]);
        says(&other.refused(&["mount", "cached", "file"]), &["file: Not a directory"]);
    }
    other.ok(&["check", "--cache", "cache", "--backing", "cached"]);
}

/// The mounting user is not root here, and may mount all the same.
#[test]
fn root_is_served_only_where_that_was_asked_for() {
    if !rustix::process::getuid().is_root() {
        entresol_skip::skipped!("root", "only root can be two users");
        return;
    }
    for allowed in [false, true] {
        let scratch = Scratch::new();
        let nobody = Some(65534);
        for name in ["backing", "mount"] {
            fs::create_dir(scratch.path(name)).unwrap();
            chown(scratch.path(name), nobody, nobody).unwrap();
        }
        chown(scratch.path("."), nobody, nobody).unwrap();
        fs::write(scratch.path("backing/f"), "bytes").unwrap();
        // The program is run by its descriptor, because nobody may not be able to reach its path.
        let shell = "exec setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=+sys_admin --ambient-caps=+sys_admin \
                     /proc/self/fd/3 -q mount backing mount \"$@\" 3<\"$0\"";
        let mut command = Command::new("sh");
        command.args(["-c", shell, env!("CARGO_BIN_EXE_entresol")]).args(allowed.then_some("--allow-root"));
        command.current_dir(scratch.path(".")).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut server = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if line.is_empty() {
            let _skipped = ended_well(server);
            return;
        }
        let read = fs::read_to_string(scratch.path("mount/f"));
        let made = fs::write(scratch.path("mount/g"), "more");
        if allowed {
            assert_eq!(read.unwrap(), "bytes");
            made.unwrap();
            assert_eq!(fs::metadata(scratch.path("backing/g")).unwrap().uid(), 65534, "it belongs to who mounted");
        } else {
            assert_eq!(read.unwrap_err().kind(), ErrorKind::PermissionDenied);
            assert_eq!(made.unwrap_err().kind(), ErrorKind::PermissionDenied);
        }
        signal(server.id(), Signal::TERM);
        ended_well(server);
    }
}
