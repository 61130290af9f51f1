//! The buffer manager under shuttle: random schedules of a few threads, at every access to an atomic or a lock.
//! Further schedules have few but long interruptions, which a switch at every step would hardly ever make. `make
//! test-interleavings` runs these tests, and `make test` does with fewer schedules. A failure prints the schedule
//! that `shuttle::replay` repeats.

use crate::table::{ArrayTable, HashTable, PageTable};
use crate::{BufferManager, BufferOptions, PageIo, TieredBuffer, TieredOptions};
use entresol_core::{Address, ObjectId, Op};
use entresol_device::emulated::{Calibration, Curve, Mapped, Slowdown, VirtualClock};
use entresol_policy::{Options, catalogue};
use shuttle::sync::{Arc, Mutex};
use shuttle::thread;
use std::collections::HashMap;
use std::io;

/// Schedules of each kind and test, unless ENTRESOL_SCHEDULES gives the number.
const SCHEDULES: usize = 3000;

fn explore(run: impl Fn() + Send + Sync + Copy + 'static) {
    let given = std::env::var("ENTRESOL_SCHEDULES").ok();
    let schedules = given.map_or(SCHEDULES, |number| number.parse().expect("ENTRESOL_SCHEDULES is a number"));
    shuttle::check_random(run, schedules);
    shuttle::check_pct(run, schedules, 3);
}

fn at(block: u64) -> Address {
    Address { object: ObjectId(0), block }
}

/// Storage with a lock, before and after which another thread can run. The storage does not yield: the second
/// kind of schedule puts a yielding thread last, which would never run through two misses while another sleeps.
#[derive(Default)]
struct Slow(Mutex<HashMap<u64, u8>>);

impl PageIo for Slow {
    fn read_page(&self, at: Address, into: &mut [u8]) -> io::Result<()> {
        into[0] = self.0.lock().expect("no panic").get(&at.block).copied().unwrap_or(0);
        Ok(())
    }

