//! A backing file that is written without its cache between two starts of a server, by whoever had it meanwhile.

mod common;

use common::image::Loop;
use common::served::client::{Client, FUA};
use common::served::{PAGE, formatted, reached, start, terminate};
use common::{Scratch, crash, says};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::process::{Child, Stdio};
use std::time::{Duration, SystemTime};

const UUID: &str = "0b5e1f5e-7a53-4f0e-9a0a-0d4f2c3b5a10";
const BOTH: [&str; 4] = ["--cache", "cache", "--backing", "disk"];

/// Somebody writes the first page of the file, a while after now.
fn write_without(scratch: &Scratch, byte: u8, after: Duration) {
    let file = OpenOptions::new().write(true).open(scratch.path("disk")).expect("a file");
    file.write_all_at(&[byte; PAGE], 0).expect("written");
    file.set_modified(SystemTime::now() + after).expect("a time");
}

/// A server of another backing store than `disk`.
fn served(scratch: &Scratch, named: &[&str]) -> (Child, Client) {
    let arguments = [&["serve", "nbd", "--socket", "s", "--policy", "lru"][..], named].concat();
    let mut command = scratch.command(&arguments);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command runs");
    let client = reached(scratch, &mut child);
    (child, client)
}

/// A server whose cache holds the first two pages with the byte 1.
fn filled(scratch: &Scratch, mode: &str) -> (Child, Client) {
    let mut child = start(scratch, "lru", mode);
    let mut client: Client = reached(scratch, &mut child);
    for page in 0..2 {
        client.write(page * PAGE as u64, &[1; PAGE], FUA);
        assert_eq!(client.read(page * PAGE as u64, PAGE as u32), [1; PAGE]);
    }
    (child, client)
}

fn stop(child: Child, client: Client, kills: bool) {
    drop(client);
    if kills {
        crash(child.id());
        let mut child = child;
        child.wait().expect("an end");
    } else {
        terminate(child);
    }
}

#[test]
fn a_complete_file_that_was_written_without_its_cache_is_served_as_it_is() {
    for kills in [false, true] {
        let scratch = formatted();
        let (child, client) = filled(&scratch, "write-through");
        stop(child, client, kills);
        // Nobody wrote: the cache is as it was.
        let mut child = start(&scratch, "lru", "write-through");
        let mut client: Client = reached(&scratch, &mut child);
        assert_eq!(client.read(0, PAGE as u32), [1; PAGE]);
        drop(client);
        let said = terminate(child);
        assert!(!said.contains("without its cache"), "kills {kills}: {said}");

        let (child, client) = filled(&scratch, "write-through");
        stop(child, client, kills);
        write_without(&scratch, 9, if kills { Duration::from_secs(5) } else { Duration::ZERO });
        let mut child = start(&scratch, "lru", "write-through");
        let mut client: Client = reached(&scratch, &mut child);
        assert_eq!((client.read(0, PAGE as u32)[0], client.read(PAGE as u64, PAGE as u32)[0]), (9, 1), "kills {kills}");
        drop(client);
        says(&terminate(child), &["disk was written without its cache; 2 cached pages are dropped"]);
        scratch.ok(&[&["check"], &BOTH[..]].concat());
    }
}

#[test]
fn dirty_pages_of_a_file_that_was_written_are_refused_until_a_user_decides() {
    let scratch = formatted();
    let (child, client) = filled(&scratch, "write-back");
    stop(child, client, false);
    write_without(&scratch, 9, Duration::ZERO);
    let words = ["was written without its cache, which has 2 dirty pages", "drain --generation-ok", "format --force"];
    says(&scratch.refused(&[&["drain"], &BOTH[..]].concat()), &words);
    says(&scratch.refused(&[&["serve", "nbd", "--socket", "s", "--policy", "lru"], &BOTH[..]].concat()), &words);
    assert_eq!(scratch.bytes("disk")[..PAGE], [9; PAGE]);
    scratch.ok(&[&["-q", "drain", "--generation-ok"], &BOTH[..]].concat());
    assert_eq!(scratch.bytes("disk")[..2 * PAGE], [1; 2 * PAGE]);
    // All is below, and a start has nothing to say.
    let mut child = start(&scratch, "lru", "write-through");
    drop(reached(&scratch, &mut child));
    assert!(!terminate(child).contains("without its cache"));
}

