//! A stop that leaves pages which could not be written back: the exit code is 2, and the output names them.

mod common;

use common::mounted::Mounted;
use common::served::{formatted, reached, start};
use common::{Signal, says, signal};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;

const PAGE: u64 = 4096;
/// File size from which on no write to the backing store succeeds; the cache file is smaller.
const LIMIT: u64 = 3 << 20;

/// Forbids a process to write a file beyond [`LIMIT`], as a full file system would.
fn limit(process: u32) {
    let pid = Pid::from_raw(process.cast_signed());
    let limit = Rlimit { current: Some(LIMIT), maximum: Some(LIMIT) };
    prlimit(pid, Resource::Fsize, limit).expect("a limit");
}

#[test]
fn a_server_that_stops_with_pages_that_could_not_be_written_says_how_many_and_ends_with_2() {
    let scratch = formatted();
    let mut server = start(&scratch, "lru", "write-back");
    let mut client = reached(&scratch, &mut server);
    limit(common::serving(server.id()));
    for page in (0..20).chain(768..780) {
        client.write(page * PAGE, &[page as u8 + 1; PAGE as usize], 0);
    }
    assert_eq!(client.call(3, 0, 0, 0, b"").expect("a flush").errno, 0, "all is durable in the cache");
    let refused = scratch.refused(&["set", "--cache", "cache", "mode=write-through"]);
    says(&refused, &["mode, unchanged"]);
    drop(client);
    signal(server.id(), Signal::TERM);
    let mut said = String::new();
    server.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    assert_eq!(server.wait().expect("an end").code(), Some(2), "{said}");
    says(&said, &["12 pages could not be written below (", "12 pages of disk, first: page 768", "entresol drain"]);
    // All writable pages were written, and the cache was closed in good order.
    says(&scratch.ok(&["stats", "cache"]), &["closed in good order", "dirty          12"]);
    let both = ["--cache", "cache", "--backing", "disk"];
    scratch.ok(&[&["check"], &both[..]].concat());
    says(&drained(&scratch, &both), &["12 dirty pages found, 12 pages written"]);
    let bytes = scratch.bytes("disk");
    for page in (0..20_u64).chain(768..780) {
        let at = (page * PAGE) as usize;
        assert_eq!(bytes[at..at + PAGE as usize], [page as u8 + 1; PAGE as usize], "page {page}");
    }
}

fn drained(scratch: &common::Scratch, both: &[&str]) -> String {
    let output = scratch.run(&[&["drain"], both].concat());
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(0), "{said}");
    said
}

#[test]
fn a_mount_that_stops_with_pages_that_could_not_be_written_names_their_files() {
    let Some(mut mounted) = Mounted::with(Some(["write-back", "lru"])) else { return };
    mounted.unmount();
    for name in ["good", "bad", "worse"] {
        let file = File::create(mounted.below().join(name)).expect("a file");
        file.write_all_at(&vec![9; 4 << 20], 0).expect("its blocks");
    }
    assert!(mounted.start());
    limit(mounted.process());
    for (name, first, pages) in [("good", 0, 4), ("bad", 770, 1), ("worse", 800, 3)] {
        let file = File::options().write(true).open(mounted.above().join(name)).expect("it is there");
        for page in first..first + pages {
            // The write is within this process's limit; the server's limit applies when it writes back later.
            file.write_all_at(&[1; PAGE as usize], page * PAGE).expect("a write");
        }
        file.sync_all().expect("a sync");
    }
    let refused = mounted.scratch.refused(&["set", "--cache", "cache", "mode=write-through"]);
    says(&refused, &["mode, unchanged"]);
    mounted.signal(Signal::TERM);
    let (code, said) = mounted.end();
    assert_eq!(code, Some(2), "{said}");
    says(&said, &["4 pages could not be written below (", ": 3 pages of worse, 1 page of bad; "]);
    let both = ["--cache", "cache", "--backing", "backing"];
    mounted.scratch.ok(&[&["check"], &both[..]].concat());
    says(&drained(&mounted.scratch, &both), &["4 dirty pages found, 4 pages written"]);
    let worse = std::fs::read(mounted.below().join("worse")).expect("bytes");
    assert_eq!(worse[800 * 4096..803 * 4096], vec![1; 3 * 4096]);
}
