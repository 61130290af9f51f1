//! Writing of a file that grows: bytes are collected, stored piece by piece, and committed by the file's index.
//!
//! A piece is an object of its own, and is acknowledged before its bytes are forgotten. A commit stores the index. A file
//! with a temporary name is committed when it gets another one: its index is in the memory of this process until then.

use super::files::{FileError, Files};
use super::{Acknowledgement, FileReader, Safety};
use crate::clock;
use crate::index::{Claim, FILES, Index, PIECE, PIECE_BYTES, Span};
use crate::server::lock;
use entresol_burst::{CheckpointId, Object};
use std::ffi::OsStr;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

/// A piece that a thread of its own stores while the next one is filled.
#[derive(Debug)]
struct Behind {
    /// Offset in the file of the first byte.
    offset: u64,
    /// Number of bytes of the piece that belong to the file: fewer when the file was cut.
    length: u64,
    piece: u32,
    bytes: Arc<Vec<u8>>,
    thread: JoinHandle<Result<Acknowledgement, FileError>>,
}

/// Bytes of one opening of a file that the index does not have yet: a range without gaps, and the piece before it.
#[derive(Debug, Default)]
pub struct WriteBuffer {
    offset: u64,
    bytes: Vec<u8>,
    behind: Option<Behind>,
    /// A piece that could not be stored, with its offset. It is stored before any other.
    failed: Option<(u64, Vec<u8>)>,
    /// Memory for the next piece.
    spare: Vec<u8>,
}

impl WriteBuffer {
    fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }

    /// Takes as many bytes as fit: the range stays without gaps, and is no longer than a piece. Returns their number.
    fn take(&mut self, offset: u64, bytes: &[u8]) -> usize {
        if self.bytes.is_empty() {
            self.offset = offset;
        }
        if offset < self.offset || offset > self.end() {
            return 0;
        }
        let at = (offset - self.offset) as usize;
        let taken = bytes.len().min(PIECE_BYTES - at);
        let (over, behind) = bytes[..taken].split_at(taken.min(self.bytes.len() - at));
        self.bytes[at..at + over.len()].copy_from_slice(over);
        self.bytes.extend_from_slice(behind);
        taken
    }

    /// Drops bytes beyond a length of the file.
    pub fn cut(&mut self, length: u64) {
        let within = |offset: u64, bytes: usize| length.saturating_sub(offset).min(bytes as u64) as usize;
        self.bytes.truncate(within(self.offset, self.bytes.len()));
        if let Some((offset, bytes)) = &mut self.failed {
            bytes.truncate(within(*offset, bytes.len()));
        }
        if let Some(behind) = &mut self.behind {
            behind.length = behind.length.min(length.saturating_sub(behind.offset));
        }
    }

    /// True if the index has all bytes.
    pub fn is_empty(&self) -> bool {
        self.reach().is_none()
    }

    /// End of the bytes in the file; none without bytes.
    fn reach(&self) -> Option<u64> {
        let bytes = Some(self.end()).filter(|_| !self.bytes.is_empty());
        let failed = self.failed.as_ref().filter(|(_, bytes)| !bytes.is_empty());
        let failed = failed.map(|(offset, bytes)| offset + bytes.len() as u64);
        let behind = self.behind.as_ref().filter(|it| it.length > 0).map(|it| it.offset + it.length);
        [bytes, failed, behind].into_iter().flatten().max()
    }
}

/// Parts of the file that are stored.
#[derive(Default)]
struct Written {
    index: Index,
    /// Claim on the name under which the file is committed; none while it has a temporary one.
    target: Option<Claim>,
    /// Number of the next piece, or of a later index.
    next: u32,
    /// True if the first index was stored, or its storing began.
    has_index: bool,
    /// Number of changes to the index.
    changes: u64,
    /// Number of changes that the committed index has; none if there is no committed index. Under a temporary name:
    /// those that would have been committed.
    committed: Option<u64>,
    /// Safety of all that was stored.
    safety: Safety,
}

/// A file that is being written. Several openings of one mount share it, each with its own [`WriteBuffer`].
pub struct FileWriter {
    files: Arc<Files>,
    checkpoint: CheckpointId,
    /// Numbers of the pieces.
    claim: Claim,
    written: Mutex<Written>,
    /// One commit or change of the name at a time: an index with a later number has a later state of the file.
    committing: Mutex<()>,
}

impl FileWriter {
    /// Opens a file for writing: a new one, or one that is committed and is to be replaced.
    ///
    /// # Errors
    /// [`FileError::Committed`] if it is committed, and not to be replaced.
    pub fn create(
        files: Arc<Files>,
        checkpoint: CheckpointId,
        name: &OsStr,
        replace: bool,
    ) -> Result<FileWriter, FileError> {
        let claim = files.begin(checkpoint, name, replace)?;
        let written = Mutex::new(Written { target: Some(claim), ..Written::default() });
        Ok(FileWriter { files, checkpoint, claim, written, committing: Mutex::new(()) })
    }

