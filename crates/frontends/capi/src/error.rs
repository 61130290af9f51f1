//! Errors of the cache as codes.

use crate::call::Failure;
use crate::code::Code;
use entresol_cache::CacheError;
use entresol_files::record::PairError;
use entresol_store::StoreError;
use std::io;

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let code = match error.kind() {
            io::ErrorKind::NotFound => Code::NotFound,
            io::ErrorKind::WouldBlock => Code::InUse,
            io::ErrorKind::AlreadyExists => Code::Exists,
            io::ErrorKind::InvalidInput => Code::Argument,
            io::ErrorKind::InvalidData => Code::Damaged,
            io::ErrorKind::ReadOnlyFilesystem => Code::ReadOnly,
            io::ErrorKind::StorageFull => Code::NoSpace,
            _ => Code::Io,
        };
        Failure(code, error.to_string())
    }
}

impl From<PairError> for Failure {
    fn from(error: PairError) -> Self {
        match error {
            PairError::Cache(error) => error.into(),
            PairError::Mismatch(why) => Failure(Code::NotCache, why.to_string()),
            PairError::Record { error, .. } if error.kind() != io::ErrorKind::InvalidData => error.into(),
            damaged => Failure(Code::Damaged, damaged.to_string()),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let code = match error {
            StoreError::Io(error) => return error.into(),
            StoreError::Geometry { .. } | StoreError::TooSmall { .. } => Code::Argument,
            StoreError::Superblocks | StoreError::Damaged { .. } | StoreError::Shrunk { .. } => Code::Damaged,
            _ => Code::NotCache,
        };
        Failure(code, error.to_string())
    }
}

impl From<CacheError> for Failure {
    fn from(error: CacheError) -> Self {
        match error {
            CacheError::Store(error) => error.into(),
            other => Failure(Code::Policy, other.to_string()),
        }
    }
}
