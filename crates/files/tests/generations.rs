//! A cache, its backing store and its record, with the power cut after every durable write of an open, a minute, a
//! drain and a close. The right cache is always accepted; a copy older than the last generation never is.

use entresol_cache::Block;
use entresol_cache::{BlockCache, CacheConfig, CacheError, Maintenance, Objects};
use entresol_core::Random;
use entresol_crashtest::{Fault, Power, SimDisk};
use entresol_disk::Disk;
use entresol_files::record::{Mismatch, Pairing, Record, RecordPlace};
use entresol_policy::catalogue;
use entresol_store::{Geometry, Layout};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const PAGE: u64 = 1024;
const PAGES: u64 = 30;
const UUID: [u8; 16] = [1; 16];
const BACKING: [u8; 16] = [5; 16];
const SEED: u64 = 7;
/// Kinds of crash: of the process alone (none), or of the machine with these seeds.
const CRASHES: [Option<u64>; 4] = [None, Some(0), Some(1), Some(3)];

/// Unique nonces; their values do not matter.
fn nonce() -> io::Result<u64> {
    static NEXT: AtomicU64 = AtomicU64::new(SEED);
    Ok(Random::mix(NEXT.fetch_add(1, Ordering::Relaxed)))
}

/// Location of a record on a failing disk. The later whole one of two slots counts, so a write happens as a whole or
/// not at all, as a file system's journal ensures for an attribute.
struct Place {
    disk: SimDisk,
    /// The next write is durable and reported as failed.
    lies: AtomicBool,
}

const SLOT: u64 = 4096;

impl Place {
    fn slots(&self) -> io::Result<[Option<(u64, Record)>; 2]> {
        let mut found = [None, None];
        for (slot, found) in [0, SLOT].into_iter().zip(&mut found) {
            let mut bytes = [0; 512];
            self.disk.read_at(slot, &mut bytes)?;
            let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
            // The slot lies in one sector, which is written as a whole.
            if number(0) > 0 {
                let record = Record::decode(&bytes[16..16 + number(8) as usize]).expect("a whole record");
                *found = Some((number(0), record));
            }
        }
        Ok(found)
    }
}

impl RecordPlace for Place {
    fn read(&self) -> io::Result<Option<Record>> {
        let slots = self.slots()?;
        Ok(slots.into_iter().flatten().max_by_key(|(number, _)| *number).map(|(_, record)| record))
    }

    fn write(&self, record: &Record) -> io::Result<()> {
        let numbers = self.slots()?.map(|slot| slot.map_or(0, |(number, _)| number));
        let older = u64::from(numbers[1] < numbers[0]);
        let next = numbers[0].max(numbers[1]) + 1;
        let record = record.encode();
        let mut bytes = vec![0; 512];
        bytes[..8].copy_from_slice(&next.to_le_bytes());
        bytes[8..16].copy_from_slice(&(record.len() as u64).to_le_bytes());
        bytes[16..16 + record.len()].copy_from_slice(&record);
        self.disk.write_at(older * SLOT, &bytes)?;
        self.disk.sync()?;
        if self.lies.swap(false, Ordering::Relaxed) {
            Err(io::Error::other("it is said to have failed"))
        } else {
            Ok(())
        }
    }

    fn clear(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn volume(&self) -> io::Result<Option<[u8; 16]>> {
        Ok(None)
    }

    fn name(&self) -> String {
        "a simulated disk".to_owned()
    }
}

/// Reason why an operation failed.
#[derive(Debug)]
enum Error {
    Refused(Mismatch),
    #[allow(dead_code, reason = "a panic prints it")]
    Failed(String),
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Error::Failed(error.to_string())
    }
}

impl From<CacheError> for Error {
    fn from(error: CacheError) -> Self {
        Error::Failed(error.to_string())
    }
}

struct Testbed {
    power: Power,
    cache: SimDisk,
    backing: SimDisk,
    place: Place,
}

/// Contents of all disks at one time.
#[derive(Clone)]
struct Moment {
    cache: Vec<u8>,
    backing: Vec<u8>,
    place: Vec<u8>,
}

/// A cache in use.
struct Live {
    cache: BlockCache,
    pairing: Pairing,
}

impl Testbed {
    fn formatted(layout: Layout) -> Self {
        let geometry = Geometry { page_bytes: PAGE as u32, segment_pages: 8, segments: 40, layout };
        let power = Power::steady();
        let cache = SimDisk::new(geometry.size_bytes(), &power);
        let backing = SimDisk::new(PAGES * PAGE, &power);
        let place = Place { disk: SimDisk::new(2 * SLOT, &power), lies: AtomicBool::new(false) };
        let record = Record::first(UUID, None, None);
        BlockCache::format_of(&cache, geometry, &backing, UUID, BACKING, record.generation).expect("room");
        place.write(&record).expect("a record");
        Testbed { power, cache, backing, place }
    }

