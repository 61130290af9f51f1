//! Superblocks, tables, journals and commit records with right checksums over forged contents. Such stores are served,
//! repaired or refused: never a panic, an unbounded allocation, or an endless wait.

#[path = "common/hostile.rs"]
mod hostile;

use entresol_core::Random;
use entresol_store::repair;
use hostile::{BACKING_PAGES, ID, disks, is_served, mutate, sound};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

struct Watching;

static LARGEST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on unchanged; the note does not touch the memory.
unsafe impl GlobalAlloc for Watching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Relaxed);
        // SAFETY: the caller's promise is the one asked for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Watching = Watching;

const STORES: u64 = 2000;
/// Most bytes that a store of some hundred kilobytes may ask for at once.
const ALLOCATION_MAX: usize = 16 << 20;
const TIME_MAX: Duration = Duration::from_secs(5);

#[test]
fn two_thousand_hostile_stores_are_served_or_refused() {
    let sound = sound();
    assert!(sound.iter().all(|image| is_served(image)), "what is in order is served");
    // The disks themselves are the largest allocations.
    LARGEST.store(0, Relaxed);
    let (mut served, mut repaired, mut slowest) = (0, 0, Duration::ZERO);
    // With one of these seeds, a journal with more entries than it has space for was renewed for ever.
    for seed in (0..STORES).chain([78_503, 104_268]) {
        let mut random = Random::new(seed);
        let mut image = sound[random.below(sound.len() as u64) as usize].clone();
        let what = mutate(&mut image, &mut random);
        let started = Instant::now();
        let outcome = std::panic::catch_unwind(|| {
            let repair = repair(disks(&image)[0].clone(), ID, BACKING_PAGES).is_ok();
            (is_served(&image), repair)
        });
        let (opened, mended) = outcome.unwrap_or_else(|_| panic!("seed {seed}, changed{what}: a panic"));
        slowest = slowest.max(started.elapsed());
        assert!(slowest < TIME_MAX, "seed {seed}, changed{what}: {slowest:?}");
        let largest = LARGEST.load(Relaxed);
        assert!(largest < ALLOCATION_MAX, "seed {seed}, changed{what}: {largest} bytes at once");
        served += u64::from(opened);
        repaired += u64::from(mended);
    }
    println!("of {STORES}: {served} served, {repaired} repaired, the slowest in {slowest:?}");
    assert!(served > STORES / 10 && served < STORES, "{served} served");
}
