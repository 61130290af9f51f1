//! Files that another program changes in the backing store while a cache is in use: how the change is found, and what
//! becomes of their pages. `docs/SEMANTICS.md` says what a program sees of it.
//!
//! The [`Stamp`] of a file is its size, time of modification and time of the last change of any kind, at the end of our
//! own last change. A change of ours begins with a comparison, unless another of ours is under way, and ends with a new
//! stamp. A mere look compares only while none is under way. Both take the stamp and look at the file under one lock,
//! so a change of ours is never taken for a foreign one.
//!
//! When the last of our changes ends, the file must be in the expected state, as far as that is known. This is its
//! size, and the time of modification that a write-back restores. A foreign change meanwhile that leaves no trace in
//! these two is not seen until the next foreign change.

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
use super::last_change::LastChange;
use super::map::{FileKey, FileMap, Stamp};
use super::states::{FileState, FileStates, Slot};
use crate::below::{Attributes, File, OpenFile};
use crate::mutant::{self, Mutant};
use aside::Aside;
use expected::Expected;
use rustix::io::Errno;
use std::io;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Change that another program has made to the file, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Change {
    /// No change.
    None,
    /// Only the time of the last change of any kind differs, not size and time of modification: a mode, an owner or a
    /// name changed. The bytes have to be compared.
    Attributes,
    /// The bytes differ. The cached pages of the file have to be examined.
    Bytes,
    /// At a start after a crash: somebody else has changed the file since, which had all that was flushed. Whatever the
    /// cache has of it is dropped.
    Since,
    /// The bytes differ, the cache had dirty pages of the file, and the map has a record of this.
    Conflict,
}

impl Change {
    /// True if a start drops what the cache has of the file, and takes the file as it is.
    pub fn is_other(self) -> bool {
        matches!(self, Change::Bytes | Change::Since)
    }

    /// True if no access to the file may go through the cache.
    pub fn is_apart(self) -> bool {
        self >= Change::Bytes
    }
}

/// Watch over a backing file for changes that other programs make.
pub(super) struct Watch {
    change: AtomicU8,
    seen: Mutex<Seen>,
    /// Pages kept aside from the file, once there are any.
    aside: Mutex<Option<Aside>>,
    /// The file's state that outlives the process, once the file has regions.
    slot: OnceLock<Slot>,
    /// The mark that precedes each change of ours.
    mark: OnceLock<Arc<LastChange>>,
}

struct Seen {
    /// State of the file after our last change; none if unknown: then the next look sets it.
    stamp: Option<Stamp>,
    /// Number of our changes under way.
    ours: usize,
    /// State that the file must have when our changes have ended.
    expected: Expected,
    /// Least and greatest size in bytes that our changes under way may leave.
    sizes: (u64, u64),
    /// All of our changes under way leave the time of modification as it is in the stamp.
    restores: bool,
}

impl Watch {
    /// A file with this stamp, and `ours` changes under way.
    pub fn new(stamp: Option<Stamp>, ours: usize) -> Self {
        let (expected, sizes) = (Expected::like_left(stamp), (0, u64::MAX));
        let seen = Mutex::new(Seen { stamp, ours, expected, sizes, restores: false });
        Watch {
            change: AtomicU8::new(Change::None as u8),
            seen,
            aside: Mutex::default(),
            slot: OnceLock::new(),
            mark: OnceLock::new(),
        }
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
            3 => Change::Since,
            _ => Change::Conflict,
        }
    }

    /// Begins a change of attributes alone, without a comparison.
    fn begin_attributes(&self) {
        self.precede();
        let mut seen = self.seen();
        match seen.ours {
            0 => {
                seen.expected = Expected::like_left(seen.stamp);
                seen.sizes = seen.stamp.map_or((0, u64::MAX), |stamp| (stamp.size, stamp.size));
            }
            _ => seen.expected.modified = None,
        }
        seen.ours += 1;
        seen.restores = false;
        self.keep(&seen);
    }

    /// Writes to the slot what is known of the file.
    fn keep(&self, seen: &Seen) {
        let Some(slot) = self.slot.get() else { return };
        let change = self.change();
        // No change of ours is made to a file with other bytes: the stamp says so to the next process.
        let under_way = seen.ours > 0 && !change.is_apart() && !mutant::is(Mutant::UnderWayUnsaid);
        slot.change(|state| {
            state.stamp = seen.stamp;
            state.under_way = under_way.then_some(seen.sizes);
            state.restores = under_way && seen.restores;
            state.touched = change == Change::Attributes;
        });
    }

    /// Has the slot outlive the process; the file has one slot.
    pub fn keep_in(&self, slot: Slot) {
        let seen = self.seen();
        if self.slot.set(slot).is_ok() {
            self.keep(&seen);
        }
    }

    /// Has the mark precede each change of ours.
    pub fn follow(&self, mark: Arc<LastChange>) {
        // A file is made known once.
        let _ = self.mark.set(mark);
    }

    fn precede(&self) {
        self.mark.get().into_iter().for_each(|mark| mark.precede());
    }

    /// Changes the part of the slot that is about times and syncs.
    pub fn note(&self, change: impl FnOnce(&mut FileState)) {
        if let Some(slot) = self.slot.get() {
            slot.change(change);
        }
    }

    /// Gives the slot back: the file is gone.
    pub fn give_back(&self) {
        self.slot.get().into_iter().for_each(Slot::give_back);
    }

    fn worsen(&self, change: Change) {
        self.change.fetch_max(change as u8, SeqCst);
    }

    /// Compares the present state of the file with its stamp.
    fn compare(&self, seen: &mut Seen, now: Stamp) {
        let then = *seen.stamp.get_or_insert(now);
        if now != then {
            let same = (now.size, now.modified) == (then.size, then.modified);
            self.worsen(if same { Change::Attributes } else { Change::Bytes });
        }
        self.keep(seen);
    }
}

