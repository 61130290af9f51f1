//! The one error type of the doors.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Result of opening or serving a door.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a door did not open, or why a client was sent away. The text holds the cause's, so there is no `source`.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system refused something on a file or a socket.
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
    /// It is unmounted, and another mount namespace has a copy that nothing but the end of this process can end.
    #[error("{}: another mount namespace has a copy of it, which cannot be ended: {error}", mountpoint.display())]
    Elsewhere {
        /// Mount point that it had.
        mountpoint: PathBuf,
        /// Reason why the copy cannot be ended.
        error: io::Error,
    },
    /// Nobody has unmounted it, and nobody can use it any more: somebody has ended its connection.
    #[error(
        "{}: its connection was broken off, by `umount -f` of it or of a part of it, or by /sys/fs/fuse/connections; who had files \
         open there got errors", .0.display()
    )]
    BrokenOff(PathBuf),
    /// Something other than a socket is where the socket should be made.
    #[error("{}: exists and is not a socket", .0.display())]
    NotASocket(PathBuf),
    /// A path that the address of a Unix socket has no room for.
    #[error("{}: a path of {} bytes; a Unix socket takes {max}", path.display(), path.as_os_str().len())]
    SocketPath {
        /// Path at which the socket should be made.
        path: PathBuf,
        /// Bytes that such a path may have.
        max: usize,
    },
    /// An address that others than this machine could reach.
    #[error("{0}: not a loopback address; NBD is served to this machine only")]
    NotLoopback(SocketAddr),
    /// A client that is not served, and why.
    #[error("refused a client: {0}")]
    Refused(String),
    /// Too little memory for so many connections.
    #[error("{connections} connections need {needed} bytes of memory at least")]
    Memory {
        /// Connections at a time.
        connections: usize,
        /// Bytes with which they would be served.
        needed: usize,
    },
    /// The kernel has no ublk driver, or one that cannot do what is needed.
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
    /// An I/O error together with the file it happened on.
    pub(crate) fn path(path: impl Into<PathBuf>, error: impl Into<io::Error>) -> Self {
        Self::Path { path: path.into(), error: error.into() }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Connection(error)
    }
}
