//! Calls from C: a panic is caught, and a failure is a code to return and a line of text on request.
//!
//! The library of the burst buffer (`frontends/burst-capi`) has this file too, with codes of its own.

use crate::code::Code;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A code and a line of text.
#[derive(Debug)]
pub(crate) struct Failure(pub Code, pub String);

pub(crate) type Result<T> = std::result::Result<T, Failure>;

pub(crate) fn argument(why: &str) -> Failure {
    Failure(Code::Argument, why.to_owned())
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

fn check_memory(bytes: *const c_void, length: usize) -> Result<()> {
    if bytes.is_null() {
        return Err(argument("bytes is null"));
    }
    if isize::try_from(length).is_err() { Err(argument("length is more than memory can have")) } else { Ok(()) }
}

/// Memory of the caller that is read.
///
/// # Safety
/// `bytes` may be read for `length` bytes, or is null, and nobody changes them during the call.
pub(crate) unsafe fn bytes<'a>(bytes: *const c_void, length: usize) -> Result<&'a [u8]> {
    if length == 0 {
        return Ok(&[]);
    }
    check_memory(bytes, length)?;
    // SAFETY: as the caller promises.
    Ok(unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), length) })
}

/// Memory of the caller that is to be filled.
///
/// # Safety
/// `bytes` may be written for `length` bytes, or is null, and has no other user during the call.
pub(crate) unsafe fn bytes_mut<'a>(bytes: *mut c_void, length: usize) -> Result<&'a mut [u8]> {
    if length == 0 {
        return Ok(&mut []);
    }
    check_memory(bytes, length)?;
    // A Rust slice must be initialised; the caller's memory need not be.
    // SAFETY: the memory may be written, as the caller promises.
    unsafe { bytes.cast::<u8>().write_bytes(0, length) };
    // SAFETY: the memory may be written, was just written, and has no other user during this call.
    Ok(unsafe { std::slice::from_raw_parts_mut(bytes.cast::<u8>(), length) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_code_and_leaves_a_line() {
        assert_eq!(call(|| Ok(())), Code::Ok as c_int);
        assert_eq!(call(|| panic!("of a test")), Code::Fault as c_int);
        // SAFETY: the text is valid until the next failure of this thread.
        let line = || unsafe { CStr::from_ptr(last()) }.to_str().expect("text").to_owned();
        assert_eq!(line(), "a fault of the library itself");
        assert_eq!(call(|| Err(argument("two\nlines\0"))), Code::Argument as c_int);
        assert_eq!(line(), "two lines ");
    }
}
