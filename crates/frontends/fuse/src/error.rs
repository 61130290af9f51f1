//! The error type of the front-end.

use entresol_cache::PathError;
use std::io;
use std::path::PathBuf;

/// Result of mounting, unmounting or waiting for the end.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a directory was not mounted, or how its mount ended. The text holds the cause's, so there is no `source`.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The directory, the mount point or the kernel's device cannot be used.
    #[error(transparent)]
    Path(#[from] PathError),
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
    /// The mount of a former server cannot be taken over, for this reason.
    #[error("the mount of the former server cannot be taken over: {0}")]
    TakeOver(String),
    /// The connection to the kernel failed.
    #[error("connection: {0}")]
    Connection(io::Error),
}

impl Error {
    /// An error of the system together with its path.
    pub(crate) fn path(path: impl Into<PathBuf>, error: impl Into<io::Error>) -> Self {
        PathError::system(path, error).into()
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Connection(error)
    }
}
