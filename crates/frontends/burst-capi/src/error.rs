//! Errors of the burst buffer as codes.

use crate::call::Failure;
use crate::code::Code;
use entresol_burst_live::client::{ClientError, FileError};
use std::io;

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let code = match error.kind() {
            io::ErrorKind::NotFound => Code::NotFound,
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::NotADirectory => Code::Argument,
            _ => Code::Io,
        };
        Failure(code, error.to_string())
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let code = match error {
            ClientError::NoSuchRank(..) | ClientError::OtherDirectory(_) | ClientError::Files(..) => Code::Argument,
            ClientError::NoCheckpoint(..) | ClientError::Incomplete(..) => Code::NotFound,
            ClientError::NotStored { .. } => Code::NotStored,
            ClientError::Damaged { .. } => Code::Damaged,
            ClientError::Pfs(_) | ClientError::Share(..) => Code::Io,
            ClientError::Wire(..)
            | ClientError::Refused(..)
            | ClientError::Absent(..)
            | ClientError::Kept(..)
            | ClientError::Unexpected(_)
            | ClientError::NoNodes(_)
            | ClientError::NotSettled => Code::Unavailable,
        };
        Failure(code, error.to_string())
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        // Two texts are of a mount: here `replace` is the way.
        let (code, text) = match error {
            FileError::Client(error) => return error.into(),
            FileError::Missing => (Code::NotFound, error.to_string()),
            FileError::Committed => (Code::Exists, "the file is committed; replace writes it anew".to_owned()),
            FileError::Unknown => {
                let why = "without the nodes it is not known if the file is committed; replace writes it anew";
                (Code::Unavailable, why.to_owned())
            }
            FileError::Stale => (Code::Stale, error.to_string()),
            FileError::Full(_) | FileError::Openings | FileError::Pieces(_) => (Code::Limit, error.to_string()),
            FileError::TooLong | FileError::Named => (Code::Argument, error.to_string()),
            FileError::Names(_) => (Code::Io, error.to_string()),
        };
        Failure(code, text)
    }
}
