//! Tests of the answers of each function, called as C would: null pointers, and what is wrong without a burst buffer.

use entresol_burst_capi::{
    Client, Code, Writer, entresol_burst_close_client, entresol_burst_close_reader, entresol_burst_close_writer,
    entresol_burst_commit, entresol_burst_last_error, entresol_burst_length, entresol_burst_newest,
    entresol_burst_open_client, entresol_burst_open_reader, entresol_burst_open_writer, entresol_burst_put,
    entresol_burst_read, entresol_burst_restore, entresol_burst_write,
};
use std::ffi::{CStr, CString, c_int};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::ptr::{null, null_mut};

const MIB: usize = 1 << 20;

fn text(path: &Path) -> CString {
    CString::new(path.to_str().expect("text")).expect("no zero")
}

fn last() -> String {
    // SAFETY: the pointer is a text, valid until the next failure of this thread.
    unsafe { CStr::from_ptr(entresol_burst_last_error()) }.to_str().expect("text").to_owned()
}

#[track_caller]
fn is(code: Code, answer: c_int, says: &str) {
    assert_eq!(answer, code as c_int, "{}", last());
    if code != Code::Ok {
        assert!(last().contains(says), "'{says}' is not in: {}", last());
    }
}

fn open(coordinator: Option<&CStr>, pfs: &Path, ticket: Option<&Path>) -> (c_int, *mut Client) {
    let (pfs, ticket) = (text(pfs), ticket.map(text));
    let coordinator = coordinator.map_or(null(), CStr::as_ptr);
    let ticket = ticket.as_ref().map_or(null(), |ticket| ticket.as_ptr());
    let mut client = null_mut();
    // SAFETY: texts are valid, and the client may be written.
    let code = unsafe { entresol_burst_open_client(coordinator, pfs.as_ptr(), 0, ticket, &mut client) };
    (code, client)
}

/// A client without a coordinator, and its directory.
fn alone() -> (tempfile::TempDir, *mut Client) {
    let pfs = tempfile::tempdir().expect("a directory");
    let (code, client) = open(None, pfs.path(), None);
    is(Code::Ok, code, "");
    (pfs, client)
}

fn put(client: *const Client, bytes: &[u8]) -> (c_int, u32) {
    let mut level = 0;
    // SAFETY: the client is open or null, the bytes are valid.
    let code = unsafe { entresol_burst_put(client, 1, 1, 0, 1, bytes.as_ptr().cast(), bytes.len(), &mut level) };
    (code, level)
}

fn restore(client: *const Client, capacity: usize) -> (c_int, Vec<u8>) {
    let (mut bytes, mut length) = (vec![0; capacity], 0);
    // SAFETY: the client is open, the memory is valid.
    let code = unsafe { entresol_burst_restore(client, 1, 1, 0, bytes.as_mut_ptr().cast(), bytes.len(), &mut length) };
    bytes.truncate(length as usize);
    (code, bytes)
}

#[test]
fn null_pointers_are_refused() {
    let (_pfs, client) = alone();
    let (name, mut writer, mut reader) = (c"state".as_ptr(), null_mut(), null_mut());
    let refused = |answer, says: &str| is(Code::Argument, answer, says);
    // SAFETY: pointers are null or valid.
    unsafe {
        refused(entresol_burst_open_client(null(), c"/".as_ptr(), 0, null(), null_mut()), "client is null");
        let mut none = null_mut();
        refused(entresol_burst_open_client(null(), null(), 0, null(), &mut none), "pfs is null");
        refused(entresol_burst_open_client(c"\xFF".as_ptr(), c"/".as_ptr(), 0, null(), &mut none), "not UTF-8");
        assert!(none.is_null());
        refused(entresol_burst_newest(null(), 1, &mut 0), "the client is null");
        refused(entresol_burst_put(null(), 1, 1, 0, 1, name.cast(), 1, null_mut()), "the client is null");
        refused(entresol_burst_put(client, 1, 1, 0, 1, null(), 1, null_mut()), "bytes is null");
        refused(entresol_burst_put(client, 1, 1, 0, 1, name.cast(), usize::MAX, null_mut()), "length");
        refused(entresol_burst_restore(null(), 1, 1, 0, null_mut(), 0, null_mut()), "the client is null");
        refused(entresol_burst_restore(client, 1, 1, 0, null_mut(), 1, null_mut()), "bytes is null");
        refused(entresol_burst_open_writer(null(), 1, 1, 1, name, 0, &mut writer), "the client is null");
        refused(entresol_burst_open_writer(client, 1, 1, 1, null(), 0, &mut writer), "name is null");
        refused(entresol_burst_open_writer(client, 1, 1, 1, name, 0, null_mut()), "writer is null");
        refused(entresol_burst_write(null(), 0, null(), 0), "the writer is null");
        refused(entresol_burst_commit(null(), null_mut()), "the writer is null");
        refused(entresol_burst_open_reader(null(), 1, 1, name, &mut reader), "the client is null");
        refused(entresol_burst_open_reader(client, 1, 1, null(), &mut reader), "name is null");
        refused(entresol_burst_open_reader(client, 1, 1, name, null_mut()), "reader is null");
        refused(entresol_burst_read(null(), 0, null_mut(), 0), "the reader is null");
        assert_eq!(entresol_burst_length(null()), 0);

        is(Code::Ok, entresol_burst_open_writer(client, 1, 1, 1, name, 0, &mut writer), "");
        refused(entresol_burst_write(writer, 0, null(), 1), "bytes is null");
        refused(entresol_burst_write(writer, u64::MAX, name.cast(), 1), "beyond the largest offset");
        is(Code::Ok, entresol_burst_write(writer, 0, name.cast(), 5), "");
        is(Code::Ok, entresol_burst_commit(writer, null_mut()), "");
        refused(entresol_burst_newest(client, 1, null_mut()), "checkpoint is null");
        entresol_burst_close_writer(null_mut());
        entresol_burst_close_reader(null_mut());
        entresol_burst_close_client(null_mut());
        entresol_burst_close_writer(writer);
        entresol_burst_close_client(client);
    }
    let other = std::thread::spawn(last).join().expect("no panic");
    assert_eq!(other, "", "each thread has its own line");
}

