//! A tiered buffer reads missing pages without holding its lock. Misses wait side by side, and hits do not wait
//! for them. A page is read once for all its requests, and no request sees a part of it.

use crate::common::two_tiers;
use crate::gate::Gate;
use entresol_buffer::{BufferError, MemoryIo, PageIo, Prepared, TieredBuffer, TieredOptions, WriteThreads};
use entresol_core::{Address, ObjectId, Op, Random};
use entresol_device::emulated::{Mapped, Slowdown, WallClock};
use entresol_policy::{Info, Options, catalogue};
use std::collections::HashSet;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::Scope;

const PAGE: usize = 4096;
const PAGES: [usize; 2] = [8, 24];

fn at(block: u64) -> Address {
    Address { object: ObjectId(0), block }
}

/// Contents of a page: its own number, and another, repeated.
fn page(block: u64, number: u64) -> Vec<u8> {
    [block.to_le_bytes(), number.to_le_bytes()].concat().repeat(PAGE / 16)
}

/// The second number of a page that is whole.
fn number(block: u64, bytes: &[u8]) -> u64 {
    let number = u64::from_le_bytes(*bytes[8..].first_chunk().expect("eight bytes"));
    assert!(
        bytes == page(block, number) || (number == 0 && bytes.iter().all(|&byte| byte == 0)),
        "page {block} is torn"
    );
    number
}

/// Storage that can be held up, fail and panic. The storage checks that no page is used twice at once.
#[derive(Default)]
struct HeldBelow {
    io: MemoryIo,
    gate: Gate,
    in_use: Mutex<HashSet<Address>>,
    fails: AtomicBool,
    panics: AtomicBool,
}

impl HeldBelow {
    fn alone<T>(&self, at: Address, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        assert!(self.in_use.lock().expect("nobody panics there").insert(at), "{at:?} is in use");
        self.gate.pass();
        let result = act();
        self.in_use.lock().expect("nobody panics there").remove(&at);
        assert!(!self.panics.swap(false, SeqCst), "as it was told");
        if self.fails.swap(false, SeqCst) { Err(io::Error::other("as it was told")) } else { result }
    }
}

impl PageIo for HeldBelow {
    fn read_page(&self, at: Address, into: &mut [u8]) -> io::Result<()> {
        self.alone(at, || self.io.read_page(at, into))
    }

    fn write_page(&self, at: Address, bytes: &[u8]) -> io::Result<()> {
        self.alone(at, || self.io.write_page(at, bytes))
    }

    fn sync(&self) -> io::Result<()> {
        self.io.sync()
    }

    fn object_pages(&self, object: ObjectId) -> u64 {
        self.io.object_pages(object)
    }
}

type Buffer<I> = TieredBuffer<I, WallClock>;

fn buffer<I: PageIo + 'static>(info: &'static Info, io: I) -> Buffer<I> {
    let nvm = Mapped::anonymous((PAGES[1] * PAGE) as u64, Slowdown { read: 1.0, write: 1.0 }).expect("a region");
    TieredBuffer::new(TieredOptions::new(PAGES[0]), info, &Options::defaults(info), nvm, io, None).expect("a buffer")
}

fn multi() -> &'static Info {
    catalogue::info("multi-tier").expect("a policy")
}

/// A buffer whose storage holds so many pages, each with its number and 7.
fn filled(pages: u64) -> (Arc<HeldBelow>, Arc<Buffer<Arc<HeldBelow>>>) {
    let io = Arc::new(HeldBelow::default());
    (0..pages).for_each(|block| io.write_page(at(block), &page(block, 7)).expect("memory"));
    (io.clone(), Arc::new(buffer(multi(), io)))
}

fn read<I: PageIo + 'static>(buffer: &Buffer<I>, block: u64) -> Result<u64, BufferError> {
    let mut bytes = vec![0xee; PAGE];
    buffer.read(at(block), 0, &mut bytes).map(|()| number(block, &bytes))
}

fn reads<'s, 'e>(
    scope: &'s Scope<'s, 'e>,
    buffer: &Arc<Buffer<Arc<HeldBelow>>>,
    block: u64,
) -> std::thread::ScopedJoinHandle<'s, Result<u64, BufferError>> {
    let buffer = buffer.clone();
    scope.spawn(move || read(&buffer, block))
}

