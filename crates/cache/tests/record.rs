//! Recording of a cache's requests: the record has all requests in order, and no request waits for the reader.

use entresol_cache::Block;
use entresol_cache::{BlockCache, CacheConfig, Noted, Recording, Tag};
use entresol_core::Op;
use entresol_crashtest::{Power, SimDisk};
use entresol_policy::catalogue;
use entresol_store::{Geometry, Layout};
use std::time::Duration;

const PAGE: u64 = 4096;
/// Most requests that the reader may be behind.
const BEHIND: u64 = 16 * 4096;

fn cache() -> BlockCache {
    let power = Power::steady();
    let geometry = Geometry { page_bytes: PAGE as u32, segment_pages: 16, segments: 16, layout: Layout::Log };
    let cache = SimDisk::new(geometry.size_bytes(), &power);
    let backing = SimDisk::new(300 * PAGE + 100, &power);
    BlockCache::format(&cache, geometry, &backing, [1; 16], [2; 16]).expect("room");
    let config = CacheConfig::new(catalogue::info("lru").expect("it is there"), &[50]);
    BlockCache::open(cache, backing, [2; 16], &config).expect("a cache")
}

fn read(cache: &BlockCache, page: u64, now_us: u64) {
    cache.read_tagged(page * PAGE, &mut [0; PAGE as usize], Tag { sequential: false, now_us }).expect("a read");
}

/// All recorded requests, and the number left out.
fn rest(recording: &mut Recording) -> (Vec<Noted>, u64) {
    let mut all = Vec::new();
    loop {
        let batch = recording.next(Duration::ZERO);
        if batch.requests.is_empty() {
            return (all, batch.left_out);
        }
        all.extend_from_slice(batch.requests);
    }
}

#[test]
fn every_page_is_heard_as_the_policy_is_told_of_it() {
    let cache = cache();
    read(&cache, 9, 0);
    let mut recording = cache.record().expect("nobody listens");
    assert!(cache.record().is_none(), "one at a time");
    let tag = |now_us| Tag { sequential: false, now_us };
    cache.read_tagged(PAGE + 1, &mut [0; 2 * PAGE as usize], tag(5)).expect("a read");
    cache.write_tagged(0, &[1; PAGE as usize + 1], tag(6)).expect("a write");
    cache.write_tagged(300 * PAGE, &[1; 100], Tag { sequential: true, now_us: 7 }).expect("all of the short last page");
    assert!(cache.read_tagged(301 * PAGE, &mut [0], tag(8)).is_err(), "what is refused is not heard");
    cache.flush().expect("a flush");
    let noted = |time_us, page, op, sequential, first| Noted { time_us, page, op, sequential, first };
    let expected = vec![
        noted(5, 1, Op::Read, false, true),
        noted(5, 2, Op::Read, true, false),
        noted(5, 3, Op::Read, true, false),
        noted(6, 0, Op::Write, false, true),
        noted(6, 1, Op::Update, true, false),
        noted(7, 300, Op::Write, true, true),
    ];
    assert_eq!(rest(&mut recording), (expected, 0));
    read(&cache, 1, 9);
    // A read that succeeds at once counts like any other; one that does not is not recorded.
    cache.write_tagged(PAGE, &[1; 2 * PAGE as usize], tag(10)).expect("a write");
    assert!(cache.read_now_tagged(PAGE, &mut [0; 2 * PAGE as usize], tag(11)), "it lies in memory yet");
    assert!(!cache.read_now_tagged(200 * PAGE, &mut [0; PAGE as usize], tag(12)));
    recording.stop();
    read(&cache, 2, 13);
    let expected = vec![
        noted(9, 1, Op::Read, false, true),
        noted(10, 1, Op::Write, false, true),
        noted(10, 2, Op::Write, true, false),
        noted(11, 1, Op::Read, false, true),
        noted(11, 2, Op::Read, true, false),
    ];
    assert_eq!(rest(&mut recording), (expected, 0));
    drop(recording);
    assert!(cache.record().is_some(), "the next may listen");
}

#[test]
fn who_does_not_listen_in_time_misses_a_counted_number_and_hears_the_rest_in_order() {
    let cache = cache();
    let mut recording = cache.record().expect("nobody listens");
    let (more, later) = (1234, 77);
    (0..BEHIND + more).for_each(|at| read(&cache, at % 300, at));
    // Requests that come while the ring is full are left out; then there is space again.
    let (heard, left_out) = rest(&mut recording);
    assert_eq!((heard.len() as u64, left_out), (BEHIND, more));
    assert!(heard.iter().zip(0..).all(|(noted, at)| noted.time_us == at && noted.page == at % 300));
    (0..later).for_each(|at| read(&cache, 7, BEHIND + more + at));
    let (heard, left_out) = rest(&mut recording);
    assert_eq!((heard.len() as u64, left_out), (later, more));
    assert_eq!(heard[0].time_us, BEHIND + more);
}

#[test]
fn of_many_threads_each_is_heard_in_its_own_order() {
    let cache = cache();
    let mut recording = cache.record().expect("nobody listens");
    const THREADS: u64 = 4;
    const EACH: u64 = 20_000;
    let mut heard = Vec::new();
    let mut left_out = 0;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let cache = &cache;
            scope.spawn(move || (0..EACH).for_each(|at| read(cache, thread * 10 + at % 10, at)));
        }
        while (heard.len() as u64) + left_out < THREADS * EACH {
            let batch = recording.next(Duration::from_millis(1));
            heard.extend_from_slice(batch.requests);
            left_out = batch.left_out;
        }
    });
    println!("{} heard, {left_out} left out", heard.len());
    for thread in 0..THREADS {
        let own: Vec<&Noted> = heard.iter().filter(|noted| noted.page / 10 == thread).collect();
        assert!(own.windows(2).all(|pair| pair[0].time_us < pair[1].time_us));
        assert!(own.iter().all(|noted| noted.page % 10 == noted.time_us % 10));
    }
    assert_eq!(cache.stats().expect("counts").counts.reads, THREADS * EACH);
}
