//! Benchmark of a cache hit through the FUSE front-end: 4-KiB reads at random offsets of a mounted file.
//! One thread reads first, then four. Two mounts take turns in one process. One answers hits on the thread that took
//! the request from the kernel; the other hands every read to a worker. Beside them a file of a directory in memory is
//! read, which shows the cost of the system call. Times are of one read; processor time is of both sides together.
//!
//! `cargo run --release -p entresol-fuse --example fuse_speed -- [SECONDS [ROUNDS]]`

use entresol_cache::CacheConfig;
use entresol_disk::{Caching, FileDisk};
use entresol_files::{AtOnce, Backing, CachedFiles, FileData, FileId, FileLayer, OpenDirectory, Sought};
use entresol_fuse::{Mount, Options};
use entresol_store::{Geometry, Layout};
use rustix::fs::FallocateFlags;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

const BYTES: usize = 4096;
/// Pages of the file; all of them fit the cache's memory.
const PAGES: u64 = 2048;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let argument = |at, otherwise| std::env::args().nth(at).map_or(Ok(otherwise), |text| text.parse::<f64>());
    let (seconds, rounds) = (argument(1, 1.0)?, argument(2, 5.0)? as usize);
    let directory = std::env::temp_dir().join(format!("fuse-speed-{}", std::process::id()));
    std::fs::create_dir(&directory)?;
    let measured = measure(&directory, Duration::from_secs_f64(seconds), rounds);
    std::fs::remove_dir_all(&directory)?;
    measured
}

fn measure(directory: &Path, time: Duration, rounds: usize) -> Result<(), Failure> {
    let inline = FuseServer::open(&directory.join("inline"), false)?;
    let pooled = FuseServer::open(&directory.join("pooled"), true)?;
    let memory = tempfile::tempfile_in("/dev/shm")?;
    memory.set_len(PAGES * BYTES as u64)?;
    let contenders = [("memory file", &memory), ("hit, at once", &inline.file), ("hit, by a worker", &pooled.file)];
    println!("4-KiB reads of {PAGES} pages that memory holds, {rounds} rounds of {time:?} each, medians");
    println!("{:>18} {:>8} {:>8} {:>8} {:>8} {:>8}", "", "threads", "p50 us", "p99 us", "CPU us", "kIOPS");
    for threads in [1, 4] {
        let mut results = [const { Vec::new() }; 3];
        for round in 0..rounds {
            for ((_, file), results) in contenders.iter().zip(&mut results) {
                results.push(read(file, threads, time, round as u64)?);
            }
        }
        for ((name, _), results) in contenders.iter().zip(&results) {
            let figure = |of: fn(&Reads) -> f64| median(results.iter().map(of).collect());
            let (p50, p99) = (figure(|reads| reads.p50_us), figure(|reads| reads.p99_us));
            let (cpu, rate) = (figure(|reads| reads.cpu_us), figure(|reads| reads.per_second / 1e3));
            println!("{name:>18} {threads:>8} {p50:>8.2} {p99:>8.1} {cpu:>8.2} {rate:>8.1}");
        }
    }
    inline.close()?;
    pooled.close()
}

/// A mounted directory with one open file in it, whose pages are in memory.
struct FuseServer {
    mount: Mount,
    file: File,
    layer: Arc<CachedFiles>,
}

impl FuseServer {
    fn open(directory: &Path, by_a_worker: bool) -> Result<Self, Failure> {
        let (backing, at) = (directory.join("backing"), directory.join("mount"));
        std::fs::create_dir_all(&backing)?;
        std::fs::create_dir(&at)?;
        let geometry = Geometry { page_bytes: BYTES as u32, segment_pages: 64, segments: 128, layout: Layout::Log };
        let cache = FileDisk::create(&directory.join("cache"), geometry.size_bytes(), Caching::Buffered)?;
        Backing::format(&backing, &cache, geometry, [1; 16], [2; 16])?;
        let config = CacheConfig::new(entresol_policy::catalogue::info("face-gsc")?, &[PAGES as usize + 64, 4096]);
        let layer = Arc::new(CachedFiles::open(Backing::open(&backing)?, cache, &config, Vec::new())?.0);
        let served: Arc<dyn FileLayer> = if by_a_worker { Arc::new(NeverAtOnce(layer.clone())) } else { layer.clone() };
        // The benchmark is not about reads that the kernel answers by itself.
        let options = Options { page_cache: false, passthrough: false, ..Options::default() };
        let mount = Mount::start(&backing, &at, served, options)?;
        std::fs::write(at.join("file"), vec![7; PAGES as usize * BYTES])?;
        let file = File::open(at.join("file"))?;
        // A read finds in memory the pages that a write put there.
        file.read_exact_at(&mut vec![0; PAGES as usize * BYTES], 0)?;
        Ok(Self { mount, file, layer })
    }

