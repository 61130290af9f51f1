//! The table: state of a mount in shared memory, which the next server needs (`docs/fuse-take-over.md`).

mod image;
mod log;
mod record;

pub use image::Image;
pub use record::{Bad, Change, Facts, Open, Place, Remembered};

use crate::keep::{self, Keep, Kept};
use crate::mutant::{Mutant, is, step};
use log::Log;
use record::Record;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bit of a request's number that says that the kernel sends it again (`FUSE_UNIQUE_RESEND`).
const AGAIN: u64 = 1 << 63;

/// Number of no node.
const NO_NODE: u64 = 0;

/// Requests after which the kernel cannot have one of the former server in its queue any more: those come first.
const FORMER_REQUESTS: u64 = 1 << 16;

/// A request of the kernel.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    pub unique: u64,
    /// True if the kernel has sent it before.
    pub again: bool,
}

impl From<&fuser::Request> for Asked {
    fn from(request: &fuser::Request) -> Self {
        let unique = request.unique().0;
        Self { unique: unique & !AGAIN, again: unique & AGAIN != 0 }
    }
}

/// The table of a mount, and the holder that has its memory.
pub struct Table {
    keep: Arc<dyn Keep>,
    inner: Mutex<Inner>,
    /// Requests entered since the start of this process.
    entered: AtomicU64,
    /// Requests of a former server have lower numbers.
    first: AtomicU64,
}

struct Inner {
    /// None once the mount is not to outlive this process any more.
    log: Option<Log>,
    image: Image,
    scratch: Vec<u8>,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("keep", &self.keep).finish_non_exhaustive()
    }
}

impl Inner {
    fn append(&mut self, record: Record, keep: &dyn Keep) {
        let Some(log) = &mut self.log else { return };
        let fits = log.push(&record, &mut self.scratch) || {
            log.compact(self.image.records()).is_ok() && log.push(&record, &mut self.scratch)
        };
        // A record that does not fit would be refused by the next server too.
        if !fits || self.image.apply(record).is_err() {
            self.give_up(keep);
        }
    }

    /// Has the holder forget all: the mount ends with this process.
    fn give_up(&mut self, keep: &dyn Keep) {
        if self.log.take().is_none() {
            return;
        }
        keep.forget(keep::DEVICE);
        [keep::BACKING, keep::LOCK].into_iter().chain(keep::TABLES).for_each(|name| keep.forget(name));
        let kept = self.image.nodes.iter().filter(|(_, node)| node.kept);
        kept.for_each(|(&number, _)| keep.forget(&keep::of_node(number)));
        self.image = Image::default();
    }
}

impl Table {
    /// An empty table.
    pub fn new(keep: Arc<dyn Keep>) -> io::Result<Self> {
        Self::made(keep, Log::files()?, 0, 1, Image::default())
    }

    fn made(keep: Arc<dyn Keep>, files: [OwnedFd; 2], index: usize, generation: u64, image: Image) -> io::Result<Self> {
        let log = Log::rewrite(files, index, generation, image.records())?;
        let inner = Inner { log: Some(log), image, scratch: Vec::new() };
        Ok(Self { keep, inner: Mutex::new(inner), entered: AtomicU64::new(0), first: AtomicU64::new(u64::MAX) })
    }

