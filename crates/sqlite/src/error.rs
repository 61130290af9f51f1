//! Why a database cannot be opened through its cache, and what SQLite is told.

use crate::ffi;
use entresol_engine::cache::CacheError;
use entresol_engine::store::StoreError;
use std::ffi::c_int;
use std::io;
use std::path::PathBuf;

/// Why the VFS could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A parameter of a URI.
    #[error("parameter {name}: {why}")]
    Parameter {
        /// The parameter.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// A file could not be used.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
    /// The cache could not be opened.
    #[error("{}: {source}", path.display())]
    Cache {
        /// The cache.
        path: PathBuf,
        /// What is wrong with it.
        source: CacheError,
    },
    /// The database is open already with something else.
    #[error("{}: is open in this process with other parameters: {what}", path.display())]
    Other {
        /// The database.
        path: PathBuf,
        /// What differs.
        what: String,
    },
    /// SQLite would not have the VFS.
    #[error("SQLite does not take the VFS '{name}': {why}")]
    Register {
        /// Its name.
        name: String,
        /// What is wrong.
        why: String,
    },
}

impl Error {
    /// What SQLite is told.
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

/// What SQLite is told of an I/O that failed, where nothing more particular is known.
pub(crate) fn io_code(error: &io::Error, otherwise: c_int) -> c_int {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ffi::FULL,
        io::ErrorKind::ReadOnlyFilesystem => ffi::READONLY,
        io::ErrorKind::InvalidData => ffi::IOERR_DATA,
        io::ErrorKind::OutOfMemory => ffi::NOMEM,
        _ => otherwise,
    }
}
