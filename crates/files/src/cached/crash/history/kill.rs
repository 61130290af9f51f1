//! Kills of the process alone, at any moment: files stay open, the request under way is sent again, and everything that
//! was answered is read by the next process, synced or not.

use super::{DIRECTORIES, History, NAMES, Outcome, Stop, wrong};
use crate::below::simulated::{SimDirectory, SimFile, SimFileSystem, id, moment, tear_writes};
use crate::below::{File, OpenFile};
use crate::cached::FileStates;
use crate::{FileData, FileLayer as _, NamesBelow as _};
use entresol_crashtest::SimDisk;
use entresol_crashtest::posix::{ATOM, Change, Name, Oracle};
use entresol_disk::{Disk, Transfer};
use entresol_store::Geometry;
use entresol_store::arena::{Arena, moments};
use rustix::fs::FallocateFlags;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::rc::Rc;
use std::sync::Arc;

/// A cache device between whose calls the process may be killed.
#[derive(Clone)]
pub(in super::super) struct Device(pub SimDisk);

impl Disk for Device {
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.0.read_at(at, bytes)
    }

    fn read_now(&self, at: u64, bytes: &mut [u8]) -> bool {
        self.0.read_now(at, bytes)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        moment(self.0.write_at(at, bytes))
    }

    fn sync(&self) -> io::Result<()> {
        moment(self.0.sync())
    }

    fn submit(&self, transfers: &mut [Transfer]) -> io::Result<()> {
        moment(self.0.submit(transfers))
    }

    fn grow(&self, size_bytes: u64) -> io::Result<()> {
        self.0.grow(size_bytes)
    }

    fn discard(&self, at: u64, bytes: u64) -> io::Result<()> {
        moment(self.0.discard(at, bytes))
    }
}

/// Memory that outlives a process.
#[derive(Clone)]
pub(in super::super) struct Kept {
    pub arena: Arc<Arena>,
    pub states: Arc<FileStates>,
}

impl Kept {
    /// Of a cache that nobody has used with it.
    pub fn new(geometry: Geometry) -> Self {
        let blocks = geometry.segment_pages as usize + usize::from(geometry.layout.has_slots());
        let arena = Arena::anonymous(geometry.page_bytes as usize, blocks).expect("memory for an arena");
        Kept { arena, states: FileStates::anonymous().expect("memory for states") }
    }

    /// As the next process finds it.
    pub fn killed(&self) -> Self {
        Kept { arena: self.arena.killed().expect("memory for an arena"), states: self.states.killed() }
    }
}

/// State that a killed process leaves.
pub(in super::super) struct Left {
    pub cache: SimDisk,
    pub below: SimFileSystem,
    pub kept: Kept,
    held: Vec<HeldFile>,
}

impl Left {
    pub fn of(cache: &SimDisk, below: &SimFileSystem, kept: &Kept, holder: &BTreeMap<u64, bool>) -> Self {
        let (below, files) = below.fork(&holder.keys().copied().collect::<Vec<_>>());
        let held = |file: SimFile| HeldFile { is_open: holder[&file.inode()], file };
        Left { cache: cache.fork(), below, kept: kept.killed(), held: files.into_iter().map(held).collect() }
    }
}

/// A file whose descriptor somebody else holds.
struct HeldFile {
    file: SimFile,
    /// A program has the file open. Else the kernel remembers it a while longer.
    is_open: bool,
}

/// A watch for the moment of the kill.
pub(in super::super) struct Watch(Rc<RefCell<Option<Left>>>);

impl Watch {
    /// Takes what a kill leaves, at this moment of this thread counted from now on.
    pub fn begin(moment: u64, left: impl Fn() -> Left + 'static) -> Self {
        let taken = Rc::<RefCell<Option<Left>>>::default();
        let (into, mut passed) = (taken.clone(), 0);
        tear_writes(true);
        moments::call(Some(Box::new(move || {
            passed += 1;
            if passed == moment {
                *into.borrow_mut() = Some(left());
            }
        })));
        Watch(taken)
    }

    /// True if the moment has come.
    fn is_over(&self) -> bool {
        self.0.borrow().is_some()
    }

    /// Ends the watch; none if the moment has not come.
    pub fn end(self) -> Option<Left> {
        self.0.take()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        moments::call(None);
        tear_writes(false);
    }
}

/// A request that is being carried out.
#[derive(Clone)]
pub(super) enum Request {
    Create(Name),
    Write { made: u64, from: u64, bytes: Vec<u8>, change: Change },
    Truncate { made: u64, to: u64, change: Change },
    Allocate { made: u64, how: FallocateFlags, from: u64, end: u64, change: Option<Change> },
    Sync { made: u64, data_only: bool },
    SyncDirectory(usize),
    Rename { from: Name, to: Name, made: u64, replaced: Option<u64> },
    Unlink { name: Name, made: u64 },
    Link { name: Name, other: Name, made: u64 },
}

