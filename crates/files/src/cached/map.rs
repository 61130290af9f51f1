//! The file map: the file to which each region of the cache's address space belongs. `docs/file-map.md` draws it.
//!
//! The map lies in the backing directory because it describes these files, and a cache may be a block device without
//! space beside it. Records are appended. Every open and close writes the whole map over a spare file, which is then
//! exchanged with it. So a cache can be closed although the file system has become full.

mod version;

use super::FilesError;
use super::kept::{self, Gathered};
use crate::below::{Directory, File, For, OpenDirectory, OpenFile};
use crate::mutant::{self, Mutant};
use crate::record::Record;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;

/// Bytes of a region, the unit in which a file gets address space. Small in this crate's tests, so that files have
/// several.
pub(super) const REGION_BYTES: u64 = if cfg!(test) { 1 << 14 } else { 1 << 30 };

/// Bytes of the header and of each record.
pub(super) const BLOCK: usize = 64;
const MAGIC: [u8; 8] = *b"\x89ETFILES";
const NAME: &str = "map";
const SPARE: &str = "map.new";
/// Step in bytes by which the files grow, so that appending a record does not change the size.
const STEP: u64 = if cfg!(test) { 1 << 12 } else { 1 << 16 };
/// Obsolete records beyond which the map is rewritten.
const SLACK: u64 = if cfg!(test) { 1 << 6 } else { 1 << 14 };

const REGION: u32 = 1;
const DROPPED: u32 = 2;
const STAMP: u32 = 3;
const VOID: u32 = 4;
/// A file's last name may be removed. 5 to 7 and 9 are those of the [record](super::kept); 10 is reserved.
const LEAVING: u32 = 8;
const STAYS: u32 = 11;
/// A file was changed by another program while the cache had dirty pages of it; and it was decided since which bytes
/// count.
pub(super) const CONFLICT: u32 = 12;
pub(super) const RESOLVED: u32 = 13;
/// Unknown kinds from here on are skipped.
const KNOWN_MAX: u32 = 32;

/// Key that tells a file from all earlier and later ones in the directory. An inode number may return, its time of
/// making does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct FileKey {
    pub inode: u64,
    /// Nanoseconds since 1970.
    pub made: u64,
}

/// Size in bytes and times of a file at the end of our last change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    pub size: u64,
    /// Nanoseconds since 1970.
    pub modified: i64,
    /// Nanoseconds since 1970.
    pub changed: i64,
}

/// A part of a file, [`REGION_BYTES`] long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    pub file: FileKey,
    /// Number of the part in the file.
    pub part: u64,
}

/// State of the cache as the map has it, which tells whether the files are complete without the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// In use, or in use at the time of a crash.
    Open,
    /// Closed, with every byte in the files.
    Clean,
    /// Closed, with dirty pages in the cache.
    Dirty,
}

/// Contents of the map as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Contents {
    pub state: State,
    /// Version of the layout that was read, or is written unless a record needs a later one.
    pub version: u32,
    /// Identifier of the backing directory, for which the cache was made.
    pub id: [u8; 16],
    /// The backing directory itself.
    pub directory: FileKey,
    /// The first region that was never assigned.
    pub next: u64,
    pub regions: BTreeMap<u64, Extent>,
    pub stamps: BTreeMap<FileKey, Stamp>,
    /// Byte ranges that were cut off or zeroed in the files: clean copies of pages that they touch may be outdated.
    pub voids: Vec<(FileKey, Range<u64>)>,
    /// Files that lost a name, perhaps their last: they may be missing.
    pub leaving: BTreeSet<FileKey>,
    /// Files that another program changed while the cache had dirty pages of them, each with its earlier size in bytes.
    pub conflicts: BTreeMap<FileKey, u64>,
    /// Record of the cache, if there is one.
    pub record: Option<Record>,
}

/// The map while it is in use.
pub(super) struct FileMap {
    /// The hidden directory, locked as long as the map exists.
    directory: Directory,
    /// None where the map cannot be written.
    written: Option<Written>,
    /// Length of the spare file in bytes.
    spare: u64,
    /// An appended record is not durable yet.
    unsynced: bool,
    /// A sync failed: appended records may be missing, and records behind a missing one would not be found.
    torn: bool,
    contents: Contents,
}

