//! The buffer against a plain map step by step; the WAL before the page; storage that fails; pins that leave no frame.

use crate::common::{Hook, Log, fail_if};
use entresol_buffer::table::HashTable;
use entresol_buffer::{BufferError, BufferManager, BufferOptions, FileIo, MemoryIo, OpenError, PageIo};
use entresol_core::{Address, ObjectId};
use entresol_policy::{Options, catalogue};
use proptest::prelude::*;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};

fn at(block: u64) -> Address {
    Address { object: ObjectId((block % 3) as u32), block: block / 3 }
}

/// The number that [`at`] was given.
fn number(at: Address) -> u64 {
    at.block * 3 + u64::from(at.object.0)
}

fn manager<I: PageIo>(options: BufferOptions, policy: &str, io: I) -> BufferManager<HashTable, I> {
    let info = catalogue::info(policy).expect("a policy");
    BufferManager::hashed(options, info, &Options::defaults(info), io, None).expect("a manager")
}

/// Storage that fails on demand, and knows its contents and its synced ones.
#[derive(Default)]
struct Faulty {
    below: MemoryIo,
    fail_reads: AtomicBool,
    fail_writes: AtomicBool,
    fail_syncs: AtomicBool,
    writes: Mutex<Vec<Address>>,
}

impl PageIo for Faulty {
    fn read_page(&self, at: Address, into: &mut [u8]) -> io::Result<()> {
        fail_if(&self.fail_reads)?;
        self.below.read_page(at, into)
    }

    fn write_page(&self, at: Address, bytes: &[u8]) -> io::Result<()> {
        fail_if(&self.fail_writes)?;
        self.writes.lock().expect("no panic").push(at);
        self.below.write_page(at, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        fail_if(&self.fail_syncs)
    }

    fn object_pages(&self, object: ObjectId) -> u64 {
        self.below.object_pages(object)
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Read(u64),
    Pin(u64),
    Update(u64, u8),
    Overwrite(u64, u8),
    Flush,
    Clean(usize),
    Hold(u64),
    LetGo,
    Many([u64; 4]),
    Row([u64; 8]),
    Fail(bool, bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let page = 0u64..24;
    let step = prop_oneof![
        6 => page.clone().prop_map(Step::Read),
        4 => page.clone().prop_map(Step::Pin),
        6 => (page.clone(), 1u8..).prop_map(|(page, value)| Step::Update(page, value)),
        3 => (page.clone(), 1u8..).prop_map(|(page, value)| Step::Overwrite(page, value)),
        1 => Just(Step::Flush),
        1 => (1usize..8).prop_map(Step::Clean),
        3 => page.prop_map(Step::Hold),
        3 => Just(Step::LetGo),
        2 => [0u64..24, 0u64..24, 0u64..24, 0u64..24].prop_map(Step::Many),
        2 => prop::array::uniform8(0u64..24).prop_map(Step::Row),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(reads, writes)| Step::Fail(reads, writes)),
    ];
    prop::collection::vec(step, 1..150)
}

fn policy() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["lru", "arc", "2q", "clock", "lirs", "s3-fifo", "cflru", "bplru", "fab", "io-cache"])
}

