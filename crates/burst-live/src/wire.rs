//! Messages over TCP: a control message in JSON, followed by raw bytes.
//!
//! | bytes | contents |
//! |:--|:--|
//! | 4 | `EBL1` |
//! | 4 | length of the control message, little-endian |
//! | 4 | length of the raw bytes, little-endian |
//! | .. | control message: JSON; unknown fields are ignored |
//! | .. | raw bytes |
//!
//! Both lengths are bounded, and memory grows only as bytes arrive. Every transfer has a deadline for the message as a
//! whole, so that a peer that sends one byte at a time cannot hold it up.

use crate::clock;
use crate::credentials::{Bearer, Credential, Key};
use crate::handshake::{self, HandshakeError};
#[cfg(test)]
use crate::simulated;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
#[cfg(test)]
use std::cell::RefCell;
#[cfg(test)]
use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

const MAGIC: [u8; 4] = *b"EBL1";
const HEADER_BYTES: usize = 12;
/// Memory for a message before its first byte has arrived.
const FIRST_BYTES: usize = 64 << 10;
/// Longest control message, in bytes: a report of some 40,000 pieces.
pub const CONTROL_BYTES_MAX: u32 = 16 << 20;
/// Most raw bytes of one message: one chunk.
pub const PAYLOAD_BYTES_MAX: u32 = 1 << 20;

/// Reason why a message could not be sent or received.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The connection failed, or the deadline passed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The peer closed the connection between two messages.
    #[error("the connection was closed")]
    Closed,
    /// The bytes are not a message of this protocol.
    #[error("not a message of the burst buffer")]
    NotAMessage,
    /// A length is above its bound.
    #[error("a message of {0} + {1} bytes is too long")]
    TooLong(u64, u64),
    /// The peer is none of this cluster, or does not take the credential.
    #[error(transparent)]
    Handshake(HandshakeError),
    /// The control message cannot be read.
    #[error("a control message cannot be read: {0}")]
    Malformed(serde_json::Error),
}

impl From<HandshakeError> for WireError {
    fn from(error: HandshakeError) -> WireError {
        match error {
            HandshakeError::Io(error) => WireError::Io(error),
            error => WireError::Handshake(error),
        }
    }
}

/// Writes one message.
///
/// # Errors
/// When the message is too long, or the writer fails.
pub fn encode<W: Write>(writer: &mut W, control: &impl Serialize, payload: &[u8]) -> Result<(), WireError> {
    let control = serde_json::to_vec(control).map_err(WireError::Malformed)?;
    let too_long = || WireError::TooLong(control.len() as u64, payload.len() as u64);
    let length = |bytes: &[u8], max| u32::try_from(bytes.len()).ok().filter(|&length| length <= max);
    let control_bytes = length(&control, CONTROL_BYTES_MAX).ok_or_else(too_long)?;
    let payload_bytes = length(payload, PAYLOAD_BYTES_MAX).ok_or_else(too_long)?;
    let mut head = Vec::with_capacity(HEADER_BYTES + control.len());
    head.extend_from_slice(&MAGIC);
    head.extend_from_slice(&control_bytes.to_le_bytes());
    head.extend_from_slice(&payload_bytes.to_le_bytes());
    head.extend_from_slice(&control);
    write_both(writer, &head, payload)?;
    Ok(writer.flush()?)
}

