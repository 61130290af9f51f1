//! Locations of records outside a file map: an extended attribute of the backing file, or a file of the state
//! directory.

use super::last_write::{MARK_BYTES, Mark, MarkPlace, Seen, clock_ns};
use super::{RECORD_BYTES_MAX, Record, RecordError, RecordPlace, volume};
use entresol_cache::LEARNED_BYTES_MAX;
use entresol_core::Random;
use rustix::fs::{FlockOperation, XattrFlags};
use rustix::io::Errno;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const ATTRIBUTE: &str = "user.entresol";

/// The attribute of the mark of the last write.
const MARK_ATTRIBUTE: &str = "user.entresol.last_write";

/// Directory of records that cannot be stored beside their backing store, unless `ENTRESOL_STATE_DIR` names another.
pub const STATE_DIRECTORY: &str = "/var/lib/entresol";

fn state_directory() -> PathBuf {
    std::env::var_os("ENTRESOL_STATE_DIR").map_or_else(|| STATE_DIRECTORY.into(), PathBuf::from)
}

/// The record of a backing file: its extended attribute `user.entresol`. Where the file system has no such attributes,
/// the record lies in the [state directory](StateFile), by the file's identity.
pub struct FileRecord {
    path: PathBuf,
    file: Arc<dyn AsFd + Send + Sync>,
    elsewhere: Option<StateFile>,
    /// Location of the learned state, which is too long for an attribute.
    learned: StateFile,
}

impl FileRecord {
    /// The location of the record of this file, which `identity` tells from all others.
    ///
    /// # Errors
    /// The error of the system.
    pub fn of(path: &Path, identity: [u8; 16]) -> io::Result<Self> {
        Self::over(path, Arc::new(File::open(path)?), identity)
    }

    /// Like [`of`](Self::of), by a file that is open: closing another descriptor of it would release this process's
    /// locks.
    ///
    /// # Errors
    /// The error of the system.
    pub fn over(path: &Path, file: Arc<dyn AsFd + Send + Sync>, identity: [u8; 16]) -> io::Result<Self> {
        let asked = rustix::fs::fgetxattr_query(file.as_fd(), ATTRIBUTE);
        let without = matches!(asked, Err(Errno::OPNOTSUPP | Errno::NOSYS));
        let elsewhere = without.then(|| StateFile::of(identity));
        Ok(FileRecord { path: path.into(), file, elsewhere, learned: StateFile::of(identity) })
    }

    /// True if the record lies in the state directory, for want of extended attributes.
    pub fn is_elsewhere(&self) -> bool {
        self.elsewhere.is_some()
    }
}

impl RecordPlace for FileRecord {
    fn read(&self) -> io::Result<Option<Record>> {
        if let Some(elsewhere) = &self.elsewhere {
            return elsewhere.read();
        }
        let mut bytes = [0; RECORD_BYTES_MAX];
        match rustix::fs::fgetxattr(self.file.as_fd(), ATTRIBUTE, &mut bytes[..]) {
            Ok(length) => Ok(Some(Record::decode(&bytes[..length])?)),
            Err(Errno::NODATA) => Ok(None),
            Err(Errno::RANGE) => Err(RecordError::Damaged.into()),
            Err(error) => Err(error.into()),
        }
    }

    fn write(&self, record: &Record) -> io::Result<()> {
        if let Some(elsewhere) = &self.elsewhere {
            return elsewhere.write(record);
        }
        rustix::fs::fsetxattr(self.file.as_fd(), ATTRIBUTE, &record.encode(), XattrFlags::empty())?;
        Ok(rustix::fs::fsync(self.file.as_fd())?)
    }

    fn clear(&self) -> io::Result<()> {
        if let Some(elsewhere) = &self.elsewhere {
            return elsewhere.clear();
        }
        match rustix::fs::fremovexattr(self.file.as_fd(), ATTRIBUTE) {
            Ok(()) | Err(Errno::NODATA) => Ok(rustix::fs::fsync(self.file.as_fd())?),
            Err(error) => Err(error.into()),
        }
    }

    fn learned(&self) -> io::Result<Option<Vec<u8>>> {
        self.learned.learned()
    }

    fn keep_learned(&self, bytes: &[u8]) -> io::Result<()> {
        self.learned.keep_learned(bytes)
    }

    fn volume(&self) -> io::Result<Option<[u8; 16]>> {
        volume::of(self.file.as_fd())
    }

