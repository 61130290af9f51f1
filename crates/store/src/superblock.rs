//! The superblock: the sizes, state and owner of a cache, and the end of its log when it was opened. Layout:
//! `docs/cache-format.md`.

use super::areas::Areas;
use super::checksum::crc32c;
use super::error::StoreError;
use super::generation::{Generation, Generations};
use super::geometry::{COPY_BYTES, Geometry, Layout, Tables};
use super::log_end::{LogEnd, PLACES_MAX};
use crate::mutant::{self, Mutant};
use entresol_disk::{AlignedBytes, Disk};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: [u8; 8] = *b"\x89ETCACHE";
/// The version of the superblock, and the version before it.
const VERSION: u32 = 3;
const VERSION_BEFORE: u32 = 2;

/// Identity of a cache and of its backing store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Distinguishes caches from one another, and from the same cache before its last format.
    pub uuid: [u8; 16],
    /// The backing store, as identified by the program that formats.
    pub backing: [u8; 16],
    /// Size of the backing store in pages.
    pub backing_pages: u64,
    /// Size of the backing store in bytes; 0 where that is not known.
    pub backing_bytes: u64,
}

impl Identity {
    /// End of the backing store in bytes, if it is in the middle of a page.
    pub fn torn_end(&self, page_bytes: u64) -> Option<u64> {
        (!self.backing_bytes.is_multiple_of(page_bytes)).then_some(self.backing_bytes)
    }
}

