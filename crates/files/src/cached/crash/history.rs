//! One random run of a directory behind a cache: operations of programs on its files, crashes during these and during
//! recoveries, and the contents of the files afterwards.

pub(super) mod kill;

use super::setup::Setup;
use crate::below::simulated::{Call, SimDirectory, SimFile, SimFileSystem, moment};
use crate::below::{File, FileSystem, OpenFile};
use crate::cached::{Backing, CachedFiles};
use crate::{FileData, FileId, FileLayer, NamesBelow};
use entresol_cache::Block;
use entresol_cache::Mode;
use entresol_core::Random;
use entresol_crashtest::posix::{ATOM, ATOMS_MAX, Change, Name, Oracle};
use entresol_crashtest::{Power, SimDisk, runs};
use entresol_disk::Disk;
use kill::{Device, Killing, Request};
use rustix::fs::{FallocateFlags, RenameFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;

const ID: [u8; 16] = [9; 16];
/// Directories, and the names that files can have in each.
const DIRECTORIES: [&str; 2] = ["/", "/d"];
const NAMES: [&str; 4] = ["a", "b", "c", "d.tmp"];
/// Errors of calls that the test makes fail.
const ERRORS: [Errno; 3] = [Errno::IO, Errno::NOSPC, Errno::DQUOT];

/// Reason why an operation did not succeed.
pub(super) enum Stop {
    PowerOff,
    /// The process was killed while the step was carried out.
    Killed,
    Wrong(String),
}

type Outcome<T> = Result<T, Stop>;

/// Number of occurrences of each kind of event.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    /// All crashes.
    pub crashes: u64,
    /// Crashes that left the power on.
    pub kills: u64,
    /// Crashes while the cache was being opened.
    pub crashes_in_recovery: u64,
    pub operations: u64,
    pub syncs: u64,
    pub renames_over: u64,
    pub unlinks: u64,
    pub unlinks_while_open: u64,
    pub truncates: u64,
    pub voids: u64,
    pub restarts: u64,
    /// Calls that the test made fail.
    pub faults: u64,
    /// Files that were read after a crash.
    pub files_checked: u64,
    /// Clean pages that were compared with the backing store.
    pub clean_checked: u64,
    /// Files without a name that were read after a kill.
    pub nameless_checked: u64,
    /// Requests that were sent again after a kill.
    pub sent_again: u64,
    /// Pages that a start found in the arena.
    pub repeated: u64,
}

impl runs::Tally for Tally {
    fn add(&mut self, other: &Tally) {
        let numbers = |tally: &Tally| {
            [
                tally.crashes,
                tally.kills,
                tally.crashes_in_recovery,
                tally.operations,
                tally.syncs,
                tally.renames_over,
                tally.unlinks,
                tally.unlinks_while_open,
                tally.truncates,
                tally.voids,
                tally.restarts,
                tally.faults,
                tally.files_checked,
                tally.clean_checked,
                tally.nameless_checked,
                tally.sent_again,
                tally.repeated,
            ]
        };
        let mut sums = numbers(self).into_iter().zip(numbers(other)).map(|(one, other)| one + other);
        let mut next = || sums.next().expect("as many");
        *self = Tally {
            crashes: next(),
            kills: next(),
            crashes_in_recovery: next(),
            operations: next(),
            syncs: next(),
            renames_over: next(),
            unlinks: next(),
            unlinks_while_open: next(),
            truncates: next(),
            voids: next(),
            restarts: next(),
            faults: next(),
            files_checked: next(),
            clean_checked: next(),
            nameless_checked: next(),
            sent_again: next(),
            repeated: next(),
        };
    }
}

/// A file as the kernel holds it while it is open.
struct Opened {
    id: FileId,
    data: Arc<dyn FileData>,
    /// Keeps the file's number in use.
    place: SimFile,
}

/// The layer while it runs.
struct Live {
    opened: BTreeMap<u64, Opened>,
    directories: Vec<SimDirectory>,
    files: CachedFiles,
}

