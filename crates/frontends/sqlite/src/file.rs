//! An open main database in SQLite's terms: bytes go through the cache, locks and shared memory to the lower VFS.

use crate::api::Api;
use crate::ffi::{self, File, IoMethods};
use crate::pragma;
use crate::registry::Handle;
use crate::{error::io_code, shared::Shared};
use std::ffi::{c_char, c_int, c_void};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// File object of a main database, in memory that SQLite allocates: this object, then the file of the lower VFS. SQLite
/// aligns both to only 8 bytes.
#[repr(C)]
pub(crate) struct CachedFile {
    base: File,
    api: Api,
    /// Taken when the file is closed.
    handle: Option<Handle>,
}

/// Offset, in bytes, of the lower VFS's file.
pub(crate) const LOWER_AT: usize = size_of::<CachedFile>();
const _: () = assert!(align_of::<CachedFile>() <= 8 && LOWER_AT.is_multiple_of(8));

impl CachedFile {
    /// Makes a file object in the memory at `file`; its lower file is open.
    ///
    /// # Safety
    /// `file` must point to memory of at least [`LOWER_AT`] bytes, aligned for this type, and a lower file after them.
    pub unsafe fn place(file: *mut File, api: Api, handle: Handle) {
        let this = CachedFile { base: File { methods: &METHODS }, api, handle: Some(handle) };
        // SAFETY: the caller vouches for the memory.
        unsafe { file.cast::<CachedFile>().write(this) }
    }

    fn shared(&self) -> &Shared {
        &self.handle.as_ref().expect("SQLite does not use a file that it has closed").shared
    }

    /// Runs an action on the cache; logs an error and returns SQLite's code for it. A panic must not unwind into C.
    fn guard<T>(&self, what: &str, code: c_int, action: impl FnOnce(&Shared) -> io::Result<T>) -> Result<T, c_int> {
        let error = match catch_unwind(AssertUnwindSafe(|| action(self.shared()))) {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => error,
            Err(_) => io::Error::other("a fault of the cache's own"),
        };
        let code = io_code(&error, code);
        self.api.log(code, &format!("entresol: {what}: {error}"));
        Err(code)
    }
}

/// The lower VFS's file.
///
/// # Safety
/// `file` must be one that [`CachedFile::place`] has made.
unsafe fn lower(file: *mut File) -> *mut File {
    // SAFETY: the lower file follows in the same allocation.
    unsafe { file.cast::<u8>().add(LOWER_AT).cast() }
}

/// # Safety
/// As [`lower`].
unsafe fn this<'a>(file: *mut File) -> &'a CachedFile {
    // SAFETY: SQLite passes files that `place` has made, and closes them last.
    unsafe { &*file.cast::<CachedFile>() }
}

/// Calls a method of the lower file.
macro_rules! lower {
    ($file:expr, $method:ident $(, $argument:expr)*) => {{
        // SAFETY: the lower file is open as long as this one, and its methods have the types of `IoMethods`.
        unsafe {
            let lower = lower($file);
            ((*(*lower).methods).$method.expect("a VFS with shared memory has every method up to it"))(lower $(, $argument)*)
        }
    }};
}

unsafe extern "C" fn close(file: *mut File) -> c_int {
    // SAFETY: a file that is being closed has no other user.
    let this = unsafe { &mut *file.cast::<CachedFile>() };
    let handle = this.handle.take().expect("a file is closed once");
    let api = this.api;
    let mut below = ffi::OK;
    let closed = catch_unwind(AssertUnwindSafe(|| handle.close(|| below = lower!(file, close))));
    let closed = closed.unwrap_or_else(|_| Err(io::Error::other("a fault of the cache's own")));
    // SAFETY: the memory is SQLite's; it holds no value that needs a drop.
    unsafe { (*file).methods = std::ptr::null() };
    match closed {
        Ok(unkept) => {
            if let Some(error) = unkept {
                let said = "what the policy has learned is not kept, and it learns anew at the next start";
                api.log(ffi::NOTICE, &format!("entresol: {said}: {error}"));
            }
            below
        }
        Err(error) => {
            api.log(ffi::IOERR_CLOSE, &format!("entresol: closing the cache: {error}"));
            ffi::IOERR_CLOSE
        }
    }
}

unsafe extern "C" fn read(file: *mut File, bytes: *mut c_void, len: c_int, offset: i64) -> c_int {
    // SAFETY: SQLite's buffer has this length.
    let bytes = unsafe { std::slice::from_raw_parts_mut(bytes.cast::<u8>(), len as usize) };
    // SAFETY: an open file.
    match unsafe { this(file) }.guard("reading", ffi::IOERR_READ, |shared| shared.read(offset as u64, bytes)) {
        Ok(true) => ffi::OK,
        Ok(false) => ffi::IOERR_SHORT_READ,
        Err(code) => code,
    }
}

unsafe extern "C" fn write(file: *mut File, bytes: *const c_void, len: c_int, offset: i64) -> c_int {
    // SAFETY: SQLite's buffer has this length.
    let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), len as usize) };
    // SAFETY: an open file.
    let written = unsafe { this(file) }.guard("writing", ffi::IOERR_WRITE, |shared| shared.write(offset as u64, bytes));
    written.map_or_else(|code| code, |()| ffi::OK)
}

