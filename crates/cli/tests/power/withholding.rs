//! A disk that loses unflushed writes: a mounted directory whose files keep their writes in memory until a sync. At
//! the cut a random part of the unsynced sectors is kept, and every call from then on fails. (LazyFS, VLDB 2023, does
//! so for the files of a database; here the files are disks, with a file system of the kernel on each.)

use entresol_core::Random;
use entresol_files::{AtOnce, FileData, FileId, FileLayer, OpenDirectory, Sought};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that a disk writes atomically.
const SECTOR: usize = 512;

/// All files, whose power is cut at one moment.
#[derive(Default)]
struct Disks {
    off: bool,
    images: HashMap<FileId, Image>,
    /// Sectors unsynced at the cut, and those of them that were kept.
    at_cut: (u64, u64),
}

struct Image {
    file: File,
    unsynced: BTreeMap<u64, [u8; SECTOR]>,
    /// True if its syncs report success without doing anything.
    lies: bool,
}

/// The layer that withholds writes.
#[derive(Clone, Default)]
pub struct Withholding(Arc<Mutex<Disks>>);

impl Withholding {
    fn disks(&self) -> io::Result<MutexGuard<'_, Disks>> {
        let disks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if disks.off { Err(Errno::IO.into()) } else { Ok(disks) }
    }

    /// Cuts the power. A random share of each file's unsynced sectors is kept: none, all, or any part. Returns how
    /// many were unsynced, and how many were kept.
    pub fn cut(&self, random: &mut Random) -> (u64, u64) {
        let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let disks = &mut *guard;
        if !disks.off {
            disks.off = true;
            let mut images: Vec<_> = disks.images.iter_mut().collect();
            images.sort_by_key(|(id, _)| id.inode);
            for (_, image) in images {
                let share = [0.0, 0.2, 0.5, 0.8, 1.0][random.below(5) as usize];
                for (sector, bytes) in std::mem::take(&mut image.unsynced) {
                    disks.at_cut.0 += 1;
                    if random.chance(share) {
                        disks.at_cut.1 += 1;
                        image.file.write_all_at(&bytes, sector * SECTOR as u64).expect("a write to an image");
                    }
                }
            }
        }
        disks.at_cut
    }

    /// True if the power was cut.
    pub fn is_off(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).off
    }

    /// From now on syncs of this file do nothing.
    pub fn lie(&self, inode: u64) {
        let mut disks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let image = disks.images.iter_mut().find(|(id, _)| id.inode == inode);
        image.expect("a file that is open").1.lies = true;
    }
}

impl FileLayer for Withholding {
    fn open(&self, id: FileId, file: File, _writable: bool) -> io::Result<Arc<dyn FileData>> {
        let mut disks = self.disks()?;
        let new = Image { file: file.try_clone()?, unsynced: BTreeMap::new(), lies: false };
        // A file first opened for reading may be opened for writing now.
        disks.images.entry(id).or_insert(new).file = file;
        Ok(Arc::new(Withheld { id, disks: self.clone() }))
    }

    fn leaving(&self, _id: FileId, _directory: OpenDirectory<'_>) -> io::Result<()> {
        Err(Errno::PERM.into())
    }

    fn stays(&self, _id: FileId) {}

    fn replacing(&self, _id: FileId) -> io::Result<()> {
        Err(Errno::PERM.into())
    }

    fn removed(&self, _id: FileId) {}
}

/// One file.
struct Withheld {
    id: FileId,
    disks: Withholding,
}

impl Withheld {
    fn image<R>(&self, with: impl FnOnce(&mut Image) -> io::Result<R>) -> io::Result<R> {
        let mut disks = self.disks.disks()?;
        with(disks.images.get_mut(&self.id).expect("it was opened"))
    }
}

fn sectors(offset: u64, bytes: usize) -> std::ops::Range<u64> {
    offset / SECTOR as u64..(offset + bytes as u64).div_ceil(SECTOR as u64)
}

impl FileData for Withheld {
    fn size_bytes(&self) -> io::Result<u64> {
        self.image(|image| Ok(image.file.metadata()?.len()))
    }

    fn read_now(&self, offset: u64, bytes: &mut [u8]) -> io::Result<AtOnce> {
        self.read(offset, bytes).map(AtOnce::All)
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.image(|image| {
            let mut done = 0;
            while done < bytes.len() {
                match image.file.read_at(&mut bytes[done..], offset + done as u64)? {
                    0 => break,
                    count => done += count,
                }
            }
            let end = offset + done as u64;
            for (sector, withheld) in image.unsynced.range(sectors(offset, done)) {
                let (first, last) = ((sector * SECTOR as u64).max(offset), ((sector + 1) * SECTOR as u64).min(end));
                let from = (first - sector * SECTOR as u64) as usize;
                let len = last.saturating_sub(first) as usize;
                let at = (first - offset) as usize;
                bytes[at..at + len].copy_from_slice(&withheld[from..from + len]);
            }
            Ok(done)
        })
    }

    fn write_now(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        self.write(offset, bytes).map(|()| bytes.len())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.image(|image| {
            let whole = |number: u64| number.is_multiple_of(SECTOR as u64);
            assert!(
                whole(offset) && whole(bytes.len() as u64),
                "a disk is written by sectors: {offset}, {}",
                bytes.len()
            );
            assert!(offset + bytes.len() as u64 <= image.file.metadata()?.len(), "a disk does not grow");
            for (sector, bytes) in sectors(offset, bytes.len()).zip(bytes.chunks_exact(SECTOR)) {
                image.unsynced.insert(sector, bytes.try_into().expect("a sector"));
            }
            Ok(())
        })
    }

    fn sync(&self, _data_only: bool) -> io::Result<()> {
        self.image(|image| {
            if image.lies {
                return Ok(());
            }
            for (sector, bytes) in std::mem::take(&mut image.unsynced) {
                image.file.write_all_at(&bytes, sector * SECTOR as u64)?;
            }
            Ok(())
        })
    }

    fn truncate(&self, _bytes: u64) -> io::Result<()> {
        Err(Errno::PERM.into())
    }

    fn allocate(&self, _how: rustix::fs::FallocateFlags, _offset: u64, _bytes: u64) -> io::Result<()> {
        Err(Errno::OPNOTSUPP.into())
    }

    fn seek(&self, sought: Sought, offset: u64) -> io::Result<u64> {
        match sought {
            Sought::Data => Ok(offset),
            Sought::Hole => self.size_bytes(),
        }
    }
}
