//! The socket on which databases send hints: for datagrams, open to its owner alone.

use crate::Hints;
use crate::message::MESSAGE_BYTES_MAX;
use entresol_cache::PathError;
use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Timeout of a read: the longest time until the thread sees that it must end.
const PATIENCE: Duration = Duration::from_millis(100);
/// Datagrams sent before the end that are still read; the system queues fewer.
const LEFT_MAX: usize = 4096;

/// A socket that is read until the value is dropped; then it is removed.
pub struct HintSocket {
    path: PathBuf,
    hints: Arc<Hints>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Makes the socket. A socket that no process reads any more is replaced.
fn bind(path: &Path) -> Result<UnixDatagram, PathError> {
    let fail = |error| PathError::system(path, error);
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => return Err(PathError::NotASocket(path.into())),
        Ok(_) => match UnixDatagram::unbound().and_then(|probe| probe.connect(path)) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path).map_err(fail)?;
            }
            _ => return Err(PathError::InUse(path.into())),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(fail(error)),
    }
    let bound = || -> rustix::io::Result<UnixDatagram> {
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        // Before `bind`, so that other users can send at no moment.
        rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(socket.into())
    };
    bound().map_err(|error| fail(error.into()))
}

impl HintSocket {
    /// Makes the socket and reads the datagrams that come.
    ///
    /// # Errors
    /// [`PathError::InUse`] when another process reads a socket there, [`PathError::NotASocket`] for another kind of
    /// file.
    pub fn open(path: &Path, hints: Arc<Hints>) -> Result<Self, PathError> {
        let socket = bind(path)?;
        let fail = |error| PathError::system(path, error);
        socket.set_read_timeout(Some(PATIENCE)).map_err(fail)?;
        let ends = Arc::new(AtomicBool::new(false));
        let (heard, until) = (hints.clone(), ends.clone());
        let hear = move || {
            // One byte more than a message may have, so that a longer one shows.
            let mut bytes = [0; MESSAGE_BYTES_MAX + 1];
            let mut left = LEFT_MAX;
            while left > 0 {
                let ends = until.load(Ordering::Relaxed);
                left -= usize::from(ends);
                match socket.recv(&mut bytes) {
                    Ok(len) => heard.datagram(&bytes[..len]),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock && ends => return,
                    Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                    // A datagram socket that fails with another error does not recover.
                    Err(_) => return,
                }
            }
        };
        let thread = std::thread::Builder::new().name("hints".into()).spawn(hear).map_err(fail)?;
        Ok(HintSocket { path: path.into(), hints, ends, thread: Some(thread) })
    }

    /// The receiver of the datagrams.
    pub fn hints(&self) -> &Hints {
        &self.hints
    }
}

impl Drop for HintSocket {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread only counts and passes on; its panic was printed.
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}
