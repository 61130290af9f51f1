//! Benchmark of files that bypass a layer: 8-KiB appends to a log, each synced, and 8-KiB reads at random offsets, with
//! O_DIRECT and without. Three mounts take turns in one process: one that ends with its server and has passthrough, one
//! that outlives its server and has it, and one that outlives its server and has none. Times are of one call. Processor
//! time is of both sides together, without the kernel's own threads.
//!
//! `cargo run --release -p entresol-fuse --example fuse_passing -- [SECONDS [ROUNDS]]`

use entresol_files::DirectFiles;
use entresol_fuse::{Keep, Mount, Options, Passing, Surviving};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const BYTES: usize = 8192;
const PAGES: u64 = 2048;
const O_DIRECT: i32 = 0o40000;

type Failure = Box<dyn std::error::Error>;

/// A holder in this process.
#[derive(Debug, Default)]
struct Holder(Mutex<HashMap<String, OwnedFd>>);

impl Keep for Holder {
    fn keep(&self, name: &str, fd: BorrowedFd<'_>) -> io::Result<()> {
        let fd = fd.try_clone_to_owned()?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), fd);
        Ok(())
    }

    fn forget(&self, name: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }
}

/// A mount with its open files.
struct Contender {
    name: &'static str,
    mount: Mount,
    log: File,
    direct: File,
    plain: File,
}

impl Contender {
    fn new(name: &'static str, directory: &Path, held: bool, passthrough: bool) -> Result<Self, Failure> {
        let (backing, at) = (directory.join("backing"), directory.join("mount"));
        std::fs::create_dir_all(&backing)?;
        std::fs::create_dir(&at)?;
        let keep = held.then(|| Arc::<Holder>::default() as Arc<dyn Keep>);
        let options = Options { keep, passthrough, ..Options::default() };
        let mount = Mount::start(&backing, &at, Arc::new(DirectFiles), options)?;
        let fits = matches!(mount.passing(), Passing::Granted) == passthrough
            && matches!(mount.surviving(), Surviving::Kept) == held;
        if !fits {
            return Err(format!("{name}: {:?}, {:?}", mount.passing(), mount.surviving()).into());
        }
        let mut file = File::create(at.join("file"))?;
        file.write_all(&vec![7; PAGES as usize * BYTES])?;
        file.sync_all()?;
        let log = OpenOptions::new().append(true).create(true).open(at.join("log"))?;
        let direct = OpenOptions::new().read(true).custom_flags(O_DIRECT).open(at.join("file"))?;
        let plain = File::open(at.join("file"))?;
        Ok(Self { name, mount, log, direct, plain })
    }
}

fn main() -> Result<(), Failure> {
    let argument = |at, otherwise| std::env::args().nth(at).map_or(Ok(otherwise), |text| text.parse::<f64>());
    let (seconds, rounds) = (argument(1, 2.0)?, argument(2, 5.0)? as u64);
    let directory = tempfile::tempdir()?;
    let at = |name: &str| directory.path().join(name);
    let mut contenders = [
        Contender::new("(a) passthrough", &at("a"), false, true)?,
        Contender::new("(b) held, passthrough", &at("b"), true, true)?,
        Contender::new("(c) held, without", &at("c"), true, false)?,
    ];
    let time = Duration::from_secs_f64(seconds);
    println!("{BYTES}-byte calls of one thread, {rounds} rounds of {time:?} each, medians");
    println!("{:>24} {:>24} {:>9} {:>9} {:>7}", "", "", "p50 us", "CPU us", "CPU/a");
    for (work, act) in [("append and fdatasync", append as Act), ("read, O_DIRECT", direct), ("read", plain)] {
        let mut results = [const { Vec::new() }; 3];
        for round in 0..rounds {
            // Each is the first of a round in turn.
            for at in (0..3).map(|at| (at + round as usize) % 3) {
                results[at].push(run(&mut contenders[at], act, time, round)?);
            }
        }
        let median = |of: &[(f64, f64)], figure: fn(&(f64, f64)) -> f64| {
            let mut figures: Vec<f64> = of.iter().map(figure).collect();
            figures.sort_by(f64::total_cmp);
            figures[figures.len() / 2]
        };
        let first = median(&results[0], |of| of.1);
        for (contender, results) in contenders.iter().zip(&results) {
            let (p50, cpu) = (median(results, |of| of.0), median(results, |of| of.1));
            println!("{work:>24} {:>24} {p50:>9.2} {cpu:>9.2} {:>7.2}", contender.name, cpu / first);
        }
    }
    for Contender { mount, log, direct, plain, .. } in contenders {
        drop((log, direct, plain));
        mount.unmount()?;
    }
    Ok(())
}

/// One call; the number is random.
type Act = fn(&mut Contender, &mut Buffer, u64) -> io::Result<()>;

/// Bytes as O_DIRECT wants them.
#[repr(align(4096))]
struct Buffer([u8; BYTES]);

fn append(contender: &mut Contender, bytes: &mut Buffer, _: u64) -> io::Result<()> {
    contender.log.write_all(&bytes.0)?;
    contender.log.sync_data()
}

fn direct(contender: &mut Contender, bytes: &mut Buffer, random: u64) -> io::Result<()> {
    contender.direct.read_exact_at(&mut bytes.0, random % PAGES * BYTES as u64)
}

fn plain(contender: &mut Contender, bytes: &mut Buffer, random: u64) -> io::Result<()> {
    contender.plain.read_exact_at(&mut bytes.0, random % PAGES * BYTES as u64)
}

/// Median latency and CPU time of a call in microseconds.
fn run(contender: &mut Contender, act: Act, time: Duration, seed: u64) -> io::Result<(f64, f64)> {
    let (mut random, mut took, mut bytes) = (seed << 8 | 1, Vec::new(), Box::new(Buffer([7; BYTES])));
    let (cpu, begin) = (cpu_us(), Instant::now());
    while begin.elapsed() < time {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let start = Instant::now();
        act(contender, &mut bytes, random >> 33)?;
        took.push(start.elapsed().as_nanos() as f64 / 1e3);
    }
    let cpu = (cpu_us() - cpu) / took.len() as f64;
    took.sort_by(f64::total_cmp);
    Ok((took[took.len() / 2], cpu))
}

/// CPU time of this process.
fn cpu_us() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}
