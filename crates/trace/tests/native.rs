//! The native format: a written trace reads back equal, and a damaged one is refused.

mod common;

use common::Folder;
use entresol_core::Page;
use entresol_trace::{Format, LoadOptions, Loaded, OpByte, Trace, TraceError, convert, generate, load, native};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use std::path::Path;

const META: &str = r#"{"page_size": 8192, "objects": {"0": "stock", "1": "WAL", "2": "q1#0:a", "3": "q1#0:a:rows=1"}}"#;
const RECORDED: &str = "dt,op,p,obj,sec,n\n0,B,0,2,0,0\n5,R,3,0,16,16\n1,W,3,1,0,16\n1,R,3,0,32,32\n2,W,4,0,3,10\n\
                        0,N,0,3,0,0\n0,W,3,0,0,48\n";

fn sample(folder: &Folder, next_use: bool) -> Trace {
    folder.file("t.meta.json", META);
    let path = folder.file("t.csv", RECORDED);
    load(&path, &LoadOptions { next_use, ..LoadOptions::default() }).expect("loads").trace
}

fn same(a: &Trace, b: &Trace) {
    assert_eq!(a.page_bytes, b.page_bytes);
    assert!(a.pages[..] == b.pages[..] && a.ops[..] == b.ops[..]);
    assert!(a.page_object[..] == b.page_object[..] && a.page_block[..] == b.page_block[..]);
    assert!(a.times_us.as_deref() == b.times_us.as_deref());
    assert!(a.next_use.as_deref() == b.next_use.as_deref());
    assert_eq!((&a.objects, &a.events, &a.provenance), (&b.objects, &b.events, &b.provenance));
}

#[test]
fn round_trip_mapped_copied_and_compressed() {
    let folder = Folder::new();
    for next_use in [false, true] {
        let trace = sample(&folder, next_use);
        let path = folder.path("t.etr");
        native::write(&trace, &path).expect("written");
        assert_eq!(folder.names(), ["t.csv", "t.etr", "t.meta.json"], "no temporary file is left");
        let mapped = native::open(&path).expect("opens");
        same(&trace, &mapped);
        let bytes = std::fs::read(&path).expect("bytes");
        assert!(bytes.len().is_multiple_of(64));
        same(&trace, &native::from_bytes(Path::new("memory"), &bytes).expect("reads"));
        let packed = folder.file("packed", zstd::encode_all(&bytes[..], 1).expect("zstd"));
        let Loaded { trace: unpacked, report } = load(&packed, &LoadOptions::default()).expect("loads");
        assert_eq!(report.format, Format::Native);
        same(&trace, &unpacked);
        std::fs::remove_file(&packed).expect("removed");
        // The map outlives its file's name.
        std::fs::remove_file(&path).expect("removed");
        same(&trace, &mapped);
    }
}

#[test]
fn options_that_conversion_fixed_are_refused() {
    let folder = Folder::new();
    sample(&folder, false);
    let etr = folder.path("t.etr");
    convert(&folder.path("t.csv"), &etr, &LoadOptions::default()).expect("converts");
    let options = [
        LoadOptions { page_bytes: Some(4096), ..LoadOptions::default() },
        LoadOptions { keep_logs: true, ..LoadOptions::default() },
        LoadOptions { split: entresol_trace::Split::Exp, ..LoadOptions::default() },
    ];
    for options in options {
        let error = load(&etr, &options).err().expect("fixed").to_string();
        assert!(error.contains("was fixed when this native trace was converted"), "{error}");
    }
    let same_size = LoadOptions { page_bytes: Some(8192), limit: Some(2), next_use: true, ..LoadOptions::default() };
    let trace = load(&etr, &same_size).expect("loads").trace;
    assert_eq!((trace.pages.to_vec(), trace.footprint()), (vec![0, 1], 2));
    assert_eq!(trace.next_use.expect("next use").to_vec(), [u32::MAX; 2]);
}

#[test]
fn nothing_is_left_behind_when_writing_fails() {
    let folder = Folder::new();
    let trace = sample(&folder, false);
    let before = folder.names();
    std::fs::create_dir(folder.path("taken.etr")).expect("a folder in the way");
    assert!(matches!(native::write(&trace, &folder.path("taken.etr")), Err(TraceError::Refused { .. })));
    std::fs::remove_dir(folder.path("taken.etr")).expect("removed");
    assert!(matches!(native::write(&trace, &folder.path("none/t.etr")), Err(TraceError::Io { .. })));
    assert_eq!(folder.names(), before);
    // No file is left either when the trace to convert is bad.
    let bad = folder.file("bad.csv", format!("{RECORDED}torn"));
    folder.file("bad.meta.json", META);
    assert!(convert(&bad, &folder.path("bad.etr"), &LoadOptions::default()).is_err());
    assert!(!folder.path("bad.etr").exists());
}