    /// State of a former server, from its two files. [`Former::go_on`] makes a table of it.
    ///
    /// # Errors
    /// [`Bad`] for files that no server left.
    pub fn former(files: [OwnedFd; 2]) -> Result<Former, Bad> {
        let (index, generation, records) = log::read(&files)?;
        let mut image = Image::default();
        records.into_iter().try_for_each(|record| image.apply(record))?;
        Ok(Former { files, index, generation, image })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn append(&self, record: Record) {
        self.inner().append(record, &*self.keep);
    }

    /// Ends the survival of the mount, because the mount ends or the holder fails.
    pub fn give_up(&self) {
        self.inner().give_up(&*self.keep);
    }

    /// Hands the table, the device and the lock and backing directory to the holder.
    pub fn hand_over(&self, device: BorrowedFd<'_>, backing: BorrowedFd<'_>, lock: BorrowedFd<'_>) -> io::Result<()> {
        let inner = self.inner();
        let Some(log) = &inner.log else { return Ok(()) };
        for (name, file) in keep::TABLES.into_iter().zip(log.descriptors()) {
            self.keep.keep(name, file)?;
        }
        self.keep.keep(keep::BACKING, backing)?;
        self.keep.keep(keep::LOCK, lock)?;
        // The last: with it the mount outlives this process.
        self.keep.keep(keep::DEVICE, device)
    }

    pub fn mounted(&self, facts: Facts) {
        self.append(Record::Mounted(facts));
    }

    /// True if the request has counted a lookup of the node already.
    pub fn has_counted(&self, asked: Asked, number: u64) -> bool {
        asked.again && self.inner().image.has_counted(asked.unique, number)
    }

    /// Enters a node that is new, or is another file than before, with its lookups but the one that
    /// [`counted`](Self::counted) will enter.
    pub fn met(&self, number: u64, place: Place, made: Option<(i64, u32)>, lookups: u64) {
        self.append(Record::Node(number, Remembered { place: Some(place), made, lookups, ..Remembered::default() }));
    }

    pub fn counted(&self, number: u64, asked: Asked) {
        self.append(Record::Counted { number, unique: asked.unique, added: true });
    }

    /// The name that is entered for a node.
    pub fn place(&self, number: u64) -> Option<Place> {
        self.inner().image.nodes.get(&number)?.place.clone()
    }

    /// True if this name is entered for a node.
    pub fn is_named(&self, number: u64, parent: u64, name: &[u8]) -> bool {
        let inner = self.inner();
        let place = inner.image.nodes.get(&number).and_then(|node| node.place.as_ref());
        place.is_some_and(|place| place.0 == parent && place.1 == name)
    }

    pub fn named(&self, number: u64, place: Place) {
        let mut inner = self.inner();
        if inner.image.nodes.contains_key(&number) {
            inner.append(Record::Named(number, place), &*self.keep);
        }
    }

    /// Enters that lookups were taken back; `failed` is the request that counted one in vain.
    pub fn forgotten(&self, number: u64, count: u64, failed: Option<Asked>) {
        let mut inner = self.inner();
        let Some(node) = inner.image.nodes.get(&number) else { return };
        let ends_kept = node.kept && node.lookups <= count;
        let unique = failed.map_or(0, |asked| asked.unique);
        inner.append(Record::Forgotten { number, count, unique }, &*self.keep);
        if ends_kept {
            self.keep.forget(&keep::of_node(number));
        }
    }

    /// Hands a node's descriptor to the holder before its name is removed. The next server could not open it.
    pub fn keep_node(&self, number: u64, file: BorrowedFd<'_>) {
        if is(Mutant::NamelessNotKept) {
            return;
        }
        // Without the holder the file is lost at a kill, but the removal is not prevented.
        if self.keep.keep(&keep::of_node(number), file).is_ok() {
            step();
            let mut inner = self.inner();
            if inner.image.nodes.contains_key(&number) {
                inner.append(Record::Kept(number), &*self.keep);
            }
        }
    }

    pub fn opened(&self, handle: u64, open: Open) {
        self.append(Record::Opened(handle, open));
    }

    pub fn closed(&self, handle: u64) {
        let mut inner = self.inner();
        if inner.image.handles.contains_key(&handle) {
            inner.append(Record::Closed(handle), &*self.keep);
        }
    }

    /// Enters the id of a node's backing file, before any answer names it and before another one is registered.
    pub fn registered(&self, node: u64, id: u32) {
        self.append(Record::Registered { node, id });
    }

    /// Enters that the id of a node's backing file is closed.
    pub fn unregistered(&self, node: u64, id: u32) {
        let mut inner = self.inner();
        if inner.image.backings.contains(&(node, id)) {
            inner.append(Record::Unregistered { node, id }, &*self.keep);
        }
    }

    /// Enters that no id below `next` is open without being entered.
    pub fn next_backing(&self, next: u32) {
        self.append(Record::NextBacking(next));
    }

    /// Enters that handles of a node opened from now on have no backing id. One may still be entered: this process may
    /// not close it, or the kernel forgot the node and found it again before it reported the end of the last handle.
    pub fn asked(&self, node: u64) {
        let mut inner = self.inner();
        let ids = inner.image.backings.range((node, 0)..=(node, u32::MAX)).map(|&(_, id)| id).collect::<Vec<_>>();
        for id in ids {
            // The next server closes it.
            inner.append(Record::Registered { node: NO_NODE, id }, &*self.keep);
            inner.append(Record::Unregistered { node, id }, &*self.keep);
        }
    }

    /// Enters a request that must not be repeated. `change` is called unless its outcome is known.
    pub fn begin(self: &Arc<Self>, asked: Asked, change: impl FnOnce() -> Change) -> Entry {
        let mut outcome = None;
        if asked.again && !is(Mutant::Repeated) {
            outcome = self.inner().image.requests.get(&asked.unique).and_then(|entered| entered.outcome);
        }
        if outcome.is_none() {
            let change = change();
            self.drop_former(asked);
            step();
            self.append(Record::Began(asked.unique, change));
        }
        Entry { table: Some(self.clone()), unique: asked.unique, outcome }
    }

    /// Drops the requests of former servers when the kernel cannot send them again any more.
    fn drop_former(&self, asked: Asked) {
        if !asked.again {
            self.first.fetch_min(asked.unique, Relaxed);
        }
        if self.entered.fetch_add(1, Relaxed) != FORMER_REQUESTS {
            return;
        }
        let (first, mut inner) = (self.first.load(Relaxed), self.inner());
        let former: Vec<u64> = inner.image.requests.range(..first).map(|(&unique, _)| unique).collect();
        former.into_iter().for_each(|unique| inner.append(Record::Answered(unique), &*self.keep));
    }
}

/// State of a former server.
pub struct Former {
    files: [OwnedFd; 2],
    index: usize,
    generation: u64,
    pub image: Image,
}

impl Former {
    /// Enters that a request was carried out.
    pub fn carried_out(&mut self, unique: u64) {
        let _known = self.image.apply(Record::Ended { unique, errno: 0 });
    }

