//! The backing record: durable facts, kept beside a backing store, about the one cache in front of it.
//!
//! A cache names its backing store; the record is the other half. By [`Generation`] it tells an older copy of the
//! cache, or of the backing store, from the one last used. It tells a cache with pages that the backing store lacks
//! from one that may be lost. It also keeps the choices of `format`. `docs/backing-record.md` draws it.

mod last_write;
mod minutes;
mod pairing;
mod place;
mod store;
pub(crate) mod volume;

pub(crate) use last_write::{AGAIN_MS, GRACE_NS};
pub use last_write::{Changed, LastWrite, MARK_BYTES, Mark, MarkPlace, Marked, Seen};
pub use pairing::{Mismatch, Pairing, compare};
pub use place::{FileRecord, STATE_DIRECTORY, StateFile};
pub use store::{PairError, StorePair, place_of, read_record};

use entresol_store::{Generation, Geometry, Layout};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// Record beside a backing store of the cache in front of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// UUID of the cache, as in its superblock: no other cache may be used with the backing store.
    pub cache: [u8; 16],
    /// The generation of the backing store.
    pub generation: Generation,
    /// True if the backing store has every byte, so that nothing is lost with the cache.
    pub complete: bool,
    /// UUID of the btrfs subvolume of the backing store when this was written: a snapshot has another UUID, but the
    /// same inodes.
    pub volume: Option<[u8; 16]>,
    /// Choices that `format` made, as far as they are known, and the mode used last.
    pub choices: Option<Choices>,
}

/// Choices of `format`, by which the same cache can be made again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choices {
    /// Pages, segments, layout.
    pub geometry: Geometry,
    /// Bytes of the file or device.
    pub size_bytes: u64,
    /// Path of the cache, from the root; none if it is too long to be kept.
    pub path: Option<PathBuf>,
    /// Kind of storage at that path.
    pub kind: CacheKind,
    /// Number of the file system that holds the directory in which the cache was made.
    pub device: u64,
    /// The policy and its options, if given.
    pub policy: Option<String>,
    /// The mode used last, else the one given, if any.
    pub mode: Option<String>,
    /// The bound on wear, if given.
    pub wear: Option<String>,
}

/// Kind of storage under a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheKind {
    /// A regular file.
    File,
    /// A block device.
    BlockDevice,
}

/// Location of a backing record.
pub trait RecordPlace: Send + Sync {
    /// The record; none if there never was one.
    ///
    /// # Errors
    /// The error of the system; `InvalidData`, with a [`RecordError`], for a record that is damaged or of a later
    /// version. Such a record is never taken for none.
    fn read(&self) -> io::Result<Option<Record>>;

    /// Replaces the record, durably when it returns. After an error, or a crash before that, the record is this one or
    /// the one before.
    ///
    /// # Errors
    /// The error of the system.
    fn write(&self, record: &Record) -> io::Result<()>;

    /// Removes the record, durably.
    ///
    /// # Errors
    /// The error of the system.
    fn clear(&self) -> io::Result<()>;

    /// Learned state of the cache's policy, as [`keep_learned`](Self::keep_learned) kept it: bytes that may be damaged or
    /// of a former cache. None if there are none.
    ///
    /// # Errors
    /// The error of the system.
    fn learned(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(None)
    }

    /// Keeps what the policy of the cache has learned beside the record, durably when it returns. After an error, or a crash
    /// before that, these bytes are there or those before.
    ///
    /// # Errors
    /// The error of the system; `Unsupported` where nothing is kept.
    fn keep_learned(&self, _bytes: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The btrfs subvolume in which the backing store lies now, if any.
    ///
    /// # Errors
    /// The error of the system.
    fn volume(&self) -> io::Result<Option<[u8; 16]>>;

    /// Location of the [mark of the last write](LastWrite); none where there is none.
    fn mark(&self) -> Option<&dyn MarkPlace> {
        None
    }

    /// Name of the location, in words.
    fn name(&self) -> String;
}

/// Reason why the bytes of a record cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RecordError {
    /// The record contradicts itself.
    #[error("it is damaged")]
    Damaged,
    /// The record is of a later version.
    #[error("it is of version {0}, and this program knows version 1")]
    Version(u8),
}

impl From<RecordError> for io::Error {
    fn from(error: RecordError) -> Self {
        io::Error::new(io::ErrorKind::InvalidData, error)
    }
}

