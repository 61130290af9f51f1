//! Reading of a committed file: each chunk comes from the nearest source that has it with its checksum.

use super::files::{FileError, Files, Snapshot};
use super::restore::{ROUNDS, Reader, sources};
use super::{ClientError, Peers};
use crate::checksum::{CHUNK_BYTES, chunk_length};
use crate::index::Index;
use crate::report::report;
use entresol_burst::CheckpointId;
use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Duration;

/// A chunk of a piece.
struct Chunk {
    piece: u32,
    /// Offset in the piece of the first byte.
    offset: u64,
    bytes: Vec<u8>,
}

/// A committed file that is open for reading. It stays the version that was opened.
pub struct FileReader {
    files: Arc<Files>,
    checkpoint: CheckpointId,
    snapshot: Arc<Snapshot>,
    index: Arc<Index>,
    peers: Peers,
    /// The chunk that was read last.
    last: Option<Chunk>,
}

impl FileReader {
    /// Opens the newest version of a committed file.
    ///
    /// # Errors
    /// [`FileError::Missing`] if it is not committed.
    pub fn open(files: Arc<Files>, checkpoint: CheckpointId, name: &OsStr) -> Result<FileReader, FileError> {
        let (snapshot, _, index) = files.newest(checkpoint, name)?;
        let peers = files.client.peers();
        Ok(FileReader { files, checkpoint, snapshot, index, peers, last: None })
    }

    /// A reader of the bytes that an index has.
    pub(super) fn of(files: Arc<Files>, checkpoint: CheckpointId, index: Arc<Index>) -> Result<FileReader, FileError> {
        let snapshot = files.snapshot(checkpoint, Duration::ZERO)?;
        let peers = files.client.peers();
        Ok(FileReader { files, checkpoint, snapshot, index, peers, last: None })
    }

    /// Length of the file in bytes.
    pub fn length(&self) -> u64 {
        self.index.bytes
    }

    /// Reads a range; less of it at the end of the file.
    ///
    /// # Errors
    /// When no source has a chunk with its checksum.
    pub fn read(&mut self, offset: u64, bytes: u64) -> Result<Vec<u8>, FileError> {
        let mut read = vec![0; self.index.bytes.saturating_sub(offset).min(bytes) as usize];
        self.read_into(offset, &mut read)?;
        Ok(read)
    }

    /// Reads from an offset on into memory of the caller, of which less is filled at the end of the file. Returns the number
    /// of bytes.
    ///
    /// # Errors
    /// When no source has a chunk with its checksum. Any byte of the memory may have changed then.
    pub fn read_into(&mut self, offset: u64, into: &mut [u8]) -> Result<usize, FileError> {
        let end = offset.saturating_add(into.len() as u64).min(self.index.bytes);
        let mut at = offset;
        while at < end {
            let rest = &mut into[(at - offset) as usize..(end - offset) as usize];
            let filled = match self.index.span(at) {
                None => {
                    let zeros = (self.index.next(at).min(end) - at) as usize;
                    rest[..zeros].fill(0);
                    zeros
                }
                Some(span) => {
                    let in_piece = span.at + (at - span.offset);
                    let left = (span.offset + span.bytes).min(end) - at;
                    let part = self.in_piece(span.piece, in_piece, left)?;
                    rest[..part.len()].copy_from_slice(part);
                    part.len()
                }
            };
            at += filled as u64;
        }
        Ok((at - offset) as usize)
    }

    /// At most `most` bytes of a piece from an offset on, and at least one.
    fn in_piece(&mut self, piece: u32, offset: u64, most: u64) -> Result<&[u8], FileError> {
        let has = |chunk: &Chunk| {
            chunk.piece == piece && (chunk.offset..chunk.offset + chunk.bytes.len() as u64).contains(&offset)
        };
        let chunk = match self.last.take().filter(has) {
            Some(chunk) => chunk,
            None => self.chunk(piece, offset)?,
        };
        let chunk = self.last.insert(chunk);
        let from = (offset - chunk.offset) as usize;
        let to = chunk.bytes.len().min(from.saturating_add(usize::try_from(most).unwrap_or(usize::MAX)));
        Ok(&chunk.bytes[from..to])
    }

    /// The chunk that has a byte of a piece. Parts move while they are read: a chunk that is nowhere is looked for anew.
    fn chunk(&mut self, piece: u32, offset: u64) -> Result<Chunk, FileError> {
        let mut round = 1;
        loop {
            match self.look(piece, offset) {
                Err(_) if round < ROUNDS => {
                    round += 1;
                    self.snapshot = self.files.snapshot(self.checkpoint, Duration::ZERO)?;
                }
                looked => return looked,
            }
        }
    }

    fn look(&mut self, piece: u32, offset: u64) -> Result<Chunk, FileError> {
        let (job, checkpoint) = (self.files.job, self.checkpoint);
        let damaged = |failures| FileError::from(ClientError::Damaged { job, checkpoint, offset, failures });
        let Snapshot { census, found, .. } = &*self.snapshot;
        let about = census.pieces.get(&piece).ok_or_else(|| damaged(vec![format!("piece {piece} is nowhere")]))?;
        let parts = sources(found, piece, about, self.files.client.settings.node);
        // The piece is whole, so one of its parts has the byte.
        let part = parts.into_iter().find(|((from, bytes), _)| (*from..*from + *bytes).contains(&offset));
        let ((from, length), sources) = part.ok_or_else(|| damaged(Vec::new()))?;
        let number = (offset - from) / CHUNK_BYTES;
        let mut reader = Reader::new(&self.files.client, &mut self.peers);
        let mut bytes = vec![0; chunk_length(length, number) as usize];
        reader.first(&sources, number, &mut bytes).map_err(damaged)?;
        reader.warnings.iter().for_each(|warning| report!("checkpoint {}: {warning}", checkpoint.0));
        Ok(Chunk { piece, offset: from + number * CHUNK_BYTES, bytes })
    }
}
