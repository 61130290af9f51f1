//! Sharing of a node's memory with a writer or reader on its host: it copies a piece by itself, once, where a socket copies twice and needs
//! two processes.
//!
//! A node listens at a Unix socket whose abstract name has the node's address. It answers a connection with the file of its memory
//! and a number, the share. The writer names the share as it asks for a piece to fill ([`crate::message::ToNode::Fill`]), and sends the
//! checksums when it has filled it (`Store`). Only writers of the node's user and root get its memory. A share lasts as long as its connection. The writer closes it after its last write, and the
//! system does when the process has ended; before that, space that the process may still write to gets no new owner. When the node
//! ends the writer gives up the mapping, which would keep the memory.
//!
//! A reader has a share and a mapping of its own, which it cannot write to, and asks where a piece is
//! ([`crate::message::ToNode::Locate`]). The node does not wait for readers: it may give the space to another piece while it is copied. The
//! checksum of the copy says so.

use crate::arena::spans;
use crate::checksum::Checksum;
use crate::message::ShareId;
use crate::server::lock;
use entresol_burst::Extent;
use rustix::fs::fstat;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg, sendmsg, socket_with,
};
use std::collections::BTreeMap;
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// Bytes of a part that is copied and summed while the processor's cache has it.
const BLOCK_BYTES: usize = 64 << 10;
/// Length of a part of the memory that is touched as a whole, a multiple of the length of a page.
const TOUCHED_BYTES: usize = 1 << 20;

/// The abstract name of the socket at which a node with an address shares its memory.
pub(crate) fn name(address: &str) -> Vec<u8> {
    format!("entresol-burst {address}").into_bytes()
}

