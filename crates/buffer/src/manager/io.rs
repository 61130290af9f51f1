//! Storage that pages are read from and written to, and the hook for the host's log.

use entresol_core::{Address, ObjectId};
use entresol_disk::{AlignedBytes, Disk, QueuedRead, ReadSource, Transfer};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

/// One page of a queue of reads.
#[derive(Debug)]
pub struct QueuedPage<'a> {
    /// The source's own name for the page.
    pub token: usize,
    /// Address of the page.
    pub at: Address,
    /// Buffer that is filled. It belongs to the reader until the source has it back.
    pub bytes: &'a mut [u8],
}

/// Source of pages to read. The source names pages one after the other, and no two under way are the same. It gets
/// each page back when the read has ended, in any order ([`PageIo::read_queue`]).
pub trait PageSource<'a> {
    /// The next page, if there is one now. After `None` the reader asks again when a read under way has ended.
    fn next(&mut self) -> Option<QueuedPage<'a>>;

    /// Takes back a page whose read has ended. The bytes are the page if the result is `Ok`.
    fn ended(&mut self, page: QueuedPage<'a>, result: io::Result<()>);
}

/// Writes of pages that proceed by themselves. One caller starts them and takes their results.
pub trait WriteQueue {
    /// Starts a write, under a number of the caller's. The bytes do not change before it has ended.
    /// Starts a write under the caller's tag. The bytes do not change before the write has ended.
    /// # Errors
    /// The write was not started.
    fn start(&self, tag: u64, at: Address, bytes: &Arc<AlignedBytes>) -> io::Result<()>;

    /// Tag and result of the next write that has ended; `None` if there is none. With `wait`, waits for one under way.
    fn ended(&self, wait: bool) -> Option<(u64, io::Result<()>)>;
}

/// Storage of whole pages. Several threads call it at once, but never two for one page.
pub trait PageIo: Send + Sync {
    /// Fills `into` with a page. A page that was never written reads as zeroes.
    ///
    /// # Errors
    /// The error that the storage returned.
    fn read_page(&self, at: Address, into: &mut [u8]) -> io::Result<()>;

    /// Fills several different pages, in any order, as [`read_page`](PageIo::read_page) fills one. The default reads
    /// one by one; storage with a queue can be faster.
    ///
    /// # Errors
    /// The error that the storage returned for one of the pages. The others may or may not have been read.
    fn read_pages(&self, pages: &mut [(Address, &mut [u8])]) -> io::Result<()> {
        pages.iter_mut().try_for_each(|(at, into)| self.read_page(*at, into))
    }

    /// Fills the pages that the source names, at most `depth` under way, until it names none and none is under way.
    /// The default repeats [`read_pages`](PageIo::read_pages); storage with a queue keeps its queue full.
    fn read_queue<'a>(&self, depth: usize, source: &mut dyn PageSource<'a>) {
        loop {
            let mut pages: Vec<QueuedPage<'a>> = std::iter::from_fn(|| source.next()).take(depth.max(1)).collect();
            if pages.is_empty() {
                return;
            }
            let together =
                self.read_pages(&mut pages.iter_mut().map(|page| (page.at, &mut *page.bytes)).collect::<Vec<_>>());
            for page in pages {
                // After an error it is not known which pages came: each is read again alone.
                let result = if together.is_ok() { Ok(()) } else { self.read_page(page.at, page.bytes) };
                source.ended(page, result);
            }
        }
    }

    /// Writes a page. The page need not be durable before the next [`sync`](PageIo::sync).
    ///
    /// # Errors
    /// The error that the storage returned.
    fn write_page(&self, at: Address, bytes: &[u8]) -> io::Result<()>;

    /// Queue that writes pages while no thread waits; `None` where the storage has none.
    fn write_queue(&self) -> Option<&dyn WriteQueue> {
        None
    }

    /// Makes durable the writes that ended before. A write of the queue counts once its result was taken.
    ///
    /// # Errors
    /// The error that the storage returned; the writes may then be lost.
    fn sync(&self) -> io::Result<()>;

    /// Size of an object in pages, 0 if unknown. Some policies ask, under a lock of the manager.
    fn object_pages(&self, object: ObjectId) -> u64;
}

impl<I: PageIo + ?Sized> PageIo for Arc<I> {
    fn read_page(&self, at: Address, into: &mut [u8]) -> io::Result<()> {
        (**self).read_page(at, into)
    }

    fn read_pages(&self, pages: &mut [(Address, &mut [u8])]) -> io::Result<()> {
        (**self).read_pages(pages)
    }

    fn read_queue<'a>(&self, depth: usize, source: &mut dyn PageSource<'a>) {
        (**self).read_queue(depth, source);
    }

    fn write_page(&self, at: Address, bytes: &[u8]) -> io::Result<()> {
        (**self).write_page(at, bytes)
    }

    fn write_queue(&self) -> Option<&dyn WriteQueue> {
        (**self).write_queue()
    }

    fn sync(&self) -> io::Result<()> {
        (**self).sync()
    }

    fn object_pages(&self, object: ObjectId) -> u64 {
        (**self).object_pages(object)
    }
}

/// The log of a host that logs changes before it writes pages (the WAL rule).
pub trait WalHook: Send + Sync {
    /// The record up to which the log is durable.
    fn flushed_lsn(&self) -> u64;

    /// Makes the log durable up to this record. Called before a page with a newer record is written, by any thread that
    /// needs a frame. So the hook must not use the buffer manager.
    ///
    /// # Errors
    /// The error that the log's storage returned; the page is then not written.
    fn flush_until(&self, lsn: u64) -> io::Result<()>;
}

