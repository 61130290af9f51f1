//! Caches that are lost, blank, old, foreign, truncated or newer, and absent backing stores: the outcome of each
//! start. `cargo test -p entresol --test lost_caches -- --nocapture table` prints the table of
//! lab/results/lost-caches.md.

mod common;

use common::image::Loop;
use common::served::client::{Client, FUA};
use common::{Scratch, Signal, crash, is_impossible, says, signal};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

const PAGE: usize = 4096;
const PAGES: usize = 256;
const CACHE_BYTES: u64 = 2 << 20;

/// A backing store and its cache in a scratch directory, with a file of the same name below both kinds.
struct Testbed {
    scratch: Scratch,
    command: &'static str,
}

/// Outcome of a start.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// The start served these first bytes, with this output.
    Served(Vec<u8>, String),
    /// The start was refused with this line.
    Refused(String),
}

const COMMANDS: [&str; 3] = ["serve nbd", "mount", "run"];

impl Testbed {
    fn new(command: &'static str, format: &[&str]) -> Self {
        let testbed = Testbed { scratch: Scratch::new(), command };
        testbed.make_backing("backing");
        if !testbed.is_store() {
            fs::create_dir(testbed.path("above")).expect("a directory");
        }
        testbed.format("cache", "backing", format);
        testbed
    }

    fn is_store(&self) -> bool {
        self.command == "serve nbd"
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path(name)
    }

    fn make_backing(&self, name: &str) {
        let bytes = vec![0; PAGES * PAGE];
        if self.is_store() {
            self.scratch.file(name, bytes);
        } else {
            fs::create_dir(self.path(name)).expect("a directory");
            fs::write(self.path(name).join("file"), bytes).expect("a file");
        }
    }

    fn format(&self, cache: &str, backing: &str, more: &[&str]) {
        let size = CACHE_BYTES.to_string();
        let all = ["-q", "format", "--mode=write-back", "--cache", cache, "--backing", backing, "--size", &size];
        self.scratch.ok(&[&all[..], more].concat());
    }

    /// The first bytes of the backing store, without those of a cache.
    fn below(&self) -> Vec<u8> {
        let path = self.path("backing");
        let path = if path.is_dir() { path.join("file") } else { path };
        let mut bytes = vec![0; 8];
        let read = fs::File::open(path).and_then(|mut file| file.read(&mut bytes)).unwrap_or(0);
        bytes.truncate(read);
        bytes
    }

    /// Starts the command over a cache with these options, has it write `value` at the beginning if it serves, and
    /// ends it. None, with a message, where nothing can be mounted.
    fn start(&self, cache: &str, backing: &str, options: &[&str], value: Option<u8>) -> Option<Outcome> {
        match self.command {
            "serve nbd" => Some(self.serve(cache, backing, options, value)),
            "mount" => self.mount(cache, backing, options, value),
            _ => self.run(cache, backing, options, value),
        }
    }

