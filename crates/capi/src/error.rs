//! Errors as C sees them: a code to return, a line of text to ask for.

use entresol_engine::cache::CacheError;
use entresol_engine::store::StoreError;
use entresol_files::record::PairError;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Result of a call: `entresol_code` of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    /// It was done.
    Ok = 0,
    /// An argument makes no sense.
    Argument = 1,
    /// A file is not there.
    NotFound = 2,
    /// Somebody has a file open.
    InUse = 3,
    /// Something is where a cache was to be made.
    Exists = 4,
    /// No cache, or not of this backing store.
    NotCache = 5,
    /// Durable contents are damaged.
    Damaged = 6,
    /// The policy is not one that can be.
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

/// A code and a line about it.
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

/// Runs a call: no panic crosses into C, and the text of a failure is kept.
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

/// A text that must be there.
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
