//! Disks with the timing of an emulated device: a sparse range of bytes on a device that may be smaller.

use crate::{AtOnce, DirectFile, FileData, FileId, FileLayer, OpenDirectory, Pattern, Sought};
use entresol_device::emulated::{Accuracy, Clock, EmulatedDevice, Part, Storage, WallClock};
use entresol_device::{Device, Wear};
use entresol_disk::{Disk, Transfer};
use rustix::fs::FallocateFlags;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Bytes that are contiguous on the device, as a file system would allocate them for sequential requests.
const EXTENT: u64 = 1 << 20;

/// Map from extents to their positions on the device: each extent gets the next position when it is first touched.
#[derive(Default)]
struct Placement {
    places: HashMap<u64, u64>,
    extents: Vec<u64>,
}

/// The bytes of a disk, at the device's addresses.
struct Placed<D> {
    disk: D,
    placement: Arc<RwLock<Placement>>,
    capacity: u64,
}

impl<D: Disk> Placed<D> {
    /// The disk's address of a device offset. No I/O crosses an extent.
    fn address(&self, offset: u64) -> u64 {
        let placement = self.placement.read().unwrap_or_else(PoisonError::into_inner);
        placement.extents[(offset / EXTENT) as usize] * EXTENT + offset % EXTENT
    }
}

impl<D: Disk> Storage for Placed<D> {
    fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.capacity)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.disk.read_at(self.address(offset), bytes)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.disk.write_at(self.address(offset), bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.sync()
    }

    fn punch(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.disk.discard(self.address(offset), bytes)
    }
}

/// Counts of the I/Os requested of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Reads.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Writes that began where the previous one ended.
    pub sequential_writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Time during which at least one I/O was in flight.
    pub busy: Duration,
}

#[derive(Default)]
struct Counted {
    traffic: Traffic,
    under_way: u64,
    since: Option<Instant>,
    last_end: u64,
}

/// A disk with a device's timing. It may be larger than the device as long as no more than the device's size is used.
///
/// While the disk is [`hurried`](Self::hurry), I/Os take only the disk's own time, and nothing is counted.
pub struct PacedDisk<D: Disk, C: Clock = WallClock> {
    device: EmulatedDevice<Placed<D>, Box<dyn Device + Send>, C>,
    disk: D,
    placement: Arc<RwLock<Placement>>,
    size_bytes: u64,
    hurried: AtomicBool,
    counted: Mutex<Counted>,
}

/// A disk of any type with a device's timing.
pub trait Paced: Send + Sync {
    /// Sets whether I/Os take only the disk's own time, without the device's.
    fn hurry(&self, hurried: bool);

    /// Counts of the I/Os requested of the disk.
    fn traffic(&self) -> Traffic;

    /// Wear of the device by its model: bytes read and written, erases, endurance used, energy.
    fn wear(&self) -> Wear;

    /// Accuracy of the timing: how much later than in the model I/Os ended.
    fn accuracy(&self) -> Accuracy;
}

impl<D: Disk + Clone> PacedDisk<D> {
    /// The bytes of `disk` with the timing of `model`.
    ///
    /// # Errors
    /// `InvalidInput` when the model is smaller than one extent.
    pub fn new(disk: D, model: Box<dyn Device + Send>) -> io::Result<Self> {
        Self::with_clock(disk, model, WallClock::new())
    }
}

impl<D: Disk + Clone, C: Clock> PacedDisk<D, C> {
    /// The bytes of `disk` with the timing of `model`, by this clock.
    ///
    /// # Errors
    /// As [`new`](PacedDisk::new).
    pub fn with_clock(disk: D, model: Box<dyn Device + Send>, clock: C) -> io::Result<Self> {
        let capacity = model.capacity_bytes() / EXTENT * EXTENT;
        let (placement, size_bytes) = (Arc::default(), disk.size_bytes());
        let placed = Placed { disk: disk.clone(), placement: Arc::clone(&placement), capacity };
        let device = EmulatedDevice::new(placed, model, clock)?;
        Ok(Self { device, disk, placement, size_bytes, hurried: AtomicBool::new(false), counted: Mutex::default() })
    }
}

