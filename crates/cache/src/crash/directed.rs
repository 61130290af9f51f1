//! Scenes that occur in one of a hundred thousand random runs, or never with one thread: each by itself.

pub(super) mod killed;

use crate::Block;
use crate::{BlockCache, CacheConfig, Maintenance, Mode, Objects, Opening};
use entresol_core::Random;
use entresol_crashtest::{Fault, Power, SimDisk};
use entresol_disk::Disk;
use entresol_policy::{Options, catalogue};
use entresol_store::{Generation, Geometry, Identity, Layout, format_before};
use std::io;
use std::sync::{Arc, Mutex};

const PAGE: u64 = 1024;
const ID: [u8; 16] = [5; 16];
/// The first byte of the first segment in a store of version 2.
const BASE_BEFORE: u64 = 8192;

fn config(policy: &str, mode: Mode, tiers: &[usize]) -> CacheConfig {
    let policy = catalogue::info(policy).expect("a policy");
    CacheConfig { mode, maintenance: Maintenance::Hand, ..CacheConfig::new(policy, tiers) }
}

/// A formatted cache of some segments, and its backing store.
fn formatted(layout: Layout, backing_pages: u64) -> [SimDisk; 2] {
    formatted_on(&Power::steady(), layout, backing_pages)
}

/// A formatted cache and its backing store, on this power supply.
fn formatted_on(power: &Power, layout: Layout, backing_pages: u64) -> [SimDisk; 2] {
    // Where pages are copied to empty segments, a quarter of the blocks stays free.
    let segments = if layout == Layout::Segments { 48 } else { 40 };
    let geometry = Geometry { page_bytes: PAGE as u32, segment_pages: 8, segments, layout };
    let disks = [SimDisk::new(geometry.size_bytes(), power), SimDisk::new(backing_pages * PAGE, power)];
    BlockCache::format_of(&disks[0], geometry, &disks[1], [1; 16], ID, generation(1)).expect("room");
    disks
}

/// A log of version 2, and its backing store.
fn formatted_before(backing_pages: u64) -> [SimDisk; 2] {
    let geometry = Geometry { page_bytes: PAGE as u32, segment_pages: 16, segments: 40, layout: Layout::Log };
    let power = Power::steady();
    let disks = [SimDisk::new(geometry.size_bytes(), &power), SimDisk::new(backing_pages * PAGE, &power)];
    let identity = Identity { uuid: [1; 16], backing: ID, backing_pages, backing_bytes: 0 };
    format_before(&disks[0], geometry, identity).expect("room");
    disks
}

fn generation(number: u64) -> Generation {
    Generation { number, nonce: Random::mix(number) }
}

fn find([cache, backing]: &[SimDisk; 2], config: &CacheConfig) -> Result<Opening, String> {
    let found = BlockCache::find(cache.clone(), backing.clone(), ID, config, Objects::new(1));
    found.map_err(|error| format!("opening: {error}"))
}

fn open(disks: &[SimDisk; 2], config: &CacheConfig) -> Result<BlockCache, String> {
    let started = find(disks, config)?.start(|| Ok::<_, crate::CacheError>(()));
    started.map(|(cache, ())| cache).map_err(|error| format!("opening: {error}"))
}

fn page(cache: &BlockCache, page: u64) -> Result<u8, String> {
    let mut bytes = [0; PAGE as usize];
    cache.read(page * PAGE, &mut bytes).map_err(|error| format!("reading page {page}: {error}"))?;
    let first = bytes[0];
    if bytes == [first; PAGE as usize] { Ok(first) } else { Err(format!("page {page} is torn")) }
}

fn write(cache: &BlockCache, page: u64, version: u8) -> Result<(), String> {
    let written = cache.write(page * PAGE, &[version; PAGE as usize], false);
    written.map_err(|error| format!("writing page {page}: {error}"))
}

fn text(what: &'static str) -> impl Fn(io::Error) -> String {
    move |error| format!("{what}: {error}")
}

/// Reclaim ahead of need drops clean copies before the device is notified. A crash before that brings the copies
/// back: pages written meanwhile must not be below by then (rule 3).
pub(super) fn dropped_copies_are_not_older_than_what_is_below() -> Result<(), String> {
    const PAGES: u64 = 600;
    let mut written = 0;
    for seed in 0..20 {
        let disks = formatted(Layout::Log, PAGES);
        let cache = open(&disks, &config("lru", Mode::WriteAround, &[16]))?;
        let held = || cache.held_pages().map_err(text("a list"));
        let mut now = vec![(0, false)];
        for next in 0..PAGES {
            page(&cache, next)?;
            cache.flush().map_err(text("a flush"))?;
            let before = std::mem::replace(&mut now, held()?);
            cache.step().map_err(text("maintenance"))?;
            now = held()?;
            if before.contains(&(0, false)) && !now.contains(&(0, false)) {
                break;
            }
        }
        // Enough for the maintenance threads to write some below.
        for next in 0..16 {
            write(&cache, next, 1)?;
        }
        cache.step().map_err(text("maintenance"))?;
        written += cache.stats().map_err(text("counts"))?.write_back.below_pages;
        drop(cache);
        disks[0].crash(seed);
        disks[1].crash(!seed);
        // With capacity for all recovered copies, each is served.
        let cache = open(&disks, &config("lru", Mode::WriteAround, &[160]))?;
        for (held, dirty) in cache.held_pages().map_err(text("a list"))? {
            let found = page(&cache, held)?;
            let mut below = [0; PAGE as usize];
            disks[1].read_at(held * PAGE, &mut below).map_err(text("a read"))?;
            if !dirty && below != [found; PAGE as usize] {
                return Err(format!("seed {seed}: page {held} is held as clean and is not what is below"));
            }
        }
    }
    if written == 0 { Err("nothing was written below".to_owned()) } else { Ok(()) }
}

