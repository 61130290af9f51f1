//! The negotiation, up to the client's choice of the export.

use crate::wire::{self, Asked, FIXED_NEWSTYLE, NO_ZEROES, OPTION_BYTES, can, info, option, option_reply};
use crate::{Error, Export, Limits, Result};
use std::io::{Read, Write};

/// The longest option data that is read: the protocol's longest name is 4096 bytes.
const OPTION_DATA_MAX: u32 = 16 << 10;

/// Options after which a client that has not chosen is given up.
const OPTIONS_MAX: usize = 256;

/// Features of the protocol that both sides use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Agreed {
    /// True if replies are structured.
    pub structured: bool,
}

/// Sends the server's greeting and reads the client's flags.
fn greet(reader: &mut impl Read, writer: &mut impl Write) -> Result<u32> {
    let mut greeting = Vec::with_capacity(18);
    greeting.extend(wire::GREETING.to_be_bytes());
    greeting.extend(wire::OPTION.to_be_bytes());
    greeting.extend((FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes());
    writer.write_all(&greeting)?;

    let mut flags = [0; 4];
    reader.read_exact(&mut flags)?;
    let flags = u32::from_be_bytes(flags);
    if flags & !u32::from(FIXED_NEWSTYLE | NO_ZEROES) != 0 {
        return Err(Error::Protocol(format!("handshake flags {flags:#x} that the server did not offer")));
    }
    Ok(flags)
}

/// Reads the next option and its data.
fn next_option(reader: &mut impl Read, writer: &mut impl Write) -> Result<(u32, Vec<u8>)> {
    let mut header = [0; OPTION_BYTES];
    reader.read_exact(&mut header)?;
    let (number, length) = wire::option_header(&header)?;
    if length > OPTION_DATA_MAX {
        Reply { writer, number }.send(option_reply::ERR_TOO_BIG, b"")?;
        return Err(Error::Protocol(format!("option {number} of {length} bytes, more than {OPTION_DATA_MAX}")));
    }
    let mut data = vec![0; length as usize];
    reader.read_exact(&mut data)?;
    Ok((number, data))
}

/// Answers each option with the reason why the client is not served, until it leaves. `EXPORT_NAME` has no answer.
pub(super) fn refuse(reader: &mut impl Read, writer: &mut impl Write, why: &str) -> Result<()> {
    greet(reader, writer)?;
    for _ in 0..OPTIONS_MAX {
        let (number, _) = next_option(reader, writer)?;
        match number {
            option::EXPORT_NAME => break,
            option::ABORT => return Reply { writer, number }.send(option_reply::ACK, b""),
            _ => Reply { writer, number }.send(option_reply::ERR_POLICY, why.as_bytes())?,
        }
    }
    Ok(())
}

/// Negotiates; `None` when the client leaves without choosing an export.
pub(super) fn negotiate(
    reader: &mut impl Read,
    writer: &mut impl Write,
    export: &Export,
    limits: &Limits,
) -> Result<Option<Agreed>> {
    let flags = greet(reader, writer)?;
    let padding = if flags & u32::from(NO_ZEROES) == 0 { 124 } else { 0 };

    let mut agreed = Agreed { structured: false };
    for _ in 0..OPTIONS_MAX {
        let (number, data) = next_option(reader, writer)?;
        if number == option::EXPORT_NAME {
            return chosen_by_name(writer, &data, export, agreed, padding).map(Some);
        }
        match answer(&mut Reply { writer, number }, &data, export, limits, &mut agreed)? {
            Next::Option => {}
            Next::Transmission => return Ok(Some(agreed)),
            Next::End => return Ok(None),
        }
    }
    Err(Error::Protocol(format!("{OPTIONS_MAX} options without a choice of the export")))
}

/// The step after an option: another option, the transmission, or the end of the connection.
enum Next {
    Option,
    Transmission,
    End,
}

/// Replies to one option.
struct Reply<'a, W> {
    writer: &'a mut W,
    number: u32,
}

