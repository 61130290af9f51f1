//! The error type of the front-end.

use entresol_cache::PathError;
use std::io;

/// Result of making a block device.
pub type Result<T> = std::result::Result<T, Error>;

/// Why there is no block device. The text holds the cause's, so there is no `source`.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A device of the kernel cannot be used.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The kernel has no ublk driver, or one without the necessary features.
    #[error("this kernel cannot make block devices of a program (ublk): {0}; `entresol serve nbd` does without")]
    NoUblk(String),
    /// The driver has no devices that outlive their server.
    #[error(
        "the ublk driver of this kernel cannot keep the block device of a program that was killed (Linux 6.15 can)"
    )]
    NoRecovery,
    /// The storage cannot be a block device.
    #[error("protocol error: {0}")]
    Protocol(String),
    /// The exchange with the kernel failed.
    #[error("connection: {0}")]
    Connection(io::Error),
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Connection(error)
    }
}
