//! A file or block device. Single transfers use pread and pwrite. Batches use io_uring or, where the kernel
//! refuses that, a few threads.

use super::aligned::ALIGN;
use super::rings::{Job, Reads, Rings};
use super::{AlignedBytes, Disk, QueuedRead, ReadSource, Transfer, queue, take_room};
use rustix::fs::{FallocateFlags, FlockOperation, OFlags, fallocate, flock};
use rustix::io::{Errno, ReadWriteFlags};
use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Use of the kernel's page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// Reads and writes go through the page cache.
    Buffered,
    /// Reads and writes bypass the page cache (O_DIRECT). Writes must be whole multiples of 4096 bytes in position
    /// and length. Reads are rounded to such multiples, and unaligned memory is copied.
    Direct,
}

impl Caching {
    /// `Direct` if that is asked for.
    pub fn direct_if(asked: bool) -> Self {
        if asked { Caching::Direct } else { Caching::Buffered }
    }
}

/// Threads that share a batch without io_uring, the caller among them.
const THREADS_MAX: usize = 8;
/// Transfers of a batch for each thread: fewer are not worth starting one.
const THREAD_TRANSFERS: usize = 8;
/// A longer transfer is made alone, since a completion counts bytes in 31 bits.
const RING_BYTES_MAX: usize = 1 << 30;

/// A file or block device that this process alone has open. A second open, in any process, is refused. So is a block
/// device that is mounted.
pub struct FileDisk {
    file: File,
    size_bytes: AtomicU64,
    caching: Caching,
    /// The rings, or the reason why there are none.
    rings: Result<Rings, String>,
}

impl std::fmt::Debug for FileDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{:?} of {} bytes, {:?}, {}", self.file, self.size_bytes(), self.caching, self.executor())
    }
}

impl FileDisk {
    /// Opens an existing file or block device at its present size.
    ///
    /// # Errors
    /// `WouldBlock` if another process or handle has it open, `ResourceBusy` if the kernel itself uses the block
    /// device. Otherwise the error of the open.
    pub fn open(path: &Path, caching: Caching) -> io::Result<Self> {
        Self::with(OpenOptions::new().read(true).write(true), path, caching)
    }

    /// Makes a file of this size, or gives an existing one this size.
    ///
    /// # Errors
    /// As [`open`](FileDisk::open).
    pub fn create(path: &Path, size_bytes: u64, caching: Caching) -> io::Result<Self> {
        let mut disk = Self::with(OpenOptions::new().read(true).write(true).create(true), path, caching)?;
        disk.file.set_len(size_bytes)?;
        disk.size_bytes = AtomicU64::new(size_bytes);
        Ok(disk)
    }

