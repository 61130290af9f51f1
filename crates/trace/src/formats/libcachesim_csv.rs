//! The csv of libCacheSim with its default columns (Yang et al., libCacheSim).
//!
//! `time,id,size[,next]`: seconds, the object's number, bytes, and optionally when it comes next. A first line that does
//! not start with a digit is a header. As with the binary form, every object is one page whatever its size, so that
//! counts equal those of libCacheSim when it ignores sizes. All are reads.

use crate::parse::{Bad, decimal, excerpt, leading_commas, uint};
use crate::record::{Record, Unit};
use crate::text::{Context, LineFormat};
use entresol_core::Op;

/// See the module.
pub struct LibCacheSimCsv;

/// True for a line that names columns instead of giving numbers.
pub fn is_header(line: &[u8]) -> bool {
    !line.trim_ascii().first().is_some_and(u8::is_ascii_digit)
}

impl LineFormat for LibCacheSimCsv {
    fn line(&mut self, line: &[u8], context: &mut Context) -> Result<Option<Record>, Bad> {
        let ([time, id, size], columns) = leading_commas::<3>(line);
        if !(3..=4).contains(&columns) {
            return Err(format!("`time,id,size[,next]` expected, found {columns} columns: {}", excerpt(line)).into());
        }
        let (time, offset) = (decimal(time, 6)?, uint(id)?);
        uint(size)?;
        let object = context.names.number(b"objects")?;
        let time_us = context.clock.us(time, 1);
        Ok(Some(Record::Io { time_us, op: Op::Read, stream: 0, object, offset, size: 1, next_use: None }))
    }

    fn unit(&self) -> Unit {
        Unit::Pages
    }
}
