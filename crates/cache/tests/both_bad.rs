//! A table, or block of the journal, damaged together with its copy. Its contents are lost and reported; all else
//! can be read.

use crate::small::{ID, PAGES, formatted, open, tables};
use entresol_cache::Block;
use entresol_core::Random;
use entresol_crashtest::SimDisk;
use entresol_store::{Doubtful, Layout, repair, repair_past};

/// A cache closed after some flushes, and the last version of each page.
fn closed(layout: Layout, page_bytes: u32, seed: u64) -> ([SimDisk; 2], Vec<u8>) {
    let page = u64::from(page_bytes);
    let disks = formatted(layout, page_bytes);
    let (mut random, mut versions) = (Random::new(seed), vec![0; PAGES as usize]);
    let cache = open(&disks).expect("a cache in order");
    for flush in 1..=8 {
        let first = random.below(PAGES);
        // With more than fifteen pages of 512 bytes, the table is repeated at the end of its batch.
        for at in first..(first + 1 + random.below(26)).min(PAGES) {
            cache.write(at * page, &vec![flush; page as usize], false).expect("a write");
            versions[at as usize] = flush;
        }
        cache.flush().expect("a flush");
        if random.chance(0.2) {
            cache.drain().expect("a drain");
        }
    }
    cache.close().expect("a close");
    (disks, versions)
}

#[test]
fn what_a_table_said_that_is_gone_with_its_copy_is_told_and_all_else_can_be_had() {
    let (mut holes, mut right, mut listed, mut unknown) = (0, 0, 0, 0);
    for seed in 0..40 {
        for layout in [Layout::Log, Layout::Slots] {
            let page_bytes = [512, 1024][(seed % 2) as usize];
            let (disks, versions) = closed(layout, page_bytes, seed);
            let all: Vec<u64> = tables(&disks[0], page_bytes as usize).into_iter().map(|(at, _)| at).collect();
            let first = (seed as usize / 2) % (all.len() - 1);
            let doubtful = [Doubtful::Keep, Doubtful::Lose][(seed / 20) as usize];
            let what = format!("seed {seed}, {layout:?}, {doubtful:?}, tables at {:?}", &all[first..first + 2]);
            all[first..first + 2].iter().for_each(|table| disks[0].flip(table + 40, 3));
            if open(&disks).is_ok() {
                // A third copy has the contents, or neither block counts any more.
                continue;
            }
            assert!(repair(disks[0].clone(), ID, PAGES).is_err(), "{what}: nothing is guessed unasked");
            let repaired = repair_past(disks[0].clone(), ID, PAGES, doubtful);
            let repaired = repaired.unwrap_or_else(|error| panic!("{what}: {error}"));
            holes += repaired.unknown.len();
            let at_most: u64 = repaired.unknown.iter().map(|(_, pages)| pages).sum();
            let cache = open(&disks).unwrap_or_else(|why| panic!("{what}: {why}"));
            let mut wrong = 0;
            let mut bytes = vec![0; page_bytes as usize];
            for (page, &version) in (0..).zip(&versions) {
                match cache.read(page * u64::from(page_bytes), &mut bytes) {
                    Ok(()) if bytes[0] == version => right += 1,
                    Ok(()) if repaired.doubtful.contains(&page) && doubtful == Doubtful::Keep => listed += 1,
                    Ok(()) => wrong += 1,
                    Err(_) => {
                        assert!(repaired.doubtful.contains(&page), "{what}: page {page} is an error and not listed");
                        listed += 1;
                    }
                }
            }
            assert!(
                wrong <= at_most,
                "{what}: {wrong} pages are not what was written last, and {at_most} were told of"
            );
            unknown += wrong;
            drop(cache);
            let again = repair(disks[0].clone(), ID, PAGES).unwrap_or_else(|error| panic!("{what}: again: {error}"));
            assert!(again.unknown.is_empty(), "{what}");
        }
    }
    println!("{holes} tables gone; pages: {right} right, {listed} listed, {unknown} lost unlisted");
    assert!(holes > 40 && right > 1000, "{holes} tables gone, {right} pages right");
}
