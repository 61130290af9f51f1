//! Files and devices that this process holds alone or only reads, and damage found in them.

use super::words::format_command;
use anyhow::{Context, Result, anyhow, bail};
use entresol_disk::{Caching, Disk, FileDisk, PATIENCE};
use entresol_fsck::Bytes;
use rustix::fs::FlockOperation;
use std::fs::{File, Metadata};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Error for damage: a cache file does not hold what was durable in it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Damage(pub(crate) String);

/// True if damage was found, false if the command could not run.
pub fn is_damage(error: &anyhow::Error) -> bool {
    error.root_cause().is::<Damage>()
}

/// The same as [`PATIENCE`] of a server that follows a killed one: its clients wait, and a device may take long for the
/// last requests.
const PATIENCE_AFTER_KILL: Duration = Duration::from_secs(600);

/// Wait for a lock after which that is said.
const SAID_AFTER: Duration = Duration::from_secs(1);

static FOLLOWS_KILL: AtomicBool = AtomicBool::new(false);

/// Notes that this process follows a server that was killed.
pub(crate) fn follow_killed() {
    FOLLOWS_KILL.store(true, Relaxed);
}

/// Opens the cache of a backing store for this process alone.
pub(crate) fn hold_cache(path: &Path, backing: &Path, caching: Caching) -> Result<FileDisk> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(error).with_context(|| {
            let format = format_command(path, backing);
            format!("{}: there is no cache here; `{format} --size SIZE` makes one", path.display())
        }),
        _ => hold(path, caching),
    }
}

/// Opens a file or block device for this process alone.
pub(crate) fn hold(path: &Path, caching: Caching) -> Result<FileDisk> {
    patiently(path, || FileDisk::open(path, caching)).map_err(|error| {
        if caching == Caching::Direct && error.kind() == io::ErrorKind::InvalidInput {
            return anyhow!("--direct: {}: its file system has no O_DIRECT", path.display());
        }
        in_use_or(path, error)
    })
}

/// Bytes of a block, of which O_DIRECT moves whole ones: half a block cannot be written without its neighbour.
pub(crate) const DIRECT_BYTES: u64 = 4096;

/// Refuses pages of a cache that are no whole blocks.
pub(crate) fn check_direct(page_bytes: u32) -> Result<()> {
    if !u64::from(page_bytes).is_multiple_of(DIRECT_BYTES) {
        bail!("--direct: pages of {page_bytes} bytes are no multiple of {DIRECT_BYTES}");
    }
    Ok(())
}

pub(crate) fn patiently<T>(path: &Path, open: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let patience = if FOLLOWS_KILL.load(Relaxed) { PATIENCE_AFTER_KILL } else { PATIENCE };
    let (since, mut is_said) = (Instant::now(), false);
    loop {
        match open() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && since.elapsed() < patience => {
                if !is_said && since.elapsed() >= SAID_AFTER {
                    let name = path.display();
                    say!(
                        "entresol: {name}: still in use: I/O of the killed server is under way, or another process has \
                         it; waits for at most {} s",
                        patience.as_secs()
                    );
                    is_said = true;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            other => return other,
        }
    }
}

pub(crate) fn in_use_or(path: &Path, error: io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => anyhow!("{}: in use by another process", path.display()),
        io::ErrorKind::ResourceBusy => anyhow!("{}: in use: mounted, or part of another device", path.display()),
        _ => anyhow::Error::new(error).context(path.display().to_string()),
    }
}

/// A file that is only read. No process writes to it meanwhile, because a writer holds it alone.
pub(crate) struct ReadFile {
    pub(crate) file: File,
    pub(crate) size_bytes: u64,
}

impl ReadFile {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let open = || -> io::Result<Self> {
            let mut file = File::open(path)?;
            rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared)?;
            if file.metadata()?.is_dir() {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            let size_bytes = file.seek(SeekFrom::End(0))?;
            Ok(ReadFile { file, size_bytes })
        };
        patiently(path, open).map_err(|error| in_use_or(path, error))
    }
}

impl Bytes for ReadFile {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, at)
    }
}

/// Bytes of a file or device that this process holds alone, for the decoder.
pub(crate) struct HeldBytes<'a>(pub(crate) &'a FileDisk);

impl Bytes for HeldBytes<'_> {
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.0.read_at(at, bytes)
    }
}

pub(crate) fn metadata(path: &Path) -> Result<Metadata> {
    std::fs::metadata(path).with_context(|| path.display().to_string())
}

/// Refuses a file that is both the cache and the backing store.
pub(crate) fn check_apart(cache: &Path, backing: &Path) -> Result<()> {
    if let (Ok(one), Ok(other)) = (std::fs::metadata(cache), std::fs::metadata(backing))
        && (one.dev(), one.ino()) == (other.dev(), other.ino())
    {
        bail!("{}: is given as the cache and as the backing store", cache.display());
    }
    Ok(())
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
