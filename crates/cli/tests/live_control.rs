//! A cache in use, queried and changed by other commands through its control socket.

mod common;

use common::served::client::{FUA, WRITE};
use common::served::{BACKING, PAGE, formatted, formatted_log, reached, start, terminate};
use common::{Scratch, crash, says};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

const STATS: [&str; 3] = ["stats", "--cache", "cache"];

fn figures(scratch: &Scratch) -> Value {
    serde_json::from_str(&scratch.ok(&[&STATS[..], &["--json"]].concat())).expect("one JSON object")
}

#[test]
fn stats_asks_the_process_that_serves_the_cache() {
    let scratch = formatted();
    let mut child = start(&scratch, "lru", "write-back");
    let mut client = reached(&scratch, &mut child);
    client.write(4096, &[5; 8192], FUA);
    client.read(4096, 4096);
    client.read(16384, 4096);
    let now = figures(&scratch);
    let number = |path: &str| now.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} in {now}"));
    assert_eq!(number("/process"), u64::from(common::serving(child.id())));
    assert_eq!((&now["policy"], &now["mode"]), (&"lru".into(), &"write-back".into()));
    assert_eq!((number("/requests/reads"), number("/requests/read_hits")), (2, 1));
    assert_eq!((number("/requests/writes"), number("/requests/write_hits")), (2, 0));
    assert_eq!((number("/dirty_pages"), number("/page_bytes")), (2, 4096));
    assert_eq!((number("/door/write/calls"), number("/door/write/bytes")), (1, 8192));
    assert_eq!(number("/door/flush/calls"), 0, "FUA is the write's own");
    assert!(now["door"]["read"]["max_us"].as_f64() > Some(0.0));
    let written = number("/cache_device/written_bytes");
    assert!(written >= 3 * 4096 && written % 4096 == 0, "two pages and a table: {written}");
    assert_eq!(number("/tiers_pages/0"), number("/room_pages"));
    says(
        &scratch.ok(&STATS),
        &[
            "served by      process ",
            "dirty          2 pages, 8 KiB",
            "page reads     2, 1 hits (50.00%)",
            "half within",
        ],
    );
    let mode = std::fs::metadata(scratch.path("cache.control")).expect("the socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "its owner alone may open it");
    drop(client);
    terminate(child);
    assert!(!scratch.path("cache.control").exists(), "the socket goes with the server");
    let at_rest = figures(&scratch);
    assert_eq!((&at_rest["dirty_pages"], &at_rest["opened"]), (&2.into(), &1.into()));
    says(&scratch.refused(&[&STATS[..], &["--watch", "1"]].concat()), &["cache: is not in use"]);
    says(&scratch.refused(&[&STATS[..], &["--watch", "0"]].concat()), &["--watch", "0.1 to 86400"]);
}

#[test]
fn a_watch_prints_until_the_server_ends() {
    let scratch = formatted();
    let mut child = start(&scratch, "lru", "write-back");
    let mut client = reached(&scratch, &mut child);
    let mut command = scratch.command(&[&STATS[..], &["--json", "--watch", "0.1"]].concat());
    let mut watch = command.stdout(Stdio::piped()).spawn().expect("the command runs");
    let mut lines = BufReader::new(watch.stdout.take().expect("a pipe")).lines();
    let mut reads = || {
        let line = lines.next().expect("a line").expect("text");
        serde_json::from_str::<Value>(&line).expect("an object")["requests"]["reads"].as_u64().expect("a count")
    };
    let first = reads();
    client.read(0, 4096);
    while reads() == first {}
    drop(client);
    terminate(child);
    assert_eq!(watch.wait().expect("an end").code(), Some(0), "it ends with the server");
}

#[test]
fn set_changes_the_mode_of_a_running_cache() {
    let scratch = formatted();
    fn set<'a>(settings: &[&'a str]) -> Vec<&'a str> {
        [&["set", "--cache", "cache"], settings].concat()
    }
    says(&scratch.refused(&set(&["mode=write-through"])), &["cache: is not in use"]);
    let mut child = start(&scratch, "lru", "write-back");
    let mut client = reached(&scratch, &mut child);
    client.write(4096, &[5; 8192], FUA);
    assert_eq!(scratch.bytes("disk"), vec![0; BACKING]);
    says(&scratch.ok(&set(&["mode=write-through"])), &["mode is write-through, 2 pages were written below first"]);
    assert_eq!(scratch.bytes("disk")[PAGE..3 * PAGE], [5; 8192]);
    client.write(0, &[6; PAGE], FUA);
    assert_eq!(scratch.bytes("disk")[..PAGE], [6; PAGE], "durable below when it is answered");
    assert_eq!(figures(&scratch)["mode"], "write-through");
    scratch.ok(&set(&["mode=read-only", "-q"]));
    assert_ne!(client.call(WRITE, 0, 0, 1, &[1]).expect("an answer").errno, 0);
    says(&scratch.refused(&set(&["mode=fast"])), &["mode: 'fast' is not write-back, write-through"]);
    let unknown = scratch.refused(&set(&["mode=write-back", "colour=red"]));
    says(&unknown, &["'colour' is not a setting of a running cache; settings: mode (write-back"]);
    assert_eq!(figures(&scratch)["mode"], "read-only", "nothing is done when one is wrong");
    says(&scratch.refused(&set(&["mode"])), &["NAME=VALUE"]);
    says(&scratch.refused(&set(&[])), &["<NAME=VALUE>"]);
    drop(client);
    terminate(child);
}

