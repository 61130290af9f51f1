//! Versions of the file map, and the moment when a map of version 1 becomes one of version 2.
//!
//! A map that an earlier release closed in good order is written as version 2 at the next open. A map that a kill left
//! stays version 1 until a close in good order, as its cache does: so the earlier release can still recover the two. It
//! becomes version 2 earlier only for a record that version 1 lacks, such as that a file may leave.

use super::{BLOCK, Contents, VOID};

/// The latest version.
pub(super) const NEWEST: u32 = 2;
/// The version without kinds beyond [`VOID`].
const PLAIN: u32 = 1;

impl Contents {
    /// The version that has all record kinds of these contents.
    pub fn needed_version(&self) -> u32 {
        let plain = self.leaving.is_empty() && self.conflicts.is_empty() && self.record.is_none();
        if plain { self.version } else { NEWEST }
    }

    /// These contents for an open; `left` is true after a kill or a crash.
    #[must_use]
    pub fn of_open(self, left: bool) -> Self {
        let version = if left { self.version } else { NEWEST };
        Self { version, ..self }
    }

    /// True if this version of the map has a kind for the record.
    pub(super) fn has_word_for(&self, record: &[u8; BLOCK]) -> bool {
        self.version > PLAIN || u32::from(record[0]) <= VOID
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Extent, FileKey, FileMap, State, read};
    use super::*;
    use crate::below::Directory;
    use std::collections::BTreeMap;
    use std::fs::File;

    const KEY: FileKey = FileKey { inode: 5, made: 6 };

    fn directory(scratch: &tempfile::TempDir) -> Directory {
        File::open(scratch.path()).expect("a directory").into()
    }

    /// The version in the header of the map.
    fn written(scratch: &tempfile::TempDir) -> u8 {
        std::fs::read(scratch.path().join("map")).expect("a map")[8]
    }

    /// A map of version 1 in use.
    fn old(scratch: &tempfile::TempDir) -> FileMap {
        let contents = Contents { state: State::Open, version: PLAIN, ..Contents::new([1; 16], KEY) };
        FileMap::start(directory(scratch), contents, false).expect("a map")
    }

    #[test]
    fn a_map_that_a_kill_left_keeps_its_version_over_an_open_and_a_close() {
        let scratch = tempfile::tempdir().expect("a directory");
        let mut map = old(&scratch);
        let region = map.allocate(Extent { file: KEY, part: 0 }, 100).expect("a region");
        map.note_void(KEY, 5..9).and_then(|()| map.trust()).and_then(|()| map.release(region)).expect("records");
        assert_eq!(written(&scratch), 1);
        map.close(State::Dirty, BTreeMap::new()).expect("a close");
        assert_eq!(written(&scratch), 1, "the release of then can open it");
        let closed = read(&directory(&scratch)).expect("a map").expect("it is there");
        for (left, expected) in [(true, 1), (false, 2)] {
            let contents = Contents { state: State::Open, ..closed.clone() }.of_open(left);
            FileMap::start(directory(&scratch), contents, false).expect("a map");
            assert_eq!(written(&scratch), expected, "left by a kill: {left}");
        }
    }

    #[test]
    fn what_version_1_has_no_word_for_makes_it_version_2_before_it_is_said() {
        let scratch = tempfile::tempdir().expect("a directory");
        let mut map = old(&scratch);
        map.note_leaving(KEY).and_then(|()| map.sync()).expect("a word");
        assert_eq!(written(&scratch), 2);
        assert!(read(&directory(&scratch)).expect("a map").expect("it is there").leaving.contains(&KEY));
        map.note_stays(KEY).and_then(|()| map.trust()).expect("a whole map");
        assert_eq!(written(&scratch), 2, "and it stays so");
    }
}
