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
use std::sync::{Arc, Mutex, PoisonError};

const NAME: &str = "last-change";

/// Keeper of the mark.
#[derive(Default)]
pub(super) struct LastChange {
    /// A change of ours has ended since the mark was set.
    made: Arc<AtomicBool>,
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
    /// A keeper that hears of changes by this flag.
    pub fn of(made: Arc<AtomicBool>) -> Self {
        Self { made, file: Mutex::default() }
    }

    /// The flag that the end of a change sets.
    pub fn made(&self) -> Arc<AtomicBool> {
        self.made.clone()
    }

    /// Sets the mark if a change of ours has ended since it was.
    pub fn set(&self, hidden: &Directory) {
        if self.made.swap(false, SeqCst) && self.touch(hidden).is_err() {
            self.made.store(true, SeqCst);
        }
    }

    fn touch(&self, hidden: &Directory) -> rustix::io::Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let file = match &mut *file {
            Some(file) => file,
            none => none.insert(hidden.open_file(NAME, For::Making)?),
        };
        file.set_modified(Modified::Now)
    }
}

/// True if a file that was changed last at this time may have been changed by somebody else since the crash of a
/// process that left this mark.
pub(super) fn is_doubtful(changed: i64, mark: Option<i64>) -> bool {
    !mutant::is(Mutant::LastChangeIgnored) && mark.is_none_or(|mark| changed > mark)
}
