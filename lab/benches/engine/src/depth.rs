//! Misses at depth: one thread that takes many pages at once from a file, beside fio on the same file.

use entresol_bench_common::{median, thread_time};
use entresol_buffer::{BufferManager, BufferOptions, DiskIo, PageIo, PageSource, QueuedPage};
use entresol_core::{Address, ObjectId, Random};
use entresol_disk::{Caching, Disk, FileDisk};
use entresol_policy::{Options, catalogue};
use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
/// Pages of the file, and of the pool: 31 of 32 reads miss.
const PAGES: u64 = 1 << 17;
const POOL: usize = 1 << 12;
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(2);
/// fio's queue.
const DEPTH: usize = 32;
/// Compared calls. `read_many` refills its queue as fio does. A batch of `pin_many` runs empty at its end.
const WAYS: [Way; 4] = [Way::Queue, Way::Batch(DEPTH), Way::Batch(8 * DEPTH), Way::Batch(32 * DEPTH)];

/// Call of the buffer manager that takes pages: `read_many`, or `pin_many` with this many pages at a time.
#[derive(Clone, Copy)]
enum Way {
    Queue,
    Batch(usize),
}

impl Way {
    /// Pages per call.
    fn row(self) -> usize {
        match self {
            Way::Queue => 128 * DEPTH,
            Way::Batch(pages) => pages,
        }
    }

    fn name(self) -> String {
        match self {
            Way::Queue => format!("`read_many`, {DEPTH} under way"),
            Way::Batch(pages) => format!("`pin_many`, {pages} at a time"),
        }
    }
}

/// Reads per second, and processor time of a read in microseconds.
type Measured = (f64, f64);

/// Pages whose last four bytes are the CRC32C of the others.
struct Checked(DiskIo<FileDisk>);

fn crc(page: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &page[..PAGE - 4]) as u32
}

fn check(at: Address, page: &[u8]) -> io::Result<()> {
    let stored = u32::from_le_bytes(page[PAGE - 4..].try_into().expect("four bytes"));
    if crc(page) == stored {
        Ok(())
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidData, format!("{at:?} is torn")))
    }
}

impl PageIo for Checked {
    fn read_page(&self, at: Address, into: &mut [u8]) -> io::Result<()> {
        self.0.read_page(at, into)?;
        check(at, into)
    }

    fn read_pages(&self, pages: &mut [(Address, &mut [u8])]) -> io::Result<()> {
        self.0.read_pages(pages)?;
        pages.iter().try_for_each(|(at, page)| check(*at, page))
    }

    fn read_queue<'a>(&self, depth: usize, source: &mut dyn PageSource<'a>) {
        self.0.read_queue(depth, &mut CheckedSource(source));
    }

    fn write_page(&self, at: Address, bytes: &[u8]) -> io::Result<()> {
        self.0.write_page(at, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn object_pages(&self, object: ObjectId) -> u64 {
        self.0.object_pages(object)
    }
}

struct CheckedSource<'s, 'a>(&'s mut dyn PageSource<'a>);

impl<'a> PageSource<'a> for CheckedSource<'_, 'a> {
    fn next(&mut self) -> Option<QueuedPage<'a>> {
        self.0.next()
    }

    fn ended(&mut self, page: QueuedPage<'a>, result: io::Result<()>) {
        let result = result.and_then(|()| check(page.at, page.bytes));
        self.0.ended(page, result);
    }
}

/// Measures and reports. If it cannot measure, the report has the reason instead.
pub fn report(out: &mut String, scratch: &Path) {
    out.push_str("## Misses at depth\n\n");
    let path = scratch.join("bench-engine.pages");
    let measured = measure(&path);
    // The file may not exist.
    let _ = std::fs::remove_file(&path);
    match measured {
        Ok(text) => out.push_str(&text),
        Err(why) => writeln!(out, "Not measured: {why}.\n").expect("writing to a string"),
    }
}

fn measure(path: &Path) -> Result<String, String> {
    let fail = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let disk = FileDisk::create(path, PAGES * PAGE as u64, Caching::Direct).map_err(|error| fail(&error))?;
    fill(&disk).map_err(|error| fail(&error))?;
    let executor = disk.executor();
    let lru = catalogue::info("lru").map_err(|error| fail(&error))?;
    let io = Checked(DiskIo::new(disk, PAGE));
    let manager = BufferManager::hashed(BufferOptions::new(POOL), lru, &Options::defaults(lru), io, None)
        .map_err(|error| fail(&error))?;
    let (mut theirs, mut ours) = (Vec::new(), WAYS.map(|_| Vec::new()));
    let mut random = Random::new(11);
    for _ in 0..ROUNDS {
        theirs.push(fio(path)?);
        for (way, measured) in WAYS.iter().zip(&mut ours) {
            measured.push(take(&manager, *way, &mut random).map_err(|error| fail(&error))?);
        }
    }
    Ok(text(&executor, medians(theirs), ours.map(medians)))
}

