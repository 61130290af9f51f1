//! Begin of a connection under a key: client and server prove to each other that they have the same secret.
//!
//! | from | bytes | contents |
//! |:--|--:|:--|
//! | client | 4 | `EBA1`, which no other message begins with |
//! | | 1 | 0: the key; 1: a ticket |
//! | | 24 | claims of the ticket; zeros with the key |
//! | | 32 | a random number |
//! | server | 4 | `EBA1` |
//! | | 1 | 0: go on; 1: the ticket has ended |
//! | | 32 | a random number |
//! | | 32 | code of the server |
//! | client | 32 | code of the client |
//!
//! A code is the HMAC-SHA256, under the secret, of all bytes before it and of the server's address: the client takes the address
//! that it has reached, and the server its own. So a process that passes the handshake on to another server is found out.
//! The client begins, so that a server without a key refuses the first bytes at once, and one with a key can answer a
//! client without credential in the protocol that this client knows.

use crate::credentials::{Bearer, CLAIMS_BYTES, Claims, Credential, Key, SECRET_BYTES, Secret, random};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};

const MAGIC: [u8; 4] = *b"EBA1";
const HELLO_BYTES: usize = 5 + CLAIMS_BYTES + SECRET_BYTES;
const HEAD_BYTES: usize = 5 + SECRET_BYTES;
const OF_SERVER: &str = "server's code";
const OF_CLIENT: &str = "client's code";
const GO_ON: u8 = 0;
const ENDED: u8 = 1;

/// Reason why a handshake fails.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The connection failed, or the deadline passed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The client has sent other bytes, such as a message without a handshake.
    #[error("this burst buffer has a key: give a ticket (--ticket) or the key (--key)")]
    NoCredential,
    /// The client's code is wrong, or its claims are malformed.
    #[error("the credential is not of this cluster")]
    WrongClient,
    /// The server takes no credentials.
    #[error("the server has no key, and the credential is of no use: nothing was sent to it")]
    NoKey,
    /// The server's code is wrong.
    #[error("the server has not proved that it has the key of this credential: nothing was sent to it")]
    WrongServer,
    /// The ticket has ended.
    #[error("the ticket has ended")]
    Ended,
}

/// An address as both ends of a connection have it.
fn address(at: SocketAddr) -> [u8; 18] {
    let mut bytes = [0; 18];
    let ip = match at.ip().to_canonical() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    bytes[..16].copy_from_slice(&ip.octets());
    bytes[16..].copy_from_slice(&at.port().to_le_bytes());
    bytes
}

/// Proves a client to the server at an address, and has the server prove itself.
///
/// # Errors
/// When the server is none of this credential's cluster, or does not take it.
pub fn join<S: Read + Write>(stream: &mut S, credential: &Credential, at: SocketAddr) -> Result<(), HandshakeError> {
    let mut hello = [0; HELLO_BYTES];
    hello[..4].copy_from_slice(&MAGIC);
    let secret = match credential {
        Credential::Key(key) => key.of_cluster(),
        Credential::Ticket(ticket) => {
            hello[4] = 1;
            hello[5..5 + CLAIMS_BYTES].copy_from_slice(&ticket.claims().to_bytes());
            ticket.secret.clone()
        }
    };
    hello[5 + CLAIMS_BYTES..].copy_from_slice(&random()?);
    stream.write_all(&hello)?;
    stream.flush()?;
    let (mut head, mut code) = ([0; HEAD_BYTES], [0; SECRET_BYTES]);
    let answered = stream.read_exact(&mut head).and_then(|()| stream.read_exact(&mut code));
    answered.map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            HandshakeError::NoKey
        }
        _ => error.into(),
    })?;
    let at = address(at);
    if head[..4] != MAGIC {
        return Err(HandshakeError::NoKey);
    }
    if !secret.is_code(OF_SERVER, &[&hello, &head, &at], &code) {
        return Err(HandshakeError::WrongServer);
    }
    if head[4] != GO_ON {
        return Err(HandshakeError::Ended);
    }
    stream.write_all(&secret.code(OF_CLIENT, &[&hello, &head, &at]))?;
    Ok(stream.flush()?)
}

