//! The burst buffer for programs in C. `include/entresol_burst.h` is the documentation; tests compare the two, and compile and
//! run the example of docs/burst.md.

#[path = "../../capi/src/call.rs"]
mod call;
mod code;
mod error;

pub use code::Code;

use call::{Failure, Result, argument, bytes, bytes_mut, call, text};
use entresol_burst::{CheckpointId, JobId, NodeId, Object};
use entresol_burst_live::client::{Checkpoints, FileReader, FileWriter, Level, WriteBuffer};
use entresol_burst_live::names::is_name;
use std::ffi::{OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Variable of the environment that names the ticket of a program.
const TICKET: &str = "ENTRESOL_BURST_TICKET";

/// A client: `entresol_burst_client` of the header.
pub struct Client(Checkpoints);

/// A file that is written: `entresol_burst_writer` of the header.
pub struct Writer {
    file: FileWriter,
    buffer: Mutex<WriteBuffer>,
}

/// A committed file that is read: `entresol_burst_reader` of the header.
pub struct Reader {
    length: u64,
    file: Mutex<FileReader>,
}

/// The number of a level: `entresol_burst_level` of the header.
fn number(level: Level) -> u32 {
    match level {
        Level::Absorbed => 1,
        Level::Replicated => 2,
        Level::Durable => 3,
    }
}

/// The object behind a pointer.
///
/// # Safety
/// `pointer` is null or came from an opening of this library and was not closed.
unsafe fn opened<'a, T>(pointer: *const T, what: &str) -> Result<&'a T> {
    // SAFETY: as the caller promises.
    unsafe { pointer.as_ref() }.ok_or_else(|| argument(&format!("the {what} is null")))
}

/// Writes a result to memory of the caller, which must not be null.
///
/// # Safety
/// `into` is null or may be written.
unsafe fn give<T>(into: *mut T, value: T, what: &str) -> Result<()> {
    if into.is_null() {
        return Err(argument(&format!("{what} is null")));
    }
    // SAFETY: as the caller promises.
    unsafe { into.write(value) };
    Ok(())
}

/// Writes the level of an acknowledgement, if it is asked for.
///
/// # Safety
/// `into` is null or may be written.
unsafe fn give_level(into: *mut u32, level: Level) {
    if !into.is_null() {
        // SAFETY: as the caller promises.
        unsafe { into.write(number(level)) };
    }
}

/// Makes an object and gives it to the caller; null after a failure.
///
/// # Safety
/// `into` is null or may be written.
unsafe fn open<T>(into: *mut *mut T, what: &str, make: impl FnOnce() -> Result<T>) -> Result<()> {
    // SAFETY: as the caller promises.
    unsafe { give(into, std::ptr::null_mut(), what) }?;
    let made = Box::into_raw(Box::new(make()?));
    // SAFETY: as the caller promises; it is not null.
    unsafe { give(into, made, what) }
}

/// Frees an object; null is none.
///
/// # Safety
/// `pointer` is null or came from [`open`], and this is its last use.
unsafe fn close<T>(pointer: *mut T) {
    // A panic has no way to the caller here but the line of text.
    let _ = call(|| {
        if !pointer.is_null() {
            // SAFETY: the pointer came from `Box::into_raw`, and this is its last use, as the caller promises.
            drop(unsafe { Box::from_raw(pointer) });
        }
        Ok(())
    });
}

/// The name of a file.
///
/// # Safety
/// `name` is null or ends in zero.
unsafe fn name_of<'a>(name: *const c_char) -> Result<&'a OsStr> {
    // SAFETY: as the caller promises.
    let name = OsStr::from_bytes(unsafe { text(name, "name") }?.to_bytes());
    if is_name(name) { Ok(name) } else { Err(argument(&format!("{name:?} is no name of a file"))) }
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn entresol_burst_api_version() -> u32 {
    1
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn entresol_burst_last_error() -> *const c_char {
    call::last()
}

/// See the header.
///
/// # Safety
/// Texts are null or end in zero; `client` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn entresol_burst_open_client(
    coordinator: *const c_char,
    pfs: *const c_char,
    node: u32,
    ticket: *const c_char,
    client: *mut *mut Client,
) -> c_int {
    let make = || {
        let coordinator = match coordinator.is_null() {
            true => None,
            // SAFETY: as the caller promises.
            false => Some(unsafe { text(coordinator, "coordinator") }?),
        };
        let coordinator = coordinator.map(|it| it.to_str().map_err(|_| argument("coordinator is not UTF-8")));
        let coordinator = coordinator.transpose()?.map(str::to_owned);
        // SAFETY: as the caller promises.
        let pfs = Path::new(OsStr::from_bytes(unsafe { text(pfs, "pfs") }?.to_bytes()));
        let ticket = match ticket.is_null() {
            true => std::env::var_os(TICKET).filter(|path| !path.is_empty()).map(PathBuf::from),
            // SAFETY: as the caller promises.
            false => Some(PathBuf::from(OsStr::from_bytes(unsafe { text(ticket, "ticket") }?.to_bytes()))),
        };
        Ok(Client(Checkpoints::open(coordinator, Vec::new(), NodeId(node), pfs, ticket.as_deref())?))
    };
    // SAFETY: as the caller promises.
    call(|| unsafe { open(client, "client", make) })
}

/// See the header.
///
/// # Safety
/// `client` is null or open, and no other call with it is under way or follows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn entresol_burst_close_client(client: *mut Client) {
    // SAFETY: as the caller promises.
    unsafe { close(client) }
}

/// See the header.
///
/// # Safety
/// `client` is null or open; `memory` may be read for `length` bytes, or is null; `level` is null or may be written.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "a rank, its bytes and the answer")]
pub unsafe extern "C" fn entresol_burst_put(
    client: *const Client,
    job: u64,
    checkpoint: u64,
    rank: u32,
    ranks: u32,
    memory: *const c_void,
    length: usize,
    level: *mut u32,
) -> c_int {
    call(|| {
        // SAFETY: as the caller promises, for both.
        let (client, bytes) = unsafe { (opened(client, "client")?, bytes(memory, length)?) };
        let object = Object { job: JobId(job), checkpoint: CheckpointId(checkpoint), rank };
        let acknowledged = client.0.client().put(object, ranks, bytes)?;
        // SAFETY: as the caller promises.
        unsafe { give_level(level, acknowledged.level) };
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// `client` is null or open; `memory` may be written for `capacity` bytes, or is null; `length` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn entresol_burst_restore(
    client: *const Client,
    job: u64,
    checkpoint: u64,
    rank: u32,
    memory: *mut c_void,
    capacity: usize,
    length: *mut u64,
) -> c_int {
    call(|| {
        // SAFETY: as the caller promises, for both.
        let (client, into) = unsafe { (opened(client, "client")?, bytes_mut(memory, capacity)?) };
        let bytes = client.0.client().restore_into(JobId(job), CheckpointId(checkpoint), rank, into)?;
        if !length.is_null() {
            // SAFETY: as the caller promises.
            unsafe { length.write(bytes) };
        }
        match bytes > capacity as u64 {
            true => Err(Failure(Code::Short, format!("the rank has {bytes} bytes, the memory {capacity}"))),
            false => Ok(()),
        }
    })
}

/// See the header.
///
/// # Safety
/// `client` is null or open; `checkpoint` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn entresol_burst_newest(client: *const Client, job: u64, checkpoint: *mut u64) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let client = unsafe { opened(client, "client") }?;
        let newest = client.0.files(JobId(job), 1)?.newest_complete()?;
        let none = || Failure(Code::NotFound, format!("job {job} has no complete checkpoint"));
        // SAFETY: as the caller promises.
        unsafe { give(checkpoint, newest.ok_or_else(none)?.0, "checkpoint") }
    })
}

