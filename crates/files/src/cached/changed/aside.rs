//! The aside file, beside the map. It keeps the dirty pages of a file that another program changed, until it is decided
//! which bytes count. `docs/file-map.md` draws it.
//!
//! A page in the aside file counts as written back. So a file in conflict takes no space from other pages, and neither
//! a drain nor a close has to wait for it.

use super::super::map::{CONFLICT, FileKey, FileMap, RESOLVED, record};
use crate::below::{Directory, File, For, OpenDirectory as _, OpenFile};
use crate::mutant::{self, Mutant};
use crc_fast::{CrcAlgorithm, Digest};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;

const MAGIC: [u8; 8] = *b"\x89ETASIDE";
/// Bytes of a slot before its page.
const HEAD: usize = 64;

/// Pages kept aside from a file.
pub(in super::super) struct Aside {
    file: File,
    key: FileKey,
    page_bytes: usize,
    /// The byte after the last slot.
    end: u64,
    /// Offset in the aside file of the newest version of each page, by the offset of the page's first byte in its file.
    slots: BTreeMap<u64, u64>,
    unsynced: bool,
}

fn name(key: FileKey) -> String {
    format!("aside-{:x}-{:x}", key.inode, key.made)
}

fn crc(slot: &[u8]) -> [u8; 4] {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&slot[..HEAD - 4]);
    digest.update(&slot[HEAD..]);
    (digest.finalize() as u32).to_le_bytes()
}

fn slot(key: FileKey, offset: u64, page: &[u8], page_bytes: usize) -> Vec<u8> {
    let mut slot = vec![0; HEAD + page_bytes];
    slot[..8].copy_from_slice(&MAGIC);
    for (at, number) in [offset, key.inode, key.made, page_bytes as u64].into_iter().enumerate() {
        slot[8 + at * 8..16 + at * 8].copy_from_slice(&number.to_le_bytes());
    }
    slot[HEAD..HEAD + page.len()].copy_from_slice(page);
    let crc = crc(&slot);
    slot[HEAD - 4..HEAD].copy_from_slice(&crc);
    slot
}

/// Fills `bytes` from `offset` on; false where the file ends before.
fn read_whole(file: &File, offset: u64, bytes: &mut [u8]) -> io::Result<bool> {
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(offset + done as u64, &mut bytes[done..]) {
            Ok(0) => return Ok(false),
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

impl Aside {
    /// Opens an aside file and finds its pages. A slot that a crash tore, or that a failed sync lost, is skipped: the
    /// cache still has that page.
    fn open(file: File, key: FileKey, page_bytes: usize) -> io::Result<Self> {
        let bytes = (HEAD + page_bytes) as u64;
        let mut aside = Aside { file, key, page_bytes, end: 0, slots: BTreeMap::new(), unsynced: false };
        let mut slot = vec![0; bytes as usize];
        while read_whole(&aside.file, aside.end, &mut slot)? {
            if let Some(offset) = aside.offset_of(&slot) {
                aside.slots.insert(offset, aside.end);
            }
            aside.end += bytes;
        }
        Ok(aside)
    }

    /// Offset in its file of the page in a slot, if the slot is whole and of this file.
    fn offset_of(&self, slot: &[u8]) -> Option<u64> {
        let number = |at: usize| u64::from_le_bytes(slot[8 + at * 8..16 + at * 8].try_into().expect("eight bytes"));
        let own = [number(1), number(2), number(3)] == [self.key.inode, self.key.made, self.page_bytes as u64];
        (slot[..8] == MAGIC && own && slot[HEAD - 4..HEAD] == crc(slot)).then(|| number(0))
    }

    /// Adds consecutive pages, from a byte of the file on.
    pub fn put(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let pages = || bytes.chunks(self.page_bytes).zip((offset..).step_by(self.page_bytes));
        let slots: Vec<u8> = pages().flat_map(|(page, offset)| slot(self.key, offset, page, self.page_bytes)).collect();
        self.unsynced = true;
        self.file.write_all_at(self.end, &slots)?;
        let (begin, each) = (self.end, (HEAD + self.page_bytes) as u64);
        let put: Vec<(u64, u64)> = pages().map(|(_, offset)| offset).zip((begin..).step_by(each as usize)).collect();
        self.slots.extend(put);
        // A slot whose sync fails is written again behind these.
        self.end += slots.len() as u64;
        Ok(())
    }

    /// Makes the added pages durable.
    pub fn sync(&mut self) -> io::Result<()> {
        if self.unsynced && !mutant::is(Mutant::AsideUnsynced) {
            self.file.sync_all()?;
            self.unsynced = false;
        }
        Ok(())
    }

    /// The pages, by the offset of their first bytes in the file.
    pub fn pages(&self) -> impl Iterator<Item = u64> + '_ {
        self.slots.keys().copied()
    }

    /// Writes all pages to their file, up to its end.
    pub fn write_to(&self, file: &File, size: u64) -> io::Result<()> {
        let mut bytes = vec![0; HEAD + self.page_bytes];
        for (&offset, &at) in &self.slots {
            if !read_whole(&self.file, at, &mut bytes)? || self.offset_of(&bytes) != Some(offset) {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "a page that was kept from the file is damaged",
                ));
            }
            let inside = size.saturating_sub(offset).min(self.page_bytes as u64) as usize;
            file.write_all_at(offset, &bytes[HEAD..HEAD + inside])?;
        }
        Ok(())
    }
}

