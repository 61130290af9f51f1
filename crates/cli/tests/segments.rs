//! A cache of the layout segments behind the real command: its pages after a crash, its bound on wear, its figures.

mod common;

use common::served::client::{Client, FLUSH, FUA};
use common::served::{BACKING, PAGE, reached, start_with, terminate};
use common::{Scratch, Signal, children, crash, says, signal};
use entresol_core::Random;
use serde_json::Value;
use std::process::Child;
use std::time::{Duration, Instant};

const SEED: u64 = 20_261_127;
const PAGES: u64 = (BACKING / PAGE) as u64;
const STATS: [&str; 4] = ["stats", "--cache", "cache", "--json"];

fn format(layout: &str) -> Scratch {
    let scratch = Scratch::new();
    scratch.file("disk", vec![0; BACKING]);
    let format = "-q format --mode write-back --cache cache --backing disk --size 2MiB --segment-size 64KiB --layout";
    scratch.ok(&format.split(' ').chain([layout]).collect::<Vec<_>>());
    scratch
}

fn start(scratch: &Scratch, policy: &str, wear: &str) -> (Child, Client) {
    let mut child = start_with(scratch, policy, &["--wear", wear]);
    let client = reached(scratch, &mut child);
    (child, client)
}

fn figures(scratch: &Scratch) -> Value {
    serde_json::from_str(&scratch.ok(&STATS)).expect("one JSON object")
}

/// Figures of a server: pages written to the log, those allowed, and those that the policy holds at most and the store.
struct Figures {
    written: u64,
    allowed: Option<u64>,
    held_max: u64,
    stored_max: u64,
}

impl Figures {
    fn of(scratch: &Scratch) -> Self {
        let now = figures(scratch);
        let number = |path: &str| now.pointer(path).and_then(Value::as_u64);
        let known = |path: &str| number(path).unwrap_or_else(|| panic!("{path} in {now}"));
        Figures {
            written: known("/wear/written_pages"),
            allowed: number("/wear/allowed_pages"),
            held_max: known("/tiers_pages/0"),
            stored_max: known("/room_pages"),
        }
    }

    /// Pages written since earlier figures, and those allowed.
    fn since(&self, before: &Figures) -> (u64, Option<u64>) {
        let allowed = self.allowed.zip(before.allowed).map(|(now, before)| now - before);
        (self.written - before.written, allowed)
    }
}

/// A page, most often one of a few.
fn drawn(random: &mut Random) -> u64 {
    (random.next_f64().powi(3) * PAGES as f64) as u64
}

/// Writes and reads pages, and checks what is read. Each page has the number of its last write in every byte.
fn run(client: &mut Client, random: &mut Random, written: &mut [u8], requests: u64) {
    for at in 0..requests {
        let page = drawn(random);
        let offset = page * PAGE as u64;
        if random.chance(0.5) {
            let byte = written[page as usize].wrapping_add(1);
            client.write(offset, &[byte; PAGE], if at.is_multiple_of(50) { FUA } else { 0 });
            written[page as usize] = byte;
        } else {
            assert_eq!(client.read(offset, PAGE as u32), [written[page as usize]; PAGE], "seed {SEED}, page {page}");
        }
    }
}

