//! Expected state of a file at the end of our changes under way. Any other state is the work of another program.
//!
//! Changes of ours overlap, and a change that begins during another makes no comparison. So the expected state is noted
//! as they proceed and compared when the last of them ends. A foreign change that ours overwrite before that is not
//! seen, such as one of the time of modification.

use super::{Change, Seen, Watch};
use crate::below::Attributes;
use crate::cached::disk::stamp;
use crate::cached::map::Stamp;

/// Expected state of a file after our changes, as far as it is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Expected {
    /// Size in bytes.
    pub size: Option<u64>,
    /// Time of modification, as a write-back restores it.
    pub modified: Option<(i64, i64)>,
}

impl Expected {
    /// Expects the state before, apart from what our change sets.
    pub fn like(before: &Attributes) -> Self {
        Expected { size: Some(before.size), modified: Some(before.modified) }
    }

    /// Expects the size at the end of our last change; our next change may set the time of modification.
    pub fn like_left(left: Option<Stamp>) -> Self {
        Expected { size: left.map(|left| left.size), modified: None }
    }

    fn agrees(&self, now: &Attributes) -> bool {
        self.size.is_none_or(|size| size == now.size) && self.modified.is_none_or(|time| time == now.modified)
    }
}

impl Watch {
    /// Notes the size that a change of ours sets; none after a failure with an unknown result. The change also sets the
    /// time of modification.
    pub fn expect_size(&self, size: Option<u64>) {
        self.seen().expected = Expected { size, modified: None };
    }

    /// Announces a change of ours that may leave another size, in bytes.
    pub fn may_be_sized(&self, bytes: u64) {
        let mut seen = self.seen();
        seen.sizes = (seen.sizes.0.min(bytes), seen.sizes.1.max(bytes));
        self.keep(&seen);
    }

    /// The time of modification is not known until all our changes have ended.
    pub fn expect_any_time(&self) {
        self.seen().expected.modified = None;
    }

    /// Takes the state of the file after the last of our changes.
    pub(super) fn take_end(&self, seen: &mut Seen, now: Option<&Attributes>) {
        let left = now.map(stamp);
        match now.filter(|now| !seen.expected.agrees(now)) {
            Some(_) => {
                // The stamp that our own changes would have left: the state that the cache knows.
                let size = seen.expected.size;
                seen.stamp = left.map(|left| Stamp { size: size.unwrap_or(left.size), ..left });
                self.worsen(Change::Bytes);
            }
            None => seen.stamp = left,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::below::{File, OpenFile as _};
    use crate::cached::disk::{Below, FilesDisk};
    use crate::cached::map::Extent;
    use entresol_core::Random;
    use entresol_disk::Disk as _;
    use rustix::fs::FallocateFlags;
    use std::fs::{self, OpenOptions};
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt;
    use std::path::{Path, PathBuf};
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    const BYTES: u64 = 40_000;

    /// An old file in front of which there is a cache.
    fn below(scratch: &Path) -> (Arc<FilesDisk>, Arc<Below>, PathBuf) {
        let path = scratch.join("file");
        fs::write(&path, vec![1; BYTES as usize]).expect("a file");
        let file = OpenOptions::new().read(true).write(true).open(&path).expect("the file");
        file.set_modified(SystemTime::now() - Duration::from_secs(3600)).expect("a time");
        let file: File = file.into();
        let key = crate::cached::key(&file.found().expect("what it is")).expect("a time of making");
        let left = stamp(&file.attributes().expect("attributes"));
        let below = Below::new(key, file, true, (Some(left), 0), None);
        let disk = Arc::new(FilesDisk::new(4096));
        disk.join(0, below.clone(), Extent { file: key, part: 0 });
        (disk, below, path)
    }

    #[test]
    fn a_change_by_somebody_else_while_ours_is_under_way_is_found_when_that_ends() {
        type Act = fn(&Path);
        let longer: Act = |path| {
            OpenOptions::new().append(true).open(path).and_then(|mut file| file.write_all(b"more")).expect("a write");
        };
        let shorter: Act =
            |path| fs::File::options().write(true).open(path).and_then(|file| file.set_len(5)).expect("a size");
        let in_place: Act = |path| {
            fs::File::options().write(true).open(path).and_then(|mut file| file.write_all(b"x")).expect("a write")
        };
        for (name, act, of_mode) in [
            ("longer", longer, false),
            ("shorter", shorter, true),
            ("in place", in_place, false),
            ("longer", longer, true),
        ] {
            let scratch = tempfile::tempdir().expect("a directory");
            let (_disk, below, path) = below(scratch.path());
            let file = below.opened().expect("the file");
            let ours = match of_mode {
                true => below.changing_mode(&file).expect("a change"),
                false => below.changing(&file).expect("a change").0,
            };
            act(&path);
            drop(ours);
            assert_eq!(below.change(), Change::Bytes, "{name}");
            assert_eq!(below.left().map(|left| left.size), Some(BYTES), "{name}: as the cache knows it");
        }
        // While one of our changes lengthens the file.
        let scratch = tempfile::tempdir().expect("a directory");
        let (_disk, below, path) = below(scratch.path());
        let file = below.opened().expect("the file");
        let ours = below.changing_mode(&file).expect("a change");
        below.grow(BYTES, 5000).expect("room");
        longer(&path);
        drop(ours);
        assert_eq!((below.change(), below.left().map(|left| left.size)), (Change::Bytes, Some(BYTES + 5000)));
    }

    #[test]
    fn changes_of_ours_that_overlap_are_not_taken_for_somebody_elses() {
        const SEED: u64 = 2506;
        const STEPS: usize = 2000;
        println!("seed {SEED}");
        let scratch = tempfile::tempdir().expect("a directory");
        let (disk, below, path) = below(scratch.path());
        let write = |mut random: Random| {
            for _ in 0..STEPS {
                disk.write_at(random.below(12) * 4096, &[random.below(256) as u8; 4096]).expect("a write");
            }
        };
        let change_mode = |mut random: Random| {
            for _ in 0..STEPS {
                let file = below.opened().expect("the file");
                let ours = below.changing_mode(&file).expect("a change");
                let mode = 0o600 + random.below(64) as u32;
                fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("a mode");
                drop(ours);
            }
        };
        // Changes of the size exclude each other.
        let reshape = |mut random: Random| {
            for _ in 0..STEPS {
                let (at, bytes) = (random.below(BYTES), 1 + random.below(9000));
                let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let done = match random.below(5) {
                    0 => below.resize(at),
                    1 => below.grow(below.size().expect("a size"), bytes),
                    2 => below.allocate(FallocateFlags::empty(), at, bytes),
                    3 => below.allocate(punch, at, bytes),
                    _ => {
                        below.note_write();
                        below.settle()
                    }
                };
                done.expect("room");
                assert_eq!(below.look().expect("attributes"), Change::None);
            }
        };
        std::thread::scope(|scope| {
            let workers: [&(dyn Fn(Random) + Sync); 3] = [&write, &change_mode, &reshape];
            for (seed, work) in workers.into_iter().enumerate() {
                scope.spawn(move || work(Random::new(SEED + seed as u64)));
            }
        });
        assert_eq!(below.look().expect("attributes"), Change::None);
    }
}