impl Request {
    /// True if the model has the request's outcome before the answer.
    fn is_of_bytes(&self) -> bool {
        matches!(self, Request::Write { .. } | Request::Truncate { .. } | Request::Allocate { .. })
    }
}

/// State of a run with kills.
pub(super) struct Killing {
    kept: Rc<RefCell<Option<Kept>>>,
    /// Numbers of the files that somebody else holds, and whether a program has each open.
    holder: Rc<RefCell<BTreeMap<u64, bool>>>,
    /// Handles of these files after a kill, until the next process has them open.
    held: Vec<HeldFile>,
    watch: Option<Watch>,
    /// The model before the request under way.
    before: Oracle,
    under_way: Option<Request>,
    /// Pages that the next process repeats, in order.
    repeated: Vec<u64>,
}

impl Killing {
    pub fn new() -> Self {
        let (before, holder) = (Oracle::new(), Rc::default());
        Killing {
            kept: Rc::default(),
            holder,
            held: Vec::new(),
            watch: None,
            before,
            under_way: None,
            repeated: Vec::new(),
        }
    }

    /// The files of the holder, for a start.
    pub fn open_files(&self) -> Vec<File> {
        self.held.iter().map(|held| File::Simulated(held.file.again())).collect()
    }

    /// Has the next start find the memory as a process leaves it that ends now.
    pub fn ends(&self) {
        let next = self.kept.borrow().as_ref().map(Kept::killed);
        *self.kept.borrow_mut() = next;
    }

    /// Forgets all that a loss of power takes.
    pub fn lose_power(&mut self) {
        (self.held, self.watch) = (Vec::new(), None);
        *self.kept.borrow_mut() = None;
        self.holder.borrow_mut().clear();
    }
}

impl History {
    /// Memory that outlives the process, for a start.
    pub(super) fn kept(&self) -> Option<Kept> {
        let geometry = self.setup.geometry;
        let mut kept = self.killing.as_ref()?.kept.borrow_mut();
        let kept = kept.get_or_insert_with(|| Kept::new(geometry));
        Some(kept.clone())
    }

    /// Notes that a request begins.
    pub(super) fn begins(&mut self, request: impl FnOnce() -> Request) {
        if let Some(killing) = self.killing.as_mut().filter(|killing| killing.watch.is_some()) {
            killing.under_way = Some(request());
        }
    }

    /// Notes that a step has ended: with a kill, if its moment has come.
    pub(super) fn ended(&mut self) -> Outcome<()> {
        let Some(killing) = self.killing.as_mut() else { return Ok(()) };
        let Some(watch) = &killing.watch else { return Ok(()) };
        if watch.is_over() {
            return Err(Stop::Killed);
        }
        (killing.before, killing.under_way) = (self.oracle.clone(), None);
        Ok(())
    }

    /// Notes that somebody else holds the file with this number, which a program has open if `is_open`.
    pub(super) fn holds(&self, inode: u64, is_open: bool) {
        if let Some(killing) = &self.killing {
            *killing.holder.borrow_mut().entry(inode).or_default() |= is_open;
        }
    }

    /// Notes that nobody else holds the file with this number.
    pub(super) fn lets_go(&self, inode: u64) {
        if let Some(killing) = &self.killing {
            killing.holder.borrow_mut().remove(&inode);
        }
    }

    /// Has the process killed at a moment from now on.
    fn watch(&mut self) {
        let moments = if self.random.chance(0.5) { 12 } else { 250 };
        let moment = 1 + self.random.below(moments);
        self.kept();
        let (cache, below) = (self.cache.clone(), self.below.clone());
        let killing = self.killing.as_mut().expect("a run with kills");
        let (kept, holder) = (killing.kept.clone(), killing.holder.clone());
        killing.watch = Some(Watch::begin(moment, move || {
            let kept = kept.borrow();
            Left::of(&cache, &below, kept.as_ref().expect("a run with kills"), &holder.borrow())
        }));
        (killing.before, killing.under_way) = (self.oracle.clone(), None);
    }

    /// Runs for some steps, kills the process at a moment of one of them or of the start, and checks that the next
    /// process reads everything as it was answered.
    pub fn kill(&mut self, steps: u64) -> Result<(), String> {
        match self.run_until_killed(steps) {
            Ok(()) | Err(Stop::Killed) => {}
            Err(Stop::Wrong(why)) => return Err(why),
            Err(Stop::PowerOff) => unreachable!("the power is on"),
        }
        // At times another kill comes during the next start.
        let mut watched = self.random.chance(0.3);
        while let Err(stop) = self.next_process(watched) {
            match stop {
                Stop::Killed => {
                    (self.tally.crashes_in_recovery, self.doubtful) = (self.tally.crashes_in_recovery + 1, true)
                }
                stop => return Err(wrong(stop)),
            }
            watched = self.random.chance(0.3);
        }
        self.check_as_answered().map_err(wrong)?;
        let under_way = self.killing().under_way.take();
        // At times the client is killed as well.
        match under_way.filter(|_| self.random.chance(0.9)) {
            Some(request) => self.send_again(request).map_err(wrong),
            None => Ok(()),
        }
    }

