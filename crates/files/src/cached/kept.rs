//! The backing record of a directory: kinds 5 to 7 of its file map, and 9 for the subvolume. `docs/file-map.md` draws
//! them.

use super::map::{BLOCK, Contents, FileKey, number, record};
use crate::record::{Choices, Record};
use entresol_store::Generation;

const GENERATION: u32 = 5;
const MARK: u32 = 6;
const CHOICES: u32 = 7;
const VOLUME: u32 = 9;

/// Bytes of the choices in one block.
const PART: usize = 48;
/// Most blocks that a record takes.
pub(super) const BLOCKS_MAX: u64 = 3 + crate::record::RECORD_BYTES_MAX.div_ceil(PART) as u64;

fn halves(id: [u8; 16]) -> [u64; 2] {
    [0, 8].map(|at| u64::from_le_bytes(id[at..at + 8].try_into().expect("eight bytes")))
}

fn whole(block: &[u8], at: usize) -> [u8; 16] {
    block[8 + at * 8..24 + at * 8].try_into().expect("sixteen bytes")
}

/// The block of the cache's UUID and the generation.
fn generation(kept: &Record) -> [u8; BLOCK] {
    let [low, high] = halves(kept.cache);
    record(GENERATION, &[kept.generation.number, kept.generation.nonce, low, high])
}

fn mark(kept: &Record) -> [u8; BLOCK] {
    record(MARK, &[kept.complete.into()])
}

fn volume(kept: &Record) -> [u8; BLOCK] {
    record(VOLUME, &halves(kept.volume.unwrap_or_default()))
}

/// A block of the choices. Byte 1 has its number, byte 2 the number of such blocks, byte 3 the length of its contents.
fn part(at: usize, of: usize, bytes: &[u8]) -> [u8; BLOCK] {
    let mut numbers = [0; PART / 8];
    for (number, chunk) in numbers.iter_mut().zip(bytes.chunks(8)) {
        let mut eight = [0; 8];
        eight[..chunk.len()].copy_from_slice(chunk);
        *number = u64::from_le_bytes(eight);
    }
    let kind = u32::from_le_bytes([CHOICES as u8, at as u8, of as u8, bytes.len() as u8]);
    record(kind, &numbers)
}

/// The record as blocks of a map.
pub(super) fn encode(kept: &Record) -> Vec<[u8; BLOCK]> {
    let mut blocks = vec![generation(kept), mark(kept)];
    blocks.extend(kept.volume.map(|_| volume(kept)));
    let choices = kept.choices.as_ref().map(Choices::encode).unwrap_or_default();
    let parts = choices.chunks(PART);
    let of = parts.len();
    blocks.extend(parts.enumerate().map(|(at, bytes)| part(at, of, bytes)));
    blocks
}

/// The blocks that turn one record into another. Choices change only with the whole map.
pub(super) fn changes(before: Option<&Record>, now: &Record) -> Vec<[u8; BLOCK]> {
    let Some(before) = before else { return encode(now) };
    let mut blocks = Vec::new();
    if (before.cache, before.generation) != (now.cache, now.generation) {
        blocks.push(generation(now));
    }
    if before.complete != now.complete {
        blocks.push(mark(now));
    }
    if before.volume != now.volume {
        blocks.push(volume(now));
    }
    blocks
}

/// Parts of the record, collected block by block from a map.
#[derive(Default)]
pub(super) struct Gathered {
    generation: Option<([u8; 16], Generation)>,
    complete: bool,
    volume: Option<[u8; 16]>,
    choices: Vec<u8>,
    /// Blocks of the choices seen so far, and their total number.
    parts: [usize; 2],
}

