//! Reads of several pages. Each device reads its pages that are not in memory together, neighbours in one transfer. The
//! policy is told page by page, in order, as if the pages had been read one by one.

use super::durability::Source;
use super::locks::CoreGuard;
use super::maintenance::StoreAccess;
use super::plan::{PageBytes, RequestBytes};
use super::transfers::{read_page_below, runs};
use super::{BlockCache, Tag};
use entresol_core::Op;
use entresol_disk::{AlignedBytes, Transfer};
use entresol_store::mutant::{self, Mutant};
use entresol_store::{Entry, check_page, page_crc};
use std::io;
use std::ops::Range;

/// Source at which a page was found.
enum Found {
    /// Memory: the bytes have been copied.
    InMemory,
    /// The store: an entry, and its byte on the device.
    InStore(Entry, u64),
    /// A bridge between pages below: the store has the page clean, and the backing store reads it with its neighbours.
    Bridge(Entry),
    Below,
    /// None: there was an error.
    Nowhere,
}

/// A page that was read, with its CRC where it was computed without the core's lock.
#[derive(Clone, Copy)]
pub(super) struct There {
    crc: Option<u32>,
}

/// The newest version of a page has been read.
pub(super) struct Newest<'a> {
    /// The core's lock, unless it was not needed again.
    guard: Option<CoreGuard<'a>>,
    /// CRC of the bytes, where it was computed without the lock.
    crc: Option<u32>,
    /// The policy has decided on the read.
    decided: bool,
}

/// Pages read together; their locks are held meanwhile.
const TOGETHER: u64 = 32;

/// Bytes of a bridge between pages below. A network volume of 3,000 I/Os and 125 MB a second
/// passes 42 kB in the time of an I/O (`lab/results/scans.md`).
const BRIDGE_BYTES: usize = 32 << 10;

/// Has clean pages of the store between two pages below, at most so many in a row, be read below with them: one transfer
/// in place of three.
fn bridge(found: &mut [Found], most: usize) {
    let mut after = None;
    for at in 0..found.len() {
        match found[at] {
            Found::Below => {
                let between = after.unwrap_or(at)..at;
                if between.len() <= most {
                    found[between].iter_mut().for_each(Found::read_below);
                }
                after = Some(at + 1);
            }
            Found::InStore(entry, _) if !entry.dirty || mutant::is(Mutant::BridgeUnchecked) => {}
            _ => after = None,
        }
    }
}

impl Found {
    /// Has a page of the store be read below.
    fn read_below(&mut self) {
        if let Found::InStore(entry, _) = *self {
            *self = Found::Bridge(entry);
        }
    }
}

impl BlockCache {
    /// Reads, with the facts that the tag states. The pages of one call after the first continue a run.
    ///
    /// # Errors
    /// As [`Block::read`](crate::Block::read).
    pub fn read_tagged(&self, offset: u64, bytes: &mut [u8], tag: Tag) -> io::Result<()> {
        self.check_range(offset, bytes.len() as u64)?;
        let (mut at, mut rest, mut tag, mut first) = (offset, bytes, tag, true);
        while !rest.is_empty() {
            let end = ((at / self.page_bytes + TOGETHER) * self.page_bytes).min(at + rest.len() as u64);
            let (these, others) = rest.split_at_mut((end - at) as usize);
            self.with_whole_pages(at, these, |pages, bytes| self.read_pages(pages, bytes, tag, first))?;
            (at, rest, tag.sequential, first) = (end, others, true, false);
        }
        Ok(())
    }

    /// Has `read` fill all pages that a range touches, and copies the wanted bytes from them.
    pub(super) fn with_whole_pages<R>(
        &self,
        offset: u64,
        bytes: &mut [u8],
        read: impl FnOnce(Range<u64>, &mut [u8]) -> R,
    ) -> R {
        let pages = offset / self.page_bytes..(offset + bytes.len() as u64).div_ceil(self.page_bytes);
        let whole_bytes = (pages.end - pages.start) as usize * self.page_bytes as usize;
        if bytes.len() == whole_bytes {
            return read(pages, bytes);
        }
        let mut whole = AlignedBytes::zeroed(whole_bytes);
        let result = read(pages, &mut whole);
        let within = (offset % self.page_bytes) as usize;
        bytes.copy_from_slice(&whole[within..within + bytes.len()]);
        result
    }

