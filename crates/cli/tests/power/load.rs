//! A load of files that are replaced, changed and removed, and their possible states after a crash. The states are
//! those of POSIX, with directories in the order of their changes, as ext4 keeps them.

use entresol_core::Random;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes of a page of a file.
const PAGE: usize = 4096;
/// Names of the load's files.
const NAMES: usize = 6;
const PAGES_MAX: u64 = 24;

/// Contents of a page: all its bytes encode the write that made it.
type Stamp = u32;

fn page(stamp: Stamp) -> [u8; PAGE] {
    let mut page = [0; PAGE];
    page.chunks_exact_mut(4).for_each(|word| word.copy_from_slice(&stamp.to_le_bytes()));
    page
}

/// A file, independent of its name.
#[derive(Clone, Debug)]
struct Inode {
    synced: Vec<Stamp>,
    /// Writes of a page since the last sync.
    since: Vec<(usize, Stamp)>,
}

/// States of a name: at the last sync of the directory, and after each change since.
#[derive(Clone, Debug)]
struct Name {
    states: Vec<Option<usize>>,
}

/// Mix of the calls that a load makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Files are made, and the directory is synced, all the time. The file system's journal then soon has each removal
    /// of a name.
    Busy,
    /// Most calls change pages of files and sync only these, which asks nothing of the file system below. A crash may
    /// lose a removal that the cache has long known of.
    Calm,
}

/// The load: its operations, and their answers.
pub struct Load {
    directory: PathBuf,
    pace: Pace,
    random: Random,
    inodes: Vec<Inode>,
    names: Vec<Name>,
    stamp: Stamp,
    /// Calls that were answered.
    pub done: u64,
    pub renames: u64,
    pub unlinks: u64,
}

impl Load {
    pub fn new(directory: &Path, seed: u64, pace: Pace) -> Self {
        let names = vec![Name { states: vec![None] }; NAMES];
        let random = Random::new(seed);
        Load {
            directory: directory.into(),
            pace,
            random,
            inodes: Vec::new(),
            names,
            stamp: 0,
            done: 0,
            renames: 0,
            unlinks: 0,
        }
    }

    fn path(&self, name: usize) -> PathBuf {
        self.directory.join(format!("file{name}"))
    }

    fn next(&mut self) -> Stamp {
        self.stamp += 1;
        self.stamp
    }

    /// Runs until a call fails or `is_over`. Answers after that count as none.
    pub fn run(&mut self, is_over: &(dyn Fn() -> bool + Sync)) {
        while !is_over() && self.step(is_over).is_ok() {
            self.done += 1;
        }
    }

    fn step(&mut self, is_over: &(dyn Fn() -> bool + Sync)) -> io::Result<()> {
        let name = self.random.below(NAMES as u64) as usize;
        let now = *self.names[name].states.last().expect("a state");
        let calm = self.pace == Pace::Calm;
        // Of ten: replaced, or replaced and changed. The next is removed.
        let (replaced, changed) = if calm { (1, 9) } else { (4, 8) };
        match (self.random.below(10), now) {
            (roll, now) if roll < replaced || now.is_none() => self.replace(name, is_over)?,
            (roll, Some(inode)) if roll < changed => self.change(name, inode, is_over)?,
            (roll, Some(_)) if roll == changed => {
                // From here on the name may be removed, whatever the answer of the call.
                self.names[name].states.push(None);
                fs::remove_file(self.path(name))?;
                self.unlinks += 1;
            }
            _ => {}
        }
        if self.random.chance(if calm { 0.03 } else { 0.3 }) {
            let seen = self.names.clone();
            File::open(&self.directory)?.sync_all()?;
            if !is_over() {
                for (name, seen) in self.names.iter_mut().zip(seen) {
                    name.states.drain(..seen.states.len() - 1);
                }
            }
        }
        Ok(())
    }

