//! Files in memory as a model of those of a mount.

use super::sys::{self, Map, call};
use crate::common::Signal;
use crate::common::mounted::Mounted;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Largest size of a file: three times a cache of 2 MiB.
const SIZE_MAX: u64 = 6 << 20;
/// Most open files.
const OPEN: usize = 6;
/// Alignment of direct I/O, as the file system below asks for it.
const ALIGNED: u64 = 4096;

/// A small generator, so that a seed gives the same run everywhere (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }

    fn bytes(&mut self, count: u64) -> Vec<u8> {
        let words = std::iter::repeat_with(|| self.next().to_le_bytes());
        words.flatten().take(count as usize).collect()
    }
}

/// An open file: its descriptor and the file's number.
struct Open {
    file: OwnedFd,
    id: usize,
    direct: bool,
}

/// Expected state, held in memory: the bytes of each file, and the file that each name leads to.
#[derive(Default)]
struct Model {
    files: Vec<Vec<u8>>,
    names: BTreeMap<String, usize>,
}

/// A run on one mount.
pub struct Run {
    directory: PathBuf,
    /// The mount, if the run itself starts other servers now and then.
    mounted: Option<Mounted>,
    /// Largest size of a file, and of what one operation touches.
    size_max: u64,
    count_max: u64,
    /// False for a program that syncs nothing, and keeps the files open that it has opened.
    syncs: bool,
    /// The beginning of the names of its files.
    prefix: &'static str,
    names: u64,
    random: Random,
    seed: u64,
    model: Model,
    open: Vec<Option<Open>>,
    /// The last operations, for finding the fault of a failed run.
    last: Vec<String>,
    counts: BTreeMap<&'static str, u64>,
}

impl Run {
    /// A run on a started mount, with `names` names.
    pub fn new(mounted: Mounted, names: u64, seed: u64) -> Self {
        let beside = Run::beside(&mounted.above(), "f", names, seed, true);
        Run { mounted: Some(mounted), size_max: SIZE_MAX, count_max: 500_000, ..beside }
    }

    /// A run on small files of these names in a mount whose servers are others' concern.
    pub fn beside(directory: &Path, prefix: &'static str, names: u64, seed: u64, syncs: bool) -> Self {
        let open = (0..OPEN).map(|_| None).collect();
        let (model, random, directory) = (Model::default(), Random(seed), directory.to_owned());
        let (last, counts) = (Vec::new(), BTreeMap::new());
        let (size_max, count_max) = (1 << 20, 40_000);
        Run {
            directory,
            mounted: None,
            size_max,
            count_max,
            syncs,
            prefix,
            names,
            random,
            seed,
            model,
            open,
            last,
            counts,
        }
    }

    /// Runs `ops` operations and compares all files in the end, above and below; returns a summary.
    pub fn run(mut self, ops: u64) -> String {
        self.go(ops, &AtomicU64::new(0));
        let mut mounted = self.mounted.take().expect("its own mount");
        mounted.unmount();
        self.end(&mounted.below())
    }

    /// Runs `ops` operations, counts them in `done`, compares all files, and closes them.
    pub fn go(&mut self, ops: u64, done: &AtomicU64) {
        for op in 0..ops {
            self.step(op);
            done.fetch_add(1, Relaxed);
        }
        self.compare_all("in the end");
        self.open.clear();
    }