/// An event, which is repeated as long as it returns true.
type Event = Arc<Mutex<Option<Box<dyn FnMut() -> bool + Send>>>>;

/// A call of a disk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    Write,
    Sync,
}

/// A disk with an event before its next write, or after its next sync.
struct Meanwhile {
    disk: SimDisk,
    at: Call,
    event: Event,
}

impl Meanwhile {
    fn happen(&self, at: Call) {
        let event = if at == self.at { self.event.lock().expect("nobody panics").take() } else { None };
        if let Some(mut event) = event
            && event()
        {
            *self.event.lock().expect("nobody panics") = Some(event);
        }
    }
}

impl Disk for Meanwhile {
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.disk.read_at(at, bytes)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.happen(Call::Write);
        self.disk.write_at(at, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.sync()?;
        self.happen(Call::Sync);
        Ok(())
    }

    fn discard(&self, at: u64, bytes: u64) -> io::Result<()> {
        self.disk.discard(at, bytes)
    }
}

/// A read during a flush's sync of the store caches a page that bypassed it, behind the durable end.
pub(super) fn a_flush_covers_what_is_cached_again_meanwhile(layout: Layout) -> Result<(), String> {
    let disks = formatted(layout, 64);
    let event = Event::default();
    let device = Meanwhile { disk: disks[0].clone(), at: Call::Sync, event: Arc::clone(&event) };
    let around = config("lru", Mode::WriteAround, &[4]);
    let opened = BlockCache::open(device, disks[1].clone(), ID, &around);
    let cache = Arc::new(opened.map_err(|error| format!("opening: {error}"))?);
    // The page is read back before it is durable below, so it is entered as dirty. Then the policy evicts it.
    write(&cache, 0, 1)?;
    for other in 0..5 {
        page(&cache, other)?;
    }
    write(&cache, 0, 2)?;
    cache.set_mode(Mode::WriteBack).map_err(text("a mode"))?;
    let other = Arc::clone(&cache);
    let again = move || {
        page(&other, 0).expect("a read during the sync");
        false
    };
    *event.lock().expect("nobody panics") = Some(Box::new(again));
    cache.flush().map_err(text("a flush"))?;
    drop(cache);
    for seed in 0..20 {
        disks[0].crash(seed);
        disks[1].crash(seed);
    }
    match page(&open(&disks, &config("lru", Mode::WriteBack, &[4]))?, 0)? {
        2 => Ok(()),
        older => Err(format!("version {older} after a crash, and 2 was flushed")),
    }
}

/// Segments that one sync makes durable and obsolete at once, in the smallest cache: soon no other is free. Until a durable
/// block states that sync, a start after a crash checks the batches that it covered. It would find nothing of what was
/// flushed if their segments had been written again.
pub(super) fn segments_are_not_written_again_before_a_block_says_so() -> Result<(), String> {
    const SEGMENT: u64 = 8;
    // Less than a segment's worth is in a batch that is open, so that each write takes a slot of its own.
    const PAGES: u64 = 12;
    // Requests sync from eight unsynced segments on, or where fewer than three are free.
    const FILLED: usize = 7;
    let sized = |segments| Geometry {
        page_bytes: PAGE as u32,
        segment_pages: SEGMENT as u32,
        segments,
        layout: Layout::Segments,
    };
    let geometry = (4..).map(sized).find(|geometry| geometry.check().is_ok()).expect("a size");
    let power = Power::steady();
    let disks = [SimDisk::new(geometry.size_bytes(), &power), SimDisk::new(PAGES * PAGE, &power)];
    BlockCache::format_of(&disks[0], geometry, &disks[1], [1; 16], ID, generation(1))
        .map_err(|error| error.to_string())?;
    let event = Event::default();
    let device = Meanwhile { disk: disks[0].clone(), at: Call::Sync, event: Arc::clone(&event) };
    // Batches are written as soon as they are complete.
    let config =
        CacheConfig { maintenance: Maintenance::Requests, ..config("lru", Mode::WriteBack, &[PAGES as usize]) };
    let opened = BlockCache::open(device, disks[1].clone(), ID, &config);
    let cache = opened.map_err(|error| format!("opening: {error}"))?;
    let mut versions = [0u8; PAGES as usize];
    let mut next = (0..PAGES).cycle();
    let mut fill = || {
        for page in next.by_ref().take(SEGMENT as usize) {
            versions[page as usize] += 1;
            write(&cache, page, versions[page as usize])?;
        }
        Ok::<_, String>(versions)
    };
    let opening = disks[0].counts()[2];
    let mut flushed = [0; PAGES as usize];
    for _ in 0..FILLED {
        flushed = fill()?;
    }
    if disks[0].counts()[2] > opening {
        return Err("the device was synced before the flush".to_owned());
    }
    let image = Arc::new(Mutex::new(Vec::new()));
    let (disk, durable) = (disks[0].clone(), Arc::clone(&image));
    let synced = move || {
        *durable.lock().expect("nobody panics") = disk.copy();
        false
    };
    *event.lock().expect("nobody panics") = Some(Box::new(synced));
    cache.flush().map_err(text("a flush"))?;
    let syncs = disks[0].counts()[2];
    // The next sync makes the statement durable.
    while disks[0].counts()[2] == syncs {
        // Of all writes since the sync those of pages survive, and no block of the journal or commit record.
        let mut left = image.lock().expect("nobody panics").clone();
        for (left, now) in left.chunks_exact_mut(PAGE as usize).zip(disks[0].copy().chunks_exact(PAGE as usize)) {
            if now.iter().all(|byte| *byte == now[0]) {
                left.copy_from_slice(now);
            }
        }
        let crashed = [SimDisk::new(left.len() as u64, &Power::steady()), disks[1].fork()];
        crashed[0].put_back(&left);
        let after = open(&crashed, &config)?;
        for (at, &flushed) in flushed.iter().enumerate() {
            let found = page(&after, at as u64)?;
            if found < flushed {
                return Err(format!("page {at}: version {found} after a crash, and {flushed} was flushed"));
            }
        }
        fill()?;
    }
    Ok(())
}

