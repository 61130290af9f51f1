//! A damaged table, or block of the journal, with a whole copy. A repair writes it again, so that later damage of
//! the copy loses nothing.

use crate::small::{ID, PAGES, formatted, open};
use entresol_cache::Block;
use entresol_crashtest::SimDisk;
use entresol_store::{Layout, repair};

/// A closed cache with small and large batches of two runs, all dirty.
fn closed(layout: Layout, page_bytes: u32) -> [SimDisk; 2] {
    let page = u64::from(page_bytes);
    let disks = formatted(layout, page_bytes);
    for run in 0..2 {
        let cache = open(&disks).expect("a cache in order");
        for flush in 0..6 {
            // A batch of 24 pages of 512 bytes has its table once more at its end.
            let (first, pages) = if flush == 3 { (20, 24) } else { (8 * flush, 3) };
            for at in first..first + pages {
                cache.write(at * page, &vec![version(run, at); page as usize], false).expect("a write");
            }
            cache.flush().expect("a flush");
        }
        cache.close().expect("a close");
    }
    disks
}

fn version(run: u64, page: u64) -> u8 {
    (1 + 100 * run + page) as u8
}

/// Offsets in bytes of the tables that begin a batch or are blocks of the journal.
fn tables(disk: &SimDisk, page_bytes: u64) -> Vec<u64> {
    let mut place = None;
    // A copy at the end of a batch has the same log address.
    let mut begins = |block: &[u8]| place.replace(block[32..40].to_vec()).is_none_or(|before| before != block[32..40]);
    let all = crate::small::tables(disk, page_bytes as usize).into_iter();
    all.filter(|(_, block)| begins(block)).map(|(at, _)| at).collect()
}

/// First bytes of all pages; none where reading the page is an error.
fn read(disks: &[SimDisk; 2], page_bytes: u64) -> Result<Vec<Option<u8>>, String> {
    let cache = open(disks)?;
    let mut bytes = vec![0; page_bytes as usize];
    Ok((0..PAGES).map(|page| cache.read(page * page_bytes, &mut bytes).ok().map(|()| bytes[0])).collect())
}

#[test]
fn a_table_that_its_copy_replaced_is_written_again_by_a_repair() {
    let mut written_again = 0;
    for layout in [Layout::Log, Layout::Slots] {
        for page_bytes in [512, 4096] {
            let page = u64::from(page_bytes);
            let sound = closed(layout, page_bytes);
            let right = read(&sound, page).expect("a cache in order");
            let sound = closed(layout, page_bytes);
            let all = tables(&sound[0], page);
            assert!(all.len() >= 10, "{layout:?}: {} tables", all.len());
            for (number, &table) in all.iter().enumerate() {
                let what = format!("{layout:?}, pages of {page_bytes} bytes, the table at byte {table}");
                let disks = closed(layout, page_bytes);
                disks[0].flip(table + 40, 3);
                let repaired = repair(disks[0].clone(), ID, PAGES);
                let repaired = repaired.unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_eq!(
                    (&repaired.tables, &repaired.gone, &repaired.lost),
                    (&vec![table], &vec![], &vec![]),
                    "{what}"
                );
                let again = repair(disks[0].clone(), ID, PAGES).expect("a cache in order");
                assert_eq!(again.tables, Vec::<u64>::new(), "{what}: it is whole now");
                // The block with the copy is damaged now, which would have been fatal before.
                if let Some(&next) = all.get(number + 1) {
                    disks[0].flip(next + 40, 3);
                }
                assert_eq!(read(&disks, page).as_ref(), Ok(&right), "{what}");
                written_again += 1;
            }
        }
    }
    println!("{written_again} tables");
}

#[test]
fn a_table_and_its_copy_that_are_both_damaged_are_named() {
    for layout in [Layout::Log, Layout::Slots] {
        let disks = closed(layout, 4096);
        let all = tables(&disks[0], 4096);
        all[4..6].iter().for_each(|table| disks[0].flip(table + 40, 3));
        let why = open(&disks).err().expect("what it said cannot be told");
        assert!(why.contains(&format!("byte {} ", all[4])), "{why}");
    }
}