    /// Compares all files, as they are in a directory, with the model; returns a summary.
    pub fn end(&self, below: &Path) -> String {
        for (name, &id) in &self.model.names {
            let below = std::fs::read(below.join(name)).expect("a file below");
            self.same("below, in the end", name, &below, &self.model.files[id]);
        }
        let mut said = String::new();
        for (what, count) in &self.counts {
            write!(said, "{}{what} {count}", if said.is_empty() { "" } else { ", " }).expect("text");
        }
        said
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn name(&mut self) -> String {
        format!("{}{}", self.prefix, self.random.below(self.names))
    }

    /// A range: often within the file, often at the edges of pages, now and then beyond the end.
    fn range(&mut self, size: u64) -> (u64, u64) {
        let within = if self.random.chance(6) { self.size_max } else { size.max(1) };
        let mut offset = self.random.below(within);
        let mut count = match self.random.below(6) {
            0 => self.random.below(50),
            1 => 4096,
            2 => 512 << self.random.below(9),
            3 => self.random.below(200_000),
            _ => self.random.below(20_000),
        };
        if self.random.chance(3) {
            offset -= offset % ALIGNED;
        }
        if self.random.chance(4) {
            // About the end.
            offset = size.saturating_sub(self.random.below(8000));
        }
        if self.random.chance(8) {
            // Up to the end, exactly.
            (offset, count) = (offset.min(size), size - offset.min(size));
        }
        count = count.min(self.count_max).min(self.size_max - offset.min(self.size_max));
        (offset, count)
    }

    fn note(&mut self, what: &'static str, op: u64, more: &str) {
        *self.counts.entry(what).or_default() += 1;
        self.last.push(format!("{op}: {what} {more}"));
        if self.last.len() > 60 {
            self.last.remove(0);
        }
    }

    /// Asserts that bytes are those of the model.
    fn same(&self, what: &str, of: &str, found: &[u8], model: &[u8]) {
        if found == model {
            return;
        }
        let at = found.iter().zip(model).position(|(one, other)| one != other).unwrap_or(found.len().min(model.len()));
        let wrong = found.iter().zip(model).filter(|(one, other)| one != other).count();
        panic!(
            "seed {}: {what} of {of}: {} bytes for {}, the first that is wrong at {at} ({:?} for {:?}), {wrong} in all; before:\n{}",
            self.seed,
            found.len(),
            model.len(),
            found.get(at),
            model.get(at),
            self.last.join("\n")
        );
    }

    /// Asserts that an operation gave the expected answer.
    fn answered<T: PartialEq + std::fmt::Debug>(&self, what: &str, found: T, expected: T) {
        assert_eq!(found, expected, "seed {}: {what}; before:\n{}", self.seed, self.last.join("\n"));
    }

    fn step(&mut self, op: u64) {
        let slot = self.random.below(OPEN as u64) as usize;
        if self.open[slot].is_none() || (self.syncs && self.random.chance(25)) {
            return self.open_one(op, slot);
        }
        match self.random.below(1000) {
            0..260 => self.write(op, slot),
            260..520 => self.read(op, slot),
            520..600 => self.map_read(op, slot),
            600..690 => self.map_write(op, slot),
            690..750 => self.set_size(op, slot),
            750..840 => self.allocate(op, slot),
            840..890 => self.copy(op, slot),
            890..930 if self.syncs => self.sync(op, slot),
            890..930 => self.read(op, slot),
            930..960 => self.names(op),
            960..985 => self.look(op, slot),
            985..992 => self.compare_all("in between"),
            _ if self.mounted.is_none() => self.look(op, slot),
            992..996 => self.again(op, false),
            _ => self.again(op, true),
        }
    }

    fn open_one(&mut self, op: u64, slot: usize) {
        let name = self.name();
        let direct = self.random.chance(5);
        let cut = self.random.chance(20);
        self.note("open", op, &format!("{name} in {slot}, direct {direct}, cut {cut}"));
        let flags = libc::O_RDWR
            | libc::O_CREAT
            | if direct { libc::O_DIRECT } else { 0 }
            | if cut { libc::O_TRUNC } else { 0 };
        self.open[slot] = None;
        let file = sys::open(&self.path(&name), flags, 0o644);
        let file = file.unwrap_or_else(|errno| panic!("seed {}: {name}: {}", self.seed, sys::name(errno)));
        let files = &mut self.model.files;
        let id = *self.model.names.entry(name).or_insert_with(|| {
            files.push(Vec::new());
            files.len() - 1
        });
        if cut {
            files[id].clear();
        }
        self.open[slot] = Some(Open { file, id, direct });
    }

    fn of(&self, slot: usize) -> (&Open, &Vec<u8>) {
        let open = self.open[slot].as_ref().expect("open");
        (open, &self.model.files[open.id])
    }

    fn drawn(&mut self, slot: usize) -> (u64, u64) {
        let (open, bytes) = self.of(slot);
        let (direct, size) = (open.direct, bytes.len() as u64);
        let (offset, count) = self.range(size);
        // Half of the direct I/O is aligned, as any file system takes it; only a mount takes the other half.
        if direct && self.random.chance(2) {
            return (offset - offset % ALIGNED, count.next_multiple_of(ALIGNED).min(self.size_max));
        }
        (offset, count)
    }

    fn put(bytes: &mut Vec<u8>, offset: u64, new: &[u8]) {
        let end = offset as usize + new.len();
        if !new.is_empty() && bytes.len() < end {
            bytes.resize(end, 0);
        }
        if !new.is_empty() {
            bytes[offset as usize..end].copy_from_slice(new);
        }
    }

    fn write(&mut self, op: u64, slot: usize) {
        let (offset, count) = self.drawn(slot);
        let new = self.random.bytes(count);
        self.note("write", op, &format!("by {slot} of {count} at {offset}"));
        let (open, _) = self.of(slot);
        let (answer, id) = (sys::pwrite(&open.file, &new, offset as i64), open.id);
        self.answered("write", answer, Ok(count as i64));
        Self::put(&mut self.model.files[id], offset, &new);
    }

    fn read(&mut self, op: u64, slot: usize) {
        let (offset, count) = self.drawn(slot);
        self.note("read", op, &format!("by {slot} of {count} at {offset}"));
        let (open, bytes) = self.of(slot);
        let found = sys::pread(&open.file, count as usize, offset as i64)
            .unwrap_or_else(|errno| panic!("{}", sys::name(errno)));
        let start = bytes.len().min(offset as usize);
        let end = bytes.len().min((offset + count) as usize);
        self.same(&format!("read at {offset}"), &format!("slot {slot}"), &found, &bytes[start..end]);
    }

    /// A mapping of a part of a file and its offset; none where the file has no such part.
    fn map(&mut self, slot: usize, protection: i32) -> Option<(Map, usize, usize)> {
        let (offset, count) = self.drawn(slot);
        let (open, bytes) = self.of(slot);
        let offset = (offset - offset % 4096).min(bytes.len() as u64 / 4096 * 4096);
        let count = count.min(bytes.len() as u64 - offset) as usize;
        if count == 0 {
            return None;
        }
        let map = Map::new(&open.file, count, protection, libc::MAP_SHARED, offset as i64);
        Some((map.unwrap_or_else(|errno| panic!("{}", sys::name(errno))), offset as usize, count))
    }

    fn map_read(&mut self, op: u64, slot: usize) {
        let Some((mut map, offset, count)) = self.map(slot, libc::PROT_READ) else { return };
        self.note("read of a mapping", op, &format!("by {slot} of {count} at {offset}"));
        let (_, bytes) = self.of(slot);
        self.same(
            &format!("mapping at {offset}"),
            &format!("slot {slot}"),
            map.bytes(),
            &bytes[offset..offset + count],
        );
    }

    fn map_write(&mut self, op: u64, slot: usize) {
        let Some((mut map, offset, count)) = self.map(slot, libc::PROT_READ | libc::PROT_WRITE) else { return };
        let skip = self.random.below(count as u64) as usize;
        let new = self.random.bytes((count - skip) as u64);
        let sync = self.syncs && self.random.chance(2);
        self.note("write of a mapping", op, &format!("by {slot} of {} at {}, synced {sync}", new.len(), offset + skip));
        map.bytes()[skip..].copy_from_slice(&new);
        if sync {
            self.answered("msync", map.sync(libc::MS_SYNC), Ok(0));
        }
        drop(map);
        let id = self.of(slot).0.id;
        Self::put(&mut self.model.files[id], (offset + skip) as u64, &new);
    }

    fn set_size(&mut self, op: u64, slot: usize) {
        let now = self.of(slot).1.len() as u64;
        // Often a little less or more than now, so that ends lie in pages that the cache has.
        let size = match self.random.below(6) {
            0..3 => now.saturating_sub(self.random.below(6000)),
            3 => (now + self.random.below(20_000)).min(self.size_max),
            4 => self.random.below(10_000),
            _ => self.random.below(self.size_max),
        };
        self.note("ftruncate", op, &format!("by {slot} to {size}"));
        let (open, _) = self.of(slot);
        let (answer, id) = (sys::set_size(&open.file, size as i64), open.id);
        self.answered("ftruncate", answer, Ok(0));
        self.model.files[id].resize(size as usize, 0);
    }

    fn allocate(&mut self, op: u64, slot: usize) {
        let (offset, count) = self.drawn(slot);
        let count = count.max(1);
        let keep = libc::FALLOC_FL_KEEP_SIZE;
        let modes = [
            0,
            keep,
            libc::FALLOC_FL_PUNCH_HOLE | keep,
            libc::FALLOC_FL_PUNCH_HOLE | keep,
            libc::FALLOC_FL_ZERO_RANGE,
            libc::FALLOC_FL_ZERO_RANGE | keep,
            libc::FALLOC_FL_COLLAPSE_RANGE,
            libc::FALLOC_FL_INSERT_RANGE,
        ];
        let mode = modes[self.random.below(8) as usize];
        self.note("fallocate", op, &format!("by {slot} of mode {mode}, {count} at {offset}"));
        let (open, _) = self.of(slot);
        let (answer, id) = (sys::allocate(&open.file, mode, offset as i64, count as i64), open.id);
        let bytes = &mut self.model.files[id];
        // The kernel refuses both on a mount, whatever the file system below.
        if mode & (libc::FALLOC_FL_COLLAPSE_RANGE | libc::FALLOC_FL_INSERT_RANGE) != 0 {
            return self.answered("fallocate", answer, Err(libc::EOPNOTSUPP));
        }
        // The file system below may not support a range of zeros.
        if answer == Err(libc::EOPNOTSUPP) && mode & libc::FALLOC_FL_ZERO_RANGE != 0 {
            return;
        }
        let end = (offset + count) as usize;
        if mode & keep == 0 && bytes.len() < end {
            bytes.resize(end, 0);
        }
        if mode & (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE) != 0 {
            let (start, end) = (bytes.len().min(offset as usize), bytes.len().min(end));
            bytes[start..end].fill(0);
        }
        self.answered("fallocate", answer, Ok(0));
    }

    fn copy(&mut self, op: u64, slot: usize) {
        let other = self.random.below(OPEN as u64) as usize;
        if self.open[other].is_none() {
            return;
        }
        let ((from, count), (to, _)) = (self.drawn(slot), self.drawn(other));
        let ((source, bytes), (target, _)) = (self.of(slot), self.of(other));
        let start = bytes.len().min(from as usize);
        let part = bytes[start..bytes.len().min((from + count) as usize)].to_vec();
        let overlap = source.id == target.id && from < to + count && to < from + count;
        if overlap || part.is_empty() {
            return;
        }
        let (mut at, mut into, mut done) = (from as i64, to as i64, 0);
        // The call may do less than asked.
        while done < part.len() {
            let (source, target) = (source.file.as_raw_fd(), target.file.as_raw_fd());
            let copied = call!(copy_file_range(source, &mut at, target, &mut into, part.len() - done, 0));
            let copied = copied.unwrap_or_else(|errno| panic!("seed {}: copy: {}", self.seed, sys::name(errno)));
            assert!(copied > 0, "seed {}: a copy ends early; before:\n{}", self.seed, self.last.join("\n"));
            done += copied as usize;
        }
        let id = target.id;
        self.note("copy", op, &format!("by {slot} at {from} to {other} at {to}, {} bytes", part.len()));
        Self::put(&mut self.model.files[id], to, &part);
    }

    fn sync(&mut self, op: u64, slot: usize) {
        let data = self.random.chance(2);
        self.note("sync", op, &format!("by {slot}, data alone {data}"));
        let (open, _) = self.of(slot);
        let answer = if data { sys::fdatasync(&open.file) } else { sys::fsync(&open.file) };
        self.answered("sync", answer, Ok(0));
    }

    /// Renames, or removes a name; open files stay open.
    fn names(&mut self, op: u64) {
        let (from, to) = (self.name(), self.name());
        let Some(&id) = self.model.names.get(&from) else { return };
        if self.random.chance(4) {
            self.note("unlink", op, &from);
            self.answered("unlink", sys::unlink(&self.path(&from)), Ok(0));
            self.model.names.remove(&from);
        } else if from != to {
            self.note("rename", op, &format!("{from} to {to}"));
            self.answered("rename", sys::rename(&self.path(&from), &self.path(&to), 0), Ok(0));
            self.model.names.remove(&from);
            self.model.names.insert(to, id);
        }
    }

    fn look(&mut self, op: u64, slot: usize) {
        self.note("stat", op, &slot.to_string());
        let (open, bytes) = self.of(slot);
        let size = sys::fstat(&open.file).expect("attributes").st_size;
        self.answered("size", size, bytes.len() as i64);
        self.answered("end", sys::seek(&open.file, 0, libc::SEEK_END), Ok(size));
        // A reported hole reads as zeros.
        let mut at = 0;
        while let Ok(hole) = sys::seek(&open.file, at, libc::SEEK_HOLE) {
            let end = sys::seek(&open.file, hole, libc::SEEK_DATA).unwrap_or(size);
            let zeros = bytes[hole as usize..end as usize].iter().all(|&byte| byte == 0);
            assert!(
                zeros,
                "seed {}: a hole from {hole} to {end} has bytes; before:\n{}",
                self.seed,
                self.last.join("\n")
            );
            if end >= size {
                break;
            }
            at = end;
        }
    }

    fn compare_all(&mut self, when: &str) {
        for (name, &id) in &self.model.names {
            let found =
                std::fs::read(self.path(name)).unwrap_or_else(|error| panic!("seed {}: {name}: {error}", self.seed));
            self.same(when, name, &found, &self.model.files[id]);
        }
        for (slot, open) in self.open.iter().enumerate() {
            let Some(open) = open else { continue };
            let bytes = &self.model.files[open.id];
            let found =
                sys::pread(&open.file, bytes.len() + 10, 0).unwrap_or_else(|errno| panic!("{}", sys::name(errno)));
            self.same(when, &format!("slot {slot}"), &found, bytes);
        }
    }

    /// Starts another server: after an orderly end, or after a kill of a server that has synced all.
    fn again(&mut self, op: u64, kill: bool) {
        let mut mounted = self.mounted.take().expect("its own mount");
        if kill {
            self.note("kill", op, "");
            for slot in 0..OPEN {
                if let Some(open) = &self.open[slot] {
                    self.answered("fsync", sys::fsync(&open.file), Ok(0));
                }
            }
            let names: Vec<String> = self.model.names.keys().cloned().collect();
            for name in names {
                let file = sys::open(&self.path(&name), libc::O_RDONLY, 0).expect("a file");
                self.answered("fsync", sys::fsync(&file), Ok(0));
            }
            mounted.signal(Signal::KILL);
            let (code, _) = mounted.end();
            self.answered("killed", code, None);
            self.open.iter_mut().for_each(|open| *open = None);
        } else {
            self.open.iter_mut().for_each(|open| *open = None);
            // Another mode from the next start on.
            let modes = ["write-back", "write-through", "write-around", "write-back"];
            let mode = modes[self.random.below(4) as usize];
            self.note("another server", op, mode);
            mounted.signal(Signal::TERM);
            let ended = mounted.end();
            self.answered("its end", ended, (Some(0), String::new()));
            mounted.change_mode(mode);
        }
        assert!(mounted.start(), "it was mounted before");
        self.mounted = Some(mounted);
        self.compare_all("with another server");
    }
}