/// A cache whose device failed is out of date from then on, and is not opened again.
pub(super) fn a_cache_that_was_given_up_is_not_opened_again(layout: Layout) -> Result<(), String> {
    let disks = formatted(layout, 64);
    let config = config("lru", Mode::WriteBack, &[20]);
    let cache = open(&disks, &config)?;
    for version in 1..=2 {
        (0..8).try_for_each(|page| write(&cache, page, version))?;
        if version == 1 {
            cache.flush().map_err(text("a flush"))?;
        } else {
            disks[0].inject(Fault::SyncError);
            let lost = |cache: &BlockCache| cache.lost_pages().map(|pages| pages.len()).map_err(text("a list"));
            // The failed device takes the writes that the flush was to make durable with it, and the flush says so.
            if cache.flush().is_ok() && lost(&cache)? > 0 {
                return Err(format!("a flush that lost {} pages succeeded", lost(&cache)?));
            }
        }
    }
    drop(cache);
    match open(&disks, &config) {
        Err(why) if why.contains("retired") => Ok(()),
        Err(why) => Err(why),
        Ok(cache) => Err(format!("it is opened, and page 0 is version {} of 2", page(&cache, 0)?)),
    }
}

/// A format whose second superblock is lost still counts: nothing of the former cache comes back.
pub(super) fn a_format_that_lost_its_second_superblock_counts(layout: Layout) -> Result<(), String> {
    let disks = formatted(layout, 64);
    let config = config("lru", Mode::WriteBack, &[20]);
    let cache = open(&disks, &config)?;
    (0..8).try_for_each(|page| write(&cache, page, 7))?;
    cache.flush().and_then(|()| cache.close()).map_err(text("a close"))?;
    drop(cache);
    let geometry = entresol_store::geometry(&disks[0]).map_err(|error| error.to_string())?;
    // The first superblock is written where it should be.
    disks[0].inject(Fault::Misdirected(0));
    disks[0].inject(Fault::LostWrite);
    BlockCache::format(&disks[0], geometry, &disks[1], [2; 16], ID).map_err(|error| error.to_string())?;
    let held = open(&disks, &config)?.held_pages().map_err(text("a list"))?;
    if held.is_empty() { Ok(()) } else { Err(format!("{} pages of the life before are back", held.len())) }
}

/// An older copy of the cache, or of the backing store, is detected. A copy of the same generation reads as one earlier
/// moment.
pub(super) fn an_older_copy_is_told(layout: Layout) -> Result<(), String> {
    let config = config("lru", Mode::WriteBack, &[40]);
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let disks = formatted(layout, 30);
        // The generation of the backing store, and all copies with its generation when they were made.
        let mut backing = generation(1);
        let mut copies: Vec<(Generation, Vec<u8>)> = Vec::new();
        for run in 0..4 {
            let mut opening = find(&disks, &config)?;
            if !opening.generation().is_right(backing) {
                return Err(format!("seed {seed}, life {run}: its own generation is refused"));
            }
            opening.settle_generation();
            let next = opening.generation().next(random.next_u64());
            opening.propose_generation(next);
            let started = opening.start(|| Ok::<_, crate::CacheError>(()));
            let (cache, ()) = started.map_err(|error| error.to_string())?;
            backing = next;
            cache.settle_generation().map_err(text("settling"))?;
            for _ in 0..random.below(30) {
                write(&cache, random.below(30), random.next_u64() as u8)?;
                if random.chance(0.2) {
                    cache.flush().map_err(text("a flush"))?;
                }
                if random.chance(0.1) {
                    let next = Generation { number: backing.number + 1, nonce: random.next_u64() };
                    cache.propose_generation(next).map_err(text("a proposal"))?;
                    // The power may go before anything else is written.
                    copies.push((backing, disks[0].copy()));
                    let found = find(&disks, &config)?.generation();
                    if found.pending != Some(next) {
                        return Err(format!("seed {seed}: {next:?} was proposed, and {found:?} is there"));
                    }
                    backing = next;
                    cache.settle_generation().map_err(text("settling"))?;
                }
                copies.push((backing, disks[0].copy()));
            }
            if random.chance(0.5) {
                cache.flush().and_then(|()| cache.close()).map_err(text("a close"))?;
            }
        }
        let now = disks[0].copy();
        for (then, copy) in copies {
            disks[0].put_back(&copy);
            let found = find(&disks, &config)?.generation();
            let older = then.number + 1 < backing.number;
            if found.is_right(backing) && older {
                return Err(format!("seed {seed}: a copy of {then:?} is taken for one of {backing:?}"));
            }
        }
        disks[0].put_back(&now);
        if find(&disks, &config)?.generation().is_right(generation(1)) {
            return Err(format!("seed {seed}: an older backing store is taken for the one that was left"));
        }
    }
    Ok(())
}

