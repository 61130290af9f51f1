//! Codes of the results of calls.

/// Result of a call: `entresol_code` of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    /// Success.
    Ok = 0,
    /// An argument is invalid.
    Argument = 1,
    /// A file does not exist.
    NotFound = 2,
    /// Another process or handle has a file open.
    InUse = 3,
    /// A file or another cache is where the new cache would go.
    Exists = 4,
    /// The file is not a cache, or not one of this backing store.
    NotCache = 5,
    /// Durable contents are damaged.
    Damaged = 6,
    /// The policy does not exist or cannot be built.
    Policy = 7,
    /// A write in read-only mode.
    ReadOnly = 8,
    /// A device is full.
    NoSpace = 9,
    /// A device or the system failed.
    Io = 10,
    /// A fault of this library.
    Fault = 11,
}