    /// Replaces the file of a name by a new, synced one.
    fn replace(&mut self, name: usize, is_over: &(dyn Fn() -> bool + Sync)) -> io::Result<()> {
        let pages = 1 + self.random.below(PAGES_MAX);
        let stamps: Vec<Stamp> = (0..pages).map(|_| self.next()).collect();
        let new = self.directory.join("new");
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(&new)?;
        for (at, &stamp) in stamps.iter().enumerate() {
            file.write_all_at(&page(stamp), (at * PAGE) as u64)?;
        }
        file.sync_all()?;
        if is_over() {
            return Err(io::ErrorKind::Other.into());
        }
        self.inodes.push(Inode { synced: stamps, since: Vec::new() });
        self.names[name].states.push(Some(self.inodes.len() - 1));
        fs::rename(new, self.path(name))?;
        self.renames += 1;
        Ok(())
    }

    /// Changes pages of a file. The changes are synced in two cases of three, and always where the load is calm.
    fn change(&mut self, name: usize, inode: usize, is_over: &(dyn Fn() -> bool + Sync)) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(self.path(name))?;
        for _ in 0..1 + self.random.below(6) {
            let at = self.random.below(self.inodes[inode].synced.len() as u64) as usize;
            let stamp = self.next();
            self.inodes[inode].since.push((at, stamp));
            file.write_all_at(&page(stamp), (at * PAGE) as u64)?;
        }
        let calm = self.pace == Pace::Calm;
        if calm || self.random.chance(0.66) {
            if !calm && self.random.chance(0.5) {
                file.sync_all()?
            } else {
                file.sync_data()?
            }
            if !is_over() {
                let inode = &mut self.inodes[inode];
                for (at, stamp) in std::mem::take(&mut inode.since) {
                    inode.synced[at] = stamp;
                }
            }
        }
        Ok(())
    }

    /// Checks the directory after a crash. True if any unsynced write was lost.
    ///
    /// # Errors
    /// A file whose bytes, or whose absence, no crash of ext4 can leave.
    pub fn verify(&self, directory: &Path) -> Result<bool, String> {
        let mut lost = false;
        for (number, name) in self.names.iter().enumerate() {
            let path = directory.join(format!("file{number}"));
            let bytes = match fs::read(&path) {
                Ok(bytes) => Some(bytes),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(format!("file{number}: {error}")),
            };
            let allowed = name.states.iter().rev().position(|state| match (&bytes, state) {
                (None, None) => true,
                (Some(bytes), Some(inode)) => self.inodes[*inode].may_be(bytes),
                _ => false,
            });
            let Some(steps_back) = allowed else {
                let found = bytes.as_ref().map(|bytes| stamps(bytes));
                let states: Vec<_> = name.states.iter().map(|state| state.map(|inode| &self.inodes[inode])).collect();
                return Err(format!("file{number} is {found:?}, and may be one of {states:?}"));
            };
            lost |= steps_back > 0;
            lost |= match (bytes, name.states.last()) {
                (Some(bytes), Some(Some(inode))) if steps_back == 0 => !self.inodes[*inode].is_newest(&bytes),
                _ => false,
            };
        }
        Ok(lost)
    }
}

/// The first word of each page.
fn stamps(bytes: &[u8]) -> Vec<Stamp> {
    bytes.chunks(PAGE).map(|page| page.first_chunk().map_or(0, |word| Stamp::from_le_bytes(*word))).collect()
}

impl Inode {
    /// True if every sector of a page is that of the last sync, or of one of the writes since.
    fn may_be(&self, bytes: &[u8]) -> bool {
        let is_right = |(at, bytes): (usize, &[u8])| {
            let since = self.since.iter().filter(|write| write.0 == at).map(|write| write.1);
            let allowed: Vec<[u8; PAGE]> = since.chain([self.synced[at]]).map(page).collect();
            bytes.chunks(512).all(|sector| allowed.iter().any(|page| page[..512] == *sector))
        };
        bytes.len() == self.synced.len() * PAGE && bytes.chunks(PAGE).enumerate().all(is_right)
    }

    fn is_newest(&self, bytes: &[u8]) -> bool {
        let mut newest = self.synced.clone();
        self.since.iter().for_each(|&(at, stamp)| newest[at] = stamp);
        newest.iter().zip(bytes.chunks(PAGE)).all(|(&stamp, bytes)| page(stamp) == bytes)
    }
}
