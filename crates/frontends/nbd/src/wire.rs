//! The messages of the NBD protocol: constants, and decoders that accept any bytes.
//!
//! Source: the NBD project's protocol description (doc/proto.md): newstyle negotiation, simple and structured replies.
//! Every number is big-endian.

use crate::{Error, Result};

/// First magic number of the server.
pub const GREETING: u64 = u64::from_be_bytes(*b"NBDMAGIC");
/// Second magic number of the server, and the start of every option.
pub const OPTION: u64 = u64::from_be_bytes(*b"IHAVEOPT");
/// Start of a reply to an option.
pub const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
/// Start of a request.
pub const REQUEST: u32 = 0x2560_9513;
/// Start of a simple reply.
pub const SIMPLE_REPLY: u32 = 0x6744_6698;
/// Start of a chunk of a structured reply.
pub const STRUCTURED_REPLY: u32 = 0x668e_33ef;

/// Handshake flag, both ways: negotiation as of 2011, errors included.
pub const FIXED_NEWSTYLE: u16 = 1;
/// Handshake flag, both ways: no padding after the answer to `EXPORT_NAME`.
pub const NO_ZEROES: u16 = 2;

/// Numbers of the options that the server understands.
pub mod option {
    /// Choose an export, the old way: no answer in case of failure.
    pub const EXPORT_NAME: u32 = 1;
    /// End the negotiation.
    pub const ABORT: u32 = 2;
    /// List the exports.
    pub const LIST: u32 = 3;
    /// Describe an export.
    pub const INFO: u32 = 6;
    /// Describe an export and start the transmission.
    pub const GO: u32 = 7;
    /// Use structured replies from now on.
    pub const STRUCTURED_REPLY: u32 = 8;
}

/// Types of replies to an option.
pub mod option_reply {
    /// Done.
    pub const ACK: u32 = 1;
    /// One export.
    pub const SERVER: u32 = 2;
    /// One fact about an export.
    pub const INFO: u32 = 3;
    /// The option is not understood.
    pub const ERR_UNSUP: u32 = 0x8000_0001;
    /// The server does not want to serve this client.
    pub const ERR_POLICY: u32 = 0x8000_0002;
    /// The option's data are malformed.
    pub const ERR_INVALID: u32 = 0x8000_0003;
    /// There is no such export.
    pub const ERR_UNKNOWN: u32 = 0x8000_0006;
    /// The option's data are longer than the server takes.
    pub const ERR_TOO_BIG: u32 = 0x8000_0009;
}

/// Types of facts about an export.
pub mod info {
    /// Size and transmission flags.
    pub const EXPORT: u16 = 0;
    /// The export's name.
    pub const NAME: u16 = 1;
    /// A description for people.
    pub const DESCRIPTION: u16 = 2;
    /// Smallest, preferred and largest request.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags: abilities of the export.
pub mod can {
    /// Must be set.
    pub const HAS_FLAGS: u16 = 1;
    /// Writes are refused.
    pub const READ_ONLY: u16 = 1 << 1;
    /// `FLUSH` is understood.
    pub const FLUSH: u16 = 1 << 2;
    /// The FUA flag is understood.
    pub const FUA: u16 = 1 << 3;
    /// `TRIM` is understood.
    pub const TRIM: u16 = 1 << 5;
    /// `WRITE_ZEROES` is understood.
    pub const WRITE_ZEROES: u16 = 1 << 6;
    /// The DF flag is understood.
    pub const DF: u16 = 1 << 7;
    /// A flush on one connection covers the writes of all.
    pub const MULTI_CONN: u16 = 1 << 8;
}

/// Flags of a request.
pub mod flag {
    /// Durable before it is answered.
    pub const FUA: u16 = 1;
    /// Do not leave a hole where zeroes are written.
    pub const NO_HOLE: u16 = 1 << 1;
    /// Do not fragment the reply.
    pub const DF: u16 = 1 << 2;
}

/// Error numbers of the protocol, which are Linux's.
pub mod errno {
    /// Not permitted: a write to a read-only export.
    pub const EPERM: u32 = 1;
    /// The storage failed.
    pub const EIO: u32 = 5;
    /// No memory.
    pub const ENOMEM: u32 = 12;
    /// An invalid request.
    pub const EINVAL: u32 = 22;
    /// No space, or a write beyond the end.
    pub const ENOSPC: u32 = 28;
}

/// Types of chunks of a structured reply.
pub mod chunk {
    /// Flag: the last chunk of the reply.
    pub const DONE: u16 = 1;
    /// Success without data.
    pub const NONE: u16 = 0;
    /// An offset, and the bytes read there.
    pub const OFFSET_DATA: u16 = 1;
    /// An error number and a text.
    pub const ERROR: u16 = 1 << 15 | 1;
}

/// Operation of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Read bytes.
    Read,
    /// Write the payload.
    Write,
    /// End the connection.
    Disconnect,
    /// Make durable the writes answered before.
    Flush,
    /// Discard a range.
    Trim,
    /// Write zeroes to a range.
    WriteZeroes,
    /// An operation that this server does not support; it has no payload.
    Other(u16),
}

