//! Mounting, and the end of a mount.

use crate::exit::FileId;
use crate::nodes::{lock, named};
use crate::open::OpenFiles;
use crate::server::{Server, State};
use entresol_burst_live::client::Files;
use fuser::{Config, MountOption, Session, SessionACL};
use rustix::mount::{UnmountFlags, unmount};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Threads that answer requests: a write that stores a piece holds one.
const THREADS: usize = 16;

/// Longest wait of a drop for the end of the session.
const LINGER: Duration = Duration::from_secs(1);

/// Reason why a directory cannot be mounted or unmounted.
#[derive(Debug, thiserror::Error)]
#[error("{at}: {error}", at = at.display())]
pub struct Error {
    at: PathBuf,
    error: io::Error,
}

/// End of a mount.
#[derive(Debug, PartialEq, Eq)]
pub enum Ending {
    /// The mount goes on.
    None,
    /// The kernel has ended the mount, and no file is open.
    Over,
    /// The mount was ended, and these files are still being written.
    Unfinished(Vec<String>),
}

/// A mounted directory of checkpoints. Dropping it ends the mount at once.
pub struct Mount {
    state: Arc<State>,
    mountpoint: PathBuf,
    session: Mutex<Option<JoinHandle<io::Result<()>>>>,
}

impl Mount {
    /// Mounts the files of a job for the user of this process. A mount that a killed process left behind is taken away.
    ///
    /// # Errors
    /// When the mount point is not a directory, or cannot be mounted.
    pub fn start(files: Arc<Files>, mountpoint: &Path) -> Result<Mount, Error> {
        let failed = |error| Error { at: mountpoint.to_owned(), error };
        clear_dead_mount(mountpoint).map_err(failed)?;
        let mountpoint = mountpoint.canonicalize().map_err(failed)?;
        let open = OpenFiles::new(Arc::clone(&files));
        let retiring = AtomicBool::new(false);
        let state = Arc::new(State { files, open, retiring, mount: OnceLock::new() });
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName("entresol-burst".to_owned()),
            MountOption::Subtype("entresol".to_owned()),
            MountOption::DefaultPermissions,
        ];
        config.acl = SessionACL::Owner;
        config.n_threads = Some(THREADS);
        let session = Session::new(Server::new(Arc::clone(&state)), &mountpoint, &config).map_err(failed)?;
        if let Ok(root) = FileId::of_mount(&mountpoint) {
            state.mount.get_or_init(|| root);
        }
        let thread = std::thread::Builder::new().name("fuse session".to_owned()).spawn(move || session.run());
        let session = Mutex::new(Some(thread.map_err(failed)?));
        Ok(Mount { state, mountpoint, session })
    }

    /// Lets no further file be opened, and takes the name of the mount away. Open files stay usable until they are closed.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn retire(&self) -> Result<(), Error> {
        self.state.retiring.store(true, Ordering::SeqCst);
        detach(&self.mountpoint).map_err(|error| Error { at: self.mountpoint.clone(), error })
    }

    /// State of the end of the mount.
    pub fn ending(&self) -> Ending {
        if lock(&self.session).as_ref().is_none_or(JoinHandle::is_finished) {
            return Ending::Over;
        }
        match self.state.retiring.load(Ordering::SeqCst) {
            true => Ending::Unfinished(self.state.open.unfinished().iter().map(named).collect()),
            false => Ending::None,
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let Some(session) = lock(&self.session).take() else { return };
        // A mount that was ended from outside, or by `retire`, is not there.
        if !session.is_finished() && !self.state.retiring.load(Ordering::SeqCst) {
            let _ = detach(&self.mountpoint);
        }
        // Open files keep the session; it ends with the process then.
        let until = Instant::now() + LINGER;
        while !session.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        if session.is_finished() {
            let _ = session.join();
        }
    }
}

/// Unmounts, although files are open. Where only root may unmount, the helper does it.
fn detach(mountpoint: &Path) -> io::Result<()> {
    match unmount(mountpoint, UnmountFlags::DETACH) {
        Err(rustix::io::Errno::PERM) => {}
        other => return Ok(other?),
    }
    let output = Command::new("fusermount3").args(["-u", "-z", "--"]).arg(mountpoint).output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
    }
}

/// Takes away the mount of a killed process.
fn clear_dead_mount(mountpoint: &Path) -> io::Result<()> {
    match std::fs::read_dir(mountpoint) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotConnected | io::ErrorKind::ConnectionAborted) => {
            detach(mountpoint)
        }
        other => other.map(drop),
    }
}
