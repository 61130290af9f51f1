//! The functions of the SQLite in use: the one linked into the program, or the one that loads the extension.

use crate::ffi::Vfs;
use std::ffi::{CStr, CString, c_char, c_int, c_void};

type VfsFind = unsafe extern "C" fn(*const c_char) -> *mut Vfs;
type VfsRegister = unsafe extern "C" fn(*mut Vfs, c_int) -> c_int;
type Log = unsafe extern "C" fn(c_int, *const c_char, ...);
type UriParameter = unsafe extern "C" fn(*const c_char, *const c_char) -> *const c_char;
type UriKey = unsafe extern "C" fn(*const c_char, c_int) -> *const c_char;
type Mprintf = unsafe extern "C" fn(*const c_char, ...) -> *mut c_char;

unsafe extern "C" {
    fn sqlite3_vfs_find(name: *const c_char) -> *mut Vfs;
    fn sqlite3_vfs_register(vfs: *mut Vfs, make_default: c_int) -> c_int;
    fn sqlite3_log(code: c_int, format: *const c_char, ...);
    fn sqlite3_uri_parameter(filename: *const c_char, name: *const c_char) -> *const c_char;
    fn sqlite3_uri_key(filename: *const c_char, n: c_int) -> *const c_char;
    fn sqlite3_mprintf(format: *const c_char, ...) -> *mut c_char;
}

/// The first release with `sqlite3_uri_key`: 3.31.
const VERSION_MIN: c_int = 3_031_000;

/// Positions in `sqlite3_api_routines`, an array of function pointers that only grows at its end.
mod place {
    pub const LIBVERSION_NUMBER: usize = 67;
    pub const MPRINTF: usize = 69;
    pub const VFS_FIND: usize = 141;
    pub const VFS_REGISTER: usize = 142;
    pub const LOG: usize = 167;
    pub const URI_PARAMETER: usize = 189;
    pub const URI_KEY: usize = 245;
}

/// Functions of SQLite that a VFS calls.
#[derive(Clone, Copy)]
pub struct Api {
    vfs_find: VfsFind,
    vfs_register: VfsRegister,
    log: Log,
    uri_parameter: UriParameter,
    uri_key: UriKey,
    mprintf: Mprintf,
}

impl Api {
    /// The SQLite that is linked into this program, by `rusqlite` for instance.
    pub fn linked() -> Self {
        Api {
            vfs_find: sqlite3_vfs_find,
            vfs_register: sqlite3_vfs_register,
            log: sqlite3_log,
            uri_parameter: sqlite3_uri_parameter,
            uri_key: sqlite3_uri_key,
            mprintf: sqlite3_mprintf,
        }
    }

    /// The SQLite that loads an extension; `None` if it is older than 3.31.
    ///
    /// # Safety
    /// `routines` must be the `sqlite3_api_routines` that SQLite passes to an extension's entry point.
    pub unsafe fn from_routines(routines: *const c_void) -> Option<Self> {
        let routines = routines.cast::<*const c_void>();
        // SAFETY: the caller vouches for the array; the entry exists since 3.3.
        let version: unsafe extern "C" fn() -> c_int =
            unsafe { std::mem::transmute(*routines.add(place::LIBVERSION_NUMBER)) };
        // SAFETY: the function takes nothing and touches nothing.
        if unsafe { version() } < VERSION_MIN {
            return None;
        }
        // SAFETY: all of these exist since `VERSION_MIN`, with these types.
        unsafe {
            Some(Api {
                vfs_find: std::mem::transmute::<*const c_void, VfsFind>(*routines.add(place::VFS_FIND)),
                vfs_register: std::mem::transmute::<*const c_void, VfsRegister>(*routines.add(place::VFS_REGISTER)),
                log: std::mem::transmute::<*const c_void, Log>(*routines.add(place::LOG)),
                uri_parameter: std::mem::transmute::<*const c_void, UriParameter>(*routines.add(place::URI_PARAMETER)),
                uri_key: std::mem::transmute::<*const c_void, UriKey>(*routines.add(place::URI_KEY)),
                mprintf: std::mem::transmute::<*const c_void, Mprintf>(*routines.add(place::MPRINTF)),
            })
        }
    }

    /// The VFS of this name, or the default one; null when there is none.
    pub(crate) fn find(&self, name: Option<&CStr>) -> *mut Vfs {
        // SAFETY: a null pointer asks for the default; a name is a C string.
        unsafe { (self.vfs_find)(name.map_or(std::ptr::null(), CStr::as_ptr)) }
    }

    /// Registers a VFS.
    ///
    /// # Safety
    /// `vfs` must be complete and must live, unmoved, as long as the process.
    pub(crate) unsafe fn register(&self, vfs: *mut Vfs, make_default: bool) -> c_int {
        // SAFETY: the caller vouches for the VFS.
        unsafe { (self.vfs_register)(vfs, c_int::from(make_default)) }
    }

    /// Writes a line to SQLite's log.
    pub(crate) fn log(&self, code: c_int, text: &str) {
        let text = c_text(text);
        // SAFETY: the format takes one C string.
        unsafe { (self.log)(code, c"%s".as_ptr(), text.as_ptr()) }
    }

    /// A copy of a text in memory that SQLite frees; null if there is no memory.
    pub(crate) fn copy(&self, text: &str) -> *mut c_char {
        let text = c_text(text);
        // SAFETY: as in `log`.
        unsafe { (self.mprintf)(c"%s".as_ptr(), text.as_ptr()) }
    }

    /// `prefix` and a text of SQLite's, which is freed.
    ///
    /// # Safety
    /// `text` must be null, or memory of SQLite's without another user.
    pub(crate) unsafe fn prefixed(&self, prefix: &str, text: *mut c_char) -> *mut c_char {
        let prefix = c_text(prefix);
        // SAFETY: the format takes a C string, and one that it frees.
        unsafe { (self.mprintf)(c"%s%z".as_ptr(), prefix.as_ptr(), text) }
    }

    /// A parameter of the URI that a file was opened with.
    ///
    /// # Safety
    /// `filename` must be the one that SQLite passes to `xOpen` of a main database.
    pub(crate) unsafe fn parameter(&self, filename: *const c_char, name: &CStr) -> Option<&CStr> {
        // SAFETY: the caller vouches for the file name; the value is valid as long as the file name.
        unsafe {
            let value = (self.uri_parameter)(filename, name.as_ptr());
            (!value.is_null()).then(|| CStr::from_ptr(value))
        }
    }

    /// The names of all parameters of the URI that a file was opened with.
    ///
    /// # Safety
    /// As [`parameter`](Api::parameter).
    pub(crate) unsafe fn keys(&self, filename: *const c_char) -> Vec<String> {
        // SAFETY: as above.
        let key = |n| unsafe {
            let key = (self.uri_key)(filename, n);
            (!key.is_null()).then(|| CStr::from_ptr(key).to_string_lossy().into_owned())
        };
        (0..).map_while(key).collect()
    }
}

fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).expect("no zero byte is left")
}