/// Link from the backing files to the map, which records those in conflict. It holds their news and the listener for
/// stale files.
#[derive(Default)]
pub(super) struct Changes {
    map: OnceLock<Arc<Mutex<FileMap>>>,
    /// Outcomes for files that other programs changed, until they are fetched.
    news: Mutex<Vec<(FileKey, News)>>,
    stale: OnceLock<Box<dyn Fn(u64) + Send + Sync>>,
}

impl Changes {
    /// Sets the map, which is in use from now on.
    pub fn begin(&self, map: Arc<Mutex<FileMap>>) {
        // A cache is opened once.
        let _ = self.map.set(map);
    }

    /// Sets the listener that gets the number of each file of which bytes read before are outdated.
    pub fn tell(&self, tell: Box<dyn Fn(u64) + Send + Sync>) {
        let _ = self.stale.set(tell);
    }

    fn map(&self) -> io::Result<MutexGuard<'_, FileMap>> {
        // A directory that is only inspected has no map in use, and is not written.
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

/// A change of our own, which ends when this is dropped.
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
    /// Change that another program has made to the file.
    pub fn change(&self) -> Change {
        self.watch.change()
    }

    /// Refuses an access through the cache.
    ///
    /// # Errors
    /// `EIO` while the file has other bytes than the cache knows.
    pub fn check_ours(&self) -> io::Result<()> {
        if self.change().is_apart() { Err(Errno::IO.into()) } else { Ok(()) }
    }

    /// Compares the file with its stamp, unless a change of ours is under way.
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

    /// Compares the file's state before it was opened with its stamp; opening it may have changed its mode.
    ///
    /// # Errors
    /// The error of the system.
    pub fn look_as(&self, before: Stamp) -> io::Result<()> {
        let now = stamp(&self.opened()?.attributes()?);
        let mut seen = self.watch.seen();
        self.watch.compare(&mut seen, before);
        if self.change() == Change::None {
            seen.stamp = Some(now);
            self.watch.keep(&seen);
        }
        Ok(())
    }

    /// Begins a change of our own after a comparison; returns the attributes before it.
    fn begin(&self, file: &File, restores: bool) -> io::Result<Attributes> {
        self.watch.precede();
        let mut seen = self.watch.seen();
        let before = file.attributes()?;
        if seen.ours == 0 {
            self.watch.compare(&mut seen, stamp(&before));
            seen.expected = Expected::like(&before);
            (seen.sizes, seen.restores) = ((before.size, before.size), true);
        }
        seen.ours += 1;
        seen.restores &= restores;
        self.watch.keep(&seen);
        Ok(before)
    }

    fn end(&self, file: &File) {
        self.end_seen(|| file.attributes().ok());
    }

    /// Ends a change of ours; without attributes the file's stamp is unknown from now on.
    fn end_seen(&self, attributes: impl FnOnce() -> Option<Attributes>) {
        let mut seen = self.watch.seen();
        seen.ours -= 1;
        if seen.ours == 0 && !self.change().is_apart() {
            self.watch.take_end(&mut seen, attributes().as_ref());
        }
        self.watch.keep(&seen);
    }

    /// Forgets the stamp, unless another program has changed the bytes.
    pub fn forget_stamp(&self) {
        let mut seen = self.watch.seen();
        if !self.change().is_apart() {
            seen.stamp = None;
            self.watch.keep(&seen);
        }
    }