    fn spawn(&self, words: &[&str], options: &[&str]) -> Child {
        let mut command = self.scratch.command(&[words, options].concat());
        command.env("ENTRESOL_STATE_DIR", self.path("state"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command runs")
    }

    fn serve(&self, cache: &str, backing: &str, options: &[&str], value: Option<u8>) -> Outcome {
        let words = ["serve", "nbd", "--cache", cache, "--backing", backing, "--socket", "s"];
        let mut child = self.spawn(&words, options);
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("text");
        if line.is_empty() {
            return refused(child);
        }
        let mut client = Client::connect(&self.path("s"), false).expect("a connection");
        let bytes = client.read(0, 8);
        if let Some(value) = value {
            client.write(0, &[value; PAGE], FUA);
        }
        drop(client);
        Outcome::Served(bytes, ended(child))
    }

    fn mount(&self, cache: &str, backing: &str, options: &[&str], value: Option<u8>) -> Option<Outcome> {
        let mut child = self.spawn(&["mount", backing, "above", "--cache", cache], options);
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("text");
        if line.is_empty() {
            let Outcome::Refused(said) = refused(child) else { unreachable!("it was not served") };
            return (!is_impossible(&said)).then_some(Outcome::Refused(said));
        }
        let file = fs::File::options().read(true).write(true).open(self.path("above/file")).expect("the file");
        let mut bytes = vec![0; 8];
        file.read_exact_at(&mut bytes, 0).expect("bytes");
        if let Some(value) = value {
            file.write_all_at(&[value; PAGE], 0).and_then(|()| file.sync_all()).expect("a write");
        }
        drop(file);
        Some(Outcome::Served(bytes, ended(child)))
    }

    fn run(&self, cache: &str, backing: &str, options: &[&str], value: Option<u8>) -> Option<Outcome> {
        let write = value.map_or("true".to_owned(), |value| {
            format!(
                "tr '\\0' '\\{value:03o}' < /dev/zero | dd of={backing}/file bs={PAGE} count=1 iflag=fullblock conv=notrunc,fsync 2>/dev/null"
            )
        });
        let script = format!("head -c 8 {backing}/file; {write}");
        let words = ["run", "--cache", cache, "--backing", backing];
        let child = self.spawn(&words, &[options, &["--", "sh", "-c", &script]].concat());
        let output = child.wait_with_output().expect("an end");
        let said = String::from_utf8(output.stderr).expect("text");
        match output.status.code() {
            Some(0) => Some(Outcome::Served(output.stdout, said)),
            Some(2) => (!is_impossible(&said)).then_some(Outcome::Refused(said)),
            code => panic!("{code:?}: {said}"),
        }
    }
}

fn refused(mut child: Child) -> Outcome {
    let mut said = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    assert_eq!(child.wait().expect("an end").code(), Some(2), "{said}");
    Outcome::Refused(said)
}

fn ended(mut child: Child) -> String {
    signal(child.id(), Signal::TERM);
    let mut said = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    assert_eq!(child.wait().expect("an end").code(), Some(0), "{said}");
    said
}

/// State in which a cache was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// Write-back, with dirty pages.
    Dirty,
    /// Write-back, drained.
    Drained,
    /// Write-through.
    Through,
}

const LEFT: [Left; 3] = [Left::Dirty, Left::Drained, Left::Through];

impl Left {
    fn name(self) -> &'static str {
        match self {
            Left::Dirty => "write-back, dirty pages left",
            Left::Drained => "write-back, drained",
            Left::Through => "write-through",
        }
    }

    fn is_complete(self) -> bool {
        self != Left::Dirty
    }
}

/// Replaces the cache or its backing store after they were used for a while.
type Change = fn(&Testbed);

