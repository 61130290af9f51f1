//! Mounting, and waiting for the end.

use crate::keep::{BACKING, DEVICE as KEPT_DEVICE, Keep, Kept, LOCK, Surviving, TABLES};
use crate::nodes::Nodes;
use crate::passthrough::{Passing, Passthrough};
use crate::pool::Pool;
use crate::server::{FuseServer, Kernel, Offered};
use crate::settle::settle;
use crate::table::{Facts, Table};
use crate::take_over;
use crate::unmounter::{Ended, Found, Progress, Unmounter, clear_dead_mount, mount_at};
use crate::{Error, Result};
use entresol_cache::PathError;
use entresol_files::FileLayer;
use fuser::{Config, INodeNo, InitFlags, MountOption, Notifier, Session, SessionACL};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::mount::UnmountFlags;
use rustix::process::umask;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
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
    /// Holder of the descriptors by which a next server takes the mount over when this process is killed
    /// ([`Mount::take_over`]).
    pub keep: Option<Arc<dyn Keep>>,
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
            keep: None,
        }
    }
}

/// A mounted directory. Dropping it unmounts, even if files are open.
pub struct Mount {
    unmounter: Unmounter,
    ended: Arc<Ended>,
    session: Option<JoinHandle<io::Result<()>>>,
    /// The kernel's device, open for this mount's connection.
    connection: OwnedFd,
    shared_mappings: bool,
    passing: Passing,
    surviving: Surviving,
}

/// Parts of a mount that exist before its session.
struct Parts {
    changed: Stale,
    shared_mappings: Arc<AtomicBool>,
    passthrough: Arc<Passthrough>,
    ended: Arc<Ended>,
    offered: Arc<OnceLock<Offered>>,
    table: Option<Arc<Table>>,
}

impl Parts {
    fn new(layer: &dyn FileLayer, options: &Options, table: Option<Arc<Table>>) -> Self {
        let changed = Arc::new(Mutex::new(None));
        layer.when_stale(stale_teller(&changed));
        Self {
            changed,
            shared_mappings: Arc::default(),
            passthrough: Arc::new(Passthrough::new(options.passthrough, table.clone())),
            ended: Arc::default(),
            offered: Arc::default(),
            table,
        }
    }

