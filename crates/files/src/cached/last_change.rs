//! The time of our last change to a file below, as the file system itself has it: the time of change of a file beside
//! the map, which a change of ours is preceded by.
//!
//! After a crash nobody knows what was done to the files before the next start, and while they are complete without
//! their cache a program may well have used them. A change of ours is never later than [`GRACE_NS`] after the mark. A
//! file that was changed later was changed by somebody else, and the next start drops whatever the cache has of it.

use super::disk::stamp;
use crate::below::{Directory, File, For, Modified, OpenDirectory as _, OpenFile as _};
use crate::mutant::{self, Mutant};
use crate::record::{AGAIN_MS, GRACE_NS};
use rustix::io::Errno;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

const NAME: &str = "last-change";

/// The mark of a directory in use.
pub(super) struct LastChange {
    opened: Instant,
    /// None before the start is over.
    file: OnceLock<File>,
    /// Time of the last mark in milliseconds since `opened`.
    set_at: AtomicU64,
}

impl Default for LastChange {
    fn default() -> Self {
        Self { opened: Instant::now(), file: OnceLock::new(), set_at: AtomicU64::new(0) }
    }
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
    /// Sets the mark at the end of a start, which has dropped what it doubted, durably. From now on changes of ours set it
    /// again. Where it cannot be set, what is below counts as ours after a crash.
    pub fn begin(&self, hidden: &Directory) {
        let marked =
            hidden.open_file(NAME, For::Making).and_then(|file| file.set_modified(Modified::Now).map(|()| file));
        if let Ok(file) = marked {
            self.set_at.store(self.now_ms(), Relaxed);
            // A start ends once.
            let _ = self.file.set(file);
        } else {
            let _gone = hidden.remove(NAME);
        }
    }

    fn now_ms(&self) -> u64 {
        self.opened.elapsed().as_millis() as u64
    }

    /// Called before a change of ours: sets the mark if it is old.
    pub fn precede(&self) {
        let Some(file) = self.file.get() else { return };
        // Simulated files have times of their own, which hardly pass.
        if cfg!(test) && !matches!(file, File::System(_)) {
            return;
        }
        let now_ms = self.now_ms();
        if now_ms >= self.set_at.load(Relaxed) + AGAIN_MS && file.set_modified(Modified::Now).is_ok() {
            self.set_at.store(now_ms, Relaxed);
        }
    }
}

/// True if a file that was changed at this time was changed by somebody else, after the crash of a process that left this
/// mark. Without a mark, as an earlier release leaves a directory, nothing is known.
pub(super) fn is_foreign(changed: i64, mark: Option<i64>) -> bool {
    !mutant::is(Mutant::LastChangeIgnored) && mark.is_some_and(|mark| changed > mark.saturating_add(GRACE_NS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::below::{Paths as _, System};
    use std::time::Duration;

    #[test]
    fn the_mark_is_set_after_the_start_and_before_changes_by_a_second_each() {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let hidden = System.open_directory(scratch.path()).expect("a directory");
        let mark = LastChange::default();
        let set = || read(&hidden).expect("attributes");
        mark.precede();
        assert_eq!(set(), None, "a start may have something to drop");
        mark.begin(&hidden);
        let first = set().expect("a mark");
        mark.precede();
        assert_eq!(set(), Some(first), "it is new");
        std::thread::sleep(Duration::from_millis(AGAIN_MS + 100));
        mark.precede();
        let second = set().expect("a mark");
        assert!(second > first, "{second} after {first}");
        assert!(is_foreign(second + GRACE_NS + 1, Some(second)));
        assert!(!is_foreign(second + GRACE_NS, Some(second)) && !is_foreign(i64::MAX, None));
    }
}
