//! Mounting, waiting, unmounting.

use super::nodes::Nodes;
use super::passthrough::{Passing, Passthrough};
use super::pool::Pool;
use super::server::{FuseServer, Kernel};
use crate::mounts::mounts;
use crate::{Error, Result};
use entresol_files::FileLayer;
use fuser::{Config, INodeNo, MountOption, Notifier, Session, SessionACL};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, StatxFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, UnmountFlags, fsconfig_create, fsmount, fsopen};
use rustix::process::umask;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time that the kernel may take to end an unmounted mount. A mount that lasts longer does not end by itself: another
/// mount namespace has a copy.
const LINGER: Duration = Duration::from_secs(3);

/// Device through which the kernel is asked to mount.
const DEVICE: &str = "/dev/fuse";

/// Directory of the kernel's FUSE control file system, if that is mounted. In it the owner of a mount can end the mount
/// for everybody.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// Settings with which a mount is served.
#[derive(Debug, Clone)]
pub struct Options {
    /// Threads that take requests from the kernel, of which one may be at a sync of a file that the layer does nothing with.
    pub session_threads: usize,
    /// Threads that carry out what may have to wait for a device.
    pub workers: usize,
    /// True if the kernel's page cache stands above the mount, as above any file system. It answers reads of pages that
    /// it holds and reads ahead; the layer sees the rest. Files opened with O_DIRECT go past it. If false, the layer
    /// sees every read.
    pub page_cache: bool,
    /// True if the kernel shall read and write by itself the files with whose bytes the layer does nothing
    /// ([`FileData::below`](entresol_files::FileData::below)). The kernel may refuse: [`Mount::passing`].
    pub passthrough: bool,
    /// True if root is served too and not only the user who mounts. Files that root makes here belong to that user. A
    /// user other than root needs `CAP_SYS_ADMIN` or `user_allow_other` in `/etc/fuse.conf` for this.
    pub allow_root: bool,
    /// Name of the mounted source, as `df` and the like shall show it.
    pub source: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            session_threads: 3,
            workers: 16,
            page_cache: true,
            passthrough: true,
            allow_root: false,
            source: "entresol".to_owned(),
        }
    }
}

/// A mounted directory; dropping it unmounts, even if files are open.
pub struct Mount {
    unmounter: Unmounter,
    ended: Arc<Ended>,
    session: Option<JoinHandle<io::Result<()>>>,
    shared_mappings: bool,
    passing: Passing,
}

/// Unmounts from any thread.
#[derive(Debug, Clone)]
pub struct Unmounter {
    mountpoint: PathBuf,
    /// Number of the mount, where the system tells it: the folder that it is at may be renamed.
    id: Option<u64>,
    /// The number that no mount has after it either, where the system tells that.
    unique: Option<u64>,
    /// Number of the device that the mount is to the system, and of its connection: no other mount's.
    device: u32,
    progress: Arc<Progress>,
}

/// Record of how the kernel's side of a mount ended.
#[derive(Debug, Default)]
pub(super) struct Ended {
    unmounter: OnceLock<Unmounter>,
    /// Path at which it was still mounted when it ended: nobody has unmounted it.
    mounted_at: OnceLock<PathBuf>,
}

impl Ended {
    /// Notes that the kernel sends no more requests. To be called before anybody takes away a mount that may be left.
    pub fn note(&self) {
        if let Some(at) = self.unmounter.get().and_then(Unmounter::left_behind) {
            let _first = self.mounted_at.set(at);
        }
    }
}

/// Stage that a mount has reached, for the threads that wait for its end.
#[derive(Debug)]
struct Progress {
    stage: Mutex<Stage>,
    changed: Condvar,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Mounted,
    /// Unmounted here since then, and the kernel has not ended it.
    Left(Instant),
    Over,
}

