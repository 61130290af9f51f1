//! The error type of the front-end.

use entresol_cache::PathError;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Result of opening or serving a listener.
pub type Result<T> = std::result::Result<T, Error>;

/// Why the front-end did not open, or why a client was refused. The text holds the cause's, so there is no `source`.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket cannot be made.
    #[error(transparent)]
    Path(#[from] PathError),
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
    /// The client broke the protocol; the connection is closed.
    #[error("protocol error: {0}")]
    Protocol(String),
    /// The connection failed.
    #[error("connection: {0}")]
    Connection(io::Error),
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Connection(error)
    }
}
