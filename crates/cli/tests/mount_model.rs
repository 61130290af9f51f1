//! Random file operations on a mount and on a plain directory beside it: every answer must be the same, and so must
//! the final contents. One name in three bypasses a cache if the file has it when the cache first sees the file.

mod common;

use common::mounted::{Mounted, contents, each, hash};
use rustix::fs::{Advice, FallocateFlags, RenameFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const NAMES: u64 = 12;
const SLOTS: u64 = 6;
const SIZE_MAX: u64 = 3 << 20;
const O_DIRECT: i32 = 0o40000;

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
        self.next() % bound
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        std::iter::repeat_with(|| self.next().to_le_bytes()).flatten().take(count).collect()
    }
}

/// One of the two sides: a directory and the open files in it.
struct Testbed {
    root: PathBuf,
    open: Vec<Option<File>>,
}

/// Answer of an operation, in words: data, sizes, error numbers.
type Answer = Result<String, i32>;

fn answer<T, E: Into<io::Error>>(result: Result<T, E>, word: impl FnOnce(T) -> String) -> Answer {
    result.map(word).map_err(|error| {
        let error: io::Error = error.into();
        error.raw_os_error().unwrap_or_else(|| panic!("{error} has no number"))
    })
}

fn done<T, E: Into<io::Error>>(result: Result<T, E>) -> Answer {
    answer(result, |_| String::new())
}

/// An operation with all random values drawn, so that both sides see the same.
#[derive(Debug, Clone)]
enum Step {
    Open { slot: usize, name: String, create: bool, truncate: bool, append: bool, direct: bool, read_only: bool },
    Close { slot: usize },
    Write { slot: usize, offset: u64, bytes: usize, seed: u64 },
    Read { slot: usize, offset: u64, bytes: usize },
    SetLength { slot: usize, size: u64 },
    Truncate { name: String, size: u64 },
    Allocate { slot: usize, how: FallocateFlags, offset: u64, bytes: u64 },
    Sync { slot: usize, data: bool },
    MapRead { slot: usize, bytes: usize },
    MapWrite { slot: usize, offset: usize, bytes: usize, value: u8 },
    WillNeed { slot: usize },
    Copy { from: usize, to: usize, bytes: usize },
    Rename { from: String, to: String, flags: RenameFlags },
    Link { from: String, to: String },
    Symlink { from: String, to: String },
    Unlink { name: String },
    MakeDirectory { name: String },
    RemoveDirectory { name: String },
    SyncDirectory,
    Look { name: String },
    LookOpen { slot: usize },
    List,
}

fn draw(random: &mut Random) -> Step {
    let slot = random.below(SLOTS) as usize;
    let name = |random: &mut Random| {
        let (directory, name) = (random.below(4), random.below(NAMES));
        let past = if name % 3 == 0 { "-wal" } else { "" };
        if directory == 0 { format!("d/{name}{past}") } else { format!("{name}{past}") }
    };
    let offset = |random: &mut Random| {
        let offset = random.below(SIZE_MAX);
        if random.below(2) == 0 { offset / 4096 * 4096 } else { offset }
    };
    let bytes = |random: &mut Random| match random.below(4) {
        0 => random.below(100) as usize,
        1 => 4096,
        2 => 8192 << random.below(4),
        _ => random.below(300_000) as usize,
    };
    match random.below(100) {
        0..14 => Step::Open {
            slot,
            name: name(random),
            create: random.below(4) > 0,
            truncate: random.below(8) == 0,
            append: random.below(5) == 0,
            direct: random.below(4) == 0,
            read_only: random.below(5) == 0,
        },
        14..18 => Step::Close { slot },
        18..38 => Step::Write { slot, offset: offset(random), bytes: bytes(random), seed: random.next() },
        38..54 => Step::Read { slot, offset: offset(random), bytes: bytes(random) },
        54..57 => Step::SetLength { slot, size: offset(random) },
        57..59 => Step::Truncate { name: name(random), size: offset(random) },
        59..64 => {
            let (punch, keep) = (FallocateFlags::PUNCH_HOLE, FallocateFlags::KEEP_SIZE);
            let zero = FallocateFlags::ZERO_RANGE;
            let how = [FallocateFlags::empty(), keep, punch | keep, zero, zero | keep][random.below(5) as usize];
            Step::Allocate { slot, how, offset: offset(random), bytes: bytes(random) as u64 }
        }
        64..67 => Step::Sync { slot, data: random.below(2) == 0 },
        67..71 => Step::MapRead { slot, bytes: bytes(random) },
        71..75 => {
            Step::MapWrite { slot, offset: random.below(100_000) as usize, bytes: bytes(random), value: slot as u8 }
        }
        75..77 => Step::Copy { from: slot, to: random.below(SLOTS) as usize, bytes: bytes(random) },
        77..82 => {
            let flags = [RenameFlags::empty(), RenameFlags::NOREPLACE, RenameFlags::EXCHANGE][random.below(3) as usize];
            Step::Rename { from: name(random), to: name(random), flags }
        }
        82..84 => Step::Link { from: name(random), to: name(random) },
        84 => Step::Symlink { from: name(random), to: name(random) },
        85..88 => Step::Unlink { name: name(random) },
        88 => Step::MakeDirectory { name: "d".into() },
        89 => Step::RemoveDirectory { name: "d".into() },
        90 => Step::SyncDirectory,
        91..95 => Step::Look { name: name(random) },
        95..97 => Step::LookOpen { slot },
        97..99 => Step::WillNeed { slot },
        _ => Step::List,
    }
}