#[test]
fn every_page_is_there_after_a_crash_and_the_bound_on_wear_is_kept() {
    let bounds = [("reuse", "amplification=1.2"), ("reuse", "amplification=0.3"), ("reuse", "unbounded")];
    for (policy, wear) in bounds.into_iter().chain([("lru", "unbounded")]) {
        println!("seed {SEED}, {policy}, {wear}");
        let scratch = format("segments");
        let (mut random, mut written) = (Random::new(SEED), vec![0; PAGES as usize]);
        let (child, mut client) = start(&scratch, policy, wear);
        run(&mut client, &mut random, &mut written, 20_000);
        let before = Figures::of(&scratch);
        run(&mut client, &mut random, &mut written, 10_000);
        let now = Figures::of(&scratch);
        assert_eq!(now.allowed.is_some(), wear != "unbounded");
        let (lately, allowed) = now.since(&before);
        println!("{lately} pages written, {allowed:?} allowed");
        assert!(allowed.is_none_or(|allowed| lately <= allowed + allowed / 10), "{lately} of {allowed:?}");
        assert!(lately > 0 && now.held_max < now.stored_max);
        let shown = scratch.ok(&STATS[..3]);
        says(&shown, &["wear           "]);
        let past = shown.contains("writes went past the cache for it");
        assert!(past || wear != "amplification=0.3", "{shown}");
        assert!(!past || wear != "unbounded", "{shown}");
        assert_eq!(client.call(FLUSH, 0, 0, 0, &[]).expect("an answer").errno, 0);
        crash(child.id());
        let (mut child, mut client) = start(&scratch, policy, wear);
        for (page, &byte) in written.iter().enumerate() {
            assert_eq!(client.read((page * PAGE) as u64, PAGE as u32), [byte; PAGE], "seed {SEED}, page {page}");
        }
        run(&mut client, &mut random, &mut written, 1000);
        // Each server says it once, for writes of its own.
        let shown = scratch.ok(&STATS[..3]);
        let past = shown.contains("writes went past the cache for it");
        assert!(past || wear != "amplification=0.3", "{shown}");
        drop(client);
        child.stdout.take();
        let said = terminate(child);
        assert_eq!(said.contains("does not rank its pages"), policy == "lru", "{said}");
        assert_eq!(said.matches("its bound on wear is used up").count(), usize::from(past), "{said}");
        let cache = scratch.path("cache").canonicalize().expect("it is there");
        let command = format!("`entresol set --cache {} wear=unbounded`", cache.display());
        assert_eq!(said.contains(&command), past, "{said}");
        assert_eq!(figures(&scratch)["layout"], "segments");
        scratch.ok(&["check", "--cache", "cache", "--backing", "disk"]);
        scratch.ok(&["-q", "drain", "--cache", "cache", "--backing", "disk"]);
        let below = std::fs::read(scratch.path("disk")).expect("the backing file");
        for (page, &byte) in written.iter().enumerate() {
            assert!(below[page * PAGE..][..PAGE] == [byte; PAGE], "seed {SEED}, {policy}: page {page} below");
        }
    }
}

#[test]
fn a_bound_on_wear_that_is_set_holds_from_then_on_and_outlives_the_server() {
    println!("seed {SEED}");
    let scratch = format("segments");
    let (mut random, mut written) = (Random::new(SEED), vec![0; PAGES as usize]);
    let (mut child, mut client) = start(&scratch, "reuse", "unbounded");
    run(&mut client, &mut random, &mut written, 5000);
    assert_eq!(Figures::of(&scratch).allowed, None);
    let set = |wear: &str| scratch.ok(&["set", "--cache", "cache", &format!("wear={wear}")]);
    says(&set("amplification=1.2"), &["amplification=1.2 bounds the pages written to the cache from now on"]);
    let begun = Figures::of(&scratch);
    assert_eq!(begun.allowed, Some(begun.written));
    run(&mut client, &mut random, &mut written, 20_000);
    let before = Figures::of(&scratch);
    run(&mut client, &mut random, &mut written, 10_000);
    let now = Figures::of(&scratch);
    let (lately, allowed) = now.since(&before);
    let allowed = allowed.expect("a bound");
    println!("{lately} pages written, {allowed} allowed");
    assert!(lately <= allowed + allowed / 10, "{lately} of {allowed}");
    let killed = children(child.id())[0];
    signal(killed, Signal::KILL);
    let begun = Instant::now();
    while figures_of(&scratch, killed).is_none() {
        assert!(begun.elapsed() < Duration::from_secs(60), "no other server");
    }
    assert!(Figures::of(&scratch).allowed.is_some());
    says(&set("unbounded"), &["any number of pages may be written to the cache"]);
    assert_eq!(Figures::of(&scratch).allowed, None);
    says(&scratch.refused(&["set", "--cache", "cache", "wear=5%"]), &["wear: '5%' is no bound on wear", "1DWPD"]);
    drop(client);
    child.stdout.take();
    terminate(child);
}

/// Figures of a server other than the one that was killed; none before it answers.
fn figures_of(scratch: &Scratch, killed: u32) -> Option<Value> {
    let output = scratch.run(&STATS);
    let figures: Value = serde_json::from_slice(&output.stdout).ok()?;
    (figures["process"].as_u64()? != u64::from(killed)).then_some(figures)
}

#[test]
fn a_cache_of_segments_has_a_bound_unless_it_is_said_otherwise() {
    let scratch = format("segments");
    for (options, is_bounded) in [(&[][..], true), (&["--wear", "unbounded"], false)] {
        let mut child = start_with(&scratch, "reuse", options);
        let client = reached(&scratch, &mut child);
        assert_eq!(Figures::of(&scratch).allowed.is_some(), is_bounded, "{options:?}");
        drop(client);
        terminate(child);
    }
}