impl Progress {
    fn new() -> Self {
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

    fn end(&self) {
        *self.stage() = Stage::Over;
        self.changed.notify_all();
    }

    /// Waits for the end, as long as there is hope for one; whether it has come.
    fn wait(&self) -> bool {
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

impl Mount {
    /// Mounts `backing` at `mountpoint` for the user who runs this (and root, [`Options::allow_root`]), with the files' bytes going through `layer`.
    ///
    /// The process's umask becomes 0, for the kernel has applied the caller's already, and its limit of open files as
    /// high as it may be, for each file that the kernel remembers takes one. A mount that a killed process left behind at
    /// `mountpoint` is taken away first.
    ///
    /// # Errors
    /// [`Error::InUse`] when another process serves `backing`, [`Error::Path`] when it or the mountpoint is not a directory
    /// or cannot be mounted.
    pub fn start(backing: &Path, mountpoint: &Path, layer: Arc<dyn FileLayer>, options: Options) -> Result<Self> {
        let at_backing = |error: rustix::io::Errno| Error::path(backing, error);
        let at_mountpoint = |error| Error::path(mountpoint, error);
        let open = |flags| rustix::fs::open(backing, flags | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let lock = open(OFlags::RDONLY).map_err(at_backing)?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(Error::InUse(backing.into())),
            Err(error) => return Err(at_backing(error)),
        }
        let changed = Arc::new(Mutex::new(None));
        layer.when_stale(stale_teller(&changed));
        let nodes = Nodes::new(open(OFlags::PATH).map_err(at_backing)?, layer).map_err(at_backing)?;
        let directory = open(OFlags::PATH).map_err(at_backing)?;
        clear_dead_mount(mountpoint).map_err(at_mountpoint)?;
        let mountpoint = mountpoint.canonicalize().map_err(at_mountpoint)?;

        entresol_files::allow_many();
        umask(Mode::empty());

        let pool = Pool::new(options.workers).map_err(at_mountpoint_of(&mountpoint))?;
        let shared_mappings = Arc::new(AtomicBool::new(false));
        let passthrough = Arc::new(Passthrough::new(options.passthrough));
        let ended = Arc::<Ended>::default();
        let kernel = Kernel {
            page_cache: options.page_cache,
            shared_mappings: shared_mappings.clone(),
            passthrough: passthrough.clone(),
            ended: ended.clone(),
        };
        let server = FuseServer::new(lock, nodes, pool, kernel);
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName(options.source),
            MountOption::Subtype("entresol".into()),
            MountOption::DefaultPermissions,
        ];
        config.acl = if options.allow_root { SessionACL::RootAndOwner } else { SessionACL::Owner };
        config.n_threads = Some(options.session_threads.max(1));
        let session = Session::new(server, &mountpoint, &config).map_err(|error| refused(&mountpoint, error))?;
        let passing = passthrough.attempt(&session, directory);
        let stale = forget_stale(session.notifier())?;
        *changed.lock().unwrap_or_else(PoisonError::into_inner) = Some(stale);
        let Found { device, id, unique } = mount_at(&mountpoint).map_err(at_mountpoint_of(&mountpoint))?;
        let progress = Arc::new(Progress::new());
        let unmounter = Unmounter { mountpoint, id, unique, device, progress: Arc::clone(&progress) };
        // Asked once, as it ends.
        let _first = ended.unmounter.set(unmounter.clone());
        let run = move || {
            let result = session.run();
            // The thread that tells the kernel ends with it.
            changed.lock().unwrap_or_else(PoisonError::into_inner).take();
            progress.end();
            result
        };
        let thread = std::thread::Builder::new().name("fuse session".into()).spawn(run)?;
        Ok(Self {
            unmounter,
            ended,
            session: Some(thread),
            shared_mappings: options.page_cache || shared_mappings.load(Relaxed),
            passing,
        })
    }

    /// True if files may be mapped with `MAP_SHARED`, which SQLite's WAL needs: with a page cache above, or from Linux
    /// 6.6 on.
    pub fn shared_mappings(&self) -> bool {
        self.shared_mappings
    }

    /// State of passthrough: whether the kernel reads and writes by itself the files with which the layer has nothing
    /// to do.
    pub fn passing(&self) -> &Passing {
        &self.passing
    }

    /// Returns a handle that unmounts this from another thread.
    pub fn unmounter(&self) -> Unmounter {
        self.unmounter.clone()
    }

    /// Serves until it is unmounted, from here or by anybody.
    ///
    /// A mount namespace that was begun meanwhile has a copy of the mount, which unmounting here does not end. Three seconds after
    /// an [`Unmounter`] was used the connection is therefore broken off: who still uses the copy gets errors, as when the
    /// server is killed.
    ///
    /// # Errors
    /// Errors of the kernel's side. [`Error::Elsewhere`] if the kernel offers no way to break the connection off:
    /// requests then go on until the process ends, which breaks it off. [`Error::BrokenOff`] if somebody ended the
    /// connection and left it mounted.
    pub fn wait(mut self) -> Result<()> {
        let Some(session) = self.session.take() else { return Ok(()) };
        if !self.unmounter.progress.wait() {
            self.unmounter.break_off()?;
        }
        match session.join() {
            Ok(ended) => {
                ended?;
                match self.ended.mounted_at.get() {
                    None => Ok(()),
                    Some(at) => Err(Error::BrokenOff(at.clone())),
                }
            }
            Err(_) => Err(io::Error::other("a thread that serves the mount panicked").into()),
        }
    }

    /// Unmounts and waits for the requests under way.
    ///
    /// # Errors
    /// `EBUSY` in [`Error::Path`] while files are open; it stays mounted then, until it is dropped.
    pub fn unmount(self) -> Result<()> {
        self.unmounter.unmount()?;
        self.wait()
    }
}

/// Channel for the numbers of files whose bytes in the kernel's page cache are out of date; none unless there is a
/// mount.
type Stale = Arc<Mutex<Option<Sender<u64>>>>;

fn stale_teller(stale: &Stale) -> Box<dyn Fn(u64) + Send + Sync> {
    let stale = Arc::downgrade(stale);
    Box::new(move |number| {
        if let Some(stale) = stale.upgrade()
            && let Some(stale) = &*stale.lock().unwrap_or_else(PoisonError::into_inner)
        {
            // Nobody has a page cache any more.
            let _over = stale.send(number);
        }
    })
}

/// A thread that has the kernel forget what it has of files: for that it may wait for requests that are answered meanwhile.
fn forget_stale(kernel: Notifier) -> io::Result<Sender<u64>> {
    let (stale, numbers) = channel();
    std::thread::Builder::new().name("fuse stale".into()).spawn(move || {
        for number in numbers {
            // It may not know the file.
            let _unknown = kernel.inval_inode(INodeNo(number), 0, 0);
        }
    })?;
    Ok(stale)
}

fn at_mountpoint_of(mountpoint: &Path) -> impl Fn(io::Error) -> Error {
    move |error| Error::path(mountpoint, error)
}

/// A mount that was refused, perhaps because the kernel's device may not be opened: on some machines by root alone, in a container by
/// nobody.
fn refused(mountpoint: &Path, error: io::Error) -> Error {
    let denied = |why: &str| io::Error::new(io::ErrorKind::PermissionDenied, format!("permission denied: {why}"));
    match rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        Ok(_) => Error::path(mountpoint, explained(error)),
        Err(rustix::io::Errno::ACCESS) => {
            let why =
                "whoever mounts must be able to read and write it, as everybody can where udev makes it (mode 0666)";
            Error::path(DEVICE, denied(why))
        }
        Err(rustix::io::Errno::PERM) => {
            Error::path(DEVICE, denied("a container must be given it (--device /dev/fuse)"))
        }
        Err(closed @ (rustix::io::Errno::NOENT | rustix::io::Errno::NODEV | rustix::io::Errno::NXIO)) => {
            let why = "`modprobe fuse` makes it, and a container must be given it (--device /dev/fuse)";
            Error::path(DEVICE, io::Error::new(io::ErrorKind::NotFound, format!("{}; {why}", io::Error::from(closed))))
        }
        Err(closed) => Error::path(DEVICE, closed),
    }
}

/// Explains why a mount was refused. A missing helper is reported as "not found", as if the mount point were missing,
/// although that is there.
fn explained(error: io::Error) -> io::Error {
    // What fusermount3 said ends as its output does.
    let said = error.to_string();
    let said = said.trim_matches(['\n', '\0']);
    let why = match error.kind() {
        io::ErrorKind::NotFound => "fusermount3 is not there (package fuse3), which mounts for who may not".to_owned(),
        _ if said.ends_with("Operation not permitted") => {
            format!("{said}: a container needs CAP_SYS_ADMIN to mount (--cap-add SYS_ADMIN --device /dev/fuse)")
        }
        _ if error.raw_os_error().is_some() => return error,
        _ => said.to_owned(),
    };
    io::Error::new(error.kind(), why)
}

impl Drop for Mount {
    fn drop(&mut self) {
        // What is open stays open until it is closed, but nobody will wait for it.
        if self.session.is_some() {
            let _ = self.unmounter.take_away(UnmountFlags::DETACH);
        }
    }
}

impl Unmounter {
    /// Unmounts; whoever waits in [`Mount::wait`] goes on, within three seconds. Nothing happens if it is unmounted already.
    ///
    /// # Errors
    /// `EBUSY` in [`Error::Path`] while files are open, or something is mounted in it or over it, which is said.
    pub fn unmount(&self) -> Result<()> {
        self.take_away(UnmountFlags::empty()).map_err(|error| Error::path(&self.mountpoint, error))
    }