/// A sync that is acknowledged and keeps nothing, then a loss of power, with no write below meanwhile. All pages
/// read as one earlier moment, or the cache is refused. Returns how often either occurred.
pub(super) fn a_lost_sync_leaves_one_moment(layout: Layout) -> Result<[u64; 2], String> {
    const PAGES: u64 = 12;
    let config = config("lru", Mode::WriteBack, &[40]);
    let mut outcomes = [0; 2];
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let disks = formatted(layout, PAGES);
        let cache = open(&disks, &config)?;
        let mut moments = vec![[0; PAGES as usize]];
        let mut lose = |moments: &mut Vec<[u8; PAGES as usize]>, syncs: u64, lost: bool| -> Result<(), String> {
            for _ in 0..syncs {
                for _ in 0..1 + random.below(6) {
                    let mut next = *moments.last().expect("a moment");
                    let page = random.below(PAGES);
                    next[page as usize] = next[page as usize].wrapping_add(1);
                    write(&cache, page, next[page as usize])?;
                    moments.push(next);
                }
                if lost {
                    disks[0].inject(Fault::LostSync);
                }
                cache.flush().map_err(text("a flush"))?;
            }
            Ok(())
        };
        lose(&mut moments, 1 + seed % 7, false)?;
        let durable = moments.len() - 1;
        lose(&mut moments, 1 + seed % 3, true)?;
        drop(cache);
        disks[0].crash(seed);
        let Ok(cache) = open(&disks, &config) else {
            outcomes[1] += 1;
            continue;
        };
        let mut read = [0; PAGES as usize];
        for at in 0..PAGES {
            // A page whose CRC does not agree is an error, and listed.
            read[at as usize] = page(&cache, at).unwrap_or(u8::MAX);
        }
        let is =
            |moment: &[u8; PAGES as usize]| read.iter().zip(moment).all(|(read, is)| *read == u8::MAX || read == is);
        if !moments[durable..].iter().any(is) {
            return Err(format!("seed {seed}: {read:?} is no moment from {:?} on", moments[durable]));
        }
        outcomes[0] += 1;
    }
    Ok(outcomes)
}

/// A page bypassed the cache, waits in the queue, and is then cached anew. The new copy is lost with the cache
/// device while the backing store refuses writes. Nothing older may be read.
pub(super) fn what_waits_in_the_queue_does_not_stand_in_for_a_lost_copy(layout: Layout) -> Result<(), String> {
    let (table, other_table) = (20..24, 30..70);
    let mut lost = 0;
    for others in 0..40 {
        let disks = formatted(layout, 100);
        let mut objects = Objects::new(4);
        let numbers = [&table, &other_table].map(|pages| {
            let number = objects.add();
            objects.join(number, pages.start, pages.end - pages.start, 0);
            objects.resize(number, pages.end - pages.start);
            number
        });
        let config =
            CacheConfig { maintenance: Maintenance::Requests, ..config("table-placement", Mode::WriteBack, &[64]) };
        let cache = BlockCache::open_objects(disks[0].clone(), disks[1].clone(), ID, &config, objects)
            .map_err(|error| format!("opening: {error}"))?;
        cache.place(numbers[1]).map_err(text("placing"))?;
        write(&cache, other_table.start, 1)?;
        write(&cache, table.start, 1)?;
        cache.place(numbers[0]).map_err(text("placing"))?;
        write(&cache, table.start, 2)?;
        // With the largest numbers of pages the batch is on the device, and no longer in memory.
        other_table.clone().take(others).try_for_each(|other| write(&cache, other, 1))?;
        disks[0].vanish();
        disks[1].inject(Fault::WriteError);
        let _failed = cache.flush();
        for _ in 0..2 {
            match page(&cache, table.start) {
                Ok(2) => {}
                Ok(other) => return Err(format!("after {others} others: version {other} of 2")),
                Err(_) => lost += 1,
            }
        }
    }
    if lost == 0 { Err("the copy was never lost".to_owned()) } else { Ok(()) }
}

/// A slot added by a growth holds the remains of an epoch that lost its power, of a segment that was later
/// written elsewhere. If the first table of that segment is misread once, all pages still read as before.
pub(super) fn what_an_earlier_epoch_left_does_not_stand_in_for_a_misread_table() -> Result<(), String> {
    const SEGMENT: u64 = 8;
    let config = config("lru", Mode::WriteBack, &[100]);
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let power = Power::steady();
        let disks = formatted_on(&power, Layout::Log, 100);
        let cache = open(&disks, &config)?;
        write(&cache, 0, 1)?;
        cache.flush().map_err(text("a flush"))?;
        cache.grow(disks[0].size_bytes() + 2 * SEGMENT * PAGE).map_err(|error| format!("growing: {error}"))?;
        // The rest of the first segment, and one batch of the second: the power goes in its sync.
        let pages = SEGMENT - 3 + 1 + random.below(SEGMENT - 2);
        (1..=pages).try_for_each(|page| write(&cache, page, 1))?;
        power.fail_after(1 + random.below(3));
        let _cut = cache.flush();
        drop(cache);
        disks.iter().for_each(|disk| disk.crash(seed));
        power.restore();
        let cache = open(&disks, &config)?;
        let now: Vec<u8> = (0..40).map(|at| page(&cache, at)).collect::<Result<_, _>>()?;
        for at in (0..40).filter(|at| now[*at as usize] == 0) {
            write(&cache, at, 2)?;
            if random.chance(0.2) {
                cache.flush().map_err(text("a flush"))?;
            }
        }
        cache.flush().map_err(text("a flush"))?;
        drop(cache);
        let copy = disks[0].copy();
        for reads in 0..80 {
            disks[0].put_back(&copy);
            disks[0].misread_after(reads);
            let cache = open(&disks, &config).map_err(|why| format!("seed {seed}, read {reads} is wrong: {why}"))?;
            disks[0].heal();
            for at in 0..40 {
                let right = if now[at as usize] == 0 { 2 } else { now[at as usize] };
                let found = page(&cache, at)?;
                if found != right {
                    return Err(format!("seed {seed}, read {reads} is wrong: page {at} is {found}, not {right}"));
                }
            }
        }
    }
    Ok(())
}

