//! A buffer of DRAM over NVM. For every policy of two tiers the counts are the simulator's. Every byte is right,
//! pages in NVM are read in place, and storage that fails loses nothing.

use crate::common::{fail_if, two_tiers};
use entresol_buffer::{BufferError, Clock, MemoryIo, OpenError, PageIo, TieredBuffer, TieredOptions};
use entresol_core::{Address, ObjectId, Op, Page, Random, Size};
use entresol_device::emulated::{Calibration, Clock as _, Curve, Mapped, Slowdown, VirtualClock};
use entresol_policy::{Info, Options, catalogue};
use entresol_sim::{Addresses, CellOptions, LayerSpec, PolicySpec, run_cell};
use entresol_trace::{Column, OpByte, Trace, generate};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const PAGE: usize = 4096;
const SEED: u64 = 9;
/// Time of an access to NVM, whatever its size, in nanoseconds of a virtual clock.
const ACCESS_NS: f64 = 100.0;

/// NVM whose time is counted and not spent.
fn nvm(pages: usize) -> Mapped<Arc<VirtualClock>> {
    let file = tempfile::tempfile().expect("a file");
    file.set_len((pages * PAGE) as u64).expect("room");
    let curve = || Curve::new([(64, ACCESS_NS), (4096, ACCESS_NS)]);
    let calibration = Calibration { clock_ns: 0.0, load: curve(), store: curve() };
    Mapped::with_clock(&file, Slowdown { read: 1.0, write: 1.0 }, calibration, Arc::new(VirtualClock::new()))
        .expect("a region")
}

fn options(info: &'static Info, parts: &[&str]) -> Options {
    Options::parse(info, parts.iter().copied()).expect("options")
}

/// Reuse, scans, writes of runs and partial writes over two objects. Requests are not marked as sequential in the
/// trace, since a buffer does not know which are.
fn trace(seed: u64) -> Trace {
    let spec = format!(
        "zipf:n=4000:pages=300:seed={seed}:write=40:update=70 | scan:n=400:base=300:write=30:update=50 \
         + loop:n=900:pages=90:base=40:write=50 | zipf:n=900:pages=90:object=index:write=30"
    );
    let mut trace = generate(&spec.parse().expect("a trace specification"));
    let plain = |&byte: &u8| OpByte::new(OpByte(byte).op(), false, OpByte(byte).first()).0;
    trace.ops = Column::Owned(trace.ops.iter().map(plain).collect());
    trace
}

type Buffer = TieredBuffer<Arc<MemoryIo>, Arc<VirtualClock>>;

fn buffer(trace: &Trace, info: &'static Info, policy: &Options, pages: (usize, usize), io: Arc<MemoryIo>) -> Buffer {
    let options = TieredOptions {
        handles_per_page: trace.footprint().div_ceil(pages.0 + pages.1),
        objects: trace.objects.len(),
        clock: Clock::Requests,
        seed: SEED,
        ..TieredOptions::new(pages.0)
    };
    TieredBuffer::new(options, info, policy, nvm(pages.1), io, None).expect("a buffer")
}

/// Drives a trace and checks the bytes: an update writes one of two bytes, a write the whole page.
fn drive(buffer: &Buffer, trace: &Trace, io: &MemoryIo) {
    let mut truth = vec![[0u8; 2]; trace.footprint()];
    let mut word = [0; 1];
    for at in 0..trace.len() {
        let (op, page) = (trace.request(at).op, trace.pages[at] as usize);
        let (address, value) = (trace.address(Page(page as u32)), (at % 251) as u8 + 1);
        match op {
            Op::Read => {
                let place = at % 2;
                buffer.read(address, [0, 4095][place], &mut word).expect("a page");
                assert_eq!(word[0], truth[page][place], "request {at}: page {page}");
            }
            Op::Update => {
                buffer.write(address, 4095, &[value]).expect("a page");
                truth[page][1] = value;
            }
            Op::Write => {
                let mut whole = vec![0; PAGE];
                whole[0] = value;
                buffer.write(address, 0, &whole).expect("a page");
                truth[page] = [value, 0];
            }
        }
    }
    buffer.flush().expect("a flush");
    let mut below = vec![0; PAGE];
    for (page, truth) in truth.iter().enumerate() {
        io.read_page(trace.address(Page(page as u32)), &mut below).expect("a page below");
        assert_eq!([below[0], below[4095]], *truth, "page {page} below, after the flush");
    }
}