pub(super) struct History {
    setup: Setup,
    power: Power,
    cache: SimDisk,
    below: SimFileSystem,
    random: Random,
    oracle: Oracle,
    live: Option<Live>,
    /// A call was made to fail, and the cache has not yet been seen to work again.
    faulty: bool,
    /// A sync was made to fail since the cache was opened.
    failed: bool,
    /// A kill came in a start: what that start was to settle of an earlier kill may be unknown, until a flush says so.
    doubtful: bool,
    /// True if each step is printed.
    traced: bool,
    /// In a run whose processes are killed.
    killing: Option<Killing>,
    pub tally: Tally,
}

fn wrong(stop: Stop) -> String {
    match stop {
        Stop::Wrong(why) => why,
        Stop::PowerOff => "the power is said to be off".to_owned(),
        Stop::Killed => "the process was killed".to_owned(),
    }
}

impl History {
    pub fn new(setup: Setup, seed: u64) -> Self {
        let power = Power::steady();
        let cache = SimDisk::new(setup.geometry.size_bytes(), &power);
        cache.garble();
        let below = SimFileSystem::new(seed, setup.ordered, &power);
        crate::below::OpenDirectory::make_directory(&below.directory(Path::new("/")), "d").expect("a new directory");
        below.sync_all();
        let system = FileSystem::Simulated(below.clone());
        Backing::format_in(&system, Path::new("/"), &cache, setup.geometry, [1; 16], ID, None)
            .expect("room for the cache");
        let oracle = Oracle::new();
        let (random, traced) = (Random::new(seed), std::env::var_os("ENTRESOL_FILE_CRASH_TRACE").is_some());
        History {
            setup,
            power,
            cache,
            below,
            random,
            oracle,
            live: None,
            faulty: false,
            failed: false,
            doubtful: false,
            traced,
            killing: None,
            tally: Tally::default(),
        }
    }

    /// A run whose processes are killed.
    pub fn with_kills(setup: Setup, seed: u64) -> Self {
        History { killing: Some(Killing::new()), ..Self::new(setup, seed) }
    }

    /// Prints a step, to study a seed.
    fn say(&self, what: impl FnOnce() -> String) {
        if self.traced {
            println!("{}", what());
        }
    }

    fn why(&self, error: String) -> Stop {
        if self.power.is_off() { Stop::PowerOff } else { Stop::Wrong(error) }
    }

    /// Checks a result: true if the operation succeeded. An error that no injected fault explains is a violation.
    fn may_fail<T>(&mut self, what: &str, result: io::Result<T>) -> Outcome<Option<T>> {
        self.say(|| format!("  {what}: {:?}", result.as_ref().map(drop)));
        let reports = ["syncing", "closing"].contains(&what) || what.starts_with("flushing");
        match result {
            // Without power no result is seen.
            _ if self.power.is_off() => Err(Stop::PowerOff),
            Ok(done) => {
                // A sync of a file of which the cache has nothing asks nothing of the cache.
                self.doubtful &= !what.starts_with("flushing");
                Ok(Some(done))
            }
            Err(_) if self.faulty => Ok(None),
            // Reported by a flush that follows a failed sync, even of another caller, until one succeeds. A request that
            // is no sync leaves it to the next sync, or to the end.
            Err(error)
                if reports && (self.failed || self.doubtful) && error.to_string().contains("an earlier failure") =>
            {
                Ok(None)
            }
            Err(error) => Err(Stop::Wrong(format!("{what}: {error}"))),
        }
    }

    fn open(&mut self) -> Outcome<()> {
        let system = FileSystem::Simulated(self.below.clone());
        let mut config = self.setup.config();
        let states = self.kept().map(|kept| {
            config.arena = Some(kept.arena);
            kept.states
        });
        let held = self.killing.as_ref().map_or_else(Vec::new, Killing::open_files);
        let opened = Backing::open_in(system, Path::new("/")).and_then(|backing| {
            let backing = backing.with_open_files(held);
            let backing = states.into_iter().fold(backing, Backing::keeping);
            CachedFiles::open(backing, Device(self.cache.clone()), &config, Vec::new())
        });
        let (files, found) = opened.map_err(|error| self.why(format!("opening: {error}")))?;
        self.say(|| format!("open: {found:?}"));
        if found.dropped_pages > 0 || found.changed > 0 || found.conflicts > 0 || found.touched > 0 {
            return Err(Stop::Wrong(format!("{found:?}")));
        }
        let (high, low) = self.setup.dirty_limits;
        files.cache().set_dirty_limits(high, low).map_err(|error| self.why(format!("limits: {error}")))?;
        let directories = DIRECTORIES.iter().map(|path| self.below.directory(Path::new(path))).collect();
        self.live = Some(Live { opened: BTreeMap::new(), directories, files });
        Ok(())
    }

