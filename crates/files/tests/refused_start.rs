//! A refused start changes nothing: neither the cache, nor the file map, nor the files, nor what is known of them.
#![cfg(target_os = "linux")]

use entresol_cache::{CacheConfig, Mode};
use entresol_disk::{Caching, FileDisk};
use entresol_files::{Backing, CachedFiles, FileData, FileId, FileLayer, FilesError, Found, HIDDEN, Keep};
use entresol_policy::catalogue;
use entresol_store::{Geometry, Layout, repair};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;

const PAGE: usize = 4096;
const PAGES: usize = 20;
const CACHED: usize = 100;

struct Place {
    directory: tempfile::TempDir,
    layout: Layout,
}

/// Everything that a start could change.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    names: Vec<PathBuf>,
    map: Vec<u8>,
    cache: Vec<u8>,
    file: Vec<u8>,
    times: (i64, i64, i64, i64),
    needs_its_cache: bool,
}

impl Place {
    /// A file of some pages in a closed cache: with every byte in the file, or with dirty pages.
    fn closed(layout: Layout, drained: bool) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let place = Place { directory, layout };
        fs::create_dir(place.backing()).expect("a directory");
        place.format(1);
        let (files, _) = place.start(CACHED, Mode::WriteBack).expect("a cache in order");
        let file = place.open(&files);
        (0..PAGES).for_each(|page| file.write((page * PAGE) as u64, &[page as u8 + 1; PAGE]).expect("a write"));
        file.sync(false).expect("a sync");
        drop(file);
        if drained {
            files.cache().drain().expect("a drain");
        }
        files.close().expect("a close");
        place
    }

    fn backing(&self) -> PathBuf {
        self.directory.path().join("backing")
    }

    fn file(&self) -> PathBuf {
        self.backing().join("file")
    }

    fn device(&self) -> FileDisk {
        FileDisk::create(&self.directory.path().join("cache"), 1 << 20, Caching::Buffered).expect("a file")
    }

    /// Formats the cache; `run` must differ in every format.
    fn format(&self, run: u8) {
        let geometry = Geometry { page_bytes: PAGE as u32, segment_pages: 8, segments: 30, layout: self.layout };
        Backing::format(&self.backing(), &self.device(), geometry, [run; 16], [run; 16]).expect("room");
    }

    fn start(&self, pages: usize, mode: Mode) -> Result<(CachedFiles, Found), FilesError> {
        let config = CacheConfig { mode, ..CacheConfig::new(catalogue::info("lru").expect("a policy"), &[pages]) };
        CachedFiles::open(Backing::open(&self.backing())?, self.device(), &config, Vec::new())
    }

    fn open(&self, files: &CachedFiles) -> Arc<dyn FileData> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(self.file());
        let file = file.expect("a file");
        let found = file.metadata().expect("attributes");
        files.open(FileId { device: found.dev(), inode: found.ino() }, file, true).expect("a file")
    }

    /// The first byte of each page, read through the cache.
    fn read(&self, files: &CachedFiles) -> Vec<u8> {
        let file = self.open(files);
        let mut bytes = vec![0; PAGES * PAGE];
        assert_eq!(file.read(0, &mut bytes).expect("a read"), bytes.len());
        bytes.chunks(PAGE).map(|page| page[0]).collect()
    }

    fn seen(&self) -> Seen {
        let hidden = self.backing().join(HIDDEN);
        let names = fs::read_dir(&hidden).expect("a directory").map(|entry| entry.expect("an entry").path());
        let found = fs::metadata(self.file()).expect("attributes");
        Seen {
            names: names.collect(),
            map: fs::read(hidden.join("map")).expect("a map"),
            cache: fs::read(self.directory.path().join("cache")).expect("a cache"),
            file: fs::read(self.file()).expect("a file"),
            times: (found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()),
            needs_its_cache: Backing::needs_its_cache(&self.backing()).expect("a map"),
        }
    }

    /// Inverts a byte of the cache; a second call restores it.
    fn damage(&self, at: u64) {
        let cache =
            OpenOptions::new().read(true).write(true).open(self.directory.path().join("cache")).expect("a cache");
        let mut byte = [0];
        cache.read_exact_at(&mut byte, at).expect("a byte");
        cache.write_all_at(&[!byte[0]], at).expect("a byte");
    }

    /// Inverts a byte of every table and of every copy in a commit record; a second call restores them.
    fn damage_tables(&self) {
        let cache = self.seen().cache;
        for (at, block) in (0..).step_by(PAGE).zip(cache.chunks_exact(PAGE)) {
            match &block[..8] {
                b"\x89ETBATCH" | b"\x89ETJOURN" => self.damage(at + 100),
                b"\x89ETCOMMI" => self.damage(at + 520),
                _ => {}
            }
        }
    }

    /// Starts in every mode: each start must be refused and change nothing.
    fn is_refused(&self, pages: usize, why: &str) {
        let before = self.seen();
        for mode in [Mode::WriteBack, Mode::WriteThrough, Mode::ReadOnly] {
            let refused = self.start(pages, mode).err().expect("a refusal").to_string();
            assert!(refused.contains(why), "{refused}");
            assert_eq!(self.seen(), before, "{mode:?}");
        }
    }
}

