//! The error of opening a file, a directory or a socket by its path.

use std::io;
use std::path::PathBuf;

/// Why a front-end, or the storage behind it, cannot use what is at a path. The text holds the cause's, so there is no
/// `source`.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// The system refused an operation on a file, a directory or a socket.
    #[error("{}: {error}", path.display())]
    System {
        /// The file, directory or socket.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// Another process holds the file or answers on the socket.
    #[error("{}: in use by another process", .0.display())]
    InUse(PathBuf),
    /// A file other than a socket is at the socket's path.
    #[error("{}: exists and is not a socket", .0.display())]
    NotASocket(PathBuf),
}

impl PathError {
    /// An error of the system together with its path.
    pub fn system(path: impl Into<PathBuf>, error: impl Into<io::Error>) -> Self {
        Self::System { path: path.into(), error: error.into() }
    }
}
