//! The VFS: the default one, with main databases through a cache.

use crate::api::Api;
use crate::error::Error;
use crate::ffi::{self, File, Symbol, Vfs};
use crate::file::{CachedFile, LOWER_AT};
use crate::options::Options;
use crate::registry;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// A registered VFS. SQLite sees the first part.
#[repr(C)]
struct Shim {
    base: Vfs,
    lower: *mut Vfs,
    api: Api,
    options: Options,
}

/// Registers a VFS under a name, over the present default one. Databases that name it in their URI
/// (`file:PATH?vfs=NAME`) go through a cache, and all databases if it becomes the default. The cache has these options,
/// overridden by the URI's. The VFS stays registered until the process ends.
///
/// # Errors
/// If the name is taken, or the default VFS cannot serve as the lower one.
pub fn register(api: Api, name: &str, options: Options, make_default: bool) -> Result<(), Error> {
    let refused = |why: &str| Error::Register { name: name.to_owned(), why: why.to_owned() };
    let c_name = CString::new(name).map_err(|_| refused("its name has a zero byte"))?;
    if !api.find(Some(&c_name)).is_null() {
        return Err(refused("there is one of this name"));
    }
    let lower = api.find(None);
    if lower.is_null() {
        return Err(refused("there is no default VFS"));
    }
    // SAFETY: a registered VFS stays valid until the process ends.
    let base = shim_over(unsafe { &*lower }, c_name.into_raw());
    let shim = Box::leak(Box::new(Shim { base, lower, api, options }));
    // SAFETY: the VFS is complete, and leaked so that it stays valid until the process ends.
    match unsafe { api.register(&raw mut shim.base, make_default) } {
        ffi::OK => Ok(()),
        code => Err(refused(&format!("it answered {code}"))),
    }
}

fn shim_over(lower: &Vfs, name: *const c_char) -> Vfs {
    Vfs {
        version: lower.version.min(3),
        os_file_bytes: LOWER_AT as c_int + lower.os_file_bytes,
        pathname_max: lower.pathname_max,
        next: std::ptr::null_mut(),
        name,
        app_data: std::ptr::null_mut(),
        open: Some(open),
        delete: lower.delete.and(Some(delete)),
        access: lower.access.and(Some(access)),
        full_pathname: lower.full_pathname.and(Some(full_pathname)),
        dl_open: lower.dl_open.and(Some(dl_open)),
        dl_error: lower.dl_error.and(Some(dl_error)),
        dl_sym: lower.dl_sym.and(Some(dl_sym)),
        dl_close: lower.dl_close.and(Some(dl_close)),
        randomness: lower.randomness.and(Some(randomness)),
        sleep: lower.sleep.and(Some(sleep)),
        current_time: lower.current_time.and(Some(current_time)),
        last_error: lower.last_error.and(Some(last_error)),
        current_time_i64: if lower.version >= 2 { lower.current_time_i64.and(Some(current_time_i64)) } else { None },
        set_system_call: if lower.version >= 3 { lower.set_system_call.and(Some(set_system_call)) } else { None },
        system_call: if lower.version >= 3 { lower.system_call.and(Some(system_call)) } else { None },
        next_system_call: if lower.version >= 3 { lower.next_system_call.and(Some(next_system_call)) } else { None },
    }
}