/// Hands the memory of a node over.
pub(crate) fn send(stream: &UnixStream, memory: BorrowedFd, share: ShareId) -> io::Result<()> {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&share.incarnation.to_le_bytes());
    bytes[8..].copy_from_slice(&share.number.to_le_bytes());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let files = [memory];
    ancillary.push(SendAncillaryMessage::ScmRights(&files));
    match sendmsg(stream, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL)? {
        16 => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// Receives the memory of a node.
fn receive(stream: &UnixStream) -> io::Result<(OwnedFd, ShareId)> {
    let mut bytes = [0; 16];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(stream, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?.bytes;
    let mut files = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let file = files.next().and_then(|mut files| files.next());
    let file = file.filter(|_| received == bytes.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = bytes;
    let incarnation = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
    let number = u64::from_le_bytes([i, j, k, l, m, n, o, p]);
    Ok((file, ShareId { incarnation, number }))
}

/// The memory of a node on this host, mapped by a writer or reader.
pub(crate) struct Share {
    stream: UnixStream,
    base: *mut u8,
    bytes: usize,
    access: Access,
    /// Parts of [`TOUCHED_BYTES`] that are in the page table.
    touched: Vec<AtomicBool>,
    pub id: ShareId,
}

/// Use of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

impl Access {
    fn protection(self) -> ProtFlags {
        match self {
            Access::Read => ProtFlags::READ,
            Access::Write => ProtFlags::READ | ProtFlags::WRITE,
        }
    }

    fn advice(self) -> Advice {
        match self {
            Access::Read => Advice::LinuxPopulateRead,
            Access::Write => Advice::LinuxPopulateWrite,
        }
    }
}

// SAFETY: the mapping is memory of another process, used through raw pointers alone.
unsafe impl Send for Share {}
// SAFETY: as above; two threads never have the same piece.
unsafe impl Sync for Share {}

impl Share {
    /// Asks the node at an address on this host for its memory. A node that does not answer within a time has none to share.
    pub fn open(address: &str, within: Duration, access: Access) -> io::Result<Share> {
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
        // A node that is stopped has a full queue some time: the call fails then, and does not wait.
        connect(&socket, &SocketAddrUnix::new_abstract_name(&name(address))?)?;
        let stream = UnixStream::from(socket);
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(within.max(Duration::from_millis(1))))?;
        let (memory, id) = receive(&stream)?;
        stream.set_read_timeout(None)?;
        Share::map(stream, &memory, id, access)
    }

    fn map(stream: UnixStream, memory: &OwnedFd, id: ShareId, access: Access) -> io::Result<Share> {
        let bytes = usize::try_from(fstat(memory)?.st_size).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let (protection, flags) = (access.protection(), MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe { mmap(std::ptr::null_mut(), bytes, protection, flags, memory, 0)? };
        let touched = (0..bytes.div_ceil(TOUCHED_BYTES)).map(|_| AtomicBool::new(false)).collect();
        Ok(Share { stream, base: base.cast(), bytes, access, touched, id })
    }

    /// Has the pages of a piece in the page table, which is faster for many than a fault for each.
    pub fn touch(&self, extents: &[Extent]) -> io::Result<()> {
        for extent in extents.iter().filter(|extent| extent.bytes > 0) {
            let first = extent.offset as usize / TOUCHED_BYTES;
            let last = (extent.end() - 1) as usize / TOUCHED_BYTES;
            for part in first..=last {
                let touched = self.touched.get(part).ok_or(io::ErrorKind::InvalidInput)?;
                if touched.swap(true, Ordering::Relaxed) {
                    continue;
                }
                let offset = part * TOUCHED_BYTES;
                let length = TOUCHED_BYTES.min(self.bytes - offset);
                let span = self.span(offset, length)?;
                // SAFETY: the pages are part of the mapping, and no byte of them changes.
                match unsafe { madvise(span.cast(), length, self.access.advice()) } {
                    // Kernels before 5.14 have each page touched as it is used.
                    Ok(()) | Err(Errno::INVAL) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    fn span(&self, offset: usize, length: usize) -> io::Result<*mut u8> {
        let end = offset.checked_add(length).filter(|&end| end <= self.bytes);
        end.ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: the offset is within the mapping.
        Ok(unsafe { self.base.add(offset) })
    }

    /// Copies bytes of a piece, from byte `at` of it on, and returns the checksum of the copy. It has to be compared: the piece may be
    /// another one by now.
    pub fn read(&self, extents: &[Extent], at: u64, mut into: &mut [u8]) -> io::Result<u32> {
        let mut of_copy = Checksum::new();
        for (offset, length) in spans(extents, at, into.len() as u64)? {
            let (part, rest) = into.split_at_mut(length);
            for (number, block) in part.chunks_mut(BLOCK_BYTES).enumerate() {
                let span = self.span(offset + number * BLOCK_BYTES, block.len())?;
                // SAFETY: the span is within the mapping, which nothing of this process writes to or refers to. Another process may write to
                // it meanwhile; the bytes are of any value then.
                unsafe { span.copy_to_nonoverlapping(block.as_mut_ptr(), block.len()) };
                of_copy.add(block);
            }
            into = rest;
        }
        Ok(of_copy.finish())
    }

    /// Copies a chunk to byte `at` of a piece that the node lets this process fill, and returns its checksum. The copy was compared.
    pub fn copy(&self, extents: &[Extent], at: u64, mut chunk: &[u8]) -> io::Result<u32> {
        if self.access != Access::Write {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let (mut of_chunk, mut of_copy) = (Checksum::new(), Checksum::new());
        for (offset, length) in spans(extents, at, chunk.len() as u64)? {
            let (part, rest) = chunk.split_at(length);
            for (number, block) in part.chunks(BLOCK_BYTES).enumerate() {
                let span = self.span(offset + number * BLOCK_BYTES, block.len())?;
                of_chunk.add(block);
                // SAFETY: the span is within the mapping and of a piece that no other thread or process writes to, since the node has
                // granted it to this one. It is no memory of this process's objects.
                unsafe { span.copy_from_nonoverlapping(block.as_ptr(), block.len()) };
                // SAFETY: as above.
                of_copy.add(unsafe { std::slice::from_raw_parts(span, block.len()) });
            }
            chunk = rest;
        }
        let crc = of_chunk.finish();
        match crc == of_copy.finish() {
            true => Ok(crc),
            false => Err(io::Error::new(io::ErrorKind::InvalidData, "bytes have changed as they were copied")),
        }
    }
}

impl Drop for Share {
    /// Gives up the mapping first: the node gives the space to others when the connection is closed.
    fn drop(&mut self) {
        // SAFETY: the mapping is this object's, and nothing borrows from it any more. It stays in use if it cannot be unmapped.
        if unsafe { munmap(self.base.cast(), self.bytes) }.is_ok() {
            let _ = self.stream.shutdown(Shutdown::Both);
        }
    }
}

/// The shares of a writer or reader, by the addresses of nodes on this host.
pub(crate) struct Shares {
    access: Access,
    /// None: the memory at this name is of another node than the one that answers at the address.
    open: Mutex<BTreeMap<String, Option<Arc<Share>>>>,
}

impl Shares {
    pub fn new(access: Access) -> Shares {
        Shares { access, open: Mutex::default() }
    }

    /// The memory of the node at an address, if it is on this host and shares it.
    pub fn get(self: &Arc<Self>, address: &str, within: Duration) -> Option<Arc<Share>> {
        if let Some(known) = lock(&self.open).get(address) {
            return known.clone();
        }
        let share = Arc::new(Share::open(address, within, self.access).ok()?);
        watch(&share, address, Arc::downgrade(self)).ok()?;
        lock(&self.open).insert(address.to_owned(), Some(Arc::clone(&share)));
        Some(share)
    }

    /// True if the memory of the node at an address is mapped.
    #[cfg(test)]
    pub fn has(&self, address: &str) -> bool {
        lock(&self.open).get(address).is_some_and(Option::is_some)
    }

    /// Closes a share as soon as no thread uses it.
    pub fn close(&self, address: &str, id: ShareId) {
        let mut open = lock(&self.open);
        if open.get(address).is_some_and(|share| share.as_ref().is_some_and(|share| share.id == id)) {
            open.remove(address);
        }
    }

    /// Notes that the node at an address is not the one that shares its memory under this name.
    pub fn avoid(&self, address: &str) {
        lock(&self.open).insert(address.to_owned(), None);
    }
}

/// Closes a share when its node ends: the mapping would keep the node's memory.
fn watch(share: &Share, address: &str, shares: Weak<Shares>) -> io::Result<()> {
    let (mut stream, id, address) = (share.stream.try_clone()?, share.id, address.to_owned());
    let work = move || {
        // The node sends nothing more.
        let _ended = stream.read(&mut [0]);
        if let Some(shares) = shares.upgrade() {
            shares.close(&address, id);
        }
    };
    std::thread::Builder::new().name("share".to_owned()).spawn(work).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_beyond_the_memory_are_refused() {
        let arena = crate::arena::Arena::new(4096).expect("memory");
        let (stream, other) = UnixStream::pair().expect("a pair");
        send(&other, arena.memory(), ShareId { incarnation: 1, number: 2 }).expect("sent");
        let (memory, id) = receive(&stream).expect("received");
        assert_eq!(id, ShareId { incarnation: 1, number: 2 });
        let share = Share::map(stream, &memory, id, Access::Write).expect("memory");
        let extents = |offset, bytes| [Extent { offset, bytes }];
        share.touch(&extents(4000, 96)).expect("within");
        assert_eq!(share.copy(&extents(4000, 96), 0, &[7; 96]).expect("within"), crate::checksum::crc32c(&[7; 96]));
        assert_eq!(arena.read(&extents(4000, 96), 0, 96).expect("bytes"), [7; 96]);
        assert!(share.copy(&extents(4000, 97), 0, &[7; 97]).is_err());
        assert!(share.copy(&extents(u64::MAX, 97), 0, &[7; 97]).is_err());
        assert!(share.touch(&extents(1 << 30, 1)).is_err());
        let (stream, _other) = UnixStream::pair().expect("a pair");
        let reader = Share::map(stream, &memory, id, Access::Read).expect("memory");
        reader.touch(&extents(4000, 96)).expect("within");
        let mut into = [0; 96];
        assert_eq!(reader.read(&extents(4000, 96), 0, &mut into).expect("within"), crate::checksum::crc32c(&[7; 96]));
        assert_eq!(into, [7; 96]);
        assert!(reader.read(&extents(4001, 95), 0, &mut into).is_err());
        assert!(reader.read(&extents(4001, 96), 0, &mut into).is_err());
        assert!(reader.copy(&extents(4000, 96), 0, &[8; 96]).is_err());
    }
}
