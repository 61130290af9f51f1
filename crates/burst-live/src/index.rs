//! Files of a checkpoint that grow as they are written: the pieces of a file are objects of their own, and its *index*
//! says which bytes of the file are where.
//!
//! A checkpoint of N files has N *slots*; a file has the slot that its name takes first ([`crate::names`]). Each opening
//! for writing is a new *generation* of the slot, and the newest one that has committed counts. The numbers of ranks of
//! the objects say what they are, so that the name of a part is enough: [`FILES`] and [`PIECE`].
//!
//! A file with a temporary name has no slot, and its pieces have numbers of their own, from 2^31 on. The index of the
//! name that the file gets later refers to them.

use crate::message::About;
use entresol_burst::{CheckpointId, JobId, Object};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// Number of ranks of a piece of a file.
pub const PIECE: u32 = u32::MAX;
/// Flag in the number of ranks of an index; the other bits are the number of files of the checkpoint.
pub const FILES: u32 = 1 << 31;
/// Longest piece in bytes. An open file has at most so many in memory for each of its openings.
pub const PIECE_BYTES: usize = 16 << 20;
/// Most times that a file may be opened for writing.
pub const GENERATIONS: u32 = 64;
/// Most files of a checkpoint: a file may then have 2,000 pieces, and more where there are fewer files.
pub const FILES_MAX: u32 = 1 << 14;

/// One opening of a file for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Number of files of the checkpoint.
    pub files: u32,
    /// Slot of the file, below `files`.
    pub slot: u32,
    /// Number of the opening, below [`GENERATIONS`].
    pub generation: u32,
    /// True for a file with a temporary name: slot and generation stand for numbers of pieces alone.
    pub is_temporary: bool,
}

impl Claim {
    /// The object of the first index.
    pub fn index(self, job: JobId, checkpoint: CheckpointId) -> Object {
        Object { job, checkpoint, rank: self.slot + self.files * self.generation }
    }

    /// The object of a piece, or of a later index: the buffers keep an earlier one until it is on the PFS. None if there
    /// are no more numbers. The first [`GENERATIONS`] rows of numbers are those of the first indexes.
    pub fn piece(self, job: JobId, checkpoint: CheckpointId, number: u32) -> Option<Object> {
        let row = number.checked_add(1)?.checked_mul(GENERATIONS)?.checked_add(self.generation)?;
        let rank = row.checked_mul(self.files)?.checked_add(self.slot).filter(|&rank| rank < FILES - 1)?;
        let first = if self.is_temporary { FILES } else { 0 };
        Some(Object { job, checkpoint, rank: first + rank })
    }
}

/// Slot of an index among so many files.
pub fn slot(files: u32, rank: u32) -> u32 {
    rank % files
}

/// Order of the indexes of a slot: generation and number. The last one counts.
pub fn order(files: u32, rank: u32) -> (u32, u32) {
    let row = rank / files;
    (row % GENERATIONS, row / GENERATIONS)
}

/// A range of a file, and the piece that has its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Offset in the file of the first byte.
    pub offset: u64,
    /// Length in bytes, above 0.
    pub bytes: u64,
    /// Rank of the piece's object.
    pub piece: u32,
    /// Offset in the piece of the first byte.
    pub at: u64,
}

impl Span {
    fn end(&self) -> u64 {
        self.offset + self.bytes
    }

    /// The part of a span between two offsets of the file; none if it is empty.
    fn within(&self, from: u64, to: u64) -> Option<Span> {
        let (begin, end) = (self.offset.max(from), self.end().min(to));
        (begin < end).then(|| Span { offset: begin, bytes: end - begin, at: self.at + (begin - self.offset), ..*self })
    }
}

/// Contents of a file. Bytes that no span has are zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    /// Length of the file in bytes.
    pub bytes: u64,
    /// Disjoint ranges, by offset.
    pub spans: Vec<Span>,
}

