//! Targets for input from a socket: hints of databases, the NBD protocol, and the handshake of a burst buffer.

use crate::memory::MemoryBlock;
use entresol_burst_live::handshake::{admit, join};
use entresol_burst_live::{Credential, Key, Ticket};
use entresol_files::{Advised, FileId};
use entresol_hints::{Hints, Served, parse_audit_line};
use entresol_nbd::{Export, Limits, serve_stream};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

struct Nobody;

impl Advised for Nobody {
    fn query_begins(&self, _query: u32, files: &[FileId]) -> usize {
        files.len()
    }

    fn query_ends(&self, _query: u32) {}
}

/// Datagrams of queries, or a line of an audit log; the first byte chooses.
pub(crate) fn hints(data: &[u8]) {
    let Some((&choice, bytes)) = data.split_first() else { return };
    if choice & 1 == 1 {
        let _ = parse_audit_line(&String::from_utf8_lossy(bytes));
        return;
    }
    let served = Served::new("/srv".into(), "/nonexistent".into());
    let hints = Hints::new(served, Box::new(Nobody), Box::new(|_| ()));
    let prefix: &[u8] = if choice & 2 == 2 { b"entresol-hint 1\nbegin 1 1\nd /srv\n" } else { b"" };
    for message in bytes.split(|&byte| byte == 0) {
        hints.datagram(&[prefix, message].concat());
    }
    let counts = hints.counts();
    assert!(counts.begins <= counts.ends + counts.forgotten + hints.running() as u64);
}

/// A client of NBD; the first byte chooses how much of a sound negotiation precedes its bytes.
pub(crate) fn nbd(data: &[u8]) {
    let Some((&choice, bytes)) = data.split_first() else { return };
    let structured = b"IHAVEOPT\0\0\0\x08\0\0\0\0";
    let go = b"IHAVEOPT\0\0\0\x07\0\0\0\x06\0\0\0\0\0\0";
    let mut input = Vec::new();
    for (bit, part) in [(1, &b"\0\0\0\x03"[..]), (2, structured), (4, go)] {
        if choice & bit != 0 {
            input.extend(part);
        }
    }
    input.extend(bytes);
    let block = Arc::new(MemoryBlock::new(1 << 16));
    let export = Export { block, name: "disk".into(), description: "fuzz".into(), read_only: choice & 8 != 0 };
    let limits = Limits { workers_max: 2, request_bytes_max: 4096, requests_max: 3, ..Limits::default() };
    let mut output = Vec::new();
    let _ = serve_stream(&*input, &mut output, &export, &limits);
    assert!(output.starts_with(b"NBDMAGIC"));
}

/// A peer that has sent these bytes, and the number of those that were sent to it.
struct Recorded<'a> {
    bytes: &'a [u8],
    answered: usize,
}

impl Read for Recorded<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.bytes.read(buffer)
    }
}

impl Write for Recorded<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.answered += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A ticket, or a peer of one end of the handshake of a burst buffer; the first byte chooses. No bytes that were known before
/// are a proof.
pub(crate) fn tickets(data: &[u8]) {
    let Some((&choice, bytes)) = data.split_first() else { return };
    let key = Key::of([7; 32]);
    let at = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7700);
    let mut peer = Recorded { bytes, answered: 0 };
    match choice % 3 {
        0 => {
            let text = String::from_utf8_lossy(bytes);
            if let Ok(ticket) = Ticket::parse(&text) {
                assert_eq!(ticket.to_text(), text);
            }
        }
        1 => {
            assert!(admit(&mut peer, &key, at, 0).is_err());
            assert!(peer.answered <= 69, "one answer");
        }
        _ => {
            assert!(join(&mut peer, &Credential::Key(key), at).is_err());
            assert_eq!(peer.answered, 61, "nothing follows the first message");
        }
    }
}