/// A request as it came, with unchecked numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The requested operation.
    pub command: Command,
    /// Flags of [`flag`], and perhaps others.
    pub flags: u16,
    /// Chosen by the client, repeated in the reply.
    pub cookie: u64,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u32,
}

/// Length of a request without its payload.
pub const REQUEST_BYTES: usize = 28;

impl Request {
    /// Decodes a request's header.
    ///
    /// # Errors
    /// [`Error::Protocol`] when the bytes do not start as a request does: the stream is then out of step for good.
    pub fn decode(bytes: &[u8; REQUEST_BYTES]) -> Result<Self> {
        let mut rest = Bytes(bytes);
        let magic = rest.u32()?;
        if magic != REQUEST {
            return Err(Error::Protocol(format!("a request starts with {magic:#010x}, expected {REQUEST:#010x}")));
        }
        let flags = rest.u16()?;
        let command = match rest.u16()? {
            0 => Command::Read,
            1 => Command::Write,
            2 => Command::Disconnect,
            3 => Command::Flush,
            4 => Command::Trim,
            6 => Command::WriteZeroes,
            other => Command::Other(other),
        };
        Ok(Self { command, flags, cookie: rest.u64()?, offset: rest.u64()?, length: rest.u32()? })
    }
}

/// Length of an option without its data.
pub const OPTION_BYTES: usize = 16;

/// Decodes an option's header into its number and the length of its data.
///
/// # Errors
/// [`Error::Protocol`] when the bytes do not start as an option does.
pub fn option_header(bytes: &[u8; OPTION_BYTES]) -> Result<(u32, u32)> {
    let mut rest = Bytes(bytes);
    let magic = rest.u64()?;
    if magic != OPTION {
        return Err(Error::Protocol(format!("an option starts with {magic:#018x}, expected {OPTION:#018x}")));
    }
    Ok((rest.u32()?, rest.u32()?))
}

/// Content of the options `INFO` and `GO`: an export, and the requested facts about it.
#[derive(Debug, PartialEq, Eq)]
pub struct Asked<'a> {
    /// The export's name; empty for the default one.
    pub name: &'a [u8],
    /// The requested facts.
    pub facts: Vec<u16>,
}

impl<'a> Asked<'a> {
    /// Decodes the data of `INFO` or `GO`.
    ///
    /// # Errors
    /// [`Error::Protocol`] when the lengths inside do not add up to the length of the data.
    pub fn decode(data: &'a [u8]) -> Result<Self> {
        let mut rest = Bytes(data);
        let length = rest.u32()?;
        let name = rest.take(length as usize)?;
        let count = rest.u16()?;
        let facts = (0..count).map(|_| rest.u16()).collect::<Result<_>>()?;
        if rest.0.is_empty() { Ok(Self { name, facts }) } else { Err(short_or_long()) }
    }
}

/// Bytes not yet decoded.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(short_or_long)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk().ok_or_else(short_or_long)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_be_bytes)
    }
}

fn short_or_long() -> Error {
    Error::Protocol("the lengths inside an option do not add up to its length".into())
}