#[test]
fn misses_wait_side_by_side_and_hits_pass_them() {
    let (io, buffer) = filled(8);
    assert_eq!(read(&buffer, 0).expect("a read"), 7);
    io.gate.set(true);
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (1..4).map(|block| reads(scope, &buffer, block)).collect();
        io.gate.wait_for(3);
        assert_eq!(read(&buffer, 0).expect("a hit"), 7);
        buffer.write(at(5), 0, &page(5, 9)).expect("a whole page, which is not read");
        assert_eq!(read(&buffer, 5).expect("a hit"), 9);
        assert_eq!(buffer.stats().decided.requests, 4, "nothing is decided before it has been read");
        io.gate.set(false);
        assert!(waiting.into_iter().all(|read| read.join().expect("no panic").expect("a read") == 7));
    });
    assert_eq!((buffer.stats().page_reads, buffer.stats().decided.requests), (4, 7));
}

#[test]
fn a_page_is_read_once_however_many_want_it() {
    let (io, buffer) = filled(8);
    io.gate.set(true);
    std::thread::scope(|scope| {
        let first = reads(scope, &buffer, 3);
        io.gate.wait_for(1);
        assert!(matches!(buffer.prepare(at(3), Op::Read), Ok(Prepared::UnderWay)));
        // A write is no read of the page, but a page cannot be changed while it is read.
        assert!(matches!(buffer.prepare(at(3), Op::Write), Ok(Prepared::UnderWay)));
        let others: Vec<_> = (0..3).map(|_| reads(scope, &buffer, 3)).collect();
        let writes = scope.spawn(|| buffer.write(at(3), 0, &page(3, 8)));
        io.gate.set(false);
        assert_eq!(first.join().expect("no panic").expect("a read"), 7);
        writes.join().expect("no panic").expect("a write");
        let found = others.into_iter().map(|read| read.join().expect("no panic").expect("a read"));
        assert!(found.into_iter().all(|number| [7, 8].contains(&number)));
    });
    assert_eq!((read(&buffer, 3).expect("a hit"), buffer.stats().page_reads), (8, 1));
}

#[test]
fn whoever_reads_is_told_of_a_failure_and_whoever_waits_reads_anew() {
    for panics in [false, true] {
        let (io, buffer) = filled(8);
        io.gate.set(true);
        std::thread::scope(|scope| {
            let first = reads(scope, &buffer, 3);
            io.gate.wait_for(1);
            let second = reads(scope, &buffer, 3);
            if panics {
                io.panics.store(true, SeqCst)
            } else {
                io.fails.store(true, SeqCst)
            }
            io.gate.set(false);
            let first = first.join();
            assert!(if panics { first.is_err() } else { matches!(first, Ok(Err(BufferError::Read { .. }))) });
            assert_eq!(second.join().expect("no panic").expect("a read"), 7);
        });
        let stats = buffer.stats();
        assert_eq!((stats.page_reads, stats.errors), (2, u64::from(!panics)));
        assert_eq!(read(&buffer, 3).expect("a hit"), 7);
    }
}

#[test]
fn a_host_may_read_by_itself() {
    let (io, buffer) = filled(8);
    let prepare = |block, op| buffer.prepare(at(block), op).expect("a page");
    // Two reads at a time, the last to arrive first.
    let (Prepared::Read(one), Prepared::Read(two)) = (prepare(1, Op::Read), prepare(2, Op::Update)) else {
        panic!("they are below")
    };
    assert!(matches!(prepare(1, Op::Update), Prepared::UnderWay));
    assert!(matches!(prepare(4, Op::Write), Prepared::Ready), "a whole page");
    assert_eq!((one.at(), two.at()), (at(1), at(2)));
    two.arrived(Ok(&page(2, 77)));
    assert!(matches!(prepare(2, Op::Read), Prepared::Ready));
    one.arrived(Err(io::Error::other("as it was told")));
    assert!(matches!(read(&buffer, 1), Err(BufferError::Read { .. })));
    assert_eq!(read(&buffer, 2).expect("a page"), 77, "what was brought, not what is below");
    assert_eq!((buffer.stats().page_reads, buffer.stats().errors), (2, 1));
    // A failure concerns one request.
    assert_eq!(read(&buffer, 1).expect("a page"), 7);
    // The read is given up, as by a cancelled request.
    drop(prepare(3, Op::Read));
    assert_eq!(read(&buffer, 3).expect("a page"), 7);
    let Prepared::Read(short) = prepare(6, Op::Read) else { panic!("it is below") };
    let arrives = std::panic::AssertUnwindSafe(|| short.arrived(Ok(&[7; 100])));
    assert!(std::panic::catch_unwind(arrives).is_err());
    assert_eq!(read(&buffer, 6).expect("a page"), 7);
    // A change between the arrival and the request for the page is not undone.
    let Prepared::Read(read_of_5) = prepare(5, Op::Read) else { panic!("it is below") };
    read_of_5.arrived(Ok(&page(5, 7)));
    buffer.write(at(5), 0, &page(5, 8)).expect("a write");
    (20..60).for_each(|block| buffer.write(at(block), 0, &page(block, 1)).expect("a write"));
    assert_eq!(read(&buffer, 5).expect("a page"), 8);
    assert!(io.in_use.lock().expect("nobody panics there").is_empty());
    assert!(buffer.prepare(Address { object: ObjectId(u32::MAX), block: 0 }, Op::Read).is_err());
}