/// A dirty copy kept for durability stays dirty while a newer version is on its way below (rule 4). The rule holds
/// even when a sync of the backing store makes the copy's own version durable there.
pub(super) fn a_copy_that_is_being_replaced_is_not_taken_for_clean() -> Result<(), String> {
    let mut replaced = 0;
    for seed in 0..40 {
        let disks = formatted(Layout::Log, 200);
        let cache = open(&disks, &config("lru", Mode::WriteAround, &[4]))?;
        // Version 1 goes below, among others, and no sync follows: a page read back from there counts as dirty.
        (0..12).try_for_each(|at| write(&cache, at, 1))?;
        (0..30).try_for_each(|_| cache.step()).map_err(text("maintenance"))?;
        page(&cache, 0)?;
        (100..104).try_for_each(|at| page(&cache, at).map(drop))?;
        // Version 2 waits to be written below, past that copy, which the policy does not hold any more.
        write(&cache, 0, 2)?;
        cache.settle().map_err(text("a sync below"))?;
        // The queue is written in the order of pages, from the last position on, until few are left: past the end, and
        // round.
        for first in [120, 2] {
            (first..first + 40).step_by(2).try_for_each(|at| write(&cache, at, 1))?;
            (0..30).try_for_each(|_| cache.step()).map_err(text("maintenance"))?;
        }
        drop(cache);
        disks[0].crash(seed);
        disks[1].crash(!seed);
        let mut below = [0; PAGE as usize];
        disks[1].read_at(0, &mut below).map_err(text("a read"))?;
        replaced += u64::from(below == [2; PAGE as usize]);
        // The open first writes dirty pages below: version 1 among them, for no flush promised version 2.
        let cache = open(&disks, &config("lru", Mode::WriteAround, &[40]))?;
        for (held, dirty) in cache.held_pages().map_err(text("a list"))? {
            let found = page(&cache, held)?;
            disks[1].read_at(held * PAGE, &mut below).map_err(text("a read"))?;
            if !dirty && below != [found; PAGE as usize] {
                return Err(format!("seed {seed}: page {held} is held as clean and is not what is below"));
            }
        }
    }
    if replaced == 0 { Err("version 2 was never below".to_owned()) } else { Ok(()) }
}

/// A bit rots in the second of three flushes, in a store without commit records. Later tables tell that the flush was
/// durable, so its page is an error, and does not read as an earlier version.
pub(super) fn what_lies_beyond_tells_what_was_durable() -> Result<(), String> {
    let disks = formatted_before(100);
    let cache = open(&disks, &config("lru", Mode::WriteBack, &[64]))?;
    for version in 1..4 {
        write(&cache, u64::from(version), version)?;
        write(&cache, 0, version)?;
        cache.flush().map_err(text("a flush"))?;
    }
    drop(cache);
    let copy = disks[0].copy();
    let is_it = |block: &[u8]| block == [2; PAGE as usize];
    let at = copy.chunks_exact(PAGE as usize).position(is_it).ok_or("version 2 is not on the device")?;
    disks[0].flip(at as u64 * PAGE, 0);
    let cache = open(&disks, &config("lru", Mode::WriteBack, &[64]))?;
    match (page(&cache, 0)?, page(&cache, 2), page(&cache, 3)?) {
        (3, Err(_), 3) => Ok(()),
        found => Err(format!("{found:?}, not version 3, an error and version 3")),
    }
}

/// A batch is misdirected over the durable batch before it, and nothing follows. A commit record tells of both: the
/// cache is refused, or the page is an error. Version 2 has none: its log ends before the first of the two.
pub(super) fn a_misdirected_last_batch_is_told_by_the_commit_record() -> Result<(), String> {
    let config = config("lru", Mode::WriteBack, &[64]);
    for (version, disks) in [(2, formatted_before(100)), (3, formatted(Layout::Log, 100))] {
        let cache = open(&disks, &config)?;
        for version in 1..3 {
            write(&cache, 0, version)?;
            cache.flush().map_err(text("a flush"))?;
        }
        (10..13).try_for_each(|at| write(&cache, at, 3))?;
        let positions = disks[0].size_bytes() - 4 * PAGE + 1;
        disks[0].inject(Fault::Misdirected(positions - 2 * PAGE));
        cache.flush().map_err(text("a flush"))?;
        let bytes = disks[0].misdirected().ok_or("no write was misdirected")?.bytes;
        drop(cache);
        let found = open(&disks, &config).and_then(|cache| page(&cache, 0));
        let is_as_documented = if version == 2 { found == Ok(1) } else { found.is_err() };
        if bytes != 4 * PAGE || !is_as_documented {
            return Err(format!("version {version}, {bytes} bytes misdirected: page 0 is {found:?}"));
        }
    }
    Ok(())
}

/// A change below of so many pages that the cache forgets them in parts, and must free space in between. Nothing
/// of a later part is written over the change.
pub(super) fn a_large_change_below_is_not_written_over(layout: Layout) -> Result<(), String> {
    const PAGES: u64 = 400;
    for (rounds, evicted) in (0..26).flat_map(|rounds| [1, 4, 7].map(move |evicted| (rounds, evicted))) {
        let disks = formatted(layout, PAGES + 200);
        let config = CacheConfig { maintenance: Maintenance::Requests, ..config("lru", Mode::WriteBack, &[160]) };
        let cache = open(&disks, &config)?;
        // The oldest are the dirty pages of the last part, then come clean pages of the first.
        (256..310).try_for_each(|at| write(&cache, at, 1))?;
        (0..100).try_for_each(|at| page(&cache, at).map(drop))?;
        // The cache fills up with versions of a few other pages.
        for _ in 0..rounds {
            (PAGES..PAGES + 6).try_for_each(|at| write(&cache, at, 1))?;
            cache.flush().map_err(text("a flush"))?;
        }
        // Some dirty pages are evicted, and wait to be written below.
        (PAGES + 6..PAGES + 6 + evicted).try_for_each(|at| page(&cache, at).map(drop))?;
        let change = || disks[1].write_at(0, &vec![9; (PAGES * PAGE) as usize]);
        cache.change_below(0, PAGES * PAGE, change).map_err(text("a change below"))?;
        cache.drain().map_err(text("a drain"))?;
        for at in 0..PAGES {
            let mut below = [0; PAGE as usize];
            disks[1].read_at(at * PAGE, &mut below).map_err(text("a read"))?;
            let found = page(&cache, at)?;
            if (found, below) != (9, [9; PAGE as usize]) {
                return Err(format!("{rounds} rounds, {evicted} left: page {at} is {found}, and {} below", below[0]));
            }
        }
    }
    Ok(())
}