impl<D: Disk, C: Clock> PacedDisk<D, C> {
    /// Gives all extents of the disk their positions in order, as a disk that is used as a whole has them.
    ///
    /// # Errors
    /// `StorageFull` when the model is smaller than the disk.
    pub fn place_in_order(&self) -> io::Result<()> {
        (0..self.size_bytes).step_by(EXTENT as usize).try_for_each(|at| self.place(at).map(drop))
    }

    /// The position of an address on the device.
    fn place(&self, at: u64) -> io::Result<u64> {
        let extent = at / EXTENT;
        let known = |placement: &Placement| placement.places.get(&extent).map(|place| place * EXTENT + at % EXTENT);
        if let Some(place) = known(&self.placement.read().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(place);
        }
        let mut placement = self.placement.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = known(&placement) {
            return Ok(place);
        }
        let next = placement.extents.len() as u64;
        if (next + 1) * EXTENT > self.device.size_bytes() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        placement.extents.push(extent);
        placement.places.insert(extent, next);
        Ok(next * EXTENT + at % EXTENT)
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an I/O at its start, and the time until all I/Os have ended.
    fn during<T>(&self, note: impl FnOnce(&mut Counted), act: impl FnOnce() -> T) -> T {
        let mut counted = self.counted();
        note(&mut counted);
        counted.under_way += 1;
        counted.since.get_or_insert_with(Instant::now);
        drop(counted);
        let result = act();
        let mut counted = self.counted();
        counted.under_way -= 1;
        if counted.under_way == 0 {
            let since = counted.since.take().map_or(Duration::ZERO, |since| since.elapsed());
            counted.traffic.busy += since;
        }
        result
    }

    fn is_hurried(&self) -> bool {
        self.hurried.load(Relaxed)
    }

    /// Transfers cut at the ends of extents, at their positions on the device.
    fn parts<'a>(&self, transfers: &'a mut [Transfer]) -> io::Result<Vec<Part<'a>>> {
        let mut parts = Vec::with_capacity(transfers.len());
        for transfer in transfers {
            match transfer {
                Transfer::Read { at, bytes } => {
                    let (mut at, mut rest) = (*at, &mut **bytes);
                    while !rest.is_empty() {
                        let (part, after) = rest.split_at_mut(within(at, rest.len()));
                        parts.push(Part::Read(self.place(at)?, &mut *part));
                        at += part_len(&parts);
                        rest = after;
                    }
                }
                Transfer::Write { at, bytes } => {
                    let (mut at, mut rest) = (*at, *bytes);
                    while !rest.is_empty() {
                        let (part, after) = rest.split_at(within(at, rest.len()));
                        parts.push(Part::Write(self.place(at)?, part));
                        at += part.len() as u64;
                        rest = after;
                    }
                }
            }
        }
        Ok(parts)
    }

    fn perform(&self, transfers: &mut [Transfer]) -> io::Result<()> {
        let mut parts = self.parts(transfers)?;
        let note = |counted: &mut Counted| parts.iter().for_each(|part| counted.note(part));
        let mut counted = self.counted();
        note(&mut counted);
        drop(counted);
        self.during(|_| {}, || self.device.perform_all(&mut parts))
    }
}

fn part_len(parts: &[Part]) -> u64 {
    match parts.last() {
        Some(Part::Read(_, bytes)) => bytes.len() as u64,
        Some(Part::Write(_, bytes)) => bytes.len() as u64,
        None => 0,
    }
}

/// Number of bytes, of `bytes` from `at` on, that lie in the same extent as the first.
fn within(at: u64, bytes: usize) -> usize {
    bytes.min((EXTENT - at % EXTENT) as usize)
}

impl Counted {
    fn note(&mut self, part: &Part) {
        match part {
            Part::Read(_, bytes) => {
                self.traffic.reads += 1;
                self.traffic.read_bytes += bytes.len() as u64;
            }
            Part::Write(at, bytes) => {
                self.traffic.writes += 1;
                self.traffic.written_bytes += bytes.len() as u64;
                self.traffic.sequential_writes += u64::from(*at == self.last_end);
                self.last_end = at + bytes.len() as u64;
            }
        }
    }
}