/// Takes steps on the manager and on a map. A step that fails changes nothing. A step may fail only after the storage
/// did, or if pins fill the pool.
fn against_a_map(policy: &str, steps: &[Step]) {
    let io = Arc::new(Faulty::default());
    let options = BufferOptions { spare_frames: 4, hit_batch: 4, ..BufferOptions::new(8) };
    let manager = manager(options, policy, io.clone());
    let mut truth: HashMap<u64, [u8; 2]> = HashMap::new();
    let mut held = Vec::new();
    let mut failing = false;
    for &step in steps {
        // Pages that bypass the policy have the spare frames alone.
        let full = held.len() + if matches!(step, Step::Many(_)) { 4 } else { 0 } > 4 || held.len() == 4;
        let result = match step {
            Step::Read(page) => manager.read(at(page), |view| [view.u8_at(0), view.u8_at(4095)]).map(|seen| {
                assert_eq!(seen, truth.get(&page).copied().unwrap_or_default(), "page {page}");
            }),
            Step::Pin(page) => manager.pin(at(page)).map(|pin| {
                assert_eq!([pin[0], pin[4095]], truth.get(&page).copied().unwrap_or_default(), "page {page}");
            }),
            // A thread cannot change a page that it has pinned.
            Step::Update(page, _) | Step::Overwrite(page, _) if held.iter().any(|&(other, _)| other == page) => Ok(()),
            Step::Update(page, value) => manager.update(at(page)).map(|mut owned| {
                owned[4095] = value;
                truth.entry(page).or_default()[1] = value;
            }),
            Step::Overwrite(page, value) => manager.overwrite(at(page)).map(|mut owned| {
                owned[0] = value;
                truth.insert(page, [value, 0]);
            }),
            Step::Flush => manager.flush().map(|()| {
                assert_eq!(manager.stats().dirty, 0, "a flush leaves nothing dirty");
                let mut below = vec![0; 4096];
                for (&page, truth) in &truth {
                    io.read_page(at(page), &mut below)
                        .or_else(|_| io.below.read_page(at(page), &mut below))
                        .expect("memory");
                    assert_eq!([below[0], below[4095]], *truth, "page {page} below");
                }
            }),
            Step::Clean(pages) => manager.clean(pages).map(drop),
            Step::Hold(page) => manager.pin(at(page)).map(|pin| held.push((page, pin))),
            Step::LetGo => {
                held.pop();
                Ok(())
            }
            Step::Many(pages) => manager.pin_many(&pages.map(at)).map(|pins| {
                for (page, pin) in pages.iter().zip(&pins) {
                    assert_eq!([pin[0], pin[4095]], truth.get(page).copied().unwrap_or_default(), "page {page}");
                }
            }),
            Step::Row(pages) => {
                let mut seen = 0;
                let look = |at: Address, page: &[u8]| {
                    assert_eq!([page[0], page[4095]], truth.get(&number(at)).copied().unwrap_or_default(), "{at:?}");
                    seen += 1;
                };
                manager.read_many(pages.map(at), 3, look).map(|()| assert_eq!(seen, 8))
            }
            Step::Fail(reads, writes) => {
                io.fail_reads.store(reads, Ordering::SeqCst);
                io.fail_writes.store(writes, Ordering::SeqCst);
                // A failure without a caller is reported by the next flush, perhaps after the failing is over.
                failing = true;
                Ok(())
            }
        };
        if let Err(error) = result {
            let excused = failing || (full && matches!(error, BufferError::Exhausted { .. }));
            assert!(excused, "{step:?}: {error}");
        }
        for (page, pin) in &held {
            assert_eq!([pin[0], pin[4095]], truth.get(page).copied().unwrap_or_default(), "page {page}, pinned");
        }
    }
    io.fail_reads.store(false, Ordering::SeqCst);
    io.fail_writes.store(false, Ordering::SeqCst);
    drop(held);
    // The first flush reports failures not yet reported, the second has none.
    let _ = manager.flush();
    manager.flush().expect("a flush with nothing failing");
    let mut below = vec![0; 4096];
    for (page, truth) in truth {
        io.read_page(at(page), &mut below).expect("a page below");
        assert_eq!([below[0], below[4095]], truth, "page {page} at the end");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_manager_is_a_map_of_pages(policy in policy(), steps in steps()) {
        against_a_map(policy, &steps);
    }
}

/// Found by the test above. BPLRU takes no reads, so four held pages fill the spare frames. A full buffer of
/// writes must still find a frame to evict by.
#[test]
fn held_pages_that_pass_by_leave_writes_their_room() {
    use Step::{Hold, Read, Update};
    let steps = [2, 0, 6, 11].map(Hold).into_iter().zip([4, 5, 7, 8]).flat_map(|(hold, page)| [hold, Update(page, 1)]);
    let more = [9, 1, 12, 13].map(|page| Update(page, 1));
    against_a_map("bplru", &steps.chain(more).chain([Read(10)]).collect::<Vec<_>>());
}

#[test]
fn no_page_is_written_before_its_log() {
    let (io, log) = (Arc::new(Faulty::default()), Arc::new(Log::default()));
    let info = catalogue::info("lru").expect("lru");
    let hook = Box::new(Hook(log.clone()));
    let manager = BufferManager::hashed(BufferOptions::new(4), info, &Options::defaults(info), io.clone(), Some(hook))
        .expect("a manager");
    let change = |page: u64, lsn: u64| {
        let mut owned = manager.update(at(page)).expect("a page");
        owned[0] = lsn as u8;
        owned.set_lsn(lsn);
    };
    (0..4).for_each(|page| change(page, 100 + page));
    assert_eq!((log.flushed.load(Ordering::SeqCst), manager.stats().page_writes), (0, 0));
    // Evicts page 0, whose newest record is 100.
    manager.pin(at(9)).expect("a page");
    assert_eq!((log.flushed.load(Ordering::SeqCst), manager.stats().page_writes), (100, 1));
    // A WAL that is ahead is left alone.
    log.flushed.store(102, Ordering::SeqCst);
    manager.pin(at(10)).expect("a page");
    assert_eq!((manager.stats().wal_flushes, manager.stats().page_writes), (1, 2));
    // While the WAL fails, no page leaves, and the error names the page.
    log.flushed.store(0, Ordering::SeqCst);
    log.fail.store(true, Ordering::SeqCst);
    let error = manager.pin(at(11)).err().expect("no frame without the log");
    assert!(matches!(error, BufferError::Wal { at: page, lsn: 102, .. } if page == at(2)), "{error}");
    assert!(!io.writes.lock().expect("no panic").contains(&at(2)));
    assert_eq!(manager.pin(at(2)).expect("it is here still")[0], 102);
    log.fail.store(false, Ordering::SeqCst);
    manager.flush().expect("a flush");
    assert_eq!(log.flushed.load(Ordering::SeqCst), 103);
    assert!(io.writes.lock().expect("no panic").contains(&at(2)));
}

#[test]
fn a_failed_read_is_the_callers_error_and_the_next_one_tries_again() {
    let io = Arc::new(Faulty::default());
    let manager = manager(BufferOptions::new(4), "arc", io.clone());
    io.fail_reads.store(true, Ordering::SeqCst);
    for _ in 0..200 {
        let error = manager.pin(at(1)).err().expect("no page").to_string();
        assert_eq!(error, "reading page 0 of object 1: the device is on fire");
    }
    assert_eq!(manager.stats().errors, 200);
    io.fail_reads.store(false, Ordering::SeqCst);
    manager.pin(at(1)).expect("a page");
}

#[test]
fn a_failed_write_is_reported_once_and_the_page_stays() {
    let io = Arc::new(Faulty::default());
    let manager = manager(BufferOptions::new(1), "lru", io.clone());
    manager.update(at(0)).expect("a page")[0] = 7;
    io.fail_writes.store(true, Ordering::SeqCst);
    assert!(matches!(manager.pin(at(1)), Err(BufferError::Write { at: page, .. }) if page == at(0)));
    assert_eq!(manager.pin(at(0)).expect("still here")[0], 7);
    assert!(matches!(manager.flush(), Err(BufferError::Write { .. })));
    io.fail_writes.store(false, Ordering::SeqCst);
    manager.flush().expect("a flush");
    let mut below = vec![0; 4096];
    io.read_page(at(0), &mut below).expect("a page below");
    assert_eq!(below[0], 7);
}

#[test]
fn a_failed_sync_is_an_error_of_the_flush() {
    let io = Arc::new(Faulty::default());
    let manager = manager(BufferOptions::new(4), "lru", io.clone());
    io.fail_syncs.store(true, Ordering::SeqCst);
    assert!(matches!(manager.flush(), Err(BufferError::Sync(_))));
    assert_eq!(manager.stats().errors, 1);
}

/// Storage whose first sync fails, once it has been written to again meanwhile.
#[derive(Default)]
struct Meanwhile {
    below: MemoryIo,
    writes: Mutex<u64>,
    changed: Condvar,
    syncs: AtomicU64,
}

impl Meanwhile {
    fn wait_for_writes(&self, writes: u64) {
        let so_many = self.writes.lock().expect("no panic");
        drop(self.changed.wait_while(so_many, |so_many| *so_many < writes).expect("no panic"));
    }
}

impl PageIo for Meanwhile {
    fn read_page(&self, at: Address, into: &mut [u8]) -> io::Result<()> {
        self.below.read_page(at, into)
    }

    fn write_page(&self, at: Address, bytes: &[u8]) -> io::Result<()> {
        *self.writes.lock().expect("no panic") += 1;
        self.changed.notify_all();
        self.below.write_page(at, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        if self.syncs.fetch_add(1, Ordering::SeqCst) > 0 {
            return Ok(());
        }
        self.wait_for_writes(2);
        Err(io::Error::other("what was written is gone"))
    }

    fn object_pages(&self, object: ObjectId) -> u64 {
        self.below.object_pages(object)
    }
}

/// A system reports a failed sync to one of the waiting callers, though it was to cover pages of all.
#[test]
fn a_failed_sync_is_an_error_of_every_flush_that_it_was_to_serve() {
    let storage = Arc::new(Meanwhile::default());
    let manager = manager(BufferOptions::new(4), "lru", storage.clone());
    let change = |page| drop(manager.overwrite(at(page)).expect("a frame"));
    change(0);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| manager.flush());
        while storage.syncs.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        change(1);
        let second = scope.spawn(|| manager.flush());
        for flush in [first, second] {
            assert!(matches!(flush.join().expect("no panic"), Err(BufferError::Sync(_))));
        }
    });
    assert_eq!(storage.syncs.load(Ordering::SeqCst), 2);
    manager.flush().expect("both have been told");
}

