//! A layer in which every file is an emulated device of its own, as slow as its model.

use super::{AtOnce, DirectFile, FileData, FileId, FileLayer, OpenDirectory, Sought};
use entresol_device::Device;
use entresol_device::emulated::{Accuracy, EmulatedDevice, Storage, WallClock};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Makes the model of a file that is opened for the first time; always of the same capacity.
type MakeModel = Box<dyn Fn() -> io::Result<Box<dyn Device + Send>> + Send + Sync>;

/// Backing files, each with the times of a device of its own. Byte *n* of a file is byte *n* of its device. The device
/// exists from the first `open` to the file's removal.
///
/// Reads, writes, syncs and punched holes take the model's time, never less. Opening, resizing, reserving and calls on
/// names take the host's. A file that would outgrow its device is refused with `ENOSPC`.
pub struct EmulatedFiles {
    make_model: MakeModel,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    files: HashMap<FileId, (Arc<EmulatedFile>, bool)>,
    /// Accuracy of the files that are gone.
    gone: Accuracy,
}

impl EmulatedFiles {
    /// A layer whose files get their devices from `make_model`.
    pub fn new(make_model: impl Fn() -> io::Result<Box<dyn Device + Send>> + Send + Sync + 'static) -> Self {
        Self { make_model: Box::new(make_model), known: Mutex::default() }
    }

    /// Accuracy of all files together so far: the lateness of their completions against their models.
    pub fn accuracy(&self) -> Accuracy {
        let known = self.known();
        let mut all = known.gone.clone();
        for (file, _) in known.files.values() {
            add(&mut all, &file.device.accuracy());
        }
        all
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn add(sum: &mut Accuracy, other: &Accuracy) {
    sum.late.merge(&other.late);
    sum.host_late.merge(&other.host_late);
    sum.spun_ns += other.spun_ns;
}

impl Known {
    fn forget(&mut self, id: FileId) {
        if let Some((file, _)) = self.files.remove(&id) {
            add(&mut self.gone, &file.device.accuracy());
        }
    }
}

impl FileLayer for EmulatedFiles {
    fn open(&self, id: FileId, file: File, writable: bool) -> io::Result<Arc<dyn FileData>> {
        let mut known = self.known();
        if let Some((file, _)) = known.files.get(&id).filter(|(_, may)| *may || !writable) {
            return Ok(file.clone());
        }
        // A file that was open for reading only starts again with an unused device.
        known.forget(id);
        let opened = Arc::new(EmulatedFile::new(file, (self.make_model)()?)?);
        known.files.insert(id, (opened.clone(), writable));
        Ok(opened)
    }

    fn leaving(&self, _id: FileId, _directory: OpenDirectory<'_>) -> io::Result<()> {
        Ok(())
    }

    fn stays(&self, _id: FileId) {}

    fn replacing(&self, _id: FileId) -> io::Result<()> {
        Ok(())
    }

    fn removed(&self, id: FileId) {
        self.known().forget(id);
    }
}

/// The bytes of a device: its file's, followed by zeroes up to the device's end.
struct Bytes {
    file: Arc<DirectFile>,
    capacity: u64,
}

impl Storage for Bytes {
    fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.capacity)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let count = self.file.read(offset, bytes)?;
        bytes[count..].fill(0);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.0.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        // The device's flush does not say whether the times are wanted too.
        self.file.0.sync_all()
    }

    fn punch(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.file.allocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, bytes)
    }
}

struct EmulatedFile {
    file: Arc<DirectFile>,
    device: EmulatedDevice<Bytes, Box<dyn Device + Send>, WallClock>,
}

impl EmulatedFile {
    fn new(file: File, model: Box<dyn Device + Send>) -> io::Result<Self> {
        let file = Arc::new(DirectFile(file));
        let capacity = model.capacity_bytes();
        if file.size_bytes()? > capacity {
            return Err(Errno::FBIG.into());
        }
        let device = EmulatedDevice::new(Bytes { file: file.clone(), capacity }, model, WallClock::new())?;
        Ok(Self { file, device })
    }

    /// Refuses a range that ends beyond the device.
    fn fits(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let fits = offset.checked_add(bytes).is_some_and(|end| end <= self.device.size_bytes());
        if fits { Ok(()) } else { Err(Errno::NOSPC.into()) }
    }
}

impl FileData for EmulatedFile {
    fn size_bytes(&self) -> io::Result<u64> {
        self.file.size_bytes()
    }

    fn read_now(&self, _offset: u64, _bytes: &mut [u8]) -> io::Result<AtOnce> {
        // Every read waits for its time.
        Ok(AtOnce::First(0))
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let left = self.size_bytes()?.saturating_sub(offset);
        let count = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        if count > 0 {
            self.device.read(offset, &mut bytes[..count])?;
        }
        Ok(count)
    }

    fn write_now(&self, _offset: u64, _bytes: &[u8]) -> io::Result<usize> {
        Ok(0)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.fits(offset, bytes.len() as u64)?;
        self.device.write(offset, bytes, false)
    }

    fn sync(&self, _data_only: bool) -> io::Result<()> {
        self.device.flush()
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.fits(bytes, 0)?;
        self.file.truncate(bytes)
    }

    fn allocate(&self, how: FallocateFlags, offset: u64, bytes: u64) -> io::Result<()> {
        if how == FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE {
            let beyond = self.device.size_bytes();
            let (start, end) = (offset.min(beyond), offset.saturating_add(bytes).min(beyond));
            return self.device.discard(start, end - start);
        }
        if how.contains(FallocateFlags::INSERT_RANGE) {
            self.fits(self.size_bytes()?, bytes)?;
        } else if !how.contains(FallocateFlags::COLLAPSE_RANGE) {
            self.fits(offset, bytes)?;
        }
        self.file.allocate(how, offset, bytes)
    }

    fn seek(&self, sought: Sought, offset: u64) -> io::Result<u64> {
        self.file.seek(sought, offset)
    }
}
