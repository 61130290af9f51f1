//! Older copies of a cache, and of its backing store, are refused by every command, with the reason: a snapshot, a leg
//! of a mirror or a restored machine brings such copies back.

mod common;

use common::mounted::Mounted;
use common::served::client::{Client, FUA};
use common::served::{Kept, PAGE, formatted, reached, start, terminate};
use common::{Scratch, Signal, crash, says};
use entresol_files::record::Record;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const OF_FILE: [&str; 4] = ["--cache", "cache", "--backing", "disk"];
const OF_DIRECTORY: [&str; 4] = ["--cache", "cache", "--backing", "backing"];
const ATTRIBUTE: &str = "user.entresol";

/// Asserts that a serving command ends at once with one line instead; returns the line.
fn not_started(scratch: &Scratch, arguments: &[&str]) -> String {
    let mut child = scratch.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("text");
    if !line.is_empty() {
        crash(child.id());
        child.wait().expect("an end");
        let _mounted = rustix::mount::unmount(scratch.path("mount"), rustix::mount::UnmountFlags::DETACH);
        panic!("entresol {arguments:?} is served: {line}");
    }
    let mut said = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    assert_eq!(child.wait().expect("an end").code(), Some(2), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

/// Asserts that every command that opens the cache of a file refuses it with these words, and changes nothing.
fn is_refused(scratch: &Scratch, both: &[&str], words: &[&str]) {
    for command in ["check", "drain"] {
        says(&scratch.refused(&[&[command], both].concat()), words);
    }
    let before = [scratch.bytes("cache"), scratch.bytes("disk")];
    says(&not_started(scratch, &[&["serve", "nbd", "--socket", "s", "--policy", "lru"], both].concat()), words);
    assert!(before == [scratch.bytes("cache"), scratch.bytes("disk")], "something was written");
}

/// The same for a directory, by `mount`.
fn is_refused_to_mount(scratch: &Scratch, words: &[&str]) {
    for command in ["check", "drain"] {
        says(&scratch.refused(&[&[command], &OF_DIRECTORY[..]].concat()), words);
    }
    let before = [scratch.bytes("cache"), scratch.bytes("backing/f")];
    says(&not_started(scratch, &["mount", "backing", "mount", "--cache", "cache", "--policy", "lru"]), words);
    assert!(before == [scratch.bytes("cache"), scratch.bytes("backing/f")], "something was written");
}

/// Serves the file and writes this byte over its first page, durably; the caller decides how the server goes on.
fn written(scratch: &Scratch, byte: u8) -> Child {
    let mut child = start(scratch, "lru", "write-back");
    let mut client: Client = reached(scratch, &mut child);
    client.write(0, &[byte; PAGE], FUA);
    child
}

fn killed(mut child: Child) {
    crash(child.id());
    child.wait().expect("an end");
}

fn record(path: &Path) -> Option<Record> {
    let mut bytes = [0; 4096];
    let length = rustix::fs::getxattr(path, ATTRIBUTE, &mut bytes[..]).ok()?;
    Some(Record::decode(&bytes[..length]).expect("a whole record"))
}

/// Copy of the backing file, to be put back into the same file as a restored image would.
struct Image {
    bytes: Vec<u8>,
    kept: Kept,
}

impl Image {
    fn of(scratch: &Scratch) -> Self {
        Image { bytes: scratch.bytes("disk"), kept: Kept::of(scratch) }
    }

    fn restore(&self, scratch: &Scratch) {
        // Written over the file itself, which keeps its inode.
        scratch.file("disk", &self.bytes);
        self.kept.put_back(scratch);
    }
}

/// `oldcache.py`, the first half of it, and `stale.sh` 1.
#[test]
fn an_older_copy_of_the_cache_of_a_file_is_refused() {
    let scratch = formatted();
    terminate(written(&scratch, 1));
    let old = scratch.bytes("cache");
    terminate(written(&scratch, 2));
    scratch.ok(&[&["-q", "drain"], &OF_FILE[..]].concat());
    assert_eq!(scratch.bytes("disk")[0], 2);
    let newest = scratch.bytes("cache");
    let words = ["cache", "older copy", "its generation is 2, its backing store has seen 6", "format --force"];
    // Over the file itself, and as another file under its name.
    scratch.file("cache", &old);
    is_refused(&scratch, &OF_FILE, &words);
    fs::remove_file(scratch.path("cache")).expect("a file");
    scratch.file("cache", &old);
    is_refused(&scratch, &OF_FILE, &words);
    scratch.file("cache", newest);
    scratch.ok(&[&["check"], &OF_FILE[..]].concat());
    // A user's explicit assertion is accepted, and by `drain` alone.
    scratch.file("cache", old);
    scratch.ok(&[&["-q", "drain", "--generation-ok"], &OF_FILE[..]].concat());
    assert_eq!(scratch.bytes("disk")[0], 1);
    scratch.ok(&[&["check"], &OF_FILE[..]].concat());
    terminate(written(&scratch, 3));
}

#[test]
fn an_older_copy_of_the_cache_of_a_file_is_refused_after_a_kill_too() {
    let scratch = formatted();
    killed(written(&scratch, 1));
    let old = scratch.bytes("cache");
    killed(written(&scratch, 2));
    let newest = scratch.bytes("cache");
    scratch.file("cache", old);
    is_refused(&scratch, &OF_FILE, &["older copy"]);
    scratch.file("cache", newest);
    scratch.ok(&[&["-q", "drain"], &OF_FILE[..]].concat());
    assert_eq!(scratch.bytes("disk")[0], 2);
}

/// Mounts and writes this byte over the first page of a file, durably.
fn written_above(mounted: &mut Mounted, byte: u8) {
    assert!(mounted.start());
    put(&mounted.above().join("f"), byte);
}

fn put(path: &Path, byte: u8) {
    let file = fs::File::options().write(true).create(true).truncate(false).open(path).expect("a file");
    std::os::unix::fs::FileExt::write_all_at(&file, &[byte; 2 * PAGE], 0).expect("a write");
    file.sync_all().expect("a sync");
}

fn ended(mounted: &mut Mounted, how: Signal) {
    mounted.signal(how);
    let (code, said) = mounted.end();
    assert_eq!(code, if how == Signal::TERM { Some(0) } else { None }, "{said}");
    let _left_behind = rustix::mount::unmount(mounted.above(), rustix::mount::UnmountFlags::DETACH);
}

/// `F1.sh`, `oldcache.py`, the other half of it, `stale.sh` 2 and 2b.
#[test]
fn an_older_copy_of_the_cache_of_a_directory_is_refused() {
    for how in [Signal::TERM, Signal::KILL] {
        let Some(mut mounted) = Mounted::with(Some(["write-back", "lru"])) else { return };
        put(&mounted.above().join("f"), b'A');
        ended(&mut mounted, how);
        let old = mounted.scratch.bytes("cache");
        written_above(&mut mounted, b'B');
        ended(&mut mounted, Signal::TERM);
        mounted.scratch.ok(&[&["-q", "drain"], &OF_DIRECTORY[..]].concat());
        let newest = mounted.scratch.bytes("cache");
        mounted.scratch.file("cache", old);
        is_refused_to_mount(&mounted.scratch, &["cache", "older copy", "its backing store has seen", "format --force"]);
        mounted.scratch.file("cache", newest);
        mounted.scratch.ok(&[&["check"], &OF_DIRECTORY[..]].concat());
        assert_eq!(mounted.scratch.bytes("backing/f")[0], b'B');
        written_above(&mut mounted, b'C');
        ended(&mut mounted, Signal::TERM);
    }
}

#[test]
fn an_older_copy_of_a_backing_file_is_refused() {
    let scratch = formatted();
    terminate(written(&scratch, 1));
    scratch.ok(&[&["-q", "drain"], &OF_FILE[..]].concat());
    let old = Image::of(&scratch);
    terminate(written(&scratch, 2));
    let newest = Image::of(&scratch);
    old.restore(&scratch);
    let words = ["the backing store is an older copy than its cache", "its generation is 4, its cache has seen 6"];
    is_refused(&scratch, &OF_FILE, &words);
    newest.restore(&scratch);
    scratch.ok(&[&["-q", "drain"], &OF_FILE[..]].concat());
    assert_eq!(scratch.bytes("disk")[0], 2);
}

/// Restored in place, as from an image of its file system: the same inodes, the old map.
#[test]
fn an_older_copy_of_a_backing_directory_is_refused() {
    let Some(mut mounted) = Mounted::with(Some(["write-back", "lru"])) else { return };
    put(&mounted.above().join("f"), b'A');
    mounted.unmount();
    let of_then = ["backing/f", "backing/.entresol/map"].map(|name| (name, mounted.scratch.bytes(name)));
    written_above(&mut mounted, b'B');
    ended(&mut mounted, Signal::TERM);
    let of_now = ["backing/f", "backing/.entresol/map"].map(|name| (name, mounted.scratch.bytes(name)));
    of_then.iter().for_each(|(name, bytes)| mounted.scratch.file(name, bytes));
    is_refused_to_mount(&mounted.scratch, &["the backing store is an older copy than its cache"]);
    of_now.iter().skip(1).for_each(|(name, bytes)| mounted.scratch.file(name, bytes));
    // The pair matches again; the write to the file without the cache is another matter.
    let drained = mounted.scratch.run(&[&["drain"], &OF_DIRECTORY[..]].concat());
    says(&String::from_utf8_lossy(&drained.stderr), &["was changed without the cache"]);
    assert_eq!(drained.status.code(), Some(2));
    assert!(mounted.scratch.bytes("backing/f") == of_then[0].1, "and nothing is written over it");
}

/// The generation rises with writes and syncs to the backing store in use: a copy from that time is older after a
/// kill.
#[test]
fn a_copy_made_while_the_cache_is_in_use_is_refused_a_generation_later() {
    let scratch = formatted();
    let arguments = ["serve", "nbd", "--socket", "s", "--policy", "lru", "--mode", "write-through"];
    let mut command = scratch.command(&[&arguments[..], &OF_FILE[..]].concat());
    command.env("ENTRESOL_MINUTE_MS", "1").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    let mut client: Client = reached(&scratch, &mut child);
    let generation = || record(&scratch.path("disk")).expect("a record").generation.number;
    let since = Instant::now();
    let mut rises = |from: u64, by: u64| {
        while generation() < from + by {
            assert!(since.elapsed() < Duration::from_secs(120), "the generation stays {}", generation());
            client.write(0, &[1; PAGE], FUA);
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    rises(generation(), 1);
    let old = scratch.bytes("cache");
    rises(generation(), 2);
    killed(child);
    let newest = scratch.bytes("cache");
    scratch.file("cache", old);
    is_refused(&scratch, &OF_FILE, &["older copy"]);
    scratch.file("cache", newest);
    scratch.ok(&[&["-q", "drain"], &OF_FILE[..]].concat());
}

#[test]
fn a_damaged_record_is_refused_with_a_way_out_and_never_taken_for_none() {
    let scratch = formatted();
    terminate(written(&scratch, 1));
    let mut image = Image::of(&scratch);
    image.kept.attributes[0].1[20] ^= 1;
    image.restore(&scratch);
    let words =
        ["the extended attribute user.entresol of disk", "it is damaged", "drain --generation-ok", "format --force"];
    is_refused(&scratch, &OF_FILE, &words);
    says(&scratch.refused(&["format", "--cache", "second", "--backing", "disk", "--size", "2MiB"]), &["it is damaged"]);
    scratch.ok(&[&["-q", "drain", "--generation-ok"], &OF_FILE[..]].concat());
    assert_eq!(scratch.bytes("disk")[0], 1);
    scratch.ok(&[&["check"], &OF_FILE[..]].concat());
}

#[test]
fn a_backing_file_that_lost_its_record_is_refused() {
    let scratch = formatted();
    terminate(written(&scratch, 1));
    rustix::fs::removexattr(scratch.path("disk"), ATTRIBUTE).expect("it had a record");
    is_refused(&scratch, &OF_FILE, &["the backing store has no record of its cache, which has seen generation 2"]);
}
