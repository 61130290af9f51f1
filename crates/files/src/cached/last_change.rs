//! The time of our last change to a file below, as the file system itself has it: the time of change of a file beside
//! the map.
//!
//! After a crash nobody knows what was done to the files before the next start, and while they are complete without
//! their cache a program may well have used them. A file whose own time of change is later than the mark was changed by
//! us in the last second before the crash, or by somebody else after it: the next start drops its clean pages. The mark
//! never overtakes a crash, for only a process that runs sets it. It may be older than our last change, which costs hits
//! alone.

use super::disk::stamp;
use crate::below::{Directory, File, For, Modified, OpenDirectory as _, OpenFile as _};
use crate::mutant::{self, Mutant};
use rustix::io::Errno;
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const NAME: &str = "last-change";

/// The mark of a directory in use.
#[derive(Default)]
pub(super) struct LastChange {
    /// A change of ours has ended since the mark was set.
    made: Arc<AtomicBool>,
    /// The start is over: what it doubted is dropped, durably.
    begun: AtomicBool,
    file: Mutex<Option<File>>,
}

/// The time of change of the mark in nanoseconds since 1970; none if it was never set.
pub(super) fn read(hidden: &Directory) -> io::Result<Option<i64>> {
    match hidden.open_file(NAME, For::Reading) {
        Ok(file) => Ok(Some(stamp(&file.attributes()?).changed)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

impl LastChange {
    /// A mark that is due when this flag is set.
    pub fn of(made: Arc<AtomicBool>) -> Self {
        Self { made, ..Self::default() }
    }

    /// The flag that the end of a change sets.
    pub fn made(&self) -> Arc<AtomicBool> {
        self.made.clone()
    }

    /// Has the mark set from now on, and soon: the state of each file is known.
    pub fn begin(&self) {
        self.made.store(true, SeqCst);
        self.begun.store(true, SeqCst);
    }

    /// True if a change of ours has ended since the mark was set.
    pub fn is_due(&self) -> bool {
        self.begun.load(SeqCst) && self.made.load(SeqCst)
    }

    fn file(&self) -> MutexGuard<'_, Option<File>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the file of the mark, once.
    pub fn open(&self, hidden: &Directory) -> rustix::io::Result<()> {
        let mut file = self.file();
        if file.is_none() {
            *file = Some(hidden.open_file(NAME, For::Making)?);
        }
        Ok(())
    }

    /// Sets the mark. Where that fails it stays due.
    pub fn set(&self) {
        self.made.store(false, SeqCst);
        let file = self.file();
        if !file.as_ref().is_some_and(|file| file.set_modified(Modified::Now).is_ok()) {
            self.made.store(true, SeqCst);
        }
    }
}

/// True if a file that was changed last at this time may have been changed by somebody else since the crash of a
/// process that left this mark.
pub(super) fn is_doubtful(changed: i64, mark: Option<i64>) -> bool {
    !mutant::is(Mutant::LastChangeIgnored) && mark.is_none_or(|mark| changed > mark)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::below::FileSystem;
    use crate::below::Paths as _;
    use crate::below::simulated::SimFileSystem;
    use entresol_crashtest::Power;
    use std::path::Path;

    #[test]
    fn the_mark_is_set_after_the_start_and_then_where_a_change_of_ours_has_ended() {
        let system = FileSystem::Simulated(SimFileSystem::new(3, true, &Power::steady()));
        let hidden = system.open_directory(Path::new("/")).expect("a directory");
        let mark = LastChange::default();
        let set = || {
            if mark.is_due() {
                mark.open(&hidden).expect("a file");
                mark.set();
            }
            read(&hidden).expect("attributes")
        };
        mark.made().store(true, SeqCst);
        assert_eq!(set(), None, "a start may still doubt");
        mark.begin();
        let first = set().expect("a mark");
        assert_eq!(set(), Some(first), "nothing was changed");
        mark.made().store(true, SeqCst);
        let second = set().expect("a mark");
        assert!(second > first, "{second} after {first}");
        assert!(is_doubtful(second + 1, Some(second)) && is_doubtful(1, None));
        assert!(!is_doubtful(second, Some(second)));
    }
}
