//! ARC traces, `.lis` (Megiddo and Modha, "ARC: a self-tuning, low overhead replacement cache", FAST 2003).
//!
//! `start count ignored request`, separated by blanks: the blocks `start .. start + count` are referenced in order. A
//! block has 512 bytes on the disk, but the literature counts each block number as one page, and so does this reader:
//! its unit is pages, so that hit counts equal the published ones. No operation, no time: all are reads.

use crate::parse::{Bad, uint, words};
use crate::record::{Record, Unit};
use crate::text::{Context, LineFormat};
use entresol_core::Op;

/// See the module.
pub struct Arc;

impl LineFormat for Arc {
    fn line(&mut self, line: &[u8], context: &mut Context) -> Result<Option<Record>, Bad> {
        let [start, count, ignored, request] = words::<4>(line)?;
        let (offset, size) = (uint(start)?, uint(count)?);
        uint(ignored)?;
        uint(request)?;
        let object = context.names.number(b"volume")?;
        Ok(Some(Record::Io { time_us: 0, op: Op::Read, stream: 0, object, offset, size, next_use: None }))
    }

    fn unit(&self) -> Unit {
        Unit::Pages
    }

    fn has_time(&self) -> bool {
        false
    }
}
