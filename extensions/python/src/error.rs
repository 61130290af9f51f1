//! Errors of the client as exceptions.

use entresol_burst_live::client::{ClientError, FileError};
use pyo3::exceptions::{PyFileExistsError, PyFileNotFoundError, PyOSError};
use pyo3::{PyErr, create_exception};

create_exception!(entresol_burst, BurstError, PyOSError, "The burst buffer cannot do it; the text has the reason.");

/// The exception for a failure of a file.
pub fn of_file(error: FileError) -> PyErr {
    match error {
        FileError::Missing => PyFileNotFoundError::new_err(error.to_string()),
        FileError::Committed => PyFileExistsError::new_err(error.to_string()),
        FileError::Client(error) => of_client(error),
        error => BurstError::new_err(error.to_string()),
    }
}

/// The exception for a failure of the client.
pub fn of_client(error: ClientError) -> PyErr {
    match error {
        ClientError::NoCheckpoint(..) | ClientError::Incomplete(..) => PyFileNotFoundError::new_err(error.to_string()),
        error => BurstError::new_err(error.to_string()),
    }
}