#[test]
fn pins_that_fill_the_pool_are_an_error_and_no_hang() {
    let options = BufferOptions { spare_frames: 3, ..BufferOptions::new(5) };
    let manager = manager(options, "lru", MemoryIo::new());
    let mut pins: Vec<_> = (0..8).map(|page| manager.pin(at(page)).expect("a frame")).collect();
    assert!(matches!(manager.pin(at(8)), Err(BufferError::Exhausted { frames: 8 })));
    assert!(pins.iter().all(|pin| pin[0] == 0));
    pins.pop();
    manager.pin(at(8)).expect("a frame again");
}

#[test]
fn addresses_that_no_table_holds_are_refused() {
    let info = catalogue::info("lru").expect("lru");
    let dense = BufferManager::dense(BufferOptions::new(4), 100, info, &Options::defaults(info), MemoryIo::new(), None)
        .expect("a manager");
    let beyond = Address { object: ObjectId(0), block: 100 };
    assert!(matches!(dense.pin(beyond), Err(BufferError::OutOfRange(at)) if at == beyond));
    let hashed = manager(BufferOptions::new(4), "lru", MemoryIo::new());
    let huge = Address { object: ObjectId(1), block: 1 << 40 };
    assert!(matches!(hashed.read(huge, |_| ()), Err(BufferError::OutOfRange(at)) if at == huge));
    hashed.pin(beyond).expect("a hash table takes any page");
}