/// A map that was written whole.
struct Written {
    file: File,
    /// The byte after the last record.
    end: u64,
    /// Length of the file in bytes; zeroes from `end` on.
    space: u64,
}

fn crc(block: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &block[..BLOCK - 4]) as u32
}

/// A block with numbers after its first 8 bytes.
fn block(first: [u8; 8], numbers: &[u64]) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    block[..8].copy_from_slice(&first);
    for (at, number) in numbers.iter().enumerate() {
        block[8 + at * 8..16 + at * 8].copy_from_slice(&number.to_le_bytes());
    }
    let crc = crc(&block);
    block[BLOCK - 4..].copy_from_slice(&crc.to_le_bytes());
    block
}

pub(super) fn record(kind: u32, numbers: &[u64]) -> [u8; BLOCK] {
    block(u64::from(kind).to_le_bytes(), numbers)
}

fn region_record(region: u64, extent: Extent) -> [u8; BLOCK] {
    record(REGION, &[region, extent.file.inode, extent.file.made, extent.part])
}

fn stamp_record(file: FileKey, stamp: Stamp) -> [u8; BLOCK] {
    record(STAMP, &[file.inode, file.made, stamp.size, stamp.modified as u64, stamp.changed as u64])
}

fn void_record(file: FileKey, range: &Range<u64>) -> [u8; BLOCK] {
    record(VOID, &[file.inode, file.made, range.start, range.end])
}

fn file_record(kind: u32, file: FileKey) -> [u8; BLOCK] {
    record(kind, &[file.inode, file.made])
}

pub(super) fn number(block: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(block[8 + at * 8..16 + at * 8].try_into().expect("eight bytes"))
}

fn is_whole(block: &[u8]) -> bool {
    crc(block).to_le_bytes() == block[BLOCK - 4..]
}

impl Contents {
    /// A map without files.
    pub fn new(id: [u8; 16], directory: FileKey) -> Self {
        Self {
            state: State::Clean,
            version: version::NEWEST,
            id,
            directory,
            next: 0,
            regions: BTreeMap::new(),
            stamps: BTreeMap::new(),
            voids: Vec::new(),
            leaving: BTreeSet::new(),
            conflicts: BTreeMap::new(),
            record: None,
        }
    }

    /// True if every byte that was flushed is in the files: the cache was closed so, or its record says so durably.
    pub fn is_complete(&self) -> bool {
        self.state == State::Clean || self.record.as_ref().is_some_and(|record| record.complete)
    }

