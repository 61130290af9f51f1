//! Kills of the process alone at each moment of short sequences: what the next process knows of changes of the files by
//! other programs, and of the files' times.

use super::LAYOUTS;
use super::history::kill::{Device, Kept, Left, Watch};
use super::setup::Setup;
use crate::below::simulated::{Call, SimFile, SimFileSystem, id};
use crate::below::{File, FileSystem, OpenFile};
use crate::cached::{Backing, CachedFiles, Found};
use crate::record::GRACE_NS;
use crate::{FileData, FileLayer as _};
use entresol_cache::Mode;
use entresol_crashtest::{Power, SimDisk};
use entresol_store::Layout;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

/// The tests, which find mutants too.
pub(super) const SEQUENCES: [fn(); 8] = [
    nothing_cached_before_a_crash_hides_what_somebody_wrote_to_complete_files_since,
    a_hole_under_way_brings_back_no_older_page_after_a_kill_at_any_moment,
    a_file_that_was_cut_shows_nothing_of_before_after_a_kill_at_any_moment,
    what_a_killed_process_did_not_sync_is_synced_by_the_next_one,
    a_file_that_a_crash_may_take_away_is_known_as_such_after_a_kill,
    a_change_by_somebody_else_is_found_after_a_kill_at_any_moment,
    a_write_back_leaves_the_time_of_modification_though_the_process_is_killed_at_any_moment_of_it,
    a_write_is_in_the_time_of_modification_after_a_kill_at_any_later_moment,
];

/// Pages of the file.
const PAGES: usize = 6;

/// A directory with one file behind a cache.
struct Scene {
    setup: Setup,
    cache: SimDisk,
    below: SimFileSystem,
    kept: Kept,
}

impl Scene {
    fn new(seed: u64, layout: Layout) -> Self {
        Self::in_mode(seed, layout, Mode::WriteBack)
    }

    fn in_mode(seed: u64, layout: Layout, mode: Mode) -> Self {
        let setup = Setup { mode, faults: false, ..Setup::random(seed, layout) };
        let power = Power::steady();
        let cache = SimDisk::new(setup.geometry.size_bytes(), &power);
        let below = SimFileSystem::new(seed, setup.ordered, &power);
        below.directory(Path::new("/")).create("f").expect("a file");
        let system = FileSystem::Simulated(below.clone());
        Backing::format_in(&system, Path::new("/"), &cache, setup.geometry, [1; 16], [9; 16], None).expect("room");
        let kept = Kept::new(setup.geometry);
        Scene { setup, cache, below, kept }
    }

    /// The scene that a killed process leaves.
    fn of(setup: Setup, Left { cache, below, kept, .. }: Left) -> Self {
        Scene { setup, cache, below, kept }
    }

    fn open(&self) -> (CachedFiles, Found) {
        self.open_with(&[])
    }

    fn open_with(&self, held: &[SimFile]) -> (CachedFiles, Found) {
        let backing = Backing::open_in(FileSystem::Simulated(self.below.clone()), Path::new("/")).expect("a map");
        let mut config = self.setup.config();
        config.arena = Some(self.kept.arena.clone());
        let held = held.iter().map(|file| File::Simulated(file.again())).collect();
        let backing = backing.keeping(self.kept.states.clone()).with_open_files(held);
        CachedFiles::open(backing, Device(self.cache.clone()), &config, Vec::new()).expect("a cache in good order")
    }

    /// Opens what a crash left, without memory that outlived it.
    fn open_alone(&self) -> (CachedFiles, Found) {
        let backing = Backing::open_in(FileSystem::Simulated(self.below.clone()), Path::new("/")).expect("a map");
        let cache = Device(self.cache.clone());
        CachedFiles::open(backing, cache, &self.setup.config(), Vec::new()).expect("a cache in good order")
    }

    fn below_it(&self) -> SimFile {
        self.below.directory(Path::new("/")).open("f").expect("the file")
    }

    fn file(&self, files: &CachedFiles) -> Arc<dyn FileData> {
        Self::opened(files, self.below_it())
    }

    fn opened(files: &CachedFiles, file: SimFile) -> Arc<dyn FileData> {
        let id = OpenFile::found(&file).expect("attributes").id;
        files.open_file(id, File::Simulated(file), true).expect("a handle")
    }

    fn modified(&self) -> (i64, i64) {
        OpenFile::attributes(&self.below_it()).expect("attributes").modified
    }

    fn page(&self, fill: u8) -> Vec<u8> {
        vec![fill; self.setup.geometry.page_bytes as usize]
    }

    fn write(&self, file: &Arc<dyn FileData>, fill: u8) {
        let bytes = self.page(fill).repeat(PAGES);
        file.write(0, &bytes).expect("a write");
    }