impl<D: Disk, C: Clock> Disk for PacedDisk<D, C> {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        if self.is_hurried() {
            return self.disk.read_at(at, bytes);
        }
        self.perform(&mut [Transfer::Read { at, bytes }])
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        if self.is_hurried() {
            return self.disk.write_at(at, bytes);
        }
        self.perform(&mut [Transfer::Write { at, bytes }])
    }

    fn sync(&self) -> io::Result<()> {
        if self.is_hurried() {
            return self.disk.sync();
        }
        self.during(|counted| counted.traffic.flushes += 1, || self.device.flush())
    }

    fn discard(&self, at: u64, bytes: u64) -> io::Result<()> {
        if self.is_hurried() {
            return self.disk.discard(at, bytes);
        }
        let mut done = 0;
        while done < bytes {
            let count = within(at + done, usize::try_from(bytes - done).unwrap_or(usize::MAX)) as u64;
            self.device.discard(self.place(at + done)?, count)?;
            done += count;
        }
        Ok(())
    }

    fn submit(&self, transfers: &mut [Transfer]) -> io::Result<()> {
        if self.is_hurried() {
            return self.disk.submit(transfers);
        }
        self.perform(transfers)
    }
}

impl<D: Disk, C: Clock> Paced for PacedDisk<D, C> {
    fn hurry(&self, hurried: bool) {
        self.hurried.store(hurried, Relaxed);
    }

    fn traffic(&self) -> Traffic {
        let counted = self.counted();
        let running = counted.since.map_or(Duration::ZERO, |since| since.elapsed());
        Traffic { busy: counted.traffic.busy + running, ..counted.traffic }
    }

    fn wear(&self) -> Wear {
        self.device.wear()
    }

    fn accuracy(&self) -> Accuracy {
        self.device.accuracy()
    }
}

/// Bytes of address space per file.
const FILE: u64 = 1 << 40;

/// Files by their numbers, as one range of bytes: byte *b* of file *n* is at *n* TiB + *b*.
#[derive(Clone, Default)]
struct Numbered(Arc<RwLock<HashMap<u64, Arc<DirectFile>>>>);

impl Numbered {
    fn file(&self, at: u64) -> Option<Arc<DirectFile>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&(at / FILE)).cloned()
    }
}

impl Disk for Numbered {
    fn size_bytes(&self) -> u64 {
        u64::MAX
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        let count = self.file(at).map_or(Ok(0), |file| file.read(at % FILE, bytes))?;
        bytes[count..].fill(0);
        Ok(())
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file(at).map_or(Ok(()), |file| file.0.write_all_at(bytes, at % FILE))
    }

    fn sync(&self) -> io::Result<()> {
        // A file is synced by its own `sync`, which knows the file.
        Ok(())
    }

    fn discard(&self, _at: u64, _bytes: u64) -> io::Result<()> {
        Ok(())
    }
}

/// Receives the requests to files on a device, at the device's timing.
pub trait Listener: Send + Sync {
    /// A file that was not opened before got this number.
    fn opened(&self, number: u64, name: &str);

    /// Bytes of a file are read or written now.
    fn asked(&self, number: u64, offset: u64, bytes: u64, write: bool);

    /// A read or write has ended, this long after it began.
    fn answered(&self, waited: Duration, write: bool);
}

/// Files together on one device, without a cache. Files that match a pattern of `direct` take only their own time.
pub struct PacedFiles {
    disk: Arc<PacedDisk<Numbered>>,
    files: Numbered,
    numbers: Mutex<Numbers>,
    root: File,
    direct: Vec<Pattern>,
    listener: Option<Arc<dyn Listener>>,
}

#[derive(Default)]
struct Numbers {
    known: HashMap<FileId, u64>,
    next: u64,
}

impl PacedFiles {
    /// The files of a directory on a device of this model. Files that match `direct` take only their own time.
    ///
    /// # Errors
    /// If the directory cannot be opened, or the model is smaller than one extent.
    pub fn new(root: File, model: Box<dyn Device + Send>, direct: Vec<Pattern>) -> io::Result<Self> {
        let files = Numbered::default();
        let disk = Arc::new(PacedDisk::new(files.clone(), model)?);
        Ok(Self { disk, files, numbers: Mutex::default(), root, direct, listener: None })
    }

    /// Adds a listener of the requests to the device.
    pub fn heard_by(self, listener: Arc<dyn Listener>) -> Self {
        Self { listener: Some(listener), ..self }
    }

    /// The device.
    pub fn device(&self) -> Arc<dyn Paced> {
        self.disk.clone()
    }