    fn encode(&self) -> Vec<u8> {
        // The version is the low half of the first number.
        let state = match self.state {
            State::Open => 0,
            State::Clean => 1,
            State::Dirty => 2,
        };
        let id = [0, 8].map(|at| u64::from_le_bytes(self.id[at..at + 8].try_into().expect("eight bytes")));
        let header = [
            u64::from(self.needed_version()) | state << 32,
            id[0],
            id[1],
            self.directory.inode,
            self.directory.made,
            self.next,
        ];
        let mut bytes = block(MAGIC, &header).to_vec();
        self.regions.iter().for_each(|(&region, &extent)| bytes.extend(region_record(region, extent)));
        self.stamps.iter().for_each(|(&file, &stamp)| bytes.extend(stamp_record(file, stamp)));
        self.voids.iter().for_each(|(file, range)| bytes.extend(void_record(*file, range)));
        self.leaving.iter().for_each(|&file| bytes.extend(file_record(LEAVING, file)));
        let conflicts = self.conflicts.iter();
        conflicts.for_each(|(file, &size)| bytes.extend(record(CONFLICT, &[file.inode, file.made, size])));
        self.record.iter().for_each(|kept| bytes.extend(kept::encode(kept).concat()));
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<(Self, u64), FilesError> {
        let mut blocks = bytes.chunks_exact(BLOCK);
        let header = blocks.next().filter(|block| block[..8] == MAGIC).ok_or(FilesError::NotAMap)?;
        let version = number(header, 0) as u32;
        if !(1..=version::NEWEST).contains(&version) {
            return Err(FilesError::MapVersion(version));
        }
        let state = match (is_whole(header), number(header, 0) >> 32) {
            (true, 0) => State::Open,
            (true, 1) => State::Clean,
            (true, 2) => State::Dirty,
            _ => return Err(FilesError::MapDamaged { byte: 0 }),
        };
        let mut id = [0; 16];
        id.copy_from_slice(&header[16..32]);
        let directory = FileKey { inode: number(header, 3), made: number(header, 4) };
        let mut found = Contents { state, version, next: number(header, 5), ..Contents::new(id, directory) };
        let (mut end, mut kept) = (BLOCK, Gathered::default());
        // A kill or a crash leaves a torn last record, or records behind a missing one: none of these was used.
        for block in blocks.take_while(|block| is_whole(block)) {
            if !kept.take(block) {
                found.take(block, end)?;
            }
            end += BLOCK;
        }
        found.record = kept.record().ok_or(FilesError::MapDamaged { byte: BLOCK as u64 })?;
        Ok((found, end as u64))
    }

    fn take(&mut self, block: &[u8], byte: usize) -> Result<(), FilesError> {
        match u32::from(block[0]) {
            REGION => {
                let file = FileKey { inode: number(block, 1), made: number(block, 2) };
                let region = number(block, 0);
                let next = region.checked_add(1).ok_or(FilesError::MapDamaged { byte: byte as u64 })?;
                self.regions.insert(region, Extent { file, part: number(block, 3) });
                self.next = self.next.max(next);
            }
            DROPPED => drop(self.regions.remove(&number(block, 0))),
            STAMP => {
                let file = FileKey { inode: number(block, 0), made: number(block, 1) };
                let (modified, changed) = (number(block, 3) as i64, number(block, 4) as i64);
                self.stamps.insert(file, Stamp { size: number(block, 2), modified, changed });
            }
            VOID => {
                let file = FileKey { inode: number(block, 0), made: number(block, 1) };
                self.voids.push((file, number(block, 2)..number(block, 3)));
            }
            kind @ (LEAVING | STAYS) => {
                let file = FileKey { inode: number(block, 0), made: number(block, 1) };
                if kind == LEAVING {
                    self.leaving.insert(file)
                } else {
                    self.leaving.remove(&file)
                };
            }
            kind @ (CONFLICT | RESOLVED) => {
                let file = FileKey { inode: number(block, 0), made: number(block, 1) };
                if kind == CONFLICT {
                    self.conflicts.insert(file, number(block, 2))
                } else {
                    self.conflicts.remove(&file)
                };
            }
            // A later version's record that an open may ignore.
            KNOWN_MAX.. => {}
            _ => return Err(FilesError::MapDamaged { byte: byte as u64 }),
        }
        Ok(())
    }
}

/// Reads a file from its beginning to its end.
pub(super) fn read_whole(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; file.found()?.size as usize];
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(done as u64, &mut bytes[done..]) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}

