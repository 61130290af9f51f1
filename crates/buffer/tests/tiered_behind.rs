//! Write-behind in a buffer over DRAM and NVM. The storage's writes end in any order, at any time, and fail at
//! times. Nothing is lost, no decision changes, and time passes as in the simulator.

use crate::common::{Hook, Log, drive, simulated_options, two_phases, two_tiers};
use entresol_buffer::{
    BufferError, EmulatedIo, MemoryIo, PageIo, TieredBuffer, TieredOptions, WriteQueue, WriteThreads,
};
use entresol_core::{Address, ObjectId, Random, Size};
use entresol_device::Queued;
use entresol_device::emulated::{Calibration, Clock as _, Curve, EmulatedDevice, Mapped, Slowdown, VirtualClock};
use entresol_device::fixed::{Fixed, FixedParameters};
use entresol_disk::AlignedBytes;
use entresol_policy::{Info, Options, catalogue};
use entresol_sim::{Addresses, CellOptions, Hierarchy, LayerSpec, NamedDevice, PolicySpec, TimedOptions, run_timed};
use entresol_trace::Trace;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

const PAGE: usize = 4096;
const SEED: u64 = 5;
/// A read and a write of the SSD of 003, table 1.
const SSD_NS: [u64; 2] = [25_000, 300_000];

fn at(block: u64) -> Address {
    Address { object: ObjectId(0), block }
}

/// NVM that takes no time.
fn nvm(pages: usize, clock: Arc<VirtualClock>) -> Mapped<Arc<VirtualClock>> {
    let file = tempfile::tempfile().expect("a file");
    file.set_len((pages * PAGE) as u64).expect("room");
    let nothing = || Curve::new([(64, 0.0), (4096, 0.0)]);
    let calibration = Calibration { clock_ns: 0.0, load: nothing(), store: nothing() };
    Mapped::with_clock(&file, Slowdown { read: 1.0, write: 1.0 }, calibration, clock).expect("a region")
}

/// Contents of a page: the number of its newest log record, and the page's own number.
fn record(page: &[u8]) -> [u64; 2] {
    [0, 8].map(|at| u64::from_le_bytes(*page[at..].first_chunk().expect("eight bytes")))
}

#[derive(Default)]
struct Inner {
    pages: BTreeMap<u64, Box<[u8]>>,
    under_way: Vec<(u64, u64, Arc<AlignedBytes>)>,
    /// Probabilities in per cent: of a failure, and of the end of a write that nothing waits for.
    fails: u64,
    ends: u64,
    most: usize,
    failed: u64,
}

/// Storage whose writes end as a seed decides. The storage checks the promises of [`PageIo`].
struct Whimsical {
    inner: Mutex<(Inner, Random)>,
    log: Arc<Log>,
    most: usize,
}

impl Whimsical {
    fn new(seed: u64, log: Arc<Log>, most: usize) -> Arc<Self> {
        Arc::new(Whimsical { inner: Mutex::new((Inner::default(), Random::new(seed))), log, most })
    }

    fn with<R>(&self, work: impl FnOnce(&mut Inner, &mut Random) -> R) -> R {
        let (inner, random) = &mut *self.inner.lock().expect("no panic");
        work(inner, random)
    }

    fn set(&self, fails: u64, ends: u64) {
        self.with(|inner, _| (inner.fails, inner.ends) = (fails, ends));
    }

    fn alone(inner: &Inner, at: Address) {
        assert!(inner.under_way.iter().all(|(_, block, _)| *block != at.block), "{at:?} is being written");
    }

    fn logged(&self, at: Address, bytes: &[u8]) {
        let [lsn, block] = record(bytes);
        assert!(lsn <= self.log.flushed.load(Ordering::SeqCst), "{at:?} with record {lsn} is ahead of the log");
        assert!(lsn == 0 || block == at.block, "{at:?} with the bytes of page {block}");
    }