#[test]
fn set_changes_policy_and_sizes_and_what_is_cached_stays() {
    let scratch = formatted();
    fn set<'a>(settings: &[&'a str]) -> Vec<&'a str> {
        [&["set", "--cache", "cache"], settings].concat()
    }
    let mut child = start(&scratch, "lru", "write-back");
    let mut client = reached(&scratch, &mut child);
    client.write(0, &[5; 20 * PAGE], FUA);
    says(&scratch.ok(&set(&["policy=lirs:hir=5%"])), &["policy is lirs:hir=5%, of ", "cached pages stayed"]);
    let hits = || figures(&scratch)["requests"]["read_hits"].as_u64().expect("a count");
    let before = hits();
    assert_eq!(client.read(0, 20 * PAGE as u32), [5; 20 * PAGE]);
    assert_eq!(hits(), before + 20);
    says(&scratch.ok(&set(&["policy=lru", "cache-size=10p"])), &["policy is lru, of 10 pages"]);
    let now = figures(&scratch);
    assert_eq!((&now["policy"], &now["tiers_pages"]), (&"lru".into(), &serde_json::json!([10])));
    assert_eq!(client.read(0, 20 * PAGE as u32), [5; 20 * PAGE], "what was evicted is below");
    says(&scratch.ok(&set(&["policy=face", "dram=40KiB", "cache-size=100%"])), &["policy is face, of 10 over "]);
    assert_eq!(client.read(0, 20 * PAGE as u32), [5; 20 * PAGE]);
    says(&scratch.ok(&set(&["policy=lru"])), &["policy is lru, of 10 over "]);
    says(&scratch.ok(&set(&["dram=80KiB"])), &["policy is lru, of 20 over "]);
    assert_eq!(client.read(0, 20 * PAGE as u32), [5; 20 * PAGE]);
    says(&scratch.ok(&set(&["dram=0B"])), &["policy is lru, of "]);
    assert_eq!(figures(&scratch)["tiers_pages"].as_array().expect("tiers").len(), 1);
    says(&scratch.refused(&set(&["policy=face-gcs"])), &["policy: ", "'face-gcs'", "nearest", "face-gsc"]);
    says(&scratch.refused(&set(&["policy=lru,arc"])), &["names 2 policies"]);
    says(&scratch.refused(&set(&["policy=min"])), &["policy: ", "future"]);
    says(&scratch.refused(&set(&["policy=lru:colour=red"])), &["no option 'colour'"]);
    says(&scratch.refused(&set(&["cache-size=1GiB"])), &["cache-size: a cache tier of 262144 pages does not fit"]);
    says(&scratch.refused(&set(&["cache-size=large"])), &["cache-size: 'large' is not a size"]);
    let after_one = scratch.refused(&set(&["mode=write-through", "cache-size=1GiB"]));
    says(&after_one, &["cache-size: ", "done before: mode is write-through"]);
    assert_eq!(figures(&scratch)["policy"], "lru");
    drop(client);
    terminate(child);
    scratch.ok(&["check", "--cache", "cache", "--backing", "disk"]);
}

#[test]
fn set_makes_the_cache_larger_and_what_is_cached_stays() {
    let scratch = formatted_log();
    let set = |settings: &[&str]| scratch.ok(&[&["set", "--cache", "cache"], settings].concat());
    let mut child = start(&scratch, "lru", "write-back");
    let mut client = reached(&scratch, &mut child);
    let before = figures(&scratch)["room_pages"].as_u64().expect("a count");
    client.write(0, &[5; 300 * PAGE], FUA);
    let refused = scratch.refused(&["set", "--cache", "cache", "device-size=2MiB"]);
    says(&refused, &["device-size: ", "needs", "2097152"]);
    says(
        &scratch.refused(&["set", "--cache", "cache", "device-size=50%"]),
        &["device-size: '50%' is not a size in bytes"],
    );
    says(&set(&["device-size=4MiB", "cache-size=100%"]), &["the cache has room for ", "policy is lru, of "]);
    let now = figures(&scratch);
    let space = now["room_pages"].as_u64().expect("a count");
    assert!(space > 2 * before - 20 && now["tiers_pages"] == serde_json::json!([space]), "{before}: {now}");
    // The log wraps, so that its segments are in the order in which it took the slots.
    for round in 0..4 {
        for page in 0..1000u64 {
            client.write(page * PAGE as u64, &[page as u8 ^ round; PAGE], 0);
        }
    }
    client.write(0, &[3; PAGE], FUA);
    drop(client);
    terminate(child);
    let checked = scratch.ok(&["check", "--cache", "cache", "--backing", "disk"]);
    let mut child = start(&scratch, "lru", "write-back");
    let mut client = reached(&scratch, &mut child);
    for page in 1..1000u64 {
        assert_eq!(client.read(page * PAGE as u64, PAGE as u32), [page as u8 ^ 3; PAGE], "{checked}");
    }
    drop(client);
    terminate(child);
}