fn fill(disk: &FileDisk) -> io::Result<()> {
    const AT_ONCE: usize = 256;
    let mut bytes = vec![0; AT_ONCE * PAGE];
    for first in (0..PAGES).step_by(AT_ONCE) {
        for (i, page) in bytes.chunks_exact_mut(PAGE).enumerate() {
            page.fill(Random::mix(first + i as u64) as u8);
            let sum = crc(page);
            page[PAGE - 4..].copy_from_slice(&sum.to_le_bytes());
        }
        disk.write_at(first * PAGE as u64, &bytes)?;
    }
    disk.sync()
}

fn take<T, I>(manager: &BufferManager<T, I>, way: Way, random: &mut Random) -> Result<Measured, String>
where
    T: entresol_buffer::table::PageTable,
    I: PageIo,
{
    let misses = manager.stats().misses;
    let (begun, cpu) = (Instant::now(), thread_time());
    while begun.elapsed() < ROUND {
        let pages = (0..way.row()).map(|_| Address { object: ObjectId(0), block: random.below(PAGES) });
        match way {
            Way::Queue => manager.read_many(pages, DEPTH, |_, _| ()),
            Way::Batch(_) => manager.pin_many(&pages.collect::<Vec<_>>()).map(drop),
        }
        .map_err(|error| error.to_string())?;
    }
    let (wall, cpu) = (begun.elapsed(), thread_time() - cpu);
    let misses = (manager.stats().misses - misses) as f64;
    Ok((misses / wall.as_secs_f64(), cpu.as_secs_f64() * 1e6 / misses))
}

fn fio(path: &Path) -> Result<Measured, String> {
    let output = Command::new("fio")
        .args(["--name=misses", "--readonly", "--rw=randread", "--bs=4k", "--direct=1", "--ioengine=io_uring"])
        .arg(format!("--iodepth={DEPTH}"))
        .args(["--time_based", &format!("--runtime={}", ROUND.as_secs()), "--output-format=json"])
        .arg(format!("--filename={}", path.display()))
        .output()
        .map_err(|error| format!("fio cannot be run: {error} (Debian package fio)"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let reason = || format!("fio: {}{}", text, String::from_utf8_lossy(&output.stderr));
    let json = text.find('{').map(|at| serde_json::from_str(&text[at..]));
    let Some(Ok::<serde_json::Value, _>(json)) = json else { return Err(reason()) };
    let job = &json["jobs"][0];
    let number = |value: &serde_json::Value| value.as_f64().ok_or_else(reason);
    let (reads, runtime_ms) = (number(&job["read"]["total_ios"])?, number(&job["job_runtime"])?);
    let cpu_percent = number(&job["usr_cpu"])? + number(&job["sys_cpu"])?;
    Ok((number(&job["read"]["iops"])?, cpu_percent / 100.0 * runtime_ms * 1000.0 / reads))
}

/// The medians of both figures.
fn medians(rounds: Vec<Measured>) -> Measured {
    let (rates, costs): (Vec<f64>, Vec<f64>) = rounds.into_iter().unzip();
    (median(&rates), median(&costs))
}

fn text(executor: &str, theirs: Measured, ours: [Measured; WAYS.len()]) -> String {
    let mut out = format!(
        "One thread takes random pages of 4 KiB out of a file of {} MiB, opened with O_DIRECT, into a pool of {} MiB under \
         LRU; the CRC32C of every page is checked. Our reads go by {executor}, of a batch 128 under way at most; \
         fio's by io_uring with {DEPTH} under way, without a CRC, a pool or a policy. {ROUNDS} \
         interleaved rounds of {} s, medians. Processor time is that of the thread, the kernel's included.\n\n\
         | | reads/s | CPU us a read | against fio, reads/s | CPU |\n|:--|--:|--:|--:|--:|\n\
         | fio, {DEPTH} under way | {:.0} | {:.2} | | |\n",
        (PAGES * PAGE as u64) >> 20,
        (POOL * PAGE) >> 20,
        ROUND.as_secs(),
        theirs.0,
        theirs.1,
    );
    for (way, (rate, cost)) in WAYS.iter().zip(ours) {
        let (of_rate, of_cost) = (rate / theirs.0, cost / theirs.1);
        writeln!(out, "| {} | {rate:.0} | {cost:.2} | {of_rate:.2}x | {of_cost:.2}x |", way.name()).expect("a string");
    }
    // fio is the yardstick for the way that works like it: as many reads under way, and the queue refilled.
    let (rate, cost) = (ours[0].0 / theirs.0, ours[0].1);
    let verdict = |met: bool| if met { "met" } else { "MISSED" };
    writeln!(
        out,
        "\nTargets, by `read_many`: reads/s >= 0.9x of fio's: {} ({rate:.2}x); CPU <= 3.0 us a read: {} \
         ({cost:.2} us).\n",
        verdict(rate >= 0.9),
        verdict(cost <= 3.0)
    )
    .expect("a string");
    out
}