#[test]
fn clients_of_what_is_not_there_are_refused() {
    let scratch = tempfile::tempdir().expect("a directory");
    let path = |name: &str| scratch.path().join(name);
    std::fs::write(path("file"), "no ticket").expect("a file");
    let refused = |code, (answer, client): (c_int, *mut Client), says: &str| {
        is(code, answer, says);
        assert!(client.is_null());
    };
    refused(Code::NotFound, open(None, &path("absent"), None), "the PFS: No such file");
    refused(Code::Argument, open(None, &path("file"), None), "not a directory");
    refused(Code::NotFound, open(None, scratch.path(), Some(&path("absent"))), "absent: No such file");
    refused(Code::Io, open(None, scratch.path(), Some(&path("file"))), "others may use it");
    std::fs::set_permissions(path("file"), PermissionsExt::from_mode(0o600)).expect("a mode");
    refused(Code::Argument, open(None, scratch.path(), Some(&path("file"))), "file: ");

    // Nobody listens at port 1.
    let (code, client) = open(Some(c"127.0.0.1:1"), scratch.path(), None);
    is(Code::Ok, code, "");
    let mut newest = 0;
    // SAFETY: the client is open until it is closed.
    unsafe {
        is(Code::Unavailable, entresol_burst_newest(client, 1, &mut newest), "a newer checkpoint may be missed");
        entresol_burst_close_client(client);
    }
}

#[test]
fn without_a_coordinator_bytes_are_durable_and_damage_is_found() {
    let (pfs, client) = alone();
    let bytes: Vec<u8> = (0..3 * MIB).map(|at| (at >> 9) as u8).collect();
    assert_eq!(put(client, &bytes), (Code::Ok as c_int, 3));
    assert_eq!(restore(client, 4 * MIB), (Code::Ok as c_int, bytes));
    let folder = std::fs::read_dir(pfs.path().join("job-1/checkpoint-1")).expect("a folder");
    let mut parts = folder.map(|entry| entry.expect("an entry").path()).filter(|path| path.extension().is_none());
    let part = parts.next().expect("the part");
    let mut damaged = std::fs::read(&part).expect("the part");
    damaged[2 * MIB] ^= 1;
    std::fs::write(&part, damaged).expect("a write");
    is(Code::Damaged, restore(client, 4 * MIB).0, "bytes from 2097152 on are damaged or missing");

    pfs.close().expect("the directory is removed");
    is(Code::NotStored, put(client, b"bytes").0, "not stored");
    // SAFETY: the client is open, and not used after this.
    unsafe { entresol_burst_close_client(client) };
}

#[test]
fn threads_share_a_client_and_a_writer() {
    struct Shared(*const Client, *mut Writer);
    // SAFETY: the header allows it.
    unsafe impl Sync for Shared {}
    const RANGE: usize = 100_000;
    let (_pfs, client) = alone();
    let (mut writer, name) = (null_mut(), c"state".as_ptr());
    // SAFETY: the client is open, texts are valid.
    is(Code::Ok, unsafe { entresol_burst_open_writer(client, 1, 1, 1, name, 0, &mut writer) }, "");
    let shared = Shared(client, writer);
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let shared = &shared;
            scope.spawn(move || {
                for range in (usize::from(thread)..20).step_by(4) {
                    let bytes = [range as u8; RANGE];
                    // SAFETY: the writer is open, the bytes are valid.
                    let code =
                        unsafe { entresol_burst_write(shared.1, (range * RANGE) as u64, bytes.as_ptr().cast(), RANGE) };
                    is(Code::Ok, code, "");
                }
                let mut other = null_mut();
                let name = CString::new(format!("{thread}")).expect("no zero");
                // SAFETY: the client is open, texts are valid; the writer is closed once.
                unsafe {
                    let open = entresol_burst_open_writer(shared.0, 1, 2, 4, name.as_ptr(), 0, &mut other);
                    is(Code::Ok, open, "");
                    is(Code::Ok, entresol_burst_commit(other, null_mut()), "");
                    entresol_burst_close_writer(other);
                }
            });
        }
    });
    let mut reader = null_mut();
    let mut bytes = vec![99; 20 * RANGE];
    // SAFETY: pointers are valid, and each is closed once, after its last use.
    unsafe {
        is(Code::Ok, entresol_burst_commit(writer, null_mut()), "");
        entresol_burst_close_writer(writer);
        is(Code::Ok, entresol_burst_open_reader(client, 1, 1, name, &mut reader), "");
        is(Code::Ok, entresol_burst_read(reader, 0, bytes.as_mut_ptr().cast(), bytes.len()), "");
        entresol_burst_close_reader(reader);
        let mut newest = 0;
        is(Code::Ok, entresol_burst_newest(client, 1, &mut newest), "");
        assert_eq!(newest, 2);
        entresol_burst_close_client(client);
    }
    assert!((0..20 * RANGE).all(|at| bytes[at] == (at / RANGE) as u8), "other bytes are read");
}
