//! A backing file that is written without its cache between two starts: the next start serves what was written, and writes
//! nothing over it.

use entresol_cache::{Block, BlockCache, CacheConfig, Mode, Objects};
use entresol_disk::{Caching, FileDisk};
use entresol_files::record::{
    Changed, LastWrite, Mark, Mismatch, PairError, Record, RecordPlace, Seen, StorePair, place_of,
};
use entresol_policy::catalogue;
use entresol_store::{Geometry, Layout};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

const PAGE: u64 = 4096;
const PAGES: u64 = 64;
const UUID: [u8; 16] = [1; 16];
const BACKING: [u8; 16] = [5; 16];
const LAYOUTS: [Layout; 3] = [Layout::Log, Layout::Slots, Layout::Segments];
/// Longer than the grace after a mark.
const LATER: Duration = Duration::from_secs(5);

struct Testbed {
    scratch: tempfile::TempDir,
    layout: Layout,
}

impl Testbed {
    fn formatted(layout: Layout) -> Self {
        let testbed = Testbed { scratch: tempfile::tempdir().expect("a directory"), layout };
        let geometry = Geometry { page_bytes: PAGE as u32, segment_pages: 16, segments: 40, layout };
        let cache = FileDisk::create(&testbed.path("cache"), geometry.size_bytes(), Caching::Buffered).expect("room");
        let backing = FileDisk::create(&testbed.path("backing"), PAGES * PAGE, Caching::Buffered).expect("room");
        let record = Record::first(UUID, None, None);
        BlockCache::format_of(&cache, geometry, &backing, UUID, BACKING, record.generation).expect("a cache");
        testbed.place().write(&record).expect("a record");
        testbed
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn place(&self) -> Arc<dyn RecordPlace> {
        place_of(&self.path("backing"), BACKING).expect("a place")
    }

    fn start_or(&self, mode: Mode, overruled: bool) -> Result<StorePair, PairError> {
        let disk = |name| FileDisk::open(&self.path(name), Caching::Buffered).expect("nobody uses it");
        let config = CacheConfig { mode, ..CacheConfig::new(catalogue::info("lru").expect("a policy"), &[100]) };
        let last_write = LastWrite::of(self.place());
        let below = last_write.over(disk("backing"));
        let opening = BlockCache::find(disk("cache"), below, BACKING, &config, Objects::new(1)).expect("its cache");
        StorePair::start(opening, last_write, overruled)
    }

    fn start(&self, mode: Mode) -> StorePair {
        self.start_or(mode, false).unwrap_or_else(|why| panic!("{:?}: {why}", self.layout))
    }

    /// A cache that holds the first half of the pages, each with the byte 1.
    fn filled(&self, mode: Mode) -> StorePair {
        let pair = self.start(mode);
        write(&pair, 0..PAGES / 2, 1);
        pair.cache().flush().expect("flushed");
        (0..PAGES / 2).for_each(|page| assert_eq!(read(&pair, page), 1));
        pair
    }

    /// A cache whose pages 20 and 21 are dirty and flushed, with the byte 2, left by a close or else by a kill.
    fn left_dirty(layout: Layout, is_closed: bool) -> Self {
        let testbed = Testbed::formatted(layout);
        let pair = testbed.filled(Mode::WriteBack);
        pair.cache().drain().expect("drained");
        write(&pair, 20..22, 2);
        pair.cache().flush().expect("flushed");
        if is_closed {
            pair.close().expect("closed");
        }
        drop(pair);
        testbed
    }

    fn file(&self) -> File {
        OpenOptions::new().write(true).open(self.path("backing")).expect("a file")
    }

    /// Somebody else writes a page of the file, a while after now.
    fn written_by_others(&self, page: u64, byte: u8, after: Duration) {
        self.file().write_all_at(&[byte; PAGE as usize], page * PAGE).expect("written");
        self.file().set_modified(SystemTime::now() + after).expect("a time");
    }

    /// A page of the file, which has the same byte everywhere.
    fn below(&self, page: u64) -> u8 {
        let mut bytes = [0; PAGE as usize];
        File::open(self.path("backing")).and_then(|file| file.read_exact_at(&mut bytes, page * PAGE)).expect("a page");
        assert!(bytes.iter().all(|&byte| byte == bytes[0]), "page {page}");
        bytes[0]
    }
}

fn close(pair: StorePair) {
    pair.close().expect("closed");
}

fn write(pair: &StorePair, pages: std::ops::Range<u64>, byte: u8) {
    for page in pages {
        pair.cache().write(page * PAGE, &[byte; PAGE as usize], false).expect("a write");
    }
}

fn read(pair: &StorePair, page: u64) -> u8 {
    let mut bytes = [0; PAGE as usize];
    pair.cache().read(page * PAGE, &mut bytes).expect("a read");
    assert!(bytes.iter().all(|&byte| byte == bytes[0]), "page {page}");
    bytes[0]
}

fn hits(pair: &StorePair) -> u64 {
    pair.cache().stats().expect("counts").counts.read_hits
}

#[test]
fn a_file_that_nobody_else_wrote_keeps_its_cache_after_a_close_and_after_a_kill() {
    for layout in LAYOUTS {
        for mode in [Mode::WriteThrough, Mode::WriteBack] {
            let testbed = Testbed::formatted(layout);
            close(testbed.filled(mode));
            let pair = testbed.start(mode);
            assert_eq!((pair.changed(), read(&pair, 3), hits(&pair)), (None, 1, 1), "{layout:?} {mode:?}");
            // A kill: writes of the cache came below, and one is not flushed.
            write(&pair, 5..9, 2);
            pair.cache().drain().expect("drained");
            write(&pair, 7..9, 3);
            drop(pair);
            let pair = testbed.start(mode);
            assert_eq!((pair.changed(), read(&pair, 5), hits(&pair)), (None, 2, 1), "{layout:?} {mode:?}");
            // Killed again, with nothing written.
            drop(pair);
            assert_eq!(testbed.start(mode).changed(), None, "{layout:?} {mode:?}");
        }
    }
}

#[test]
fn a_file_that_was_written_while_its_cache_was_closed_is_served_as_it_is() {
    for layout in LAYOUTS {
        for mode in [Mode::WriteThrough, Mode::WriteAround, Mode::WriteBack] {
            let testbed = Testbed::formatted(layout);
            let pair = testbed.filled(mode);
            pair.cache().drain().expect("drained");
            (0..PAGES / 2).for_each(|page| assert_eq!(read(&pair, page), 1));
            close(pair);
            testbed.written_by_others(3, 9, Duration::ZERO);
            let pair = testbed.start(mode);
            let Changed { dropped, dropped_dirty, kept_dirty } = pair.changed().expect("the file was written");
            assert!(dropped > 0, "{layout:?} {mode:?}");
            assert_eq!((dropped_dirty, kept_dirty), (0, 0), "{layout:?} {mode:?}");
            assert_eq!((read(&pair, 3), read(&pair, 4), hits(&pair)), (9, 1, 0), "{layout:?} {mode:?}");
            drop(pair);
            // A kill does not bring back what was forgotten, and a start forgets once.
            let pair = testbed.start(mode);
            assert_eq!((pair.changed(), read(&pair, 3)), (None, 9), "{layout:?} {mode:?}");
            close(pair);
            assert_eq!(testbed.start(mode).changed(), None, "{layout:?} {mode:?}");
        }
    }
}

#[test]
fn a_file_that_was_written_after_a_kill_is_served_as_it_is_and_nothing_is_written_over_it() {
    for layout in LAYOUTS {
        let testbed = Testbed::formatted(layout);
        let pair = testbed.filled(Mode::WriteThrough);
        // Answered and not flushed: the file is complete without it.
        write(&pair, 10..12, 2);
        drop(pair);
        testbed.written_by_others(10, 9, LATER);
        let pair = testbed.start(Mode::WriteThrough);
        let changed = pair.changed().expect("the file was written");
        assert!(changed.dropped > 0 && changed.kept_dirty == 0, "{layout:?}: {changed:?}");
        assert_eq!((read(&pair, 10), testbed.below(10)), (9, 9), "{layout:?}");
        close(pair);
        assert_eq!(testbed.below(10), 9, "{layout:?}");
    }
}

#[test]
fn dirty_pages_of_a_file_that_was_written_are_neither_written_nor_lost_unless_a_user_says_so() {
    for (layout, is_closed) in LAYOUTS.into_iter().flat_map(|layout| [(layout, false), (layout, true)]) {
        let testbed = Testbed::left_dirty(layout, is_closed);
        testbed.written_by_others(3, 9, LATER);
        for mode in [Mode::WriteBack, Mode::WriteThrough] {
            match testbed.start_or(mode, false) {
                Err(PairError::Mismatch(Mismatch::Written(2))) => {}
                other => panic!("{layout:?}: {:?}", other.map(|_| "it starts")),
            }
        }
        assert_eq!((testbed.below(20), testbed.below(3)), (1, 9), "{layout:?}");
        let pair = testbed.start_or(Mode::WriteBack, true).expect("accepted");
        let changed = pair.changed().expect("the file was written");
        assert_eq!((changed.dropped_dirty, changed.kept_dirty), (0, 2), "{layout:?}");
        assert_eq!((read(&pair, 3), read(&pair, 20), read(&pair, 21)), (9, 2, 2), "{layout:?}");
        pair.cache().drain().expect("drained");
        close(pair);
        assert_eq!((testbed.below(3), testbed.below(20)), (9, 2), "{layout:?}");
        assert_eq!(testbed.start(Mode::WriteBack).changed(), None, "{layout:?}");
    }
}

#[test]
fn a_file_that_was_made_longer_or_restored_with_an_older_time_was_written() {
    let testbed = Testbed::formatted(Layout::Slots);
    close(testbed.filled(Mode::WriteThrough));
    let before = testbed.file().metadata().and_then(|found| found.modified()).expect("a time");
    testbed.file().set_len((PAGES + 8) * PAGE).expect("longer");
    testbed.file().set_modified(before).expect("a time");
    let pair = testbed.start(Mode::WriteThrough);
    assert!(pair.changed().is_some());
    read(&pair, 3);
    close(pair);
    testbed.file().set_modified(before - Duration::from_secs(1000)).expect("a time");
    assert!(testbed.start(Mode::WriteThrough).changed().is_some());
}

/// `truncate` or `qemu-img resize` of an image whose cache has dirty pages.
#[test]
fn a_file_that_was_made_longer_keeps_the_dirty_pages_of_its_cache() {
    for (layout, is_closed) in LAYOUTS.into_iter().flat_map(|layout| [(layout, false), (layout, true)]) {
        let testbed = Testbed::left_dirty(layout, is_closed);
        testbed.file().set_len((PAGES + 8) * PAGE).expect("longer");
        testbed.file().set_modified(SystemTime::now() + LATER).expect("a time");
        let pair = testbed.start(Mode::WriteBack);
        let changed = pair.changed().expect("the file was changed");
        assert!(
            changed.dropped > 0 && changed.dropped_dirty == 0 && changed.kept_dirty == 2,
            "{layout:?}: {changed:?}"
        );
        assert_eq!((read(&pair, 3), read(&pair, 20), read(&pair, PAGES + 7)), (1, 2, 0), "{layout:?}");
        close(pair);
        assert_eq!(testbed.start(Mode::WriteBack).changed(), None, "{layout:?}");
    }
}

#[test]
fn a_mark_that_an_earlier_release_has_left_behind_says_nothing() {
    let testbed = Testbed::formatted(Layout::Slots);
    close(testbed.filled(Mode::WriteThrough));
    let place = testbed.place();
    let number = place.read().expect("a record").expect("a record").generation.number;
    let wrong = Mark::Closed(Seen::File { bytes: 1, modified: 1 });
    for (behind, is_told) in [(2, false), (1, true), (0, true)] {
        place.mark().expect("a place").set_mark(&wrong.encode(number - behind)).expect("set");
        let last_write = LastWrite::of(testbed.place());
        let disk = |name| FileDisk::open(&testbed.path(name), Caching::Buffered).expect("nobody uses it");
        let config = CacheConfig::new(catalogue::info("lru").expect("a policy"), &[100]);
        let opening = BlockCache::find(disk("cache"), disk("backing"), BACKING, &config, Objects::new(1));
        let record = testbed.place().read().expect("a record");
        let found =
            last_write.compare(&mut opening.expect("its cache"), record.as_ref(), false).expect("no dirty pages");
        assert_eq!(found.is_some(), is_told, "{behind}");
    }
}
