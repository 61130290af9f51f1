//! Alibaba block traces (Li et al., "An in-depth analysis of cloud block storage workloads", IISWC 2020).
//!
//! `device_id,opcode,offset,length,timestamp`: `R` or `W`, bytes, microseconds. A first line with these names is
//! allowed. The object is the device.

use crate::parse::{Bad, commas, int, read_or_write, uint};
use crate::record::Record;
use crate::text::{Context, LineFormat};

/// The first line of some copies.
pub const HEADER: &[u8] = b"device_id,opcode,offset,length,timestamp";

/// See the module.
pub struct Alibaba;

impl LineFormat for Alibaba {
    fn line(&mut self, line: &[u8], context: &mut Context) -> Result<Option<Record>, Bad> {
        let [device, op, offset, size, time] = commas::<5>(line)?;
        let op = read_or_write(op)?;
        let (offset, size, time) = (uint(offset)?, uint(size)?, int(time)?);
        uint(device)?;
        let object = context.names.number(device)?;
        let time_us = context.clock.us(time, 1);
        Ok(Some(Record::Io { time_us, op, stream: 0, object, offset, size, next_use: None }))
    }
}