    /// Begins a change of bytes, size or blocks, which ends when the guard is dropped; also returns the attributes
    /// before it.
    ///
    /// # Errors
    /// `EIO` if another program has changed the file, which must not be hidden; else the error of the system.
    pub fn changing(&self, file: &Arc<File>) -> io::Result<(Ours<'_>, Attributes)> {
        self.changing_as(file, false)
    }

    /// Like [`changing`](Self::changing), for a change that leaves the time of modification as it was.
    ///
    /// # Errors
    /// As [`changing`](Self::changing).
    pub fn changing_in_place(&self, file: &Arc<File>) -> io::Result<(Ours<'_>, Attributes)> {
        self.changing_as(file, true)
    }

    fn changing_as(&self, file: &Arc<File>, restores: bool) -> io::Result<(Ours<'_>, Attributes)> {
        let before = self.begin(file, restores)?;
        let ours = Ours { below: self, file: file.clone() };
        self.check_ours()?;
        Ok((ours, before))
    }

    /// Begins a change of the mode, which ends when the guard is dropped.
    ///
    /// # Errors
    /// The error of the system.
    pub fn changing_mode(&self, file: &Arc<File>) -> io::Result<Ours<'_>> {
        self.begin(file, false)?;
        Ok(Ours { below: self, file: file.clone() })
    }

    /// State of the file after our last change, if it is known.
    pub fn left(&self) -> Option<Stamp> {
        self.watch.seen().stamp
    }

    /// Notes a change found; a worse one stays.
    pub fn set_change(&self, change: Change) {
        self.watch.worsen(change);
    }

    /// Accepts the present state of the file; the cache has no bytes that the file lacks.
    pub fn accept(&self) -> io::Result<()> {
        let now = stamp(&self.opened()?.attributes()?);
        self.accept_as(now);
        Ok(())
    }

    /// Accepts the file with this stamp, which was taken before the steps that follow from it.
    fn accept_as(&self, stamp: Stamp) {
        let mut seen = self.watch.seen();
        seen.stamp = Some(stamp);
        self.watch.change.store(Change::None as u8, SeqCst);
        self.watch.keep(&seen);
    }

    /// Notes that the bytes were compared and are unchanged at the stamp `now`; `then` is the stamp before.
    fn accept_attributes(&self, then: Option<Stamp>, now: Stamp) {
        let mut seen = self.watch.seen();
        if seen.stamp == then {
            seen.stamp = Some(now);
        }
        let (from, to) = (Change::Attributes as u8, Change::None as u8);
        // The change may have become a worse one meanwhile.
        let _worse = self.watch.change.compare_exchange(from, to, SeqCst, SeqCst);
        self.watch.keep(&seen);
    }

    /// Has the file's state outlive the process, unless it does already. A file without a slot of a former process
    /// counts as changed and not synced: `unsynced`.
    pub fn keep_in(&self, states: &Arc<FileStates>, unsynced: bool) {
        if self.watch.slot.get().is_none() {
            let state = FileState { unsynced, ..FileState::default() };
            states.slot(self.key, state).into_iter().for_each(|slot| self.watch.keep_in(slot));
        }
    }

    /// Notes durably that the file is in conflict.
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

    /// Keeps written-back pages aside from the file; false if the file has turned out to be unchanged.
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

    /// Makes the pages kept aside durable.
    pub fn sync_aside(&self) -> io::Result<()> {
        self.watch.aside().as_mut().map_or(Ok(()), Aside::sync)
    }

    /// Ends a conflict in favour of the file: no pages are kept aside any more. `seen` is the stamp at the time of that
    /// decision.
    fn end_conflict(&self, changes: &Changes, seen: Stamp) -> io::Result<()> {
        let mut aside = self.watch.aside();
        changes.map()?.note_resolved(self.key)?;
        *aside = None;
        self.told();
        self.accept_as(seen);
        Ok(())
    }

    /// Ends a conflict in favour of the pages kept aside: writes them to the file, durably, and returns its size then,
    /// in bytes. Dirty pages that the cache still has are written to the file from now on.
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

    /// The pages kept aside, by the offset of their first bytes.
    fn pages_aside(&self, changes: &Changes, page_bytes: u64) -> io::Result<Vec<u64>> {
        let mut aside = self.watch.aside();
        if aside.is_none() && self.change() == Change::Conflict {
            *aside = Some(changes.map()?.aside(self.key, page_bytes as usize)?);
        }
        Ok(aside.as_ref().map_or_else(Vec::new, |aside| aside.pages().collect()))
    }
}
