//! Errors of opening a database through its cache, and SQLite's codes for them.

use crate::ffi;
use entresol_cache::CacheError;
use entresol_store::StoreError;
use std::ffi::c_int;
use std::io;
use std::path::PathBuf;

/// Why the VFS could not carry out a call.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A parameter of a URI is wrong.
    #[error("parameter {name}: {why}")]
    Parameter {
        /// The parameter.
        name: String,
        /// Fault of the parameter.
        why: String,
    },
    /// A file could not be used.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The cache could not be opened.
    #[error("{}: {source}", path.display())]
    Cache {
        /// The cache.
        path: PathBuf,
        /// Error of the cache.
        source: CacheError,
    },
    /// The database is open already with other parameters.
    #[error("{}: is open in this process with other parameters: {what}", path.display())]
    Other {
        /// The database.
        path: PathBuf,
        /// The parameter that differs, or the difference.
        what: String,
    },
    /// SQLite refused the VFS.
    #[error("SQLite does not take the VFS '{name}': {why}")]
    Register {
        /// The VFS's name.
        name: String,
        /// Reason of the refusal.
        why: String,
    },
}

impl Error {
    /// SQLite's result code for the error.
    pub(crate) fn code(&self) -> c_int {
        let kind = match self {
            Error::File { source, .. } | Error::Cache { source: CacheError::Store(StoreError::Io(source)), .. } => {
                source.kind()
            }
            _ => return ffi::CANTOPEN,
        };
        if kind == io::ErrorKind::WouldBlock { ffi::BUSY } else { ffi::CANTOPEN }
    }
}

/// SQLite's result code for a failed I/O: `otherwise` unless a more specific one fits.
pub(crate) fn io_code(error: &io::Error, otherwise: c_int) -> c_int {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ffi::FULL,
        io::ErrorKind::ReadOnlyFilesystem => ffi::READONLY,
        io::ErrorKind::InvalidData => ffi::IOERR_DATA,
        io::ErrorKind::OutOfMemory => ffi::NOMEM,
        _ => otherwise,
    }
}
