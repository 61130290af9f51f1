//! A file that another program writes in the backing store while it has dirty pages in the cache. A crash does not undo
//! the finding of a look. At whatever write or sync the power fails, the pages are in the cache or kept aside until it
//! is decided which bytes count.

use super::LAYOUTS;
use super::setup::Setup;
use crate::FileData;
use crate::below::simulated::SimFileSystem;
use crate::below::{File, FileSystem, OpenFile};
use crate::cached::changed::Change;
use crate::cached::{Backing, CachedFiles, Keep};
use crate::mutant::{self, Mutant};
use entresol_cache::Mode;
use entresol_core::Random;
use entresol_crashtest::{Power, SimDisk};
use entresol_store::Layout;
use std::collections::BTreeSet;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

const ID: [u8; 16] = [9; 16];
/// Pages of the file.
const PAGES: u64 = 12;
/// Runs in each layout.
const RUNS: u64 = 400;

struct Place {
    setup: Setup,
    power: Power,
    cache: SimDisk,
    below: SimFileSystem,
}

impl Place {
    fn new(seed: u64, layout: Layout) -> Self {
        let setup = Setup { mode: Mode::WriteBack, faults: false, ..Setup::random(seed, layout) };
        let power = Power::steady();
        let cache = SimDisk::new(setup.geometry.size_bytes(), &power);
        let below = SimFileSystem::new(seed, setup.ordered, &power);
        below.directory(Path::new("/")).create("f").expect("a file");
        below.sync_all();
        let system = FileSystem::Simulated(below.clone());
        Backing::format_in(&system, Path::new("/"), &cache, setup.geometry, [1; 16], ID, None).expect("room");
        Place { setup, power, cache, below }
    }

    fn page_bytes(&self) -> u64 {
        self.setup.geometry.page_bytes.into()
    }

    fn open(&self) -> io::Result<CachedFiles> {
        let system = FileSystem::Simulated(self.below.clone());
        let backing = Backing::open_in(system, Path::new("/")).map_err(io::Error::other)?;
        let opened = CachedFiles::open(backing, self.cache.clone(), &self.setup.config(), Vec::new());
        opened.map(|(files, _)| files).map_err(io::Error::other)
    }

    fn file(&self, files: &CachedFiles) -> io::Result<Arc<dyn FileData>> {
        let file = self.below.directory(Path::new("/")).open("f")?;
        let id = OpenFile::found(&file)?.id;
        files.open_file(id, File::Simulated(file), true)
    }

    /// Another program writes a page, bypassing the cache.
    fn write_below(&self, page: u64, byte: u8) -> io::Result<()> {
        let file = self.below.directory(Path::new("/")).open("f")?;
        OpenFile::write_all_at(&file, page * self.page_bytes(), &vec![byte; self.page_bytes() as usize])?;
        OpenFile::sync_all(&file)
    }

    /// The first byte of each page in the backing file.
    fn bytes_below(&self) -> Vec<u8> {
        let file = self.below.directory(Path::new("/")).open("f").expect("a file");
        let mut page = vec![0; self.page_bytes() as usize];
        let mut read = |at: u64| OpenFile::read_at(&file, at * self.page_bytes(), &mut page).map(|_| page[0]);
        (0..PAGES).map(|at| read(at).expect("a page")).collect()
    }

    /// Writes the dirty pages and changes a clean one in the backing file; a look finds the change.
    fn begin(&self, files: &CachedFiles, dirty: &BTreeSet<u64>, changed: u64) -> io::Result<()> {
        let file = self.file(files)?;
        for page in dirty {
            file.write(page * self.page_bytes(), &vec![100 + *page as u8; self.page_bytes() as usize])?;
        }
        file.sync(false)?;
        self.write_below(changed, 200)?;
        file.look()?;
        Ok(())
    }
}

/// Counts over the runs of a cache.
#[derive(Debug, Default)]
struct Tally {
    /// The power failed while or after pages were kept aside.
    aside: u64,
    /// Pages that were dirty when a look had found the change.
    pages: u64,
}