    /// `first` when these are the first pages of a call.
    fn read_pages(&self, pages: Range<u64>, bytes: &mut [u8], tag: Tag, first: bool) -> io::Result<()> {
        if self.read_hits(pages.clone(), bytes, (tag, first), |disk, at, bytes| disk.read_at(at, bytes).is_ok()) {
            return Ok(());
        }
        if pages.end - pages.start == 1 {
            let _page = self.locks.pages.page(pages.start);
            return self.read_one(pages.start, bytes, None, tag, first);
        }
        let _pages = self.locks.pages.range(&pages);
        let together = self.read_together(pages.start, bytes);
        let there = together.unwrap_or_else(|_| vec![None; (pages.end - pages.start) as usize]);
        let page_bytes = self.page_bytes as usize;
        let tag_of = |at: usize| Tag { sequential: tag.sequential || at > 0, ..tag };
        let mut at = 0;
        while at < there.len() {
            let run = there[at..].iter().take_while(|there| there.is_some()).count();
            if run > 1 {
                let request = RequestBytes { first: pages.start, bytes, page_bytes };
                let decided = self.decide_on_run(request, &there[at..at + run], at, tag_of, first)?;
                if decided > 0 {
                    at += decided;
                    continue;
                }
            }
            let page_of_bytes = &mut bytes[at * page_bytes..(at + 1) * page_bytes];
            self.read_one(pages.start + at as u64, page_of_bytes, there[at], tag_of(at), first && at == 0)?;
            at += 1;
        }
        Ok(())
    }

    /// Has the policy decide on reads of pages of a request, from the one `at` a position on, whose newest bytes are
    /// there, in one hold of the core's lock. Returns how many it decided on; none when no space can be made.
    fn decide_on_run(
        &self,
        request: RequestBytes,
        there: &[Option<There>],
        at: usize,
        tag_of: impl Fn(usize) -> Tag,
        first: bool,
    ) -> io::Result<usize> {
        let Ok(mut guard) = self.locks.ready() else { return Ok(0) };
        let mut decided = 0;
        for there in there {
            if decided > 0 && !guard.may_read_another() {
                break;
            }
            let (page, at) = (request.first + (at + decided) as u64, at + decided);
            self.recorder.note(page, Op::Read, tag_of(at), first && at == 0);
            let crc = there.and_then(|there| there.crc);
            guard.core().read(page, PageBytes::with(request.of(page), crc), tag_of(at));
            guard.core().enter_hit(page);
            decided += 1;
        }
        self.end_decisions(guard, request)?;
        Ok(decided)
    }

    /// Reads a page unless its newest bytes are `there`, and has the policy decide on it. Where the decision needs
    /// space that cannot be freed, because writes below fail, the page is read without telling the policy.
    fn read_one(&self, page: u64, bytes: &mut [u8], there: Option<There>, tag: Tag, first: bool) -> io::Result<()> {
        let read = match there {
            Some(There { crc }) => self.locks.ready().map(|guard| Newest { guard: Some(guard), crc, decided: false }),
            None => self.newest_by(
                page,
                bytes,
                || self.locks.ready(),
                |guard| {
                    let decided = guard.core().read_stored(page, tag);
                    if decided {
                        self.recorder.note(page, Op::Read, tag, first);
                        guard.core().enter_hit(page);
                    }
                    decided
                },
            ),
        };
        match read {
            Ok(Newest { guard: None, .. }) => Ok(()),
            Ok(Newest { guard: Some(guard), crc, decided }) => {
                let decide = |guard: &mut CoreGuard, contents| {
                    if decided {
                        return guard.core().fill(page, contents);
                    }
                    self.recorder.note(page, Op::Read, tag, first);
                    guard.core().read(page, contents, tag);
                    guard.core().enter_hit(page);
                };
                self.decide(guard, page, PageBytes::with(bytes, crc), decide)
            }
            Err(error) => {
                let mut guard = self.locks.guard()?;
                // The hard limits are not checked again, since a maintenance thread may have freed space by now. An
                // error of a write below must not reach a reader.
                if guard.must_mend() {
                    return Err(error);
                }
                drop(guard);
                if there.is_some() {
                    Ok(())
                } else {
                    self.newest_by(page, bytes, || self.locks.guard(), |_| false).map(drop)
                }
            }
        }
    }