    fn killing(&mut self) -> &mut Killing {
        self.killing.as_mut().expect("a run with kills")
    }

    fn run_until_killed(&mut self, steps: u64) -> Outcome<()> {
        let last = self.random.below(steps + 1);
        if self.live.is_none() {
            self.watch();
            self.open()?;
            self.ended()?;
            self.killing().watch = None;
        }
        for step in 0..steps {
            if step == last {
                self.watch();
            }
            self.step()?;
        }
        Ok(())
    }

    /// Ends this process, and starts the next one.
    fn next_process(&mut self, watched: bool) -> Outcome<()> {
        let kept = self.kept().expect("a run with kills");
        let left = self.killing().watch.take().and_then(Watch::end);
        let left = match left {
            Some(left) => left,
            None => {
                // Between two requests.
                self.killing().before = self.oracle.clone();
                self.killing().under_way = None;
                let holder = self.killing().holder.clone();
                Left::of(&self.cache, &self.below, &kept, &holder.borrow())
            }
        };
        let survivors = left.kept.arena.survivors().map_err(|error| Stop::Wrong(error.to_string()))?;
        let repeated: Vec<u64> = survivors.pages().into_iter().map(|(page, _)| page).collect();
        self.say(|| format!("kill: the arena has pages {repeated:?}, voids {:?}", survivors.voids()));
        self.tally.repeated += repeated.len() as u64;
        self.killing().repeated = repeated;
        (self.tally.crashes, self.tally.kills) = (self.tally.crashes + 1, self.tally.kills + 1);
        (self.live, self.faulty) = (None, false);
        (self.cache, self.below) = (left.cache, left.below);
        self.killing().held = left.held;
        *self.killing().kept.borrow_mut() = Some(left.kept);
        if watched {
            let (before, under_way) = (self.killing().before.clone(), self.killing().under_way.clone());
            self.watch();
            (self.killing().before, self.killing().under_way) = (before, under_way);
        }
        let opened = self.open();
        if self.killing().watch.as_ref().is_some_and(Watch::is_over) {
            return Err(Stop::Killed);
        }
        self.killing().watch = None;
        opened?;
        for HeldFile { file, is_open } in std::mem::take(&mut self.killing().held) {
            if is_open {
                self.adopt(file)?;
            } else {
                // The kernel forgets the file.
                self.lets_go(file.inode());
                if !SimDirectory::has_name(&file) {
                    self.live().files.removed(id(file.inode()));
                }
            }
        }
        Ok(())
    }

    /// Checks that all files are as they were answered, or have the request under way.
    fn check_as_answered(&mut self) -> Outcome<()> {
        let mut other = self.killing().before.clone();
        if !self.killing().under_way.as_ref().is_some_and(Request::is_of_bytes) {
            std::mem::swap(&mut self.oracle, &mut other);
        }
        self.expect_names();
        let mut checked: BTreeSet<u64> = BTreeSet::new();
        for number in 0..DIRECTORIES.len() {
            for text in NAMES {
                let name = (number, text.to_owned());
                let found = self.live().directories[number].open(text).ok();
                let made = found.as_ref().and_then(|file| OpenFile::found(file).ok()?.made);
                self.oracle.check_name(&name, made, false).map_err(Stop::Wrong)?;
                if let Some(made) = made.filter(|&made| checked.insert(made)) {
                    self.check_answered(&name, made, &mut other)?;
                }
            }
        }
        let nameless: Vec<u64> = self.live().opened.keys().copied().filter(|made| !checked.contains(made)).collect();
        self.tally.nameless_checked += nameless.len() as u64;
        nameless.into_iter().try_for_each(|made| self.check_answered(&(0, String::new()), made, &mut other))?;
        let repeated = std::mem::take(&mut self.killing().repeated);
        self.check_clean(&repeated).map_err(Stop::Wrong)?;
        let lost = self.live().files.lost_pages().map_err(|error| Stop::Wrong(error.to_string()))?;
        if lost.is_empty() { Ok(()) } else { Err(Stop::Wrong(format!("lost after a kill: {lost:?}"))) }
    }