#[test]
fn set_limits_how_many_pages_are_dirty() {
    let scratch = formatted();
    let set = |settings: &[&str]| scratch.ok(&[&["set", "--cache", "cache"], settings].concat());
    let mut child = start(&scratch, "lru", "write-back");
    let mut client = reached(&scratch, &mut child);
    client.write(0, &[5; 300 * PAGE], FUA);
    let dirty = || figures(&scratch)["dirty_pages"].as_u64().expect("a count");
    assert_eq!(dirty(), 300);
    says(&set(&["dirty-high=30%", "dirty-low=20%"]), &["above 30.0 % dirty pages", "no more than 20.0 % are"]);
    // The drop is more than a segment of 16 pages.
    let low = figures(&scratch)["tiers_pages"][0].as_u64().expect("a count") / 5;
    let began = Instant::now();
    while dirty() > low {
        // A request wakes the cache's own thread.
        client.read(0, PAGE as u32);
        assert!(began.elapsed() < Duration::from_secs(60), "{} pages are dirty of {low}", dirty());
    }
    assert_eq!(client.read(0, 300 * PAGE as u32), [5; 300 * PAGE]);
    says(&set(&["dirty-high=100%"]), &["any number of pages may be dirty"]);
    says(&set(&["sequential-cutoff=4MiB"]), &["pages after 4194304 bytes of a sequential stream bypass the cache"]);
    says(&set(&["sequential-cutoff=0"]), &["no pages of a sequential stream bypass the cache"]);
    says(
        &scratch.refused(&["set", "--cache", "cache", "sequential-cutoff=4p"]),
        &["'4p': it must be a number of bytes"],
    );
    says(&scratch.refused(&["set", "--cache", "cache", "dirty-high=120%"]), &["'120%': it is not between 0% and 100%"]);
    says(&scratch.refused(&["set", "--cache", "cache", "dirty-high=5GiB"]), &["'5GiB': it is no percentage"]);
    drop(client);
    terminate(child);
}

#[test]
fn a_killed_server_leaves_nothing_that_stands_in_the_way() {
    let scratch = formatted();
    let mut child = start(&scratch, "lru", "write-back");
    drop(reached(&scratch, &mut child));
    crash(child.id());
    child.wait().expect("an end");
    assert!(scratch.path("cache.control").exists(), "the socket of a dead process");
    says(&scratch.ok(&STATS), &["not closed: in use until a crash or a kill"]);
    let mut child = start(&scratch, "lru", "write-back");
    drop(reached(&scratch, &mut child));
    assert_eq!(figures(&scratch)["process"], common::serving(child.id()));
    terminate(child);
}

#[test]
fn noise_on_the_control_socket_disturbs_nobody() {
    let scratch = formatted();
    let mut child = start(&scratch, "lru", "write-back");
    let mut client = reached(&scratch, &mut child);
    for noise in
        [&b"\n"[..], b"GET / HTTP/1.1\r\n\r\n", &[0xFF; 100_000], b"{\"version\":1,\"ask\":{\"set\":[[\"\",1]]}}\n"]
    {
        let mut stream = UnixStream::connect(scratch.path("cache.control")).expect("a connection");
        // The server may close the connection before all bytes were sent.
        let _ = stream.write_all(noise);
    }
    client.write(0, &[7; PAGE], FUA);
    assert_eq!(figures(&scratch)["dirty_pages"], 1);
    drop(client);
    terminate(child);
}

/// A policy counts I/Os of one page each. The engine counts its own I/Os where it makes them, and nowhere else.
#[test]
fn stats_tell_pages_that_were_written_back_and_no_ios_that_nobody_made() {
    let scratch = formatted();
    let mut child = start(&scratch, "lru", "write-back");
    let mut client = reached(&scratch, &mut child);
    for at in 0..1000 {
        client.write(at * PAGE as u64, &[3; PAGE], 0);
    }
    let said = scratch.ok(&STATS);
    let movements = said.lines().find(|line| line.starts_with("movements")).expect("such a line");
    assert!(movements.contains(" written back") && !movements.contains(" 0 written back"), "{movements}");
    assert!(!movements.contains("I/O"), "{movements}");
    drop(client);
    terminate(child);
}
