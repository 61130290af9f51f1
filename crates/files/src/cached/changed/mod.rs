//! Files that somebody else changes below while a cache stands before them: how they are found, and what becomes of their pages.
//! `docs/SEMANTICS.md` says what a program sees of it.
//!
//! Of each file it is known how our own last change left it: size, time of modification and time of the last change of anything, its
//! [`Stamp`]. A change of our own begins with a comparison, while no other of ours is under way, and ends with a new stamp. Who
//! only wants to know compares while none is under way. Both take the stamp and look at the file under one lock, so nothing of
//! ours is ever taken for somebody else's. When the last of ours that are under way ends, the file has to be what they left of it, as
//! far as that is known: its size, and the time of modification that a write of the cache's own puts back. What somebody else
//! changes meanwhile without a trace in the two goes unseen, until he changes the file again.

mod aside;
mod conflict;
mod expected;
mod resolve;
mod under_way;

pub(super) use aside::{kept, remove as remove_aside};
pub use conflict::News;
pub use resolve::{Conflict, Keep};
pub(super) use under_way::UnderWay;

use super::disk::{Below, stamp};
use super::map::{FileKey, FileMap, Stamp};
use crate::below::{Attributes, File, OpenFile};
use crate::mutant::{self, Mutant};
use aside::Aside;
use expected::Expected;
use rustix::io::Errno;
use std::io;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Change that somebody else has made to a file, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Change {
    /// Nothing.
    None,
    /// The time of its last change is not ours, but size and time of modification are: a mode, an owner, a name. Its bytes are to be
    /// compared.
    Attributes,
    /// It has other bytes. What the cache has of it is to be looked through.
    Bytes,
    /// It has other bytes, the cache had dirty pages of it, and the map says so.
    Conflict,
}

impl Change {
    /// Nothing of the file goes through the cache.
    pub fn is_apart(self) -> bool {
        self >= Change::Bytes
    }
}

/// Watch over a file of the backing store for changes that somebody else makes.
pub(super) struct Watch {
    change: AtomicU8,
    seen: Mutex<Seen>,
    /// Pages that are kept from the file, once there are any.
    aside: Mutex<Option<Aside>>,
}

struct Seen {
    /// State in which our last change left the file; none if it is not known and is taken from the next look.
    stamp: Option<Stamp>,
    /// Our changes under way.
    ours: usize,
    /// State that the file is to have when our changes have ended.
    expected: Expected,
}

impl Watch {
    /// A file that was left so, with so many changes of ours under way.
    pub fn new(stamp: Option<Stamp>, ours: usize) -> Self {
        let seen = Mutex::new(Seen { stamp, ours, expected: Expected::like_left(stamp) });
        Watch { change: AtomicU8::new(Change::None as u8), seen, aside: Mutex::default() }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn aside(&self) -> MutexGuard<'_, Option<Aside>> {
        self.aside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) -> Change {
        match self.change.load(SeqCst) {
            0 => Change::None,
            1 => Change::Attributes,
            2 => Change::Bytes,
            _ => Change::Conflict,
        }
    }

    /// Begins a change of attributes alone, without a comparison.
    fn begin_attributes(&self) {
        let mut seen = self.seen();
        match seen.ours {
            0 => seen.expected = Expected::like_left(seen.stamp),
            _ => seen.expected.modified = None,
        }
        seen.ours += 1;
    }

    fn worsen(&self, change: Change) {
        self.change.fetch_max(change as u8, SeqCst);
    }

    /// Compares the file as it is now with how it was left.
    fn compare(&self, seen: &mut Seen, now: Stamp) {
        let then = *seen.stamp.get_or_insert(now);
        if now != then {
            let same = (now.size, now.modified) == (then.size, then.modified);
            self.worsen(if same { Change::Attributes } else { Change::Bytes });
        }
    }
}

/// Link from the files below to the map that says which of them are in conflict. It has the news of them and the
/// listener for stale files.
#[derive(Default)]
pub(super) struct Changes {
    map: OnceLock<Arc<Mutex<FileMap>>>,
    /// Outcomes for files that somebody else changed, until they are asked for.
    news: Mutex<Vec<(FileKey, News)>>,
    stale: OnceLock<Box<dyn Fn(u64) + Send + Sync>>,
}

impl Changes {
    /// The map is in use from now on.
    pub fn begin(&self, map: Arc<Mutex<FileMap>>) {
        // A cache is opened once.
        let _ = self.map.set(map);
    }