    /// Compares the nodes whose descriptors the holder has with those that are entered as kept: the server was killed
    /// before it entered one, or had the holder forget it.
    pub fn compare_kept(&mut self, kept: &Kept, keep: &dyn Keep) {
        self.image.nodes.values_mut().for_each(|node| node.kept = false);
        for number in kept.nodes() {
            match self.image.nodes.get_mut(&number) {
                Some(node) => node.kept = true,
                None => keep.forget(&keep::of_node(number)),
            }
        }
    }

    /// A table that goes on from this state.
    pub fn go_on(self, keep: Arc<dyn Keep>) -> io::Result<Table> {
        let Self { files, index, generation, mut image } = self;
        // Those that were not carried out are new requests if they come again.
        image.requests.retain(|_, entered| entered.outcome.is_some());
        Table::made(keep, files, 1 - index, generation + 1, image)
    }
}

/// Entry of a request in the table; to be dropped when the request is answered.
pub struct Entry {
    table: Option<Arc<Table>>,
    unique: u64,
    /// Outcome, if the request was carried out before it came again.
    outcome: Option<i32>,
}

impl Entry {
    /// Entry of a request on a mount without a table.
    pub const NONE: Entry = Entry { table: None, unique: 0, outcome: None };

    /// Carries the request out through `act`, unless that was done already: `None` then.
    ///
    /// # Errors
    /// The error of `act`, or that of the first time.
    pub fn run<T>(&self, act: impl FnOnce() -> io::Result<T>) -> io::Result<Option<T>> {
        let Some(table) = &self.table else { return act().map(Some) };
        match self.outcome {
            Some(0) => return Ok(None),
            Some(errno) => return Err(io::Error::from_raw_os_error(errno)),
            None => {}
        }
        step();
        let done = act();
        step();
        let errno = match &done {
            Ok(_) => 0,
            Err(error) => error.raw_os_error().unwrap_or(rustix::io::Errno::IO.raw_os_error()),
        };
        let mut inner = table.inner();
        if inner.image.requests.contains_key(&self.unique) {
            inner.append(Record::Ended { unique: self.unique, errno }, &*table.keep);
        }
        drop(inner);
        done.map(Some)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let Some(table) = &self.table else { return };
        step();
        let mut inner = table.inner();
        if inner.image.requests.contains_key(&self.unique) {
            inner.append(Record::Answered(self.unique), &*table.keep);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_core::Random;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    #[derive(Debug, Default)]
    struct Nobody;

    impl Keep for Nobody {
        fn keep(&self, _: &str, _: BorrowedFd<'_>) -> io::Result<()> {
            Ok(())
        }

        fn forget(&self, _: &str) {}
    }

    fn place(random: &mut Random) -> Place {
        (1 + random.below(5), vec![b'a' + random.below(3) as u8; 1 + random.below(20) as usize])
    }

    fn change(random: &mut Random) -> Change {
        let (at, before) = (place(random), random.below(4));
        match random.below(4) {
            0 => Change::Make { at, before },
            1 => Change::Remove { at, before },
            2 => {
                let (moved, replaced, exchange) = (random.below(5), random.below(5), random.chance(0.3));
                Change::Rename { from: at, to: place(random), moved, replaced, exchange }
            }
            _ => Change::Attribute { node: before, name: at.1, set: random.chance(0.5), before: random.chance(0.5) },
        }
    }

    /// Calls a table at random, as the server does.
    fn used(table: &Arc<Table>, random: &mut Random, calls: u64) {
        let mut entries = Vec::new();
        for call in 0..calls {
            let (number, asked) = (2 + random.below(5), Asked { unique: 1000 + call, again: false });
            let known = table.inner().image.nodes.contains_key(&number);
            let entered = table.inner().image.backings.first().copied();
            match random.below(13) {
                0 if !known => table.met(number, place(random), random.chance(0.5).then_some((-5, 7)), 0),
                1 | 2 if known => table.counted(number, asked),
                3 => table.forgotten(number, random.below(3), random.chance(0.3).then_some(asked)),
                4 if known => table.named(number, place(random)),
                5 => table.opened(call, Open { node: number, flags: 2, directory: random.chance(0.5), unique: call }),
                6 => table.closed(random.below(call + 1)),
                7 => {
                    let change = change(random);
                    let entry = table.begin(asked, || change);
                    let _ = entry.run(|| if random.chance(0.7) { Ok(()) } else { Err(Errno::NOENT.into()) });
                    entries.push(entry);
                }
                8 => table.registered(number, call as u32),
                9 => entered.into_iter().for_each(|(node, id)| table.unregistered(node, id)),
                10 => table.asked(number),
                11 => table.next_backing(random.below(call + 1) as u32),
                _ if known => table.append(Record::Kept(number)),
                _ => drop((entries.len() > 3).then(|| entries.swap_remove(0))),
            }
        }
        // As if the process were killed.
        entries.into_iter().for_each(std::mem::forget);
    }

    use rustix::io::Errno;

    fn files(table: &Table) -> [OwnedFd; 2] {
        let inner = table.inner();
        inner.log.as_ref().unwrap().descriptors().map(|file| file.try_clone_to_owned().unwrap())
    }

    #[test]
    fn the_next_server_reads_what_the_former_one_entered() {
        for seed in 0..30 {
            let mut random = Random::new(seed);
            let table = Arc::new(Table::new(Arc::new(Nobody)).unwrap());
            table.mounted(Facts { mountpoint: "/mnt".into(), id: Some(3), version: (7, 40), ..Facts::default() });
            used(&table, &mut random, 3000);
            let former = Table::former(files(&table)).unwrap();
            assert_eq!(former.image, table.inner().image, "seed {seed}");
            let (mut image, next) = (former.image.clone(), former.go_on(Arc::new(Nobody)).unwrap());
            image.requests.retain(|_, entered| entered.outcome.is_some());
            assert_eq!(Table::former(files(&next)).unwrap().image, image, "seed {seed}");
        }
    }

    #[test]
    fn many_records_are_compacted() {
        let table = Arc::new(Table::new(Arc::new(Nobody)).unwrap());
        used(&table, &mut Random::new(1), 100_000);
        let bytes: u64 = files(&table).map(|file| File::from(file).metadata().unwrap().len()).iter().sum();
        let counted = table.inner().image.handles.len();
        assert!(bytes < 8 << 20, "{bytes} bytes for {counted} handles");
        assert_eq!(Table::former(files(&table)).unwrap().image, table.inner().image);
    }

    #[test]
    fn senseless_bytes_are_an_error_or_another_state_and_never_a_panic() {
        let mut random = Random::new(7);
        let mut refused = 0;
        for _ in 0..2000 {
            let table = Arc::new(Table::new(Arc::new(Nobody)).unwrap());
            used(&table, &mut random, 60);
            let [file, _] = files(&table).map(File::from);
            let written = table.inner().log.as_ref().unwrap().used() as u64;
            for _ in 0..1 + random.below(4) {
                let (at, bytes) = (random.below(written), random.next_u64().to_le_bytes());
                let length = 1 + random.below(8) as usize;
                file.write_all_at(&bytes[..length], at).unwrap();
            }
            if random.chance(0.2) {
                file.set_len(random.below(written)).unwrap();
            }
            match Table::former(files(&table)) {
                Err(_) => refused += 1,
                // Paths end, whatever the parents are.
                Ok(former) => {
                    let places = former.image.nodes.values().filter_map(|node| node.place.as_ref());
                    places.for_each(|place| drop(former.image.path(place, 1)));
                }
            }
        }
        assert!(refused > 500, "{refused}");
        let empty = Log::files().unwrap();
        assert_eq!(Table::former(empty).err(), Some(Bad("it is not complete")));
    }

    #[test]
    fn a_record_that_is_not_committed_is_none() {
        for seed in 0..50 {
            let table = Arc::new(Table::new(Arc::new(Nobody)).unwrap());
            used(&table, &mut Random::new(seed), 50);
            let [file, _] = files(&table).map(File::from);
            let written = table.inner().log.as_ref().unwrap().used() as u64;
            // Its body, torn: the first word is not there.
            file.write_all_at(&[0xFF; 24], written + 8).unwrap();
            assert_eq!(Table::former(files(&table)).unwrap().image, table.inner().image, "seed {seed}");
        }
    }
}