    /// Reads the newest versions of locked pages from `first` on. Returns those that were read. The others are to be
    /// read one by one, which gives their errors.
    pub(super) fn read_together(&self, first: u64, bytes: &mut [u8]) -> io::Result<Vec<Option<There>>> {
        let page_bytes = self.page_bytes as usize;
        let mut guard = self.locks.ready()?;
        let mut find = |(page, bytes)| match guard.core().locate(page, bytes) {
            Ok(_) if mutant::is(Mutant::TogetherFromBelow) => Found::Below,
            Ok(Source::Memory) => Found::InMemory,
            Ok(Source::Below) => Found::Below,
            Ok(Source::Store(entry)) => Found::InStore(entry, guard.write_back().store.byte_of(entry.address)),
            Err(_) => Found::Nowhere,
        };
        let mut found: Vec<Found> = (first..).zip(bytes.chunks_exact_mut(page_bytes)).map(&mut find).collect();
        let [store, backing] = &self.disks;
        drop(guard);
        bridge(&mut found, BRIDGE_BYTES / page_bytes);
        let (mut from_store, mut from_below) = self.transfers(first, &found, bytes);
        let store_reads = found.iter().filter(|found| matches!(found, Found::InStore(..))).count() as u64;
        let below_read = from_below.is_empty() || backing.submit(&mut from_below).is_ok();
        let store_read = from_store.is_empty() || store.submit(&mut from_store).is_ok();
        let is_there = |(found, bytes): (&Found, &[u8])| match *found {
            Found::InMemory => Some(There { crc: None }),
            Found::Below => below_read.then(|| There { crc: Some(page_crc(bytes)) }),
            Found::InStore(entry, _) => {
                let is_sound = store_read && check_page(entry, bytes).is_ok();
                is_sound.then_some(There { crc: Some(entry.crc) })
            }
            Found::Bridge(entry) => {
                let is_same = check_page(entry, bytes).is_ok() || mutant::is(Mutant::BridgeUnchecked);
                (below_read && is_same).then_some(There { crc: Some(entry.crc) })
            }
            Found::Nowhere => None,
        };
        let there = found.iter().zip(bytes.chunks_exact(page_bytes)).map(is_there).collect();
        let bridge_reads = found.iter().filter(|found| matches!(found, Found::Bridge(_))).count() as u64;
        let below_reads = found.iter().filter(|found| matches!(found, Found::Below)).count() as u64;
        let mut guard = self.locks.guard()?;
        guard.write_back().store.count_reads(store_reads);
        if below_read {
            guard.write_back().counts.below_reads += below_reads + bridge_reads;
            guard.write_back().counts.below_bridge_reads += bridge_reads;
        }
        Ok(there)
    }

