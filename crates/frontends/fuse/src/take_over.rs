//! The session of a mount whose former server was killed.
//!
//! The kernel greets a server once, with INIT, and fuser begins no session without. So the session begins on one end of
//! a pair of sockets, in whose other end INIT was written as the kernel wrote it for the first server; fuser reads
//! nothing else until the session runs (fuser 0.18, `Session::from_fd` and `handshake`). Then the kernel's device takes
//! the place of the socket.

use crate::server::{FuseServer, Offered};
use fuser::{Config, Session};
use rustix::io::DupFlags;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;

/// `FUSE_INIT` of the kernel's `linux/fuse.h`.
const INIT: u32 = 26;
/// `FUSE_INIT_EXT`: the second word of features is there.
const INIT_EXT: u32 = 1 << 30;
/// Any number: the answer goes nowhere.
const MAX_READAHEAD: u32 = 1 << 17;
/// `FUSE_NOTIFY_RESEND`.
const RESEND: u32 = 7;

/// `fuse_in_header` and `fuse_init_in`.
fn greeting(offered: &Offered) -> Vec<u8> {
    let features = offered.features.bits();
    let init =
        [offered.version.0, offered.version.1, MAX_READAHEAD, features as u32 | INIT_EXT, (features >> 32) as u32];
    let unused = [0_u32; 11];
    let (unique, rest) = ([1_u32, 0], [0_u32; 6]);
    let length = 40 + 4 * (init.len() + unused.len()) as u32;
    let words = [length, INIT].into_iter().chain(unique).chain(rest).chain(init).chain(unused);
    words.flat_map(u32::to_ne_bytes).collect()
}

/// A session that reads from `device`, whose mount has been greeted with `offered`.
pub(super) fn session(
    server: FuseServer,
    device: BorrowedFd<'_>,
    offered: &Offered,
    config: Config,
) -> io::Result<Session<FuseServer>> {
    let (ours, theirs) = UnixDatagram::pair()?;
    ours.send(&greeting(offered))?;
    let session = Session::from_fd(server, OwnedFd::from(theirs), config.acl, config)?;
    // SAFETY: the session owns the descriptor and is alive; it is not closed here.
    let mut socket = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(session.as_fd().as_raw_fd()) });
    rustix::io::dup3(device, &mut socket, DupFlags::CLOEXEC)?;
    Ok(session)
}

/// Has the kernel send again all requests that the former server has not answered.
pub(super) fn resend(device: BorrowedFd<'_>) -> io::Result<()> {
    // `fuse_out_header`: length, code, and no request.
    let notification: Vec<u8> = [16, RESEND, 0, 0].into_iter().flat_map(u32::to_ne_bytes).collect();
    rustix::io::write(device, &notification)?;
    Ok(())
}