    fn close(self) -> Result<(), Failure> {
        let stats = self.layer.cache().stats()?.counts;
        if stats.read_hits != stats.reads {
            return Err(format!(
                "{} of {} page reads were hits: the figures are of something else",
                stats.read_hits, stats.reads
            )
            .into());
        }
        drop(self.file);
        Ok(self.mount.unmount()?)
    }
}

/// Result of some seconds of reading: latencies and CPU time of a read in microseconds, and reads per second.
struct Reads {
    p50_us: f64,
    p99_us: f64,
    cpu_us: f64,
    per_second: f64,
}

fn read(file: &File, threads: u64, time: Duration, seed: u64) -> io::Result<Reads> {
    let (stop, cpu, start) = (AtomicBool::new(false), cpu_us(), Instant::now());
    let one = |thread: u64| {
        let (mut random, mut took, mut bytes) = (seed << 8 | thread, Vec::new(), vec![0; BYTES]);
        while !stop.load(Relaxed) {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let start = Instant::now();
            file.read_exact_at(&mut bytes, (random >> 33) % PAGES * BYTES as u64)?;
            took.push(start.elapsed().as_nanos() as u32);
        }
        Ok(took)
    };
    let all: Vec<io::Result<Vec<u32>>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(move || one(thread))).collect();
        std::thread::sleep(time);
        stop.store(true, Relaxed);
        threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
    });
    let (cpu, seconds) = (cpu_us() - cpu, start.elapsed().as_secs_f64());
    let mut took: Vec<u32> = all.into_iter().collect::<io::Result<Vec<_>>>()?.concat();
    took.sort_unstable();
    let at = |share: f64| f64::from(took[((took.len() - 1) as f64 * share) as usize]) / 1e3;
    let count = took.len() as f64;
    Ok(Reads { p50_us: at(0.5), p99_us: at(0.99), cpu_us: cpu / count, per_second: count / seconds })
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

/// CPU time of this process.
fn cpu_us() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// Files that never have bytes at once: every read goes to a worker.
struct NeverAtOnce(Arc<CachedFiles>);

struct Never(Arc<dyn FileData>);

impl FileLayer for NeverAtOnce {
    fn open(&self, id: FileId, file: File, writable: bool) -> io::Result<Arc<dyn FileData>> {
        Ok(Arc::new(Never(self.0.open(id, file, writable)?)))
    }
    fn leaving(&self, id: FileId, directory: OpenDirectory<'_>) -> io::Result<()> {
        self.0.leaving(id, directory)
    }
    fn stays(&self, id: FileId) {
        self.0.stays(id);
    }
    fn replacing(&self, id: FileId) -> io::Result<()> {
        self.0.replacing(id)
    }
    fn removed(&self, id: FileId) {
        self.0.removed(id);
    }
}

impl FileData for Never {
    fn size_bytes(&self) -> io::Result<u64> {
        self.0.size_bytes()
    }
    fn read_now(&self, _offset: u64, _bytes: &mut [u8]) -> io::Result<AtOnce> {
        Ok(AtOnce::First(0))
    }
    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.read(offset, bytes)
    }
    fn write_now(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_now(offset, bytes)
    }
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write(offset, bytes)
    }
    fn sync(&self, data_only: bool) -> io::Result<()> {
        self.0.sync(data_only)
    }
    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.0.truncate(bytes)
    }
    fn allocate(&self, how: FallocateFlags, offset: u64, bytes: u64) -> io::Result<()> {
        self.0.allocate(how, offset, bytes)
    }
    fn seek(&self, sought: Sought, offset: u64) -> io::Result<u64> {
        self.0.seek(sought, offset)
    }
}