    fn live(&self) -> &Live {
        self.live.as_ref().expect("a layer that runs")
    }

    fn some_name(&mut self) -> Name {
        let directory = self.random.below(DIRECTORIES.len() as u64) as usize;
        (directory, NAMES[self.random.below(NAMES.len() as u64) as usize].to_owned())
    }

    /// A random name, if it leads to a file.
    fn some_file(&mut self) -> Option<(Name, u64)> {
        let name = self.some_name();
        let made = self.oracle.at(&name)?;
        Some((name, made))
    }

    /// Opens a file for writing as the kernel does: one handle of the layer for each file.
    fn open_file(&mut self, name: &Name, made: u64) -> Outcome<Option<Arc<dyn FileData>>> {
        if let Some(opened) = self.live().opened.get(&made) {
            return Ok(Some(opened.data.clone()));
        }
        let directory = &self.live().directories[name.0];
        let file = self.may_fail("opening", directory.open(&name.1).map_err(io::Error::from))?;
        match file {
            Some(file) => self.adopt(file),
            None => Ok(None),
        }
    }

    fn adopt(&mut self, file: SimFile) -> Outcome<Option<Arc<dyn FileData>>> {
        let Some(found) = self.may_fail("attributes", OpenFile::found(&file))? else { return Ok(None) };
        let place = file.again();
        let opened = self.live().files.open_file(found.id, File::Simulated(file), true);
        let Some(data) = self.may_fail("opening", opened)? else { return Ok(None) };
        let made = found.made.expect("a simulated file has one");
        let live = self.live.as_mut().expect("a layer that runs");
        live.opened.insert(made, Opened { id: found.id, data: data.clone(), place });
        self.holds(found.id.inode, true);
        Ok(Some(data))
    }

    /// Closes the last handle of a file.
    fn close_file(&mut self, made: u64) {
        self.say(|| format!("close {made}"));
        let live = self.live.as_mut().expect("a layer that runs");
        let Some(Opened { id, data, place }) = live.opened.remove(&made) else { return };
        drop(data);
        if !SimDirectory::has_name(&place) {
            live.files.removed(id);
        }
        self.lets_go(id.inode);
    }

    /// One operation of a program.
    fn step(&mut self) -> Outcome<()> {
        self.draw()?;
        self.ended()
    }

    fn draw(&mut self) -> Outcome<()> {
        self.tally.operations += 1;
        match self.random.below(100) {
            0..=9 => self.create(),
            10..=39 => self.write(),
            40..=49 => self.read(),
            50..=59 => self.sync(),
            60..=65 => self.truncate(),
            66..=70 => self.allocate(),
            71..=76 => self.rename(),
            77..=80 => self.unlink(),
            81..=82 => self.link(),
            83..=87 => self.sync_directory(),
            88..=91 => {
                let opened: Vec<u64> = self.live().opened.keys().copied().collect();
                if !opened.is_empty() {
                    let one = self.random.below(opened.len() as u64) as usize;
                    self.close_file(opened[one]);
                }
                Ok(())
            }
            93 | 94 if self.setup.faults => self.fault(),
            92..=94 => {
                self.say(|| "errands".to_owned());
                self.live().files.run_errands();
                Ok(())
            }
            _ => self.rare(),
        }
    }

    fn create(&mut self) -> Outcome<()> {
        let name = self.some_name();
        if self.oracle.at(&name).is_some() {
            return Ok(());
        }
        self.begins(|| Request::Create(name.clone()));
        self.create_as(&name)
    }

