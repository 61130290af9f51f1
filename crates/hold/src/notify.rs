//! Reports of the holder to the service manager, as in sd_notify(3): one datagram per report.

use crate::lines::write_line;
use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Variables of the service manager that are for the holder alone.
pub const VARIABLES: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];

/// Sign of life.
const ALIVE: &str = "WATCHDOG=1";

/// The service manager, if there is one.
pub struct Manager {
    place: Option<String>,
    /// True if it ends this process when it does not hear of it.
    watches: bool,
    is_ready: bool,
}

impl Manager {
    /// The manager that the environment names.
    pub fn of_environment() -> Self {
        let [place, period, process] = VARIABLES.map(|name| env::var(name).ok());
        let watches = period.is_some() && process.is_none_or(|process| process == std::process::id().to_string());
        Manager { place, watches, is_ready: false }
    }

    /// Reports that a server is ready: the first one as such, the others as a sign of life.
    pub fn ready(&mut self) {
        if !std::mem::replace(&mut self.is_ready, true) {
            self.tell("READY=1");
        }
        self.alive();
    }

    /// Reports a sign of life.
    pub fn alive(&self) {
        if self.watches {
            self.tell(ALIVE);
        }
    }

    /// Reports that the server is about to end for good; once.
    pub fn stopping(&mut self) {
        self.tell("STOPPING=1");
        self.place = None;
    }

    fn tell(&self, what: &str) {
        let Some(place) = &self.place else { return };
        // A manager that does not hear ends this process by its own rules. Signs of life come again.
        if let Err(error) = send(place, what)
            && what != ALIVE
        {
            write_line(format_args!(
                "entresol: $NOTIFY_SOCKET, {place}: {error}; the service manager does not know '{what}'"
            ));
        }
    }
}

fn send(place: &str, what: &str) -> io::Result<()> {
    let address = match place.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(place)?,
    };
    let socket = UnixDatagram::unbound()?;
    // A manager whose queue is full must not keep the holder from its server.
    socket.set_nonblocking(true)?;
    socket.send_to_addr(what.as_bytes(), &address).map(|_| ())
}
