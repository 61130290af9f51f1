//! The default output of blkparse (blktrace tools).
//!
//! `major,minor cpu sequence time pid action rwbs sector + count [process]`: seconds with nanoseconds, sectors of 512
//! bytes. One I/O passes through several actions (queued, got a request, issued, completed), so exactly one of them is
//! read: `Q` when the first 64 KiB of the trace has any, else `D`, else `C`. All other lines are counted, not read.
//! `rwbs` with `D` is a discard, with neither `R` nor `W` a flush or barrier; both are counted. The summary that
//! blkparse prints behind the events ends the trace. The object is the device, the stream the process.

use crate::parse::{Bad, decimal, excerpt, sectors, split_words, uint, uint32};
use crate::record::Record;
use crate::text::{Context, LineFormat};
use crate::trace::ObjectKind;
use entresol_core::Op;

/// See the module.
pub struct Blkparse {
    action: &'static [u8],
    ended: bool,
}

impl Blkparse {
    /// Chooses the action to read by the beginning of the trace.
    pub fn new(head: &[u8]) -> Self {
        let has = |action: &[u8]| head.split(|&b| b == b'\n').any(|line| split_words(line).nth(5) == Some(action));
        let action: &[u8] = if has(b"Q") {
            b"Q"
        } else if has(b"D") {
            b"D"
        } else {
            b"C"
        };
        Blkparse { action, ended: false }
    }
}

impl LineFormat for Blkparse {
    fn line(&mut self, line: &[u8], context: &mut Context) -> Result<Option<Record>, Bad> {
        if self.ended || line.starts_with(b"CPU") || line.starts_with(b"Total (") {
            self.ended = true;
            return Ok(None);
        }
        let mut words = split_words(line);
        let mut need =
            || words.next().ok_or_else(|| Bad::from(format!("a blkparse event expected: {}", excerpt(line))));
        let device = need()?;
        let comma = memchr::memchr(b',', device).ok_or("`major,minor` expected in the first column")?;
        uint(&device[..comma])?;
        uint(&device[comma + 1..])?;
        uint(need()?)?;
        uint(need()?)?;
        let time = decimal(need()?, 9)?;
        let stream = uint32(need()?)?;
        let action = need()?;
        if action == b"m" {
            return Ok(Some(Record::Other("blktrace message")));
        }
        let kind = need()?;
        if action != self.action {
            return Ok(Some(Record::Other("other stage of an I/O")));
        }
        let op = match kind {
            _ if kind.contains(&b'D') => return Ok(Some(Record::Other("discard"))),
            _ if kind.contains(&b'R') => Op::Read,
            _ if kind.contains(&b'W') => Op::Write,
            _ => return Ok(Some(Record::Other("flush"))),
        };
        let (Ok(sector), Some(b"+"), Some(count)) = (need(), words.next(), words.next()) else {
            // A flush that carries the W of `FWS` but no data.
            return Ok(Some(Record::Other("flush")));
        };
        let (offset, size) = (sectors(uint(sector)?)?, sectors(uint(count)?)?);
        let time_us = context.clock.us(time, 1000);
        let object = context
            .names
            .number_as(device, |key| (String::from_utf8_lossy(key).replace(',', ":"), ObjectKind::Data))?;
        Ok(Some(Record::Io { time_us, op, stream, object, offset, size, next_use: None }))
    }
}