    fn create_as(&mut self, name: &Name) -> Outcome<()> {
        let created = moment(self.live().directories[name.0].create(&name.1)).map_err(io::Error::from);
        if self.power.is_off() {
            // The file may or may not exist.
            self.oracle.may_be_made(name);
        }
        let Some(file) = self.may_fail("creating", created)? else { return Ok(()) };
        let found = OpenFile::found(&file).map_err(|error| self.why(format!("attributes: {error}")))?;
        self.oracle.leads(name, found.made);
        self.say(|| format!("create {name:?} {:?}", found.made));
        self.adopt(file).map(drop)
    }

    /// Reports to the model the outcome of a change that was announced to it.
    fn changed(&mut self, what: &str, made: u64, change: Option<Change>, done: io::Result<()>) -> Outcome<()> {
        let done = self.may_fail(what, done)?;
        if let (Some(_), Some(change)) = (done, &change) {
            self.oracle.done(change);
        }
        let size = self.live().opened[&made].data.size_bytes().map_err(|error| self.why(format!("size: {error}")))?;
        self.oracle.sized(made, size / ATOM);
        Ok(())
    }

    /// An open file, with or without a name.
    fn some_open_file(&mut self) -> Option<(Name, u64)> {
        let opened: Vec<u64> = self.live().opened.keys().copied().collect();
        let count = opened.len() as u64;
        (count > 0).then(|| ((0, String::new()), opened[self.random.below(count) as usize]))
    }

    fn write(&mut self) -> Outcome<()> {
        let open = if self.random.chance(0.15) { self.some_open_file() } else { None };
        let Some((name, made)) = open.or_else(|| self.some_file()) else { return self.create() };
        let Some(data) = self.open_file(&name, made)? else { return Ok(()) };
        let near = if self.random.chance(0.8) { ATOMS_MAX / 5 } else { ATOMS_MAX };
        let from = self.random.below(near);
        let len = if self.random.chance(0.5) { 8 } else { 1 + self.random.below(24) };
        let atoms = from..(from + len).min(ATOMS_MAX);
        self.say(|| format!("write {name:?} {made} {atoms:?}"));
        let (change, bytes) = self.oracle.write(made, atoms);
        self.begins(|| Request::Write { made, from, bytes: bytes.clone(), change: change.clone() });
        let written = data.write(from * ATOM, &bytes);
        self.changed("writing", made, Some(change), written)
    }

    fn read(&mut self) -> Outcome<()> {
        let Some((name, made)) = self.some_file() else { return Ok(()) };
        let Some(data) = self.open_file(&name, made)? else { return Ok(()) };
        let size = self.oracle.size(made);
        let from = self.random.below(size.max(1));
        let mut bytes = vec![0; ((1 + self.random.below(40)) * ATOM) as usize];
        let read = data.read(from * ATOM, &mut bytes);
        let Some(count) = self.may_fail("reading", read)? else { return Ok(()) };
        let wanted = (bytes.len() as u64).min((size - from.min(size)) * ATOM);
        if count as u64 != wanted {
            return Err(Stop::Wrong(format!("{count} bytes of file {made} are read, not {wanted}")));
        }
        self.oracle.check(made, from, &bytes[..count]).map_err(Stop::Wrong)
    }

    fn sync(&mut self) -> Outcome<()> {
        let Some((name, made)) = self.some_file() else { return Ok(()) };
        let Some(data) = self.open_file(&name, made)? else { return Ok(()) };
        let data_only = self.random.chance(0.5);
        self.say(|| format!("sync {name:?} {made}, data only: {data_only}"));
        self.begins(|| Request::Sync { made, data_only });
        self.sync_as(made, &data, data_only)
    }

    fn sync_as(&mut self, made: u64, data: &Arc<dyn FileData>, data_only: bool) -> Outcome<()> {
        let synced = data.sync(data_only);
        if self.may_fail("syncing", synced)?.is_some() {
            self.tally.syncs += 1;
            self.oracle.synced(made);
        }
        Ok(())
    }