const CHANGES: &[(&str, Change)] = &[
    ("nothing (as it was left)", |_| {}),
    ("cache: zeros", |testbed| {
        let file = fs::File::create(testbed.path("cache")).expect("a file");
        file.set_len(CACHE_BYTES).expect("zeros");
    }),
    ("cache: an empty file", |testbed| testbed.scratch.file("cache", "")),
    ("cache: missing", |testbed| fs::remove_file(testbed.path("cache")).expect("it goes")),
    ("cache: an older copy", |testbed| {
        fs::copy(testbed.path("older"), testbed.path("cache")).expect("a copy");
    }),
    ("cache: another backing store's, dirty", |testbed| {
        fs::copy(testbed.path("cache2"), testbed.path("cache")).expect("a copy");
    }),
    ("cache: truncated", |testbed| {
        let file = fs::File::options().write(true).open(testbed.path("cache")).expect("the cache");
        file.set_len(CACHE_BYTES / 2).expect("half of it");
    }),
    ("cache: both superblocks damaged", |testbed| {
        let file = fs::File::options().write(true).open(testbed.path("cache")).expect("the cache");
        [200, 4096 + 200].iter().for_each(|&at| file.write_all_at(&[0xff; 8], at).expect("damage"));
    }),
    ("cache: of a newer version", |testbed| {
        let file = fs::File::options().write(true).open(testbed.path("cache")).expect("the cache");
        [8, 4096 + 8].iter().for_each(|&at| file.write_all_at(&[4, 0, 0, 0], at).expect("a version"));
    }),
    ("cache: an XFS file system", |testbed| {
        let mut bytes = vec![0; CACHE_BYTES as usize];
        bytes[..4].copy_from_slice(b"XFSB");
        testbed.scratch.file("cache", bytes);
    }),
    ("cache: bytes of something else", |testbed| testbed.scratch.file("cache", vec![7; CACHE_BYTES as usize])),
    ("backing store: empty", |testbed| {
        fs::rename(testbed.path("backing"), testbed.path("away")).expect("another name");
        if testbed.is_store() {
            testbed.scratch.file("backing", "");
        } else {
            fs::create_dir(testbed.path("backing")).expect("a directory");
        }
    }),
    ("backing store: missing", |testbed| {
        fs::rename(testbed.path("backing"), testbed.path("away")).expect("another name");
    }),
    ("backing store: another one", |testbed| {
        fs::rename(testbed.path("backing"), testbed.path("away")).expect("another name");
        fs::rename(testbed.path("backing2"), testbed.path("backing")).expect("another name");
    }),
];

/// A testbed whose cache was used twice, so that there is an older copy of it, and left in state `left`. Beside it is
/// another backing store whose cache has dirty pages. The last write put 2 at the beginning.
fn used(command: &'static str, left: Left) -> Option<Testbed> {
    let testbed = Testbed::new(command, &[]);
    testbed.make_backing("backing2");
    testbed.format("cache2", "backing2", &[]);
    let options = if left == Left::Through { ["--mode", "write-through"] } else { ["--mode", "write-back"] };
    testbed.start("cache2", "backing2", &["--mode", "write-back"], Some(9))?;
    testbed.start("cache", "backing", &options, Some(1))?;
    fs::copy(testbed.path("cache"), testbed.path("older")).expect("a copy");
    testbed.start("cache", "backing", &options, Some(2))?;
    if left == Left::Drained {
        testbed.scratch.ok(&["-q", "drain", "--cache", "cache", "--backing", "backing"]);
    }
    Some(testbed)
}

/// The outcome of a start in a word, after it was checked.
fn judged(testbed: &Testbed, left: Left, change: &str, outcome: &Outcome, before: &[Option<Vec<u8>>]) -> &'static str {
    let what = format!("{}, {}, {change}: {outcome:?}", testbed.command, left.name());
    match outcome {
        Outcome::Refused(said) => {
            assert_eq!(said.lines().count(), 1, "{what}");
            assert!(before == state(testbed), "a refusal changes nothing: {what}");
            "refused"
        }
        Outcome::Served(bytes, said) => {
            // Acknowledged bytes are found, in whichever way the start serves.
            assert_eq!(bytes, &[2; 8], "{what}");
            match (said.contains("it was made anew"), said.contains("is served without a cache")) {
                (true, false) => {
                    assert!(left.is_complete() && said.contains("nothing was lost with it"), "{what}");
                    "made anew"
                }
                (false, true) => "bypassed",
                _ => "opened",
            }
        }
    }
}

/// All bytes of the cache and the backing store, and of the record beside them.
fn state(testbed: &Testbed) -> Vec<Option<Vec<u8>>> {
    let mut record = vec![0; 4096];
    let length = rustix::fs::getxattr(testbed.path("backing"), "user.entresol", &mut record[..]).unwrap_or(0);
    record.truncate(length);
    let bytes =
        ["cache", "backing", "backing/file", "backing/.entresol/map"].map(|name| fs::read(testbed.path(name)).ok());
    bytes.into_iter().chain([Some(record)]).collect()
}