/// Both layouts, with every byte in the files and without.
fn each(test: impl Fn(Place, bool)) {
    for layout in [Layout::Log, Layout::Slots] {
        for drained in [true, false] {
            println!("{layout:?}, drained: {drained}");
            test(Place::closed(layout, drained), drained);
        }
    }
}

#[test]
fn a_damaged_cache_is_left_as_it_is_and_served_once_it_is_whole() {
    each(|place, drained| {
        assert_eq!(place.seen().needs_its_cache, !drained);
        place.damage_tables();
        place.is_refused(CACHED, "damaged");
        place.damage_tables();
        let (files, found) = place.start(CACHED, Mode::WriteBack).expect("a cache in order");
        assert_eq!(found, Found { files: 1, ..Found::default() });
        assert!(files.cache().recovered().clean_shutdown);
        assert_eq!(place.read(&files), (1..=PAGES as u8).collect::<Vec<u8>>());
        files.close().expect("a close");
    });
}

#[test]
fn both_superblocks_gone_are_a_cache_that_is_made_anew() {
    each(|place, drained| {
        place.damage(0);
        place.damage(4096);
        place.is_refused(CACHED, "cache");
        // A format gives up the old cache's dirty pages.
        place.format(2);
        let (files, _) = place.start(CACHED, Mode::WriteBack).expect("a cache in order");
        let expected = |page: u8| if drained { page } else { 0 };
        assert_eq!(place.read(&files), (1..=PAGES as u8).map(expected).collect::<Vec<u8>>());
        files.close().expect("a close");
        drop(files);
        assert!(!Backing::needs_its_cache(&place.backing()).expect("a map"));
    });
}

/// Damage that does not prevent an open: the next start finds the result of a repair.
#[test]
fn after_a_refusal_a_repair_finds_what_there_is_to_repair() {
    each(|place, drained| {
        // Position of the last page.
        let at = place.seen().cache.windows(PAGE).step_by(PAGE).position(|page| page == [PAGES as u8; PAGE]);
        let at = (at.expect("the page in the cache") * PAGE) as u64;
        place.is_refused(CACHED * 100, "does not fit");
        place.damage(at);
        let backing = Backing::open(&place.backing()).expect("a directory");
        let repaired = repair(place.device(), backing.id(), Backing::pages(PAGE as u64)).expect("a store in order");
        drop(backing);
        assert_eq!((repaired.gone.len(), repaired.lost.len()), if drained { (1, 0) } else { (0, 1) });
        let (files, _) = place.start(CACHED, Mode::WriteBack).expect("a cache in order");
        let lost = files.lost_pages().expect("a list");
        assert_eq!(
            lost.iter().map(|(_, byte)| *byte).collect::<Vec<u64>>(),
            match drained {
                true => vec![],
                false => vec![((PAGES - 1) * PAGE) as u64],
            }
        );
        if drained {
            assert_eq!(place.read(&files), (1..=PAGES as u8).collect::<Vec<u8>>());
        }
        files.close().expect("a close");
    });
}