    /// Opens a cache as every front-end does.
    fn open(&self) -> Result<Live, Error> {
        let config = CacheConfig {
            maintenance: Maintenance::Requests,
            ..CacheConfig::new(catalogue::info("lru").expect("a policy"), &[40])
        };
        let (cache, backing) = (self.cache.clone(), self.backing.clone());
        let mut opening = BlockCache::find(cache, backing, BACKING, &config, Objects::new(1))?;
        let pairing = Pairing::find(&opening, self.place.read()?, None, false).map_err(Error::Refused)?;
        let pairing = pairing.with_nonces(nonce);
        let next = pairing.propose(&mut opening, false, |record| self.place.write(record))?;
        let next = next.expect("a cache that keeps generations");
        let (cache, ()) = opening.start(|| Ok::<_, Error>(self.place.write(&next)?))?;
        pairing.begun(&cache)?;
        Ok(Live { cache, pairing })
    }

    fn moment(&self) -> Moment {
        Moment { cache: self.cache.copy(), backing: self.backing.copy(), place: self.place.disk.copy() }
    }

    /// Puts the cache of one time in front of the backing store of another.
    fn put(&self, cache: &Moment, below: &Moment) {
        self.cache.put_back(&cache.cache);
        self.backing.put_back(&below.backing);
        self.place.disk.put_back(&below.place);
    }

    fn crash(&self, how: Option<u64>) {
        self.power.restore();
        if let Some(seed) = how {
            self.cache.crash(seed);
            self.backing.crash(seed ^ 1);
            self.place.disk.crash(seed ^ 2);
        }
    }

    /// A run from an open to a close: writes, a minute, more writes, a drain.
    fn run(&self, version: u8) -> Result<(), Error> {
        let live = self.open()?;
        for page in 0..6 {
            live.cache.write(page * PAGE, &[version; PAGE as usize], false)?;
        }
        live.cache.flush()?;
        self.raise(&live)?;
        live.cache.write(7 * PAGE, &[version; PAGE as usize], false)?;
        live.cache.drain()?;
        self.raise(&live)?;
        live.cache.write(8 * PAGE, &[version; PAGE as usize], false)?;
        self.raise(&live)?;
        live.cache.close()?;
        live.pairing.mark(&live.cache, &self.place, live.cache.stats()?.dirty_pages == 0)?;
        Ok(())
    }

    fn raise(&self, live: &Live) -> Result<(), Error> {
        Ok(live.pairing.raise(&live.cache, &self.place)?)
    }

    fn refuses(&self, cache: &Moment, below: &Moment, expected: fn(&Mismatch) -> bool) -> Result<(), String> {
        self.put(cache, below);
        match self.open() {
            Err(Error::Refused(why)) if expected(&why) => Ok(()),
            Err(why) => Err(format!("{why:?}")),
            Ok(_) => Err("it is accepted".to_owned()),
        }
    }
}

fn is_older(why: &Mismatch) -> bool {
    matches!(why, Mismatch::Older { .. })
}

fn is_newer(why: &Mismatch) -> bool {
    matches!(why, Mismatch::Newer { .. })
}

/// Opens the state that a crash of a run left: with the power cut at every point of the open, and then without a cut.
/// After that all earlier states are refused as old.
fn survives(testbed: &Testbed, before: &Moment, what: &str) {
    let left = testbed.moment();
    for cut in 1.. {
        let mut done = false;
        for how in CRASHES {
            testbed.put(&left, &left);
            testbed.power.fail_after(cut);
            done = testbed.open().is_ok();
            testbed.crash(how);
            testbed.open().unwrap_or_else(|why| panic!("{what}, then an open cut at {cut}, {how:?}: {why:?}"));
        }
        if done {
            break;
        }
    }
    testbed.put(&left, &left);
    // A run ends with its close; after two of them the cache knows no generation from the crash any more.
    testbed.run(3).unwrap_or_else(|why| panic!("{what}: {why:?}"));
    let now = testbed.moment();
    for (name, old) in [("before the life", before), ("of the crash", &left)] {
        testbed.refuses(old, &now, is_older).unwrap_or_else(|why| panic!("{what}, the cache {name}: {why}"));
        testbed.refuses(&now, old, is_newer).unwrap_or_else(|why| panic!("{what}, the backing store {name}: {why}"));
    }
    testbed.put(&now, &now);
    testbed.open().unwrap_or_else(|why| panic!("{what}: the right ones are refused: {why:?}"));
}

#[test]
fn the_right_cache_is_accepted_and_an_old_copy_refused_whatever_a_crash_cuts_short() {
    println!("seed {SEED}");
    for layout in [Layout::Log, Layout::Slots] {
        let testbed = Testbed::formatted(layout);
        testbed.run(1).expect("a life");
        let before = testbed.moment();
        let mut cuts = 0;
        for cut in 1.. {
            let mut done = false;
            for how in CRASHES {
                testbed.put(&before, &before);
                testbed.power.fail_after(cut);
                done = testbed.run(2).is_ok();
                testbed.crash(how);
                survives(&testbed, &before, &format!("{layout:?}, a life cut at {cut}, {how:?}"));
            }
            if done {
                break;
            }
            cuts = cut;
        }
        assert!(cuts > 40, "{layout:?}: {cuts} durable writes");
    }
}