    fn with(options: &mut OpenOptions, path: &Path, caching: Caching) -> io::Result<Self> {
        let mut flags = OFlags::empty();
        if caching == Caching::Direct {
            flags |= OFlags::DIRECT;
        }
        // For a block device alone, this flag asks the kernel whether the device is mounted.
        if std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device()) {
            flags |= OFlags::EXCL;
        }
        options.custom_flags(flags.bits() as i32);
        let mut file = options.open(path)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|errno| {
            let error = io::Error::from(errno);
            io::Error::new(error.kind(), format!("{} is in use by another process: {error}", path.display()))
        })?;
        // The metadata of a block device have no length.
        let size_bytes = AtomicU64::new(file.seek(SeekFrom::End(0))?);
        Ok(FileDisk { file, size_bytes, caching, rings: Rings::new().map_err(|error| error.to_string()) })
    }

    /// Name of the executor of several transfers at once: `io_uring`, or `threads` and the reason.
    pub fn executor(&self) -> String {
        match &self.rings {
            Ok(_) => "io_uring".to_owned(),
            Err(why) => format!("threads (no io_uring: {why})"),
        }
    }

    /// The same disk without io_uring.
    pub fn without_io_uring(self) -> Self {
        FileDisk { rings: Err("it is not wanted".to_owned()), ..self }
    }

    fn must_copy(&self, bytes: &[u8]) -> bool {
        self.caching == Caching::Direct && !(bytes.as_ptr() as usize).is_multiple_of(ALIGN)
    }

    /// One transfer by pread or pwrite.
    fn transfer(&self, transfer: &mut Transfer) -> io::Result<()> {
        match transfer {
            Transfer::Read { at, bytes } => self.read_at(*at, bytes),
            Transfer::Write { at, bytes } => self.write_at(*at, bytes),
        }
    }

    /// All transfers one after the other, also after one has failed.
    fn one_by_one(&self, transfers: &mut [Transfer]) -> io::Result<()> {
        transfers.iter_mut().map(|transfer| self.transfer(transfer)).fold(Ok(()), io::Result::and)
    }

    /// Transfers in parallel. If threads cannot be started, the others do their shares, at the least the caller. A
    /// machine short of threads must not look like a failing device.
    fn by_threads(&self, transfers: &mut [Transfer]) -> io::Result<()> {
        let threads = (transfers.len() / THREAD_TRANSFERS).clamp(1, THREADS_MAX);
        let share = transfers.len().div_ceil(threads).max(1);
        let shares = Mutex::new(transfers.chunks_mut(share));
        let work = || {
            let mut result = Ok(());
            loop {
                let next = shares.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some(part) = next else { return result };
                result = result.and(self.one_by_one(part));
            }
        };
        std::thread::scope(|scope| {
            let spawn = |_| std::thread::Builder::new().spawn_scoped(scope, work).ok();
            let started: Vec<_> = (1..threads).map_while(spawn).collect();
            let result = work();
            started.into_iter().map(|thread| thread.join().expect("no transfer panics")).fold(result, io::Result::and)
        })
    }

    /// Transfers by a ring. Transfers that the ring does not complete are repeated one by one.
    fn by_rings(&self, rings: &Rings, transfers: &mut [Transfer]) -> io::Result<()> {
        let mut copies: Vec<Option<AlignedBytes>> = transfers.iter().map(|transfer| self.copy_of(transfer)).collect();
        let mut jobs: Vec<Job> =
            transfers.iter_mut().zip(&mut copies).map(|(transfer, copy)| job(transfer, copy)).collect();
        if rings.perform(self.file.as_raw_fd(), &mut jobs).is_err() {
            drop(jobs);
            return self.one_by_one(transfers);
        }
        let results: Vec<i32> = jobs.iter().map(|job| job.result).collect();
        drop(jobs);
        let mut outcome = Ok(());
        for ((transfer, copy), moved) in transfers.iter_mut().zip(copies).zip(results) {
            outcome = outcome.and(self.settle(transfer, copy, moved));
        }
        outcome
    }

    /// Aligned memory for a transfer that needs it.
    fn copy_of(&self, transfer: &Transfer) -> Option<AlignedBytes> {
        let bytes: &[u8] = match transfer {
            Transfer::Read { bytes, .. } => bytes,
            Transfer::Write { bytes, .. } => bytes,
        };
        self.must_copy(bytes).then(|| {
            let mut copy = AlignedBytes::zeroed(bytes.len());
            if matches!(transfer, Transfer::Write { .. }) {
                copy.copy_from_slice(bytes);
            }
            copy
        })
    }

    /// Completes a transfer of which a ring has moved so many bytes. Below zero, `moved` is an error number.
    fn settle(&self, transfer: &mut Transfer, copy: Option<AlignedBytes>, moved: i32) -> io::Result<()> {
        let len = transfer.len();
        if moved < 0 {
            let again = [Errno::INTR, Errno::AGAIN].iter().any(|errno| errno.raw_os_error() == -moved);
            return if again { self.transfer(transfer) } else { Err(io::Error::from_raw_os_error(-moved)) };
        }
        if (moved as usize) < len {
            // A signal or the end of an extent cut it short. pread or pwrite repeats it from the start.
            return self.transfer(transfer);
        }
        if let (Transfer::Read { bytes, .. }, Some(copy)) = (transfer, copy) {
            bytes.copy_from_slice(&copy);
        }
        Ok(())
    }

    /// Reads the whole blocks around these bytes, up to the end of the device.
    fn read_around(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        let within = at as usize % ALIGN;
        let mut copy = AlignedBytes::zeroed((within + bytes.len()).next_multiple_of(ALIGN));
        let mut done = 0;
        while done < within + bytes.len() {
            match self.file.read_at(&mut copy[done..], at - within as u64 + done as u64) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        bytes.copy_from_slice(&copy[within..within + bytes.len()]);
        Ok(())
    }

    /// True if a ring can read these bytes without a copy.
    fn suits_a_ring(&self, at: u64, bytes: &[u8]) -> bool {
        let as_it_is = self.caching == Caching::Buffered || (is_whole(at, bytes.len()) && !self.must_copy(bytes));
        let inside = self.check_range(at, bytes.len(), io::ErrorKind::UnexpectedEof).is_ok();
        as_it_is && inside && bytes.len() <= RING_BYTES_MAX
    }

    fn check_range(&self, at: u64, len: usize, kind: io::ErrorKind) -> io::Result<()> {
        match at.checked_add(len as u64) {
            Some(end) if end <= self.size_bytes() => Ok(()),
            _ => Err(io::Error::new(kind, format!("{len} bytes at {at} of a device of {} bytes", self.size_bytes()))),
        }
    }
}

