//! The file map: which file each region of the cache's address space belongs to. `docs/file-map.md` draws it.
//!
//! It lies in the backing directory, for it is about these very files, and a cache may be a block device that has no
//! room beside it. Records are appended; the whole is written anew, over a spare file that is then exchanged with it, at
//! every open and close. So a file system that has become full meanwhile keeps no cache from being closed.

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

/// Bytes of a region: what a file gets at once of the address space. Few in tests of this crate, so that files have several.
pub(super) const REGION_BYTES: u64 = if cfg!(test) { 1 << 14 } else { 1 << 30 };

/// Bytes of the header and of each record.
pub(super) const BLOCK: usize = 64;
const MAGIC: [u8; 8] = *b"\x89ETFILES";
const NAME: &str = "map";
const SPARE: &str = "map.new";
/// The files grow by so much at a time, so that a record in one is durable without a change of its size.
const STEP: u64 = if cfg!(test) { 1 << 12 } else { 1 << 16 };
/// Appended records beyond those that say something, from which on the map is written anew.
const SLACK: u64 = if cfg!(test) { 1 << 6 } else { 1 << 14 };

const REGION: u32 = 1;
const DROPPED: u32 = 2;
const STAMP: u32 = 3;
const VOID: u32 = 4;
/// A file's last name may be removed. 5 to 7 and 9 are those of the [record](super::kept), 10 is kept for what else a map will
/// say.
const LEAVING: u32 = 8;
const STAYS: u32 = 11;
/// A file was changed by somebody else while the cache had dirty pages of it, and it was said since which bytes count.
pub(super) const CONFLICT: u32 = 12;
pub(super) const RESOLVED: u32 = 13;
/// Kinds from here on may be passed by.
const KNOWN_MAX: u32 = 32;

/// Key that tells a file from all others that were or will be in the directory. An inode may return, the moment of
/// its making does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct FileKey {
    pub inode: u64,
    /// Nanoseconds since 1970.
    pub made: u64,
}

/// Size in bytes and times of a file, as it was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    pub size: u64,
    /// Nanoseconds since 1970.
    pub modified: i64,
    /// As above.
    pub changed: i64,
}

/// A GiB of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    pub file: FileKey,
    /// Which one of the file.
    pub part: u64,
}

/// State of the cache as the map has it: it tells if the files are complete without the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// In use, or left by a crash.
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
    /// Of the layout that it was read in, or is written in unless it has to say more.
    pub version: u32,
    /// Identifier of the backing directory, for which the cache was made.
    pub id: [u8; 16],
    /// The backing directory itself.
    pub directory: FileKey,
    /// The first region that no file ever had.
    pub next: u64,
    pub regions: BTreeMap<u64, Extent>,
    pub stamps: BTreeMap<FileKey, Stamp>,
    /// Ranges of bytes that were cut off or made zeroes below: clean copies of what they touch may be of before.
    pub voids: Vec<(FileKey, Range<u64>)>,
    /// Files that lost a name, perhaps their last: they need not be there.
    pub leaving: BTreeSet<FileKey>,
    /// Files that somebody else changed while the cache had dirty pages of them, and the size that each had before, in bytes.
    pub conflicts: BTreeMap<FileKey, u64>,
    /// Record of the cache, if there is one.
    pub record: Option<Record>,
}

/// The map while it is in use.
pub(super) struct FileMap {
    /// The hidden directory, locked as long as this is.
    directory: Directory,
    /// None where nothing can be written.
    written: Option<Written>,
    /// Bytes that the spare file has room for.
    spare: u64,
    /// Something was appended that is not durable.
    unsynced: bool,
    /// A sync failed: what was appended may be missing, and whatever is appended behind it would not be found.
    torn: bool,
    contents: Contents,
}

/// A map as it was written whole.
struct Written {
    file: File,
    /// The byte after the last record.
    end: u64,
    /// Bytes that the file has room for; zeroes from `end`.
    room: u64,
}

fn crc(block: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &block[..BLOCK - 4]) as u32
}

/// A block of numbers after its first 8 bytes.
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
        // A kill or a crash leaves the last record torn, or records after one that is missing: none of them was used.
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
            // What a later version says besides, and an open may do without.
            KNOWN_MAX.. => {}
            _ => return Err(FilesError::MapDamaged { byte: byte as u64 }),
        }
        Ok(())
    }
}