    /// Transfers for the pages in the store, and for those in the backing store.
    fn transfers<'a>(
        &self,
        first: u64,
        found: &[Found],
        bytes: &'a mut [u8],
    ) -> (Vec<Transfer<'a>>, Vec<Transfer<'a>>) {
        let (mut from_store, mut from_below) = (Vec::new(), Vec::new());
        let mut rest = bytes;
        // Pages that were admitted together lie together on the cache device.
        let follows = |at: usize| match (&found[at - 1], &found[at]) {
            (Found::Below | Found::Bridge(_), Found::Below | Found::Bridge(_)) => true,
            (Found::InStore(_, before), Found::InStore(_, at)) => before + self.page_bytes == *at,
            _ => false,
        };
        for run in runs(found.len(), follows) {
            let (these, others) = rest.split_at_mut(run.len() * self.page_bytes as usize);
            rest = others;
            match found[run.start] {
                Found::Below | Found::Bridge(_) => {
                    let at = (first + run.start as u64) * self.page_bytes;
                    let (inside, beyond) = these.split_at_mut((self.size_bytes - at).min(these.len() as u64) as usize);
                    beyond.fill(0);
                    from_below.push(Transfer::Read { at, bytes: inside });
                }
                Found::InStore(_, at) => from_store.push(Transfer::Read { at, bytes: these }),
                Found::InMemory | Found::Nowhere => {}
            }
        }
        (from_store, from_below)
    }

    /// Reads the newest version of a page whose lock is held, and takes the core's lock.
    pub(super) fn newest(&self, page: u64, bytes: &mut [u8]) -> io::Result<CoreGuard<'_>> {
        self.newest_with_crc(page, bytes).map(|(guard, _)| guard)
    }

    /// As [`newest`](BlockCache::newest), with the CRC of the bytes where it was computed without the core's lock.
    pub(super) fn newest_with_crc(&self, page: u64, bytes: &mut [u8]) -> io::Result<(CoreGuard<'_>, Option<u32>)> {
        let newest = self.newest_by(page, bytes, || self.locks.ready(), |_| false)?;
        Ok((newest.guard.expect("nothing was decided"), newest.crc))
    }

    /// Has the core decide on a page whose lock is held, and carries the plan out. The core's lock is given back.
    pub(super) fn decide<'a>(
        &self,
        mut guard: CoreGuard,
        page: u64,
        contents: PageBytes<'a>,
        decide: impl FnOnce(&mut CoreGuard, PageBytes<'a>),
    ) -> io::Result<()> {
        decide(&mut guard, contents);
        self.end_decisions(guard, RequestBytes::one(page, contents.bytes))
    }

    /// Gives the core's lock back after decisions on a request, and carries their plan out.
    fn end_decisions(&self, mut guard: CoreGuard, request: RequestBytes) -> io::Result<()> {
        let plan = guard.core().take_plan();
        if guard.must_mend() {
            // What is in memory of the store is read when its device is given up.
            plan.carry_out_now(request);
            return guard.mend();
        }
        drop(guard);
        self.load(plan.carry_out(request));
        Ok(())
    }

    /// As [`newest`](BlockCache::newest), with `take` taking the core's lock. Before a version is read from the store,
    /// `decide` may decide on the read and says whether it did: then the lock is not taken again.
    pub(super) fn newest_by<'a>(
        &'a self,
        page: u64,
        bytes: &mut [u8],
        take: impl Fn() -> io::Result<CoreGuard<'a>>,
        decide: impl Fn(&mut CoreGuard<'a>) -> bool,
    ) -> io::Result<Newest<'a>> {
        let mut guard = take()?;
        let mut bad_at = None;
        let (mut has_failed, mut decided) = (false, false);
        loop {
            match guard.core().locate(page, bytes)? {
                // No better copy has been found than the one that was already bad.
                Source::Store(entry) if bad_at == Some(entry.address) => {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "the newest copy of this page is bad"));
                }
                Source::Memory => return Ok(Newest { guard: Some(guard), crc: None, decided }),
                Source::Below => {
                    guard.write_back().counts.below_reads += 1;
                    drop(guard);
                    read_page_below(&*self.disks[1], self.size_bytes, page, bytes)?;
                    let crc = page_crc(bytes);
                    return take().map(|guard| Newest { guard: Some(guard), crc: Some(crc), decided });
                }
                Source::Store(entry) => {
                    let at = guard.write_back().store.byte_of(entry.address);
                    guard.write_back().store.count_reads(1);
                    let is_first = !decided;
                    decided = decided || decide(&mut guard);
                    if !has_failed {
                        guard.only_hits();
                    }
                    drop(guard);
                    let mut read = || self.disks[0].read_at(at, bytes).and_then(|()| check_page(entry, bytes));
                    // A copy is bad when two reads of it are bad: the first may have been damaged on the way.
                    let first = read();
                    let again = u64::from(first.is_err());
                    let result = first.or_else(|_| read());
                    if result.is_ok() && again == 0 && decided && is_first {
                        return Ok(Newest { guard: None, crc: Some(entry.crc), decided });
                    }
                    has_failed = true;
                    guard = take()?;
                    guard.write_back().store.count_reads(again);
                    match result {
                        Ok(()) => return Ok(Newest { guard: Some(guard), crc: Some(entry.crc), decided }),
                        // Reclaim may have moved the version: the next round finds it at its new address.
                        Err(error) => guard.core().copy_is_bad(page, entry, error)?,
                    }
                    // While that very copy is being written below, the end of the write decides on the page.
                    bad_at = (!guard.write_back().is_being_written(page)).then_some(entry.address);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sources of pages after bridges were made: `b` below, `c` clean in the store, `d` dirty there, `m` memory, `-` a
    /// bridge.
    fn bridged(sources: &str, most: usize) -> String {
        let entry = |dirty| Entry { address: 7, crc: 3, dirty, resident: true, lost: false };
        let mut found: Vec<Found> = sources
            .chars()
            .map(|source| match source {
                'b' => Found::Below,
                'c' | 'd' => Found::InStore(entry(source == 'd'), 0),
                _ => Found::InMemory,
            })
            .collect();
        bridge(&mut found, most);
        let source = |found: &Found| match found {
            Found::Below => 'b',
            Found::InStore(entry, _) => {
                if entry.dirty {
                    'd'
                } else {
                    'c'
                }
            }
            Found::Bridge(_) => '-',
            Found::InMemory | Found::Nowhere => 'm',
        };
        found.iter().map(source).collect()
    }

    #[test]
    fn bridges_are_clean_between_pages_below_and_no_longer_than_allowed() {
        for (sources, most, expected) in [
            ("bcb", 1, "b-b"),
            ("bccbcb", 1, "bccb-b"),
            ("bccbcb", 2, "b--b-b"),
            ("cbbcc", 9, "cbbcc"),
            ("bdbcdcb", 9, "bdbcdcb"),
            ("bcmcb", 9, "bcmcb"),
            ("mbcbm", 9, "mb-bm"),
            ("bcb", 0, "bcb"),
        ] {
            assert_eq!(bridged(sources, most), expected, "{sources}");
        }
    }
}
