//! The error type of the front-ends.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Result of opening or serving a front-end.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a front-end did not open, or why a client was refused. The text holds the cause's, so there is no `source`.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system refused an operation on a file or a socket.
    #[error("{}: {error}", path.display())]
    Path {
        /// The file or socket.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// Another process holds the file or answers on the socket.
    #[error("{}: in use by another process", .0.display())]
    InUse(PathBuf),
    /// The mount is unmounted, but another mount namespace has a copy that only the end of this process can end.
    #[error("{}: another mount namespace has a copy of it, which cannot be ended: {error}", mountpoint.display())]
    Elsewhere {
        /// The former mount point.
        mountpoint: PathBuf,
        /// Reason why the copy cannot be ended.
        error: io::Error,
    },
    /// The mount is still there, but its connection was ended from outside, so it cannot be used any more.
    #[error(
        "{}: its connection was broken off, by `umount -f` of it or of a part of it, or by /sys/fs/fuse/connections; \
         programs with files open there got errors", .0.display()
    )]
    BrokenOff(PathBuf),
    /// A file other than a socket is at the socket's path.
    #[error("{}: exists and is not a socket", .0.display())]
    NotASocket(PathBuf),
    /// A path too long for the address of a Unix socket.
    #[error("{}: a path of {} bytes; a Unix socket takes {max}", path.display(), path.as_os_str().len())]
    SocketPath {
        /// Path at which the socket should be made.
        path: PathBuf,
        /// Longest such path in bytes.
        max: usize,
    },
    /// An address that other machines could reach.
    #[error("{0}: not a loopback address; NBD is served to this machine only")]
    NotLoopback(SocketAddr),
    /// A client that is not served, with the reason.
    #[error("refused a client: {0}")]
    Refused(String),
    /// Too little memory for this many connections.
    #[error("{connections} connections need {needed} bytes of memory at least")]
    Memory {
        /// Connections at a time.
        connections: usize,
        /// Bytes that they would need.
        needed: usize,
    },
    /// The kernel has no ublk driver, or one without the necessary features.
    #[error("this kernel cannot make block devices of a program (ublk): {0}; `entresol serve nbd` does without")]
    NoUblk(String),
    /// The client broke the protocol; the connection is closed.
    #[error("protocol error: {0}")]
    Protocol(String),
    /// The connection failed.
    #[error("connection: {0}")]
    Connection(io::Error),
}

impl Error {
    /// An I/O error together with its file.
    pub(crate) fn path(path: impl Into<PathBuf>, error: impl Into<io::Error>) -> Self {
        Self::Path { path: path.into(), error: error.into() }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Connection(error)
    }
}