    fn truncate(&mut self) -> Outcome<()> {
        let Some((name, made)) = self.some_file() else { return Ok(()) };
        let Some(data) = self.open_file(&name, made)? else { return Ok(()) };
        let size = self.oracle.size(made);
        let to = match self.random.below(4) {
            0 => 0,
            1 => self.random.below(ATOMS_MAX + 1),
            _ => self.random.below(size + 8).min(ATOMS_MAX),
        };
        self.tally.truncates += u64::from(to < size);
        self.say(|| format!("truncate {name:?} {made} of {size} to {to}"));
        self.oracle.may_be_sized(made, to);
        let change = self.oracle.clear(made, to..ATOMS_MAX);
        self.begins(|| Request::Truncate { made, to, change: change.clone() });
        let cut = data.truncate(to * ATOM);
        self.changed("truncating", made, Some(change), cut)
    }

    fn allocate(&mut self) -> Outcome<()> {
        let Some((name, made)) = self.some_file() else { return Ok(()) };
        let Some(data) = self.open_file(&name, made)? else { return Ok(()) };
        let from = self.random.below(ATOMS_MAX / 4);
        let end = from + 1 + self.random.below(40);
        let keep = FallocateFlags::KEEP_SIZE;
        let (how, voids, grows) = match self.random.below(4) {
            0 => (FallocateFlags::empty(), false, true),
            1 => (keep, false, false),
            2 => (FallocateFlags::PUNCH_HOLE | keep, true, false),
            _ => (FallocateFlags::ZERO_RANGE, true, true),
        };
        self.tally.voids += u64::from(voids);
        self.say(|| format!("allocate {name:?} {made} {how:?} {from}..{end}"));
        if grows {
            let size = self.oracle.size(made).max(end);
            self.oracle.may_be_sized(made, size);
        }
        let change = voids.then(|| self.oracle.clear(made, from..end));
        self.begins(|| Request::Allocate { made, how, from, end, change: change.clone() });
        let done = data.allocate(how, from * ATOM, (end - from) * ATOM);
        self.changed("allocating", made, change, done)
    }

    fn rename(&mut self) -> Outcome<()> {
        let Some((from, made)) = self.some_file() else { return Ok(()) };
        let to = self.some_name();
        let replaced = self.oracle.at(&to);
        if from == to {
            return Ok(());
        }
        self.say(|| format!("rename {from:?} {made} to {to:?} {replaced:?}"));
        self.begins(|| Request::Rename { from: from.clone(), to: to.clone(), made, replaced });
        self.rename_as(&from, &to, made, replaced)
    }

    fn rename_as(&mut self, from: &Name, to: &Name, made: u64, replaced: Option<u64>) -> Outcome<()> {
        let place = self.live().directories[to.0].find(OsStr::new(&to.1)).ok().flatten();
        if let Some((_, id)) = place.as_ref().filter(|_| replaced != Some(made)) {
            self.remembers(id.inode);
        }
        let live = self.live();
        let (one, other) = (&live.directories[from.0], &live.directories[to.0]);
        let places = ((one, OsStr::new(&from.1)), (other, OsStr::new(&to.1)));
        let renamed = crate::rename(&live.files, places.0, places.1, RenameFlags::empty());
        if replaced == Some(made) {
            // Two names of the same file: the rename does nothing.
            return self.may_fail("renaming", renamed).map(drop);
        }
        // A crash during the rename leaves it done or not.
        if renamed.is_ok() || self.power.is_off() {
            self.oracle.leads(from, None);
            self.oracle.leads(to, Some(made));
        }
        let renamed = self.may_fail("renaming", renamed)?;
        if let (Some(()), Some(replaced)) = (renamed, replaced) {
            self.tally.renames_over += 1;
            self.oracle.replaces(made, to);
            self.lost_a_name(replaced, place);
        }
        Ok(())
    }

    /// Notifies the layer when a file has lost its last name and no handle has it open.
    fn lost_a_name(&mut self, made: u64, place: Option<(SimFile, FileId)>) {
        let (file, id) = place.expect("it had a name");
        let live = self.live();
        if !SimDirectory::has_name(&file) {
            if live.opened.contains_key(&made) {
                self.tally.unlinks_while_open += 1;
            } else {
                live.files.removed(id);
            }
        }
        if !self.live().opened.contains_key(&made) {
            self.lets_go(id.inode);
        }
    }