fn look(found: io::Result<fs::Metadata>) -> Answer {
    answer(found, |data| {
        let size = if data.is_dir() { 0 } else { data.len() };
        format!("{:o} {} links {size}", data.mode(), if data.is_dir() { 0 } else { data.nlink() })
    })
}

impl Testbed {
    fn at(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn on(&self, slot: usize, act: impl FnOnce(&File) -> Answer) -> Answer {
        self.open[slot].as_ref().map_or(Ok("closed".into()), act)
    }

    fn take(&mut self, step: &Step, model: bool) -> Answer {
        match step {
            Step::Open { slot, name, create, truncate, append, direct, read_only } => {
                let mut options = OpenOptions::new();
                options.read(true);
                if !read_only {
                    options.write(true).create(*create).truncate(*truncate && !append).append(*append);
                }
                // The plain file system would ask for alignment.
                options.custom_flags(if *direct && !model { O_DIRECT } else { 0 });
                self.open[*slot] = None;
                let opened = options.open(self.at(name));
                answer(opened, |file| {
                    self.open[*slot] = Some(file);
                    String::new()
                })
            }
            Step::Close { slot } => {
                self.open[*slot] = None;
                Ok(String::new())
            }
            Step::Write { slot, offset, bytes, seed } => {
                self.on(*slot, |file| done(file.write_all_at(&Random(*seed).bytes(*bytes), *offset)))
            }
            Step::Read { slot, offset, bytes } => self.on(*slot, |file| {
                let mut buffer = vec![0xEE; *bytes];
                answer(file.read_at(&mut buffer, *offset), |count| hash(&buffer[..count]))
            }),
            Step::SetLength { slot, size } => self.on(*slot, |file| done(file.set_len(*size))),
            Step::Truncate { name, size } => {
                done(OpenOptions::new().write(true).open(self.at(name)).and_then(|file| file.set_len(*size)))
            }
            Step::Allocate { slot, how, offset, bytes } => {
                self.on(*slot, |file| done(rustix::fs::fallocate(file, *how, *offset, *bytes)))
            }
            Step::Sync { slot, data } => {
                self.on(*slot, |file| done(if *data { file.sync_data() } else { file.sync_all() }))
            }
            Step::MapRead { slot, bytes } => {
                self.on(*slot, |file| mapped(file, *bytes, ProtFlags::READ, |map| hash(map)))
            }
            Step::MapWrite { slot, offset, bytes, value } => self.on(*slot, |file| {
                mapped(file, offset + bytes, ProtFlags::READ | ProtFlags::WRITE, |map| {
                    let start = (*offset).min(map.len());
                    map[start..].fill(*value);
                    hash(map)
                })
            }),
            Step::WillNeed { slot } => {
                self.on(*slot, |file| done(rustix::fs::fadvise(file, 0, None, Advice::WillNeed)))
            }
            Step::Copy { from, to, bytes } => self.on(*from, |source| {
                self.on(*to, |target| {
                    let copied =
                        rustix::fs::copy_file_range(source, Some(&mut 0), target, Some(&mut 1_000_000), *bytes);
                    answer(copied, |count| count.to_string())
                })
            }),
            Step::Rename { from, to, flags } => {
                let cwd = rustix::fs::CWD;
                done(rustix::fs::renameat_with(cwd, self.at(from), cwd, self.at(to), *flags))
            }
            Step::Link { from, to } => done(fs::hard_link(self.at(from), self.at(to))),
            Step::Symlink { from, to } => done(std::os::unix::fs::symlink(from, self.at(to))),
            Step::Unlink { name } => done(fs::remove_file(self.at(name))),
            Step::MakeDirectory { name } => done(fs::create_dir(self.at(name))),
            Step::RemoveDirectory { name } => done(fs::remove_dir(self.at(name))),
            Step::SyncDirectory => done(File::open(&self.root).and_then(|directory| directory.sync_all())),
            Step::Look { name } => look(fs::symlink_metadata(self.at(name))),
            Step::LookOpen { slot } => self.on(*slot, |file| look(file.metadata())),
            Step::List => Ok(names(&self.root).join(" ")),
        }
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Maps the part of `bytes` that the file has, and runs `act` on it.
fn mapped(file: &File, bytes: usize, protection: ProtFlags, act: impl FnOnce(&mut [u8]) -> String) -> Answer {
    let length = bytes.min(file.metadata().unwrap().len() as usize);
    if length == 0 {
        return Ok("nothing to map".into());
    }
    // SAFETY: a new mapping at a place that the kernel chooses, unmapped below and nowhere else.
    let mapping = unsafe { rustix::mm::mmap(std::ptr::null_mut(), length, protection, MapFlags::SHARED, file, 0) };
    answer(mapping, |mapping| {
        // SAFETY: it has this length, the file is not cut off meanwhile, and nothing else refers to it.
        let said = act(unsafe { std::slice::from_raw_parts_mut(mapping.cast::<u8>(), length) });
        // SAFETY: mapped above with this length, not used any more.
        unsafe { rustix::mm::munmap(mapping, length) }.unwrap();
        said
    })
}

fn run(mut mounted: Mounted, time: Duration, seed: u64) {
    println!("seed {seed:#x}");
    let worlds = [mounted.above(), mounted.plain()];
    let mut worlds = worlds.map(|root| Testbed { root, open: (0..SLOTS).map(|_| None).collect() });
    let mut random = Random(seed);
    let (start, mut steps, mut refused) = (Instant::now(), 0_u64, 0_u64);
    while start.elapsed() < time {
        let step = draw(&mut random);
        let answers = [worlds[0].take(&step, false), worlds[1].take(&step, true)];
        assert_eq!(answers[0], answers[1], "seed {seed:#x}, step {steps}: {step:?}");
        (steps, refused) = (steps + 1, refused + u64::from(answers[0].is_err()));
        if steps.is_multiple_of(5000) {
            assert_eq!(contents(&mounted.above()), contents(&mounted.plain()), "seed {seed:#x}, step {steps}");
        }
    }
    drop(worlds);
    println!("{steps} steps, {refused} of them refused alike");
    assert!(steps > 100 && refused < steps / 2, "{steps} steps, {refused} refused");
    assert_eq!(contents(&mounted.above()), contents(&mounted.plain()));
    mounted.unmount();
    assert_eq!(contents(&mounted.below()), contents(&mounted.plain()));
}

#[test]
fn ten_seconds_of_random_operations() {
    each(|mounted| run(mounted, Duration::from_secs(10), 0x0d00_0020));
}

/// Runs for `ENTRESOL_FUSE_SECONDS` seconds, from the seed `ENTRESOL_FUSE_SEED`.
#[test]
#[ignore = "takes a minute unless told otherwise: `make test-long` runs it"]
fn random_operations_for_as_long_as_one_likes() {
    let number = |name, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (seconds, seed) = (number("ENTRESOL_FUSE_SECONDS", 60), number("ENTRESOL_FUSE_SEED", 0x0d00_0021));
    each(|mounted| run(mounted, Duration::from_secs(seconds), seed));
}
