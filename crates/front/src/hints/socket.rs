//! The socket on which databases tell: for datagrams, of its owner alone.

use super::Hints;
use super::message::MESSAGE_BYTES_MAX;
use crate::{Error, Result};
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

/// Longest time until the thread notices that it is to end: the timeout of a read.
const PATIENCE: Duration = Duration::from_millis(100);
/// Datagrams that were sent before the end and are still heard; the system queues fewer.
const LEFT_MAX: usize = 4096;

/// A socket that is heard until this is dropped; then it is removed.
pub struct HintSocket {
    path: PathBuf,
    hints: Arc<Hints>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Makes the socket; one that nobody hears any more is replaced.
fn bind(path: &Path) -> Result<UnixDatagram> {
    let fail = |error| Error::path(path, error);
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => return Err(Error::NotASocket(path.into())),
        Ok(_) => match UnixDatagram::unbound().and_then(|probe| probe.connect(path)) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path).map_err(fail)?;
            }
            _ => return Err(Error::InUse(path.into())),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(fail(error)),
    }
    let bound = || -> rustix::io::Result<UnixDatagram> {
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        // Before `bind`, so that there is no moment in which others may send.
        rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(socket.into())
    };
    bound().map_err(|error| fail(error.into()))
}

impl HintSocket {
    /// Makes the socket and hears what comes.
    ///
    /// # Errors
    /// [`Error::InUse`] when somebody hears there already, [`Error::NotASocket`] when something else is there.
    pub fn open(path: &Path, hints: Arc<Hints>) -> Result<Self> {
        let socket = bind(path)?;
        let fail = |error| Error::path(path, error);
        socket.set_read_timeout(Some(PATIENCE)).map_err(fail)?;
        let ends = Arc::new(AtomicBool::new(false));
        let (heard, until) = (hints.clone(), ends.clone());
        let hear = move || {
            // A byte more than a message may have: a longer one is cut off there, and seen to be too long.
            let mut bytes = [0; MESSAGE_BYTES_MAX + 1];
            let mut left = LEFT_MAX;
            while left > 0 {
                let ends = until.load(Ordering::Relaxed);
                left -= usize::from(ends);
                match socket.recv(&mut bytes) {
                    Ok(len) => heard.datagram(&bytes[..len]),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock && ends => return,
                    Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                    // A socket for datagrams that fails at all stays so.
                    Err(_) => return,
                }
            }
        };
        let thread = std::thread::Builder::new().name("hints".into()).spawn(hear).map_err(fail)?;
        Ok(HintSocket { path: path.into(), hints, ends, thread: Some(thread) })
    }

    /// Receiver of the datagrams that come in.
    pub fn hints(&self) -> &Hints {
        &self.hints
    }
}

impl Drop for HintSocket {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It only counts and passes on; a panic there was printed.
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}