#[test]
fn a_bound_on_wear_given_to_format_makes_segments_and_holds_at_every_start() {
    let scratch = Scratch::new();
    scratch.file("disk", vec![0; BACKING]);
    let format: Vec<_> = "format --cache cache --backing disk --size 2MiB --wear 1DWPD".split(' ').collect();
    let refused = scratch.refused(&[&format[..], &["--layout", "slots"]].concat());
    says(&refused, &["--wear: a cache of the layout slots keeps no bound; one of the layout segments does"]);
    let made = scratch.run(&format);
    says(&String::from_utf8_lossy(&made.stderr), &["layout segments, which keeps the bound 1DWPD (--wear)"]);
    for (options, is_bounded) in [(&[][..], true), (&["--wear", "unbounded"], false), (&[], true)] {
        let mut child = start_with(&scratch, "reuse", options);
        let client = reached(&scratch, &mut child);
        assert_eq!(Figures::of(&scratch).allowed.is_some(), is_bounded, "{options:?}");
        drop(client);
        child.stdout.take();
        let said = terminate(child);
        assert_eq!(said.contains("wear 1DWPD, as given to `format`"), is_bounded, "{said}");
    }
}

/// Each combination of a layout, a bound and a policy: the lines of `format` about the bound, two at most.
#[test]
fn format_says_what_follows_for_a_bound_on_wear() {
    let scratch = Scratch::new();
    scratch.file("disk", vec![0; BACKING]);
    let kept = "layout segments, which keeps the bound 1DWPD (--wear)";
    let alone = "layout segments, as no other keeps a bound on wear (--wear)";
    let default = "bound amplification=1.8+0.04, the default over segments (--wear)";
    let exceeded = |policy, bound| {
        format!(
            "policy {policy} does not rank its pages, so what is written to the cache may exceed {bound}; the policy reuse keeps \
             the bound (--policy)"
        )
    };
    let cases = [
        ("", vec![]),
        ("--wear unbounded", vec![]),
        ("--policy lru", vec![]),
        ("--layout slots --wear unbounded", vec![]),
        ("--layout log", vec![]),
        ("--wear 1DWPD", vec![kept.to_owned()]),
        ("--wear 1DWPD --policy reuse:price=0.1", vec![kept.to_owned()]),
        ("--wear 1DWPD --policy lru", vec![alone.to_owned(), exceeded("lru", "1DWPD")]),
        ("--layout segments", vec![default.to_owned()]),
        ("--layout segments --wear 1DWPD", vec![]),
        ("--layout segments --wear unbounded --policy lru", vec![]),
        ("--layout segments --policy arc", vec![exceeded("arc", "amplification=1.8+0.04")]),
        ("--layout segments --wear 200GB --policy face-gsc", vec![exceeded("face-gsc", "200000000000B")]),
    ];
    let format = "format --force --cache cache --backing disk --size 2MiB";
    for (options, expected) in cases {
        let words: Vec<&str> = format.split(' ').chain(options.split_whitespace()).collect();
        let made = scratch.run(&words);
        let said = String::from_utf8_lossy(&made.stderr).into_owned();
        assert!(made.status.success(), "{options}: {said}");
        let lines = said.lines().filter_map(|line| line.strip_prefix("cache: "));
        let found: Vec<&str> =
            lines.filter(|line| ["layout", "bound", "policy"].iter().any(|word| line.starts_with(word))).collect();
        assert_eq!(found, expected, "{options}: {said}");
        let quiet = scratch.run(&[&["-q"], &words[..]].concat());
        assert!(quiet.status.success() && quiet.stderr.is_empty(), "{options}");
    }
    for layout in ["slots", "log"] {
        let words: Vec<&str> = format.split(' ').chain(["--wear", "1DWPD", "--layout", layout]).collect();
        says(&scratch.refused(&words), &[&format!("Over {layout} each page"), "nothing holds that to 1DWPD"]);
    }
}

#[test]
fn a_bound_on_wear_is_refused_where_the_layout_cannot_keep_it() {
    for layout in ["log", "slots"] {
        let scratch = format(layout);
        let serve = "serve nbd --backing disk --cache cache --socket s --wear 1DWPD";
        let refused = scratch.refused(&serve.split(' ').collect::<Vec<_>>());
        says(&refused, &[&format!("--wear: this cache has the layout {layout}; only one of the layout segments")]);
        let (child, client) = start(&scratch, "lru", "unbounded");
        let refused = scratch.refused(&["set", "--cache", "cache", "wear=1DWPD"]);
        says(&refused, &["wear: only a cache of the layout segments can keep a bound"]);
        drop(client);
        terminate(child);
    }
}