    /// Sets the listener that is told the number of each file of which bytes that were given are not what they were.
    pub fn tell(&self, tell: Box<dyn Fn(u64) + Send + Sync>) {
        let _ = self.stale.set(tell);
    }

    fn map(&self) -> io::Result<MutexGuard<'_, FileMap>> {
        // What is only looked at is not written either.
        let map = self.map.get().ok_or(Errno::STALE)?;
        Ok(map.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn note(&self, key: FileKey, news: News) {
        self.news.lock().unwrap_or_else(PoisonError::into_inner).push((key, news));
    }

    fn is_stale(&self, key: FileKey) {
        if let Some(tell) = self.stale.get() {
            tell(key.inode);
        }
    }
}

/// A change of our own, until it is dropped.
pub(super) struct Ours<'a> {
    below: &'a Below,
    file: Arc<File>,
}

impl Drop for Ours<'_> {
    fn drop(&mut self) {
        self.below.end(&self.file);
    }
}

impl Below {
    /// Change that somebody else has made to the file.
    pub fn change(&self) -> Change {
        self.watch.change()
    }

    /// Refuses what would go through the cache.
    ///
    /// # Errors
    /// `EIO` while the file has other bytes than the cache knows.
    pub fn check_ours(&self) -> io::Result<()> {
        if self.change().is_apart() { Err(Errno::IO.into()) } else { Ok(()) }
    }

    /// Compares the file with how it was left, unless a change of ours is under way.
    ///
    /// # Errors
    /// The error of the system.
    pub fn look(&self) -> io::Result<Change> {
        let file = self.opened()?;
        let mut seen = self.watch.seen();
        if seen.ours == 0 {
            let now = stamp(&file.attributes()?);
            self.watch.compare(&mut seen, now);
        }
        drop(seen);
        Ok(self.change())
    }

    /// Compares how it was before it was opened with how it was left; to open it may have taken a change of its mode.
    ///
    /// # Errors
    /// The error of the system.
    pub fn look_as(&self, before: Stamp) -> io::Result<()> {
        let now = stamp(&self.opened()?.attributes()?);
        let mut seen = self.watch.seen();
        self.watch.compare(&mut seen, before);
        if self.change() == Change::None {
            seen.stamp = Some(now);
        }
        Ok(())
    }

    /// Begins a change of our own, after a comparison; what the file is like before it.
    fn begin(&self, file: &File) -> io::Result<Attributes> {
        let mut seen = self.watch.seen();
        let before = file.attributes()?;
        if seen.ours == 0 {
            self.watch.compare(&mut seen, stamp(&before));
            seen.expected = Expected::like(&before);
        }
        seen.ours += 1;
        Ok(before)
    }

    fn end(&self, file: &File) {
        self.end_seen(|| file.attributes().ok());
    }

    /// Ends a change of ours; without attributes it is not known any more how the file was left.
    fn end_seen(&self, attributes: impl FnOnce() -> Option<Attributes>) {
        let mut seen = self.watch.seen();
        seen.ours -= 1;
        if seen.ours == 0 && !self.change().is_apart() {
            self.watch.take_end(&mut seen, attributes().as_ref());
        }
    }

    /// Forgets the state in which the file was left, unless somebody else has changed its bytes.
    pub fn forget_stamp(&self) {
        let mut seen = self.watch.seen();
        if !self.change().is_apart() {
            seen.stamp = None;
        }
    }

    /// A change of its bytes, size or blocks, until what is returned is dropped; with what it is like before.
    ///
    /// # Errors
    /// `EIO` where somebody else has changed it, which must not be covered up; what the system answered.
    pub fn changing(&self, file: &Arc<File>) -> io::Result<(Ours<'_>, Attributes)> {
        let before = self.begin(file)?;
        let ours = Ours { below: self, file: file.clone() };
        self.check_ours()?;
        Ok((ours, before))
    }