/// Every row of the table: the outcome of `serve nbd`, `mount` and `run` with defaults alone.
#[test]
fn table_of_what_each_start_does() {
    let mut lines = Vec::new();
    let mut refusals = Vec::new();
    for &(change, make) in CHANGES {
        let mut cells = Vec::new();
        for left in LEFT {
            for command in COMMANDS {
                let Some(testbed) = used(command, left) else { return };
                make(&testbed);
                let before = state(&testbed);
                let Some(outcome) = testbed.start("cache", "backing", &[], None) else { return };
                let word = judged(&testbed, left, change, &outcome, &before);
                // The table itself: no loss is silent, and nothing complete stops a start without need.
                let expected = match change.split_once(": ") {
                    None => "opened",
                    Some((
                        "cache",
                        "zeros" | "an empty file" | "missing" | "truncated" | "both superblocks damaged",
                    )) if left.is_complete() => "made anew",
                    Some(_) => "refused",
                };
                assert_eq!(word, expected, "{command}, {}, {change}: {outcome:?}", left.name());
                if let Outcome::Refused(said) = outcome
                    && command != "run"
                {
                    refusals.push(format!("- {change}, {}, `{command}`: {}", left.name(), said.trim()));
                }
                cells.push(word);
            }
        }
        // All three commands have the same outcome.
        let same = |three: &[&'static str]| -> String {
            if three.iter().all(|word| *word == three[0]) { three[0].to_owned() } else { three.join(", ") }
        };
        let states: Vec<String> = cells.chunks(3).map(same).collect();
        lines.push(format!("| {change} | {} |", states.join(" | ")));
    }
    println!("| in the place of it | {} |\n|---|---|---|---|", LEFT.map(Left::name).join(" | "));
    lines.iter().for_each(|line| println!("{line}"));
    println!();
    refusals.iter().for_each(|line| println!("{line}"));
}

/// From `format` to served reads through a cache that comes back blank after each stop, with no option but those of
/// `format`. The cache is a block device where there are loop devices.
#[test]
fn a_cache_that_comes_back_blank_after_each_stop_is_the_ordinary_case() {
    for device in [false, true] {
        let testbed = Testbed { scratch: Scratch::new(), command: "serve nbd" };
        testbed.make_backing("backing");
        testbed.scratch.file("instance", vec![0; CACHE_BYTES as usize]);
        let attached = device.then(|| Loop::new(&testbed.path("instance")));
        let cache = match &attached {
            None => "instance".to_owned(),
            Some(Ok(attached)) => attached.0.clone(),
            Some(Err(why)) => return println!("skipped: no loop devices here: {why}"),
        };
        testbed.scratch.ok(&["-q", "format", "--cache", &cache, "--backing", "backing"]);
        let blank = || {
            let file = fs::File::options().write(true).open(&cache);
            let file = file.or_else(|_| fs::File::options().write(true).open(testbed.path(&cache)));
            file.and_then(|file| file.write_all_at(&vec![0; CACHE_BYTES as usize], 0).and(file.sync_all()))
                .expect("zeros");
        };
        let Some(Outcome::Served(_, said)) = testbed.start(&cache, "backing", &[], Some(1)) else {
            panic!("it was refused")
        };
        says(&said, &["mode write-through, the default"]);
        assert!(!said.contains("made anew"), "{said}");
        for stop in 1..=2 {
            blank();
            let served = testbed.start(&cache, "backing", &[], Some(stop + 1));
            let Some(Outcome::Served(bytes, said)) = served else { panic!("{served:?}") };
            assert_eq!(bytes, [stop; 8]);
            says(&said, &["is blank; it was made anew, and is empty: nothing was lost with it"]);
            says(&said, &["mode write-through, as before", "0 pages dirty in the cache"]);
        }
        // The new cache is like any other: the next start finds it.
        let Some(Outcome::Served(bytes, said)) = testbed.start(&cache, "backing", &[], None) else {
            panic!("it was refused")
        };
        assert_eq!(bytes, [3; 8]);
        says(&said, &["closed in good order: 1 pages"]);
    }
}