const MAGIC: [u8; 8] = *b"\x89ETRECRD";
const VERSION: u8 = 1;
/// Bytes before the choices.
const FIXED: usize = 64;
/// Longest record in bytes: an extended attribute of ext4 has to fit into a block beside others.
pub const RECORD_BYTES_MAX: usize = 2048;
/// Bytes of the choices before their texts, the last eight of which are the texts' lengths.
const CHOICES_FIXED: usize = 48;
const TEXTS: usize = 4;
/// Longest sum of all their texts in bytes.
const TEXTS_MAX: usize = RECORD_BYTES_MAX - FIXED - CHOICES_FIXED - 4;

/// Flags of byte 9.
const COMPLETE: u8 = 1;
const HAS_CHOICES: u8 = 2;

fn crc(bytes: &[u8]) -> [u8; 4] {
    (crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32).to_le_bytes()
}

/// Takes `number` bytes from the front.
fn take<'a>(bytes: &mut &'a [u8], number: usize) -> Option<&'a [u8]> {
    let (first, rest) = bytes.split_at_checked(number)?;
    *bytes = rest;
    Some(first)
}

fn take_u64(bytes: &mut &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(take(bytes, 8)?.try_into().ok()?))
}

fn take_u32(bytes: &mut &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(take(bytes, 4)?.try_into().ok()?))
}

fn take_u16(bytes: &mut &[u8]) -> Option<u16> {
    Some(u16::from_le_bytes(take(bytes, 2)?.try_into().ok()?))
}

impl Record {
    /// The first record of a new cache, with a generation that was never raised. So a cache whose making was cut short
    /// before the record was written is not taken for one that lost its record.
    pub fn first(cache: [u8; 16], volume: Option<[u8; 16]>, choices: Option<Choices>) -> Self {
        Record { cache, generation: Generation::default(), complete: true, volume, choices }
    }

    /// The record as in an extended attribute or a file, at most [`RECORD_BYTES_MAX`] bytes.
    pub fn encode(&self) -> Vec<u8> {
        let choices = self.choices.as_ref().map(Choices::encode);
        let mut flags = 0;
        if self.complete {
            flags |= COMPLETE;
        }
        if choices.is_some() {
            flags |= HAS_CHOICES;
        }
        let mut bytes = MAGIC.to_vec();
        bytes.extend([VERSION, flags, 0, 0, 0, 0, 0, 0]);
        bytes.extend(self.cache);
        bytes.extend(self.generation.number.to_le_bytes());
        bytes.extend(self.generation.nonce.to_le_bytes());
        bytes.extend(self.volume.unwrap_or_default());
        bytes.extend(choices.unwrap_or_default());
        bytes.extend(crc(&bytes));
        bytes
    }

    /// Decodes a record from its bytes.
    ///
    /// # Errors
    /// When the bytes are damaged or of a later version.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let damaged = RecordError::Damaged;
        let (whole, end) = bytes.split_last_chunk::<4>().ok_or(damaged)?;
        // No record of this version is longer, and a longer one could not be written again.
        let is_sized = (FIXED..=RECORD_BYTES_MAX - end.len()).contains(&whole.len());
        if !is_sized || whole[..8] != MAGIC || *end != crc(whole) {
            return Err(RecordError::Damaged);
        }
        if whole[8] != VERSION {
            return Err(RecordError::Version(whole[8]));
        }
        Self::decode_whole(whole).ok_or(RecordError::Damaged)
    }

    fn decode_whole(whole: &[u8]) -> Option<Self> {
        let flags = whole[9];
        let mut rest = &whole[16..];
        let cache = take(&mut rest, 16)?.try_into().ok()?;
        let generation = Generation { number: take_u64(&mut rest)?, nonce: take_u64(&mut rest)? };
        let volume: [u8; 16] = take(&mut rest, 16)?.try_into().ok()?;
        let choices = if flags & HAS_CHOICES == 0 { None } else { Some(Choices::decode(rest)?) };
        let (complete, volume) = (flags & COMPLETE != 0, (volume != [0; 16]).then_some(volume));
        Some(Record { cache, generation, complete, volume, choices })
    }
}