    /// Unmounts although files are open: they stay open until they are closed or this process ends.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn detach(&self) -> Result<()> {
        self.take_away(UnmountFlags::DETACH).map_err(|error| Error::path(&self.mountpoint, error))
    }

    fn take_away(&self, flags: UnmountFlags) -> io::Result<()> {
        let over = *self.progress.stage() == Stage::Over;
        if let Some(at) = self.place().filter(|_| !over) {
            // Somebody else's mount over it, or over a folder that it is in, must stay.
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
        self.progress.leave();
        Ok(())
    }

    /// Is this what was found at a place?
    fn is(&self, found: &Found) -> bool {
        found.device == self.device && found.unique == self.unique
    }

    /// Path at which it is mounted still, if nobody has unmounted it from here.
    fn left_behind(&self) -> Option<PathBuf> {
        let kept = *self.progress.stage() == Stage::Mounted;
        // Its numbers may be those of a later mount by now.
        self.place().filter(|at| kept && mount_at(at).is_ok_and(|found| self.is(&found)))
    }

    /// Path at which it is mounted now; none when it is not mounted in this mount namespace.
    fn place(&self) -> Option<PathBuf> {
        let Some((id, mounts)) = self.id.zip(mounts().ok()) else {
            let there = mount_at(&self.mountpoint).is_ok_and(|found| self.is(&found));
            return there.then(|| self.mountpoint.clone());
        };
        mounts.into_iter().find(|mount| mount.id == id && mount.device.1 == self.device).map(|mount| mount.at)
    }

    /// Why it is busy, where that is no open file.
    fn explained(&self, error: io::Error) -> io::Error {
        let inside = mounts().ok().and_then(|mounts| mounts.into_iter().find(|mount| Some(mount.parent) == self.id));
        match inside {
            Some(inside) if error.to_string().contains("busy") => {
                io::Error::new(error.kind(), format!("{error}: {} is mounted in it", inside.at.display()))
            }
            _ => error,
        }
    }

    /// The same where nobody has mounted [`CONNECTIONS`], by a mount of it that no other process sees.
    fn break_off_unseen(&self) -> io::Result<()> {
        let context = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&context)?;
        let connections = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
        let abort = format!("{}/abort", self.device);
        let abort = rustix::fs::openat(&connections, abort, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::io::write(&abort, b"1")?;
        Ok(())
    }

    /// Ends the connection for all who have a copy of the mount.
    fn break_off(&self) -> Result<()> {
        let abort = Path::new(CONNECTIONS).join(self.device.to_string()).join("abort");
        let aborted = std::fs::write(abort, "1").or_else(|error| self.break_off_unseen().map_err(|_| error));
        aborted.map_err(|error| Error::Elsewhere { mountpoint: self.mountpoint.clone(), error })
    }
}

/// Identity of the mount at a path.
struct Found {
    /// Number of its device.
    device: u32,
    /// Number of the mount, from Linux 5.8 on.
    id: Option<u64>,
    /// Number that no later mount has, from Linux 6.8 on.
    unique: Option<u64>,
}

/// `STATX_MNT_ID_UNIQUE`.
const UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// Finds the mount at a path, or the one that a path without a mount of its own lies in. The mount's server is not
/// asked.
fn mount_at(place: &Path) -> io::Result<Found> {
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let found = |asked| rustix::fs::statx(rustix::fs::CWD, place, flags, asked);
    let number = |found: rustix::fs::Statx, asked| {
        StatxFlags::from_bits_retain(found.stx_mask).contains(asked).then_some(found.stx_mnt_id)
    };
    let by_id = found(StatxFlags::MNT_ID)?;
    let unique = found(UNIQUE).ok().and_then(|found| number(found, UNIQUE));
    Ok(Found { device: by_id.stx_dev_minor, id: number(by_id, StatxFlags::MNT_ID), unique })
}

/// Unmounts, by the helper that may do so where only root may do it directly.
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

/// Dead mounts, one over the other, that are taken away at most.
const DEAD_MAX: usize = 64;

/// Takes away the mounts of processes that were killed.
fn clear_dead_mount(mountpoint: &Path) -> io::Result<()> {
    for _ in 0..DEAD_MAX {
        // Opened, because the kernel may still answer for the attributes.
        match std::fs::read_dir(mountpoint) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotConnected | io::ErrorKind::ConnectionAborted) => {
                unmount(mountpoint, UnmountFlags::DETACH)?;
            }
            other => return other.map(drop),
        }
    }
    Err(rustix::io::Errno::NOTCONN.into())
}
