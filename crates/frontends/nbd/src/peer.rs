//! The user at the other end of a connection.
//!
//! The kernel reports the user of a Unix socket (`SO_PEERCRED`). A TCP connection over the loopback has both ends on
//! this machine. Its client's end is a line of `/proc/net/tcp` or `tcp6` (proc(5)) with the user who made that socket.
//! A socket closed by its process keeps a line while its bytes travel, with inode and user 0; such a line does not
//! count.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

/// The state of a connection that is open at both ends.
const ESTABLISHED: &str = "01";

/// The user at the other end of a Unix socket, in any PID namespace. From another namespace the process number is 0.
/// Then rustix's `socket_peercred`, which has no value for 0, fails without an error of the system.
pub(super) fn of_unix(stream: impl AsFd) -> io::Result<u32> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of_val(&found) as libc::socklen_t;
    let (socket, place) = (stream.as_fd().as_raw_fd(), (&raw mut found).cast());
    // SAFETY: the borrowed descriptor is open; `found` has `length` bytes, and any bytes are valid there.
    let told = unsafe { libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, place, &raw mut length) };
    if told == 0 { Ok(found.uid) } else { Err(io::Error::last_os_error()) }
}

/// The user at the other end of a TCP connection within this machine; `None` if no open socket is that end.
pub(super) fn of_loopback(here: SocketAddr, there: SocketAddr) -> io::Result<Option<u32>> {
    let mut refused = None;
    for table in ["/proc/self/net/tcp", "/proc/self/net/tcp6"] {
        match std::fs::read_to_string(table) {
            Ok(text) => {
                if let Some(user) = text.lines().find_map(|line| user_of(line, here, there)) {
                    return Ok(Some(user));
                }
            }
            // A kernel without IPv6 has no such table.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => refused = Some(error),
        }
    }
    refused.map_or(Ok(None), Err)
}

/// The user of a line of the table, if the line is the client's end of this connection.
fn user_of(line: &str, here: SocketAddr, there: SocketAddr) -> Option<u32> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [_, local, remote, ESTABLISHED, _, _, _, user, _, inode, ..] = fields[..] else { return None };
    let is = |text: &str, end: SocketAddr| address(text) == Some((end.ip().to_canonical(), end.port()));
    (is(local, there) && is(remote, here) && inode != "0").then(|| user.parse().ok()).flatten()
}

/// Parses an address of these tables: words in network order, each printed as a number of this machine.
fn address(text: &str) -> Option<(IpAddr, u16)> {
    let (words, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| u32::from_str_radix(words.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    let address = match words.len() {
        8 => IpAddr::from(word(0)?),
        32 => {
            let bytes = [word(0)?, word(8)?, word(16)?, word(24)?].concat();
            Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).to_canonical()
        }
        _ => return None,
    };
    Some((address, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_user_of_a_loopback_connection_is_told_until_its_socket_is_closed() {
        for (listen, connect) in [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1"), ("127.0.0.1:0", "::ffff:127.0.0.1")]
        {
            let Ok(listener) = TcpListener::bind(listen) else {
                println!("SKIPPED {listen}: this machine has no such address");
                continue;
            };
            let port = listener.local_addr().expect("an address").port();
            let client = TcpStream::connect((connect, port)).expect("a connection");
            let (server, there) = listener.accept().expect("a client");
            let here = server.local_addr().expect("an address");
            let own = rustix::process::geteuid().as_raw();
            assert_eq!(of_loopback(here, there).expect("tables"), Some(own), "{connect}");
            assert_eq!(of_loopback(there, here).expect("tables"), Some(own), "our own end is a line too");
            assert_eq!(of_loopback(here, SocketAddr::new(there.ip(), 1)).expect("tables"), None, "another port");
            drop(client);
            assert_eq!(of_loopback(here, there).expect("tables"), None, "a closed socket is nobody's");
        }
    }

    #[test]
    fn a_line_of_the_table_is_read_as_the_kernel_writes_it() {
        // From a little-endian machine: 127.0.0.1:8080 to 127.0.0.1:40000, uid 1000.
        let line =
            "   3: 0100007F:1F90 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0";
        let [here, there] = ["127.0.0.1:40000", "127.0.0.1:8080"].map(|text| text.parse().expect("an address"));
        let expected = if cfg!(target_endian = "little") { Some(1000) } else { None };
        assert_eq!(user_of(line, here, there), expected);
        assert_eq!(user_of(&line.replace(" 01 ", " 04 "), here, there), None, "it has been closed at one end");
        assert_eq!(user_of(&line.replace("4711", "0"), here, there), None, "it has no owner any more");
    }

    proptest! {
        #[test]
        fn any_line_is_somebodys_or_nobodys(line in ".*", words in prop::collection::vec("[0-9A-F]{0,33}:[0-9A-F]{0,5}|01", 0..12)) {
            let end: SocketAddr = "127.0.0.1:1".parse().expect("an address");
            let _ = user_of(&line, end, end);
            prop_assert_eq!(user_of(&words.join(" "), end, end), None);
        }
    }
}
