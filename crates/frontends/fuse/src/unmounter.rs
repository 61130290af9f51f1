//! The end of a mount: unmounting, breaking its connection off, and noticing that either has happened.

use crate::table::Table;
use crate::{Error, Result};
use entresol_files::mounts::mounts;
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, UnmountFlags, fsconfig_create, fsmount, fsopen};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Time that the kernel may take to end an unmounted mount. A mount that lasts longer does not end by itself: another
/// mount namespace has a copy.
const LINGER: Duration = Duration::from_secs(3);

/// Directory of the kernel's FUSE control file system, if that is mounted. In it, the owner of a mount can end the
/// mount for all namespaces.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// Unmounts from any thread.
#[derive(Debug, Clone)]
pub struct Unmounter {
    pub(super) mountpoint: PathBuf,
    /// Number of the mount, where the system gives it: the directory of the mount point may be renamed.
    pub(super) id: Option<u64>,
    /// Number that no later mount has either, where the system gives it.
    pub(super) unique: Option<u64>,
    /// Number of the mount's device and of its connection; no other mount has it.
    pub(super) device: u32,
    pub(super) progress: Arc<Progress>,
    /// Table by which the mount outlives this process, until it is unmounted.
    pub(super) table: Option<Arc<Table>>,
}

/// Record of how the kernel's side of a mount ended.
#[derive(Debug, Default)]
pub(super) struct Ended {
    pub(super) unmounter: OnceLock<Unmounter>,
    /// Path at which the mount still was when its connection ended: it was not unmounted.
    pub(super) mounted_at: OnceLock<PathBuf>,
}

impl Ended {
    /// Notes that the kernel sends no more requests. Must run before a mount left behind is taken away.
    pub fn note(&self) {
        if let Some(at) = self.unmounter.get().and_then(Unmounter::left_behind) {
            let _first = self.mounted_at.set(at);
        }
    }
}

/// Stage that a mount has reached, for the threads that wait for its end.
#[derive(Debug)]
pub(super) struct Progress {
    stage: Mutex<Stage>,
    changed: Condvar,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Mounted,
    /// Unmounted here at this time, and not yet ended by the kernel.
    Left(Instant),
    Over,
}