    /// A file is about to lose a name. At times the kernel remembers the file longer than the process lives.
    fn remembers(&mut self, inode: u64) {
        if self.killing.is_some() && self.random.chance(0.5) {
            self.holds(inode, false);
        }
    }

    fn unlink(&mut self) -> Outcome<()> {
        let Some((name, made)) = self.some_file() else { return Ok(()) };
        self.say(|| format!("unlink {name:?} {made}"));
        self.begins(|| Request::Unlink { name: name.clone(), made });
        self.unlink_as(&name, made)
    }

    fn unlink_as(&mut self, name: &Name, made: u64) -> Outcome<()> {
        let place = self.live().directories[name.0].find(OsStr::new(&name.1)).ok().flatten();
        if let Some((_, id)) = &place {
            self.remembers(id.inode);
        }
        let live = self.live();
        let directory = &live.directories[name.0];
        let removed = crate::remove(&live.files, directory, OsStr::new(&name.1));
        if removed.is_ok() || self.power.is_off() {
            self.oracle.leads(name, None);
        }
        if self.may_fail("removing", removed)?.is_some() {
            self.tally.unlinks += 1;
            self.lost_a_name(made, place);
        }
        Ok(())
    }

    fn link(&mut self) -> Outcome<()> {
        let Some((name, made)) = self.some_file() else { return Ok(()) };
        let other = self.some_name();
        if self.oracle.at(&other).is_some() {
            return Ok(());
        }
        self.say(|| format!("link {name:?} {made} as {other:?}"));
        self.begins(|| Request::Link { name: name.clone(), other: other.clone(), made });
        self.link_as(&name, made, &other)
    }

    fn link_as(&mut self, name: &Name, made: u64, other: &Name) -> Outcome<()> {
        let directories = &self.live().directories;
        let Ok(Some((_, id))) = directories[name.0].find(OsStr::new(&name.1)) else { return Ok(()) };
        let ours = self.live().files.changing(id);
        let directories = &self.live().directories;
        let linked = moment(directories[other.0].link(id.inode, &other.1)).map_err(io::Error::from);
        drop(ours);
        if linked.is_ok() || self.power.is_off() {
            self.oracle.leads(other, Some(made));
        }
        self.may_fail("linking", linked).map(drop)
    }

    fn sync_directory(&mut self) -> Outcome<()> {
        let directory = self.random.below(DIRECTORIES.len() as u64) as usize;
        self.begins(|| Request::SyncDirectory(directory));
        self.sync_directory_as(directory)
    }

    fn sync_directory_as(&mut self, directory: usize) -> Outcome<()> {
        let synced = crate::below::OpenDirectory::sync(&self.live().directories[directory]).map_err(io::Error::from);
        if self.may_fail("syncing a directory", synced)?.is_some() {
            self.oracle.directory_synced(directory);
        }
        Ok(())
    }

    /// Does one of the rare operations: a flush, a drain, a change of mode or a restart.
    fn rare(&mut self) -> Outcome<()> {
        match self.random.below(5) {
            0 | 1 => {
                let flushed = self.live().files.cache().flush();
                self.may_fail("flushing", flushed).map(drop)
            }
            2 => {
                let drained = self.live().files.cache().drain();
                self.may_fail("draining", drained).map(drop)
            }
            3 => {
                let mode = [Mode::WriteBack, Mode::WriteThrough][self.random.below(2) as usize];
                if self.setup.mode == Mode::WriteAround {
                    return Ok(());
                }
                let changed = self.live().files.cache().set_mode(mode);
                if self.may_fail("mode", changed)?.is_some() {
                    self.setup.mode = mode;
                }
                Ok(())
            }
            _ => self.restart(),
        }
    }