/// Writes two parts, with one call if the writer takes both: each call to a socket wakes the receiver.
fn write_both<W: Write>(writer: &mut W, mut head: &[u8], mut rest: &[u8]) -> io::Result<()> {
    while !head.is_empty() {
        match writer.write_vectored(&[IoSlice::new(head), IoSlice::new(rest)]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                let of_head = written.min(head.len());
                head = &head[of_head..];
                rest = &rest[written - of_head..];
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    writer.write_all(rest)
}

/// Reads one message.
///
/// # Errors
/// When the bytes are no message, end early, or the reader fails.
pub fn decode<T: DeserializeOwned, R: Read>(reader: &mut R) -> Result<(T, Vec<u8>), WireError> {
    let mut payload = Vec::new();
    let control = decode_into(reader, &mut payload)?;
    Ok((control, payload))
}

/// Reads one message, its raw bytes into memory that an earlier message may have had.
fn decode_into<T: DeserializeOwned, R: Read>(reader: &mut R, payload: &mut Vec<u8>) -> Result<T, WireError> {
    let mut header = [0; HEADER_BYTES];
    let mut filled = 0;
    while filled < HEADER_BYTES {
        match reader.read(&mut header[filled..]) {
            Ok(0) if filled == 0 => return Err(WireError::Closed),
            Ok(0) => return Err(WireError::Io(io::ErrorKind::UnexpectedEof.into())),
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    let [m0, m1, m2, m3, c0, c1, c2, c3, p0, p1, p2, p3] = header;
    if [m0, m1, m2, m3] != MAGIC {
        return Err(WireError::NotAMessage);
    }
    let control_bytes = u32::from_le_bytes([c0, c1, c2, c3]);
    let payload_bytes = u32::from_le_bytes([p0, p1, p2, p3]);
    if control_bytes > CONTROL_BYTES_MAX || payload_bytes > PAYLOAD_BYTES_MAX {
        return Err(WireError::TooLong(control_bytes.into(), payload_bytes.into()));
    }
    let mut control = Vec::new();
    exactly(reader, control_bytes, &mut control)?;
    exactly(reader, payload_bytes, payload)?;
    serde_json::from_slice(&control).map_err(WireError::Malformed)
}

/// Reads so many bytes. The memory grows as they arrive, and is not cleared first.
fn exactly<R: Read>(reader: &mut R, bytes: u32, read: &mut Vec<u8>) -> io::Result<()> {
    let (bytes, mut filled) = (bytes as usize, 0);
    read.truncate(bytes);
    while filled < bytes {
        if filled == read.len() {
            read.resize((filled * 2).max(FIRST_BYTES).min(bytes), 0);
        }
        match reader.read(&mut read[filled..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(more) => filled += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A socket that fails when a point of time has passed.
struct Deadlined<'a> {
    stream: &'a TcpStream,
    until: Instant,
}

impl Deadlined<'_> {
    fn left(&self) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

impl Read for Deadlined<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        (&mut &*self.stream).read(buffer)
    }
}

impl Write for Deadlined<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        (&mut &*self.stream).write(bytes)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        (&mut &*self.stream).write_vectored(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Connects to the first address of a name that answers, within a time.
///
/// # Errors
/// When no address answers.
pub fn connect(address: &str, within: Duration) -> io::Result<TcpStream> {
    let until = Instant::now() + within;
    let mut failure = io::Error::new(io::ErrorKind::NotFound, format!("{address}: no such address"));
    for socket in address.to_socket_addrs()? {
        match connect_one(socket, until) {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn connect_one(socket: SocketAddr, until: Instant) -> io::Result<TcpStream> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let stream = TcpStream::connect_timeout(&socket, left)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Sends one message within a time.
///
/// # Errors
/// When the deadline passes or the connection fails.
pub fn send(stream: &TcpStream, control: &impl Serialize, payload: &[u8], within: Duration) -> Result<(), WireError> {
    encode(&mut Deadlined { stream, until: Instant::now() + within }, control, payload)
}

/// Receives one message within a time.
///
/// # Errors
/// When the deadline passes, the connection fails, or the bytes are no message.
pub fn receive<T: DeserializeOwned>(stream: &TcpStream, within: Duration) -> Result<(T, Vec<u8>), WireError> {
    decode(&mut Deadlined { stream, until: Instant::now() + within })
}

/// Waits for the first byte of a message, and then receives it within a time. Its raw bytes take the place of those of an earlier message.
///
/// # Errors
/// When none comes within `idle`, and as [`receive`] does.
pub fn receive_next<T: DeserializeOwned>(
    stream: &TcpStream,
    payload: &mut Vec<u8>,
    idle: Duration,
    within: Duration,
) -> Result<T, WireError> {
    stream.set_read_timeout(Some(idle))?;
    if stream.peek(&mut [0])? == 0 {
        return Err(WireError::Closed);
    }
    decode_into(&mut Deadlined { stream, until: Instant::now() + within }, payload)
}

/// Finds out within a time who the client of a new connection is. A client without credential is answered.
///
/// # Errors
/// When there is a key, and the client has no credential of it.
pub fn admit(stream: &TcpStream, key: Option<&Key>, within: Duration) -> Result<Bearer, WireError> {
    let Some(key) = key else { return Ok(Bearer::Anyone) };
    let until = Instant::now() + within;
    let at = stream.local_addr()?;
    let admitted = handshake::admit(&mut Deadlined { stream, until }, key, at, clock::now_ns());
    if let Err(error @ HandshakeError::NoCredential) = &admitted {
        // The coordinator's refusal and a node's have the same form.
        send(stream, &json!({"Refused": {"why": error.to_string()}}), &[], within)?;
        stream.shutdown(Shutdown::Write)?;
        // To close a connection with bytes that were not read would take the answer back.
        let rest = u64::from(CONTROL_BYTES_MAX + PAYLOAD_BYTES_MAX);
        let _ = io::copy(&mut Deadlined { stream, until }.take(rest), &mut io::sink());
    }
    Ok(admitted?)
}

/// A connection on which each message is answered by one.
pub struct Peer {
    transport: Transport,
}

enum Transport {
    Tcp(TcpStream),
    /// A connection, and answers that were not received yet.
    #[cfg(test)]
    Simulated(simulated::Connection, RefCell<VecDeque<Vec<u8>>>),
}

impl Peer {
    /// Connects within a time.
    ///
    /// # Errors
    /// When nothing answers at the address.
    pub fn connect(address: &str, within: Duration) -> Result<Peer, WireError> {
        #[cfg(test)]
        if let Some(actor) = simulated::actor() {
            let connection = simulated::Connection::open(actor, address, within)?;
            return Ok(Peer { transport: Transport::Simulated(connection, RefCell::default()) });
        }
        Ok(Peer { transport: Transport::Tcp(connect(address, within)?) })
    }

    /// Connects within a time, and proves this client and the server to each other if there is a credential.
    ///
    /// # Errors
    /// When nothing answers at the address, or the handshake fails.
    pub fn connect_as(address: &str, within: Duration, credential: Option<&Credential>) -> Result<Peer, WireError> {
        let until = Instant::now() + within;
        let peer = Peer::connect(address, within)?;
        if let Some(credential) = credential {
            match &peer.transport {
                Transport::Tcp(stream) => {
                    handshake::join(&mut Deadlined { stream, until }, credential, stream.peer_addr()?)?;
                }
                #[cfg(test)]
                Transport::Simulated(..) => unreachable!("schedules have no key"),
            }
        }
        Ok(peer)
    }

    /// Sends a message and receives its answer, both within one time. After an error the connection is of no use: an
    /// answer may still be on its way.
    ///
    /// # Errors
    /// As [`send`] and [`receive`].
    pub fn call<A: DeserializeOwned>(
        &self,
        control: &impl Serialize,
        payload: &[u8],
        within: Duration,
    ) -> Result<(A, Vec<u8>), WireError> {
        let until = Instant::now() + within;
        self.begin(control, payload, within)?;
        match &self.transport {
            Transport::Tcp(stream) => decode(&mut Deadlined { stream, until }),
            #[cfg(test)]
            Transport::Simulated(..) => self.end(within),
        }
    }

    /// Sends a message. Its answer is received by [`Peer::end`], after those of earlier messages.
    ///
    /// # Errors
    /// As [`send`].
    pub fn begin(&self, control: &impl Serialize, payload: &[u8], within: Duration) -> Result<(), WireError> {
        match &self.transport {
            Transport::Tcp(stream) => send(stream, control, payload, within),
            #[cfg(test)]
            Transport::Simulated(connection, answers) => {
                let mut message = Vec::new();
                encode(&mut message, control, payload)?;
                answers.borrow_mut().push_back(connection.call(&message, within)?);
                Ok(())
            }
        }
    }

    /// Receives the answer to the first message that has none.
    ///
    /// # Errors
    /// As [`receive`].
    pub fn end<A: DeserializeOwned>(&self, within: Duration) -> Result<(A, Vec<u8>), WireError> {
        match &self.transport {
            Transport::Tcp(stream) => receive(stream, within),
            #[cfg(test)]
            Transport::Simulated(_, answers) => {
                let answer = answers.borrow_mut().pop_front().ok_or(WireError::Closed)?;
                decode(&mut &answer[..])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_core::Random;
    use serde_json::{Value, json};
    use std::net::TcpListener;

    fn message(random: &mut Random) -> (Value, Vec<u8>) {
        let control = json!({"number": random.next_u64(), "text": "x".repeat(random.below(300) as usize)});
        (control, (0..random.below(5000)).map(|_| random.next_u64() as u8).collect())
    }

    #[test]
    fn a_message_arrives_as_it_was_sent_and_no_part_of_it_is_one() {
        let mut random = Random::new(1);
        for _ in 0..200 {
            let (control, payload) = message(&mut random);
            let mut bytes = Vec::new();
            encode(&mut bytes, &control, &payload).expect("it is short");
            let (read, raw) = decode::<Value, _>(&mut &bytes[..]).expect("a message");
            assert_eq!((read, raw), (control, payload));
            for _ in 0..20 {
                let cut = random.below(bytes.len() as u64) as usize;
                assert!(decode::<Value, _>(&mut &bytes[..cut]).is_err(), "cut at {cut}");
            }
        }
    }

    #[test]
    fn random_bytes_are_refused_and_take_no_memory() {
        let mut random = Random::new(2);
        for round in 0..20_000_u32 {
            let mut bytes: Vec<u8> = (0..random.below(64)).map(|_| random.next_u64() as u8).collect();
            if round.is_multiple_of(2) {
                bytes.splice(0..0, MAGIC);
            }
            assert!(decode::<Value, _>(&mut &bytes[..]).is_err());
        }
        // A message changed in one byte is refused, or is one that differs in its contents alone.
        for _ in 0..2_000 {
            let (control, payload) = message(&mut random);
            let mut bytes = Vec::new();
            encode(&mut bytes, &control, &payload).expect("it is short");
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << random.below(8);
            if let Ok((_, raw)) = decode::<Value, _>(&mut &bytes[..]) {
                assert!(raw.len() <= payload.len());
            }
        }
    }

    #[test]
    fn a_length_above_its_bound_is_refused() {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(u32::MAX.to_le_bytes());
        bytes.extend(0_u32.to_le_bytes());
        assert!(matches!(decode::<Value, _>(&mut &bytes[..]), Err(WireError::TooLong(..))));
        let long = vec![0; PAYLOAD_BYTES_MAX as usize + 1];
        assert!(matches!(encode(&mut Vec::new(), &json!(1), &long), Err(WireError::TooLong(..))));
    }

    #[test]
    fn a_peer_that_sends_slowly_or_not_at_all_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let slow = std::thread::spawn(move || {
            let (stream, _) = listener.accept().expect("a connection");
            let mut message = Vec::new();
            encode(&mut message, &json!("long"), &[0; 1000]).expect("it is short");
            for byte in message {
                if (&stream).write_all(&[byte]).is_err() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let begin = Instant::now();
        let stream = connect(&address, Duration::from_secs(1)).expect("a connection");
        assert!(receive::<Value>(&stream, Duration::from_millis(200)).is_err());
        assert!(begin.elapsed() < Duration::from_secs(5));
        drop(stream);
        slow.join().expect("it ends");
    }
}