    /// The scene that a kill leaves now, with the files of these numbers held by somebody else.
    fn killed(&self, files: CachedFiles, held: &[u64]) -> (Self, Vec<SimFile>) {
        let holder = held.iter().map(|&inode| (inode, false)).collect();
        let left = Left::of(&self.cache, &self.below, &self.kept, &holder);
        drop(files);
        let (below, held) = left.below.fork(held);
        (Scene { below, ..Scene::of(self.setup.clone(), left) }, held)
    }

    fn regions(files: &CachedFiles) -> usize {
        files.shared.map().contents().regions.len()
    }

    fn left(&self) -> impl Fn() -> Left + use<> {
        let (cache, below, kept) = (self.cache.clone(), self.below.clone(), self.kept.clone());
        move || Left::of(&cache, &below, &kept, &BTreeMap::new())
    }
}

/// Writes a file in front of caches of many kinds, settles its times, and writes it once more if `again`. Runs `act`,
/// kills the process at each moment of it, and checks what is left with the time that was settled.
fn at_each_moment(again: bool, act: impl Fn(&Scene, &CachedFiles), check: impl Fn(&Scene, (i64, i64))) {
    let mut moments = 0;
    for (layout, seed) in LAYOUTS.into_iter().flat_map(|layout| (0..6).map(move |at| (layout, at))) {
        for moment in 1.. {
            let scene = Scene::new(seed, layout);
            let (files, _) = scene.open();
            let file = scene.file(&files);
            scene.write(&file, 1);
            file.settle().expect("a time");
            let before = scene.modified();
            if again {
                scene.write(&file, 2);
            }
            let watch = Watch::begin(moment, scene.left());
            act(&scene, &files);
            let Some(left) = watch.end() else { break };
            drop((file, files));
            check(&Scene::of(scene.setup, left), before);
            moments += 1;
        }
    }
    println!("{moments} moments");
    assert!(moments > 100, "{moments}");
}

#[test]
fn a_change_by_somebody_else_is_found_after_a_kill_at_any_moment() {
    let drain = |_: &Scene, files: &CachedFiles| files.cache().drain().expect("the files can be written");
    at_each_moment(false, drain, |left, _| {
        let file = left.below_it();
        let size = OpenFile::found(&file).expect("attributes").size;
        file.write_all_at(size, &[7; 100]).expect("a write");
        let (files, found) = left.open();
        assert_eq!(found.changed + found.conflicts, 1, "{found:?}");
        drop(files);
    });
    // Of a file with pages that the arena alone has.
    let scene = Scene::new(1, Layout::Log);
    let (files, _) = scene.open();
    scene.write(&scene.file(&files), 1);
    let (scene, _) = scene.killed(files, &[]);
    scene.below_it().write_all_at(0, &[7; 100]).expect("a write");
    let (files, found) = scene.open();
    assert_eq!((found.changed, found.conflicts), (0, 1), "{found:?}");
    drop(files);
    // Between two requests, without another size.
    let scene = Scene::new(1, Layout::Log);
    let (files, _) = scene.open();
    scene.write(&scene.file(&files), 1);
    drain(&scene, &files);
    let left = scene.left()();
    drop(files);
    let left = Scene::of(scene.setup, left);
    left.below_it().write_all_at(0, &[7; 100]).expect("a write");
    let (files, found) = left.open();
    assert_eq!((found.changed, found.conflicts), (1, 0), "{found:?}");
    let mut bytes = [0; 100];
    left.file(&files).read(0, &mut bytes).expect("a read");
    assert_eq!(bytes, [7; 100]);
}

