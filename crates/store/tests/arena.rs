//! The arena as the next process finds it, whole or not.

#![cfg(target_os = "linux")]

use entresol_core::Random;
use entresol_store::arena::{Arena, ArenaError};
use std::fs::File;
use std::os::unix::fs::FileExt;

const PAGE_BYTES: usize = 512;
const BLOCKS: usize = 8;

/// The file of an arena, which outlives it.
fn file_of(arena: &Arena) -> File {
    arena.file().try_clone_to_owned().expect("a descriptor").into()
}

#[test]
fn the_newest_version_of_each_page_is_found_again() {
    let arena = Arena::anonymous(PAGE_BYTES, BLOCKS).expect("memory");
    let page = |page: u64, byte: u8| arena.page(page, &[byte; PAGE_BYTES]);
    // More than one piece of slots; some are given up, one is replaced, one is changed below.
    let mut kept: Vec<_> = (0..20).map(|number| page(number, number as u8)).collect();
    kept.extend([page(3, 103), arena.void(4)]);
    drop(kept.remove(7));
    kept[8].settle();
    let left = Arena::open(file_of(&arena)).expect("an arena").survivors().expect("it is whole");
    let byte = |page: u64| if page == 3 { 103 } else { page as u8 };
    let expected: Vec<(u64, [u8; PAGE_BYTES])> =
        (0..20).filter(|page| ![4, 7, 9].contains(page)).map(|page| (page, [byte(page); PAGE_BYTES])).collect();
    let found: Vec<(u64, [u8; PAGE_BYTES])> =
        left.pages().into_iter().map(|(page, bytes)| (page, bytes.try_into().expect("a page"))).collect();
    assert_eq!(found, expected);
    assert_eq!(left.voids(), [4]);
}

#[test]
fn what_a_file_that_cannot_grow_does_not_have_is_said_as_long_as_it_is_needed() {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
    let file = memfd_create("sealed", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("memory");
    let arena = Arena::create(file.into(), PAGE_BYTES, BLOCKS).expect("memory");
    let page = |page: u64| arena.page(page, &[page as u8; PAGE_BYTES]);
    let mut pages: Vec<_> = (0..BLOCKS as u64).map(page).collect();
    fcntl_add_seals(arena.file(), SealFlags::GROW).expect("a seal");
    assert!(!arena.is_incomplete(), "the first piece is there");
    pages.push(page(8));
    let void = arena.void(9);
    assert_eq!((pages[8].bytes(), arena.is_incomplete()), (&[8; PAGE_BYTES][..], true));
    let next = Arena::open(file_of(&arena)).expect("an arena");
    assert!(next.was_incomplete() && next.is_incomplete());
    assert_eq!(next.survivors().expect("the rest is whole").pages().len(), BLOCKS);
    drop(void);
    assert!(arena.is_incomplete(), "a page is left");
    pages.pop();
    assert!(!arena.is_incomplete());
    // The place of a page that is no longer needed is used again.
    pages.pop();
    pages.push(page(10));
    assert!(!arena.is_incomplete() && !Arena::open(file_of(&arena)).expect("an arena").was_incomplete());
    let missing = arena.void(11);
    let next = Arena::open(file_of(&arena)).expect("an arena");
    std::mem::forget(missing);
    next.forgive_missed();
    assert!(next.was_incomplete() && !next.is_incomplete(), "it was repeated, and is durable");
}

#[test]
fn processes_killed_at_their_start_one_after_the_other_leave_an_arena_that_is_believed() {
    let (arena, uuid) = (Arena::anonymous(PAGE_BYTES, BLOCKS).expect("memory"), [7; 16]);
    let next = || Arena::open(file_of(&arena)).expect("an arena");
    arena.begin_epoch(uuid, 5);
    assert!(next().is_of(uuid, 4) && next().is_of(uuid, 5), "whether the device has the epoch or not");
    // It has; the process was killed before it noted so, and so is the next one, before the device has its epoch.
    next().begin_epoch(uuid, 6);
    assert!(next().is_of(uuid, 5) && next().is_of(uuid, 6) && !next().is_of(uuid, 4) && !next().is_of([8; 16], 5));
    next().begin_epoch(uuid, 6);
    next().end_epoch();
    assert!(next().is_of(uuid, 6) && !next().is_of(uuid, 5) && !next().is_of(uuid, 7));
}

#[test]
fn a_failed_sync_is_known_to_the_next_process_until_it_was_reported() {
    let arena = Arena::anonymous(PAGE_BYTES, BLOCKS).expect("memory");
    let next = || {
        let next = Arena::open(file_of(&arena)).expect("an arena");
        next.inherit_sync();
        next.failures()
    };
    arena.begin_sync();
    assert_eq!(next(), 0, "nothing was changed that could not be repeated");
    arena.end_sync(true);
    arena.note_change();
    assert_eq!(next(), 0);
    arena.begin_sync();
    arena.end_sync(true);
    assert_eq!(next(), 0);
    arena.note_change();
    arena.begin_sync();
    arena.note_failure();
    arena.end_sync(false);
    assert_eq!(next(), 1);
    arena.failures_reported();
    assert_eq!(next(), 0);
    arena.begin_sync();
    assert_eq!((next(), next()), (1, 1), "nobody knows how it ended, and once is enough");
}

#[test]
fn a_doubtful_sync_is_settled_by_one_sync_that_tells_once() {
    let asked = std::cell::Cell::new(0);
    let settle = |arena: &Arena, is_lost: bool| {
        asked.set(0);
        arena.settle_syncs(|| {
            asked.set(asked.get() + 1);
            if is_lost { Err(std::io::Error::other("lost")) } else { Ok(()) }
        });
        asked.get()
    };
    for is_known in [true, false] {
        let arena = Arena::anonymous(PAGE_BYTES, BLOCKS).expect("memory");
        let next = || Arena::open(file_of(&arena)).expect("an arena");
        assert_eq!(settle(&arena, false), 0, "there is nothing to settle");
        let fail = || {
            arena.note_change();
            arena.begin_sync();
            if is_known {
                arena.note_failure();
                arena.end_sync(false);
            }
        };
        fail();
        let second = next();
        assert_eq!(settle(&second, false), 1);
        second.inherit_sync();
        assert_eq!((second.failures(), settle(&next(), false)), (0, 0), "nothing was lost");
        fail();
        let second = next();
        assert_eq!(settle(&second, true), 1);
        // Killed before a flush has reported it, perhaps before it knew.
        assert_eq!(settle(&next(), false), 0, "the sync tells once");
        second.inherit_sync();
        assert_eq!((second.failures(), next().failures()), (1, 1));
        second.failures_reported();
        assert_eq!(settle(&next(), false), 0, "it was reported");
        assert_eq!(next().failures(), 0);
        // The process is killed in the middle of it.
        fail();
        let killed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            next().settle_syncs(|| std::panic::resume_unwind(Box::new("killed")));
        }));
        assert!(killed.is_err());
        assert_eq!(settle(&next(), false), 0, "whether it had told then nobody knows");
        let third = next();
        third.inherit_sync();
        assert_eq!(third.failures(), 1);
    }
}

