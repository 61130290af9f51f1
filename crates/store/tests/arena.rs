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