    fn fail(inner: &mut Inner, random: &mut Random) -> io::Result<()> {
        if random.below(100) >= inner.fails {
            return Ok(());
        }
        inner.failed += 1;
        Err(io::Error::other("the device is on fire"))
    }

    /// A failed write may have happened.
    fn write(inner: &mut Inner, random: &mut Random, block: u64, bytes: &[u8]) -> io::Result<()> {
        let result = Whimsical::fail(inner, random);
        if result.is_ok() || random.chance(0.5) {
            inner.pages.insert(block, bytes.into());
        }
        result
    }
}

impl PageIo for Whimsical {
    fn read_page(&self, at: Address, into: &mut [u8]) -> io::Result<()> {
        self.with(|inner, random| {
            Whimsical::alone(inner, at);
            Whimsical::fail(inner, random)?;
            match inner.pages.get(&at.block) {
                Some(page) => into.copy_from_slice(page),
                None => into.fill(0),
            }
            Ok(())
        })
    }

    fn write_page(&self, at: Address, bytes: &[u8]) -> io::Result<()> {
        self.logged(at, bytes);
        self.with(|inner, random| {
            Whimsical::alone(inner, at);
            Whimsical::write(inner, random, at.block, bytes)
        })
    }

    fn write_queue(&self) -> Option<&dyn WriteQueue> {
        Some(self)
    }

    fn sync(&self) -> io::Result<()> {
        self.with(|inner, _| assert!(inner.under_way.is_empty(), "writes are under way during a sync"));
        Ok(())
    }

    fn object_pages(&self, _object: ObjectId) -> u64 {
        200
    }
}

impl WriteQueue for Whimsical {
    fn start(&self, tag: u64, at: Address, bytes: &Arc<AlignedBytes>) -> io::Result<()> {
        self.logged(at, bytes);
        self.with(|inner, random| {
            Whimsical::alone(inner, at);
            Whimsical::fail(inner, random)?;
            inner.under_way.push((tag, at.block, bytes.clone()));
            inner.most = inner.most.max(inner.under_way.len());
            assert!(inner.most <= self.most, "{} writes under way", inner.most);
            Ok(())
        })
    }

    fn ended(&self, wait: bool) -> Option<(u64, io::Result<()>)> {
        self.with(|inner, random| {
            let ends = wait || random.below(100) < inner.ends;
            (ends && !inner.under_way.is_empty()).then(|| {
                let which = random.below(inner.under_way.len() as u64) as usize;
                let (tag, block, bytes) = inner.under_way.swap_remove(which);
                (tag, Whimsical::write(inner, random, block, &bytes))
            })
        })
    }
}

type Buffer<I> = TieredBuffer<I, Arc<VirtualClock>>;

fn small<I: PageIo + 'static>(info: &'static Info, io: I, write_behind: usize, log: Option<Arc<Log>>) -> Buffer<I> {
    let pages = (info.min_pages[0].max(4), info.min_pages[1].max(8));
    let options = TieredOptions { write_behind, ..TieredOptions::new(pages.0) };
    let hook = log.map(|log| Box::new(Hook(log)) as _);
    let region = nvm(pages.1, Arc::new(VirtualClock::new()));
    TieredBuffer::new(options, info, &Options::defaults(info), region, io, hook).expect("a buffer")
}