    /// The server, and the settings of its session.
    fn server(&self, lock: OwnedFd, nodes: Nodes, options: &Options) -> io::Result<(FuseServer, Config)> {
        entresol_files::allow_many();
        umask(Mode::empty());
        let kernel = Kernel {
            page_cache: options.page_cache,
            shared_mappings: self.shared_mappings.clone(),
            passthrough: self.passthrough.clone(),
            ended: self.ended.clone(),
            offered: self.offered.clone(),
        };
        let server = FuseServer::new(lock, nodes, Pool::new(options.workers)?, kernel);
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName(options.source.clone()),
            MountOption::Subtype("entresol".into()),
            MountOption::DefaultPermissions,
        ];
        config.acl = if options.allow_root { SessionACL::RootAndOwner } else { SessionACL::Owner };
        config.n_threads = Some(options.session_threads.max(1));
        Ok((server, config))
    }

    /// Serves a session.
    fn run(
        self,
        session: Session<FuseServer>,
        facts: Facts,
        options: &Options,
        passing: Passing,
        surviving: Surviving,
    ) -> Result<Mount> {
        let stale = forget_stale(session.notifier())?;
        let connection = session.as_fd().try_clone_to_owned()?;
        *self.changed.lock().unwrap_or_else(PoisonError::into_inner) = Some(stale);
        let Facts { mountpoint, device, id, unique, .. } = facts;
        let progress = Arc::new(Progress::new());
        let table = self.table.clone();
        let unmounter = Unmounter { mountpoint, id, unique, device, progress: Arc::clone(&progress), table };
        // Read once, when the mount ends.
        let _first = self.ended.unmounter.set(unmounter.clone());
        let (changed, table) = (self.changed, self.table);
        let run = move || {
            let result = ended(session.run());
            table.iter().for_each(|table| table.give_up());
            // Without the sender, the thread that notifies the kernel ends.
            changed.lock().unwrap_or_else(PoisonError::into_inner).take();
            progress.end();
            result
        };
        let thread = std::thread::Builder::new().name("fuse session".into()).spawn(run)?;
        Ok(Mount {
            unmounter,
            ended: self.ended,
            session: Some(thread),
            connection,
            shared_mappings: options.page_cache || self.shared_mappings.load(Relaxed),
            passing,
            surviving,
        })
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
        let table = options.keep.clone().map(Table::new).transpose()?.map(Arc::new);
        let parts = Parts::new(&*layer, &options, table.clone());
        let directory = open(OFlags::PATH).map_err(at_backing)?;
        let root = rustix::io::fcntl_dupfd_cloexec(&directory, 0).map_err(at_backing)?;
        let nodes = Nodes::new(root, layer, table.clone()).map_err(at_backing)?;
        let held_lock = table.is_some().then(|| rustix::io::fcntl_dupfd_cloexec(&lock, 0)).transpose();
        let held_lock = held_lock.map_err(at_backing)?;
        clear_dead_mount(mountpoint).map_err(at_mountpoint)?;
        let mountpoint = mountpoint.canonicalize().map_err(at_mountpoint)?;

        let (server, config) = parts.server(lock, nodes, &options).map_err(at_mountpoint_of(&mountpoint))?;
        let session = Session::new(server, &mountpoint, &config).map_err(|error| refused(&mountpoint, error))?;
        parts.passthrough.connect(&session)?;
        let passing = parts.passthrough.attempt(&directory, None);
        let Found { device, id, unique } = mount_at(&mountpoint).map_err(at_mountpoint_of(&mountpoint))?;
        let offered = parts.offered.get().copied();
        let mut facts = Facts { mountpoint, device, id, unique, ..Facts::default() };
        if let Some(offered) = offered {
            (facts.version, facts.capabilities) = (offered.version, offered.features.bits());
        }
        let surviving = match table.as_ref().zip(held_lock) {
            None => Surviving::Unwanted,
            Some((table, lock)) => {
                table.mounted(facts.clone());
                let kept = match sends_again(&facts) {
                    true => table.hand_over(session.as_fd(), directory.as_fd(), lock.as_fd()),
                    false => Err(io::Error::other(NOT_AGAIN)),
                };
                match kept {
                    Ok(()) => Surviving::Kept,
                    Err(error) => {
                        table.give_up();
                        Surviving::Refused(error)
                    }
                }
            }
        };
        let run = parts.run(session, facts, &options, passing, surviving);
        // What the holder has must not outlive a mount that did not begin.
        run.inspect_err(|_| table.iter().for_each(|table| table.give_up()))
    }

    /// Takes over the mount of a former server that was killed, with the descriptors that it gave to its
    /// [`Keep`]. Programs see a pause: requests that the former server has not answered are answered here, and what it
    /// has done is not done twice. `options` must name a holder. Their source has no effect, for the mount is there.
    ///
    /// The process's umask and limit of open files change as in [`start`](Self::start).
    ///
    /// # Errors
    /// [`Error::TakeOver`] if a descriptor is missing, the table cannot be read, or the kernel does not send requests
    /// again. The mount and what the holder has are as they were then.
    pub fn take_over(mut kept: Kept, layer: Arc<dyn FileLayer>, options: Options) -> Result<Self> {
        let failed = |error: &dyn std::fmt::Display| Error::TakeOver(error.to_string());
        let Some(keep) = options.keep.clone() else { return Err(failed(&"the options name no holder")) };
        let mut take = |name: &str| kept.take(name).ok_or_else(|| failed(&format!("{name} is missing")));
        let (device, backing, lock) = (take(KEPT_DEVICE)?, take(BACKING)?, take(LOCK)?);
        let mut former = Table::former([take(TABLES[0])?, take(TABLES[1])?]).map_err(|error| failed(&error))?;
        let facts = former.image.facts.clone().ok_or_else(|| failed(&"its table does not say what is mounted"))?;
        if !sends_again(&facts) {
            return Err(failed(&NOT_AGAIN));
        }
        let offered = Offered { version: facts.version, features: InitFlags::from_bits_retain(facts.capabilities) };
        let root = rustix::io::fcntl_dupfd_cloexec(&backing, 0).map_err(|error| failed(&error))?;
        former.compare_kept(&kept, &*keep);
        settle(&mut former, backing.as_fd(), &kept);
        let image = former.image.clone();
        let table = Arc::new(former.go_on(keep)?);
        let parts = Parts::new(&*layer, &options, Some(table.clone()));
        parts.passthrough.connect(&device)?;
        let nodes = Nodes::new(root, layer, Some(table)).map_err(|error| failed(&error))?;
        nodes.restore(&image, &mut kept)?;
        let (mut server, config) = parts.server(lock, nodes, &options)?;
        server.restore(&image);
        let session = take_over::session(server, device.as_fd(), &offered, config)?;
        let passing = parts.passthrough.attempt(&backing, Some(image.next_backing));
        take_over::resend(device.as_fd())?;
        parts.run(session, facts, &options, passing, Surviving::Kept)
    }

    /// State of the mount's survival, for which [`Options::keep`] asks.
    pub fn surviving(&self) -> &Surviving {
        &self.surviving
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
        // The kernel may have ended the mount while requests are still carried out here. Its number may be another
        // mount's by now.
        if !self.unmounter.progress.wait() && is_connected(self.connection.as_fd())? {
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

/// Reason why a mount cannot be taken over.
const NOT_AGAIN: &str = "the kernel does not send requests again (Linux 6.9 does)";

/// True if the kernel sends requests again that a killed server has not answered.
fn sends_again(facts: &Facts) -> bool {
    InitFlags::from_bits_retain(facts.capabilities).contains(InitFlags::FUSE_HAS_RESEND)
}

/// End of a session. A read that has taken a request when the kernel ends the connection gets `ECONNABORTED`, after an
/// unmount too, and any other read gets `ENODEV`.
fn ended(session: io::Result<()>) -> io::Result<()> {
    session.or_else(|error| if error.kind() == io::ErrorKind::ConnectionAborted { Ok(()) } else { Err(error) })
}

/// True until the kernel has ended the connection of this open device.
fn is_connected(device: BorrowedFd) -> io::Result<bool> {
    let mut polled = [PollFd::from_borrowed_fd(device, PollFlags::empty())];
    poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    Ok(!polled[0].revents().contains(PollFlags::ERR))
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

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_files::DirectFiles;
    use std::collections::HashMap;

    #[derive(Debug, Default)]
    struct Holder(Mutex<HashMap<String, OwnedFd>>);

    impl Keep for Holder {
        fn keep(&self, name: &str, fd: BorrowedFd<'_>) -> io::Result<()> {
            self.0.lock().unwrap().insert(name.to_owned(), fd.try_clone_to_owned()?);
            Ok(())
        }

        fn forget(&self, name: &str) {
            self.0.lock().unwrap().remove(name);
        }
    }

    #[test]
    fn a_read_cut_short_by_the_end_of_the_mount_is_no_failure() {
        let failed = |errno: rustix::io::Errno| ended(Err(errno.into())).map_err(|error| error.raw_os_error());
        assert_eq!(failed(rustix::io::Errno::CONNABORTED), Ok(()));
        assert_eq!(failed(rustix::io::Errno::INVAL), Err(Some(22)));
    }

    /// Descriptors of a server that had mounted a directory, whose kernel offered these features. The device is none.
    fn held(holder: &Arc<Holder>, backing: &Path, capabilities: InitFlags) -> Kept {
        let table = Table::new(holder.clone()).unwrap();
        let version = (7, 40);
        table.mounted(Facts { capabilities: capabilities.bits(), version, ..Facts::default() });
        let directory = std::fs::File::open(backing).unwrap();
        let device = std::fs::File::open("/dev/null").unwrap();
        table.hand_over(device.as_fd(), directory.as_fd(), directory.as_fd()).unwrap();
        holder.0.lock().unwrap().drain().collect()
    }

    fn refusal(kept: Kept, keep: Option<Arc<dyn Keep>>) -> String {
        match Mount::take_over(kept, Arc::new(DirectFiles), Options { keep, ..Options::default() }) {
            Err(Error::TakeOver(why)) => why,
            other => panic!("{:?}", other.err()),
        }
    }

    #[test]
    fn a_mount_that_cannot_be_taken_over_is_refused_in_words() {
        let (holder, backing) = (Arc::new(Holder::default()), tempfile::tempdir().unwrap());
        let keep = || Some(holder.clone() as Arc<dyn Keep>);
        let kept = |capabilities| held(&holder, backing.path(), capabilities);
        assert_eq!(refusal(kept(InitFlags::all()), None), "the options name no holder");
        assert_eq!(refusal(Kept::default(), keep()), "fuse.device is missing");
        assert_eq!(refusal(kept(InitFlags::empty()), keep()), NOT_AGAIN);
        let mut torn = kept(InitFlags::all());
        let file = std::fs::File::from(torn.take(TABLES[0]).unwrap());
        let also = std::fs::File::from(torn.take(TABLES[1]).unwrap());
        file.set_len(100).unwrap();
        let files = [(TABLES[0], file), (TABLES[1], also)].map(|(name, file)| (name.to_owned(), OwnedFd::from(file)));
        let others = [KEPT_DEVICE, BACKING, LOCK].map(|name| (name.to_owned(), torn.take(name).unwrap()));
        let why = refusal(files.into_iter().chain(others).collect(), keep());
        assert_eq!(why, "the table of the former server: a record goes beyond the end");
    }
}