/// A write into a hole takes blocks of the file long before its bytes go there.
#[test]
fn blocks_that_the_cache_takes_for_a_hole_are_no_write_of_others() {
    let scratch = Scratch::new();
    std::fs::File::create(scratch.path("disk")).and_then(|file| file.set_len(16 << 20)).expect("a file of one hole");
    scratch.format(&["--cache", "cache", "--backing", "disk", "--size", "2MiB"]);
    for page in 0..4 {
        let mut child = start(&scratch, "lru", "write-back");
        let mut client: Client = reached(&scratch, &mut child);
        (0..page).for_each(|page| assert_eq!(client.read((page * PAGE) as u64, PAGE as u32), [1; PAGE]));
        client.write((page * PAGE) as u64, &[1; PAGE], FUA);
        stop(child, client, page % 2 == 0);
    }
    scratch.ok(&[&["-q", "drain"], &BOTH[..]].concat());
    assert_eq!(scratch.bytes("disk")[..4 * PAGE], [1; 4 * PAGE]);
}

/// The kernel counts what is written to a device; after a kill nobody knows whose it was.
#[test]
fn a_device_that_was_written_while_its_cache_was_closed_is_served_as_it_is() {
    let scratch = Scratch::new();
    scratch.file("a", vec![0; 4 << 20]);
    let device = match Loop::new(&scratch.path("a")) {
        Ok(device) => device,
        Err(why) => return entresol_skip::skipped!("losetup", "no loop devices here: {why}"),
    };
    let backing = device.0.as_str();
    if !std::path::Path::new("/sys/block").join(&backing[5..]).join("diskseq").exists() {
        return entresol_skip::skipped!("kernel", "no number of a disk's appearance (diskseq, Linux 5.15)");
    }
    let named = ["--cache", "cache", "--backing", backing, "--identity", UUID];
    scratch.ok(&[&["-q", "format", "--size", "2MiB"][..], &named].concat());
    let served = || served(&scratch, &named);
    let write_without = |byte: u8| {
        let file = OpenOptions::new().write(true).open(backing).expect("a device");
        file.write_all_at(&[byte; PAGE], 0).and_then(|()| file.sync_all()).expect("written");
    };
    let (child, mut client) = served();
    client.write(0, &[1; 2 * PAGE], FUA);
    assert_eq!(client.read(0, 2 * PAGE as u32), [1; 2 * PAGE]);
    stop(child, client, false);
    let (child, mut client) = served();
    assert_eq!(client.read(0, 2 * PAGE as u32), [1; 2 * PAGE]);
    drop(client);
    let said = terminate(child);
    assert!(!said.contains("without its cache"), "{said}");
    write_without(9);
    let (child, mut client) = served();
    assert_eq!((client.read(0, PAGE as u32)[0], client.read(PAGE as u64, PAGE as u32)[0]), (9, 1));
    client.write(PAGE as u64, &[2; PAGE], FUA);
    drop(client);
    says(&terminate(child), &[backing, "was written without its cache; 2 cached pages are dropped"]);
    // Our own writes of before a kill are nobody else's.
    let (child, mut client) = served();
    client.write(0, &[3; PAGE], FUA);
    stop(child, client, true);
    let (child, client) = served();
    drop(client);
    let said = terminate(child);
    assert!(!said.contains("without its cache"), "{said}");
}

/// The mark of a file on a file system without attributes is in the state directory, and tells what is written after a close.
#[test]
fn a_file_without_attributes_that_was_written_while_its_cache_was_closed_is_served_as_it_is() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path("plain")).expect("a directory");
    let mounted = std::process::Command::new("mount").args(["-t", "ramfs", "none"]).arg(scratch.path("plain")).status();
    if !mounted.is_ok_and(|status| status.success()) {
        return entresol_skip::skipped!("root", "only root can mount a file system without attributes");
    }
    let _mount = Unmounts(scratch.path("plain"));
    scratch.file("plain/disk", vec![0; 1 << 20]);
    let named = ["--cache", "cache", "--backing", "plain/disk"];
    scratch.ok(&[&["-q", "format", "--size", "2MiB"][..], &named].concat());
    let served = || served(&scratch, &named);
    for (kills, written, told) in
        [(false, false, false), (false, true, true), (true, false, false), (true, true, false)]
    {
        let (child, mut client) = served();
        client.write(0, &[1; 2 * PAGE], FUA);
        client.read(0, 2 * PAGE as u32);
        stop(child, client, kills);
        if written {
            let file = OpenOptions::new().write(true).open(scratch.path("plain/disk")).expect("a file");
            file.write_all_at(&[9; PAGE], 0).expect("written");
        }
        let (child, mut client) = served();
        if told {
            assert_eq!(client.read(0, PAGE as u32)[0], 9);
        }
        drop(client);
        let said = terminate(child);
        assert_eq!(said.contains("was written without its cache"), told, "kills {kills}, written {written}: {said}");
    }
}

/// A directory that is a mount point until this goes out of scope.
struct Unmounts(std::path::PathBuf);

impl Drop for Unmounts {
    fn drop(&mut self) {
        let _gone = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}