#[test]
fn any_contents_are_an_arena_or_an_error() {
    let arena = Arena::anonymous(PAGE_BYTES, BLOCKS).expect("memory");
    let _kept: Vec<_> = (0..20).map(|page| arena.page(page, &[page as u8; PAGE_BYTES])).collect();
    let _void = arena.void(30);
    let mut whole = vec![0; file_of(&arena).metadata().expect("a file").len() as usize];
    file_of(&arena).read_exact_at(&mut whole, 0).expect("a file");
    let (mut random, mut usable) = (Random::new(11), 0);
    for _ in 0..2000 {
        let mut bytes = whole.clone();
        for _ in 0..1 + random.below(6) {
            // Mostly a word of the header or of a piece's head.
            let head = random.below(16) + 512 * random.below(bytes.len() as u64 / 4096);
            let word = if random.chance(0.7) { head } else { random.below(bytes.len() as u64 / 8) };
            let value = match random.below(4) {
                0 => random.next_u64(),
                1 => u64::MAX - random.below(3),
                _ => random.below(40),
            };
            bytes[8 * word as usize..][..8].copy_from_slice(&value.to_le_bytes());
        }
        if random.chance(0.2) {
            bytes.truncate(random.below(bytes.len() as u64) as usize);
        }
        let other = Arena::anonymous(PAGE_BYTES, BLOCKS).expect("memory");
        let file = file_of(&other);
        file.set_len(bytes.len() as u64).and_then(|()| file.write_all_at(&bytes, 0)).expect("a file in memory");
        match Arena::open(file).and_then(|arena| arena.survivors()) {
            Ok(left) => usable += left.pages().len() + left.voids().len(),
            Err(ArenaError::Unusable(_)) => {}
            Err(ArenaError::Io(error)) => panic!("{error}"),
        }
    }
    assert!(usable > 0, "some of them are whole enough");
}