/// A file with every section's and the header's checksum recomputed after a change.
fn resealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let word = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes")) as usize;
    let sections = u32::from_le_bytes(bytes[12..16].try_into().expect("4 bytes")) as usize;
    for i in 0..sections {
        let at = 64 + i * 32;
        let (offset, length) = (word(&bytes, at + 8), word(&bytes, at + 16));
        if let Some(section) = bytes.get(offset..offset.saturating_add(length)) {
            let sum = xxhash_rust::xxh3::xxh3_64(section);
            bytes[at + 24..at + 32].copy_from_slice(&sum.to_le_bytes());
        }
    }
    let header = [&bytes[..56], &bytes[64..64 + sections * 32]].concat();
    let sum = xxhash_rust::xxh3::xxh3_64(&header);
    bytes[56..64].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn written(next_use: bool) -> Vec<u8> {
    let folder = Folder::new();
    let path = folder.path("t.etr");
    native::write(&sample(&folder, next_use), &path).expect("written");
    std::fs::read(&path).expect("bytes")
}

fn error(bytes: &[u8]) -> String {
    native::from_bytes(Path::new("x.etr"), bytes).err().expect("refused").to_string()
}

#[test]
fn every_changed_byte_is_noticed() {
    let bytes = written(true);
    native::from_bytes(Path::new("x"), &resealed(bytes.clone())).expect("resealing alone changes nothing");
    let mut unnoticed = Vec::new();
    for i in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[i] ^= 0x10;
        if native::from_bytes(Path::new("x"), &changed).is_ok() {
            unnoticed.push(i);
        }
    }
    // Only the zeros between sections carry no information.
    assert!(unnoticed.iter().all(|&i| bytes[i] == 0), "{unnoticed:?}");
    for length in 0..bytes.len() {
        assert!(error(&bytes[..length]).starts_with("x.etr: byte "));
    }
}

#[test]
fn wrong_contents_under_right_checksums_are_refused() {
    let bytes = written(true);
    let offset = |section: usize| {
        let at = 64 + section * 32 + 8;
        u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes")) as usize
    };
    // Sections in order: pages, ops, times, next use, page objects, page blocks, metadata.
    let cases: [(usize, &[u8], &str); 10] = [
        (8, &[2], "version 2"),
        (offset(0), &[9], "page 9 appears before page 0"),
        (offset(0) + 4, &[0], "page 2 appears before page 1"),
        (offset(0), &[0; 28], "1 pages appear, the header says 4"),
        (offset(1) + 2, &[0xFF], "unknown operation 0xff"),
        (offset(2), &[0xFF; 8], "the time runs backwards"),
        (offset(3), &[1, 0, 0, 0], "request 0 is said to recur at 1"),
        (offset(4), &[7], "page 0 belongs to object 7"),
        (offset(5), &[99], "page 0 is block 99 of 4"),
        (offset(6), b"[", "the metadata cannot be read"),
    ];
    for (at, change, expected) in cases {
        let mut changed = bytes.clone();
        changed[at..at + change.len()].copy_from_slice(change);
        let error = error(&resealed(changed));
        assert!(error.contains(expected), "{error}");
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let at = text.find(r#""at":0"#).map(|_| bytes.windows(6).position(|w| w == br#""at":0"#).expect("the event"));
    let mut changed = bytes.clone();
    changed[at.expect("an event") + 5] = b'5';
    let error = error(&resealed(changed));
    assert!(error.contains("event 1 is out of order"), "{error}");
}

/// The same cases on every run.
const SEED: RngSeed = RngSeed::Fixed(31);

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, rng_seed: SEED, ..ProptestConfig::default() })]

    /// Right checksums around arbitrary changes: refused or a trace whose every index is in range.
    #[test]
    fn arbitrary_changes_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::weighted(0.1, any::<prop::sample::Index>()),
        reseal in any::<bool>(),
    ) {
        let mut bytes = BYTES.with(Clone::clone);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            // The number of sections must stay readable for the resealing.
            if !(8..16).contains(&at) { bytes[at] = byte; }
        }
        if reseal { bytes = resealed(bytes); }
        if let Some(cut) = cut { bytes.truncate(cut.index(bytes.len())); }
        if let Ok(trace) = native::from_bytes(Path::new("x"), &bytes) {
            for i in 0..trace.len() {
                let request = trace.request(i);
                prop_assert!(trace.address(request.page).object.index() < trace.objects.len());
            }
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..400), magic in any::<bool>()) {
        if magic {
            let header = &BYTES.with(Clone::clone)[..16];
            let n = header.len().min(bytes.len());
            bytes[..n].copy_from_slice(&header[..n]);
        }
        let _ = native::from_bytes(Path::new("x"), &bytes);
    }
}