/// While the files are complete, as in write-through, a program may use them after a crash, and the next start must
/// serve what it wrote, and must not write over that.
#[test]
fn nothing_cached_before_a_crash_hides_what_somebody_wrote_to_complete_files_since() {
    let (mut moments, mut kept) = (0, 0);
    for (layout, seed) in LAYOUTS.into_iter().flat_map(|layout| (0..6).map(move |at| (layout, at))) {
        for moment in 1.. {
            let scene = Scene::in_mode(seed, layout, Mode::WriteThrough);
            let (files, _) = scene.open_alone();
            let file = scene.file(&files);
            let mut bytes = scene.page(0).repeat(PAGES);
            let mut put = |fill: u8| {
                scene.write(&file, fill);
                file.sync(false).expect("a sync");
                file.read(0, &mut bytes).expect("a read");
            };
            put(1);
            let watch = Watch::begin(moment, scene.left());
            put(2);
            let Some(left) = watch.end() else { break };
            drop((file, files));
            let scene = Scene::of(scene.setup, left);
            let page_bytes = scene.page(0).len() as u64;
            let read = |files: &CachedFiles| {
                let mut page = scene.page(0);
                scene.file(files).read(page_bytes, &mut page).expect("a read");
                page
            };
            if moment % 2 == 0 {
                // Nobody has used the files: they are cached as they were.
                let (files, found) = scene.open_alone();
                assert_eq!((found.changed, found.changed_since, found.conflicts), (0, 0, 0), "{found:?}");
                assert!([[1; 1], [2; 1]].contains(&[read(&files)[0]]));
                kept += files.cache().stats().expect("figures").counts.read_hits;
            } else {
                scene.below.pass(2 * GRACE_NS as u64);
                scene.below_it().write_all_at(page_bytes, &scene.page(7)).expect("a write");
                // A start that is cut off leaves it to the next one, if it has not dropped what it has to.
                let (files, first) = scene.open_alone();
                assert_eq!((first.changed, first.changed_since, first.conflicts), (0, 1, 0), "{first:?}");
                assert!(read(&files) == scene.page(7), "{layout:?}, seed {seed}, moment {moment}");
                drop(files);
                let (files, found) = scene.open_alone();
                assert_eq!((found.changed, found.conflicts), (0, 0), "{found:?}");
                assert!(read(&files) == scene.page(7), "{layout:?}, seed {seed}, moment {moment}, again");
                files.cache().drain().expect("nothing is in the way");
                let mut below = scene.page(0);
                // A read may give fewer bytes.
                let count = scene.below_it().read_at(page_bytes, &mut below).expect("a read");
                assert!(
                    below[..count] == scene.page(7)[..count],
                    "{layout:?}, seed {seed}, moment {moment}: written over"
                );
            }
            moments += 1;
        }
    }
    println!("{moments} moments, {kept} hits");
    assert!(moments > 100 && kept > 0, "{moments} moments, {kept} hits");
}

#[test]
fn a_write_back_leaves_the_time_of_modification_though_the_process_is_killed_at_any_moment_of_it() {
    let drain = |_: &Scene, files: &CachedFiles| files.cache().drain().expect("the files can be written");
    at_each_moment(false, drain, |left, before| {
        let (files, found) = left.open();
        assert_eq!((found.changed, found.conflicts), (0, 0), "{found:?}");
        assert_eq!(left.modified(), before);
        drop(files);
    });
}

#[test]
fn a_write_is_in_the_time_of_modification_after_a_kill_at_any_later_moment() {
    let drain_and_settle = |scene: &Scene, files: &CachedFiles| {
        files.cache().drain().expect("the files can be written");
        scene.file(files).settle().expect("a time");
    };
    at_each_moment(true, drain_and_settle, |left, before| {
        let (files, _) = left.open();
        left.file(&files).settle().expect("a time");
        assert!(left.modified() > before, "{:?} and {before:?}", left.modified());
    });
}

#[test]
fn what_a_killed_process_did_not_sync_is_synced_by_the_next_one() {
    for layout in LAYOUTS {
        // A size that was changed below, though the next process writes nothing there.
        let scene = Scene::new(3, layout);
        let (files, _) = scene.open();
        let file = scene.file(&files);
        scene.write(&file, 1);
        file.sync(false).and_then(|()| file.truncate(0)).expect("it is cut");
        drop(file);
        let (scene, _) = scene.killed(files, &[]);
        let (files, _) = scene.open();
        scene.below.fail(Call::Sync, 0, Errno::IO);
        assert!(files.cache().drain().is_err(), "the file is synced");
        scene.below.heal();
        // The end of pages beyond the end.
        let (scene, _) = scene.killed(files, &[]);
        let (files, _) = scene.open();
        let file = scene.file(&files);
        let syncs = scene.cache.counts()[2];
        file.truncate(100 * u64::from(scene.setup.geometry.page_bytes)).expect("it grows");
        assert!(scene.cache.counts()[2] > syncs, "it grows after a flush");
        drop(file);
        // The name of a file that is still open.
        let file = scene.file(&files);
        scene.write(&file, 3);
        let other = Scene::opened(&files, scene.below.directory(Path::new("/")).create("g").expect("a file"));
        scene.write(&other, 4);
        other.sync(false).and_then(|()| other.truncate(0)).expect("it is cut");
        drop(other);
        let (inode, root) = (scene.below_it().inode(), scene.below.directory(Path::new("/")));
        crate::remove(&files, &root, OsStr::new("f")).expect("its name goes");
        let (scene, held) = scene.killed(files, &[inode]);
        let (files, found) = scene.open_with(&held);
        assert_eq!((found.files, found.gone), (2, 0), "{found:?}");
        files.removed(id(inode));
        for failed in 1..=2 {
            scene.below.fail(Call::Sync, 0, Errno::IO);
            files.run_errands();
            assert_eq!((files.failed_directory_syncs().0, Scene::regions(&files)), (failed, 2), "it stays until then");
            assert!(files.cache().drain().is_err(), "what was not synced may be lost");
        }
        files.run_errands();
        assert_eq!((files.failed_directory_syncs().0, Scene::regions(&files)), (2, 1));
    }
}

