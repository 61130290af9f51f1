//! The part of SQLite's C interface that a VFS uses, as `sqlite3.h` documents it.
//!
//! Declared here instead of in a binding crate, so that the same code serves a program with SQLite linked in and a
//! loadable extension. The extension must call the SQLite that loads it, and must not bring one of its own.

use std::ffi::{c_char, c_int, c_void};

pub const OK: c_int = 0;
pub const ERROR: c_int = 1;
pub const BUSY: c_int = 5;
pub const NOMEM: c_int = 7;
pub const READONLY: c_int = 8;
pub const NOTFOUND: c_int = 12;
pub const FULL: c_int = 13;
pub const CANTOPEN: c_int = 14;
pub const NOTICE: c_int = 27;
pub const OK_LOAD_PERMANENTLY: c_int = 256;

const IOERR: c_int = 10;
pub const IOERR_READ: c_int = IOERR | 1 << 8;
pub const IOERR_SHORT_READ: c_int = IOERR | 2 << 8;
pub const IOERR_WRITE: c_int = IOERR | 3 << 8;
pub const IOERR_FSYNC: c_int = IOERR | 4 << 8;
pub const IOERR_TRUNCATE: c_int = IOERR | 6 << 8;
pub const IOERR_FSTAT: c_int = IOERR | 7 << 8;
pub const IOERR_CLOSE: c_int = IOERR | 16 << 8;
pub const IOERR_DATA: c_int = IOERR | 32 << 8;

pub const OPEN_READONLY: c_int = 0x1;
pub const OPEN_READWRITE: c_int = 0x2;
pub const OPEN_MAIN_DB: c_int = 0x100;

/// Bytes beside those of a write are safe when the power fails.
pub const IOCAP_POWERSAFE_OVERWRITE: c_int = 0x1000;
/// An open file cannot be deleted.
pub const IOCAP_UNDELETABLE_WHEN_OPEN: c_int = 0x800;

pub const FCNTL_LOCKSTATE: c_int = 1;
pub const FCNTL_LAST_ERRNO: c_int = 4;
pub const FCNTL_SIZE_HINT: c_int = 5;
pub const FCNTL_PERSIST_WAL: c_int = 10;
pub const FCNTL_VFSNAME: c_int = 12;
pub const FCNTL_POWERSAFE_OVERWRITE: c_int = 13;
pub const FCNTL_PRAGMA: c_int = 14;
pub const FCNTL_TEMPFILENAME: c_int = 16;
pub const FCNTL_HAS_MOVED: c_int = 20;
pub const FCNTL_LOCK_TIMEOUT: c_int = 34;
pub const FCNTL_EXTERNAL_READER: c_int = 40;

/// An open file; the memory after it is the VFS's.
#[repr(C)]
pub struct File {
    /// Null while the file is not open.
    pub methods: *const IoMethods,
}

type OnFile = unsafe extern "C" fn(*mut File) -> c_int;

/// Table of the operations on an open file: `sqlite3_io_methods` of SQLite.
#[repr(C)]
pub struct IoMethods {
    pub version: c_int,
    pub close: Option<OnFile>,
    pub read: Option<unsafe extern "C" fn(*mut File, *mut c_void, c_int, i64) -> c_int>,
    pub write: Option<unsafe extern "C" fn(*mut File, *const c_void, c_int, i64) -> c_int>,
    pub truncate: Option<unsafe extern "C" fn(*mut File, i64) -> c_int>,
    pub sync: Option<unsafe extern "C" fn(*mut File, c_int) -> c_int>,
    pub file_size: Option<unsafe extern "C" fn(*mut File, *mut i64) -> c_int>,
    pub lock: Option<unsafe extern "C" fn(*mut File, c_int) -> c_int>,
    pub unlock: Option<unsafe extern "C" fn(*mut File, c_int) -> c_int>,
    pub check_reserved_lock: Option<unsafe extern "C" fn(*mut File, *mut c_int) -> c_int>,
    pub file_control: Option<unsafe extern "C" fn(*mut File, c_int, *mut c_void) -> c_int>,
    pub sector_size: Option<OnFile>,
    pub device_characteristics: Option<OnFile>,
    pub shm_map: Option<unsafe extern "C" fn(*mut File, c_int, c_int, c_int, *mut *mut c_void) -> c_int>,
    pub shm_lock: Option<unsafe extern "C" fn(*mut File, c_int, c_int, c_int) -> c_int>,
    pub shm_barrier: Option<unsafe extern "C" fn(*mut File)>,
    pub shm_unmap: Option<unsafe extern "C" fn(*mut File, c_int) -> c_int>,
    pub fetch: Option<unsafe extern "C" fn(*mut File, i64, c_int, *mut *mut c_void) -> c_int>,
    pub unfetch: Option<unsafe extern "C" fn(*mut File, i64, *mut c_void) -> c_int>,
}

/// A function of which only the address matters.
pub type Symbol = Option<unsafe extern "C" fn()>;

/// A file system.
#[repr(C)]
#[derive(Clone)]
pub struct Vfs {
    pub version: c_int,
    pub os_file_bytes: c_int,
    pub pathname_max: c_int,
    pub next: *mut Vfs,
    pub name: *const c_char,
    pub app_data: *mut c_void,
    pub open: Option<unsafe extern "C" fn(*mut Vfs, *const c_char, *mut File, c_int, *mut c_int) -> c_int>,
    pub delete: Option<unsafe extern "C" fn(*mut Vfs, *const c_char, c_int) -> c_int>,
    pub access: Option<unsafe extern "C" fn(*mut Vfs, *const c_char, c_int, *mut c_int) -> c_int>,
    pub full_pathname: Option<unsafe extern "C" fn(*mut Vfs, *const c_char, c_int, *mut c_char) -> c_int>,
    pub dl_open: Option<unsafe extern "C" fn(*mut Vfs, *const c_char) -> *mut c_void>,
    pub dl_error: Option<unsafe extern "C" fn(*mut Vfs, c_int, *mut c_char)>,
    pub dl_sym: Option<unsafe extern "C" fn(*mut Vfs, *mut c_void, *const c_char) -> Symbol>,
    pub dl_close: Option<unsafe extern "C" fn(*mut Vfs, *mut c_void)>,
    pub randomness: Option<unsafe extern "C" fn(*mut Vfs, c_int, *mut c_char) -> c_int>,
    pub sleep: Option<unsafe extern "C" fn(*mut Vfs, c_int) -> c_int>,
    pub current_time: Option<unsafe extern "C" fn(*mut Vfs, *mut f64) -> c_int>,
    pub last_error: Option<unsafe extern "C" fn(*mut Vfs, c_int, *mut c_char) -> c_int>,
    pub current_time_i64: Option<unsafe extern "C" fn(*mut Vfs, *mut i64) -> c_int>,
    pub set_system_call: Option<unsafe extern "C" fn(*mut Vfs, *const c_char, Symbol) -> c_int>,
    pub system_call: Option<unsafe extern "C" fn(*mut Vfs, *const c_char) -> Symbol>,
    pub next_system_call: Option<unsafe extern "C" fn(*mut Vfs, *const c_char) -> *const c_char>,
}
