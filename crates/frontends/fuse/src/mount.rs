//! Mounting, and waiting for the end.

use crate::nodes::Nodes;
use crate::passthrough::{Passing, Passthrough};
use crate::pool::Pool;
use crate::server::{FuseServer, Kernel};
use crate::unmounter::{Ended, Found, Progress, Unmounter, clear_dead_mount, mount_at};
use crate::{Error, Result};
use entresol_cache::PathError;
use entresol_files::FileLayer;
use fuser::{Config, INodeNo, MountOption, Notifier, Session, SessionACL};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::mount::UnmountFlags;
use rustix::process::umask;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Device through which the kernel mounts.
const DEVICE: &str = "/dev/fuse";

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

impl Mount {
    /// Mounts `backing` at `mountpoint` for the user of this process (and root, [`Options::allow_root`]). The files'
    /// bytes go through `layer`.
    ///
    /// The process's umask becomes 0, because the kernel has applied the caller's already. Its limit of open files
    /// becomes the maximum, because each file that the kernel remembers takes one. A mount that a killed process left
    /// behind at `mountpoint` is taken away first.
    ///
    /// # Errors
    /// [`PathError::InUse`] when another process serves `backing`. [`Error::Path`] when `backing` or the mount point is
    /// not a directory or cannot be mounted.
    pub fn start(backing: &Path, mountpoint: &Path, layer: Arc<dyn FileLayer>, options: Options) -> Result<Self> {
        let at_backing = |error: rustix::io::Errno| Error::path(backing, error);
        let at_mountpoint = |error| Error::path(mountpoint, error);
        let open = |flags| rustix::fs::open(backing, flags | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let lock = open(OFlags::RDONLY).map_err(at_backing)?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(PathError::InUse(backing.into()).into()),
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