#[test]
fn a_file_that_a_crash_may_take_away_is_known_as_such_after_a_kill() {
    let may_leave = |files: &CachedFiles, file: &SimFile| {
        let key = crate::cached::key(&OpenFile::found(file).expect("attributes")).expect("a time of making");
        files.shared.map().contents().leaving.contains(&key)
    };
    for layout in LAYOUTS {
        let scene = Scene::new(3, layout);
        let root = scene.below.directory(Path::new("/"));
        let read = root.create("read").expect("a file");
        read.set_size(4096).and_then(|()| read.sync_all()).expect("a size");
        let (files, _) = scene.open();
        let made: Vec<SimFile> = ["made", "late", "open"].map(|name| root.create(name).expect("a file")).into();
        let opened: Vec<Arc<dyn FileData>> = made.iter().map(|file| Scene::opened(&files, file.again())).collect();
        opened[0].write(0, &[1; 512]).expect("a write");
        crate::remove(&files, &root, OsStr::new("open")).expect("its name goes");
        let inodes: Vec<u64> = made.iter().map(SimFile::inode).collect();
        drop(opened);
        let (scene, held) = scene.killed(files, &inodes);
        let (files, _) = scene.open_with(&held[2..]);
        assert!(may_leave(&files, &held[0]), "it was made, and not synced");
        let root = scene.below.directory(Path::new("/"));
        Scene::opened(&files, root.open("read").expect("a file")).read(0, &mut [0; 4096]).expect("a read");
        scene.below.fail(Call::Sync, 0, Errno::IO);
        let refused = crate::remove(&files, &root, OsStr::new("read"));
        assert!(refused.is_err(), "its pages may be dirty, so the map is synced first");
        scene.below.heal();
        let opened: Vec<Arc<dyn FileData>> = held.iter().map(|file| Scene::opened(&files, file.again())).collect();
        opened[1].write(0, &[1; 512]).expect("a write");
        assert!(may_leave(&files, &held[1]), "it was made before the kill, and not synced");
        for file in &opened {
            file.write(0, &[2; 512]).and_then(|()| file.sync(false)).expect("a sync");
        }
        assert!(!may_leave(&files, &held[0]) && !may_leave(&files, &held[1]), "they are synced");
        assert!(may_leave(&files, &held[2]), "it has no name");
    }
}

#[test]
fn a_file_that_was_cut_shows_nothing_of_before_after_a_kill_at_any_moment() {
    let cut = |scene: &Scene, files: &CachedFiles| scene.file(files).truncate(0).expect("it is cut");
    at_each_moment(false, cut, |left, _| {
        let (files, found) = left.open();
        assert_eq!((found.changed, found.conflicts), (0, 0), "{found:?}");
        let file = left.file(&files);
        let mut bytes = left.page(9).repeat(PAGES);
        if file.size_bytes().expect("a size") == 0 {
            file.truncate(bytes.len() as u64).expect("it grows");
            file.read(0, &mut bytes).expect("a read");
            assert!(
                bytes.iter().all(|&byte| byte == 0),
                "{:?}",
                bytes.chunks(512).map(|page| page[0]).collect::<Vec<_>>()
            );
        }
    });
}

/// A hole of several pages dropped the newest versions of all of them at once from the queue, and with them from the
/// arena. A kill then brought back older ones.
#[test]
fn a_hole_under_way_brings_back_no_older_page_after_a_kill_at_any_moment() {
    let modes = [Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround];
    let kinds = modes.into_iter().flat_map(|mode| LAYOUTS.map(|layout| (mode, layout)));
    for (seed, (mode, layout)) in (0..12).flat_map(|seed| kinds.clone().map(move |kind| (seed, kind))) {
        for moment in 1.. {
            let scene = Scene::in_mode(seed, layout, mode);
            let (files, _) = scene.open();
            let file = scene.file(&files);
            scene.write(&file, 1);
            scene.write(&file, 2);
            let (page, hole) = (scene.page(0).len() as u64, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE);
            let watch = Watch::begin(moment, scene.left());
            file.allocate(hole, page, 4 * page).expect("a hole");
            let Some(left) = watch.end() else { break };
            drop((file, files));
            let left = Scene::of(scene.setup, left);
            let (files, _) = left.open();
            let mut bytes = left.page(9).repeat(PAGES);
            left.file(&files).read(0, &mut bytes).expect("a read");
            for (at, page) in bytes.chunks(page as usize).enumerate() {
                let is_hole = (1..5).contains(&at) && page.iter().all(|&byte| byte == 0);
                let first = page[0];
                assert!(
                    is_hole || page.iter().all(|&byte| byte == 2),
                    "{seed} {mode:?} {layout:?}: page {at}: {first}"
                );
            }
        }
    }
}