/// A page of a long stream is written below, bypassing a dirty copy. Power goes at every I/O of the next flush:
/// the copy counts until its successor is durable.
pub(super) fn a_copy_that_is_written_past_counts_until_then(layout: Layout) -> Result<(), String> {
    const AT: u64 = 40;
    let config = config("lru", Mode::WriteBack, &[8]);
    for after in 0..30 {
        let power = Power::steady();
        let disks = formatted_on(&power, layout, 100);
        let cache = open(&disks, &config)?;
        write(&cache, AT, 1)?;
        cache.flush().map_err(text("a flush"))?;
        // The page leaves the cache, and the store has to keep it.
        (0..8).try_for_each(|at| page(&cache, at).map(drop))?;
        cache.set_sequential_cutoff(4 * PAGE).map_err(text("a cutoff"))?;
        (AT - 8..AT).try_for_each(|at| write(&cache, at, 1))?;
        let passed = cache.stats().map_err(text("counts"))?.counts.passed;
        write(&cache, AT, 2)?;
        if cache.stats().map_err(text("counts"))?.counts.passed == passed {
            return Err("the page went into the cache".to_owned());
        }
        power.fail_after(after);
        let flushed = cache.flush().is_ok();
        drop(cache);
        power.restore();
        disks.iter().for_each(|disk| disk.crash(after));
        let found = page(&open(&disks, &config)?, AT)?;
        if found != 2 && (found != 1 || flushed) {
            return Err(format!("power went after {after} operations of the flush: version {found}"));
        }
        if flushed {
            return Ok(());
        }
    }
    Err("no flush came to an end".to_owned())
}

/// A page is written whenever one is written below. A drain, and a change of the mode, end all the same. Writes
/// before that end are below once a flush has returned.
pub(super) fn a_drain_ends_while_pages_are_written(layout: Layout) -> Result<(), String> {
    // The cache has capacity for all pages.
    const PAGES: u64 = 50;
    type Change = fn(&BlockCache) -> io::Result<()>;
    let changes: [Change; 2] = [BlockCache::drain, |cache| cache.set_mode(Mode::WriteThrough)];
    for (change, tiers) in changes.into_iter().flat_map(|change| [(change, &[60][..]), (change, &[20, 60])]) {
        let disks = formatted(layout, PAGES);
        let event = Event::default();
        let below = Meanwhile { disk: disks[1].clone(), at: Call::Write, event: Arc::clone(&event) };
        let policy = if tiers.len() == 1 { "lru" } else { "face" };
        let config = CacheConfig { maintenance: Maintenance::Requests, ..config(policy, Mode::WriteBack, tiers) };
        let opening = BlockCache::find(disks[0].clone(), below, ID, &config, Objects::new(1));
        let started =
            opening.and_then(|opening| opening.start(|| Ok(()))).map_err(|error| format!("opening: {error}"))?;
        let cache = Arc::new(started.0);
        // So few that the pages written meanwhile fit into the queue.
        (0..6).step_by(2).try_for_each(|at| write(&cache, at, 1))?;
        let written = Arc::new(Mutex::new(10));
        let (weak, counted) = (Arc::downgrade(&cache), Arc::clone(&written));
        *event.lock().expect("nobody panics") = Some(Box::new(move || {
            let mut next = counted.lock().expect("nobody panics");
            if let Some(cache) = weak.upgrade().filter(|_| *next < PAGES) {
                write(&cache, *next, 2).expect("there is room");
                *next += 1;
            }
            true
        }));
        change(&cache).map_err(text("the change"))?;
        *event.lock().expect("nobody panics") = None;
        let written = *written.lock().expect("nobody panics");
        if written == PAGES {
            return Err("it ends when nothing more is written".to_owned());
        }
        for at in (0..6).step_by(2) {
            let mut below = [0; PAGE as usize];
            disks[1].read_at(at * PAGE, &mut below).map_err(text("a read"))?;
            if below != [1; PAGE as usize] {
                return Err(format!("page {at} is not below"));
            }
        }
        cache.drain().map_err(text("a drain"))?;
        let dirty = cache.stats().map_err(text("counts"))?.dirty_pages;
        for at in 10..written {
            let mut below = [0; PAGE as usize];
            disks[1].read_at(at * PAGE, &mut below).map_err(text("a read"))?;
            if below != [2; PAGE as usize] || dirty > 0 {
                return Err(format!("page {at} is not below, {dirty} pages are dirty"));
            }
        }
    }
    Ok(())
}

/// Another policy takes over while newer versions of pages are on their way below, bypassing dirty copies in the
/// store. These copies must not be served.
pub(super) fn a_superseded_copy_is_not_shown_to_another_policy(layout: Layout) -> Result<(), String> {
    let disks = formatted(layout, 100);
    let cache = open(&disks, &config("lru", Mode::WriteBack, &[20]))?;
    // So few that they wait in the queue when they have left the cache.
    (46..50).try_for_each(|at| write(&cache, at, 1))?;
    cache.flush().map_err(text("a flush"))?;
    (0..20).try_for_each(|at| page(&cache, at).map(drop))?;
    cache.set_sequential_cutoff(4 * PAGE).map_err(text("a cutoff"))?;
    (38..50).try_for_each(|at| write(&cache, at, 2))?;
    let arc = catalogue::info("arc").expect("a policy");
    cache.set_policy(arc, &Options::defaults(arc), &[40]).map_err(|error| format!("another policy: {error}"))?;
    (38..50).try_for_each(|at| match page(&cache, at)? {
        2 => Ok(()),
        found => Err(format!("page {at} is version {found}, not 2")),
    })
}

