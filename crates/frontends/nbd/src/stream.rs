//! The socket of a client, of either family.

use crate::peer;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A client's socket.
pub(super) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    /// Another descriptor of the same socket.
    pub fn again(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Unix(stream) => Self::Unix(stream.try_clone()?),
            Self::Tcp(stream) => Self::Tcp(stream.try_clone()?),
        })
    }

    /// The reason why the client may not connect, unless its user is this process's, or root.
    pub fn foreign(&self) -> Option<String> {
        let user = match self {
            Self::Unix(stream) => peer::of_unix(stream).map(Some),
            Self::Tcp(stream) => {
                let ends = stream.local_addr().and_then(|here| Ok((here, stream.peer_addr()?)));
                ends.and_then(|(here, there)| peer::of_loopback(here, there))
            }
        };
        match user {
            Ok(Some(user)) if user == 0 || user == rustix::process::geteuid().as_raw() => None,
            Ok(Some(user)) => Some(format!("it is of user {user}; the user who serves and root alone may connect")),
            Ok(None) => Some("its user is unknown: its socket is closed".to_owned()),
            Err(error) => Some(format!("its user is unknown: {error}")),
        }
    }

    pub fn hang_up(&self, how: Shutdown) {
        // The client may have closed the socket before, which is as good.
        let _ = match self {
            Self::Unix(stream) => stream.shutdown(how),
            Self::Tcp(stream) => stream.shutdown(how),
        };
    }

    /// Limits how long a read or a write may wait for the client.
    pub fn silence(&self, limit: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_read_timeout(limit).and_then(|()| stream.set_write_timeout(limit)),
            Self::Tcp(stream) => stream.set_read_timeout(limit).and_then(|()| stream.set_write_timeout(limit)),
        }
    }
}