/// State of the cache: in use, closed in good order, or retired after a failure of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Open = 0,
    Closed = 1,
    Retired = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Superblock {
    pub geometry: Geometry,
    pub identity: Identity,
    pub state: State,
    /// Number of superblock writes so far.
    pub writes: u64,
    pub epoch: u64,
    pub end: LogEnd,
    /// Form of the tables.
    pub tables: Tables,
    /// True for a superblock of version 2, which lacks the fields below.
    pub before: bool,
    pub generations: Generations,
    /// Seconds of cache time, at least.
    pub clock: u64,
    /// The copy that was read, 0 or 1.
    pub copy: usize,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    version: U32,
    state: U32,
    writes: U64,
    uuid: [u8; 16],
    backing: [u8; 16],
    backing_pages: U64,
    epoch: U64,
    address: U64,
    tail: U64,
    chain: U32,
    page_bytes: U32,
    segment_pages: U32,
    segments: U32,
    layout: U32,
    slot: U32,
    journal: U32,
    tables: U32,
    settled: RawGeneration,
    pending: RawGeneration,
    clock: U64,
    backing_bytes: U64,
    zeros: [u8; 340],
    crc: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawGeneration {
    number: U64,
    nonce: U64,
}

impl From<Generation> for RawGeneration {
    fn from(Generation { number, nonce }: Generation) -> Self {
        RawGeneration { number: number.into(), nonce: nonce.into() }
    }
}

impl From<&RawGeneration> for Generation {
    fn from(raw: &RawGeneration) -> Self {
        Generation { number: raw.number.get(), nonce: raw.nonce.get() }
    }
}

const RAW: usize = size_of::<Raw>();

/// Blocks of the journal; none in the log layout.
fn journal_blocks(geometry: &Geometry, tables: Tables) -> u32 {
    if geometry.layout.has_slots() { Areas::of(geometry, tables).journal as u32 } else { 0 }
}

impl Superblock {
    /// Bytes that [`read`](Superblock::read) reads.
    pub const READ_BYTES: u64 = 2 * COPY_BYTES as u64;

    fn encode(&self, into: &mut [u8]) {
        let Geometry { page_bytes, segment_pages, segments, layout } = self.geometry;
        let mut raw = Raw {
            magic: MAGIC,
            version: if self.before { VERSION_BEFORE } else { VERSION }.into(),
            state: (self.state as u32).into(),
            writes: self.writes.into(),
            uuid: self.identity.uuid,
            backing: self.identity.backing,
            backing_pages: self.identity.backing_pages.into(),
            epoch: self.epoch.into(),
            address: self.end.address.into(),
            tail: self.end.tail.into(),
            chain: self.end.chain.into(),
            page_bytes: page_bytes.into(),
            segment_pages: segment_pages.into(),
            segments: segments.into(),
            layout: (layout as u32).into(),
            slot: self.end.slot.into(),
            journal: journal_blocks(&self.geometry, self.tables).into(),
            tables: 0.into(),
            settled: Generation::default().into(),
            pending: Generation::default().into(),
            clock: 0.into(),
            backing_bytes: 0.into(),
            zeros: [0; 340],
            crc: 0.into(),
        };
        if !self.before {
            raw.tables = (self.tables as u32).into();
            raw.settled = self.generations.settled.into();
            raw.pending = self.generations.pending.unwrap_or_default().into();
            raw.clock = self.clock.into();
            raw.backing_bytes = self.identity.backing_bytes.into();
        }
        raw.crc = crc32c(&raw.as_bytes()[..RAW - 4]).into();
        into[..RAW].copy_from_slice(raw.as_bytes());
    }

    /// Decodes one copy.
    ///
    /// # Errors
    /// States why the bytes are no valid superblock.
    pub fn decode(bytes: &[u8]) -> Result<Self, StoreError> {
        let raw = Raw::read_from_prefix(bytes).map_err(|_| StoreError::NotACache)?.0;
        if raw.magic != MAGIC {
            return Err(StoreError::NotACache);
        }
        let before = raw.version == VERSION_BEFORE;
        if !before && raw.version != VERSION {
            return Err(StoreError::Version { found: raw.version.get() });
        }
        if crc32c(&bytes[..RAW - 4]) != raw.crc.get() {
            return Err(StoreError::Superblocks);
        }
        let geometry = Geometry {
            page_bytes: raw.page_bytes.get(),
            segment_pages: raw.segment_pages.get(),
            segments: raw.segments.get(),
            layout: match raw.layout.get() {
                0 => Layout::Log,
                1 => Layout::Slots,
                2 => Layout::Segments,
                _ => return Err(StoreError::Superblocks),
            },
        };
        let tables = match (before, raw.tables.get()) {
            (true, _) | (false, 2) => Tables::V2,
            (false, 3) => Tables::V3,
            _ => return Err(StoreError::Superblocks),
        };
        tables.check(&geometry)?;
        if raw.journal.get() != journal_blocks(&geometry, tables) {
            return Err(StoreError::Superblocks);
        }
        let state = match raw.state.get() {
            0 => State::Open,
            1 => State::Closed,
            2 => State::Retired,
            _ => return Err(StoreError::Superblocks),
        };
        let end =
            LogEnd { address: raw.address.get(), slot: raw.slot.get(), tail: raw.tail.get(), chain: raw.chain.get() };
        let at_a_segment = end.tail.is_multiple_of(u64::from(geometry.segment_pages)) || geometry.layout.has_slots();
        if end.tail > end.address || end.address > PLACES_MAX || end.slot >= geometry.segments || !at_a_segment {
            return Err(StoreError::Superblocks);
        }
        let pending = Some(Generation::from(&raw.pending)).filter(|pending| pending.number > 0);
        let generations = Generations { settled: (&raw.settled).into(), pending };
        let clock = if before { 0 } else { raw.clock.get() };
        let counts = [raw.writes.get(), raw.epoch.get(), clock, generations.settled.number];
        if counts.into_iter().any(|count| count > PLACES_MAX) {
            return Err(StoreError::Superblocks);
        }
        let backing_pages = raw.backing_pages.get();
        let backing_bytes = if before { 0 } else { raw.backing_bytes.get() };
        // After a crash during growth the pages are the new size, and the bytes the old one.
        if backing_bytes.div_ceil(geometry.page_bytes.into()) > backing_pages {
            return Err(StoreError::Superblocks);
        }
        Ok(Superblock {
            geometry,
            identity: Identity { uuid: raw.uuid, backing: raw.backing, backing_pages, backing_bytes },
            state,
            writes: raw.writes.get(),
            epoch: raw.epoch.get(),
            end,
            tables,
            before,
            generations: if before { Generations::default() } else { generations },
            clock,
            copy: 0,
        })
    }

    /// The superblock for the next use of a store. A store closed in good order is written in this version from now on.
    pub fn next(self) -> Self {
        let before = self.before && self.state != State::Closed;
        Superblock { state: State::Open, epoch: self.epoch + 1, before, ..self }
    }

    /// Writes both copies, each synced before the next is touched. The one that does not count so far goes first, as a
    /// crash may have torn it.
    pub fn write<D: Disk>(&self, disk: &D) -> std::io::Result<()> {
        let mut copy = AlignedBytes::zeroed(COPY_BYTES);
        self.encode(&mut copy);
        for number in [1 - self.copy, self.copy] {
            disk.write_at((number * COPY_BYTES) as u64, &copy)?;
            if number == self.copy || !mutant::is(Mutant::SuperblocksTogether) {
                disk.sync()?;
            }
        }
        Ok(())
    }

    /// Reads both copies. An invalid one is read again: a transfer may have damaged bytes that are sound on the device.
    fn read_copies<D: Disk>(disk: &D) -> std::io::Result<[Result<Self, StoreError>; 2]> {
        let read = || -> std::io::Result<[Result<Self, StoreError>; 2]> {
            let mut copies = AlignedBytes::zeroed(2 * COPY_BYTES);
            disk.read_at(0, &mut copies)?;
            let (first, second) = copies.split_at(COPY_BYTES);
            let second = Superblock::decode(second).map(|superblock| Superblock { copy: 1, ..superblock });
            Ok([Superblock::decode(first), second])
        };
        let [first, second] = read()?;
        if first.is_ok() && second.is_ok() {
            return Ok([first, second]);
        }
        let [third, fourth] = read()?;
        Ok([first.or(third), second.or(fourth)])
    }

    /// Reads the newer valid copy.
    ///
    /// # Errors
    /// If neither copy is valid: the fault of the first, or of the second if the first is no superblock at all.
    pub fn read<D: Disk>(disk: &D) -> Result<Self, StoreError> {
        if disk.size_bytes() < 2 * COPY_BYTES as u64 {
            return Err(StoreError::NotACache);
        }
        let [first, second] = Superblock::read_copies(disk)?;
        let newest = match (first, second) {
            (Ok(a), Ok(b)) => Ok(if a.writes >= b.writes { a } else { b }),
            (Ok(only), Err(_)) | (Err(_), Ok(only)) => Ok(only),
            (Err(StoreError::NotACache), Err(why)) => Err(why),
            (Err(why), Err(_)) => Err(why),
        }?;
        let needed = newest.tables.size_bytes(&newest.geometry);
        if disk.size_bytes() < needed {
            return Err(StoreError::Shrunk { needed, found: disk.size_bytes() });
        }
        Ok(newest)
    }
}

/// Checks that a cache was not retired, and that it is that of a backing store of this identity and size in pages.
pub(super) fn check_owner(superblock: &Superblock, backing: [u8; 16], backing_pages: u64) -> Result<(), StoreError> {
    let identity = superblock.identity;
    if superblock.state == State::Retired {
        return Err(StoreError::Retired);
    }
    if mutant::is(Mutant::OwnerUnchecked) {
        return Ok(());
    }
    if identity.backing != backing {
        return Err(StoreError::OtherBacking { found: identity.backing, expected: backing });
    }
    if identity.backing_pages > backing_pages {
        return Err(StoreError::BackingSize { found: backing_pages, expected: identity.backing_pages });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_core::Random;

    fn example() -> Superblock {
        Superblock {
            geometry: Geometry { page_bytes: 4096, segment_pages: 256, segments: 100, layout: Layout::Slots },
            identity: Identity { uuid: [1; 16], backing: [2; 16], backing_pages: 77, backing_bytes: 76 * 4096 + 5 },
            state: State::Closed,
            writes: 5,
            epoch: 6,
            end: LogEnd { address: 1000, slot: 99, tail: 256, chain: 8 },
            tables: Tables::V3,
            before: false,
            generations: Generations {
                settled: Generation { number: 3, nonce: 4 },
                pending: Some(Generation { number: 4, nonce: 5 }),
            },
            clock: 1234,
            copy: 0,
        }
    }

    #[test]
    fn it_comes_back_as_it_was_and_is_as_long_as_documented() {
        let mut bytes = [0; RAW];
        example().encode(&mut bytes);
        assert_eq!(RAW, 512);
        assert_eq!(Superblock::decode(&bytes).expect("a superblock"), example());
        assert_eq!(bytes[92..96], 4096u32.to_le_bytes());
        assert_eq!(bytes[116..120], 3u32.to_le_bytes());
        for (at, value) in [(120, 3u64), (128, 4), (136, 4), (144, 5), (152, 1234), (160, 76 * 4096 + 5)] {
            assert_eq!(bytes[at..at + 8], value.to_le_bytes(), "byte {at}");
        }
    }

    #[test]
    fn one_of_the_version_before_stays_so_until_a_good_end_and_its_tables_for_ever() {
        let generations = Generations::default();
        let identity = Identity { backing_bytes: 0, ..example().identity };
        let before =
            Superblock { tables: Tables::V2, before: true, state: State::Open, generations, identity, ..example() };
        let before = Superblock { clock: 0, ..before };
        let mut bytes = [0; RAW];
        before.encode(&mut bytes);
        assert_eq!((bytes[8], &bytes[116..508]), (2, &[0; 392][..]));
        assert_eq!(Superblock::decode(&bytes).expect("a superblock"), before);
        assert!(before.next().before);
        let next = Superblock { state: State::Closed, ..before }.next();
        next.encode(&mut bytes);
        assert_eq!((bytes[8], bytes[116]), (3, 2));
        assert_eq!(Superblock::decode(&bytes).expect("a superblock"), next);
        assert_eq!((next.tables, next.state, next.epoch), (Tables::V2, State::Open, 7));
    }

    #[test]
    fn any_flipped_bit_and_any_noise_is_refused() {
        let mut bytes = [0; RAW];
        example().encode(&mut bytes);
        for bit in 0..RAW * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            Superblock::decode(&bytes).expect_err("a flipped bit");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let mut random = Random::new(1);
        for _ in 0..1000 {
            let len = random.below(600) as usize;
            let mut noise: Vec<u8> = (0..len).map(|_| random.next_u64() as u8).collect();
            if len > 12 {
                noise[..8].copy_from_slice(&MAGIC);
                noise[8..12].copy_from_slice(&VERSION.to_le_bytes());
            }
            Superblock::decode(&noise).expect_err("noise");
        }
    }

    /// A crash while the second copy is written tears it. A crash in the next write must not take the other copy.
    #[test]
    fn what_counts_is_written_last() {
        for copy in [0, 1] {
            let size = Tables::V3.size_bytes(&example().geometry);
            let power = entresol_crashtest::Power::steady();
            let disk = entresol_crashtest::SimDisk::new(size, &power);
            Superblock { copy, ..example() }.write(&disk).expect("a write");
            // The copy written last is torn.
            disk.flip(copy as u64 * 4096, 1);
            let found = Superblock::read(&disk).expect("the other");
            assert_eq!(found.copy, 1 - copy);
            power.fail_after(1);
            Superblock { writes: found.writes + 1, ..found }.write(&disk).expect_err("cut short");
            power.restore();
            let first = Superblock::read(&disk).expect("a copy");
            assert_eq!(first.copy, copy, "the damaged one was to be written first");
        }
    }
}