unsafe extern "C" fn truncate(file: *mut File, bytes: i64) -> c_int {
    // SAFETY: an open file.
    let this = unsafe { this(file) };
    let done = this.guard("changing the size", ffi::IOERR_TRUNCATE, |shared| shared.truncate(bytes as u64));
    done.map_or_else(|code| code, |()| ffi::OK)
}

unsafe extern "C" fn sync(file: *mut File, _flags: c_int) -> c_int {
    // SAFETY: an open file.
    let done = unsafe { this(file) }.guard("syncing", ffi::IOERR_FSYNC, Shared::sync);
    done.map_or_else(|code| code, |()| ffi::OK)
}

unsafe extern "C" fn file_size(file: *mut File, bytes: *mut i64) -> c_int {
    // SAFETY: an open file.
    match unsafe { this(file) }.guard("asking the size", ffi::IOERR_FSTAT, |shared| Ok(shared.len())) {
        Ok(len) => {
            // SAFETY: SQLite's pointer to the answer.
            unsafe { *bytes = len as i64 };
            ffi::OK
        }
        Err(code) => code,
    }
}

unsafe extern "C" fn lock(file: *mut File, level: c_int) -> c_int {
    lower!(file, lock, level)
}

unsafe extern "C" fn unlock(file: *mut File, level: c_int) -> c_int {
    lower!(file, unlock, level)
}

unsafe extern "C" fn check_reserved_lock(file: *mut File, answer: *mut c_int) -> c_int {
    lower!(file, check_reserved_lock, answer)
}

unsafe extern "C" fn file_control(file: *mut File, operation: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: an open file.
    let CachedFile { api, .. } = unsafe { this(file) };
    match operation {
        ffi::FCNTL_PRAGMA => {
            // SAFETY: the argument of this operation is an array of result, name and value.
            let asked = unsafe { pragma::Asked::new(argument.cast::<*mut c_char>()) };
            // SAFETY: an open file.
            let answer = unsafe { this(file) }.guard("a pragma", ffi::ERROR, |shared| asked.answer(shared));
            match answer {
                Ok(Some(text)) => {
                    // SAFETY: as above; SQLite frees the text.
                    unsafe { *argument.cast::<*mut c_char>() = api.copy(&text) };
                    ffi::OK
                }
                Ok(None) => lower!(file, file_control, operation, argument),
                Err(code) => code,
            }
        }
        ffi::FCNTL_VFSNAME => {
            let name = argument.cast::<*mut c_char>();
            // SAFETY: the argument of this operation is a pointer to a text, which SQLite frees.
            unsafe { *name = std::ptr::null_mut() };
            lower!(file, file_control, operation, argument);
            // SAFETY: as above; the lower file hands the text over.
            unsafe { *name = api.prefixed("entresol/", *name) };
            ffi::OK
        }
        // Ignored, because the file grows when it is written: space reserved now would count as part of the database.
        ffi::FCNTL_SIZE_HINT => ffi::OK,
        ffi::FCNTL_LOCKSTATE
        | ffi::FCNTL_LAST_ERRNO
        | ffi::FCNTL_PERSIST_WAL
        | ffi::FCNTL_POWERSAFE_OVERWRITE
        | ffi::FCNTL_TEMPFILENAME
        | ffi::FCNTL_HAS_MOVED
        | ffi::FCNTL_LOCK_TIMEOUT
        | ffi::FCNTL_EXTERNAL_READER => lower!(file, file_control, operation, argument),
        // Other operations would bypass the cache: memory maps, chunks, atomic batches.
        _ => ffi::NOTFOUND,
    }
}

unsafe extern "C" fn sector_size(file: *mut File) -> c_int {
    lower!(file, sector_size)
}

/// A page of the cache is replaced whole or not at all, so bytes beside those of a write are as safe as in the lower
/// file. Writes of several pages are not atomic, and become durable in any order.
unsafe extern "C" fn device_characteristics(file: *mut File) -> c_int {
    lower!(file, device_characteristics) & (ffi::IOCAP_POWERSAFE_OVERWRITE | ffi::IOCAP_UNDELETABLE_WHEN_OPEN)
}

unsafe extern "C" fn shm_map(
    file: *mut File,
    region: c_int,
    bytes: c_int,
    extend: c_int,
    at: *mut *mut c_void,
) -> c_int {
    lower!(file, shm_map, region, bytes, extend, at)
}

unsafe extern "C" fn shm_lock(file: *mut File, offset: c_int, n: c_int, flags: c_int) -> c_int {
    lower!(file, shm_lock, offset, n, flags)
}

unsafe extern "C" fn shm_barrier(file: *mut File) {
    lower!(file, shm_barrier);
}

unsafe extern "C" fn shm_unmap(file: *mut File, delete: c_int) -> c_int {
    lower!(file, shm_unmap, delete)
}

/// Version 2 has no `fetch`, so SQLite does not map the file, which would bypass the cache.
static METHODS: IoMethods = IoMethods {
    version: 2,
    close: Some(close),
    read: Some(read),
    write: Some(write),
    truncate: Some(truncate),
    sync: Some(sync),
    file_size: Some(file_size),
    lock: Some(lock),
    unlock: Some(unlock),
    check_reserved_lock: Some(check_reserved_lock),
    file_control: Some(file_control),
    sector_size: Some(sector_size),
    device_characteristics: Some(device_characteristics),
    shm_map: Some(shm_map),
    shm_lock: Some(shm_lock),
    shm_barrier: Some(shm_barrier),
    shm_unmap: Some(shm_unmap),
    fetch: None,
    unfetch: None,
};