    fn mark(&self) -> Option<&dyn MarkPlace> {
        Some(self)
    }

    fn name(&self) -> String {
        match &self.elsewhere {
            Some(elsewhere) => elsewhere.name(),
            None => format!("the extended attribute {ATTRIBUTE} of {}", self.path.display()),
        }
    }
}

impl FileRecord {
    fn attributes(&self) -> io::Result<rustix::fs::Stat> {
        Ok(rustix::fs::fstat(self.file.as_fd())?)
    }
}

impl MarkPlace for FileRecord {
    fn seen(&self) -> io::Result<Seen> {
        let found = self.attributes()?;
        Ok(Seen::File { bytes: found.st_size as u64, modified: nanoseconds(found.st_mtime, found.st_mtime_nsec) })
    }

    fn mark_bytes(&self) -> io::Result<Option<Vec<u8>>> {
        if let Some(elsewhere) = &self.elsewhere {
            return elsewhere.mark_bytes();
        }
        let mut bytes = [0; MARK_BYTES];
        match rustix::fs::fgetxattr(self.file.as_fd(), MARK_ATTRIBUTE, &mut bytes[..]) {
            Ok(length) => Ok(Some(bytes[..length].to_vec())),
            // One of another length is of a kind that is not known.
            Err(Errno::NODATA | Errno::RANGE) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn set_mark(&self, mark: &[u8; MARK_BYTES]) -> io::Result<()> {
        match &self.elsewhere {
            Some(elsewhere) => elsewhere.set_mark(mark),
            None => Ok(rustix::fs::fsetxattr(self.file.as_fd(), MARK_ATTRIBUTE, mark, XattrFlags::empty())?),
        }
    }

    fn remove_mark(&self) -> io::Result<()> {
        if let Some(elsewhere) = &self.elsewhere {
            return elsewhere.remove_mark();
        }
        match rustix::fs::fremovexattr(self.file.as_fd(), MARK_ATTRIBUTE) {
            Ok(()) | Err(Errno::NODATA) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn sync_mark(&self) -> io::Result<()> {
        // A file beside is durable when it is written.
        if self.elsewhere.is_some() { Ok(()) } else { Ok(rustix::fs::fsync(self.file.as_fd())?) }
    }

    fn marked_at(&self) -> io::Result<i64> {
        let found = self.attributes()?;
        // A file system that gives an attribute no time has that of an earlier change.
        Ok(nanoseconds(found.st_ctime, found.st_ctime_nsec).max(clock_ns()))
    }
}

/// A time of a file in nanoseconds since 1970.
fn nanoseconds(seconds: i64, fraction: impl TryInto<i64>) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(fraction.try_into().unwrap_or_default())
}

/// The record of a block device, or of a file without extended attributes: a file of the state directory, named by the
/// backing store's identity.
pub struct StateFile {
    directory: PathBuf,
    name: String,
    /// Directory of a block device in sysfs, which counts what is written to it.
    device: Option<PathBuf>,
}

impl StateFile {
    /// The location of the record of the backing store with this identity.
    pub fn of(identity: [u8; 16]) -> Self {
        Self::within(&state_directory(), identity)
    }

    /// Like [`of`](Self::of), with the [mark](super::LastWrite) of this block device: the kernel counts what is written to it,
    /// as long as the device is there and the machine runs.
    ///
    /// # Errors
    /// The error of the system.
    pub fn of_device(path: &Path, identity: [u8; 16]) -> io::Result<Self> {
        let number = std::fs::metadata(path)?.rdev();
        let device = format!("/sys/dev/block/{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
        Ok(StateFile { device: Some(device.into()), ..Self::of(identity) })
    }

    /// Like [`of`](Self::of), in another directory.
    pub fn within(directory: &Path, identity: [u8; 16]) -> Self {
        let name = identity.iter().map(|byte| format!("{byte:02x}")).collect();
        StateFile { directory: directory.into(), name, device: None }
    }

    /// The location beside a cache's file, in its directory and with its name. None if the cache is no regular file.
    pub fn beside(cache: &Path) -> Option<Self> {
        let cache = std::fs::canonicalize(cache).ok().filter(|cache| cache.is_file())?;
        Some(StateFile { directory: cache.parent()?.into(), name: cache.file_name()?.to_str()?.into(), device: None })
    }

    fn path(&self) -> PathBuf {
        self.directory.join(&self.name)
    }

    /// Name of the file for what the policy has learned.
    fn learned_name(&self) -> String {
        format!("{}.learned", self.name)
    }

    /// Name of the file for the mark of the last write.
    fn mark_name(&self) -> String {
        format!("{}.last_write", self.name)
    }

    /// Removes a file of the directory, durably, if it is there.
    fn remove_file(&self, name: &str) -> io::Result<()> {
        match std::fs::remove_file(self.directory.join(name)) {
            Ok(()) => File::open(&self.directory)?.sync_all(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(self.explained(error)),
        }
    }

    /// The first bytes of a file of the directory; none if there is no file.
    fn read_file(&self, name: &str, most: usize) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        match File::open(self.directory.join(name)) {
            Ok(file) => file.take(most as u64).read_to_end(&mut bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.explained(error)),
        };
        Ok(Some(bytes))
    }

    fn explained(&self, error: io::Error) -> io::Error {
        let what = format!("{}: {error}; ENTRESOL_STATE_DIR names another directory", self.directory.display());
        io::Error::new(error.kind(), what)
    }

    fn write_new(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        if !self.directory.exists() {
            DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
            if let Some(parent) = self.directory.parent() {
                File::open(parent)?.sync_all()?;
            }
        }
        let directory = File::open(&self.directory)?;
        // Another process may be writing the record of another backing store, or of this one.
        rustix::fs::flock(&directory, FlockOperation::LockExclusive)?;
        let new = self.directory.join(format!("{name}.new"));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&new, self.directory.join(name))?;
        directory.sync_all()
    }
}

impl RecordPlace for StateFile {
    fn read(&self) -> io::Result<Option<Record>> {
        let bytes = self.read_file(&self.name, RECORD_BYTES_MAX + 1)?;
        Ok(bytes.map(|bytes| Record::decode(&bytes)).transpose()?)
    }

    fn write(&self, record: &Record) -> io::Result<()> {
        self.write_new(&self.name, &record.encode()).map_err(|error| self.explained(error))
    }

    fn clear(&self) -> io::Result<()> {
        self.remove_file(&self.name)
    }

    fn learned(&self) -> io::Result<Option<Vec<u8>>> {
        self.read_file(&self.learned_name(), LEARNED_BYTES_MAX + 1)
    }

    fn keep_learned(&self, bytes: &[u8]) -> io::Result<()> {
        self.write_new(&self.learned_name(), bytes).map_err(|error| self.explained(error))
    }

    fn volume(&self) -> io::Result<Option<[u8; 16]>> {
        Ok(None)
    }

    fn mark(&self) -> Option<&dyn MarkPlace> {
        self.device.is_some().then_some(self)
    }

    fn name(&self) -> String {
        self.path().display().to_string()
    }
}

impl MarkPlace for StateFile {
    fn seen(&self) -> io::Result<Seen> {
        let unknown = || io::Error::from(io::ErrorKind::Unsupported);
        let device = self.device.as_ref().ok_or_else(unknown)?;
        let counts = std::fs::read_to_string(device.join("stat"))?;
        let count = |at: usize| counts.split_whitespace().nth(at)?.parse::<u64>().ok();
        // Discards are counted since Linux 4.18.
        let sectors = count(6).ok_or_else(unknown)?.wrapping_add(count(13).unwrap_or(0));
        // A partition appears with its disk. The numbers begin again with the machine.
        let number = ["diskseq", "../diskseq"].into_iter().find_map(|name| {
            let number = std::fs::read_to_string(device.join(name)).ok()?;
            number.trim().parse::<u64>().ok()
        });
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let boot = u64::from_str_radix(boot.get(..8).unwrap_or_default(), 16).map_err(|_| unknown())?;
        Ok(Seen::Device { sectors, appearance: Random::mix(boot ^ Random::mix(number.ok_or_else(unknown)?)) })
    }

    fn mark_bytes(&self) -> io::Result<Option<Vec<u8>>> {
        self.read_file(&self.mark_name(), MARK_BYTES)
    }

    fn set_mark(&self, mark: &[u8; MARK_BYTES]) -> io::Result<()> {
        // A file that is made and synced each second would cost more than it tells.
        if !matches!(Mark::decode(mark), Some((Mark::Closed(_), _))) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.write_new(&self.mark_name(), mark)
    }

    fn remove_mark(&self) -> io::Result<()> {
        self.remove_file(&self.mark_name())
    }

    fn sync_mark(&self) -> io::Result<()> {
        // It is durable since it was written.
        Ok(())
    }

    fn marked_at(&self) -> io::Result<i64> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