#[test]
fn one_thread_counts_what_the_simulator_counts() {
    let presets = ["preset=a", "preset=b", "preset=c", "preset=d", "preset=eager"].map(|preset| vec![preset]);
    let hymem = vec!["preset=a", "nvm-admission=hymem", "queue=50%", "replacement=clock"];
    let multi = catalogue::info("multi-tier").expect("a policy");
    let settings = presets.into_iter().chain([hymem]).map(|parts| (multi, parts));
    let others = two_tiers().filter(|info| info.name != "multi-tier").map(|info| (info, vec![]));
    let mut compared = 0;
    for (info, parts) in settings.chain(others) {
        for (seed, pages) in [(1, (20, 60)), (2, (5, 150)), (3, (60, 20))] {
            let (trace, policy) = (trace(seed), options(info, &parts));
            let addresses = Addresses::new(&trace);
            let pages = (pages.0.max(info.min_pages[0]), pages.1.max(info.min_pages[1]));
            println!("{} {parts:?}, {pages:?} pages, seed {seed}", info.name);
            let io = Arc::new(MemoryIo::new());
            let buffer = buffer(&trace, info, &policy, pages, io.clone());
            drive(&buffer, &trace, &io);
            let layer = LayerSpec {
                policy: PolicySpec { info, options: policy },
                sizes: vec![Size::Pages(pages.0 as u64), Size::Pages(pages.1 as u64)],
            };
            let cell = CellOptions { seed: SEED, ..CellOptions::default() };
            let row = run_cell(&addresses, &[layer], String::new(), &cell).expect("a cell that runs");
            let live = buffer.stats();
            let decided = live.decided;
            assert_eq!(
                (decided.requests, decided.read_hits, decided.write_hits, decided.admissions, decided.fetches),
                (row.requests, row.read_hits, row.write_hits, row.admissions, row.fetches)
            );
            assert_eq!(
                (decided.bypasses, decided.write_backs, decided.write_back_ios),
                (row.bypasses, row.write_backs, row.write_back_ios)
            );
            for (live, simulated) in live.tiers.iter().zip(&row.tiers) {
                assert_eq!(
                    [live.read_hits, live.write_hits, live.fetched, live.installed, live.copied_in, live.written_back],
                    [
                        simulated.read_hits,
                        simulated.write_hits,
                        simulated.fetched,
                        simulated.installed,
                        simulated.copied_in,
                        simulated.written_back
                    ],
                    "tier {}",
                    simulated.name
                );
            }
            assert_eq!((live.without_handle, live.errors, live.evicted_dirty), (0, 0, 0));
            compared += 1;
        }
    }
    assert!(compared >= 30, "{compared} cells");
}

/// With D_r and D_w at 0 and N_r at 1 no page ever moves up. A read of a page in NVM is one access, of as many
/// bytes as were asked for, without a copy.
#[test]
fn a_page_in_nvm_is_read_where_it_is() {
    let multi = catalogue::info("multi-tier").expect("a policy");
    let (io, region) = (MemoryIo::new(), nvm(16));
    let clock = region.clock().clone();
    let policy = options(multi, &["dr=0", "dw=0", "nr=1", "nw=1"]);
    let buffer = TieredBuffer::new(TieredOptions::new(4), multi, &policy, region, io, None).expect("a buffer");
    let at = Address { object: ObjectId(0), block: 3 };
    buffer.write(at, 8, b"in place").expect("a write");
    let (before, mut bytes) = (clock.now(), [0; 8]);
    for _ in 0..10 {
        buffer.read(at, 8, &mut bytes).expect("a read");
        assert_eq!(&bytes, b"in place");
    }
    let stats = buffer.stats();
    assert_eq!(clock.now() - before, 10 * ACCESS_NS as u64, "one access of NVM a read");
    assert_eq!((stats.tiers[1].read_hits, stats.tiers[0].copied_in, stats.page_reads), (10, 0, 1));
    // Eviction from NVM writes the page below.
    for block in 100..116 {
        buffer.read(Address { object: ObjectId(0), block }, 0, &mut bytes).expect("a read");
    }
    let stats = buffer.stats();
    assert_eq!((stats.page_writes, stats.tiers[1].written_back), (1, 1));
}

/// Storage that fails on demand.
#[derive(Default)]
struct Faulty {
    below: MemoryIo,
    fail_reads: AtomicBool,
    fail_writes: AtomicBool,
}

impl PageIo for Faulty {
    fn read_page(&self, at: Address, into: &mut [u8]) -> io::Result<()> {
        fail_if(&self.fail_reads)?;
        self.below.read_page(at, into)
    }

