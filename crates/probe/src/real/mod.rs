//! Real targets: a file that the probe makes for itself, or a block device that may be destroyed.
//!
//! I/O goes through io_uring, one ring and thread for each stream, or through a thread for each outstanding I/O where
//! the kernel refuses io_uring.

mod block;
mod buffer;
mod direct;
mod file;
mod ring;
mod run;
mod source;
mod threads;

use crate::target::{Samples, Stream, Target, TargetError, Until};
use block::Roots;
use buffer::Buffers;
use direct::Finding;
use entresol_core::{Random, Size};
use entresol_device::Nanos;
use ring::Lane;
use run::{Run, Tally};
use source::Source;
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A target's size is a multiple of this many bytes.
const WHOLE: u64 = 1 << 20;
/// The smallest target that is worth measuring, in bytes.
const SIZE_MIN: u64 = 16 << 20;

/// Interface that carries I/O to the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// io_uring where the kernel takes it, else threads.
    #[default]
    Auto,
    /// io_uring or an error.
    Uring,
    /// A thread for each outstanding I/O.
    Threads,
}

/// Options with which a real target is opened.
#[derive(Clone, Debug, Default)]
pub struct RealOptions {
    /// Bytes of the target that are used; none for the default.
    pub size: Option<u64>,
    /// True to use the page cache where there is no direct I/O.
    pub buffered: bool,
    /// Interface that carries I/O to the kernel.
    pub engine: Engine,
    /// Flag that another thread sets to stop the run.
    pub interrupted: Arc<AtomicBool>,
}

/// Layer between an I/O and the device.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// Nothing: direct I/O, as far as this kernel can see.
    Direct(Finding),
    /// The page cache, with the consent of the user.
    Buffered,
    /// No device: a file in shared memory.
    SharedMemory,
}

/// A file or a block device.
#[derive(Debug)]
pub struct RealTarget {
    file: File,
    /// Name of the target in errors.
    named: String,
    /// Description of the target in results, without paths, serial numbers or names of hosts.
    kind: String,
    capacity: u64,
    granule: u32,
    way: Way,
    uring: bool,
    device: bool,
    interrupted: Arc<AtomicBool>,
}

impl RealTarget {
    /// Bytes that [`RealTarget::in_directory`] would take. No file is made.
    ///
    /// # Errors
    /// When the path is no directory or has not enough space.
    pub fn size_in_directory(directory: &Path, size: Option<u64>) -> Result<u64, TargetError> {
        file::place(directory, size).map(|place| place.bytes)
    }

    /// Bytes that [`RealTarget::block_device`] would take, and bytes of the device. Nothing is written.
    ///
    /// # Errors
    /// As [`RealTarget::block_device`], as far as can be checked without opening the device.
    pub fn size_of_device(device: &Path, serial: &str, size: Option<u64>) -> Result<(u64, u64), TargetError> {
        let all = block::check(device, serial, &Roots::default())?;
        let refuse = |what: String| TargetError::Refused { target: device.display().to_string(), what };
        Ok((part_of_device(size, all).map_err(refuse)?, all))
    }

    /// A new file in a directory, without a name, which is removed with the process however that ends. Reads of
    /// unwritten parts do not reach the device.
    ///
    /// # Errors
    /// When the directory cannot be written to, has not enough space, or its file system has no direct I/O that
    /// bypasses the page cache. Shared memory, and consent given with the options, are the exceptions.
    pub fn in_directory(directory: &Path, options: &RealOptions) -> Result<Self, TargetError> {
        let made = file::make(directory, options)?;
        let named = directory.display().to_string();
        let way = match (made.shared_memory, made.direct) {
            (true, _) => Way::SharedMemory,
            (false, false) => Way::Buffered,
            (false, true) => match direct::examine(&made.file, &named)? {
                finding if finding.bypasses() => Way::Direct(finding),
                _ if options.buffered => Way::Buffered,
                finding => {
                    let what = format!(
                        "its file system takes direct I/O and goes through memory all the same: {}; --buffered \
                         measures it nevertheless",
                        finding.sentence()
                    );
                    return Err(TargetError::Refused { target: named, what });
                }
            },
        };
        let kind = format!("a file of {} on {}", Size::Bytes(made.bytes), made.file_system);
        Self::new(made.file, named, kind, made.bytes, way, options, false)
    }