/// Every policy of two tiers against a list of each page's versions, with reads, writes and a WAL that fail. A
/// page always reads as its last write. The storage is never older than the last good flush, which is the state
/// that a crash would leave. After a good flush it has the last writes.
#[test]
fn whatever_the_order_of_the_writes_nothing_is_lost() {
    const BLOCKS: u64 = 60;
    let (mut waited, mut failed) = (0, 0);
    for info in two_tiers() {
        for (seed, write_behind) in (0..6).flat_map(|seed| [1, 3, 256].map(|most| (seed, most))) {
            println!("{}, seed {seed}, {write_behind} behind", info.name);
            let log = Arc::new(Log::default());
            let io = Whimsical::new(seed, log.clone(), write_behind);
            let buffer = small(info, io.clone(), write_behind, Some(log.clone()));
            let mut random = Random::new(seed);
            // Records that each page has had since the last good flush, the newest last.
            let mut had = vec![vec![0u64]; BLOCKS as usize];
            let mut lsn = 0;
            for step in 0..1500 {
                // Half of the requests are for few pages, so that many pages come back soon.
                let few = random.chance(0.5);
                let block = random.below(if few { 12 } else { BLOCKS });
                let failing = random.below(4) == 0;
                io.set(if failing { 30 } else { 0 }, [0, 20, 90][random.below(3) as usize]);
                log.fail.store(failing && random.chance(0.3), Ordering::SeqCst);
                lsn += 1;
                let change = |page: &mut [u8]| {
                    page[..8].copy_from_slice(&u64::to_le_bytes(lsn));
                    page[8..16].copy_from_slice(&block.to_le_bytes());
                };
                let now = *had[block as usize].last().expect("a record");
                let result = match random.below(8) {
                    0..3 => buffer.look(at(block), |page| assert_eq!(page.u64_at(0), now, "step {step}: page {block}")),
                    3 => buffer.overwrite(at(block), |page| {
                        change(page);
                        page.set_lsn(lsn);
                    }),
                    _ => buffer.update(at(block), 0..16, |page| {
                        assert_eq!(page[..8], now.to_le_bytes(), "step {step}: page {block}");
                        change(page);
                        page.set_lsn(lsn);
                    }),
                };
                // An error may be about another page: the change is there or not.
                io.set(0, 50);
                log.fail.store(false, Ordering::SeqCst);
                let now = buffer.look(at(block), |page| page.u64_at(0)).expect("a page");
                if now != *had[block as usize].last().expect("a record") {
                    assert_eq!(now, lsn, "step {step}: page {block}, {result:?}");
                    had[block as usize].push(now);
                }
                if step % 50 == 49 {
                    io.set(if random.chance(0.5) { 30 } else { 0 }, 10);
                    if buffer.flush().is_ok() {
                        had.iter_mut().for_each(|had| drop(had.drain(..had.len() - 1)));
                        assert_eq!(buffer.stats().writes_under_way, 0);
                    }
                }
                // The state that a crash here would leave, whichever of the writes under way happened.
                io.with(|inner, _| {
                    for (block, had) in had.iter().enumerate() {
                        let found = inner.pages.get(&(block as u64)).map_or(0, |page| record(page)[0]);
                        assert!(had.contains(&found), "step {step}: page {block} is {found} below, was {had:?}");
                    }
                });
            }
            io.set(0, 0);
            let _ = buffer.flush();
            buffer.flush().expect("a flush with nothing failing and nothing left to report");
            let stats = buffer.stats();
            waited += stats.waits_for_writes;
            failed += io.with(|inner, _| inner.failed);
            assert!(stats.errors >= io.with(|inner, _| inner.failed), "each failure is counted: {stats:?}");
            assert_eq!((stats.evicted_dirty, stats.writes_under_way), (0, 0));
            for (block, had) in had.iter().enumerate() {
                let found = io.with(|inner, _| inner.pages.get(&(block as u64)).map_or(0, |page| record(page)[0]));
                assert_eq!(Some(&found), had.last(), "page {block} below");
            }
        }
    }
    assert!(waited > 1000 && failed > 1000, "{waited} waits, {failed} failures");
}