    /// Makes one of the next calls of the backing file system fail; then the cache has to work again.
    fn fault(&mut self) -> Outcome<()> {
        if self.faulty {
            return Ok(());
        }
        let call = [Call::Read, Call::Write, Call::Write, Call::Sync, Call::Sync, Call::Sync, Call::Sync, Call::Name]
            [self.random.below(8) as usize];
        let error = if call == Call::Write { ERRORS[self.random.below(3) as usize] } else { Errno::IO };
        let before = self.below.failed();
        self.say(|| format!("{call:?} is to fail"));
        self.below.fail(call, self.random.below(2), error);
        (self.faulty, self.failed) = (true, true);
        for _ in 0..1 + self.random.below(8) {
            self.step()?;
        }
        let failed = self.below.heal();
        self.tally.faults += failed - before;
        self.live().files.run_errands();
        // A flush may report the failure more than once, so several attempts are made.
        for _ in 0..4 {
            let cache = self.live().files.cache();
            if cache.drain().is_ok() && cache.flush().is_ok() {
                break;
            }
        }
        self.faulty = false;
        let flushed = self.live().files.cache().flush();
        self.may_fail("flushing after a failure", flushed).map(drop)
    }

    /// A close in good order, and a start.
    fn restart(&mut self) -> Outcome<()> {
        if self.faulty {
            return Ok(());
        }
        let opened: Vec<u64> = self.live().opened.keys().copied().collect();
        opened.into_iter().for_each(|made| self.close_file(made));
        let drained = self.random.chance(0.3);
        if drained {
            let done = self.live().files.cache().drain();
            self.may_fail("draining", done)?;
        }
        let closed = self.live().files.close();
        self.may_fail("closing", closed)?;
        self.live = None;
        self.tally.restarts += 1;
        self.killing.iter().for_each(Killing::ends);
        if self.killing.is_none() && self.random.chance(0.2) {
            // No new start before the crash that follows.
            self.power.fail_after(0);
            return Err(Stop::PowerOff);
        }
        if drained {
            self.check_below().map_err(Stop::Wrong)?;
        }
        self.open()
    }

    /// After a drain and a close the files alone are complete.
    fn check_below(&mut self) -> Result<(), String> {
        for (number, path) in DIRECTORIES.iter().enumerate() {
            let directory = self.below.directory(Path::new(path));
            for name in NAMES {
                let Ok(file) = directory.open(name) else { continue };
                let found = OpenFile::found(&file).map_err(|error| error.to_string())?;
                let made = found.made.expect("a simulated file has one");
                let mut bytes = vec![0; found.size as usize];
                read_whole(&file, &mut bytes).map_err(|error| error.to_string())?;
                if self.oracle.size(made) * ATOM != found.size {
                    return Err(format!("{number}/{name} has {} bytes below, after a drain", found.size));
                }
                self.oracle.check(made, 0, &bytes).map_err(|why| format!("below, after a drain: {why}"))?;
            }
        }
        Ok(())
    }

    /// Runs until the power fails after `power_for` writes and syncs, or for `steps` steps; then recovers and checks.
    pub fn round(&mut self, steps: u64, power_for: Option<u64>) -> Result<(), String> {
        if self.live.is_none() {
            self.open().map_err(wrong)?;
        }
        if let Some(operations) = power_for {
            self.power.fail_after(operations);
        }
        for _ in 0..steps {
            match self.step() {
                Ok(()) => {}
                Err(Stop::PowerOff) => break,
                Err(stop) => return Err(wrong(stop)),
            }
        }
        let power_lost = self.killing.is_some() || self.random.chance(0.75);
        self.crash(power_lost);
        self.recover(power_lost)
    }

    fn crash(&mut self, power_lost: bool) {
        self.say(|| format!("crash, power lost: {power_lost}"));
        self.tally.crashes += 1;
        self.tally.kills += u64::from(!power_lost);
        // The old instance must not act any more.
        self.power.fail_after(0);
        self.live = None;
        self.killing.iter_mut().for_each(Killing::lose_power);
        (self.faulty, self.failed, self.doubtful) = (false, false, false);
        let seed = self.random.next_u64();
        if power_lost {
            self.cache.crash(seed);
            self.below.crash(Random::mix(seed));
        } else {
            self.below.kill();
        }
        self.power.restore();
    }

