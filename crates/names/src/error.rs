//! Errors of finding names.

use std::io;
use std::path::{Path, PathBuf};

/// Why names cannot be found.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system refused an operation on a file.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// A file is malformed.
    #[error("{}: byte {byte}: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Offset of the damage in the file, in bytes.
        byte: u64,
        /// The expected content, or the fault.
        what: &'static str,
    },
    /// The file formats of this version are not supported.
    #[error("{}: PostgreSQL {version}: the catalogue's files are known of versions 12 to 18; ask the server", path.display())]
    Version {
        /// The data directory.
        path: PathBuf,
        /// Version in the file `PG_VERSION`.
        version: String,
    },
    /// There is no data directory of PostgreSQL.
    #[error("there is no data directory of PostgreSQL whose server could be asked")]
    NoCluster,
    /// The server that was asked serves another data directory.
    #[error("the server that was asked serves {}, which is not here", .0.display())]
    OtherCluster(PathBuf),
    /// A connection string is wrong.
    #[error("connection '{given}': {what}")]
    Connection {
        /// The string.
        given: String,
        /// Fault of the string.
        what: String,
    },
    /// The server could not be asked.
    #[error("asking {whom}: {what}")]
    Server {
        /// The server.
        whom: String,
        /// Answer of the server, or the reason why there was none.
        what: String,
    },
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Adds the file's path to an error of the system.
pub(crate) fn at<T>(path: &Path, result: io::Result<T>) -> Result<T> {
    result.map_err(|error| Error::Io { path: path.to_owned(), error })
}

/// The error of a malformed file.
pub(crate) fn damaged<T>(path: &Path, byte: u64, what: &'static str) -> Result<T> {
    Err(Error::Damaged { path: path.to_owned(), byte, what })
}
