//! SPC-1 trace format (Storage Performance Council, "SPC Trace File Format Specification", 2002): the Financial and
//! WebSearch traces of the UMass repository.
//!
//! `asu,lba,size,opcode,timestamp[,...]`: application storage unit, sectors of 512 bytes, bytes, `r` or `w`, seconds.
//! Further columns are allowed and ignored. The object is the unit.

use crate::parse::{Bad, commas_at_least, decimal, read_or_write, sectors, uint};
use crate::record::Record;
use crate::text::{Context, LineFormat};

/// See the module.
pub struct Spc;

impl LineFormat for Spc {
    fn line(&mut self, line: &[u8], context: &mut Context) -> Result<Option<Record>, Bad> {
        let [unit, lba, size, op, time] = commas_at_least::<5>(line)?;
        let op = read_or_write(op)?;
        let (offset, size, time) = (sectors(uint(lba)?)?, uint(size)?, decimal(time, 9)?);
        uint(unit)?;
        let object = context.names.number(unit)?;
        let time_us = context.clock.us(time, 1000);
        Ok(Some(Record::Io { time_us, op, stream: 0, object, offset, size, next_use: None }))
    }
}