/// Reads a file from its beginning to its end.
fn read_whole(file: &File) -> io::Result<Vec<u8>> {
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

/// Is the file system of the map read-only?
pub(super) fn is_read_only(directory: &Directory) -> bool {
    matches!(directory.open_file(NAME, For::Writing), Err(Errno::ROFS))
}

/// Makes durable what was just read, which a crash of the process alone may have left in memory only.
pub(super) fn sync_read(directory: &Directory) -> io::Result<()> {
    directory.open_file(NAME, For::Reading)?.sync_all()?;
    Ok(directory.sync()?)
}

/// Makes a map without files: durable when it returns, and the one before until then. The first start finds a spare file for the
/// next one, though the file system may be full by then.
pub(super) fn make(directory: &Directory, contents: &Contents) -> io::Result<()> {
    let (_, spare) = write(directory, contents)?;
    let room = room_to_close(contents);
    if spare < room {
        lengthen(&directory.open_file(SPARE, For::Making)?, room)?;
    }
    Ok(())
}

/// Writes a map over the spare file, which becomes the map, and the map the spare file. With how many bytes that has.
fn write(directory: &Directory, contents: &Contents) -> io::Result<(Written, u64)> {
    // The spare file may be the map still, for a crash, where names were exchanged and that was not synced.
    directory.sync()?;
    let before = match directory.size_of(NAME) {
        Ok(size) => size,
        Err(Errno::NOENT) => 0,
        Err(error) => return Err(error.into()),
    };
    let file = directory.open_file(SPARE, For::Making)?;
    let mut bytes = contents.encode();
    let end = bytes.len() as u64;
    let room = file.found()?.size.max(end).next_multiple_of(STEP);
    // No record that it had before is left behind the last one that it has now.
    bytes.resize(room as usize, 0);
    file.write_all_at(0, &bytes)?;
    file.sync_all()?;
    let spare = match directory.exchange(SPARE, NAME) {
        Ok(()) => before,
        // There is no map yet, or this file system exchanges nothing.
        Err(Errno::NOENT | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            directory.rename(SPARE, NAME)?;
            0
        }
        Err(error) => return Err(error.into()),
    };
    directory.sync()?;
    Ok((Written { file, end, room }, spare))
}

/// Room for a map with its record, a stamp for each file, a word for each that may leave or is in conflict, and for one more
/// region.
fn room_to_close(contents: &Contents) -> u64 {
    let words = (contents.leaving.len() + contents.conflicts.len()) as u64;
    ((1 + kept::BLOCKS_MAX + 2 * (contents.regions.len() as u64 + 1) + words) * BLOCK as u64).next_multiple_of(STEP)
}

/// Has a file be so long at least, the new bytes zeroes; its length.
fn lengthen(file: &File, room: u64) -> io::Result<u64> {
    let length = file.found()?.size;
    if length < room {
        // Written, not only reserved, so that nothing has to be found for it later.
        file.write_all_at(length, &vec![0; (room - length) as usize])?;
    }
    Ok(length.max(room))
}

impl FileMap {
    /// Writes the map as it is from now on. `read_only` where it stays as it was, because the file system below cannot be written.
    pub fn start(directory: Directory, contents: Contents, read_only: bool) -> io::Result<Self> {
        if read_only {
            return Ok(Self { directory, written: None, spare: 0, unsynced: false, torn: false, contents });
        }
        // The map of before will be the spare file. If it cannot be made long enough it stays the map.
        match directory.open_file(NAME, For::Writing) {
            Ok(file) => drop(lengthen(&file, room_to_close(&contents))?),
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let contents = Contents { version: contents.needed_version(), ..contents };
        let (written, spare) = write(&directory, &contents)?;
        Ok(Self { directory, written: Some(written), spare, unsynced: false, torn: false, contents })
    }

    /// Can nothing be written?
    pub fn is_read_only(&self) -> bool {
        self.written.is_none()
    }

    /// Sees to it that the spare file can take the map when it is closed, with one more region.
    pub fn make_room_to_close(&mut self) -> io::Result<()> {
        let room = room_to_close(&self.contents);
        if self.spare < room {
            self.spare = lengthen(&self.directory.open_file(SPARE, For::Making)?, room)?;
        }
        Ok(())
    }

    /// Writes the whole map, durably: over a crash it is this one or the one before.
    pub(super) fn write_anew(&mut self) -> io::Result<()> {
        if self.is_read_only() {
            return Ok(());
        }
        // Until this succeeds it is not known which of the two files is the map.
        self.torn = true;
        self.contents.version = self.contents.needed_version();
        let (written, spare) = write(&self.directory, &self.contents)?;
        (self.written, self.spare) = (Some(written), spare);
        (self.unsynced, self.torn) = (false, false);
        Ok(())
    }

    /// The region of a part of a file, which is durable before this returns and was never another's.
    pub fn allocate(&mut self, extent: Extent, limit: u64) -> io::Result<u64> {
        let region = self.contents.next;
        if region >= limit {
            return Err(Errno::NOSPC.into());
        }
        if self.is_read_only() {
            return Err(Errno::ROFS.into());
        }
        self.make_room_to_close()?;
        // Not given again even if this fails: the record may be there.
        self.contents.next += 1;
        self.append(&region_record(region, extent))?;
        if !mutant::is(Mutant::RegionUnsynced) {
            self.sync()?;
        }
        self.contents.regions.insert(region, extent);
        Ok(region)
    }

    /// A region belongs to nobody any more. If a crash keeps that from the map the next start finds it out by itself.
    pub fn release(&mut self, region: u64) -> io::Result<()> {
        self.contents.regions.remove(&region);
        self.append_or_renew(&record(DROPPED, &[region]))
    }

    /// Appends what the contents say already, or writes them anew where much of what was appended says nothing any more.
    pub fn append_or_renew(&mut self, record: &[u8; BLOCK]) -> io::Result<()> {
        let words = self.contents.leaving.len() + self.contents.conflicts.len();
        let live = (3 * self.contents.regions.len() + words) as u64;
        let end = self.written.as_ref().map_or(0, |written| written.end);
        if end / BLOCK as u64 > live + SLACK { self.write_anew() } else { self.append(record) }
    }

    /// A range of a file is about to be cut off or made zeroes; durable when this returns.
    pub fn note_void(&mut self, file: FileKey, range: Range<u64>) -> io::Result<()> {
        self.append(&void_record(file, &range))?;
        self.contents.voids.push((file, range));
        if mutant::is(Mutant::VoidUnsynced) { Ok(()) } else { self.sync() }
    }

    /// A file may lose its last name. If that is not in a map when a crash has come, a start takes a file that is not there
    /// for one that is missing; so it is durable before the name goes wherever the cache may have what the file has not.
    pub fn note_leaving(&mut self, file: FileKey) -> io::Result<()> {
        if self.contents.leaving.contains(&file) {
            return Ok(());
        }
        self.contents.leaving.insert(file);
        let noted = self.make_room_to_close().and_then(|()| self.append_or_renew(&file_record(LEAVING, file)));
        if noted.is_err() {
            // Else the next one would take it for noted.
            self.contents.leaving.remove(&file);
        }
        noted
    }

    /// A file has a name still. Without this word, which need not be durable, it is only missed less.
    pub fn note_stays(&mut self, file: FileKey) -> io::Result<()> {
        if self.contents.leaving.remove(&file) { self.append(&file_record(STAYS, file)) } else { Ok(()) }
    }

    /// The cache has nothing of a file any more.
    pub fn forget_leaving(&mut self, file: FileKey) {
        self.contents.leaving.remove(&file);
    }

    /// When the map was written last, by the clock of its file system: nanoseconds since 1970.
    pub fn written_at(&self) -> io::Result<u64> {
        // In one that cannot be written nothing is made.
        let Some(written) = &self.written else { return Ok(u64::MAX) };
        let (seconds, more) = written.file.attributes()?.modified;
        Ok(seconds.max(0) as u64 * 1_000_000_000 + more as u64)
    }

    /// Makes durable what was noted.
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

    /// The directory that it lies in.
    pub fn hidden(&self) -> &Directory {
        &self.directory
    }

    /// Contents of the map.
    pub fn contents(&self) -> &Contents {
        &self.contents
    }

    /// The same, to be changed before it is appended.
    pub fn contents_mut(&mut self) -> &mut Contents {
        &mut self.contents
    }

    /// Number of ranges that are noted as cut off or made zeroes.
    pub fn voids(&self) -> usize {
        self.contents.voids.len()
    }

    /// The cache has nothing of what was noted of files so far.
    pub fn trust(&mut self) -> io::Result<()> {
        self.contents.stamps.clear();
        self.contents.voids.clear();
        self.write_anew()
    }

    /// Closes the map with how each file was left.
    pub fn close(&mut self, state: State, stamps: BTreeMap<FileKey, Stamp>) -> io::Result<()> {
        let complete = state == State::Clean;
        let record = self.contents.record.clone().map(|record| Record { complete, ..record });
        let contents = Contents { state, stamps, record, voids: Vec::new(), ..self.contents.clone() };
        write(&self.directory, &contents).map(drop)
    }

    /// Appends what the contents say, or will.
    fn append(&mut self, record: &[u8; BLOCK]) -> io::Result<()> {
        if !self.contents.has_word_for(record) {
            self.contents.version = version::NEWEST;
            self.write_anew()?;
        }
        if self.torn && !mutant::is(Mutant::MapNotRenewed) {
            self.write_anew()?;
        }
        let Some(Written { file, end, room }) = &mut self.written else { return Err(Errno::ROFS.into()) };
        if *end + BLOCK as u64 > *room {
            // Written, not only reserved: a record then changes nothing but bytes.
            file.write_all_at(*room, &[0; STEP as usize])?;
            self.torn = true;
            file.sync_all()?;
            self.torn = false;
            *room += STEP;
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
