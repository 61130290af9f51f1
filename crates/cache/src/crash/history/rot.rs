//! Rot on the cache device: one bit that flips during a run or after its end, or one write that is misdirected or lost.

use super::{BACKING, Damage, FIRST_ENTRIES_END, History, Outcome, Stop, wrong};
use crate::Block;
use crate::BlockCache;
use entresol_core::Random;
use entresol_crashtest::pages::SECTOR;
use entresol_crashtest::{Fault, Power, SimDisk};
use entresol_disk::Disk;
use entresol_store::repair;
use std::collections::BTreeSet;
use std::io;

/// Rot of the cache device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::crash) enum Rot {
    /// One bit of the device flips after the end of the run.
    Bit,
    /// One bit of the device flips during the run.
    BitInUse,
    /// One write is misdirected or lost.
    Write,
}

/// End of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::crash) enum End {
    /// The process is killed in the middle of some write or sync; the devices keep all writes.
    Kill,
    /// The power goes.
    PowerLoss,
    /// The cache is closed in good order.
    Close,
}

/// Operation on the cache after the end of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Open,
    Repair,
    Drain,
}

/// Pages of flushes that an end may have taken back.
struct Lacking {
    pages: BTreeSet<u64>,
    /// True if the pages may be torn.
    torn: bool,
    /// The cache device and the backing store as they were before a bit of the cache device flipped after the end.
    before: Option<[Vec<u8>; 2]>,
}

impl History {
    /// Runs a cache to its end with rot, and opens it. Every page must be right, or an error and listed. One bit
    /// costs at most the page that it hits.
    pub fn rot(&mut self, rot: Rot, end: End, requests: u64) -> Result<Damage, String> {
        let mut lacking =
            Lacking { pages: self.live_rotting(rot, end, requests)?, torn: end == End::PowerLoss, before: None };
        if rot == Rot::Bit {
            lacking.before = Some([self.cache.copy(), self.backing.copy()]);
            let (byte, bit) = (self.place_to_rot().map_err(|error| error.to_string())?, self.random.below(8) as u8);
            self.cache.flip(byte, bit);
        }
        let then = [Then::Open, Then::Repair, Then::Drain][self.random.below(3) as usize];
        // The loss of power may have taken the last flush's commit record, and with it the copy of its table. A store
        // of version 2 has neither.
        let may_be_refused = rot == Rot::Write || end == End::PowerLoss || self.setup.of_before;
        let refused = |why: String| if may_be_refused { Ok(Damage::Refused) } else { Err(why) };
        let mut forgotten = false;
        if then == Then::Repair {
            match repair(self.cache.clone(), BACKING, self.setup.backing_pages) {
                Ok(repaired) => forgotten = !repaired.gone.is_empty(),
                Err(why) => return refused(format!("repairing: {why}")),
            }
        }
        let cache = match self.open().map_err(wrong) {
            Ok(cache) => cache,
            Err(why) => return refused(why),
        };
        let mut lost = self.check_all(&cache, &lacking)?;
        // A page changed below, and not flushed since, reads as either version until it is written again.
        let loose: Vec<u64> = std::mem::take(&mut self.loose).into_iter().collect();
        self.write_again(&cache, &loose)?;
        if then == Then::Drain {
            lost.extend(self.drain_rotten(&cache)?);
            lost.sort_unstable();
            lost.dedup();
        }
        // In a journal without commit records one block alone states that those before it were durable. Slots that it
        // freed are given again.
        let taken_back = |page: &&u64| self.setup.of_before && self.is_of_slots() && lacking.pages.contains(page);
        if rot != Rot::Write && lost.len() > 1 && !lost.iter().all(|page| taken_back(&page)) {
            return Err(format!("one bit has cost the pages {lost:?}"));
        }
        self.write_again(&cache, &lost)?;
        cache.close().map_err(|error| format!("closing: {error}"))?;
        let clean_bad = cache.stats().expect("no thread panicked").write_back.clean_copies_bad > 0;
        drop(cache);
        // A second rot is more than one bit: another open may refuse because of damage that is not needed any more.
        match self.open().map_err(wrong) {
            Ok(cache) => {
                for page in 0..self.oracle.pages() {
                    let bytes = self.read(&cache, page).map_err(wrong)?;
                    self.oracle.check_latest(page, &bytes).map_err(|why| format!("opened again: {why}"))?;
                }
            }
            Err(why) if !may_be_refused => return Err(format!("it was opened once, and is not again: {why}")),
            Err(_) => {}
        }
        let harmless = if clean_bad || forgotten { Damage::CleanCopy } else { Damage::None };
        Ok(if lost.is_empty() { harmless } else { Damage::PageLost })
    }

    fn is_of_slots(&self) -> bool {
        self.setup.geometry.layout.has_slots()
    }