/// Threads count pages up, overwrite and read them. Every page is always whole, and its count never goes back. At
/// the end the buffer has the right counts and, after a flush, the storage too.
fn shaken<I: PageIo + 'static>(buffer: &Buffer<I>, blocks: u64, operations: u64, seed: u64) {
    let counted: Vec<AtomicU64> = (0..blocks).map(|_| AtomicU64::new(0)).collect();
    let seen: Vec<AtomicU64> = (0..blocks).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (counted, seen) = (&counted, &seen);
            scope.spawn(move || {
                let mut random = Random::new(seed * 100 + thread);
                for _ in 0..operations {
                    // Squared: some pages are hot.
                    let block = random.below(blocks) * random.below(blocks) / blocks;
                    let of = block as usize;
                    match (block % 4, random.below(3)) {
                        // Overwritten by one thread alone, which knows their contents.
                        (0, 0) if block / 4 % 4 == thread => {
                            let next = counted[of].load(SeqCst) + 1;
                            buffer.write(at(block), 0, &page(block, next)).expect("a write");
                            counted[of].store(next, SeqCst);
                        }
                        (1.., 0) => {
                            let up = |bytes: &mut [u8]| {
                                let next = number(block, bytes) + 1;
                                bytes.copy_from_slice(&page(block, next));
                            };
                            buffer.update(at(block), 0..PAGE, |bytes| up(bytes)).expect("an update");
                            counted[of].fetch_add(1, SeqCst);
                        }
                        _ => {
                            let before = seen[of].load(SeqCst).max(counted[of].load(SeqCst).min(1));
                            let found = read(buffer, block).expect("a read");
                            assert!(found >= before, "page {block} went back from {before} to {found}");
                            seen[of].fetch_max(found, SeqCst);
                        }
                    }
                }
            });
        }
    });
    let found: Vec<u64> = (0..blocks).map(|block| read(buffer, block).expect("a read")).collect();
    let counted: Vec<u64> = counted.iter().map(|count| count.load(SeqCst)).collect();
    assert_eq!(found, counted);
    buffer.flush().expect("memory");
}

#[test]
fn threads_find_what_they_wrote() {
    let (blocks, operations) = (120, 4000);
    for (info, seed) in two_tiers().zip(1..) {
        println!("{}, seed {seed}", info.name);
        for threads in [0, 2] {
            let io = Arc::new(HeldBelow::default());
            let counts: Vec<u64> = if threads == 0 {
                let buffer = buffer(info, io.clone());
                shaken(&buffer, blocks, operations, seed);
                (0..blocks).map(|block| read(&buffer, block).expect("a read")).collect()
            } else {
                let buffer = buffer(info, WriteThreads::start(io.clone(), threads).expect("threads"));
                shaken(&buffer, blocks, operations, seed);
                (0..blocks).map(|block| read(&buffer, block).expect("a read")).collect()
            };
            for block in 0..blocks {
                let mut bytes = vec![0; PAGE];
                io.io.read_page(at(block), &mut bytes).expect("memory");
                assert_eq!(number(block, &bytes), counts[block as usize], "page {block} below");
            }
        }
    }
}