/// Offsets in bytes of the pages kept aside from a file. The map need not be in use.
pub(in super::super) fn kept(directory: &Directory, key: FileKey, page_bytes: usize) -> io::Result<Vec<u64>> {
    match directory.open_file(&name(key), For::Reading) {
        Ok(file) => Ok(Aside::open(file, key, page_bytes)?.pages().collect()),
        Err(Errno::NOENT) => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// Removes the aside file of a file without a conflict.
pub(in super::super) fn remove(directory: &Directory, key: FileKey) {
    // An aside file without a conflict is never read, and is emptied before the next conflict.
    let _left = directory.remove(&name(key));
}

impl FileMap {
    /// The pages kept aside from a file.
    pub fn aside(&self, key: FileKey, page_bytes: usize) -> io::Result<Aside> {
        let file = self.hidden().open_file(&name(key), For::Making)?;
        self.hidden().sync()?;
        Aside::open(file, key, page_bytes)
    }

    /// Notes that another program changed a file with dirty pages; durable when this returns. `size` is the file's
    /// earlier size.
    pub fn note_conflict(&mut self, key: FileKey, size: u64) -> io::Result<()> {
        if self.contents().conflicts.contains_key(&key) {
            return self.sync();
        }
        if self.is_read_only() {
            return Err(Errno::ROFS.into());
        }
        // Pages of an earlier conflict do not belong to this one.
        match self.hidden().open_file(&name(key), For::Writing) {
            Ok(file) => file.set_size(0).and_then(|()| file.sync_all())?,
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        self.contents_mut().conflicts.insert(key, size);
        let noted = self.note_in_conflict(key, size);
        if noted.is_err() {
            self.contents_mut().conflicts.remove(&key);
        }
        noted
    }

    fn note_in_conflict(&mut self, key: FileKey, size: u64) -> io::Result<()> {
        self.append_or_renew(&record(CONFLICT, &[key.inode, key.made, size]))?;
        if mutant::is(Mutant::ConflictUnsynced) {
            return Ok(());
        }
        // The files are not complete, whatever the record says.
        if let Some(kept) = self.record().cloned() {
            self.note_record(&kept)?;
        }
        self.make_room_to_close()?;
        self.sync()
    }

    /// Notes that it was decided which bytes count; durable when this returns.
    pub fn note_resolved(&mut self, key: FileKey) -> io::Result<()> {
        let size = self.contents_mut().conflicts.remove(&key);
        let noted = self.append_or_renew(&record(RESOLVED, &[key.inode, key.made])).and_then(|()| self.sync());
        match (&noted, size) {
            (Ok(()), _) => remove(self.hidden(), key),
            (Err(_), Some(size)) => drop(self.contents_mut().conflicts.insert(key, size)),
            (Err(_), None) => {}
        }
        noted
    }

    /// Ends the conflict of a file that is gone.
    pub fn forget_conflict(&mut self, key: FileKey) {
        if self.contents().conflicts.contains_key(&key) {
            // The next start finds by itself that the file is missing.
            let _later = self.note_resolved(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 16;
    const KEY: FileKey = FileKey { inode: 5, made: 7 };

    fn opened(directory: &tempfile::TempDir, name: &str) -> File {
        let path = directory.path().join(name);
        let mut options = std::fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).open(path).expect("a file").into()
    }

    #[test]
    fn the_newest_version_of_each_page_is_kept_and_a_torn_slot_is_passed_by() {
        let scratch = tempfile::tempdir().expect("a directory");
        let mut aside = Aside::open(opened(&scratch, "a"), KEY, PAGE).expect("an empty one");
        aside.put(32, &[1; 3 * PAGE]).expect("three pages");
        aside.put(48, &[2; PAGE]).expect("one again");
        aside.put(96, &[3; 5]).expect("a part of a page");
        aside.sync().expect("a sync");
        let slot = (HEAD + PAGE) as u64;
        for torn in [None, Some(4 * slot + 70), Some(3 * slot + 3)] {
            if let Some(at) = torn {
                opened(&scratch, "a").write_all_at(at, &[9]).expect("a write");
            }
            let again = Aside::open(opened(&scratch, "a"), KEY, PAGE).expect("the same");
            let pages: Vec<u64> = again.pages().collect();
            let newest = if torn == Some(3 * slot + 3) { 1 } else { 2 };
            assert_eq!(pages, if torn.is_none() { vec![32, 48, 64, 96] } else { vec![32, 48, 64] });
            let target = opened(&scratch, "target");
            target.set_size(0).expect("an empty file");
            again.write_to(&target, 70).expect("it is written");
            let bytes = std::fs::read(scratch.path().join("target")).expect("the file");
            assert_eq!(bytes, [[0; 32].as_slice(), &[1; 16], &[newest; 16], &[1; 6]].concat());
        }
        let other = Aside::open(opened(&scratch, "a"), FileKey { made: 8, ..KEY }, PAGE).expect("of another file");
        assert_eq!(other.pages().count(), 0);
    }
}