/// Reads what the kernel's page cache has of a file. True if that was all; otherwise `bytes` may hold anything. A read that
/// would wait, that the end cuts off, or whose result is unclear is left to another.
pub fn read_now(file: &File, at: u64, bytes: &mut [u8]) -> bool {
    let length = bytes.len();
    let read = rustix::io::preadv2(file, &mut [IoSliceMut::new(bytes)], at, ReadWriteFlags::NOWAIT);
    read.is_ok_and(|count| count == length)
}

fn is_whole(at: u64, len: usize) -> bool {
    (at as usize | len).is_multiple_of(ALIGN)
}

impl Disk for FileDisk {
    fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Acquire)
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.check_range(at, bytes.len(), io::ErrorKind::UnexpectedEof)?;
        if self.must_copy(bytes) || (self.caching == Caching::Direct && !is_whole(at, bytes.len())) {
            return self.read_around(at, bytes);
        }
        self.file.read_exact_at(bytes, at)
    }

    fn read_now(&self, at: u64, bytes: &mut [u8]) -> bool {
        self.caching == Caching::Buffered && read_now(&self.file, at, bytes)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.check_range(at, bytes.len(), io::ErrorKind::StorageFull)?;
        if self.must_copy(bytes) {
            let mut copy = AlignedBytes::zeroed(bytes.len());
            copy.copy_from_slice(bytes);
            return self.file.write_all_at(&copy, at);
        }
        self.file.write_all_at(bytes, at)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn submit(&self, transfers: &mut [Transfer]) -> io::Result<()> {
        let small = transfers.iter().all(|transfer| transfer.len() <= RING_BYTES_MAX);
        let whole = transfers.iter().all(|transfer| is_whole(transfer.at(), transfer.len()));
        let as_they_are = whole || self.caching == Caching::Buffered;
        let inside = transfers
            .iter()
            .all(|transfer| self.check_range(transfer.at(), transfer.len(), io::ErrorKind::UnexpectedEof).is_ok());
        match &self.rings {
            Ok(rings) if transfers.len() > 1 && small && inside && as_they_are => self.by_rings(rings, transfers),
            Err(_) if transfers.len() >= 2 * THREAD_TRANSFERS => self.by_threads(transfers),
            _ => self.one_by_one(transfers),
        }
    }

    fn read_queue<'a>(&self, depth: usize, source: &mut dyn ReadSource<'a>) {
        let Ok(rings) = &self.rings else { return queue::by_batches(self, depth, source) };
        let mut left = Vec::new();
        let mut whole = Whole { disk: self, source };
        if rings.read(self.file.as_raw_fd(), depth, &mut whole, &mut left).is_err() {
            left.into_iter().for_each(|read| whole.alone(read));
            while let Some(read) = whole.source.next() {
                whole.alone(read);
            }
        }
    }

    /// Makes a file longer and allocates its blocks, or leaves it as it was. A block device cannot be made longer
    /// here: its new size is noted.
    fn grow(&self, size_bytes: u64) -> io::Result<()> {
        if self.file.metadata()?.is_file() {
            let _room = take_room(&self.file, size_bytes)?;
        }
        // No other code uses the file's own position: every transfer has an offset.
        let found = (&self.file).seek(SeekFrom::End(0))?;
        self.size_bytes.fetch_max(found, Ordering::AcqRel);
        if found >= size_bytes {
            return Ok(());
        }
        let error = format!("the device has {found} bytes, not {size_bytes}");
        Err(io::Error::new(io::ErrorKind::Unsupported, error))
    }

    fn discard(&self, at: u64, bytes: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.file, flags, at, bytes) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            other => Ok(other?),
        }
    }
}