/// Pages in memory stay cached under another policy, unless they are written or discarded before the policy is
/// shown them.
pub(super) fn frames_are_shown_to_another_policy_unless_they_are_written(layout: Layout) -> Result<(), String> {
    let disks = formatted(layout, 100);
    let cache = open(&disks, &config("face", Mode::WriteBack, &[20, 60]))?;
    for at in 0..20 {
        if at % 2 == 0 { write(&cache, at, 1)? } else { page(&cache, at).map(drop)? }
    }
    let lc = catalogue::info("lc").expect("a policy");
    let replaced = cache.replace_policy(lc, &Options::defaults(lc), &[20, 60]);
    replaced.map_err(|error| format!("another policy: {error}"))?;
    cache.discard(4 * PAGE, 4 * PAGE).map_err(text("a discard"))?;
    let change = || disks[1].write_at(8 * PAGE, &[3; PAGE as usize]);
    cache.change_below(8 * PAGE, PAGE, change).map_err(text("a change"))?;
    // A write shows the policy some of the rest.
    (0..4).try_for_each(|at| write(&cache, at, 2))?;
    cache.show_the_rest();
    let before = cache.stats().map_err(text("counts"))?.counts.read_hits;
    for at in 0..20 {
        let expected = match at {
            0..4 => 2,
            4..8 => 0,
            8 => 3,
            _ => 1 - (at % 2) as u8,
        };
        match page(&cache, at)? {
            found if found == expected => {}
            found => return Err(format!("page {at} is version {found}, not {expected}")),
        }
    }
    match cache.stats().map_err(text("counts"))?.counts.read_hits - before {
        15.. => Ok(()),
        hits => Err(format!("{hits} of 20 pages were cached, not those 15 that were written or not touched")),
    }
}

/// A page in memory that is requested before a new policy is shown it stays where the policy put it. A copy in
/// the store that counts as cached, but that no policy holds, would keep its space for ever.
pub(super) fn a_frame_that_is_asked_for_first_is_not_shown_again(layout: Layout) -> Result<(), String> {
    let disks = formatted(layout, 100);
    let cache = open(&disks, &config("face", Mode::WriteBack, &[20, 60]))?;
    (0..20).try_for_each(|at| write(&cache, at, 1))?;
    let hibachi = catalogue::info("hibachi").expect("a policy");
    let replaced = cache.replace_policy(hibachi, &Options::defaults(hibachi), &[20, 60]);
    replaced.map_err(|error| format!("another policy: {error}"))?;
    (0..20).try_for_each(|at| page(&cache, at).map(drop))?;
    cache.show_the_rest();
    match cache.unknown_residents().map_err(text("a look"))?.as_slice() {
        [] => Ok(()),
        pages => Err(format!("pages {pages:?} count as cached in the log, and the policy does not hold them there")),
    }
}

