//! The client's time limit for choosing an export, and the refusal of a client.

use crate::handshake;
use crate::stream::Stream;
use crate::{Error, Result};
use std::cell::Cell;
use std::io::{self, Read};
use std::time::{Duration, Instant};

/// Time limit for a refused client to take the reason.
const REFUSAL_MAX: Duration = Duration::from_secs(1);

/// A client's stream whose reads fail after a deadline, if there is one. A client that sends a byte now and then gets
/// no more time than a silent one.
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
            // The limit also holds for the writes that follow.
            self.stream.silence(Some(left))?;
        }
        self.reader.read(buffer)
    }
}

/// Replaces the system's "temporarily unavailable" with a clear text.
pub(super) fn too_slow(error: Error, limit: Duration) -> Error {
    match error {
        Error::Connection(io) if matches!(io.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
            Error::Protocol(format!("the client had not chosen an export within {limit:?}"))
        }
        other => other,
    }
}

/// Sends a client the reason why it is not served, by the protocol, if the client asks soon enough.
pub(super) fn refuse(stream: &Stream, why: &str) -> Result<()> {
    let until = Cell::new(Some(Instant::now() + REFUSAL_MAX));
    match stream {
        Stream::Unix(unix) => handshake::refuse(&mut Timed::new(unix, stream, &until), &mut &*unix, why),
        Stream::Tcp(tcp) => handshake::refuse(&mut Timed::new(tcp, stream, &until), &mut &*tcp, why),
    }
}