/// The command that a refusal names after its last `: `, as arguments.
fn command_of(said: &str, how: &str) -> Vec<String> {
    let (_, command) =
        said.split_once(&format!("{how}: entresol ")).unwrap_or_else(|| panic!("'{how}' is not in: {said}"));
    let command = command.split("; to go").next().expect("words").trim();
    command.split(' ').map(str::to_owned).collect()
}

/// The command that a refusal names runs word for word, and works.
#[test]
fn the_command_that_a_refusal_names_accepts_the_loss() {
    let testbed = used("serve nbd", Left::Dirty).expect("no mount is needed");
    fs::write(testbed.path("cache"), "").expect("it is blank");
    let Some(Outcome::Refused(said)) = testbed.start("cache", "backing", &[], None) else { panic!("it was served") };
    says(&said, &["cache: is blank; backing is not complete without what only the cache has"]);
    let words = command_of(&said, "to lose that");
    assert_eq!(words[..4], ["serve", "nbd", "--if-lost", "recreate"], "{said}");
    // The same command serves the backing store: bytes that only the cache had are lost, and the output says so.
    let options: Vec<&str> = words[2..4].iter().map(String::as_str).collect();
    let Some(Outcome::Served(bytes, said)) = testbed.start("cache", "backing", &options, Some(5)) else {
        panic!("it was refused")
    };
    assert_eq!(bytes, [0; 8]);
    says(&said, &["it was made anew, and is empty: pages that it alone had are lost, as --if-lost recreate accepts"]);
    // A file system takes `format --force`, in the refusal's own words.
    let mut bytes = vec![0; CACHE_BYTES as usize];
    bytes[..4].copy_from_slice(b"XFSB");
    testbed.scratch.file("cache", bytes);
    let Some(Outcome::Refused(said)) = testbed.start("cache", "backing", &["--if-lost", "recreate"], None) else {
        panic!("it was served")
    };
    says(&said, &["cache: holds an XFS file system", "--if-lost bypass"]);
    let words = command_of(&said, "to lose that");
    assert_eq!((words[0].as_str(), words.last().map(String::as_str)), ("format", Some("--force")), "{said}");
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    testbed.scratch.ok(&[&["-q"], &words[..]].concat());
    let served = testbed.start("cache", "backing", &[], None);
    assert!(matches!(&served, Some(Outcome::Served(bytes, _)) if bytes == &[0; 8]), "{served:?}");
}

/// A cache that was bypassed for a while does not come back unnoticed: its pages are older by then than the backing
/// store's.
#[test]
fn a_cache_that_was_passed_by_does_not_come_back_unnoticed() {
    for command in COMMANDS {
        for left in LEFT {
            let Some(testbed) = used(command, left) else { return };
            fs::rename(testbed.path("cache"), testbed.path("kept")).expect("another name");
            let bypassed = testbed.start("cache", "backing", &["--if-lost", "bypass"], Some(6));
            let what = format!("{command}, {}: {bypassed:?}", left.name());
            let Some(Outcome::Served(bytes, said)) = bypassed else { panic!("{what}") };
            assert_eq!(bytes, [if left.is_complete() { 2 } else { 0 }; 8], "{what}");
            says(
                &said,
                &[
                    "cache: is not there; ",
                    "backing is served without a cache, and this one is out of date from now on",
                ],
            );
            assert_eq!(testbed.below(), [6; 8], "{what}");
            assert!(!testbed.path("cache").exists(), "{what}");
            fs::rename(testbed.path("kept"), testbed.path("cache")).expect("its name");
            let before = state(&testbed);
            let Some(Outcome::Refused(said)) = testbed.start("cache", "backing", &[], None) else {
                panic!("{what}, and then it came back unnoticed")
            };
            says(&said, &["cache: this cache is an older copy"]);
            assert!(before == state(&testbed), "{what}");
            // After the named command there is a cache again, of the backing store's present bytes.
            let Some(Outcome::Served(bytes, said)) =
                testbed.start("cache", "backing", &["--if-lost", "recreate"], None)
            else {
                panic!("{what}, and then it was refused")
            };
            assert_eq!(bytes, [6; 8], "{what}");
            says(&said, &["it was made anew"]);
        }
    }
}