    fn write_page(&self, at: Address, bytes: &[u8]) -> io::Result<()> {
        fail_if(&self.fail_writes)?;
        self.below.write_page(at, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn object_pages(&self, object: ObjectId) -> u64 {
        self.below.object_pages(object)
    }
}

/// The buffer against a plain map, while the storage fails at times. An answered read is right, a failed write happened
/// or not, and flushed bytes are below.
#[test]
fn nothing_is_lost_when_the_storage_fails() {
    for info in two_tiers() {
        for seed in 0..20 {
            println!("{}, seed {seed}", info.name);
            let io = Arc::new(Faulty::default());
            let pages = (4.max(info.min_pages[0]), 8.max(info.min_pages[1]));
            let policy = Options::defaults(info);
            let buffer = TieredBuffer::new(TieredOptions::new(pages.0), info, &policy, nvm(pages.1), io.clone(), None)
                .expect("a buffer");
            let mut random = Random::new(seed);
            // Values that each byte may have.
            let mut truth: HashMap<(u64, usize), Vec<u8>> = HashMap::new();
            for _ in 0..600 {
                let (block, place) = (random.below(40), [0, 4095][random.below(2) as usize]);
                let at = Address { object: ObjectId(0), block };
                let failing = random.below(20);
                if failing < 4 {
                    io.fail_reads.store(failing == 0, Ordering::SeqCst);
                    io.fail_writes.store(failing <= 1, Ordering::SeqCst);
                }
                let mut byte = [0];
                match random.below(3) {
                    0 => {
                        if buffer.read(at, place, &mut byte).is_ok() {
                            let may = truth.entry((block, place)).or_insert_with(|| vec![0]);
                            assert!(may.contains(&byte[0]), "page {block} reads {byte:?}, may be {may:?}");
                            *may = vec![byte[0]];
                        }
                    }
                    1 => {
                        let value = random.below(255) as u8 + 1;
                        let written = buffer.write(at, place, &[value]).is_ok();
                        let may = truth.entry((block, place)).or_insert_with(|| vec![0]);
                        if written { *may = vec![value] } else { may.push(value) }
                    }
                    _ => {
                        let value = random.below(255) as u8 + 1;
                        let written = buffer.write(at, 0, &[value; PAGE]).is_ok();
                        for place in [0, 4095] {
                            let may = truth.entry((block, place)).or_insert_with(|| vec![0]);
                            if written { *may = vec![value] } else { may.push(value) }
                        }
                    }
                }
            }
            io.fail_reads.store(false, Ordering::SeqCst);
            io.fail_writes.store(false, Ordering::SeqCst);
            buffer.flush().expect("a flush with nothing failing");
            assert_eq!(buffer.stats().evicted_dirty, 0);
            let mut below = vec![0; PAGE];
            for ((block, place), may) in &truth {
                io.read_page(Address { object: ObjectId(0), block: *block }, &mut below).expect("a page below");
                assert!(may.contains(&below[*place]), "page {block} is {} below, may be {may:?}", below[*place]);
            }
        }
    }
}

#[test]
fn storage_that_takes_nothing_is_an_error_and_no_flood_of_memory() {
    let multi = catalogue::info("multi-tier").expect("a policy");
    let io = Arc::new(Faulty::default());
    let policy = options(multi, &["preset=eager"]);
    let buffer = TieredBuffer::new(TieredOptions::new(4), multi, &policy, nvm(8), io.clone(), None).expect("a buffer");
    io.fail_writes.store(true, Ordering::SeqCst);
    let at = |block| Address { object: ObjectId(0), block };
    let mut failed = 0;
    for block in 0..500 {
        failed += u64::from(buffer.write(at(block), 0, &[7; PAGE]).is_err());
    }
    assert!(failed > 400, "{failed} of 500 writes failed");
    assert!(buffer.stats().evicted_dirty <= 66, "{:?}", buffer.stats());
    assert!(matches!(buffer.flush(), Err(BufferError::Write { .. })));
    io.fail_writes.store(false, Ordering::SeqCst);
    buffer.flush().expect("the storage works again");
    assert_eq!(buffer.stats().evicted_dirty, 0);
    let mut byte = [0];
    buffer.read(at(0), 9, &mut byte).expect("the first page");
    assert_eq!(byte, [7]);
}

#[test]
fn threads_take_turns_and_every_byte_is_right() {
    let multi = catalogue::info("multi-tier").expect("a policy");
    let policy = Options::defaults(multi);
    let buffer =
        TieredBuffer::new(TieredOptions::new(10), multi, &policy, nvm(30), MemoryIo::new(), None).expect("a buffer");
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let buffer = &buffer;
            scope.spawn(move || {
                let mut random = Random::new(thread);
                let mut mine = [0u64; 100];
                // Each thread has eight bytes of every page.
                for _ in 0..5000 {
                    let block = random.below(100);
                    let (at, offset) = (Address { object: ObjectId(0), block }, thread as usize * 8);
                    let mut bytes = [0; 8];
                    buffer.read(at, offset, &mut bytes).expect("a page");
                    assert_eq!(u64::from_le_bytes(bytes), mine[block as usize], "page {block}");
                    if random.chance(0.5) {
                        mine[block as usize] += 1;
                        buffer.write(at, offset, &mine[block as usize].to_le_bytes()).expect("a page");
                    }
                }
            });
        }
    });
}

#[test]
fn policies_of_one_tier_and_offsets_beyond_a_page_are_refused() {
    let lru = catalogue::info("lru").expect("a policy");
    let refused = TieredBuffer::new(TieredOptions::new(4), lru, &Options::defaults(lru), nvm(8), MemoryIo::new(), None);
    assert!(matches!(refused.err(), Some(OpenError::NotTwoTiers { policy: "lru", .. })));
    let multi = catalogue::info("multi-tier").expect("a policy");
    let buffer =
        TieredBuffer::new(TieredOptions::new(4), multi, &Options::defaults(multi), nvm(8), MemoryIo::new(), None)
            .expect("a buffer");
    let at = Address { object: ObjectId(0), block: 0 };
    assert!(matches!(buffer.read(at, 4090, &mut [0; 7]), Err(BufferError::OutOfRange(_))));
    assert!(matches!(buffer.write(at, usize::MAX, &[0; 7]), Err(BufferError::OutOfRange(_))));
}