thread_local! {
    static BYTES: Vec<u8> = written(true);
}

#[test]
fn links_and_devices_stay_what_they_are() {
    let folder = Folder::new();
    let trace = entresol_trace::generate(&"loop:n=100:pages=10".parse().expect("a specification"));
    let file = folder.file("t.etr", "old");
    let link = folder.path("link.etr");
    std::os::unix::fs::symlink(&file, &link).expect("a link");
    native::write(&trace, &link).expect("it is written");
    assert!(std::fs::symlink_metadata(&link).expect("the link").is_symlink());
    assert_eq!(native::open(&file).expect("what the link leads to").len(), 100);
    assert!(matches!(native::write(&trace, std::path::Path::new("/dev/null")), Err(TraceError::Refused { .. })));
}

#[test]
fn what_is_spooled_is_what_is_built_at_once() {
    let seed = 5;
    println!("seed {seed}");
    let folder = Folder::new();
    let spec = format!("zipf:n=20k:pages=3000:seed={seed}:write=40:update=30 | scan:n=5000:base=300:write=50");
    let expected = generate(&spec.parse().expect("a specification"));
    let path = folder.path("t.etr");
    let mut spool = native::Spool::create(&path, expected.page_bytes).expect("a place");
    for object in &expected.objects {
        spool.object(&object.name, object.kind);
    }
    for at in 0..expected.len() {
        let address = expected.address(Page(expected.pages[at]));
        let time_us = expected.times_us.as_ref().map_or(0, |times| times[at]);
        spool.push(time_us, address.object.0, address.block, OpByte(expected.ops[at])).expect("room");
    }
    assert_eq!((spool.requests(), spool.footprint()), (expected.len() as u64, expected.footprint() as u64));
    assert!(folder.names().is_empty(), "nothing has a name before it is whole: {:?}", folder.names());
    spool.finish(expected.provenance.clone()).expect("written");
    assert_eq!(folder.names(), ["t.etr"]);
    let written = native::open(&path).expect("opens");
    assert!(written.pages[..] == expected.pages[..] && written.ops[..] == expected.ops[..]);
    assert!(written.page_object[..] == expected.page_object[..] && written.page_block[..] == expected.page_block[..]);
    assert_eq!(written.provenance, expected.provenance);
    let extents = |trace: &Trace| trace.page_block.iter().max().map_or(0, |block| block + 1);
    assert_eq!(written.objects[0].pages, extents(&expected), "as far as the trace shows it");
}

#[test]
fn a_spool_refuses_what_no_trace_can_be_and_leaves_nothing() {
    let folder = Folder::new();
    let refusal = |spool: Result<native::Spool, TraceError>| spool.err().expect("refused").to_string();
    assert!(refusal(native::Spool::create(&folder.path("t.etr"), 5000)).contains("no power of two"));
    assert!(refusal(native::Spool::create(&folder.path("none/t.etr"), 4096)).contains("none"));
    std::fs::create_dir(folder.path("taken.etr")).expect("a folder in the way");
    assert!(refusal(native::Spool::create(&folder.path("taken.etr"), 4096)).contains("is a directory"));
    std::fs::remove_dir(folder.path("taken.etr")).expect("removed");
    let spool = native::Spool::create(&folder.path("t.etr"), 4096).expect("a place");
    assert!(spool.finish(String::new()).expect_err("refused").to_string().contains("no request"));
    let mut spool = native::Spool::create(&folder.path("t.etr"), 4096).expect("a place");
    let object = spool.object("disk", entresol_trace::ObjectKind::Data);
    for (time_us, expected) in [(7, 7), (5, 7), (9, 9)] {
        spool.push(time_us, object, expected, OpByte(8)).expect("room");
    }
    drop(spool);
    assert!(folder.names().is_empty(), "dropped before its end: {:?}", folder.names());
}