/// A backing store that has another cache is not marked, under any options.
#[test]
fn the_wrong_backing_store_is_not_marked() {
    for command in COMMANDS {
        let Some(testbed) = used(command, Left::Dirty) else { return };
        let before = state(&testbed);
        for asked in ["refuse", "recreate", "bypass"] {
            let swapped = testbed.start("cache2", "backing", &["--if-lost", asked], None);
            let Some(Outcome::Refused(said)) = swapped else { panic!("{command}, {asked}: {swapped:?}") };
            says(&said, &["cache2: this is the cache of another backing store than ", "1 dirty pages of that"]);
            assert!(before == state(&testbed), "{command}, {asked}");
        }
        let kept = testbed.start("cache", "backing", &[], None);
        assert!(matches!(&kept, Some(Outcome::Served(bytes, _)) if bytes == &[2; 8]), "{command}: {kept:?}");
    }
}

/// A server in this mode, and a client of it.
fn begun(testbed: &Testbed, mode: &str) -> (Child, Client) {
    let words = ["serve", "nbd", "--cache", "cache", "--backing", "backing", "--socket", "s", "--mode", mode];
    let mut child = testbed.spawn(&words, &[]);
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("text");
    assert!(!line.is_empty(), "it was refused");
    (child, Client::connect(&testbed.path("s"), false).expect("a connection"))
}

/// Kills the server, loses the cache, and starts again.
fn after_a_kill(testbed: &Testbed, mut child: Child) -> Option<Outcome> {
    crash(child.id());
    child.wait().expect("an end");
    fs::remove_file(testbed.path("cache")).expect("it is lost");
    testbed.start("cache", "backing", &[], None)
}

/// The mark follows the mode while a cache is in use, and stays after a kill.
#[test]
fn the_mark_follows_the_mode_of_a_cache_in_use() {
    for (modes, complete) in [
        (&["write-back"][..], false),
        (&["write-through"], true),
        (&["write-around"], true),
        (&["write-back", "write-through"], true),
        (&["write-through", "write-back"], false),
        (&["write-around", "write-back", "read-only"], true),
        (&["write-back", "write-around", "write-back"], false),
    ] {
        let testbed = Testbed::new("serve nbd", &[]);
        let (child, mut client) = begun(&testbed, modes[0]);
        client.write(0, &[1; PAGE], FUA);
        for mode in &modes[1..] {
            testbed.scratch.ok(&["-q", "set", "--cache", "cache", &format!("mode={mode}")]);
        }
        let value = if *modes.last().expect("a mode") == "read-only" {
            1
        } else {
            client.write(0, &[2; PAGE], FUA);
            2
        };
        match after_a_kill(&testbed, child) {
            Some(Outcome::Served(bytes, _)) if complete => assert_eq!(bytes, [value; 8], "{modes:?}"),
            Some(Outcome::Refused(said)) if !complete => says(&said, &["is not complete without"]),
            other => panic!("{modes:?}: {other:?}"),
        }
    }
}

/// A start in another mode than write-back writes dirty pages back before it changes the mark.
#[test]
fn a_start_in_write_through_completes_what_write_back_left() {
    let testbed = used("serve nbd", Left::Dirty).expect("no mount is needed");
    assert_eq!(testbed.below(), [0; 8]);
    let (child, client) = begun(&testbed, "write-through");
    drop(client);
    let Some(Outcome::Served(bytes, said)) = after_a_kill(&testbed, child) else { panic!("it was refused") };
    assert_eq!(bytes, [2; 8]);
    says(&said, &["made anew"]);
}

