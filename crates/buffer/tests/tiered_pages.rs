//! Pages of DRAM and NVM read and changed in place: atomically, from several threads, and never below before
//! their WAL records.

use crate::common::{Hook, Log, two_tiers};
use entresol_buffer::{BufferError, MemoryIo, PageIo, TieredBuffer, TieredOptions, Tuning};
use entresol_core::{Address, ObjectId, Random};
use entresol_device::emulated::{Calibration, Clock as _, Curve, Mapped, Slowdown, VirtualClock};
use entresol_policy::{Options, catalogue};
use entresol_tune::search::{Annealing, Schedule, Search};
use entresol_tune::{Guarded, Limits, Objective, Space};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE: usize = 4096;
/// Time of an access to NVM, whatever its size, in nanoseconds of a virtual clock.
const ACCESS_NS: f64 = 100.0;

fn nvm(pages: usize) -> Mapped<Arc<VirtualClock>> {
    let file = tempfile::tempfile().expect("a file");
    file.set_len((pages * PAGE) as u64).expect("room");
    let curve = || Curve::new([(64, ACCESS_NS), (4096, ACCESS_NS)]);
    let calibration = Calibration { clock_ns: 0.0, load: curve(), store: curve() };
    Mapped::with_clock(&file, Slowdown { read: 1.0, write: 1.0 }, calibration, Arc::new(VirtualClock::new()))
        .expect("a region")
}

fn at(block: u64) -> Address {
    Address { object: ObjectId(0), block }
}

/// Storage of pages that begin with the number of their newest WAL record. The storage refuses pages ahead of the WAL.
struct Checked {
    pages: MemoryIo,
    log: Arc<Log>,
    written: AtomicU64,
}

impl Checked {
    fn new(log: Arc<Log>) -> Arc<Self> {
        Arc::new(Checked { pages: MemoryIo::new(), log, written: AtomicU64::new(0) })
    }

    fn word(&self, block: u64, place: usize) -> u64 {
        let mut page = vec![0; PAGE];
        self.pages.read_page(at(block), &mut page).expect("a page below");
        u64::from_le_bytes(*page[place * 8..].first_chunk().expect("eight bytes"))
    }
}

impl PageIo for Checked {
    fn read_page(&self, at: Address, into: &mut [u8]) -> io::Result<()> {
        self.pages.read_page(at, into)
    }