    /// A change of its mode, until what is returned is dropped.
    ///
    /// # Errors
    /// The error of the system.
    pub fn changing_mode(&self, file: &Arc<File>) -> io::Result<Ours<'_>> {
        self.begin(file)?;
        Ok(Ours { below: self, file: file.clone() })
    }

    /// State in which our last change left the file, if it is known.
    pub fn left(&self) -> Option<Stamp> {
        self.watch.seen().stamp
    }

    /// It was found to be changed so, or worse.
    pub fn set_change(&self, change: Change) {
        self.watch.worsen(change);
    }

    /// Takes the file as it is now as the one that counts; the cache has nothing that the file has not.
    pub fn accept(&self) -> io::Result<()> {
        let now = stamp(&self.opened()?.attributes()?);
        self.accept_as(now);
        Ok(())
    }

    /// Takes the file as it was seen, with this stamp, as the one that counts. It was seen before what follows from
    /// that was done.
    fn accept_as(&self, stamp: Stamp) {
        let mut seen = self.watch.seen();
        seen.stamp = Some(stamp);
        self.watch.change.store(Change::None as u8, SeqCst);
    }

    /// Its bytes were compared and are what they were when it was seen so; `then` is how it had been left.
    fn accept_attributes(&self, then: Option<Stamp>, now: Stamp) {
        let mut seen = self.watch.seen();
        if seen.stamp == then {
            seen.stamp = Some(now);
        }
        let (from, to) = (Change::Attributes as u8, Change::None as u8);
        // It may have become worse meanwhile.
        let _worse = self.watch.change.compare_exchange(from, to, SeqCst, SeqCst);
    }

    /// Notes durably that it is in conflict.
    fn note_conflict(&self, changes: &Changes) -> io::Result<()> {
        if self.change() == Change::Conflict {
            return Ok(());
        }
        let size = self.left().map_or(0, |left| left.size);
        changes.map()?.note_conflict(self.key, size)?;
        self.watch.worsen(Change::Conflict);
        changes.note(self.key, News::Conflict);
        changes.is_stale(self.key);
        Ok(())
    }

    /// Keeps pages from the file that the cache writes to it; false if it has turned out to be as we left it after all.
    pub fn put_aside(&self, offset: u64, bytes: &[u8], changes: &Changes, page_bytes: u64) -> io::Result<bool> {
        let mut aside = self.watch.aside();
        if !self.change().is_apart() {
            return Ok(false);
        }
        self.note_conflict(changes)?;
        let aside = match &mut *aside {
            Some(aside) => aside,
            none => none.insert(changes.map()?.aside(self.key, page_bytes as usize)?),
        };
        aside.put(offset, bytes)?;
        Ok(true)
    }

    /// Makes durable what is kept from it.
    pub fn sync_aside(&self) -> io::Result<()> {
        self.watch.aside().as_mut().map_or(Ok(()), Aside::sync)
    }

    /// Ends a conflict in favour of the file: no pages are kept from it any more. The stamp `seen` is of when that was
    /// decided.
    fn end_conflict(&self, changes: &Changes, seen: Stamp) -> io::Result<()> {
        let mut aside = self.watch.aside();
        changes.map()?.note_resolved(self.key)?;
        *aside = None;
        self.told();
        self.accept_as(seen);
        Ok(())
    }

    /// Ends a conflict in favour of the pages that were kept: writes them to the file, durably, and returns its size
    /// then, in bytes. Dirty pages that the cache still has are written to the file from now on.
    fn write_back_aside(&self, changes: &Changes, page_bytes: u64) -> io::Result<u64> {
        self.ensure_writable()?;
        let mut aside = self.watch.aside();
        let before = changes.map()?.contents().conflicts.get(&self.key).copied();
        let size = before.ok_or(Errno::STALE)?;
        if aside.is_none() {
            *aside = Some(changes.map()?.aside(self.key, page_bytes as usize)?);
        }
        let file = self.set_size_back(size)?;
        aside.as_ref().map_or(Ok(()), |aside| aside.write_to(&file, size))?;
        if !mutant::is(Mutant::ResolvedEarly) {
            file.sync_all()?;
        }
        changes.map()?.note_resolved(self.key)?;
        *aside = None;
        self.told();
        self.accept_as(stamp(&file.attributes()?));
        Ok(size)
    }

    /// The pages that are kept from it, by their first bytes.
    fn pages_aside(&self, changes: &Changes, page_bytes: u64) -> io::Result<Vec<u64>> {
        let mut aside = self.watch.aside();
        if aside.is_none() && self.change() == Change::Conflict {
            *aside = Some(changes.map()?.aside(self.key, page_bytes as usize)?);
        }
        Ok(aside.as_ref().map_or_else(Vec::new, |aside| aside.pages().collect()))
    }
}