impl Choices {
    /// The choices as bytes, within a record or in a file map.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let Geometry { page_bytes, segment_pages, segments, layout } = self.geometry;
        let layout = match layout {
            Layout::Log => 1,
            Layout::Slots => 2,
            Layout::Segments => 3,
        };
        let kind = match self.kind {
            CacheKind::File => 1,
            CacheKind::BlockDevice => 2,
        };
        let mut bytes = vec![layout, kind, 0, 0];
        for number in [page_bytes, segment_pages, segments] {
            bytes.extend(number.to_le_bytes());
        }
        for number in [self.size_bytes, self.device] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.resize(CHOICES_FIXED - 2 * TEXTS, 0);
        // Texts that do not fit are left out, the longest first.
        let path = self.path.as_ref().map_or(&[][..], |path| path.as_os_str().as_bytes());
        let text = |text: &Option<String>| text.clone().unwrap_or_default().into_bytes();
        let mut texts: [_; TEXTS] = [path.to_vec(), text(&self.policy), text(&self.mode), text(&self.wear)];
        while texts.iter().map(Vec::len).sum::<usize>() > TEXTS_MAX {
            texts.iter_mut().max_by_key(|text| text.len()).expect("four of them").clear();
        }
        // The bound on wear is younger than the others: its length is in bytes that were zero.
        for at in [3, 0, 1, 2] {
            bytes.extend((texts[at].len() as u16).to_le_bytes());
        }
        texts.iter().for_each(|text| bytes.extend(text));
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let first = take(&mut rest, 4)?;
        let layout = match first[0] {
            1 => Layout::Log,
            2 => Layout::Slots,
            3 => Layout::Segments,
            _ => return None,
        };
        let kind = match first[1] {
            1 => CacheKind::File,
            2 => CacheKind::BlockDevice,
            _ => return None,
        };
        let page_bytes = take_u32(&mut rest)?;
        let segment_pages = take_u32(&mut rest)?;
        let geometry = Geometry { page_bytes, segment_pages, segments: take_u32(&mut rest)?, layout };
        let (size_bytes, device) = (take_u64(&mut rest)?, take_u64(&mut rest)?);
        take(&mut rest, CHOICES_FIXED - 2 * TEXTS - 32)?;
        let wear = take_u16(&mut rest)?;
        let lengths = [take_u16(&mut rest)?, take_u16(&mut rest)?, take_u16(&mut rest)?, wear];
        let [path, policy, mode, wear] = lengths.map(|length| take(&mut rest, length.into()));
        let path = Some(path?).filter(|path| !path.is_empty());
        let path = path.map(|path| PathBuf::from(std::ffi::OsString::from_vec(path.to_vec())));
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
        let (policy, mode, wear) = (text(policy?)?, text(mode?)?, text(wear?)?);
        let given = |text: String| Some(text).filter(|text| !text.is_empty());
        let (policy, mode, wear) = (given(policy), given(mode), given(wear));
        Some(Choices { geometry, size_bytes, path, kind, device, policy, mode, wear })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Record {
        let geometry = Geometry { page_bytes: 4096, segment_pages: 256, segments: 40, layout: Layout::Slots };
        let choices = Choices {
            geometry,
            size_bytes: 41 << 20,
            path: Some("/var/cache/of/something".into()),
            kind: CacheKind::BlockDevice,
            device: 0x1_0000_0203,
            policy: Some("lru".into()),
            mode: None,
            wear: Some("1DWPD".into()),
        };
        Record {
            cache: [7; 16],
            generation: Generation { number: 12, nonce: u64::MAX },
            complete: true,
            volume: Some([9; 16]),
            choices: Some(choices),
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let whole = example();
        let plain = Record { complete: false, volume: None, choices: None, ..whole.clone() };
        for record in [whole, plain] {
            assert_eq!(Record::decode(&record.encode()), Ok(record));
        }
    }

    #[test]
    fn a_record_that_was_changed_or_cut_off_is_damaged_and_never_none() {
        let bytes = example().encode();
        for at in 0..bytes.len() {
            let mut torn = bytes.clone();
            torn[at] ^= 1;
            assert_eq!(Record::decode(&torn), Err(RecordError::Damaged), "byte {at}");
            assert_eq!(Record::decode(&bytes[..at]), Err(RecordError::Damaged), "cut at {at}");
        }
        let mut later = bytes[..bytes.len() - 4].to_vec();
        later[8] = 2;
        later.extend(crc(&later));
        assert_eq!(Record::decode(&later), Err(RecordError::Version(2)));
    }

    #[test]
    fn what_is_too_long_is_not_kept_and_the_rest_is() {
        let mut record = example();
        let choices = record.choices.as_mut().expect("choices");
        choices.path = Some(PathBuf::from(format!("/{}", "p".repeat(4000))));
        let bytes = record.encode();
        assert!(bytes.len() <= RECORD_BYTES_MAX);
        record.choices.as_mut().expect("choices").path = None;
        assert_eq!(Record::decode(&bytes), Ok(record));
    }
}