    fn write_page(&self, at: Address, bytes: &[u8]) -> io::Result<()> {
        let (lsn, flushed) =
            (u64::from_le_bytes(*bytes.first_chunk().expect("eight")), self.log.flushed.load(Ordering::SeqCst));
        assert!(lsn <= flushed, "{at:?} with record {lsn} is written, and the log is durable to {flushed} only");
        self.written.fetch_add(1, Ordering::SeqCst);
        self.pages.write_page(at, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn object_pages(&self, object: ObjectId) -> u64 {
        self.pages.object_pages(object)
    }
}

/// Every policy of two tiers, with a WAL that fails at times: the storage above checks each write. A change is seen
/// afterwards, and a refused change is not.
#[test]
fn no_page_is_below_before_its_log_record() {
    for info in two_tiers() {
        // With larger tiers, more pages are wanted than there are handles: some requests are served from below.
        for (seed, scarce) in (0..10).flat_map(|seed| [(seed, false), (seed, true)]) {
            println!("{}, seed {seed}, few handles: {scarce}", info.name);
            let log = Arc::new(Log::default());
            let io = Checked::new(log.clone());
            let (pages, handles_per_page) = if scarce { ((40, 80), 0) } else { ((4, 8), 2) };
            let pages = (info.min_pages[0].max(pages.0), info.min_pages[1].max(pages.1));
            let hook = Box::new(Hook(log.clone()));
            let options = TieredOptions { handles_per_page, ..TieredOptions::new(pages.0) };
            let policy = Options::defaults(info);
            let buffer =
                TieredBuffer::new(options, info, &policy, nvm(pages.1), io.clone(), Some(hook)).expect("a buffer");
            let mut random = Random::new(seed);
            let mut truth = [0u64; 200];
            let (mut lsn, mut refused) = (0, 0);
            for _ in 0..3000 {
                let block = random.below(200);
                log.fail.store(random.below(10) == 0, Ordering::SeqCst);
                lsn += 1;
                let was = truth[block as usize];
                let mut called = false;
                let mut change = |page: &mut [u8]| {
                    called = true;
                    page[..8].copy_from_slice(&u64::to_le_bytes(lsn));
                };
                let result = match random.below(4) {
                    0 => buffer.look(at(block), |page| assert_eq!(page.u64_at(0), was, "page {block}")),
                    1 => buffer.overwrite(at(block), |page| {
                        assert!(page.iter().all(|&byte| byte == 0));
                        change(page);
                        page.set_lsn(lsn);
                    }),
                    _ => buffer.update(at(block), 0..16, |page| {
                        assert_eq!(page.len(), 16);
                        assert_eq!(page[..8], was.to_le_bytes(), "page {block}");
                        change(page);
                        page.set_lsn(lsn);
                    }),
                };
                refused += u64::from(matches!(result, Err(BufferError::Wal { .. })));
                // A refusal may be about another page, which had to be evicted.
                log.fail.store(false, Ordering::SeqCst);
                let now = buffer.look(at(block), |page| page.u64_at(0)).expect("the page, with a log that works");
                assert!(now == was || called && now == lsn, "page {block} is {now}, was {was}, record {lsn}");
                assert!(result.is_err() || !called || now == lsn, "page {block}: record {lsn} is lost");
                truth[block as usize] = now;
            }
            buffer.flush().expect("a flush");
            (0..200).for_each(|block| assert_eq!(io.word(block, 0), truth[block as usize], "page {block} below"));
            let stats = buffer.stats();
            assert!(stats.wal_flushes > 0 && io.written.load(Ordering::SeqCst) == stats.page_writes, "{stats:?}");
            assert!(refused > 0, "the log never failed when it was needed");
            assert_eq!(stats.without_handle > 0, scarce, "{stats:?}");
        }
    }
}

/// A storage engine's changes of a page in NVM read and write the bytes that it names, and no others.
#[test]
fn a_page_in_nvm_is_changed_where_it_is() {
    let multi = catalogue::info("multi-tier").expect("a policy");
    let policy = Options::parse(multi, ["dr=0", "dw=0", "nr=1", "nw=1"]).expect("options");
    let region = nvm(16);
    let clock = region.clock().clone();
    let buffer =
        TieredBuffer::new(TieredOptions::new(4), multi, &policy, region, MemoryIo::new(), None).expect("a buffer");
    buffer.update(at(3), 8..16, |page| page.copy_from_slice(b"in place")).expect("a page");
    let before = clock.now();
    buffer.update(at(3), 8..16, |page| page[..2].copy_from_slice(b"IN")).expect("a page");
    assert_eq!(clock.now() - before, 2 * ACCESS_NS as u64, "eight bytes read and eight written");
    let before = clock.now();
    let (seen, tier) = buffer.look(at(3), |page| (page.u64_at(8), page.tier())).expect("a page");
    assert_eq!((&seen.to_le_bytes(), tier), (b"IN place", Some(1)));
    assert_eq!(clock.now() - before, ACCESS_NS as u64, "eight bytes read");
    assert_eq!(buffer.look(at(3), |page| page.size_bytes()).expect("a page"), PAGE);
    let beyond = |bytes: std::ops::Range<usize>| buffer.update(at(3), bytes, |_| panic!("beyond the end"));
    assert!(matches!(beyond(4090..4097), Err(BufferError::OutOfRange(_))));
    #[expect(clippy::reversed_empty_ranges)]
    let reversed = beyond(16..8);
    assert!(matches!(reversed, Err(BufferError::OutOfRange(_))));
}

/// Threads count in pages that all of them share, while one flushes and a tuner changes the settings. No count is lost,
/// none is seen torn, and at the end the storage has all counts.
#[test]
fn threads_change_the_same_pages_and_lose_nothing() {
    const THREADS: u64 = 4;
    const STEPS: u64 = 8000;
    const SHARED: u64 = 120;
    let log = Arc::new(Log::default());
    let io = Checked::new(log.clone());
    let multi = catalogue::info("multi-tier").expect("a policy");
    let policy = Options::defaults(multi);
    let hook = Box::new(Hook(log.clone()));
    let buffer =
        TieredBuffer::new(TieredOptions::new(10), multi, &policy, nvm(40), io.clone(), Some(hook)).expect("a buffer");
    let (space, start) = Space::new(buffer.knobs()).expect("a space");
    let search = Search::Annealing(Annealing::new(Schedule::FAST, &start, 1));
    let tuner = Guarded::new(space, start, search, Objective::Throughput, Limits::default(), 200);
    let tuning = Tuning { tuner: Box::new(tuner), tunables: vec![0, 1, 2, 3], epoch_requests: 200, shadows: None };
    buffer.start_tuning(tuning).expect("a tuner that fits");
    let lsn = AtomicU64::new(0);
    let counted: Vec<[u64; SHARED as usize]> = std::thread::scope(|scope| {
        let work = |thread: u64| {
            let (buffer, lsn) = (&buffer, &lsn);
            move || {
                let (mut random, mut mine) = (Random::new(thread), [0u64; SHARED as usize]);
                for step in 0..STEPS {
                    let block = random.below(SHARED);
                    if step % 3 == 0 {
                        // The second and the last word are changed together, so they always agree.
                        let (second, last) =
                            buffer.look(at(block), |page| (page.u64_at(8), page.u64_at(PAGE - 8))).expect("a page");
                        assert!(second == last && second >= mine[block as usize], "page {block}: {second} and {last}");
                        continue;
                    }
                    let change = buffer.update(at(block), 0..PAGE, |page| {
                        let record = lsn.fetch_add(1, Ordering::SeqCst) + 1;
                        let count = u64::from_le_bytes(*page[8..].first_chunk().expect("eight")) + 1;
                        page[..8].copy_from_slice(&record.to_le_bytes());
                        page[8..16].copy_from_slice(&count.to_le_bytes());
                        page[PAGE - 8..].copy_from_slice(&count.to_le_bytes());
                        page.set_lsn(record);
                    });
                    change.expect("a page");
                    mine[block as usize] += 1;
                    if thread == 0 && step % 500 == 1 {
                        buffer.flush().expect("a flush");
                    }
                }
                mine
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(work(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread that ends")).collect()
    });
    buffer.stop_tuning().expect("the tuner at work");
    buffer.flush().expect("a flush");
    for block in 0..SHARED {
        let sum: u64 = counted.iter().map(|mine| mine[block as usize]).sum();
        assert_eq!((io.word(block, 1), io.word(block, PAGE / 8 - 1)), (sum, sum), "page {block} below");
    }
    let settings = buffer.take_epochs();
    assert!(settings.iter().any(|epoch| epoch.values != settings[0].values), "the settings never changed");
}
