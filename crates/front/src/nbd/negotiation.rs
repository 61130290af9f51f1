//! The time that a client has to choose an export, and the words in which one is refused.

use super::handshake;
use super::server::Stream;
use crate::{Error, Result};
use std::cell::Cell;
use std::io::{self, Read};
use std::time::{Duration, Instant};

/// Time that a refused client may take to hear the reason.
const REFUSAL_MAX: Duration = Duration::from_secs(1);

/// A client's stream whose reads end at a deadline, as long as there is one. A client that sends a byte now and then has no
/// longer than one that is silent.
pub(super) struct Timed<'a, R> {
    reader: R,
    stream: &'a Stream,
    until: &'a Cell<Option<Instant>>,
}

impl<'a, R> Timed<'a, R> {
    pub fn new(reader: R, stream: &'a Stream, until: &'a Cell<Option<Instant>>) -> Self {
        Timed { reader, stream, until }
    }
}

impl<R: Read> Read for Timed<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(until) = self.until.get() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            // For the writes that follow too.
            self.stream.silence(Some(left))?;
        }
        self.reader.read(buffer)
    }
}

/// Says in words what the system calls "temporarily unavailable".
pub(super) fn too_slow(error: Error, limit: Duration) -> Error {
    match error {
        Error::Connection(io) if matches!(io.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
            Error::Protocol(format!("the client had not chosen an export within {limit:?}"))
        }
        other => other,
    }
}

/// Tells a client in the protocol's words why it is not served, if it asks soon enough.
pub(super) fn refuse(stream: &Stream, why: &str) -> Result<()> {
    let until = Cell::new(Some(Instant::now() + REFUSAL_MAX));
    match stream {
        Stream::Unix(unix) => handshake::refuse(&mut Timed::new(unix, stream, &until), &mut &*unix, why),
        Stream::Tcp(tcp) => handshake::refuse(&mut Timed::new(tcp, stream, &until), &mut &*tcp, why),
    }
}