/// A missing cache is made at its old path, and nowhere else.
#[test]
fn a_missing_cache_is_made_where_it_was_and_nowhere_else() {
    let testbed = used("serve nbd", Left::Through).expect("no mount is needed");
    fs::remove_file(testbed.path("cache")).expect("it goes");
    for (cache, why) in [
        ("/dev/no-such-device-of-entresol", "no such device"),
        ("absent/cache", "nor is its folder"),
        ("cachee", "it was at another path"),
        ("/dev/shm/entresol-lost-cache-test", "no such device"),
    ] {
        let before = state(&testbed);
        let Some(Outcome::Refused(said)) = testbed.start(cache, "backing", &["--if-lost", "recreate"], None) else {
            panic!("{cache}: it was served")
        };
        says(&said, &["is not there", why]);
        assert!(before == state(&testbed) && !Path::new(cache).exists() && !testbed.path(cache).exists(), "{cache}");
    }
    // Its folder is now on another file system.
    let there = testbed.path("cache");
    let made = testbed.start("cache", "backing", &[], None);
    assert!(matches!(made, Some(Outcome::Served(..))) && there.exists(), "{made:?}");
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&there).expect("it").permissions());
    assert_eq!((mode & 0o777, fs::metadata(&there).expect("it").len()), (0o600, CACHE_BYTES));
}

/// Capacity in pages of a cache in use.
fn space(scratch: &Scratch) -> u64 {
    let figures: serde_json::Value = serde_json::from_str(&scratch.ok(&["stats", "--json", "cache"])).expect("JSON");
    figures["room_pages"].as_u64().expect("a count")
}

#[test]
fn a_cache_that_is_made_anew_has_the_size_that_it_had_grown_to() {
    const GROWN: u64 = 3 * CACHE_BYTES;
    let grow = |scratch: &Scratch| {
        let before = space(scratch);
        scratch.ok(&["set", "--cache", "cache", &format!("device-size={GROWN}")]);
        let grown = space(scratch);
        assert!(grown > 2 * before, "{before} pages, then {grown}");
        grown
    };
    let lose = |scratch: &Scratch, backing: &str| {
        scratch.ok(&["-q", "drain", "--cache", "cache", "--backing", backing]);
        let bytes = fs::metadata(scratch.path("cache")).expect("a cache").len();
        fs::remove_file(scratch.path("cache")).expect("it is lost");
        bytes
    };
    let scratch = common::served::formatted_log();
    let mut server = common::served::start(&scratch, "lru", "write-back");
    let client = common::served::reached(&scratch, &mut server);
    let grown = grow(&scratch);
    drop(client);
    common::served::terminate(server);
    let bytes = lose(&scratch, "disk");
    let mut server = common::served::start(&scratch, "lru", "write-back");
    drop(common::served::reached(&scratch, &mut server));
    assert_eq!((space(&scratch), fs::metadata(scratch.path("cache")).expect("a cache").len()), (grown, bytes));
    common::served::terminate(server);
    // For a directory the map keeps the choices, over a kill too.
    let Some(mut mounted) = common::mounted::Mounted::with_layout(["write-back", "lru"], "off", "log") else { return };
    let grown = grow(&mounted.scratch);
    mounted.signal(Signal::KILL);
    mounted.end();
    rustix::mount::unmount(mounted.above(), rustix::mount::UnmountFlags::DETACH).expect("a mount");
    let bytes = lose(&mounted.scratch, "backing");
    assert!(mounted.start());
    assert_eq!(
        (space(&mounted.scratch), fs::metadata(mounted.scratch.path("cache")).expect("a cache").len()),
        (grown, bytes)
    );
}