#[test]
fn options_out_of_range_are_named() {
    let change = |change: fn(&mut BufferOptions)| {
        let mut options = BufferOptions::new(100);
        change(&mut options);
        let info = catalogue::info("lru").expect("lru");
        BufferManager::hashed(options, info, &Options::defaults(info), MemoryIo::new(), None).err()
    };
    type Case = (fn(&mut BufferOptions), &'static str);
    let cases: [Case; 8] = [
        (|o| o.page_bytes = 1000, "page_bytes is 1000"),
        (|o| o.page_bytes = 131_072, "page_bytes is 131072"),
        (|o| o.shards = 3, "shards is 3"),
        (|o| o.shards = 128, "shards is 128"),
        (|o| o.spare_frames = 0, "spare_frames is 0"),
        (|o| o.hit_batch = 65, "hit_batch is 65"),
        (|o| o.dirty_high = 1.5, "dirty_high is 1.5"),
        (|o| o.pages = 1 << 40, "handles per shard is"),
    ];
    for (set, message) in cases {
        let error = change(set).expect("an error");
        assert!(matches!(error, OpenError::Option { .. }) && error.to_string().starts_with(message), "{error}");
    }
}

#[test]
fn files_keep_pages_of_each_size() {
    let directory = std::env::temp_dir().join(format!("entresol-buffer-files-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    for page_bytes in [4096, 16384, 65536] {
        let open = |name: &str| {
            let path = directory.join(name);
            std::fs::File::options().read(true).write(true).create(true).truncate(true).open(path).expect("a file")
        };
        let io = FileIo::new(vec![open("a"), open("b"), open("c")], page_bytes);
        let manager = manager(BufferOptions { page_bytes, ..BufferOptions::new(4) }, "lru", io);
        for page in 0..30 {
            let mut owned = manager.update(at(page)).expect("a page");
            assert_eq!(owned.len(), page_bytes);
            assert_eq!(owned.address(), at(page));
            owned[page_bytes - 1] = page as u8 + 1;
        }
        manager.flush().expect("a flush");
        assert_eq!(manager.io().object_pages(ObjectId(2)), 10);
        for page in 0..30 {
            assert_eq!(manager.pin(at(page)).expect("a page")[page_bytes - 1], page as u8 + 1);
        }
        let absent = Address { object: ObjectId(7), block: 0 };
        assert!(matches!(manager.pin(absent), Err(BufferError::Read { at, .. }) if at == absent));
    }
    std::fs::remove_dir_all(&directory).expect("the directory just made");
}