    /// Opens a new file under a temporary name. Its pieces are stored as those of other files, and [`FileWriter::rename`]
    /// commits it.
    ///
    /// # Errors
    /// When the PFS has no name for it, or the checkpoint has had too many such files.
    pub fn create_temporary(
        files: Arc<Files>,
        checkpoint: CheckpointId,
        name: &OsStr,
    ) -> Result<FileWriter, FileError> {
        let claim = files.begin_temporary(checkpoint, name)?;
        Ok(FileWriter { files, checkpoint, claim, written: Mutex::default(), committing: Mutex::new(()) })
    }

    /// Writes a range of the file. A full piece is stored while the next one is filled; the one before it is stored before this
    /// returns.
    ///
    /// # Errors
    /// When a piece can be stored nowhere. The buffer still has its bytes then, and a later call tries again.
    pub fn write(&self, buffer: &mut WriteBuffer, mut offset: u64, mut bytes: &[u8]) -> Result<(), FileError> {
        offset.checked_add(bytes.len() as u64).filter(|&end| end <= i64::MAX as u64).ok_or(FileError::TooLong)?;
        while !bytes.is_empty() {
            let taken = buffer.take(offset, bytes);
            if taken == 0 {
                self.send_behind(buffer)?;
            }
            offset += taken as u64;
            bytes = &bytes[taken..];
        }
        Ok(())
    }

    /// Begins to store the bytes of a buffer as a piece; a short piece is stored at once.
    fn send_behind(&self, buffer: &mut WriteBuffer) -> Result<(), FileError> {
        if buffer.bytes.len() < PIECE_BYTES {
            return self.send(buffer, clock::now());
        }
        self.settle(buffer, clock::now())?;
        let piece = self.next_piece()?;
        let spare = std::mem::take(&mut buffer.spare);
        let bytes = Arc::new(std::mem::replace(&mut buffer.bytes, spare));
        let (offset, length, files) = (buffer.offset, bytes.len() as u64, Arc::clone(&self.files));
        let own = Arc::clone(&bytes);
        let store = move || files.store(piece, PIECE, &own, clock::now());
        match std::thread::Builder::new().name("piece".to_owned()).spawn(store) {
            Ok(thread) => buffer.behind = Some(Behind { offset, length, piece: piece.rank, bytes, thread }),
            Err(_) => {
                buffer.failed = Some((offset, Arc::unwrap_or_clone(bytes)));
                self.settle(buffer, clock::now())?;
            }
        }
        Ok(())
    }

    /// Waits until the piece behind a buffer is stored. One that could not be stored is stored now.
    fn settle(&self, buffer: &mut WriteBuffer, since: Instant) -> Result<(), FileError> {
        if let Some(Behind { offset, length, piece, bytes, thread }) = buffer.behind.take() {
            let stored = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            // The thread has ended, and with it the other reference.
            let mut bytes = Arc::unwrap_or_clone(bytes);
            match stored {
                Ok(acknowledged) => {
                    self.note(offset, length, piece, &acknowledged);
                    bytes.clear();
                    buffer.spare = bytes;
                }
                Err(error) => {
                    bytes.truncate(length as usize);
                    buffer.failed = Some((offset, bytes));
                    return Err(error);
                }
            }
        }
        if let Some((offset, bytes)) = buffer.failed.as_ref().filter(|(_, bytes)| !bytes.is_empty()) {
            let piece = self.next_piece()?;
            let acknowledged = self.files.store(piece, PIECE, bytes, since)?;
            self.note(*offset, bytes.len() as u64, piece.rank, &acknowledged);
        }
        buffer.failed = None;
        Ok(())
    }

    /// Stores the bytes of a buffer as a piece. The wait for buffers without progress began at `since`.
    ///
    /// # Errors
    /// When the piece can be stored nowhere; the buffer still has its bytes.
    pub fn send(&self, buffer: &mut WriteBuffer, since: Instant) -> Result<(), FileError> {
        self.settle(buffer, since)?;
        if buffer.bytes.is_empty() {
            return Ok(());
        }
        let piece = self.next_piece()?;
        let acknowledged = self.files.store(piece, PIECE, &buffer.bytes, since)?;
        self.note(buffer.offset, buffer.bytes.len() as u64, piece.rank, &acknowledged);
        // The memory stays for the next piece.
        buffer.bytes.clear();
        Ok(())
    }

    /// Adds a stored piece to the index.
    fn note(&self, offset: u64, bytes: u64, piece: u32, acknowledged: &Acknowledgement) {
        let mut written = lock(&self.written);
        written.safety.add(acknowledged);
        if bytes > 0 {
            written.index.insert(Span { offset, bytes, piece, at: 0 });
        }
        written.changes += 1;
    }

