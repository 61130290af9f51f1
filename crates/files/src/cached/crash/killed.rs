//! Kills of the process alone at each moment of short sequences: what the next process knows of changes of the files by
//! other programs, and of the files' times.

use super::history::kill::{Device, Kept, Left, Watch};
use super::setup::Setup;
use crate::FileData;
use crate::below::simulated::{SimFile, SimFileSystem};
use crate::below::{File, FileSystem, OpenFile};
use crate::cached::{Backing, CachedFiles, Found};
use entresol_cache::Mode;
use entresol_crashtest::{Power, SimDisk};
use entresol_store::Layout;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// The tests, which find mutants too.
pub(super) const SEQUENCES: [fn(); 3] = [
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
        let setup = Setup { mode: Mode::WriteBack, faults: false, ..Setup::random(seed, layout) };
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
        let backing = Backing::open_in(FileSystem::Simulated(self.below.clone()), Path::new("/")).expect("a map");
        let mut config = self.setup.config();
        config.arena = Some(self.kept.arena.clone());
        let backing = backing.keeping(self.kept.states.clone());
        CachedFiles::open(backing, Device(self.cache.clone()), &config, Vec::new()).expect("a cache in good order")
    }

    fn below_it(&self) -> SimFile {
        self.below.directory(Path::new("/")).open("f").expect("the file")
    }

    fn file(&self, files: &CachedFiles) -> Arc<dyn FileData> {
        let file = self.below_it();
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

    fn left(&self) -> impl Fn() -> Left + use<> {
        let (cache, below, kept) = (self.cache.clone(), self.below.clone(), self.kept.clone());
        move || Left::of(&cache, &below, &kept, &BTreeMap::new())
    }
}

/// Writes a file in front of caches of many kinds, settles its times and at times writes it again, as `again` says. Runs
/// `act`, kills the process at each moment of it, and checks what is left with the time that was settled.
fn at_each_moment(again: bool, act: impl Fn(&Scene, &CachedFiles), check: impl Fn(&Scene, (i64, i64))) {
    let mut moments = 0;
    for (layout, seed) in [Layout::Log, Layout::Slots].into_iter().flat_map(|layout| (0..6).map(move |at| (layout, at))) {
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