impl Index {
    /// Reads an index.
    ///
    /// # Errors
    /// When the bytes are no index, or one whose ranges overlap or lie beyond the file.
    pub fn parse(bytes: &[u8]) -> io::Result<Index> {
        let index: Index = serde_json::from_slice(bytes)?;
        let mut end = 0;
        for span in &index.spans {
            let last = span.offset.checked_add(span.bytes).filter(|_| span.bytes > 0 && span.offset >= end);
            end = last.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "an index with overlapping ranges"))?;
        }
        match end <= index.bytes {
            true => Ok(index),
            false => Err(io::Error::new(io::ErrorKind::InvalidData, "an index of a longer file")),
        }
    }

    /// The index as it is stored.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("numbers and lists are always JSON")
    }

    /// Enters a range that was written; it replaces what was there.
    pub fn insert(&mut self, new: Span) {
        let around = |span: &Span| [span.within(0, new.offset), span.within(new.end(), u64::MAX)];
        self.spans = self.spans.iter().flat_map(around).flatten().chain([new]).collect();
        self.spans.sort_unstable_by_key(|span| span.offset);
        self.bytes = self.bytes.max(new.end());
    }

    /// Sets the length. Bytes beyond it are gone, and new ones are zero.
    pub fn set_length(&mut self, bytes: u64) {
        self.spans = self.spans.iter().filter_map(|span| span.within(0, bytes)).collect();
        self.bytes = bytes;
    }

    /// The span that has a byte of the file; none if the byte is zero or beyond the end.
    pub fn span(&self, offset: u64) -> Option<Span> {
        let after = self.spans.partition_point(|span| span.offset <= offset);
        self.spans[..after].last().copied().filter(|span| offset < span.end())
    }

    /// Offset of the first span after a byte, or the end of the file.
    pub fn next(&self, offset: u64) -> u64 {
        let after = self.spans.partition_point(|span| span.offset <= offset);
        self.spans.get(after).map_or(self.bytes, |span| span.offset)
    }

    /// Ranks of the pieces, if all are among these whole ones and long enough.
    pub fn pieces(&self, whole: &BTreeMap<u32, About>) -> Option<BTreeSet<u32>> {
        let is_there = |span: &Span| whole.get(&span.piece).is_some_and(|it| span.at + span.bytes <= it.total);
        self.spans.iter().map(|span| is_there(span).then_some(span.piece)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_core::Random;

    #[test]
    fn an_index_reads_as_the_writes_that_made_it() {
        let seed = 11;
        let mut random = Random::new(seed);
        for round in 0..200 {
            let (mut index, mut model) = (Index::default(), Vec::new());
            for piece in 1..20 {
                let offset = random.below(40);
                if random.below(6) == 0 {
                    index.set_length(offset);
                    model.resize(offset as usize, (0, 0));
                    continue;
                }
                let bytes = 1 + random.below(20);
                index.insert(Span { offset, bytes, piece, at: 0 });
                let end = (offset + bytes) as usize;
                model.resize(model.len().max(end), (0, 0));
                (0..bytes).for_each(|at| model[(offset + at) as usize] = (piece, at));
            }
            let index = Index::parse(&index.to_bytes()).expect("an index");
            assert_eq!(index.bytes, model.len() as u64, "seed {seed}, round {round}");
            for (offset, &expected) in (0..).zip(&model) {
                let span = index.span(offset);
                let read = span.map_or((0, 0), |span| (span.piece, span.at + offset - span.offset));
                assert_eq!(read, expected, "seed {seed}, round {round}: {index:?}");
                assert!(span.is_some() || index.next(offset) > offset);
            }
        }
    }

    #[test]
    fn forged_indexes_are_refused() {
        let span = |offset, bytes| Span { offset, bytes, piece: 0, at: 0 };
        for (bytes, spans) in [
            (9, vec![span(0, 10)]),
            (20, vec![span(5, 5), span(0, 6)]),
            (20, vec![span(0, 0)]),
            (u64::MAX, vec![span(u64::MAX, 2)]),
        ] {
            assert!(Index::parse(&Index { bytes, spans }.to_bytes()).is_err());
        }
        assert!(Index::parse(b"{").is_err());
    }

    #[test]
    fn no_two_objects_of_a_checkpoint_have_one_number() {
        let (job, checkpoint, files) = (JobId(1), CheckpointId(1), 3);
        let mut ranks = BTreeSet::new();
        for slot_of in 0..files {
            for generation in 0..GENERATIONS {
                let claim = Claim { files, slot: slot_of, generation, is_temporary: false };
                let index = claim.index(job, checkpoint);
                assert!(ranks.insert(index.rank) && slot(files, index.rank) == slot_of);
                assert_eq!(order(files, index.rank), (generation, 0));
                let later = claim.piece(job, checkpoint, 4).expect("an index");
                assert_eq!((slot(files, later.rank), order(files, later.rank)), (slot_of, (generation, 5)));
                for claim in [claim, Claim { is_temporary: true, ..claim }] {
                    let piece = |number| claim.piece(job, checkpoint, number).expect("a piece").rank;
                    assert!((0..10).all(|number| ranks.insert(piece(number)) && piece(number) != PIECE));
                }
            }
        }
        let last = Claim { files: FILES_MAX, slot: FILES_MAX - 1, generation: GENERATIONS - 1, is_temporary: false };
        assert!(last.index(job, checkpoint).rank < FILES);
        let before = |number| last.piece(job, checkpoint, number).is_some_and(|object| object.rank < FILES);
        assert!(before(2_045) && last.piece(job, checkpoint, 2_046).is_none());
        let temporary = Claim { is_temporary: true, ..last };
        assert!(temporary.piece(job, checkpoint, 2_045).is_some_and(|object| (FILES..PIECE).contains(&object.rank)));
        assert!(temporary.piece(job, checkpoint, 2_046).is_none());
        // The number that would be that of all pieces' kind is left out.
        let single = Claim { files: 1, slot: 0, generation: GENERATIONS - 1, is_temporary: true };
        let most = FILES / GENERATIONS - 2;
        assert!(single.piece(job, checkpoint, most).is_none() && single.piece(job, checkpoint, most - 1).is_some());
    }
}