    fn next_piece(&self) -> Result<Object, FileError> {
        let mut written = lock(&self.written);
        let piece = self.claim.piece(self.files.job, self.checkpoint, written.next);
        let piece = piece.ok_or(FileError::Pieces(written.next))?;
        written.next += 1;
        Ok(piece)
    }

    fn next_index(&self, target: Claim) -> Result<Object, FileError> {
        let mut written = lock(&self.written);
        if !std::mem::replace(&mut written.has_index, true) {
            return Ok(target.index(self.files.job, self.checkpoint));
        }
        let index = target.piece(self.files.job, self.checkpoint, written.next);
        let index = index.ok_or(FileError::Pieces(written.next))?;
        written.next += 1;
        Ok(index)
    }

    /// Commits what is stored of the file: it can be read afterwards, through every mount. Does nothing if it is
    /// committed already. A file with a temporary name is ready for its rename afterwards.
    ///
    /// # Errors
    /// When the index can be stored nowhere, or another mount has opened the file for writing.
    pub fn commit(&self, since: Instant) -> Result<(), FileError> {
        let _one = lock(&self.committing);
        self.commit_alone(since)
    }

    fn commit_alone(&self, since: Instant) -> Result<(), FileError> {
        let (target, index, changes) = {
            let mut written = lock(&self.written);
            if written.committed == Some(written.changes) {
                return Ok(());
            }
            let Some(target) = written.target else {
                written.committed = Some(written.changes);
                return Ok(());
            };
            (target, written.index.clone(), written.changes)
        };
        self.check_newest(target)?;
        let object = self.next_index(target)?;
        let acknowledged = self.files.store(object, FILES | target.files, &index.to_bytes(), since)?;
        lock(&self.written).safety.add(&acknowledged);
        self.files.forget(self.checkpoint);
        // An opening that followed meanwhile may not have seen this commit.
        self.check_newest(target)?;
        lock(&self.written).committed = Some(changes);
        Ok(())
    }

    /// Gives a file with a temporary name another one, in place of a committed file with `replace`. What a commit would
    /// have covered before is committed when this returns; the rest, by the next commit.
    ///
    /// # Errors
    /// As of an opening for writing and of a commit. The file has its temporary name then, and may be renamed again.
    pub fn rename(&self, name: &OsStr, replace: bool, since: Instant) -> Result<(), FileError> {
        let _one = lock(&self.committing);
        let target = self.files.begin(self.checkpoint, name, replace)?;
        let ready = {
            let mut written = lock(&self.written);
            (written.target, written.has_index) = (Some(target), false);
            written.committed.take()
        };
        if ready != Some(lock(&self.written).changes) {
            return Ok(());
        }
        let committed = self.commit_alone(since);
        if committed.is_err() {
            let mut written = lock(&self.written);
            (written.target, written.committed) = (None, ready);
        }
        committed
    }

    /// A reader of a file with a temporary name, as it is stored now.
    ///
    /// # Errors
    /// When the coordinator or the PFS cannot be asked for its pieces.
    pub fn reader(&self) -> Result<FileReader, FileError> {
        let index = lock(&self.written).index.clone();
        FileReader::of(Arc::clone(&self.files), self.checkpoint, Arc::new(index))
    }

    /// True if the file has a temporary name.
    pub fn is_temporary(&self) -> bool {
        lock(&self.written).target.is_none()
    }

    fn check_newest(&self, target: Claim) -> Result<(), FileError> {
        match self.files.is_newest(self.checkpoint, target)? {
            true => Ok(()),
            false => Err(FileError::Stale),
        }
    }

    /// Sets the length of the file. The buffers of all openings are to be cut too.
    pub fn set_length(&self, bytes: u64) {
        let mut written = lock(&self.written);
        written.index.set_length(bytes);
        written.changes += 1;
    }

    /// Length of the file with the bytes that are in a buffer.
    pub fn length<'a>(&self, buffers: impl Iterator<Item = &'a WriteBuffer>) -> u64 {
        buffers.filter_map(WriteBuffer::reach).max().unwrap_or(0).max(lock(&self.written).index.bytes)
    }

    /// Safety of all that was stored through this writer, as it was acknowledged then.
    pub fn safety(&self) -> Safety {
        lock(&self.written).safety.clone()
    }

    /// True if nothing was ever written.
    pub fn is_untouched(&self) -> bool {
        lock(&self.written).changes == 0
    }

    /// True if all that is stored is committed, or would be under another name than a temporary one.
    pub fn is_committed(&self) -> bool {
        let written = lock(&self.written);
        written.committed == Some(written.changes)
    }
}