/// The secret and the rights that a client claims; none if the claim is malformed.
fn claimed(key: &Key, hello: &[u8; HELLO_BYTES]) -> Option<(Secret, Bearer)> {
    let mut claims = [0; CLAIMS_BYTES];
    claims.copy_from_slice(&hello[5..5 + CLAIMS_BYTES]);
    match hello[4] {
        0 if claims == [0; CLAIMS_BYTES] => Some((key.of_cluster(), Bearer::Cluster)),
        1 => {
            let claims = Claims::from_bytes(&claims)?;
            Some((key.of_ticket(&claims), Bearer::User(claims)))
        }
        _ => None,
    }
}

/// Proves a server at an address to a client, and finds out who the client is. `now_ns` is the time since 1970.
///
/// # Errors
/// When the client has no credential of this cluster, or one that has ended.
pub fn admit<S: Read + Write>(
    stream: &mut S,
    key: &Key,
    at: SocketAddr,
    now_ns: u64,
) -> Result<Bearer, HandshakeError> {
    let mut hello = [0; HELLO_BYTES];
    stream.read_exact(&mut hello[..4])?;
    if hello[..4] != MAGIC {
        return Err(HandshakeError::NoCredential);
    }
    stream.read_exact(&mut hello[4..])?;
    let (secret, bearer) = claimed(key, &hello).ok_or(HandshakeError::WrongClient)?;
    let has_ended = matches!(bearer, Bearer::User(claims) if claims.has_ended(now_ns));
    let mut head = [0; HEAD_BYTES];
    head[..4].copy_from_slice(&MAGIC);
    head[4] = if has_ended { ENDED } else { GO_ON };
    head[5..].copy_from_slice(&random()?);
    let at = address(at);
    let code = secret.code(OF_SERVER, &[&hello, &head, &at]);
    stream.write_all(&[&head[..], &code].concat())?;
    stream.flush()?;
    if has_ended {
        return Err(HandshakeError::Ended);
    }
    let mut code = [0; SECRET_BYTES];
    stream.read_exact(&mut code)?;
    match secret.is_code(OF_CLIENT, &[&hello, &head, &at], &code) {
        true => Ok(bearer),
        false => Err(HandshakeError::WrongClient),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use entresol_burst::{JobId, Owner};
    use std::os::unix::net::UnixStream;
    use std::thread;

    const HOUR_NS: u64 = 3_600_000_000_000;

    fn key(byte: u8) -> Key {
        Key::of([byte; SECRET_BYTES])
    }

    fn ticket(key: &Key, until_ns: u64) -> Credential {
        let owner = Owner { uid: 5, gid: 6 };
        Credential::Ticket(key.ticket(Claims::new(JobId(1), owner, until_ns / 1_000_000_000).expect("a user")))
    }

    type Ends = (Result<(), HandshakeError>, Result<Bearer, HandshakeError>);

    /// Has a client and a server meet, which know the server by these addresses.
    fn meet(credential: Credential, key: Key, reached: &str, own: &str) -> Ends {
        let (mut client, mut server) = UnixStream::pair().expect("a pair");
        let (reached, own) = (reached.parse().expect(reached), own.parse().expect(own));
        let joins = thread::spawn(move || join(&mut client, &credential, reached));
        let admitted = admit(&mut server, &key, own, clock::now_ns());
        drop(server);
        (joins.join().expect("it ends"), admitted)
    }

    #[test]
    fn both_ends_know_each_other() {
        let later = clock::now_ns() + HOUR_NS;
        let (at, mapped) = ("10.0.0.1:7", "[::ffff:10.0.0.1]:7");
        assert!(matches!(meet(Credential::Key(key(1)), key(1), at, mapped), (Ok(()), Ok(Bearer::Cluster))));
        let (joined, admitted) = meet(ticket(&key(1), later), key(1), at, at);
        assert!(joined.is_ok());
        let Ok(Bearer::User(claims)) = admitted else { panic!("{admitted:?}") };
        assert_eq!((claims.job, claims.owner), (JobId(1), Owner { uid: 5, gid: 6 }));
    }

    #[test]
    fn wrong_ends_are_found_out() {
        let (now, at) = (clock::now_ns(), "10.0.0.1:7");
        let later = now + HOUR_NS;
        for (credential, key) in [(Credential::Key(key(1)), key(2)), (ticket(&key(1), later), key(2))] {
            let (joined, admitted) = meet(credential, key, at, at);
            assert!(matches!(joined, Err(HandshakeError::WrongServer)), "{joined:?}");
            assert!(matches!(admitted, Err(HandshakeError::Io(_))), "the client sends nothing more: {admitted:?}");
        }
        // A process at one address passes the handshake on to a server at another.
        for reached in ["10.0.0.2:7", "10.0.0.1:8"] {
            let (joined, _) = meet(ticket(&key(1), later), key(1), reached, at);
            assert!(matches!(joined, Err(HandshakeError::WrongServer)), "{joined:?}");
        }
        let (joined, admitted) = meet(ticket(&key(1), now), key(1), at, at);
        assert!(matches!(joined, Err(HandshakeError::Ended)) && matches!(admitted, Err(HandshakeError::Ended)));
    }

    /// A client that claims a ticket whose secret it does not have.
    #[test]
    fn a_claim_without_its_secret_is_refused() {
        let later = clock::now_ns() + HOUR_NS;
        let at: SocketAddr = "10.0.0.1:7".parse().expect("an address");
        for kind in [0, 1] {
            let (mut client, mut server) = UnixStream::pair().expect("a pair");
            let serves = thread::spawn(move || admit(&mut server, &key(1), at, clock::now_ns()));
            let mut hello = [0; HELLO_BYTES];
            hello[..4].copy_from_slice(&MAGIC);
            hello[4] = kind;
            if kind == 1 {
                let Credential::Ticket(ticket) = ticket(&key(1), later) else { unreachable!("it is one") };
                hello[5..5 + CLAIMS_BYTES].copy_from_slice(&ticket.claims().to_bytes());
            }
            client.write_all(&hello).expect("sent");
            let mut answer = [0; HEAD_BYTES + SECRET_BYTES];
            client.read_exact(&mut answer).expect("an answer");
            // The server's own code, sent back, is no client's.
            client.write_all(&answer[HEAD_BYTES..]).expect("sent");
            let admitted = serves.join().expect("it ends");
            assert!(matches!(admitted, Err(HandshakeError::WrongClient)), "{admitted:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_handshake_are_refused() {
        let at = "10.0.0.1:7".parse().expect("an address");
        let admitted = |bytes: &[u8]| {
            let (mut client, mut server) = UnixStream::pair().expect("a pair");
            client.write_all(bytes).expect("sent");
            client.shutdown(std::net::Shutdown::Write).expect("an end");
            admit(&mut server, &key(1), at, clock::now_ns())
        };
        assert!(matches!(admitted(b"EBL1 and more"), Err(HandshakeError::NoCredential)));
        assert!(matches!(admitted(b"EB"), Err(HandshakeError::Io(_))));
        let mut hello = [0; HELLO_BYTES];
        hello[..4].copy_from_slice(&MAGIC);
        for (kind, claim) in [(0, 1), (2, 0), (1, 0xFF)] {
            hello[4] = kind;
            hello[5..5 + CLAIMS_BYTES].fill(claim);
            let result = admitted(&hello);
            assert!(matches!(result, Err(HandshakeError::WrongClient)), "{kind}, {claim}: {result:?}");
        }
    }
}
