//! The NBD front-end: Network Block Device over a Unix socket, or over loopback TCP when asked.
//!
//! Fixed newstyle negotiation (`EXPORT_NAME`, `GO`, `INFO`, `LIST`, `ABORT`, `STRUCTURED_REPLY`), several connections
//! to one export, FUA, flush, trim, write-zeroes. A client can neither make the server panic nor make it hold more than
//! its [`Limits`]. A client's fault ends in an error reply or in the end of its own connection.

mod budget;
mod error;
mod handshake;
mod negotiation;
mod peer;
pub mod percent;
mod server;
mod session;
mod stream;
pub mod wire;

pub use error::{Error, Result};
pub use server::{Counts, Listener, Server};

use entresol_cache::Block;
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

/// A block device that is served, and its name.
#[derive(Clone)]
pub struct Export {
    /// Storage of the bytes.
    pub block: Arc<dyn Block>,
    /// The name that clients may ask for; the empty name finds the export too.
    pub name: String,
    /// A line for people, which `nbdinfo` shows.
    pub description: String,
    /// True to refuse writes.
    pub read_only: bool,
}

/// Limits of one server, and of one connection to it.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections at a time. A further client is refused with the reason.
    pub connections_max: usize,
    /// Bytes of the requests and buffers of all connections together. Each connection has an equal share that no other
    /// can take; the largest request that is offered to clients fits the share.
    pub memory_max: usize,
    /// Time that a request larger than a share waits for memory, with nothing else of its connection in flight. After
    /// that the request is answered ENOMEM.
    pub memory_patience: Duration,
    /// Requests of one connection that are read but not answered; the next waits in the socket.
    pub requests_max: usize,
    /// Bytes of those requests together; one request may always proceed.
    pub bytes_max: usize,
    /// Bytes of one request, from 4096 to 2^30. Larger requests are refused.
    pub request_bytes_max: u32,
    /// Threads of one connection that carry requests out, started when there is work for them.
    pub workers_max: usize,
    /// Time that a client may take until it has chosen an export.
    pub negotiation_max: Duration,
    /// Users who may connect.
    pub peers: Peers,
}

/// Users who may connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peers {
    /// The user who serves, and root.
    OwnerAndRoot,
    /// Every user whom the socket lets in.
    Any,
}

impl Limits {
    /// Checks that each connection would have enough memory.
    ///
    /// # Errors
    /// [`Error::Memory`], with the bytes needed.
    pub fn check(&self) -> Result<()> {
        budget::Budget::new(self).map(drop)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 16,
            memory_max: 256 << 20,
            memory_patience: Duration::from_secs(10),
            requests_max: 128,
            bytes_max: 64 << 20,
            request_bytes_max: 32 << 20,
            workers_max: 16,
            negotiation_max: Duration::from_secs(10),
            peers: Peers::OwnerAndRoot,
        }
    }
}

/// Serves one client on a pair of streams until it leaves: a connection without the socket.
///
/// Returns the number of requests that were answered.
///
/// # Errors
/// [`Error::Protocol`] when the client breaks the protocol, [`Error::Connection`] when the streams fail,
/// [`Error::Memory`] when the limits leave too little for one connection.
pub fn serve_stream(reader: impl Read, mut writer: impl Write + Send, export: &Export, limits: &Limits) -> Result<u64> {
    let budget = budget::Budget::new(limits)?;
    let mut reader = std::io::BufReader::with_capacity(budget::READ_AHEAD, reader);
    match handshake::negotiate(&mut reader, &mut writer, export, limits)? {
        Some(agreed) => session::run(reader, writer, export, limits, &budget, agreed, &|| {}),
        None => Ok(0),
    }
}