/// The next open reads data that a kill left in the kernel's memory only. A power failure during that open may remove
/// it.
#[test]
fn what_is_only_in_memory_after_a_kill_is_not_relied_on() {
    let testbed = Testbed::formatted(Layout::Log);
    testbed.run(1).expect("a life");
    let before = testbed.moment();
    for cut in 1.. {
        let mut done = false;
        for (cut_again, seed) in (1..12).flat_map(|again| [0, 1, 3].map(|seed| (again, seed))) {
            testbed.put(&before, &before);
            testbed.power.fail_after(cut);
            done = testbed.run(2).is_ok();
            // The process alone: all written bytes are read, synced or not.
            testbed.power.fail_after(cut_again);
            let _cut_short = testbed.open();
            testbed.crash(Some(seed));
            let what = format!("a life killed at {cut}, then power lost at {cut_again} of the open, seed {seed}");
            testbed.open().unwrap_or_else(|why| panic!("{what}: {why:?}"));
        }
        if done {
            break;
        }
    }
}

#[test]
fn a_record_whose_write_failed_is_written_again_before_another_is_proposed() {
    for (lies, how) in [(false, None), (true, None), (false, Some(3)), (true, Some(3))] {
        // The two stay a pair, also during the next attempt, wherever it ends.
        for cut in 0.. {
            let testbed = Testbed::formatted(Layout::Log);
            let live = testbed.open().expect("a cache in order");
            if lies {
                testbed.place.lies.store(true, Ordering::Relaxed);
            } else {
                testbed.place.disk.inject(Fault::SyncError);
            }
            testbed.raise(&live).expect_err("the record is not written");
            let mut raised = false;
            if cut > 0 {
                testbed.power.fail_after(cut);
                raised = testbed.raise(&live).is_ok();
            }
            testbed.crash(how);
            testbed.open().unwrap_or_else(|why| panic!("lies {lies}, {how:?}, cut at {cut}: {why:?}"));
            if raised {
                assert!(cut > 6, "{cut} durable writes");
                break;
            }
        }
    }
}

#[test]
fn what_goes_on_apart_is_no_pair_and_a_lost_or_foreign_record_neither() {
    let testbed = Testbed::formatted(Layout::Log);
    testbed.run(1).expect("a life");
    let start = testbed.moment();
    testbed.run(2).expect("a life");
    let one = testbed.moment();
    testbed.put(&start, &start);
    testbed.run(3).expect("a life");
    let other = testbed.moment();
    testbed.refuses(&one, &other, |why| matches!(why, Mismatch::Parted(_))).expect("two lives of one cache");
    let none = Moment { place: vec![0; 2 * SLOT as usize], ..one.clone() };
    testbed.refuses(&one, &none, |why| matches!(why, Mismatch::NoRecord(_))).expect("a record that is lost");
    testbed.put(&one, &one);
    let record = testbed.place.read().expect("a place").expect("a record");
    testbed.place.write(&Record { cache: [2; 16], ..record }).expect("a record");
    let foreign = testbed.moment();
    testbed.refuses(&one, &foreign, |why| matches!(why, Mismatch::Foreign { .. })).expect("another cache's record");
}

/// A raise costs two syncs of the cache device and one of the record; nothing else costs any.
#[test]
fn generations_cost_three_syncs_each_and_nothing_in_between() {
    let testbed = Testbed::formatted(Layout::Log);
    let live = testbed.open().expect("a cache in order");
    let syncs = || [testbed.cache.counts()[2], testbed.place.disk.counts()[2]];
    let before = syncs();
    for version in 0..20 {
        live.cache.write(0, &[version; PAGE as usize], false).expect("a write");
        live.cache.flush().expect("a flush");
    }
    let flushed = syncs();
    assert_eq!([flushed[0] - before[0], flushed[1] - before[1]], [20, 0], "one a flush, and none of the record");
    testbed.raise(&live).expect("a raise");
    let raised = syncs();
    assert_eq!([raised[0] - flushed[0], raised[1] - flushed[1]], [2, 1]);
    assert_eq!(live.pairing.writes(), 2, "at the open and now");
}

/// A cache whose format ended before its record was written is not taken for one that lost its record.
#[test]
fn a_cache_whose_record_was_never_written_is_taken() {
    let testbed = Testbed::formatted(Layout::Log);
    let made = testbed.moment();
    let unwritten = Moment { place: vec![0; 2 * SLOT as usize], ..made.clone() };
    testbed.put(&made, &unwritten);
    testbed.run(1).expect("a life");
    // From then on the cache knows that there was a record.
    testbed
        .refuses(&testbed.moment(), &unwritten, |why| matches!(why, Mismatch::NoRecord(_)))
        .expect("a record that is lost");
}