impl<W: Write> Reply<'_, W> {
    fn send(&mut self, kind: u32, data: &[u8]) -> Result<()> {
        let mut bytes = Vec::with_capacity(20 + data.len());
        bytes.extend(wire::OPTION_REPLY.to_be_bytes());
        bytes.extend(self.number.to_be_bytes());
        bytes.extend(kind.to_be_bytes());
        // No data sent here is longer than a name and a description.
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(data);
        Ok(self.writer.write_all(&bytes)?)
    }

    fn fact(&mut self, kind: u16, data: &[u8]) -> Result<()> {
        self.send(option_reply::INFO, &[&kind.to_be_bytes(), data].concat())
    }
}

fn answer<W: Write>(
    reply: &mut Reply<'_, W>,
    data: &[u8],
    export: &Export,
    limits: &Limits,
    agreed: &mut Agreed,
) -> Result<Next> {
    match reply.number {
        option::ABORT => {
            // The client need not wait for the answer.
            let _ = reply.send(option_reply::ACK, b"");
            return Ok(Next::End);
        }
        option::LIST if data.is_empty() => {
            let name = export.name.as_bytes();
            reply.send(option_reply::SERVER, &[&(name.len() as u32).to_be_bytes(), name].concat())?;
            reply.send(option_reply::ACK, b"")?;
        }
        option::STRUCTURED_REPLY if data.is_empty() => {
            agreed.structured = true;
            reply.send(option_reply::ACK, b"")?;
        }
        option::LIST | option::STRUCTURED_REPLY => reply.send(option_reply::ERR_INVALID, b"this option has no data")?,
        option::INFO | option::GO => return describe(reply, data, export, limits, *agreed),
        _ => reply.send(option_reply::ERR_UNSUP, b"")?,
    }
    Ok(Next::Option)
}

/// Answers `INFO` and `GO`.
fn describe<W: Write>(
    reply: &mut Reply<'_, W>,
    data: &[u8],
    export: &Export,
    limits: &Limits,
    agreed: Agreed,
) -> Result<Next> {
    let asked = match Asked::decode(data) {
        Ok(asked) => asked,
        Err(error) => {
            reply.send(option_reply::ERR_INVALID, error.to_string().as_bytes())?;
            return Ok(Next::Option);
        }
    };
    if !is_name(asked.name, export) {
        reply.send(option_reply::ERR_UNKNOWN, b"no export of this name")?;
        return Ok(Next::Option);
    }
    reply.fact(info::EXPORT, &size_and_flags(export, agreed))?;
    if asked.facts.contains(&info::NAME) {
        reply.fact(info::NAME, export.name.as_bytes())?;
    }
    if asked.facts.contains(&info::DESCRIPTION) {
        reply.fact(info::DESCRIPTION, export.description.as_bytes())?;
    }
    // Sent also without a request, so that no client has to guess the largest request.
    let sizes = [1, PREFERRED_BYTES, limits.request_bytes_max].map(u32::to_be_bytes);
    reply.fact(info::BLOCK_SIZE, &sizes.concat())?;
    reply.send(option_reply::ACK, b"")?;
    Ok(if reply.number == option::GO { Next::Transmission } else { Next::Option })
}

/// The request size that clients should align to: a page.
const PREFERRED_BYTES: u32 = 4096;

fn chosen_by_name(
    writer: &mut impl Write,
    name: &[u8],
    export: &Export,
    agreed: Agreed,
    padding: usize,
) -> Result<Agreed> {
    if !is_name(name, export) {
        return Err(Error::Protocol(format!("no export of the name {:?}", String::from_utf8_lossy(name))));
    }
    let mut bytes = size_and_flags(export, agreed).to_vec();
    bytes.resize(bytes.len() + padding, 0);
    writer.write_all(&bytes)?;
    Ok(agreed)
}

fn is_name(name: &[u8], export: &Export) -> bool {
    name.is_empty() || name == export.name.as_bytes()
}

fn size_and_flags(export: &Export, agreed: Agreed) -> [u8; 10] {
    let mut flags = can::HAS_FLAGS | can::FLUSH | can::FUA | can::MULTI_CONN;
    flags |= if export.read_only { can::READ_ONLY } else { can::TRIM | can::WRITE_ZEROES };
    if agreed.structured {
        flags |= can::DF;
    }
    let mut bytes = [0; 10];
    bytes[..8].copy_from_slice(&export.block.size_bytes().to_be_bytes());
    bytes[8..].copy_from_slice(&flags.to_be_bytes());
    bytes
}