unsafe extern "C" fn open(
    vfs: *mut Vfs,
    name: *const c_char,
    file: *mut File,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: SQLite passes the VFS that was registered, which is the first part of a shim.
    let shim = unsafe { &*vfs.cast::<Shim>() };
    // SAFETY: the lower VFS is registered, and a registered VFS can open files.
    let open_lower =
        |file, out| unsafe { ((*shim.lower).open.expect("a VFS can open files"))(shim.lower, name, file, flags, out) };
    if flags & ffi::OPEN_MAIN_DB == 0 || name.is_null() {
        return open_lower(file, out_flags);
    }
    // SAFETY: the memory is of `os_file_bytes`; a file without methods is not open.
    unsafe { (*file).methods = std::ptr::null() };
    let refuse = |error: &Error| {
        shim.api.log(error.code(), &format!("entresol: {error}"));
        error.code()
    };
    // SAFETY: this is `xOpen` of a main database.
    let given = match unsafe { shim.options.with_uri(&shim.api, name) } {
        Ok(given) => given,
        Err(error) => return refuse(&error),
    };
    // SAFETY: the memory has space for the lower file behind this one.
    let lower = unsafe { file.cast::<u8>().add(LOWER_AT).cast::<File>() };
    let mut lower_flags = 0;
    let code = open_lower(lower, &raw mut lower_flags);
    // SAFETY: a lower file that could not be opened, and need not be closed, has no methods.
    let close_lower = || unsafe {
        if let Some(methods) = (*lower).methods.as_ref() {
            (methods.close.expect("a file can be closed"))(lower);
        }
    };
    if code != ffi::OK {
        close_lower();
        return code;
    }
    // SAFETY: the name of a file is a C string.
    let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes()));
    let writable = lower_flags & ffi::OPEN_READONLY == 0;
    let opened = catch_unwind(AssertUnwindSafe(|| registry::open(path, &given, writable)));
    let opened = opened.unwrap_or_else(|_| {
        Err(Error::File { path: path.into(), source: std::io::Error::other("a fault of the cache's own") })
    });
    match opened {
        Ok(Some(handle)) => {
            if handle.shared.is_read_only() {
                lower_flags = lower_flags & !ffi::OPEN_READWRITE | ffi::OPEN_READONLY;
            }
            if let Some(mode) = handle.shared.was_open_to_others() {
                let said = format!("the cache file was open to others (mode {mode:04o}); it is 0600 now");
                shim.api.log(ffi::NOTICE, &format!("entresol: {}: {said}", path.display()));
            }
            // SAFETY: the memory has `os_file_bytes`, with the lower file open behind.
            unsafe { CachedFile::place(file, shim.api, handle) };
        }
        Ok(None) => {
            close_lower();
            shim.api
                .log(ffi::NOTICE, &format!("entresol: {}: no cache_file is given, it goes uncached", path.display()));
            return open_lower(file, out_flags);
        }
        Err(error) => {
            close_lower();
            return refuse(&error);
        }
    }
    if !out_flags.is_null() {
        // SAFETY: SQLite's pointer to the answer.
        unsafe { *out_flags = lower_flags };
    }
    ffi::OK
}

/// Methods that the lower VFS carries out.
macro_rules! lower {
    ($($method:ident($($argument:ident: $kind:ty),*) -> $answer:ty;)*) => {$(
        unsafe extern "C" fn $method(vfs: *mut Vfs, $($argument: $kind),*) -> $answer {
            // SAFETY: SQLite passes the VFS that was registered, which is the first part of a shim; the method is
            // offered only where the lower VFS has it.
            unsafe {
                let lower = (*vfs.cast::<Shim>()).lower;
                ((*lower).$method.expect("it was there when the VFS was registered"))(lower, $($argument),*)
            }
        }
    )*};
}

lower! {
    delete(name: *const c_char, sync_directory: c_int) -> c_int;
    access(name: *const c_char, flags: c_int, answer: *mut c_int) -> c_int;
    full_pathname(name: *const c_char, bytes: c_int, path: *mut c_char) -> c_int;
    dl_open(name: *const c_char) -> *mut c_void;
    dl_error(bytes: c_int, text: *mut c_char) -> ();
    dl_sym(library: *mut c_void, name: *const c_char) -> Symbol;
    dl_close(library: *mut c_void) -> ();
    randomness(bytes: c_int, to: *mut c_char) -> c_int;
    sleep(microseconds: c_int) -> c_int;
    current_time(days: *mut f64) -> c_int;
    last_error(bytes: c_int, text: *mut c_char) -> c_int;
    current_time_i64(milliseconds: *mut i64) -> c_int;
    set_system_call(name: *const c_char, call: Symbol) -> c_int;
    system_call(name: *const c_char) -> Symbol;
    next_system_call(name: *const c_char) -> *const c_char;
}