    fn write_page(&self, at: Address, bytes: &[u8]) -> io::Result<()> {
        self.0.lock().expect("no panic").insert(at.block, bytes[0]);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn object_pages(&self, _object: ObjectId) -> u64 {
        0
    }
}

fn options() -> BufferOptions {
    BufferOptions { spare_frames: 4, hit_batch: 2, ..BufferOptions::new(1) }
}

fn hashed(policy: &str) -> BufferManager<HashTable, Slow> {
    let info = catalogue::info(policy).expect("a policy");
    BufferManager::hashed(options(), info, &Options::defaults(info), Slow::default(), None).expect("a manager")
}

fn dense(policy: &str) -> BufferManager<ArrayTable, Slow> {
    let info = catalogue::info(policy).expect("a policy");
    BufferManager::dense(options(), 8, info, &Options::defaults(info), Slow::default(), None).expect("a manager")
}

/// Threads add to counters in pages that push each other out of a pool of one page; none may be lost.
fn additions<T: PageTable + 'static>(manager: BufferManager<T, Slow>) {
    let manager = Arc::new(manager);
    let threads: Vec<_> = (0..3)
        .map(|n| {
            let manager = manager.clone();
            thread::spawn(move || {
                for page in [n % 2, 2, (n + 1) % 2] {
                    manager.update(at(page)).expect("a page")[0] += 1;
                    let seen = manager.read(at(page), |view| view.u8_at(0)).expect("a page");
                    assert!((1..=3).contains(&seen), "page {page} reads {seen}");
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("a thread"));
    manager.flush().expect("a flush");
    let below = manager.io().0.lock().expect("no panic").clone();
    assert_eq!([0, 1, 2].map(|page| below.get(&page).copied().unwrap_or(0)), [3, 3, 3]);
    assert_eq!(manager.stats().dirty, 0);
}

#[test]
fn no_addition_is_lost_with_a_hash_table() {
    explore(|| additions(hashed("lru")));
}

#[test]
fn no_addition_is_lost_with_an_array() {
    explore(|| additions(dense("clock")));
}

/// A thread that sleeps between finding a frame and taking it may find another page there.
#[test]
fn a_frame_that_changed_hands_is_not_taken_for_the_page() {
    explore(|| {
        let manager = hashed("lru");
        manager.io().0.lock().expect("no panic").extend((0..6).map(|page| (page, page as u8 + 1)));
        let manager = Arc::new(manager);
        let threads: Vec<_> = (0..2)
            .map(|n| {
                let manager = manager.clone();
                thread::spawn(move || {
                    for i in 0..6 {
                        let page = (i * (n + 1) + n) % 6;
                        assert_eq!(manager.pin(at(page)).expect("a page")[0], page as u8 + 1, "another page");
                        // The second pin finds the page in its frame.
                        assert_eq!(manager.pin(at(page)).expect("a page")[0], page as u8 + 1, "another page");
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("a thread"));
    });
}

/// Threads take several pages at once, in opposite orders, from a pool of one: none waits for ever.
#[test]
fn pages_taken_together_do_not_block_each_other() {
    explore(|| {
        let manager = hashed("lru");
        manager.io().0.lock().expect("no panic").extend((0..3).map(|page| (page, page as u8 + 1)));
        let manager = Arc::new(manager);
        let threads: Vec<_> = [[0, 1], [1, 0]]
            .map(|pages| {
                let manager = manager.clone();
                thread::spawn(move || {
                    for _ in 0..2 {
                        let pins = manager.pin_many(&pages.map(at)).expect("pages");
                        assert_eq!([pins[0][0], pins[1][0]], pages.map(|page| page as u8 + 1), "other pages");
                        drop(pins);
                        drop(manager.pin(at(2)).expect("a page"));
                    }
                })
            })
            .into();
        threads.into_iter().for_each(|thread| thread.join().expect("a thread"));
    });
}

/// Threads read pages in opposite orders through queues, from a pool of one: none waits for ever, each sees all pages.
#[test]
fn queues_of_reads_do_not_block_each_other() {
    explore(|| {
        let manager = hashed("lru");
        manager.io().0.lock().expect("no panic").extend((0..3).map(|page| (page, page as u8 + 1)));
        let manager = Arc::new(manager);
        let threads: Vec<_> = [[0, 1, 2, 0], [2, 1, 0, 2]]
            .map(|pages| {
                let manager = manager.clone();
                thread::spawn(move || {
                    let mut seen = 0;
                    let look = |at: Address, page: &[u8]| {
                        assert_eq!(page[0], at.block as u8 + 1, "another page");
                        seen += 1;
                    };
                    manager.read_many(pages.map(at), 2, look).expect("pages");
                    assert_eq!(seen, pages.len());
                })
            })
            .into();
        threads.into_iter().for_each(|thread| thread.join().expect("a thread"));
    });
}

/// Writes that bypass the policy: the page is evicted when its guard is dropped.
#[test]
fn no_addition_is_lost_past_the_policy() {
    explore(|| additions(hashed("2q")));
    explore(|| additions(hashed("s3-fifo")));
}

/// One thread flushes while another makes changes. Changes from before the flush are below after it.
#[test]
fn a_flush_covers_what_came_before() {
    explore(|| {
        let manager = Arc::new(hashed("lru"));
        manager.update(at(0)).expect("a page")[0] = 7;
        let other = {
            let manager = manager.clone();
            thread::spawn(move || {
                manager.pin(at(1)).expect("a page");
                manager.update(at(0)).expect("a page")[0] = 8;
                manager.clean(4).expect("cleaned");
            })
        };
        manager.flush().expect("a flush");
        let below = manager.io().0.lock().expect("no panic").get(&0).copied();
        assert!(matches!(below, Some(7 | 8)), "{below:?} below after the flush");
        other.join().expect("the other thread");
    });
}

/// A pin holds its page while other pages fill the pool and the policy changes.
#[test]
fn a_pin_holds_its_page() {
    explore(|| {
        let manager = Arc::new(hashed("lru"));
        let pin = manager.pin(at(0)).expect("a page");
        let others: Vec<_> = (1..3)
            .map(|page| {
                let manager = manager.clone();
                thread::spawn(move || {
                    manager.update(at(page)).expect("a page")[0] = 9;
                    let info = catalogue::info("arc").expect("arc");
                    manager.change_policy(info, &Options::defaults(info)).expect("a change");
                    assert_eq!(manager.read(at(page), |view| view.u8_at(0)).expect("a page"), 9);
                })
            })
            .collect();
        thread::yield_now();
        assert_eq!(pin[0], 0);
        drop(pin);
        others.into_iter().for_each(|other| other.join().expect("a thread"));
    });
}

/// Two tiers of a page each. A thread that waits for another's read of a page is woken, even if that read was given up.
#[test]
fn no_addition_is_lost_over_two_tiers() {
    explore(|| {
        let info = catalogue::info("multi-tier").expect("a policy");
        let file = tempfile::tempfile().expect("a file");
        file.set_len(4096).expect("room");
        let nothing = || Curve::new([(64, 0.0), (4096, 0.0)]);
        let calibration = Calibration { clock_ns: 0.0, load: nothing(), store: nothing() };
        let nvm = Mapped::with_clock(&file, Slowdown { read: 1.0, write: 1.0 }, calibration, VirtualClock::new());
        let nvm = nvm.expect("a region");
        let io = Arc::new(Slow::default());
        let buffer = TieredBuffer::new(TieredOptions::new(1), info, &Options::defaults(info), nvm, io.clone(), None);
        let buffer = Arc::new(buffer.expect("a buffer"));
        let threads: Vec<_> = (0..3)
            .map(|n| {
                let buffer = buffer.clone();
                thread::spawn(move || {
                    for page in [n % 2, 2, (n + 1) % 2] {
                        drop(buffer.prepare(at(page), Op::Read).expect("a page"));
                        buffer.update(at(page), 0..1, |bytes| bytes[0] += 1).expect("a page");
                        let seen = buffer.look(at(page), |view| view.u8_at(0)).expect("a page");
                        assert!((1..=3).contains(&seen), "page {page} reads {seen}");
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("a thread"));
        buffer.flush().expect("a flush");
        let below = io.0.lock().expect("no panic").clone();
        assert_eq!([0, 1, 2].map(|page| below.get(&page).copied().unwrap_or(0)), [3, 3, 3]);
    });
}