    /// Tells the model which names the request under way may have changed.
    fn expect_names(&mut self) {
        match self.killing().under_way.clone() {
            Some(Request::Create(name)) => self.oracle.may_be_made(&name),
            Some(Request::Rename { from, to, made, .. }) => {
                self.oracle.leads(&from, None);
                self.oracle.leads(&to, Some(made));
            }
            Some(Request::Unlink { name, .. }) => self.oracle.leads(&name, None),
            Some(Request::Link { other, made, .. }) => self.oracle.leads(&other, Some(made)),
            _ => {}
        }
    }

    fn check_answered(&mut self, name: &Name, made: u64, other: &mut Oracle) -> Outcome<()> {
        self.tally.files_checked += 1;
        let data = self.open_file(name, made)?.ok_or_else(|| Stop::Wrong("it cannot be opened".to_owned()))?;
        let size = data.size_bytes().map_err(|error| Stop::Wrong(error.to_string()))?;
        if self.traced {
            self.say_pages(made);
        }
        self.say(|| format!("check {name:?} {made} of {}", size / ATOM));
        let mut bytes = vec![0; size as usize];
        match data.read(0, &mut bytes) {
            Ok(count) if count == bytes.len() => {}
            read => return Err(Stop::Wrong(format!("{read:?} of {size} bytes are read after a kill"))),
        }
        self.oracle.check_after_kill(made, &bytes, other).map_err(Stop::Wrong)
    }

    /// A handle of a file, which is opened by a name if need be.
    fn handle(&mut self, made: u64) -> Outcome<Option<Arc<dyn FileData>>> {
        let names = (0..DIRECTORIES.len()).flat_map(|number| NAMES.map(|text| (number, text.to_owned())));
        let name = names.into_iter().find(|name| self.oracle.at(name) == Some(made));
        let is_open = self.live().opened.contains_key(&made);
        match name {
            None if !is_open => Ok(None),
            name => self.open_file(&name.unwrap_or_default(), made),
        }
    }

    /// Carries out the request that had no answer: once more, or not if a change of a name was made.
    fn send_again(&mut self, request: Request) -> Outcome<()> {
        self.tally.sent_again += 1;
        self.say(|| "sent again".to_owned());
        match request {
            Request::Create(name) => self.create_as(&name),
            Request::Write { made, from, bytes, change } => {
                let Some(data) = self.handle(made)? else { return Ok(()) };
                self.oracle.announce(&change, Some(from + bytes.len() as u64 / ATOM));
                let written = data.write(from * ATOM, &bytes);
                self.changed("writing", made, Some(change), written)
            }
            Request::Truncate { made, to, change } => {
                let Some(data) = self.handle(made)? else { return Ok(()) };
                self.oracle.announce(&change, None);
                self.oracle.may_be_sized(made, to);
                let cut = data.truncate(to * ATOM);
                self.changed("truncating", made, Some(change), cut)
            }
            Request::Allocate { made, how, from, end, change } => {
                let Some(data) = self.handle(made)? else { return Ok(()) };
                if let Some(change) = &change {
                    self.oracle.announce(change, None);
                }
                if !how.contains(FallocateFlags::KEEP_SIZE) {
                    let size = self.oracle.size(made).max(end);
                    self.oracle.may_be_sized(made, size);
                }
                let done = data.allocate(how, from * ATOM, (end - from) * ATOM);
                self.changed("allocating", made, change, done)
            }
            Request::Sync { made, data_only } => match self.handle(made)? {
                Some(data) => self.sync_as(made, &data, data_only),
                None => Ok(()),
            },
            Request::SyncDirectory(directory) => self.sync_directory_as(directory),
            Request::Rename { from, to, made, replaced } => {
                let is_there = self.leads_to(&from, made);
                if is_there {
                    self.rename_as(&from, &to, made, replaced)
                } else {
                    self.renamed(&from, &to, made, replaced)
                }
            }
            Request::Unlink { name, made } if self.leads_to(&name, made) => self.unlink_as(&name, made),
            Request::Link { name, other, made } if self.leads_to(&name, made) && self.oracle.at(&other).is_none() => {
                self.link_as(&name, made, &other)
            }
            Request::Unlink { .. } | Request::Link { .. } => Ok(()),
        }
    }

    /// Notes a rename that was made before the kill.
    fn renamed(&mut self, from: &Name, to: &Name, made: u64, replaced: Option<u64>) -> Outcome<()> {
        self.oracle.leads(from, None);
        self.oracle.leads(to, Some(made));
        if replaced.is_some_and(|replaced| replaced != made) {
            self.oracle.replaces(made, to);
        }
        Ok(())
    }

    fn leads_to(&self, name: &Name, made: u64) -> bool {
        let found = self.live().directories[name.0].open(&name.1).ok();
        found.and_then(|file| OpenFile::found(&file).ok()?.made) == Some(made)
    }
}