/// A failed write without a waiting caller is reported by the next flush, once, and repeated by it.
#[test]
fn the_next_flush_reports_what_failed() {
    let multi = catalogue::info("multi-tier").expect("a policy");
    let io = Whimsical::new(1, Arc::new(Log::default()), 256);
    let buffer = small(multi, io.clone(), 256, None);
    for block in 0..40 {
        buffer.write(at(block), 100, &[7]).expect("a page");
    }
    let started = buffer.stats().writes_under_way;
    assert!(started > 10, "{:?}", buffer.stats());
    io.set(100, 100);
    // An evicted page finds that earlier writes have failed, and its own write does not even start.
    let refused = (40..60).filter(|&block| buffer.write(at(block), 100, &[7]).is_err()).count();
    assert!(refused > 0 && buffer.stats().evicted_dirty >= started, "{refused} refused, {:?}", buffer.stats());
    io.set(0, 0);
    let mut byte = [0];
    buffer.read(at(0), 100, &mut byte).expect("a page that waits");
    assert_eq!(byte, [7]);
    assert!(matches!(buffer.flush(), Err(BufferError::Write { .. })));
    assert_eq!(buffer.stats().evicted_dirty, 0);
    buffer.flush().expect("it has been reported");
    io.with(|inner, _| assert!((0..40).all(|block| inner.pages[&block][100] == 7)));
}

#[test]
fn a_buffer_that_is_dropped_leaves_no_write_under_way() {
    let multi = catalogue::info("multi-tier").expect("a policy");
    let io = Whimsical::new(2, Arc::new(Log::default()), 256);
    let buffer = small(multi, io.clone(), 256, None);
    for block in 0..100 {
        buffer.write(at(block), 100, &[7]).expect("a page");
    }
    assert!(buffer.stats().writes_under_way > 50);
    drop(buffer);
    io.with(|inner, _| assert!(inner.under_way.is_empty() && inner.pages.len() > 50));
}

fn trace(seed: u64) -> Trace {
    two_phases(12_000, seed)
}

const PAGES: [usize; 2] = [30, 150];

fn buffer_of<I: PageIo + 'static>(trace: &Trace, spec: &PolicySpec, clock: Arc<VirtualClock>, io: I) -> Buffer<I> {
    let options = simulated_options(trace, PAGES, SEED);
    TieredBuffer::new(options, spec.info, &spec.options, nvm(PAGES[1], clock), io, None).expect("a buffer")
}

fn specs() -> Vec<PolicySpec> {
    let others = two_tiers().map(|info| PolicySpec { info, options: Options::defaults(info) });
    let presets = entresol_sim::parse_policies(
        "multi-tier:preset=eager,multi-tier:preset=a:nvm-admission=hymem:queue=50%:replacement=clock",
    );
    others.chain(presets.expect("policies")).collect()
}

/// Decisions do not depend on when writes end. A buffer that waits for each write decides the same, and so does
/// the simulator (`buffer_tiered`). Each page that the policy wants written is written once, or was never changed.
#[test]
fn the_same_is_decided_whenever_writes_end() {
    for spec in specs() {
        let trace = trace(1);
        let clock = || Arc::new(VirtualClock::new());
        let waiting = buffer_of(&trace, &spec, clock(), MemoryIo::new());
        drive(&waiting, &trace);
        let waiting = waiting.stats();
        for ends in [0, 5, 100] {
            let io = Whimsical::new(ends, Arc::new(Log::default()), 256);
            io.set(0, ends);
            let buffer = buffer_of(&trace, &spec, clock(), Unlabelled(io.clone()));
            drive(&buffer, &trace);
            let stats = buffer.stats();
            assert_eq!((stats.decided, stats.tiers), (waiting.decided, waiting.tiers), "{}", spec.info.name);
            assert_eq!(stats.page_writes + stats.writes_under_way, waiting.page_writes, "{}", spec.info.name);
            assert!(stats.page_reads <= waiting.page_reads);
            assert_eq!((stats.errors, stats.evicted_dirty), (0, 0));
        }
    }
}

/// Pages of several objects, without records.
struct Unlabelled(Arc<Whimsical>);

impl Unlabelled {
    fn flat(at: Address) -> Address {
        Address { object: ObjectId(0), block: at.object.0 as u64 * 100_000 + at.block }
    }
}

