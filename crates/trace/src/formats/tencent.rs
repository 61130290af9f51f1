//! Tencent Cloud Block Storage traces (Zhang et al., "OSCA", USENIX ATC 2020; SNIA IOTTA set 27917).
//!
//! `timestamp,offset,size,type,volume`: seconds, sectors of 512 bytes, 0 = read and 1 = write. The object is the volume.

use crate::parse::{Bad, commas, excerpt, int, sectors, uint};
use crate::record::Record;
use crate::text::{Context, LineFormat};
use entresol_core::Op;

/// See the module.
pub struct Tencent;

impl LineFormat for Tencent {
    fn line(&mut self, line: &[u8], context: &mut Context) -> Result<Option<Record>, Bad> {
        let [time, offset, size, op, volume] = commas::<5>(line)?;
        let op = match op.trim_ascii() {
            b"0" => Op::Read,
            b"1" => Op::Write,
            other => return Err(format!("0 (read) or 1 (write) expected, found {}", excerpt(other)).into()),
        };
        let time = int(time)?.checked_mul(1_000_000).ok_or("the time is out of range")?;
        let (offset, size) = (sectors(uint(offset)?)?, sectors(uint(size)?)?);
        uint(volume)?;
        let object = context.names.number(volume)?;
        let time_us = context.clock.us(time, 1);
        Ok(Some(Record::Io { time_us, op, stream: 0, object, offset, size, next_use: None }))
    }
}