    /// A run up to its end, with rot in it unless that comes after the end. Returns the pages of the flushes that the
    /// end may have taken back.
    fn live_rotting(&mut self, rot: Rot, end: End, requests: u64) -> Result<BTreeSet<u64>, String> {
        let mut lacking = BTreeSet::new();
        if end != End::Close && self.random.chance(0.7) {
            self.power.fail_after(1 + self.random.below(1 + requests / 2));
        }
        match self.live_with(rot, end, requests) {
            Err(Stop::Wrong(why)) => return Err(why),
            Err(Stop::PowerOff) | Ok(()) => {}
        }
        let taken_back = self.flushes_taken_back();
        match end {
            End::PowerLoss => {
                self.crash();
                // The record of the last flush need not be durable. The backing store may have pages of it that the
                // store has lost.
                lacking.extend(self.oracle.may_lack_flushes(taken_back));
                self.loose.extend(&lacking);
            }
            End::Kill | End::Close => {
                self.tables.forget();
                self.power.restore();
                self.cache.heal();
                // Without commit records only later tables state how far the store was durable.
                if self.setup.of_before && end == End::Kill {
                    lacking.extend(self.oracle.may_lack_flushes(taken_back));
                    self.loose.extend(&lacking);
                }
            }
        }
        Ok(lacking)
    }

    /// Most flushes that an end may take back without a word. Without commit records the batches after a flush alone
    /// state that it was durable: a misdirected write takes back what it is written over, unless another batch
    /// followed its own sync.
    fn flushes_taken_back(&self) -> u64 {
        let misdirected = self.cache.misdirected().filter(|write| self.setup.of_before && write.syncs_after < 2);
        1 + misdirected.map_or(0, |write| write.bytes.div_ceil(self.setup.geometry.page_bytes.into()))
    }

    fn live_with(&mut self, rot: Rot, end: End, requests: u64) -> Outcome<()> {
        let cache = self.open()?;
        let at = self.random.below(requests);
        for request in 0..requests {
            if rot == Rot::Bit || request < at {
                self.step(&cache)?;
                continue;
            }
            if request == at {
                self.strike(rot).map_err(|error| self.why(error.to_string()))?;
            }
            self.step_beside_damage(&cache)?;
        }
        if end == End::Close {
            self.flush_beside_damage(&cache)?;
            self.try_io("closing", cache.close())?;
        }
        Ok(())
    }

    fn strike(&mut self, rot: Rot) -> io::Result<()> {
        match rot {
            Rot::Bit => {}
            Rot::BitInUse => {
                let byte = self.place_to_rot()?;
                self.cache.flip(byte, self.random.below(8) as u8);
            }
            Rot::Write if self.random.chance(0.5) => self.cache.inject(Fault::LostWrite),
            Rot::Write => {
                let by = self.random.below(self.cache.size_bytes() / SECTOR as u64) * SECTOR as u64;
                self.cache.inject(Fault::Misdirected(by));
            }
        }
        Ok(())
    }

    /// A read, a write or a flush. A read may fail for a page that is then listed, and so may a request that moves
    /// that page.
    fn step_beside_damage(&mut self, cache: &BlockCache) -> Outcome<()> {
        self.tally.operations += 1;
        let page_bytes = u64::from(self.setup.geometry.page_bytes);
        let page = self.some_page();
        match self.random.below(10) {
            0..4 => {
                let mut bytes = vec![0; page_bytes as usize];
                match cache.read(page * page_bytes, &mut bytes) {
                    Ok(()) => self.oracle.check_latest(page, &bytes).map_err(Stop::Wrong),
                    Err(error) => self.is_listed(cache, page, &error),
                }
            }
            4..9 => {
                let bytes = self.oracle.write(page, 0..page_bytes as usize / SECTOR);
                // A write that reports a fault of a page it displaces succeeds when it is repeated.
                let write = || cache.write(page * page_bytes, &bytes, false);
                let written = write().or_else(|_| write());
                self.try_io("writing beside damage", written)
            }
            _ => self.flush_beside_damage(cache),
        }
    }

    /// A flush. After the loss of a page it fails once, whether or not the page was written again, and succeeds when
    /// repeated.
    fn flush_beside_damage(&mut self, cache: &BlockCache) -> Outcome<()> {
        let was_one_lost = || cache.stats().expect("no thread panicked").write_back.pages_lost > 0;
        let flushed = cache.flush().or_else(|error| if was_one_lost() { cache.flush() } else { Err(error) });
        self.try_io("flushing beside damage", flushed)?;
        self.flushed();
        Ok(())
    }

    fn is_listed(&self, cache: &BlockCache, page: u64, error: &io::Error) -> Outcome<()> {
        if self.power.is_off() {
            return Err(Stop::PowerOff);
        }
        let lost = cache.lost_pages().expect("no thread panicked");
        if lost.contains(&page) {
            return Ok(());
        }
        Err(Stop::Wrong(format!("reading page {page}: {error}; lost are {lost:?}")))
    }