/// See the header.
///
/// # Safety
/// `client` is null or open; `name` is null or ends in zero; `writer` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn entresol_burst_open_writer(
    client: *const Client,
    job: u64,
    checkpoint: u64,
    files: u32,
    name: *const c_char,
    replace: c_int,
    writer: *mut *mut Writer,
) -> c_int {
    let make = || {
        // SAFETY: as the caller promises, for both.
        let (client, name) = unsafe { (opened(client, "client")?, name_of(name)?) };
        let files = client.0.files(JobId(job), files)?;
        let file = FileWriter::create(files, CheckpointId(checkpoint), name, replace != 0)?;
        Ok(Writer { file, buffer: Mutex::default() })
    };
    // SAFETY: as the caller promises.
    call(|| unsafe { open(writer, "writer", make) })
}

/// See the header.
///
/// # Safety
/// `writer` is null or open; `memory` may be read for `length` bytes, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn entresol_burst_write(
    writer: *const Writer,
    offset: u64,
    memory: *const c_void,
    length: usize,
) -> c_int {
    call(|| {
        // SAFETY: as the caller promises, for both.
        let (writer, bytes) = unsafe { (opened(writer, "writer")?, bytes(memory, length)?) };
        let mut buffer = writer.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(writer.file.write(&mut buffer, offset, bytes)?)
    })
}