/// Reads the map of a hidden directory without changing anything; none when there is none.
pub(super) fn read(directory: &Directory) -> Result<Option<Contents>, FilesError> {
    match directory.open_file(NAME, For::Reading) {
        Ok(file) => Contents::decode(&read_whole(&file)?).map(|(contents, _)| Some(contents)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(io::Error::from(error).into()),
    }
}

/// True if the file system of the map is read-only.
pub(super) fn is_read_only(directory: &Directory) -> bool {
    matches!(directory.open_file(NAME, For::Writing), Err(Errno::ROFS))
}

/// Makes durable the map that was read, which a killed process may have left in memory only.
pub(super) fn sync_read(directory: &Directory) -> io::Result<()> {
    directory.open_file(NAME, For::Reading)?.sync_all()?;
    Ok(directory.sync()?)
}

/// Makes a map without files: durable when it returns, and until then the earlier map stands. The spare file gets the
/// length of the next map, because the file system may be full by the first start.
pub(super) fn make(directory: &Directory, contents: &Contents) -> io::Result<()> {
    let (_, spare) = write(directory, contents)?;
    let space = room_to_close(contents);
    if spare < space {
        lengthen(&directory.open_file(SPARE, For::Making)?, space)?;
    }
    Ok(())
}

/// Writes a map over the spare file and exchanges the two files. Also returns the new spare file's length in bytes.
fn write(directory: &Directory, contents: &Contents) -> io::Result<(Written, u64)> {
    // After an exchange of names that was not synced, a crash may leave the spare file as the map.
    directory.sync()?;
    let before = match directory.size_of(NAME) {
        Ok(size) => size,
        Err(Errno::NOENT) => 0,
        Err(error) => return Err(error.into()),
    };
    let file = directory.open_file(SPARE, For::Making)?;
    let mut bytes = contents.encode();
    let end = bytes.len() as u64;
    let space = file.found()?.size.max(end).next_multiple_of(STEP);
    // No earlier record may be left behind the last new one.
    bytes.resize(space as usize, 0);
    file.write_all_at(0, &bytes)?;
    file.sync_all()?;
    let spare = match directory.exchange(SPARE, NAME) {
        Ok(()) => before,
        // There is no map yet, or the file system cannot exchange names.
        Err(Errno::NOENT | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            directory.rename(SPARE, NAME)?;
            0
        }
        Err(error) => return Err(error.into()),
    };
    directory.sync()?;
    Ok((Written { file, end, space }, spare))
}

/// Bytes for a map with its record, two blocks for each region and for one more, and one for each file that may leave
/// or is in conflict.
fn room_to_close(contents: &Contents) -> u64 {
    let words = (contents.leaving.len() + contents.conflicts.len()) as u64;
    ((1 + kept::BLOCKS_MAX + 2 * (contents.regions.len() as u64 + 1) + words) * BLOCK as u64).next_multiple_of(STEP)
}

/// Lengthens a file with zeroes to at least `space` bytes; returns its length.
fn lengthen(file: &File, space: u64) -> io::Result<u64> {
    let length = file.found()?.size;
    if length < space {
        // Written, not only reserved, so that no space has to be found later.
        file.write_all_at(length, &vec![0; (space - length) as usize])?;
    }
    Ok(length.max(space))
}

impl FileMap {
    /// Writes the map at a start. With `read_only` the map stays as it is, because the backing file system cannot be
    /// written.
    pub fn start(directory: Directory, contents: Contents, read_only: bool) -> io::Result<Self> {
        if read_only {
            return Ok(Self { directory, written: None, spare: 0, unsynced: false, torn: false, contents });
        }
        // The earlier map becomes the spare file. If it cannot be lengthened enough, it stays the map.
        match directory.open_file(NAME, For::Writing) {
            Ok(file) => drop(lengthen(&file, room_to_close(&contents))?),
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let contents = Contents { version: contents.needed_version(), ..contents };
        let (written, spare) = write(&directory, &contents)?;
        Ok(Self { directory, written: Some(written), spare, unsynced: false, torn: false, contents })
    }

    /// True if the map cannot be written.
    pub fn is_read_only(&self) -> bool {
        self.written.is_none()
    }

    /// Lengthens the spare file so that it can take the map at the close, with one more region.
    pub fn make_room_to_close(&mut self) -> io::Result<()> {
        let space = room_to_close(&self.contents);
        if self.spare < space {
            self.spare = lengthen(&self.directory.open_file(SPARE, For::Making)?, space)?;
        }
        Ok(())
    }

    /// Writes the whole map durably: a crash leaves this one or the one before.
    pub(super) fn write_anew(&mut self) -> io::Result<()> {
        if self.is_read_only() {
            return Ok(());
        }
        // Until this succeeds, either of the two files may be the map.
        self.torn = true;
        self.contents.version = self.contents.needed_version();
        let (written, spare) = write(&self.directory, &self.contents)?;
        (self.written, self.spare) = (Some(written), spare);
        (self.unsynced, self.torn) = (false, false);
        Ok(())
    }

    /// Assigns a region to a part of a file, durably. No region is assigned twice.
    pub fn allocate(&mut self, extent: Extent, limit: u64) -> io::Result<u64> {
        let region = self.contents.next;
        if region >= limit {
            return Err(Errno::NOSPC.into());
        }
        if self.is_read_only() {
            return Err(Errno::ROFS.into());
        }
        self.make_room_to_close()?;
        // Not assigned again even if this fails: the record may be there.
        self.contents.next += 1;
        self.append(&region_record(region, extent))?;
        if !mutant::is(Mutant::RegionUnsynced) {
            self.sync()?;
        }
        self.contents.regions.insert(region, extent);
        Ok(region)
    }

    /// Takes a region from its file. If a crash loses this record, the next start finds the fact by itself.
    pub fn release(&mut self, region: u64) -> io::Result<()> {
        self.contents.regions.remove(&region);
        self.append_or_renew(&record(DROPPED, &[region]))
    }

    /// Appends a record that the contents already include, or rewrites the map if many records are obsolete.
    pub fn append_or_renew(&mut self, record: &[u8; BLOCK]) -> io::Result<()> {
        let words = self.contents.leaving.len() + self.contents.conflicts.len();
        let live = (3 * self.contents.regions.len() + words) as u64;
        let end = self.written.as_ref().map_or(0, |written| written.end);
        if end / BLOCK as u64 > live + SLACK { self.write_anew() } else { self.append(record) }
    }

    /// Notes that a range of a file is about to be cut off or zeroed; durable when this returns.
    pub fn note_void(&mut self, file: FileKey, range: Range<u64>) -> io::Result<()> {
        self.append(&void_record(file, &range))?;
        self.contents.voids.push((file, range));
        if mutant::is(Mutant::VoidUnsynced) { Ok(()) } else { self.sync() }
    }

    /// Notes that a file may lose its last name. Without this record, a start after a crash takes the removed file for
    /// a missing one. So the record is durable before the name goes wherever the cache may have bytes that the file
    /// lacks.
    pub fn note_leaving(&mut self, file: FileKey) -> io::Result<()> {
        if self.contents.leaving.contains(&file) {
            return Ok(());
        }
        self.contents.leaving.insert(file);
        let noted = self.make_room_to_close().and_then(|()| self.append_or_renew(&file_record(LEAVING, file)));
        if noted.is_err() {
            // Otherwise the next call would take the record as written.
            self.contents.leaving.remove(&file);
        }
        noted
    }

    /// Notes that a file still has a name. The record need not be durable: without it the file may go missing without
    /// an error.
    pub fn note_stays(&mut self, file: FileKey) -> io::Result<()> {
        if self.contents.leaving.remove(&file) { self.append(&file_record(STAYS, file)) } else { Ok(()) }
    }

    /// Forgets that a file may be missing, once the cache has no pages of it.
    pub fn forget_leaving(&mut self, file: FileKey) {
        self.contents.leaving.remove(&file);
    }

    /// Time of the last write of the map, by the clock of its file system: nanoseconds since 1970.
    pub fn written_at(&self) -> io::Result<u64> {
        // No files are made in a file system that cannot be written.
        let Some(written) = &self.written else { return Ok(u64::MAX) };
        let (seconds, more) = written.file.attributes()?.modified;
        Ok(seconds.max(0) as u64 * 1_000_000_000 + more as u64)
    }

    /// Makes the noted records durable.
    pub fn sync(&mut self) -> io::Result<()> {
        if self.torn && !mutant::is(Mutant::MapNotRenewed) {
            return self.write_anew();
        }
        if let Some(written) = self.written.as_ref().filter(|_| self.unsynced) {
            self.torn = true;
            written.file.sync_data()?;
            (self.unsynced, self.torn) = (false, false);
        }
        Ok(())
    }

    /// The directory of the map.
    pub fn hidden(&self) -> &Directory {
        &self.directory
    }

    /// Contents of the map.
    pub fn contents(&self) -> &Contents {
        &self.contents
    }

    /// The contents, to be changed before a record is appended.
    pub fn contents_mut(&mut self) -> &mut Contents {
        &mut self.contents
    }

    /// Number of ranges noted as cut off or zeroed.
    pub fn voids(&self) -> usize {
        self.contents.voids.len()
    }

    /// Clears stamps and ranges, once the cache has no pages that they concern.
    pub fn trust(&mut self) -> io::Result<()> {
        self.contents.stamps.clear();
        self.contents.voids.clear();
        self.write_anew()
    }

    /// Closes the map with the stamp of each file.
    pub fn close(&mut self, state: State, stamps: BTreeMap<FileKey, Stamp>) -> io::Result<()> {
        let complete = state == State::Clean;
        let record = self.contents.record.clone().map(|record| Record { complete, ..record });
        let contents = Contents { state, stamps, record, voids: Vec::new(), ..self.contents.clone() };
        write(&self.directory, &contents).map(drop)
    }

    /// Appends a record that the contents include already or will include.
    fn append(&mut self, record: &[u8; BLOCK]) -> io::Result<()> {
        if !self.contents.has_word_for(record) {
            self.contents.version = version::NEWEST;
            self.write_anew()?;
        }
        if self.torn && !mutant::is(Mutant::MapNotRenewed) {
            self.write_anew()?;
        }
        let Some(Written { file, end, space }) = &mut self.written else { return Err(Errno::ROFS.into()) };
        if *end + BLOCK as u64 > *space {
            // Written, not only reserved: appending a record then changes only bytes.
            file.write_all_at(*space, &[0; STEP as usize])?;
            self.torn = true;
            file.sync_all()?;
            self.torn = false;
            *space += STEP;
        }
        file.write_all_at(*end, record)?;
        *end += BLOCK as u64;
        self.unsynced = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory() -> (tempfile::TempDir, Directory) {
        let scratch = tempfile::tempdir().unwrap();
        let directory = std::fs::File::open(scratch.path()).unwrap().into();
        (scratch, directory)
    }

    fn key(inode: u64) -> FileKey {
        FileKey { inode, made: inode * 1000 }
    }

    #[test]
    fn what_was_allocated_is_read_back_and_no_region_comes_twice() {
        let (scratch, fd) = directory();
        assert_eq!(read(&fd).unwrap(), None);
        let contents = Contents { state: State::Open, ..Contents::new([7; 16], key(1)) };
        let mut map = FileMap::start(std::fs::File::open(scratch.path()).unwrap().into(), contents, false).unwrap();
        for inode in 10..3000 {
            assert_eq!(map.allocate(Extent { file: key(inode), part: inode % 3 }, 1 << 20).unwrap(), inode - 10);
        }
        (0..2000).for_each(|region| map.release(region).unwrap());
        let found = read(&fd).unwrap().unwrap();
        assert_eq!(found, map.contents);
        assert_eq!((found.regions.len(), found.next), (990, 2990));
        assert_eq!(found.regions[&2500], Extent { file: key(2510), part: 2510 % 3 });
        let stamp = Stamp { size: 5, modified: -7, changed: i64::MAX };
        map.close(State::Dirty, BTreeMap::from([(key(2510), stamp)])).unwrap();
        let closed = read(&fd).unwrap().unwrap();
        assert_eq!((closed.state, closed.stamps[&key(2510)], closed.next), (State::Dirty, stamp, 2990));
        let mut map = FileMap::start(fd, Contents { state: State::Open, ..closed }, false).unwrap();
        assert_eq!(map.allocate(Extent { file: key(1), part: 0 }, 2991).unwrap(), 2990);
        let full = map.allocate(Extent { file: key(1), part: 1 }, 2991).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn a_torn_end_is_no_record_and_a_damaged_header_no_map() {
        let mut contents = Contents::new([1; 16], key(2));
        contents.regions.insert(3, Extent { file: key(4), part: 5 });
        contents.next = 4;
        contents.voids.push((key(4), 5..6));
        let whole = contents.encode();
        assert_eq!(Contents::decode(&whole).unwrap(), (contents.clone(), 192));
        contents.voids.clear();
        let bytes = contents.encode();
        assert_eq!(Contents::decode(&bytes).unwrap(), (contents.clone(), 128));
        for at in 64..128 {
            let mut torn = bytes.clone();
            torn[at] ^= 1;
            assert!(Contents::decode(&torn).unwrap().0.regions.is_empty(), "byte {at}");
            assert!(Contents::decode(&bytes[..at]).unwrap().0.regions.is_empty());
        }
        for at in 0..64 {
            let mut torn = bytes.clone();
            torn[at] ^= 1;
            assert!(Contents::decode(&torn).is_err(), "byte {at}");
        }
        assert!(matches!(Contents::decode(b""), Err(FilesError::NotAMap)));
    }
}