    /// A block device with this serial number. All of its contents are lost.
    ///
    /// # Errors
    /// When the path is no whole block device, has another serial number, is read-only or in any use, or has no direct
    /// I/O.
    pub fn block_device(device: &Path, serial: &str, options: &RealOptions) -> Result<Self, TargetError> {
        block::check(device, serial, &Roots::default())?;
        let named = device.display().to_string();
        let failed = |action| {
            let target = named.clone();
            move |error| TargetError::System { target, action, error }
        };
        let refuse = |what: String| TargetError::Refused { target: named.clone(), what };
        let checked = std::fs::metadata(device).map_err(failed("looking at it"))?;
        // O_EXCL on a block device: refused while the device or a part of it is mounted or claimed.
        let flags = libc::O_DIRECT | libc::O_EXCL | libc::O_CLOEXEC;
        let opened = OpenOptions::new().read(true).write(true).custom_flags(flags).open(device);
        let mut file = opened.map_err(|error| match error.raw_os_error() {
            Some(libc::EBUSY) => refuse("is in use".to_owned()),
            _ => failed("opening it")(error),
        })?;
        if file.metadata().map_err(failed("looking at it"))?.rdev() != checked.rdev() {
            return Err(refuse("became another device while it was looked at".to_owned()));
        }
        let all = file.seek(SeekFrom::End(0)).map_err(failed("asking for its size"))?;
        let bytes = part_of_device(options.size, all).map_err(refuse)?;
        let finding = direct::examine(&file, &named)?;
        if !finding.bypasses() && !options.buffered {
            return Err(refuse(format!("direct I/O does not go past memory: {}", finding.sentence())));
        }
        let way = if finding.bypasses() { Way::Direct(finding) } else { Way::Buffered };
        let kind = format!("{} of a block device", Size::Bytes(bytes));
        Self::new(file, named, kind, bytes, way, options, true)
    }

    fn new(
        file: File,
        named: String,
        kind: String,
        capacity: u64,
        way: Way,
        options: &RealOptions,
        device: bool,
    ) -> Result<Self, TargetError> {
        let uring = match (options.engine, ring::available()) {
            (Engine::Threads, _) => false,
            (_, Ok(())) => true,
            (Engine::Auto, Err(_)) => false,
            (Engine::Uring, Err(error)) => {
                return Err(TargetError::System { target: named, action: "starting io_uring", error });
            }
        };
        let granule = granule(&file).map_err(|error| TargetError::System {
            target: named.clone(),
            action: "looking for the smallest I/O that it takes",
            error,
        })?;
        let interrupted = options.interrupted.clone();
        Ok(RealTarget { file, named, kind, capacity, granule, way, uring, device, interrupted })
    }

    /// Facts about the measurement that a reader of results must know, in sentences.
    pub fn caveats(&self) -> Vec<String> {
        let mut all = Vec::new();
        match self.way {
            Way::Direct(finding) => {
                all.push(format!("Direct I/O goes past this system's page cache: {}.", finding.sentence()));
                if finding.direct_ns < 2 * finding.cached_ns {
                    all.push(
                        "A direct read is about as fast as one from memory: memory below this system, of a \
                              hypervisor or of the device, may answer."
                            .to_owned(),
                    );
                }
            }
            Way::Buffered => {
                all.push("There is no direct I/O: this is the page cache as much as the device.".to_owned())
            }
            Way::SharedMemory => {
                all.push("The file is in shared memory: there is no device, and no direct I/O.".to_owned())
            }
        }
        if !self.uring {
            all.push("io_uring is not used: a thread waits for each I/O, and costs more of the processor.".to_owned());
        }
        if !self.device {
            all.push("A file was measured, not a device: the file system takes part in every write.".to_owned());
        }
        all
    }

    fn failed(&self, action: &'static str, error: std::io::Error) -> TargetError {
        TargetError::System { target: self.named.clone(), action, error }
    }

    fn sources(&self, streams: &[Stream], seed: u64) -> Result<Vec<Source>, TargetError> {
        let refuse = |what| TargetError::Refused { target: self.named.clone(), what };
        if streams.iter().all(|stream| stream.until == Until::First) {
            return Err(refuse("a run of streams in the background would not end".to_owned()));
        }
        let seeds = (1..).map(|i| Random::mix(seed.wrapping_add(i)));
        let sources =
            streams.iter().zip(seeds).map(|(stream, seed)| Source::new(stream, self.capacity, self.granule, seed));
        sources.collect::<Result<_, _>>().map_err(refuse)
    }

    fn run_rings(&self, streams: &[Stream], sources: Vec<Source>, seed: u64) -> Result<Vec<Samples>, TargetError> {
        let lanes =
            streams.iter().zip(sources).map(|(stream, source)| Lane::new(self.file.as_raw_fd(), stream, source, seed));
        let lanes: Vec<Lane<'_>> =
            lanes.collect::<Result<_, _>>().map_err(|error| self.failed("starting io_uring", error))?;
        let foreground = streams.iter().filter(|stream| stream.until != Until::First).count();
        let run = Run::new(&self.named, lanes.len(), foreground, &self.interrupted);
        let tallies: Vec<Tally> = std::thread::scope(|scope| {
            let threads: Vec<_> = lanes.into_iter().map(|lane| scope.spawn(|| lane.work(&run))).collect();
            threads.into_iter().map(|thread| thread.join().expect("a thread of I/O does not panic")).collect()
        });
        run.outcome()?;
        Ok(tallies.into_iter().map(|tally| Tally::merge([tally])).collect())
    }