    /// Reads every page. Returns the lost ones, which must be listed.
    fn check_all(&mut self, cache: &BlockCache, lacking: &Lacking) -> Result<Vec<u64>, String> {
        let page_bytes = u64::from(self.setup.geometry.page_bytes);
        let mut bytes = vec![0; page_bytes as usize];
        for page in 0..self.oracle.pages() {
            match cache.read(page * page_bytes, &mut bytes) {
                Ok(()) if self.is_torn_below(page, &bytes, lacking)? => {
                    self.oracle.check_torn_after_crash(page, &bytes)?
                }
                Ok(()) => self.oracle.check_after_crash(page, &bytes)?,
                Err(error) => self.is_listed(cache, page, &error).map_err(wrong)?,
            }
        }
        Ok(cache.lost_pages().expect("no thread panicked"))
    }

    /// True if a page was torn below when the power went, and was whole until its copy in the store rotted. After a
    /// flush whose record is not durable, such rot looks like power that went before the flush's sync: then
    /// nothing of it is below.
    fn is_torn_below(&self, page: u64, bytes: &[u8], lacking: &Lacking) -> Result<bool, String> {
        let may_be = lacking.torn && lacking.pages.contains(&page);
        if !may_be || self.oracle.is_allowed_after_crash(page, bytes).is_ok() {
            return Ok(false);
        }
        let mut other = vec![0; bytes.len()];
        self.backing.read_at(page * bytes.len() as u64, &mut other).expect("the backing store works");
        if bytes != other {
            return Ok(false);
        }
        let Some(before) = &lacking.before else { return Ok(true) };
        let disks = before.each_ref().map(|image| {
            let disk = SimDisk::new(image.len() as u64, &Power::steady());
            disk.put_back(image);
            disk
        });
        let cache = self.open_on(&disks[0], &disks[1]).map_err(wrong)?;
        cache.read(page * bytes.len() as u64, &mut other).map_err(|error| format!("without the bit: {error}"))?;
        self.oracle.is_allowed_after_crash(page, &other).map_err(|why| format!("without the bit: {why}"))?;
        Ok(true)
    }

    /// Drains in spite of lost pages. All other pages must then be below.
    fn drain_rotten(&mut self, cache: &BlockCache) -> Result<Vec<u64>, String> {
        let lost = || cache.lost_pages().expect("no thread panicked");
        let mut before = lost();
        while let Err(error) = cache.drain() {
            let now = lost();
            if now == before {
                return Err(format!("draining: {error}"));
            }
            before = now;
        }
        let lost = lost();
        let mut bytes = vec![0; self.setup.geometry.page_bytes as usize];
        for page in (0..self.oracle.pages()).filter(|page| !lost.contains(page)) {
            self.backing.read_at(page * bytes.len() as u64, &mut bytes).expect("the backing store works");
            self.oracle.check_latest(page, &bytes).map_err(|error| format!("below, after a drain: {error}"))?;
        }
        Ok(lost)
    }

    fn write_again(&mut self, cache: &BlockCache, lost: &[u64]) -> Result<(), String> {
        for &page in lost {
            let bytes = self.oracle.write(page, 0..self.setup.geometry.page_bytes as usize / SECTOR);
            // A write that reports a fault of a page it displaces succeeds when it is repeated.
            let write = || cache.write(page * bytes.len() as u64, &bytes, false);
            write().or_else(|_| write()).map_err(|error| format!("writing again: {error}"))?;
        }
        Ok(())
    }

    /// A byte of the cache device: any, or one that matters. Those are in a table, above all a new one, in a page
    /// behind a table, in a superblock or in a commit record.
    fn place_to_rot(&mut self) -> io::Result<u64> {
        let page_bytes = u64::from(self.setup.geometry.page_bytes);
        let image = self.cache.copy();
        let is_table = |block: &[u8]| block.starts_with(b"\x89ETBATCH") || block.starts_with(b"\x89ETJOURN");
        let address = |block: &[u8]| u64::from_le_bytes(block[32..40].try_into().expect("eight bytes"));
        let blocks = image.chunks_exact(page_bytes as usize).enumerate().filter(|(_, block)| is_table(block));
        let ours = blocks.filter(|(_, block)| block[8..24] == [self.uuid; 16]);
        let mut tables: Vec<(u64, u64)> = ours.map(|(at, block)| (address(block), at as u64 * page_bytes)).collect();
        tables.sort_unstable();
        let newest = tables.len().saturating_sub(4);
        let random = &mut self.random;
        let pick = |random: &mut Random, tables: &[(u64, u64)]| tables[random.below(tables.len() as u64) as usize].1;
        Ok(match random.below(8) {
            0..2 if !tables.is_empty() => pick(random, &tables) + random.below(FIRST_ENTRIES_END),
            2..4 if !tables.is_empty() => pick(random, &tables[newest..]) + random.below(FIRST_ENTRIES_END),
            4..6 if !tables.is_empty() => {
                let behind = pick(random, &tables[newest..]) + page_bytes * (1 + random.below(3));
                (behind + random.below(page_bytes)).min(image.len() as u64 - 1)
            }
            6 => random.below(4) * 4096 + random.below(SECTOR as u64),
            _ => random.below(image.len() as u64),
        })
    }
}