/// See the header.
///
/// # Safety
/// `writer` is null or open; `level` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn entresol_burst_commit(writer: *const Writer, level: *mut u32) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let writer = unsafe { opened(writer, "writer") }?;
        let mut buffer = writer.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        let since = Instant::now();
        writer.file.send(&mut buffer, since)?;
        writer.file.commit(since)?;
        // SAFETY: as the caller promises.
        unsafe { give_level(level, writer.file.safety().level) };
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// `writer` is null or open, and no other call with it is under way or follows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn entresol_burst_close_writer(writer: *mut Writer) {
    // SAFETY: as the caller promises.
    unsafe { close(writer) }
}

/// See the header.
///
/// # Safety
/// `client` is null or open; `name` is null or ends in zero; `reader` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn entresol_burst_open_reader(
    client: *const Client,
    job: u64,
    checkpoint: u64,
    name: *const c_char,
    reader: *mut *mut Reader,
) -> c_int {
    let make = || {
        // SAFETY: as the caller promises, for both.
        let (client, name) = unsafe { (opened(client, "client")?, name_of(name)?) };
        // A checkpoint says itself how many files it has.
        let file = FileReader::open(client.0.files(JobId(job), 1)?, CheckpointId(checkpoint), name)?;
        Ok(Reader { length: file.length(), file: Mutex::new(file) })
    };
    // SAFETY: as the caller promises.
    call(|| unsafe { open(reader, "reader", make) })
}

/// See the header.
///
/// # Safety
/// `reader` is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn entresol_burst_length(reader: *const Reader) -> u64 {
    // SAFETY: as the caller promises.
    unsafe { opened(reader, "reader") }.map_or(0, |reader| reader.length)
}

/// See the header.
///
/// # Safety
/// `reader` is null or open; `memory` may be written for `length` bytes, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn entresol_burst_read(
    reader: *const Reader,
    offset: u64,
    memory: *mut c_void,
    length: usize,
) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let reader = unsafe { opened(reader, "reader") }?;
        if offset.checked_add(length as u64).is_none_or(|end| end > reader.length) {
            let text = format!("{length} bytes at {offset} are beyond the end at {}", reader.length);
            return Err(Failure(Code::Argument, text));
        }
        // SAFETY: as the caller promises.
        let into = unsafe { bytes_mut(memory, length) }?;
        reader.file.lock().unwrap_or_else(PoisonError::into_inner).read_into(offset, into)?;
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// `reader` is null or open, and no other call with it is under way or follows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn entresol_burst_close_reader(reader: *mut Reader) {
    // SAFETY: as the caller promises.
    unsafe { close(reader) }
}
