//! Codes of the results of calls.

/// Result of a call: `entresol_burst_code` of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    /// Success.
    Ok = 0,
    /// An argument is invalid.
    Argument = 1,
    /// A file, checkpoint, directory or ticket does not exist.
    NotFound = 2,
    /// The file is committed, and is not to be replaced.
    Exists = 3,
    /// Another opening for writing of the file has followed.
    Stale = 4,
    /// The checkpoint has its files, or the file its openings or pieces.
    Limit = 5,
    /// The memory is shorter than the bytes.
    Short = 6,
    /// Neither a buffer nor the PFS takes the bytes.
    NotStored = 7,
    /// No source has a chunk with its checksum.
    Damaged = 8,
    /// The coordinator or the nodes do not answer, or refuse.
    Unavailable = 9,
    /// The PFS or the system failed.
    Io = 10,
    /// A fault of this library.
    Fault = 11,
}