/// Pages in memory: for tests, examples and temporary data.
#[derive(Debug, Default)]
pub struct MemoryIo {
    pages: Mutex<HashMap<Address, Box<[u8]>>>,
}

impl MemoryIo {
    /// Storage in which every page is zero.
    pub fn new() -> Self {
        MemoryIo::default()
    }
}

impl PageIo for MemoryIo {
    fn read_page(&self, at: Address, into: &mut [u8]) -> io::Result<()> {
        match self.pages.lock().expect("nobody panics with the lock").get(&at) {
            Some(page) => into.copy_from_slice(page),
            None => into.fill(0),
        }
        Ok(())
    }

    fn write_page(&self, at: Address, bytes: &[u8]) -> io::Result<()> {
        let mut pages = self.pages.lock().expect("nobody panics with the lock");
        match pages.get_mut(&at) {
            Some(page) => page.copy_from_slice(bytes),
            None => drop(pages.insert(at, bytes.into())),
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn object_pages(&self, object: ObjectId) -> u64 {
        let pages = self.pages.lock().expect("nobody panics with the lock");
        pages.keys().filter(|at| at.object == object).map(|at| at.block + 1).max().unwrap_or(0)
    }
}

/// One file per object; page `b` is at offset `b` times the page size.
#[derive(Debug)]
pub struct FileIo {
    files: Vec<File>,
    page_bytes: usize,
}

impl FileIo {
    /// Takes files open for reading and writing; the index of a file is its object.
    pub fn new(files: Vec<File>, page_bytes: usize) -> Self {
        FileIo { files, page_bytes }
    }

    fn locate(&self, at: Address) -> io::Result<(&File, u64)> {
        let file = self.files.get(at.object.index());
        let offset = at.block.checked_mul(self.page_bytes as u64);
        file.zip(offset).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, format!("there is no {at:?}")))
    }
}

impl PageIo for FileIo {
    fn read_page(&self, at: Address, into: &mut [u8]) -> io::Result<()> {
        let (file, offset) = self.locate(at)?;
        let mut filled = 0;
        while filled < into.len() {
            match file.read_at(&mut into[filled..], offset + filled as u64) {
                // Beyond the end: a page that was never written.
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        into[filled..].fill(0);
        Ok(())
    }

    fn write_page(&self, at: Address, bytes: &[u8]) -> io::Result<()> {
        let (file, offset) = self.locate(at)?;
        file.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        // Every file is synced, even after one fails: the error concerns that file only.
        let results: Vec<io::Result<()>> = self.files.iter().map(File::sync_data).collect();
        results.into_iter().collect()
    }

    fn object_pages(&self, object: ObjectId) -> u64 {
        let length = self.files.get(object.index()).and_then(|file| file.metadata().ok()).map_or(0, |data| data.len());
        length.div_ceil(self.page_bytes as u64)
    }
}

/// One object on one disk; page `b` is at offset `b` times the page size. Several pages are read with one submission.
#[derive(Debug)]
pub struct DiskIo<D> {
    disk: D,
    page_bytes: usize,
}

impl<D: Disk> DiskIo<D> {
    /// Storage of as many whole pages of `page_bytes` as the disk holds.
    pub fn new(disk: D, page_bytes: usize) -> Self {
        DiskIo { disk, page_bytes }
    }

    fn offset(&self, at: Address) -> io::Result<u64> {
        let pages = self.disk.size_bytes() / self.page_bytes as u64;
        if at.object != ObjectId(0) || at.block >= pages {
            let what = format!("page {} of object {} of a disk of {pages} pages", at.block, at.object.0);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        Ok(at.block * self.page_bytes as u64)
    }
}

/// Adapter that turns pages into byte offsets of the disk.
struct Located<'s, 'a, D> {
    io: &'s DiskIo<D>,
    source: &'s mut dyn PageSource<'a>,
}

impl<'a, D: Disk> ReadSource<'a> for Located<'_, 'a, D> {
    fn next(&mut self) -> Option<QueuedRead<'a>> {
        loop {
            let page = self.source.next()?;
            match self.io.offset(page.at) {
                Ok(at) => return Some(QueuedRead { token: page.token, at, bytes: page.bytes }),
                Err(error) => self.source.ended(page, Err(error)),
            }
        }
    }

    fn ended(&mut self, read: QueuedRead<'a>, result: io::Result<()>) {
        let at = Address { object: ObjectId(0), block: read.at / self.io.page_bytes as u64 };
        self.source.ended(QueuedPage { token: read.token, at, bytes: read.bytes }, result);
    }
}

impl<D: Disk> PageIo for DiskIo<D> {
    fn read_page(&self, at: Address, into: &mut [u8]) -> io::Result<()> {
        self.disk.read_at(self.offset(at)?, into)
    }

    fn read_pages(&self, pages: &mut [(Address, &mut [u8])]) -> io::Result<()> {
        let mut transfers = Vec::with_capacity(pages.len());
        for (at, bytes) in pages {
            transfers.push(Transfer::Read { at: self.offset(*at)?, bytes });
        }
        self.disk.submit(&mut transfers)
    }

    fn read_queue<'a>(&self, depth: usize, source: &mut dyn PageSource<'a>) {
        self.disk.read_queue(depth, &mut Located { io: self, source });
    }

    fn write_page(&self, at: Address, bytes: &[u8]) -> io::Result<()> {
        self.disk.write_at(self.offset(at)?, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.sync()
    }

    fn object_pages(&self, object: ObjectId) -> u64 {
        if object == ObjectId(0) { self.disk.size_bytes() / self.page_bytes as u64 } else { 0 }
    }
}
