//! An NBD client written from the protocol's description, apart from the server's own encoders.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

pub const READ: u16 = 0;
pub const WRITE: u16 = 1;
pub const DISCONNECT: u16 = 2;
pub const FLUSH: u16 = 3;
pub const TRIM: u16 = 4;
pub const CACHE: u16 = 5;
pub const WRITE_ZEROES: u16 = 6;

pub const FUA: u16 = 1;

/// A reply: the protocol's error number, and the bytes read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub errno: u32,
    pub data: Vec<u8>,
}

pub struct Client {
    pub stream: UnixStream,
    pub size: u64,
    pub flags: u16,
    structured: bool,
    cookie: u64,
    /// Lengths of the reads in flight: a simple reply does not repeat them.
    reads: HashMap<u64, usize>,
}

impl Client {
    /// Connects and chooses the default export by `GO`.
    pub fn connect(path: &Path, structured: bool) -> io::Result<Self> {
        let mut stream = greeted(path, 3)?;
        if structured {
            option(&mut stream, 8, b"")?;
            let (number, kind, data) = option_reply(&mut stream)?;
            if kind != 1 {
                return Err(refused(kind, &data));
            }
            assert_eq!((number, data), (8, vec![]));
        }
        option(&mut stream, 7, &[0; 6])?;
        let (mut size, mut flags) = (0, 0);
        loop {
            let (number, kind, data) = option_reply(&mut stream)?;
            assert_eq!(number, 7);
            match kind {
                3 if data[..2] == [0, 0] => {
                    size = u64::from_be_bytes(data[2..10].try_into().unwrap());
                    flags = u16::from_be_bytes(data[10..12].try_into().unwrap());
                }
                3 => {}
                1 => break,
                other => return Err(refused(other, &data)),
            }
        }
        Ok(Self { stream, size, flags, structured, cookie: 100, reads: HashMap::new() })
    }

    /// Sends a request and returns its cookie.
    pub fn send(&mut self, command: u16, flags: u16, offset: u64, length: u32, payload: &[u8]) -> io::Result<u64> {
        let bytes = self.encode(command, flags, offset, length, payload);
        self.stream.write_all(&bytes)?;
        Ok(self.cookie)
    }

    /// Sends reads of `length` bytes at these offsets in one piece; returns their cookies.
    pub fn send_reads(&mut self, offsets: &[u64], length: u32) -> io::Result<Vec<u64>> {
        let (mut bytes, mut cookies) = (Vec::new(), Vec::new());
        for &offset in offsets {
            bytes.extend(self.encode(READ, 0, offset, length, b""));
            cookies.push(self.cookie);
        }
        self.stream.write_all(&bytes)?;
        Ok(cookies)
    }

    fn encode(&mut self, command: u16, flags: u16, offset: u64, length: u32, payload: &[u8]) -> Vec<u8> {
        self.cookie += 1;
        let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
        bytes.extend(flags.to_be_bytes());
        bytes.extend(command.to_be_bytes());
        bytes.extend(self.cookie.to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        bytes.extend(length.to_be_bytes());
        bytes.extend(payload);
        if command == READ {
            self.reads.insert(self.cookie, length as usize);
        }
        bytes
    }

    /// The next reply, to any request.
    pub fn receive(&mut self) -> io::Result<(u64, Answer)> {
        let magic = u32::from_be_bytes(self.take()?);
        if magic == 0x6744_6698 {
            let errno = u32::from_be_bytes(self.take()?);
            let cookie = u64::from_be_bytes(self.take()?);
            let length = self.reads.remove(&cookie).unwrap_or(0);
            assert!(!self.structured || length == 0, "a read was answered by a simple reply");
            let mut data = vec![0; if errno == 0 { length } else { 0 }];
            self.stream.read_exact(&mut data)?;
            return Ok((cookie, Answer { errno, data }));
        }
        assert_eq!((magic, self.structured), (0x668e_33ef, true));
        let (flags, kind) = (u16::from_be_bytes(self.take()?), u16::from_be_bytes(self.take()?));
        let cookie = u64::from_be_bytes(self.take()?);
        let mut body = vec![0; u32::from_be_bytes(self.take()?) as usize];
        self.stream.read_exact(&mut body)?;
        assert_eq!(flags, 1, "this server sends one chunk");
        self.reads.remove(&cookie);
        Ok((
            cookie,
            match kind {
                0 => Answer { errno: 0, data: vec![] },
                1 => Answer { errno: 0, data: body[8..].to_vec() },
                0x8001 => {
                    let text = u16::from_be_bytes(body[4..6].try_into().unwrap());
                    assert_eq!(body.len(), 6 + usize::from(text));
                    Answer { errno: u32::from_be_bytes(body[..4].try_into().unwrap()), data: vec![] }
                }
                other => panic!("chunk of type {other:#x}"),
            },
        ))
    }

    /// Sends a request and waits for its reply, the only one in flight.
    pub fn call(&mut self, command: u16, flags: u16, offset: u64, length: u32, payload: &[u8]) -> io::Result<Answer> {
        let cookie = self.send(command, flags, offset, length, payload)?;
        let (answered, answer) = self.receive()?;
        assert_eq!(answered, cookie);
        Ok(answer)
    }

    pub fn read(&mut self, offset: u64, length: u32) -> Vec<u8> {
        let answer = self.call(READ, 0, offset, length, b"").unwrap();
        assert_eq!(answer.errno, 0);
        answer.data
    }

    pub fn write(&mut self, offset: u64, bytes: &[u8], flags: u16) {
        let answer = self.call(WRITE, flags, offset, bytes.len() as u32, bytes).unwrap();
        assert_eq!(answer, Answer { errno: 0, data: vec![] });
    }

    fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

/// An option that was refused, in the server's words.
fn refused(kind: u32, data: &[u8]) -> io::Error {
    io::Error::other(format!("reply {kind:#x}: {}", String::from_utf8_lossy(data)))
}

/// Connects, checks the greeting and sends the client's flags.
pub fn greeted(path: &Path, flags: u32) -> io::Result<UnixStream> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting)?;
    assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
    assert_eq!(greeting[16..], [0, 3]);
    stream.write_all(&flags.to_be_bytes())?;
    Ok(stream)
}

pub fn option(stream: &mut UnixStream, number: u32, data: &[u8]) -> io::Result<()> {
    let mut bytes = b"IHAVEOPT".to_vec();
    bytes.extend(number.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    stream.write_all(&bytes)
}

/// The option answered, the type of the reply, and its data.
pub fn option_reply(stream: &mut UnixStream) -> io::Result<(u32, u32, Vec<u8>)> {
    let mut header = [0; 20];
    stream.read_exact(&mut header)?;
    assert_eq!(header[..8], 0x0003_e889_0455_65a9_u64.to_be_bytes());
    let word = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().unwrap());
    let mut data = vec![0; word(16) as usize];
    stream.read_exact(&mut data)?;
    Ok((word(8), word(12), data))
}

/// True if the server has closed the connection.
pub fn is_closed(stream: &mut UnixStream) -> bool {
    matches!(stream.read(&mut [0; 1]), Ok(0)) || stream.write_all(&[0; 64]).is_err()
}