/// A source of whole reads: a read that a ring cannot take, or did not complete, is made alone.
struct Whole<'s, 'a> {
    disk: &'s FileDisk,
    source: &'s mut dyn ReadSource<'a>,
}

impl<'a> Whole<'_, 'a> {
    fn alone(&mut self, read: QueuedRead<'a>) {
        let result = self.disk.read_at(read.at, read.bytes);
        self.source.ended(read, result);
    }
}

impl<'a> Reads<'a> for Whole<'_, 'a> {
    fn next(&mut self) -> Option<QueuedRead<'a>> {
        loop {
            let read = self.source.next()?;
            if self.disk.suits_a_ring(read.at, read.bytes) {
                return Some(read);
            }
            self.alone(read);
        }
    }

    fn moved(&mut self, read: QueuedRead<'a>, result: i32) {
        let transfer = &mut Transfer::Read { at: read.at, bytes: &mut *read.bytes };
        let result = self.disk.settle(transfer, None, result);
        self.source.ended(read, result);
    }
}

/// A transfer in the form for a ring, with its own memory or an aligned copy.
fn job(transfer: &mut Transfer, copy: &mut Option<AlignedBytes>) -> Job {
    let (at, len) = (transfer.at(), transfer.len() as u32);
    let write = matches!(transfer, Transfer::Write { .. });
    let pointer = match (copy, transfer) {
        (Some(copy), _) => copy.as_mut_ptr(),
        (None, Transfer::Read { bytes, .. }) => bytes.as_mut_ptr(),
        // The kernel only reads the memory of a write.
        (None, Transfer::Write { bytes, .. }) => bytes.as_ptr().cast_mut(),
    };
    Job { write, at, pointer, len, result: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_core::Random;

    fn path(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("entresol-disk-{}-{name}", std::process::id()))
    }

    #[test]
    fn what_is_written_is_read_and_holes_are_zeros() {
        for caching in [Caching::Buffered, Caching::Direct] {
            let path = path(&format!("{caching:?}"));
            let Ok(disk) = FileDisk::create(&path, 64 << 10, caching) else {
                entresol_skip::skipped!("place", "{caching:?}: this file system refuses it");
                continue;
            };
            let bytes: Vec<u8> = (0..8192u32).map(|i| (i % 251) as u8).collect();
            // A slice that begins one byte into a vector is unaligned.
            let shifted = [&[0], bytes.as_slice()].concat();
            disk.write_at(4096, &shifted[1..]).expect("a write");
            disk.sync().expect("a sync");
            let mut back = vec![1; 16384 + 1];
            disk.read_at(0, &mut back[1..]).expect("a read");
            assert!(back[1..4097].iter().all(|&b| b == 0));
            let mut some = [0; 700];
            disk.read_at(4096 + 4000, &mut some).expect("a read across blocks");
            assert_eq!(some[..], bytes[4000..4700]);
            assert_eq!(&back[4097..4097 + 8192], bytes);
            disk.discard(4096, 4096).expect("a discard");
            assert_eq!(disk.read_at(64 << 10, &mut [0; 4096]).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
            assert_eq!(disk.write_at(60 << 10, &bytes).unwrap_err().kind(), io::ErrorKind::StorageFull);
            std::fs::remove_file(&path).expect("the file just made");
        }
    }

    #[test]
    fn a_second_holder_is_refused() {
        let path = path("lock");
        let first = FileDisk::create(&path, 4096, Caching::Buffered).expect("a file");
        let second = FileDisk::open(&path, Caching::Buffered).unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::WouldBlock);
        assert!(second.to_string().contains("in use"), "{second}");
        drop(first);
        FileDisk::open(&path, Caching::Buffered).expect("the first is gone");
        std::fs::remove_file(&path).expect("the file just made");
    }

    /// Runs a test with both executors, under both kinds of caching that this file system allows.
    fn every_way(name: &str, size_bytes: u64, test: impl Fn(&FileDisk, &str)) {
        for (caching, rings) in
            [Caching::Buffered, Caching::Direct].into_iter().flat_map(|caching| [(caching, true), (caching, false)])
        {
            let path = path(&format!("{name}-{caching:?}-{rings}"));
            let Ok(disk) = FileDisk::create(&path, size_bytes, caching) else {
                entresol_skip::skipped!("place", "{caching:?}: this file system refuses it");
                continue;
            };
            let disk = if rings { disk } else { disk.without_io_uring() };
            assert!(rings || disk.executor().starts_with("threads"), "{}", disk.executor());
            println!("{caching:?}: {}", disk.executor());
            test(&disk, &format!("{caching:?}, {}", disk.executor()));
            std::fs::remove_file(&path).expect("the file just made");
        }
    }

    #[test]
    fn a_batch_of_any_size_does_what_its_transfers_do_alone() {
        const BLOCKS: u64 = 600;
        every_way("batch", BLOCKS * 4096, |disk, what| {
            let mut random = Random::new(1);
            let mut model = vec![0; BLOCKS as usize * 4096];
            for round in 0..30 {
                let number = [1, 2, 15, 16, 300, 599][round % 6];
                let mut blocks: Vec<u64> = (0..BLOCKS).collect();
                (0..number).for_each(|i| blocks.swap(i, i + random.below(BLOCKS - i as u64) as usize));
                let write = random.chance(0.5);
                // Memory that begins one byte into a vector is unaligned.
                let shift = random.below(2) as usize;
                let mut memory: Vec<Vec<u8>> =
                    (0..number).map(|_| (0..4096 + shift).map(|_| random.next_u64() as u8).collect()).collect();
                let mut transfers: Vec<Transfer> = memory
                    .iter_mut()
                    .zip(&blocks)
                    .map(|(memory, block)| match write {
                        true => Transfer::Write { at: block * 4096, bytes: &memory[shift..] },
                        false => Transfer::Read { at: block * 4096, bytes: &mut memory[shift..] },
                    })
                    .collect();
                disk.submit(&mut transfers).unwrap_or_else(|error| panic!("{what}, round {round}: {error}"));
                for (memory, block) in memory.iter().zip(&blocks) {
                    let there = &mut model[*block as usize * 4096..][..4096];
                    if write {
                        there.copy_from_slice(&memory[shift..]);
                    }
                    assert!(memory[shift..] == *there, "{what}, round {round}, block {block}");
                }
            }
            let mut back = vec![0; model.len()];
            disk.read_at(0, &mut back).expect("a read");
            assert!(back == model, "{what}");
        });
    }

    /// Names blocks one after the other and compares the bytes read. At times it has no block to name.
    struct Blocks<'a> {
        blocks: std::vec::IntoIter<u64>,
        memory: Vec<&'a mut [u8]>,
        under_way: usize,
        most: usize,
        ended: Vec<(u64, bool)>,
        random: Random,
    }

    impl<'a> ReadSource<'a> for Blocks<'a> {
        fn next(&mut self) -> Option<QueuedRead<'a>> {
            if self.under_way > 0 && self.random.chance(0.1) {
                return None;
            }
            let at = self.blocks.next()? * 4096;
            let bytes = self.memory.pop().expect("memory for as many as are under way");
            self.under_way += 1;
            self.most = self.most.max(self.under_way);
            Some(QueuedRead { token: at as usize + 1, at, bytes })
        }

        fn ended(&mut self, read: QueuedRead<'a>, result: io::Result<()>) {
            assert_eq!(read.token, read.at as usize + 1);
            let block = read.at / 4096;
            match result {
                Ok(()) => assert!(read.bytes.iter().all(|&byte| byte == block as u8), "block {block}"),
                Err(ref error) => assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "block {block}"),
            }
            self.ended.push((block, result.is_ok()));
            self.under_way -= 1;
            self.memory.push(read.bytes);
        }
    }

    #[test]
    fn a_queue_of_any_depth_reads_every_block_once() {
        const BLOCKS: u64 = 300;
        every_way("queue", BLOCKS * 4096, |disk, what| {
            for block in 0..BLOCKS {
                disk.write_at(block * 4096, &[block as u8; 4096]).expect("a write");
            }
            for depth in [1, 7, 32, 1000] {
                let mut memory = vec![[0; 4097]; depth];
                let mut blocks: Vec<u64> = (0..BLOCKS + 3).collect();
                let mut random = Random::new(depth as u64);
                (1..blocks.len()).for_each(|i| blocks.swap(i, random.below(i as u64 + 1) as usize));
                // Some memory is unaligned.
                let memory = memory.iter_mut().map(|bytes| &mut bytes[random.below(2) as usize..][..4096]).collect();
                let (blocks, ended) = (blocks.into_iter(), Vec::new());
                let mut source = Blocks { blocks, memory, under_way: 0, most: 0, ended, random: Random::new(5) };
                disk.read_queue(depth, &mut source);
                assert!(source.under_way == 0 && source.most <= depth, "{what}: {} of {depth}", source.most);
                source.ended.sort_unstable();
                let expected: Vec<(u64, bool)> = (0..BLOCKS + 3).map(|block| (block, block < BLOCKS)).collect();
                assert_eq!(source.ended, expected, "{what}");
            }
        });
    }

    #[test]
    fn one_error_of_many_is_told_and_costs_the_others_nothing() {
        every_way("errors", 64 * 4096, |disk, what| {
            disk.write_at(0, &[7; 64 * 4096]).expect("a write");
            let mut memory = vec![[0; 4096]; 40];
            let read = |memory: &mut Vec<[u8; 4096]>| {
                let at = |i| if i == 20 { 64 } else { i as u64 } * 4096;
                let reads = memory.iter_mut().enumerate();
                disk.submit(&mut reads.map(|(i, bytes)| Transfer::Read { at: at(i), bytes }).collect::<Vec<_>>())
            };
            let error = read(&mut memory).expect_err("one read is past the end");
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{what}");
            assert!((0..40).all(|i| memory[i] == [if i == 20 { 0 } else { 7 }; 4096]), "{what}");
            // Another program shortens the file: the ring itself moves fewer bytes than asked.
            disk.file.set_len(10 * 4096 + 512).expect("it shrinks");
            let mut memory = vec![[0; 4096]; 20];
            let error = read(&mut memory).expect_err("half of it is not there");
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{what}");
            assert!((0..10).all(|i| memory[i] == [7; 4096]), "{what}");
        });
    }

    #[test]
    fn an_error_of_the_device_comes_out_of_a_ring() {
        let Ok(disk) = FileDisk::open(Path::new("/dev/full"), Caching::Buffered) else {
            entresol_skip::skipped!("/dev/full", "there is no /dev/full");
            return;
        };
        let disk = FileDisk { size_bytes: AtomicU64::new(1 << 20), ..disk };
        let mut transfers: Vec<Transfer> =
            (0..20).map(|i| Transfer::Write { at: i * 4096, bytes: &[1; 4096] }).collect();
        let error = disk.submit(&mut transfers).expect_err("it is full");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{}", disk.executor());
    }

    #[test]
    fn several_threads_submit_at_once() {
        let path = path("threads");
        let disk = FileDisk::create(&path, 256 * 4096, Caching::Buffered).expect("a file");
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let disk = &disk;
                scope.spawn(move || {
                    for round in 0..50u8 {
                        let bytes = [round + thread as u8; 4096];
                        let mine = |i| (thread * 64 + i) * 4096;
                        let mut writes: Vec<_> =
                            (0..64).map(|i| Transfer::Write { at: mine(i), bytes: &bytes }).collect();
                        disk.submit(&mut writes).expect("writes");
                        let mut back = vec![[0; 4096]; 64];
                        let reads = back.iter_mut().enumerate();
                        let mut reads: Vec<_> =
                            reads.map(|(i, bytes)| Transfer::Read { at: mine(i as u64), bytes }).collect();
                        disk.submit(&mut reads).expect("reads");
                        assert!(back.iter().all(|block| *block == bytes), "thread {thread}, round {round}");
                    }
                });
            }
        });
        std::fs::remove_file(&path).expect("the file just made");
    }
}