/// A refused start does not forget the stamps of files.
#[test]
fn a_file_that_is_changed_after_a_refused_start_is_known_as_such() {
    for layout in [Layout::Log, Layout::Slots] {
        let place = Place::closed(layout, true);
        place.is_refused(CACHED * 100, "does not fit");
        let file = File::options().write(true).open(place.file()).expect("a file");
        file.write_all_at(&[99; PAGE], 3 * PAGE as u64).expect("a write");
        let (files, found) = place.start(CACHED, Mode::WriteBack).expect("a cache in order");
        assert_eq!(found, Found { files: 1, changed: 1, ..Found::default() });
        let mut expected: Vec<u8> = (1..=PAGES as u8).collect();
        expected[3] = 99;
        assert_eq!(place.read(&files), expected);
        files.close().expect("a close");
    }
}

/// A file that was changed while the cache had dirty pages of it is in conflict from the next start on. This holds in
/// every mode and over any number of starts, until it is decided which bytes count. Until then nothing is written to
/// the file.
#[test]
fn a_changed_file_with_dirty_pages_is_in_conflict_over_starts() {
    for (layout, keep) in [(Layout::Log, Keep::Cache), (Layout::Slots, Keep::Below), (Layout::Slots, Keep::Cache)] {
        let place = Place::closed(layout, false);
        let file = File::options().write(true).open(place.file()).expect("a file");
        file.write_all_at(&[99; PAGE], 3 * PAGE as u64).expect("a write");
        let changed = std::fs::read(place.file()).expect("bytes");
        for mode in [Mode::WriteBack, Mode::WriteThrough, Mode::WriteBack] {
            let (files, found) = place.start(CACHED, mode).expect("a cache in order");
            assert_eq!(found, Found { files: 1, conflicts: 1, ..Found::default() }, "{layout:?} {mode:?}");
            files.cache().drain().expect("a drain");
            let conflicts = files.conflicts().expect("conflicts");
            assert_eq!(conflicts.len(), 1);
            assert!(conflicts[0].pages.is_some_and(|pages| pages > 0), "{conflicts:?}");
            assert!(!files.pairing().record().is_some_and(|record| record.complete) || mode != Mode::WriteBack);
            files.close().expect("a close");
            assert_eq!(std::fs::read(place.file()).expect("bytes"), changed, "{layout:?} {mode:?}");
        }
        let (files, _) = place.start(CACHED, Mode::WriteBack).expect("a cache in order");
        let conflict = files.conflicts().expect("conflicts").remove(0);
        assert_eq!(files.resolve(&conflict.path, keep).ok(), conflict.pages);
        assert!(files.conflicts().expect("conflicts").is_empty());
        let mut expected: Vec<u8> = (1..=PAGES as u8).collect();
        if keep == Keep::Below {
            expected = changed.chunks(PAGE).map(|page| page[0]).collect();
        }
        assert_eq!(place.read(&files), expected, "{layout:?} {keep:?}");
        files.cache().drain().expect("a drain");
        files.close().expect("a close");
        drop(files);
        let (files, found) = place.start(CACHED, Mode::WriteBack).expect("a cache in order");
        assert_eq!(found, Found { files: 1, ..Found::default() }, "{layout:?} {keep:?}");
        assert_eq!(place.read(&files), expected, "{layout:?} {keep:?}");
        files.close().expect("a close");
    }
}
