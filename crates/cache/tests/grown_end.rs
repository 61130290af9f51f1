//! The page that an old end cut off: a backing store grew, and the power goes at any write or sync of the next
//! start, or of the requests after it. Before the old end are the cache's bytes. Behind it are those of the
//! backing store, until they are written.

use entresol_cache::Block;
use entresol_cache::{BlockCache, CacheConfig, Maintenance};
use entresol_crashtest::{Power, SimDisk};
use entresol_disk::Disk;
use entresol_policy::catalogue;
use entresol_store::{Geometry, Layout};

const PAGE: u64 = 1024;
const PAGES: u64 = 21;
const ID: [u8; 16] = [4; 16];
/// Byte that the backing store has behind its old end.
const BEHIND: u8 = 0xEE;
/// Byte that is written there after the start.
const WRITTEN: u8 = 0x77;
/// Crashes at each write or sync.
const CRASHES: u64 = 3;

/// End of the cache before the backing store grew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Closed,
    Drained,
    Killed,
    PowerLost,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    layout: Layout,
    before: Before,
    /// Bytes of the backing store when the cache was formatted, and when it is opened again.
    sizes: [u64; 2],
}

struct Stage {
    power: Power,
    disks: [SimDisk; 2],
    case: Case,
}

/// The byte that the cache has before the old end.
fn cached(at: u64) -> u8 {
    1 + (at / PAGE) as u8
}

impl Stage {
    /// A cache with every page of a backing store that has grown since.
    fn new(case: Case) -> Self {
        let geometry = Geometry { page_bytes: PAGE as u32, segment_pages: 8, segments: 40, layout: case.layout };
        let power = Power::steady();
        let [old, new] = case.sizes;
        let disks = [SimDisk::new(geometry.size_bytes(), &power), SimDisk::new(old, &power)];
        BlockCache::format(&disks[0], geometry, &disks[1], [1; 16], ID).expect("room");
        let stage = Stage { power, disks, case };
        let cache = stage.open().expect("a cache in order");
        for page in 0..PAGES {
            let bytes = vec![cached(page * PAGE); PAGE.min(old - page * PAGE) as usize];
            cache.write(page * PAGE, &bytes, false).expect("a write");
        }
        cache.flush().expect("a flush");
        match case.before {
            Before::Closed => cache.close().expect("a close"),
            Before::Drained => cache.drain().and_then(|()| cache.close()).expect("a drain"),
            Before::Killed | Before::PowerLost => {}
        }
        drop(cache);
        if case.before == Before::PowerLost {
            stage.lose_power(1);
        }
        let backing = &stage.disks[1];
        backing.grow(new).expect("room");
        backing.write_at(old, &vec![BEHIND; (new - old) as usize]).expect("a write");
        backing.sync().expect("a sync");
        stage
    }

    fn open(&self) -> Result<BlockCache, String> {
        let policy = catalogue::info("lru").expect("a policy");
        let config = CacheConfig { maintenance: Maintenance::Requests, ..CacheConfig::new(policy, &[30]) };
        let [cache, backing] = &self.disks;
        BlockCache::open(cache.clone(), backing.clone(), ID, &config).map_err(|error| error.to_string())
    }

    fn lose_power(&self, seed: u64) {
        self.disks.iter().zip([seed, !seed]).for_each(|(disk, seed)| disk.crash(seed));
        self.power.restore();
    }

    /// Range of bytes from the old end to the end of the page that it cut off, or to the new end if that comes first.
    fn behind(&self) -> std::ops::Range<u64> {
        let [old, new] = self.case.sizes;
        old..old.next_multiple_of(PAGE).min(new)
    }

    /// Starts, and writes behind the old end. Returns whether the write became durable.
    fn live(&self) -> bool {
        let Ok(cache) = self.open() else { return false };
        let behind = self.behind();
        let bytes = vec![WRITTEN; (behind.end - behind.start) as usize];
        cache.write(behind.start, &bytes, false).is_ok() && cache.flush().is_ok()
    }

    /// Checks all bytes as read. `written` has the bytes allowed behind the old end in its page.
    fn check(&self, read: impl Fn(&mut [u8]), written: &[u8]) -> Result<(), String> {
        let [old, new] = self.case.sizes;
        let mut bytes = vec![0; new as usize];
        read(&mut bytes);
        let behind = self.behind();
        let first = bytes[behind.start as usize];
        for (at, &byte) in (0..).zip(&bytes) {
            let right = match at {
                _ if at < old => byte == cached(at),
                _ if behind.contains(&at) => written.contains(&byte) && byte == first,
                _ => byte == BEHIND,
            };
            if !right {
                return Err(format!("byte {at} is {byte}; the old end was {old}, and behind it may be {written:?}"));
            }
        }
        Ok(())
    }

    /// Cuts the power after so many writes and syncs from here on, and checks the next start.
    fn crash_at(&self, at: u64, seed: u64) -> Result<(), String> {
        self.power.fail_after(at);
        let durable = self.live();
        self.lose_power(seed);
        let written: &[u8] = if durable { &[WRITTEN] } else { &[BEHIND, WRITTEN] };
        let cache = self.open()?;
        self.check(|bytes| cache.read(0, bytes).expect("a read"), written)?;
        let mut now = [0];
        cache.read(self.behind().start, &mut now).expect("a read");
        // A version once read stays, after a kill and in the backing store alone.
        drop(cache);
        let cache = self.open()?;
        self.check(|bytes| cache.read(0, bytes).expect("a read"), &now)?;
        cache.drain().and_then(|()| cache.close()).map_err(|error| error.to_string())?;
        self.check(|bytes| self.disks[1].read_at(0, bytes).expect("a read"), &now)
    }
}

#[test]
fn a_crash_while_a_grown_backing_store_is_taken_note_of_neither_loses_nor_makes_up_bytes() {
    // Ends within the last page, at its end, and far behind it.
    let end = (PAGES - 1) * PAGE;
    let sizes = [[end + 300, end + 700], [end + 512, end + PAGE], [end + 512, end + 5 * PAGE + 100]];
    let mut crashes = 0;
    for layout in [Layout::Log, Layout::Slots] {
        for before in [Before::Closed, Before::Drained, Before::Killed, Before::PowerLost] {
            for sizes in sizes {
                let case = Case { layout, before, sizes };
                let whole = Stage::new(case);
                let begun = whole.power.operations();
                assert!(whole.live(), "{case:?}: without a crash");
                let operations = whole.power.operations() - begun;
                for at in 1..=operations {
                    for seed in 0..CRASHES {
                        let crashed = Stage::new(case).crash_at(at, seed);
                        crashed.unwrap_or_else(|why| panic!("{case:?}, I/O {at} of {operations}, seed {seed}: {why}"));
                        crashes += 1;
                    }
                }
            }
        }
    }
    println!("{crashes} crashes");
    assert!(crashes > 500, "{crashes} crashes");
}