impl PageIo for Unlabelled {
    fn read_page(&self, at: Address, into: &mut [u8]) -> io::Result<()> {
        self.0.read_page(Unlabelled::flat(at), into)
    }

    fn write_page(&self, at: Address, bytes: &[u8]) -> io::Result<()> {
        self.0.write_page(Unlabelled::flat(at), bytes)
    }

    fn write_queue(&self) -> Option<&dyn WriteQueue> {
        Some(self)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn object_pages(&self, object: ObjectId) -> u64 {
        MemoryIo::new().object_pages(object)
    }
}

impl WriteQueue for Unlabelled {
    fn start(&self, tag: u64, at: Address, bytes: &Arc<AlignedBytes>) -> io::Result<()> {
        self.0.start(tag, Unlabelled::flat(at), bytes)
    }

    fn ended(&self, wait: bool) -> Option<(u64, io::Result<()>)> {
        self.0.ended(wait)
    }
}

/// A device with these times of a read and a write, and so many transfers at a time.
fn device([read_ns, write_ns]: [u64; 2], parallelism: u32, bytes: u64) -> Queued<Fixed> {
    let parameters = FixedParameters {
        read_ns,
        write_ns,
        gb_per_s: None,
        write_gb_per_s: None,
        parallelism,
        endurance_writes: None,
        energy: None,
    };
    Queued::new(Fixed::new(&parameters, bytes))
}

type Ssd = EmulatedIo<File, Queued<Fixed>, Arc<VirtualClock>>;

/// All objects one after the other on an emulated device.
fn ssd(trace: &Trace, parallelism: u32, clock: Arc<VirtualClock>) -> Ssd {
    let pages = || trace.objects.iter().map(|object| object.pages);
    let bytes = pages().sum::<u64>() * PAGE as u64;
    let file = tempfile::tempfile().expect("a file");
    file.set_len(bytes).expect("room");
    let device = EmulatedDevice::new(file, device(SSD_NS, parallelism, bytes), clock).expect("a device");
    EmulatedIo::new(device, PAGE as u64, pages())
}

/// Nanoseconds of a trace: simulated, with tiers that take no time, and those of a buffer. The third number
/// counts the reads that the buffer saves on pages that are on their way.
fn times(trace: &Trace, spec: &PolicySpec, parallelism: u32) -> (u64, u64, u64) {
    let addresses = Addresses::new(trace);
    let sizes = PAGES.map(|pages| Size::Pages(pages as u64)).to_vec();
    let layer = LayerSpec { policy: spec.clone(), sizes };
    let tier =
        |pages: usize| -> NamedDevice { ("free".to_owned(), Box::new(device([0, 0], 256, (pages * PAGE) as u64))) };
    let bytes = trace.objects.iter().map(|object| object.pages).sum::<u64>() * PAGE as u64;
    let backing: NamedDevice = ("below".to_owned(), Box::new(device(SSD_NS, parallelism, bytes)));
    let hierarchy = Hierarchy { tiers: PAGES.map(tier).into_iter().collect(), backing };
    let cell = CellOptions { seed: SEED, ..CellOptions::default() };
    let (row, timed) =
        run_timed(&addresses, &[layer], String::new(), hierarchy, &cell, &TimedOptions::default()).expect("a run");
    let clock = Arc::new(VirtualClock::new());
    let buffer = buffer_of(trace, spec, clock.clone(), ssd(trace, parallelism, clock.clone()));
    drive(&buffer, trace);
    let stats = buffer.stats();
    assert_eq!((stats.decided.fetches, stats.decided.write_backs), (row.fetches, row.write_backs));
    let spared = stats.decided.fetches - stats.page_reads;
    ((timed.elapsed_seconds * 1e9).round() as u64, clock.now(), spared)
}

/// On a device that does everything at once, a requester waits for reads alone, in the buffer as in the
/// simulator. On one that does eight transfers at a time, reads come after the writes under way. The times are
/// the same but for two things.
/// - The buffer saves reads, which are worth little if the writes are too many for the device.
/// - The simulator starts the write that makes space for a page with the page's read, and the buffer after that read.
#[test]
fn time_passes_as_it_does_in_the_simulator() {
    for spec in entresol_sim::parse_policies("multi-tier:preset=eager,multi-tier:preset=b,multi-tier:preset=d")
        .expect("policies")
    {
        for seed in [1, 2] {
            let trace = trace(seed);
            // The writes started last end after the last request.
            let (simulated, live, spared) = times(&trace, &spec, 256);
            let rest = simulated - spared * 25_000 - live;
            println!("seed {seed}: {live} ns, {spared} reads spared, and {rest} ns of the last writes");
            assert!(rest <= 300_000, "{simulated} simulated, {live} live, {spared} spared");
            let (simulated, live, spared) = times(&trace, &spec, 8);
            let ratio = live as f64 / simulated as f64;
            println!("eight at a time: {live} ns live, {simulated} simulated, {spared} reads spared: {ratio:.4}");
            assert!((0.96..1.025).contains(&ratio), "{ratio}");
        }
    }
}

/// Storage without a queue gets one, served by threads. Several threads change pages, and no change is lost.
#[test]
fn threads_write_behind_threads() {
    let multi = catalogue::info("multi-tier").expect("a policy");
    for writers in [1, 3] {
        let buffer = small(multi, WriteThreads::start(Arc::new(MemoryIo::new()), writers).expect("threads"), 8, None);
        std::thread::scope(|scope| {
            for thread in 0..3u64 {
                let buffer = &buffer;
                scope.spawn(move || {
                    let mut random = Random::new(thread);
                    let mut mine = [0u64; 60];
                    // Each thread has eight bytes of every page.
                    for step in 0..4000 {
                        let block = random.below(60);
                        let (at, offset) = (at(block), thread as usize * 8);
                        let mut bytes = [0; 8];
                        buffer.read(at, offset, &mut bytes).expect("a page");
                        assert_eq!(u64::from_le_bytes(bytes), mine[block as usize], "page {block}");
                        mine[block as usize] += 1;
                        buffer.write(at, offset, &mine[block as usize].to_le_bytes()).expect("a page");
                        if step % 1000 == 999 {
                            buffer.flush().expect("a flush");
                        }
                    }
                });
            }
        });
        buffer.flush().expect("a flush");
        let stats = buffer.stats();
        assert_eq!((stats.writes_under_way, stats.evicted_dirty, stats.errors), (0, 0, 0));
        assert!(stats.page_writes > 1000, "{stats:?}");
    }
}

/// A panic of the storage in a thread of its own counts as a failed write.
#[test]
fn a_panic_behind_is_an_error_of_the_next_flush() {
    struct Panics(MemoryIo);
    impl PageIo for Panics {
        fn read_page(&self, at: Address, into: &mut [u8]) -> io::Result<()> {
            self.0.read_page(at, into)
        }

        fn write_page(&self, at: Address, bytes: &[u8]) -> io::Result<()> {
            assert!(std::thread::current().name() != Some("write-behind"), "as the test wants it");
            self.0.write_page(at, bytes)
        }

        fn sync(&self) -> io::Result<()> {
            Ok(())
        }

        fn object_pages(&self, object: ObjectId) -> u64 {
            self.0.object_pages(object)
        }
    }
    let multi = catalogue::info("multi-tier").expect("a policy");
    let buffer = small(multi, WriteThreads::start(Panics(MemoryIo::new()), 2).expect("threads"), 8, None);
    for block in 0..30 {
        buffer.write(at(block), 0, &[3]).expect("a page");
    }
    assert!(matches!(buffer.flush(), Err(BufferError::Write { .. })));
    buffer.flush().expect("the flush wrote them itself");
    assert!(buffer.stats().errors > 0 && buffer.stats().evicted_dirty == 0);
}
