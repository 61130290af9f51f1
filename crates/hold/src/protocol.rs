//! Messages between a server and its holder.
//!
//! The socket is one of packets (SOCK_SEQPACKET): a message is one packet, and begins with a letter. Numbers are little
//! endian. A server has one question at a time without an answer, so that the holder never waits to send.
//!
//! | from the server | rest of the message | answer |
//! |:--|:--|:--|
//! | `H` hello | version of the protocol, 1 byte | `h` |
//! | `L` list of what is kept | how many to pass by, 4 bytes | `l` |
//! | `K` keep | name, 1 to 64 bytes of UTF-8; with it one descriptor | `k` |
//! | `F` forget | name | `k` |
//! | `Y` standby is ready | | `g`, when the server before is gone |
//! | `R` ready, `B` beat | | none |
//! | `S` stopping | `D`, 1 byte, if nothing is left to do; else empty | none |
//! | `U` upgrade | with it at most one descriptor: a socket that gets the outcome as a line of text | none |
//!
//! | from the holder | rest of the message |
//! |:--|:--|
//! | `h` hello, `g` go | version of the protocol, 1 byte; [`Reason`], 1 byte: `F`, `C`, `H` or `U`; crashes, hangs, upgrades and since when nobody serves, 8 bytes each |
//! | `l` list | up to 253 times: bytes of the name, 1 byte; name. With it their descriptors, in this order. Nothing after the last |
//! | `k` done | error number of the system, 4 bytes; 0 for none. Also the answer to an `L` that is refused |
//!
//! The holder answers `K` and `F` when it has done so. It refuses `K`, `F` and `L` of a standby with EPERM, and passes by
//! every message that it does not know. A server ends the conversation if the versions differ.

use rustix::cmsg_space;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Version of the protocol.
pub const VERSION: u8 = 1;
/// Outcome of an upgrade that was done; any other line of text says why there is none.
pub const UPGRADED: &str = "the upgrade is done";
/// Longest name of a kept descriptor, in bytes.
pub const NAME_BYTES_MAX: usize = 64;
/// Most descriptors in a message, which is the kernel's limit (SCM_MAX_FD).
pub const DESCRIPTORS_MAX: usize = 253;
const BYTES_MAX: usize = 1 + DESCRIPTORS_MAX * (1 + NAME_BYTES_MAX);

/// Reason why a server was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    /// It is the first server of this holder.
    First = b'F',
    /// The one before crashed, or ended otherwise without a word.
    Crash = b'C',
    /// The one before gave no sign of life, and was killed.
    Hang = b'H',
    /// It is to take the place of the one before.
    Upgrade = b'U',
}

/// Start of a server: its reason, and how often each reason was one up to this start, itself included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The reason for this start.
    pub reason: Reason,
    /// Servers that ended without a word.
    pub crashes: u64,
    /// Servers that were killed because they gave no sign of life.
    pub hangs: u64,
    /// Servers that were replaced by one of the program as it was on disk then.
    pub upgrades: u64,
    /// Nanoseconds of `CLOCK_MONOTONIC` since which nobody serves: the end of the last server that was ready, or the
    /// last sign of life of one that hung. 0 for the first server.
    pub since_ns: u64,
}

impl Start {
    /// The message that begins with `letter`.
    pub fn encode(&self, letter: u8) -> Vec<u8> {
        let counts = [self.crashes, self.hangs, self.upgrades, self.since_ns].map(u64::to_le_bytes);
        [&[letter, VERSION, self.reason as u8][..], counts.as_flattened()].concat()
    }

    /// The start in a message, without its letter and version.
    pub fn decode(rest: &[u8]) -> Option<Start> {
        let (reason, counts) = rest.split_first()?;
        let reasons = [Reason::First, Reason::Crash, Reason::Hang, Reason::Upgrade];
        let reason = reasons.into_iter().find(|known| *known as u8 == *reason)?;
        let (counts, []) = counts.as_chunks::<8>() else { return None };
        let &[crashes, hangs, upgrades, since_ns] = counts else { return None };
        let [crashes, hangs, upgrades, since_ns] = [crashes, hangs, upgrades, since_ns].map(u64::from_le_bytes);
        Some(Start { reason, crashes, hangs, upgrades, since_ns })
    }
}

/// A message that was received.
pub struct Message {
    /// Its bytes; there is one at least.
    pub bytes: Vec<u8>,
    /// Its descriptors, which programs that are executed do not inherit.
    pub descriptors: Vec<OwnedFd>,
    /// True if this process may not open as many descriptors as the message had.
    pub is_cut: bool,
}

/// Sends a message.
///
/// # Errors
/// Errors of the system: EPIPE when the other end is gone, EAGAIN if it would have to wait and may not.
pub fn send(socket: BorrowedFd, bytes: &[u8], descriptors: &[BorrowedFd], may_wait: bool) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::MSGSIZE.into());
    }
    let flags = if may_wait { SendFlags::NOSIGNAL } else { SendFlags::NOSIGNAL | SendFlags::DONTWAIT };
    retry_on_intr(|| sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags))?;
    Ok(())
}

/// Receives a message; `None` when the other end is gone and all that it sent was received.
///
/// # Errors
/// Errors of the system: EAGAIN if there is no message and it may not wait for one.
pub fn receive(socket: BorrowedFd, may_wait: bool) -> io::Result<Option<Message>> {
    let mut bytes = vec![0; BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = if may_wait { RecvFlags::CMSG_CLOEXEC } else { RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT };
    let received = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
            // The other end left a message unread when it ended. The kernel says so once, before what it sent.
            Err(Errno::INTR | Errno::CONNRESET) => {}
            received => break received?,
        }
    };
    if received.bytes == 0 {
        return Ok(None);
    }
    bytes.truncate(received.bytes);
    let rights = |part| if let RecvAncillaryMessage::ScmRights(some) = part { Some(some) } else { None };
    let descriptors = control.drain().filter_map(rights).flatten().collect();
    Ok(Some(Message { bytes, descriptors, is_cut: received.flags.contains(ReturnFlags::CTRUNC) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_read_as_it_was_written() {
        for reason in [Reason::First, Reason::Crash, Reason::Hang, Reason::Upgrade] {
            let start = Start { reason, crashes: 1, hangs: 1 << 40, upgrades: u64::MAX, since_ns: 7 };
            let bytes = start.encode(b'h');
            assert_eq!((bytes.len(), &bytes[..2]), (35, &[b'h', VERSION][..]));
            assert_eq!(Start::decode(&bytes[2..]), Some(start));
            assert_eq!(Start::decode(&bytes[2..34]), None);
            assert_eq!(Start::decode(&[&bytes[2..], &[0]].concat()), None);
        }
        assert_eq!(Start::decode(&[b'x'; 33]), None);
        assert_eq!(Start::decode(&[]), None);
    }
}
