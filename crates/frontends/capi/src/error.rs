//! Errors for C: a code to return, and a line of text on request.

use entresol_cache::CacheError;
use entresol_files::record::PairError;
use entresol_store::StoreError;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

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

/// A code and a line of text.
#[derive(Debug)]
pub(crate) struct Failure(pub Code, pub String);

pub(crate) type Result<T> = std::result::Result<T, Failure>;

pub(crate) fn argument(why: &str) -> Failure {
    Failure(Code::Argument, why.to_owned())
}

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

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// The text of the last failure of this thread.
pub(crate) fn last() -> *const c_char {
    LAST.with_borrow(|text| text.as_ptr())
}

/// Runs a call from C: catches panics, and keeps the text of a failure.
pub(crate) fn call(body: impl FnOnce() -> Result<()>) -> c_int {
    let result = catch_unwind(AssertUnwindSafe(body));
    let result = result.unwrap_or_else(|_| Err(Failure(Code::Fault, "a fault of the library itself".to_owned())));
    match result {
        Ok(()) => Code::Ok as c_int,
        Err(Failure(code, text)) => {
            let text = CString::new(text.replace(['\n', '\0'], " ")).expect("there is no zero in it");
            LAST.set(text);
            code as c_int
        }
    }
}

/// A text that must not be null.
///
/// # Safety
/// `text` is null or points to a text that ends in zero.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a CStr> {
    if text.is_null() {
        return Err(argument(&format!("{what} is null")));
    }
    // SAFETY: as the caller promises.
    Ok(unsafe { CStr::from_ptr(text) })
}
