//! A mounted directory and its cache, queried and changed by other commands.

mod common;

use common::mounted::Mounted;
use common::{Scratch, Signal, is_impossible, says};
use serde_json::Value;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::Stdio;

const PAGE: usize = 4096;

fn write_back() -> Option<Mounted> {
    Mounted::with(Some(["write-back", "lru"]))
}

fn figures(scratch: &Scratch, place: &str) -> Value {
    serde_json::from_str(&scratch.ok(&["stats", place, "--json"])).expect("one JSON object")
}

fn number(value: &Value, path: &str) -> u64 {
    value.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} in {value}"))
}

fn open(path: impl AsRef<std::path::Path>) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

#[test]
fn a_mount_is_asked_by_its_cache_its_socket_or_its_place() {
    let Some(mut mounted) = write_back() else { return };
    let file = open(mounted.above().join("f"));
    file.write_all_at(&[1; 3 * PAGE], 0).unwrap();
    file.sync_all().unwrap();
    file.read_exact_at(&mut [0; 2 * PAGE], 0).unwrap();
    drop(file);
    fs::create_dir(mounted.above().join("d")).unwrap();
    let scratch = &mounted.scratch;
    let now = figures(scratch, "cache");
    assert_eq!((&now["policy"], &now["mode"]), (&"lru".into(), &"write-back".into()));
    assert_eq!((number(&now, "/requests/writes"), number(&now, "/requests/reads")), (3, 2));
    assert_eq!((number(&now, "/requests/read_hits"), number(&now, "/dirty_pages")), (2, 3));
    assert_eq!((number(&now, "/door/flush/calls"), number(&now, "/door/write/bytes")), (1, 3 * PAGE as u64));
    for place in ["cache.control", "mount", "mount/d"] {
        let same = figures(scratch, place);
        assert_eq!((&same["process"], &same["requests"]), (&now["process"], &now["requests"]), "{place}");
    }
    says(&scratch.ok(&["stats", "mount"]), &["served by      process ", "page writes    3, 0 hits"]);
    assert_eq!(fs::metadata(scratch.path("cache.control")).unwrap().permissions().mode() & 0o777, 0o600);
    says(&scratch.refused(&["stats", "backing"]), &["backing: no cache is mounted there"]);
    says(&scratch.refused(&["stats"]), &["<CACHE|SOCKET|DIR|--cache <CACHE|SOCKET|DIR>>"]);
    let mut command = scratch.command(&["stats", "mount", "--json", "--watch", "0.1"]);
    let mut watch = command.stdout(Stdio::piped()).spawn().unwrap();
    BufReader::new(watch.stdout.take().unwrap()).lines().next().expect("a line").expect("text");
    mounted.unmount();
    watch.wait().expect("it ends with the mount");
    let scratch = &mounted.scratch;
    assert!(!scratch.path("cache.control").exists(), "the socket goes with the mount");
    assert_eq!(figures(scratch, "cache")["state"], "closed in good order");
    says(&scratch.refused(&["stats", "mount"]), &["mount: no cache is mounted there"]);
}

#[test]
fn a_mount_is_changed_while_files_are_open() {
    let Some(mut mounted) = write_back() else { return };
    let file = open(mounted.above().join("f"));
    let set = |settings: &[&str]| mounted.scratch.ok(&[&["set", "--cache", "mount"], settings].concat());
    file.write_all_at(&[1; 20 * PAGE], 0).unwrap();
    let below = || fs::read(mounted.below().join("f")).unwrap();
    assert!(below() == [0; 20 * PAGE]);
    says(&set(&["mode=write-through"]), &["mode is write-through, 20 pages were written below first"]);
    assert!(below() == [1; 20 * PAGE]);
    file.write_all_at(&[2; PAGE], 0).unwrap();
    file.sync_data().unwrap();
    assert!(below()[..PAGE] == [2; PAGE], "a sync is below");
    says(&set(&["policy=arc", "cache-size=10p"]), &["policy is arc, of 10 pages"]);
    let mut bytes = vec![0; 20 * PAGE];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes[..PAGE] == [2; PAGE] && bytes[PAGE..] == [1; 19 * PAGE]);
    set(&["mode=read-only"]);
    let refused = [
        file.write_at(&[3; 100], 0).map(drop),
        // A longer file would show in the backing store before the cache refuses the bytes.
        file.write_at(&[3; 100], 40 * PAGE as u64).map(drop),
        file.set_len(PAGE as u64),
    ];
    for refused in refused {
        assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    }
    assert_eq!((file.metadata().unwrap().len(), below().len()), (20 * PAGE as u64, 20 * PAGE));
    set(&["mode=write-back"]);
    file.write_all_at(&[4; 2 * PAGE], 20 * PAGE as u64).unwrap();
    file.sync_all().unwrap();
    drop(file);
    says(&mounted.scratch.refused(&["set", "--cache", "cache.control", "mode=fast"]), &["mode: 'fast' is not"]);
    mounted.unmount();
    let below = fs::read(mounted.below().join("f")).unwrap();
    assert!(below[..PAGE] == [2; PAGE] && below[20 * PAGE..] == [4; 2 * PAGE]);
}

#[test]
fn a_killed_mount_leaves_nothing_that_stands_in_the_way() {
    let Some(mut mounted) = write_back() else { return };
    mounted.signal(Signal::KILL);
    mounted.end();
    let scratch = &mounted.scratch;
    assert!(scratch.path("cache.control").exists(), "the socket of a dead process");
    assert_eq!(figures(scratch, "cache")["state"], "not closed: in use until a crash or a kill");
    says(&scratch.refused(&["stats", "cache.control"]), &["cache.control: no process answers there"]);
    assert!(mounted.start());
    assert!(number(&figures(&mounted.scratch, "mount"), "/process") > 0);
    mounted.unmount();
}

#[test]
fn what_is_run_over_a_cache_is_asked_from_inside_and_outside() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("data")).unwrap();
    scratch.format(&["--cache", "cache", "--backing", "data", "--size", "2MiB"]);
    let script =
        r#"echo some > data/f && "$0" stats data --json && "$0" set --cache data mode=write-through && read line"#;
    let run = ["-q", "run", "--backing", "data", "--cache", "cache", "--policy", "lru", "--", "sh", "-c", script];
    let mut command = scratch.command(&[&run[..], &[env!("CARGO_BIN_EXE_entresol")]].concat());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let Some(inside) = said.next() else {
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(is_impossible(&said), "{said}");
        return;
    };
    let inside: Value = serde_json::from_str(&inside).expect("one JSON object");
    assert_eq!(number(&inside, "/requests/writes"), 1);
    says(&said.next().unwrap(), &["mode is write-through, 1 pages were written below first"]);
    let outside = figures(&scratch, "cache");
    assert_eq!((&outside["process"], &outside["mode"]), (&inside["process"], &"write-through".into()));
    says(&scratch.refused(&["stats", "data"]), &["data: no cache is mounted there"]);
    drop(child.stdin.take());
    // End of input is not the line for which the command waits.
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_eq!(figures(&scratch, "cache")["state"], "closed in good order");
}