    fn run_threads(&self, streams: &[Stream], sources: Vec<Source>, seed: u64) -> Result<Vec<Samples>, TargetError> {
        let sources: Vec<Mutex<Source>> = sources.into_iter().map(Mutex::new).collect();
        let mut buffers: Vec<Vec<Buffers>> = Vec::new();
        for (i, stream) in streams.iter().enumerate() {
            let of =
                |thread: u32| Buffers::new(1, stream.bytes, seed.wrapping_add((i as u64) << 32 | u64::from(thread)));
            buffers.push((0..threads::threads(stream)).map(of).collect());
        }
        let foreground =
            streams.iter().filter(|stream| stream.until != Until::First).map(threads::threads).sum::<u32>();
        let run = Run::new(&self.named, buffers.iter().map(Vec::len).sum(), foreground as usize, &self.interrupted);
        let samples = std::thread::scope(|scope| {
            let mut started = Vec::new();
            for ((stream, source), mut buffers) in streams.iter().zip(&sources).zip(buffers) {
                let work = |mut buffers: Buffers| {
                    let run = &run;
                    scope.spawn(move || threads::work(&self.file, stream, source, run, &mut buffers))
                };
                started.push(buffers.drain(..).map(work).collect::<Vec<_>>());
            }
            let join = |threads: Vec<std::thread::ScopedJoinHandle<'_, Tally>>| {
                Tally::merge(threads.into_iter().map(|thread| thread.join().expect("a thread of I/O does not panic")))
            };
            started.into_iter().map(join).collect()
        });
        run.outcome()?;
        Ok(samples)
    }
}

/// Bytes that are used of a device.
fn part_of_device(asked: Option<u64>, all: u64) -> Result<u64, String> {
    let bytes = asked.unwrap_or(all) / WHOLE * WHOLE;
    match (SIZE_MIN..=all).contains(&bytes) {
        true => Ok(bytes),
        false => {
            let least = Size::Bytes(SIZE_MIN);
            Err(format!("holds {all} B, and {bytes} B are to be measured; at least {least} are needed"))
        }
    }
}

/// The smallest I/O that a file takes, in bytes: direct I/O wants whole sectors.
fn granule(file: &File) -> std::io::Result<u32> {
    let mut buffers = Buffers::new(1, 4096, 0);
    let mut last = None;
    for bytes in [512, 1024, 2048, 4096_u32] {
        // The offset is no multiple of any larger size.
        match file.read_exact_at(&mut buffers.slice(0)[..bytes as usize], u64::from(bytes)) {
            Ok(()) => return Ok(bytes),
            Err(error) => last = Some(error),
        }
    }
    Err(last.expect("four sizes were tried"))
}

impl Target for RealTarget {
    fn describe(&self) -> String {
        let way = match self.way {
            Way::Direct(_) => "direct I/O",
            Way::Buffered => "buffered I/O",
            Way::SharedMemory => "buffered I/O in shared memory",
        };
        let engine = if self.uring { "io_uring" } else { "threads" };
        format!("{}, {way}, {engine}", self.kind)
    }

    fn capacity_bytes(&self) -> u64 {
        self.capacity
    }

    fn granule_bytes(&self) -> u32 {
        self.granule
    }

    fn run(&mut self, streams: &[Stream], seed: u64) -> Result<Vec<Samples>, TargetError> {
        let sources = self.sources(streams, seed)?;
        if self.uring { self.run_rings(streams, sources, seed) } else { self.run_threads(streams, sources, seed) }
    }

    fn idle(&mut self, duration: Nanos) -> Result<(), TargetError> {
        let until = Instant::now() + Duration::from_nanos(duration);
        loop {
            if self.interrupted.load(Ordering::Relaxed) {
                return Err(TargetError::Interrupted);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(Duration::from_millis(50)));
        }
    }

    /// Discards on a block device that can. A file's blocks stay, because later reads must come from the device.
    fn discard(&mut self, range: Range<u64>) -> Result<(), TargetError> {
        // From linux/fs.h: _IO(0x12, 119), which takes a start and a length.
        const BLKDISCARD: libc::c_ulong = 0x1277;
        if !self.device || range.is_empty() {
            return Ok(());
        }
        let ends = [range.start, range.end.min(self.capacity) - range.start];
        // SAFETY: the call reads the two numbers that it is given, and the descriptor is open.
        if unsafe { libc::ioctl(self.file.as_raw_fd(), BLKDISCARD as _, ends.as_ptr()) } == 0 {
            return Ok(());
        }
        match std::io::Error::last_os_error() {
            error if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOTTY)) => Ok(()),
            error => Err(self.failed("discarding", error)),
        }
    }
}

#[cfg(test)]
mod tests;