    /// The file's name below the directory.
    fn name(&self, file: &File) -> io::Result<String> {
        let path = |file: &File| std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let (path, root) = (path(file)?, path(&self.root)?);
        Ok(path.strip_prefix(&root).unwrap_or(&path).to_string_lossy().into_owned())
    }
}

impl FileLayer for PacedFiles {
    fn open(&self, id: FileId, file: File, _writable: bool) -> io::Result<Arc<dyn FileData>> {
        let name = self.name(&file)?;
        if self.direct.iter().any(|pattern| pattern.matches(&name)) {
            return Ok(Arc::new(DirectFile(file)));
        }
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let next = numbers.next;
        let number = *numbers.known.entry(id).or_insert(next);
        numbers.next += u64::from(number == next);
        if let Some(listener) = self.listener.as_ref().filter(|_| number == next) {
            listener.opened(number, &name);
        }
        let file = Arc::new(DirectFile(file));
        // The newest handle serves all: the front-end reopens a file when it needs more rights.
        self.files.0.write().unwrap_or_else(PoisonError::into_inner).insert(number, file.clone());
        let (disk, listener) = (self.disk.clone(), self.listener.clone());
        Ok(Arc::new(PacedFile { file, disk, number, listener, dirty: AtomicU64::new(0) }))
    }

    fn leaving(&self, _id: FileId, _directory: OpenDirectory<'_>) -> io::Result<()> {
        Ok(())
    }

    fn stays(&self, _id: FileId) {}

    fn replacing(&self, _id: FileId) -> io::Result<()> {
        Ok(())
    }

    fn removed(&self, id: FileId) {
        let number = self.numbers.lock().unwrap_or_else(PoisonError::into_inner).known.remove(&id);
        let mut files = self.files.0.write().unwrap_or_else(PoisonError::into_inner);
        number.map(|number| files.remove(&number));
    }
}

struct PacedFile {
    file: Arc<DirectFile>,
    disk: Arc<PacedDisk<Numbered>>,
    number: u64,
    listener: Option<Arc<dyn Listener>>,
    /// Writes since the last sync.
    dirty: AtomicU64,
}

impl PacedFile {
    /// Notifies the listener before and after a read or a write.
    fn heard<T>(&self, offset: u64, bytes: usize, write: bool, act: impl FnOnce() -> T) -> T {
        let Some(listener) = self.listener.as_ref().filter(|_| !self.disk.is_hurried()) else { return act() };
        listener.asked(self.number, offset, bytes as u64, write);
        let started = Instant::now();
        let result = act();
        listener.answered(started.elapsed(), write);
        result
    }
}

impl FileData for PacedFile {
    fn size_bytes(&self) -> io::Result<u64> {
        self.file.size_bytes()
    }

    fn read_now(&self, offset: u64, bytes: &mut [u8]) -> io::Result<AtOnce> {
        if self.disk.is_hurried() { self.file.read_now(offset, bytes) } else { Ok(AtOnce::First(0)) }
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let left = self.size_bytes()?.saturating_sub(offset);
        let count = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        if count > 0 {
            let at = self.number * FILE + offset;
            self.heard(offset, count, false, || self.disk.read_at(at, &mut bytes[..count]))?;
        }
        Ok(count)
    }

    fn write_now(&self, _offset: u64, _bytes: &[u8]) -> io::Result<usize> {
        Ok(0)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if offset + bytes.len() as u64 > FILE {
            return Err(rustix::io::Errno::FBIG.into());
        }
        self.dirty.fetch_add(1, Relaxed);
        self.heard(offset, bytes.len(), true, || self.disk.write_at(self.number * FILE + offset, bytes))
    }

    fn sync(&self, data_only: bool) -> io::Result<()> {
        self.file.sync(data_only)?;
        // The device is not synced when this file has no writes since the last sync.
        if self.dirty.swap(0, Relaxed) > 0 { self.disk.sync() } else { Ok(()) }
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.file.truncate(bytes)
    }

    fn allocate(&self, how: FallocateFlags, offset: u64, bytes: u64) -> io::Result<()> {
        self.file.allocate(how, offset, bytes)
    }

    fn seek(&self, sought: Sought, offset: u64) -> io::Result<u64> {
        self.file.seek(sought, offset)
    }
}
