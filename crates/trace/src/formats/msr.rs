//! MSR Cambridge traces (Narayanan et al., FAST 2008; SNIA IOTTA set 388).
//!
//! `timestamp,hostname,disk,type,offset,size,response`: Windows file time in units of 100 ns, `Read` or `Write`, bytes.
//! The response time is ignored. The object is `hostname_disk`.

use crate::parse::{Bad, commas, int, joined, read_or_write, uint};
use crate::record::Record;
use crate::text::{Context, LineFormat};

/// See the module.
pub struct Msr;

impl LineFormat for Msr {
    fn line(&mut self, line: &[u8], context: &mut Context) -> Result<Option<Record>, Bad> {
        let [time, host, disk, op, offset, size, response] = commas::<7>(line)?;
        let op = read_or_write(op)?;
        uint(response)?;
        let (time, offset, size) = (int(time)?, uint(offset)?, uint(size)?);
        uint(disk)?;
        let object = context.names.number(joined(line, host, disk))?;
        let time_us = context.clock.us(time, 10);
        Ok(Some(Record::Io { time_us, op, stream: 0, object, offset, size, next_use: None }))
    }
}