impl Progress {
    pub fn new() -> Self {
        Self { stage: Mutex::new(Stage::Mounted), changed: Condvar::new() }
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leave(&self) {
        let mut stage = self.stage();
        if *stage == Stage::Mounted {
            *stage = Stage::Left(Instant::now());
            self.changed.notify_all();
        }
    }

    pub fn end(&self) {
        *self.stage() = Stage::Over;
        self.changed.notify_all();
    }

    /// Waits for the end while it can still come. True if it has come.
    pub fn wait(&self) -> bool {
        let mut stage = self.stage();
        loop {
            let limit = match *stage {
                Stage::Over => return true,
                Stage::Left(since) if since.elapsed() >= LINGER => return false,
                Stage::Left(since) => LINGER - since.elapsed(),
                Stage::Mounted => Duration::MAX,
            };
            stage = self.changed.wait_timeout(stage, limit).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Unmounter {
    /// Unmounts; [`Mount::wait`](crate::Mount::wait) returns within three seconds. Does nothing if the mount is
    /// unmounted already.
    ///
    /// # Errors
    /// `EBUSY` in [`Error::Path`] while files are open, or another mount is in or over this one, as the text says.
    pub fn unmount(&self) -> Result<()> {
        self.take_away(UnmountFlags::empty()).map_err(|error| Error::path(&self.mountpoint, error))
    }

    /// Unmounts although files are open. They stay open until they are closed or this process ends.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn detach(&self) -> Result<()> {
        self.take_away(UnmountFlags::DETACH).map_err(|error| Error::path(&self.mountpoint, error))
    }

    pub(super) fn take_away(&self, flags: UnmountFlags) -> io::Result<()> {
        let over = *self.progress.stage() == Stage::Over;
        if let Some(at) = self.place().filter(|_| !over) {
            // A foreign mount over this one, or over a directory above it, must stay.
            let covered = match mount_at(&at) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                found => !found.is_ok_and(|found| self.is(&found)),
            };
            if covered {
                let why = "busy: another file system is mounted over it";
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
            }
            unmount(&at, flags).map_err(|error| self.explained(error))?;
        }
        self.table.iter().for_each(|table| table.give_up());
        self.progress.leave();
        Ok(())
    }

    /// True if `found` is this mount.
    fn is(&self, found: &Found) -> bool {
        found.device == self.device && found.unique == self.unique
    }

    /// Path at which the mount still is, if it was not unmounted from here.
    fn left_behind(&self) -> Option<PathBuf> {
        let kept = *self.progress.stage() == Stage::Mounted;
        // A later mount may have its numbers by now.
        self.place().filter(|at| kept && mount_at(at).is_ok_and(|found| self.is(&found)))
    }

    /// Path at which the mount is now; `None` when it is not mounted in this mount namespace.
    fn place(&self) -> Option<PathBuf> {
        let Some((id, mounts)) = self.id.zip(mounts().ok()) else {
            let there = mount_at(&self.mountpoint).is_ok_and(|found| self.is(&found));
            return there.then(|| self.mountpoint.clone());
        };
        mounts.into_iter().find(|mount| mount.id == id && mount.device.1 == self.device).map(|mount| mount.at)
    }

    /// Explains a busy mount that has another mount in it.
    fn explained(&self, error: io::Error) -> io::Error {
        let inside = mounts().ok().and_then(|mounts| mounts.into_iter().find(|mount| Some(mount.parent) == self.id));
        match inside {
            Some(inside) if error.to_string().contains("busy") => {
                io::Error::new(error.kind(), format!("{error}: {} is mounted in it", inside.at.display()))
            }
            _ => error,
        }
    }

    /// Ends the connection where [`CONNECTIONS`] is not mounted, by a mount of it that no other process sees.
    fn break_off_unseen(&self) -> io::Result<()> {
        let context = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&context)?;
        let connections = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
        let abort = format!("{}/abort", self.device);
        let abort = rustix::fs::openat(&connections, abort, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::io::write(&abort, b"1")?;
        Ok(())
    }

    /// Ends the connection for all namespaces that have a copy of the mount.
    pub(super) fn break_off(&self) -> Result<()> {
        let abort = Path::new(CONNECTIONS).join(self.device.to_string()).join("abort");
        let aborted = std::fs::write(abort, "1").or_else(|error| self.break_off_unseen().map_err(|_| error));
        aborted.map_err(|error| Error::Elsewhere { mountpoint: self.mountpoint.clone(), error })
    }
}

/// Identity of the mount at a path.
pub(super) struct Found {
    /// Number of its device.
    pub device: u32,
    /// Number of the mount, from Linux 5.8 on.
    pub id: Option<u64>,
    /// Number that no later mount has, from Linux 6.8 on.
    pub unique: Option<u64>,
}

/// `STATX_MNT_ID_UNIQUE`.
const UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// Finds the mount at a path, or the mount that contains the path. The mount's server is not asked.
pub(super) fn mount_at(place: &Path) -> io::Result<Found> {
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let found = |asked| rustix::fs::statx(rustix::fs::CWD, place, flags, asked);
    let number = |found: rustix::fs::Statx, asked| {
        StatxFlags::from_bits_retain(found.stx_mask).contains(asked).then_some(found.stx_mnt_id)
    };
    let by_id = found(StatxFlags::MNT_ID)?;
    let unique = found(UNIQUE).ok().and_then(|found| number(found, UNIQUE));
    Ok(Found { device: by_id.stx_dev_minor, id: number(by_id, StatxFlags::MNT_ID), unique })
}

/// Unmounts what is mounted at a path, unless files are open in it. Its server ends then.
///
/// # Errors
/// The error of the system, or what the helper of unprivileged users says.
pub fn unmount_at(mountpoint: &Path) -> io::Result<()> {
    unmount(mountpoint, UnmountFlags::empty())
}

/// Unmounts. Where only root may unmount directly, the helper does it.
fn unmount(mountpoint: &Path, flags: UnmountFlags) -> io::Result<()> {
    match rustix::mount::unmount(mountpoint, flags) {
        Err(rustix::io::Errno::PERM) => {}
        other => return Ok(other?),
    }
    let mut command = Command::new("fusermount3");
    command.arg("-u").args((flags == UnmountFlags::DETACH).then_some("-z")).arg("--").arg(mountpoint);
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

/// Most dead mounts, one over the other, that are taken away.
const DEAD_MAX: usize = 64;

/// Takes away the mounts of killed processes at a directory; one that is served stays.
///
/// # Errors
/// The error of the system, or of `fusermount3`.
pub fn clear_dead_mount(mountpoint: &Path) -> io::Result<()> {
    for _ in 0..DEAD_MAX {
        // Opened, because the kernel may still answer a request for the attributes.
        match std::fs::read_dir(mountpoint) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotConnected | io::ErrorKind::ConnectionAborted) => {
                unmount(mountpoint, UnmountFlags::DETACH)?;
            }
            other => return other.map(drop),
        }
    }
    Err(rustix::io::Errno::NOTCONN.into())
}
