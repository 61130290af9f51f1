//! Reports the state of a server to the service manager, as in sd_notify(3): one datagram per report.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Reports that the front-end is ready.
pub fn ready() {
    tell("READY=1");
}

/// Reports that the server is about to end.
pub fn stopping() {
    tell("STOPPING=1");
}

fn tell(what: &str) {
    let Ok(place) = std::env::var("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(&place, what) {
        say!("entresol: $NOTIFY_SOCKET, {place}: {error}; the service manager does not know '{what}'");
    }
}

fn send(place: &str, what: &str) -> io::Result<()> {
    let address = match place.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(place)?,
    };
    UnixDatagram::unbound()?.send_to_addr(what.as_bytes(), &address).map(|_| ())
}
