//! A bit that rots in a cache whose server was killed, by the real command: flushed bytes are right, or an error and
//! listed, and everything else can still be read. (Before version 3 of the store one bit in the last flush silently
//! rolled all of it back. One in either of the two flushes before made the whole cache unreadable.)

mod common;

use common::served::client::{Client, FLUSH, READ, WRITE};
use common::served::{Kept, PAGE, formatted, reached, start};
use common::{Scratch, crash, says};

const BOTH: [&str; 4] = ["--cache", "cache", "--backing", "disk"];

fn page_of(version: u8) -> Vec<u8> {
    vec![version; PAGE]
}

fn flush(client: &mut Client) {
    assert_eq!(client.call(FLUSH, 0, 0, 0, &[]).expect("an answer").errno, 0);
}

/// A cache in a layout whose server was killed after `load`.
fn killed(layout: &str, load: impl Fn(&mut Client)) -> Scratch {
    let scratch = formatted();
    scratch.format(&[&["--force", "--layout", layout], &BOTH[..]].concat());
    let mut child = start(&scratch, "lru", "write-back");
    let mut client = reached(&scratch, &mut child);
    load(&mut client);
    crash(child.id());
    child.wait().expect("an end");
    scratch
}

/// The offset of a page of this version in the cache, in bytes.
fn found(bytes: &[u8], version: u8) -> usize {
    let page = page_of(version);
    let at = bytes.chunks_exact(PAGE).position(|block| block == page);
    at.expect("it was flushed") * PAGE
}

/// The newest table or block of the journal.
fn newest_table(bytes: &[u8]) -> usize {
    let is_table = |block: &[u8]| block.starts_with(b"\x89ETBATCH") || block.starts_with(b"\x89ETJOURN");
    let place = |block: &[u8]| u64::from_le_bytes(block[32..40].try_into().expect("eight bytes"));
    let tables = bytes.chunks_exact(PAGE).enumerate().filter(|(_, block)| is_table(block));
    tables.max_by_key(|(_, block)| place(block)).expect("a table").0 * PAGE
}

/// Pages flushed eight times over are read in their eighth version, whichever bit of the last flush rots. Reading a
/// rotten page itself fails; it never returns an older version.
#[test]
fn one_bit_of_the_last_flush_rolls_nothing_back() {
    for layout in ["log", "slots", "segments"] {
        let scratch = killed(layout, |client| {
            for version in 1..=8 {
                (0..4).for_each(|page| client.write(page * PAGE as u64, &page_of(version), 0));
                flush(client);
            }
        });
        let (sound, kept) = (scratch.bytes("cache"), Kept::of(&scratch));
        for (what, at, lost) in [
            ("a page", found(&sound, 8) + 100, 1),
            ("its table", newest_table(&sound) + 100, 0),
            ("one record", 8192 + 100, 0),
            ("the other", 12288 + 100, 0),
        ] {
            let what = format!("{layout}, {what}");
            let mut bytes = sound.clone();
            bytes[at] ^= 1;
            scratch.file("cache", &bytes);
            kept.put_back(&scratch);
            let output = scratch.run(&[&["check"], &BOTH[..]].concat());
            assert_eq!(output.status.code(), Some(lost), "{what}: {output:?}");
            let mut child = start(&scratch, "lru", "write-back");
            let mut client = reached(&scratch, &mut child);
            let mut errors = 0;
            for page in 0..4 {
                let answer = client.call(READ, 0, page * PAGE as u64, PAGE as u32, &[]).expect("an answer");
                errors += i32::from(answer.errno != 0);
                assert!(answer.errno != 0 || answer.data == page_of(8), "{what}: page {page} is {}", answer.data[0]);
            }
            assert_eq!(errors, lost, "{what}");
            assert_eq!(client.call(WRITE, 0, 0, PAGE as u32, &page_of(8)).expect("an answer").errno, 0);
            crash(child.id());
            child.wait().expect("an end");
        }
    }
}

/// Of thirty pages, each flushed by itself, at most one is lost and twenty-nine are in the backing store after a
/// drain, whichever bit rots.
#[test]
fn one_bit_of_any_flush_costs_the_page_that_it_touches() {
    for layout in ["log", "slots", "segments"] {
        let scratch = killed(layout, |client| {
            for page in 0..30 {
                client.write(page * PAGE as u64, &page_of(page as u8 + 1), 0);
                flush(client);
            }
        });
        let (sound, disk, kept) = (scratch.bytes("cache"), scratch.bytes("disk"), Kept::of(&scratch));
        for version in [2, 10, 20, 28, 29, 30] {
            let page = version as usize - 1;
            let mut bytes = sound.clone();
            bytes[found(&sound, version) + 5] ^= 1;
            for repaired in [false, true] {
                let what = format!("{layout}, flush {version} of 30 rots, repaired: {repaired}");
                scratch.file("cache", &bytes);
                scratch.file("disk", &disk);
                kept.put_back(&scratch);
                let check = scratch.run(&[&["check"], &BOTH[..]].concat());
                assert_eq!(check.status.code(), Some(1), "{what}");
                says(&String::from_utf8_lossy(&check.stderr), &[&format!("page {page}: its bytes"), "1 finding"]);
                if repaired {
                    let repair = scratch.run(&[&["check", "--repair"], &BOTH[..]].concat());
                    assert_eq!(repair.status.code(), Some(1), "{what}");
                    says(&String::from_utf8_lossy(&repair.stdout), &[&format!("page {page}: its last write is lost")]);
                }
                let drain = scratch.run(&[&["drain"], &BOTH[..]].concat());
                assert_eq!(drain.status.code(), Some(2), "{what}");
                says(&String::from_utf8_lossy(&drain.stderr), &[&format!("first: page {page}")]);
                let below = scratch.bytes("disk");
                let right = |page: &usize| below[page * PAGE..(page + 1) * PAGE] == page_of(*page as u8 + 1);
                let wrong: Vec<usize> = (0..30).filter(|page| !right(page)).collect();
                assert_eq!(wrong, [page], "{what}");
            }
        }
    }
}

/// A damaged table with a whole copy: `check` names it, and a repair writes it again.
#[test]
fn a_damaged_table_is_written_again_by_a_repair() {
    for layout in ["log", "slots", "segments"] {
        let scratch = killed(layout, |client| {
            for version in 1..=4 {
                (0..4).for_each(|page| client.write(page * PAGE as u64, &page_of(version), 0));
                flush(client);
            }
        });
        let mut bytes = scratch.bytes("cache");
        let at = newest_table(&bytes);
        bytes[at + 100] ^= 1;
        scratch.file("cache", &bytes);
        let check = |more: &[&str]| scratch.ok(&[&["check"], &BOTH[..], more].concat());
        let named = format!("the table at byte {at} ");
        says(&check(&[]), &[&named, "is damaged; a copy of it says the same"]);
        says(&check(&["--repair"]), &[&format!("repaired: {named}is written again from its copy")]);
        assert!(!check(&[]).contains(&named), "{layout}");
    }
}