impl Gathered {
    /// Takes a block; false if it is not part of a record.
    pub fn take(&mut self, block: &[u8]) -> bool {
        match u32::from(block[0]) {
            GENERATION => {
                let generation = Generation { number: number(block, 0), nonce: number(block, 1) };
                self.generation = Some((whole(block, 2), generation));
            }
            MARK => self.complete = number(block, 0) == 1,
            VOLUME => self.volume = Some(whole(block, 0)).filter(|uuid| *uuid != [0; 16]),
            CHOICES => {
                let [at, of, bytes] = [1, 2, 3].map(|byte| usize::from(block[byte]));
                if at == 0 {
                    (self.choices, self.parts) = (Vec::new(), [0, of]);
                }
                self.choices.extend(&block[8..8 + bytes.min(PART)]);
                self.parts[0] += 1;
            }
            _ => return false,
        }
        true
    }

    /// The record, or `Some(None)` if the map has none; none if the blocks do not form a record.
    pub fn record(self) -> Option<Option<Record>> {
        let Some((cache, generation)) = self.generation else { return Some(None) };
        let choices = match self.parts {
            [0, 0] => None,
            [came, of] if came == of => Some(Choices::decode(&self.choices)?),
            _ => return None,
        };
        Some(Some(Record { cache, generation, complete: self.complete, volume: self.volume, choices }))
    }
}

impl Contents {
    /// A map without files, for a new cache.
    pub fn of_record(id: [u8; 16], directory: FileKey, record: Record) -> Self {
        Self { record: Some(record), ..Self::new(id, directory) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::FilesError;
    use super::super::map::{self, FileMap, State};
    use super::*;
    use crate::below::Directory;
    use crate::record::CacheKind;
    use entresol_store::{Geometry, Layout};
    use std::fs::File;

    fn example() -> Record {
        let geometry = Geometry { page_bytes: 4096, segment_pages: 256, segments: 40, layout: Layout::Slots };
        let choices = Choices {
            geometry,
            size_bytes: 41 << 20,
            path: Some(format!("/{}", "long/".repeat(50)).into()),
            kind: CacheKind::File,
            device: 5,
            policy: Some("arc".into()),
            mode: Some("write-through".into()),
            wear: None,
        };
        let generation = Generation { number: 1, nonce: 9 };
        Record { cache: [7; 16], generation, complete: true, volume: None, choices: Some(choices) }
    }

    fn made() -> (tempfile::TempDir, Directory, Contents) {
        let scratch = tempfile::tempdir().expect("a directory");
        let directory = File::open(scratch.path()).expect("a directory").into();
        let contents = Contents::of_record([1; 16], FileKey { inode: 2, made: 3 }, example());
        map::make(&directory, &contents).expect("a map");
        (scratch, directory, contents)
    }

    #[test]
    fn a_record_is_read_back_from_a_map_as_it_was_noted_last() {
        let (scratch, directory, contents) = made();
        let read = || map::read(&directory).expect("a map").expect("it is there").record;
        assert_eq!(read(), Some(example()));
        let contents = Contents { state: State::Open, ..contents };
        let again = Directory::from(File::open(scratch.path()).expect("a directory"));
        let mut map = FileMap::start(again, contents, false).expect("a map");
        for number in 2..60 {
            let generation = Generation { number, nonce: number * 77 };
            let volume = (number % 5 == 0).then_some([number as u8; 16]);
            let noted = Record { generation, complete: number % 3 == 0, volume, ..example() };
            map.note_record(&noted).expect("a note");
            assert_eq!(read(), Some(noted));
        }
        map.close(State::Dirty, Default::default()).expect("a close");
        let closed = read().expect("a record");
        assert!(!closed.complete && closed.generation.number == 59, "{closed:?}");
    }

    #[test]
    fn choices_of_which_a_part_is_missing_are_damage() {
        let (scratch, directory, _) = made();
        let path = scratch.path().join("map");
        let mut bytes = std::fs::read(&path).expect("a map");
        let is_second = |block: &[u8]| u32::from(block[0]) == CHOICES && block[1] == 1;
        let block = bytes.chunks_exact_mut(BLOCK).find(|block| is_second(block)).expect("a second part");
        // Of a kind that a reader may skip.
        block.copy_from_slice(&record(40, &[]));
        std::fs::write(&path, bytes).expect("a write");
        assert!(matches!(map::read(&directory), Err(FilesError::MapDamaged { .. })));
    }
}