fn run(seed: u64, layout: Layout, tally: &mut Tally) -> Result<(), String> {
    let place = Place::new(seed, layout);
    let (mut random, bytes) = (Random::new(!seed), place.page_bytes() as usize);
    let files = place.open().map_err(|error| format!("opening: {error}"))?;
    let file = place.file(&files).map_err(|error| format!("a file: {error}"))?;
    // What is written through is clean too, though a crash may bring some of it back as dirty. A drain leaves no such page.
    let drains = random.chance(0.5);
    files.set_mode(if drains { Mode::WriteBack } else { Mode::WriteThrough }).expect("a mode");
    (0..PAGES).for_each(|page| file.write(page * bytes as u64, &vec![page as u8 + 1; bytes]).expect("a write"));
    file.sync(false).expect("a sync");
    if drains {
        files.cache().drain().expect("a drain");
    }
    files.set_mode(Mode::WriteBack).expect("a mode");
    drop(file);
    let changed = random.below(PAGES);
    let dirty: BTreeSet<u64> = (0..PAGES).filter(|&page| page != changed && random.chance(0.3)).collect();
    place.begin(&files, &dirty, changed).map_err(|error| format!("a look: {error}"))?;
    let known = files.conflicts().map_err(|error| error.to_string())?;
    // A small cache may have written some of them back earlier.
    let kept: u64 = known.iter().filter_map(|conflict| conflict.pages).sum();
    if kept == 0 {
        return Ok(());
    }
    let before = place.bytes_below();
    tally.pages += kept;
    let mut files = Some(files);
    for _ in 0..3 {
        place.power.fail_after(1 + random.below(30));
        let cache = files.take().expect("it runs");
        let drained = cache.cache().drain().and_then(|()| if random.chance(0.5) { cache.close() } else { Ok(()) });
        tally.aside += u64::from(drained.is_err() && place.power.is_off());
        place.power.fail_after(0);
        drop(cache);
        let crash = random.next_u64();
        place.cache.crash(crash);
        place.below.crash(Random::mix(crash));
        place.power.restore();
        if place.bytes_below() != before {
            return Err(format!("{:?} below, before {before:?}", place.bytes_below()));
        }
        let opened = place.open().map_err(|error| format!("opening: {error}"))?;
        let now = opened.conflicts().map_err(|error| error.to_string())?;
        if now != known {
            return Err(format!("{now:?} in conflict after a crash, before {known:?}"));
        }
        files = Some(opened);
    }
    let files = files.expect("it runs");
    let keep = if random.chance(0.5) { Keep::Cache } else { Keep::Below };
    // The power may fail during the resolution: the conflict then continues or is over.
    place.power.fail_after(1 + random.below(40));
    let resolved = files.resolve(&known[0].path, keep);
    place.power.fail_after(0);
    drop(files);
    let crash = random.next_u64();
    place.cache.crash(crash);
    place.below.crash(Random::mix(crash));
    place.power.restore();
    let files = place.open().map_err(|error| format!("opening: {error}"))?;
    let is_over = files.conflicts().map_err(|error| error.to_string())?.is_empty();
    if resolved.is_ok() && !is_over {
        return Err("what was resolved is in conflict again".to_owned());
    }
    if !is_over {
        files.resolve(&known[0].path, keep).map_err(|error| format!("resolving again: {error}"))?;
    }
    let file = place.file(&files).map_err(|error| format!("a file: {error}"))?;
    for page in 0..PAGES {
        let mut read = vec![0; bytes];
        file.read(page * bytes as u64, &mut read).map_err(|error| format!("reading {page}: {error}"))?;
        let expected = match page {
            _ if page == changed => 200,
            _ if dirty.contains(&page) && keep == Keep::Cache => 100 + page as u8,
            _ => before[page as usize],
        };
        if read != vec![expected; bytes] {
            return Err(format!("{keep:?}: page {page} reads as {}, not {expected}; {dirty:?}, {before:?}", read[0]));
        }
    }
    let change = files.all_changes();
    if change.iter().any(|&change| change != Change::None) { Err(format!("{change:?}")) } else { Ok(()) }
}

/// Runs over all layouts; the first violation ends them.
fn runs() -> Result<(), String> {
    for layout in LAYOUTS {
        let mut tally = Tally::default();
        for seed in 0..RUNS {
            let lived = catch_unwind(AssertUnwindSafe(|| run(seed, layout, &mut tally)));
            lived.unwrap_or_else(|_| Err("a panic".into())).map_err(|why| format!("seed {seed}, {layout:?}: {why}"))?;
        }
        println!("{layout:?}: seeds from 0: {RUNS}, {tally:?}");
        assert!(tally.aside > RUNS / 2 && tally.pages > RUNS, "{tally:?}");
    }
    Ok(())
}

#[test]
fn no_crash_loses_pages_of_a_file_in_conflict_or_writes_them_over_it() {
    runs().unwrap_or_else(|violation| panic!("{violation}"));
}

#[test]
fn every_mutant_of_conflicts_is_found_out() {
    for mutant in Mutant::CONFLICTS {
        mutant::activate(Some(mutant));
        let found = runs();
        mutant::activate(None);
        println!("{mutant:?}: {found:?}");
        assert!(found.is_err(), "{mutant:?} is missed within {RUNS} lives over each layout");
    }
}