    /// Recovers, now and then with another crash in the middle, and checks every file.
    fn recover(&mut self, mut power_lost: bool) -> Result<(), String> {
        for _ in 0..2 {
            if self.random.chance(0.2) {
                self.power.fail_after(1 + self.random.below(20));
                if let Err(Stop::Wrong(why)) = self.open() {
                    return Err(why);
                }
                self.tally.crashes_in_recovery += 1;
                let again = self.killing.is_some() || self.random.chance(0.75);
                self.crash(again);
                power_lost |= again;
            }
        }
        self.open().map_err(wrong)?;
        let mut checked = Vec::new();
        for (number, _) in DIRECTORIES.iter().enumerate() {
            for text in NAMES {
                let name = (number, text.to_owned());
                let found = self.live().directories[number].open(text).ok();
                let made = found.as_ref().and_then(|file| OpenFile::found(file).ok()?.made);
                self.oracle.check_name(&name, made, power_lost)?;
                if let Some(made) = made.filter(|&made| checked.iter().all(|&(_, checked)| checked != made)) {
                    checked.push((name, made));
                }
            }
        }
        for (name, made) in checked {
            self.check_file(&name, made, power_lost)?;
        }
        self.check_clean(&[])?;
        let lost = self.live().files.lost_pages().map_err(|error| error.to_string())?;
        if lost.is_empty() { Ok(()) } else { Err(format!("lost after a crash: {lost:?}")) }
    }

    fn check_file(&mut self, name: &Name, made: u64, power_lost: bool) -> Result<(), String> {
        self.tally.files_checked += 1;
        let data = self.open_file(name, made).map_err(wrong)?.ok_or("it cannot be opened")?;
        let size = data.size_bytes().map_err(|error| error.to_string())?;
        if self.traced {
            self.say_pages(made);
        }
        self.say(|| format!("check {name:?} {made} of {}", size / ATOM));
        let mut bytes = vec![0; size as usize];
        let count = data.read(0, &mut bytes).map_err(|error| format!("reading after a crash: {error}"))?;
        if count != bytes.len() {
            return Err(format!("{count} of {size} bytes are read after a crash"));
        }
        self.oracle.check_after_crash(made, &bytes, power_lost)
    }

    /// Prints the positions of a file's pages.
    fn say_pages(&self, made: u64) {
        let files = &self.live().files;
        let page_bytes = files.shared.page_bytes;
        let mut below = vec![0; page_bytes as usize];
        let mut held = files.cache().held_pages().expect("no thread panicked");
        held.sort_unstable();
        for (page, dirty) in held {
            let at = page * page_bytes;
            let Some((file, offset)) = files.shared.disk.file_at(at).filter(|(file, _)| file.key.made == made) else {
                continue;
            };
            let _may_fail = self.below.aside(|| files.shared.disk.read_at(at, &mut below));
            println!("  atom {} at {at} ({}): dirty {dirty}, below {:?}", offset / ATOM, file.key.inode, &below[..8]);
        }
    }

    /// A clean copy equals the backing store's bytes: the cache may drop it at any time. Of some pages, in order, memory
    /// may have a newer version.
    fn check_clean(&mut self, newer: &[u64]) -> Result<(), String> {
        let live = self.live.as_ref().expect("a layer that runs");
        let (cache, disk) = (live.files.cache(), &live.files.shared.disk);
        let page_bytes = live.files.shared.page_bytes;
        let held = cache.held_pages().map_err(|error| error.to_string())?;
        let (mut above, mut below) = (vec![0; page_bytes as usize], vec![0; page_bytes as usize]);
        for (page, _) in held.into_iter().filter(|(page, dirty)| !dirty && newer.binary_search(page).is_err()) {
            let at = page * page_bytes;
            let Some((file, offset)) = disk.file_at(at) else { continue };
            let size = file.size().map_err(|error| error.to_string())?;
            let inside = size.saturating_sub(offset).min(page_bytes) as usize;
            cache.read(at, &mut above).map_err(|error| error.to_string())?;
            disk.read_at(at, &mut below).map_err(|error| error.to_string())?;
            if above[..inside] != below[..inside] {
                let key = file.key;
                return Err(format!(
                    "after a crash byte {offset} of {key:?} is held as clean and is not what is below"
                ));
            }
            self.tally.clean_checked += 1;
        }
        Ok(())
    }
}

fn read_whole(file: &SimFile, bytes: &mut [u8]) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match OpenFile::read_at(file, done as u64, &mut bytes[done..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => done += count,
        }
    }
    Ok(())
}