/// A misdirected write in a store without commit records: the first table of a segment is missing, and the write
/// hits the flush before. Tables behind the missing one tell that this flush was durable. Its page is an error or
/// the cache is refused; nothing reads as an earlier version.
pub(super) fn what_is_announced_tells_what_was_durable() -> Result<(), String> {
    const SEGMENT: u64 = 16;
    // A flush of one page takes two blocks.
    const FLUSHES: u8 = SEGMENT as u8 / 2;
    let config = config("lru", Mode::WriteBack, &[64]);
    // The write hits the page of that flush, or its table.
    for back in [0, PAGE] {
        let disks = formatted_before(100);
        let cache = open(&disks, &config)?;
        for version in 1..=FLUSHES + 3 {
            if version == FLUSHES + 1 {
                let copy = disks[0].copy();
                let is_it = |block: &[u8]| block == [FLUSHES; PAGE as usize];
                let hit = copy.chunks_exact(PAGE as usize).position(is_it).ok_or("the flush is not on the device")?;
                // Two blocks back from the segment's start, round the end of the device.
                let places = disks[0].size_bytes() - 2 * PAGE + 1;
                disks[0].inject(Fault::Misdirected(places - PAGE - back));
                if (hit as u64 + 1) * PAGE != BASE_BEFORE + SEGMENT * PAGE {
                    return Err("the flush does not end its segment".to_owned());
                }
            }
            write(&cache, u64::from(version), version)?;
            cache.flush().map_err(text("a flush"))?;
        }
        drop(cache);
        let Ok(cache) = open(&disks, &config) else { continue };
        for version in 1..=FLUSHES + 3 {
            match page(&cache, u64::from(version)) {
                Ok(found) if found != version => {
                    return Err(format!("{back} bytes before: page {version} is as it was before: {found}"));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// The cache device fails while memory has a newer version of a page than the store, which can no longer be read.
/// Nothing is lost, so no flush may report a loss.
pub(super) fn an_older_copy_in_a_failed_log_is_no_loss(layout: Layout) -> Result<(), String> {
    let disks = formatted(layout, 100);
    let cache = open(&disks, &config("face", Mode::WriteBack, &[4, 40]))?;
    write(&cache, 0, 1)?;
    cache.flush().map_err(text("a flush"))?;
    write(&cache, 0, 2)?;
    disks[0].vanish();
    let has_failed = || cache.stats().map(|stats| stats.failed.is_some()).map_err(text("counts"));
    for other in 1..100 {
        // A batch of pages that left memory is to be written. Whatever its result, the cache goes on.
        let _failed = write(&cache, other, 1).and_then(|()| cache.step().map_err(text("maintenance")));
        if has_failed()? {
            break;
        }
        write(&cache, 0, 2)?;
    }
    let lost = cache.stats().map_err(text("counts"))?.write_back.pages_lost;
    match (has_failed()?, lost, cache.flush(), page(&cache, 0)?) {
        (true, 0, Ok(()), 2) => Ok(()),
        found => Err(format!("{found:?}: not failed, nothing lost, a flush and version 2")),
    }
}

/// A block of the journal rots in use, and its copy is misread once when the block is to be renewed. The copy is
/// read again, and the device stays in use.
pub(super) fn a_copy_of_a_journal_block_is_read_again() -> Result<(), String> {
    const PAGES: u64 = 60;
    const BLOCKS: u64 = 20;
    let mut renewed = 0;
    for (block, reads) in (0..BLOCKS).flat_map(|block| (0..5).map(move |reads| (block, reads))) {
        let disks = formatted(Layout::Slots, PAGES);
        let cache = open(&disks, &config("lru", Mode::WriteBack, &[PAGES as usize]))?;
        for version in 1..=200 {
            write(&cache, version % PAGES, version as u8)?;
            cache.flush().map_err(text("a flush"))?;
            // Each flush is a block.
            if version == BLOCKS + 1 {
                let copy = disks[0].copy();
                let is_of_journal = |block: &[u8]| block.starts_with(b"\x89ETJOURN");
                let first = copy.chunks_exact(PAGE as usize).position(is_of_journal).ok_or("there is no journal")?;
                disks[0].flip((first as u64 + block) * PAGE + 100, 0);
                disks[0].misread_after(reads);
            }
        }
        let stats = cache.stats().map_err(text("counts"))?;
        renewed += stats.store.renewed;
        if let Some(why) = stats.failed {
            return Err(format!("block {block}, read {reads} is wrong: {why}"));
        }
        disks[0].heal();
        for at in 0..PAGES {
            let version = (1..=200).rev().find(|version| version % PAGES == at).unwrap_or(0) as u8;
            let found = page(&cache, at)?;
            if found != version {
                return Err(format!("block {block}, read {reads} is wrong: page {at} is {found}, not {version}"));
            }
        }
    }
    if renewed == 0 { Err("nothing was renewed".to_owned()) } else { Ok(()) }
}

/// A cache killed in write-back starts in write-through. One of its pages has rotted, and a write below fails
/// once. The start writes all other pages below, or fails.
pub(super) fn a_start_in_another_mode_drains_past_a_lost_page(layout: Layout) -> Result<(), String> {
    const ROTTEN: u64 = 3;
    let disks = formatted(layout, 100);
    let cache = open(&disks, &config("lru", Mode::WriteBack, &[60]))?;
    (0..10).try_for_each(|at| write(&cache, at, at as u8 + 1))?;
    cache.flush().map_err(text("a flush"))?;
    drop(cache);
    let copy = disks[0].copy();
    let is_it = |block: &[u8]| block == [ROTTEN as u8 + 1; PAGE as usize];
    let at = copy.chunks_exact(PAGE as usize).position(is_it).ok_or("the page is not on the device")?;
    disks[0].flip(at as u64 * PAGE, 0);
    disks[1].inject(Fault::WriteError);
    let cache = open(&disks, &config("lru", Mode::WriteThrough, &[60]))?;
    if cache.lost_pages().map_err(text("a list"))? != [ROTTEN] {
        return Err("the rotten page is not listed".to_owned());
    }
    for at in (0..10).filter(|&at| at != ROTTEN) {
        let mut below = [0; PAGE as usize];
        disks[1].read_at(at * PAGE, &mut below).map_err(text("a read"))?;
        if below != [at as u8 + 1; PAGE as usize] {
            return Err(format!("page {at} is not below"));
        }
    }
    Ok(())
}

/// All directed scenes.
pub(super) fn all(layout: Layout) -> Result<(), String> {
    if layout == Layout::Log {
        dropped_copies_are_not_older_than_what_is_below()?;
    }
    if layout == Layout::Log {
        what_an_earlier_epoch_left_does_not_stand_in_for_a_misread_table()?;
        a_copy_that_is_being_replaced_is_not_taken_for_clean()?;
        what_lies_beyond_tells_what_was_durable()?;
        a_misdirected_last_batch_is_told_by_the_commit_record()?;
        what_is_announced_tells_what_was_durable()?;
    } else {
        a_copy_of_a_journal_block_is_read_again()?;
    }
    if layout == Layout::Segments {
        segments_are_not_written_again_before_a_block_says_so()?;
    }
    an_older_copy_in_a_failed_log_is_no_loss(layout)?;
    a_copy_that_is_written_past_counts_until_then(layout)?;
    a_large_change_below_is_not_written_over(layout)?;
    a_drain_ends_while_pages_are_written(layout)?;
    a_start_in_another_mode_drains_past_a_lost_page(layout)?;
    a_superseded_copy_is_not_shown_to_another_policy(layout)?;
    frames_are_shown_to_another_policy_unless_they_are_written(layout)?;
    a_frame_that_is_asked_for_first_is_not_shown_again(layout)?;
    crate::nothing_is_queued_of_what_is_made_void(layout)?;
    what_waits_in_the_queue_does_not_stand_in_for_a_lost_copy(layout)?;
    a_flush_covers_what_is_cached_again_meanwhile(layout)?;
    a_cache_that_was_given_up_is_not_opened_again(layout)?;
    a_format_that_lost_its_second_superblock_counts(layout)?;
    an_older_copy_is_told(layout)?;
    a_lost_sync_leaves_one_moment(layout).map(drop)
}
