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

/// Device through which the kernel mounts.
const DEVICE: &str = "/dev/fuse";

/// Directory of the kernel's FUSE control file system, if that is mounted. In it, the owner of a mount can end the
/// mount for all namespaces.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// Settings of a mount.
#[derive(Debug, Clone)]
pub struct Options {
    /// Threads that take requests from the kernel. One at a time may sync a file that the layer does not change.
    pub session_threads: usize,
    /// Threads for work that may wait for a device.
    pub workers: usize,
    /// True if the kernel's page cache is above the mount, as above any file system. It answers reads of pages that
    /// it holds and reads ahead; the layer sees the rest. Files opened with O_DIRECT bypass it. If false, the layer
    /// sees every read.
    pub page_cache: bool,
    /// True if the kernel should itself read and write files whose bytes the layer does not change
    /// ([`FileData::below`](entresol_files::FileData::below)). The kernel may refuse: [`Mount::passing`].
    pub passthrough: bool,
    /// True if root is served, and not only the mounting user. Files that root makes here belong to that user. A
    /// user other than root needs `CAP_SYS_ADMIN` or `user_allow_other` in `/etc/fuse.conf` for this.
    pub allow_root: bool,
    /// Name of the mounted source, as `df` and the like show it.
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

/// A mounted directory. Dropping it unmounts, even if files are open.
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
    /// Number of the mount, where the system gives it: the directory of the mount point may be renamed.
    id: Option<u64>,
    /// Number that no later mount has either, where the system gives it.
    unique: Option<u64>,
    /// Number of the mount's device and of its connection; no other mount has it.
    device: u32,
    progress: Arc<Progress>,
}

/// Record of how the kernel's side of a mount ended.
#[derive(Debug, Default)]
pub(super) struct Ended {
    unmounter: OnceLock<Unmounter>,
    /// Path at which the mount still was when its connection ended: it was not unmounted.
    mounted_at: OnceLock<PathBuf>,
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
struct Progress {
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

    /// Waits for the end while it can still come. True if it has come.
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
    /// Mounts `backing` at `mountpoint` for the user of this process (and root, [`Options::allow_root`]). The files'
    /// bytes go through `layer`.
    ///
    /// The process's umask becomes 0, because the kernel has applied the caller's already. Its limit of open files
    /// becomes the maximum, because each file that the kernel remembers takes one. A mount that a killed process left
    /// behind at `mountpoint` is taken away first.
    ///
    /// # Errors
    /// [`Error::InUse`] when another process serves `backing`. [`Error::Path`] when `backing` or the mount point is not
    /// a directory or cannot be mounted.
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
        // Read once, when the mount ends.
        let _first = ended.unmounter.set(unmounter.clone());
        let run = move || {
            let result = session.run();
            // Without the sender, the thread that notifies the kernel ends.
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

    /// State of passthrough: the kernel's own reading and writing of files whose bytes the layer does not change.
    pub fn passing(&self) -> &Passing {
        &self.passing
    }

    /// Returns a handle that unmounts this mount from another thread.
    pub fn unmounter(&self) -> Unmounter {
        self.unmounter.clone()
    }

    /// Serves until the mount is unmounted, from here or by another process.
    ///
    /// A mount namespace made meanwhile has a copy of the mount, which unmounting here does not end. So the connection
    /// is broken off three seconds after an [`Unmounter`] was used. Users of the copy then get errors, as when the
    /// server is killed.
    ///
    /// # Errors
    /// Errors of the kernel's side. [`Error::Elsewhere`] if the kernel offers no way to break the connection off:
    /// requests then go on until the process ends, which breaks it off. [`Error::BrokenOff`] if the connection was
    /// ended from outside and the mount is still there.
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
    /// `EBUSY` in [`Error::Path`] while files are open; the mount stays until it is dropped.
    pub fn unmount(self) -> Result<()> {
        self.unmounter.unmount()?;
        self.wait()
    }
}

/// Channel for the numbers of files whose bytes in the kernel's page cache are out of date; `None` unless there is a
/// mount.
type Stale = Arc<Mutex<Option<Sender<u64>>>>;

fn stale_teller(stale: &Stale) -> Box<dyn Fn(u64) + Send + Sync> {
    let stale = Arc::downgrade(stale);
    Box::new(move |number| {
        if let Some(stale) = stale.upgrade()
            && let Some(stale) = &*stale.lock().unwrap_or_else(PoisonError::into_inner)
        {
            // The send fails only after the end of the mount, when there is no page cache.
            let _over = stale.send(number);
        }
    })
}

/// Starts a thread that makes the kernel forget cached bytes. That call may wait for requests answered meanwhile.
fn forget_stale(kernel: Notifier) -> io::Result<Sender<u64>> {
    let (stale, numbers) = channel();
    std::thread::Builder::new().name("fuse stale".into()).spawn(move || {
        for number in numbers {
            // The kernel may not know the file.
            let _unknown = kernel.inval_inode(INodeNo(number), 0, 0);
        }
    })?;
    Ok(stale)
}

fn at_mountpoint_of(mountpoint: &Path) -> impl Fn(io::Error) -> Error {
    move |error| Error::path(mountpoint, error)
}

/// Error of a refused mount. The cause may be that the kernel's device cannot be opened: on some machines only root
/// may, in a container perhaps no user.
fn refused(mountpoint: &Path, error: io::Error) -> Error {
    let denied = |why: &str| io::Error::new(io::ErrorKind::PermissionDenied, format!("permission denied: {why}"));
    match rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        Ok(_) => Error::path(mountpoint, explained(error)),
        Err(rustix::io::Errno::ACCESS) => {
            let why =
                "the user who mounts must be able to read and write it, as all can where udev makes it (mode 0666)";
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
/// although the mount point exists.
fn explained(error: io::Error) -> io::Error {
    // The message of fusermount3 ends as its output does.
    let said = error.to_string();
    let said = said.trim_matches(['\n', '\0']);
    let why = match error.kind() {
        io::ErrorKind::NotFound => {
            "fusermount3 is not there (package fuse3), which mounts for unprivileged users".to_owned()
        }
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
        // Open files stay open until they are closed, but no thread waits for that.
        if self.session.is_some() {
            let _ = self.unmounter.take_away(UnmountFlags::DETACH);
        }
    }
}

impl Unmounter {
    /// Unmounts; [`Mount::wait`] returns within three seconds. Does nothing if the mount is unmounted already.
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

    fn take_away(&self, flags: UnmountFlags) -> io::Result<()> {
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

/// Finds the mount at a path, or the mount that contains the path. The mount's server is not asked.
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

/// Takes away the mounts of killed processes.
fn clear_dead_mount(mountpoint: &Path) -> io::Result<()> {
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
