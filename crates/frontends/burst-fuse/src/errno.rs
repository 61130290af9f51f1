//! The errors that programs see.

use entresol_burst_live::client::{ClientError, FileError};
use fuser::Errno;
use std::io;

/// Error of a request, and its reason if the error number does not say it.
pub(super) struct Failure {
    pub errno: Errno,
    pub why: Option<String>,
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Failure {
        Failure { errno, why: None }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure { errno: of_io(&error), why: Some(error.to_string()) }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        Failure::from(FileError::from(error))
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Failure {
        let errno = match &error {
            FileError::Missing => return Errno::ENOENT.into(),
            FileError::Committed | FileError::Named => Errno::EPERM,
            FileError::Full(_) => Errno::EDQUOT,
            FileError::Openings | FileError::Pieces(_) | FileError::TooLong => Errno::EFBIG,
            FileError::Stale => Errno::ESTALE,
            FileError::Names(why) | FileError::Client(ClientError::NotStored { pfs: why, .. }) => of_io(why),
            FileError::Unknown | FileError::Client(_) => Errno::EIO,
        };
        Failure { errno, why: Some(error.to_string()) }
    }
}

/// A full PFS is told apart; other errors of the PFS are errors of the device.
fn of_io(error: &io::Error) -> Errno {
    match error.kind() {
        io::ErrorKind::StorageFull => Errno::ENOSPC,
        io::ErrorKind::QuotaExceeded => Errno::EDQUOT,
        _ => Errno::EIO,
    }
}
