//! The entry points of the loadable extension.

use crate::api::Api;
use crate::error::Error;
use crate::ffi;
use crate::options::Options;
use crate::vfs::register;
use std::ffi::{c_char, c_int, c_void};

const NAME: &str = "entresol";

/// Registers the VFS `entresol` with the SQLite that loads the extension. Loading it again changes nothing.
///
/// # Safety
/// Only SQLite may call this: `error` is null or takes a text that SQLite frees; `routines` are SQLite's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_entresol_init(
    _connection: *mut c_void,
    error: *mut *mut c_char,
    routines: *const c_void,
) -> c_int {
    // SAFETY: the caller vouches for the routines.
    let Some(api) = (unsafe { Api::from_routines(routines) }) else { return ffi::ERROR };
    match register(api, NAME, Options::default(), false) {
        Ok(()) => ffi::OK_LOAD_PERMANENTLY,
        Err(Error::Register { .. }) if !api.find(Some(c"entresol")).is_null() => ffi::OK_LOAD_PERMANENTLY,
        Err(reason) => {
            if !error.is_null() {
                // SAFETY: the caller vouches for the place of the text.
                unsafe { *error = api.copy(&reason.to_string()) };
            }
            ffi::ERROR
        }
    }
}

/// The entry point that SQLite derives from the library's file name when none is given.
///
/// # Safety
/// As [`sqlite3_entresol_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_entresolsqlite_init(
    connection: *mut c_void,
    error: *mut *mut c_char,
    routines: *const c_void,
) -> c_int {
    // SAFETY: the caller vouches for all of it.
    unsafe { sqlite3_entresol_init(connection, error, routines) }
}
